"""Tell who speaks in a session, and what a person typed from what they pasted or quoted.

Fences, `> ` lines and text between tags end where they say. Logs, diffs, tables, reviews, plans and what follows
`the reviewer wrote:` do not, so that all that comes after their first line counts as pasted.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from nugget.models import Event, EventKind, Speaker, SpeechOrigin

Span = tuple[int, int]

SAID_BY: Mapping[EventKind, tuple[Speaker, SpeechOrigin]] = {
    EventKind.PROMPT: (Speaker.USER, SpeechOrigin.TYPED),
    EventKind.PASTE: (Speaker.QUOTED, SpeechOrigin.PASTED),
    EventKind.REPLY: (Speaker.AGENT, SpeechOrigin.WRITTEN),
    EventKind.COMMAND: (Speaker.AGENT, SpeechOrigin.WRITTEN),
    EventKind.FILE_EDIT: (Speaker.AGENT, SpeechOrigin.WRITTEN),
    EventKind.TOOL_CALL: (Speaker.AGENT, SpeechOrigin.WRITTEN),
    EventKind.OUTPUT: (Speaker.TOOL, SpeechOrigin.TOOL_RESULT),
    EventKind.TOOL_RESULT: (Speaker.TOOL, SpeechOrigin.TOOL_RESULT),
    EventKind.SUMMARY: (Speaker.AGENT, SpeechOrigin.COMPACTION_SUMMARY),
}
"""Who speaks in an event of each kind, unless the transcript says otherwise."""
_PROSE = (EventKind.PROMPT, EventKind.REPLY, EventKind.SUMMARY)

PLAN_OPENING = "Implement the following plan:"
"""The first words of a prompt that the client made of an approved plan: the agent's words, not the person's."""

_QUOTED_WORDS = 3
"""Words between quotation marks from which on they are taken for someone else's."""
_LIST_LINES, _LIST_LINE_CHARS = 6, 60
"""A list of so many lines of so many characters was written elsewhere."""

_REVIEW = re.compile(
    r"\b(?:consider (?:\w+ing|either|a|an|the|whether)\b|(?:around|at|on|between) lines? \d+\b"
    r"|nitpick|minor nit\b|suggested (?:fix|change)|this (?:could|may|might|will) (?:cause|lead|result|break|fail))",
    re.IGNORECASE,
)
_IN_PERSON = re.compile(r"\b(?:I|we|us|me|my|our|you|your|let'?s|please|pls|plz|i'?m|i'?d|i'?ve)\b")
_LINE_CHARS = 300
"""The beginning of a line tells whether a program printed it."""
_REVIEW_CHARS = 120
"""A paragraph so long that speaks of nobody and considers changes is a reviewer's."""

_FENCE = re.compile(r"^\s{0,3}(?:[-*+>]\s+|\d+[.)]\s+)?(?P<mark>`{3,}|~{3,})")
_QUOTE_MARKS = (">", "&gt;", "| >", "❯ ")
_TAG = re.compile(r"<(?P<closing>/?)(?P<name>[A-Za-z][\w:.-]{0,60})(?:\s[^<>]{0,1000})?(?P<empty>/?)>")
_LAYOUT = re.compile(
    r"^\s*(?:[-*_=]{3,}\s*$|\*\*[^*\n]{2,120}\*\*|__[^_\n]{2,120}__|[-*+]\s+\[[ xX]\]\s|[-*+]\s+\*\*|\d{1,2}[.)]\s+\*\*"
    r"|[✅❌⚠🔴🟡🟢🔍💡📝🚨➕])"
)
_MACHINE = re.compile(
    r"^\s*(?:#{1,6}\s+\S|\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|\[\d{4}-|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
    r"|(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b[\s:\]|]|\[(?:INFO|WARN|ERROR|DEBUG)"
    r"|(?:fatal|error|warning|panic|npm (?:ERR!|WARN|error|warn)|remote|hint)\b:? |\w*(?:Error|Exception): "
    r"|Traceback \(most|File \"[^\"]+\", line \d|at \S+ ?\(|\s+at \S+:\d|#\d+ |E   |\+\+\+ |--- |@@ |diff --git "
    r"|commit [0-9a-f]{7,40}\b|\d+\s*(?:→|\t)|\|.*\||[│┃█━╭╰├└┌]|\[\+\]|=>"
    r"|(?:User|Agent|Assistant|Human|System|AI|Bot|Reviewer|Claude)\s?:|[$%] \S|❯|•|\S+@\S+?:\S*[$#] "
    r"|\S+\.\w{1,5}:\d+(?::\d+)?[:\s]|(?:PASS|FAIL|ok|---)\s*:?\s+\S+[/.]\S|>{3} )"
)
_FOREIGN = (
    r"(?:page|website|site|web|articles?|posts?|blog|docs?|documentation|readme|manual|guide|wiki|comments?|reviews?"
    r"|reviewers?|bots?|copilot|coderabbit|greptile|cursor|codex|gemini|chatgpt|gpt|claude|linter|ci|tickets?|threads?"
    r"|issues?|prs?|pull requests?|descriptions?|messages?|e-?mails?|mails?|outputs?|logs?|errors?|traces?"
    r"|stack ?traces?|results?|responses?|repl(?:y|ies)|answers?|reports?|files?|commits?|tools?|servers?|apis?"
    r"|transcripts?|summar(?:y|ies)|plans?|slack|feedback|colleagues?|coworkers?|co-workers?|boss|client|customer|vendor|someone"
    r"|somebody|he|she|they|people|prompt|instructions?|seite|artikel|kommentar|fehler|ausgabe|datei"
    r"|[\w./-]{1,80}\.(?:md|txt|rst|html|log))"
)
_SAYS = (
    r"(?:says?|said|states?|stated|writes?|wrote|tells?|told|claims?|claimed|recommends?|recommended|suggests?|suggested"
    r"|instructs?|instructed|advises?|advised|insists?|insisted|asks?|asked|demands?|demanded|replied|commented"
    r"|sagt|schreibt|meint|meldet)"
)
_REPORTED = re.compile(
    rf"\b(?:{_FOREIGN}\b[^.!?\n]{{0,60}}?\b{_SAYS}\b|according to\b|quot(?:e|ing|ed)\b[:,]?\s"
    rf"|{_FOREIGN}\s*:\s*[\"“«'`])",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    rf"(?:\b(?:{_FOREIGN}|{_SAYS}|quote|pasted?|below|following {_FOREIGN})\b[^.!?\n]{{0,60}}:|\bsaid:|\bwrote:)\s*$",
    re.IGNORECASE,
)
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")
_MARKS = re.compile(
    r"\"[^\"\n]{8,2000}\"|“[^“”]{8,2000}”|«[^«»]{8,2000}»|„[^„“”]{8,2000}[“”]|(?<![\w'])'[^'\n]{8,2000}'(?!\w)"
)
_BULLETS = ("- ", "* ", "+ ", "• ", *(f"{number}{mark} " for number in range(1, 21) for mark in ".)"))


def prompt_parts(text: str, *, is_paste: bool = False) -> list[tuple[EventKind, str, Speaker, SpeechOrigin]]:
    """Return the events that a prompt becomes: what was typed, then what was pasted into it.

    A prompt without typed text, or made by the client of the agent's plan, stays one prompt of another speaker.
    """
    is_plan = text.startswith(PLAN_OPENING)
    typed, pasted = ("", text) if is_paste or is_plan else split_pasted(text)
    if not typed:
        return [(EventKind.PROMPT, pasted, Speaker.AGENT if is_plan else Speaker.QUOTED, SpeechOrigin.PASTED)]
    return [
        (kind, part, *SAID_BY[kind]) for kind, part in ((EventKind.PROMPT, typed), (EventKind.PASTE, pasted)) if part
    ]


def split_pasted(text: str) -> tuple[str, str]:
    """Return what of a prompt was typed, and what was pasted or quoted in whole lines."""
    spans = _blocks(text)
    if not spans:
        return text.strip(), ""
    typed, start = [], 0
    for begin, end in spans:
        typed.append(text[start:begin].strip())
        start = end
    typed.append(text[start:].strip())
    pasted = "\n\n".join(part for begin, end in spans if (part := text[begin:end].strip("\n")).strip())
    return "\n\n".join(part for part in typed if part), pasted


def quoted_spans(text: str) -> list[Span]:
    """Return where a text gives the words of somebody else: quoted lines, tags, and what quotation marks hold."""
    marked = (found.span() for found in _MARKS.finditer(text) if len(found[0].split()) >= _QUOTED_WORDS)
    return _merged([*_delimited(text), *marked])


def is_quote(sentence: str, start: int, end: int, spans: Sequence[Span]) -> bool:
    """Return whether a sentence, which stands from `start` to `end`, gives or passes on the words of somebody else."""
    inside = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in spans)
    return 2 * inside >= end - start or _REPORTED.search(sentence) is not None


def passes_on(text: str) -> bool:
    """Return whether a text has the words of somebody else anywhere in it."""
    return bool(quoted_spans(text)) or _REPORTED.search(text) is not None


def said_in(event: Event, start: int, end: int) -> tuple[Speaker, SpeechOrigin]:
    """Return who speaks in a part of an event's text, and how that came into the session."""
    is_prose = event.speaker in (Speaker.USER, Speaker.AGENT) and event.kind in _PROSE
    if is_prose and is_quote(event.text[start:end], start, end, quoted_spans(event.text)):
        return Speaker.QUOTED, event.origin
    return event.speaker, event.origin


def _blocks(text: str) -> list[Span]:
    """Return the pasted parts of a prompt, from left to right."""
    spans = _merged([*_delimited(text), *_reviews(text)])
    open_end = _open_end(text, spans)
    if open_end is None:
        return spans
    return [*((begin, end) for begin, end in spans if end <= open_end), (open_end, len(text))]


def _delimited(text: str) -> list[Span]:
    """Return the fences, quoted lines and tags, which end where they say."""
    spans, fence, fence_start = [], "", 0
    for begin, line in _lines(text):
        found = _FENCE.match(line)
        if fence:
            if found and found["mark"].startswith(fence) and not line.strip(" \t`~"):
                spans.append((fence_start, begin + len(line)))
                fence = ""
        elif found:
            fence, fence_start = found["mark"], begin
        elif line.lstrip().startswith(_QUOTE_MARKS):
            spans.append((begin, begin + len(line)))
    if fence:
        spans.append((fence_start, len(text)))
    return [*spans, *_tagged(text)]


def _tagged(text: str) -> Iterator[Span]:
    """Yield the outermost pairs of tags with what is between them; of a tag that occurs inside itself, the whole."""
    if "<" not in text:
        return
    start = text.find("<!--")
    while start >= 0:
        end = text.find("-->", start)
        yield start, end + 3 if end >= 0 else len(text)
        start = text.find("<!--", end) if end >= 0 else -1
    tags: dict[str, list[tuple[int, int, int]]] = {}
    for found in _TAG.finditer(text):
        if not found["empty"]:
            step = -1 if found["closing"] else 1
            tags.setdefault(found["name"].lower(), []).append((found.start(), found.end(), step))
    for places in tags.values():
        depth, start, last = 0, -1, -1
        for begin, end, step in places:
            if step > 0:
                start = begin if depth == 0 else start
                depth += 1
            elif depth:
                depth, last = depth - 1, end
                if depth == 0:
                    yield start, end
        if depth and last > start:
            yield start, last


def _open_end(text: str, spans: list[Span]) -> int | None:
    """Return the offset of the first block without an end; None if every block ends."""
    ends = [end for _, end in spans]
    laid_out: list[int] = []
    listed: list[int] = []
    paragraph, is_introduced = 0, False
    for begin, line in _lines(text):
        at = bisect_left(ends, begin + 1)
        if at < len(spans) and spans[at][0] <= begin:
            paragraph, is_introduced = begin + len(line) + 1, False
            continue
        if not line.strip():
            paragraph = begin + len(line) + 1
            continue
        if is_introduced:
            return min([begin, *laid_out[:1]])
        if _MACHINE.match(line[:_LINE_CHARS]):
            # What stands above it in its paragraph belongs to it, but for the first line of the prompt.
            return min([begin, *laid_out[:1], paragraph or text.find("\n") + 1])
        if _LAYOUT.match(line):
            laid_out.append(begin)
        if line.lstrip().startswith(_BULLETS) and len(line) >= _LIST_LINE_CHARS:
            listed.append(begin)
        if len(laid_out) >= 2 or len(listed) >= _LIST_LINES:
            return min([*laid_out[:1], *listed[:1]])
        is_introduced = _LEAD_IN.search(line[-300:]) is not None
    return None


def _reviews(text: str) -> Iterator[Span]:
    """Yield the paragraphs that read like a reviewer's remark and not like a person's request."""
    for found in _PARAGRAPH.finditer(text):
        if len(found[0]) >= _REVIEW_CHARS and _REVIEW.search(found[0]) and not _IN_PERSON.search(found[0]):
            yield found.span()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    for line in text.split("\n"):
        yield position, line
        position += len(line) + 1


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
