"""Import: existing notes become proposals on a branch, to be reviewed like those of a session.

find files -> read notes -> redact -> skip notes imported before -> compare with the brain -> branch.
Neither the notes nor any file of the brain is changed: near duplicates are flagged, not merged. A unit records its
file and line and a digest of the note, by which the next import recognises it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nugget.brain import is_brain
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import ProposalTarget, ProposedChange, compare, known_brain, unit_id_of
from nugget.capture.ledger import brain_key, lock_file
from nugget.capture.publish import Published
from nugget.config import Settings
from nugget.errors import KnowledgeError, TranscriptError, UsageError, reason_of
from nugget.extraction.proposals import Proposal
from nugget.importing.notes import TOO_LITTLE, day_of, kind_of_sentence, named_kind, notes_of_page, propose
from nugget.infra import git
from nugget.infra.files import locked
from nugget.models import KnowledgeType, Origin, Problem, Relation, RelationType, Unit
from nugget.redaction import allow_list, is_excluded, redact
from nugget.sources import columns_of, mapping_of, objects_in, open_database, text_of
from nugget.sources.ignore_files import IGNORE_FILES, Walk
from nugget.text import counted, shorten, slugify, tracked

LIMIT = 100
"""The most units on a branch by default, more than a person reviews. The next import continues from there."""
MAX_FILES, MAX_NOTE_BYTES, MAX_EXPORT_BYTES = 50_000, 1_000_000, 50_000_000
_EXPORT_ENDINGS, _DATABASE_ENDINGS = (".json", ".jsonl"), (".db", ".sqlite", ".sqlite3")
_ENDINGS = (".md", ".markdown", ".mdc", *_EXPORT_ENDINGS)
_NAMED = frozenset((".cursor", ".cursorrules", "claude-mem.db", "history.db"))
_EXPORT_KEYS = ("observations", "narrative", "memory", "new_memory")
_TEMPLATES = frozenset(("templates", "template", "_templates"))
_BEYOND = "more than the limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """Result of an import. `known` counts notes imported before; `waiting` those beyond the limit."""

    files: int
    branch: str | None = None
    changes: tuple[ProposedChange, ...] = ()
    left_out: tuple[Problem, ...] = ()
    dropped: tuple[str, ...] = ()
    known: int = 0
    waiting: int = 0
    redacted: Mapping[str, int] = field(default_factory=dict)
    published: Published = field(default_factory=Published)


def import_notes(path: Path, target: ProposalTarget, *, domain: str | None = None, limit: int = LIMIT) -> ImportResult:
    """Propose the notes of a folder or file, at most `limit`; by default, folders decide the `domain`.

    Raises UsageError for a path that cannot be imported, BrainError or GitError; nothing is proposed then.
    """
    git.ready_branch(target.brain)
    root = Path(os.path.realpath(path))  # pathlib's version raises for circular links
    if root.is_relative_to(target.brain) or (root.is_dir() and is_brain(root)):
        raise UsageError(f"{path} is a brain already.", hint="Units of a brain are searched without an import.")
    read_files, notes, left_out, redacted = _read(path, target.settings)
    key = brain_key(target.brain, target.home)
    with locked(lock_file(target.home, key)):
        brain = known_brain(target, key)
        seen = _imported(target.brain, list(brain.files.values()), [unit for unit, _ in brain.waiting])
        fresh = [proposal for key, proposal in notes.items() if key not in seen]
        if domain:
            fresh = [replace(one, unit=replace(one.unit, domain=domain)) for one in fresh]
        changes, dropped = compare(
            _with_relations(fresh, brain.files), brain, session=None,
            max_units=limit, origin=Origin.IMPORTED, edits=False, beyond=_BEYOND,
        )  # fmt: skip
        beyond = [reason for reason in dropped if reason.endswith(_BEYOND)]
        result = ImportResult(
            files=read_files, changes=changes, left_out=tuple(left_out), redacted=dict(redacted),
            dropped=tuple(reason for reason in dropped if reason not in beyond),
            known=len(notes) - len(fresh), waiting=len(beyond),
        )  # fmt: skip
        if not changes:
            return result
        name = path.resolve().name
        branch = proposal_text.propose(
            target, proposal_text.branch_name("import", name, target.now), result.changes,
            lambda branch: proposal_text.import_message(
                name, result.changes, branch=branch, redacted=result.redacted,
                dropped=[*result.dropped, *map(str, result.left_out)],
            ),
        )  # fmt: skip
        return replace(result, branch=branch)


def _read(path: Path, settings: Settings) -> tuple[int, dict[str, Proposal], list[Problem], Counter[str]]:
    """Read and redact every note below a path; return the number of files, notes by key, files left out, and counts."""
    allow, files = allow_list(settings), 0
    notes: dict[str, Proposal] = {}
    left_out: list[Problem] = []
    counts: Counter[str] = Counter()
    for name, file, why in tracked(_find_files(path, settings.capture_exclude_paths), "Reading"):
        if why:
            left_out.append(Problem(path=name, reason=why))
            continue
        is_export = name.endswith((*_DATABASE_ENDINGS, *_EXPORT_ENDINGS))
        try:
            text = _read_database(file) if name.endswith(_DATABASE_ENDINGS) else _read_text(file)
            if is_export and path.is_dir() and not any(f'"{key}"' in text for key in _EXPORT_KEYS):
                continue  # a folder may hold any JSON and databases; only possible exports are mentioned
            files += 1
            redacted = redact(text, allow=allow)
            counts.update(redacted.counts)
            for note in list((notes_of_export if is_export else notes_of_page)(redacted.text, path=name)):
                if isinstance(note, Problem):
                    left_out.append(note)
                else:
                    notes.setdefault(note.unit.evidence[0].records[0], note)
        except Exception as error:
            left_out.append(Problem(path=name, reason=reason_of(error)))
    return files, notes, left_out, counts


def _find_files(root: Path, exclude: Sequence[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield (path, file, "") for each file that may hold notes, or with the reason why it is left out.

    The path starts with the name of what is imported, and has `/`. Links are not followed, hidden folders and those of
    tools and templates not entered, and ignore files are honoured, as in canon. Raises UsageError if `root` is not a
    file or folder.
    """
    if root.is_file():
        yield f"{root.resolve().parent.name}/{root.name}", root, ""
        return
    if not root.is_dir():
        raise UsageError(f"{root} {'is not a file or folder' if os.path.lexists(root) else 'does not exist'}.")
    walk = Walk(root=root, suffixes=_ENDINGS, max_files=MAX_FILES, named=_NAMED)
    top = root.resolve().name
    for path, file in walk.files():
        if _TEMPLATES.isdisjoint(path.lower().split("/")[:-1]):
            why = "is excluded (capture.exclude_paths)" if is_excluded(file, exclude) else ""
            why = "is a link, which is not followed" if Path(file).is_symlink() else why
            yield f"{top}/{path}", Path(file), why
    if walk.ignored:
        yield top, root, f"{counted(walk.ignored, 'path')} left out by {', '.join(IGNORE_FILES)}"
    for problem in (*walk.problems, *walk.left_out):
        yield Path(top, os.path.relpath(problem.path, root)).as_posix(), root, problem.reason


def _read_text(file: Path) -> str:
    """Return the text of a file. Raises KnowledgeError with the reason if it has none."""
    limit = MAX_EXPORT_BYTES if file.name.endswith(_EXPORT_ENDINGS) else MAX_NOTE_BYTES
    if not file.is_file():
        raise KnowledgeError("is not an ordinary file")
    if file.stat().st_size > limit:
        raise KnowledgeError(f"is larger than {limit:,} bytes")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise KnowledgeError("is not a text in UTF-8")
    return text


def _with_relations(notes: Sequence[Proposal], known: Iterable[str]) -> list[Proposal]:
    """Return notes with relations to the notes and units that they link to."""
    ids = {unit_id_of(path).rpartition("/")[2]: unit_id_of(path) for path in known}
    for note in reversed(notes):
        ids |= dict.fromkeys(note.names, note.unit.id)
    linked = []
    for note in notes:
        targets = dict.fromkeys(ids[link] for link in note.links if link in ids and ids[link] != note.unit.id)
        related = tuple(Relation(id=target, relation=RelationType.INFORMED_BY) for target in targets)
        linked.append(replace(note, unit=replace(note.unit, related=related)))
    return linked


def _imported(brain: Path, blobs: Sequence[str], waiting: Sequence[Unit]) -> set[str]:
    """Return the keys of the notes that are committed in the brain or wait for review."""
    contents = git.read_objects(brain, blobs)
    found = (re.findall(rb"note:[0-9a-f]{16}", content) for content in contents if content)
    held = {key.decode() for keys in found for key in keys}
    return held | {record for unit in waiting for evidence in unit.evidence for record in evidence.records}


_MIN_CHARS, _TITLE_CHARS, _MAX_ROWS = 30, 120, 50_000
_TABLES = {
    "observations": ("id", "title subtitle narrative text facts concepts type project created_at".split()),
    "history": ("rowid", "memory_id new_memory event is_deleted created_at updated_at".split()),
}
"""The tables of claude-mem's and mem0's databases, their order, and the columns that are read if present."""
_DONE = ("feature", "refactor", "change")
_CONCEPTS = {
    "gotcha": KnowledgeType.BUG, "problem-solution": KnowledgeType.BUG, "trade-off": KnowledgeType.DECISION,
    "pattern": KnowledgeType.PATTERN, "how-it-works": KnowledgeType.CONCEPT, "why-it-exists": KnowledgeType.CONCEPT,
}  # fmt: skip
"""claude-mem's words for the subject of an observation, the most specific first."""


def _read_database(file: Path) -> str:
    """Return the export of a database of claude-mem or mem0. Raises TranscriptError, also for any other database."""
    with open_database(file) as connection:
        for table, (order, wanted) in _TABLES.items():
            present = columns_of(connection, table)
            columns = [name for name in wanted if name in present]
            if columns[:2] == wanted[:2]:
                rows = connection.execute(
                    f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order} LIMIT {_MAX_ROWS}"
                )
                return json.dumps({table: [dict(zip(columns, row, strict=True)) for row in rows]}, default=str)
    raise TranscriptError("is not a known database")


def notes_of_export(text: str, *, path: str) -> Iterator[Proposal | Problem]:
    """Return the notes of a JSON or JSON lines file, or the reason why it holds none."""
    try:
        lines = [line for line in text.split("\n") if line.strip()] if path.endswith(".jsonl") else []
        value: Any = [json.loads(line) for line in lines] if lines else json.loads(text)
    except (ValueError, RecursionError):
        yield Problem(path=path, reason="is not valid JSON")
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
        yield Problem(path=path, reason="is not a known export (mem0, claude-mem)")


def _final_memories(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the memories at the end of a history of mem0, in the order of their last change."""
    now: dict[str, dict[str, Any]] = {}
    for event in events:
        name = str(event["memory_id"])
        now.pop(name, None)
        if event.get("event") != "DELETE" and not event.get("is_deleted"):
            now[name] = {**event, "memory": event["new_memory"]}
    return list(now.values())


def _observation(entry: Mapping[str, Any], path: str, line: int) -> Proposal | Problem:
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
        return Problem(path=path, line=line, reason=left_out)
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
        # An explanation of something just made only repeats what was done.
        if concept in concepts and not (is_done and kind is KnowledgeType.CONCEPT):
            return kind, f"it is about {concept}"
    other = KnowledgeType.BUG if called == "security_alert" else KnowledgeType.CONCEPT
    return None if is_done else other, f"its type is {called or 'not given'}"


def _memory(entry: Mapping[str, Any], path: str, line: int) -> Proposal | Problem:
    memory = text_of(entry.get("memory")).strip()
    if len(memory) < _MIN_CHARS:
        return Problem(path=path, line=line, reason=TOO_LITTLE)
    categories = _list(entry.get("categories")) + _list(mapping_of(entry.get("metadata")).get("category"))
    named = next((kind for category in categories if (kind := named_kind(category))), None)
    kind, reason = (named, f"filed under {', '.join(categories)}") if named else kind_of_sentence(memory)
    return propose(
        path, line, title=shorten(memory, _TITLE_CHARS).removesuffix(" […]").rstrip("."), body=memory,
        type=kind, reason=f"a memory of mem0: {reason}", confidence=0.4, tags=tuple(categories[:6]),
        created=day_of(text_of(entry.get("created_at"))),
    )  # fmt: skip


def _list(value: object) -> list[str]:
    """Return a list of texts from a list, JSON in a text, or a single text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    return [words for entry in value if (words := text_of(entry).strip())] if isinstance(value, list) else []
