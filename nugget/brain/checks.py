"""Check a brain: every file on its own, how they fit together, and its golden questions. Reads only.

docs/evaluation.md describes golden questions, `evals/*.yaml`. Defects are returned as problems, with the line.
"""

from __future__ import annotations

import difflib
import json
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nugget import brain as brains
from nugget.brain.frontmatter import Fields
from nugget.brain.knowledge_file import MAX_FILE_BYTES
from nugget.config import Settings, read_brain_file
from nugget.errors import NuggetError, UsageError, reason_of
from nugget.models import Filter, KnowledgeType, Problem, Severity, SourceName, Unit
from nugget.redaction import allow_list, secret_lines
from nugget.settings import Node, YAMLRefused, read_mapping
from nugget.text import folded, printable

_DEFAULTS = Settings()


def lint(brain: Path, paths: Sequence[Path] = (), *, settings: Settings = _DEFAULTS) -> list[Problem]:
    """Return the problems of a brain, or of these files and folders, sorted by path and line.

    Relations and ids are always checked against the whole brain. `settings` say which texts are not secrets.
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
    """Return the path in the brain for a path relative to the current folder or to the brain."""
    root = brain.resolve()
    for place in (Path(os.path.abspath(path)), root / path):  # noqa: PTH100 - links must not be followed
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
    """Yield the kind and line of each apparent secret, in the file's order, but never the secret itself."""
    allow = allow_list(settings)
    for path in paths:
        try:
            text = brains.read_file(brain, path).decode("utf-8", "replace")
        except NuggetError:
            continue
        for line, kind, _ in secret_lines(text, allow=allow):
            reason = (
                f"holds what looks like a secret ({kind}); remove it here and in git's history, or allow it "
                "with `redaction.allow` in your configuration"
            )
            yield Problem(path=printable(path), reason=reason, line=line, severity=Severity.WARNING)


def _settings(brain: Path) -> Iterator[Problem]:
    """Yield the problems of brain.yaml: unreadable or invalid entries, and keys that it may not set."""
    _, problems, misplaced = read_brain_file(brain)
    yield from problems
    for key, (_, line) in misplaced.items():
        reason = f"`{key}` is ignored here; `nugget config move` moves it to your own configuration"
        yield Problem(path="brain.yaml", reason=reason, line=line, severity=Severity.WARNING)


def _duplicates(units: Sequence[tuple[Unit, Mapping[str, int]]]) -> Iterator[Problem]:
    first: dict[str, tuple[Unit, Mapping[str, int]]] = {}
    for unit, lines in units:
        # Two spellings that a file system may treat as one name count as one id.
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
    """Yield problems of golden questions that cannot be read or that expect an unknown unit."""
    questions, problems = read_golden(brain)
    yield from (replace(problem, severity=Severity.WARNING) for problem in problems)
    for question in questions:
        for unit_id in question.expect:
            if unit_id not in ids:
                reason = f"a golden question expects {unit_id}, which no file has"
                yield Problem(path=question.path, reason=reason, line=question.line, severity=Severity.WARNING)


FOLDER = "evals"
_QUESTION = ("question", "expect", "filters")
_FILTERS = ("source", "type", "domain", "tag", "since")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenQuestion:
    """A question with the ids of the units that answer it (none if the brain has no answer) and its place."""

    text: str
    expect: tuple[str, ...]
    path: str
    line: int
    filter: Filter = field(default_factory=Filter)

    @property
    def key(self) -> str:
        """Return the identity of a question across runs: its text, what it expects, its filters."""
        return json.dumps([self.text, sorted(self.expect), self.filter.named()], ensure_ascii=False, sort_keys=True)


def read_golden(brain: Path, files: Sequence[Path] = ()) -> tuple[list[GoldenQuestion], list[Problem]]:
    """Return the golden questions of these files, by default all of the brain's, and the problems found."""
    own = [file.relative_to(brain) for end in ("*.yaml", "*.yml") for file in (brain / FOLDER).glob(end)]
    questions: list[GoldenQuestion] = []
    problems: list[Problem] = []
    for file in files or sorted(own):
        inside = file.resolve().is_relative_to(brain.resolve()) and files
        path = (file.resolve().relative_to(brain.resolve()) if inside else file).as_posix()
        try:
            found, wrong = parse(file.read_bytes() if files else brains.read_file(brain, path), path=path)
        except (NuggetError, OSError) as error:
            found, wrong = [], [Problem(path=path, reason=reason_of(error).removeprefix(f"{path}: "))]
        questions += found
        problems += wrong
    return questions, problems


def expecting(brain: Path, unit_id: str) -> list[tuple[str, int]]:
    """Return the file and line of every golden question that expects a unit."""
    return [(question.path, question.line) for question in read_golden(brain)[0] if unit_id in question.expect]


def parse(content: bytes, *, path: str) -> tuple[list[GoldenQuestion], list[Problem]]:
    """Return the questions in the content of a file, and its problems."""
    try:
        pairs = read_mapping(content.decode("utf-8-sig"), max_chars=MAX_FILE_BYTES)
        listed = next((value for key, value in pairs if key.value == "questions"), None)
        if listed is None or listed.id != "sequence":
            raise YAMLRefused("has no `questions:` with a list of questions", 1)
    except UnicodeDecodeError:
        return [], [Problem(path=path, reason="is not UTF-8 text")]
    except YAMLRefused as refused:
        return [], [Problem(path=path, line=refused.line, reason=str(refused))]
    problems: list[Problem] = []
    found = [_question(node, path, problems) for node in listed.value]
    return [question for question in found if question], problems


def _question(node: Node, path: str, problems: list[Problem]) -> GoldenQuestion | None:
    """Return one question, or None if it is invalid; its problems are added to `problems`."""
    own: list[Problem] = []
    fields = _fields(node, path, _QUESTION, own)
    text, expect = fields.text("question"), fields.listed("expect", commas=False)
    if not text or fields.value("expect") is None:
        fields.wrong(node, "a question needs `question:` and `expect:`")
    given = fields.value("filters")
    filters = _fields(given, path, _FILTERS, own) if given else Fields(path=path, first_line=1, nodes={})
    sources, types = filters.listed("source"), filters.listed("type")
    for key, values, known in (("source", sources, SourceName), ("type", types, KnowledgeType)):
        if not {*values} <= {*known}:
            filters.wrong(filters.value(key), f"`{key}` must be one of {', '.join(known)}")
    since = filters.day("since")
    if own:
        problems += own
        return None
    domains = tuple(name.strip("/") for name in filters.listed("domain"))
    return GoldenQuestion(
        text=text or "", expect=tuple(name.removeprefix("brain:") for name in expect), path=path,
        line=fields.line(node), filter=Filter(
            sources=tuple(map(SourceName, sources)), types=types, domains=domains, tags=filters.listed("tag"),
            since=since,
        ),
    )  # fmt: skip


def _fields(node: Node, path: str, known: Sequence[str], problems: list[Problem]) -> Fields:
    """Return the keys of a mapping; unknown keys become problems."""
    pairs = node.value if node.id == "mapping" else ()
    fields = Fields(path=path, first_line=1, nodes={str(key.value): (key, value) for key, value in pairs},
                    problems=problems)  # fmt: skip
    if not fields.nodes or not fields.nodes.keys() <= {*known}:
        fields.wrong(node, f"expected `key: value` lines with the keys {', '.join(known)}")
    return fields
