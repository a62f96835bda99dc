"""Queries with operators over history: what the index is asked, and whether a text really holds what is wanted.

The index knows which words a passage holds, not where. So it is asked for a wider set, a phrase as all of its words,
and the expression is then tried on the text of each passage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nugget.history.words import Wanted, fold, folded_words, wanted
from nugget.index.fulltext import STOP_WORDS, has_unspaced, pieces
from nugget.search_language import All, Any, Expression, Near, Term, Without

Stem = Callable[[str], str]
"""The stem of a word, as the index has it."""

_WORD = re.compile(r"[^\W_]+")


def wider_match(expression: Expression) -> str:
    """The FTS5 query for every passage that may match; empty where any may, because only function words are wanted."""
    if isinstance(expression, Term):
        return _all_words([expression])
    if isinstance(expression, Near):
        return _all_words(expression.terms)
    if isinstance(expression, Without):
        wanted_, unwanted = wider_match(expression.wanted), expression.unwanted
        if wanted_ and isinstance(unwanted, Term) and len(_words(unwanted)) == 1 and _all_words([unwanted]):
            return f"({wanted_} NOT {_all_words([unwanted])})"
        return wanted_
    parts = [wider_match(part) for part in expression.parts]
    if isinstance(expression, All):
        return _joined([part for part in parts if part], " AND ")
    return _joined(parts, " OR ") if all(parts) else ""


def is_exact(expression: Expression) -> bool:
    """Whether `wider_match` says all there is to say: single words only, with AND, OR and NOT between them."""
    if isinstance(expression, Term):
        return len(_words(expression)) == 1 and not has_unspaced(expression.text)
    if isinstance(expression, Near):
        return False
    if isinstance(expression, Without):
        return is_exact(expression.wanted) and is_exact(expression.unwanted) and isinstance(expression.unwanted, Term)
    return all(is_exact(part) for part in expression.parts)


def prefixes_of(expression: Expression) -> set[str]:
    """The words of an expression that stand for the beginning of a word, folded."""
    if isinstance(expression, Term):
        return {fold(_words(expression)[-1])} if expression.prefix and _words(expression) else set()
    if isinstance(expression, Near):
        return {word for term in expression.terms for word in prefixes_of(term)}
    if isinstance(expression, Without):
        return prefixes_of(expression.wanted)
    return {word for part in expression.parts for word in prefixes_of(part)}


def holds(expression: Expression, text: str, stem: Stem) -> bool:
    """Whether a text matches an expression."""
    words, extra = folded_words(text)
    return _holds(expression, words, extra, fold(text), stem)


def _holds(expression: Expression, words: Sequence[str], extra: set[str], folded: str, stem: Stem) -> bool:
    if isinstance(expression, All):
        return all(_holds(part, words, extra, folded, stem) for part in expression.parts)
    if isinstance(expression, Any):
        return any(_holds(part, words, extra, folded, stem) for part in expression.parts)
    if isinstance(expression, Without):
        return _holds(expression.wanted, words, extra, folded, stem) and not _holds(
            expression.unwanted, words, extra, folded, stem
        )
    if isinstance(expression, Near):
        return _are_near(expression, words, stem)
    if has_unspaced(expression.text):
        return fold(expression.text.strip()) in folded
    forms = _forms(expression, stem)
    if len(forms) == 1 and any(forms[0].matches(piece) for piece in extra):
        return True
    return bool(_places(forms, words))


def _are_near(near: Near, words: Sequence[str], stem: Stem) -> bool:
    """FTS5's meaning: no more than `distance` words stand between the first and the last of the terms."""
    marks = []
    room = near.distance
    for number, term in enumerate(near.terms):
        forms = _forms(term, stem)
        places = _places(forms, words)
        if not places:
            return False
        room += len(forms)
        marks += [(place, number) for place in places]
    last: dict[int, int] = {}
    for place, number in sorted(marks):
        last[number] = place
        if len(last) == len(near.terms) and place - min(last.values()) < room:
            return True
    return False


def _places(forms: Sequence[Wanted], words: Sequence[str]) -> list[int]:
    """Where these words stand one behind the other."""
    if not forms:
        return []
    return [
        at
        for at in range(len(words) - len(forms) + 1)
        if all(form.matches(words[at + offset]) for offset, form in enumerate(forms))
    ]


def _forms(term: Term, stem: Stem) -> list[Wanted]:
    words = _words(term)
    return [wanted(word, stem(word), 1.0, is_prefix=term.prefix and word is words[-1]) for word in words]


def _words(term: Term) -> list[str]:
    return _WORD.findall(term.text)


def _all_words(terms: Sequence[Term]) -> str:
    parts = []
    for term in terms:
        words = _words(term)
        for number, word in enumerate(words):
            is_prefix = term.prefix and number == len(words) - 1
            if has_unspaced(word):
                parts += [f'"{piece}"' for piece in pieces(word) or [word]]
            elif is_prefix or word.lower() not in STOP_WORDS:
                parts.append(f'"{word}"*' if is_prefix else f'"{word}"')
    return _joined(parts, " AND ")


def _joined(parts: Sequence[str], by: str) -> str:
    return f"({by.join(parts)})" if len(parts) > 1 else "".join(parts)
