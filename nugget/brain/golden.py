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
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from nugget.brain import read_file
from nugget.brain.knowledge_file import MAX_FILE_BYTES
from nugget.errors import NuggetError
from nugget.models import Filter, KnowledgeType, Problem, SourceName
from nugget.settings import NULL_TAG, Node, YAMLRefused, read_mapping

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

    @property
    def key(self) -> str:
        """Return the identity of a question across runs: its text, what it expects, its filters."""
        return json.dumps([self.text, sorted(self.expect), self.filter.named()], ensure_ascii=False, sort_keys=True)


def read_golden(brain: Path, files: Sequence[Path] = ()) -> tuple[list[GoldenQuestion], list[Problem]]:
    """Return the golden questions of these files, by default all of the brain's, and the problems of bad ones."""
    own = [file.relative_to(brain) for end in ("*.yaml", "*.yml") for file in (brain / FOLDER).glob(end)]
    questions: list[GoldenQuestion] = []
    problems: list[Problem] = []
    for file in files or sorted(own):
        inside = file.resolve().is_relative_to(brain.resolve()) and files
        path = (file.resolve().relative_to(brain.resolve()) if inside else file).as_posix()
        try:
            found, wrong = parse(file.read_bytes() if files else read_file(brain, path), path=path)
        except (NuggetError, OSError) as error:
            reason = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
            found, wrong = [], [Problem(path=path, reason=reason.removeprefix(f"{path}: "))]
        questions += found
        problems += wrong
    return questions, problems


def expecting(brain: Path, unit_id: str) -> list[tuple[str, int]]:
    """Return file and line of every golden question that expects a unit."""
    return [
        (question.path, line)
        for question in read_golden(brain)[0]
        for expected, line in zip(question.expect, question.lines, strict=True)
        if expected == unit_id
    ]


def parse(content: bytes, *, path: str) -> tuple[list[GoldenQuestion], list[Problem]]:
    """Return the questions in the content of a file, and its problems."""
    questions: list[GoldenQuestion] = []
    problems: list[Problem] = []
    try:
        keys = {_text(key): value for key, value in read_mapping(content.decode("utf-8-sig"), max_chars=MAX_FILE_BYTES)}
        listed = keys.get("questions")
        if listed is None or (listed.id != "sequence" and listed.tag != NULL_TAG):
            line = listed.start_mark.line + 1 if listed else 1
            raise YAMLRefused("has no `questions:` with a list of questions", line)
        for node in _entries(listed):
            try:
                questions.append(_question(node, path))
            except YAMLRefused as refused:
                problems.append(Problem(path=path, line=refused.line, reason=str(refused)))
    except UnicodeDecodeError:
        problems.append(Problem(path=path, reason="is not UTF-8 text"))
    except YAMLRefused as refused:
        problems.append(Problem(path=path, line=refused.line, reason=str(refused)))
    return questions, problems


def _question(node: Node, path: str) -> GoldenQuestion:
    values = _checked(node, _KEYS, "nothing is called `{}` here; a question has")
    if missing := next((key for key in ("question", "expect") if key not in values), None):
        raise _wrong(node, f"a question needs `{missing}:`")
    text = " ".join(_text(values["question"]).split())
    if not text:
        raise _wrong(values["question"], "the question is empty")
    expected = {_text(entry).removeprefix("brain:"): entry.start_mark.line + 1 for entry in _entries(values["expect"])}
    return GoldenQuestion(
        text=text, expect=tuple(expected), lines=tuple(expected.values()), path=path, line=node.start_mark.line + 1,
        filter=_filter(values["filters"]) if "filters" in values else Filter(),
    )  # fmt: skip


def _filter(node: Node) -> Filter:
    values = _checked(node, _FILTERS, "there is no filter `{}`; filters are")
    source, type_, domain, tag, since = (
        tuple(map(_text, _entries(values[key]))) if key in values else () for key in _FILTERS
    )
    for key, words, known in (("source", source, SourceName), ("type", type_, KnowledgeType)):
        if unknown := next((word for word in words if word not in list(known)), None):
            raise _wrong(values[key], f"there is no {key} {unknown!r}; it is one of {', '.join(known)}")
    try:
        day = date.fromisoformat(since[0]) if since else None
    except ValueError:
        raise _wrong(node, f"{since[0]!r} is not a date; write it as YYYY-MM-DD") from None
    domains = tuple(name.strip("/") for name in domain)
    return Filter(sources=tuple(map(SourceName, source)), types=type_, domains=domains, tags=tag, since=day)


def _checked(node: Node, known: Sequence[str], reason: str) -> dict[str, Node]:
    """Return the values of a mapping that has only known keys."""
    if node.id != "mapping":
        raise _wrong(node, "expected `key: value` lines")
    for key, _ in node.value:
        if _text(key) not in known:
            raise _wrong(key, f"{reason.format(_text(key))} {', '.join(known)}")
    return {_text(key): value for key, value in node.value}


def _entries(node: Node) -> list[Node]:
    """Return the entries of a list; a single word is a list of one."""
    if node.tag == NULL_TAG:
        return []
    return list(node.value) if node.id == "sequence" else [node]


def _text(node: Node) -> str:
    if node.id != "scalar":
        raise _wrong(node, "expected a text here")
    return str(node.value)


def _wrong(node: Node, reason: str) -> YAMLRefused:
    return YAMLRefused(reason, node.start_mark.line + 1)
