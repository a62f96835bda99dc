"""The learned judge: how likely a draft is knowledge worth keeping, and of which type.

Linear models over named features, trained by scripts/train_extraction.py from labelled sessions; judge.json holds the
numbers and their card. A feature that the model does not know counts nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The models: of drafts and of each type; `slope` and `offset` turn a draft's score into a probability."""

    draft: Weights
    types: Mapping[str, Weights]
    slope: float
    offset: float
    threshold: float

    def draft_score(self, features: Mapping[str, float]) -> float:
        """Return the probability that a draft says something worth keeping."""
        return _logistic(self.slope * _sum(self.draft, features) + self.offset)

    def type_of(self, features: Mapping[str, float]) -> str:
        """The type that a draft most likely is."""
        return max(self.types, key=lambda name: _sum(self.types[name], features))


@cache
def trained() -> Judge:
    """The judge as it is shipped."""
    stored = json.loads((files("nugget.extraction") / "judge.json").read_text("utf-8"))
    return Judge(**{name: stored[name] for name in ("draft", "types", "slope", "offset", "threshold")})


def _sum(weights: Weights, features: Mapping[str, float]) -> float:
    return weights[""] + sum(weights.get(name, 0.0) * value for name, value in features.items() if value)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))
