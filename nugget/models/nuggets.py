"""The values of provenance: nuggets, the sessions that they come from, and the files that those touched.

The words are those of docs/glossary.md. A nugget is one reason why code is the way it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum

from nugget.models import (
    Budget,
    Contribution,
    Evidence,
    KnowledgeType,
    Query,
    Scope,
    Speaker,
    SpeechOrigin,
    StaleReason,
    Unit,
)

SUMMARY_CHARS = 120
"""The longest summary of a nugget."""


class NuggetType(StrEnum):
    """The types of a nugget, in the order of their priority."""

    CONSTRAINT = "constraint"
    CAVEAT = "caveat"
    TUNING = "tuning"
    DECISION = "decision"
    REJECTION = "rejection"
    WORKAROUND = "workaround"
    INTENT = "intent"
    DEPENDENCY = "dependency"


TYPES = tuple(dict.fromkeys((*KnowledgeType, *NuggetType, "document", "incident", "todo")))
"""Types of units from any source: knowledge, nuggets, notes of canon and memory, evidence of sessions and shells."""


class TouchAction(StrEnum):
    """Action on a file."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTouch:
    """A file that a session touched.

    `path` is relative to the workspace, with `/`; `previous_path` is where a renamed file was before. The hashes are
    SHA-256 (hex) of the whole content before and after, None if absent or unknown.
    `line_hashes` are the first 16 hex digits of the SHA-256 of each line that the agent wrote, stripped, without blank
    lines: enough to tell whose a line is, without keeping the line.
    """

    path: str
    action: TouchAction
    at: datetime | None = None
    before_hash: str | None = None
    after_hash: str | None = None
    previous_path: str | None = None
    line_hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nugget:
    """One reason why code is the way it is.

    `id` is `<first 8 of the session id>-<number>`, longer if that is taken; it stays the same when a session is
    extracted again. `summary` is one sentence of at most SUMMARY_CHARS characters. A scope without a path is the
    whole workspace; `scope.repo` is the workspace's identity. `file_hash` is the SHA-256 of the scoped file as the
    session left it. `speaker` and `origin` say who gave the reason, and how; unknown ones are the agent's.
    """

    id: str
    type: NuggetType
    summary: str
    confidence: float
    session: str
    detail: str = ""
    scope: Scope = field(default_factory=Scope)
    agent: str = "claude-code"
    session_started: datetime | None = None
    extracted_at: datetime | None = None
    alternatives: tuple[str, ...] = ()
    stale_after: date | None = None
    source_prompt: str = ""
    file_hash: str | None = None
    method: str = "heuristic"
    evidence: tuple[Evidence, ...] = ()
    speaker: Speaker = Speaker.AGENT
    origin: SpeechOrigin = SpeechOrigin.WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Provenance of one session of a workspace: its nuggets and the files that it touched.

    `workspace` is the identity of the code repository; `records` counts the transcript's records read so
    far, which shows whether the session has grown.
    """

    session: str
    workspace: str
    agent: str = "claude-code"
    title: str = ""
    first_prompt: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    branch: str | None = None
    transcript: str | None = None
    records: int = 0
    nuggets: tuple[Nugget, ...] = ()
    touches: tuple[FileTouch, ...] = ()


class ScopeMatch(StrEnum):
    """Relation of a nugget's scope to the place in question."""

    EXACT = "exact"
    DIRECTORY = "directory"
    SAME_DIRECTORY = "same directory"
    WORKSPACE = "workspace"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class NuggetHit:
    """A nugget with the addends of its score.

    `unit` is set if it is a reviewed unit of the brain that is scoped to the place, seen as a nugget. In an
    answer, `nugget` holds only what there was room for: no detail, alternatives or prompt where they were left out.
    """

    nugget: Nugget
    match: ScopeMatch
    addends: tuple[Contribution, ...] = ()
    stale_reason: StaleReason | None = None
    unit: Unit | None = None

    @property
    def score(self) -> float:
        """The relevance, 0 to 1."""
        return min(max(sum(part.value for part in self.addends), 0.0), 1.0)

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """The addends, with the correction that keeps the score between 0 and 1."""
        clamped = self.score - sum(part.value for part in self.addends)
        clamp = Contribution(name="clamp", value=clamped, detail="scores lie between 0 and 1")
        return (*self.addends, clamp) if clamped else self.addends


@dataclass(frozen=True, slots=True, kw_only=True)
class NuggetBundle:
    """The answer to a question about code. `notes` are sentences for the reader: a file that is gone, a rename.

    `workspace` is the identity of the repository. `sessions` touched the path, newest first, and come without their
    nuggets and touches.
    """

    query: Query
    hits: tuple[NuggetHit, ...]
    budget: Budget
    candidates: int = 0
    more_context_hint: str | None = None
    notes: tuple[str, ...] = ()
    workspace: str = ""
    sessions: tuple[SessionRecord, ...] = ()


def way_of(method: str) -> str:
    """Return the way of `extraction.with` in words, for the method of an extraction."""
    return "offline" if method == "heuristic" else "by a model"


def scope_text(nugget: Nugget) -> str:
    """Return the scope of a nugget as text: `path`, `path#symbol`, the symbol alone, or `workspace`."""
    path, symbol = nugget.scope.path, nugget.scope.symbol
    return f"{path}#{symbol}" if path and symbol else path or symbol or "workspace"
