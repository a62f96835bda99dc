"""Notes as they are read, each with its place, before they are compared with the brain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from nugget.brain.frontmatter import FrontmatterError, nodes, plain_line_ends, split

_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})|(\d{2})/(\d{2})/(\d{4})")
_KEY_VALUE = re.compile(r"([A-Za-z_][\w-]*):[ \t]*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One idea of somebody's notes. `path` is relative to what is imported, `line` counts from 1.

    `kind` is the type of the unit that it will be, `reason` says where it comes from and why it is of that type;
    `quote` is the part that says most, where that is known; `subject` what it is filed under where no folder says so.
    """

    path: str
    line: int
    title: str
    body: str
    kind: str
    reason: str
    confidence: float
    quote: str = ""
    tags: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    created: date | None = None
    warning: str | None = None
    subject: str = ""

    @property
    def key(self) -> str:
        """Return the digest of a note's words, which identifies it wherever its file lies and whatever it is called."""
        words = " ".join(self.body.split())
        return f"note:{hashlib.sha256(words.encode('utf-8', 'replace')).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A note that is not proposed, and why."""

    path: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path if self.line is None else f'{self.path}:{self.line}'}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A text file taken apart: its frontmatter as texts, its body, and the line on which the body starts."""

    path: str
    front: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    body: str = ""
    body_line: int = 1

    def first(self, *keys: str) -> str:
        """The first text of the first key that has one, else an empty text."""
        return next((self.front[key][0] for key in keys if self.front.get(key)), "")

    @property
    def stem(self) -> str:
        """The name of the file without its ending."""
        return self.path.rpartition("/")[2].rpartition(".")[0] or self.path.rpartition("/")[2]


def page_of(text: str, *, path: str) -> Page:
    """Take a file apart. Frontmatter that is not YAML (Cursor's `globs: *.ts`) is read line by line."""
    text = plain_line_ends(text)
    if not text.startswith("---\n"):
        return Page(path=path, body=text)
    try:
        parts = split(text)
    except FrontmatterError:
        return Page(path=path, body=text)
    try:
        front = {key: _texts(node) for key, (_, node) in nodes(parts).items()}
    except FrontmatterError:
        pairs = [found for line in parts.frontmatter.split("\n") if (found := _KEY_VALUE.fullmatch(line.rstrip()))]
        front = {found[1]: (found[2].strip("\"' "),) for found in pairs if found[2].strip()}
    return Page(path=path, front=front, body=parts.body, body_line=parts.body_line)


def day_of(text: str) -> date | None:
    """A date somewhere in a text: `2026-03-01`, or `01/03/2026` with the day first."""
    found = _DAY.search(text)
    if not found:
        return None
    year, month, day = (found[1], found[2], found[3]) if found[1] else (found[6], found[5], found[4])
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def listed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Tags and the like: a list, or one text with commas; without `#`."""
    parts = texts if len(texts) != 1 else tuple(texts[0].split(","))
    return tuple(dict.fromkeys(part.strip().lstrip("#") for part in parts if part.strip().lstrip("#")))


def _texts(node: object) -> tuple[str, ...]:
    """A scalar or a list of scalars as texts; anything deeper is nothing to us."""
    kind, value = getattr(node, "id", ""), getattr(node, "value", None)
    if kind == "scalar":
        return (str(value),) if str(value).strip() and getattr(node, "tag", "") != "tag:yaml.org,2002:null" else ()
    if kind == "sequence" and isinstance(value, list):
        return tuple(str(entry.value) for entry in value if entry.id == "scalar" and str(entry.value).strip())
    return ()
