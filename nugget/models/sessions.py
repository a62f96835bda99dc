"""The values of sessions: events, sessions, the files that hold them, who speaks in them, and quotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class Speaker(StrEnum):
    """Speaker in a session, from the most to the least trusted. Words of unknown origin are the agent's."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    QUOTED = "quoted"


class SpeechOrigin(StrEnum):
    """Origin of words in a session; `WRITTEN` are the agent's own replies and calls."""

    TYPED = "typed"
    WRITTEN = "written"
    TOOL_RESULT = "tool_result"
    PASTED = "pasted"
    COMPACTION_SUMMARY = "compaction_summary"
    HOOK = "hook"


_SPEAKERS: Mapping[Speaker | None, tuple[str, SpeechOrigin | None]] = {
    Speaker.USER: ("said by the user", SpeechOrigin.TYPED),
    Speaker.AGENT: ("said by the agent", SpeechOrigin.WRITTEN),
    Speaker.TOOL: ("printed by a tool", SpeechOrigin.TOOL_RESULT),
    Speaker.QUOTED: ("somebody else's words", None),
    None: ("speaker unknown", None),
}
"""The description of each speaker, and the usual origin of their words."""


def said_how(speaker: Speaker | None, origin: SpeechOrigin | None = None) -> str:
    """Return who said something, and how if unusual: `somebody else's words (pasted)`."""
    words, usual = _SPEAKERS[speaker]
    is_usual = speaker is None or origin in (None, usual)
    return words if is_usual else f"{words} ({str(origin).replace('_', ' ')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of a unit: the session, the transcript records, and a short verbatim quote.

    `speaker` and `origin` are None if unknown, as in what Nugget 0.1 wrote.
    """

    session: str
    quote: str
    records: tuple[str, ...] = ()
    speaker: Speaker | None = None
    origin: SpeechOrigin | None = None


def evidence_of(values: Mapping[str, Any]) -> Evidence:
    """Return evidence from its values as `dataclasses.asdict` returns them."""
    speaker, origin = values.get("speaker"), values.get("origin")
    return Evidence(
        session=values["session"], quote=values["quote"], records=tuple(values["records"]),
        speaker=Speaker(speaker) if speaker else None, origin=SpeechOrigin(origin) if origin else None,
    )  # fmt: skip


def speaker_of(evidence: Iterable[Evidence]) -> Speaker:
    """Return the user if all evidence is theirs, else the first other speaker."""
    speakers = [one.speaker or Speaker.AGENT for one in evidence] or [Speaker.AGENT]
    return next((speaker for speaker in speakers if speaker is not Speaker.USER), Speaker.USER)


def origin_of(evidence: Iterable[Evidence]) -> SpeechOrigin:
    """Return the origin of the first evidence that the user did not type."""
    said = [one for one in evidence if one.speaker is not Speaker.USER or one.origin is not SpeechOrigin.TYPED]
    return (said[0].origin or SpeechOrigin.WRITTEN) if said else SpeechOrigin.TYPED


def is_typed(evidence: Iterable[Evidence]) -> bool:
    """Return True if there is evidence and the user typed all of it."""
    return {(one.speaker, one.origin) for one in evidence} == {(Speaker.USER, SpeechOrigin.TYPED)}


def is_own_words(evidence: Iterable[Evidence]) -> bool:
    """Return True if the user or the agent said at least some of it in their own words."""
    return any(one.speaker not in (Speaker.TOOL, Speaker.QUOTED) for one in evidence)


def standing(speakers: Iterable[Speaker | None], *, is_reviewed: bool) -> str:
    """Return who said it and whether a person reviewed it: `said by the user and by the agent, not reviewed`."""
    said = " and ".join(dict.fromkeys(said_how(one or Speaker.AGENT) for one in speakers))
    reviewed = "reviewed" if is_reviewed else "not reviewed"
    return f"{said.replace('and said', 'and')}, {reviewed}" if said else reviewed


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
    the transcript has its content; for several edits in one call, the first has the former and the last the latter.
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
    """An unread file of a session. `part` names the subagent whose transcript it is.

    Of a database that holds many sessions, `path` is the database; time and size are then the session's own.
    """

    path: Path
    agent: str
    id: str
    mtime_ns: int
    size: int
    is_shared: bool = False
    part: str = ""

    @property
    def mtime(self) -> float:
        """The time of the last change, in seconds since the epoch."""
        seconds, rest = divmod(self.mtime_ns, 10**9)
        return seconds + 1e-9 * rest

    @property
    def locator(self) -> str:
        """The unique name of the session: its path, in a database followed by `#` and its id."""
        return f"{self.path}#{self.id}" if self.is_shared else str(self.path)
