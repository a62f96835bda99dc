"""What of a brain is near to a text or a unit: for whatever proposes units and must not say a thing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nugget.comparison import Similar
from nugget.models import Hit, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.api import Brain

NEIGHBOURS = 5
"""How many of the brain's units a new one is compared with."""


def similar_units(brain: Brain) -> Similar:
    """What compares a unit with the brain: retrieval finds the candidates, their embeddings say how close they are.

    Without an embedding model every candidate has similarity 0, and the shared words decide.
    """

    vectors: dict[str, NDArray[np.float32]] = {}

    def vector(text: str) -> NDArray[np.float32]:
        # The units of one session have neighbours in common.
        if text not in vectors and brain.embedder is not None:
            vectors[text] = next(iter(brain.embedder.embed([text])))
        return vectors[text]

    def similar(unit: Unit) -> list[tuple[Unit, float]]:
        text = f"{unit.title}\n{unit.body[:2000]}"
        hits = neighbours(brain, text)
        found = [brain.index.unit(hit.unit.id) or hit.unit for hit in hits]
        if brain.embedder is None or not found:
            return [(near, 0.0) for near in found]
        # A short new unit is often close to one part of a long one: both the whole and its best part are compared.
        wholes = [f"{near.title}\n{near.body[:2000]}" for near in found]
        parts = [f"{hit.unit.title}\n{hit.chunks[0].text if hit.chunks else ''}" for hit in hits]
        ours = vector(text)
        best = [
            max(float(ours @ vector(whole)), float(ours @ vector(part)))
            for whole, part in zip(wholes, parts, strict=True)
        ]
        return sorted(zip(found, best, strict=True), key=lambda pair: -pair[1])

    return similar


def neighbours(brain: Brain, text: str) -> Sequence[Hit]:
    """What the brain holds that is nearest to a text."""
    return brain.ask(text, limit=NEIGHBOURS, budget_tokens=100_000, sources=["brain"], log=False).hits
