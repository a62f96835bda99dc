"""Where sessions, shells and channels lie: their files with names, sizes and times only, unread.

A sync in which nothing changed is little more than this walk, so it asks the system once a folder and once a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.models import SourceName
from nugget.sources import channels, sessions
from nugget.sources import shell_logs as shell
from nugget.sources.sessions import SessionFile
from nugget.sources.shell_logs import ShellLog

_ARCHIVED = ".jsonl.gz"


class Reader(StrEnum):
    """How the files of a log are read."""

    LINES = "lines"
    WHOLE = "whole"
    ARCHIVE = "archive"
    CHANNEL = "channel"
    SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file of a log. `part` names the subagent whose transcript it is."""

    path: str
    size: int
    mtime_ns: int
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A session, shell or channel with its files. `id` is empty for a subagent whose file has to tell its session.

    `path` is the transcript, the archive, the folder of a shell or the file of a channel.
    """

    reader: Reader
    source: SourceName
    id: str
    path: str
    agent: str = ""
    files: tuple[LogFile, ...] = ()

    @property
    def mtime_ns(self) -> int:
        """The time of the file that was written to last."""
        return max((file.mtime_ns for file in self.files), default=0)


def find_logs(environment: Environment, settings: Settings, brain: Path | None = None) -> list[Log]:
    """Return all logs, those that were written to last at the end; none if history is switched off.

    Of a session whose transcript is gone the archived one is taken.
    """
    if not settings.history.enabled:
        return []
    found = list(_claude_code(environment.claude_config / "projects"))
    others = [agent for agent in sessions.AGENTS if agent != sessions.CLAUDE_CODE]
    found += [log_of(file) for file in (sessions.find_sessions(environment, others) if others else ())]
    present = {log.id for log in found}
    for name, entry in _entries(environment.home / "archive"):
        session = name.removesuffix(_ARCHIVED)
        if name.endswith(_ARCHIVED) and session not in present and (file := _file(entry)):
            found.append(Log(
                reader=Reader.ARCHIVE, source=SourceName.SESSIONS, id=session, path=file.path,
                agent=sessions.CLAUDE_CODE, files=(file,),
            ))  # fmt: skip
    for channel, path in channels.channel_files(environment.home, *([brain] if brain else [])):
        if file := _file(path):
            found.append(
                Log(reader=Reader.CHANNEL, source=SourceName.BRIDGE, id=channel, path=file.path, files=(file,))
            )
    for name, folder in _entries(environment.shell_logs):
        if shell.is_session_id(name) and folder.is_dir(follow_symlinks=False):
            found += _shell_log(name, folder.path)
    found.sort(key=lambda log: (log.mtime_ns, log.path))
    newest = {(log.source, log.id or log.path): log for log in found}  # of a transcript and its copy the newest counts
    return sorted(newest.values(), key=lambda log: (log.mtime_ns, log.path))


def log_of(found: SessionFile | ShellLog) -> Log:
    """Return the log with all files of a session that was found otherwise."""
    if isinstance(found, ShellLog):
        return next(_shell_log(found.id, str(found.path)), _no_log(found))
    if found.agent == sessions.CLAUDE_CODE and not found.is_shared:
        own = _file(found.path)
        subagents = _subagents(os.fspath(found.path.with_suffix("")))
        return Log(
            reader=Reader.LINES, source=SourceName.SESSIONS, id=found.id, path=str(found.path), agent=found.agent,
            files=(*([own] if own else []), *subagents),
        )  # fmt: skip
    file = LogFile(path=found.locator, size=found.size, mtime_ns=int(found.mtime * 1e9))
    return Log(
        reader=Reader.WHOLE, source=SourceName.SESSIONS, id=found.id, path=str(found.path), agent=found.agent,
        files=(file,),
    )  # fmt: skip


def _claude_code(projects: Path) -> Iterator[Log]:
    for _, project in _entries(projects):
        files: dict[str, list[LogFile]] = {}
        for name, entry in _entries(project):
            if name.endswith(".jsonl"):
                if not (file := _file(entry, name[6:-6] if name.startswith("agent-") else "")):
                    continue
                files.setdefault("" if file.part else name[:-6], []).append(file)
            elif "." not in name and (subagents := list(_subagents(entry.path))):
                files.setdefault(name, []).extend(subagents)
        for session, own in files.items():
            whole = [[file] for file in own] if not session else [sorted(own, key=lambda file: file.part)]
            for some in whole:
                yield Log(
                    reader=Reader.LINES, source=SourceName.SESSIONS, id=session, agent=sessions.CLAUDE_CODE,
                    path=some[0].path, files=tuple(some),
                )  # fmt: skip


def _subagents(folder: str) -> Iterator[LogFile]:
    for name, entry in _entries(f"{folder}/subagents"):
        if name.startswith("agent-") and name.endswith(".jsonl") and (file := _file(entry, name[6:-6])):
            yield file


def _shell_log(name: str, folder: str) -> Iterator[Log]:
    """The log of a shell session if it has any file; a link is no file of it."""
    known = (shell.EVENTS, shell.INPUT, *shell.STREAMS)
    entries = {file: entry for file, entry in _entries(folder) if file in known}
    files = [_file(entries[file]) for file in known if file in entries and not entries[file].is_symlink()]
    if own := tuple(file for file in files if file):
        yield Log(reader=Reader.SHELL, source=SourceName.SHELL, id=name, path=folder, agent="shell", files=own)


def _no_log(found: ShellLog) -> Log:
    return Log(reader=Reader.SHELL, source=SourceName.SHELL, id=found.id, path=str(found.path), agent="shell")


def _file(entry: os.DirEntry[str] | Path, part: str = "") -> LogFile | None:
    try:
        state = entry.stat()
        if not entry.is_file():
            return None
    except OSError:
        return None
    return LogFile(path=os.fspath(entry), size=state.st_size, mtime_ns=state.st_mtime_ns, part=part)


def _entries(folder: str | os.DirEntry[str] | Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What a folder holds, by name; nothing if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(((entry.name, entry) for entry in entries), key=lambda named: named[0])
    except OSError:
        return
