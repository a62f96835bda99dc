"""Sync of files that hold units into the machine's index."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nugget.errors import KnowledgeError
from nugget.index import SyncResult
from nugget.index import units as stored
from nugget.index.connection import open_home
from nugget.index.sync import document_changes, sync_documents
from nugget.models import SourceName, Unit
from nugget.sources import ReadDocument

CANON = SourceName.CANON


@dataclass
class Lines:
    """A source of files in which every line is a unit `<number in the file's first word>`."""

    folder: Path
    name: SourceName = CANON
    read_keys: list[str] = field(default_factory=list)

    def files(self) -> Iterator[tuple[str, Path]]:
        for file in sorted(self.folder.rglob("*.txt")):
            yield file.relative_to(self.folder).as_posix(), file

    def read(self, key: str, file: Path) -> ReadDocument:
        self.read_keys.append(key)
        text = file.read_text("utf-8")
        if "grows" in text:
            file.write_text(text + "\nit was written meanwhile")
        if "refused" in text:
            raise KnowledgeError("it says refused")
        lines = [line.partition(" ") for line in text.splitlines()]
        units = tuple(
            Unit(id=name, source=self.name, type="note", title=said, body=f"# {said}\n\n{said} and more of {name}.")
            for name, _, said in lines
        )
        return ReadDocument(units=units)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("a1 retry payments\na2 log rotation")
    (folder / "b.txt").write_text("b1 cache warming")
    return folder


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_home(tmp_path / "home")) as connection:
        yield connection


def synced(folder: Path, connection: sqlite3.Connection) -> SyncResult:
    return sync_documents(Lines(folder), connection, embedder=None, cache_folder=folder)


def ids(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT id FROM units WHERE source = ? ORDER BY id", (CANON,))
    return [row[0] for row in rows]


def test_nothing_is_read_when_nothing_changed_and_nothing_written_when_only_the_time_did(
    folder: Path, connection: sqlite3.Connection
) -> None:
    synced(folder, connection)
    source = Lines(folder)
    assert len(document_changes(source, connection)) == 0
    os.utime(folder / "a.txt", ns=(1, 1))
    assert len(document_changes(source, connection)) == 1
    result = sync_documents(source, connection, embedder=None, cache_folder=folder)
    assert source.read_keys == [], "the hash is the same"
    assert (result.modified, result.unchanged, len(document_changes(source, connection))) == (0, 2, 0)


def test_a_file_that_cannot_be_taken_is_a_problem_and_stops_no_other(
    folder: Path, connection: sqlite3.Connection
) -> None:
    (folder / "a.txt").write_bytes(b"\xff\xfe broken")
    (folder / "aa.txt").write_text("refused")
    os.mkfifo(folder / "pipe.txt")
    result = synced(folder, connection)
    assert ids(connection) == ["b1"]
    assert [problem.path for problem in result.problems] == ["a.txt", "aa.txt", "pipe.txt"]
    assert str(result.problems[1]) == "aa.txt: cannot be read (it says refused)"
    (folder / "aa.txt").write_text("aa1 better now")
    assert [problem.path for problem in synced(folder, connection).problems] == ["a.txt", "pipe.txt"]


def test_an_id_belongs_to_one_file_until_that_file_is_gone(folder: Path, connection: sqlite3.Connection) -> None:
    (folder / "b.txt").write_text("a1 the same id")
    assert "the id a1 is there already, in a.txt" in str(synced(folder, connection).problems)
    (folder / "a.txt").unlink()
    result = synced(folder, connection)
    assert (result.problems, result.removed, ids(connection)) == ((), 1, ["a1"])
    assert stored.unit_path(connection, CANON, "a1") == "b.txt"
