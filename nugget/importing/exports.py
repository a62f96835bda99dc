"""Notes of exports and databases: the memories of mem0, the observations of claude-mem.

The line of a note is the number of its entry. Types and concepts are those of claude-mem's mode `code` (13.25).

Formats, as mem0 2.2 and claude-mem 13.25 write them: mem0's `get_all` and memory exports (`results` or a list of
objects with `memory`) and its `history` (of each memory the last `new_memory` counts); what claude-mem's script
`export-memories` writes (`observations`, of which `facts` and `concepts` are JSON within JSON) and what its worker
answers to `/api/observations` (the same in `items`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.importing.notes import LeftOut, Note, day_of, kind_of_sentence, named_kind
from nugget.models import KnowledgeType
from nugget.sources.files import mapping_of, objects_in, open_database, text_of
from nugget.text import shorten

MIN_MEMORY_CHARS = 30
_TITLE_CHARS = 120
_MAX_ROWS = 50_000
_OBSERVATIONS = ("title", "subtitle", "narrative", "text", "facts", "concepts", "type", "project", "created_at")
_EVENTS = ("memory_id", "new_memory", "event", "is_deleted", "created_at", "updated_at")
_WHAT_WAS_DONE = ("feature", "refactor", "change")
_SENSITIVE = "sensitive"
"""claude-mem's type for what should not leak into anything else."""
_CONCEPTS = (
    ("gotcha", KnowledgeType.BUG), ("problem-solution", KnowledgeType.BUG), ("trade-off", KnowledgeType.DECISION),
    ("pattern", KnowledgeType.PATTERN), ("how-it-works", KnowledgeType.CONCEPT),
    ("why-it-exists", KnowledgeType.CONCEPT),
)  # fmt: skip
"""claude-mem's words for what an observation is about, the more telling first."""


def read_database(file: Path) -> str:
    """Return the export of claude-mem's or mem0's database. Raises TranscriptError, also for any other database."""
    with open_database(file) as connection:
        if rows := _rows(connection, "observations", _OBSERVATIONS, order="id"):
            return json.dumps({"observations": rows}, default=str)
        if rows := _rows(connection, "history", _EVENTS, order="rowid"):
            return json.dumps(rows, default=str)
    raise TranscriptError("is not a known database")


def _rows(connection: sqlite3.Connection, table: str, wanted: Sequence[str], *, order: str) -> list[dict[str, object]]:
    """Return the rows of a table that has a memory tool's columns, else none. Older versions lack some columns."""
    present = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
    if not {wanted[0], wanted[1]} <= set(present):
        return []
    columns = [name for name in wanted if name in present]
    sql = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order} LIMIT {_MAX_ROWS}"
    return [dict(zip(columns, row, strict=True)) for row in connection.execute(sql)]


def may_be_export(text: str) -> bool:
    """Return whether a text names what an export holds; without reading it as JSON."""
    return any(f'"{key}"' in text for key in ("observations", "narrative", "memory", "new_memory"))


def notes_of_export(text: str, *, path: str) -> Iterator[Note | LeftOut]:
    """Return the notes of a JSON or JSON lines file; only a reason if its format is not known."""
    try:
        value: Any = (
            [json.loads(line) for line in text.split("\n") if line.strip()]
            if path.endswith(".jsonl")
            else json.loads(text)
        )
    except (ValueError, RecursionError):
        yield LeftOut(path=path, reason="is not valid JSON")
        return
    held = mapping_of(value)
    lists = [held[key] for key in ("observations", "items", "results", "memories") if isinstance(held.get(key), list)]
    entries = objects_in(next(iter(lists), value))
    if entries and all("memory_id" in entry and "new_memory" in entry for entry in entries):
        entries = _final_memories(entries)
    if held and ("observations" in held or any("narrative" in entry for entry in entries)):
        yield from (_observation(entry, path, line) for line, entry in enumerate(entries, 1))
    elif any(isinstance(entry.get("memory"), str) for entry in entries):
        yield from (_memory(entry, path, line) for line, entry in enumerate(entries, 1))
    else:
        yield LeftOut(path=path, reason="is not a known export (mem0, claude-mem)")


def _final_memories(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the memories that a history of mem0 ends with, in the order of their last change."""
    now: dict[str, dict[str, Any]] = {}
    for event in events:
        name = str(event["memory_id"])
        now.pop(name, None)
        if event.get("event") != "DELETE" and not event.get("is_deleted"):
            now[name] = {**event, "memory": event["new_memory"]}
    return list(now.values())


def _observation(entry: Mapping[str, Any], path: str, line: int) -> Note | LeftOut:
    title = _words(entry.get("title")) or _words(entry.get("subtitle"))
    facts, concepts = _list(entry.get("facts")), _list(entry.get("concepts"))
    said = next((words for key in ("narrative", "text", "subtitle") if (words := _words(entry.get(key)))), "")
    body = "\n\n".join(part for part in (said, "\n".join(f"- {fact}" for fact in facts)) if part)
    called = _words(entry.get("type")).lower()
    kind, reason = _kind(called, concepts)
    if called == _SENSITIVE:
        return LeftOut(path=path, line=line, reason="is marked as sensitive")
    if not title or len(body) < MIN_MEMORY_CHARS:
        return LeftOut(path=path, line=line, reason="says too little to stand alone")
    if kind is None:
        return LeftOut(path=path, line=line, reason=f"only says what was done ({called or 'no type'})")
    return Note(
        path=path, line=line, title=shorten(title, _TITLE_CHARS), body=body, kind=kind,
        reason=f"an observation of claude-mem: {reason}", confidence=0.5, tags=tuple(concepts[:6]),
        created=day_of(_words(entry.get("created_at"))), subject=_words(entry.get("project")),
    )  # fmt: skip


def _kind(called: str, concepts: Sequence[str]) -> tuple[KnowledgeType | None, str]:
    named = named_kind(called)
    if named:
        return named, f"its type is {called}"
    for concept, kind in _CONCEPTS:
        # How something works that was just made is what was done, told once more.
        if concept in concepts and not (called in _WHAT_WAS_DONE and kind is KnowledgeType.CONCEPT):
            return kind, f"it is about {concept}"
    if called == "security_alert":
        return KnowledgeType.BUG, f"its type is {called}"
    return (None, "") if called in _WHAT_WAS_DONE else (KnowledgeType.CONCEPT, f"its type is {called or 'not given'}")


def _memory(entry: Mapping[str, Any], path: str, line: int) -> Note | LeftOut:
    memory = _words(entry.get("memory"))
    if len(memory) < MIN_MEMORY_CHARS:
        return LeftOut(path=path, line=line, reason="says too little to stand alone")
    filed = text_of(mapping_of(entry.get("metadata")).get("category"))
    categories = [*_list(entry.get("categories")), *([filed] if filed else [])]
    named = next((kind for category in categories if (kind := named_kind(category)) is not None), None)
    kind, reason = (named, f"filed under {', '.join(categories)}") if named else kind_of_sentence(memory)
    return Note(
        path=path, line=line, title=shorten(memory, _TITLE_CHARS).removesuffix(" […]").rstrip("."), body=memory,
        kind=kind, reason=f"a memory of mem0: {reason}", confidence=0.4, tags=tuple(categories[:6]),
        created=day_of(_words(entry.get("created_at"))),
    )  # fmt: skip


def _words(value: object) -> str:
    return text_of(value).strip()


def _list(value: object) -> list[str]:
    """Return a list of texts, which may be written as JSON within a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    return [words for entry in value if (words := _words(entry))] if isinstance(value, list) else []
