"""Find the logs of sessions, shells and channels: their files with names, sizes and times only, unread.

A sync in which nothing changed is little more than this walk, so it asks the system once a folder and once a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.models import SourceName
from nugget.sources import channels, claude_code, sessions
from nugget.sources import shell_logs as shell
from nugget.sources.files import LogFile, archived_sessions, find_file, list_folder
from nugget.sources.sessions import SessionFile
from nugget.sources.shell_logs import ShellLog


class Reader(StrEnum):
    """How the files of a log are read."""

    LINES = "lines"
    WHOLE = "whole"
    ARCHIVE = "archive"
    CHANNEL = "channel"
    SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A session, shell or channel with its files.

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
        """Time of the file that was written to last."""
        return max((file.mtime_ns for file in self.files), default=0)


def find_logs(environment: Environment, settings: Settings, brain: Path | None = None) -> list[Log]:
    """Return all logs, those written to last at the end; none if history is switched off.

    Of a session whose transcript is gone the archived one is taken.
    """
    if not settings.history.enabled:
        return []
    grouped: list[tuple[str, list[LogFile]]] = []
    for session, file in claude_code.find_files(environment.claude_config / "projects"):
        if file.part:
            grouped[-1][1].append(file)
        else:
            grouped.append((session, [file]))
    found = [_session_log(Reader.LINES, name, own[0].path, sessions.CLAUDE_CODE, *own) for name, own in grouped]
    others = [agent for agent in sessions.AGENTS if agent != sessions.CLAUDE_CODE]
    found += map(log_of, sessions.find_sessions(environment, others))
    present = {log.id for log in found}
    for session, path in archived_sessions(environment.home).items():
        if session not in present and (archived := find_file(path)):
            found.append(_session_log(Reader.ARCHIVE, session, archived.path, sessions.CLAUDE_CODE, archived))
    for channel, path in channels.channel_files(environment.home, *([brain] if brain else [])):
        if own_file := find_file(path):
            files = (own_file,)
            found.append(
                Log(reader=Reader.CHANNEL, source=SourceName.BRIDGE, id=channel, path=own_file.path, files=files)
            )
    for entry in list_folder(environment.shell_logs):
        if shell.is_session_id(entry.name) and entry.is_dir(follow_symlinks=False):
            found += [log for log in [_shell_log(entry.name, entry.path)] if log.files]
    found.sort(key=lambda log: (log.mtime_ns, log.path))
    newest = {(log.source, log.id): log for log in found}  # of a transcript and its copy the newest counts
    return sorted(newest.values(), key=lambda log: (log.mtime_ns, log.path))


def log_of(found: SessionFile | ShellLog) -> Log:
    """Return the log with all files of a session that was found otherwise."""
    if isinstance(found, ShellLog):
        return _shell_log(found.id, str(found.path))
    if found.agent == sessions.CLAUDE_CODE and not found.is_shared:
        own = find_file(found.path)
        files = (*([own] if own else []), *claude_code.find_subagents(str(found.path)))
        return _session_log(Reader.LINES, found.id, str(found.path), found.agent, *files)
    file = LogFile(path=found.locator, size=found.size, mtime_ns=int(found.mtime * 1e9))
    return _session_log(Reader.WHOLE, found.id, str(found.path), found.agent, file)


def _session_log(reader: Reader, session: str, path: str, agent: str, *files: LogFile) -> Log:
    return Log(reader=reader, source=SourceName.SESSIONS, id=session, path=path, agent=agent, files=files)


def _shell_log(name: str, folder: str) -> Log:
    """Return the log of a shell session with its files; a link is not a file of it."""
    entries = {entry.name: entry for entry in list_folder(folder) if not entry.is_symlink()}
    known = [entries[file] for file in (shell.EVENTS, shell.INPUT, *shell.STREAMS) if file in entries]
    files = tuple(file for entry in known if (file := find_file(entry)))
    return Log(reader=Reader.SHELL, source=SourceName.SHELL, id=name, path=folder, agent="shell", files=files)
