"""Repeated text: further occurrences of a secret, however they are written, and long runs of one unit."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from urllib.parse import quote

from nugget.redaction.structured import Span, places

_SHORTEST = 8
"""Length of the shortest secret that is looked for elsewhere; a shorter one may be part of anything."""
_FEW = 100
"""The most secrets that are looked for in every form, one pass each; more are looked for as whole words in one pass."""
_WORD = re.compile(r"[^\s\"'`,;:=<>()\[\]{}]{8,}")
_BREAK = " \t\r\n\"'\\+>|"
"""Characters between the lines of a split secret: white space, quotes, and signs of code and quotation."""


def echoes(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield every further occurrence of the secrets at `spans`."""
    rules = {text[start:end]: rule for start, end, rule in spans if rule != "private"}
    if len(rules) > _FEW:
        ends = [0, *(end for _, end, _ in spans)]
        elsewhere = " ".join([text[last:start] for last, (start, _, _) in zip(ends, spans, strict=False)])
        again = {word for word in rules.keys() & _WORD.findall(elsewhere + " " + text[ends[-1] :]) if _is_telling(word)}
        words = _WORD.finditer(text) if again else ()
        yield from ((*word.span(), rules[word[0]]) for word in words if word[0] in again)
        return
    secrets = [*filter(_is_telling, rules)]
    forms = {form: secret for secret in secrets for form in _encoded(secret) if form not in rules}
    for form in (*secrets, *(_held(text, forms) if len(forms) > _FEW / 4 else forms)):
        yield from ((at, at + len(form), rules[forms.get(form, form)]) for at in places(text, form))
    for secret in (secret for secret in secrets if len(secret) >= 16):
        begin = secret[: 6 if text.count(secret[:6]) < _FEW else 12]
        if begun := [at for at in places(text, begin) if not text.startswith(secret, at)]:
            # Before each character an optional break, which can match in one way only.
            breaks = ((f"[{re.escape(_BREAK.replace(char, ''))}]", re.escape(char)) for char in secret[:256])
            split = re.compile("".join(rf"(?:\\[nrt]|{one}){{0,60}}+{char}" for one, char in breaks))
            yield from ((*found.span(), rules[secret]) for at in begun if (found := split.match(text, at)))


def _is_telling(secret: str) -> bool:
    """Return True for a secret that is not a word, and therefore a secret wherever it occurs."""
    mixed = any(map(str.isalpha, secret)) and not (secret.isalpha() and len(secret) < 20)
    return mixed and _SHORTEST <= len(secret) <= 4096


def _encoded(secret: str) -> Iterator[str]:
    """Yield a secret as in URLs, and in base64, in one form for each of the three offsets in a group of bytes."""
    data = secret.encode("latin-1")
    yield quote(data, safe="")
    for before, skipped in enumerate((0, 2, 3)):  # up to the last character that the secret alone decides
        core = base64.b64encode(bytes(before) + data).decode()[skipped : (before + len(data)) * 4 // 3]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _held(text: str, forms: Collection[str]) -> list[str]:
    """Return those forms that a text may hold, by four characters at every fourth place, in the time of seeking 25."""
    parts = (text, *("".join(form[at : at + 4] for at in range(4)) for form in forms))
    every, *own = (memoryview(part[: len(part) // 4 * 4].encode("latin-1")).cast("I") for part in parts)
    seen = set(chain.from_iterable(own)).intersection(every)
    return [form for form, fours in zip(forms, own, strict=True) if not seen.isdisjoint(fours)]


_PROBE, _LONGEST_PERIOD, _STEP = 256, 2048, 2048
_KEPT = 4096
"""Characters of repetition that are kept on each side of a cut."""


def without_repetition(text: str) -> tuple[str, list[tuple[int, int, int]]]:
    """Return a text with long runs of one unit shortened, so that no text is slow to search.

    Also return, for each cut from the last to the first, its place, the characters taken out (whole units), and the
    length of a unit.
    """
    parts, cuts = list[str](), list[tuple[int, int, int]]()
    at = kept_from = removed = 0
    while at + 3 * _KEPT < len(text):
        again = text.find(text[at : at + _PROBE], at + 1, at + _LONGEST_PERIOD + _PROBE)
        if again < 0:
            at += _STEP
            continue
        size, period = 0, again - at
        while text[at + size : at + size + _STEP] == text[again + size : again + size + _STEP]:
            size += _STEP
        if size > 3 * _KEPT:
            gone = (size - 2 * _KEPT) // period * period
            cuts.append((at + _KEPT - removed, gone, period))
            parts.append(text[kept_from : at + _KEPT])
            kept_from = at + _KEPT + gone
            removed += gone
        at += max(size, _STEP)
    return "".join([*parts, text[kept_from:]]), cuts[::-1]


def in_whole(spans: list[Span], cuts: Sequence[tuple[int, int, int]]) -> list[Span]:
    """Map spans of a shortened text to the whole text; repetition that holds a secret becomes one span."""
    for at, size, period in cuts:
        near = [span for span in spans if span[0] < at + period and span[1] > at - period]
        spans = [(start + size * (start >= at), end + size * (end > at), rule) for start, end, rule in spans]
        if near:
            first, last = min(start for start, _, _ in near), max(end for _, end, _ in near)
            spans.append((min(at, first), max(at, last) + size, near[0][2]))
    return spans
