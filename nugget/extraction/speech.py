"""Sentences of a session: who said them, where, and in which block.

They come from prompts, replies, compaction summaries, plans, and texts that the agent wrote for other people with a
command: commit messages, pull requests, answers to reviewers. Code, tables and output are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nugget.extraction.phrases import COMMITS, says
from nugget.models import Event, EventKind, Speaker
from nugget.sources.speakers import is_quote, quoted_spans

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(?P<text>.+?)\s*#*$|^\*\*(?P<bold>[^*]{2,80})\*\*:?$")
_NUMBERED_HEADING = re.compile(r"^\d{1,2}\.\s+(?P<text>[A-Z][^:]{3,60}):$")
_BULLET = re.compile(r"^(?P<indent>\s*)(?:[-*+•✅❌⚠️]|\d{1,2}[.)]|[A-H]\))\s+(?:\[[ x]\]\s+)?")
_CODE_LINE = re.compile(
    r"^\s*(?://|/\*|\*/|#!|[@$] |> (?![A-Z])|(?:const|let|var|import|from|return|if|for|while|func|def|class|export"
    r"|async|await) .*[;{(:=]$|.*[;{}]$|[\w.]+\(.*\)$)"
)
_NUMBERED_READ = re.compile(r"^\s*\d+\s*(?:→|\t)")
_TRAILER = re.compile(r"^\s*(?:[A-Z][A-Za-z-]+-[A-Za-z-]+: |Generated with|🤖)")
_SENTENCE_BREAK = re.compile(
    r"(?<=[.!?])(?:[\"')*_`\]]{0,3})\s+(?=[\"'(*_`\[]{0,3}[A-ZÀ-ÖØ-ÞА-ЯЁ0-9`~/.<-])|(?<=[.!?])\s+(?=\*\*)|(?<=[。！？])\s*"
)
_LOOSE_BREAK = re.compile(r"(?:(?<=[a-z)`\"'][.!?])|(?<=[A-Z][!?]))\s+(?=[a-z])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Dr|No|Fig|resp|incl|z\.B|bzw)\.|(?:^|\s)\d{1,2}\.|\bv\d+\.)$"
)
_PUBLISHES = re.compile(r"\bgh (?:pr (?:create|edit|comment|review)|issue|api\b.*?(?:replies|comments))", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(?P<mark>\w+)['\"]?\n(?P<text>.*?)\n\s*(?P=mark)\b", re.DOTALL)
_QUOTED = re.compile(
    r"(?:\s-[a-z]*m|\s--message|--body|-f body)[ =](?P<quote>[\"'])(?P<text>.+?)(?<!\\)(?P=quote)", re.DOTALL
)
_QUOTED_PROMPT = re.compile(r'\s*(?:[-*]|\d{1,2}[.)])\s+"(?:\d\.\s+)?(?P<text>[^\n]+?)"(?=\s*(?:\(|$))')


class Channel(StrEnum):
    """The way in which something was said."""

    USER = "user"
    QUOTED = "quoted"
    REPLY = "reply"
    COMMIT = "commit"
    PUBLISHED = "published"
    PLAN = "plan"
    SUMMARY = "summary"


_PROMPTED = {Speaker.USER: Channel.USER, Speaker.AGENT: Channel.PLAN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence; `start` and `end` are its place in the event's text, `block` the number of its line there."""

    text: str
    event: Event
    place: int
    channel: Channel
    start: int
    end: int
    block: int
    number: int
    is_listed: bool = False

    @property
    def quote(self) -> str:
        """The sentence as it stands in the transcript."""
        return self.event.text[self.start : self.end]


def sentences_of(events: Sequence[Event]) -> list[Sentence]:
    """Return all sentences of the events, in order, except what subagents said among themselves."""
    found: list[Sentence] = []
    for place, event in enumerate(events):
        if event.agent_id is None:
            for channel, start, end in _speech(event):
                found.extend(_cut(event, place, channel, start, end))
    return found


def _speech(event: Event) -> Iterator[tuple[Channel, int, int]]:
    """Yield (channel, start, end) of the speech in an event."""
    everything = (0, len(event.text))
    if event.kind is EventKind.PROMPT:
        yield _PROMPTED.get(event.speaker, Channel.QUOTED), *everything
    elif event.kind is EventKind.PASTE:
        yield Channel.QUOTED, *everything
    elif event.kind is EventKind.REPLY:
        yield Channel.REPLY, *everything
    elif event.kind is EventKind.SUMMARY:
        yield Channel.SUMMARY, *everything
    elif event.kind is EventKind.TOOL_CALL and event.tool == "ExitPlanMode":
        yield Channel.PLAN, *everything
    elif event.kind is EventKind.COMMAND:
        is_commit = COMMITS.search(event.text)
        if is_commit or _PUBLISHES.search(event.text):
            channel = Channel.COMMIT if is_commit else Channel.PUBLISHED
            found = _HERE_DOCUMENT.search(event.text) or _QUOTED.search(event.text)
            if found:
                yield channel, found.start("text"), found.end("text")


def split(text: str, start: int, end: int, *, loose: bool = False) -> list[tuple[int, int]]:
    """Return where the sentences of one line begin and end; `loose` also cuts before a lower-case letter."""
    cuts = [start]
    breaks = [*_SENTENCE_BREAK.finditer(text, start, end), *(_LOOSE_BREAK.finditer(text, start, end) if loose else ())]
    for found in sorted(breaks, key=lambda one: one.start()):
        before = text[cuts[-1] : found.start()]
        if before.count("`") % 2 == 0 and not _ABBREVIATION.search(before):
            cuts.append(found.end())
    made = []
    for begin, stop in zip(cuts, [*cuts[1:], end], strict=True):
        part = text[begin:stop]
        if part.strip():
            left = begin + len(part) - len(part.lstrip())
            made.append((left, left + len(part.strip())))
    return made


def _cut(event: Event, place: int, channel: Channel, start: int, end: int) -> Iterator[Sentence]:
    heading = ""
    is_summary, is_user = channel is Channel.SUMMARY, channel is Channel.USER
    quoted = quoted_spans(event.text) if is_user else []
    for block, (begin, stop) in enumerate(_blocks(event.text, start, end)):
        line = event.text[begin:stop]
        titled = (_NUMBERED_HEADING.match(line) if is_summary else None) or _HEADING.match(line)
        if titled:
            heading = next(part for part in titled.groups() if part).strip(" *:")
            continue
        bullet = _BULLET.match(line)
        offset = bullet.end() if bullet else len(line) - len(line.lstrip(" >"))
        if is_summary and says("user_messages").search(heading):
            yield from _quoted_prompt(event, place, begin, stop, block)
        elif not is_summary or says("summary_sections").search(heading):
            for number, (left, right) in enumerate(split(event.text, begin + offset, stop, loose=is_user)):
                text = event.text[left:right]
                passes_on = is_user and event.tool is None and is_quote(text, left, right, quoted)
                if is_user and not re.search(r"\b(?:le|la|les|une?)\b", text):
                    text = says("elided").sub(r"\g<0>'", text)
                yield Sentence(
                    text=text, event=event, place=place, channel=Channel.QUOTED if passes_on else channel,
                    start=left, end=right, block=block, number=number, is_listed=bool(bullet),
                )  # fmt: skip


def _quoted_prompt(event: Event, place: int, begin: int, stop: int, block: int) -> Iterator[Sentence]:
    """Yield the sentences of a prompt that a compaction summary quotes on one line."""
    found = _QUOTED_PROMPT.match(event.text, begin, stop)
    spans = split(event.text, *found.span("text"), loose=True) if found else []
    for number, (left, right) in enumerate(spans):
        yield Sentence(
            text=event.text[left:right], event=event, place=place, channel=Channel.USER, start=left, end=right,
            block=block, number=number, is_listed=True,
        )  # fmt: skip


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each line of prose outside code and tables; lines wrapped by hand are joined."""
    in_code = False
    position, open_from, open_to = start, -1, -1
    for line in text[start:end].split("\n"):
        begin, position = position, position + len(line) + 1
        fence = _FENCE.match(line)
        in_code = in_code != bool(fence)
        skipped = bool(in_code or fence or not line.strip() or line.lstrip().startswith("|"))
        skipped = skipped or any(
            pattern.match(line) for pattern in (_CODE_LINE, says("log_line"), _NUMBERED_READ, _TRAILER)
        )
        opens = _BULLET.match(line) or _HEADING.match(line)
        if open_from >= 0 and not skipped and not opens and _continues(text[open_from:open_to], line):
            open_to = begin + len(line)
            continue
        if open_from >= 0:
            yield open_from, open_to
        open_from, open_to = (-1, -1) if skipped else (begin, begin + len(line))
    if open_from >= 0:
        yield open_from, open_to


def _continues(block: str, line: str) -> bool:
    """Return whether a line continues the sentence above it, which was wrapped by hand."""
    last = block.rsplit("\n", 1)[-1].rstrip()
    ends = last[-1:] in ".!?" or (last[-1:] == ":" and not line[:1].islower())
    opens = line.lstrip().startswith("**") or last[-1:] in "✅❌"
    return len(last) >= 48 and not ends and not opens and not _HEADING.match(last)
