"""Queries with operators over history: what the index is asked, and whether a text really holds what is wanted.

The index knows which words a passage holds, not where. So it is asked for a wider set, a phrase as all of its words,
and the expression is then tried on the text of each passage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import AnyStr

from nugget.history.words import Wanted, fold, folded_pieces, wanted
from nugget.index.fulltext import STOP_WORDS, asked_word, has_unspaced, pieces, prefix_match
from nugget.index.query_language import All, Any, Expression, Near, Term, Without

Stem = Callable[[str], str]
"""The stem of a word, as the index has it."""
Probe = Callable[[bytes], bool]
_Test = Callable[[str, str], bool]

_WORD = re.compile(r"[^\W_]+")
_WORD_OF_LINE = re.compile(rb"(?<!\\)[^\W_]+|(?<=\\)[bfnrt][^\W_]+")
"""A word of a JSON line, but not the letter of a `\\n` that stands alone; no more of them than its text has."""
_NOTHING = re.compile(r"(?!)")


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


def matcher(expression: Expression, stem: Stem) -> Callable[[str], bool]:
    """What says of a text whether it matches; made once for the thousands of texts that it may be asked of."""
    tests = _test(expression, stem)

    def holds(text: str) -> bool:
        return tests(text, fold(text))

    return holds


def probe(expression: Expression, stem: Stem) -> Probe | None:
    r"""What tells of a JSON line, in lower case, that its text cannot match; None where nothing can be said.

    It admits more than the expression does, and spares most lines from being parsed. It holds for lines of ASCII
    without `\u`: `\n` and the like, which stand between words there, are letters behind a backslash.
    """
    if isinstance(expression, All):
        return next((found for part in expression.parts if (found := probe(part, stem))), None)
    if isinstance(expression, Without):
        return probe(expression.wanted, stem)
    if isinstance(expression, Near):
        return _probe_of_near(expression, stem)
    if not isinstance(expression, Term):
        return None
    starts = _starts(expression, stem)
    if len(starts) < 2:
        return None
    between = r"[^\W_]*(?:[\W_]|\\[bfnrt])+"
    phrase = re.compile(between.join(map(re.escape, starts)).encode())
    return lambda line: phrase.search(line) is not None


def _probe_of_near(expression: Near, stem: Stem) -> Probe | None:
    starts = [_starts(term, stem) for term in expression.terms]
    if any(len(words) != 1 for words in starts):
        return None
    terms = [(re.compile(re.escape(word).encode()), expression.distance + 1) for (word,) in starts]
    return lambda line: _are_near(terms, line, _WORD_OF_LINE)


def _starts(term: Term, stem: Stem) -> list[str]:
    """What the words of a term begin with; none where they need not stand like that in a line."""
    if has_unspaced(term.text):
        return []
    starts = [form.start for form in _forms(term, stem)]
    return starts if all(start.isascii() for start in starts) else []


def _test(expression: Expression, stem: Stem) -> _Test:
    """A test of a text and its folded form."""
    if isinstance(expression, All):
        every = [_test(part, stem) for part in expression.parts]
        return lambda text, folded: all(test(text, folded) for test in every)
    if isinstance(expression, Any):
        either = [_test(part, stem) for part in expression.parts]
        return lambda text, folded: any(test(text, folded) for test in either)
    if isinstance(expression, Without):
        wanted_, unwanted = _test(expression.wanted, stem), _test(expression.unwanted, stem)
        return lambda text, folded: wanted_(text, folded) and not unwanted(text, folded)
    if isinstance(expression, Near) and any(has_unspaced(term.text) for term in expression.terms):
        return _test(All(parts=expression.terms), stem)
    if isinstance(expression, Near):
        forms_of = [_forms(term, stem) for term in expression.terms]
        terms = [(_pattern(forms), expression.distance + len(forms)) for forms in forms_of]
        return lambda _, folded: _are_near(terms, folded, _WORD)
    if has_unspaced(expression.text):
        written = fold(expression.text.strip())
        return lambda _, folded: written in folded
    forms = _forms(expression, stem)
    pattern = _pattern(forms)
    if len(forms) > 1:
        return lambda _, folded: pattern.search(folded) is not None
    return lambda text, folded: pattern.search(folded) is not None or any(map(forms[0].matches, folded_pieces(text)))


def _pattern(forms: Sequence[Wanted]) -> re.Pattern[str]:
    """These words one behind the other, in a folded text.

    That the first one begins a word is looked at behind its letters: a pattern that begins with letters is found by
    them, as fast as `str.find` does it, any other is tried at each character.
    """
    if not forms:
        return _NOTHING
    first = re.escape(forms[0].start)
    words = [re.escape(form.start) + form.tail.pattern for form in forms]
    return re.compile(rf"{first}(?<![^\W_]{first})" + r"[\W_]+".join(words).removeprefix(first))


def _are_near(terms: Sequence[tuple[re.Pattern[AnyStr], int]], text: AnyStr, word: re.Pattern[AnyStr]) -> bool:
    """FTS5's meaning of NEAR: from where each term begins there are so many words to where the last one does."""
    marks: list[tuple[int, int]] = []
    for number, (term, _) in enumerate(terms):
        places = [(found.start(), number) for found in term.finditer(text)]
        if not places:
            return False
        marks += places
    last: dict[int, int] = {}
    for place, number in sorted(marks):
        last[number] = place
        if len(last) == len(terms) and all(
            len(word.findall(text, start, place)) <= terms[which][1] for which, start in last.items()
        ):
            return True
    return False


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
                parts += [asked_word(piece) for piece in pieces(word) or [word]]
            elif is_prefix or word.lower() not in STOP_WORDS:
                parts.append(prefix_match(word) if is_prefix else f'"{word}"')
    return _joined(parts, " AND ")


def _joined(parts: Sequence[str], by: str) -> str:
    return f"({by.join(parts)})" if len(parts) > 1 else "".join(parts)
