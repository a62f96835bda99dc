"""Notes: markdown files that are not knowledge files, which are only read.

Canon, which everyone may search, is set in `canon.folders`: documents of a workspace, handbooks, vaults; an id is
`<folder name>/<path in it>`. Memory, which belongs to one identity, is `memory/<identity>/` under `$NUGGET_HOME` and in
the brain and, if the identity is a coding agent, the agent's instruction files: `CLAUDE.md` and auto-memory for
`claude-code` (https://code.claude.com/docs/en/memory), `AGENTS.md` for the agents that read it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from urllib.parse import unquote

from nugget.brain.frontmatter import Fields, nodes, split
from nugget.config import Environment, Settings, expanded, user_home
from nugget.errors import GitError, KnowledgeError, TranscriptError, UsageError
from nugget.infra import git
from nugget.infra.files import is_inside
from nugget.markdown import size_problem, title_of
from nugget.models import Problem, Relation, RelationType, Severity, SourceName, Unit
from nugget.settings import YAMLRefused
from nugget.sources import UnitFiles, UnitsRead, list_folder, mapping_of, read_document
from nugget.sources.ignore_files import Walk
from nugget.text import content_hash, is_name, plain_line_ends, shorten, slugify

SUFFIXES = (".md", ".markdown", ".mdx", ".mdc")
MAX_LINKS = 2_000
"""The most links of a note that are followed."""
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md"), "codex": ("AGENTS.md",),
    "gemini-cli": ("GEMINI.md", "AGENTS.md"), "cursor": ("AGENTS.md",), "opencode": ("AGENTS.md",),
    "copilot-cli": (".github/copilot-instructions.md", "AGENTS.md"),
}  # fmt: skip
"""The instruction files at the top of a workspace, by agent."""

_OF_USER = {"codex": ".codex/AGENTS.md", "gemini-cli": ".gemini/GEMINI.md", "opencode": ".config/opencode/AGENTS.md"}
_MAX_MEMORY_FILES = 5000
_MAX_BYTES = 2_000_000
_TITLE_CHARS = 120
_DECISION_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "architecture-decisions"})
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"\[\[(?P<wiki>[^\[\]|#^\n]{1,200})(?:[#^][^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]"
    r"|\]\((?!\w+:|#|/)<?(?P<path>[^()\s<>#?]{1,300})(?:[#?][^()\s<>]*)?>?(?:\s+\"[^\"\n]*\")?\)"
)
_TAG_IN_TEXT = r"(?m)(?:^|(?<=\s))#([^\W\d_][\w/-]{1,40})(?=\s|$|[.,;])"


def read_note(
    text: str, *, key: str, source: SourceName, names: Mapping[str, str], modified: date | None = None
) -> tuple[Unit, tuple[Problem, ...]]:
    """Return the unit of a note with the id `key`; `names` are the notes by the names that links use.

    Unreadable frontmatter is a warning: the text counts.
    """
    fields, body, problems = _frontmatter(plain_line_ends(text), key)

    def listed(*keys: str) -> list[str]:
        return list(dict.fromkeys(name for one in keys for name in fields.listed(one, Severity.WARNING)))

    def day(*keys: str) -> date | None:
        return next((day for one in keys if (day := fields.day(one, Severity.WARNING))), None)

    aliases = listed("aliases", "alias")
    prose = _FENCED.sub("", body) if "#" in body or "](" in body or "[[" in body else ""
    tags = (tag.lstrip("#").strip() for tag in (*listed("tags", "tag"), *re.findall(_TAG_IN_TEXT, prose)))
    links = _links(prose)
    reasons = [size_problem(body)]
    if len(links) > MAX_LINKS:
        reasons.append(f"has {len(links):,} links; only the first {MAX_LINKS:,} are followed")
    problems += [Problem(path=key, reason=why, severity=Severity.WARNING) for why in reasons if why]
    title = fields.text("title", Severity.WARNING) or title_of(body) or PurePosixPath(key).stem
    targets = dict.fromkeys(_resolve_link(link, key, names) for link in links[:MAX_LINKS])
    is_decision = not _DECISION_FOLDERS.isdisjoint(key.lower().split("/")[:-1])
    unit = Unit(
        id=key, source=source, type="decision" if is_decision else "document", title=shorten(title, _TITLE_CHARS),
        body=f"{body.strip()}\n\nAlso called: {', '.join(aliases)}" if aliases else body.strip(), path=key,
        tags=tuple(dict.fromkeys(filter(None, tags)))[:50],
        related=tuple(Relation(id=one, relation=RelationType.INFORMED_BY) for one in targets if one != key),
        created=day("created", "date"),
        last_modified=day("updated", "modified", "last_modified", "lastmod") or modified,
    )  # fmt: skip
    return unit, (*problems, *fields.problems)


def _frontmatter(text: str, key: str) -> tuple[Fields, str, list[Problem]]:
    absent = Fields(path=key, first_line=1, nodes={})
    try:
        parts = split(text) if text.lstrip("\n").startswith("---") else None
    except YAMLRefused:
        parts = None  # a horizontal rule, or conflict markers, which are text here
    if parts is None:
        return absent, text, []
    try:
        return Fields(path=key, first_line=parts.first_line, nodes=nodes(parts)), parts.body, []
    except YAMLRefused as error:
        return absent, parts.body, [Problem(path=key, reason=str(error), line=error.line, severity=Severity.WARNING)]


def _links(prose: str) -> list[str]:
    """Return the distinct targets of a note's wiki links and paths."""
    found = [(link["wiki"] or "", unquote(link["path"] or "")) for link in _LINK.finditer(prose)]
    named = [wiki.strip() or (path if path.lower().endswith(SUFFIXES) else "") for wiki, path in found]
    return [*dict.fromkeys(unicodedata.normalize("NFC", link) for link in named if link)]


def _link_name(name: str) -> str:
    """Return the name of a note in wiki links: `Some Note.md` is `some note`."""
    last = name.rsplit("/", 1)[-1].lower()
    return next((last.removesuffix(suffix) for suffix in SUFFIXES if last.endswith(suffix)), last)


def _resolve_link(link: str, source: str, names: Mapping[str, str]) -> str:
    """Return the key that a link from note `source` leads to, whether or not that note exists."""
    beside = os.path.normpath(f"/{PurePosixPath(source).parent}/{link}")[1:]
    tried = [beside] if "/" in link or link.lower().endswith(SUFFIXES) else []
    tried.append(f"{beside}.md")
    if "/" in link:
        from_root = f"{source.split('/', 1)[0]}/{link.strip('/')}"
        tried += [from_root, f"{from_root}.md"]
    tried.append(_link_name(link))
    return next((names[name.lower()] for name in tried if name.lower() in names), f"{beside}.md")


def _note_files(
    name: SourceName,
    redact: Callable[[str], str],
    walk: Callable[[list[Problem], list[Problem]], Iterator[tuple[str, Path | str]]],
    committed: Callable[[str], date | None] = lambda key: None,
) -> UnitFiles:
    """Return notes as units, each with its key as id; `committed` gives the day of the last commit, if known."""
    problems, left_out, names = list[Problem](), list[Problem](), dict[str, str]()

    def files() -> Iterator[tuple[str, Path | str]]:
        """Yield every note as (key, place). Links lead to the first of several notes with one name."""
        del problems[:], left_out[:]
        names.clear()
        for key, file in walk(problems, left_out):
            names[_link_name(key)] = min(key, names.get(_link_name(key), key))
            names[key.lower()] = key
            yield key, file

    def content(key: str, file: Path) -> bytes:
        """Return the bytes of a note. Raises KnowledgeError if the file is not a note, OSError if unreadable."""
        if (size := file.stat().st_size) > _MAX_BYTES:
            raise KnowledgeError(f"is {size / 1e6:.1f} MB; a note may be {_MAX_BYTES // 1_000_000} MB at most")
        if b"\0" in (found := file.read_bytes()):
            raise KnowledgeError("is not a text in UTF-8")
        return found

    def read(key: str, file: Path, content: bytes) -> UnitsRead:
        text = redact(content.decode("utf-8-sig", "replace"))
        # After a checkout, files have the date of the checkout.
        day = committed(key) or datetime.fromtimestamp(max(0, min(file.stat().st_mtime, 253402300799)), UTC).date()
        unit, wrong = read_note(text, key=key, source=name, names=names, modified=day)
        return (unit,), wrong, None

    return UnitFiles(name=name, files=files, content=content, read=read, problems=problems, left_out=left_out)


CanonFolders = Mapping[str, tuple[Path, Path | None]]
"""Folders of canon by the name in their units' ids, each with the folder that it may not lead out of."""


def canon_folders(given: Sequence[str], *, base: Path) -> CanonFolders:
    """Parse `canon.folders`: paths or `name=path`, relative to `base`.

    A folder without a name gets the last part of its path, with its parent's in front if that is taken.
    """
    folders: dict[str, tuple[Path, Path | None]] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        given_path = expanded(rest if equals else text)
        path = given_path if given_path.is_absolute() else base / given_path
        inside = None if given_path.is_absolute() or ".." in given_path.parts else base
        wanted = [slugify(name)] if equals else [_ref_part(path.name), _ref_part(f"{path.parent.name}-{path.name}")]
        unique = f"{wanted[0]}-{content_hash(str(path))[:6]}"
        chosen = next((name for name in (*wanted, unique) if name and name not in folders), None)
        if chosen and path not in [known for known, _ in folders.values()]:
            folders[chosen] = path, inside
    return folders


def _ref_part(name: str) -> str:
    """Return a folder's name for use in refs."""
    kept = "".join(char if char.isalnum() or char in "._- " else "-" for char in name).strip(" .-")
    return kept[:80] or slugify(name)


def open_canon(environment: Environment, settings: Settings, brain: Path) -> UnitFiles:
    """Return the canon folders that the settings name, without the memory of any identity."""
    folders = canon_folders(settings.canon_folders, base=brain)
    memories = (environment.home / "memory", environment.claude_config / "projects", brain / "memory")
    names = frozenset(Path(name).name.lower() for names in INSTRUCTIONS.values() for name in names)
    days: dict[str, dict[str, date]] = {}

    def walk(problems: list[Problem], left_out: list[Problem]) -> Iterator[tuple[str, str]]:
        for name, (place, bound) in folders.items():
            if bound and not is_inside(place, bound):
                reason = f"leads out of {bound}, so it is not read; name it by its absolute path"
                problems.append(Problem(path=str(place), reason=reason))
                continue
            found = Walk(
                root=place, suffixes=SUFFIXES, max_files=settings.canon_max_files, problems=problems,
                left_out=left_out, private_names=names, private_folders=frozenset(map(os.path.realpath, memories)),
            )  # fmt: skip
            yield from ((f"{name}/{path}", file) for path, file in found.files())

    def committed(key: str) -> date | None:
        name, _, path = key.partition("/")
        if name not in days:
            days[name] = {}
            with suppress(GitError):
                days[name] = git.last_commit_days(folders[name][0])
        return days[name].get(path)

    return _note_files(SourceName.CANON, redactor(settings), walk, committed)


def redactor(settings: Settings) -> Callable[[str], str]:
    """Return a function that removes secrets from a text and loads the rules on its first call."""

    def redact_text(text: str) -> str:
        from nugget.redaction import allow_list, redact

        return redact(text, allow=allow_list(settings)).text

    return redact_text


def check_identity(text: str | None) -> None:
    """Raise UsageError for an identity that is not valid in a path; None stands for none."""
    if text is not None and (not is_name(text, most=64) or ".." in text):
        hint = "Use 1 to 64 letters, digits, `-`, `_` and `.`, such as claude-code."
        raise UsageError(f"{text!r} cannot be an identity.", hint=hint)


def memory_of(
    identity: str, environment: Environment, *, redact: Callable[[str], str], brain: Path | None = None,
    workspaces: Sequence[Path] = (),
) -> UnitFiles:  # fmt: skip
    """Return the notes of one identity; their ids are `<identity>/<path>`. Raises UsageError for an invalid one."""
    check_identity(identity)

    def walk(*_: list[Problem]) -> Iterator[tuple[str, Path]]:
        seen: set[str | tuple[int, int]] = set()  # `AGENTS.md` is often a link to `CLAUDE.md`
        for path, file in _memory_files(identity, environment, brain, workspaces):
            key = f"{identity}/{path}"
            with suppress(OSError):
                state = file.stat()
                same = (state.st_dev, state.st_ino)
                if S_ISREG(state.st_mode) and key not in seen and same not in seen:
                    seen |= {key, same}
                    yield key, file

    return _note_files(SourceName.MEMORY, redact, walk)


def _memory_files(
    identity: str, environment: Environment, brain: Path | None, workspaces: Sequence[Path]
) -> Iterator[tuple[str, Path]]:
    config, agent_files = environment.claude_config, INSTRUCTIONS.get(identity, ())
    is_claude = identity == "claude-code"
    yield from _walk(environment.home / "memory" / identity, "")
    if brain and is_inside(brain / "memory" / identity, brain):
        yield from _walk(brain / "memory" / identity, "@brain/")
    if identity in _OF_USER:
        own = user_home(environment) / _OF_USER[identity]
        yield f"@user/{own.name}", own
    if is_claude:
        yield "@user/CLAUDE.md", config / "CLAUDE.md"
        yield from _walk(config / "rules", "@user/rules/")
        for project in list_folder(config / "projects"):
            yield from _walk(Path(project.path, "memory"), f"@project/{project.name}/")
    for folder in _used_workspaces(environment, workspaces) if agent_files else ():
        prefix = f"@workspace/{slugify(folder.name or 'root')}-{content_hash(str(folder))[:6]}/"
        yield from ((f"{prefix}{name}", folder / name) for name in agent_files)
        if is_claude:
            yield from _walk(folder / ".claude" / "rules", f"{prefix}.claude/rules/")


def _walk(root: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    walk = Walk(root=root, suffixes=SUFFIXES, max_files=_MAX_MEMORY_FILES)
    yield from ((f"{prefix}{path}", Path(file)) for path, file in walk.files())


def _used_workspaces(environment: Environment, workspaces: Sequence[Path]) -> list[Path]:
    """Return the given workspaces, then those that Claude Code has been used in."""
    client: Mapping[str, object] = {}
    beside = environment.claude_config / ".claude.json"
    with suppress(TranscriptError):
        client = read_document(beside if beside.is_file() else user_home(environment) / ".claude.json") or {}
    named = [Path(name) for name in mapping_of(client.get("projects")) if Path(name).is_absolute()]
    return [folder for folder in dict.fromkeys([*workspaces, *named]) if folder.is_dir()]
