"""Terms of the index: how words are stemmed, how often they stand, and what a word that stands nowhere may mean."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nugget.index.fulltext import is_unspaced_character, match_any, question_words

LARGE_INDEX_CHUNKS = 20_000
"""Above this many chunks, document frequencies are kept in a table of their own and frequent words are not asked."""

SMALL_INDEX_CHUNKS = 5_000
"""Up to this many chunks every word that tells anything at all is asked."""

_COMMON_SHARE = 0.3
_AFFORDED_SHARE = 0.06
_ALWAYS_ASKED = 2

_LARGEST_CHARACTER = "\U0010ffff"
_LINKS = ("", "s", "es", "n", "en", "er")
"""What German puts between the words of a compound."""

_FEWEST_LETTERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The words to look for and what they weigh.

    `words` are those of the question and what its unknown ones may mean; in a large index the frequent ones are
    left out. `stems` are the same words by a name that all words with the same matches share; empty
    where `match` is not of the words. `match` is the FTS5
    query for any of them. `idfs` are the inverse document frequencies of the question's
    own words, those that are not asked among them.
    """

    words: tuple[str, ...]
    stems: tuple[str, ...]
    match: str
    idfs: Mapping[str, float]

    @property
    def idf_mass(self) -> float:
        """The sum of the inverse document frequencies of the question's own words: what a perfect match would hold."""
        return sum(self.idfs.values())


def terms_of(connection: sqlite3.Connection, text: str, *, chunks: int) -> Terms:
    """Look the words of a question up in the vocabulary of an index of so many chunks."""
    words: dict[str, int] = {}
    stems: dict[str, str] = {}
    idfs: dict[str, float] = {}
    seen: set[str] = set()
    for word, tokens in _tokens(connection, question_words(text)):
        term = tokens[0]
        if term in seen:
            continue
        seen.add(term)
        words[word] = _beginning_with(connection, word) if is_unspaced_character(word) else _frequency(connection, term)
        stems[word] = " ".join(tokens)
        idfs[word] = inverse_frequency(chunks, words[word])
        if not words[word]:
            for meant in _meant(connection, word, term):
                words[meant] = _frequency(connection, meant)
                stems[meant] = f"~{meant}"  # a term, which the search stems once more
    chosen = _affordable(words, chunks) if chunks > LARGE_INDEX_CHUNKS else _telling(words, chunks)
    return Terms(
        words=tuple(chosen),
        stems=tuple(stems[word] for word in chosen),
        match=match_any(chosen),
        idfs=idfs,
    )


def _telling(words: Mapping[str, int], chunks: int) -> list[str]:
    """Without the words that stand nearly everywhere, where others remain.

    Above half of all chunks FTS5's inverse document frequency is 0, so that a word only costs time; in an index that
    is not small (in which that time can be felt) this begins where the frequency still tells a little.
    """
    most = chunks * (_COMMON_SHARE if chunks > SMALL_INDEX_CHUNKS else 0.5)
    telling = [word for word, count in words.items() if count <= most]
    return telling if any(words[word] for word in telling) else list(words)


def _affordable(words: Mapping[str, int], chunks: int) -> list[str]:
    """The rarest words, as long as the chunks that they stand in are few; the two rarest always.

    FTS5 costs two microseconds a matching row, so that one frequent word among 100,000 chunks costs more than all
    else, while it tells least.
    """
    room = chunks * _AFFORDED_SHARE
    chosen: list[str] = []
    for word in sorted(words, key=lambda word: words[word]):
        room -= words[word]
        if room < 0 and sum(words[other] > 0 for other in chosen) >= _ALWAYS_ASKED:
            break
        chosen.append(word)
    return chosen


def inverse_frequency(chunks: int, matching: int) -> float:
    """FTS5's inverse document frequency; a term that stands nowhere counts as ln(chunks + 1)."""
    if not matching:
        return math.log(chunks + 1)
    return max(math.log(max(chunks - matching + 0.5, 0.5) / (matching + 0.5)), 1e-6)


def stemmed(connection: sqlite3.Connection, words: Sequence[str]) -> list[tuple[str, str]]:
    """Each word with the (first) term that FTS5 makes of it; words of which it makes none are left out."""
    return [(word, tokens[0]) for word, tokens in _tokens(connection, words)]


def _tokens(connection: sqlite3.Connection, words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each word with its terms: one, but for letters that Python knows and FTS5 does not.

    FTS5's tokenizer is reachable only through a table: a small temporary one of the same kind.
    """
    if not words:
        return []
    if not connection.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'stems'").fetchone():
        tokenizer = "porter unicode61 remove_diacritics 2"
        connection.execute(f"CREATE VIRTUAL TABLE temp.stems USING fts5 (word, content='', tokenize='{tokenizer}')")
        connection.execute("CREATE VIRTUAL TABLE temp.stems_found USING fts5vocab (temp, 'stems', 'instance')")
    connection.execute("SAVEPOINT stems")
    try:
        connection.execute("INSERT INTO temp.stems (stems) VALUES ('delete-all')")
        connection.executemany("INSERT INTO temp.stems (rowid, word) VALUES (?,?)", list(enumerate(words)))
        rows = connection.execute("SELECT doc, term FROM temp.stems_found ORDER BY doc, offset").fetchall()
    finally:
        connection.execute("RELEASE stems")
    tokens: dict[int, list[str]] = {}
    for position, term in rows:
        tokens.setdefault(position, []).append(term)
    return [(words[position], terms) for position, terms in tokens.items()]


def _frequency(connection: sqlite3.Connection, term: str) -> int:
    row = connection.execute("SELECT chunks FROM term_frequencies WHERE term = ?", (term,)).fetchone()
    if row is None:
        row = connection.execute("SELECT doc FROM chunks_vocabulary WHERE term = ?", (term,)).fetchone()
    return 0 if row is None else int(row[0])


def _beginning_with(connection: sqlite3.Connection, character: str) -> int:
    """In how many chunks a character of an unspaced script stands."""
    sql = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
    return int(connection.execute(sql, (match_any([character]),)).fetchone()[0])


def _meant(connection: sqlite3.Connection, word: str, term: str) -> list[str]:
    """What a word that the index does not know may mean: a term spelt nearly so, else the parts of a compound."""
    if len(term) < _FEWEST_LETTERS or not term.isalpha():
        return []
    range_ = (term[:2], term[:2] + _LARGEST_CHARACTER)
    rows = connection.execute("SELECT term FROM chunks_vocabulary WHERE term >= ? AND term < ?", range_)
    near = nearest(term, (row[0] for row in rows))
    if near or len(word) < 2 * _FEWEST_LETTERS:
        return near

    def is_known(part: str) -> bool:
        return any(_frequency(connection, stem) for _, stem in stemmed(connection, [part]))

    return compound_parts(word.lower(), is_known)


def nearest(term: str, vocabulary: Iterable[str], *, most: int = 3) -> list[str]:
    """The terms at the smallest edit distance from a mistyped one: 1 at most, 2 from eight letters on."""
    limit = 1 if len(term) < 2 * _FEWEST_LETTERS else 2
    near = sorted(
        (distance, known)
        for known in vocabulary
        if known.isalpha() and (distance := edit_distance(term, known, limit=limit)) <= limit
    )
    return [known for distance, known in near if distance == near[0][0]][:most]


def edit_distance(one: str, other: str, *, limit: int) -> int:
    """Optimal string alignment distance (insert, delete, replace, swap neighbours); above `limit` it is limit + 1."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, char in enumerate(one, start=1):
        row = [i]
        for j, opposite in enumerate(other, start=1):
            cost = min(last[j] + 1, row[-1] + 1, last[j - 1] + (char != opposite))
            if i > 1 and j > 1 and char == other[j - 2] and one[i - 2] == opposite:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return last[-1]


def compound_parts(word: str, is_known: Callable[[str], bool]) -> list[str]:
    """The two known words that an unknown compound is made of, longest tail first; nothing where there are none."""
    for start in range(_FEWEST_LETTERS, len(word) - _FEWEST_LETTERS + 1):
        head, tail = word[:start], word[start:]
        if not is_known(tail):
            continue
        for link in _LINKS:
            stem = head.removesuffix(link) if link else head
            if head.endswith(link) and len(stem) >= _FEWEST_LETTERS and is_known(stem):
                return [stem, tail]
    return []
