"""Working notes: what in a session is still worth knowing later (blocker, edit, todo, decision).

Todos and decisions are read from what a person said: a prompt, a comment, a note that was echoed somewhere, a line
typed to an assistant. A word in a command is no such thing: `npx next build`, `use "x"` in a query and a commit message
decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from nugget.text import shorten

MAX_NOTE_CHARS = 300

_TO_ASSISTANT = re.compile(
    r"(?:ai|ask|claude|codex|gemini|llm|aider|aish|chat|copilot)\s+(?!-)(?P<said>.{4,})", re.DOTALL
)
_GIT = re.compile(r"(?:\S*/)?git(?:\s|$)")
_COMMENT = re.compile(r"(?:^|\s)#\s*(?P<said>\S.*)$", re.MULTILINE)
_ECHO = re.compile(r"^(?:echo|printf|note|jot|task add|todo(?: add)?|nugget add)\s+(?:-\w+\s+)*(?P<said>[^|>]+)")
_QUOTES = "\"' "
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|\s+[-–—]\s+")
_SHELL_MARK = re.compile(r"(?:^|\s)-{1,2}[A-Za-z]|[|&;<>$`{}=\\]|\(\)|^\s*[./~]|://|\S\.\w+\s*$")
_ENGLISH = re.compile(
    r"\b(?:the|a|an|we|i|you|it|is|are|was|this|that|to|of|for|from|with|and|or|not|let's|lets|should|must|will|instead"
    r"|in|on|as)\b",
    re.IGNORECASE,
)
_TODO = re.compile(
    r"(?<![\w./-])(?:todo|fixme)(?![\w/-]|\.\w)"
    r"|^(?:and )?(?:up )?next(?:\s*[:,]| (?:up|step|we|i|you|is|do|fix|add|write|implement)\b)"
    r"|\bdo (?:it|this|that|these|the rest)?\s*(?:next|later)\b|^later\s*[:,]"
    r"|\b(?:add|fix|handle|clean up|come back|look at|refactor|implement|update|remove|do"
    r"|deal with|revisit|write|test|check|finish|move|rename|document)\b"
    r".{0,80}\b(?:later|next)\b",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:we|i|i've|we've|they) (?:have |had )?(?:decided?|chose|chosen)\b|\bdecided? (?:to|on|that|against|for)\b"
    r"|^(?:decision|decided|chosen)\s*:|\b(?:is|was|were|been|have|has) chosen\b"
    r"|\bchosen\b.{0,40}\b(?:over|because|instead)\b"
    r"|\b(?:switch(?:ing|ed)?|moving|migrat(?:e|ing)) to\b|\b(?:go|going|went) with\b"
    r"|^(?:(?:ok|okay|yes|no|please|just|always|and|so|then|instead)[, ]+)*"
    r"(?:let'?s |we(?:'ll| will| should| must)? |i(?:'ll| will) )?use\b"
    r"|\b(?:let'?s|we(?:'ll| will| should| must)?|should|must|always) use\b|\buse\b.{1,60}\binstead\b",
    re.IGNORECASE,
)
_NO_DECISION = re.compile(
    r"\?\s*$|\b(?:can't|cannot|could not|couldn't|how (?:do|to|can)|what|which|whether|if|should (?:i|we)|do (?:i|we)"
    r"|don't know)\b.{0,60}\b(?:use|switch|go with|choose|decide)\b|\buse (?:of|case|cases)\b"
    r"|\bdecide (?:if|whether|which|how|what)\b",
    re.IGNORECASE,
)
_TODO_PROGRAM = re.compile(r"^(?:todo|task)(?: add)? ")


@lru_cache(maxsize=4096)
def notes_of_command(text: str) -> tuple[tuple[str, str], ...]:
    """(type, text) of the todos and decisions that a line typed into a shell holds."""
    said = said_in_command(text)
    if said and _TODO_PROGRAM.match(text.strip()):
        return (("todo", shorten(said, MAX_NOTE_CHARS)),)
    return tuple(notes_of_speech(said)) if said else ()


def notes_of_speech(text: str, *, max_sentences: int = 40) -> Iterator[tuple[str, str]]:
    """(type, text) of the todos and decisions in what a person said, sentence by sentence."""
    for number, sentence in enumerate(_SENTENCE.split(text[:8000])):
        sentence = sentence.strip(_QUOTES + "*-•")
        if number >= max_sentences:
            return
        if not 6 <= len(sentence) <= 600:
            continue
        if _TODO.search(sentence):
            yield "todo", shorten(sentence, MAX_NOTE_CHARS)
        elif _DECISION.search(sentence) and not _NO_DECISION.search(sentence):
            yield "decision", shorten(sentence, MAX_NOTE_CHARS)


def said_in_command(text: str) -> str:
    """Return what a person said in a line typed into a shell (to an assistant, in a comment, in a note), or ""."""
    line = text.strip()
    if not line or _GIT.match(line):
        return ""
    for pattern in (_TO_ASSISTANT, _ECHO):
        if found := pattern.match(line):
            return found["said"].strip(_QUOTES)
    if found := _COMMENT.search(line):
        return found["said"].strip(_QUOTES)
    words = line.split()
    if len(words) >= 3 and not _SHELL_MARK.search(line) and (_ENGLISH.search(line) or _leads(words[0])):
        return line
    return ""


def _leads(word: str) -> bool:
    return word.lower() in ("todo", "todo:", "fixme", "fixme:", "next:", "later:", "decided", "decision:", "chosen:")


def edit_note(path: str, action: str) -> str:
    """Return the note about an edited file, such as `Edited src/lib.rs (overwrite)`."""
    return f"Edited {path} ({action})"
