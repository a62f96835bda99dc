"""Show what a ref names: a unit, a section of a note, an exchange or message with its neighbours.

brain:<id>, or <id> alone      canon:<folder>/<path>[#section]      provenance:<id>
session:<id>#<exchange>        bridge:<channel>#<message>           shell:<session>#<command>
memory:<identity>/<path>       sessions:<id of an incident or note>
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nugget.brain.frontmatter import plain_line_ends
from nugget.errors import NuggetError, TranscriptError, UsageError
from nugget.index import IndexReader
from nugget.index import passages as tables
from nugget.index.events import MORE
from nugget.index.passages import StoredPassage
from nugget.markdown import headings_of
from nugget.models import SourceName, Unit
from nugget.retrieval.history import HISTORY_SOURCES
from nugget.retrieval.search import Indexes
from nugget.text import printable, slugify

_SINGULAR = {"session": SourceName.SESSIONS}
_HISTORY_REF = re.compile(
    r"(?P<kind>sessions?|bridge|shell):(?P<name>[A-Za-z0-9_.@:-]{1,200})(?:/(?P<subagent>[A-Za-z0-9_.-]{1,200}))?"
    r"(?:#(?P<number>\d{1,9}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """One passage of an excerpt: whole, redacted. `is_target` tells the one that the ref names."""

    ref: str
    role: str
    speaker: str
    timestamp: datetime | None
    text: str
    is_target: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """An exchange, a message or a command with its neighbours, in order."""

    ref: str
    source: SourceName
    session: str
    title: str
    agent: str
    folder: str
    path: str
    passages: tuple[ShownPassage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The target of a ref: a unit, or a part of history. `section` is the heading that a unit was cut to."""

    ref: str
    unit: Unit | None = None
    excerpt: Excerpt | None = None
    section: str | None = None


def show(
    ref: str,
    indexes: Indexes,
    *,
    identity: str | None = None,
    neighbours: int = 1,
) -> Shown:
    """Look a ref up. Raises UsageError for a text that is not a ref, NuggetError if nothing is known by it.

    A unit of memory is looked for only in `indexes.memory`, and only where `identity` is whose it is.
    """
    source, name = split_ref(ref)
    if source is SourceName.MEMORY and (identity is None or not name.startswith(f"{identity}/")):
        raise NuggetError(
            "Memory is shown only to the identity that it belongs to.", hint="Say who you are: --as IDENTITY."
        )
    index = indexes.of(source)
    if index is not None and (found := _unit(index, source, name)):
        return found
    if source in HISTORY_SOURCES and indexes.machine is not None:
        given = f"{'session' if source is SourceName.SESSIONS else source}:{name}"
        if _HISTORY_REF.fullmatch(given):
            excerpt = read_excerpt(indexes.machine.connection, given, neighbours)
            return Shown(ref=excerpt.ref, excerpt=excerpt)
    where = "the brain" if source is SourceName.BRAIN else str(source)
    raise NuggetError(f"There is no unit {printable(name)} in {where}.", hint="`nugget search` finds refs.")


def split_ref(ref: str) -> tuple[SourceName, str]:
    """Source and id of a ref; an id alone is one of the brain. Raises UsageError for none, or an unknown source."""
    prefix, colon, name = ref.strip().partition(":")
    if not (name if colon else prefix):
        raise UsageError("Give a ref.", hint="`nugget search` finds refs.")
    if not colon:
        return SourceName.BRAIN, prefix
    if prefix in _SINGULAR:
        return _SINGULAR[prefix], name
    if prefix not in list(SourceName):
        raise UsageError(f"There is no source {prefix!r}.", hint=f"Sources are: {', '.join(SourceName)}.")
    return SourceName(prefix), name


def _unit(index: IndexReader, source: SourceName, name: str) -> Shown | None:
    unit = index.unit(name, source)
    if unit is not None:
        return Shown(ref=unit.ref, unit=unit)
    note, mark, section = name.rpartition("#")
    unit = index.unit(note, source) if mark else None
    if unit is None:
        return None
    body = section_of(unit.body, section)
    if body is None:
        raise NuggetError(f"{unit.ref} has no section {section!r}.", hint=f"nugget get {unit.ref} shows all of it.")
    return Shown(ref=f"{unit.ref}#{section}", unit=replace(unit, body=body), section=section)


def section_of(body: str, wanted: str) -> str | None:
    """Return the part of a markdown text below the heading of that name (or slug), with the headings below that one."""
    slug = slugify(wanted)
    headings = headings_of(body)
    for number, (level, name, line) in enumerate(headings):
        if slugify(name) == slug:
            end = next((later for other, _, later in headings[number + 1 :] if other <= level), None)
            return "\n".join(plain_line_ends(body).split("\n")[line:end]).strip()
    return None


def read_excerpt(connection: sqlite3.Connection, ref: str, neighbours: int = 1) -> Excerpt:
    """Return the exchange, message or command of a ref with `neighbours` on each side; the first one without a number.

    Raises UsageError for what is no such ref, TranscriptError if nothing is known by it.
    """
    parsed = _HISTORY_REF.fullmatch(ref)
    if parsed is None:
        raise UsageError(f"{ref[:80]!r} is no ref of a session.", hint="Refs stand behind `ref:` in `nugget search`.")
    source = SourceName.SESSIONS if parsed["kind"].startswith("session") else SourceName(parsed["kind"])
    number = int(parsed["number"] or 1)
    session = _session_key(connection, source, parsed["name"])
    if source is SourceName.BRIDGE:
        thread = tables.messages_of(connection, session)
        at = next((at for at, message in enumerate(thread) if message.number == number), 0)
        stored = thread[max(0, at - neighbours) : at + neighbours + 1]
    else:
        numbers = (number - neighbours, number + neighbours)
        stored = tables.passages_around(connection, session, parsed["subagent"] or "", numbers)
    if not any(passage.number == number for passage in stored):
        raise TranscriptError(
            f"Nothing is known by {ref}.", hint="Run `nugget sync`; the client may have deleted the transcript."
        )
    first = stored[0]
    return Excerpt(
        ref=ref, source=source, session=first.session, title=first.title, agent=first.agent, folder=first.folder,
        path=first.path.removesuffix(f"#{first.session}"), passages=tuple(_joined(stored, number)),
    )  # fmt: skip


def _session_key(connection: sqlite3.Connection, source: SourceName, name: str) -> int:
    found = tables.sessions_like(connection, source, name)
    if name in found or len(found) == 1:
        return found[name] if name in found else next(iter(found.values()))
    if found:
        some = ", ".join(list(found)[:3])
        raise TranscriptError(f"Several sessions begin with {name} ({some}…).", hint="Give more of the id.")
    raise TranscriptError(f"There is no session {name}.", hint="Run `nugget sync` to read new sessions.")


def _joined(stored: Sequence[StoredPassage], number: int) -> list[ShownPassage]:
    """Return the passages as they are read: all rows of one side of an exchange are one."""
    sides: dict[tuple[int, str], list[StoredPassage]] = {}
    for passage in stored:
        sides.setdefault((passage.number, passage.role), []).append(passage)
    shown = []
    for (own, role), (first, *others) in sides.items():
        joint = "\n" if role == "output" else "\n\n"
        text = first.text + "".join(row.text if MORE in row.kind else f"{joint}{row.text}" for row in others)
        moment = datetime.fromtimestamp(first.at, UTC) if first.at else None
        shown.append(ShownPassage(
            ref=first.ref, role=role, speaker=first.author, timestamp=moment, text=text, is_target=own == number
        ))  # fmt: skip
    return shown
