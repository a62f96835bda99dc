"""The values of history: where a passage of a session stands, and what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from nugget.models import SourceName


class Role(IntEnum):
    """Who speaks in a passage."""

    YOU = 0
    AGENT = 1
    MESSAGE = 2
    COMMAND = 3
    OUTPUT = 4

    @property
    def label(self) -> str:
        """How people see it: `You`, `Agent`, `Message`, `Command`, `Output`."""
        return self.name.title()

    @property
    def source(self) -> SourceName:
        """The source that passages of this role belong to."""
        return _SOURCES[self]


_SOURCES = {
    Role.YOU: SourceName.SESSIONS,
    Role.AGENT: SourceName.SESSIONS,
    Role.MESSAGE: SourceName.BRIDGE,
    Role.COMMAND: SourceName.SHELL,
    Role.OUTPUT: SourceName.SHELL,
}
_OF_KIND = {
    "prompt": Role.YOU,
    "paste": Role.YOU,
    "reply": Role.AGENT,
    "message": Role.MESSAGE,
    "command": Role.COMMAND,
    "output": Role.OUTPUT,
}
HISTORY_SOURCES = (SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE)


def role_of(kind: str) -> Role:
    """Return who speaks in a passage of a kind, as its row has it."""
    return _OF_KIND[kind.partition(".")[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageHit:
    """A passage that was found.

    `excerpt` is about 150 characters around the match, on one line, redacted. `session` is the session's id, or the
    channel's name. `score` is 0..1, higher is better. `speaker` names a subagent, or who sent a message.
    """

    ref: str
    source: SourceName
    session: str
    role: Role
    timestamp: datetime | None
    excerpt: str
    score: float
    agent: str
    speaker: str = ""
    title: str = ""
    folder: str = ""
    workspace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """One passage of a stretch of history: whole, redacted. `is_asked_for` tells the one that the ref names."""

    ref: str
    role: Role
    speaker: str
    timestamp: datetime | None
    text: str
    is_asked_for: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What stands around a ref: the exchange or message with its neighbours, in order."""

    ref: str
    source: SourceName
    session: str
    title: str
    agent: str
    folder: str
    path: str
    passages: tuple[ShownPassage, ...]
