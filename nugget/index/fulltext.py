"""Full text: the columns that are indexed, the words of a question, and what a word that stands nowhere may mean.

FTS5's own tokenizer (porter over unicode61) splits at everything that is not a letter or digit, so it already takes
`retry_with_backoff` apart. The `parts` column adds what it cannot see: the words inside `retryWithBackoff`,
overlapping pairs of characters for scripts that put no spaces between words, and the heads and tails of long words
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
"""The same as FTS5's bm25() takes them."""
COLUMN_HALVES = {name: round(2 * weight) for name, weight in zip(COLUMNS, COLUMN_WEIGHTS, strict=True)}
"""The weights in half units, which are whole."""
HALVES = "CASE col WHEN 'body' THEN {body} WHEN 'title' THEN {title} ELSE {parts} END".format(**COLUMN_HALVES)
"""The same as SQL, for a row of FTS5's vocabulary; nearly all of them are of the body."""
_TOKENIZER = "porter unicode61 remove_diacritics 2"

Document = tuple[int, tuple[str, str, str]]
"""A key with the columns that FTS5 indexes."""

_MAX_QUESTION_CHARS = 8000
_MAX_WORDS = 64
_FEWEST_LETTERS, _MOST_LETTERS = 9, 40
"""Of a compound; longer words are hashes and tokens."""

_MOST_PIECES = 6
"""A word of more pieces is a hash or a key; its pieces would tell nothing."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f"
    "\u1780-\u17ff\U00020000-\U0003134f]+"
)
"""Runs of Chinese, Japanese, Thai, Lao, Burmese and Khmer; and Korean, whose particles cling to the words."""

_COMPOUNDING = frozenset(
    "der die das und ist nicht mit für von ein eine wird werden auf den dem des im zu wenn het een niet voor och att "
    "som inte ikke til".split()
)
"""Words by which German, Dutch and the Scandinavian languages are known."""

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with i me my we our you your he she his her its what which who how when where why do does did can "
    "could should would have has had from about been were am so than too very just some any".split()
)
"""Function words only: a longer list costs more questions than it helps."""


def parts_of(text: str) -> list[str]:
    """Return the extra tokens of a text: see the top of this module."""
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
    """Return the extra tokens of what was said: the pieces of its words, but not of hashes and keys; and a mark.

    A function of SQL too, so that a contentless table can be told to forget the very tokens that it was given.
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
    """Return the pieces of the words in what stands between spaces."""
    return tuple(piece for word in _WORD.findall(token) for piece in (*pieces(word), *last_characters(word)))


def pieces(word: str) -> list[str]:
    """Return the pieces of a word: `retryWithBackoff2` -> retry, With, Backoff, 2; `缓存失效` -> 缓存, 存失, 失效."""
    if not word.isascii() and (runs := _UNSPACED.findall(word)):
        spaced = _UNSPACED.sub(" ", word).split()
        pairs = [run[start : start + 2] for run in runs for start in range(max(1, len(run) - 1))]
        return [*pairs, *spaced, *(piece for part in spaced for piece in pieces(part))]
    if word.isalpha() and word[1:].islower():  # what most words are, and nothing to cut
        return []
    cuts = [0, *(at for at in range(1, len(word)) if _starts_piece(word, at)), len(word)]
    return [word[start:end] for start, end in pairwise(cuts)] if len(cuts) > 2 else []


def last_characters(word: str) -> list[str]:
    """Return the last character of each unspaced run, with which no pair begins: `缓存失效` -> 效. See `asked_word`."""
    return [] if word.isascii() else [run[-1] for run in _UNSPACED.findall(word) if len(run) > 1]


def has_unspaced(text: str) -> bool:
    """Return whether a text has words of a script that puts no spaces between them."""
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
    """Return the FTS5 query for a word that begins so; of several words that holds for the last one.

    FTS5 stems the beginning as if it were a word: `pay` to `pai`, with which `payment` does not begin. An `e` behind
    the `y` is what the stemmer takes away in its stead.
    """
    begins = f'"{text}"*'
    return f'({begins} OR "{text}e"*)' if text[-1:] in ("y", "Y") else begins


def asked_word(word: str) -> str:
    """Return the FTS5 query for one word, quoted, so that no text is ever syntax.

    A single character of an unspaced script stands for every place where it stands: it begins a pair, or it is the
    last one of its run and indexed alone.
    """
    return f'"{word}"*' if is_unspaced_character(word) else f'"{word}"'


def is_unspaced_character(word: str) -> bool:
    """Return whether a word is one character of a script that puts no spaces between words."""
    return len(word) == 1 and has_unspaced(word)


def match_any(words: Sequence[str]) -> str:
    """Return the FTS5 query that matches any of the words."""
    return " OR ".join(asked_word(word) for word in (word.replace('"', "") for word in words) if word)


LARGE_INDEX_CHUNKS = 20_000
"""Above this many chunks, frequent words are asked only if there is room."""

SMALL_INDEX_CHUNKS = 5_000
"""Up to this many chunks every word that tells anything at all is asked, and FTS5 scores it."""

_COMMON_SHARE = 0.3
_AFFORDED_SHARE, _AFFORDED_ROWS = 0.06, 15_000
"""Room for the rows that match a word, as a share of the chunks and at least."""
_ALWAYS_ASKED = 2

LARGEST_CHARACTER = "\U0010ffff"
_LINKS = ("", "s", "es", "n", "en", "er")
"""What German puts between the words of a compound."""

_FEWEST_TYPED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The words to look for and what they weigh.

    `words` are those of the question and what its unknown ones may mean; in a large index the frequent ones are left
    out. `match` is the FTS5 query for any of them, `tokens` are the terms of each. `idfs` are the inverse document
    frequencies of the question's own words, those that are not asked among them.
    """

    words: tuple[str, ...]
    match: str
    idfs: Mapping[str, float]
    tokens: Mapping[str, Sequence[str]]


class Vocabulary:
    """The terms of an embedded index; for another kind, a subclass answers the same questions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @cached_property
    def chunks(self) -> int:
        """How many chunks the index has; counting a million takes longer than most of a search."""
        return int(self._connection.execute("SELECT count(*) FROM chunks").fetchone()[0])

    def tokens(self, words: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return each word with its terms."""
        return stemmed(words)

    def frequency(self, term: str) -> int:
        """Return in how many chunks a term stands."""
        row = self._connection.execute("SELECT doc FROM chunks_vocabulary WHERE term = ?", (term,)).fetchone()
        return 0 if row is None else int(row[0])

    def beginning_with(self, character: str) -> int:
        """Return in how many chunks a character of an unspaced script stands."""
        sql = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
        return int(self._connection.execute(sql, (match_any([character]),)).fetchone()[0])

    def near(self, term: str) -> Iterable[str]:
        """Return the terms that begin with the same two letters."""
        sql = "SELECT term FROM chunks_vocabulary WHERE term >= ? AND term < ?"
        return (row[0] for row in self._connection.execute(sql, (term[:2], term[:2] + LARGEST_CHARACTER)))


def terms_of(vocabulary: Vocabulary, text: str) -> Terms:
    """Look the words of a question up in the vocabulary of an index."""
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
            for meant, its in vocabulary.tokens(_meant(vocabulary, word, term)):
                words[meant], tokens[meant] = vocabulary.frequency(meant), its
    chosen = _affordable(words, chunks) if chunks > LARGE_INDEX_CHUNKS else _rare_enough(words, chunks)
    return Terms(words=tuple(chosen), match=match_any(chosen), idfs=idfs, tokens=tokens)


def _rare_enough(words: Mapping[str, int], chunks: int) -> list[str]:
    """Return the words without those that stand nearly everywhere, if others remain.

    Above half of all chunks FTS5's inverse document frequency is 0, so that a word only costs time; in an index that
    is not small (in which that time can be felt) this begins where the frequency still tells a little.
    """
    most = chunks * (_COMMON_SHARE if chunks > SMALL_INDEX_CHUNKS else 0.5)
    telling = [word for word, count in words.items() if count <= most]
    return telling if any(words[word] for word in telling) else list(words)


def _affordable(words: Mapping[str, int], chunks: int) -> list[str]:
    """Return the rarest words, as long as the chunks that they stand in are few; the two rarest always.

    FTS5 costs two microseconds a matching row, so that one frequent word among a million chunks costs more than all
    else. But what it tells counts: of 93,000 chunks, .06 alone took .047 off nDCG@10, and saved half of 39 ms.
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
    """Return FTS5's inverse document frequency, and ln(chunks + 1) for a term that stands nowhere."""
    if not matching:
        return math.log(chunks + 1)
    return max(math.log(max(chunks - matching + 0.5, 0.5) / (matching + 0.5)), 1e-6)


_idle: list[sqlite3.Connection] = []
"""Tables that nobody holds: to make one takes ten times as long as to use it."""


@contextmanager
def documents(rows: Iterable[Document]) -> Iterator[sqlite3.Connection]:
    """Hold an FTS5 in memory with these documents in `docs`, and their terms in `instances`."""
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
    """Return the terms of each text, in their order."""
    found: list[list[str]] = [[] for _ in texts]
    with documents((at, (text, "", "")) for at, text in enumerate(texts)) as held:
        for at, term in held.execute("SELECT doc, term FROM instances ORDER BY doc, offset"):
            found[at].append(term)
    return found


def stemmed(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each word with its terms (one, but for letters that Python knows and FTS5 does not); not those without."""
    return [(word, terms) for word, terms in zip(words, terms_in(words), strict=True) if terms]


def is_guessed(term: str) -> bool:
    """Return whether a term that stands nowhere may be a misspelling, or a compound of terms that do."""
    return len(term) >= _FEWEST_TYPED and term.isalpha()


def _meant(vocabulary: Vocabulary, word: str, term: str) -> list[str]:
    """Return what an unknown word may mean: a term spelt nearly so, else the parts of a compound."""
    if not is_guessed(term):
        return []
    near = nearest(term, vocabulary.near(term))
    if near or len(word) < 2 * _FEWEST_TYPED:
        return near

    def is_known(part: str) -> bool:
        return any(vocabulary.frequency(terms[0]) for _, terms in vocabulary.tokens([part]))

    return compound_parts(word.lower(), is_known)


def nearest(term: str, vocabulary: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the terms at the smallest edit distance from a mistyped one: 1 at most, 2 from eight letters on.

    The distance is optimal string alignment: insert, delete, replace, swap neighbours.
    """
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract_iter

    limit = 1 if len(term) < 2 * _FEWEST_TYPED else 2
    found = extract_iter(term, vocabulary, scorer=OSA.distance, score_cutoff=limit)
    near = sorted((distance, known) for known, distance, _ in found if known.isalpha())
    return [known for distance, known in near if distance == near[0][0]][:most]


def compound_parts(word: str, is_known: Callable[[str], bool]) -> list[str]:
    """Return the two known words that an unknown compound is made of, longest tail first; nothing if there are none."""
    for start in range(_FEWEST_TYPED, len(word) - _FEWEST_TYPED + 1):
        head, tail = word[:start], word[start:]
        if not is_known(tail):
            continue
        for link in _LINKS:
            stem = head.removesuffix(link) if link else head
            if head.endswith(link) and len(stem) >= _FEWEST_TYPED and is_known(stem):
                return [stem, tail]
    return []
