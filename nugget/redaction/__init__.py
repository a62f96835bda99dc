"""Take secrets out of text before it leaves memory, and report their kinds, never the secrets.

Precision matters as much as recall: hashes, UUIDs, images and lock files stay readable. The content of excluded files
(`capture.exclude_paths`) goes too: a file is recognised by the path given to a tool, the words of a command, and output
lines that name the file they show (`grep`, `rg`, `head` of several files, `git diff`).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from pathlib import Path

from nugget.config import Settings, expanded
from nugget.errors import NuggetError
from nugget.models import Event, EventKind, Session
from nugget.redaction import judging as judge
from nugget.redaction.echoes import echoes, in_whole, without_repetition
from nugget.redaction.engine import digest_of, issued_secrets, kind_of, private_keys
from nugget.redaction.structured import Span

EXCLUDED = "[excluded]"
"""Replaces the content of an excluded file."""
_READ = judge.patterns("files", of_bytes=False)
_GLOB = frozenset("*?[")
MARGIN_CHARS = 1024
"""Characters past its limit that a long text keeps until it is redacted; then it is cut at the limit."""
_LONGEST_PART = 512
"""The most characters that can be left of a secret split by that first cut; the part of a longer one is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A text with `[redacted:<kind>]` in place of each secret, and the number of secrets by kind."""

    text: str
    counts: Mapping[str, int]


def redact(text: str, *, allow: Sequence[re.Pattern[str]] = (), keep_lines: bool = False) -> Redacted:
    """Replace every secret, and every `<private>…</private>` block, by `[redacted:<kind>]`.

    A secret in which one of `allow` is found stays. An unclosed `<private>` reaches to the end of the text. With
    `keep_lines` the text keeps its number of lines: empty ones follow a secret of several lines.
    """
    return redact_all([text], allow=allow, keep_lines=keep_lines)[0]


def redact_all(
    texts: Sequence[str], *, allow: Sequence[re.Pattern[str]] = (), keep_lines: bool = False
) -> list[Redacted]:
    """Redact texts that belong together: a secret found in one is removed from all, however it is written there."""
    once = [*dict.fromkeys(texts)]  # a session shows some texts again and again
    views = [_view(text) for text in once]
    redacted = {
        text: _replaced(view, spans, keep_lines) if spans else Redacted(text=text, counts={})
        for text, view, spans in zip(once, views, _secrets(views, allow), strict=True)
    }
    return [redacted[text] for text in texts]


def secret_lines(text: str, *, allow: Sequence[re.Pattern[str]] = ()) -> list[tuple[int, str, str]]:
    """Return the line (from 1), kind and rule of every secret that `redact` would take out, never the secret."""
    view = _view(text)
    return [(view.count("\n", 0, start) + 1, kind_of(rule), rule) for start, _, rule in _secrets([view], allow)[0]]


def within(text: str, most: int, *, was: int) -> str:
    """Return the first `most` characters of a redacted text that was `was` characters long before.

    The end of a text that had been cut is dropped: it may hold a part of a secret that was too short to be found.
    """
    if was >= most + MARGIN_CHARS:
        text = text[: max(0, len(text) - _LONGEST_PART)]
    return text[:most]


def _view(text: str) -> str:
    """Return the UTF-8 bytes of a text, each as one character, since the engine counts in bytes."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def _replaced(view: str, spans: Sequence[Span], keep_lines: bool) -> Redacted:
    parts: list[str] = []
    position = 0
    for start, end, rule in spans:
        while "\x7f" < view[start] < "\xc0":  # a rule may stop within the bytes of a character
            start -= 1
        while "\x7f" < view[end : end + 1] < "\xc0":
            end += 1
        breaks = "\n" * view.count("\n", start, end) if keep_lines else ""
        parts += [view[position:start], f"[redacted:{kind_of(rule)}]{breaks}"]
        position = end
    text = "".join([*parts, view[position:]]).encode("latin-1").decode("utf-8", "surrogatepass")
    return Redacted(text=text, counts=dict(Counter(kind_of(rule) for _, _, rule in spans)))


def rules_stamp(settings: Settings) -> str:
    """Return a digest of all that decides how a text is redacted: modules, rules and settings."""
    digest = hashlib.sha256(digest_of("*.py", "rules/*").encode())
    for patterns in (settings.redaction_allow, settings.capture_exclude_paths, settings.capture_exclude_projects):
        digest.update("\0".join(patterns).encode("utf-8", "replace") + b"\1")
    return digest.hexdigest()[:16]


def _secrets(views: Sequence[str], allow: Sequence[re.Pattern[str]]) -> list[list[Span]]:
    """Return the secrets of each view; the views are searched as one text."""
    joined, cuts = _without_floods(views, allow)
    joined, repeated = without_repetition(joined)
    found = _found(joined, allow)
    if len(views) > 1 and any(rule == FAILED for _, _, rule in found):
        return [_secrets([view], allow)[0] for view in views]
    again, cuts = [*echoes(joined, found)], [*repeated, *cuts]
    return _by_view(_merged(in_whole([*found, *again], cuts)) if again or cuts else found, views)


def _found(text: str, allow: Sequence[re.Pattern[str]]) -> list[Span]:
    """Return the secrets of a text that none of `allow` is found in."""
    found = [*find_secrets(text, _FINDERS)]
    if _BETWEEN in text:
        found = [(start, start + len(text[start:end].split(_BETWEEN, 1)[0]), rule) for start, end, rule in found]
    if allow:
        allowed = {span for span in found if any(pattern.search(text[span[0] : span[1]]) for pattern in allow)}
        found = [span for span in found if span not in allowed or span[2] == "private"]
    return _merged(found)


def _floods(view: str, allow: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a long text in which every probe finds secret after secret.

    Such a part goes as one: it would take long to judge each of them, and nothing between them is worth keeping.
    """
    at, stride, last, hits = 0, _STRIDE, len(view) - _PROBE, list[int]()
    while at <= last:
        found = _found(view[at : at + _PROBE], allow)
        covers = sum(end - start for start, end, _ in found) > _PROBE / 2
        is_dense = len(found) >= (_MANY / 2 if covers else _MANY)
        hits += [at] * is_dense
        if not is_dense or at == last:
            inside = view[hits[0] : at].lower() if len(hits) > 2 else "private key"
            is_open = inside.rfind("<private>") > inside.rfind("</private>") or "private key" in inside
            if not is_open:  # so that nothing that begins in the flood ends behind it
                yield hits[0] + _PROBE, hits[-1]
            hits = []
        at = min(at + stride, last + (at == last))
        stride = _STRIDE if len(hits) == 1 else stride * (1 + (is_dense or stride < 4 * _STRIDE))


def _without_floods(views: Sequence[str], allow: Sequence[re.Pattern[str]]) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the joined text without floods, and the cuts as `without_repetition` does."""
    parts, cuts = list[str](), list[tuple[int, int, int]]()
    for view in views:
        kept = 0
        for begin, end in _floods(view, allow) if len(view) >= 2 * _STRIDE else ():
            parts.append(view[kept:begin])
            cuts.append((sum(map(len, parts)), end - begin, _PROBE))
            kept = end
        parts += [view[kept:], _BETWEEN]
    return "".join(parts[:-1]), cuts[::-1]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Return spans in the order of the text, with overlapping ones joined and named by the first rule."""
    merged, named_by, stop = list[Span](), 0, -1
    for start, order, end, rule in sorted((start, order, end, rule) for order, (start, end, rule) in enumerate(spans)):
        if start >= stop:
            merged.append((start, end, rule))
            named_by, stop = order, end
        else:
            first, _, known = merged[-1]
            stop = max(stop, end)
            merged[-1] = (first, stop, known if named_by < order else rule)
            named_by = min(named_by, order)
    return merged


def _by_view(spans: Sequence[Span], views: Sequence[str]) -> list[list[Span]]:
    """Return the spans of the joined text as spans of each view."""
    shared: list[list[Span]] = [[] for _ in views]
    begins = [0, *accumulate(len(view) + len(_BETWEEN) for view in views)]
    for start, end, rule in spans:
        for number in range(bisect_right(begins, start) - 1, bisect_left(begins, end)):
            at, size = begins[number], len(views[number])
            if start - at < size:
                shared[number].append((max(start - at, 0), min(end - at, size), rule))
    return shared


def allow_list(settings: Settings) -> list[re.Pattern[str]]:
    """Return the compiled patterns of `redaction.allow`."""
    return [re.compile(pattern) for pattern in settings.redaction_allow]


def redact_session(session: Session, *, settings: Settings) -> tuple[Session, dict[str, int]]:
    """Return the session without secrets and the content of `capture.exclude_paths`, and the counts by kind."""
    events = without_excluded(session.events, settings.capture_exclude_paths)
    places = [(number, name) for number, event in enumerate(events) for name in _TEXTS if getattr(event, name)]
    texts = [session.title or "", *(getattr(events[number], name) for number, name in places)]
    title, *cleaned = redact_all(texts, allow=allow_list(settings))
    counts = Counter(title.counts)
    for (number, name), redacted in zip(places, cleaned, strict=True):
        if redacted.counts:
            events[number] = replace(events[number], **{name: redacted.text})  # type: ignore[arg-type]
            counts.update(redacted.counts)
    return replace(session, events=tuple(events), title=session.title and title.text), dict(counts)


def without_excluded(events: Sequence[Event], patterns: Sequence[str]) -> list[Event]:
    """Return the events without the content of files that match one of the globs `patterns`."""
    if not patterns:
        return list(events)
    hides = cache(lambda path: is_excluded(path, patterns))
    calls = {event.call_id for event in events if event.call_id and any(hides(path) for path in _paths_of(event))}
    kept = []
    for event in events:
        if (event.call_id and event.call_id in calls) or any(hides(path) for path in _paths_of(event)):
            # A command that only names the file may stay; one that writes may hold what it writes.
            is_reading = event.kind is EventKind.COMMAND and not {">", "\n"} & set(event.text)
            hidden = event.text if is_reading else EXCLUDED
            event = replace(event, text=hidden, before=None, after=None)
        elif event.kind in (EventKind.OUTPUT, EventKind.TOOL_RESULT):
            event = replace(event, text="\n".join(_shown_lines(event.text, hides)))
        kept.append(event)
    return kept


def _shown_lines(text: str, hides: Callable[[str], bool]) -> Iterator[str]:
    """Yield the lines of an output, with one `EXCLUDED` for each run of lines from excluded files."""
    below_heading = below_path = was_hidden = False
    for line in text.split("\n"):
        shown = _READ.shown.match(line)
        place = (shown.lastgroup or "") if shown else ""
        named = shown is not None and hides(shown[place])
        if place in ("head", "diff", "side"):
            below_heading, below_path = named, False
        elif place == "alone" and named and not below_heading:
            below_path = True  # numbered lines follow, then an empty one
            yield line
            continue
        below_path = below_path and bool(_READ.numbered.match(line))
        is_hidden = below_heading or below_path or (place == "line" and named)
        if not is_hidden:
            yield line
        elif not was_hidden:
            yield EXCLUDED
        was_hidden = is_hidden


def _paths_of(event: Event) -> list[str]:
    if event.kind is EventKind.COMMAND:
        return [word for word in _READ.between_words.split(event.text) if word and not word.startswith("-")]
    return [event.path] if event.path else []


def is_excluded(path: str, patterns: Sequence[str]) -> bool:
    """Return True if one of the globs matches a path or one of its folders."""
    path = path.replace("\\", "/").removeprefix("./").rstrip("/")
    path = path if path.startswith("/") else f"/{path}"
    last = path.rsplit("/", 1)[-1]
    for pattern in patterns:
        whole = str(expanded(pattern)) if pattern.startswith("~") else pattern
        named = whole if whole.startswith("/") else f"*/{whole}"
        folder = re.sub(r"/\*{1,2}$", "", named)  # `cd hr` where all of `hr/*` is excluded
        if any(fnmatchcase(path, glob) for glob in (named, f"{named}/*", folder) if glob != "*"):
            return True
        # A glob of the shell that takes the file in: `cat .env*` for `.env`.
        name = whole.rsplit("/", 1)[-1]
        if _GLOB & set(last) and last.strip("*?") and not _GLOB & set(name) and fnmatchcase(name, last):
            return True
    return False


def is_excluded_project(session: Session, *, settings: Settings) -> bool:
    """Return True if any part of the session ran in or below one of `capture.exclude_projects`."""
    folders = [Path(folder) for folder in (session.cwd, *session.folders) if folder]
    places = {str(place) for folder in folders for place in (folder, *folder.parents)}
    patterns = [str(expanded(pattern)).rstrip("/") for pattern in settings.capture_exclude_projects]
    return any(fnmatchcase(place, pattern) for pattern in patterns for place in places)


def find_secrets(view: str, finders: Iterable[Callable[[str], Iterator[Span]]]) -> Iterator[Span]:
    """Yield every secret, specific kinds first; spans may overlap. If a finder fails, the whole text is a secret."""
    for find in finders:
        try:
            yield from [*find(view)]
        except NuggetError:  # the engine cannot work at all
            raise
        except Exception:
            yield 0, len(view), FAILED


_PROBE, _MANY, _STRIDE = 1024, 4, 65_536
"""Characters of a probe, secrets in it that make a flood, and characters between probes, doubled within a flood."""
FAILED = "failed-rule"
"""The kind and rule of a text that counts as a secret because a rule failed on it."""
_BETWEEN = "\n---\x1f\n"
"""Separates the texts of a session that are searched as one; it ends a line and a YAML document."""
_PRIVATE = re.compile(rf"<private>.*?(?:</private>|\Z|(?={_BETWEEN}))", re.DOTALL | re.IGNORECASE)
_FINDERS: tuple[Callable[[str], Iterator[Span]], ...] = (
    lambda view: ((*found.span(), "private") for found in _PRIVATE.finditer(view)), issued_secrets, private_keys,
)  # fmt: skip
_TEXTS = ("text", "before", "after", "path")
"""Fields of an event that hold text."""
