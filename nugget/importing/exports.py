"""Notes of exports in JSON: the memories of mem0, the observations of claude-mem.

claude-mem's types and concepts are those of its mode `code` (version 13.25).

Formats, as mem0 2.2 and claude-mem 13.25 write them: mem0's `get_all` and memory exports (`results` or a list of
objects with `memory`) and its `history` (of each memory the last `new_memory` counts); what claude-mem's script
`export-memories` writes (`observations`, of which `facts` and `concepts` are JSON within JSON) and what its worker
answers to `/api/observations` (the same in `items`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nugget.importing.kinds import kind_of_sentence, named_kind
from nugget.importing.notes import LeftOut, Note, day_of
from nugget.models import KnowledgeType
from nugget.text import shorten

MIN_MEMORY_CHARS = 30
_TITLE_CHARS = 120
_FURTHEST_CHARS = 1_000_000
"""An entry is looked for no further behind the one before it."""
_WHAT_WAS_DONE = ("feature", "refactor", "change")
_SENSITIVE = "sensitive"
"""claude-mem's type for what should not leak into anything else."""
_CONCEPTS = (
    ("gotcha", KnowledgeType.BUG), ("problem-solution", KnowledgeType.BUG), ("trade-off", KnowledgeType.DECISION),
    ("pattern", KnowledgeType.PATTERN), ("how-it-works", KnowledgeType.CONCEPT),
    ("why-it-exists", KnowledgeType.CONCEPT),
)  # fmt: skip
"""claude-mem's words for what an observation is about, the more telling first."""


def may_be_export(text: str) -> bool:
    """Return whether a text names what an export holds; without reading it as JSON."""
    return any(f'"{key}"' in text for key in ("observations", "narrative", "memory", "new_memory"))


def notes_of_export(text: str, *, path: str) -> Iterator[Note | LeftOut]:
    """Return the notes of a JSON or JSON lines file; only a reason if its format is not known."""
    try:
        value = _loaded(text, path)
    except (ValueError, RecursionError):
        yield LeftOut(path=path, reason="is no JSON that can be read")
        return
    observations = _listed_observations(value) if isinstance(value, Mapping) else None
    if observations is not None:
        yield from _observations(observations, text=text, path=path)
        return
    listed = value
    if isinstance(value, Mapping):
        listed = next((value[key] for key in ("results", "memories") if isinstance(value.get(key), list)), None)
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    if entries and all("memory_id" in entry and "new_memory" in entry for entry in entries):
        entries = _as_they_are_now(entries)
    if entries and any(isinstance(entry.get("memory"), str) for entry in entries):
        yield from _memories(entries, text=text, path=path)
    else:
        yield LeftOut(path=path, reason="is no export that is known (mem0, claude-mem)")


def _listed_observations(value: Mapping[str, Any]) -> list[object] | None:
    """Return the list claude-mem calls `observations`, in one page of its worker `items`; None for anything else."""
    listed = value.get("observations")
    if listed is None and isinstance(value.get("items"), list):
        listed = [entry for entry in value["items"] if isinstance(entry, Mapping) and "narrative" in entry] or None
    return listed if isinstance(listed, list) else None


def _as_they_are_now(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The memories that a history of mem0 ends with; in it, they stand in the order of their last change."""
    now: dict[str, Mapping[str, Any]] = {}
    for event in events:
        name = str(event["memory_id"])
        now.pop(name, None)
        if event.get("event") != "DELETE" and not event.get("is_deleted"):
            now[name] = {**event, "memory": event["new_memory"]}
    return list(now.values())


def _loaded(text: str, path: str) -> Any:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return json.loads(text)


def _observations(entries: Sequence[object], *, text: str, path: str) -> Iterator[Note | LeftOut]:
    lines = _Lines(text)
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        title = _words(entry.get("title")) or _words(entry.get("subtitle"))
        line = lines.of(title)
        facts, concepts = _list(entry.get("facts")), _list(entry.get("concepts"))
        parts = [_words(entry.get("narrative")) or _words(entry.get("text")) or _words(entry.get("subtitle")),
                 "\n".join(f"- {fact}" for fact in facts)]  # fmt: skip
        body = "\n\n".join(part for part in parts if part)
        called = _words(entry.get("type")).lower()
        kind, reason = _kind(called, concepts)
        if called == _SENSITIVE:
            yield LeftOut(path=path, line=line, reason="is marked as sensitive")
        elif not title or len(body) < MIN_MEMORY_CHARS:
            yield LeftOut(path=path, line=line, reason="says too little to stand alone")
        elif kind is None:
            yield LeftOut(path=path, line=line, reason=f"only says what was done ({called or 'no type'})")
        else:
            yield Note(
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


def _memories(entries: Sequence[Mapping[str, Any]], *, text: str, path: str) -> Iterator[Note | LeftOut]:
    lines = _Lines(text)
    for entry in entries:
        memory = _words(entry.get("memory"))
        line = lines.of(memory)
        if len(memory) < MIN_MEMORY_CHARS:
            yield LeftOut(path=path, line=line, reason="says too little to stand alone")
            continue
        metadata = entry.get("metadata")
        filed = metadata.get("category") if isinstance(metadata, Mapping) else None
        categories = [*_list(entry.get("categories")), *([filed] if isinstance(filed, str) else [])]
        named = next((kind for category in categories if (kind := named_kind(category)) is not None), None)
        kind, reason = (named, f"filed under {', '.join(categories)}") if named else kind_of_sentence(memory)
        yield Note(
            path=path, line=line, title=shorten(memory, _TITLE_CHARS).removesuffix(" […]").rstrip("."), body=memory,
            kind=kind, reason=f"a memory of mem0: {reason}", confidence=0.4, tags=tuple(categories[:6]),
            created=day_of(_words(entry.get("created_at"))),
        )  # fmt: skip


@dataclass(slots=True)
class _Lines:
    """Tells on which line each entry of a file stands, going through it once: they are asked for in its order."""

    text: str
    place: int = 0
    line: int = 1

    def of(self, words: str) -> int:
        """The line of the next entry, which has these words; that of the one before where they are not found."""
        for written in (json.dumps(words)[1:-1], json.dumps(words, ensure_ascii=False)[1:-1]):
            found = self.text.find(written[:80], self.place, self.place + _FURTHEST_CHARS) if written else -1
            if found >= 0:
                self.line += self.text.count("\n", self.place, found)
                self.place = found
                break
        return self.line


def _words(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _list(value: object) -> list[str]:
    """A list of texts, also where it is written as JSON within a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    return (
        [entry.strip() for entry in value if isinstance(entry, str) and entry.strip()]
        if isinstance(value, list)
        else []
    )
