"""Lines of a provenance file: values as JSON objects and back. Input is untrusted and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypeVar

from nugget.models import Evidence, Scope, Speaker, SpeechOrigin
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, SessionRecord, TouchAction
from nugget.sources.records import mapping_of, objects_in, parse_record, parse_timestamp, storable, text_of
from nugget.text import shorten

FORMAT = 1
HASH_DIGITS = 16
"""Hex digits of one line's hash."""
_OWN_LINES = ("nuggets", "touches")
_MAX_TEXT = 20_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LINE_HASHES = re.compile(rf"(?:[0-9a-f]{{{HASH_DIGITS}}})*")
_M = TypeVar("_M", bound=StrEnum)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Unreadable(ValueError):
    """A line is invalid; the message says why."""


def parse(line: bytes) -> dict[str, Any]:
    """Parse the object of one line. Raises Unreadable."""
    values = parse_record(line)
    if values is None or not isinstance(values.get("kind"), str):
        raise Unreadable("not a JSON object with a `kind`")
    if isinstance(values.get("format"), int) and values["format"] > FORMAT:
        raise Unreadable(f"written in format {values['format']}, which this version does not know")
    return values


def record_line(record: SessionRecord) -> dict[str, Any]:
    """Return the `session` line; its nuggets and touches are lines of their own."""
    values = _values_of(record)
    return {"format": FORMAT, "kind": "session"} | {key: values[key] for key in values if key not in _OWN_LINES}


def read_record(values: Mapping[str, Any]) -> SessionRecord:
    """Parse the session of a `session` line, without nuggets and touches. Raises Unreadable."""
    records = values.get("records", 0)
    return SessionRecord(
        session=_required(values, "session"), workspace=_required(values, "workspace"),
        agent=_text(values, "agent") or "claude-code", title=_text(values, "title"),
        first_prompt=_text(values, "first_prompt"), started=_moment(values, "started"), ended=_moment(values, "ended"),
        branch=_text(values, "branch") or None, transcript=_text(values, "transcript") or None,
        records=records if isinstance(records, int) and records > 0 else 0,
    )  # fmt: skip


def nugget_line(nugget: Nugget) -> dict[str, Any]:
    """Return the line of one nugget."""
    return {"kind": "nugget"} | _values_of(nugget)


def read_nugget(values: Mapping[str, Any]) -> Nugget:
    """Parse the nugget of a `nugget` line. Raises Unreadable."""
    name = _required(values, "id")
    if not _ID.fullmatch(name):
        raise Unreadable("`id` is not valid")
    try:
        type_ = NuggetType(_required(values, "type"))
    except ValueError:
        raise Unreadable("`type` is unknown") from None
    confidence = values.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not math.isfinite(confidence):
        raise Unreadable("`confidence` is not a number")
    scope = mapping_of(values.get("scope"))
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
    """Return the line of one file touch."""
    hashes = {"line_hashes": "".join(touch.line_hashes)} if touch.line_hashes else {}
    return {"kind": "touch"} | _values_of(touch) | hashes


def read_touch(values: Mapping[str, Any]) -> FileTouch:
    """Parse the file touch of a `touch` line. Raises Unreadable."""
    path = _path(values, "path")
    if path is None:
        raise Unreadable("`path` is missing")
    try:
        action = TouchAction(_required(values, "action"))
    except ValueError:
        raise Unreadable("`action` is unknown") from None
    hashes = values.get("line_hashes", "")
    if not isinstance(hashes, str) or not _LINE_HASHES.fullmatch(hashes):
        raise Unreadable("`line_hashes` are invalid")
    before, after = _text(values, "before_hash"), _text(values, "after_hash")
    return FileTouch(
        path=path, action=action, at=_moment(values, "at"),
        before_hash=before if _SHA256.fullmatch(before) else None,
        after_hash=after if _SHA256.fullmatch(after) else None, previous_path=_path(values, "previous_path"),
        line_hashes=tuple(hashes[n : n + HASH_DIGITS] for n in range(0, len(hashes), HASH_DIGITS)),
    )  # fmt: skip


def _values_of(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values, without those that are empty."""
    values = {field.name: _json_value(getattr(value, field.name)) for field in fields(value)}
    return {key: held for key, held in values.items() if held not in (None, "", [], {})}


def _json_value(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_json_value(part) for part in value]
    return _values_of(value) if is_dataclass(value) else value


def _required(values: Mapping[str, Any], key: str) -> str:
    if not (text := _text(values, key)):
        raise Unreadable(f"`{key}` is missing")
    return text


def _text(values: Mapping[str, Any], key: str) -> str:
    """Return a text without what neither a file nor the index can hold; empty for anything else."""
    return storable(text_of(values.get(key))[:_MAX_TEXT])


def _path(values: Mapping[str, Any], key: str) -> str | None:
    """Return a path relative to the workspace. Raises Unreadable for one that leads out of it."""
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
    for one in objects_in(values)[:20]:
        if quote := _text(one, "quote"):
            records = one.get("records")
            names = tuple(name for name in records if isinstance(name, str)) if isinstance(records, list) else ()
            speaker, origin = _member(one, "speaker", Speaker), _member(one, "origin", SpeechOrigin)
            found.append(
                Evidence(session=_text(one, "session"), quote=quote, records=names, speaker=speaker, origin=origin)
            )
    return tuple(found)
