"""Knowledge by hand: add, forget and move units, and update the relations of other units.

Each change is one commit of exactly the files it concerns. Forgotten units are listed in `forgotten.yaml`, so that
capture does not propose them again.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.errors import ConflictError, KnowledgeError, NuggetError, UsageError
from nugget.infra import git
from nugget.markdown import title_of
from nugget.models import Origin, Severity, SourceName, Unit
from nugget.redaction import redact
from nugget.text import content_hash, numbered, plain_line_ends, shorten, title_slug

FORGOTTEN = "forgotten.yaml"
"""The file, at the root of a brain, that lists what was forgotten."""

_FORGOTTEN_HEAD = """\
# Units that were removed with `nugget forget`. Nugget does not propose them again;
# take an entry out of this list to allow it.
"""
_MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMove:
    """The result of moving or forgetting a unit; the `relinked` files had a relation to it."""

    old_id: str
    old_path: str
    new_id: str = ""
    new_path: str = ""
    relinked: tuple[str, ...]
    commit: str | None


_File = tuple[str, bytes, Unit]
"""The path, content and unit of a file."""


def add_unit(
    brain: Path, text: str, *, type: str, domain: str, tags: Sequence[str] = (), confidence: float = 0.8,
    now: datetime, allow: Sequence[re.Pattern[str]] = (),
) -> tuple[str, Mapping[str, int]]:  # fmt: skip
    """File a text as a new unit, commit it, and return its path and the counts of the kinds that were redacted.

    `allow` lists what is not redacted (`redaction.allow_list`). A text with frontmatter is taken as a finished
    knowledge file and kept as it is. The title is the first heading, else the first sentence.
    Raises UsageError for invalid arguments, KnowledgeError if the brain already has the same body.
    """
    if not re.search(r"\w", text):
        raise UsageError("There is nothing to add: the text has no words.")
    redacted = redact(text, allow=allow)
    text = redacted.text
    with git.only_writer(brain):
        branch, head = git.ready_branch(brain)
        if plain_line_ends(text).lstrip().startswith("---\n"):
            unit, written = _finished(text)
            unit, path = _place(brain, replace(unit, domain=unit.domain or domain), finished=True)
        else:
            unit = _drafted(text, type=type, domain=domain, tags=tags, confidence=confidence, now=now)
            unit, path = _place(brain, unit, finished=False)
            written = knowledge.serialise(unit)
        _refuse_taken(brain, path)
        git.commit_change(brain, {path: written.encode()}, f"Add {unit.id}", branch=branch, expect_head=head, now=now)
        return path, redacted.counts


def forget_unit(brain: Path, unit_id: str) -> UnitMove:
    """Remove a unit and every relation to it, and list it as forgotten, in one commit.

    Raises KnowledgeError if there is no such unit, ConflictError if a file that would change has uncommitted work.
    """
    with git.only_writer(brain):
        branch, head = git.ready_branch(brain)
        path, _, unit = _find(brain, unit_id)
        relinked = _relink(brain, unit_id, None)
        changes: dict[str, bytes | None] = {**relinked, path: None, FORGOTTEN: _remember(brain, unit)}
        commit = git.commit_change(brain, changes, f"Forget {unit_id}", branch=branch, expect_head=head)
        return UnitMove(old_id=unit_id, old_path=path, relinked=tuple(relinked), commit=commit)


def move_unit(brain: Path, unit_id: str, *, domain: str | None = None, slug: str | None = None) -> UnitMove:
    """File a unit under another domain or rename it (with its id and every relation to it), in one commit.

    Raises KnowledgeError if there is no such unit, UsageError for an invalid place, ConflictError if another
    file is there or a file that would change has uncommitted work. `commit` is None if it is there already.
    """
    with git.only_writer(brain):
        branch, head = git.ready_branch(brain)
        path, content, unit = _find(brain, unit_id)
        new_slug = slug if slug is not None else unit_id.partition("/")[2]
        new_domain = brains.validate_domain(domain if domain is not None else unit.domain or "")
        new_path, new_id = brains.unit_path(unit.type, new_domain, new_slug), f"{unit.type}/{new_slug}"
        if new_id != unit_id and new_id in _ids(brain):
            raise KnowledgeError(f"The unit {new_id} exists already.", hint="Choose another name.")
        relinked = _relink(brain, unit_id, new_id) if new_id != unit_id else {}
        own = relinked.pop(path, content).decode("utf-8")
        if new_path != path:
            _refuse_taken(brain, new_path)
        moved = _edited(path, own, changes={"id": new_id, "domain": new_domain})
        message = f"Move {unit_id} to " + (new_domain if new_id == unit_id else f"{new_domain}: {new_id}")
        commit = git.commit_change(
            brain, {**relinked, path: None, new_path: moved}, message, branch=branch, expect_head=head
        )
        return UnitMove(
            old_id=unit_id, new_id=new_id, old_path=path, new_path=new_path, relinked=tuple(relinked), commit=commit
        )


def replace_unit(
    brain: Path, unit_id: str, text: str, *, expect: str, allow: Sequence[re.Pattern[str]] = (), now: datetime
) -> str:
    """Redact a new text, write it into the file of a unit, commit it, and return the path.

    `expect` is the SHA-256 (hex) of the content that the change was made from. Raises KnowledgeError if there is no
    such unit or the text is not a knowledge file, UsageError if it has another id, ConflictError if the file has
    changed since.
    """
    text = redact(plain_line_ends(text), allow=allow).text
    with git.only_writer(brain):
        branch, head = git.ready_branch(brain)
        path, content, _ = _find(brain, unit_id)
        if content_hash(content) != expect:
            raise ConflictError(f"{path} has changed since you opened it; nothing was written.", hint="Open it again.")
        unit, written = _finished(text)
        if unit.id != unit_id:
            raise UsageError(f"The id is {unit_id}, not {unit.id}.", hint="`nugget mv` renames a unit.")
        git.commit_change(brain, {path: written.encode()}, f"Edit {unit_id}", branch=branch, expect_head=head, now=now)
        return path


def forgotten(brain: Path) -> frozenset[str]:
    """Return the ids and the body digests (`knowledge.body_digest`) of the forgotten units of a brain."""
    lines = (line.lstrip(" -").partition(": ") for line in _forgotten_text(brain).splitlines())
    return frozenset(value.split()[0] for key, _, value in lines if key in ("id", "body_sha256") and value.strip())


def _find(brain: Path, unit_id: str) -> _File:
    """Return the file of a unit. Raises KnowledgeError unless there is exactly one."""
    found = [file for file in _files(brain, unit_id) if file[2].id == unit_id]
    if len(found) > 1:
        paths = " and ".join(path for path, _, _ in found)
        raise KnowledgeError(f"More than one file has the id {unit_id}: {paths}.", hint="Give one of them another id.")
    if not found:
        near = difflib.get_close_matches(unit_id, _ids(brain), n=1)
        hint = f"Did you mean {near[0]}?" if near else "`nugget search` finds the ids of units."
        raise KnowledgeError(f"There is no unit {unit_id} in the brain.", hint=hint)
    return found[0]


def _finished(text: str) -> tuple[Unit, str]:
    parsed = knowledge.parse(text, path="the text")
    if parsed.unit is None:
        first = next(problem for problem in parsed.problems if problem.severity is Severity.ERROR)
        raise KnowledgeError(f"{first}.", hint="Correct its frontmatter, or leave it out.")
    return parsed.unit, text if text.endswith("\n") else text + "\n"


def _drafted(text: str, *, type: str, domain: str, tags: Sequence[str], confidence: float, now: datetime) -> Unit:
    if not 0 <= confidence <= 1:
        raise UsageError(f"The confidence must be a number from 0 to 1, not {confidence}.")
    body = plain_line_ends(text).strip("\n").rstrip()
    heading = title_of(body)
    sentence = re.split(r"(?<=[.!?])\s|(?<=[。！？])|\n", body.lstrip("-*>#`_ \n"), maxsplit=1)[0]
    first, is_cut, _ = (shorten(sentence, _MAX_TITLE_CHARS) or shorten(body, _MAX_TITLE_CHARS)).partition(" […]")
    first = re.sub(r"[,;:(—–][^,;:(—–]{,40}$", "", first) if is_cut else first.rstrip(".")  # cut at a clause
    named = " ".join((heading or first).split())
    return Unit(
        id=f"{type}/{title_slug(named)}", source=SourceName.BRAIN, type=type, title=named,
        body=body if heading else f"# {named}\n\n{body}", domain=brains.validate_domain(domain),
        tags=tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip())), confidence=confidence,
        origin=Origin.MANUAL, created=now.date(), last_modified=now.date(),
    )  # fmt: skip


def _place(brain: Path, unit: Unit, *, finished: bool) -> tuple[Unit, str]:
    """Return the unit and its path; a drafted unit gets a number after its id if the id is taken."""
    digest, taken = knowledge.body_digest(unit.body), dict[str, str]()
    for path, _, known in _files(brain):
        taken[known.id] = path
        if not finished and knowledge.body_digest(known.body) == digest:
            raise KnowledgeError(f"The brain knows this already: {known.id} ({path}).")
    if finished and unit.id in taken:
        raise ConflictError(f"{unit.id} exists already ({taken[unit.id]}).", hint="Give the new one another id.")
    unit = replace(unit, id=numbered(unit.id, taken))
    return unit, brains.unit_path(unit.type, unit.domain or "", unit.id.partition("/")[2])


def _refuse_taken(brain: Path, path: str) -> None:
    if os.path.lexists(brain / path):
        raise ConflictError(f"{path} exists already; nothing was written.", hint="Choose another name.")


def _files(brain: Path, mentioning: str = "") -> Iterator[_File]:
    """Yield the readable knowledge files that contain a text; links are resolved to their files."""
    for path in brains.knowledge_paths(brain):
        with suppress(NuggetError):
            content = b"" if (brain / path).is_symlink() else brains.read_file(brain, path)
            unit = knowledge.parse_bytes(content, path=path).unit if mentioning.encode() in content else None
            if unit is not None:
                yield path, content, unit


def _ids(brain: Path) -> list[str]:
    return [unit.id for _, _, unit in _files(brain)]


def _relink(brain: Path, old_id: str, new_id: str | None) -> dict[str, bytes]:
    """Return the files with a relation to `old_id`, pointed at `new_id` or, if that is None, removed."""
    return {
        path: _edited(path, content.decode("utf-8"), relink={old_id: new_id})
        for path, content, unit in _files(brain, old_id)
        if any(relation.id == old_id for relation in unit.related)
    }


def _edited(path: str, text: str, **edits: Any) -> bytes:
    """Return an edited file, as `knowledge.edit` does. Raises KnowledgeError with the path."""
    try:
        return knowledge.edit(text, **edits).encode()
    except KnowledgeError as error:
        raise KnowledgeError(f"{path}: {error}", hint=error.hint) from error


def _remember(brain: Path, unit: Unit) -> bytes:
    """Return the list of forgotten units with this one added, keeping bytes that are not UTF-8."""
    text, digest = _forgotten_text(brain) or _FORGOTTEN_HEAD, knowledge.body_digest(unit.body)
    if not {unit.id, digest} <= forgotten(brain):
        text = text.removesuffix("\n") + f"\n- id: {unit.id}\n  body_sha256: {digest}\n"
    return text.encode("utf-8", "surrogateescape")


def _forgotten_text(brain: Path) -> str:
    """Return the text of `forgotten.yaml`, empty if the brain lacks it."""
    content = brains.read_file(brain, FORGOTTEN) if (brain / FORGOTTEN).exists() else b""
    return content.decode("utf-8", "surrogateescape")
