"""Show what a ref names: a unit, a section of a note, an exchange or message with its neighbours.

brain:<id>, or <id> alone      canon:<folder>/<path>[#section]      provenance:<id>
session:<id>#<exchange>        bridge:<channel>#<message>           shell:<session>#<command>
memory:<identity>/<path>       sessions:<id of an incident or note>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nugget.brain.frontmatter import plain_line_ends
from nugget.errors import NuggetError, UsageError
from nugget.index import Index
from nugget.markdown import headings_of
from nugget.models import SourceName, Unit
from nugget.retrieval.search import Indexes
from nugget.text import printable, slugify

if TYPE_CHECKING:
    from nugget.history import Stretch

_SINGULAR = {"session": SourceName.SESSIONS}
_HISTORY = frozenset({SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The target of a ref: a unit, or a part of history. `section` is the heading that a unit was cut to."""

    ref: str
    unit: Unit | None = None
    stretch: Stretch | None = None
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
    if source in _HISTORY and indexes.machine is not None:
        from nugget.history import is_history_ref, read_passage

        given = f"{'session' if source is SourceName.SESSIONS else source}:{name}"
        if is_history_ref(given):
            stretch = read_passage(indexes.machine.connection, given, neighbours)
            return Shown(ref=stretch.ref, stretch=stretch)
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


def _unit(index: Index, source: SourceName, name: str) -> Shown | None:
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
    """The part of a markdown text below the heading of that name (or slug), with the headings below that one."""
    slug = slugify(wanted)
    headings = headings_of(body)
    for number, (level, name, line) in enumerate(headings):
        if slugify(name) == slug:
            end = next((later for other, _, later in headings[number + 1 :] if other <= level), None)
            return "\n".join(plain_line_ends(body).split("\n")[line:end]).strip()
    return None
