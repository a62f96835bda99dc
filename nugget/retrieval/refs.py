"""Refs: show the unit, section of a note or exchange that one names, find related units, and complete prefixes.

brain:<id>, or <id> alone      canon:<folder>/<path>[#section]      provenance:<id>
session:<id>#<exchange>        bridge:<channel>#<message>           shell:<session>#<command>
memory:<identity>/<path>       sessions:<id of an incident or note>
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable, NuggetError, TranscriptError, UsageError, alike, only_id, require_known
from nugget.index import IndexReader, StoredChunk
from nugget.index.embedded import passages as tables
from nugget.index.embedded.events import MORE, first_prompt
from nugget.index.embedded.passages import StoredPassage
from nugget.index.fulltext import STOP_WORDS
from nugget.infra import git
from nugget.infra.embedding import Embedder
from nugget.markdown import headings_of
from nugget.models import Bundle, Chunk, Contribution, Depth, Filter, Hit, Query, SourceName, Unit
from nugget.retrieval import LIMIT, retrieve
from nugget.retrieval.candidates import Profile
from nugget.retrieval.history import HISTORY_SOURCES
from nugget.retrieval.packing import pack
from nugget.retrieval.search import Indexes
from nugget.text import plain_line_ends, printable, slugify

if TYPE_CHECKING:
    from nugget.infra.embedding import Vector

BUDGET_TOKENS = 200_000
"""More than the summaries of all related results take."""
LEAST_COSINE = 0.3
"""The lowest cosine of a related unit."""
NEAR_THE_BEST = 0.6
"""The share of the best cosine that a related hit needs."""
_MAX_TITLES = 20_000
_MAX_AUTHORS_COMMITS = 2000

_HISTORY_REF = re.compile(
    r"(?P<kind>sessions?|bridge|shell):(?P<name>[A-Za-z0-9_.@:-]{1,200})(?:/(?P<subagent>[A-Za-z0-9_.-]{1,200}))?"
    r"(?:#(?P<number>\d{1,9}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPassage:
    """One passage of an excerpt, whole and redacted; `is_target` marks the one that the ref names."""

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
    """The target of a ref: a unit, or a part of history. `section` is the heading to which a unit was cut."""

    ref: str
    unit: Unit | None = None
    excerpt: Excerpt | None = None
    section: str | None = None


def show(ref: str, indexes: Indexes, *, identity: str | None = None, neighbours: int = 1) -> Shown:
    """Look up a ref. Raises UsageError if it is not a ref, NuggetError if it names nothing.

    A unit of memory is looked up only in `indexes.memory`, and only for its own `identity`.
    """
    source, name = split_ref(ref)
    if source is SourceName.MEMORY and (identity is None or not name.startswith(f"{identity}/")):
        raise NuggetError("Memory is shown only to the identity it belongs to.", hint="Name it with --as IDENTITY.")
    index = indexes.of(source)
    if index is not None and (found := _unit(index, source, name)):
        return found
    if source in HISTORY_SOURCES and indexes.machine is not None:
        given = f"{'session' if source is SourceName.SESSIONS else source}:{name}"
        if _HISTORY_REF.fullmatch(given):
            excerpt = read_excerpt(indexes.machine.connection, given, neighbours)
            return Shown(ref=excerpt.ref, excerpt=excerpt)
    where = "the brain" if source is SourceName.BRAIN else str(source)
    guess = alike(name, index.unit_ids(source)) if index is not None else ""
    raise NuggetError(f"There is no unit {printable(name)} in {where}.{guess}", hint="`nugget search` finds refs.")


def split_ref(ref: str) -> tuple[SourceName, str]:
    """Return source and id of a ref (a plain id: of the brain). Raises UsageError for none or an unknown source."""
    prefix, colon, name = ref.strip().partition(":")
    if not (name if colon else prefix):
        raise UsageError("Give a ref.", hint="`nugget search` finds refs.")
    if not colon:
        return SourceName.BRAIN, prefix
    source = "sessions" if prefix == "session" else prefix
    require_known("source", [source], SourceName)
    return SourceName(source), name


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
    """Return the part of a markdown text below the heading with this name (or slug), with its subheadings."""
    slug = slugify(wanted)
    headings = headings_of(body)
    for number, (level, name, line) in enumerate(headings):
        if slugify(name) == slug:
            end = next((later for other, _, later in headings[number + 1 :] if other <= level), None)
            return "\n".join(plain_line_ends(body).split("\n")[line:end]).strip()
    return None


def read_excerpt(connection: sqlite3.Connection, ref: str, neighbours: int = 1) -> Excerpt:
    """Return the exchange, message or command of a ref (by default the first) with `neighbours` on each side.

    Raises TranscriptError if the ref names nothing.
    """
    parsed = _HISTORY_REF.fullmatch(ref)
    assert parsed is not None
    source = SourceName.SESSIONS if parsed["kind"].startswith("session") else SourceName(parsed["kind"])
    number = int(parsed["number"] or 1)
    known = tables.sessions_like(connection, source, parsed["name"])
    named = only_id(parsed["name"], known, "session", error=TranscriptError)
    if named is None:
        raise TranscriptError(f"There is no session {parsed['name']}.", hint="Run `nugget sync` to read new sessions.")
    session = known[named]
    if source is SourceName.BRIDGE:
        messages = tables.passages_around(connection, session, "", (1, 1 << 31))
        thread = sorted(messages, key=lambda one: (one.at, one.number))
        at = next((at for at, message in enumerate(thread) if message.number == number), 0)
        stored = thread[max(0, at - neighbours) : at + neighbours + 1]
    else:
        numbers = (number - neighbours, number + neighbours)
        stored = tables.passages_around(connection, session, parsed["subagent"] or "", numbers)
    if not any(passage.number == number for passage in stored):
        raise TranscriptError(f"Nothing is known by {ref}.", hint=f"The whole session: nugget sessions show {named}")
    first = stored[0]
    return Excerpt(
        ref=ref, source=source, session=first.session, title=first.title or first_prompt(connection, session),
        agent=first.agent, folder=first.folder, path=first.path.removesuffix(f"#{first.session}"),
        passages=tuple(_joined(stored, number)),
    )  # fmt: skip


def _joined(stored: Sequence[StoredPassage], number: int) -> list[ShownPassage]:
    """Return the passages for display: all rows of one side of an exchange are one."""
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


def related(
    thing: Unit | str, query: Query, indexes: Indexes, *, sources: Sequence[SourceName], profile: Profile,
    embedder: Embedder | None, now: datetime,
) -> Bundle:  # fmt: skip
    """Return units similar to a unit or a text: linked units first, then the nearest by meaning.

    Without vectors, words replace meaning, and `degraded` says so.
    """
    first, limit = query.offset, query.limit or LIMIT
    most = first + limit + 1
    vector = _vector(thing, indexes, embedder)
    if vector is None:
        text = thing if isinstance(thing, str) else f"{thing.title} {' '.join(thing.tags)}"
        asked = Query(text, limit=most, budget_tokens=BUDGET_TOKENS)
        hits = list(retrieve(asked, profile, indexes, sources=sources, embedder=embedder, now=now).hits)
    else:
        model, numbers = vector
        known = {
            source: index for source in sources if (index := indexes.of(source)) and index.embedding_model == model
        }
        near = [hit for source, index in known.items() for hit in _nearest(index, numbers, source, most)]
        hits = sorted(near, key=lambda hit: -hit.score)
        hits = [hit for hit in hits if hit.score >= NEAR_THE_BEST * hits[0].score]
    if not isinstance(thing, str):
        linked = _linked(thing, indexes) if thing.source in sources else []
        passed_over = {thing.ref, *(hit.unit.ref for hit in linked)}
        hits = [*linked, *(hit for hit in hits if hit.unit.ref not in passed_over)]
    shown, budget, hint = pack(hits[first : first + limit], budget_tokens=BUDGET_TOKENS, depth=Depth.SUMMARY)
    return Bundle(
        query=query, profile=profile.name, hits=shown, budget=budget, degraded=() if vector else ("no_vectors",),
        more_context_hint=hint, remaining=max(len(hits) - first - limit, 0),
    )  # fmt: skip


def suggest(prefix: str, indexes: Indexes, *, brain: Path, limit: int = 10) -> dict[str, list[tuple[str, int]]]:
    """Return by kind the names with a prefix (of the whole, or of a part of a domain or path), with counts.

    Memory is never included.
    """
    kinds = {kind: Counter[str]() for kind in ("domains", "tags", "types", "paths", "people", "terms")}
    for index in filter(None, (indexes.brain, indexes.machine)):
        for domain, its_tags, type_, path, scope_path, source, title in index.places(_MAX_TITLES):
            parts = domain.split("/") if domain else []
            kinds["domains"].update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
            kinds["tags"].update(json.loads(its_tags))
            kinds["types"][type_] += 1
            place = scope_path or (path if source == SourceName.CANON else None) or ""
            folders = place.split("/")[:-1]
            above = ("/".join(folders[:end]) + "/" for end in (1, 2)[: len(folders)])
            kinds["paths"].update({place, *above} - {""})
            kinds["terms"].update(set(re.findall(r"[^\W\d_][\w-]{3,30}", title.lower())) - STOP_WORDS)
    if git.is_repository(brain):
        named = git.run(brain, "log", f"-n{_MAX_AUTHORS_COMMITS}", "--format=%an", check=False)
        kinds["people"].update(filter(str.strip, named.decode("utf-8", "replace").splitlines()))
    return {kind: _beginning(names, prefix, limit) for kind, names in kinds.items()}


def refs_beginning(prefix: str, indexes: Indexes, *, limit: int) -> list[tuple[str, str]]:
    """Return refs with their titles, for completion; `brain:` may be left out. Memory is never included."""
    bare = prefix.removeprefix("brain:")
    given = prefix.removesuffix(bare)
    ours = indexes.brain.titles(bare, whole=False, limit=limit)
    others = indexes.machine.titles(prefix, whole=True, limit=limit) if indexes.machine else []
    return [*((f"{given}{ref}", title) for ref, title in ours), *others][:limit]


def _vector(thing: Unit | str, indexes: Indexes, embedder: Embedder | None) -> tuple[str, Vector] | None:
    """Return the stored vector of a unit, or the model's vector of a text, with the model's name."""
    if isinstance(thing, Unit):
        index = indexes.of(thing.source)
        keys = index.unit_keys([thing.id], thing.source) if index else {}
        if index and keys:
            vector = index.unit_vector(next(iter(keys.values())))
            if vector is not None:
                return index.embedding_model or "", vector
    if embedder is None:
        return None
    text = thing if isinstance(thing, str) else f"{thing.title}\n{thing.body}"[:2000]
    try:
        return embedder.model, embedder.embed_query(text)
    except EmbeddingUnavailable:
        return None


def _nearest(index: IndexReader, vector: Vector, source: SourceName, limit: int) -> tuple[Hit, ...]:
    """Return the units of a source with the nearest chunks, with those chunks."""
    with index.reading():
        best = index.nearest_units(vector, limit * 4, Filter(sources=() if source is SourceName.BRAIN else (source,)))
        units = index.units(best)
        chunks = {chunk.key: chunk for its in index.chunks_of_units(best).values() for chunk in its}
    return tuple(
        _hit(units[key], chunks[chunk], Contribution(name="vector", value=cosine), f"cosine {cosine:.2f}")
        for key, (chunk, cosine) in list(best.items())[:limit]
        if cosine >= LEAST_COSINE
    )


def _linked(unit: Unit, indexes: Indexes) -> list[Hit]:
    """Return the units that are linked to one, in either direction."""
    index = indexes.of(unit.source)
    keys = index.unit_keys([unit.id], unit.source) if index else {}
    if index is None or not keys:
        return []
    linked: dict[int, str] = {}
    for edge in index.edges(list(keys.values())):
        reason = f"{unit.id} {edge.relation} it" if edge.outward else f"{edge.relation} {unit.id}"
        linked.setdefault(edge.neighbour_key, reason)
    units, chunks = index.units(linked), index.chunks_of_units(linked)
    return [
        _hit(units[key], chunks[key][0], Contribution(name="relation", value=1.0, detail=reason), reason)
        for key, reason in linked.items()
        if key in units and chunks.get(key)
    ]


def _hit(unit: Unit, chunk: StoredChunk, part: Contribution, reason: str) -> Hit:
    shown = Chunk(breadcrumb=chunk.breadcrumb, text=chunk.text, score=part.value)
    return Hit(unit=unit, score=part.value, chunks=(shown,), reasons=(reason,), contributions=(part,))


def _beginning(names: Counter[str], prefix: str, limit: int) -> list[tuple[str, int]]:
    """Return the names with a prefix and their counts, most frequent first."""
    wanted = prefix.casefold()
    matching = [
        (name, count)
        for name, count in names.items()
        if name.casefold().startswith(wanted) or (wanted and f"/{wanted}" in f"/{name.casefold()}")
    ]
    return sorted(matching, key=lambda entry: (-entry[1], entry[0]))[:limit]
