"""Where in the workspace a thing belongs: paths as agents name them, files that a text mentions, symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nugget.infra.workspace import Workspace, relative_path
from nugget.models import Event, Session

_MENTION = re.compile(r"(?<![\w/])@?((?:~|\.{1,2})?/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*)")
"""What may be a path in prose; what is none is not found among the files."""
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
        """The path relative to the root of its checkout; None outside and where it is excluded."""
        if path not in self.known:
            folder = self.session.cwd
            found = ((root, relative_path(root, path, folder=folder)) for root in self.roots)
            root, inside = next(((root, one) for root, one in found if one), (None, None))
            nested = [one for one in self.others if root and one.root.is_relative_to(root.root)]
            foreign = any(relative_path(one, path, folder=folder) for one in nested)
            self.known[path] = None if inside is None or foreign or is_excluded(inside, self.excluded) else inside
        return self.known[path]

    def is_file(self, path: str) -> bool:
        """Whether a path of the workspace is a file now."""
        try:
            return any((root.root / path).is_file() for root in self.roots)
        except OSError:
            return False


def is_excluded(path: str, globs: Iterable[str]) -> bool:
    """Whether a path matches one of the globs, whole or from any folder on."""
    return any(
        fnmatchcase(path, glob) or fnmatchcase(path, f"*/{glob}") or fnmatchcase(path, f"{glob}/*") for glob in globs
    )


def definitions(code: str) -> str:
    """The lines of a piece of code that define a symbol, cut down to that."""
    return "\n".join(match[0].strip() for match in _DEFINITION.finditer(code[:200_000]))


@dataclass(slots=True)
class Mentions:
    """Finds the files and symbols that a text mentions, among `paths` first."""

    places: Places
    paths: Sequence[str]
    edits: Sequence[tuple[str, Event]] = ()
    names: dict[str, list[str]] = field(default_factory=dict)
    symbols: dict[str, set[str]] | None = None

    def __post_init__(self) -> None:
        for path in self.paths:
            self.names.setdefault(path.rpartition("/")[2].lower(), []).append(path)

    def files(self, text: str) -> list[str]:
        """The touched files that a text names: by path, by the end of one, or by a name that only one of them has."""
        if not self.names:
            return []
        found: dict[str, None] = {}
        for match in _MENTION.finditer(text):
            word = match[1].rstrip(".")
            candidates = self.names.get(word.rpartition("/")[2].lower(), ())
            if not candidates and "." not in word:
                continue
            bare = re.sub(r"^(?:\.{0,2}/)+", "", word)
            ending = [
                path for path in candidates if path == bare or path.endswith(f"/{bare}") or word.endswith(f"/{path}")
            ]
            if len(ending) == 1:
                found[ending[0]] = None
        return list(found)

    def any_file(self, text: str) -> str | None:
        """The one file that a text names, touched or not; None for none and for several."""
        named = self.files(text)
        if not named:
            words = {match[1].rstrip(".") for match in _MENTION.finditer(text) if "/" in match[1]}
            inside = {path for word in words if (path := self.places.find(word)) and self.places.is_file(path)}
            named = sorted(inside)
        return named[0] if len(named) == 1 else None

    def symbol(self, text: str) -> tuple[str, str] | None:
        """The (symbol, path) of the one symbol that a text names and an edit of the session defines."""
        words = {next(filter(None, match.groups())) for match in _SYMBOL.finditer(text)}
        if not words:
            return None
        if self.symbols is None:
            self.symbols = {}
            for path, event in self.edits:
                for match in _DEFINITION.finditer(event.after or ""):
                    self.symbols.setdefault(match[1], set()).add(path)
        defined = {word: self.symbols[tail] for word in words if (tail := re.split(r"[.:]+", word)[-1]) in self.symbols}
        if len(defined) != 1:
            return None
        word, paths = defined.popitem()
        return (re.split(r"[.:]+", word)[-1], next(iter(paths))) if len(paths) == 1 else None
