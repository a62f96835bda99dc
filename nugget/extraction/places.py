"""Find the place in the workspace that is meant: paths as agents name them, files and symbols that a text mentions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from nugget.infra.workspace import Workspace, relative_path
from nugget.models import Event, Session

_MENTION = re.compile(r"(?<![\w/])@?((?:~|\.{1,2})?/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*)")
"""What may be a path in prose; only files of the workspace count."""
_SYMBOL = re.compile(
    r"`([A-Za-z_$][\w$.:]*)(?:\([^`]*\))?`|\b([A-Za-z_]\w*(?:_\w+|[a-z][A-Z]\w*))\b|\b([A-Za-z_]\w{2,})\(\)"
)
_DEFINITION = re.compile(
    r"^[ \t]*(?:(?:export|default|pub(?:\([^)]*\))?|public|private|protected|internal|static|final|abstract"
    r"|async|const"
    r"|override|open|suspend|unsafe|inline)\s+)*"
    r"(?:def|class|func|function\*?|fn|type|interface|struct|enum|trait|module|object|record|const|let|var|val)\s+"
    r"(?:\([^)\n]*\)\s*)?([A-Za-z_$][\w$]*)",
    re.MULTILINE,
)


@dataclass(slots=True)
class Places:
    """Finds the path in the workspace of a path as the agent named it.

    `roots` are the checkouts of the workspace that the session worked in, `others` those of other workspaces that may
    lie inside them, and `excluded` globs of files to leave out.
    """

    session: Session
    roots: Sequence[Workspace]
    excluded: Sequence[str] = ()
    others: Sequence[Workspace] = ()
    known: dict[str, str | None] = field(default_factory=dict)

    @property
    def repo(self) -> str | None:
        """Identity of the workspace."""
        return self.roots[0].identity if self.roots else None

    def find(self, path: str) -> str | None:
        """Return the path relative to the root of its checkout; None outside and if it is excluded."""
        if path not in self.known:
            self.known[path] = self._find(path)
        return self.known[path]

    def is_file(self, path: str) -> bool:
        """Return whether a path of the workspace is a file now."""
        return any(file_inside(root.root, path) is not None for root in self.roots)

    def _find(self, path: str) -> str | None:
        folder = self.session.cwd
        for root in self.roots:
            if inside := relative_path(root, path, folder=folder):
                nested = [one for one in self.others if one.root.is_relative_to(root.root)]
                is_foreign = any(relative_path(one, path, folder=folder) for one in nested)
                return None if is_foreign or is_excluded(inside, self.excluded) else inside
        return None


def file_inside(root: Path, path: str) -> Path | None:
    """Return the file at a path below a folder, None if there is none or a link leads out of the folder."""
    file = root / path
    try:
        return file if file.is_file() and file.resolve().is_relative_to(root.resolve()) else None
    except OSError:
        return None


def is_excluded(path: str, globs: Iterable[str]) -> bool:
    """Return whether a path matches one of the globs, whole or from any folder on."""
    return any(fnmatchcase(path, form) for glob in globs for form in (glob, f"*/{glob}", f"{glob}/*"))


def definitions(code: str) -> str:
    """Return the lines of a piece of code that define a symbol, cut down to that."""
    return "\n".join(match[0].strip() for match in _DEFINITION.finditer(code[:200_000]))


@dataclass(slots=True)
class Mentions:
    """Finds the files and symbols that a text mentions, among the touched `paths` first."""

    places: Places
    paths: Sequence[str]
    edits: Sequence[tuple[str, Event]] = ()
    names: dict[str, list[str]] = field(default_factory=dict)
    symbols: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.paths:
            self.names.setdefault(path.rpartition("/")[2], []).append(path)
        for path, event in self.edits:
            for match in _DEFINITION.finditer(event.after or ""):
                self.symbols.setdefault(match[1], set()).add(path)

    def files(self, text: str) -> list[str]:
        """Return the touched files that a text names: by path, by the end of one, or by a name that only one has."""
        found: dict[str, None] = {}
        for word in _words_in(text):
            bare = re.sub(r"^(?:\.{0,2}/)+", "", word)
            candidates = self.names.get(word.rpartition("/")[2], ())
            ending = [path for path in candidates if f"/{path}".endswith(f"/{bare}") or word.endswith(f"/{path}")]
            if len(ending) == 1:
                found[ending[0]] = None
        return list(found)

    def any_file(self, text: str) -> str | None:
        """Return the one file that a text names, touched or not; None for none and for several."""
        named = self.files(text)
        if not named:
            inside = {path for word in _words_in(text) if "/" in word and (path := self.places.find(word))}
            named = [path for path in inside if self.places.is_file(path)]
        return named[0] if len(named) == 1 else None

    def symbol(self, text: str) -> tuple[str, str] | None:
        """Return the (symbol, path) of the one symbol that a text names and an edit of the session defines."""
        words = {re.split(r"[.:]+", next(filter(None, match.groups())))[-1] for match in _SYMBOL.finditer(text)}
        defined = [word for word in words if word in self.symbols]
        if len(defined) != 1 or len(self.symbols[defined[0]]) != 1:
            return None
        return defined[0], next(iter(self.symbols[defined[0]]))


def _words_in(text: str) -> list[str]:
    return [match[1].rstrip(".") for match in _MENTION.finditer(text)]
