"""Frontmatter: the YAML between two `---` lines at the top of a markdown file, read with the line of every value.

python-frontmatter says where frontmatter begins and ends. An edit replaces the lines of the keys that change, and
leaves every other line byte for byte as it is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, TypeVar

from nugget.errors import KnowledgeError
from nugget.models import Problem, Severity
from nugget.settings import NULL_TAG, Node, YAMLRefused, read_mapping
from nugget.text import plain_line_ends

if TYPE_CHECKING:
    import yaml

_CORE_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value"))
_KNOWN_TAGS = _CORE_TAGS | {NULL_TAG, "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}
_Choice = TypeVar("_Choice", bound=StrEnum)

KEYS = (
    "id", "title", "type", "domain", "tags", "confidence", "source", "related", "created", "last_modified",
    "scope", "session", "evidence", "stale_after", "alternatives",
)  # fmt: skip
"""The keys that Nugget knows, in the order in which it writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Frontmatter and body with `\\n` line ends, and the lines (from 1) on which they start."""

    frontmatter: str
    first_line: int
    body: str
    body_line: int


def split(text: str) -> Split:
    """Split a file into frontmatter and body. Raises YAMLRefused if it has no frontmatter."""
    from frontmatter.default_handlers import YAMLHandler

    text = plain_line_ends(text)
    boundaries = YAMLHandler.FM_BOUNDARY.finditer(text)
    opening = next(boundaries, None)
    if opening is None or text[: opening.start()].strip():
        raise YAMLRefused("has no frontmatter; start it with a line `---`, then `id:`, `type:` and `domain:`", 1)
    first_line = text.count("\n", 0, opening.start()) + 2
    closing = next(boundaries, None)
    if closing is None:
        raise YAMLRefused("has frontmatter without an end; close it with a line `---`", first_line - 1)
    start = text.find("\n", opening.start()) + 1
    end = text.find("\n", closing.start()) + 1 or len(text)
    body_line = text.count("\n", 0, closing.start()) + 2
    return Split(frontmatter=text[start : closing.start()], first_line=first_line, body=text[end:], body_line=body_line)


def nodes(split: Split) -> dict[str, tuple[Node, Node]]:
    """Return the key and value node of each key. Raises YAMLRefused for broken YAML."""
    try:
        pairs = read_mapping(split.frontmatter)
    except YAMLRefused as refused:
        raise YAMLRefused(f"has frontmatter that {refused}", split.first_line + (refused.line or 1) - 1) from None
    found: dict[str, tuple[Node, Node]] = {}
    for key, value in pairs:
        line = split.first_line + key.start_mark.line
        if key.id != "scalar":
            raise YAMLRefused("has a key that is not a plain word", line)
        if key.value in found:
            earlier = split.first_line + found[key.value][0].start_mark.line
            raise YAMLRefused(f"has the key `{key.value}` twice (first in line {earlier})", line)
        found[key.value] = (key, value)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The typed values of one file's nodes, with the problems found while reading them."""

    path: str
    first_line: int
    nodes: Mapping[str, tuple[Node, Node]]
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def wrong(self, node: Node | None, reason: str, severity: Severity = Severity.ERROR) -> None:
        """Add a problem at a node, or on the first line of the file without one."""
        line = self.line(node) if node else max(1, self.first_line - 1)
        self.problems.append(Problem(path=self.path, reason=reason, line=line, severity=severity))

    def line(self, node: Node) -> int:
        """Return the line of a node in the file, from 1."""
        return self.first_line + int(node.start_mark.line)

    def value(self, key: str) -> Node | None:
        """Return the node of a key, or None if it is absent or empty."""
        key_node, node = self.nodes.get(key, (None, None))
        if key_node is not None:
            self.lines[key] = self.line(key_node)
        if node is not None and node.tag not in _KNOWN_TAGS:
            self.wrong(node, f"`{key}` has the YAML tag {shown(node.tag)}, which is not supported")
            return None
        return None if node is None or node.tag == NULL_TAG else node

    def scalar(self, node: Node | None, name: str, severity: Severity = Severity.ERROR) -> str | None:
        """Return the text of a scalar as written."""
        if node is not None and (node.id != "scalar" or node.tag not in _CORE_TAGS):
            found = {"sequence": "a list", "mapping": "keys of its own"}.get(node.id, f"the tag {node.tag}")
            self.wrong(node, f"{name} must be a single value, not {found}", severity)
            return None
        return None if node is None else str(node.value)

    def line_of(self, node: Node | None, name: str, severity: Severity = Severity.ERROR) -> str | None:
        """Return the text of a scalar on one line."""
        return " ".join((self.scalar(node, name, severity) or "").split()) or None

    def text(self, key: str, severity: Severity = Severity.ERROR) -> str | None:
        """Return a key's text on one line, or None if it is absent or empty."""
        return self.line_of(self.value(key), f"`{key}`", severity)

    def listed(self, key: str, severity: Severity = Severity.ERROR, *, commas: bool = True) -> tuple[str, ...]:
        """Return a list of texts without duplicates; with `commas`, a single text `a, b` counts as a list."""
        node = self.value(key)
        if node is None:
            return ()
        if node.id == "scalar":
            text = self.scalar(node, f"`{key}`", severity) or ""
            texts = text.split(",") if commas else [text]
        elif node.id == "sequence":
            filled = [entry for entry in node.value if entry.tag != NULL_TAG]
            texts = [self.scalar(entry, f"each of `{key}`", severity) or "" for entry in filled]
        else:
            self.wrong(node, f"`{key}` must be a list such as [one, two], not keys of its own", severity)
            return ()
        return tuple(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))

    def choice(
        self, node: Node | None, key: str, kind: type[_Choice], severity: Severity = Severity.ERROR
    ) -> _Choice | None:
        """Return the member of an enumeration that a scalar names, in upper or lower case."""
        text = self.line_of(node, f"`{key}`", severity)
        if text is None or text.lower() in list(kind):
            return kind(text.lower()) if text else None
        self.wrong(node, f"`{key}` must be one of {', '.join(kind)}, not {shown(text)}", severity)
        return None

    def day(self, key: str, severity: Severity = Severity.ERROR) -> date | None:
        """Return the date in a YAML date, timestamp or text."""
        text = self.text(key, severity)
        parts = re.fullmatch(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[Tt ].*)?", text or "")
        with suppress(ValueError):
            if parts:
                return date(int(parts[1]), int(parts[2]), int(parts[3]))
        if text is not None:
            self.wrong(self.value(key), f"`{key}` must be a date such as 2026-02-24, not {shown(text)}", severity)
        return None

    def keys_of(self, node: Node) -> dict[str, Node]:
        """Return the filled keys of a mapping; empty for anything else."""
        if node.id != "mapping":
            return {}
        return {key.value: value for key, value in node.value if key.id == "scalar" and value.tag != NULL_TAG}


def shown(text: str) -> str:
    """Return a value for use in a message: on one line, shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def dump(mapping: Mapping[str, object]) -> str:
    """Return YAML as people write it: block style, short lists on one line, longer texts as literal blocks."""
    import yaml

    return str(yaml.dump(dict(mapping), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=10_000))


@functools.cache
def _dumper() -> type[yaml.SafeDumper]:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, value: object) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        has_break = any(char in value for char in "\x85\u2028\u2029")
        style = '"' if has_break else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def listed(dumper: yaml.SafeDumper, value: list[object]) -> yaml.SequenceNode:
        is_short = all(isinstance(entry, str) for entry in value) and sum(map(len, map(str, value))) <= 80
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=is_short)

    Dumper.add_representer(str, text)
    Dumper.add_representer(list, listed)
    return Dumper


def set_key(lines: Sequence[str], key: str, value: object, *, newline: str) -> list[str]:
    """Return the lines of frontmatter with one key set to a plain value; an empty value removes the key.

    A key that already has the value is left alone. A comment after a value stays; new keys are inserted as in KEYS.
    """
    found = _read(lines)
    key_node, node = found.get(key) or (next(iter(found.values()), (None,))[0], None)
    indent = " " * (key_node.start_mark.column if key_node else 0)
    dumped = [] if value in (None, "", [], {}) else dump({key: value}).splitlines()
    written = [indent + line + newline for line in dumped]
    if node is None:
        earlier = [name for name in (KEYS[: KEYS.index(key)] if key in KEYS else found) if name in found]
        first = min((other.start_mark.line for other, _ in found.values()), default=len(lines))
        at = max((_region(lines, found, name)[1] for name in earlier), default=first)
        return [*lines[:at], *written, *lines[at:]]
    start, end = _region(lines, found, key)
    if [*lines[start:end]] == written or (node.id == "scalar" and written and str(node.value) == str(value)):
        return list(lines)
    if written and start == node.end_mark.line:
        written[0] = written[0].rstrip() + lines[start][node.end_mark.column :]
    return [*lines[:start], *written, *lines[end:]]


def relink(lines: Sequence[str], targets: Mapping[str, str | None], *, newline: str) -> list[str]:
    """Return the lines with relations to the ids in `targets` pointed at their new ids, or removed for None.

    ruamel.yaml rewrites the lines of `related`, which keeps their comments; every plain scalar stays the text it is.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.resolver import VersionedResolver

    class Texts(VersionedResolver):
        versioned_resolver = {}  # noqa: RUF012 - a property in the base class

    found = _read(lines)
    if "related" not in found or found["related"][1].id != "sequence":
        return list(lines)
    yaml = YAML()
    yaml.Resolver, yaml.preserve_quotes, yaml.width = Texts, True, 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    start, end = _region(lines, found, "related")
    try:
        block = yaml.load(_plain(lines[start:end]))
    except YAMLError as error:
        raise KnowledgeError("`related` cannot be changed as it is written.", hint="Edit the file by hand.") from error
    entries = block["related"]
    for number in reversed(range(len(entries))):
        entry = entries[number]
        named = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(named, str) and named in targets:
            if (new := targets[named]) is None:
                del entries[number]
            else:
                entry["id"] = new
    if not entries:
        return set_key(lines, "related", None, newline=newline)
    stream = StringIO()
    yaml.dump(block, stream)
    indent = " " * found["related"][0].start_mark.column
    changed = [f"{indent}{line}".rstrip() + newline for line in stream.getvalue().splitlines()]
    return [*lines[:start], *changed, *lines[end:]]


def _read(lines: Sequence[str]) -> dict[str, tuple[Node, Node]]:
    text = _plain(lines)
    found = nodes(Split(frontmatter=text, first_line=2, body="", body_line=len(lines) + 3))
    rows = {key.start_mark.line for key, _ in found.values()}
    if text.lstrip().startswith(("{", "?")) or len(rows) < len(found):
        raise KnowledgeError("The frontmatter does not have one key per line.", hint="Edit the file by hand.")
    return found


def _plain(lines: Sequence[str]) -> str:
    return "".join(line.rstrip("\r\n") + "\n" for line in lines)


def _region(lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str) -> tuple[int, int]:
    """Return the range of lines of a key and its value, without the comments and blank lines after them."""
    key_node, node = found[key]
    start = key_node.start_mark.line
    end = min((other.start_mark.line for other, _ in found.values() if other.start_mark.line > start),
              default=len(lines))  # fmt: skip
    is_block = node.id != "scalar" and not node.flow_style
    is_literal = node.id == "scalar" and getattr(node, "style", None) in ("|", ">")
    least = start + 1 if is_block else node.end_mark.line + (node.end_mark.column > 0)
    while end > max(least, start + 1):
        line = lines[end - 1].strip()
        if line and (is_literal or not line.startswith("#")):
            break
        end -= 1
    return start, end
