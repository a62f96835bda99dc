"""The words of history: what full-text search is given of a passage, and how a query's words are found in a text.

Function words are not indexed: at a million passages they would be a third of the index and tell nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from nugget.index.fulltext import STOP_WORDS, has_unspaced, last_characters, pieces
from nugget.models import SourceName

_WORD = re.compile(r"[^\W_]+")
_MIXED = re.compile(r"[a-z][A-Z]|[^\x00-\x7f]|[A-Z]{2}[a-z]|[a-zA-Z]\d")
_MOST_PIECES = 6
"""A word of more pieces is a hash or a key; its pieces would tell nothing."""
_MOST_CHARS = 64
_ENDING, _END, _ANYTHING = re.compile(r"[^\W_]{0,8}(?![^\W_])"), re.compile(r"(?![^\W_])"), re.compile(r"[^\W_]*")


def indexed_text(text: str) -> str:
    """The words of a passage as they are indexed, then the pieces of those like `retryWithBackoff`."""
    looked_at = list(map(_look_at, _WORD.findall(text)))
    words = [word for word, _ in looked_at if word]
    return " ".join([*words, *(piece for _, its_pieces in looked_at if its_pieces for piece in its_pieces)])


def mark_of_source(source: SourceName) -> str:
    """A word that every passage of a small source is indexed with, to find them among a million of sessions."""
    return f"zqnuggetsource{source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A word of the query: how it is found in a text, and what it weighs.

    `start` is what a word must begin with, `tail` matches what may follow it. Of a script that puts no spaces between
    words it stands anywhere (`is_unspaced`).
    """

    word: str
    weight: float
    start: str
    tail: re.Pattern[str]
    is_unspaced: bool = False

    def matches(self, word: str) -> bool:
        """Whether it is this word, in any of its forms; `word` is folded."""
        return word.startswith(self.start) and self.tail.fullmatch(word, len(self.start)) is not None

    def places(self, folded: str, most: int = 20) -> list[int]:
        """Where the word stands in a text that was folded. (Plain `find` is ten times as fast as a pattern here.)"""
        found: list[int] = []
        at = folded.find(self.start)
        while at >= 0 and len(found) < most:
            begins = self.is_unspaced or not at or not folded[at - 1].isalnum()
            if begins and self.tail.match(folded, at + len(self.start)):
                found.append(at)
            at = folded.find(self.start, at + 1)
        return found


def wanted(word: str, stem: str, weight: float, *, is_prefix: bool = False) -> Wanted:
    """How a word is found in a text: by what it and its stem begin with in common (`retry`, `retri` -> `retries`)."""
    folded, stem = fold(word), fold(stem)
    shared = 0
    while shared < min(len(folded), len(stem)) and folded[shared] == stem[shared]:
        shared += 1
    start = folded[:shared] if shared >= 3 else folded
    tail = _ENDING if shared >= 3 else _END
    if is_prefix or not folded.isascii():
        tail = _ANYTHING
    return Wanted(word=word, weight=weight, start=start, tail=tail, is_unspaced=has_unspaced(folded))


def fold(text: str) -> str:
    """Lower case without diacritics, as the tokenizer sees it."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def folded_pieces(text: str) -> set[str]:
    """The pieces of the words of a text that are like `retryWithBackoff`, folded."""
    return {fold(piece) for word in _WORD.findall(text) if _MIXED.search(word) for piece in _look_at(word)[1]}


@lru_cache(maxsize=1 << 16)
def _look_at(word: str) -> tuple[str, tuple[str, ...]]:
    """A word as it is indexed, empty for a function word and for what is too long to be one; and its pieces."""
    if word.lower() in STOP_WORDS or len(word) > _MOST_CHARS:
        return "", ()
    found = pieces(word) if _MIXED.search(word) else ()
    found = (*found, *last_characters(word))
    return word, tuple(found) if len(found) <= _MOST_PIECES or not word.isascii() else ()
