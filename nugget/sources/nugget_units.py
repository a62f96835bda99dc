"""The store of provenance as a source of units: one unit a nugget, one file a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nugget.models import Origin, SourceName, Unit
from nugget.models.nuggets import Nugget, SessionRecord
from nugget.sources.notes import ReadDocument
from nugget.sources.nugget_store import read_session_file, session_files


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDocument(ReadDocument):
    """Content of a file of the store: beside its units, the session with its nuggets and touches."""

    record: SessionRecord


@dataclass(frozen=True, slots=True)
class NuggetUnits:
    """The files below `$NUGGET_HOME/provenance`, keyed `<workspace>/<session>.jsonl`."""

    home: Path

    @property
    def name(self) -> SourceName:
        """`provenance`."""
        return SourceName.PROVENANCE

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield every file of the store."""
        return ((f"{file.parent.name}/{file.name}", file) for file in session_files(self.home))

    def read(self, key: str, file: Path) -> RecordDocument:
        """Return a session's nuggets as units. Invalid lines are problems. Raises TranscriptError."""
        record, problems = read_session_file(file)
        # The folder is what the store is asked by, whatever a file that came from elsewhere says of itself.
        record = replace(record, workspace=file.parent.name)
        return RecordDocument(
            units=tuple(unit_of(nugget, workspace=record.workspace) for nugget in record.nuggets),
            problems=tuple(replace(problem, path=key) for problem in problems),
            record=record,
        )


def unit_of(nugget: Nugget, *, workspace: str) -> Unit:
    """Return a nugget as a unit: found by its summary, its detail, its alternatives and the prompt that it came from.

    It is as old as its session, whenever that was extracted.
    """
    parts = [nugget.detail]
    if nugget.alternatives:
        parts.append("Alternatives: " + "; ".join(nugget.alternatives))
    if nugget.source_prompt:
        parts.append(f"Asked: {nugget.source_prompt}")
    learned = nugget.session_started or nugget.extracted_at
    return Unit(
        id=nugget.id,
        source=SourceName.PROVENANCE,
        type=nugget.type,
        title=nugget.summary,
        body="\n\n".join([f"# {nugget.summary}", *(part for part in parts if part)]),
        confidence=nugget.confidence,
        origin=Origin.AI_SESSION,
        scope=replace(nugget.scope, repo=workspace),
        session=nugget.session,
        evidence=nugget.evidence,
        alternatives=nugget.alternatives,
        created=learned.date() if learned else None,
        stale_after=nugget.stale_after,
    )
