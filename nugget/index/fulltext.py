"""Full text: the indexed columns, the words of a question, and the meaning of unknown words.

FTS5's own tokenizer (porter over unicode61) splits at everything that is not a letter or digit, so it already takes
`retry_with_backoff` apart. The `parts` column adds what it cannot see: the words inside `retryWithBackoff`,
overlapping pairs of characters for scripts without spaces between words, and the heads and tails of long words
in languages that write compounds as one word.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise

COLUMNS, COLUMN_WEIGHTS = ("title", "body", "parts"), (2.0, 1.0, 0.5)
BM25_WEIGHTS = ", ".join(map(str, COLUMN_WEIGHTS))
"""The same weights as arguments of FTS5's bm25()."""
COLUMN_HALVES = {name: round(2 * weight) for name, weight in zip(COLUMNS, COLUMN_WEIGHTS, strict=True)}
"""The weights in half units, as integers."""
HALVES = "CASE col WHEN 'body' THEN {body} WHEN 'title' THEN {title} ELSE {parts} END".format(**COLUMN_HALVES)
"""The same as SQL, for a row of FTS5's vocabulary; nearly all rows belong to the body."""
_TOKENIZER = "porter unicode61 remove_diacritics 2"

Document = tuple[int, tuple[str, str, str]]
"""A key with the columns that FTS5 indexes."""

_MAX_QUESTION_CHARS = 8000
_MAX_WORDS = 64
_FEWEST_LETTERS, _MOST_LETTERS = 9, 40
"""The length of a compound; longer words are hashes and tokens."""

_MOST_PIECES = 6
"""A word with more pieces is a hash or a key, whose pieces mean nothing."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f"
    "\u1780-\u17ff\U00020000-\U0003134f]+"
)
"""Runs of Chinese, Japanese, Thai, Lao, Burmese and Khmer, and of Korean, whose particles attach to words."""

_COMPOUNDING = frozenset(
    "der die das und ist nicht mit für von ein eine wird werden auf den dem des im zu wenn het een niet voor och att "
    "som inte ikke til".split()
)
"""Words that identify German, Dutch and the Scandinavian languages."""

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with i me my we our you your he she his her its what which who how when where why do does did can "
    "could should would have has had from about been were am so than too very just some any".split()
)
"""Function words only: a longer list costs more questions than it helps."""


def parts_of(text: str) -> list[str]:
    """Return the extra tokens of a text, as described at the top of this module."""
    parts = list(chain.from_iterable(map(_pieces_in, text.split())))
    words = _WORD.findall(text)
    compounding = sum(word in _COMPOUNDING for word in text.lower().split())
    if compounding and compounding * 12 >= len(words):
        for word in words:
            if _FEWEST_LETTERS <= len(word) <= _MOST_LETTERS and word.isalpha():
                parts += [word[start:] for start in range(4, len(word) - 4)]
                parts += [word[:end] for end in range(5, len(word) - 3)]
    return parts


def said_parts(text: str, mark: str) -> str:
    """Return the extra tokens of speech: the pieces of its words, except hashes and keys, and a mark.

    This is also an SQL function, so that a contentless table can delete the exact tokens that it was given.
    """
    found = [mark] if mark else []
    if not text.isascii() or re.search(r"[a-z][A-Z]|[A-Z]{2}[a-z]|[a-zA-Z]\d", text):
        found += chain.from_iterable(map(_few_pieces_in, text.split()))
    return " ".join(found)


@lru_cache(maxsize=1 << 16)
def _few_pieces_in(token: str) -> tuple[str, ...]:
    found = _pieces_in(token)
    return found if len(found) <= _MOST_PIECES or not token.isascii() else ()


@lru_cache(maxsize=1 << 16)
def _pieces_in(token: str) -> tuple[str, ...]:
    """Return the pieces of the words in a text without spaces."""
    return tuple(piece for word in _WORD.findall(token) for piece in (*pieces(word), *last_characters(word)))


def pieces(word: str) -> list[str]:
    """Return the pieces of a word: `retryWithBackoff2` -> retry, With, Backoff, 2; `缓存失效` -> 缓存, 存失, 失效."""
    if not word.isascii() and (runs := _UNSPACED.findall(word)):
        spaced = _UNSPACED.sub(" ", word).split()
        pairs = [run[start : start + 2] for run in runs for start in range(max(1, len(run) - 1))]
        return [*pairs, *spaced, *(piece for part in spaced for piece in pieces(part))]
    if word.isalpha() and word[1:].islower():  # most words, which need no cutting
        return []
    cuts = [0, *(at for at in range(1, len(word)) if _starts_piece(word, at)), len(word)]
    return [word[start:end] for start, end in pairwise(cuts)] if len(cuts) > 2 else []


def last_characters(word: str) -> list[str]:
    """Return the last character of each unspaced run, which no pair begins with: `缓存失效` -> 效. See `match_word`."""
    return [] if word.isascii() else [run[-1] for run in _UNSPACED.findall(word) if len(run) > 1]


def has_unspaced(text: str) -> bool:
    """Return whether a text has words in a script without spaces."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def _starts_piece(word: str, at: int) -> bool:
    before, char, after = word[at - 1], word[at], word[at + 1 :]
    if before.isdigit() != char.isdigit():
        return True
    # The last capital of a run begins the next word (HTTPServer), unless it is only a plural (URLs).
    return char.isupper() and (before.islower() or (after[:1].islower() and after != "s"))


def question_words(text: str) -> list[str]:
    """Return the distinct words to look for, with their pieces; stop words are dropped when other words remain."""
    words = _WORD.findall(text[:_MAX_QUESTION_CHARS])
    kept = [word for word in words if word.lower() not in STOP_WORDS] or words
    distinct: dict[str, str] = {}
    for word in kept:
        for part in ([] if _UNSPACED.search(word) else [word]) + pieces(word):
            distinct.setdefault(part.lower(), part)
    return list(distinct.values())[:_MAX_WORDS]


def prefix_match(text: str) -> str:
    """Return the FTS5 query for a prefix; of several words, the last one is the prefix.

    FTS5 stems the prefix as if it were a word: `pay` to `pai`, with which `payment` does not begin. An `e` after
    the `y` makes the stemmer remove that instead.
    """
    begins = f'"{text}"*'
    return f'({begins} OR "{text}e"*)' if text[-1:] in ("y", "Y") else begins


def match_word(word: str) -> str:
    """Return the FTS5 query for one word, quoted, so that text is never taken as syntax.

    A single character of an unspaced script matches wherever it occurs: it begins a pair, or it is the last one of its
    run and indexed alone.
    """
    return f'"{word}"*' if is_unspaced_character(word) else f'"{word}"'


def is_unspaced_character(word: str) -> bool:
    """Return whether a word is one character of a script without spaces."""
    return len(word) == 1 and has_unspaced(word)


def match_any(words: Sequence[str]) -> str:
    """Return the FTS5 query that matches any of the words."""
    return " OR ".join(match_word(word) for word in (word.replace('"', "") for word in words) if word)


LARGE_INDEX_CHUNKS = 20_000
"""Above this many chunks, frequent words are searched only if there is room."""

SMALL_INDEX_CHUNKS = 5_000
"""Up to this many chunks, every word of any use is searched, and FTS5 scores it."""

_COMMON_SHARE = 0.3
_AFFORDED_SHARE, _AFFORDED_ROWS = 0.06, 15_000
"""Room for matching rows, as a share of the chunks and as a minimum."""
_ALWAYS_ASKED = 2

LARGEST_CHARACTER = "\U0010ffff"
_LINKS = ("", "s", "es", "n", "en", "er")
"""Letters that German puts between the words of a compound."""

_FEWEST_TYPED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The words to search for, and their weights.

    `words` are those of the question and the likely meanings of unknown ones, without frequent ones in a large index.
    `match` is the FTS5 query for any of them, `tokens` are the terms of each. `idfs` are the inverse document
    frequencies of all words of the question, even those not searched.
    """

    words: tuple[str, ...]
    match: str
    idfs: Mapping[str, float]
    tokens: Mapping[str, Sequence[str]]


class Vocabulary:
    """The terms of an embedded index; subclasses cover other kinds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._frequencies = connection, dict[str, int]()

    @cached_property
    def chunks(self) -> int:
        """The number of chunks in the index; counting a million takes longer than most of a search."""
        return int(self._connection.execute("SELECT count(*) FROM chunks").fetchone()[0])

    def tokens(self, words: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return each word with its terms."""
        return stemmed(words)

    def frequency(self, term: str) -> int:
        """Return the number of chunks with a term, which FTS5 would count each time."""
        if term not in self._frequencies:
            sql = "SELECT coalesce(max(doc), 0) FROM chunks_vocabulary WHERE term = ?"
            self._frequencies[term] = self._connection.execute(sql, (term,)).fetchone()[0]
        return self._frequencies[term]

    def beginning_with(self, character: str) -> int:
        """Return the number of chunks with a character of an unspaced script."""
        sql = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
        return int(self._connection.execute(sql, (match_any([character]),)).fetchone()[0])

    def near(self, term: str) -> Iterable[str]:
        """Return the terms that begin with the same two letters."""
        sql = "SELECT term FROM chunks_vocabulary WHERE term >= ? AND term < ?"
        return (row[0] for row in self._connection.execute(sql, (term[:2], term[:2] + LARGEST_CHARACTER)))


def terms_of(vocabulary: Vocabulary, text: str) -> Terms:
    """Look up the words of a question in the vocabulary of an index."""
    words: dict[str, int] = {}
    idfs: dict[str, float] = {}
    seen: set[str] = set()
    chunks = vocabulary.chunks
    tokens = dict(vocabulary.tokens(question_words(text)))
    for word, (term, *_) in list(tokens.items()):
        if term in seen:
            continue
        seen.add(term)
        words[word] = vocabulary.beginning_with(word) if is_unspaced_character(word) else vocabulary.frequency(term)
        idfs[word] = inverse_frequency(chunks, words[word])
        if not words[word]:
            for meant, its in vocabulary.tokens(_likely_meanings(vocabulary, word, term)):
                words[meant], tokens[meant] = vocabulary.frequency(meant), its
    chosen = _affordable(words, chunks) if chunks > LARGE_INDEX_CHUNKS else _rare_enough(words, chunks)
    return Terms(words=tuple(chosen), match=match_any(chosen), idfs=idfs, tokens=tokens)


def _rare_enough(words: Mapping[str, int], chunks: int) -> list[str]:
    """Return the words without those that occur nearly everywhere, if others remain.

    In more than half of all chunks, a word has an inverse document frequency of 0 in FTS5 and only costs time. In an
    index that is not small, where that time is noticeable, the limit is lower.
    """
    most = chunks * (_COMMON_SHARE if chunks > SMALL_INDEX_CHUNKS else 0.5)
    telling = [word for word, count in words.items() if count <= most]
    return telling if any(words[word] for word in telling) else list(words)


def _affordable(words: Mapping[str, int], chunks: int) -> list[str]:
    """Return the rarest words while their chunks are few in total, and always the two rarest.

    FTS5 takes two microseconds per matching row, so one frequent word among a million chunks costs more than all else.
    But such words matter: of 93,000 chunks, .06 alone took .047 off nDCG@10, and saved half of 39 ms.
    """
    room = max(chunks * _AFFORDED_SHARE, _AFFORDED_ROWS)
    chosen: list[str] = []
    for word in sorted(words, key=lambda word: words[word]):
        room -= words[word]
        if room < 0 and sum(words[other] > 0 for other in chosen) >= _ALWAYS_ASKED:
            break
        chosen.append(word)
    return chosen


def inverse_frequency(chunks: int, matching: int) -> float:
    """Return FTS5's inverse document frequency, or ln(chunks + 1) for an unknown term."""
    if not matching:
        return math.log(chunks + 1)
    return max(math.log(max(chunks - matching + 0.5, 0.5) / (matching + 0.5)), 1e-6)


_idle: list[sqlite3.Connection] = []
"""Unused tables: making one takes ten times as long as using it."""


@contextmanager
def documents(rows: Iterable[Document]) -> Iterator[sqlite3.Connection]:
    """Provide an FTS5 table in memory with these documents in `docs`, and their terms in `instances`."""
    connection = _idle.pop() if _idle else _no_documents()
    connection.execute("BEGIN")
    try:
        connection.executemany(
            "INSERT INTO docs (rowid, title, body, parts) VALUES (?,?,?,?)", ((key, *columns) for key, columns in rows)
        )
        yield connection
    finally:
        connection.execute("ROLLBACK")
        _idle.append(connection)


def _no_documents() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    columns = ", ".join(COLUMNS)
    connection.execute(f"CREATE VIRTUAL TABLE docs USING fts5 ({columns}, content='', tokenize='{_TOKENIZER}')")
    connection.execute("CREATE VIRTUAL TABLE instances USING fts5vocab (docs, 'instance')")
    return connection


def terms_in(texts: Sequence[str]) -> list[list[str]]:
    """Return the terms of each text, in order."""
    found: list[list[str]] = [[] for _ in texts]
    with documents((at, (text, "", "")) for at, text in enumerate(texts)) as held:
        for at, term in held.execute("SELECT doc, term FROM instances ORDER BY doc, offset"):
            found[at].append(term)
    return found


def stemmed(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each word that has terms with them (one, except for letters that FTS5 does not know)."""
    return [(word, terms) for word, terms in zip(words, terms_in(words), strict=True) if terms]


def is_guessed(term: str) -> bool:
    """Return whether an unknown term may be a misspelling, or a compound of known terms."""
    return len(term) >= _FEWEST_TYPED and term.isalpha()


def _likely_meanings(vocabulary: Vocabulary, word: str, term: str) -> list[str]:
    """Return the likely meanings of an unknown word: a similar term, else the parts of a compound."""
    if not is_guessed(term):
        return []
    near = nearest(term, vocabulary.near(term))
    if near or len(word) < 2 * _FEWEST_TYPED:
        return near

    def is_known(part: str) -> bool:
        return any(vocabulary.frequency(terms[0]) for _, terms in vocabulary.tokens([part]))

    return compound_parts(word.lower(), is_known)


def nearest(term: str, vocabulary: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the terms at the smallest edit distance from a mistyped one: at most 1, or 2 from eight letters on.

    The distance is optimal string alignment: insert, delete, replace, swap neighbours.
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract_iter

    limit = 1 if len(term) < 2 * _FEWEST_TYPED else 2
    found = extract_iter(term, vocabulary, scorer=OSA.distance, score_cutoff=limit)
    near = sorted((distance, known) for known, distance, _ in found if known.isalpha())
    return [known for distance, known in near if distance == near[0][0]][:most]


def compound_parts(word: str, is_known: Callable[[str], bool]) -> list[str]:
    """Return the two known words that form an unknown compound, longest tail first, or nothing."""
    for start in range(_FEWEST_TYPED, len(word) - _FEWEST_TYPED + 1):
        head, tail = word[:start], word[start:]
        if not is_known(tail):
            continue
        for link in _LINKS:
            stem = head.removesuffix(link) if link else head
            if head.endswith(link) and len(stem) >= _FEWEST_TYPED and is_known(stem):
                return [stem, tail]
    return []
