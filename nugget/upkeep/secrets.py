"""Secrets that slipped through: find them in every store and in the brain's history, and take them out of stores."""

from __future__ import annotations

import gzip
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from nugget.errors import NuggetError, reason_of
from nugget.index.connection import remove_database
from nugget.infra import files, git
from nugget.redaction import Redacted, redact, secret_lines

_NOT_STORES = frozenset({"models", "cache", ".git"})
_DATABASE = b"SQLite format 3\0"
_PACKED = b"\x1f\x8b"
_OBJECT = re.compile(rb"([0-9a-f]{40,64}) (\w+) (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A secret where none should be: its store (`home`, `brain` or `history`), its place there, its line and kind."""

    store: str
    place: str
    line: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """Result of `scrub`: files rewritten, indexes removed, and what it cannot mend."""

    rewritten: tuple[Path, ...]
    removed: tuple[Path, ...]
    failed: tuple[str, ...]
    history: tuple[str, ...]


def find_leaks(home: Path, brain: Path, *, allow: Sequence[re.Pattern[str]] = ()) -> Iterator[Leak]:
    """Yield the secrets below `$NUGGET_HOME`, in the brain's files and in all objects of its repository."""
    for store, folder in (("home", home), ("brain", brain)):
        for file in _stored_files(folder):
            with suppress(OSError, EOFError, sqlite3.Error):
                for line, kind in secret_lines(_text_of(file), allow=allow):
                    yield Leak(store=store, place=str(file), line=line, kind=kind)
    if git.is_repository(brain):
        for name, text in _objects(brain):
            for line, kind in secret_lines(text, allow=allow):
                yield Leak(store="history", place=name, line=line, kind=kind)


def scrub(
    home: Path, brain: Path, known: Sequence[str] = (), *, allow: Sequence[re.Pattern[str]] = (), dry_run: bool = False
) -> Scrubbed:
    """Take what redaction finds, and the `known` secrets, out of the stores below `$NUGGET_HOME` and the brain's files.

    An index that holds one is removed, since it is made from the files again. The queue's lock is held meanwhile.
    Raises NuggetError if a worker has it.
    """
    if dry_run:
        return _scrubbed(home, brain, known, allow, dry_run=True)
    try:
        files.private_folder(files.queue_folder(home))
        with files.locked(Path(files.queue_folder(home)) / "worker.lock", wait=False):
            return _scrubbed(home, brain, known, allow, dry_run=False)
    except BlockingIOError as error:
        raise NuggetError("A worker captures sessions now.", hint="Run the command again when it is done.") from error


def _scrubbed(
    home: Path, brain: Path, known: Sequence[str], allow: Sequence[re.Pattern[str]], *, dry_run: bool
) -> Scrubbed:
    rewritten, removed, failed = [], [], []
    for file in [*_stored_files(home), *_stored_files(brain)]:
        try:
            if not _cleaned(_text_of(file), known, allow).counts:
                continue
            if _is_database(file):
                removed.append(file)
                if not dry_run:
                    remove_database(file)
            else:
                rewritten.append(file)
                if not dry_run:
                    _rewrite(file, known, allow)
        except (OSError, EOFError, sqlite3.Error) as error:
            failed.append(f"{file}: {reason_of(error)}")
    objects = _objects(brain) if git.is_repository(brain) else iter(())
    history = tuple(name for name, text in objects if _cleaned(text, known, allow).counts)
    return Scrubbed(rewritten=tuple(rewritten), removed=tuple(removed), failed=tuple(failed), history=history)


def _cleaned(text: str, known: Sequence[str], allow: Sequence[re.Pattern[str]]) -> Redacted:
    counts: Counter[str] = Counter()
    for secret in filter(None, known):
        counts["scrubbed"] += text.count(secret)
        text = text.replace(secret, "[redacted:scrubbed]")
    redacted = redact(text, allow=allow)
    return Redacted(text=redacted.text, counts=dict(+(counts + Counter(redacted.counts))))


def _rewrite(file: Path, known: Sequence[str], allow: Sequence[re.Pattern[str]]) -> None:
    cleaned = _cleaned(_text_of(file), known, allow).text.encode("utf-8", "surrogateescape")
    packed = file.read_bytes()[:2] == _PACKED
    files.replace(file, gzip.compress(cleaned, mtime=0) if packed else cleaned, mode=file.stat().st_mode & 0o777)


def _stored_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a store, but for models, compiled rules and git's own."""
    for file in sorted(folder.rglob("*")):
        inside = set(file.relative_to(folder).parts)
        side_file = file.name.endswith(("-wal", "-shm", "-journal", ".lock"))
        if not inside & _NOT_STORES and not side_file and file.is_file() and not file.is_symlink():
            yield file


def _is_database(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_DATABASE)) == _DATABASE


def _text_of(file: Path) -> str:
    """Return the text of a file: unpacked, or the rows of a database with what its write-ahead log holds."""
    if _is_database(file):
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            return "\n".join(_rows(connection))
    content = file.read_bytes()
    if content[:2] == _PACKED:
        content = gzip.decompress(content)
    return content.decode("utf-8", "surrogateescape")


def _rows(connection: sqlite3.Connection) -> Iterator[str]:
    tables = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        with suppress(sqlite3.Error):  # a virtual table of an extension that is not loaded
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from (value for value in row if isinstance(value, str))


def _objects(brain: Path) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of every blob and commit of a repository, reachable or not."""
    output = git.run(brain, "cat-file", "--batch-all-objects", "--batch")
    position = 0
    while found := _OBJECT.match(output, position):
        size = int(found[3])
        body = output[found.end() + 1 : found.end() + 1 + size]
        position = found.end() + size + 2
        if found[2] in (b"blob", b"commit", b"tag"):
            yield f"{found[2].decode()} {found[1].decode()[:12]}", body.decode("utf-8", "replace")
