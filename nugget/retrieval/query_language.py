"""The query language of `nugget search`: docs/search.md says it in words.

    words side by side                any of them, by words and by meaning (free text)
    "exact phrase"  prefix*           a phrase, a beginning of a word
    one AND two   one OR two   one NOT two   ( … )
    NEAR(one two, 10)  one NEAR two   within so many words of each other
    type:decision domain:go tag:redis path:src/ session:4f1c source:canon since:2026-01-01 until:2026-06-30

Every string is a query. Operators are written in capitals; NOT binds tightest, then AND, then OR; in a query with
operators, words side by side must all match. What cannot be read as the language is searched as plain text, and
`SearchQuery.problem` says why.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from nugget.index.fulltext import STOP_WORDS, asked_word, has_unspaced, is_unspaced_character, pieces, prefix_match
from nugget.models import Filter, SourceName
from nugget.models.nuggets import TYPES
from nugget.text import parse_day

MAX_QUERY_CHARS = 8000
NEAR_WORDS = 10
"""How near NEAR is where no number says so; FTS5's own default."""
FIELDS = ("type", "domain", "tag", "path", "session", "source", "since", "until")
"""The filters, by the word before the colon; `scope` is another word for `source`."""

_MAX_DEPTH = 40
_MAX_TERMS = 64
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "\x00": " "})
_FIELD = re.compile(rf"({'|'.join(FIELDS)}|scope):(?=\S)", re.IGNORECASE)
_VALUE = re.compile(r'"([^"]*)"|[^\s()]+')
_NEAR = re.compile(r"NEAR\(([^()]*?)(?:,\s*(\d{1,9})\s*)?\)(?=[\s()]|$)")
_NEAR_INFIX = re.compile(r"NEAR(?:/(\d{1,9}))?")
_WORD = re.compile(r"[^\s()]+")
_WORDS_IN = re.compile(r"[^\W_]+")
_OPERATORS = re.compile(r"(?:^|[\s(])(?:AND|OR|NOT)(?=[\s()]|$)")
_AND = re.compile(r"\s+AND(?=[\s(])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word, a phrase, or (with `prefix`) the beginning of one."""

    text: str
    phrase: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Terms that stand within `distance` words of each other."""

    terms: tuple[Term, ...]
    distance: int = NEAR_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    """Every part must match."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Any:
    """At least one part must match."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """What matches `wanted` and not `unwanted`."""

    wanted: Expression
    unwanted: Expression


Expression = Term | Near | All | Any | Without


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A query that was read.

    `text` are the words to rank by, without filters, operators and what stands behind NOT. `expression` is None for
    free text; what is found must match it otherwise (`compile_match` makes it FTS5). `filter` holds the filters.
    `problem` says why a malformed query was taken as plain text. `lists` tells that nothing but filters was given: all
    that they admit is wanted.
    """

    given: str
    text: str
    expression: Expression | None = None
    filter: Filter = field(default_factory=Filter)
    problem: str | None = None
    lists: bool = False

    @property
    def match(self) -> str:
        """The FTS5 expression that what is found must match; empty for free text."""
        return "" if self.expression is None else compile_match(self.expression)

    @property
    def match_any(self) -> str:
        """The FTS5 expression that ranks what matches: any wanted term; empty for free text."""
        if self.expression is None:
            return ""
        return " OR ".join(compile_match(term) for term in wanted_terms(self.expression))


class _Malformed(Exception):
    """Why a query is none of the language; told to the person, never raised beyond this module."""


def parse_search(text: str, *, today: date) -> SearchQuery:
    """Read a query. Never raises; `today` is what `since:30d` counts from."""
    given = text.encode("utf-8", "replace").decode("utf-8")[:MAX_QUERY_CHARS]
    try:
        tokens, filter_ = _tokens(given.translate(_QUOTES), today)
        if not any(isinstance(token, str) or _is_special(token) for token in tokens):
            words = " ".join(token.text for token in tokens if isinstance(token, Term))
            return SearchQuery(given=given, text=words, filter=filter_)
        expression = _Reader(tokens).read()
    except _Malformed as error:
        return SearchQuery(given=given, text=given.strip(), problem=str(error))
    words = " ".join(term.text for term in wanted_terms(expression))
    return SearchQuery(given=given, text=words, expression=expression, filter=filter_)


def wanted_terms(expression: Expression) -> Iterator[Term]:
    """Yield the terms of an expression, without those behind NOT."""
    if isinstance(expression, Term):
        yield expression
    elif isinstance(expression, Near):
        yield from expression.terms
    elif isinstance(expression, Without):
        yield from wanted_terms(expression.wanted)
    else:
        for part in expression.parts:
            yield from wanted_terms(part)


def compile_match(expression: Expression) -> str:
    """Return the FTS5 query of an expression. Every word is quoted, so that no text is ever syntax."""
    if isinstance(expression, Term):
        return _compile_term(expression)
    if isinstance(expression, Near):
        if any(has_unspaced(term.text) for term in expression.terms):  # whose words nobody can count
            return compile_match(All(parts=expression.terms))
        return f"- parts : NEAR({' '.join(_quoted(term) for term in expression.terms)}, {expression.distance})"
    if isinstance(expression, Without):
        return f"({compile_match(expression.wanted)} NOT {compile_match(expression.unwanted)})"
    joint = " AND " if isinstance(expression, All) else " OR "
    return f"({joint.join(compile_match(part) for part in expression.parts)})"


def merge_filters(one: Filter, other: Filter) -> Filter:
    """Return both filters at once: lists are joined, of two days the one that admits less counts."""
    lists = ("sources", "types", "domains", "tags", "paths", "sessions")
    joined: dict[str, typing.Any] = {
        name: tuple(dict.fromkeys((*getattr(one, name), *getattr(other, name)))) for name in lists
    }
    return Filter(
        **joined,
        since=max(filter(None, (one.since, other.since)), default=None),
        until=min(filter(None, (one.until, other.until)), default=None),
        min_confidence=max(one.min_confidence, other.min_confidence),
        match=one.match or other.match,
    )


def _is_special(token: Term | Near) -> bool:
    return isinstance(token, Near) or token.phrase or token.prefix


def _tokens(text: str, today: date) -> tuple[list[Term | Near | str], Filter]:
    """Return the terms, and as bare strings the operators and parentheses; and the filters."""
    tokens: list[Term | Near | str] = []
    values: dict[str, list[str]] = {}
    groups = _OPERATORS.search(text) is not None  # else parentheses are those of `retry()`
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char in "()":
            if groups:
                tokens.append(char)
            at += 1
        elif char == '"':
            end = text.find('"', at + 1)
            if end < 0:
                raise _Malformed("a quotation mark is not closed")
            is_prefix = text[end + 1 : end + 2] == "*"
            _add(tokens, Term(text=text[at + 1 : end], phrase=True, prefix=is_prefix))
            at = end + 1 + is_prefix
        elif near := _NEAR.match(text, at):
            tokens.append(_near(near[1], near[2]))
            at = near.end()
        elif named := _FIELD.match(text, at):
            value = _VALUE.match(text, named.end())
            if value is None:
                raise _Malformed(f"`{named[0]}` names nothing")
            if tokens and tokens[-1] in ("NOT", "OR"):
                raise _Malformed(f"{tokens[-1]} does not go with a filter such as `{named[0]}`")
            values.setdefault(named[1].lower(), []).append(value[1] or value[0])
            behind = _AND.match(text, value.end())  # filters hold for the whole query: AND beside one says nothing more
            at = behind.end() if behind else value.end()
            if tokens and tokens[-1] == "AND" and not behind:
                tokens.pop()
        else:
            word = _WORD.match(text, at)
            assert word is not None
            _add_word(tokens, word[0], groups=groups)
            at = word.end()
    terms = [token for token in tokens if not isinstance(token, str)]
    if len(terms) > _MAX_TERMS and (groups or any(map(_is_special, terms))):
        raise _Malformed(f"it has more than {_MAX_TERMS} words")
    return tokens, _filter(values, today)


def _add_word(tokens: list[Term | Near | str], word: str, *, groups: bool) -> None:
    infix = _NEAR_INFIX.fullmatch(word)
    if word in ("AND", "OR", "NOT") or (infix and tokens and isinstance(tokens[-1], Term)):
        tokens.append(word)
    elif word.endswith("*") and any(char.isalnum() for char in word) and "*" not in word[:-1]:
        _add(tokens, Term(text=word[:-1], prefix=True))
    else:
        _add(tokens, Term(text=word.strip('"') if groups else word))


def _add(tokens: list[Term | Near | str], term: Term) -> None:
    """Return a term, where FTS5 would see a word in it."""
    if any(char.isalnum() for char in term.text):
        tokens.append(term)


def _near(inside: str, distance: str | None) -> Near:
    tokens, filter_ = _tokens(inside, date.min)
    terms = tuple(token for token in tokens if isinstance(token, Term))
    if len(terms) < 2 or len(terms) < len(tokens) or not filter_.is_empty:
        raise _Malformed("NEAR( ) wants two or more words or phrases")
    return Near(terms=terms, distance=int(distance) if distance else NEAR_WORDS)


def _filter(values: dict[str, list[str]], today: date) -> Filter:
    listed = {
        name: tuple(part for value in given for part in value.split(",") if part) for name, given in values.items()
    }
    names = [*listed.get("source", ()), *listed.get("scope", ())]
    if unknown := next((name for name in names if name.lower() not in list(SourceName)), None):
        raise _Malformed(f"there is no source {unknown!r}")
    types = tuple(name.lower() for name in listed.get("type", ()))
    if unknown := next((name for name in types if name not in TYPES), None):
        raise _Malformed(f"there is no type {unknown!r}")
    days: dict[str, date] = {}
    for name in ("since", "until"):
        for given in values.get(name, ()):
            day = parse_day(given, today=today, last=name == "until")
            if day is None:
                raise _Malformed(f"`{name}:{given}` is not a date such as 2026-01-31 or 30d")
            days[name] = day
    return Filter(
        sources=tuple(SourceName(name.lower()) for name in names),
        types=types,
        domains=tuple(name.strip("/") for name in listed.get("domain", ())),
        tags=listed.get("tag", ()),
        paths=listed.get("path", ()),
        sessions=listed.get("session", ()),
        since=days.get("since"),
        until=days.get("until"),
    )


class _Reader:
    """Reads tokens by descending: OR of AND of NOT of terms."""

    def __init__(self, tokens: Sequence[Term | Near | str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def read(self) -> Expression:
        """Return the whole expression. Raises _Malformed."""
        found = self._either()
        if self._peek() is not None:
            raise _Malformed("a parenthesis is closed that was not opened")
        return found

    def _peek(self) -> Term | Near | str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _either(self) -> Expression:
        parts = [self._every()]
        while self._peek() == "OR":
            self._at += 1
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Any(parts=tuple(parts))

    def _every(self) -> Expression:
        parts: list[Expression] = []
        unwanted: list[Expression] = []
        expects = True
        while (token := self._peek()) not in (None, "OR", ")"):
            if token == "AND":
                if expects:
                    raise _Malformed("AND stands between two words")
                self._at += 1
                expects = True
            elif token == "NOT":
                self._at += 1
                unwanted.append(self._one("NOT"))
                expects = False
            else:
                parts.append(self._one("AND"))
                expects = False
        if expects:
            raise _Malformed("an operator (AND, OR, NOT) or a parenthesis stands alone")
        parts = [part for part in parts if not _is_stop_word(part)] or parts
        if not parts:
            raise _Malformed("NOT needs something to take away from")
        wanted = parts[0] if len(parts) == 1 else All(parts=tuple(parts))
        for part in unwanted:
            wanted = Without(wanted=wanted, unwanted=part)
        return wanted

    def _one(self, behind: str) -> Expression:
        token = self._peek()
        self._at += 1
        if token is None or (isinstance(token, str) and token != "("):
            raise _Malformed(f"{behind} needs a word behind it")
        if token == "(":
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise _Malformed("its parentheses are nested too deep")
            inner = self._either()
            if self._peek() != ")":
                raise _Malformed("a parenthesis is not closed")
            self._at += 1
            self._depth -= 1
            return inner
        assert not isinstance(token, str)
        following = self._peek()
        infix = _NEAR_INFIX.fullmatch(following) if isinstance(following, str) else None
        if infix and isinstance(token, Term):
            self._at += 1
            other = self._peek()
            if not isinstance(other, Term):
                raise _Malformed("NEAR needs a word on both sides")
            self._at += 1
            return Near(terms=(token, other), distance=int(infix[1] or NEAR_WORDS))
        return token


def _is_stop_word(part: Expression) -> bool:
    return isinstance(part, Term) and not part.phrase and not part.prefix and part.text.lower() in STOP_WORDS


def _compile_term(term: Term) -> str:
    if is_unspaced_character(term.text):
        return asked_word(term.text)
    if has_unspaced(term.text) and not term.prefix:  # the index holds such scripts as overlapping pairs
        spread = " ".join(piece for word in term.text.split() for piece in pieces(word) or [word])
        return f"({_quoted(term)} OR {_quoted(replace(term, text=spread))})"
    match = prefix_match(_inside(term)) if term.prefix else _quoted(term)
    # What stands side by side among the pieces of words does not in the text.
    return f"- parts : {match}" if len(_WORDS_IN.findall(term.text)) > 1 else match


def _quoted(term: Term) -> str:
    return f'"{_inside(term)}"*' if term.prefix else f'"{_inside(term)}"'


def _inside(term: Term) -> str:
    """What stands between the quotation marks, of which it can hold none."""
    return term.text.replace('"', " ")
