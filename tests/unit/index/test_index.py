"""The index beneath sync and retrieval: vectors at any size, terms, full text, transactions."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nugget.index import Index
from nugget.index import units as stored
from nugget.index.connection import connect, create, load_sqlite_vec, open_existing, write_transaction
from nugget.index.fulltext import (
    compound_parts,
    nearest,
    pieces,
    question_words,
)
from nugget.index.vectors import open_cache
from nugget.models import Chunk, Filter, SourceName, Unit


def unit(number: int, body: str = "text", *, title: str = "Some title") -> Unit:
    return Unit(id=f"concept/n{number}", source=SourceName.BRAIN, type="concept", title=title, body=body)


def chunk(text: str, position: int = 0) -> Chunk:
    return Chunk(breadcrumb="Some title", text=text, position=position)


@pytest.mark.proves("INDEX-EXTENSION")
def test_sqlite_vec_loads_both_ways(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "x.db")) as connection:
        assert load_sqlite_vec(connection), "this Python: by loading the extension, or by registering it"
    other = pytest.importorskip(
        "pysqlite3", reason="pysqlite3, whose connections can load extensions, has no wheel here"
    )
    with closing(other.connect(str(tmp_path / "x.db"))) as loadable:
        assert load_sqlite_vec(loadable)
        a, b = np.float32([1, 0]).tobytes(), np.float32([0, 1]).tobytes()
        assert loadable.execute("SELECT vec_distance_L2(?, ?)", (a, b)).fetchone()[0] == pytest.approx(math.sqrt(2))


@pytest.mark.proves("INDEX-NARROW")
def test_in_a_large_index_frequent_words_are_not_asked_and_the_rows_that_matter_are_found(tmp_path: Path) -> None:
    file = tmp_path / "index.db"
    with closing(create(file)) as connection, write_transaction(connection):
        for number in range(210):
            texts = [f"the cache and the queue hold item {number} {part}" for part in range(100)]
            if number == 77:
                texts[5] = "the cache of the zorblatt must be flushed before the queue"
            body = "\n".join(texts)
            chunks = [chunk(text, position) for position, text in enumerate(texts)]
            stored.put_unit(connection, unit(number, body), chunks)
    with closing(Index(file)) as index:
        terms = index.terms("how is the cache of the zorblatt flushed before item 77 in the queue")
        assert {"zorblatt", "flushed"} <= set(terms.words)
        assert "cache" not in terms.words
        best, _ = index.search_text(terms, 10, Filter())[0]
        assert index.chunks([best])[best].text.startswith("the cache of the zorblatt")
        common = index.terms("cache queue")
        assert set(common.words) == {"cache", "queue"}
        assert index.search_text(common, 10, Filter()), "frequent words alone still find something"


@pytest.mark.proves("INDEX-FORGETS")
def test_a_unit_that_is_taken_out_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "index.db"
    with closing(create(file)) as connection:
        for _ in range(3):
            with write_transaction(connection):
                key = stored.put_unit(connection, unit(1, "zorblatt retryWithBackoff"), [chunk("zorblatt")])
                connection.execute("INSERT INTO vectors SELECT key, x'00' FROM chunks WHERE unit_key = ?", (key,))
                connection.execute(
                    "INSERT INTO signs (chunk_key, bits) SELECT key, x'00' FROM chunks WHERE unit_key = ?", (key,)
                )
                connection.execute("INSERT INTO unit_vectors VALUES (?, x'00', NULL)", (key,))
        counted = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("units", "chunks", "vectors", "signs", "unit_vectors")
        }
        assert set(counted.values()) == {1}
        with write_transaction(connection):
            stored.remove_unit(connection, SourceName.BRAIN, "concept/n1")
            stored.remove_unit(connection, SourceName.BRAIN, "concept/n1")
        for table in ("chunks_fts", "units_fts"):
            found = connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'zorblatt OR backoff'")
            assert found.fetchone() == (0,)
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        assert connection.execute("SELECT count(*) FROM chunks_vocabulary").fetchone() == (0,)


@pytest.mark.proves("INDEX-ATOMIC")
def test_a_failed_write_changes_nothing_and_a_reader_sees_whole_states(tmp_path: Path) -> None:
    file = tmp_path / "index.db"
    create(file).close()
    with closing(open_existing(file)) as writer, closing(Index(file)) as reader:
        with pytest.raises(RuntimeError), write_transaction(writer):
            stored.put_unit(writer, unit(1), [chunk("a")])
            raise RuntimeError
        assert reader.counts()["units"] == 0
        with write_transaction(writer):
            stored.put_unit(writer, unit(1), [chunk("a")])
            assert reader.counts()["units"] == 0
        assert reader.counts()["units"] == 1


@pytest.mark.proves("INDEX-CACHE")
def test_the_vector_cache_keeps_models_apart_and_survives_damage(tmp_path: Path) -> None:
    for model in ("one", "other"):
        with closing(open_cache(tmp_path, model)) as cache:
            assert cache.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
            cache.execute("INSERT INTO vectors VALUES (x'01', x'02')")
    for file in tmp_path.glob("one-*.db"):
        file.write_bytes(b"no database" * 500)
    for model, kept in (("one", 0), ("other", 1)):
        with closing(open_cache(tmp_path, model)) as cache:
            assert cache.execute("SELECT count(*) FROM vectors").fetchone() == (kept,)


@pytest.mark.proves("TEXT-IDENTIFIERS")
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("retryWithBackoff", ["retry", "With", "Backoff"]),
        ("HTTPServer2", ["HTTP", "Server", "2"]),
        ("URLs", []),
        ("Größe", []),
        ("缓存失效", ["缓存", "存失", "失效"]),
        ("中", ["中"]),
    ],
)
def test_words_are_taken_apart_where_people_put_them_together(word: str, expected: list[str]) -> None:
    assert pieces(word) == expected


@pytest.mark.proves("TEXT-QUESTION")
def test_stop_words_go_when_other_words_remain() -> None:
    assert question_words("How do we retry payments") == ["retry", "payments"]
    assert question_words("what is it") == ["what", "is", "it"]


@pytest.mark.proves("TEXT-UNKNOWN")
def test_unknown_words_are_taken_for_their_nearest_spelling_or_their_parts() -> None:
    vocabulary = ["cache", "cach", "idempot", "payment"]
    assert nearest("idempto", vocabulary) == ["idempot"]
    assert nearest("xyzzy", vocabulary) == []
    assert compound_parts("datenbankverbindung", {"datenbank", "verbindung"}.__contains__) == [
        "datenbank",
        "verbindung",
    ]
    assert compound_parts("unbekannt", set[str]().__contains__) == []
