"""Values of evidence: options of a question, incidents, notes, the bundle that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nugget.models.speech import Speaker, SpeechOrigin

INTENTS = ("debug", "resume", "what-changed", "status", "general")
"""The modes of a question about a session, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions:
    """How much of what is wanted. `intent` None: it is detected from the question.

    `max_chars` and `max_lines` bound the whole `context_text`. `output_window` is how many of the latest lines of each
    stream are looked at beside those that look like failures. Nothing here is an error: what is too large is cut to
    the most that there is.
    """

    intent: str | None = None
    max_lines: int = 120
    max_chars: int = 12_000
    output_window: int = 40
    max_incidents: int = 5
    include_artifacts: bool = True
    explain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A failure with what explains it and, if there is one, the fix.

    `summary` says it line by line: what was printed, what was edited, how often it was tried, what went well later.
    `score` is 0..1.
    """

    id: int
    title: str
    summary: tuple[str, ...]
    reasons: tuple[str, ...]
    score: float
    ts_ms: int
    first_ms: int
    command: str
    failures: int
    fixed_by: str | None
    session: str
    speaker: Speaker
    origin: SpeechOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingNote:
    """A note derived from the events of a session that is still worth knowing: blocker, edit, todo or decision."""

    id: int
    type: str
    text: str
    is_open: bool
    ts_ms: int
    score: float
    session: str
    speaker: Speaker
    origin: SpeechOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedEvidence:
    """Something that speaks to the question: its kind, text and score (0..1), and the row that it stands in.

    Kinds: `incident`, `failure.command`, `failure.tool`, `output`, `edit`, `command`, `prompt`, `note.<type>`.
    """

    kind: str
    text: str
    score: float
    reasons: tuple[str, ...]
    source_table: str
    source_id: int
    ts_ms: int
    session: str
    speaker: Speaker
    origin: SpeechOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle:
    """The answer to a question about what happened. `context_text` is never longer than `max_chars`.

    `session` is None where several sessions were asked; `category_caps` are those of the profile.
    """

    session: str | None
    query: str
    intent: str
    incidents: tuple[Incident, ...]
    notes: tuple[WorkingNote, ...]
    selected: tuple[SelectedEvidence, ...]
    context_text: str
    truncated: bool
    candidate_count: int
    category_caps: Mapping[str, int]
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Counts of what was new in a session's logs. `anew` names files that were read from the start again."""

    session: str
    source: str
    events: int = 0
    command_inputs: int = 0
    pane_output: int = 0
    file_edits: int = 0
    working_notes: int = 0
    incidents: int = 0
    malformed: int = 0
    bytes_read: int = 0
    anew: tuple[str, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was new."""
        return not self.bytes_read
