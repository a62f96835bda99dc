"""All settings, with their defaults and their descriptions in docs/configuration.md; `config` reads the values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

_MOST = 10**9
"""Upper limit of numbers; much larger values overflow timers, floats or SQLite."""


def _set(default: Any, doc: str, **limits: Any) -> Any:
    """Return a dataclass field with its default, its description and its limits in pydantic's words."""
    if "ge" in limits:
        limits.setdefault("le", _MOST)
    return field(default=default, metadata={"doc": doc, "limits": limits})


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSettings:
    """How texts become vectors."""

    model: str = _set("all-MiniLM-L6-v2", "the bundled model, or one of [these](#models-for-embeddings)", min_length=1)
    base_url: str | None = _set(None, "endpoint for `openai:` and `voyage:` models")
    api_key_env: str | None = _set(None, "environment variable with the key; OPENAI_API_KEY or VOYAGE_API_KEY if empty")
    timeout_s: float = _set(30.0, "seconds before a request for vectors is given up", ge=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """How a question is answered."""

    limit: int = _set(8, "results of a question, at most", ge=1)
    budget_tokens: int = _set(2000, "tokens in an answer, at most", ge=1)
    candidates: int = _set(50, "chunks taken from each of vectors and BM25", ge=1)
    hops: int = _set(1, "steps along relations when looking for related units, 0 to 2", ge=0, le=2)
    reranker: str = _set("auto", "`auto` (Claude with a key), `local`, `claude`, or `cross-encoder:<name or folder>`")
    rerank_timeout_s: float = _set(8.0, "seconds before the LLM re-ranker is given up", ge=0.1)
    rerank_max_usd: float = _set(0.02, "most that one re-ranking may cost, in USD", ge=0)
    synonyms: tuple[str, ...] = _set((), "words that mean the same, such as `pto=paid time off`")
    searches: tuple[str, ...] = _set((), "saved queries `NAME=QUERY`, for `nugget search @NAME`")
    log_queries: bool = _set(True, "keep questions and the units in their answers on this machine (`nugget queries`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMSettings:
    """Models and limits for LLM calls, unused without a key."""

    enabled: bool = _set(True, "false: never call an LLM, even with a key")
    answer_model: str = _set("claude-sonnet-5-5", "writes the answer of `nugget ask`")
    rerank_model: str = _set("claude-haiku-5-5", "orders the candidates")
    extract_model: str = _set("claude-sonnet-5-5", "finds knowledge in a session")
    select_model: str = _set("claude-haiku-5-5", "chooses evidence from the history of a session (`llm-select`)")
    select_max_usd: float = _set(0.25, "most that one choice of evidence may cost, in USD, over all its calls", ge=0)
    api: Literal["anthropic", "openai"] = _set("anthropic", "`openai`: knowledge is found by a model at `llm.base_url`")
    base_url: str | None = _set(None, "endpoint with OpenAI's API, such as `http://localhost:11434/v1` of Ollama")
    api_key_env: str | None = _set(None, "environment variable with the key for `llm.base_url`, if it wants one")
    usd_per_million_tokens: float | None = _set(
        None, "price at `llm.base_url`; empty: 0 on this machine, elsewhere the dearest known price counts", ge=0
    )
    timeout_s: float = _set(120.0, "seconds before an answer or extraction is given up", ge=0.1)
    max_usd_per_session: float = _set(0.5, "most that one capture may cost, in USD", ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionSettings:
    """How knowledge is found in a session."""

    with_: Literal["auto", "claude-code", "api", "openai", "offline"] = _set(
        "auto",
        "`claude-code` (the command), `api`, `openai` (`llm.base_url`), `offline`, or the first that can be used",
    )
    use_claude: bool | None = _set(None, "whether `auto` may use the `claude` command; `nugget install` asks once")
    window_chars: int = _set(80_000, "characters of a session in one request; fewer for a small context", ge=4_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """How sessions become proposals."""

    max_units: int = _set(12, "units proposed from one session, at most", ge=1)
    exclude_projects: tuple[str, ...] = _set((), "folders (globs) whose sessions are never read")
    exclude_paths: tuple[str, ...] = _set((), "files (globs) whose content is never read from a transcript")
    notes: bool = _set(False, "true: agents get the tool `propose_knowledge`; `nugget install --remember` sets it")
    publish: Literal["auto", "never"] = _set("auto", "`auto`: proposals become pull requests on GitHub, with a token")
    labels: tuple[str, ...] = _set((), "labels that pull requests are given")
    headless: bool = _set(True, "false: sessions that a program ran (`claude -p`, the SDK) are not captured")
    server: str | None = _set(None, "address of a space on [a team's server](team.md) that sessions are sent to")
    agents: tuple[str, ...] = _set(("claude-code",), "[agents](agents.md) that catch-up captures, or `all`")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Folders in which other agents keep their sessions, if not the default ones."""

    codex: str = _set("", "Codex' folder; empty: `$CODEX_HOME`, else ~/.codex")
    gemini: str = _set("", "Gemini CLI's folder; empty: `$GEMINI_CLI_HOME/.gemini`, else ~/.gemini")
    cursor: str = _set("", "Cursor's `User` folder; empty: where Cursor keeps it on this system")
    opencode: str = _set("", "OpenCode's folder; empty: `$XDG_DATA_HOME/opencode`, else ~/.local/share/opencode")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """How `nugget commit` and its git hook write messages."""

    recent_days: int = _set(14, "sessions that ended within so many days are looked at", ge=0, le=36_500)
    co_author: bool = _set(True, "false: no `Co-authored-by` for agents that wrote lines of the commit")
    model: str = _set("claude-haiku-5-5", "writes the message, if there is a key")
    timeout_s: float = _set(20.0, "seconds before the model is given up", ge=0.1)
    max_usd: float = _set(0.1, "most that one message may cost, in USD", ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """How proposals become pull requests."""

    every: Literal["session", "day", "week"] = _set("session", "one pull request for each session, `day` or `week`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """How the brain follows its remote."""

    pull: bool = _set(True, "false: a trusted brain no longer follows its remote unasked")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrainsSettings:
    """More brains that are searched and captured into."""

    folders: tuple[str, ...] = _set((), "more [brains to search](#several-brains): paths or `name=path`")
    captures: tuple[str, ...] = _set((), "`name=glob`: sessions in such a repository or folder go to that brain")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonSettings:
    """Folders of markdown that are searched with the brain and never written to."""

    folders: tuple[str, ...] = _set((), "folders to search: paths or `name=path`; from brain.yaml only those inside it")
    max_files: int = _set(20_000, "notes read from one of these folders, at most", ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Whether history (sessions, bridge messages, shell logs) can be searched."""

    enabled: bool = _set(True, "false: history is not read for search, and forgotten")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Private notes that count as memory."""

    workspaces: tuple[str, ...] = _set((), "more workspaces whose CLAUDE.md and AGENTS.md count as memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What `nugget serve --http` does."""

    allowed_hosts: tuple[str, ...] = _set((), "names of the server, beside its own address")
    backfill: bool = _set(True, "true: all logs are read at the start, in the background")
    max_usd: float = _set(2.0, "most that one call of /v1/completions may cost, in USD", ge=0)
    max_usd_per_day: float = _set(2.0, "most that all calls over HTTP may cost in a day (UTC), in USD", ge=0)
    auth: Literal["", "token", "oidc", "proxy"] = _set("", "how [a team's server](team.md) knows its callers")
    public_url: str | None = _set(None, "address of the team's server for its clients, if a proxy is in front of it")
    rights: tuple[str, ...] = _set((), "`GROUP=SPACE:read` or `GROUP=SPACE:write`, for `oidc` and `proxy`")
    issuer: str | None = _set(None, "`oidc`: address of the OpenID provider")
    audience: str | None = _set(None, "`oidc`: audience that access tokens must name")
    groups_claim: str = _set("groups", "`oidc`: claim with the groups of a caller")
    proxies: tuple[str, ...] = _set((), "`proxy`: addresses or networks whose headers are trusted")
    user_header: str = _set("x-forwarded-user", "`proxy`: header with the name of the caller")
    groups_header: str = _set("x-forwarded-groups", "`proxy`: header with the groups of the caller, with commas")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionSettings:
    """What counts as a secret."""

    allow: tuple[str, ...] = _set((), "regular expressions of texts that are not secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    owner: str = _set("", "whose brain this is; used in commits and messages")
    name: str = _set("", "what the brain is called")
    index: str = _set("", "a [team's index](team.md): `postgresql://HOST/DATABASE`, without a password; empty: on disk")
    provenance: bool = _set(True, "false: a captured session leaves no nuggets; `nugget extract` still does")
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    llm: LLMSettings = field(default_factory=LLMSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    commit: CommitSettings = field(default_factory=CommitSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    brains: BrainsSettings = field(default_factory=BrainsSettings)
    canon: CanonSettings = field(default_factory=CanonSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    redaction: RedactionSettings = field(default_factory=RedactionSettings)
