"""The lines of a provenance file: values as JSON objects and back. What is read comes from anywhere and is checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypeVar

from nugget.models import Evidence, Scope, Speaker, SpeechOrigin
from nugget.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.sources.records import parse_timestamp
from nugget.text import shorten

FORMAT = 1
HASH_DIGITS = 16
"""Hex digits of one line's hash."""
_MAX_TEXT = 20_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LINE_HASHES = re.compile(rf"(?:[0-9a-f]{{{HASH_DIGITS}}})*")
_M = TypeVar("_M", bound=StrEnum)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Unreadable(ValueError):
    """A line that cannot be taken; the message says why."""


def parse(line: bytes) -> dict[str, Any]:
    """The object of one line. Raises Unreadable."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise Unreadable("not a line of JSON") from None
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise Unreadable("no object with a `kind`")
    if isinstance(values.get("format"), int) and values["format"] > FORMAT:
        raise Unreadable(f"written in format {values['format']}, which this version does not know")
    return values


def record_line(record: SessionRecord) -> dict[str, Any]:
    """The `session` line; its nuggets and touches are lines of their own."""
    return {"format": FORMAT, "kind": "session"} | _without_defaults({
        "session": record.session, "workspace": record.workspace, "agent": record.agent, "title": record.title,
        "first_prompt": record.first_prompt, "started": _stamp(record.started), "ended": _stamp(record.ended),
        "branch": record.branch, "transcript": record.transcript, "records": record.records,
    })  # fmt: skip


def read_record(values: Mapping[str, Any]) -> SessionRecord:
    """The session of a `session` line, without nuggets and touches. Raises Unreadable."""
    records = values.get("records", 0)
    return SessionRecord(
        session=_required(values, "session"), workspace=_required(values, "workspace"),
        agent=_text(values, "agent") or "claude-code", title=_text(values, "title"),
        first_prompt=_text(values, "first_prompt"), started=_moment(values, "started"), ended=_moment(values, "ended"),
        branch=_text(values, "branch") or None, transcript=_text(values, "transcript") or None,
        records=records if isinstance(records, int) and records > 0 else 0,
    )  # fmt: skip


def nugget_line(nugget: Nugget) -> dict[str, Any]:
    """The line of one nugget."""
    evidence = [
        _without_defaults(
            {
                "session": one.session,
                "quote": one.quote,
                "records": list(one.records),
                "speaker": one.speaker,
                "origin": one.origin,
            }
        )
        for one in nugget.evidence
    ]
    scope = {"repo": nugget.scope.repo, "path": nugget.scope.path, "symbol": nugget.scope.symbol}
    return {"kind": "nugget"} | _without_defaults({
        "id": nugget.id, "type": nugget.type.value, "summary": nugget.summary, "detail": nugget.detail,
        "scope": _without_defaults(scope), "confidence": nugget.confidence, "session": nugget.session,
        "agent": nugget.agent, "session_started": _stamp(nugget.session_started),
        "extracted_at": _stamp(nugget.extracted_at), "alternatives": list(nugget.alternatives),
        "stale_after": nugget.stale_after.isoformat() if nugget.stale_after else None,
        "source_prompt": nugget.source_prompt, "file_hash": nugget.file_hash, "method": nugget.method,
        "evidence": evidence, "speaker": nugget.speaker, "origin": nugget.origin,
    })  # fmt: skip


def read_nugget(values: Mapping[str, Any]) -> Nugget:
    """The nugget of a `nugget` line. Raises Unreadable."""
    name = _required(values, "id")
    if not _ID.fullmatch(name):
        raise Unreadable("`id` is no id of a nugget")
    try:
        type_ = NuggetType(_required(values, "type"))
    except ValueError:
        raise Unreadable("`type` is no type of a nugget") from None
    confidence = values.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not math.isfinite(confidence):
        raise Unreadable("`confidence` is no number")
    scope = values.get("scope")
    scope = scope if isinstance(scope, Mapping) else {}
    alternatives = values.get("alternatives")
    file_hash = _text(values, "file_hash")
    summary = " ".join(_required(values, "summary").split())
    return Nugget(
        id=name, type=type_, summary=shorten(summary, SUMMARY_CHARS), confidence=min(1.0, max(0.0, float(confidence))),
        session=_required(values, "session"), detail=_text(values, "detail"),
        scope=Scope(
            repo=_text(scope, "repo") or None, path=_path(scope, "path"), symbol=_text(scope, "symbol")[:200] or None
        ),
        agent=_text(values, "agent") or "claude-code", session_started=_moment(values, "session_started"),
        extracted_at=_moment(values, "extracted_at"),
        alternatives=tuple(one[:500] for one in alternatives if isinstance(one, str) and one)[:20]
        if isinstance(alternatives, list) else (),
        stale_after=_day(values, "stale_after"), source_prompt=_text(values, "source_prompt"),
        file_hash=file_hash if _SHA256.fullmatch(file_hash) else None, method=_text(values, "method") or "heuristic",
        evidence=_evidence(values.get("evidence")), speaker=_member(values, "speaker", Speaker) or Speaker.AGENT,
        origin=_member(values, "origin", SpeechOrigin) or SpeechOrigin.WRITTEN,
    )  # fmt: skip


def touch_line(touch: FileTouch) -> dict[str, Any]:
    """The line of one file touch."""
    return {"kind": "touch"} | _without_defaults({
        "path": touch.path, "action": touch.action.value, "at": _stamp(touch.at), "before_hash": touch.before_hash,
        "after_hash": touch.after_hash, "previous_path": touch.previous_path,
        "line_hashes": "".join(touch.line_hashes),
    })  # fmt: skip


def read_touch(values: Mapping[str, Any]) -> FileTouch:
    """The file touch of a `touch` line. Raises Unreadable."""
    path = _path(values, "path")
    if path is None:
        raise Unreadable("`path` is missing")
    try:
        action = TouchAction(_required(values, "action"))
    except ValueError:
        raise Unreadable("`action` is nothing that is done to a file") from None
    hashes = values.get("line_hashes", "")
    if not isinstance(hashes, str) or not _LINE_HASHES.fullmatch(hashes):
        raise Unreadable("`line_hashes` are no hashes")
    before, after = _text(values, "before_hash"), _text(values, "after_hash")
    return FileTouch(
        path=path, action=action, at=_moment(values, "at"),
        before_hash=before if _SHA256.fullmatch(before) else None,
        after_hash=after if _SHA256.fullmatch(after) else None, previous_path=_path(values, "previous_path"),
        line_hashes=tuple(hashes[n : n + HASH_DIGITS] for n in range(0, len(hashes), HASH_DIGITS)),
    )  # fmt: skip


def _without_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def _stamp(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _required(values: Mapping[str, Any], key: str) -> str:
    if not (text := _text(values, key)):
        raise Unreadable(f"`{key}` is missing")
    return text


def _text(values: Mapping[str, Any], key: str) -> str:
    """A text without what neither a file nor the index can hold; empty for anything else."""
    value = values.get(key)
    if not isinstance(value, str):
        return ""
    return value[:_MAX_TEXT].replace("\0", "�").encode("utf-8", "replace").decode("utf-8")


def _path(values: Mapping[str, Any], key: str) -> str | None:
    """A path relative to the workspace. Raises Unreadable for one that leads out of it."""
    path = _text(values, key)
    if not path:
        return None
    parts = path.split("/")
    if path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", path) or not {"", ".", ".."}.isdisjoint(parts):
        raise Unreadable(f"`{key}` leads out of the workspace")
    if "\n" in path or "\r" in path:
        raise Unreadable(f"`{key}` holds a line end")
    return path


def _moment(values: Mapping[str, Any], key: str) -> datetime | None:
    return parse_timestamp(_text(values, key))


def _day(values: Mapping[str, Any], key: str) -> date | None:
    try:
        return date.fromisoformat(_text(values, key))
    except ValueError:
        return None


def _member(values: Mapping[str, Any], key: str, members: type[_M]) -> _M | None:
    try:
        return members(_text(values, key))
    except ValueError:
        return None


def _evidence(values: object) -> tuple[Evidence, ...]:
    found = []
    for one in values[:20] if isinstance(values, list) else []:
        if isinstance(one, Mapping) and (quote := _text(one, "quote")):
            records = one.get("records")
            names = tuple(name for name in records if isinstance(name, str)) if isinstance(records, list) else ()
            speaker, origin = _member(one, "speaker", Speaker), _member(one, "origin", SpeechOrigin)
            evidence = Evidence(
                session=_text(one, "session"), quote=quote, records=names, speaker=speaker, origin=origin
            )
            found.append(evidence)
    return tuple(found)
