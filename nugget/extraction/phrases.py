"""Phrases that tell knowledge from chatter, in six languages: data for the judge, which learned their weights.

They are in words.toml. Every feature counts once per sentence. Languages: English, German, French, Spanish, Japanese,
Chinese. Patterns without word boundaries serve scripts that do not put spaces between words.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from itertools import pairwise

WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A character of a script without spaces between words, or of Korean."""
_NAMES = re.compile(
    r"`[^`\n]{2,80}`|\b\w+(?:\.\w+)+\(?|\b\w+\(\)|\b[a-z]+[A-Z]\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|(?<!\w)--[a-z][\w-]+"
    r"|\b[A-Z][a-z]+[A-Z]\w+|\b[A-Z]{2,}[A-Z0-9_]{2,}\b"
)
WORD = re.compile(r"[^\W\d_][\w-]{2,}")
WORDS = tomllib.loads((files("nugget.extraction") / "words.toml").read_text("utf-8"))
_STOP = frozenset(WORDS["stop"].split())
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
COMMITS = re.compile(r"\bgit\b[^\n;|&]*\bcommit\b")
ANSWERED = re.compile(r'"(?P<question>.+?)"="(?P<answer>.+?)"', re.DOTALL)
"""The question tool's report of a person's choice."""
_LABEL = re.compile(r'"label":\s*"((?:[^"\\]|\\.)+)"')


@cache
def says(name: str) -> re.Pattern[str]:
    """Return the pattern of a phrase, in any case of letters, which is made when it is first looked for."""
    return re.compile(expression(WORDS["phrases"][name]), re.IGNORECASE)


@cache
def features() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each feature: what the words of a sentence in lower case say, and how it is built."""
    return {name: re.compile(expression(parts)) for name, parts in WORDS["features"].items()}


def expression(entry: str | list[str | list[str]]) -> str:
    """Return an expression for any of some words or patterns; `{name}` stands for that of another entry."""
    known = WORDS | WORDS["features"] | WORDS["phrases"]
    parts = entry.split() if isinstance(entry, str) else map("".join, entry)
    return re.sub(r"\{([a-z_]+)\}", lambda found: expression(known[found[1]]), "|".join(parts))


def options_not_taken(asked: str, answered: str) -> tuple[str, ...]:
    """Return the labels that a dialog offered but its answer did not pick, at most six."""
    labels = dict.fromkeys(says("recommended").sub("", label) for label in _LABEL.findall(asked))
    return tuple(label for label in labels if label not in answered)[:6]


def rejected_in(text: str) -> tuple[str, ...]:
    """Return the names that a sentence says were not chosen or given up: `… instead of X`, `no longer X`."""
    found = says("chosen_over").search(says("otherwise").split(text)[0])
    is_name = found and (not found[0].lower().startswith("not ") or "`" in found[0] or says("says_use").match(text))
    if not found or not is_name or found[0].count("`") % 2:
        return ()  # truncated code, or not a name
    if found[1].startswith("`"):
        return (found[1].split("`")[1],)
    name = says("rest_after_name").sub("", re.sub(r"^(?:the|a|an|using|use) ", "", found[1].strip())).strip(" `\"'")
    return (name,) if 1 < len(name) <= 60 else ()


def turned_down_in(text: str) -> str:
    """Return what a text says was not chosen, in one of many ways: `X, not Y`, `not Y, but X instead`."""
    denied = re.findall(r"(?i)(?:, not|(?:\bnot|n['’]t)(?=.*\binstead\b)) ([^,.;:—–]+?)(?: - |[,.;:—–]|$)", text)
    return " ".join(rejected_in(text) or denied)


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text: names in code, other words in lower case, pairs of wide characters."""
    found = [name.strip("`().").lower() for name in _NAMES.findall(text)]
    found += [word for word in map(str.lower, WORD.findall(text)) if word not in _STOP]
    if WIDE.search(text):
        found += [one + other for one, other in pairwise(text) if WIDE.match(one) and WIDE.match(other)]
    return frozenset(found)
