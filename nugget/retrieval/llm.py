"""Models that work on hits: a re-ranker (Claude or a local cross-encoder) orders them, Claude answers from them.

Without a re-ranker the local order stands. An answer is written from the hits alone, cites unit ids, and is streamed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nugget.config import Environment, Settings
from nugget.errors import LLMUnavailable
from nugget.infra.embedding.other_models import CrossEncoder
from nugget.infra.llm import LLM, Request, object_schema, prompt_text
from nugget.models import Bundle, Hit

NOTHING_FOUND = "Nothing that is indexed is on this."
PASSAGE_CHARS = 1200
"""The most characters of a passage for a re-ranker."""

_CROSS_ENCODER = "cross-encoder:"
_LEAST_SHARE_JUDGED = 0.5
_MAX_TOKENS = 4000
_QUESTION_CHARS = 8000
_UNIT_CHARS = 12_000

_RELEVANCE = {
    "number": {"type": "integer", "description": "the passage's number"},
    "relevance": {"type": "number", "description": "0 to 1"},
}
_SCHEMA = object_schema({"passages": {"type": "array", "items": object_schema(_RELEVANCE)}})


class Reranker(NamedTuple):
    """A judge of hits; `name` appears in the reasons of a hit.

    `judge` gives one relevance in 0..1 for each hit, in order; it raises LLMUnavailable or EmbeddingUnavailable.
    """

    name: str
    judge: Callable[[str, Sequence[Hit]], list[float]]


def choose_reranker(settings: Settings, llm: LLM | None, environment: Environment) -> Reranker | None:
    """Return the re-ranker that `retrieval.reranker` names, or None for the local order. Loads nothing yet.

    `claude` without a key gives a re-ranker that fails with the reason.
    """
    name = settings.retrieval_reranker
    if name == "local" or (name == "auto" and llm is None):
        return None
    if name in ("auto", "claude"):
        return Reranker("claude", lambda question, hits: judge_with_claude(question, hits, llm, settings))
    model = name.removeprefix(_CROSS_ENCODER)
    encoder = CrossEncoder(model, cache=environment.models / "fastembed")
    label = f"{_CROSS_ENCODER}{Path(model).name}"
    return Reranker(label, lambda question, hits: _judge_locally(question, hits, encoder))


def judge_with_claude(question: str, hits: Sequence[Hit], llm: LLM | None, settings: Settings) -> list[float]:
    """Return the relevance of each hit to Claude; hits missing from the reply get 0.

    Raises LLMUnavailable also when the reply judges fewer than half of them.
    """
    if llm is None:
        hint = "Set ANTHROPIC_API_KEY, or `retrieval: {reranker: local}`."
        raise LLMUnavailable("`retrieval.reranker` is `claude`, but there is no key, or no LLM enabled.", hint=hint)
    fenced = [
        llm.fence(f"{hit.unit.title}\n\n{_text_of(hit)}"[:PASSAGE_CHARS], "passage", number=number, **_facts_about(hit))
        for number, hit in enumerate(hits, start=1)
    ]
    task = f"Judge all {len(hits)} passages by their relevance to the question."
    model = settings.llm_rerank_model
    request = Request(
        purpose="rerank", model=model, system=prompt_text(__file__, "judge"),
        prompt="\n\n".join([llm.fence(question[:4000], "question"), *fenced, task]),
        max_tokens=2000 + 40 * len(hits), effort="low",
        timeout_s=settings.retrieval_rerank_timeout_s, max_usd=settings.retrieval_rerank_max_usd,
    )  # fmt: skip
    judged: dict[int, float] = {}
    for entry in llm.structured(request, _SCHEMA).value["passages"]:
        if 1 <= entry["number"] <= len(hits):
            judged.setdefault(entry["number"], float(min(max(entry["relevance"], 0), 1)))
    if len(judged) < _LEAST_SHARE_JUDGED * len(hits):
        raise LLMUnavailable(f"{model} judged only {len(judged)} of {len(hits)} passages.")
    return [judged.get(number, 0.0) for number in range(1, len(hits) + 1)]


def _judge_locally(question: str, hits: Sequence[Hit], encoder: CrossEncoder) -> list[float]:
    """Return the sigmoid of the cross-encoder's logit for each hit. Raises EmbeddingUnavailable."""
    texts = [f"{hit.unit.title}\n{_text_of(hit)}"[:PASSAGE_CHARS] for hit in hits]
    return [1 / (1 + math.exp(-max(logit, -700.0))) for logit in encoder.logits(question, texts)]


def answer(question: str, hits: Sequence[Hit], llm: LLM, settings: Settings) -> Iterator[str]:
    """Yield the answer in pieces as it is written, or `NOTHING_FOUND` without hits and without a call.

    Raises LLMUnavailable, also in the middle of the answer.
    """
    if not hits:
        yield NOTHING_FOUND
        return
    units = [
        llm.fence(
            (_text_of(hit, with_places=True) or hit.unit.body)[:_UNIT_CHARS], "unit", id=hit.name,
            source=hit.unit.source, title=hit.unit.title, **_facts_about(hit), stale=hit.stale_reason or "no",
        )
        for hit in hits
    ]  # fmt: skip
    prompt = "\n\n".join([*units, llm.fence(question[:_QUESTION_CHARS], "question"), "Answer the question."])
    yield from llm.stream(
        Request(
            purpose="answer", model=settings.llm_answer_model, system=prompt_text(__file__, "answer"), prompt=prompt,
            max_tokens=_MAX_TOKENS, timeout_s=settings.llm_timeout_s, effort="low",
        )
    )  # fmt: skip


def add_answer(bundle: Bundle, llm: LLM | None, settings: Settings) -> Bundle:
    """Return the bundle with a written answer, if there is an LLM and something to answer from.

    When the LLM fails, `degraded` says why.
    """
    if llm is None or not bundle.hits or bundle.weak:
        return bundle
    try:
        written = "".join(answer(bundle.query.text, bundle.hits, llm, settings)).strip()
    except LLMUnavailable as error:
        return replace(bundle, degraded=(*bundle.degraded, f"no_answer: {error}"))
    return replace(bundle, answer=written or None)


def citations_in(text: str, hits: Sequence[Hit]) -> list[str]:
    """Return the distinct names of hits that a text cites in square brackets, in order of their first citation.

    Brackets around anything else are not citations.
    """
    known = {name: hit.name for hit in hits for name in (hit.unit.id, hit.unit.ref, hit.ref)}
    named = [
        part.strip(" `")
        for brackets in re.findall(r"\[([^\[\]\n]{1,400})\]", text)
        for part in re.split(r"[,;]", brackets)
    ]
    return list(dict.fromkeys(known[part] for part in named if part in known))


def _text_of(hit: Hit, *, with_places: bool = False) -> str:
    """Return the chunks of a hit, each below its place if requested."""
    places = [f"{chunk.breadcrumb}\n" if with_places and chunk.breadcrumb else "" for chunk in hit.chunks]
    return "\n\n".join(f"{place}{chunk.text}" for place, chunk in zip(places, hit.chunks, strict=True))


def _facts_about(hit: Hit) -> dict[str, Any]:
    """Return the facts about a unit that a model may weigh beside its text."""
    unit = hit.unit
    return {
        "type": unit.type, "confidence": f"{unit.confidence:.2f}", "origin": unit.origin or "unknown",
        "updated": unit.last_modified or unit.created or "unknown",
    }  # fmt: skip
