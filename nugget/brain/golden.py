"""Golden questions: `evals/*.yaml` of a brain, what people ask with the units that should come back.

    questions:
      - question: why does our consumer see the same message twice
        expect: [concept/at-least-once-delivery]
        filters: {type: concept, domain: coding}

`expect: []` says that nothing in the brain answers the question. `filters` (optional) are those of the command
line: source, type, domain, tag, since; each a word or a list. What is wrong comes back as problems, with the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.brain import read_file
from nugget.brain.frontmatter import safe_loader
from nugget.brain.knowledge_file import MAX_FILE_BYTES
from nugget.errors import NuggetError
from nugget.models import Filter, KnowledgeType, Problem, SourceName

if TYPE_CHECKING:
    import yaml

FOLDER = "evals"
_KEYS = ("question", "expect", "filters")
_FILTERS = ("source", "type", "domain", "tag", "since")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenQuestion:
    """A question with the ids of the units that answer it (none: it cannot be answered) and where it stands.

    `lines` are the lines of the expected ids, counted from 1.
    """

    text: str
    expect: tuple[str, ...]
    path: str
    line: int
    lines: tuple[int, ...] = ()
    filter: Filter = field(default_factory=Filter)
    filters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return the identity of a question across runs: its text, what it expects, its filters."""
        return json.dumps([self.text, sorted(self.expect), self.filters], ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """The questions of some files, and what is wrong with these."""

    questions: tuple[GoldenQuestion, ...] = ()
    problems: tuple[Problem, ...] = ()


def golden_files(brain: Path) -> list[str]:
    """Return the files of golden questions of a brain, relative to it."""
    folder = brain / FOLDER
    files = [file for pattern in ("*.yaml", "*.yml") for file in folder.glob(pattern)] if folder.is_dir() else []
    return sorted(file.relative_to(brain).as_posix() for file in files)


def read_golden(brain: Path, files: Sequence[Path] = ()) -> Golden:
    """Return the golden questions of these files, else of all that the brain has. A bad one stops no other."""
    questions: list[GoldenQuestion] = []
    problems: list[Problem] = []
    named = [(shown, None) for shown in golden_files(brain)] if not files else [(_shown(brain, f), f) for f in files]
    for path, file in named:
        try:
            content = read_file(brain, path) if file is None else _read(file, path)
        except NuggetError as error:
            problems.append(Problem(path=path, reason=str(error).removeprefix(f"{path}: ")))
            continue
        found = parse(content, path=path)
        questions += found.questions
        problems += found.problems
    return Golden(questions=tuple(questions), problems=tuple(problems))


def expecting(brain: Path, unit_id: str) -> list[tuple[str, int]]:
    """File and line of every golden question that expects a unit."""
    return [
        (question.path, line)
        for question in read_golden(brain).questions
        for expected, line in zip(question.expect, question.lines, strict=True)
        if expected == unit_id
    ]


def parse(content: bytes, *, path: str) -> Golden:
    """Return the questions of one file's content."""
    import yaml

    questions: list[GoldenQuestion] = []
    problems: list[Problem] = []
    if len(content) > MAX_FILE_BYTES:
        return Golden(problems=(Problem(path=path, reason=f"larger than {MAX_FILE_BYTES:,} bytes"),))
    try:
        text = content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=safe_loader(text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        return Golden(problems=(Problem(path=path, line=line, reason=f"not valid YAML ({error.problem})"),))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        return Golden(problems=(Problem(path=path, reason=f"cannot be read as YAML ({error})"),))
    try:
        nodes = [] if root is None else _listed(root)
    except _Wrong as wrong:
        return Golden(problems=(Problem(path=path, line=wrong.line, reason=wrong.reason),))
    for node in nodes:
        try:
            questions.append(_question(node, path))
        except _Wrong as wrong:
            problems.append(Problem(path=path, line=wrong.line, reason=wrong.reason))
    return Golden(questions=tuple(questions), problems=tuple(problems))


class _Wrong(Exception):
    """A problem with a node."""

    def __init__(self, node: yaml.Node, reason: str) -> None:
        super().__init__(reason)
        self.line = _line(node)
        self.reason = reason


def _listed(root: yaml.Node) -> list[yaml.Node]:
    found = next((value for key, _, value in _pairs(root) if key == "questions"), None)
    if found is None or (_kind(found) != "sequence" and not _is_empty(found)):
        raise _Wrong(found or root, "expected `questions:` with a list of questions")
    return _entries(found)


def _question(node: yaml.Node, path: str) -> GoldenQuestion:
    values: dict[str, yaml.Node] = {}
    for key, key_node, value in _pairs(node):
        if key not in _KEYS:
            raise _Wrong(key_node, f"nothing is called `{key}` here; a question has {', '.join(_KEYS)}")
        values[key] = value
    for key in ("question", "expect"):
        if key not in values:
            raise _Wrong(node, f"a question needs `{key}:`")
    text = " ".join(_scalar(values["question"]).split())
    if not text:
        raise _Wrong(values["question"], "the question is empty")
    expected = {_scalar(entry).removeprefix("brain:"): _line(entry) for entry in _entries(values["expect"])}
    filters = _filters(values["filters"]) if "filters" in values else {}
    return GoldenQuestion(
        text=text,
        expect=tuple(expected),
        lines=tuple(expected.values()),
        path=path,
        line=_line(node),
        filters=filters,
        filter=Filter(
            sources=tuple(SourceName(name) for name in filters.get("source", ())),
            types=tuple(filters.get("type", ())),
            domains=tuple(domain.strip("/") for domain in filters.get("domain", ())),
            tags=tuple(filters.get("tag", ())),
            since=date.fromisoformat(filters["since"]) if "since" in filters else None,
        ),
    )


def _filters(node: yaml.Node) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for key, key_node, value in _pairs(node):
        if key not in _FILTERS:
            raise _Wrong(key_node, f"there is no filter `{key}`; filters are {', '.join(_FILTERS)}")
        words = [_scalar(entry) for entry in _entries(value)]
        known = {"type": [*map(str, KnowledgeType)], "source": [*map(str, SourceName)]}.get(key, words)
        if unknown := next((word for word in words if word not in known), None):
            raise _Wrong(value, f"there is no {key} {unknown!r}; it is one of {', '.join(known)}")
        filters[key] = words
    if since := filters.get("since"):
        try:
            filters["since"] = date.fromisoformat(since[0]).isoformat()
        except ValueError:
            raise _Wrong(node, f"{since[0]!r} is not a date; write it as YYYY-MM-DD") from None
    return {key: value for key, value in filters.items() if value}


def _pairs(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    if _kind(node) != "mapping":
        raise _Wrong(node, "expected `key: value` lines")
    for key, value in node.value:
        yield _scalar(key), key, value


def _entries(node: yaml.Node) -> list[yaml.Node]:
    """Return the entries of a list; a single word is a list of one."""
    if _is_empty(node):
        return []
    return list(node.value) if _kind(node) == "sequence" else [node]


def _scalar(node: yaml.Node) -> str:
    if _kind(node) != "scalar":
        raise _Wrong(node, "expected a text here")
    return str(node.value)


def _kind(node: yaml.Node) -> str:
    """`scalar`, `sequence` or `mapping`."""
    return str(getattr(node, "id", ""))


def _is_empty(node: yaml.Node) -> bool:
    return str(node.tag) == "tag:yaml.org,2002:null"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(brain: Path, file: Path) -> str:
    try:
        return file.resolve().relative_to(brain.resolve()).as_posix()
    except ValueError:
        return str(file)


def _read(file: Path, shown: str) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NuggetError(f"{shown}: cannot be read ({error.strerror or error})") from error
