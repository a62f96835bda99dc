"""Similar units: to a ref or a thought that a person names, and to a unit that is proposed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nugget.capture.compare import Similar
from nugget.errors import EmbeddingUnavailable, NuggetError
from nugget.models import Bundle, Hit, Query, SourceName, Unit
from nugget.retrieval.search import DEFAULT_LIMIT, Results, as_bundle, chosen_sources

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nugget.app import Brain

NEIGHBOURS = 5
"""How many of the brain's units a new one is compared with."""


def related(brain: Brain, query: Query, *, fresh: bool, log: bool) -> tuple[Bundle, Results]:
    """Return what is similar to a ref or a thought, as one Bundle and by source: `Brain.related`."""
    from nugget.retrieval.suggestions import related

    started, moment = time.perf_counter(), datetime.now(UTC)
    chosen = chosen_sources(query.filter.sources, identity=query.identity)
    results = related(
        _named(brain, query.text, query.identity, fresh=fresh), brain.indexes(query.identity), sources=chosen,
        settings=brain.settings.retrieval, embedder=brain.embedder, limit=query.limit or DEFAULT_LIMIT,
        today=moment.date(), now=moment,
    )  # fmt: skip
    results = replace(results, query=replace(results.query, given=query.text))
    bundle = as_bundle(results, query)
    of_memory = query.text.strip().startswith(f"{SourceName.MEMORY}:") or chosen == (SourceName.MEMORY,)
    if brain.query_log and log and not of_memory:
        brain.query_log.note(bundle, started=started, now=moment, related=True)
    return bundle, results


def _named(brain: Brain, given: str, identity: str | None, *, fresh: bool) -> Unit | str:
    """Return the unit a ref names, or what was said in its exchange; a text that is not a ref is a thought in words."""
    try:
        shown = brain.get(given, identity=identity, around=0, fresh=fresh)
    except NuggetError:
        source, colon, _ = given.partition(":")
        looks_like_an_id = "/" in given and " " not in given.strip()
        if (colon and source in (*SourceName, "session")) or looks_like_an_id:
            raise
        return given
    if shown.unit is not None:
        return shown.unit
    assert shown.excerpt is not None
    return " ".join(passage.text for passage in shown.excerpt.passages if passage.is_target)[:2000]


def similar_units(brain: Brain) -> Similar:
    """Return a function that compares a unit with the brain by the cosine of its nearest candidates.

    Without an embedding model, and where it cannot be had now, every candidate has similarity 0, and the shared words
    decide.
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
        try:
            ours = vector(text)
            best = [
                max(float(ours @ vector(whole)), float(ours @ vector(part)))
                for whole, part in zip(wholes, parts, strict=True)
            ]
        except EmbeddingUnavailable:
            return [(near, 0.0) for near in found]
        return sorted(zip(found, best, strict=True), key=lambda pair: -pair[1])

    return similar


def neighbours(brain: Brain, text: str) -> Sequence[Hit]:
    """Return the brain's units that are nearest to a text."""
    return brain.ask(Query(text, limit=NEIGHBOURS, budget_tokens=100_000), log=False).hits
