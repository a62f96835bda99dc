"""What full-text search sees: the columns that are indexed, and the words of a question.

FTS5's own tokenizer (porter over unicode61) splits at everything that is not a letter or digit, so it already takes
`retry_with_backoff` apart. The `parts` column adds what it cannot see: the words inside `retryWithBackoff`,
overlapping pairs of characters for scripts that put no spaces between words, and the heads and tails of long words
in languages that write compounds as one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise

COLUMN_WEIGHTS = (2.0, 1.0, 0.5)
"""BM25 weights of (title, body, parts)."""

_MAX_QUESTION_CHARS = 8000
_MAX_WORDS = 64
_FEWEST_LETTERS, _MOST_LETTERS = 9, 40
"""Of a compound; longer words are hashes and tokens."""

_TELLING = 1 << 40
_MOST_PIECES = 6
"""A word of more pieces is a hash or a key; its pieces would tell nothing."""
_MIXED = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]|[a-zA-Z]\d")

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


def chunk_columns(title: str, tags: Sequence[str], breadcrumb: str, text: str) -> tuple[str, str, str]:
    """The (title, body, parts) of a chunk as they are indexed; tags count as title, headings as body."""
    named = " ".join((title, *tags))
    body = f"{breadcrumb.removeprefix(title)}\n{text}"
    return named, body, " ".join(parts_of(f"{named}\n{body}"))


def unit_columns(title: str, tags: Sequence[str], body: str) -> tuple[str, str, str]:
    """The (title, body, parts) of a whole unit as they are indexed."""
    named = " ".join((title, *tags))
    return named, body, " ".join(parts_of(f"{named}\n{body}"))


def parts_of(text: str) -> list[str]:
    """The extra tokens of a text: see the top of this module."""
    tokens = text.split()
    parts = list(chain.from_iterable(map(_pieces_in, tokens)))
    telling, words = divmod(sum(map(_telling_and_words_in, tokens)), _TELLING)
    if telling and telling * 12 >= words:
        for word in _WORD.findall(text):
            if _FEWEST_LETTERS <= len(word) <= _MOST_LETTERS and word.isalpha():
                parts += [word[start:] for start in range(4, len(word) - 4)]
                parts += [word[:end] for end in range(5, len(word) - 3)]
    return parts


def said_parts(text: str, *, mark: str = "") -> str | None:
    """Return the extra tokens of what was said: the pieces of its words, but not of hashes and keys; and a mark."""
    found = [] if mark == "" else [mark]
    if not text.isascii() or _MIXED.search(text):
        found += chain.from_iterable(map(_few_pieces_in, text.split()))
    return " ".join(found) or None


@lru_cache(maxsize=1 << 16)
def _few_pieces_in(token: str) -> tuple[str, ...]:
    found = _pieces_in(token)
    return found if len(found) <= _MOST_PIECES or not token.isascii() else ()


@lru_cache(maxsize=1 << 16)
def _pieces_in(token: str) -> tuple[str, ...]:
    """The pieces of the words in what stands between spaces."""
    return tuple(piece for word in _WORD.findall(token) for piece in (*pieces(word), *last_characters(word)))


@lru_cache(maxsize=1 << 16)
def _telling_and_words_in(token: str) -> int:
    """How many words of a token tell a compounding language, times _TELLING, plus how many words it has.

    One number, so that a text is added up without a step of Python for each token.
    """
    words = _WORD.findall(token)
    return len(words) + _TELLING * sum(word.lower() in _COMPOUNDING for word in words)


def pieces(word: str) -> list[str]:
    """`retryWithBackoff2` -> retry, With, Backoff, 2; `缓存失效` -> 缓存, 存失, 失效; nothing for a plain word."""
    if not word.isascii() and (runs := _UNSPACED.findall(word)):
        spaced = _UNSPACED.sub(" ", word).split()
        pairs = [run[start : start + 2] for run in runs for start in range(max(1, len(run) - 1))]
        return [*pairs, *spaced, *(piece for part in spaced for piece in pieces(part))]
    if word.isalpha() and word[1:].islower():  # what most words are, and nothing to cut
        return []
    cuts = [0, *(at for at in range(1, len(word)) if _starts_piece(word, at)), len(word)]
    return [word[start:end] for start, end in pairwise(cuts)] if len(cuts) > 2 else []


def last_characters(word: str) -> list[str]:
    """The last character of each unspaced run, with which no pair begins: `缓存失效` -> 效. See `asked_word`."""
    return [] if word.isascii() else [run[-1] for run in _UNSPACED.findall(word) if len(run) > 1]


def has_unspaced(text: str) -> bool:
    """Whether a text has words of a script that puts no spaces between them."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def _starts_piece(word: str, at: int) -> bool:
    before, char, after = word[at - 1], word[at], word[at + 1 :]
    if before.isdigit() != char.isdigit():
        return True
    # The last capital of a run begins the next word (HTTPServer), unless it is only a plural (URLs).
    return char.isupper() and (before.islower() or (after[:1].islower() and after != "s"))


def question_words(text: str) -> list[str]:
    """The distinct words to look for, with their pieces; stop words are dropped when other words remain."""
    words = _WORD.findall(text[:_MAX_QUESTION_CHARS])
    kept = [word for word in words if word.lower() not in STOP_WORDS] or words
    distinct: dict[str, str] = {}
    for word in kept:
        for part in ([] if _UNSPACED.search(word) else [word]) + pieces(word):
            distinct.setdefault(part.lower(), part)
    return list(distinct.values())[:_MAX_WORDS]


def prefix_match(text: str) -> str:
    """The FTS5 query for a word that begins so; of several words that holds for the last one.

    FTS5 stems the beginning as if it were a word: `pay` to `pai`, with which `payment` does not begin. An `e` behind
    the `y` is what the stemmer takes away in its stead.
    """
    begins = f'"{text}"*'
    return f'({begins} OR "{text}e"*)' if text[-1:] in ("y", "Y") else begins


def asked_word(word: str) -> str:
    """The FTS5 query for one word, quoted, so that no text is ever syntax.

    A single character of an unspaced script stands for every place where it stands: it begins a pair, or it is the
    last one of its run and indexed alone.
    """
    return f'"{word}"*' if is_unspaced_character(word) else f'"{word}"'


def is_unspaced_character(word: str) -> bool:
    """Whether a word is one character of a script that puts no spaces between words."""
    return len(word) == 1 and has_unspaced(word)


def match_any(words: Sequence[str]) -> str:
    """The FTS5 query that matches any of the words."""
    return " OR ".join(asked_word(word) for word in (word.replace('"', "") for word in words) if word)
