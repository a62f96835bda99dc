"""Intents of files: what was done to each file of a session, and what it was wanted for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.extraction.requests import cleaned, is_request, is_wish, one_line
from nugget.extraction.speech import split
from nugget.models import Event
from nugget.models.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, TouchAction
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from nugget.extraction.provenance import Reading

INTENT, TUNING = 0.7, 0.65
MAX_SINGLE = 4
"""Files of one folder and request that get a nugget each; more of them share one, scoped to the folder."""
_GENERATED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|dist|build|out|target|\.next|__pycache__|__snapshots__|coverage|\.git)/"
    r"|(?:^|/)(?:package-lock\.json|[\w.-]*\.lock|go\.sum|pnpm-lock\.yaml|bun\.lockb|[\w.-]+\.min\.(?:js|css))$"
    r"|\.(?:snap|map|pyc|log|png|jpe?g|gif|ico|pdf|zip|gz|svg)$|_pb2(?:_grpc)?\.py$|\.pb\.go$|\.generated\.\w+$"
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__|testdata)/|(?:^|/)test_[^/]+$|[._-](?:test|spec)\.\w+$|_test\.\w+$"
)
_PRINTED = re.compile(r"\S+:\d+(?::\d+)?:")
"""How a line of a compiler or linter begins that was pasted."""
_WORDS = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]).*?[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}", re.DOTALL)
_VERBS = {
    TouchAction.CREATED: "Created", TouchAction.MODIFIED: "Changed", TouchAction.DELETED: "Deleted",
    TouchAction.RENAMED: "Renamed",
}  # fmt: skip


def is_generated(path: str) -> bool:
    """Return whether a file is made by a program, so that nobody asks why it is as it is."""
    return _GENERATED.search(path) is not None


def is_test(path: str) -> bool:
    """Return whether a file holds tests."""
    return _TEST.search(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What was asked for, in one line, and where it stands."""

    text: str
    quote: str
    event: Event | None


def of_files(reading: Reading) -> Iterator[Nugget]:
    """Yield one intent a file, or a folder of many files, and the files that a person edited in between."""
    wishes, began = _wishes(reading), dict[str, int]()
    for number, touched in enumerate(reading.touched_in):
        began = dict.fromkeys(touched, number) | began
    groups: dict[tuple[int, TouchAction, str], list[FileTouch]] = {}
    for path, touch in reading.touches.items():
        if not is_generated(path):
            number = began[path] if path in began else _exchange_at(reading, touch)
            groups.setdefault((number, touch.action, path.rpartition("/")[0]), []).append(touch)
    for (number, action, folder), touches in groups.items():
        request, event = reading.requests[number] if reading.requests else ("", None)
        text, quote = request or reading.session.title or "", event.text.strip() if event else ""
        asked = _Wish(text=text, quote=quote, event=event)
        if len(touches) > MAX_SINGLE:
            names = [touch.path.rpartition("/")[2] for touch in touches]
            what = f"{_VERBS[action]} {counted(len(names), 'file')} in {folder or 'the root'}"
            yield _intent(reading, what, asked, path=folder or None, others=names)
            continue
        for touch in touches:
            wish = wishes.get(touch.path, asked)
            if not wish.text and action is TouchAction.MODIFIED:
                continue
            name, previous = touch.path.rpartition("/")[2], (touch.previous_path or "").rpartition("/")[2]
            what = f"Renamed {previous} to {name}" if previous else f"{_VERBS[action]} {name}"
            touched = reading.touched_in[number] if reading.touched_in else []
            others = [path for path in touched if path != touch.path]
            yield _intent(reading, what, wish, path=touch.path, others=others)
    for path in reading.edited_between:
        if path in reading.touches and not is_generated(path):
            summary = f"Human-edited AI output in {path} during the session"
            yield reading.nugget(NuggetType.TUNING, summary, TUNING, event=None, path=path)


def _wishes(reading: Reading) -> dict[str, _Wish]:
    """Return the first sentence of a request that names a file, by the file's path.

    A line that names files and says nothing more, a heading in a plan, speaks for the sentence below it.
    """
    found: dict[str, _Wish] = {}
    for exchange in reading.exchanges:
        if not exchange.prompt or not is_request(exchange.prompt):
            continue
        event, above = exchange.events[0], list[str]()
        for sentence, quote in _sentences(event):
            if _PRINTED.match(sentence):
                continue
            named = reading.mentions.files(sentence)
            if not _WORDS.search(re.sub(r"\S*[/.:`]\S+", " ", sentence)):  # it says nothing beside the paths
                above = named
                continue
            for path in (named or above) if is_wish(sentence) else ():
                found.setdefault(path, _Wish(text=sentence, quote=quote, event=event))
            above = []
    return found


def _sentences(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the (cleaned, verbatim) sentences of a prompt, line by line; of a long one the first."""
    start = 0
    for line in event.text[:6000].split("\n"):
        for left, right in split(event.text, start, start + len(line)):
            yield cleaned(event.text[left:right]), event.text[left:right]
        start += len(line) + 1


def _intent(reading: Reading, what: str, wish: _Wish, *, path: str | None, others: Sequence[str]) -> Nugget:
    room = SUMMARY_CHARS - len(what) - 2
    summary = f"{what}: {one_line(wish.text, room)}" if wish.text and room >= 30 else what
    lines = [f"For: {shorten(wish.text, 300)}"] if len(wish.text) > room else []
    shown = list(others[:8])
    more = f" and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
    lines += [f"Together with: {', '.join(shown)}{more}"] if shown else []
    return reading.nugget(
        NuggetType.INTENT, summary, INTENT, event=wish.event, quote=wish.quote, path=path, detail="\n".join(lines)
    )


def _exchange_at(reading: Reading, touch: FileTouch) -> int:
    """Return the exchange in which a file was touched by something other than an edit: the last begun by then."""
    if touch.at is None:
        return max(0, len(reading.exchanges) - 1)
    begun = [n for n, one in enumerate(reading.exchanges) if one.started and one.started <= touch.at]
    return begun[-1] if begun else 0
