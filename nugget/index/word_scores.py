"""BM25 of single words, kept in memory by a process that stays, so that a word asked again costs no search.

FTS5's bm25() of several words is the sum of what each of them gives, added in the order of the words; adding kept
scores in that order gives the same numbers to the last bit. Words of one stem are kept once.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any

from nugget.index.fulltext import match_any
from nugget.index.queries import bm25_of_all
from nugget.index.terms import Terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_ROWS = 2_000_000
"""Rows kept over all words (16 bytes each); beyond them the words that were looked up first are forgotten."""

_ROWS_A_WORD = 20
"""What keeping a word costs beside its rows."""


class WordScores:
    """The rows of words in the full-text tables of one generation of an index. Thread-safe.

    `rows` is how much is kept, in rows.
    """

    def __init__(self, generation: int, *, most_rows: int = MOST_ROWS) -> None:
        self.generation = generation
        self._most_rows = most_rows
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        self.rows = 0

    def best(self, connection: sqlite3.Connection, table: str, terms: Terms, k: int) -> list[tuple[int, float]]:
        """The k best rows of a table for any of the words as (rowid, BM25 score), equal ones in the order of rows.

        The connection must see the generation that this was made for.
        """
        import numpy as np

        found = [
            self._rows_of(connection, table, word, stem) for word, stem in zip(terms.words, terms.stems, strict=True)
        ]
        found = [part for part in found if len(part[0])]
        if not found:
            return []
        totals = np.zeros(max(int(rows[-1]) for rows, _ in found) + 1)
        for rows, scores in found:
            totals[rows] += scores
        matching = np.flatnonzero(totals)
        of_matching = totals[matching]
        if len(matching) > k:
            enough = of_matching >= np.partition(of_matching, len(matching) - k)[len(matching) - k]
            matching, of_matching = matching[enough], of_matching[enough]
        order = np.argsort(-of_matching, kind="stable")[:k]
        return list(zip(matching[order].tolist(), of_matching[order].tolist(), strict=True))

    def within(self, connection: sqlite3.Connection, table: str, terms: Terms, first: int, last: int) -> list[str]:
        """The words that stand in any row between two, both included."""
        found: list[str] = []
        for word, stem in zip(terms.words, terms.stems, strict=True):
            rows, _ = self._rows_of(connection, table, word, stem)
            place = int(rows.searchsorted(first))
            if place < len(rows) and rows[place] <= last:
                found.append(word)
        return found

    def _rows_of(self, connection: sqlite3.Connection, table: str, word: str, stem: str) -> Any:
        import numpy as np

        known = self._kept.get((table, stem))
        if known is not None:
            return known
        read = bm25_of_all(connection, table, match_any([word]))
        rows = np.fromiter((row[0] for row in read), dtype=np.int64, count=len(read))
        scores = np.fromiter((row[1] for row in read), dtype=np.float64, count=len(read))
        with self._lock:
            if (table, stem) not in self._kept:
                self._kept[table, stem] = (rows, scores)
                self.rows += len(rows) + _ROWS_A_WORD
            while self.rows > self._most_rows and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self.rows -= len(self._kept.pop(oldest)[0]) + _ROWS_A_WORD
        return rows, scores
