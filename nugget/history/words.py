"""The words of history: what full-text search is given of a passage, and how a query's words are found in a text.

Function words are not indexed: at a million passages they would be a third of the index and tell nothing. So they
are taken out of a query in the same way, also out of phrases: `"end of file"` is looked for as `"end file"`, and
whether the phrase really stands there is seen in the text itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nugget.index.fulltext import STOP_WORDS, pieces

_WORD = re.compile(r"[^\W_]+")
_MIXED = re.compile(r"[a-z][A-Z]|[^\x00-\x7f]|[A-Z]{2}[a-z]|[a-zA-Z]\d")
_MOST_PIECES = 6
"""A word of more pieces is a hash or a key; its pieces would tell nothing."""
_MOST_CHARS = 64
_PREFIX = re.compile(r'"([^"\s]+)"\s*\*')
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


def indexed_text(text: str) -> str:
    """The words of a passage as they are indexed, then the pieces of those like `retryWithBackoff`."""
    words = [word for word in _WORD.findall(text) if word not in STOP_WORDS and len(word) <= _MOST_CHARS]
    extra = [part for word in words if _MIXED.search(word) for part in _pieces_of(word)]
    return " ".join([*(word for word in words if word.lower() not in STOP_WORDS), *extra])


def compile_match(expression: str) -> str:
    """An FTS5 expression as it must be put to this index: without function words in its quoted strings."""

    def without_stop_words(found: re.Match[str]) -> str:
        words = _WORD.findall(found.group(1))
        return '"' + " ".join(word for word in words if word.lower() not in STOP_WORDS) + '"'

    return _QUOTED.sub(without_stop_words, expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A word of the query: how it is found in a text, and what it weighs."""

    word: str
    weight: float
    pattern: re.Pattern[str]


def prefixes_of(expression: str) -> set[str]:
    """The words of an FTS5 expression that stand for the beginning of a word."""
    return {fold(found) for found in _PREFIX.findall(expression)}


def wanted(word: str, stem: str, weight: float, *, is_prefix: bool = False) -> Wanted:
    """How a word is found in a text: by what it and its stem begin with in common (`retry`, `retri` -> `retries`)."""
    folded, stem = fold(word), fold(stem)
    shared = 0
    while shared < min(len(folded), len(stem)) and folded[shared] == stem[shared]:
        shared += 1
    start = folded[:shared] if shared >= 3 else folded
    tail = r"[^\W_]{0,5}(?![^\W_])" if shared >= 3 else r"(?![^\W_])"
    if is_prefix or not folded.isascii():
        tail = r"[^\W_]*" if is_prefix else ""
    return Wanted(word=word, weight=weight, pattern=re.compile(rf"(?<![^\W_]){re.escape(start)}{tail}"))


def fold(text: str) -> str:
    """Lower case without diacritics, as the tokenizer sees it."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


@lru_cache(maxsize=1 << 14)
def _pieces_of(word: str) -> Sequence[str]:
    found = pieces(word)
    return found if len(found) <= _MOST_PIECES or not word.isascii() else ()
