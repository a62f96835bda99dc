"""Do the things that nuggets and units name still exist? Paths against the checkout, symbols against its text."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nugget.errors import GitError
from nugget.index import provenance as stored
from nugget.infra import git
from nugget.models import Unit
from nugget.provenance.checkout import Checkout, follow_renames
from nugget.provenance.symbols import can_read, find_definitions

_IN_ONE_GREP = 200
_QUOTED = re.compile(r"`([^`\n]{2,120})`")
_PATH = re.compile(r"(?<![\w:/.@-])(?:[\w.@+-]+/)+[\w.@+-]*\w\.[A-Za-z]\w{0,7}(?![\w/])")
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*(\(\))?")
_FILE = re.compile(r"[\w.-]+\.[A-Za-z]\w{0,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A path or symbol (`kind`) that a nugget or unit (`ref`) names and that is not there."""

    ref: str
    summary: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class _Named:
    """The names that one nugget or unit mentions."""

    ref: str
    summary: str
    path: str | None
    symbol: str | None
    text: str


def check_names(
    connection: sqlite3.Connection, checkout: Checkout, units: Sequence[Unit] = ()
) -> tuple[list[Missing], int]:
    """Return which mentioned names are missing, and how many nuggets and units were checked.

    Scopes count, paths in the text, and symbols in backquotes. A renamed file is there. A symbol is there when its
    name stands anywhere in the checkout.
    """
    identity = checkout.workspace.identity
    named = [
        _Named(f"provenance:{one.id}", one.summary, one.scope.path, one.scope.symbol, f"{one.summary}\n{one.detail}")
        for one in stored.nugget_list(connection, identity)
    ]
    named += [
        _Named(unit.ref, unit.title, unit.scope.path if unit.scope else None, unit.scope.symbol if unit.scope else None,
               unit.body)
        for unit in units
    ]  # fmt: skip
    mentioned = {path for one in named for path in (one.path, *_paths_in(one.text)) if path}
    aliases = follow_renames(connection, checkout, mentioned)
    tracked = _tracked(checkout)
    absent = _absent_words(checkout, {word for one in named for word in _symbols_in(one.text)})
    found: dict[tuple[str, str, str], Missing] = {}
    for one in named:
        for kind, name in (
            *_scope_missing(one, checkout, aliases),
            *_text_missing(one, checkout, aliases, tracked, absent),
        ):
            found.setdefault((one.ref, kind, name), Missing(ref=one.ref, summary=one.summary, kind=kind, name=name))
    return list(found.values()), len(named)


def _scope_missing(one: _Named, checkout: Checkout, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    present = aliases.get(one.path, one.path) if one.path else None
    if present and not checkout.exists(present):
        yield "path", present
    elif one.symbol and present and can_read(present) and not find_definitions(checkout, one.symbol, path=present):
        yield "symbol", one.symbol


def _text_missing(
    one: _Named, checkout: Checkout, aliases: dict[str, str], tracked: frozenset[str], absent: frozenset[str]
) -> Iterator[tuple[str, str]]:
    for path in dict.fromkeys(_paths_in(one.text)):
        # A path may be told from a folder inside: `auth/login.py` for `src/auth/login.py`.
        is_there = path == one.path or path in aliases or checkout.exists(path)
        if not is_there and not any(file.endswith(f"/{path}") for file in tracked):
            yield "path", path
    for word in dict.fromkeys(_symbols_in(one.text)):
        if word in absent and word != one.symbol:
            yield "symbol", word


def _paths_in(text: str) -> list[str]:
    return [found.removeprefix("./") for found in _PATH.findall(text) if not found.startswith((".", "/"))]


def _symbols_in(text: str) -> Iterator[str]:
    """The last part of each name in backquotes that looks like one of code: `login()`, `max_age`, `TokenStore.get`."""
    for quoted in _QUOTED.findall(text):
        found = _NAME.fullmatch(quoted)
        if found is None or (_FILE.fullmatch(quoted) and "." in quoted and quoted.rpartition(".")[2].islower()
                             and not found[1] and "_" not in quoted and quoted.islower()):  # fmt: skip
            continue
        name = re.split(r"\.|::", quoted.removesuffix("()"))[-1]
        if found[1] or "_" in name or (name.lower() != name and name.upper() != name and not name.istitle()):
            yield name


def _tracked(checkout: Checkout) -> frozenset[str]:
    if checkout.workspace.common_dir is None:
        return frozenset()
    command = ("ls-tree", "-r", "-z", "--name-only", "HEAD") if checkout.is_bare else ("ls-files", "-z", "-c", "-o",
                                                                                      "--exclude-standard")  # fmt: skip
    try:
        output = git.run(checkout.workspace.root, *command, check=False, timeout_s=20)
    except GitError:
        return frozenset()
    return frozenset(output.decode("utf-8", "surrogateescape").split("\0")) - {""}


def _absent_words(checkout: Checkout, words: Iterable[str]) -> frozenset[str]:
    """Return the words that occur in no file. Without git nothing is known to be absent."""
    wanted = sorted(words)
    if checkout.workspace.common_dir is None or not wanted:
        return frozenset()
    where = ["HEAD"] if checkout.is_bare else []
    untracked = [] if checkout.is_bare else ["--untracked"]
    present: set[str] = set()
    for start in range(0, len(wanted), _IN_ONE_GREP):
        part = [argument for word in wanted[start : start + _IN_ONE_GREP] for argument in ("-e", word)]
        try:
            output = git.run(
                checkout.workspace.root, "grep", "-h", "-o", "-w", "-I", "--fixed-strings", *untracked, *part, *where,
                check=False, timeout_s=30,
            )  # fmt: skip
        except GitError:
            return frozenset()
        present |= set(output.decode("utf-8", "replace").split())
    return frozenset(wanted) - present
