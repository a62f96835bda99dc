"""What full-text search sees: the columns that are indexed for a chunk, and the FTS5 query made from any text.

FTS5's own tokenizer (porter over unicode61) splits at everything that is not a letter or digit, so it already
takes `retry_with_backoff` apart. The `parts` column adds what it cannot see: the words inside `retryWithBackoff`,
and overlapping pairs of characters for scripts that put no spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TITLE_WEIGHT, BODY_WEIGHT, PARTS_WEIGHT = 2.0, 1.0, 1.0

_WORD = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\uac00-\ud7af\U00020000-\U0003134f]+"
)
"""Runs of Chinese, Japanese, Thai, Lao, Burmese, Khmer; and Korean, whose particles cling to the words."""


def fts_columns(breadcrumb: str, text: str) -> tuple[str, str, str]:
    """The (title, body, parts) of a chunk as they are indexed."""
    return breadcrumb, text, " ".join(parts_of(f"{breadcrumb}\n{text}"))


def parts_of(text: str) -> list[str]:
    """The extra tokens of a text: words inside identifiers, pairs of characters in unspaced scripts."""
    parts: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            if not (word.islower() or word.isdigit() or word.istitle()):
                parts += identifier_parts(word)
        else:
            for run in _UNSPACED.findall(word):
                parts += character_pairs(run)
    return parts


def identifier_parts(word: str) -> list[str]:
    """`retryWithBackoff2` -> retry, with, backoff, 2; nothing for a word of one part."""
    if not word.isascii():
        return []
    parts = [part.lower() for piece in word.split("_") for part in _CAMEL.findall(piece)]
    return parts if len(parts) > 1 else []


def character_pairs(run: str) -> list[str]:
    """Overlapping pairs of a run of characters; the character itself where there is only one."""
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def query_tokens(text: str, *, max_tokens: int = 64) -> list[str]:
    """The distinct tokens of a question, in order, stop words dropped when other tokens remain."""
    tokens: list[str] = []
    for word in _WORD.findall(text[:8000]):
        if word.isascii():
            tokens += [word.lower(), *identifier_parts(word)]
            if "_" in word:
                tokens += word.lower().split("_")
        else:
            runs = _UNSPACED.findall(word)
            tokens += [pair for run in runs for pair in character_pairs(run)]
            if not runs or "".join(runs) != word:
                tokens.append(word)
    distinct = list(dict.fromkeys(tokens))
    return [token for token in distinct if token.lower() not in STOP_WORDS][:max_tokens] or distinct[:max_tokens]


def match_any(tokens: Sequence[str]) -> str:
    """The FTS5 query that matches any of the tokens; each is quoted, so no text is ever syntax."""
    return " OR ".join(f'"{token}"' for token in (token.replace('"', "") for token in tokens) if token)


STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing done down during each few for from further get got had has have having he her here
    hers him his how however i if in into is it its itself just let like may me might more most much must my myself
    need no nor not now of off on once only or other our ours out over own please same shall she should so some such
    than that the their theirs them then there these they this those through to too under until up us use used using
    very want was way we were what when where which while who whom why will with without would yes you your yours
    ll ve re don t s d m""".split()
)
