"""Settings: one validated value, made once, passed down.

Order, weakest first: defaults, brain.yaml, `$NUGGET_HOME/config.yaml`, `NUGGET_*`, flags. brain.yaml comes with the
brain and may have been written by anybody, so only the keys of `KNOWLEDGE_KEYS` are taken from it. This module is the
only reader of `os.environ`. A key `embedding.model` is `embedding: {model: ...}` in YAML and `NUGGET_EMBEDDING_MODEL`
in the environment.
"""

from __future__ import annotations

import functools
import os
import re
import typing
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from nugget.errors import UsageError
from nugget.settings_file import Entry, YAMLRefused, read_entries
from nugget.text import printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from nugget.models import Problem

_S = TypeVar("_S")

KNOWLEDGE_KEYS = frozenset(
    "owner name canon.folders retrieval.limit retrieval.budget_tokens retrieval.candidates retrieval.rrf_k"
    " retrieval.hops retrieval.ranking".split()
)
"""The settings that belong to the knowledge and are taken from brain.yaml."""
_DESCRIPTIVE = frozenset({"id", "version", "domains", "languages", "chunking"})
"""Keys of brain.yaml that describe the brain and set nothing."""
_MOST = 10**9
"""Above anything useful; much larger values overflow timers, floats or SQLite."""


def _set(default: Any, doc: str, **limits: Any) -> Any:
    """Return a dataclass field with its default, its line in docs/configuration.md and its limits as pydantic's."""
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

    limit: int = _set(10, "units in an answer, at most", ge=1)
    budget_tokens: int = _set(2000, "tokens in an answer, at most", ge=1)
    candidates: int = _set(50, "chunks taken from each of vectors and BM25", ge=1)
    rrf_k: int = _set(60, "k of reciprocal rank fusion", ge=0)
    hops: int = _set(1, "steps along relations when looking for related units, 0 to 2", ge=0, le=2)
    ranking: Literal["calibrated", "rrf"] = _set("calibrated", "`calibrated` scores, or the bare `rrf` order")
    reranker: str = _set("auto", "`auto` (Claude with a key), `local`, `claude`, or `cross-encoder:<name or folder>`")
    rerank_timeout_s: float = _set(8.0, "seconds before the LLM re-ranker is given up", ge=0.1)
    rerank_max_usd: float = _set(0.02, "most that one re-ranking may cost, in USD", ge=0)
    log_queries: bool = _set(True, "keep questions and the units in their answers on this machine (`nugget queries`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMSettings:
    """Which models are asked for what. Without a key nothing here is used."""

    enabled: bool = _set(True, "false: never call an LLM, even with a key")
    answer_model: str = _set("claude-sonnet-5-5", "writes the answer of `nugget ask`")
    rerank_model: str = _set("claude-haiku-5-5", "orders the candidates")
    extract_model: str = _set("claude-sonnet-5-5", "finds knowledge in a session")
    select_model: str = _set("claude-haiku-5-5", "chooses evidence from the history of a session (`llm-select`)")
    select_max_usd: float = _set(0.25, "most that one choice of evidence may cost, in USD, over all its calls", ge=0)
    extract_with: Literal["api", "claude-code"] = _set("api", "`api` (with a key), or the `claude-code` command")
    timeout_s: float = _set(120.0, "seconds before an answer or extraction is given up", ge=0.1)
    max_usd_per_session: float = _set(0.5, "most that one capture may cost, in USD", ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """How sessions become proposals."""

    method: Literal["auto", "generative", "heuristic"] = _set("auto", "`auto`: `generative` with a key")
    max_units: int = _set(12, "units proposed from one session, at most", ge=1)
    exclude_projects: tuple[str, ...] = _set((), "folders (globs) whose sessions are never read")
    exclude_paths: tuple[str, ...] = _set((), "files (globs) whose content is never read from a transcript")
    publish: Literal["auto", "never"] = _set("auto", "`auto`: proposals become pull requests on GitHub, with a token")
    labels: tuple[str, ...] = _set((), "labels that pull requests are given")
    agents: tuple[str, ...] = _set(("claude-code",), "[agents](agents.md) that catch-up captures, or `all`")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Where other agents keep their sessions, when it is not where they do by default."""

    codex: str = _set("", "Codex' folder; empty: `$CODEX_HOME`, else ~/.codex")
    gemini: str = _set("", "Gemini CLI's folder; empty: `$GEMINI_CLI_HOME/.gemini`, else ~/.gemini")
    cursor: str = _set("", "Cursor's `User` folder; empty: where Cursor keeps it on this system")
    opencode: str = _set("", "OpenCode's folder; empty: `$XDG_DATA_HOME/opencode`, else ~/.local/share/opencode")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """How `nugget commit` and its git hook write messages."""

    recent_days: int = _set(14, "sessions that ended within so many days are looked at", ge=0, le=36_500)
    co_author: bool = _set(True, "false: no `Co-authored-by` for agents that wrote lines of the commit")
    model: str = _set("claude-haiku-5-5", "writes the message, where there is a key")
    timeout_s: float = _set(20.0, "seconds before the model is given up", ge=0.1)
    max_usd: float = _set(0.1, "most that one message may cost, in USD", ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """How the brain follows its remote."""

    pull: bool = _set(False, "true: fast-forward a clean default branch from the remote before sync and capture")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonSettings:
    """Folders of markdown that are searched beside the brain, and never written."""

    folders: tuple[str, ...] = _set((), "folders to search: paths or `name=path`; from brain.yaml only those inside it")
    max_files: int = _set(20_000, "notes read from one of these folders, at most", ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Whether history (sessions, bridge messages, shell logs) can be searched."""

    enabled: bool = _set(True, "false: history is not read for search, and forgotten")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Whose private notes are found where."""

    workspaces: tuple[str, ...] = _set((), "more workspaces whose CLAUDE.md and AGENTS.md count as memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What `nugget serve --http` does."""

    allowed_hosts: tuple[str, ...] = _set((), "names of the server, beside its own address")
    backfill: bool = _set(True, "true: all logs are read at the start, in the background")
    max_usd: float = _set(2.0, "most that one call of /v1/completions may cost, in USD", ge=0)
    max_usd_per_day: float = _set(2.0, "most that all calls over HTTP may cost in a day (UTC), in USD", ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionSettings:
    """What counts as a secret."""

    allow: tuple[str, ...] = _set((), "regular expressions of texts that are not secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with where this run happens."""

    owner: str = _set("", "whose brain this is; used in commits and messages")
    name: str = _set("", "what the brain is called")
    provenance: bool = _set(True, "false: a captured session leaves no nuggets; `nugget extract` still does")
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    llm: LLMSettings = field(default_factory=LLMSettings)
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    commit: CommitSettings = field(default_factory=CommitSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    canon: CanonSettings = field(default_factory=CanonSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    redaction: RedactionSettings = field(default_factory=RedactionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the process was given: read once, at the face."""

    home: Path
    brain: Path | None = None
    claude_config: Path
    shell_logs: Path
    models: Path
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    github_token: str | None = field(default=None, repr=False)
    github_api_url: str | None = None
    http_token: str | None = field(default=None, repr=False)
    session: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def current_folder() -> Path:
    """Return the folder this was called in. Raises UsageError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("The current folder does not exist any more.", hint="Change to another folder.") from error


def expanded(path: Path | str) -> Path:
    """Return a path with the home folder for `~`; of an unknown user it stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises RuntimeError there


def rule_cache() -> Path | None:
    """Return the folder for compiled rules of redaction; None if the engine reads it from KF_RULE_CACHE_DIR."""
    return None if os.environ.get("KF_RULE_CACHE_DIR") else read_environment().home / "cache" / "rules"


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment variables of docs/configuration.md; `variables` replaces `os.environ`."""
    env = dict(os.environ if variables is None else variables)
    user_home = Path(env.get("HOME") or Path.home())

    def folder(name: str, otherwise: Path) -> Path:
        value = env.get(name)
        return absolute_folder(value, user_home=user_home) if value else otherwise

    home = folder("NUGGET_HOME", user_home / ".nugget")
    brain = env.get("NUGGET_BRAIN")
    return Environment(
        home=home,
        brain=expanded(brain) if brain else None,
        models=folder("NUGGET_MODELS", home / "models"),
        claude_config=folder("CLAUDE_CONFIG_DIR", user_home / ".claude"),
        anthropic_api_key=env.get("ANTHROPIC_API_KEY") or env.get("ANTHROPIC_AUTH_TOKEN") or None,
        anthropic_base_url=env.get("ANTHROPIC_BASE_URL") or None,
        github_token=env.get("GITHUB_TOKEN") or None,
        github_api_url=env.get("GITHUB_API_URL") or None,
        http_token=env.get("NUGGET_HTTP_TOKEN") or None,
        session=env.get("CLAUDE_CODE_SESSION_ID") or None,
        shell_logs=expanded(env.get("AISH_LOG_DIR") or user_home / ".local" / "share" / "aish" / "logs"),
        variables=env,
    )


def absolute_folder(value: str, *, user_home: Path) -> Path:
    """Return a folder as a person writes it; `~` alone or before a `/` is `user_home`, as in the hook."""
    whole = str(user_home) + value[1:] if value == "~" or value.startswith("~/") else value
    return Path(os.path.abspath(expanded(whole)))  # noqa: PTH100 - links stay links


BrainFile = tuple[dict[str, Any], list["Problem"], dict[str, Entry]]
"""What a brain.yaml sets, what is wrong with it, and its keys that only the user's own configuration can set."""


def load_settings(environment: Environment, brain: Path | None = None) -> Settings:
    """Layer brain.yaml, the user's config.yaml and `NUGGET_*` over the defaults.

    What is wrong in brain.yaml is left out. Raises UsageError, naming place and key, for a bad value of the user's.
    """
    shared = read_brain_file(brain)[0] if brain else {}
    values = dict(shared)
    file = environment.home / "config.yaml"
    given = [(key, entry.value, f"{file}:{entry.line}") for key, entry in read_user_file(environment).items()]
    for key in documented_keys():
        given.append((key, environment.variables.get(variable_of(key)) or None, variable_of(key)))
    for key, value, where in given:
        if value is not None and is_known(key):
            try:
                values[key] = taken(key, value)
            except ValueError as error:
                raise UsageError(f"{where}: `{key}` must be {error}.") from None
    if folders := shared.get("canon.folders"):
        values["canon.folders"] = tuple(dict.fromkeys((*values["canon.folders"], *folders)))
    return _assembled(Settings, values)


def read_user_file(environment: Environment) -> dict[str, Entry]:
    """Return the dotted keys of the user's configuration. Raises UsageError for a file that cannot be read."""
    file = environment.home / "config.yaml"
    try:
        return read_entries(file) if file.is_file() else {}
    except YAMLRefused as refused:
        line = f":{refused.line}" if refused.line else ""
        raise UsageError(f"{file}{line}: {refused}.", hint="Correct that line." if line else None) from None


def read_brain_file(brain: Path) -> BrainFile:
    """Read brain.yaml; whatever is wrong with it is left out and comes back as problems."""
    from nugget.models import Problem, Severity

    file = brain / "brain.yaml"
    values, problems, misplaced = dict[str, Any](), list[Problem](), dict[str, Entry]()
    try:
        entries = read_entries(file) if file.is_file() else {}
    except YAMLRefused as refused:
        return {}, [Problem(path=file.name, reason=str(refused), line=refused.line)], {}
    for key, entry in entries.items():
        if entry.value is None or key.partition(".")[0] in _DESCRIPTIVE:
            continue
        if not is_known(key):
            reason = f"has the key `{printable(key)}`, which Nugget does not know"
            problems.append(Problem(path=file.name, reason=reason, line=entry.line, severity=Severity.WARNING))
        elif key in documented_keys() and key not in KNOWLEDGE_KEYS:
            misplaced[key] = entry
        else:
            try:
                values[key] = taken(key, entry.value)
            except ValueError as error:
                problems.append(Problem(path=file.name, reason=f"`{key}` must be {error}", line=entry.line))
    folders = values.get("canon.folders", ())
    if outside := [folder for folder in folders if not _is_inside(folder)]:
        misplaced["canon.folders"] = Entry(value=outside, line=entries["canon.folders"].line)
        values["canon.folders"] = tuple(folder for folder in folders if _is_inside(folder))
    return values, problems, misplaced


def taken(key: str, value: Any) -> Any:
    """Return a value as its setting takes it. Raises ValueError that says what it must be."""
    from pydantic import ValidationError

    if key not in _keys():
        raise ValueError("a section with its keys below it")
    if isinstance(value, str) and isinstance(_keys()[key][1].default, tuple):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        result = _adapter(key).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Input should be ").partition(", unable")[0]
        raise ValueError(f"{'given' if ' should have ' in reason else reason}, not {repr(value)[:60]}") from None
    for pattern in result if key == "redaction.allow" else ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"a list of regular expressions ({repr(pattern)[:60]}: {error})") from None
    return result


def documented_keys() -> dict[str, tuple[Any, str]]:
    """Return every key with its default and meaning, in order: `{"embedding.model": (default, doc)}`."""
    return {key: (entry.default, entry.metadata["doc"]) for key, (_, entry) in _keys().items()}


def is_known(key: str) -> bool:
    """Return whether a key is a setting or a section of settings."""
    return key in _keys() or any(known.startswith(f"{key}.") for known in _keys())


def variable_of(key: str) -> str:
    """Return the environment variable that sets a key."""
    return f"NUGGET_{key.replace('.', '_').upper()}"


def _is_inside(folder: str) -> bool:
    """Return whether a folder of canon is a path that stays below the brain, as far as its words tell."""
    path = PurePath(folder.partition("=")[2] or folder)
    return not (path.is_absolute() or ".." in path.parts or str(path).startswith("~"))


@functools.cache
def _keys(kind: type[Any] = Settings, prefix: str = "") -> dict[str, tuple[type[Any], Field[Any]]]:
    """Return every key with the dataclass that has it and its field."""
    keys: dict[str, tuple[type[Any], Field[Any]]] = {}
    for entry in fields(kind):
        section: Any = entry.default_factory
        if isinstance(section, type):
            keys |= _keys(section, f"{prefix}{entry.name}.")
        else:
            keys[f"{prefix}{entry.name}"] = (kind, entry)
    return keys


@functools.cache
def _adapter(key: str) -> TypeAdapter[Any]:
    from pydantic import Field as Limits
    from pydantic import TypeAdapter

    kind, entry = _keys()[key]
    hint: Any = Annotated[typing.get_type_hints(kind)[entry.name], Limits(**entry.metadata["limits"])]
    return TypeAdapter(hint)


def _assembled(kind: type[_S], values: Mapping[str, Any], prefix: str = "") -> _S:
    """Return the dataclass with these values, by dotted key, in place of its defaults."""
    given: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        key, section = f"{prefix}{entry.name}", cast(Any, entry.default_factory)
        if isinstance(section, type):
            given[entry.name] = _assembled(section, values, f"{key}.")
        elif key in values:
            given[entry.name] = values[key]
    return kind(**given)
