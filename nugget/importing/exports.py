"""Notes of exports and databases: the memories of mem0, the observations of claude-mem.

The line of a note is the number of its entry. Types and concepts are those of claude-mem's mode `code` (13.25).

Formats, as mem0 2.2 and claude-mem 13.25 write them: mem0's `get_all` and memory exports (`results` or a list of
objects with `memory`) and its `history` (of each memory the last `new_memory` counts); what claude-mem's script
`export-memories` writes (`observations`, of which `facts` and `concepts` are JSON within JSON) and what its worker
answers to `/api/observations` (the same in `items`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nugget.errors import TranscriptError
from nugget.extraction.proposals import Proposal
from nugget.importing.notes import TOO_LITTLE, LeftOut, day_of, kind_of_sentence, named_kind, propose
from nugget.models import KnowledgeType
from nugget.sources import mapping_of, objects_in, open_database, text_of
from nugget.text import shorten, slugify

_MIN_CHARS, _TITLE_CHARS, _MAX_ROWS = 30, 120, 50_000
_TABLES = {
    "observations": ("id", "title subtitle narrative text facts concepts type project created_at".split()),
    "history": ("rowid", "memory_id new_memory event is_deleted created_at updated_at".split()),
}
"""The table of claude-mem's database and that of mem0's: their order, and the columns that are read, if present."""
_DONE = ("feature", "refactor", "change")
_CONCEPTS = {
    "gotcha": KnowledgeType.BUG, "problem-solution": KnowledgeType.BUG, "trade-off": KnowledgeType.DECISION,
    "pattern": KnowledgeType.PATTERN, "how-it-works": KnowledgeType.CONCEPT, "why-it-exists": KnowledgeType.CONCEPT,
}  # fmt: skip
"""claude-mem's words for what an observation is about, the more telling first."""


def read_database(file: Path) -> str:
    """Return the export of claude-mem's or mem0's database. Raises TranscriptError, also for any other database."""
    with open_database(file) as connection:
        for table, (order, wanted) in _TABLES.items():
            present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            columns = [name for name in wanted if name in present]
            if columns[:2] == wanted[:2]:
                rows = connection.execute(
                    f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order} LIMIT {_MAX_ROWS}"
                )
                return json.dumps({table: [dict(zip(columns, row, strict=True)) for row in rows]}, default=str)
    raise TranscriptError("is not a known database")


def may_be_export(text: str) -> bool:
    """Return whether a text names what an export holds; without reading it as JSON."""
    return any(f'"{key}"' in text for key in ("observations", "narrative", "memory", "new_memory"))


def notes_of_export(text: str, *, path: str) -> Iterator[Proposal | LeftOut]:
    """Return the notes of a JSON or JSON lines file; only a reason if its format is not known."""
    try:
        lines = [line for line in text.split("\n") if line.strip()] if path.endswith(".jsonl") else []
        value: Any = [json.loads(line) for line in lines] if lines else json.loads(text)
    except (ValueError, RecursionError):
        yield LeftOut(path=path, reason="is not valid JSON")
        return
    held = mapping_of(value)
    lists = [held[key] for key in ("observations", "items", "results", "memories", "history") if key in held]
    entries = objects_in(lists[0] if lists else value)
    if entries and all("memory_id" in entry and "new_memory" in entry for entry in entries):
        entries = _final_memories(entries)
    if "observations" in held or (held and any("narrative" in entry for entry in entries)):
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


def _observation(entry: Mapping[str, Any], path: str, line: int) -> Proposal | LeftOut:
    words = {key: text_of(value).strip() for key, value in entry.items()}
    title, called = words.get("title") or words.get("subtitle"), words.get("type", "").lower()
    facts, concepts = _list(entry.get("facts")), _list(entry.get("concepts"))
    said = next((words[key] for key in ("narrative", "text", "subtitle") if words.get(key)), "")
    body = "\n\n".join(filter(None, (said, "\n".join(f"- {fact}" for fact in facts))))
    kind, reason = _kind(called, concepts)
    left_out = "" if kind else f"only says what was done ({called or 'no type'})"
    if not title or len(body) < _MIN_CHARS:
        left_out = TOO_LITTLE
    if called == "sensitive":
        left_out = "is marked as sensitive"
    if left_out or not kind or not title:
        return LeftOut(path=path, line=line, reason=left_out)
    subject = {"domain": slugify(words["project"])} if words.get("project") else {}
    return propose(
        path, line, title=shorten(title, _TITLE_CHARS), body=body, type=kind, confidence=0.5, tags=tuple(concepts[:6]),
        reason=f"an observation of claude-mem: {reason}", created=day_of(words.get("created_at", "")), **subject,
    )  # fmt: skip


def _kind(called: str, concepts: Sequence[str]) -> tuple[KnowledgeType | None, str]:
    is_done = called in _DONE
    if named := named_kind(called):
        return named, f"its type is {called}"
    for concept, kind in _CONCEPTS.items():
        # How something works that was just made is what was done, told once more.
        if concept in concepts and not (is_done and kind is KnowledgeType.CONCEPT):
            return kind, f"it is about {concept}"
    other = KnowledgeType.BUG if called == "security_alert" else KnowledgeType.CONCEPT
    return None if is_done else other, f"its type is {called or 'not given'}"


def _memory(entry: Mapping[str, Any], path: str, line: int) -> Proposal | LeftOut:
    memory = text_of(entry.get("memory")).strip()
    if len(memory) < _MIN_CHARS:
        return LeftOut(path=path, line=line, reason=TOO_LITTLE)
    categories = _list(entry.get("categories")) + _list(mapping_of(entry.get("metadata")).get("category"))
    named = next((kind for category in categories if (kind := named_kind(category))), None)
    kind, reason = (named, f"filed under {', '.join(categories)}") if named else kind_of_sentence(memory)
    return propose(
        path, line, title=shorten(memory, _TITLE_CHARS).removesuffix(" […]").rstrip("."), body=memory,
        type=kind, reason=f"a memory of mem0: {reason}", confidence=0.4, tags=tuple(categories[:6]),
        created=day_of(text_of(entry.get("created_at"))),
    )  # fmt: skip


def _list(value: object) -> list[str]:
    """Return a list of texts, which may be written as JSON within a text, or be one text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    return [words for entry in value if (words := text_of(entry).strip())] if isinstance(value, list) else []
