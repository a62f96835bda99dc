"""Knowledge by hand: add, forget and move units, and keep the relations of other units true.

Each change is one commit of exactly the files it is about. What was forgotten is remembered in `forgotten.yaml`,
so that capture does not propose it again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.brain.frontmatter import plain_line_ends
from nugget.errors import BrainError, ConflictError, GitError, KnowledgeError, NuggetError, UsageError
from nugget.infra import git
from nugget.markdown import title_of
from nugget.models import KnowledgeType, Origin, Severity, SourceName, Unit
from nugget.redaction import redact
from nugget.text import shorten, slugify

FORGOTTEN = "forgotten.yaml"
"""The file, at the root of a brain, that lists what was forgotten."""

_FORGOTTEN_HEAD = """\
# Units that were removed with `nugget forget`. Nugget does not propose them again;
# take an entry out of this list to allow it.
"""
_FORGOTTEN_ID = re.compile(r"^- id: (\S+)\s*$", re.MULTILINE)
_FORGOTTEN_BODY = re.compile(r"^  body_sha256: ([0-9a-f]{64})\s*$", re.MULTILINE)
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Ids and body digests (`knowledge.body_digest`) of forgotten units."""

    ids: frozenset[str] = frozenset()
    bodies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetResult:
    """What `forget_unit` removed, and the files whose relations to it were taken out."""

    id: str
    path: str
    relinked: tuple[str, ...]
    commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """Where `move_unit` put a unit, and the files whose relations now name its new id."""

    old_id: str
    new_id: str
    old_path: str
    new_path: str
    relinked: tuple[str, ...]
    commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: str
    content: bytes
    unit: Unit

    @property
    def text(self) -> str:
        return self.content.decode("utf-8")


def add_unit(
    brain: Path,
    text: str,
    *,
    type: str,
    domain: str,
    tags: Sequence[str] = (),
    title: str | None = None,
    confidence: float = 0.8,
    now: datetime,
    allow: Sequence[re.Pattern[str]] = (),
    report: Callable[[Mapping[str, int]], None] = lambda counts: None,
) -> str:
    """File a text as a new unit, commit it, and return its path.

    Secrets are taken out first, but for what `allow` names (`redaction.allow_list`); `report` gets their kinds.

    A text with frontmatter is taken as a finished knowledge file: what it says counts, and is kept as it is. The
    title is the given one, else the first heading, else the first sentence. Raises UsageError for arguments
    it cannot take, KnowledgeError where the very same body is in the brain already; where that was never committed,
    as after an interruption, it is committed instead.
    """
    if not re.search(r"\w", text):
        raise UsageError("There is nothing to add: the text has no words.")
    redacted = redact(text, allow=allow)
    text, title = redacted.text, redact(title, allow=allow).text if title else None
    report(redacted.counts)
    with git.only_writer(brain):
        _check_calm(brain)
        if plain_line_ends(text).lstrip().startswith("---\n"):
            unit, written = _finished(text)
            path = _place_of_finished(brain, unit, written, domain=domain)
        else:
            unit = _drafted(text, type=type, domain=domain, tags=tags, title=title, confidence=confidence, now=now)
            unit, path = _place_of_drafted(brain, unit)
            written = knowledge.serialise(unit)
        if not (brain / path).exists():
            brains.write_file(brain, path, written, expect_sha256=None)
        _commit(brain, [path, *_recall(brain, unit)], f"Add {unit.id}")
        return path


def forget_unit(brain: Path, unit_id: str) -> ForgetResult:
    """Remove a unit and every relation to it, and remember that it is not wanted, in one commit.

    Other files with uncommitted work in them are changed but not committed. Raises KnowledgeError where
    there is no such unit. What an interrupted call left uncommitted is committed.
    """
    with git.only_writer(brain):
        _check_calm(brain)
        left = _left_behind(brain, unit_id)
        if left and unit_id in forgotten(brain).ids and unit_id not in _ids(brain):
            relinked = _only_relinked(brain, unit_id, None)
            path = left[0]
            committed = [*left, FORGOTTEN, *relinked]
        else:
            file = find_unit(brain, unit_id)
            dirty, path = _dirty(brain), file.path
            _remember(brain, file.unit)
            relinked = _relink(brain, unit_id, None)
            brains.remove_file(brain, path, expect_sha256=brains.sha256(file.content))
            committed = [path, FORGOTTEN, *(path for path in relinked if path not in dirty)]
        commit = _commit(brain, committed, f"Forget {unit_id}")
        return ForgetResult(id=unit_id, path=path, relinked=relinked, commit=commit)


def move_unit(brain: Path, unit_id: str, *, domain: str | None = None, slug: str | None = None) -> MoveResult:
    """File a unit under another domain, or rename it (its id and every relation to it follow), in one commit.

    Raises KnowledgeError where there is no such unit, UsageError for a place it cannot have, ConflictError where
    another file is there. What an interrupted call left uncommitted is committed.
    """
    with git.only_writer(brain):
        _check_calm(brain)
        left = _left_behind(brain, unit_id)
        kind, _, old_slug = unit_id.partition("/")
        new_id = f"{kind}/{slug if slug is not None else old_slug}"
        if left and new_id != unit_id and unit_id not in (ids := _ids(brain)) and new_id in ids:
            file = find_unit(brain, new_id)
            relinked = _only_relinked(brain, unit_id, new_id)
            commit = _commit(brain, [*left, file.path, *relinked], _moved(unit_id, file.unit))
            return MoveResult(
                old_id=unit_id, new_id=new_id, old_path=left[0], new_path=file.path, relinked=relinked, commit=commit
            )
        return _move(brain, find_unit(brain, unit_id), domain=domain, slug=slug, left=left)


def _move(brain: Path, file: _File, *, domain: str | None, slug: str | None, left: Sequence[str]) -> MoveResult:
    unit_id = file.unit.id
    new_slug = slug if slug is not None else unit_id.partition("/")[2]
    new_domain = brains.validate_domain(domain if domain is not None else file.unit.domain or "")
    new_path, new_id = brains.unit_path(file.unit.type, new_domain, new_slug), f"{file.unit.type}/{new_slug}"
    if new_id != unit_id and new_id in _ids(brain):
        raise KnowledgeError(f"There is a unit {new_id} already.", hint="Choose another name.")
    dirty = _dirty(brain)
    text = knowledge.edit(file.text, changes={"id": new_id, "domain": new_domain})
    if new_path == file.path:
        brains.write_file(brain, new_path, text, expect_sha256=brains.sha256(file.content))
    else:
        brains.write_file(brain, new_path, text, expect_sha256=None)
        brains.remove_file(brain, file.path, expect_sha256=brains.sha256(file.content))
    relinked = _relink(brain, unit_id, new_id) if new_id != unit_id else ()
    committed = [file.path, new_path, *left, *(path for path in relinked if path not in dirty)]
    moved = replace(file.unit, id=new_id, domain=new_domain)
    commit = _commit(brain, list(dict.fromkeys(committed)), _moved(unit_id, moved))
    return MoveResult(
        old_id=unit_id, new_id=new_id, old_path=file.path, new_path=new_path, relinked=relinked, commit=commit
    )


def find_unit(brain: Path, unit_id: str) -> _File:
    """The file of a unit. Raises KnowledgeError where there is none, or more than one."""
    found = [file for file in _files(brain, unit_id) if file.unit.id == unit_id]
    if len(found) > 1:
        paths = " and ".join(file.path for file in found)
        raise KnowledgeError(f"More than one file has the id {unit_id}: {paths}.", hint="Give one of them another id.")
    if not found:
        near = difflib.get_close_matches(unit_id, _ids(brain), n=1)
        hint = f"Did you mean {near[0]}?" if near else "`nugget search` finds the ids of units."
        raise KnowledgeError(f"There is no unit {unit_id} in the brain.", hint=hint)
    return found[0]


def forgotten(brain: Path) -> Forgotten:
    """What was forgotten in a brain; empty where nothing was."""
    text = (_forgotten_content(brain) or b"").decode("utf-8", "replace")
    return Forgotten(ids=frozenset(_FORGOTTEN_ID.findall(text)), bodies=frozenset(_FORGOTTEN_BODY.findall(text)))


def _finished(text: str) -> tuple[Unit, str]:
    parsed = knowledge.parse(text, path="the text")
    if parsed.unit is None:
        first = next(problem for problem in parsed.problems if problem.severity is Severity.ERROR)
        raise KnowledgeError(f"{first}.", hint="Correct its frontmatter, or leave it out.")
    return parsed.unit, text if text.endswith("\n") else text + "\n"


def _drafted(
    text: str, *, type: str, domain: str, tags: Sequence[str], title: str | None, confidence: float, now: datetime
) -> Unit:
    if type not in list(KnowledgeType):
        raise UsageError(f"There is no type {type!r}.", hint=f"The types are {', '.join(KnowledgeType)}.")
    if not 0 <= confidence <= 1:
        raise UsageError(f"The confidence must be a number from 0 to 1, not {confidence}.")
    body = plain_line_ends(text).strip("\n").rstrip()
    heading = title_of(body)
    named = " ".join((title or heading or _first_sentence(body)).split())
    return Unit(
        id=f"{type}/{slugify(named)}",
        source=SourceName.BRAIN,
        type=type,
        title=named,
        body=body if heading else f"# {named}\n\n{body}",
        domain=brains.validate_domain(domain),
        tags=tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip())),
        confidence=confidence,
        origin=Origin.MANUAL,
        created=now.date(),
        last_modified=now.date(),
    )


def _first_sentence(body: str) -> str:
    """What a text without a heading is called."""
    sentence = _SENTENCE_BREAK.split(body.lstrip("-*>#`_ \n"), maxsplit=1)[0]
    return shorten(sentence, _MAX_TITLE_CHARS).removesuffix("[…]").rstrip(" .") or shorten(body, _MAX_TITLE_CHARS)


def _place_of_finished(brain: Path, unit: Unit, written: str, *, domain: str) -> str:
    """Where a finished file belongs, or is already without ever having been committed."""
    for file in _files(brain, unit.id):
        if file.unit.id == unit.id:
            if file.text == written and _never_committed(brain, file.path):
                return file.path
            raise ConflictError(f"{unit.id} exists already ({file.path}).", hint="Give the new one another id.")
    return brains.unit_path(unit.type, unit.domain or domain, unit.id.partition("/")[2])


def _place_of_drafted(brain: Path, unit: Unit) -> tuple[Unit, str]:
    """The unit, with a number behind its id where another unit has it, and where it belongs.

    A unit of the same body that never was committed is that unit, where it is.
    """
    digest = knowledge.body_digest(unit.body)
    taken: set[str] = set()
    for file in _files(brain):
        taken.add(file.unit.id)
        if knowledge.body_digest(file.unit.body) == digest:
            if _never_committed(brain, file.path):
                return file.unit, file.path
            raise KnowledgeError(f"The brain knows this already: {file.unit.id} ({file.path}).")
    number, free = 2, unit.id
    while free in taken:
        number, free = number + 1, f"{unit.id}-{number}"
    return replace(unit, id=free), brains.unit_path(unit.type, unit.domain or "", free.partition("/")[2])


def _moved(old_id: str, unit: Unit) -> str:
    return f"Move {old_id} to {unit.domain}/{unit.id}"


def _never_committed(brain: Path, path: str) -> bool:
    return git.is_repository(brain) and git.read_blob(brain, "HEAD", path) is None


def _left_behind(brain: Path, unit_id: str) -> list[str]:
    """The paths at which HEAD has this unit and the work tree has nothing: a removal that was not committed."""
    missing = [path for path in sorted(_dirty(brain)) if not (brain / path).exists() and "\n" not in path]
    contents = git.read_objects(brain, [f"HEAD:{path}" for path in missing]) if missing else []
    parsed = [
        knowledge.parse_bytes(content or b"", path=path).unit for path, content in zip(missing, contents, strict=True)
    ]
    return [path for path, unit in zip(missing, parsed, strict=True) if unit is not None and unit.id == unit_id]


def _only_relinked(brain: Path, old_id: str, new_id: str | None) -> tuple[str, ...]:
    """The uncommitted files that differ from HEAD by nothing but `_relink`."""
    found: list[str] = []
    for path in sorted(_dirty(brain)):
        before = git.read_blob(brain, "HEAD", path) or b""
        unit = knowledge.parse_bytes(before, path=path).unit
        if unit is not None and any(relation.id == old_id for relation in unit.related) and (brain / path).exists():
            expected = knowledge.edit(before.decode("utf-8"), relink={old_id: new_id})
            if expected.encode() == brains.read_file(brain, path):
                found.append(path)
    return tuple(found)


def _files(brain: Path, mentioning: str = "") -> Iterator[_File]:
    """The readable knowledge files that contain a text."""
    wanted = mentioning.encode()
    for path in brains.knowledge_paths(brain):
        try:
            content = brains.read_file(brain, path)
        except NuggetError:
            continue
        unit = knowledge.parse_bytes(content, path=path).unit if wanted in content else None
        if unit is not None:
            yield _File(path=path, content=content, unit=unit)


def _ids(brain: Path) -> list[str]:
    return [file.unit.id for file in _files(brain)]


def _relink(brain: Path, old_id: str, new_id: str | None) -> tuple[str, ...]:
    """Point every relation at `old_id` to `new_id`, or take it out; the paths that changed."""
    changed: list[str] = []
    for file in _files(brain, old_id):
        if any(relation.id == old_id for relation in file.unit.related):
            text = knowledge.edit(file.text, relink={old_id: new_id})
            brains.write_file(brain, file.path, text, expect_sha256=brains.sha256(file.content))
            changed.append(file.path)
    return tuple(changed)


def _remember(brain: Path, unit: Unit) -> None:
    content = _forgotten_content(brain)
    text = (content or b"").decode("utf-8", "surrogateescape")
    expect = None if content is None else brains.sha256(content)
    entry = f"- id: {unit.id}\n  body_sha256: {knowledge.body_digest(unit.body)}\n"
    if entry not in text:
        line_end = "" if not text or text.endswith("\n") else "\n"
        _write_forgotten(brain, (text or _FORGOTTEN_HEAD) + line_end + entry, expect_sha256=expect)


def _recall(brain: Path, unit: Unit) -> list[str]:
    """Take a unit that is wanted again out of the forgotten; the paths that changed."""
    content = _forgotten_content(brain) or b""
    text = content.decode("utf-8", "surrogateescape")
    digest = knowledge.body_digest(unit.body)
    entries = re.findall(r"^- id: .*\n(?:  .*\n)*", text, re.MULTILINE)
    again = [entry for entry in entries if entry.startswith(f"- id: {unit.id}\n") or digest in entry]
    kept = text
    for entry in again:
        kept = kept.replace(entry, "", 1)
    if kept == text:
        return []
    _write_forgotten(brain, kept, expect_sha256=brains.sha256(content))
    return [FORGOTTEN]


def _forgotten_content(brain: Path) -> bytes | None:
    """The bytes of the file, which may be empty or no UTF-8; None where there is none."""
    return brains.read_file(brain, FORGOTTEN) if (brain / FORGOTTEN).exists() else None


def _write_forgotten(brain: Path, text: str, *, expect_sha256: str | None) -> None:
    """Write the file with every byte that is no UTF-8 as it was."""
    brains.write_file(brain, FORGOTTEN, text.encode("utf-8", "surrogateescape"), expect_sha256=expect_sha256)


def _check_calm(brain: Path) -> None:
    operation = git.operation_in_progress(brain) if git.is_repository(brain) else None
    if operation:
        hint = f"Finish it (`git {operation} --continue`) or undo it (`git {operation} --abort`), then try again."
        raise BrainError(f"The brain is in the middle of a {operation}; nothing was changed.", hint=hint)


def _dirty(brain: Path) -> frozenset[str]:
    return frozenset(git.state(brain).dirty) if git.is_repository(brain) else frozenset()


def _commit(brain: Path, paths: Sequence[str], message: str) -> str | None:
    if not git.is_repository(brain):
        return None
    try:
        tracked = git.run(brain, "ls-files", "-z", "--", *paths).decode("utf-8", "replace").split("\0")
        return git.commit_paths(brain, [p for p in paths if p in tracked or (brain / p).exists()], message)
    except GitError as error:
        raise GitError(f"{paths[0]} is changed, but not committed: {error}", hint=error.hint) from error
