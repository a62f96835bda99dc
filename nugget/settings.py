"""All settings, with their defaults and descriptions, and the YAML reader of settings and frontmatter.

YAML is parsed into nodes with line numbers. No object is constructed, so tags, aliases and bombs in a hostile file have
no effect. `config` reads the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nugget.errors import KnowledgeError

MAX_CHARS = 256_000
"""Default maximum length of YAML."""
_MAX_BYTES = 64_000
"""Maximum size of a file of settings."""
_MAX_DEPTH = 40
_DEEP_LINE = rf"(?m)^[ \t?:-]{{{_MAX_DEPTH},}}"
_YAML_ONLY_BREAKS = {0x85: " ", 0x2028: " ", 0x2029: " "}
"""Characters that end a line only in YAML 1.1; they are read as spaces, so that line numbers agree."""
NULL_TAG = "tag:yaml.org,2002:null"
Node = Any
"""A YAML node; `id` is `scalar`, `sequence` or `mapping`, and its marks count lines and columns from 0."""


def _set(default: Any, doc: str, **limits: Any) -> Any:
    """Return a dataclass field with a default, a description and limits as pydantic names them."""
    return field(default=default, metadata={"doc": doc, "limits": limits})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. In files the first `_` of a name is a dot: `llm_base_url` is `llm.base_url`."""

    owner: str = _set("", "owner of the brain; used in commits and messages")
    name: str = _set("", "name of the brain")
    index: str = _set("", "a [team's index](team.md): `postgresql://HOST/DATABASE`, without a password; empty: on disk")
    provenance: bool = _set(True, "false: capture extracts no nuggets; `nugget extract` still does")
    # How texts become vectors.
    embedding_model: str = _set(
        "all-MiniLM-L6-v2", "the bundled model, or one of [these](#models-for-embeddings)", min_length=1
    )
    embedding_base_url: str | None = _set(None, "endpoint for `openai:` and `voyage:` models")
    embedding_api_key_env: str | None = _set(
        None, "environment variable with the key; OPENAI_API_KEY or VOYAGE_API_KEY if empty"
    )
    embedding_timeout_s: float = _set(30.0, "seconds before a request for vectors times out", ge=0.1)
    # How a question is answered.
    retrieval_limit: int = _set(10, "maximum number of results", ge=1)
    retrieval_budget_tokens: int = _set(2000, "maximum tokens in an answer", ge=1)
    retrieval_candidates: int = _set(50, "candidate chunks from vectors and from BM25", ge=1)
    retrieval_hops: int = _set(1, "1 adds units that are related to the best hits, 0 does not", ge=0, le=1)
    retrieval_reranker: str = _set(
        "auto", "`auto` (Claude with a key), `local`, `claude`, or `cross-encoder:<name or folder>`"
    )
    retrieval_rerank_timeout_s: float = _set(8.0, "seconds before the LLM re-ranker times out", ge=0.1)
    retrieval_rerank_max_usd: float = _set(0.02, "maximum cost of one re-ranking, in USD", ge=0)
    retrieval_synonyms: tuple[str, ...] = _set((), "synonyms, such as `pto=paid time off`")
    retrieval_searches: tuple[str, ...] = _set((), "saved queries `NAME=QUERY`, for `nugget search @NAME`")
    retrieval_log_queries: bool = _set(
        True, "keep questions and the units in their answers on this machine (`nugget queries`)"
    )
    # Models and limits for LLM calls, unused without a key.
    llm_enabled: bool = _set(True, "false: never call an LLM, even with a key")
    llm_answer_model: str = _set("claude-sonnet-5-5", "writes the answer of `nugget ask`")
    llm_rerank_model: str = _set("claude-haiku-5-5", "orders the candidates")
    llm_extract_model: str = _set("claude-sonnet-5-5", "finds knowledge in a session")
    llm_select_model: str = _set("claude-haiku-5-5", "chooses evidence from the history of a session (`llm-select`)")
    llm_select_max_usd: float = _set(0.25, "maximum cost of one choice of evidence, in USD, over all its calls", ge=0)
    llm_api: Literal["anthropic", "openai"] = _set(
        "anthropic", "`openai`: knowledge is found by a model at `llm.base_url`"
    )
    llm_base_url: str | None = _set(None, "endpoint with OpenAI's API, such as `http://localhost:11434/v1` of Ollama")
    llm_api_key_env: str | None = _set(None, "environment variable with the key for `llm.base_url`, if it needs one")
    llm_usd_per_million_tokens: float | None = _set(
        None, "price at `llm.base_url`; empty: 0 on this machine, elsewhere the highest known price", ge=0
    )
    llm_timeout_s: float = _set(120.0, "seconds before an answer or extraction times out", ge=0.1)
    llm_max_usd_per_session: float = _set(0.5, "maximum cost of one capture, in USD", ge=0)
    # How knowledge is found in a session.
    extraction_with: Literal["auto", "claude-code", "api", "openai", "offline"] = _set(
        "auto",
        "`claude-code` (the command), `api`, `openai` (`llm.base_url`), `offline`, or the first that can be used",
    )
    extraction_use_claude: bool | None = _set(
        None, "whether `auto` may use the `claude` command; `nugget install` asks once"
    )
    extraction_window_chars: int = _set(
        80_000, "characters of a session in one request; fewer for a small context", ge=4_000
    )
    # How sessions become proposals.
    capture_max_units: int = _set(12, "maximum number of units proposed from one session", ge=1)
    capture_exclude_projects: tuple[str, ...] = _set((), "folders (globs) whose sessions are never read")
    capture_exclude_paths: tuple[str, ...] = _set((), "files (globs) whose content is never read from a transcript")
    capture_notes: bool = _set(
        False, "true: agents get the tool `propose_knowledge`; `nugget install --remember` sets it"
    )
    capture_publish: Literal["auto", "never"] = _set(
        "auto", "`auto`: proposals become pull requests on GitHub, with a token"
    )
    capture_labels: tuple[str, ...] = _set((), "labels for pull requests")
    capture_headless: bool = _set(True, "false: sessions that a program ran (`claude -p`, the SDK) are not captured")
    capture_server: str | None = _set(
        None, "address of a space on [a team's server](team.md) that sessions are sent to"
    )
    capture_agents: tuple[Literal["claude-code", "codex", "gemini-cli", "cursor", "opencode", "all"], ...] = _set(
        ("claude-code",), "[agents](agents.md) that catch-up captures, or `all`"
    )
    # Folders in which other agents keep their sessions, if not the default ones.
    agents_codex: str = _set("", "Codex' folder; empty: `$CODEX_HOME`, else ~/.codex")
    agents_gemini: str = _set("", "Gemini CLI's folder; empty: `$GEMINI_CLI_HOME/.gemini`, else ~/.gemini")
    agents_cursor: str = _set("", "Cursor's `User` folder; empty: where Cursor keeps it on this system")
    agents_opencode: str = _set("", "OpenCode's folder; empty: `$XDG_DATA_HOME/opencode`, else ~/.local/share/opencode")
    # How `nugget commit` and its git hook write messages.
    commit_recent_days: int = _set(14, "number of days back in which sessions are considered", ge=0, le=36_500)
    commit_co_author: bool = _set(True, "false: no `Co-authored-by` for agents that wrote lines of the commit")
    commit_model: str = _set("claude-haiku-5-5", "writes the message, if there is a key")
    commit_timeout_s: float = _set(20.0, "seconds before the model times out", ge=0.1)
    commit_max_usd: float = _set(0.1, "maximum cost of one message, in USD", ge=0)
    publish_every: Literal["session", "day", "week"] = _set(
        "session", "one pull request for each session, `day` or `week`"
    )
    sync_pull: bool = _set(True, "false: a trusted brain no longer follows its remote by itself")
    brains_folders: tuple[str, ...] = _set((), "more [brains to search](#several-brains): paths or `name=path`")
    brains_captures: tuple[str, ...] = _set((), "`name=glob`: sessions in such a repository or folder go to that brain")
    canon_folders: tuple[str, ...] = _set(
        (), "folders to search: paths or `name=path`; from brain.yaml only those inside it"
    )
    canon_max_files: int = _set(20_000, "maximum number of notes read from each of these folders", ge=1)
    history_enabled: bool = _set(True, "false: history is not indexed, and its index is deleted")
    memory_workspaces: tuple[str, ...] = _set((), "more workspaces whose CLAUDE.md and AGENTS.md count as memory")
    # What `nugget serve --http` does.
    http_allowed_hosts: tuple[str, ...] = _set((), "names of the server in addition to its own address")
    http_backfill: bool = _set(True, "true: all logs are read at the start, in the background")
    http_max_usd: float = _set(2.0, "maximum cost of one call of /v1/completions, in USD", ge=0)
    http_max_usd_per_day: float = _set(2.0, "maximum cost of all calls over HTTP in a day (UTC), in USD", ge=0)
    http_auth: Literal["", "token", "oidc", "proxy"] = _set("", "how [a team's server](team.md) identifies callers")
    http_public_url: str | None = _set(
        None, "address of the team's server for its clients, if a proxy is in front of it"
    )
    http_rights: tuple[str, ...] = _set((), "`GROUP=SPACE:read` or `GROUP=SPACE:write`, for `oidc` and `proxy`")
    http_issuer: str | None = _set(None, "`oidc`: address of the OpenID provider")
    http_audience: str | None = _set(None, "`oidc`: audience that access tokens must name")
    http_groups_claim: str = _set("groups", "`oidc`: claim with the groups of a caller")
    http_proxies: tuple[str, ...] = _set((), "`proxy`: addresses or networks whose headers are trusted")
    http_user_header: str = _set("x-forwarded-user", "`proxy`: header with the name of the caller")
    http_groups_header: str = _set(
        "x-forwarded-groups", "`proxy`: header with the caller's groups, separated by commas"
    )
    redaction_allow: tuple[str, ...] = _set((), "regular expressions of texts that are not secrets")


class YAMLRefused(KnowledgeError):
    """Invalid or oversized YAML; `line` counts from 1 and is None if no single line is at fault."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason, hint="Correct that by hand first.")
        self.line = line


Entry = tuple[Any, int]
"""A value in a file of settings, as text or a list of texts, None if it is empty, and the line of its key."""


def read_mapping(text: str, *, max_chars: int = MAX_CHARS) -> list[tuple[Node, Node]]:
    """Return the keys and values of a YAML text, none if it is empty. Raises YAMLRefused."""
    import yaml

    text = text.translate(_YAML_ONLY_BREAKS)
    if len(text) > max_chars:
        raise YAMLRefused(f"is longer than {max_chars:,} characters", 1)
    # libyaml would overflow the C stack on deeply nested text.
    is_deep = text.count("[") + text.count("{") > _MAX_DEPTH or re.search(_DEEP_LINE, text)
    loader = yaml.SafeLoader if is_deep else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node: Node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        # For an unclosed bracket or quote, report where it was opened.
        is_unclosed = any(word in str(error.context) for word in ("flow", "quoted"))
        mark = error.context_mark if is_unclosed else error.problem_mark
        # If something is missing at the end, report the last line.
        line = min(mark.line, max(0, text.count("\n") - 1)) + 1 if mark else None
        quote = "; a value with `: ` or ` #` in it needs quotes" if "mapping values" in str(error.problem) else ""
        raise YAMLRefused(f"is not valid YAML ({error.problem}{quote})", line) from None
    except RecursionError:
        raise YAMLRefused("is nested too deep", 1) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        line = text.encode("utf-8", "replace")[: getattr(error, "position", 0)].count(b"\n") + 1
        raise YAMLRefused("is not valid YAML (a character that YAML does not allow)", line) from None
    if node is None or node.tag == NULL_TAG:
        return []
    if node.id != "mapping":
        raise YAMLRefused("has no `key: value` lines", node.start_mark.line + 1)
    return list(node.value)


def read_entries(file: Path) -> dict[str, Entry]:
    """Return the dotted keys of a file of settings. Raises YAMLRefused.

    Only two levels of keys are read, with texts and lists of texts, so aliases cannot multiply.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise YAMLRefused(f"is longer than {_MAX_BYTES:,} bytes")
        pairs = read_mapping(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise YAMLRefused("is not UTF-8 text") from None
    except OSError as error:
        raise YAMLRefused(f"cannot be read ({error})") from None
    found: dict[str, Entry] = {}
    for key, node in pairs:
        if node.id == "mapping":
            found |= {f"{_name(key)}.{_name(inner)}": _entry(inner, leaf) for inner, leaf in node.value}
        else:
            found[_name(key)] = _entry(key, node)
    return found


def _name(key: Node) -> str:
    return str(key.value) if key.id == "scalar" else "?"


def _entry(key: Node, node: Node) -> Entry:
    value: Any = {}  # invalid for any setting
    if node.id == "sequence":
        value = [part.value if part.id == "scalar" else {} for part in node.value]
    elif node.id == "scalar":
        value = None if node.tag == NULL_TAG else node.value
    return value, key.start_mark.line + 1
