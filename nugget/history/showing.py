"""Show what stands around a ref of history: an exchange or message, whole, with its neighbours."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from nugget.errors import TranscriptError, UsageError
from nugget.history.searching import ref_of, speaker_of
from nugget.history.values import Role, ShownPassage, Stretch, role_of
from nugget.index import passages as tables
from nugget.index.passages import StoredPassage
from nugget.index.session_rows import MORE
from nugget.models import SourceName

_REF = re.compile(
    r"(?P<kind>sessions?|bridge|shell):(?P<name>[A-Za-z0-9_.@:-]{1,200})(?:/(?P<subagent>[A-Za-z0-9_.-]{1,200}))?"
    r"(?:#(?P<number>\d{1,9}))?"
)


def is_history_ref(ref: str) -> bool:
    """Whether a ref names an exchange, a message or a command: `session:<id>#3`, `bridge:<channel>#3`."""
    return bool(_REF.fullmatch(ref))


def read_passage(connection: sqlite3.Connection, ref: str, neighbours: int = 1) -> Stretch:
    """Return the exchange, message or command of a ref with `neighbours` on each side; the first one without a number.

    Raises UsageError for what is no such ref, TranscriptError if nothing is known by it.
    """
    parsed = _REF.fullmatch(ref)
    if parsed is None:
        raise UsageError(f"{ref[:80]!r} is no ref of a session.", hint="Refs stand behind `ref:` in `nugget search`.")
    source = SourceName.SESSIONS if parsed["kind"].startswith("session") else SourceName(parsed["kind"])
    asked = int(parsed["number"] or 1)
    session = _session_named(connection, source, parsed["name"])
    if source is SourceName.BRIDGE:
        thread = tables.messages_of(connection, session)
        at = next((at for at, message in enumerate(thread) if message.number == asked), 0)
        stored = thread[max(0, at - neighbours) : at + neighbours + 1]
    else:
        numbers = (asked - neighbours, asked + neighbours)
        stored = tables.passages_around(connection, session, parsed["subagent"] or "", numbers)
    if not any(passage.number == asked for passage in stored):
        raise TranscriptError(
            f"Nothing is known by {ref}.", hint="Run `nugget sync`; the client may have deleted the transcript."
        )
    first = stored[0]
    return Stretch(
        ref=ref,
        source=source,
        session=first.session,
        title=first.title,
        agent=first.agent,
        folder=first.folder,
        path=first.path.removesuffix(f"#{first.session}"),
        passages=tuple(_shown(stored, asked)),
    )


def _session_named(connection: sqlite3.Connection, source: SourceName, name: str) -> int:
    found = tables.sessions_like(connection, source, name)
    if name in found or len(found) == 1:
        return found[name] if name in found else next(iter(found.values()))
    if found:
        some = ", ".join(list(found)[:3])
        raise TranscriptError(f"Several sessions begin with {name} ({some}…).", hint="Give more of the id.")
    raise TranscriptError(f"There is no session {name}.", hint="Run `nugget sync` to read new sessions.")


def _shown(stored: Sequence[StoredPassage], asked: int) -> list[ShownPassage]:
    """The passages as they are read: what is one side of an exchange is put together."""
    sides: dict[tuple[int, Role], list[StoredPassage]] = {}
    for passage in stored:
        sides.setdefault((passage.number, role_of(passage.kind)), []).append(passage)
    shown = []
    for (number, role), pieces in sides.items():
        joint = "\n" if role is Role.OUTPUT else "\n\n"
        text = pieces[0].text
        for piece in pieces[1:]:
            text += piece.text if MORE in piece.kind else f"{joint}{piece.text}"
        first = pieces[0]
        shown.append(
            ShownPassage(
                ref=ref_of(first),
                role=role,
                speaker=speaker_of(first),
                timestamp=datetime.fromtimestamp(first.at, UTC) if first.at else None,
                text=text,
                is_asked_for=number == asked,
            )
        )
    return shown
