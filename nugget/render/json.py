"""JSON of every contract that the command line, MCP and HTTP print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nugget.models.nuggets import scope_text
from nugget.render import iso_date, speaker_of_hit
from nugget.text import clean_values, map_texts

if TYPE_CHECKING:
    from nugget.app.sessions import KnownSession
    from nugget.capture import CaptureResult
    from nugget.capture.review import ProposalBranch, ProposedFile
    from nugget.importing import ImportResult
    from nugget.infra.workspace import Workspace
    from nugget.models import Bundle, Hit, StaleReason, Unit
    from nugget.models.nuggets import Nugget, NuggetBundle, NuggetHit, SessionRecord
    from nugget.provenance.extraction import ExtractedSession
    from nugget.provenance.inventory import Gaps
    from nugget.retrieval.refs import Shown

_BUDGET = ("requested", "used", "available", "truncated")
_EVENT = ("kind", "text", "speaker", "origin", "timestamp", "tool", "path", "before", "after", "ok", "exit_code")
_EVIDENCE = ("session", "quote", "speaker", "origin")
_CHANGE = ("unit.id", "path", "unit.title", "unit.type", "unit.domain", "unit.confidence")


def fields(value: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Return attributes of a value as JSON: `scope.path` as `path`, and with `where="scope.path"` as `where`."""
    wanted = {name.rpartition(".")[2]: name for name in names} | renamed
    return {key: _plain(attrgetter(name)(value)) for key, name in wanted.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def without_secrets(value: Any) -> Any:
    """Return a JSON value with every text in it redacted."""
    from nugget.redaction import redact

    # All texts are checked together first, since a reply has hundreds of them and hardly ever a secret.
    texts: list[str] = []
    map_texts(value, lambda text: texts.append(text) or text)  # type: ignore[func-returns-value]
    return map_texts(value, lambda text: redact(text).text) if redact("\n\n".join(texts)).counts else value


def bundle_json(bundle: Bundle) -> dict[str, Any]:
    """Return a bundle in the shape that `--json`, MCP and HTTP share.

    `weak: true` is added if no hit is likely to answer, `explain` if it was requested.
    """
    value = {
        "query": fields(bundle, "query.text", "profile", "query.path", "query.symbol", "query.depth"),
        "budget": fields(bundle.budget, *_BUDGET),
        **fields(bundle, "degraded", "answer", "remaining"),
        "hits": [hit_json(hit) for hit in bundle.hits],
        "more_context_hint": bundle.more_context_hint,
    }
    if bundle.weak:
        value["weak"] = True
    if bundle.explain is not None:
        value["explain"] = dict(bundle.explain)
    return clean_values(value)


def hit_json(hit: Hit) -> dict[str, Any]:
    """Return one hit of `bundle_json`."""
    value = unit_json(hit.unit)
    related = value.pop("related")
    chunks = [fields(chunk, "breadcrumb", "text") | {"score": round(chunk.score, 6)} for chunk in hit.chunks]
    return value | {
        "ref": hit.ref, "stale": hit.stale_reason is not None, **fields(hit, "stale_reason"),
        "score": round(hit.score, 6), "chunks": chunks, "related": related, "reasons": list(hit.reasons),
        **({"brain": hit.brain} if hit.brain else {}),
    }  # fmt: skip


def unit_json(unit: Unit) -> dict[str, Any]:
    """Return a unit as JSON, without its body."""
    value = fields(unit, "id", "source", "type", "title", "domain", "tags", "confidence", "origin", "speaker")
    scope = None if unit.scope is None else fields(unit.scope, "repo", "path", "symbol")
    return value | {
        "reviewed": unit.is_reviewed, "scope": scope, **fields(unit, "path", "ref", "created", "last_modified"),
        "related": [fields(relation, "id", "relation") for relation in unit.related],
    }  # fmt: skip


def shown_json(shown: Shown) -> dict[str, Any]:
    """Return the target of a ref as `nugget get --json` prints it: a unit with its body, or a part of history."""
    if shown.unit is not None:
        evidence = [fields(entry, *_EVIDENCE) for entry in shown.unit.evidence]
        return clean_values(unit_json(shown.unit) | {"ref": shown.ref, "body": shown.unit.body, "evidence": evidence})
    names = ("ref", "role", "speaker", "timestamp", "text")
    passages = [fields(one, *names, asked_for="is_target") for one in (shown.excerpt and shown.excerpt.passages) or ()]
    value = fields(shown.excerpt, "ref", "source", "session", "title", "agent", "folder", "path")
    return clean_values(value | {"passages": passages})


def context_json(bundle: NuggetBundle, *, explain: bool = False, strict: bool = False) -> dict[str, Any]:
    """Return an answer about code in openqed's shape (`ContextResponse`), without empty keys.

    Every nugget has its `speaker` and whether it is `reviewed`; a unit of the brain has its `ref` and its own type.
    `explain` adds scores. With `strict` a unit has no `ref`, and the type it is ranked as, since openqed has no units.
    """
    asked = fields(bundle.query, "path", "symbol", "text", "depth")
    value: dict[str, Any] = {
        "query": {name: given for name, given in asked.items() if given not in (None, "")},
        "budget": fields(bundle.budget, *_BUDGET),
        "nuggets": [nugget_json(hit, strict=strict) for hit in bundle.hits],
        "moreContextHint": bundle.more_context_hint,
    }
    if explain:
        scored = [
            {"id": hit.nugget.id, "score": round(hit.score, 6), "match": str(hit.match),
             "contributions": [fields(part, "name", "value", "detail") for part in hit.contributions]}
            for hit in bundle.hits
        ]  # fmt: skip
        value["explain"] = {**fields(bundle, "candidates", "notes"), "nuggets": scored}
    return clean_values(value)


def nugget_json(hit: NuggetHit, *, strict: bool = False) -> dict[str, Any]:
    """Return one nugget of `context_json`."""
    nugget = hit.nugget
    value: dict[str, Any] = {
        "type": hit.unit.type if hit.unit and not strict else str(nugget.type), "summary": nugget.summary,
        "detail": nugget.detail, "scope": scope_text(nugget), "confidence": nugget.confidence,
        "sessionDate": iso_date(nugget.session_started or nugget.extracted_at), "sessionAgent": nugget.agent,
        "sourcePrompt": nugget.source_prompt, "alternatives": list(nugget.alternatives),
    }  # fmt: skip
    optional = ("detail", "sourcePrompt", "alternatives")
    value = {name: given for name, given in value.items() if given or name not in optional}
    if hit.stale_reason:
        value |= {"stale": True, "staleReason": str(hit.stale_reason)}
    value |= {"speaker": speaker_of_hit(hit), "reviewed": hit.unit is not None}
    return value | ({"ref": hit.unit.ref} if hit.unit and not strict else {})


def file_history_json(path: str, touching: Sequence[SessionRecord], *, shown: int) -> dict[str, Any]:
    """Return the sessions that touched a file, newest first, in openqed's shape."""
    sessions = [
        {"sessionId": one.session, "agent": one.agent, "startedAt": iso_date(one.started),
         "endedAt": iso_date(one.ended)}
        for one in touching[:shown]
    ]  # fmt: skip
    return {"path": path, "sessions": sessions, "total": len(touching), "shown": len(sessions)}


def decisions_json(bundle: NuggetBundle) -> dict[str, Any]:
    """Return decisions, rejections and constraints in openqed's shape."""
    left_out = ("sessionDate", "sessionAgent", "sourcePrompt")
    shown = [
        {"id": hit.nugget.id}
        | {name: value for name, value in nugget_json(hit, strict=True).items() if name not in left_out}
        for hit in bundle.hits
    ]
    scope = bundle.query.path or "workspace"
    return clean_values({"decisions": shown, "total": bundle.candidates, "shown": len(shown), "scope": scope})


def listed_json(nugget: Nugget, reason: StaleReason | None) -> dict[str, Any]:
    """Return a nugget as `nugget nuggets --json` lists it."""
    value = fields(nugget, "id", "type", "summary", scopePath="scope.path", scopeSymbol="scope.symbol")
    return value | {
        "detail": nugget.detail or None, **fields(nugget, "confidence", "session"),
        "sessionDate": iso_date(nugget.session_started), **fields(nugget, "speaker", "origin", sessionAgent="agent"),
        "reviewed": False, "stale": reason is not None, "staleReason": _plain(reason),
    }  # fmt: skip


def whole_json(nugget: Nugget, reason: StaleReason | None) -> dict[str, Any]:
    """Return a nugget as `nugget nuggets inspect --json` prints it."""
    named = {"staleAfter": "stale_after", "workspace": "scope.repo", "fileHash": "file_hash"}
    facts = fields(nugget, "alternatives", "method", **named)
    return listed_json(nugget, reason) | facts | {
        "extractedAt": iso_date(nugget.extracted_at), "sourcePrompt": nugget.source_prompt or None,
        "evidence": [fields(entry, *_EVIDENCE) for entry in nugget.evidence],
    }  # fmt: skip


def gaps_json(gaps: Gaps, limit: int) -> dict[str, Any]:
    """Return missing nuggets as `nugget coverage --gaps --json` prints them."""
    asked, unexplained = (
        [fields(one, "path", "changes", queryCount="queries", nuggetCount="nuggets") for one in found[:limit]]
        for found in (gaps.asked, gaps.unexplained)
    )
    return {"gaps": asked, "unexplained": unexplained, "degraded": list(gaps.degraded)}


def session_json(one: KnownSession) -> dict[str, Any]:
    """Return a session as `nugget sessions --json` lists it."""
    names = ("id", "agent", "project", "folder", "branch", "started", "ended", "seconds")
    return fields(one, *names) | {
        "read": one.log_key is not None, "title": one.title or None, "extracted": one.store_file is not None,
        **fields(one, "nuggets", "files", "captured", "units", "outcome"), **one.counts,
    }  # fmt: skip


def session_detail_json(detail: KnownSession, *, summary: bool) -> dict[str, Any]:
    """Return a session as `nugget sessions show --json` prints it, with `summary` without its exchanges."""
    events = dict(detail.events)
    value = session_json(detail) | {
        "prompts": detail.prompts, "failed": events.pop("failed", 0), "events": events,
        "artifacts": [fields(touch, "path", "action", previousPath="previous_path", sha256="after_hash")
                      for touch in detail.touches],
        "learned": [fields(one, "id", "type", "summary") | {"scope": one.scope.path or "workspace"}
                    for one in detail.learned],
        "problem": detail.problem and str(detail.problem),
    }  # fmt: skip
    session = detail.session
    if session is None or summary:
        return clean_values(value)
    exchanges = [
        {"number": one.number, "ref": f"session:{session.id}#{one.number}",
         "events": [{name: value for name, value in fields(event, *_EVENT, subagent="agent_id").items()
                     if value is not None} for event in one.events]}
        for one in detail.exchanges
    ]  # fmt: skip
    facts = fields(session, "id", "path", "skipped_records", folder="cwd")
    return clean_values(value | facts | {"archived": detail.is_archived, "exchanges": exchanges})


def capture_json(result: CaptureResult) -> dict[str, Any]:
    """Return the result of a capture as JSON."""
    units = [fields(change, *_CHANGE, "reason", new="is_new") for change in result.changes]
    return fields(result, "session", "branch", "skipped", "method", "summary", "dropped", "redacted", "usd") | {
        "units": units
    }


def import_json(result: ImportResult) -> dict[str, Any]:
    """Return the result of an import as JSON."""
    units = [fields(change, *_CHANGE, "reason", "note") | {"from": change.unit.evidence[0].session}
             for change in result.changes]  # fmt: skip
    left_out = [fields(entry, "path", "line", "reason") for entry in result.left_out]
    facts = fields(result, "branch", "files", "dropped", "redacted", imported_before="known", beyond_limit="waiting")
    return facts | {"units": units, "left_out": left_out}


def proposal_json(proposal: ProposalBranch) -> dict[str, Any]:
    """Return a proposal as `nugget review --json` prints it."""
    return fields(proposal, "branch", "made", "title") | {"files": [_proposed_json(file) for file in proposal.files]}


def _proposed_json(file: ProposedFile) -> dict[str, Any]:
    from nugget.capture.proposals import flags_of

    unit = file.unit
    value = fields(file, "id", "path", "status")
    if unit is None:
        return value | {"title": None, "confidence": None, "speaker": None, "evidence": [], "flags": []}
    return value | fields(unit, "title", "confidence", "speaker") | {
        "evidence": [asdict(entry) for entry in unit.evidence],
        "flags": list(flags_of(unit, before=file.before, after=file.after)),
    }  # fmt: skip


def extraction_json(
    outcomes: Sequence[ExtractedSession], here: Workspace, tunings: int, *, dry_run: bool, everything: bool
) -> dict[str, object]:
    """Return the result of an extraction as JSON."""
    return {
        **{state: sum(one.state == state for one in outcomes) for state in ("extracted", "skipped", "failed")},
        "nuggets": sum(one.nuggets for one in outcomes), "tunings": tunings,
        "usd": round(sum(one.usd for one in outcomes), 6), "dry_run": dry_run,
        "workspace": None if everything else here.identity, "sessions": [asdict(one) for one in outcomes],
    }  # fmt: skip
