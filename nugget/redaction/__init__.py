"""Secrets are taken out of text before it leaves memory.

What is reported is the kind of what was found, never the secret. Precision matters as much as recall: hashes,
UUIDs, images and lock files stay readable.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from pathlib import Path

from nugget.config import Settings, expanded
from nugget.errors import UsageError
from nugget.models import Session
from nugget.redaction.assignments import assigned_secrets
from nugget.redaction.echoes import echoes
from nugget.redaction.engine import FAILED, RULES, issued_secrets
from nugget.redaction.judging import lowered
from nugget.redaction.paths import without_excluded
from nugget.redaction.structured import structured_secrets

_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)
_KEY_BEGIN = re.compile(r"-----BEGIN (?P<name>[A-Z0-9 ]{0,30})PRIVATE KEY(?: BLOCK)?-----")
_KEY_CHARS = 16_384
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{24}")
_CUT_KEY = re.compile(
    r"(?:\s*(?:Proc-Type|DEK-Info|Comment|Version): [^\n]*)*"
    r"(?:(?:\s|\\{1,16}[nrt]|\d+[→|]|[+-](?=[A-Za-z0-9]))*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/]+={1,2})?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A text with `[redacted:<kind>]` in place of each secret, and how many of each kind there were."""

    text: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    kind: str


def redact(text: str, *, allow: Sequence[re.Pattern[str]] = ()) -> Redacted:
    """Replace every secret, and every `<private>…</private>` block, by `[redacted:<kind>]`.

    A secret in which one of `allow` is found stays. An unclosed `<private>` reaches to the end of the text.
    """
    return _replaced(text, _secrets([text], allow)[0])


def _replaced(text: str, spans: Sequence[_Span]) -> Redacted:
    counts: Counter[str] = Counter()
    parts: list[str] = []
    position = 0
    for span in _merged(spans):
        parts += [text[position : span.start], f"[redacted:{span.kind}]"]
        position = span.end
        counts[span.kind] += 1
    return Redacted(text="".join([*parts, text[position:]]), counts=dict(counts))


def secret_lines(text: str, *, allow: Sequence[re.Pattern[str]] = ()) -> list[tuple[int, str]]:
    """The line (from 1) and kind of everything that `redact` would take out; never what it is."""
    return [(text.count("\n", 0, span.start) + 1, span.kind) for span in _merged(_secrets([text], allow)[0])]


def rules_stamp(settings: Settings) -> str:
    """What says by which rules a text was redacted: the code of all redaction modules, and the settings that count."""
    digest = hashlib.sha256(_code_digest())
    capture = settings.capture
    for patterns in (settings.redaction.allow, capture.exclude_paths, capture.exclude_projects):
        digest.update("\0".join(patterns).encode("utf-8", "replace") + b"\1")
    return digest.hexdigest()[:16]


@cache
def _code_digest() -> bytes:
    from importlib.metadata import version  # 10 ms that few commands need

    digest = hashlib.sha256(version("kingfisher-secret-scanner").encode())
    for module in sorted([*Path(__file__).parent.glob("*.py"), *RULES.glob("*.yaml")]):
        digest.update(module.read_bytes())
    return digest.digest()


def _secrets(texts: Sequence[str], allow: Sequence[re.Pattern[str]]) -> list[list[_Span]]:
    """Return the secrets of each text; what is found in one of them goes from the others too, however written."""
    joined = _BETWEEN.join(texts)
    starts = [*accumulate((len(text) + len(_BETWEEN) for text in texts), initial=0)]
    spans: list[list[_Span]] = [[_Span(*found) for found in find_secrets(text, _BLOCKS)] for text in texts]
    for finder in _FINDERS:
        found = [_Span(*found) for found in find_secrets(joined, (finder,))]
        if len(texts) > 1 and any(span.kind == FAILED for span in found):
            for own, text in zip(spans, texts, strict=True):
                own += [_Span(*found) for found in find_secrets(text, (finder,))]
        else:
            _share(found, spans, texts, starts)
    kept = [
        [span for span in own if span.kind == "private" or not _is_allowed(text, span, allow)]
        for own, text in zip(spans, texts, strict=True)
    ]
    known = {text[span.start : span.end]: span.kind for own, text in zip(kept, texts, strict=True) for span in own}
    if known:
        _share([_Span(*found) for found in echoes(joined, known)], kept, texts, starts)
    return kept


def _share(found: Iterable[_Span], spans: list[list[_Span]], texts: Sequence[str], starts: Sequence[int]) -> None:
    """Give each text the spans of the joined text that begin in it."""
    for span in found:
        number = bisect_right(starts, span.start) - 1
        start, size = starts[number], len(texts[number])
        if span.start < start + size:
            spans[number].append(_Span(span.start - start, min(span.end - start, size), span.kind))


def allow_list(settings: Settings) -> list[re.Pattern[str]]:
    """The patterns of `redaction.allow`. Raises UsageError for one that is no regular expression."""
    patterns = []
    for text in settings.redaction.allow:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"`redaction.allow`: {text!r} is not a regular expression ({error}).") from error
    return patterns


def redact_session(session: Session, *, settings: Settings) -> tuple[Session, dict[str, int]]:
    """The session without secrets and without the content of `capture.exclude_paths`, with counts by kind."""
    allow = allow_list(settings)
    counts: Counter[str] = Counter()
    events = without_excluded(session.events, settings.capture.exclude_paths)

    texts = [session.title, *(text for event in events for text in (event.text, event.before, event.after, event.path))]
    known = [text for text in texts if text]
    cleaned = iter([_replaced(text, spans) for text, spans in zip(known, _secrets(known, allow), strict=True)])

    def clean(text: str | None) -> str | None:
        if not text:
            return text
        redacted = next(cleaned)
        counts.update(redacted.counts)
        return redacted.text

    title = clean(session.title)
    kept = tuple(
        replace(
            event,
            text=clean(event.text) or "",
            before=clean(event.before),
            after=clean(event.after),
            path=clean(event.path),
        )
        for event in events
    )
    return replace(session, events=kept, title=title), dict(counts)


def is_excluded_project(session: Session, *, settings: Settings) -> bool:
    """Whether the session ran, for any part of it, in (or below) one of `capture.exclude_projects`."""
    folders = [Path(folder) for folder in (session.cwd, *session.folders) if folder]
    places = {str(place) for folder in folders for place in (folder, *folder.parents)}
    patterns = [str(expanded(pattern)).rstrip("/") for pattern in settings.capture.exclude_projects]
    return any(fnmatchcase(place, pattern) for pattern in patterns for place in places)


Finder = Callable[[str], Iterator[tuple[int, int, str]]]
"""Yields the start, end and kind of the secrets of some kinds."""


def find_secrets(text: str, finders: Iterable[Finder]) -> Iterator[tuple[int, int, str]]:
    """Yield every secret, the more telling kinds first; spans may overlap.

    When a finder fails, the whole text counts as one secret of the kind `failed-rule`.
    """
    for find in finders:
        try:
            yield from [*find(text)]
        except Exception:
            yield 0, len(text), FAILED


def _private_blocks(text: str) -> Iterator[tuple[int, int, str]]:
    if "<" in text and "private>" in text.lower():
        yield from ((*found.span(), "private") for found in _PRIVATE.finditer(text))


def _by_name(text: str) -> Iterator[tuple[int, int, str]]:
    return assigned_secrets(text, lowered(text))


def _private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """PEM and OpenPGP blocks, also with escaped line breaks; of a cut one, what there is of it."""
    if "PRIVATE KEY" not in text:
        return
    for begin in _KEY_BEGIN.finditer(text):
        end = text.find("-----END", begin.end(), begin.end() + _KEY_CHARS)
        if end >= 0:
            close = text.find("-----", end + 8, end + 80)
            stop = close + 5 if close >= 0 else end + 8
        else:
            cut = _CUT_KEY.match(text, begin.end(), begin.end() + _KEY_CHARS)
            stop = cut.end() if cut else begin.end()
        if _KEY_BODY.search(text, begin.end(), stop):
            yield begin.start(), stop, "private-key"


_BLOCKS: tuple[Finder, ...] = (_private_blocks, _private_keys)
_FINDERS: tuple[Finder, ...] = (issued_secrets, structured_secrets, _by_name)
_BETWEEN = "\n---\x00\n"
"""Stands between the texts of a session that are searched as one: neither a line nor a document goes on after it."""


def _merged(spans: Sequence[_Span]) -> list[_Span]:
    """In the order of the text, those that overlap as one so that no part of either stays; named by the first rule."""
    merged: list[tuple[int, _Span]] = []
    for rule, span in sorted(enumerate(spans), key=lambda numbered: numbered[1].start):
        if merged and span.start < merged[-1][1].end:
            before, known = merged[-1]
            kind = known.kind if before < rule else span.kind
            merged[-1] = (min(before, rule), _Span(known.start, max(known.end, span.end), kind))
        else:
            merged.append((rule, span))
    return [span for _, span in merged]


def _is_allowed(text: str, span: _Span, allow: Sequence[re.Pattern[str]]) -> bool:
    value = text[span.start : span.end]
    return any(pattern.search(value) for pattern in allow)
