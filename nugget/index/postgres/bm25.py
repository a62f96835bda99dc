"""BM25 over postings that PostgreSQL keeps, with the scores of FTS5's own function.

FTS5 in memory splits texts and questions; postings are made from its tokens, and numpy finds phrases and sums a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nugget.index.fulltext import (
    COLUMN_HALVES,
    LARGEST_CHARACTER,
    Document,
    Vocabulary,
    compound_parts,
    documents,
    is_guessed,
    is_unspaced_character,
    question_words,
    terms_in,
)

CHUNKS, UNITS = 0, 1
"""Kinds of documents."""
ENTRY = [("key", "<i4"), ("unit", "<i4"), ("freq", "<i2"), ("length", "<i4")]
"""A document of a term, as numpy reads it: its unit, the term's weighted frequency in half units, its terms in all."""
ENTRY_BYTES = 14
_COLUMNS = tuple(COLUMN_HALVES)
_PLACE = "(doc << 32) + (CASE col {} END << 28) + offset".format(
    " ".join(f"WHEN '{name}' THEN {at}" for at, name in enumerate(_COLUMNS))
)
_ITEM = re.compile(r'(?P<column>- parts : )?(?:NEAR\((?:"[^"]*"\*? ?)+, (?P<within>\d+)\)|"[^"]*"\*?)')


@dataclass(slots=True)
class Postings:
    """The documents of each term as ENTRY, and its places in them; the lengths of the documents.

    A place is a column and an offset in it; the first one in each document is inverted.
    """

    of_term: dict[str, tuple[bytearray, bytearray]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)


def add_postings(postings: Postings, rows: Sequence[Document], unit_of: Mapping[int, int]) -> None:
    """Add documents of these units to postings."""
    import numpy as np

    postings.lengths |= dict.fromkeys((key for key, _ in rows), 0)
    with documents(rows) as held:
        found = held.execute(f"SELECT term, count(*), group_concat({_PLACE}) FROM instances GROUP BY term").fetchall()
    if not found:
        return
    terms, counts, texts = zip(*found, strict=True)
    term_of, codes = np.repeat(np.arange(len(terms)), counts), np.fromstring(",".join(texts), np.int64, sep=",")
    codes = codes[np.lexsort((codes, term_of))]
    keys, lengths = np.unique(codes >> 32, return_counts=True)
    postings.lengths |= zip(keys.tolist(), lengths.tolist(), strict=True)
    first = np.flatnonzero((np.diff(codes >> 32, prepend=-1) != 0) | (np.diff(term_of, prepend=-1) != 0))
    at = np.searchsorted(keys, codes[first] >> 32)
    entries, places = np.empty(len(first), ENTRY), codes.astype("<i4")
    places[first] = ~places[first]
    entries["key"], entries["unit"] = keys[at], np.array([unit_of[key] for key in keys.tolist()])[at]
    entries["freq"], entries["length"] = _freqs(codes, first), lengths[at]
    ends = np.searchsorted(term_of[first], np.arange(len(terms)), side="right").tolist()
    packed = entries.tobytes(), places.tobytes()
    start = place = 0
    for term, end, count in zip(terms, ends, counts, strict=True):
        its = postings.of_term.setdefault(term, (bytearray(), bytearray()))
        its[0].extend(packed[0][start * ENTRY_BYTES : end * ENTRY_BYTES])
        its[1].extend(packed[1][place * 4 : (place + count) * 4])
        start, place = end, place + count


def _freqs(codes: Any, first: Any) -> Any:
    """Return the weighted frequencies in half units of runs of places that begin at `first`."""
    import numpy as np

    halves = np.array(list(COLUMN_HALVES.values()))
    return np.minimum(np.add.reduceat(halves[codes >> 28 & 3], first), 32_767)


class AskedWords(Vocabulary):
    """The vocabulary of one question: the terms of its words and of their likely meanings, then their frequencies."""

    chunks = 0

    def __init__(self, text: str) -> None:
        self._terms: dict[str, list[str]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        words = question_words(text)
        self.tokens(words)
        parts = {word: _parts_of(word) for word, terms in self.tokens(words) if is_guessed(terms[0])}
        self.tokens([part for its in parts.values() for part in its])
        guessed = [
            (self._terms[word][0], self._terms[part][:1]) for word, its in parts.items() for part in its or [word]
        ]
        self.parameters = {
            "terms": list({its[0]: None for word in words if (its := self._terms[word])}),
            "guessed": [term for term, _ in guessed],
            "parts": [part[0] if part else "" for _, part in guessed],
        }
        self.characters = [word for word in words if is_unspaced_character(word)]

    def answered(self, chunks: int, rows: Iterable[Sequence[Any]], characters: Mapping[str, int]) -> AskedWords:
        """Return the vocabulary with the frequencies from statements.VOCABULARY, and those of characters."""
        self.chunks, self._counts = chunks, {"character": dict(characters)}
        for kind, term, count in rows:
            self._counts.setdefault(kind, {})[term] = count
        return self

    def tokens(self, words: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return each word with its FTS5 terms, without words that have none."""
        new = [word for word in words if word not in self._terms]
        self._terms.update(zip(new, terms_in(new) if new else (), strict=True))
        return [(word, self._terms[word]) for word in words if self._terms[word]]

    def frequency(self, term: str) -> int:
        """Return in how many chunks a term stands."""
        near = (its[term] for kind, its in self._counts.items() if kind != "character" and term in its)
        return next(near, 0)

    def beginning_with(self, character: str) -> int:
        """Return in how many chunks a character of an unspaced script stands."""
        return self._counts["character"][character]

    def near(self, term: str) -> Iterable[str]:
        """Return the terms that begin with the same two letters and are about as long."""
        return list(self._counts.get(f"~{term}", {}))


def _parts_of(word: str) -> list[str]:
    """Return all parts of a word that `compound_parts` may ask for."""
    parts: list[str] = []

    def note(part: str) -> bool:
        parts.append(part)
        return word.lower().endswith(part)

    compound_parts(word.lower(), note)
    return parts


@dataclass(frozen=True, slots=True)
class Item:
    """A part of an FTS5 query: a word, a prefix, a phrase, or `phrases` within so many terms of each other.

    Each phrase has its terms; it `begins` if words that begin with the last one are meant.
    """

    given: str
    phrases: tuple[tuple[tuple[str, ...], bool], ...]
    within: int
    in_parts: bool

    @property
    def is_placed(self) -> bool:
        """True if the places of the terms matter."""
        return len(self.phrases) > 1 or not self.in_parts or any(len(terms) > 1 for terms, _ in self.phrases)

    @property
    def asked(self) -> list[tuple[str, str, bool]]:
        """The ranges of terms to read, in order; the places too if they matter."""
        return [
            (term, term + LARGEST_CHARACTER * (begins and at == len(terms)), self.is_placed)
            for terms, begins in self.phrases
            for at, term in enumerate(terms, start=1)
        ]


@lru_cache(maxsize=256)
def items_of(match: str) -> list[Item]:
    """Return the parts of one of Nugget's FTS5 queries, in order."""
    found = list(_ITEM.finditer(match))
    quoted = [re.findall(r'"([^"]*)"(\*?)', one[0]) for one in found]
    terms = iter(terms_in([text for its in quoted for text, _ in its]))
    phrases = [tuple((tuple(its), star == "*") for (_, star), its in zip(one, terms, strict=False)) for one in quoted]
    return [
        Item(one[0], tuple(phrase for phrase in its if phrase[0]), int(one["within"] or 0), one["column"] is None)
        for one, its in zip(found, phrases, strict=True)
    ]


def documents_of(item: Item, rows: Sequence[Sequence[Sequence[Any]]], dead: Any) -> Any:
    """Return the documents with an item as ENTRY, from the rows (entries, places) of each term that it asks for."""
    import numpy as np

    entries = [np.frombuffer(b"".join(row[0] for row in its), ENTRY) for its in rows]
    if not item.phrases or not all(map(len, entries)):
        return np.empty(0, ENTRY)
    found = entries[0]
    if item.is_placed:
        places = [b"".join(row[1] for row in its) for its in rows]
        codes = _places_of(item, list(map(_codes, entries, places)))
        first = np.flatnonzero(np.diff(codes >> 32, prepend=-1))
        found = entry_of(found, codes[first] >> 32)
        found["freq"] = _freqs(codes, first) if len(first) else 0
    elif item.phrases[0][1]:
        found = found[np.argsort(found["key"], kind="stable")]
        first = np.flatnonzero(np.diff(found["key"], prepend=-1))
        freqs, found = np.add.reduceat(found["freq"].astype(np.int64), first), found[first]
        found["freq"] = np.minimum(freqs, 32_767)
    return found[np.isin(found["key"], dead, invert=True)] if len(dead) else found


def entry_of(entries: Any, keys: Any) -> Any:
    """Return an entry of each of these documents."""
    import numpy as np

    order = np.argsort(entries["key"], kind="stable")
    return entries[order[np.searchsorted(entries["key"], keys, sorter=order)]]


def _codes(entries: Any, places: bytes) -> Any:
    """Return the places of a term with the keys of their documents above them, sorted."""
    import numpy as np

    at = np.frombuffer(places, "<i4")
    keys = entries["key"].astype(np.int64)[np.cumsum(at < 0) - 1]
    return np.sort(keys << 32 | np.where(at < 0, ~at, at), kind="stable")  # fast where they are in order, as usual


def _places_of(item: Item, codes: Sequence[Any]) -> Any:
    """Return where the phrases of an item begin; of those near each other, where the last begins."""
    import numpy as np

    starts, rest = [], iter(codes)
    for terms, _ in item.phrases:
        found = next(rest)
        for at in range(1, len(terms)):
            both = np.sort(np.concatenate((found, next(rest) - at)), kind="stable")
            found = both[:-1][np.diff(both) == 0]
        starts.append(found if item.in_parts else found[found >> 28 & 3 != _COLUMNS.index("parts")])
    if len(starts) == 1:
        return starts[0]
    last = np.sort(np.concatenate(starts), kind="stable")
    last = last[np.diff(last, prepend=-1) > 0]
    for (terms, _), its in zip(item.phrases, starts, strict=True):
        before = np.concatenate([[-(1 << 62)], its])[np.searchsorted(its, last, side="right")]
        last = last[before >= last - len(terms) - item.within]
    return last


def matching(match: str) -> str:
    """Return the SELECT of the keys of units that an FTS5 query, called `must`, matches.

    `must_items` and `must_keys` are the units of its items, by number.
    """
    order = iter(range(len(match)))
    condition = _ITEM.sub(lambda _: f"coalesce(bool_or(item = {next(order)}), false)", match)
    condition = re.sub(r"\bNOT\b", "AND NOT", condition)
    found = "unnest(%(must_items)s::int[], %(must_keys)s::int[]) AS found(item, key)"
    return f"SELECT key FROM {found} GROUP BY key HAVING {condition}"
