"""Where history lies: the transcripts of every agent, the archive, channels and shell logs. Names, sizes, times only.

A sync in which nothing changed is little more than this walk, so it asks the system once a folder and once a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.index.history import HistoryFile
from nugget.sources import channels as bridge
from nugget.sources import sessions
from nugget.sources import shell_logs as shell

LINES, EVENTS, ARCHIVE, CHANNEL, SHELL = "lines", "events", "archive", "channel", "shell"
"""How a file is read, and what the places of its passages mean."""

_ARCHIVED = ".jsonl.gz"


def find_history(environment: Environment, settings: Settings, brain: Path | None = None) -> dict[str, HistoryFile]:
    """All files of history by path, unread; none where it is switched off.

    Of a session whose transcript is gone the archived one is taken.
    """
    if not settings.history.enabled:
        return {}
    found = {file.path: file for file in _claude_code(environment.claude_config / "projects")}
    others = [agent for agent in sessions.AGENTS if agent != sessions.CLAUDE_CODE]
    for other in sessions.find_sessions(environment, others) if others else ():
        path = f"{other.path}::{other.id}"
        found[path] = HistoryFile(
            path=path,
            reader=EVENTS,
            agent=other.agent,
            session=other.id,
            size=other.size,
            mtime_ns=int(other.mtime * 1e9),
        )
    present = {file.session for file in found.values()}
    for name, entry in _entries(environment.home / "archive"):
        session = name.removesuffix(_ARCHIVED)
        if name.endswith(_ARCHIVED) and session not in present:
            found |= _found(entry, ARCHIVE, sessions.CLAUDE_CODE, session)
    for channel, file in bridge.channel_files(environment.home, *([brain] if brain else [])):
        found |= _found(file, CHANNEL, "", channel)
    found |= {log.path: log for log in _shell_files(environment.shell_logs)}
    return found


def _shell_files(logs: Path) -> Iterator[HistoryFile]:
    """The commands of each shell session, and what the terminal showed; a link is no log.

    Commands are what was typed, else what is noted as started: Nugget's own hooks keep events and nothing else.
    """
    for name, folder in _entries(logs):
        if not shell.is_session_id(name) or not folder.is_dir(follow_symlinks=False):
            continue
        files = {file: entry for file, entry in _entries(folder) if entry.is_file(follow_symlinks=False)}
        merged = [file for file in shell.STREAMS if file in files][:1]
        typed = shell.INPUT if _has_content(files.get(shell.INPUT)) else shell.EVENTS
        for file in (typed, *merged, *(["stderr.log"] if merged == ["stdout.log"] else [])):
            if file in files:
                subagent = "" if file == typed else file
                yield from _found(files[file], SHELL, "shell", name, subagent).values()


def _has_content(file: os.DirEntry[str] | None) -> bool:
    try:
        return file is not None and file.stat().st_size > 0
    except OSError:
        return False  # gone since its folder was listed


def _claude_code(projects: Path) -> Iterator[HistoryFile]:
    for _, project in _entries(projects):
        for name, entry in _entries(project):
            if name.endswith(".jsonl"):
                is_agent = name.startswith("agent-")
                yield from _transcript(entry, "" if is_agent else name[:-6], name[6:-6] if is_agent else "")
            elif "." not in name:
                for file, subagent in _entries(f"{entry.path}/subagents"):
                    if file.startswith("agent-") and file.endswith(".jsonl"):
                        yield from _transcript(subagent, name, file[6:-6])


def _transcript(entry: os.DirEntry[str], session: str, subagent: str) -> Iterator[HistoryFile]:
    yield from _found(entry, LINES, sessions.CLAUDE_CODE, session, subagent).values()


def _found(
    entry: os.DirEntry[str] | Path, reader: str, agent: str, session: str, subagent: str = ""
) -> dict[str, HistoryFile]:
    try:
        state = entry.stat()
        if not entry.is_file():
            return {}
    except OSError:
        return {}
    path = os.fspath(entry)
    return {
        path: HistoryFile(
            path=path,
            reader=reader,
            agent=agent,
            session=session,
            subagent=subagent,
            size=state.st_size,
            mtime_ns=state.st_mtime_ns,
        )
    }


def _entries(folder: str | os.DirEntry[str] | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What a folder holds, by name; nothing where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(((entry.name, entry) for entry in entries), key=lambda named: named[0])
    except OSError:
        return
