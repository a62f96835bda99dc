"""Knowledge about code outside Python: as JSON in openqed's shape, and as markdown for agents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nugget.index.provenance import IndexedSession
from nugget.models import Speaker
from nugget.nuggets import NuggetBundle, NuggetHit
from nugget.render import MAX_CHARS, ORDERS, clean, fence, one_line, standing
from nugget.retrieval.nugget_packing import scope_text
from nugget.text import clean_values, shorten

_FOOT_CHARS = 160


def context_json(bundle: NuggetBundle, *, explain: bool = False, strict: bool = False) -> dict[str, Any]:
    """The answer in openqed's shape (`ContextResponse`); keys that say nothing are left out.

    Every nugget says who is the `speaker` and whether it is `reviewed`; a unit of the brain has its `ref` and keeps its
    own type. `explain` adds scores and their
    addends. `strict` has nothing that openqed does not have: a unit is then of the type that it is weighed as.
    """
    query, budget = bundle.query, bundle.budget
    asked = {"path": query.path, "symbol": query.symbol, "text": query.text, "depth": str(query.depth)}
    value: dict[str, Any] = {
        "query": {name: given for name, given in asked.items() if given is not None},
        "budget": {
            "requested": budget.requested, "used": budget.used, "available": budget.available,
            "truncated": budget.truncated,
        },
        "nuggets": [nugget_json(hit, strict=strict) for hit in bundle.hits],
        "moreContextHint": bundle.more_context_hint,
    }  # fmt: skip
    if explain:
        value["explain"] = {
            "candidates": bundle.candidates,
            "notes": list(bundle.notes),
            "nuggets": [
                {
                    "id": hit.nugget.id, "score": round(hit.score, 6), "match": str(hit.match),
                    "contributions": [
                        {"name": part.name, "value": part.value, "detail": part.detail} for part in hit.contributions
                    ],
                }
                for hit in bundle.hits
            ],
        }  # fmt: skip
    return clean_values(value)


def nugget_json(hit: NuggetHit, *, strict: bool = False) -> dict[str, Any]:
    """One nugget of `context_json`."""
    nugget = hit.nugget
    type_ = hit.unit.type if hit.unit and not strict else str(nugget.type)
    value: dict[str, Any] = {"type": type_, "summary": nugget.summary}
    if nugget.detail:
        value["detail"] = nugget.detail
    value |= {
        "scope": scope_text(nugget),
        "confidence": nugget.confidence,
        "sessionDate": iso_date(nugget.session_started or nugget.extracted_at),
        "sessionAgent": nugget.agent,
    }
    if nugget.source_prompt:
        value["sourcePrompt"] = nugget.source_prompt
    if nugget.alternatives:
        value["alternatives"] = list(nugget.alternatives)
    if hit.stale_reason:
        value |= {"stale": True, "staleReason": str(hit.stale_reason)}
    if not strict:
        value |= {"speaker": speaker_of_hit(hit), "reviewed": hit.unit is not None}
        value |= {"ref": hit.unit.ref} if hit.unit else {}
    return value


def iso_date(moment: datetime | None) -> str | None:
    """`2025-01-15T10:00:00.000Z`."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def file_history_json(path: str, touching: Sequence[IndexedSession], *, shown: int) -> dict[str, Any]:
    """The sessions that touched a file, newest first, in openqed's shape."""
    return {
        "path": path,
        "sessions": [
            {
                "sessionId": known.record.session, "agent": known.record.agent,
                "startedAt": iso_date(known.record.started), "endedAt": iso_date(known.record.ended),
            }
            for known in touching[:shown]
        ],
        "total": len(touching),
        "shown": min(shown, len(touching)),
    }  # fmt: skip


def decisions_json(bundle: NuggetBundle) -> dict[str, Any]:
    """Decisions, rejections and constraints in openqed's shape."""
    keys = ("type", "summary", "detail", "scope", "confidence", "alternatives", "stale", "staleReason")
    shown = [{"id": hit.nugget.id} | _only(nugget_json(hit, strict=True), keys) for hit in bundle.hits]
    return clean_values(
        {
            "decisions": shown,
            "total": bundle.candidates,
            "shown": len(shown),
            "scope": bundle.query.path or "workspace",
        }
    )


def provenance_markdown(bundle: NuggetBundle, history: Sequence[IndexedSession], max_chars: int = MAX_CHARS) -> str:
    """Nuggets and the sessions behind a file as markdown for an agent, at most `max_chars` long.

    What comes from sessions stands inside a fence that it cannot close.
    """
    place = one_line(bundle.query.path or "the workspace").replace("`", "'")
    if not bundle.hits and not history:
        return f"Nothing is recorded on why {place} is as it is."[:max_chars]
    head = f"Why {place} is as it is: from earlier sessions, not reviewed unless it says so. {ORDERS}"
    lines: list[str] = []
    for hit in bundle.hits:
        lines += nugget_lines(hit)
    if history:
        lines += ["", "Sessions that touched it, newest first:"]
        lines += [session_line(known) for known in history[:8]]
    foot = " ".join(one_line(text) for text in (*bundle.notes, bundle.more_context_hint or "") if text)
    marks = fence("\n".join(lines))
    frame = f"{head}\n\n{marks}text reference\n"
    room = max_chars - len(frame) - len(marks) - len(foot) - 8
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append("[…]")
            break
        kept.append(line)
    text = "\n".join(kept)
    return f"{frame}{text}\n{marks}" + (f"\n\n{foot}" if foot else "")


def nugget_lines(hit: NuggetHit) -> list[str]:
    """A nugget as plain lines: what, why, where it comes from."""
    nugget = hit.nugget
    stale = f" (stale: {str(hit.stale_reason).replace('_', ' ')})" if hit.stale_reason else ""
    lines = [f"[{hit.unit.type if hit.unit else nugget.type}] {one_line(nugget.summary)}{stale}"]
    if nugget.detail:
        lines += [f"  {line}" for line in clean(nugget.detail).split("\n") if line.strip()]
    if nugget.alternatives:
        lines.append(f"  alternatives: {one_line('; '.join(nugget.alternatives))}")
    if nugget.source_prompt:
        lines.append(f"  asked: {shorten(clean(nugget.source_prompt), 1000)}")
    lines.append(f"  {origin_text(hit)}")
    return lines


def origin_text(hit: NuggetHit) -> str:
    """`src/auth.ts | said by the user, not reviewed | claude-code | 2025-01-15 | 1a2b3c4d-3`."""
    nugget = hit.nugget
    learned = nugget.session_started or nugget.extracted_at
    said = standing(speaker_of_hit(hit), is_reviewed=hit.unit is not None)
    agent = "" if hit.unit else nugget.agent
    parts = [scope_text(nugget), said, agent, f"{learned:%Y-%m-%d}" if learned else "", nugget.id]
    return " | ".join(one_line(part) for part in parts if part)


def speaker_of_hit(hit: NuggetHit) -> Speaker | None:
    """Return who gave the reason: for a reviewed unit, the speaker of its evidence."""
    return hit.unit.speaker if hit.unit else hit.nugget.speaker


def session_line(known: IndexedSession) -> str:
    """`2026-11-01 claude-code 1a2b3c4d: title`."""
    record = known.record
    day = f"{record.started:%Y-%m-%d}" if record.started else "no date"
    title = shorten(one_line(record.title or record.first_prompt), 100)
    return f"- {day} {one_line(record.agent)} {one_line(record.session[:8])}: {title}"


def _only(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {name: value[name] for name in keys if name in value}
