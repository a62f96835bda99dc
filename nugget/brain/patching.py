"""Change single keys of frontmatter, and leave every other line of it byte for byte as it is.

The functions take and return the lines of the frontmatter with their line ends. The lines of a key that changes are
read and written by ruamel.yaml, which keeps comments. Every scalar in them stays the text that it is, as it does when
a file is read, so the versions of YAML make no difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from typing import Any

from nugget.brain.frontmatter import Split, dump, nodes
from nugget.errors import KnowledgeError
from nugget.settings_file import Node

KEYS = (
    "id", "title", "type", "domain", "tags", "confidence", "source", "related", "created", "last_modified",
    "scope", "session", "evidence", "stale_after", "alternatives",
)  # fmt: skip
"""The keys that Nugget knows, in the order in which it writes them."""

_NOTHING: Collection[object] = (None, "", [], {})


def set_key(lines: Sequence[str], key: str, value: object, *, newline: str) -> list[str]:
    """Return the lines with one key set to a plain value; an empty value removes the key.

    A key that has the value already stays as it is written. A comment behind a value on one line stays; a new key goes
    to its place in the order of KEYS.
    """
    found = _read(lines)
    if key not in found:
        at = _place(lines, found, key)
        indent = next(iter(found.values()))[0].start_mark.column if found else 0
        return [*lines[:at], *_written({key: value}, indent, newline), *lines[at:]]
    key_node, node = found[key]
    start, end = _region(lines, found, key)
    written = _written({key: value}, key_node.start_mark.column, newline)
    if [*lines[start:end]] == written or (node.id == "scalar" and written and str(node.value) == str(value)):
        return list(lines)
    if not written or key_node.start_mark.line != node.end_mark.line:
        return [*lines[:start], *written, *lines[end:]]
    block = _load(lines, found, key)
    block[key] = _round_trip().load(dump({key: value}))[key]
    return _spliced(lines, found, key, block, newline=newline)


def relink(lines: Sequence[str], targets: Mapping[str, str | None], *, newline: str) -> list[str]:
    """Return the lines with relations to an id of `targets` pointed at its new id, or taken out if that is None."""
    found = _read(lines)
    if "related" not in found or found["related"][1].id != "sequence":
        return list(lines)
    block = _load(lines, found, "related")
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
    return _spliced(lines, found, "related", block, newline=newline)


def check_untouched(before: Sequence[str], after: Sequence[str], *, touched: Collection[str]) -> None:
    """Raise KnowledgeError if a key that was not to change reads differently now."""
    import yaml

    old, new = _read(before), _read(after)
    for key in (old.keys() | new.keys()) - set(touched):
        written = [yaml.serialize(read[key][1]) if key in read else None for read in (old, new)]
        if written[0] != written[1]:
            message = f"The frontmatter cannot be changed without changing `{key}` too."
            raise KnowledgeError(message, hint="Edit the file by hand.")


def _read(lines: Sequence[str]) -> dict[str, tuple[Node, Node]]:
    text = _plain(lines)
    found = nodes(Split(frontmatter=text, first_line=2, body="", body_line=len(lines) + 3))
    rows = [key.start_mark.line for key, _ in found.values()]
    if text.lstrip().startswith(("{", "?")) or len(set(rows)) < len(rows):
        raise KnowledgeError("The frontmatter is not written as one key a line.", hint="Edit the file by hand.")
    return found


def _plain(lines: Sequence[str]) -> str:
    return "".join(line.rstrip("\r\n") + "\n" for line in lines)


def _written(values: Mapping[str, object], indent: int, newline: str) -> list[str]:
    """Return the lines of new keys; of an empty value none."""
    filled = {key: value for key, value in values.items() if value not in _NOTHING}
    return [" " * indent + line + newline for line in dump(filled).splitlines()] if filled else []


def _round_trip() -> Any:
    """Return a reader and writer of YAML that keeps comments and quotes, and takes every plain scalar for text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.resolver import VersionedResolver

    class Texts(VersionedResolver):
        versioned_resolver = {}  # noqa: RUF012 - a property there

    yaml = YAML()
    yaml.Resolver = Texts
    yaml.preserve_quotes = True
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _load(lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str) -> Any:
    """Return the mapping of one key, read from its own lines. Raises KnowledgeError if these do not stand alone."""
    from ruamel.yaml.error import YAMLError

    start, end = _region(lines, found, key)
    try:
        return _round_trip().load(_plain(lines[start:end]))
    except YAMLError as error:
        message = f"`{key}` cannot be changed as it is written."
        raise KnowledgeError(message, hint="Edit the file by hand.") from error


def _spliced(
    lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str, block: Any, *, newline: str
) -> list[str]:
    """Return the lines with those of one key replaced by `block`."""
    start, end = _region(lines, found, key)
    indent = found[key][0].start_mark.column
    stream = StringIO()
    _round_trip().dump(block, stream)
    changed = [f"{' ' * indent}{line}".rstrip() + newline for line in stream.getvalue().splitlines()]
    return [*lines[:start], *changed, *lines[end:]]


def _region(lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str) -> tuple[int, int]:
    """Return the lines of a key and its value, without the comments and blank lines behind them."""
    key_node, node = found[key]
    start = key_node.start_mark.line
    rows = [other.start_mark.line for other, _ in found.values()]
    end = min((row for row in rows if row > start), default=len(lines))
    is_block = node.id != "scalar" and not node.flow_style
    is_literal = node.id == "scalar" and getattr(node, "style", None) in ("|", ">")
    least = start + 1 if is_block else node.end_mark.line + (node.end_mark.column > 0)
    while end > max(least, start + 1):
        line = lines[end - 1].strip()
        if line and (is_literal or not line.startswith("#")):
            break
        end -= 1
    return start, end


def _place(lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str) -> int:
    """Return the line for a new key: after the last one that comes before it in the order of KEYS, or last."""
    earlier = [name for name in (KEYS[: KEYS.index(key)] if key in KEYS else found) if name in found]
    if earlier:
        return max(_region(lines, found, name)[1] for name in earlier)
    return min((node.start_mark.line for node, _ in found.values()), default=len(lines))
