"""The values that flow through Nugget. Frozen, slotted, keyword-only; parsed once at the border.

The words are those of docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

from nugget.models.sessions import Event, EventKind, Evidence, Session, SessionFile, Speaker, SpeechOrigin, speaker_of  # noqa: F401


class SourceName(StrEnum):
    """A registered supplier of units, in the order of sources with equally good hits."""

    BRAIN = "brain"
    CANON = "canon"
    SESSIONS = "sessions"
    BRIDGE = "bridge"
    SHELL = "shell"
    PROVENANCE = "provenance"
    MEMORY = "memory"


class KnowledgeType(StrEnum):
    """The types of a knowledge unit, in the order in which they are listed to people."""

    PATTERN = "pattern"
    CONCEPT = "concept"
    DECISION = "decision"
    BUG = "bug"
    BELIEF = "belief"


class RelationType(StrEnum):
    """Typed, directed edges between units."""

    USES = "uses"
    IMPLEMENTS = "implements"
    REQUIRES_UNDERSTANDING_OF = "requires_understanding_of"
    INFORMED_BY = "informed_by"
    OFTEN_COMBINED_WITH = "often_combined_with"
    SUPERSEDES = "supersedes"
    CONTRADICTS = "contradicts"


class Origin(StrEnum):
    """Origin of a knowledge unit (frontmatter key `source`)."""

    AI_SESSION = "ai-session"
    MANUAL = "manual"
    IMPORTED = "imported"


class StaleReason(StrEnum):
    """Reason why a unit is stale. Stale units are still returned, penalised and labelled."""

    FILE_CHANGED = "file_changed"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"


class Depth(StrEnum):
    """Detail of each unit in an answer."""

    SUMMARY = "summary"
    STANDARD = "standard"
    DEEP = "deep"


class Severity(StrEnum):
    """Severity of a problem: an error keeps a file out of the index, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of a file, reported and never raised. `line` counts from 1."""

    path: str
    line: int | None = None
    severity: Severity = Severity.ERROR
    reason: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """State of one file at its last sync: the SHA-256 of its bytes, its size and time, and the result."""

    path: str
    hash: str
    size: int
    mtime_ns: int
    unit_id: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An edge to the unit `id`."""

    id: str
    relation: RelationType


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The code that a unit applies to; all None means workspace-wide."""

    repo: str | None = None
    path: str | None = None
    symbol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The smallest thing retrieval returns whole.

    `id` is unique within its source; `path` is relative to the source's folder, with `/`;
    `confidence` is 0..1; `body` is markdown without frontmatter.
    """

    id: str
    source: SourceName
    type: str
    title: str
    body: str
    path: str | None = None
    domain: str | None = None
    tags: tuple[str, ...] = ()
    confidence: float = 0.5
    origin: Origin | None = None
    related: tuple[Relation, ...] = ()
    scope: Scope | None = None
    session: str | None = None
    evidence: tuple[Evidence, ...] = ()
    alternatives: tuple[str, ...] = ()
    created: date | None = None
    last_modified: date | None = None
    stale_after: date | None = None

    @property
    def ref(self) -> str:
        """The unit's ref for `nugget get`: `<source>:<id>`."""
        return f"{self.source}:{self.id}"

    @property
    def speaker(self) -> Speaker | None:
        """Return the speaker of the unit's evidence; None without evidence."""
        return speaker_of(self.evidence) if self.evidence else None

    @property
    def is_reviewed(self) -> bool:
        """Return True if a person accepted or wrote it."""
        return self.source in (SourceName.BRAIN, SourceName.CANON)

    @property
    def is_judged(self) -> bool:
        """Return True if its confidence was set on purpose; nobody rated notes and history."""
        return self.source in (SourceName.BRAIN, SourceName.PROVENANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The part of a unit that is indexed and matched; in a hit it has its own score.

    `breadcrumb` is the heading path (`Title > H2`), `text` the markdown without it; `position` counts from 0.
    """

    breadcrumb: str
    text: str
    position: int = 0
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on candidates. Empty tuples and None filter nothing.

    A domain also admits its sub-domains; several tags must all be present; `since` and `until` compare with the
    later of `created` and `last_modified`. A path matches at the start of a unit's file or scope, or after a `/`; a
    session is an id prefix, for the source `sessions`. For a question about code, `since` may be a moment. `match` is
    an FTS5 expression that the whole unit must match.
    """

    sources: tuple[SourceName, ...] = ()
    types: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    since: date | None = None
    until: date | None = None
    match: str = ""

    def named(self) -> dict[str, object]:
        """Return the filters that are set as JSON, by their names on the command line."""
        named = {
            "source": list(map(str, self.sources)), "type": list(map(str, self.types)), "domain": list(self.domains),
            "tag": list(self.tags), "since": self.since.isoformat() if self.since else None,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value}

    @property
    def is_empty(self) -> bool:
        """True when every unit passes."""
        return self == Filter()


@dataclass(frozen=True, slots=True)
class Query:
    """A question; None stands for the default. `identity` names whose memory may be searched.

    In a question about code `path` is relative to the workspace, empty for its root, and the filter's types are those
    of nuggets. `match_any` is an FTS5 expression that ranks words instead of `text`. `offset` hits of earlier pages
    are skipped. `only_helpful` drops hits that are not likely to help.
    """

    text: str
    _: KW_ONLY
    match_any: str = ""
    path: str | None = None
    symbol: str | None = None
    filter: Filter = field(default_factory=Filter)
    limit: int | None = None
    offset: int = 0
    budget_tokens: int | None = None
    depth: Depth | None = None
    profile: str | None = None
    identity: str | None = None
    explain: bool = False
    only_helpful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One addend of a hit's score, for `--explain`: the values of a hit add up to its score."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A unit with its score (0..1, higher is better) and the reasons for it.

    `contributions` add up to the score; they are set if the query asks to `explain`. `relevance` is the
    probability that the unit helps, None if it was not judged.
    `named` is the ref of an exchange or message found instead of a unit.
    `brain` is the name of its brain if several were searched.
    """

    unit: Unit
    score: float
    chunks: tuple[Chunk, ...]
    reasons: tuple[str, ...] = ()
    stale_reason: StaleReason | None = None
    contributions: tuple[Contribution, ...] = ()
    relevance: float | None = None
    named: str | None = None
    brain: str | None = None

    @property
    def ref(self) -> str:
        """The hit's ref for `nugget get`."""
        return self.named or self.unit.ref

    @property
    def name(self) -> str:
        """The name for display and citations: the id of a unit of the brain, else the ref."""
        return self.unit.id if self.unit.source is SourceName.BRAIN else self.ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Tokens asked for and used; `truncated` when something relevant was left out for lack of room."""

    requested: int
    used: int
    truncated: bool = False

    @property
    def available(self) -> int:
        """Tokens left, which JSON shows."""
        return max(0, self.requested - self.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Result of retrieval. `weak` says that nothing found is likely to answer the question.

    `degraded` names parts that were missing (`no_vectors`, `no_llm`, `index_behind`...). `remaining` is at least 1 if
    there is a next page. `explain` holds counts, stages and timings if asked for.
    """

    query: Query
    profile: str
    hits: tuple[Hit, ...]
    budget: Budget
    degraded: tuple[str, ...] = ()
    weak: bool = False
    answer: str | None = None
    more_context_hint: str | None = None
    remaining: int = 0
    explain: Mapping[str, Any] | None = None
