"""Change a JSON text in one place and leave every other character as it is: order, indentation, spacing, line ends.

A place is a path of keys and indices, `("hooks", "SessionEnd", 0)`; `END` stands for "behind the last element". The
text must be JSON (`parse` says so, with the line); of equal keys in one object the last counts, as for every reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

END = -1
"""As the last part of a path: a new element behind the others."""

Place = tuple[str | int, ...]

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_SPACED = re.compile(r'":[ \t]')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Characters `start` to `end` of a text become `text`."""

    start: int
    end: int
    text: str

    def apply(self, text: str) -> str:
        """The edited text."""
        return text[: self.start] + self.text + text[self.end :]

    def inverse(self, text: str) -> Edit:
        """The edit that turns `apply(text)` into `text` again."""
        return Edit(start=self.start, end=self.start + len(self.text), text=text[self.start : self.end])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A member of an object or an element of an array: where it starts (a member: its key), its value, its end."""

    key: str | int
    start: int
    value: int
    end: int


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError that names the line."""
    try:
        return json.loads(text.removeprefix(_BOM), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def insert(text: str, place: Place, value: object) -> tuple[Edit, tuple[Place, ...]]:
    """Put a new member or element at a place, with the containers that are missing on the way; those come second.

    The place itself must be free, and what is on the way must be objects and arrays as the path says.
    """
    at, depth = _root(text), 0
    while depth < len(place) - 1 and (entry := _find(text, at, place[depth])):
        at, depth = entry.value, depth + 1
    made = tuple(place[:length] for length in range(depth + 1, len(place)))
    for part in reversed(place[depth + 1 :]):
        value = [value] if isinstance(part, int) else {part: value}
    return _append(text, at, place[depth], value), made


def replace(text: str, place: Place, value: object) -> Edit:
    """Put another value where there is one."""
    entry = _at(text, place)
    old = text[entry.value : entry.end]
    indent = _indent_of_line(text, entry.value) if "\n" in old else None
    return Edit(start=entry.value, end=entry.end, text=_dump(text, value, indent=indent))


def remove(text: str, place: Place) -> Edit:
    """Take a member or an element out, with the comma and the space that belong to it."""
    parent = _at(text, place[:-1]).value if len(place) > 1 else _root(text)
    entries = list(_entries(text, parent))
    index = entries.index(_at(text, place))
    if len(entries) == 1:
        return Edit(start=parent + 1, end=_end_of(text, parent) - 1, text="")
    if index == len(entries) - 1:
        return Edit(start=entries[index - 1].end, end=entries[index].end, text="")
    return Edit(start=entries[index].start, end=entries[index + 1].start, text="")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _root(text: str) -> int:
    return _skip(text, len(_BOM) if text.startswith(_BOM) else 0)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _end_of(text: str, at: int) -> int:
    """Where the value that starts at `at` ends."""
    return _DECODER.raw_decode(text, at)[1]


def _entries(text: str, at: int) -> Iterator[_Entry]:
    """The members or elements of the container that starts at `at`."""
    index, position = 0, _skip(text, at + 1)
    while text[position] not in "]}":
        start = value = position
        key: str | int = index
        if text[at] == "{":
            key, value = _DECODER.raw_decode(text, start)
            value = _skip(text, _skip(text, value) + 1)
        end = _end_of(text, value)
        yield _Entry(key=key, start=start, value=value, end=end)
        index, position = index + 1, _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _find(text: str, at: int, key: str | int) -> _Entry | None:
    found = [entry for entry in _entries(text, at) if entry.key == key]
    return found[-1] if found else None


def _at(text: str, place: Sequence[str | int]) -> _Entry:
    start = _root(text)
    entry = _Entry(key="", start=start, value=start, end=_end_of(text, start))
    for part in place:
        found = _find(text, entry.value, part)
        if found is None:
            raise KeyError(place)
        entry = found
    return entry


def _append(text: str, at: int, key: str | int, value: object) -> Edit:
    entries = list(_entries(text, at))
    name = "" if isinstance(key, int) else json.dumps(key, ensure_ascii=False) + (": " if _is_spaced(text) else ":")
    line_end = _line_end(text)
    if not entries:
        end = _end_of(text, at)
        outer = _indent_of_line(text, at)
        inner = outer + _unit(text)
        if _is_one_line(text):
            filling = name + _dump(text, value, indent=None)
        else:
            filling = f"{line_end}{inner}{name}{_dump(text, value, indent=inner)}{line_end}{outer}"
        return Edit(start=at, end=end, text=text[at] + filling + text[end - 1])
    last = entries[-1].end
    gap = text[at + 1 : entries[0].start]
    if "\n" in gap:
        inner = gap[gap.rindex("\n") + 1 :]
        return Edit(start=last, end=last, text=f",{line_end}{inner}{name}{_dump(text, value, indent=inner)}")
    comma = ", " if _is_spaced(text) else ","
    return Edit(start=last, end=last, text=comma + name + _dump(text, value, indent=None))


def _dump(text: str, value: object, *, indent: str | None) -> str:
    """A value in the manner of the text: on lines indented by `indent` and more, or (None) on one line."""
    if indent is None:
        separators = (", ", ": ") if _is_spaced(text) else (",", ":")
        return json.dumps(value, ensure_ascii=False, separators=separators)
    dumped = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return dumped.replace("\n", _line_end(text) + indent)


def _is_one_line(text: str) -> bool:
    return "\n" not in text.strip() and any(_entries(text, _root(text)))


def _is_spaced(text: str) -> bool:
    return bool(_SPACED.search(text)) or not any(_entries(text, _root(text)))


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """One step of indentation: that of the first indented line."""
    first = _FIRST_INDENT.search(text)
    return first[1] if first else "  "


def _indent_of_line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
