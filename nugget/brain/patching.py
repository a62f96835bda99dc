"""Change single keys of frontmatter, and leave every other byte of it as it is.

All functions take and return the lines of the frontmatter with their line ends; the marks of the YAML nodes say
which of them, or which columns of one, belong to a key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nugget.brain.frontmatter import Node, Split, dump, nodes
from nugget.errors import KnowledgeError

KEYS = (
    "id", "title", "type", "domain", "tags", "confidence", "source", "related", "created", "last_modified",
    "scope", "session", "evidence", "stale_after", "alternatives",
)  # fmt: skip
"""The keys that Nugget knows, in the order in which it writes them."""

_NOTHING: Collection[object] = (None, "", [], {})


def set_key(lines: Sequence[str], key: str, value: object, *, newline: str) -> list[str]:
    """The lines with one key set to a plain value; an empty value takes the key away.

    A key that has the value already stays as it is written. A value on one line is replaced within its line, so that a
    comment behind it stays; a new key goes to its place in the order of KEYS.
    """
    found = _read(lines)
    indent = " " * (next(iter(found.values()))[0].start_mark.column if found else 0)
    written = [] if value in _NOTHING else [indent + line + newline for line in dump({key: value}).splitlines()]
    if key not in found:
        at = _place(lines, found, key)
        return [*lines[:at], *written, *lines[at:]]
    key_node, node = found[key]
    if node.id == "scalar" and value not in _NOTHING and str(node.value) == str(value):
        return list(lines)
    start, end = _region(lines, found, key)
    if len(written) == 1 and key_node.start_mark.line == node.start_mark.line == node.end_mark.line:
        line = lines[start]
        before, behind = line[: node.start_mark.column].rstrip(), line[node.end_mark.column :]
        changed = f"{before} {written[0].strip().removeprefix(f'{key}:').strip()}{behind}"
        return [*lines[:start], changed, *lines[end:]]
    return [*lines[:start], *written, *lines[end:]]


def relink(lines: Sequence[str], targets: Mapping[str, str | None], *, newline: str) -> list[str]:
    """The lines with relations to an id of `targets` pointed at its new id, or taken out where that is None."""
    changed = list(lines)
    for id_ in reversed([_id_node(entry) for entry in _related(_read(changed))]):
        new = targets.get(id_.value) if id_ is not None else None
        if id_ is not None and new is not None:
            row, line = id_.start_mark.line, changed[id_.start_mark.line]
            changed[row] = line[: id_.start_mark.column] + new + line[id_.end_mark.column :]
    found = _read(changed)
    entries = _related(found)
    ids = [_id_node(entry) for entry in entries]
    gone = [number for number, id_ in enumerate(ids) if id_ is not None and targets.get(id_.value, "") is None]
    if gone and len(gone) == len(entries):
        return set_key(changed, "related", None, newline=newline)
    # From the last to the first, so that the places of the entries before stay true.
    for number in reversed(gone):
        if found["related"][1].flow_style:
            _cut_flow_entry(changed, entries, number)
        else:
            start, end = _region(lines, found, "related")
            starts = [_dash_line(lines, entry, start) for entry in entries] + [end]
            del changed[starts[number] : starts[number + 1]]
    return changed


def check_untouched(before: Sequence[str], after: Sequence[str], *, touched: Collection[str]) -> None:
    """Raise KnowledgeError where a key that was not to change reads differently now."""
    import yaml

    old, new = _read(before), _read(after)
    for key in (old.keys() | new.keys()) - set(touched):
        written = [yaml.serialize(read[key][1]) if key in read else None for read in (old, new)]
        if written[0] != written[1]:
            message = f"The frontmatter cannot be changed without changing `{key}` too."
            raise KnowledgeError(message, hint="Edit the file by hand.")


def _read(lines: Sequence[str]) -> dict[str, tuple[Node, Node]]:
    text = "".join(line.rstrip("\r\n") + "\n" for line in lines)
    found = nodes(Split(frontmatter=text, first_line=2, body="", body_line=len(lines) + 3))
    rows = [key.start_mark.line for key, _ in found.values()]
    if text.lstrip().startswith(("{", "?")) or len(set(rows)) < len(rows):
        raise KnowledgeError("The frontmatter is not written as one key a line.", hint="Edit the file by hand.")
    return found


def _region(lines: Sequence[str], found: Mapping[str, tuple[Node, Node]], key: str) -> tuple[int, int]:
    """The lines of a key and its value, without the comments and blank lines behind them."""
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


def _related(found: Mapping[str, tuple[Node, Node]]) -> list[Node]:
    node = found["related"][1] if "related" in found else None
    return list(node.value) if node is not None and node.id == "sequence" else []


def _id_node(entry: Node) -> Node | None:
    pairs = entry.value if entry.id == "mapping" else ()
    return next((value for name, value in pairs if name.value == "id" and value.id == "scalar"), None)


def _dash_line(lines: Sequence[str], entry: Node, first: int) -> int:
    row = entry.start_mark.line
    while row > first and not lines[row].lstrip().startswith("-"):
        row -= 1
    return row


def _cut_flow_entry(lines: list[str], entries: Sequence[Node], number: int) -> None:
    """Take one entry and a comma next to it out of a list in brackets."""
    entry = entries[number]
    is_last = number + 1 == len(entries)
    from_mark = entries[number - 1].end_mark if is_last else entry.start_mark
    to_mark = entry.end_mark if is_last else entries[number + 1].start_mark
    lines[from_mark.line : to_mark.line + 1] = [
        lines[from_mark.line][: from_mark.column] + lines[to_mark.line][to_mark.column :]
    ]
