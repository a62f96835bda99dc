"""List the nuggets of a workspace by file, gaps, and names that are gone.

Nuggets travel between machines as the lines of the store: a `session` line, then its nuggets and touches. An import
only adds: nuggets that the store has by session, type, summary and scope stay as they are. Every line is checked,
redacted, and written to the folder of the workspace that it names, nowhere else.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from nugget.config import Settings
from nugget.extraction.places import definition_reader
from nugget.index.embedded import provenance as stored
from nugget.models import Problem, Scope, Speaker, SpeechOrigin, Unit
from nugget.models.nuggets import FileTouch, Nugget, SessionRecord
from nugget.provenance.checkout import Checkout, find_definitions, follow_renames
from nugget.redaction import allow_list
from nugget.sources import nugget_store as store
from nugget.sources import read_lines

CHURN_DAYS = 180
"""The days over which changes are counted."""
_NO_CODE = (
    ".lock", ".sum", ".svg", ".png", ".jpg", ".gif", ".ico", ".pdf", ".woff", ".woff2", ".map", ".snap", ".min.js",
    "package-lock.json", "CHANGELOG.md", ".gitignore",
)  # fmt: skip
"""Files that change without any decision."""
_ELSEWHERE: dict[str, Any] = {"speaker": Speaker.QUOTED, "origin": SpeechOrigin.PASTED}
"""The speaker and origin of imported words that claim to be the user's."""
_PATH = re.compile(r"(?<![\w:/.@-])(?:[\w.@+-]+/)+[\w.@+-]*\w\.[A-Za-z]\w{0,7}(?![\w/])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Counts of a file's questions, nuggets and commits."""

    path: str
    queries: int = 0
    nuggets: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Missing knowledge: files that were `asked` about, and `unexplained` ones that change often without a nugget."""

    asked: tuple[Covered, ...]
    unexplained: tuple[Covered, ...]
    degraded: tuple[str, ...] = ()


def coverage(connection: sqlite3.Connection, checkout: Checkout) -> list[Covered]:
    """Return the files of a workspace with nuggets, most nuggets first, under their present names."""
    scoped = stored.scoped_paths(connection, checkout.workspace.identity)
    aliases = follow_renames(connection, checkout, scoped)
    counts: Counter[str] = Counter()
    for path, count in scoped.items():
        counts[aliases.get(path, path)] += count
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [Covered(path=path, nuggets=count) for path, count in ordered]


def find_gaps(connection: sqlite3.Connection, checkout: Checkout, queries: Counter[str], *, now: datetime) -> Gaps:
    """Return the gaps of a workspace; `queries` says how often each path was asked about.

    A file is a gap if it has more questions than nuggets (sorted by their ratio), or if it has no nuggets and was
    changed in CHURN_DAYS days (sorted by changes).
    """
    covered = {one.path: one.nuggets for one in coverage(connection, checkout)}
    changes, degraded = _changes(checkout, now)

    def known(path: str) -> int:
        return covered.get(path, 0) or sum(count for file, count in covered.items() if file.startswith(f"{path}/"))

    files = [
        Covered(path=path, queries=queries[path], nuggets=known(path), changes=changes[path])
        for path in sorted(queries.keys() | changes.keys())
        if checkout.exists(path)
    ]
    gaps = [one for one in files if one.queries > one.nuggets]
    silent = [one for one in files if one.changes and one.path not in covered and not one.path.endswith(_NO_CODE)]
    return Gaps(
        asked=tuple(sorted(gaps, key=lambda one: (-one.queries / (1 + one.nuggets), -one.changes))),
        unexplained=tuple(sorted(silent, key=lambda one: -one.changes)), degraded=degraded,
    )  # fmt: skip


def _changes(checkout: Checkout, now: datetime) -> tuple[Counter[str], tuple[str, ...]]:
    """Count the recent commits that changed each file; empty, with `no_churn`, if git fails."""
    since = (now - timedelta(days=CHURN_DAYS)).isoformat()
    command = ("log", "--format=", "--name-only", "--no-renames", "--no-merges", "-z", f"--since={since}", "HEAD")
    output = checkout.git(*command, check=True)
    if output is None:
        return Counter(), ("no_churn",)
    return Counter(path for token in output.split("\0") if (path := token.strip("\n"))), ()


def check_names(
    connection: sqlite3.Connection, checkout: Checkout, units: Sequence[Unit] = ()
) -> tuple[list[dict[str, str]], int]:
    """Return the named paths and symbols (`kind`) that are missing, and how many nuggets and units were checked.

    Scopes are checked, and paths and symbols in backquotes in texts. A renamed file counts as present, and so does a
    symbol whose name occurs anywhere in the checkout.
    """
    named = [
        (f"provenance:{one.id}", one.summary, one.scope, f"{one.summary}\n{one.detail}")
        for one in stored.nugget_list(connection, checkout.workspace.identity)
    ]
    named += [(unit.ref, unit.title, unit.scope or Scope(), unit.body) for unit in units]
    mentioned = {path for _, _, scope, text in named for path in (scope.path, *_paths_in(text)) if path}
    aliases = follow_renames(connection, checkout, mentioned)
    tracked = frozenset((checkout.git("ls-files", "-z", "-c", "-o", "--exclude-standard") or "").split("\0"))
    words = {word for *_, text in named for word in _symbols_in(text)}
    search = ("grep", "-h", "-o", "-w", "-I", "--fixed-strings", "--untracked", "-f", "-")
    output = checkout.git(*search, stdin="\n".join(sorted(words)).encode()) if words else None
    absent = set() if output is None else words - set(output.split())  # without git nothing counts as missing

    definitions = partial(find_definitions, checkout)

    def missing(scope: Scope, text: str) -> Iterator[tuple[str, str]]:
        present = aliases.get(scope.path, scope.path) if scope.path else None
        if present and not checkout.exists(present):
            yield "path", present
        elif present and (word := scope.symbol) and definition_reader(present) and not definitions(word, present):
            yield "symbol", word
        for path in _paths_in(text):
            # A path may start at an inner folder: `auth/login.py` for `src/auth/login.py`.
            is_there = path == scope.path or path in aliases or checkout.exists(path)
            if not is_there and not any(file.endswith(f"/{path}") for file in tracked):
                yield "path", path
        yield from (("symbol", word) for word in _symbols_in(text) if word in absent and word != scope.symbol)

    found = [
        {"ref": ref, "summary": summary, "kind": kind, "name": name}
        for ref, summary, scope, text in named
        for kind, name in dict.fromkeys(missing(scope, text))
    ]
    return found, len(named)


def _paths_in(text: str) -> list[str]:
    return [path.removeprefix("./") for path in dict.fromkeys(_PATH.findall(text)) if not path.startswith((".", "/"))]


def _symbols_in(text: str) -> Iterator[str]:
    """Yield the last part of each name in backquotes that looks like code: `login()`, `max_age`, `TokenStore.get`."""
    for quoted in re.findall(r"`([^`\n]{2,120})`", text):
        found = re.fullmatch(r"(?:[A-Za-z_]\w*(?:\.|::))*([A-Za-z_]\w*)(\(\))?", quoted)
        if found is None or (quoted.islower() and "." in quoted and "_" not in quoted and not found[2]):
            continue  # a file name, such as `config.py`
        name = found[1]
        if found[2] or "_" in name or (name.lower() != name and name.upper() != name and not name.istitle()):
            yield name


def export_lines(home: Path, workspace: str | None = None) -> Iterator[str]:
    """Yield the lines (without ends) of all sessions of a workspace, by default of every workspace.

    The paths of transcripts on this machine are left out.
    """
    for file in store.session_files(home, workspace):
        record = replace(store.read_session_file(file)[0], workspace=file.parent.name, transcript=None)
        lines = (store.line_of(record), *map(store.line_of, record.nuggets), *map(store.line_of, record.touches))
        yield from (json.dumps(line, ensure_ascii=False) for line in lines)


def import_lines(
    home: Path, stream: BinaryIO, *, name: str, settings: Settings, dry_run: bool = False
) -> dict[str, Any]:
    """Import the lines of `export_lines`; return the counts and the problems. A bad line does not stop the rest.

    `name` is the file's, for its problems.
    """
    problems: list[Problem] = []
    counts = Counter(dict.fromkeys(("sessions", "new", "known", "touches"), 0))
    for given, nuggets, touches in _sessions(stream, name, problems):
        record = replace(given, nuggets=tuple(nuggets), touches=tuple(touches))
        merged, added = _merged(home, record)
        counts.update(sessions=1, new=added, known=len(nuggets) - added, touches=len(touches))
        try:
            if not dry_run:
                store.write_session(home, merged, allow=allow_list(settings))
        except OSError as error:
            problems.append(Problem(path=name, reason=f"session {record.session} cannot be written ({error.strerror})"))
    return {**counts, "problems": [str(problem) for problem in problems]}


def _sessions(
    stream: BinaryIO, name: str, problems: list[Problem]
) -> list[tuple[SessionRecord, list[Nugget], list[FileTouch]]]:
    """Return each session of an import with its nuggets and touches."""
    found: list[tuple[SessionRecord, list[Nugget], list[FileTouch]]] = []
    for number, (_, line) in enumerate(read_lines(stream, limit=store.MAX_LINE_BYTES), 1):
        try:
            value = store.read_line(line)
            if isinstance(value, SessionRecord):  # only a transcript on this machine could add more
                found.append((replace(value, records=0, transcript=None), [], []))
            elif isinstance(value, Nugget | FileTouch) and not found:
                raise ValueError("a nugget or touch without a session before it")
            elif isinstance(value, Nugget):
                found[-1][1].append(_imported_nugget(value, found[-1][0]))
            elif isinstance(value, FileTouch):
                found[-1][2].append(value)
        except ValueError as error:
            problems.append(Problem(path=name, line=number, reason=str(error)))
    return found


def _imported_nugget(nugget: Nugget, record: SessionRecord) -> Nugget:
    """Return a nugget that cannot claim to be of another session or repository, or words of this machine's user."""
    evidence = tuple(
        replace(one, session=record.session, **(_ELSEWHERE if one.speaker is Speaker.USER else {}))
        for one in nugget.evidence
    )
    speech = _ELSEWHERE if nugget.speaker is Speaker.USER else {}
    scope = replace(nugget.scope, repo=record.workspace)
    return replace(nugget, session=record.session, scope=scope, agent=record.agent, evidence=evidence, **speech)


def _merged(home: Path, record: SessionRecord) -> tuple[SessionRecord, int]:
    """Return the session as it will be stored, and the number of added nuggets."""
    file = store.session_file(home, record.workspace, record.session)
    here = store.read_session_file(file)[0] if file.is_file() else replace(record, nuggets=(), touches=())
    known = {store.natural_key(nugget) for nugget in here.nuggets}
    fresh = {key: nugget for nugget in reversed(record.nuggets) if (key := store.natural_key(nugget)) not in known}
    paths = {touch.path for touch in here.touches}
    touches = {touch.path: touch for touch in record.touches if touch.path not in paths}
    nuggets = [replace(nugget, id="") for nugget in reversed(fresh.values())]
    merged = replace(
        here, workspace=record.workspace, nuggets=(*here.nuggets, *nuggets), touches=(*here.touches, *touches.values())
    )
    return merged, len(nuggets)
