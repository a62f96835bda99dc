"""Read markdown notes that are not knowledge files: title, tags, dates, links and text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from nugget.brain.frontmatter import Fields, FrontmatterError, nodes, plain_line_ends, split
from nugget.errors import KnowledgeError
from nugget.markdown import left_out, title_of
from nugget.models import Problem, Relation, RelationType, Severity, SourceName, Unit
from nugget.text import shorten

SUFFIXES = (".md", ".markdown", ".mdx", ".mdc")
MAX_BYTES = 2_000_000
"""A larger file is refused before it is read."""

DOCUMENT, DECISION = "document", "decision"
_DECISION_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "architecture-decisions"})
MAX_LINKS = 2_000
"""Links of a note that are followed."""
_TITLE_CHARS = 120
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_WIKI_LINK = re.compile(r"\[\[([^\[\]|#^\n]{1,200})(?:[#^][^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_LINK = re.compile(r"\]\((?!\w+:|#|/)<?([^()\s<>#?]{1,300})(?:[#?][^()\s<>]*)?>?(?:\s+\"[^\"\n]*\")?\)")
_INLINE_TAG = re.compile(r"(?:^|(?<=\s))#([^\W\d_][\w/-]{1,40})(?=\s|$|[.,;])", re.MULTILINE)

Redact = Callable[[str], str]
"""Takes the secrets out of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The notes of a folder by the names that links use: whole keys, and the last part alone, in lower case."""

    by_name: dict[str, str] = field(default_factory=dict)

    def add(self, key: str) -> None:
        """Add a note. Of two with one name, the one that sorts first has it."""
        name = _link_name(key)
        self.by_name[name] = min(key, self.by_name.get(name, key))
        self.by_name[key.lower()] = key

    def resolve(self, link: str, *, source: str) -> str:
        """Return the key that a link from note `source` leads to, whether or not that note exists."""
        wiki = _link_name(link)
        beside = _joined(PurePosixPath(source).parent, link)
        candidates = [beside, f"{beside}.md"] if "/" in link or link.lower().endswith(SUFFIXES) else [f"{beside}.md"]
        found = next((self.by_name[name.lower()] for name in candidates if name.lower() in self.by_name), None)
        if found is None and "/" in link:
            root = f"{source.split('/', 1)[0]}/{link.strip('/')}".lower()
            found = self.by_name.get(root) or self.by_name.get(f"{root}.md")
        return found or self.by_name.get(wiki) or candidates[-1]


def read_bytes(file: Path) -> str:
    """Return the text of a file. Raises KnowledgeError if it is not text or too large, OSError if it cannot be read."""
    size = file.stat().st_size
    if size > MAX_BYTES:
        raise KnowledgeError(f"it is {size / 1e6:.1f} MB; a note may be {MAX_BYTES // 1_000_000} MB at most")
    content = file.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace").removeprefix("\ufeff")
    if b"\0" in content:
        raise KnowledgeError("it is a binary file, not markdown")
    return content.decode("utf-8-sig", "replace")


def read_note(
    text: str, *, key: str, source: SourceName, names: Names, modified: date | None = None
) -> tuple[Unit, tuple[Problem, ...]]:
    """Return the unit of a note with the id `key`. Unreadable frontmatter is a warning: the text counts."""
    fields, body, problems = _frontmatter(plain_line_ends(text), key)
    title = fields and fields.text("title", Severity.WARNING)
    tags = _tags(fields, body)
    aliases = _listed(fields, "aliases", "alias")
    created = _day(fields, "created", "date")
    changed = _day(fields, "updated", "modified", "last_modified", "lastmod") or modified
    stem = PurePosixPath(key).stem
    links = _links(body)
    reasons = [left_out(body)]
    if len(links) > MAX_LINKS:
        reasons.append(f"has {len(links):,} links, of which the first {MAX_LINKS:,} are followed")
    problems += tuple(Problem(path=key, reason=why, severity=Severity.WARNING) for why in reasons if why)
    unit = Unit(
        id=key,
        source=source,
        type=_type_of(key),
        title=shorten(title or title_of(body) or stem, _TITLE_CHARS),
        body=f"{body.strip()}\n\nAlso called: {', '.join(aliases)}" if aliases else body.strip(),
        path=key,
        tags=tags,
        related=_relations(links[:MAX_LINKS], key, names),
        created=created,
        last_modified=changed,
    )
    return unit, (*problems, *(fields.problems if fields else ()))


def modified_day(file: Path) -> date:
    """Return the day of a file's time, in UTC."""
    return datetime.fromtimestamp(max(0, min(file.stat().st_mtime, 253402300799)), UTC).date()


def _frontmatter(text: str, key: str) -> tuple[Fields | None, str, tuple[Problem, ...]]:
    if not text.lstrip("\n").startswith("---"):
        return None, text, ()
    try:
        parts = split(text)
    except FrontmatterError:
        return None, text, ()  # a horizontal rule, or conflict markers, which are text here
    try:
        return Fields(path=key, first_line=parts.first_line, nodes=nodes(parts)), parts.body, ()
    except FrontmatterError as error:
        problem = Problem(path=key, reason=error.reason, line=error.line, severity=Severity.WARNING)
        return None, parts.body, (problem,)


def _listed(fields: Fields | None, *keys: str) -> tuple[str, ...]:
    found = [name for key in keys for name in (fields.listed(key, Severity.WARNING) if fields else ())]
    return tuple(dict.fromkeys(found))


def _tags(fields: Fields | None, body: str) -> tuple[str, ...]:
    inline = _INLINE_TAG.findall(_FENCED.sub("", body)) if "#" in body else []
    tags = (tag.lstrip("#").strip() for tag in (*_listed(fields, "tags", "tag"), *inline))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:50]


def _day(fields: Fields | None, *keys: str) -> date | None:
    return next((day for key in keys if fields and (day := fields.day(key, Severity.WARNING))), None)


def _type_of(key: str) -> str:
    folders = {part.lower() for part in key.split("/")[:-1]}
    return DECISION if folders & _DECISION_FOLDERS else DOCUMENT


def _links(body: str) -> list[str]:
    """Return what a note links to by wiki links and paths, each once."""
    if "](" not in body and "[[" not in body:
        return []
    text = _FENCED.sub("", body)
    links = [link.strip() for link in _WIKI_LINK.findall(text)]
    links += [unquote(link) for link in _LINK.findall(text) if link.lower().endswith(SUFFIXES)]
    return [*dict.fromkeys(unicodedata.normalize("NFC", link) for link in links if link)]


def _relations(links: Sequence[str], key: str, names: Names) -> tuple[Relation, ...]:
    targets = dict.fromkeys(names.resolve(link, source=key) for link in links)
    targets.pop(key, None)
    return tuple(Relation(id=target, relation=RelationType.INFORMED_BY) for target in targets)


def _link_name(name: str) -> str:
    """`Some Note.md` is `some note`, as wiki links name it."""
    last = name.rsplit("/", 1)[-1].lower()
    return next((last.removesuffix(suffix) for suffix in SUFFIXES if last.endswith(suffix)), last)


def _joined(folder: PurePosixPath, link: str) -> str:
    """Return a path as seen from a folder, without `..` in it."""
    parts: list[str] = list(folder.parts)
    for part in link.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
