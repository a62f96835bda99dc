"""`/v1/ask`, `/v1/search` and `/v1/units/{ref}`: everything that is known, with the very JSON of the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nugget.errors import NuggetError, TranscriptError
from nugget.http.parameters import AskRequest, RefRequest, SearchRequest
from nugget.http.replies import Refusal, without_secrets
from nugget.redaction import redact
from nugget.render import bundle_json, shown_json

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.infra.llm import LLM

_REF = re.compile(r"[^\s:\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,499}")


def ask(brain: Brain, request: AskRequest, llm: LLM | None) -> dict[str, Any]:
    """The JSON of `nugget ask --json`. Blocking."""
    from nugget.retrieval.answering import answered
    from nugget.retrieval.reranking import choose_reranker

    bundle = brain.ask(
        request.q,
        limit=request.limit,
        budget_tokens=request.budget,
        depth=request.depth,
        types=request.types,
        domains=request.domains,
        tags=request.tags,
        since=request.since,
        explain=request.explain,
        reranker=None if request.no_llm else choose_reranker(brain.settings, llm, brain.environment),
    )
    if llm is None:
        bundle = replace(bundle, degraded=(*bundle.degraded, "no_llm"))
    return _sent(bundle_json(answered(bundle, llm, brain.settings)))


def search(brain: Brain, request: SearchRequest, *, identity: str | None) -> dict[str, Any]:
    """The JSON of `nugget search --json`; memory is that of `identity` alone. Blocking."""
    bundle, _ = brain.search_all(
        request.q,
        limit=request.limit or 50,
        sources=request.sources,
        types=request.types,
        domains=request.domains,
        tags=request.tags,
        since=request.since,
        as_identity=identity,
        explain=request.explain,
    )
    return _sent(bundle_json(bundle))


def shown(brain: Brain, ref: str, request: RefRequest, *, identity: str | None) -> dict[str, Any]:
    """The JSON of `nugget get --json`; memory is that of `identity` alone. Blocking.

    Raises Refusal for what is no ref, and where nothing is known by it.
    """
    if not _REF.fullmatch(ref):
        raise Refusal(
            422, "invalid_ref", "This is no ref.", hint="Refs look like pattern/retry-once or session:4f1c#3."
        )
    try:
        found = brain.get(ref, as_identity=identity, neighbours=request.around)
    except TranscriptError as error:
        raise Refusal(404, "unknown_ref", redact(str(error)).text, hint="/v1/search finds refs.") from error
    except NuggetError as error:
        if type(error) is not NuggetError:  # what is no ref, or an index that cannot be read
            raise
        raise Refusal(404, "unknown_ref", "Nothing is known by this ref.", hint="/v1/search finds refs.") from error
    return _sent(shown_json(found))


def _sent(value: dict[str, Any]) -> dict[str, Any]:
    cleaned: dict[str, Any] = without_secrets(value)
    return cleaned
