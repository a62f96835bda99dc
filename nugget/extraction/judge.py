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

_MANY = 20
"""From this number of drafts on, a session counts as long."""
_PRIOR = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The models: of drafts and of each type; `slope` and `offset` turn a draft's score into a probability."""

    draft: Weights
    types: Mapping[str, Weights]
    slope: float
    offset: float
    threshold: float

    def draft_score(self, features: Mapping[str, float], *, of: int = _MANY) -> float:
        """Return the probability that one of `of` drafts of a session says something worth keeping.

        The fewer there are, the likelier each is: a session holds about as much knowledge whether it is short or long.
        """
        prior = _PRIOR * math.log(_MANY / of) if of < _MANY else 0.0
        return _logistic(self.slope * _sum(self.draft, features) + self.offset + prior)

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
