"""Check a brain: every file on its own, then how they fit together. Reads only."""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nugget import brain as brains
from nugget.brain.golden import read_golden
from nugget.config import Settings, read_brain_file
from nugget.errors import NuggetError, UsageError
from nugget.models import Problem, Severity, Unit
from nugget.redaction import allow_list, secret_lines
from nugget.text import folded, printable

_DEFAULTS = Settings()


def lint(brain: Path, paths: Sequence[Path] = (), *, settings: Settings = _DEFAULTS) -> list[Problem]:
    """Return the problems of a brain, sorted by path and line; with `paths` (files or folders) only those there.

    Relations and ids are always checked against the whole brain. `settings` say which texts are no secrets.
    Raises UsageError for a path outside it.
    """
    wanted = [_relative(brain, path) for path in paths]
    problems: list[Problem] = []
    listed = list(brains.knowledge_paths(brain, unlisted=problems))
    listed += [one for one in wanted if one.endswith(".md") and one not in listed and not (brain / one).is_dir()]
    units: list[tuple[Unit, Mapping[str, int]]] = []
    for path in listed:
        parsed = brains.load(brain, path)
        problems += parsed.problems
        if parsed.unit:
            units.append((parsed.unit, parsed.lines))
    problems += [
        *_settings(brain),
        *_links(brain),
        *_secrets(brain, [path for path in listed if not wanted or _is_under(path, wanted)], settings),
        *_duplicates(units),
        *(problem for unit, lines in units for problem in _place(unit, lines)),
        *_dangling(units),
        *_golden(brain, {unit.id for unit, _ in units}),
    ]
    if wanted:
        problems = [problem for problem in problems if _is_under(problem.path, wanted)]
    return sorted(problems, key=lambda problem: (problem.path, problem.line or 0, problem.reason))


def _relative(brain: Path, path: Path) -> str:
    """Return a path given by a person, relative to their folder or to the brain, as one in the brain."""
    root = brain.resolve()
    for place in (Path(os.path.abspath(path)), root / path):  # noqa: PTH100 - links are to be seen, not followed
        whole = place.parent.resolve() / place.name
        if os.path.lexists(whole) and whole.is_relative_to(root):
            return whole.relative_to(root).as_posix()
    what = "is not in the brain" if os.path.lexists(path) else "does not exist"
    raise UsageError(f"{path} {what}.", hint=f"Name files or folders below {root}.")


def _is_under(path: str, wanted: Sequence[str]) -> bool:
    return any(name in (".", path) or path.startswith(f"{name}/") for name in map(printable, wanted))


def _warning(unit: Unit, lines: Mapping[str, int], reason: str, key: str) -> Problem:
    """Return a warning at the line of a key."""
    line = lines.get(key) or lines.get("id")
    return Problem(path=unit.path or "", reason=reason, line=line, severity=Severity.WARNING)


def _secrets(brain: Path, paths: Sequence[str], settings: Settings) -> Iterator[Problem]:
    """Yield kind and line of what looks like a secret, in the order of the file, never the secret itself."""
    allow = allow_list(settings)
    for path in paths:
        try:
            text = brains.read_file(brain, path).decode("utf-8", "replace")
        except NuggetError:
            continue
        for line, kind in secret_lines(text, allow=allow):
            reason = (
                f"holds what looks like a secret ({kind}); take it out here and in git's history, or let it through "
                "with `redaction.allow` in your configuration"
            )
            yield Problem(path=printable(path), reason=reason, line=line, severity=Severity.WARNING)


def _settings(brain: Path) -> Iterator[Problem]:
    """Yield the problems of brain.yaml: what cannot be read or taken, and keys that it cannot set."""
    _, problems, misplaced = read_brain_file(brain)
    yield from problems
    for key, entry in misplaced.items():
        reason = f"`{key}` is ignored here; `nugget config move` moves it to your own configuration"
        yield Problem(path="brain.yaml", reason=reason, line=entry.line, severity=Severity.WARNING)


def _links(brain: Path) -> Iterator[Problem]:
    """Yield a problem for each link to a folder, which the walk leaves out."""
    if (brain / "domains").is_symlink():
        yield Problem(path="domains", reason="is a symbolic link, which is not followed")
    for folder, folders, _ in os.walk(brain / "domains"):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for place in (Path(folder, name) for name in folders):
            if place.is_symlink():
                path = printable(place.relative_to(brain).as_posix())
                reason = "is a symbolic link to a folder, which is not followed"
                yield Problem(path=path, reason=reason, severity=Severity.WARNING)


def _duplicates(units: Sequence[tuple[Unit, Mapping[str, int]]]) -> Iterator[Problem]:
    first: dict[str, tuple[Unit, Mapping[str, int]]] = {}
    for unit, lines in units:
        # Two spellings that a file system may take for one name count as one id.
        earlier, earlier_lines = first.setdefault(folded(unit.id), (unit, lines))
        if earlier is not unit:
            reason = f"the id {unit.id} is taken by {earlier.path}:{earlier_lines.get('id')}; choose another one"
            yield replace(_warning(unit, lines, reason, "id"), severity=Severity.ERROR)


def _place(unit: Unit, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a warning for each part of a file's path that its id, type or domain contradicts."""
    unit_type, _, slug = unit.id.partition("/")
    parts = (unit.path or "").split("/")
    if unicodedata.normalize("NFC", parts[-1]) != f"{unicodedata.normalize('NFC', slug)}.md":
        yield _warning(unit, lines, f"the id {unit.id} belongs in a file {slug}.md", "id")
    if len(parts) < 4 or parts[-2] != f"{unit.type}s":
        folder = f"domains/{unit.domain or '<domain>'}/{unit.type}s"
        yield _warning(unit, lines, f"a {unit.type} belongs in the folder {folder}", "type")
    if unit_type == unit.type and unit.domain and "/".join(parts[1:-2]) != unit.domain and len(parts) >= 4:
        yield _warning(unit, lines, f"the domain {unit.domain} belongs in the folder domains/{unit.domain}", "domain")


def _dangling(units: Sequence[tuple[Unit, Mapping[str, int]]]) -> Iterator[Problem]:
    ids = {unit.id for unit, _ in units}
    for unit, lines in units:
        for number, relation in enumerate(unit.related):
            if relation.id == unit.id:
                yield _warning(unit, lines, "is related to itself", f"related.{number}")
            elif relation.id not in ids:
                near = difflib.get_close_matches(relation.id, ids, n=1, cutoff=0.8)
                guess = f"; did you mean {near[0]}?" if near else ""
                reason = f"`{relation.relation}` names {relation.id}, which no file has{guess}"
                yield _warning(unit, lines, reason, f"related.{number}")


def _golden(brain: Path, ids: Collection[str]) -> Iterator[Problem]:
    """Yield golden questions that cannot be read, or that expect a unit which no file has."""
    questions, problems = read_golden(brain)
    yield from (replace(problem, severity=Severity.WARNING) for problem in problems)
    for question in questions:
        for unit_id, line in zip(question.expect, question.lines, strict=True):
            if unit_id not in ids:
                reason = f"a golden question expects {unit_id}, which no file has"
                yield Problem(path=question.path, reason=reason, line=line, severity=Severity.WARNING)
