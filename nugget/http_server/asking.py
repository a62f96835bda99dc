"""`/v1/ask`, `/v1/search` and `/v1/units/{id}`: the brain, with the very JSON of the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nugget.errors import NuggetError, UsageError
from nugget.http_server.parameters import AskRequest, SearchRequest
from nugget.http_server.replies import Refusal, without_secrets
from nugget.models import SourceName
from nugget.render import bundle_json, unit_json

if TYPE_CHECKING:
    from nugget.api import Brain
    from nugget.llm import LLM

_UNIT_ID = re.compile(r"(?:(?P<source>[a-z]+):)?(?P<id>[^\s:\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,499})\Z")


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


def unit(brain: Brain, ref: str, *, identity: str | None) -> dict[str, Any]:
    """The JSON of `nugget get --json` for a unit. Blocking. Raises Refusal where there is no such unit."""
    named = _UNIT_ID.match(ref)
    if named is None or (named["source"] and named["source"] not in list(SourceName)):
        raise Refusal(422, "invalid_unit_id", "This is no id of a unit.", hint="Ids look like pattern/retry-once.")
    unknown = Refusal(404, "unknown_unit", "There is no unit with this id.", hint="/v1/search finds ids.")
    try:
        shown = brain.get(ref, as_identity=identity)
    except UsageError:
        raise
    except NuggetError as error:
        if type(error) is not NuggetError:  # an index that cannot be read, say
            raise
        raise unknown from error
    if shown.unit is None:
        raise unknown
    evidence = [{"session": entry.session, "quote": entry.quote} for entry in shown.unit.evidence]
    return _sent(unit_json(shown.unit) | {"ref": shown.ref, "body": shown.unit.body, "evidence": evidence})


def _sent(value: dict[str, Any]) -> dict[str, Any]:
    cleaned: dict[str, Any] = without_secrets(value)
    return cleaned
