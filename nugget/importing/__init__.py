"""Import: existing notes become proposals on a branch, to be reviewed like those of a session.

find files -> read notes -> redact -> leave out what was imported before -> compare with the brain -> branch.
Neither the notes nor any file of the brain is changed: what is near to something known is flagged, not merged. A unit
carries the file and line that it came from and a digest of the note, by which the next import knows it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nugget.brain import is_brain
from nugget.capture import proposals as proposal_text
from nugget.capture.compare import ProposalTarget, ProposedChange, compare, known_brain
from nugget.capture.ledger import brain_key, lock_file
from nugget.capture.publish import Published, publish
from nugget.config import Environment
from nugget.errors import KnowledgeError, UsageError, reason_of
from nugget.extraction.proposals import Proposal
from nugget.importing.exports import may_be_export, notes_of_export, read_database
from nugget.importing.notes import LeftOut, notes_of_page
from nugget.infra import git
from nugget.infra.files import locked
from nugget.models import Origin, Unit
from nugget.redaction import allow_list, redact
from nugget.redaction.paths import is_excluded
from nugget.sources.ignore_files import IGNORE_FILES, Walk
from nugget.text import counted

DEFAULT_LIMIT = 100
"""Most units of a branch: more than a person reviews. The next import goes on from there."""
MAX_FILES, MAX_NOTE_BYTES, MAX_EXPORT_BYTES = 50_000, 1_000_000, 50_000_000
_EXPORT_ENDINGS, _DATABASE_ENDINGS = (".json", ".jsonl"), (".db", ".sqlite", ".sqlite3")
_ENDINGS = (".md", ".markdown", ".mdc", *_EXPORT_ENDINGS)
_NAMED = frozenset((".cursor", ".cursorrules", "claude-mem.db", "history.db"))
_TEMPLATES = frozenset(("templates", "template", "_templates"))
_BEYOND = "more than the limit"
_KEY = re.compile(rb"note:[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import(ProposalTarget):
    """Options of one import. Without a `domain` folders give it."""

    domain: str | None = None
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """Result of an import. `known` counts notes imported before; `waiting` those beyond the limit."""

    files: int
    branch: str | None = None
    changes: tuple[ProposedChange, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    dropped: tuple[str, ...] = ()
    known: int = 0
    waiting: int = 0
    redacted: Mapping[str, int] = field(default_factory=dict)
    published: Published = field(default_factory=Published)


def import_and_publish(path: Path, bound: Import, environment: Environment) -> ImportResult:
    """Import notes, and publish the branch as those of sessions are. Raises as `import_notes` does."""
    result = import_notes(path, bound)
    if result.branch:
        published = publish(bound.brain, environment=environment, settings=bound.settings, now=bound.now)
        result = replace(result, published=published)
    return result


def import_notes(path: Path, bound: Import) -> ImportResult:
    """Propose the notes of a folder or file.

    Raises UsageError for a path that cannot be imported, BrainError, GitError; nothing was proposed then.
    """
    git.ready_branch(bound.brain)
    root = Path(os.path.realpath(path))  # pathlib's raises where links lead in a circle
    if root.is_relative_to(bound.brain) or (root.is_dir() and is_brain(root)):
        raise UsageError(f"{path} is a brain already.", hint="What is in a brain is found without being imported.")
    read_files, notes, left_out, redacted = _read(path, bound)
    key = brain_key(bound.brain, bound.home)
    with locked(lock_file(bound.home, key)):
        brain = known_brain(bound)
        seen = _imported(bound.brain, list(brain.files.values()), [unit for unit, _ in brain.waiting])
        fresh = [proposal for key, proposal in notes.items() if key not in seen]
        if bound.domain:
            fresh = [replace(one, unit=replace(one.unit, domain=bound.domain)) for one in fresh]
        comparison = compare(
            fresh, brain, today=bound.now.date(), session=None,
            max_units=bound.limit, origin=Origin.IMPORTED, edits=False, beyond=_BEYOND,
        )  # fmt: skip
        beyond = [reason for reason in comparison.dropped if reason.endswith(_BEYOND)]
        result = ImportResult(
            files=read_files, changes=comparison.changes, left_out=tuple(left_out), redacted=dict(redacted),
            dropped=tuple(reason for reason in comparison.dropped if reason not in beyond),
            known=len(notes) - len(fresh), waiting=len(beyond),
        )  # fmt: skip
        if not comparison.changes:
            return result
        name = path.resolve().name
        branch = proposal_text.propose(
            bound, proposal_text.branch_name("import", name, bound.now), result.changes,
            lambda branch: proposal_text.import_message(
                name, result.changes, branch=branch, redacted=result.redacted,
                dropped=[*result.dropped, *map(str, result.left_out)],
            ),
        )  # fmt: skip
        return replace(result, branch=branch)


def _read(path: Path, bound: Import) -> tuple[int, dict[str, Proposal], list[LeftOut], Counter[str]]:
    """Read every note below a path, redacted: the number of files, notes by key, what was left out and redacted."""
    allow, files = allow_list(bound.settings), 0
    notes: dict[str, Proposal] = {}
    left_out: list[LeftOut] = []
    counts: Counter[str] = Counter()
    for name, file, why in _find_files(path, bound.settings.capture.exclude_paths):
        if why:
            left_out.append(LeftOut(path=name, reason=why))
            continue
        is_export = name.endswith((*_DATABASE_ENDINGS, *_EXPORT_ENDINGS))
        try:
            text = read_database(file) if name.endswith(_DATABASE_ENDINGS) else _read_text(file)
            if is_export and path.is_dir() and not may_be_export(text):
                continue  # a folder holds JSON and databases of all kinds; only what may be an export is worth a word
            files += 1
            redacted = redact(text, allow=allow)
            counts.update(redacted.counts)
            for note in list((notes_of_export if is_export else notes_of_page)(redacted.text, path=name)):
                if isinstance(note, LeftOut):
                    left_out.append(note)
                else:
                    notes.setdefault(note.unit.evidence[0].records[0], note)
        except Exception as error:
            left_out.append(LeftOut(path=name, reason=reason_of(error)))
    return files, notes, left_out, counts


def _find_files(root: Path, exclude: Sequence[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield (path, file, "") of all that may hold notes, or the reason why a file is left out.

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
    content = file.read_bytes()
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise KnowledgeError("is not UTF-8 text") from None
    if "\0" in text:
        raise KnowledgeError("is binary")
    return text


def _imported(brain: Path, blobs: Sequence[str], waiting: Sequence[Unit]) -> set[str]:
    """Return the keys of the notes that are in the brain's commit or wait for review."""
    contents = git.read_objects(brain, blobs)
    held = {key.decode() for content in contents if content and b"note:" in content for key in _KEY.findall(content)}
    return held | {record for unit in waiting for evidence in unit.evidence for record in evidence.records}
