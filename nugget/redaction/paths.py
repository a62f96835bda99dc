"""Hide the content of excluded files (`capture.exclude_paths`) wherever a session shows it.

A file is recognised by the path given to a tool, the words of a command, and output lines that name the file they
show: `grep`, `rg`, `head` of several files, `git diff`. Output that never names its file cannot be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

from nugget.config import expanded
from nugget.models import Event, EventKind

EXCLUDED = "[excluded]"
"""Replaces the content of an excluded file."""

_SHOWN = re.compile(
    r"(?:==> (?P<head>.+) <==|diff --git a/(?P<diff>.+) b/.+|(?:\+\+\+|---) [ab]/(?P<side>.+))\s*\Z"
    r"|(?P<line>[^\s:][^:\n]{0,400}?)(?::|[-=]\d+[-=:])|(?P<alone>[^\s:]+)\Z"
)
"""A heading of `head` or a diff; `path:text`, `path:12:text` or `path-12-text` of grep; a path alone, as in rg."""
_NUMBERED = re.compile(r"\d+[:-]")
_WORDS = re.compile(r"[\s\"'`=<>|;&()]+")
_GLOB = frozenset("*?[")


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
        shown = _SHOWN.match(line)
        place = (shown.lastgroup or "") if shown else ""
        named = shown is not None and hides(shown[place])
        if place in ("head", "diff", "side"):
            below_heading, below_path = named, False
        elif place == "alone" and named and not below_heading:
            below_path = True  # numbered lines follow, then an empty one
            yield line
            continue
        below_path = below_path and bool(_NUMBERED.match(line))
        is_hidden = below_heading or below_path or (place == "line" and named)
        if not is_hidden:
            yield line
        elif not was_hidden:
            yield EXCLUDED
        was_hidden = is_hidden


def _paths_of(event: Event) -> list[str]:
    if event.kind is EventKind.COMMAND:
        return [word for word in _WORDS.split(event.text) if word and not word.startswith("-")]
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
