"""Proposals of extraction, with the domain and tags under which they are filed."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path, PurePosixPath

from nugget.infra.workspace import find_workspace
from nugget.models import Event, EventKind, Session, Unit

_EXTENSIONS = {
    "go": ".go", "python": ".py .pyi", "typescript": ".ts .tsx .mts .cts", "javascript": ".js .jsx .mjs .cjs",
    "rust": ".rs", "java": ".java", "kotlin": ".kt", "ruby": ".rb", "php": ".php", "csharp": ".cs", "swift": ".swift",
    "c": ".c .h", "cpp": ".cc .cpp .cxx .hpp .hh", "shell": ".sh .bash .zsh", "sql": ".sql", "terraform": ".tf",
    "scala": ".scala", "elixir": ".ex .exs", "lua": ".lua", "vue": ".vue", "dart": ".dart", "haskell": ".hs",
    "zig": ".zig",
}  # fmt: skip
LANGUAGES = {ending: language for language, endings in _EXTENSIONS.items() for ending in endings.split()}
_FOREIGN_SCRIPT_SHARE, _KNOWN_SCRIPT_SHARE, _LETTERS_SAMPLED = 0.5, 0.01, 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A knowledge unit found in a session, with one line on why it was proposed.

    `updates` is the id of the unit whose file it corrects or extends, if known; `note` is a hint for the reviewer.
    `rank` is its place among the units of its session, the most useful first, if that is known. For a note in a vault,
    `names` are the names by which others link to it, and `links` the names that it links to.
    """

    unit: Unit
    reason: str
    updates: str | None = None
    note: str | None = None
    rank: int = 0
    names: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The result of extraction.

    `dropped` says why each rejected unit was dropped, `summary` what the session was about, and `usd` what it cost.
    """

    proposals: tuple[Proposal, ...]
    method: str
    dropped: tuple[str, ...] = ()
    summary: str = ""
    usd: float = 0.0


def language_of(session: Session) -> str | None:
    """Return the language of most files that were edited (counted three times) or read."""
    counts: Counter[str] = Counter()
    for event in session.events:
        if language := LANGUAGES.get(PurePosixPath(event.path or "").suffix.lower()):
            counts[language] += 3 if event.kind is EventKind.FILE_EDIT else 1
    return counts.most_common(1)[0][0] if counts else None


def domain_of(session: Session) -> str:
    """Return `coding/<language>` if files in a language were touched, `coding` if commands ran, else `general`."""
    if language := language_of(session):
        return f"coding/{language}"
    return "coding" if any(event.kind is EventKind.COMMAND for event in session.events) else "general"


def edited_files(events: Sequence[Event], session: Session) -> Iterator[tuple[int, str]]:
    """Yield the place of each edit, and its file relative to the session's folder."""
    folders = [folder.rstrip("/") + "/" for folder in (session.cwd, *session.folders) if folder]
    for place, event in enumerate(events):
        if event.kind is EventKind.FILE_EDIT and event.ok is not False and event.path:
            inside = (event.path.removeprefix(folder) for folder in folders if event.path.startswith(folder))
            path = next(inside, None) if event.path.startswith("/") else event.path
            if path is not None:
                yield place, path


def project_of(session: Session) -> str | None:
    """Return the name of the repository that a session worked in, or of its folder."""
    folder = Path(session.cwd or "/")
    return find_workspace(folder).name if folder != Path("/") else None


def is_foreign(text: str, session: Session) -> bool:
    """Return whether most of a text is in a script that the session hardly uses."""
    said = "\n".join(event.text for event in session.events if event.kind in (EventKind.PROMPT, EventKind.REPLY))
    ours, known = (
        Counter(re.split("[ -]", unicodedata.name(char, ""))[0] for char in sample[:_LETTERS_SAMPLED] if char.isalpha())
        for sample in (text, said)
    )
    script, count = max(ours.items(), key=itemgetter(1), default=("", 0))
    return count > _FOREIGN_SCRIPT_SHARE * ours.total() and known[script] < _KNOWN_SCRIPT_SHARE * known.total()
