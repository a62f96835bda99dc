"""Texts on their way into the index: redacted in batches, since most hold no secret."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nugget.redaction import redact, redact_all

MARGIN_CHARS = 1024
"""A text that is too long is cut so far behind its limit before it is redacted, and at the limit after."""
_LONGEST_PART = 512
"""Of a secret that the first cut went through, no more than this can be left: longer ones are known by their part."""


def within(text: str, most: int, *, was: int) -> str:
    """The first `most` characters of a redacted text, which was `was` characters long before and perhaps cut.

    Where it was, its end goes: there may stand a part of a secret that was too short to be known.
    """
    if was >= most + MARGIN_CHARS:
        text = text[: max(0, len(text) - _LONGEST_PART)]
    return text[:most]


def redacted_all(
    texts: list[str], *, allow: Sequence[re.Pattern[str]] = (), counts: Counter[str] | None = None
) -> list[str]:
    """Return the texts without secrets, in their order; `counts` gathers what kinds of secrets there were."""
    distinct = list(dict.fromkeys(texts))
    cleaned = redact_all(distinct, allow=allow)
    if counts is not None:
        counts.update(kind for redacted in cleaned for kind in Counter(redacted.counts).elements())
    known = {text: redacted.text for text, redacted in zip(distinct, cleaned, strict=True)}
    return [known[text] for text in texts]


def redacted_lines(
    lines: Sequence[str], *, allow: Sequence[re.Pattern[str]] = (), counts: Counter[str] | None = None
) -> list[str]:
    """Lines that follow each other, without secrets, also those that span several; as many lines as before.

    Of a secret of several lines the first says what it was and the others are empty.
    """
    joined = "\n".join(lines)
    result = redact(joined, allow=allow)
    if not result.counts:
        return list(lines)
    if counts is not None:
        counts.update(result.counts)
    after = result.text.split("\n")
    if len(after) == len(lines):
        return after
    begin = next((n for n, (one, other) in enumerate(zip(lines, after, strict=False)) if one != other), len(after))
    kept_end = 0
    while kept_end < len(after) - begin - 1 and lines[-1 - kept_end] == after[-1 - kept_end]:
        kept_end += 1
    changed = after[begin : len(after) - kept_end]
    gap = len(lines) - len(after)
    return [*after[:begin], *changed, *[""] * gap, *after[len(after) - kept_end :]]
