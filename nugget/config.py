"""Settings: one frozen value, made once, passed down.

Precedence: defaults < brain.yaml < `$NUGGET_HOME/config.yaml` < `NUGGET_*` < flags. This module is the only reader
of `os.environ`. A key `embedding.model` is `embedding: {model: ...}` in YAML and `NUGGET_EMBEDDING_MODEL`
in the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from nugget.errors import BrainError, UsageError
from nugget.infra import files
from nugget.overlay import overlay, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSettings:
    """How texts become vectors."""

    model: str = field(
        default="all-MiniLM-L6-v2",
        metadata={
            "doc": "`all-MiniLM-L6-v2` (bundled, offline), `none`, any fastembed model name, a folder with "
            "model.onnx and tokenizer.json, `openai:<model>` or `voyage:<model>`"
        },
    )
    base_url: str | None = field(default=None, metadata={"doc": "endpoint for `openai:` and `voyage:` models"})
    api_key_env: str | None = field(
        default=None,
        metadata={"doc": "name of the environment variable that holds the key (OPENAI_API_KEY or VOYAGE_API_KEY)"},
    )
    timeout_s: float = field(default=30.0, metadata={"doc": "seconds before a request for vectors is given up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """How a question is answered."""

    limit: int = field(default=8, metadata={"doc": "units in an answer, at most"})
    budget_tokens: int = field(default=2000, metadata={"doc": "tokens in an answer, at most"})
    candidates: int = field(default=50, metadata={"doc": "chunks taken from each of vectors and BM25"})
    rrf_k: int = field(default=60, metadata={"doc": "k of reciprocal rank fusion"})
    hops: int = field(default=1, metadata={"doc": "steps along relations when looking for related units, 0 to 2"})
    ranking: str = field(default="calibrated", metadata={"doc": "`calibrated` scores, or the bare `rrf` order"})
    reranker: str = field(
        default="auto",
        metadata={
            "doc": "`auto` (Claude where there is a key, else local), `local`, `claude`, or "
            "`cross-encoder:<fastembed name or folder>`"
        },
    )
    rerank_timeout_s: float = field(default=8.0, metadata={"doc": "seconds before the LLM re-ranker is given up"})
    rerank_max_usd: float = field(default=0.02, metadata={"doc": "most that one re-ranking may cost, in USD"})
    log_queries: bool = field(
        default=True,
        metadata={"doc": "keep what was asked, and which units came back, for `nugget queries` (on this machine only)"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMSettings:
    """Which models are asked for what. Without a key nothing here is used."""

    enabled: bool = field(default=True, metadata={"doc": "false: never call an LLM, even with a key"})
    answer_model: str = field(default="claude-sonnet-5-5", metadata={"doc": "writes the answer of `nugget ask`"})
    rerank_model: str = field(default="claude-haiku-5-5", metadata={"doc": "orders the candidates"})
    extract_model: str = field(default="claude-sonnet-5-5", metadata={"doc": "finds knowledge in a session"})
    select_model: str = field(
        default="claude-haiku-5-5", metadata={"doc": "chooses evidence from the history of a session (`llm-select`)"}
    )
    select_max_usd: float = field(
        default=0.25, metadata={"doc": "most that one choice of evidence may cost, in USD, over all its calls"}
    )
    extract_with: str = field(
        default="api",
        metadata={"doc": "`api` (needs a key), or `claude-code` (the `claude` command with its tools switched off)"},
    )
    timeout_s: float = field(default=120.0, metadata={"doc": "seconds before an answer or extraction is given up"})
    max_usd_per_session: float = field(default=0.5, metadata={"doc": "most that one capture may cost, in USD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """How sessions become proposals."""

    method: str = field(default="auto", metadata={"doc": "`auto`: `generative` with a key, else `heuristic`"})
    max_units: int = field(default=12, metadata={"doc": "units proposed from one session, at most"})
    exclude_projects: tuple[str, ...] = field(
        default=(), metadata={"doc": "folders (globs) whose sessions are never read"}
    )
    exclude_paths: tuple[str, ...] = field(
        default=(), metadata={"doc": "files (globs) whose content is never read from a transcript"}
    )
    publish: str = field(
        default="auto",
        metadata={
            "doc": "`auto`: with a GitHub remote and a token, proposals become pull requests; `never`: they stay local"
        },
    )
    labels: tuple[str, ...] = field(default=(), metadata={"doc": "labels that pull requests are given"})
    agents: tuple[str, ...] = field(
        default=("claude-code",),
        metadata={
            "doc": "whose sessions catch-up captures: `claude-code`, `codex`, `gemini-cli`, `cursor`, `opencode`, "
            "or `all`"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Where other agents keep their sessions, when it is not where they do by default."""

    codex: str = field(default="", metadata={"doc": "Codex' folder; empty: `$CODEX_HOME`, else ~/.codex"})
    gemini: str = field(
        default="", metadata={"doc": "Gemini CLI's folder; empty: `$GEMINI_CLI_HOME/.gemini`, else ~/.gemini"}
    )
    cursor: str = field(
        default="",
        metadata={
            "doc": "Cursor's `User` folder; empty: ~/Library/Application Support/Cursor/User where that exists, else "
            "`$XDG_CONFIG_HOME/Cursor/User`, else ~/.config/Cursor/User"
        },
    )
    opencode: str = field(
        default="",
        metadata={"doc": "OpenCode's folder; empty: `$XDG_DATA_HOME/opencode`, else ~/.local/share/opencode"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """How `nugget commit` and its git hook write messages."""

    recent_days: int = field(default=14, metadata={"doc": "sessions that ended within so many days are looked at"})
    co_author: bool = field(
        default=True, metadata={"doc": "false: no `Co-authored-by` for agents that wrote lines of the commit"}
    )
    model: str = field(default="claude-haiku-5-5", metadata={"doc": "writes the message, where there is a key"})
    timeout_s: float = field(default=20.0, metadata={"doc": "seconds before the model is given up"})
    max_usd: float = field(default=0.1, metadata={"doc": "most that one message may cost, in USD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """How the brain follows its remote."""

    pull: bool = field(
        default=False,
        metadata={
            "doc": "true: `nugget sync` and the capture worker first fast-forward a clean checkout of the default "
            "branch from the remote"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonSettings:
    """Folders of markdown that are searched beside the brain, and never written."""

    folders: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "folders of markdown to search: paths (relative: from the brain) or `name=path`, with commas"},
    )
    max_files: int = field(default=20_000, metadata={"doc": "notes read from one of these folders, at most"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Whether history (sessions, bridge messages, shell logs) can be searched."""

    enabled: bool = field(default=True, metadata={"doc": "false: history is not read for search, and forgotten"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Whose private notes are found where."""

    workspaces: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "workspaces whose CLAUDE.md and AGENTS.md belong to the memory of the agents that read them, beside "
            "the current one and those that Claude Code knows"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What `nugget serve --http` does."""

    allowed_hosts: tuple[str, ...] = field(default=(), metadata={"doc": "names of the server, beside its own address"})
    backfill: bool = field(default=True, metadata={"doc": "true: all logs are read at the start, in the background"})
    max_usd: float = field(default=2.0, metadata={"doc": "most that one call of /v1/completions may cost, in USD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionSettings:
    """What counts as a secret."""

    allow: tuple[str, ...] = field(default=(), metadata={"doc": "regular expressions of texts that are no secrets"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with where this run happens."""

    owner: str = field(default="", metadata={"doc": "whose brain this is; used in commits and messages"})
    name: str = field(default="", metadata={"doc": "what the brain is called"})
    provenance: bool = field(
        default=True,
        metadata={
            "doc": "false: a captured session leaves no nuggets (why its files are as they are) on this machine; "
            "`nugget extract` still works when called"
        },
    )
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


def expanded(path: Path | str) -> Path:
    """A path with the home folder for `~`. Where nobody knows that user it stays as it is, and leads nowhere."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises RuntimeError there


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment variables of docs/configuration.md; `variables` replaces `os.environ`."""
    env = dict(os.environ if variables is None else variables)
    user_home = Path(env.get("HOME") or Path.home())

    def folder(name: str, otherwise: Path) -> Path:
        """A folder that a variable names: `~` is the user's home, a relative one starts where we are."""
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
    """A folder as a person writes it; `~` alone or before a `/` is `user_home`, as in the hook (`hook.home_folder`)."""
    whole = str(user_home) + value[1:] if value == "~" or value.startswith("~/") else value
    return Path(os.path.abspath(expanded(whole)))  # noqa: PTH100 - links stay links


def load_settings(environment: Environment, brain: Path | None = None) -> Settings:
    """Layer brain.yaml, the user's config.yaml and `NUGGET_*` over the defaults.

    Raises UsageError naming file and key for a value that cannot be taken. An unknown key in a file is left
    alone (a newer Nugget may know it); `unknown_keys` lists them for `nugget lint` and `nugget doctor`.
    """
    settings = Settings()
    for file in config_files(environment, brain):
        settings = overlay(settings, read_yaml(file), where=str(file))
    return overlay(settings, _from_variables(environment.variables), where="the environment")


def config_files(environment: Environment, brain: Path | None) -> list[Path]:
    """The configuration files that exist, weakest first."""
    files = [brain / "brain.yaml"] if brain else []
    return [file for file in [*files, environment.home / "config.yaml"] if file.is_file()]


def documented_keys(kind: type[Any] = Settings, prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Every key with its default and meaning, in order: `{"embedding.model": (default, doc)}`."""
    keys: dict[str, tuple[Any, str]] = {}
    for entry in fields(kind):
        name = f"{prefix}{entry.name}"
        default = entry.default_factory() if callable(entry.default_factory) else entry.default
        if is_dataclass(default):
            keys.update(documented_keys(type(default), f"{name}."))
        else:
            keys[name] = (default, entry.metadata["doc"])
    return keys


def unknown_keys(file: Path) -> list[str]:
    """Keys of a configuration file that no setting has."""
    known = documented_keys()
    sections = {key.split(".")[0] for key in known if "." in key}
    unknown: list[str] = []
    for key, value in read_yaml(file).items():
        if key in sections and isinstance(value, Mapping):
            unknown += [f"{key}.{inner}" for inner in value if f"{key}.{inner}" not in known]
        elif key not in known and key not in sections and key not in ("brain", "version"):
            unknown.append(str(key))
    return unknown


def default_brain(environment: Environment) -> Path | None:
    """The user's default brain (`brain:` in `$NUGGET_HOME/config.yaml`), written by `nugget init`."""
    file = environment.home / "config.yaml"
    value = read_yaml(file).get("brain") if file.is_file() else None
    return expanded(value) if isinstance(value, str) and value else None


def set_default_brain(environment: Environment, brain: Path) -> None:
    """Make `brain` the user's default, leaving every other line of config.yaml as it is."""
    file = environment.home / "config.yaml"
    try:
        lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no UTF-8 text.", hint="`iconv -t UTF-8` converts it.") from None
    kept = [line for line in lines if not line.startswith("brain:")]
    text = "\n".join([f"brain: {json.dumps(str(brain), ensure_ascii=False)}", *kept]) + "\n"
    files.replace(file, text.encode())


def find_brain(environment: Environment, *, flag: Path | None = None, cwd: Path) -> Path:
    """The brain in use: `--brain` > `NUGGET_BRAIN` > the one that `cwd` is in > the user's default.

    Raises BrainError when there is none, when the folder named is no brain, or when `cwd` itself is half a one.
    """
    named = brain_at_hand(environment, flag=flag, cwd=cwd)
    if named is None and (cwd / "brain.yaml").is_file():
        named = cwd
    if named is None:
        named = default_brain(environment)
    if named is None:
        raise BrainError("There is no brain yet.", hint="Run `nugget init` to make one.")
    if not is_brain(named):
        if (named / "brain.yaml").is_file():
            missing = "is no brain: it has a brain.yaml, but neither a `domains` folder nor a git repository"
            hint = f"Run `mkdir {named}/domains` and `nugget init {named}` to make it one, or name another brain."
            raise BrainError(f"{named} {missing}.", hint=hint)
        missing = "does not exist" if not named.exists() else "is no brain (it has no brain.yaml)"
        raise BrainError(f"{named} {missing}.", hint=f"Run `nugget init {named}`, or name another brain.")
    return named.resolve()


def brain_at_hand(environment: Environment, *, flag: Path | None, cwd: Path) -> Path | None:
    """`--brain` > `NUGGET_BRAIN` > the brain that `cwd` is in; not looked at, and None where there is none of them."""
    return flag or environment.brain or next(filter(is_brain, (cwd, *cwd.parents)), None)


def is_brain(folder: Path) -> bool:
    """Whether the folder is a brain: it has a brain.yaml beside a `domains` folder or a `.git`."""
    return (folder / "brain.yaml").is_file() and ((folder / "domains").is_dir() or (folder / ".git").exists())


def _from_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key in documented_keys():
        value = variables.get("NUGGET_" + key.replace(".", "_").upper())
        if value is None:
            continue
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested
