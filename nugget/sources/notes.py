"""Notes: markdown files that are not knowledge files, which are only read.

Canon, which everyone may search, is set in `canon.folders`: documents of a workspace, handbooks, vaults; an id is
`<folder name>/<path in it>`. Memory, which belongs to one identity, is `memory/<identity>/` under `$NUGGET_HOME` and in
the brain and, if the identity is a coding agent, the agent's instruction files: `CLAUDE.md` and auto-memory for
`claude-code` (https://code.claude.com/docs/en/memory), `AGENTS.md` for the agents that read it.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from urllib.parse import unquote

from nugget.brain.frontmatter import Fields, FrontmatterError, nodes, plain_line_ends, split
from nugget.config import Environment, Settings, expanded
from nugget.errors import GitError, KnowledgeError, TranscriptError, UsageError
from nugget.infra import git
from nugget.markdown import left_out, title_of
from nugget.models import Problem, Relation, RelationType, Severity, SourceName, Unit
from nugget.sources import ReadDocument
from nugget.sources.files import list_folder, mapping_of, read_document
from nugget.sources.ignore_files import Private, Walk
from nugget.text import shorten, slugify

SUFFIXES = (".md", ".markdown", ".mdx", ".mdc")
MAX_BYTES = 2_000_000
"""A larger file is refused before it is read."""
MAX_LINKS = 2_000
"""Links of a note that are followed."""
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md"),
    "codex": ("AGENTS.md",),
    "gemini-cli": ("GEMINI.md", "AGENTS.md"),
    "cursor": ("AGENTS.md",),
    "opencode": ("AGENTS.md",),
    "copilot-cli": (".github/copilot-instructions.md", "AGENTS.md"),
}
"""The instruction files at the top of a workspace, by the agent that reads them."""

_OF_USER = {"codex": ".codex/AGENTS.md", "gemini-cli": ".gemini/GEMINI.md", "opencode": ".config/opencode/AGENTS.md"}
_MAX_MEMORY_FILES = 5000
_TITLE_CHARS = 120
_DECISION_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "architecture-decisions"})
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"\[\[(?P<wiki>[^\[\]|#^\n]{1,200})(?:[#^][^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]"
    r"|\]\((?!\w+:|#|/)<?(?P<path>[^()\s<>#?]{1,300})(?:[#?][^()\s<>]*)?>?(?:\s+\"[^\"\n]*\")?\)"
)
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
        beside = os.path.normpath(f"/{PurePosixPath(source).parent}/{link}")[1:]
        whole = [beside] if "/" in link or link.lower().endswith(SUFFIXES) else []
        from_root = f"{source.split('/', 1)[0]}/{link.strip('/')}"
        tried = [*whole, f"{beside}.md", *([from_root, f"{from_root}.md"] if "/" in link else []), _link_name(link)]
        found = next((self.by_name[name.lower()] for name in tried if name.lower() in self.by_name), None)
        return found or f"{beside}.md"


def read_note(
    text: str, *, key: str, source: SourceName, names: Names, modified: date | None = None
) -> tuple[Unit, tuple[Problem, ...]]:
    """Return the unit of a note with the id `key`. Unreadable frontmatter is a warning: the text counts."""
    fields, body, problems = _frontmatter(plain_line_ends(text), key)
    aliases = _listed(fields, "aliases", "alias")
    prose = _FENCED.sub("", body) if "#" in body or "](" in body or "[[" in body else ""
    tags = (tag.lstrip("#").strip() for tag in (*_listed(fields, "tags", "tag"), *_INLINE_TAG.findall(prose)))
    links = _links(prose)
    reasons = [left_out(body)]
    if len(links) > MAX_LINKS:
        reasons.append(f"has {len(links):,} links, of which the first {MAX_LINKS:,} are followed")
    problems += [Problem(path=key, reason=why, severity=Severity.WARNING) for why in reasons if why]
    title = fields.text("title", Severity.WARNING) if fields else None
    targets = dict.fromkeys(names.resolve(link, source=key) for link in links[:MAX_LINKS])
    is_decision = not _DECISION_FOLDERS.isdisjoint(key.lower().split("/")[:-1])
    unit = Unit(
        id=key,
        source=source,
        type="decision" if is_decision else "document",
        title=shorten(title or title_of(body) or PurePosixPath(key).stem, _TITLE_CHARS),
        body=f"{body.strip()}\n\nAlso called: {', '.join(aliases)}" if aliases else body.strip(),
        path=key,
        tags=tuple(dict.fromkeys(tag for tag in tags if tag))[:50],
        related=tuple(Relation(id=one, relation=RelationType.INFORMED_BY) for one in targets if one != key),
        created=_day(fields, "created", "date"),
        last_modified=_day(fields, "updated", "modified", "last_modified", "lastmod") or modified,
    )
    return unit, (*problems, *(fields.problems if fields else ()))


def _frontmatter(text: str, key: str) -> tuple[Fields | None, str, list[Problem]]:
    if not text.lstrip("\n").startswith("---"):
        return None, text, []
    try:
        parts = split(text)
    except FrontmatterError:
        return None, text, []  # a horizontal rule, or conflict markers, which are text here
    try:
        return Fields(path=key, first_line=parts.first_line, nodes=nodes(parts)), parts.body, []
    except FrontmatterError as error:
        problem = Problem(path=key, reason=error.reason, line=error.line, severity=Severity.WARNING)
        return None, parts.body, [problem]


def _listed(fields: Fields | None, *keys: str) -> tuple[str, ...]:
    found = [name for key in keys for name in (fields.listed(key, Severity.WARNING) if fields else ())]
    return tuple(dict.fromkeys(found))


def _day(fields: Fields | None, *keys: str) -> date | None:
    return next((day for key in keys if fields and (day := fields.day(key, Severity.WARNING))), None)


def _links(prose: str) -> list[str]:
    """Return what a note links to by wiki links and paths, each once."""
    found = [(link["wiki"] or "", unquote(link["path"] or "")) for link in _LINK.finditer(prose)]
    named = [wiki.strip() or (path if path.lower().endswith(SUFFIXES) else "") for wiki, path in found]
    return [*dict.fromkeys(unicodedata.normalize("NFC", link) for link in named if link)]


def _link_name(name: str) -> str:
    """Return how wiki links name a note: `Some Note.md` is `some note`."""
    last = name.rsplit("/", 1)[-1].lower()
    return next((last.removesuffix(suffix) for suffix in SUFFIXES if last.endswith(suffix)), last)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonFolder:
    """A folder of canon, and the name by which its units are known."""

    name: str
    path: Path
    inside: Path | None = None
    """The folder that `path` may not leave, not even by a link."""


def canon_folders(given: Sequence[str], *, base: Path) -> list[CanonFolder]:
    """Parse `canon.folders`: paths, or `name=path`, relative ones from `base`.

    A folder without a name gets that of the last part of its path, with its parent's in front if that is taken.
    """
    folders: dict[str, CanonFolder] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        given_path = expanded(rest if equals else text)
        path = given_path if given_path.is_absolute() else base / given_path
        inside = None if given_path.is_absolute() or ".." in given_path.parts else base
        wanted = [slugify(name)] if equals else [_plain(path.name), _plain(f"{path.parent.name}-{path.name}")]
        unique = f"{wanted[0]}-{hashlib.sha256(str(path).encode('utf-8', 'replace')).hexdigest()[:6]}"
        chosen = next((name for name in (*wanted, unique) if name and name not in folders), None)
        if chosen and path not in [folder.path for folder in folders.values()]:
            folders[chosen] = CanonFolder(name=chosen, path=path, inside=inside)
    return list(folders.values())


def check_identity(text: str) -> str:
    """Return the identity if it is valid as a part of paths. Raises UsageError."""
    if not _IDENTITY.fullmatch(text) or ".." in text:
        raise UsageError(
            f"{text!r} cannot be an identity.",
            hint="Use 1 to 64 letters, digits, `-`, `_` and `.`, such as claude-code.",
        )
    return text


def private_places(environment: Environment, brain: Path | None) -> Private:
    """Return the places that are memory of any identity: no other source may read them."""
    folders = [
        environment.home / "memory",
        environment.claude_config / "projects",
        *([brain / "memory"] if brain else []),
    ]
    files = {Path(name).name.lower() for names in INSTRUCTIONS.values() for name in names}
    return Private(names=frozenset(files), folders=frozenset(map(os.path.realpath, folders)))


class _Notes:
    """Notes of some folders as a source of units, each with its key as id."""

    name: SourceName

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._names = Names()

    def read(self, key: str, file: Path) -> ReadDocument:
        """Return the unit of a note. Raises KnowledgeError if the file is not a note, OSError if unreadable."""
        text = self._redact(_read_text(file))
        unit, problems = read_note(text, key=key, source=self.name, names=self._names, modified=self._day(key, file))
        return ReadDocument(units=(unit,), problems=problems)

    def _day(self, key: str, file: Path) -> date:
        """Return the day of a file's time, in UTC."""
        return datetime.fromtimestamp(max(0, min(file.stat().st_mtime, 253402300799)), UTC).date()


def _read_text(file: Path) -> str:
    """Return the text of a file. Raises KnowledgeError if it is not text or too large, OSError if it cannot be read."""
    if (size := file.stat().st_size) > MAX_BYTES:
        raise KnowledgeError(f"it is {size / 1e6:.1f} MB; a note may be {MAX_BYTES // 1_000_000} MB at most")
    content = file.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace").removeprefix("\ufeff")
    if b"\0" in content:
        raise KnowledgeError("it is a binary file, not markdown")
    return content.decode("utf-8-sig", "replace")


class Canon(_Notes):
    """The files of the canon folders, without what is `private`.

    `problems` of the last walk are reported with every search, `left_out` only when a person syncs.
    """

    name = SourceName.CANON

    def __init__(
        self, folders: Sequence[CanonFolder], *, redact: Redact, max_files: int, private: Private | None = None
    ) -> None:
        self.folders = folders
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        super().__init__(redact)
        self._max_files = max_files
        self._private = private or Private()
        self._committed: dict[str, dict[str, date]] = {}

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield every note as (`<folder name>/<path>`, place)."""
        self.problems.clear()
        self.left_out.clear()
        self._names = Names()
        for folder in self.folders:
            # os.path.realpath, since that of pathlib raises for links in a circle
            if folder.inside and not Path(os.path.realpath(folder.path)).is_relative_to(
                os.path.realpath(folder.inside)
            ):
                reason = f"leads out of {folder.inside}, so it is not read; name it by its absolute path"
                self.problems.append(Problem(path=str(folder.path), reason=reason))
                continue
            walk = Walk(
                root=folder.path, suffixes=SUFFIXES, max_files=self._max_files, problems=self.problems,
                left_out=self.left_out, private=self._private,
            )  # fmt: skip
            for path, file in walk.files():
                key = f"{folder.name}/{path}"
                self._names.add(key)
                yield key, file

    def _day(self, key: str, file: Path) -> date:
        """Return when a note was last committed, else its file's day: after a checkout, files have the day of that."""
        name, _, path = key.partition("/")
        if name not in self._committed:
            self._committed[name] = {}
            for folder in self.folders:
                with suppress(GitError):
                    if folder.name == name:
                        self._committed[name] = git.last_commit_days(folder.path)
        return self._committed[name].get(path) or super()._day(key, file)


def _plain(name: str) -> str:
    """Return a folder's name as a part of refs."""
    kept = "".join(char if char.isalnum() or char in "._- " else "-" for char in name).strip(" .-")
    return kept[:80] or slugify(name)


class Memory(_Notes):
    """The notes of one identity; their ids are `<identity>/<path>`."""

    name = SourceName.MEMORY

    def __init__(
        self,
        identity: str,
        environment: Environment,
        *,
        redact: Redact,
        brain: Path | None = None,
        workspaces: Sequence[Path] = (),
    ) -> None:
        super().__init__(redact)
        self.identity = check_identity(identity)
        self._environment = environment
        self._brain = brain
        self._workspaces = workspaces

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield every note as (`<identity>/<path>`, place), each once: `AGENTS.md` is often a link to `CLAUDE.md`."""
        self._names = Names()
        seen: set[str | tuple[int, int]] = set()
        for path, file in self._places():
            key = f"{self.identity}/{path}"
            try:
                state = file.stat()
            except OSError:
                continue
            if not S_ISREG(state.st_mode):
                continue
            same = (state.st_dev, state.st_ino)
            if key not in seen and same not in seen:
                seen |= {key, same}
                self._names.add(key)
                yield key, file

    def _places(self) -> Iterator[tuple[str, Path]]:
        yield from self._walked(self._environment.home / "memory" / self.identity, "")
        if self._brain:
            yield from self._walked(self._brain / "memory" / self.identity, "@brain/")
        user_home = Path(self._environment.variables.get("HOME") or Path.home())
        if self.identity in _OF_USER:
            own = user_home / _OF_USER[self.identity]
            yield f"@user/{own.name}", own
        is_claude, config = self.identity == "claude-code", self._environment.claude_config
        if is_claude:
            yield "@user/CLAUDE.md", config / "CLAUDE.md"
            yield from self._walked(config / "rules", "@user/rules/")
            for project in list_folder(config / "projects"):
                yield from self._walked(Path(project.path, "memory"), f"@project/{project.name}/")
        for folder in self._known_workspaces() if self.identity in INSTRUCTIONS else ():
            digest = hashlib.sha256(str(folder).encode("utf-8", "replace")).hexdigest()[:6]
            prefix = f"@workspace/{slugify(folder.name or 'root')}-{digest}/"
            yield from ((f"{prefix}{name}", folder / name) for name in INSTRUCTIONS[self.identity])
            if is_claude:
                yield from self._walked(folder / ".claude" / "rules", f"{prefix}.claude/rules/")

    def _walked(self, root: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        walk = Walk(root=root, suffixes=SUFFIXES, max_files=_MAX_MEMORY_FILES)
        yield from ((f"{prefix}{path}", Path(file)) for path, file in walk.files())

    def _known_workspaces(self) -> list[Path]:
        """Return the given workspaces, then those that Claude Code has been used in."""
        user_home = Path(self._environment.variables.get("HOME") or Path.home())
        beside = self._environment.claude_config / ".claude.json"
        try:
            client = read_document(beside if beside.is_file() else user_home / ".claude.json") or {}
        except TranscriptError:
            client = {}
        named = [Path(name) for name in mapping_of(client.get("projects")) if Path(name).is_absolute()]
        return [folder for folder in dict.fromkeys([*self._workspaces, *named]) if folder.is_dir()]


def redacting(settings: Settings) -> Callable[[str], str]:
    """Return a function that removes secrets from a text. The rules are loaded when it is first called."""

    def redact_text(text: str) -> str:
        from nugget.redaction import allow_list, redact

        return redact(text, allow=allow_list(settings)).text

    return redact_text


def open_canon(environment: Environment, settings: Settings, brain: Path) -> Canon:
    """Return the folders of canon that the settings name, without what is memory."""
    folders = canon_folders(settings.canon.folders, base=brain)
    private = private_places(environment, brain)
    return Canon(folders, redact=redacting(settings), max_files=settings.canon.max_files, private=private)
