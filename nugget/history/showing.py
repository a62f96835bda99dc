"""Show what stands around a ref of history: an exchange or message, whole, with its neighbours."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from nugget.errors import TranscriptError, UsageError
from nugget.history.searching import ref_of
from nugget.history.texts import Texts
from nugget.history.values import Role, ShownPassage, Stretch, unpack_place
from nugget.index import passages as tables
from nugget.index.passages import StoredPassage
from nugget.models import SourceName
from nugget.redaction import redact

_REF = re.compile(
    r"(?P<kind>sessions?|bridge|shell):(?P<name>[A-Za-z0-9_.@:-]{1,200})(?:/(?P<subagent>[A-Za-z0-9_.-]{1,200}))?"
    r"(?:#(?P<number>\d{1,9}))?"
)
_ROLES = {
    SourceName.SESSIONS: (Role.YOU, Role.AGENT),
    SourceName.SHELL: (Role.COMMAND, Role.OUTPUT),
    SourceName.BRIDGE: (Role.MESSAGE,),
}


def is_history_ref(ref: str) -> bool:
    """Whether a ref names an exchange, a message or a command: `session:<id>#3`, `bridge:<channel>#3`."""
    return bool(_REF.fullmatch(ref))


def read_passage(
    connection: sqlite3.Connection, ref: str, neighbours: int = 1, *, allow: Sequence[re.Pattern[str]] = ()
) -> Stretch:
    """The exchange, message or command of a ref with `neighbours` on each side; the beginning without a number.

    Raises UsageError for what is no such ref, TranscriptError where nothing is known by it or its text is gone.
    """
    parsed = _REF.fullmatch(ref)
    if parsed is None:
        raise UsageError(f"{ref[:80]!r} is no ref of a session.", hint="Refs stand behind `ref:` in `nugget search`.")
    source = SourceName.SESSIONS if parsed["kind"].startswith("session") else SourceName(parsed["kind"])
    asked = int(parsed["number"] or 1)
    numbers = (asked - neighbours, asked + neighbours)
    if source is SourceName.BRIDGE:
        session = parsed["name"]
        thread = tables.messages_of(connection, session)
        at = next((at for at, message in enumerate(thread) if message.number == asked), 0)
        stored = thread[max(0, at - neighbours) : at + neighbours + 1]
    else:
        session = _session_named(connection, parsed["name"])
        stored = tables.passages_around(connection, session, parsed["subagent"] or "", _ROLES[source], numbers)
    if not any(passage.number == asked for passage in stored):
        raise TranscriptError(
            f"Nothing is known by {ref}.", hint="Run `nugget sync`; the client may have deleted the transcript."
        )
    channel = session if source is SourceName.BRIDGE else ""
    shown = _shown(stored, asked, channel, allow)
    if not any(passage.is_asked_for for passage in shown):
        raise TranscriptError(f"The text of {ref} is not there any more.", hint="The client deleted the transcript.")
    first = stored[0]
    return Stretch(
        ref=ref,
        source=source,
        session=session,
        title=first.title,
        agent=first.agent,
        folder=first.folder,
        path=first.path.removesuffix(f"::{first.session}"),
        passages=tuple(shown),
    )


def _session_named(connection: sqlite3.Connection, name: str) -> str:
    found = tables.sessions_like(connection, name)
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    if found:
        some = ", ".join(found[:3])
        raise TranscriptError(f"Several sessions begin with {name} ({some}…).", hint="Give more of the id.")
    raise TranscriptError(f"There is no session {name}.", hint="Run `nugget sync` to read new sessions.")


def _shown(
    stored: Sequence[StoredPassage], asked: int, channel: str, allow: Sequence[re.Pattern[str]]
) -> list[ShownPassage]:
    """The passages with their texts; the pieces of one side of an exchange are put together again."""
    sides: dict[tuple[int, int], list[tuple[StoredPassage, str, str]]] = {}
    with Texts() as texts:
        for passage in stored:
            text, speaker = texts.read(passage, lambda text: redact(text, allow=allow).text)
            if text:
                sides.setdefault((passage.number, passage.role), []).append((passage, text, speaker))
    shown = []
    for (number, role), pieces in sides.items():
        passage, _, speaker = pieces[0]
        joined = ""
        for piece, text, _ in pieces:
            goes_on = unpack_place(piece.place).start > 0 and piece.role != Role.MESSAGE
            joined += text if goes_on or not joined else f"\n\n{text}"
        shown.append(
            ShownPassage(
                ref=ref_of(passage, channel),
                role=Role(role),
                speaker=speaker,
                timestamp=datetime.fromtimestamp(passage.at, UTC) if passage.at else None,
                text=joined,
                is_asked_for=number == asked,
            )
        )
    return shown
