"""What each file was touched for: intents of files that prompts name, and what was created, changed and deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nugget.extraction.passages import sentences
from nugget.extraction.requests import cleaned, is_request, one_line
from nugget.extraction.scoring import shared_words
from nugget.models import Event
from nugget.nuggets import SUMMARY_CHARS, FileTouch, Nugget, NuggetType, TouchAction
from nugget.text import counted, shorten

if TYPE_CHECKING:
    from nugget.extraction.provenance import Reading

FILE_INTENT, TUNING, FILE_SCOPE = 0.5, 0.65, 0.7
MAX_SINGLE = 4
"""Files of one folder and request that get a nugget each; more of them share one, scoped to the folder."""
MAX_INTENTS_A_FILE = 2
_GENERATED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|dist|build|out|target|\.next|__pycache__|__snapshots__|coverage|\.git)/"
    r"|(?:^|/)(?:package-lock\.json|[\w.-]*\.lock|go\.sum|pnpm-lock\.yaml|bun\.lockb|[\w.-]+\.min\.(?:js|css))$"
    r"|\.(?:snap|map|pyc|log|png|jpe?g|gif|ico|pdf|zip|gz|svg)$|_pb2(?:_grpc)?\.py$|\.pb\.go$|\.generated\.\w+$"
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__|testdata)/|(?:^|/)test_[^/]+$|[._-](?:test|spec)\.\w+$|_test\.\w+$"
)
_PATH_LIKE = re.compile(r"\S*[/.:`]\S+")
_PRINTED = re.compile(r"\S+:\d+(?::\d+)?:")
"""How a line of a compiler or linter begins that was pasted."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_VERBS = {
    TouchAction.CREATED: "Created", TouchAction.MODIFIED: "Changed", TouchAction.DELETED: "Deleted",
    TouchAction.RENAMED: "Renamed",
}  # fmt: skip


def is_generated(path: str) -> bool:
    """Whether a file is made by a program, so that nobody asks why it is as it is."""
    return _GENERATED.search(path) is not None


def is_test(path: str) -> bool:
    """Whether a file holds tests."""
    return _TEST.search(path) is not None


def of_files(reading: Reading) -> Iterator[Nugget]:
    """Intents of files that prompts name, what was done to each file and for what, and what was edited in between."""
    intents = list(_intents(reading))
    yield from intents
    yield from _scopes(reading, intents)
    for path in reading.edited_between:
        if path in reading.touches and not is_generated(path):
            summary = f"Human-edited AI output in {path} during the session"
            yield reading.nugget(NuggetType.TUNING, summary, TUNING, event=None, path=path)


def _intents(reading: Reading) -> Iterator[Nugget]:
    """One for each sentence of a prompt that names a file which the session touched.

    A line that names files and says nothing more, a heading in a plan, speaks for the sentence below it.
    """
    counts: dict[str, int] = {}
    for exchange in reading.exchanges:
        if not exchange.prompt or not is_request(exchange.prompt):
            continue
        event, above = exchange.events[0], list[str]()
        for sentence, quote in _sentences(event):
            named = reading.mentions.files(sentence)
            if _PRINTED.match(sentence):
                continue
            if not _says_more(sentence):
                above = named
                continue
            for path in named or above:
                if counts.get(path, 0) < MAX_INTENTS_A_FILE and not is_generated(path):
                    counts[path] = counts.get(path, 0) + 1
                    yield reading.nugget(
                        NuggetType.INTENT, sentence, FILE_INTENT, event=event, quote=quote, path=path,
                        detail=shorten(sentence, 400) if len(sentence) > SUMMARY_CHARS else "",
                    )  # fmt: skip
            above = []


def _says_more(sentence: str) -> bool:
    """Whether a sentence says something beside the path that it names."""
    rest = _PATH_LIKE.sub(" ", sentence)
    return len(_WORD.findall(rest)) >= 2 or _WIDE.search(rest) is not None


def _sentences(event: Event) -> Iterator[tuple[str, str]]:
    """(cleaned, verbatim) sentences of a prompt, line by line; of a pasted wall of text the first lines."""
    start = 0
    for line in event.text[:6000].split("\n"):
        end = start + len(line)
        for one in sentences(event.text, start, end):
            yield cleaned(one.text), one.text
        start = end + 1


def _scopes(reading: Reading, intents: Sequence[Nugget]) -> Iterator[Nugget]:
    """What was done to files, for the request in which it was begun; many of one folder together."""
    began: dict[str, int] = {}
    for number, touched in enumerate(reading.touched_in):
        for path in touched:
            began.setdefault(path, number)
    groups: dict[tuple[int, TouchAction, str], list[FileTouch]] = {}
    for path, touch in reading.touches.items():
        if not is_generated(path):
            number = began.get(path, _exchange_at(reading, touch))
            groups.setdefault((number, touch.action, path.rpartition("/")[0]), []).append(touch)
    for (number, action, folder), touches in groups.items():
        request, event = reading.requests[number] if reading.requests else ("", None)
        request = request or reading.session.title or ""
        if not request and action is TouchAction.MODIFIED:
            continue
        if len(touches) > MAX_SINGLE:
            names = [touch.path.rpartition("/")[2] for touch in touches]
            what = f"{_VERBS[action]} {counted(len(names), 'file')} in {folder or 'the root'}"
            yield _scope(reading, what, request, event, path=folder or None, others=names)
            continue
        for touch in touches:
            told = [one for one in intents if one.scope.path == touch.path]
            if any(shared_words(one.summary, request) >= 0.8 for one in told) and action is TouchAction.MODIFIED:
                continue
            name = touch.path.rpartition("/")[2]
            what = f"{_VERBS[action]} {name}"
            if touch.previous_path:
                what = f"Renamed {touch.previous_path.rpartition('/')[2]} to {name}"
            together = [
                path for path in (reading.touched_in[number] if reading.touched_in else []) if path != touch.path
            ]
            yield _scope(reading, what, request, event, path=touch.path, others=together)


def _scope(
    reading: Reading, what: str, request: str, event: Event | None, *, path: str | None, others: Sequence[str]
) -> Nugget:
    room = SUMMARY_CHARS - len(what) - 2
    summary = f"{what}: {one_line(request, room)}" if request and room >= 30 else what
    lines = [f"For: {shorten(request, 300)}"] if len(request) > room else []
    shown = list(others[:8])
    more = f" and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
    lines += [f"Together with: {', '.join(shown)}{more}"] if shown else []
    quote = event.text.strip() if event is not None else ""
    return reading.nugget(
        NuggetType.INTENT, summary, FILE_SCOPE, event=event, quote=quote, path=path, detail="\n".join(lines)
    )


def _exchange_at(reading: Reading, touch: FileTouch) -> int:
    """The exchange in which a file was touched by something other than an edit: the last one begun by then."""
    if touch.at is None:
        return max(0, len(reading.exchanges) - 1)
    begun = [n for n, one in enumerate(reading.exchanges) if one.started and one.started <= touch.at]
    return begun[-1] if begun else 0
