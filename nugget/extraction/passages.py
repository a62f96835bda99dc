"""What was said in a session, cut into passages: a line of prose or a list item, with its sentences.

Every passage keeps where it stands in the record, so that a quote from it can be verbatim. Code, tables and
command output are no passages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from nugget.models import Event, EventKind, Session, Speaker
from nugget.sources.condense import without_recalled
from nugget.sources.speakers import is_quote, quoted_spans

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(?P<text>.+?)\s*#*$|^\*\*(?P<bold>[^*]{2,80})\*\*:?$")
_BULLET = re.compile(r"^(?P<indent>\s*)(?:[-*+•]|\d{1,2}[.)])\s+(?:\[[ x]\]\s+)?")
_CODE_LINE = re.compile(
    r"^\s*(?://|/\*|\*/|#!|[@$>] |(?:const|let|var|import|from|return|if|for|while|func|def|class|export|async"
    r"|await) .*[;{(:=]$"
    r"|.*[;{}]$|[\w.]+\(.*\)$)"
)
_LOG_LINE = re.compile(
    r"^\s*(?:\d+\.\d+ |#\d+ |=>|❯|\[\+\]|\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d|npm (?:err|warn)\b|\s+at \S+ \("
    r"|\S+\.\w+:\d+:|\S+/\S+/\S+$)|.*[│┃█━]",
    re.IGNORECASE,
)
_NUMBERED_READ = re.compile(r"^\s*\d+\s*(?:→|\t)")
_SENTENCE_BREAK = re.compile(
    r"(?<=[.!?])(?:[\"')*_`\]]{0,3})\s+(?=[\"'(*_`\[]{0,3}[A-Z0-9`~/.<-])|(?<=[.!?])\s+(?=\*\*)"
)
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Dr|No|Fig|resp|incl)\.|(?:^|\s)\d{1,2}\.|\bv\d+\.)$")
_COMMIT_MESSAGE = re.compile(r"<<\s*['\"]?(?P<mark>\w+)['\"]?\n(?P<message>.*?)\n\s*(?P=mark)\b", re.DOTALL)
_COMMIT_FLAG = re.compile(
    r"\s-(?:m|-message)[ =](?P<quote>[\"'])(?P<message>(?:(?!(?P=quote)).)+)(?P=quote)", re.DOTALL
)
_TRAILER = re.compile(r"^\s*(?:[A-Z][A-Za-z-]+-[A-Za-z-]+: |Generated with|🤖)")
_NO_PROSE = (_CODE_LINE, _LOG_LINE, _NUMBERED_READ, _TRAILER)
_SUMMARY_SECTIONS = re.compile(r"concept|error|fix|problem|solv|feedback|decision|learn|files and code", re.IGNORECASE)
_NUMBERED_HEADING = re.compile(r"^\d{1,2}\.\s+(?P<text>[A-Z][^:]{3,60}):$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence and where it stands in its event's text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A paragraph line or list item of something said.

    `place` is the event's number in the session; `heading` the nearest heading or bold line above it; `lead_in`
    the line ending in a colon that introduces its list; `by_user` whether the person wrote it.
    """

    event: Event
    place: int
    sentences: tuple[Sentence, ...]
    heading: str = ""
    lead_in: str = ""
    is_listed: bool = False
    by_user: bool = False

    def quote(self, first: int, last: int) -> str:
        """The event's text from sentence `first` to `last`, verbatim."""
        return self.event.text[self.sentences[first].start : self.sentences[last].end]

    def is_under(self, above: Passage) -> bool:
        """Whether this is an item of the list that `above` introduces."""
        introduced = bool(self.lead_in) and self.event is above.event
        return introduced and above.sentences[-1].text.endswith(self.lead_in[-40:])


def passages(session: Session) -> Iterator[Passage]:
    """All passages of prompts, replies, summaries and commit messages, in order; what these quote is left out."""
    for place, event in enumerate(without_recalled(session.events)):
        if event.kind is EventKind.PROMPT and event.speaker is not Speaker.QUOTED:
            yield from _cut(event, place, 0, len(event.text), by_user=event.speaker is Speaker.USER)
        elif event.kind is EventKind.REPLY:
            yield from _cut(event, place, 0, len(event.text))
        elif event.kind is EventKind.SUMMARY:
            parts = _cut(event, place, 0, len(event.text), numbered_headings=True)
            yield from (part for part in parts if _SUMMARY_SECTIONS.search(part.heading))
        elif event.kind is EventKind.COMMAND and "git commit" in event.text:
            found = _COMMIT_MESSAGE.search(event.text) or _COMMIT_FLAG.search(event.text)
            if found:
                yield from _cut(event, place, found.start("message"), found.end("message"))


def sentences(text: str, start: int, end: int) -> list[Sentence]:
    """Cut `text[start:end]`, one line, at the ends of its sentences."""
    cuts = [start]
    for found in _SENTENCE_BREAK.finditer(text, start, end):
        before = text[cuts[-1] : found.start()]
        inside_code = before.count("`") % 2 == 1
        if not inside_code and not _ABBREVIATION.search(before):
            cuts.append(found.end())
    made = []
    for begin, stop in zip(cuts, [*cuts[1:], end], strict=True):
        part = text[begin:stop]
        if part.strip():
            left = begin + len(part) - len(part.lstrip())
            made.append(Sentence(text=part.strip(), start=left, end=left + len(part.strip())))
    return made


def _cut(
    event: Event, place: int, start: int, end: int, *, by_user: bool = False, numbered_headings: bool = False
) -> Iterator[Passage]:
    heading = lead_in = ""
    quoted = quoted_spans(event.text)
    for begin, stop in _blocks(event.text, start, end):
        line = event.text[begin:stop]
        titled = (_NUMBERED_HEADING.match(line) if numbered_headings else None) or _HEADING.match(line)
        if titled:
            heading, lead_in = (titled.group(1) or titled.group(2)).strip(" *:"), ""
            continue
        bullet = _BULLET.match(line)
        offset = bullet.end() if bullet else len(line) - len(line.lstrip(" >"))
        found = sentences(event.text, begin + offset, stop)
        for is_quoted, run in groupby(found, key=lambda one: is_quote(one.text, one.start, one.end, quoted)):
            if not is_quoted:
                yield Passage(
                    event=event, place=place, sentences=tuple(run), heading=heading,
                    lead_in=lead_in if bullet else "", is_listed=bool(bullet), by_user=by_user,
                )  # fmt: skip
        if not bullet:
            lead_in = line.strip() if line.rstrip().endswith(":") else ""


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each line of prose outside code and tables; lines wrapped by hand are joined."""
    in_code = False
    position, open_from, open_to = start, -1, -1
    for line in text[start:end].split("\n"):
        begin, position = position, position + len(line) + 1
        fence = _FENCE.match(line)
        in_code = in_code != bool(fence)
        skipped = bool(in_code or fence or not line.strip() or line.lstrip().startswith("|"))
        skipped = skipped or any(pattern.match(line) for pattern in _NO_PROSE)
        starts_anew = _BULLET.match(line) or _HEADING.match(line)
        if open_from >= 0 and not skipped and not starts_anew and _continues(text[open_from:open_to], line):
            open_to = begin + len(line)
            continue
        if open_from >= 0:
            yield open_from, open_to
        open_from, open_to = (-1, -1) if skipped else (begin, begin + len(line))
    if open_from >= 0:
        yield open_from, open_to


def _continues(block: str, line: str) -> bool:
    """Whether a line goes on with the sentence of the block above it, which was wrapped by hand."""
    last = block.rsplit("\n", 1)[-1].rstrip()
    ends = last[-1:] in ".!?" or (last[-1:] == ":" and not line[:1].islower())
    starts_anew = line.lstrip().startswith("**") or last[-1:] in "✅❌"
    return len(last) >= 48 and not ends and not starts_anew and not _HEADING.match(last)
