"""BM25 in PostgreSQL, with the scores of FTS5's own function.

FTS5 in memory splits texts and questions; postings are made from its tokens, and one statement sums a list.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nugget.index.fulltext import (
    COLUMN_HALVES,
    HALVES,
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
_ITEM = re.compile(r'(?P<column>- parts : )?(?:NEAR\([^)]*\)|"(?P<text>[^"]*)"(?P<begins>\*?))')


@dataclass(slots=True)
class Postings:
    """The documents of each term: keys, weighted frequencies in half units, and lengths of the documents."""

    of_term: dict[str, tuple[array[int], array[int], array[int]]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)


def add_postings(postings: Postings, rows: Sequence[Document]) -> None:
    """Add documents, whose keys must be above all existing ones, to postings."""
    sql = f"SELECT term, doc, sum({HALVES}), count(*) FROM instances GROUP BY term, doc"
    with documents(rows) as held:
        counted = held.execute(f"{sql} ORDER BY term, doc").fetchall()
    lengths = dict.fromkeys((key for key, _ in rows), 0)
    for _, key, _, count in counted:
        lengths[key] += count
    postings.lengths |= lengths
    for term, key, freq, _ in counted:
        keys, freqs, sizes = postings.of_term.setdefault(term, (array("i"), array("h"), array("i")))
        keys.append(key)
        freqs.append(min(freq, 32_767))
        sizes.append(lengths[key])


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
            "characters": [self._terms[word][0] for word in words if is_unspaced_character(word) and self._terms[word]],
        }

    def answered(self, chunks: int, rows: Iterable[Sequence[Any]]) -> AskedWords:
        """Return the vocabulary with the frequencies from statements.VOCABULARY."""
        self.chunks = chunks
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
        return self._counts.get("character", {}).get(self._terms[character][0], 0)

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
    """A part of an FTS5 query: a word, a prefix, a phrase, or words near each other.

    A phrase of several `terms`, or a NEAR, is found by reading the documents that contain all of them.
    """

    given: str
    terms: tuple[str, ...]
    begins: bool
    in_parts: bool

    @property
    def required(self) -> list[str]:
        """The terms that a document must contain."""
        return list(dict.fromkeys(self.terms[: len(self.terms) - (self.begins and len(self.terms) > 1)]))

    @property
    def is_placed(self) -> bool:
        """True if the positions of the terms matter."""
        return len(self.terms) > 1 or not self.in_parts


@lru_cache(maxsize=256)
def items_of(match: str) -> list[Item]:
    """Return the parts of one of Nugget's FTS5 queries, in order."""
    found = list(_ITEM.finditer(match))
    terms = terms_in([" ".join(one[0].split('"')[1::2]) for one in found])
    return [
        Item(one[0], tuple(its), one["begins"] == "*", one["column"] is None)
        for one, its in zip(found, terms, strict=True)
    ]


def ranges(items: Sequence[Item], name: str) -> dict[str, list[Any]]:
    """Return the parameters of the items that need only postings."""
    plain = [(at, item) for at, item in enumerate(items) if item.terms and not item.is_placed]
    return {
        f"{name}_items": [at for at, _ in plain],
        f"{name}_lows": [item.terms[0] for _, item in plain],
        f"{name}_highs": [item.terms[0] + (LARGEST_CHARACTER if item.begins else "") for _, item in plain],
    }


def places(item: Item, rows: Sequence[Document]) -> list[tuple[int, int, int]]:
    """Return the documents with an item, as (key, weighted frequency in half units, length)."""
    at: dict[tuple[int, str], list[str]] = {}
    with documents(rows) as read:
        held = {row[0] for row in read.execute("SELECT rowid FROM docs WHERE docs MATCH ?", (item.given,))}
        for key, column, term in read.execute("SELECT doc, col, term FROM instances ORDER BY doc, col, offset"):
            at.setdefault((key, column), []).append(term)
    freqs, lengths = dict.fromkeys(held, 0), dict.fromkeys(held, 0)
    size, is_last = len(item.terms), str.startswith if item.begins else str.__eq__
    for (key, column), terms in at.items():
        if key not in held:
            continue
        lengths[key] += len(terms)
        if column == "parts" and not item.in_parts:
            continue
        count = sum(
            tuple(terms[start : start + size - 1]) == item.terms[:-1]
            and is_last(terms[start + size - 1], item.terms[-1])
            for start in range(len(terms) - size + 1)
        )
        freqs[key] += count * COLUMN_HALVES[column]
    return [(key, freqs[key], lengths[key]) for key in sorted(held)]


def hits(kind: int, name: str, *, prefixes: bool, placed: bool = True) -> str:
    """Return the SELECT of (item, weight, key, freq, length): the documents of each item of the query called `name`.

    It reads the parameters of `ranges`; `weight` is the item's in BM25. Without `prefixes`, terms are looked up by
    equality, for which PostgreSQL expects few rows; for a range it would read all. Without `placed`, none is a phrase.
    """
    where = f"space = %(space)s AND kind = {kind}"
    term = "term BETWEEN q.low AND q.high" if prefixes else "term = q.low"
    arrays = ", ".join(f"%({name}{kind}_{column})s::int[]" for column in ("item", "key", "freq", "length"))
    docs = f"(SELECT sum(docs)::float8 FROM nugget.segments WHERE {where})"
    weight = f"greatest(ln(({docs} - {{0}} + 0.5) / ({{0}} + 0.5)), 1e-6) * 2.2"
    counted, summed = (weight.format(f"{of} OVER (PARTITION BY item)") for of in ("count(*)", "sum(docs)"))
    select = f"item, {counted} AS weight, key, sum(freq) AS freq, max(length) AS length" if prefixes else "*"
    places = f"UNION ALL SELECT item, {counted}, key, freq, length FROM unnest({arrays}) AS f(item, key, freq, length)"
    return f"""
        SELECT {select} FROM (
            SELECT item, weight, unnest(keys) AS key, unnest(freqs) AS freq, unnest(lengths) AS length FROM (
                SELECT item, {"NULL" if prefixes else summed}::float8 AS weight, keys, freqs, lengths
                FROM unnest(%({name}_items)s::int[], %({name}_lows)s::text[], %({name}_highs)s::text[])
                    AS q(item, low, high)
                CROSS JOIN LATERAL (SELECT * FROM nugget.postings WHERE {where} AND {term}) AS p) AS lists
            {places if placed else ""}
        ) AS all_hits WHERE key NOT IN (SELECT key FROM nugget.dead WHERE {where})
        {"GROUP BY item, key" if prefixes else ""}"""


def ranking(kind: int, *, limit: str, admitted: str, **shape: bool) -> str:
    """Return the SELECT of the best documents for any item of the query `any`, as (key, score), with FTS5's BM25.

    `admitted` selects the keys of the units that may be found; frequencies are counted before it, as FTS5 does.
    """
    test = f"WHERE (key IN ({admitted})) IS TRUE" if admitted else ""  # IS TRUE makes PostgreSQL hash the keys once
    ranked = f"""
        SELECT key, sum(weight * freq / (freq + 0.6::float8 + length * (
            SELECT 1.8 * sum(docs) / nullif(sum(tokens), 0)::float8 FROM nugget.segments
            WHERE space = %(space)s AND kind = {kind}))) AS score
        FROM ({hits(kind, "any", **shape)}) AS hits {"" if kind == CHUNKS else test} GROUP BY key"""
    if admitted and kind == CHUNKS:
        ranked = f"""
            WITH ranked AS MATERIALIZED ({ranked}), of_unit AS MATERIALIZED (
                SELECT key AS chunk, unit_key AS key FROM nugget.chunks
                WHERE space = %(space)s AND key = ANY (ARRAY(SELECT key FROM ranked)))
            SELECT ranked.key, score FROM (SELECT * FROM of_unit {test}) AS c JOIN ranked ON ranked.key = chunk"""
    return f"{ranked} ORDER BY score DESC, key LIMIT {limit}"


def matching(match: str) -> str:
    """Return the SELECT of the keys of the units that an FTS5 query, called `must`, matches."""
    order = iter(range(len(match)))
    condition = _ITEM.sub(lambda _: f"coalesce(bool_or(item = {next(order)}), false)", match)
    condition = re.sub(r"\bNOT\b", "AND NOT", condition)
    found = hits(UNITS, "must", prefixes='"*' in match)
    return f"SELECT key FROM ({found}) AS h GROUP BY key HAVING {condition}"
