"""Repair what killed processes left, remove secrets that slipped through, back up `$NUGGET_HOME` and restore it."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from nugget.errors import ConflictError, NuggetError, UsageError, reason_of
from nugget.index.embedded.connection import find_damage, index_folder, remove_database
from nugget.infra import files, git, system
from nugget.redaction import redact_all
from nugget.text import counted, printable, slugify, tracked

_LEFTOVER = r"\..+\.(\d+)\.[0-9a-f]{8}(?:\.partial)?"
"""Names of our temporary files, with the id of the process."""
_GIT_TAKES_S = 60.0
"""The age from which a lock of git is stale."""
_UNKNOWN_TAKES_S = 3600.0
"""The age from which a temporary file is stale even if its process seems to run."""
_NOT_STORES = frozenset({"models", "cache", "brains.jsonl", "http-header", "run"})
"""Not searched for secrets: ids of brains look like keys, and the keys of our own servers are to stay as they are."""
_DATABASE = b"SQLite format 3\0"
_PACKED = b"\x1f\x8b"


def repair(brain: Path, home: Path) -> list[str]:
    """Finish or drop interrupted changes, and remove stale locks, leftovers and damaged databases.

    Returns a sentence for each repair, and for each that failed. The next sync rebuilds removed databases.
    """
    messages: list[str] = []
    steps = [_leftovers(brain, home), _databases(brain, home)]
    if git.is_repository(brain):
        steps = [_locks(brain), _changes(brain), *steps]
    for step in steps:
        try:
            messages += step
        except (NuggetError, OSError) as error:
            messages.append(f"Not repaired: {error}")
    if mended := files.make_private(home, index_folder(brain, home)):
        messages.append(f"Removed other users' rights from {counted(len(mended), 'file')} of Nugget.")
    return messages


def _locks(brain: Path) -> Iterator[str]:
    """Remove stale locks of git."""
    for lock in git.lock_files(brain):
        with suppress(FileNotFoundError):
            age_s = time.time() - lock.lstat().st_mtime
            if age_s > _GIT_TAKES_S:
                lock.unlink()
                yield f"Removed {lock}: the git that made it {age_s:.0f} s ago is gone."


def _changes(brain: Path) -> Iterator[str]:
    """Finish or drop an interrupted change."""
    if (git.git_dir(brain) / "nugget" / "work").exists():
        with git.only_writer(brain):
            pass
        yield "Finished or dropped the change that a killed command left."


def _leftovers(brain: Path, home: Path) -> Iterator[str]:
    """Remove temporary files of processes that are gone."""
    for file in (file for root in (home, index_folder(brain, home), brain / "domains") for file in root.rglob(".*")):
        found = re.fullmatch(_LEFTOVER, file.name)
        with suppress(FileNotFoundError):
            is_old = time.time() - file.lstat().st_mtime > _UNKNOWN_TAKES_S
            if found and file.is_file() and (is_old or not system.is_running(int(found[1]))):
                file.unlink()
                yield f"Removed {printable(str(file))}, left by process {found[1]}, which is gone."


def _databases(brain: Path, home: Path) -> Iterator[str]:
    """Remove damaged indexes, and leftovers of interrupted rebuilds."""
    for folder in (home, *(home / "indexes").glob("*"), home / "memory-indexes", index_folder(brain, home)):
        for file in sorted(folder.glob("*.db")):
            if damage := find_damage(file):
                remove_database(file)
                yield f"Removed {printable(str(file))}, which was damaged ({printable(damage)}); it is rebuilt."
        for file in sorted(folder.glob("*.db.new")):
            remove_database(file)
            yield f"Removed {printable(str(file))}, left by an interrupted rebuild."


def find_leaks(home: Path, brain: Path, *, allow: Sequence[re.Pattern[str]] = ()) -> Iterator[dict[str, Any]]:
    """Yield the secrets below `$NUGGET_HOME`, in the brain's files and in all objects of its repository.

    Each has its `store` (`home`, `brain` or `history`), its `place` there, its `line` and `kind`.
    """
    for store, folder in (("home", home), ("brain", brain)):
        for file in tracked(_stored_files(folder), f"Reading the {store} (MB)", _megabytes):
            with suppress(OSError, EOFError, sqlite3.Error):
                yield from ({"store": store, "place": str(file)} | leak for leak in _leaks_in(_text_of(file), allow))
    for name, text in tracked(_object_texts(brain), "Reading the history"):
        yield from ({"store": "history", "place": name} | leak for leak in _leaks_in(text, allow))


def _leaks_in(text: str, allow: Sequence[re.Pattern[str]]) -> Iterator[dict[str, Any]]:
    sides = ([Counter(re.findall(r"\[redacted:([\w-]+)\]", line)) for line in side.split("\n")]
             for side in (text, _cleaned(text, (), allow)))  # fmt: skip
    for number, (old, new) in enumerate(zip(*sides, strict=True), 1):
        yield from ({"line": number, "kind": kind} for kind in (new - old).elements())


def scrub(
    home: Path, brain: Path, known: Sequence[str] = (), *, allow: Sequence[re.Pattern[str]] = ()
) -> dict[str, list[str]]:
    """Remove what redaction finds, and the `known` secrets, from the stores below `$NUGGET_HOME` and the brain's files.

    Returns the files `rewritten`, the indexes `removed` (they are rebuilt), what `failed`, such as a file whose name
    holds a secret, and the objects of the git `history` with one. Raises NuggetError while a worker holds the lock.
    """
    done: dict[str, list[str]] = {"rewritten": [], "removed": [], "failed": []}
    known = [*known, *(slug for slug in map(slugify, known) if len(slug) > 5)]
    try:
        with files.locked(home / "queue" / "worker.lock", wait=False):
            for file in tracked([*_stored_files(home), *_stored_files(brain)], "Reading (MB)", _megabytes):
                try:
                    inside = file.relative_to(brain if file.is_relative_to(brain) else home).as_posix()
                    if any(secret in inside for secret in known):
                        raise NuggetError("a secret is in its name; rename it first (a unit by `nugget mv`)")
                    content = _cleaned(text := _text_of(file), known, allow).encode("utf-8", "surrogateescape")
                    if content == text.encode("utf-8", "surrogateescape"):
                        continue
                    if _begins(file, _DATABASE):
                        remove_database(file)
                        done["removed"].append(str(file))
                        continue
                    content = gzip.compress(content, mtime=0) if _begins(file, _PACKED) else content
                    files.replace(file, content, mode=file.stat().st_mode & 0o777)
                    done["rewritten"].append(str(file))
                except (OSError, EOFError, sqlite3.Error, NuggetError) as error:
                    done["failed"].append(f"{file}: {reason_of(error)}")
    except BlockingIOError as error:
        raise NuggetError("A worker captures sessions now.", hint="Run the command again when it is done.") from error
    objects = tracked(_object_texts(brain), "Reading the history")
    return done | {"history": [name for name, text in objects if _cleaned(text, known, allow) != text]}


def _cleaned(text: str, known: Sequence[str], allow: Sequence[re.Pattern[str]]) -> str:
    """Return a text without secrets, with as many lines. Strings of JSON are read as they were when it was written."""
    parts = re.split(r'("[^"\\\n]*(?:\\.[^"\\\n]*)*")', text) if text.startswith('{"') else [text]
    plain = strings = [_unquoted(part) for part in parts]
    for secret in filter(None, known):
        plain = [one.replace(secret, "[redacted:scrubbed]") for one in plain]
    found = zip(parts, strings, redact_all(plain, allow=allow, keep_lines=True), strict=True)
    return "".join(part if one.text == string else one.text if part == string else json.dumps(one.text)
                   for part, string, one in found)  # fmt: skip


def _unquoted(part: str) -> str:
    with suppress(ValueError):
        part = str(json.loads(part, strict=False)) if part.startswith('"') else part
    return part


def _stored_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a store, except `_NOT_STORES`, the files of git, those beside databases, and locks."""
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).parts
        is_other = ".git" in inside or file.name.endswith(("-wal", "-shm", "-journal", ".lock"))
        if not (is_other or {inside[0], inside[-1]} & _NOT_STORES) and file.is_file() and not file.is_symlink():
            yield file


def _megabytes(file: Path) -> float:
    return file.stat().st_size / 1e6


def _begins(file: Path, start: bytes) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(start)) == start


def _text_of(file: Path) -> str:
    """Return the text of a file, unpacked, or a database's rows and write-ahead log, with strings of JSON apart."""
    if _begins(file, _DATABASE):
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            return "\n---\x1f\n".join(_rows(connection)).replace('", "', '"\n\x1f"')
    content = file.read_bytes()
    content = gzip.decompress(content) if content.startswith(_PACKED) else content
    return content.decode("utf-8", "surrogateescape")


def _rows(connection: sqlite3.Connection) -> Iterator[str]:
    tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        with suppress(sqlite3.Error):  # a virtual table whose extension is not loaded
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from (value for value in row if isinstance(value, str))


def _object_texts(brain: Path) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of every blob, commit and tag of a repository, reachable or not."""
    output = git.run(brain, "cat-file", "--batch-all-objects", "--batch") if git.is_repository(brain) else b""
    stream = BytesIO(output)
    while header := stream.readline():
        name, kind, size = header.decode().split()
        body = stream.read(int(size) + 1)[:-1]
        if kind != "tree":
            yield f"{kind} {name[:12]}", body.decode("utf-8", "replace")


_DERIVED = frozenset(
    ("index.db", "memory-indexes", "indexes", "embeddings", "cache", "models", "locks", "log", "run", "http-header")
)


def backup(home: Path, target: Path) -> int:
    """Write what cannot be derived to a new archive that only its owner can read; return the number of files."""
    if target.exists() or not target.parent.is_dir():
        reason = "exists already" if target.exists() else "is in a folder that does not exist"
        raise UsageError(f"{target} {reason}.", hint="Name another file.")
    partial = target.with_name(f".{target.name}.partial")
    count = 0
    try:
        with files.open_private(partial, "wb") as opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            for file in _kept(home):
                with suppress(FileNotFoundError):  # a job that another process has moved
                    archive.add(file, arcname=file.relative_to(home).as_posix(), recursive=False)
                    count += 1
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _kept(home: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(home):
        if Path(folder) == home:
            folders[:] = [name for name in folders if name not in _DERIVED]
        for name in sorted(names):
            file = Path(folder, name)
            is_derived = name.startswith("index.db") or name.endswith((".lock", ".partial", ".started"))
            if not is_derived and name not in _DERIVED and file.is_file() and not file.is_symlink():
                yield file


def restore(home: Path, source: Path) -> int:
    """Restore a backup into an empty home; return the number of files.

    An archive with anything but plain files and folders is refused. Raises UsageError, ConflictError if the home
    is in use, NuggetError for an archive that cannot be read; nothing was changed then.
    """
    if next(_kept(home), None) is not None:
        raise ConflictError(f"{home} is not empty; nothing was restored.", hint="Move it away first.")
    files.private_folder(home.parent)
    try:
        with (
            gzip.open(source) as stream, tarfile.open(fileobj=stream, mode="r:") as archive,
            tempfile.TemporaryDirectory(dir=home.parent) as folder,
        ):  # fmt: skip
            members = archive.getmembers()
            if odd := next((one.name for one in members if not one.isfile() or one.name.startswith("/")), None):
                raise UsageError(f"{odd!r} in the archive is not a plain file inside it; nothing was restored.")
            while stream.read(1 << 20):  # read to the end, to check the checksum
                pass
            for member in members:
                archive.extract(member, folder, filter="data")
            files.make_private(folder)
            for file in filter(Path.is_file, Path(folder).rglob("*")):  # locks may be there already
                place = home / file.relative_to(folder)
                files.private_folder(place.parent)
                file.replace(place)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise NuggetError(f"{source} cannot be restored ({reason_of(error)}); nothing was changed.") from error
    return len(members)
