"""The content of excluded files (`capture.exclude_paths`), wherever a session shows it.

Known by the path that a tool was given, by the words of a command, and by the lines of output that name the file
they show: `grep`, `rg`, `head` of several files, `git diff`. What shows a file without naming it anywhere cannot be
known.
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
"""Stands where the content of an excluded file was."""

_NAMED_LINE = re.compile(r"(?P<path>[^\s:][^:\n]{0,400}?)(?::|[-=]\d+[-=:])")
"""`path:text`, `path:12:text`, `path-12-text`: how grep and rg show a line."""
_HEADING = re.compile(r"(?:==> (?P<head>.+) <==|diff --git a/(?P<diff>.+) b/.+|(?:\+\+\+|---) [ab]/(?P<side>.+))\s*")
_BARE_HEADING = re.compile(r"[^\s:]+")
_NUMBERED = re.compile(r"\d+[:-]")
_WORDS = re.compile(r"[\s\"'`=<>|;&()]+")
_GLOB = frozenset("*?[")


def without_excluded(events: Sequence[Event], patterns: Sequence[str]) -> list[Event]:
    """The events without what they show of files that one of `patterns` (globs) names."""
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
    """The lines of an output but for those of excluded files; each run of these becomes one `EXCLUDED`."""
    below_heading = was_hidden = False
    under_bare = False
    for line in text.split("\n"):
        heading, named = _HEADING.fullmatch(line), _NAMED_LINE.match(line)
        if heading:
            below_heading = hides(next(name for name in heading.groups() if name))
            under_bare = False
        elif not named and not below_heading and _BARE_HEADING.fullmatch(line) and hides(line):
            # rg's heading: the path alone, numbered lines below it, then an empty line.
            under_bare = True
            yield line
            continue
        elif under_bare and not _NUMBERED.match(line):
            under_bare = False
        is_hidden = below_heading or under_bare or (named is not None and hides(named["path"]))
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
    """Whether one of the globs names a file, or a folder that it lies in."""
    path = path.replace("\\", "/").removeprefix("./")
    for pattern in patterns:
        whole = str(expanded(pattern)) if pattern.startswith("~") else pattern
        if fnmatchcase(path, whole) or fnmatchcase(path, f"*/{whole}") or fnmatchcase(path, f"*/{whole}/*"):
            return True
        if fnmatchcase(path, f"{whole}/*"):
            return True
        # `cd hr` or `cat -r hr` where all of `hr/*` is excluded.
        folder = re.sub(r"/\*{1,2}$", "", whole)
        if folder not in (whole, "") and (path.rstrip("/") == folder or path.rstrip("/").endswith(f"/{folder}")):
            return True
        # A glob of the shell that takes the file in: `cat .env*` for `.env`.
        name, last = whole.rsplit("/", 1)[-1], path.rsplit("/", 1)[-1]
        if _GLOB & set(last) and last.strip("*?") and not _GLOB & set(name) and fnmatchcase(name, last):
            return True
    return False
