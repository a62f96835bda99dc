"""Check a brain: every file on its own, then how they fit together. Reads only."""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nugget import brain as brains
from nugget.brain.golden import read_golden
from nugget.config import Settings, read_brain_file
from nugget.errors import GitError, NuggetError, UsageError
from nugget.infra import git
from nugget.models import Problem, Severity, Unit
from nugget.redaction import allow_list, secret_lines
from nugget.text import printable

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A unit with where it stands in its file."""

    unit: Unit
    path: str
    lines: Mapping[str, int]

    def warn(self, reason: str, key: str) -> Problem:
        """Return a warning at the line of a key."""
        line = self.lines.get(key) or self.lines.get("id")
        return Problem(path=self.path, reason=reason, line=line, severity=Severity.WARNING)


def lint(brain: Path, paths: Sequence[Path] = (), *, settings: Settings = _DEFAULTS) -> list[Problem]:
    """Return the problems of a brain, sorted by path and line; with `paths` (files or folders) only those there.

    Relations and ids are always checked against the whole brain. `settings` say which texts are no secrets.
    Raises UsageError for a path outside it.
    """
    wanted = [_relative(brain, path) for path in paths]
    problems: list[Problem] = []
    listed = list(brains.knowledge_paths(brain, unlisted=problems))
    listed += [one for one in wanted if one.endswith(".md") and one not in listed and not (brain / one).is_dir()]
    units: list[_Known] = []
    for path in listed:
        parsed = brains.load(brain, path)
        problems += parsed.problems
        if parsed.unit:
            units.append(_Known(unit=parsed.unit, path=path, lines=parsed.lines))
    problems += [
        *_settings(brain),
        *_links(brain),
        *_repository(brain),
        *_secrets(brain, [path for path in listed if not wanted or _is_under(path, wanted)], settings),
        *_duplicates(units),
        *(problem for known in units for problem in _place(known)),
        *_dangling(units),
        *_golden(brain, {known.unit.id for known in units}),
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


def _secrets(brain: Path, paths: Sequence[str], settings: Settings) -> Iterator[Problem]:
    """Kind and line of what looks like a secret, in the order of the file; never what it is."""
    allow = allow_list(settings)
    for path in paths:
        try:
            text = brains.read_file(brain, path).decode("utf-8", "replace")
        except NuggetError:
            continue
        for line, kind in secret_lines(text, allow=allow):
            reason = (
                f"holds what looks like a secret ({kind}); take it out here and in git's history, or let it through"
            )
            reason += " with `redaction.allow` in your configuration"
            yield Problem(path=printable(path), reason=reason, line=line, severity=Severity.WARNING)


def _settings(brain: Path) -> Iterator[Problem]:
    """Problems of brain.yaml: what cannot be read or taken, and keys that it cannot set."""
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


def _repository(brain: Path) -> Iterator[Problem]:
    """Return the problems of the brain as a git repository."""
    if not git.is_repository(brain):
        reason = "is no git repository, so nothing has a history or can be proposed; run `nugget init` in it"
        yield Problem(path=".", reason=reason, severity=Severity.WARNING)
        return
    try:
        if git.head(brain) and (found := git.unsettled(brain)):
            yield Problem(path=".", reason=f"is {found[0]}; {found[1]} ends that", severity=Severity.WARNING)
    except GitError as error:
        yield Problem(path=".", reason=str(error).rstrip("."), severity=Severity.WARNING)


def _duplicates(units: Sequence[_Known]) -> Iterator[Problem]:
    first: dict[str, _Known] = {}
    for known in units:
        # Two spellings that a file system may take for one name count as one id.
        earlier = first.setdefault(unicodedata.normalize("NFC", known.unit.id).casefold(), known)
        if earlier is not known:
            reason = f"the id {known.unit.id} is taken by {earlier.path}:{earlier.lines.get('id')}; choose another one"
            yield replace(known.warn(reason, "id"), severity=Severity.ERROR)


def _place(known: _Known) -> Iterator[Problem]:
    """Return whether a file stands where its id and type say."""
    unit_type, _, slug = known.unit.id.partition("/")
    parts = known.path.split("/")
    if unicodedata.normalize("NFC", parts[-1]) != f"{unicodedata.normalize('NFC', slug)}.md":
        yield known.warn(f"the id {known.unit.id} belongs in a file {slug}.md", "id")
    if len(parts) < 4 or parts[-2] != f"{known.unit.type}s":
        folder = f"domains/{known.unit.domain or '<domain>'}/{known.unit.type}s"
        yield known.warn(f"a {known.unit.type} belongs in the folder {folder}", "type")
    domain = known.unit.domain
    if unit_type == known.unit.type and domain and "/".join(parts[1:-2]) != domain and len(parts) >= 4:
        yield known.warn(f"the domain {domain} belongs in the folder domains/{domain}", "domain")


def _dangling(units: Sequence[_Known]) -> Iterator[Problem]:
    ids = {known.unit.id for known in units}
    for known in units:
        for number, relation in enumerate(known.unit.related):
            if relation.id == known.unit.id:
                yield known.warn("is related to itself", f"related.{number}")
            elif relation.id not in ids:
                near = difflib.get_close_matches(relation.id, ids, n=1, cutoff=0.8)
                ask = f"; did you mean {near[0]}?" if near else ""
                reason = f"`{relation.relation}` names {relation.id}, which no file has{ask}"
                yield known.warn(reason, f"related.{number}")


def _golden(brain: Path, ids: Collection[str]) -> Iterator[Problem]:
    """Golden questions that cannot be read, or that expect a unit which no file has."""
    golden = read_golden(brain)
    yield from (replace(problem, severity=Severity.WARNING) for problem in golden.problems)
    for question in golden.questions:
        for unit_id, line in zip(question.expect, question.lines, strict=True):
            if unit_id not in ids:
                reason = f"a golden question expects {unit_id}, which no file has"
                yield Problem(path=question.path, reason=reason, line=line, severity=Severity.WARNING)
