"""The values of sessions: events, sessions, and the files that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from nugget.models.speech import Speaker, SpeechOrigin


class EventKind(StrEnum):
    """Kind of an event in a session."""

    PROMPT = "prompt"
    PASTE = "paste"
    REPLY = "reply"
    COMMAND = "command"
    OUTPUT = "output"
    FILE_EDIT = "file_edit"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One timestamped happening in a session.

    `uuid` is the transcript record's; `text` is what was said, run or printed, `speaker` who said it and `origin` how
    it came into the session. A prompt's pasted part is a `paste` with the prompt's `uuid`. For a `file_edit`, `path` is
    the file as the agent named it, `before`/`after` the replaced and the new text (None if unknown, `before` empty
    for a file that was not there), and `before_hash`/`after_hash` the SHA-256 (hex) of the whole file in UTF-8 where
    the transcript tells its content; of several edits in one call, the first bears the one and the last the other.
    `ok` is False for a failed command or tool, None if the outcome is unknown. `call_id` ties a
    command to its output.
    """

    kind: EventKind
    text: str
    speaker: Speaker = Speaker.AGENT
    origin: SpeechOrigin = SpeechOrigin.WRITTEN
    uuid: str = ""
    timestamp: datetime | None = None
    tool: str | None = None
    call_id: str | None = None
    path: str | None = None
    before: str | None = None
    after: str | None = None
    before_hash: str | None = None
    after_hash: str | None = None
    ok: bool | None = None
    exit_code: int | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of an agent: what its transcript says happened, in the order of the file.

    `cwd` is the folder that it started in, `folders` are all those that it worked in.
    """

    id: str
    agent: str
    path: str
    events: tuple[Event, ...]
    cwd: str | None = None
    folders: tuple[str, ...] = ()
    branch: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    title: str | None = None
    records: int = 0
    skipped_records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFile:
    """A session as it lies on disk, unread. `mtime` is in seconds since the epoch, `size` in bytes.

    Of a database that holds many sessions, `path` is the database; time and size are then the session's own.
    """

    path: Path
    agent: str
    id: str
    mtime: float
    size: int
    is_shared: bool = False

    @property
    def locator(self) -> str:
        """The text that names this session alone: its path, in a database with `#` and its id."""
        return f"{self.path}#{self.id}" if self.is_shared else str(self.path)
