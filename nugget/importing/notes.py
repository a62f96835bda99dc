"""Find the files of an import, take pages apart, and tell the type of unit that a note becomes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from nugget.brain.frontmatter import FrontmatterError, nodes, plain_line_ends, split
from nugget.errors import KnowledgeError, UsageError
from nugget.models import KnowledgeType
from nugget.redaction.paths import is_excluded
from nugget.sources.ignore_files import IGNORE_FILES, Walk
from nugget.text import counted

MAX_NOTE_BYTES = 1_000_000
MAX_EXPORT_BYTES = 50_000_000
MAX_FILES = 50_000

NOTE_ENDINGS = (".md", ".markdown", ".mdc")
EXPORT_ENDINGS = (".json", ".jsonl")
DATABASE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_NAMED = frozenset((".cursor", ".cursorrules", "claude-mem.db", "history.db"))
_TEMPLATES = frozenset(("templates", "template", "_templates"))

_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})|(\d{2})/(\d{2})/(\d{4})")
_KEY_VALUE = re.compile(r"([A-Za-z_][\w-]*):[ \t]*(.*)")


_WORDS: dict[str, KnowledgeType] = {
    name: kind
    for kind, names in {
        KnowledgeType.DECISION: "decision adr adrs choice choices rfc",
        KnowledgeType.BUG: "bug gotcha pitfall incident postmortem troubleshooting problem issue fix bugfix workaround "
        "debugging error root-cause",
        KnowledgeType.PATTERN: "pattern howto how-to recipe snippet practice best-practice technique method tip rule "
        "guideline convention playbook runbook workflow procedure",
        KnowledgeType.BELIEF: "belief principle opinion value preference hypothesis assumption",
        KnowledgeType.CONCEPT: "concept definition glossary term idea fact insight",
    }.items()
    for name in names.split()
}
"""What people call a folder, a tag, a type or a category, in the singular."""

MAX_SENTENCE_CHARS = 300
"""So much of a title or sentence is looked at."""
_TITLES = re.compile(
    r"(?P<decision>\b(?:we (?:chose|choose|decided|picked|use)|why we|decision|instead of|rather than|chosen)\b|"
    r"\bvs\.? |\w+ over \w+$)"
    r"|(?P<bug>\b(?:fails?|failing|failed|error|crash(?:es)?|leaks?|deadlocks?|hangs?|broken|does(?:n't| not) work|"
    r"exception|race condition|bug|gotcha|pitfall|root cause)\b)"
    r"|(?P<pattern>^(?:how to|use|always|never|prefer|avoid|don't|do not|keep|write|run|set up|make)\b|\b(?:pattern|"
    r"recipe|checklist|best practices?|guidelines?|conventions?|steps)\b)"
    r"|(?P<belief>\b(?:i (?:believe|think|prefer)|should|prefers?|principle|matters?)\b)",
    re.IGNORECASE,
)
"""How a title reads for each type; if it reads like several, the first one here counts."""

_HEADINGS: Mapping[str, KnowledgeType] = {
    name: kind
    for kind, names in {
        KnowledgeType.BUG: ("symptom", "symptoms", "root cause", "workaround"),
        KnowledgeType.DECISION: ("decision", "alternatives", "considered options", "trade-offs", "tradeoffs"),
        KnowledgeType.PATTERN: ("steps", "usage", "when to use", "how to use", "procedure"),
    }.items()
    for name in names
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One idea of somebody's notes. `path` is relative to what is imported, `line` counts from 1.

    `kind` is the type of the unit that it will be, `reason` says where it comes from and why it is of that type;
    `quote` is the most telling part, if known; `subject` is used if no folder names one.
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
        """Return the first text of the first key that has one, else an empty text."""
        return next((self.front[key][0] for key in keys if self.front.get(key)), "")

    @property
    def stem(self) -> str:
        """Name of the file without its ending."""
        return self.path.rpartition("/")[2].rpartition(".")[0] or self.path.rpartition("/")[2]


def find_files(root: Path, *, exclude: Sequence[str] = ()) -> Iterator[tuple[str, Path] | LeftOut]:
    """Yield (path, file) of all that may hold notes; the path starts with the name of what is imported, and has `/`.

    What is left out is yielded with the reason. Links are not followed, hidden folders and those of tools and templates
    not entered, and ignore files are honoured, as in canon. Raises UsageError if `root` is not a file or folder.
    """
    if root.is_file():
        yield f"{root.resolve().parent.name}/{root.name}", root
        return
    if not root.is_dir():
        raise UsageError(f"{root} {'is not a file or folder' if os.path.lexists(root) else 'does not exist'}.")
    walk = Walk(root=root, suffixes=(*NOTE_ENDINGS, *EXPORT_ENDINGS), max_files=MAX_FILES, named=_NAMED)
    name = root.resolve().name
    for path, file in walk.files():
        if not _TEMPLATES.isdisjoint(path.lower().split("/")[:-1]):
            continue
        if Path(file).is_symlink():
            yield LeftOut(path=f"{name}/{path}", reason="is a link, which is not followed")
        elif exclude and is_excluded(file, exclude):
            yield LeftOut(path=f"{name}/{path}", reason="is excluded (capture.exclude_paths)")
        else:
            yield f"{name}/{path}", Path(file)
    if walk.ignored:
        yield LeftOut(path=name, reason=f"{counted(walk.ignored, 'path')} left out by {', '.join(IGNORE_FILES)}")
    for problem in (*walk.problems, *walk.left_out):
        yield LeftOut(path=Path(name, os.path.relpath(problem.path, root)).as_posix(), reason=problem.reason)


def read_text(file: Path) -> str:
    """Return the text of a file. Raises KnowledgeError with the reason if it has none."""
    limit = MAX_EXPORT_BYTES if file.name.endswith(EXPORT_ENDINGS) else MAX_NOTE_BYTES
    try:
        if not file.is_file():
            raise KnowledgeError("is not an ordinary file")
        with file.open("rb") as opened:
            content = opened.read(limit + 1)
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise KnowledgeError(f"cannot be read ({(error.strerror or 'unknown').lower()})") from error
    except UnicodeDecodeError:
        raise KnowledgeError("is not UTF-8 text") from None
    if len(content) > limit:
        raise KnowledgeError(f"is larger than {limit:,} bytes")
    if "\0" in text:
        raise KnowledgeError("is binary")
    return text


def page_of(text: str, *, path: str) -> Page:
    """Split a file. Frontmatter that is not YAML (Cursor's `globs: *.ts`) is read line by line."""
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
    """Return the first date in a text: `2026-03-01`, or `01/03/2026` with the day first."""
    found = _DAY.search(text)
    if not found:
        return None
    year, month, day = (found[1], found[2], found[3]) if found[1] else (found[6], found[5], found[4])
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def listed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return tags and the like, given as a list or one text with commas, without `#`."""
    parts = texts if len(texts) != 1 else tuple(texts[0].split(","))
    return tuple(dict.fromkeys(part.strip().lstrip("#") for part in parts if part.strip().lstrip("#")))


def _texts(node: object) -> tuple[str, ...]:
    """Return a scalar or a list of scalars as texts; empty for anything deeper."""
    kind, value = getattr(node, "id", ""), getattr(node, "value", None)
    if kind == "scalar":
        return (str(value),) if str(value).strip() and getattr(node, "tag", "") != "tag:yaml.org,2002:null" else ()
    if kind == "sequence" and isinstance(value, list):
        return tuple(str(entry.value) for entry in value if entry.id == "scalar" and str(entry.value).strip())
    return ()


def kind_of(page: Page, *, title: str, headings: Sequence[str]) -> tuple[KnowledgeType, str]:
    """Return the type of a note and the reason for it; defaults to `concept`."""
    for key in ("type", "category", "kind"):
        named = named_kind(page.first(key))
        if named:
            return named, f"its `{key}` says {page.first(key)}"
    for tag in listed((*page.front.get("tags", ()), *page.front.get("tag", ()))):
        if named := named_kind(tag.rpartition("/")[2]):
            return named, f"tagged #{tag}"
    for folder in reversed(page.path.split("/")[:-1]):
        if named := named_kind(folder):
            return named, f"filed under {folder}/"
    for heading in (heading.lower().strip(" :") for heading in headings):
        if heading in _HEADINGS:
            return _HEADINGS[heading], f"it has a section {heading!r}"
    return kind_of_sentence(title)


def kind_of_sentence(sentence: str) -> tuple[KnowledgeType, str]:
    """Return the type that a title or a single sentence reads like, and the reason."""
    found = {one.lastgroup: one[0] for one in _TITLES.finditer(sentence[:MAX_SENTENCE_CHARS])}
    kind = next((kind for kind in _TITLES.groupindex if kind in found), None)
    if kind is None:
        return KnowledgeType.CONCEPT, "no other type fits"
    return KnowledgeType(kind), f"it reads like a {kind} ({found[kind].strip()!r})"


def named_kind(word: str) -> KnowledgeType | None:
    """Return the type that a folder, tag or category names; None for any other word."""
    plain = re.sub(r"[\s_]+", "-", word.strip().lower().lstrip("0123456789.-_ "))
    return _WORDS.get(plain) or _WORDS.get(plain.removesuffix("s")) or _WORDS.get(plain.removesuffix("es"))
