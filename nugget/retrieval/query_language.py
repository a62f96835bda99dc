"""The query language of `nugget search`, which docs/search.md describes.

    words side by side                any of them, by words and by meaning (free text)
    "exact phrase"  prefix*           a phrase, the beginning of a word
    one AND two   one OR two   one NOT two   ( … )
    NEAR(one two, 10)  one NEAR two   within this many words of each other
    type:decision domain:go tag:redis path:src/ session:4f1c source:canon since:2026-01-01 until:2026-06-30

Every string is a query. Operators are written in capitals; NOT binds tightest, then AND, then OR; in a query with
operators, words side by side must all match. What cannot be read as the language is searched as plain text, and
`SearchQuery.problem` says why.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, NamedTuple

from nugget.errors import UsageError
from nugget.index.fulltext import STOP_WORDS, has_unspaced, is_unspaced_character, match_word, pieces, prefix_match
from nugget.models import Filter, SourceName
from nugget.models.nuggets import TYPES
from nugget.text import parse_day

MAX_QUERY_CHARS = 8000
NEAR_WORDS = 10
"""The distance of a NEAR without a number, which is FTS5's default."""

_MAX_DEPTH = 40
_MAX_TERMS = 64
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "\x00": " "})
_TOKEN = re.compile(
    r"""(?P<field>(?i:type|domain|tag|path|session|source|scope|since|until)):(?=\S)
        (?:"(?P<quoted>[^"]*)"|(?P<value>[^\s()]*))(?P<and>\s+AND(?=[\s(]))?
      | NEAR\((?P<near>[^()]*?)(?:,\s*(?P<distance>\d{1,9})\s*)?\)(?=[\s()]|$)
      | (?P<operator>AND|OR|NOT)(?=[\s()]|$)
      | NEAR(?:/(?P<within>\d{1,9}))?(?P<infix>)(?=\s|$)
      | "(?P<phrase>[^"]*)"(?P<begins>\*?)
      | (?P<mark>["()])
      | (?P<word>[^\s()]+)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word, a phrase, or (with `prefix`) the beginning of one."""

    text: str
    phrase: bool = False
    prefix: bool = False

    @property
    def quoted(self) -> str:
        """The term in quotation marks, so that text is never taken as syntax."""
        inside = self.text.replace('"', " ")
        return f'"{inside}"*' if self.prefix else f'"{inside}"'

    @property
    def match(self) -> str:
        """The FTS5 query of the term."""
        if is_unspaced_character(self.text):
            return match_word(self.text)
        if has_unspaced(self.text) and not self.prefix:  # the index stores such scripts as overlapping pairs
            spread = " ".join(piece for word in self.text.split() for piece in pieces(word) or [word])
            return f"({self.quoted} OR {Term(text=spread).quoted})"
        match = prefix_match(self.text.replace('"', " ")) if self.prefix else self.quoted
        # Neighbours among the pieces of words are not neighbours in the text.
        return f"- parts : {match}" if len(re.findall(r"[^\W_]+", self.text)) > 1 else match


class _Part(NamedTuple):
    """A part of a query: its FTS5 query, and its wanted terms."""

    match: str
    terms: tuple[Term, ...]

    @property
    def is_word(self) -> bool:
        """Return whether this is a single plain word."""
        return len(self.terms) == 1 and not (self.terms[0].phrase or self.terms[0].prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A parsed query.

    `text` holds the words to rank by, without filters, operators and the words after NOT. `match` is the FTS5 query
    that every hit must match and `terms` are its wanted terms; both are empty for free text. `problem` says why a
    malformed query was taken as plain text. `lists` is set if the query has only filters: then every unit that passes
    them is wanted.
    """

    given: str
    text: str
    match: str = ""
    terms: tuple[Term, ...] = ()
    filter: Filter = field(default_factory=Filter)
    problem: str | None = None
    lists: bool = False

    @property
    def match_any(self) -> str:
        """The FTS5 query that ranks the hits: any wanted term; empty for free text."""
        return " OR ".join(term.match for term in self.terms)


def parse_search(text: str, *, today: date) -> SearchQuery:
    """Parse a query. Never raises; `today` is the day that `since:30d` counts from."""
    given = text.encode("utf-8", "replace").decode("utf-8")[:MAX_QUERY_CHARS]
    try:
        tokens, filter_ = _tokens(given.translate(_QUOTES), today)
        terms = [term for token in tokens if isinstance(token, _Part) for term in token.terms]
        if all(isinstance(token, _Part) and token.is_word for token in tokens):
            return SearchQuery(given=given, text=" ".join(term.text for term in terms), filter=filter_)
        if len(terms) > _MAX_TERMS:
            raise UsageError(f"it has more than {_MAX_TERMS} words")
        rest = deque(tokens)
        found = _any_of(rest, 0)
        if rest:
            raise UsageError("a parenthesis is closed that was not opened")
    except UsageError as error:
        return SearchQuery(given=given, text=given.strip(), problem=str(error))
    words = " ".join(term.text for term in found.terms)
    return SearchQuery(given=given, text=words, match=found.match, terms=found.terms, filter=filter_)


def with_synonyms(text: str, synonyms: Sequence[str]) -> str:
    """Return a question followed by the synonyms (`pto=paid time off`) of its words."""
    words = " ".join(["", *re.findall(r"[^\W_]+", text.casefold()), ""])
    added: dict[str, None] = {}
    for entry in synonyms:
        names = [" ".join(name.casefold().split()) for name in entry.split("=") if name.strip()]
        if any(f" {name} " in words for name in names):
            added |= dict.fromkeys(name for name in names if f" {name} " not in words)
    return " ".join([text, *added])


def with_saved(text: str, searches: Sequence[str]) -> str:
    """Return a query with a leading `@NAME` replaced by the saved query of that name, if there is one."""
    name, _, rest = text.strip().partition(" ")
    saved = (entry.partition("=")[2] for entry in searches if f"@{entry.partition('=')[0].strip()}" == name)
    return f"{next(saved, name).strip()} {rest}".rstrip() if name.startswith("@") else text


def merge_filters(one: Filter, other: Filter) -> Filter:
    """Return both filters combined: lists are joined; the stricter of two days applies."""
    merged: dict[str, Any] = {}
    for name in (entry.name for entry in fields(Filter)):
        values = getattr(one, name), getattr(other, name)
        if isinstance(values[0], tuple):
            merged[name] = tuple(dict.fromkeys((*values[0], *values[1])))
        else:
            given = list(filter(None, values))
            merged[name] = (min if name == "until" else max)(given) if given else values[0]
    return Filter(**merged)


def _tokens(text: str, today: date) -> tuple[list[_Part | str], Filter]:
    """Return the parts of a query, with operators and parentheses as strings between them, and its filter."""
    found = list(_TOKEN.finditer(text))
    has_groups = any(token["operator"] for token in found)  # other parentheses are like those of `retry()`
    tokens: list[_Part | str] = []
    values: dict[str, list[str]] = {}
    for token in found:
        name, phrase, word = token["field"], token["phrase"], token[0]
        if name:
            value = token["quoted"] or token["value"]
            if not value:
                raise UsageError(f"`{name}:` names nothing")
            if tokens and tokens[-1] in ("NOT", "OR"):
                raise UsageError(f"{tokens[-1]} does not go with a filter such as `{name}:`")
            values.setdefault(name.lower(), []).append(value)
            # A filter applies to the whole query, so an AND beside it is redundant.
            if tokens and tokens[-1] == "AND" and not token["and"]:
                tokens.pop()
        elif token["near"] is not None:
            tokens.append(_near(_tokens(token["near"], today)[0], token["distance"]))
        elif token["infix"] is not None and tokens and isinstance(tokens[-1], _Part):
            tokens.append(f"NEAR {token['within'] or NEAR_WORDS}")
        elif token["mark"] == '"':
            raise UsageError("a quotation mark is not closed")
        elif token["mark"] or token["operator"]:
            tokens += [word] if has_groups else []
        else:
            is_prefix = bool(token["begins"]) or (phrase is None and word.endswith("*") and "*" not in word[:-1])
            inside = (word.removesuffix("*") if is_prefix else word) if phrase is None else phrase
            term = Term(text=inside, phrase=phrase is not None, prefix=is_prefix)
            if any(char.isalnum() for char in inside):  # otherwise FTS5 sees no word in it
                tokens.append(_Part(term.match, (term,)))
    return tokens, _filter(values, today)


def _near(tokens: Sequence[_Part | str], distance: str | None) -> _Part:
    parts = [token for token in tokens if isinstance(token, _Part) and len(token.terms) == 1]
    if len(parts) < 2 or len(parts) < len(tokens):
        raise UsageError("NEAR wants two or more words or phrases")
    terms = tuple(part.terms[0] for part in parts)
    if any(has_unspaced(term.text) for term in terms):  # in which words cannot be counted
        return _Part(f"({' AND '.join(part.match for part in parts)})", terms)
    return _Part(f"- parts : NEAR({' '.join(term.quoted for term in terms)}, {distance or NEAR_WORDS})", terms)


def _filter(values: dict[str, list[str]], today: date) -> Filter:
    listed = {
        name: tuple(part for value in given for part in value.split(",") if part) for name, given in values.items()
    }
    names = [name.lower() for name in (*listed.get("source", ()), *listed.get("scope", ()))]
    types = tuple(name.lower() for name in listed.get("type", ()))
    for kind, given, known in (("source", names, list(SourceName)), ("type", types, TYPES)):
        if unknown := next((name for name in given if name not in known), None):
            raise UsageError(f"there is no {kind} {unknown!r}")
    days: dict[str, date] = {}
    for name in ("since", "until"):
        for value in values.get(name, ()):
            day = parse_day(value, today=today, last=name == "until")
            if day is None:
                raise UsageError(f"`{name}:{value}` is not a date such as 2026-01-31 or 30d")
            days[name] = day
    return Filter(
        sources=tuple(map(SourceName, names)), types=types,
        domains=tuple(name.strip("/") for name in listed.get("domain", ())), tags=listed.get("tag", ()),
        paths=listed.get("path", ()), sessions=listed.get("session", ()), since=days.get("since"),
        until=days.get("until"),
    )  # fmt: skip


def _any_of(tokens: deque[_Part | str], depth: int) -> _Part:
    """Parse parts joined by OR."""
    parts = [_all_of(tokens, depth)]
    while tokens and tokens[0] == "OR":
        tokens.popleft()
        parts.append(_all_of(tokens, depth))
    return _joined(parts, "OR")


def _all_of(tokens: deque[_Part | str], depth: int) -> _Part:
    """Parse parts joined by AND, NOT or nothing."""
    wanted: list[_Part] = []
    unwanted: list[_Part] = []
    expects = True
    while tokens and tokens[0] not in ("OR", ")"):
        if tokens[0] == "AND":
            if expects:
                raise UsageError("AND stands between two words")
            tokens.popleft()
            expects = True
            continue
        if is_unwanted := tokens[0] == "NOT":
            tokens.popleft()
        (unwanted if is_unwanted else wanted).append(_one(tokens, "NOT" if is_unwanted else "AND", depth))
        expects = False
    if expects:
        raise UsageError("an operator (AND, OR, NOT) or a parenthesis stands alone")
    if not wanted:
        raise UsageError("NOT needs something to take away from")
    telling = [part for part in wanted if not (part.is_word and part.terms[0].text.lower() in STOP_WORDS)]
    found = _joined(telling or wanted, "AND")
    for part in unwanted:
        found = found._replace(match=f"({found.match} NOT {part.match})")
    return found


def _one(tokens: deque[_Part | str], operator: str, depth: int) -> _Part:
    """Parse the part after an operator: a group, or a term with its NEAR."""
    token = tokens.popleft() if tokens else None
    if token == "(":
        if depth == _MAX_DEPTH:
            raise UsageError("its parentheses are nested too deep")
        inner = _any_of(tokens, depth + 1)
        if not tokens:
            raise UsageError("a parenthesis is not closed")
        tokens.popleft()
        return inner
    if not isinstance(token, _Part):
        raise UsageError(f"{operator} needs a word behind it")
    if tokens and isinstance(tokens[0], str) and tokens[0].startswith("NEAR"):
        distance = tokens.popleft()
        return _near([token, tokens.popleft() if tokens else ")"], str(distance).removeprefix("NEAR "))
    return token


def _joined(parts: Sequence[_Part], operator: str) -> _Part:
    if len(parts) == 1:
        return parts[0]
    match = f" {operator} ".join(part.match for part in parts)
    return _Part(f"({match})", tuple(term for part in parts for term in part.terms))
