"""Find the logs of sessions, shells and channels: their files with names, sizes and times only, unread.

A sync in which nothing changed is little more than this walk, so it asks the system once a folder and once a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nugget.config import Environment, Settings
from nugget.models import SourceName
from nugget.sources import channels, claude_code, sessions
from nugget.sources import shell_logs as shell
from nugget.sources.files import LogFile, find_file, list_folder
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
        """Time of the file that was written to last."""
        return max((file.mtime_ns for file in self.files), default=0)


def find_logs(environment: Environment, settings: Settings, brain: Path | None = None) -> list[Log]:
    """Return all logs, those written to last at the end; none if history is switched off.

    Of a session whose transcript is gone the archived one is taken.
    """
    if not settings.history.enabled:
        return []
    found = list(_claude_code(environment.claude_config / "projects"))
    others = [agent for agent in sessions.AGENTS if agent != sessions.CLAUDE_CODE]
    found += map(log_of, sessions.find_sessions(environment, others))
    present = {log.id for log in found}
    for entry in list_folder(environment.home / "archive"):
        session = entry.name.removesuffix(_ARCHIVED)
        if entry.name.endswith(_ARCHIVED) and session not in present and (file := find_file(entry)):
            found.append(_session_log(Reader.ARCHIVE, session, file.path, sessions.CLAUDE_CODE, (file,)))
    for channel, path in channels.channel_files(environment.home, *([brain] if brain else [])):
        if file := find_file(path):
            found.append(
                Log(reader=Reader.CHANNEL, source=SourceName.BRIDGE, id=channel, path=file.path, files=(file,))
            )
    for entry in list_folder(environment.shell_logs):
        if shell.is_session_id(entry.name) and entry.is_dir(follow_symlinks=False):
            found += _shell_log(entry.name, entry.path)
    found.sort(key=lambda log: (log.mtime_ns, log.path))
    newest = {(log.source, log.id or log.path): log for log in found}  # of a transcript and its copy the newest counts
    return sorted(newest.values(), key=lambda log: (log.mtime_ns, log.path))


def log_of(found: SessionFile | ShellLog) -> Log:
    """Return the log with all files of a session that was found otherwise."""
    if isinstance(found, ShellLog):
        empty = Log(reader=Reader.SHELL, source=SourceName.SHELL, id=found.id, path=str(found.path), agent="shell")
        return next(_shell_log(found.id, str(found.path)), empty)
    if found.agent == sessions.CLAUDE_CODE and not found.is_shared:
        own = find_file(found.path)
        files = (*([own] if own else []), *claude_code.find_subagents(str(found.path.with_suffix(""))))
        return _session_log(Reader.LINES, found.id, str(found.path), found.agent, files)
    file = LogFile(path=found.locator, size=found.size, mtime_ns=int(found.mtime * 1e9))
    return _session_log(Reader.WHOLE, found.id, str(found.path), found.agent, (file,))


def _session_log(reader: Reader, session: str, path: str, agent: str, files: tuple[LogFile, ...]) -> Log:
    return Log(reader=reader, source=SourceName.SESSIONS, id=session, path=path, agent=agent, files=files)


def _claude_code(projects: Path) -> Iterator[Log]:
    """Yield a log for each session with its subagents, and one for each file of an unnamed session."""
    grouped: dict[tuple[str, str], list[LogFile]] = {}
    for session, file in claude_code.find_files(projects):
        project = file.path[len(str(projects)) + 1 :].partition("/")[0]
        grouped.setdefault((project, session or file.path), []).append(file)
    for (_, session), files in grouped.items():
        files.sort(key=lambda file: file.part)
        name = "" if session == files[0].path else session
        yield _session_log(Reader.LINES, name, files[0].path, sessions.CLAUDE_CODE, tuple(files))


def _shell_log(name: str, folder: str) -> Iterator[Log]:
    """Yield the log of a shell session if it has any file; a link is not a file of it."""
    entries = {entry.name: entry for entry in list_folder(folder) if not entry.is_symlink()}
    known = [entries[file] for file in (shell.EVENTS, shell.INPUT, *shell.STREAMS) if file in entries]
    if own := tuple(file for entry in known if (file := find_file(entry))):
        yield Log(reader=Reader.SHELL, source=SourceName.SHELL, id=name, path=folder, agent="shell", files=own)
