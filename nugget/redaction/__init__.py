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
from nugget.redaction.documents import document_secrets, private_keys
from nugget.redaction.echoes import Cut, echoes, without_repetition
from nugget.redaction.engine import FAILED, issued_secrets
from nugget.redaction.judging import RULES
from nugget.redaction.paths import without_excluded
from nugget.redaction.structured import structured_secrets

_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)


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
    return redact_all([text], allow=allow)[0]


def redact_all(texts: Sequence[str], *, allow: Sequence[re.Pattern[str]] = ()) -> list[Redacted]:
    """Redact texts that belong together: what is a secret in one of them goes from the others too, however written."""
    views = [text.encode("utf-8", "surrogatepass").decode("latin-1") for text in texts]
    return [
        _replaced(view, spans) if spans else Redacted(text=text, counts={})
        for text, view, spans in zip(texts, views, _secrets(views, allow), strict=True)
    ]


def secret_lines(text: str, *, allow: Sequence[re.Pattern[str]] = ()) -> list[tuple[int, str]]:
    """Return the line (from 1) and kind of everything that `redact` would take out; never what it is."""
    view = text.encode("utf-8", "surrogatepass").decode("latin-1")
    return [(view.count("\n", 0, span.start) + 1, span.kind) for span in _secrets([view], allow)[0]]


def _replaced(view: str, spans: Sequence[_Span]) -> Redacted:
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += [view[position : span.start], f"[redacted:{span.kind}]"]
        position = span.end
    text = "".join([*parts, view[position:]]).encode("latin-1").decode("utf-8", "surrogatepass")
    return Redacted(text=text, counts=dict(Counter(span.kind for span in spans)))


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
    for module in sorted([*Path(__file__).parent.glob("*.py"), *RULES.iterdir()]):
        digest.update(module.read_bytes())
    return digest.digest()


def _secrets(whole_views: Sequence[str], allow: Sequence[re.Pattern[str]]) -> list[list[_Span]]:
    """Return the secrets of each view: a text's bytes in UTF-8, each as one character, as the engine counts them."""
    shortened = [without_repetition(view) for view in whole_views]
    views = [view for view, _ in shortened]
    joined = _BETWEEN.join(views)
    starts = [*accumulate((len(view) + len(_BETWEEN) for view in views), initial=0)]
    spans: list[list[_Span]] = [[] for _ in views]
    for finder in (_private_blocks, issued_secrets, structured_secrets, document_secrets, private_keys):
        found = [*find_secrets(joined, (finder,))]
        alone = found and (finder is _private_blocks or any(kind == FAILED for _, _, kind in found))
        if alone and len(views) > 1:
            for own, view in zip(spans, views, strict=True):
                own += [_Span(*span) for span in find_secrets(view, (finder,))]
        else:
            _share(found, spans, views, starts)
    for own, view in zip(spans, views, strict=True):
        own[:] = [span for span in own if span.kind == "private" or not _is_allowed(view, span, allow)]
    known = {view[span.start : span.end]: span.kind for own, view in zip(spans, views, strict=True) for span in own}
    if known:
        _share(echoes(joined, known), spans, views, starts)
    return [_merged(_in_whole(own, cuts)) for own, (_, cuts) in zip(spans, shortened, strict=True)]


def _in_whole(spans: list[_Span], cuts: Sequence[Cut]) -> list[_Span]:
    """Return spans of a shortened view as spans of the whole one; repetition that holds a secret goes as a whole."""
    for cut in cuts:
        near = [span for span in spans if span.start < cut.at + cut.period and span.end > cut.at - cut.period]
        spans = [_moved(span, cut.at, cut.size) for span in spans]
        spans += [_Span(cut.at, cut.at + cut.size, near[0].kind)] if near else []
    return spans


def _moved(span: _Span, at: int, size: int) -> _Span:
    return _Span(span.start + size * (span.start >= at), span.end + size * (span.end > at), span.kind)


def _share(
    found: Iterable[tuple[int, int, str]], spans: list[list[_Span]], views: Sequence[str], starts: Sequence[int]
) -> None:
    """Give each view the spans of the joined one that begin in it."""
    for begin, end, kind in found:
        number = bisect_right(starts, begin) - 1
        start, size = starts[number], len(views[number])
        if begin < start + size:
            spans[number].append(_Span(begin - start, min(end - start, size), kind))


def allow_list(settings: Settings) -> list[re.Pattern[str]]:
    """Compile the patterns of `redaction.allow`. Raises UsageError for one that is not a regular expression."""
    patterns = []
    for text in settings.redaction.allow:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"`redaction.allow`: {text!r} is not a regular expression ({error}).") from error
    return patterns


def redact_session(session: Session, *, settings: Settings) -> tuple[Session, dict[str, int]]:
    """Return the session without secrets and without `capture.exclude_paths`' content, with counts by kind."""
    events = without_excluded(session.events, settings.capture.exclude_paths)
    places = [(number, name) for number, event in enumerate(events) for name in _TEXTS if getattr(event, name)]
    texts = [session.title or "", *(getattr(events[number], name) for number, name in places)]
    title, *cleaned = redact_all(texts, allow=allow_list(settings))
    counts = Counter(title.counts)
    for (number, name), redacted in zip(places, cleaned, strict=True):
        if redacted.counts:
            events[number] = replace(events[number], **{name: redacted.text})  # type: ignore[arg-type]
            counts.update(redacted.counts)
    return replace(session, events=tuple(events), title=session.title and title.text), dict(counts)


def is_excluded_project(session: Session, *, settings: Settings) -> bool:
    """Whether the session ran, for any part of it, in (or below) one of `capture.exclude_projects`."""
    folders = [Path(folder) for folder in (session.cwd, *session.folders) if folder]
    places = {str(place) for folder in folders for place in (folder, *folder.parents)}
    patterns = [str(expanded(pattern)).rstrip("/") for pattern in settings.capture.exclude_projects]
    return any(fnmatchcase(place, pattern) for pattern in patterns for place in places)


Finder = Callable[[str], Iterator[tuple[int, int, str]]]
"""Yields the start, end and kind of the secrets of some kinds."""


def find_secrets(view: str, finders: Iterable[Finder]) -> Iterator[tuple[int, int, str]]:
    """Yield every secret, the more telling kinds first; spans may overlap.

    When a finder fails, the whole text counts as one secret of the kind `failed-rule`.
    """
    for find in finders:
        try:
            yield from [*find(view)]
        except Exception:
            yield 0, len(view), FAILED


def _private_blocks(view: str) -> Iterator[tuple[int, int, str]]:
    yield from ((*found.span(), "private") for found in _PRIVATE.finditer(view))


_BETWEEN = "\n---\x00\n"
"""Stands between the texts of a session that are searched as one: neither a line nor a document goes on after it."""
_TEXTS = ("text", "before", "after", "path")
"""The fields of an event that hold text."""


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
