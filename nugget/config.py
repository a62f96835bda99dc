"""Settings: one validated value, made once, passed down.

Order, weakest first: defaults, brain.yaml, `$NUGGET_HOME/config.yaml`, `NUGGET_*`, flags. brain.yaml comes with the
brain and may have been written by anybody, so only the keys of `KNOWLEDGE_KEYS` are taken from it. This module is the
only reader of `os.environ`, and knows what pip installed. A key `embedding.model` is `embedding: {model: ...}` in YAML
and `NUGGET_EMBEDDING_MODEL` in the environment.
"""

from __future__ import annotations

import functools
import json
import os
import re
import typing
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from nugget.errors import NuggetError, UsageError, complaint
from nugget.settings import Entry, YAMLRefused, read_entries
from nugget.settings import Settings as Settings
from nugget.text import printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from nugget.models import Problem

KNOWLEDGE_KEYS = frozenset(
    "owner name canon.folders retrieval.limit retrieval.budget_tokens retrieval.candidates"
    " retrieval.hops retrieval.synonyms retrieval.searches".split()
)
"""The settings that belong to the knowledge and are taken from brain.yaml."""
_JOINED = ("canon.folders", "retrieval.synonyms", "retrieval.searches")
"""Lists of brain.yaml that the user's own entries come before instead of replacing them."""
_DESCRIPTIVE = frozenset({"id", "version", "domains", "languages", "chunking"})
"""Keys of brain.yaml that describe the brain and set nothing."""
OLD_OFFLINE = ("capture.method", "heuristic")
"""A setting of 0.1.0: whoever has it wants no session to reach a model, so no other method is chosen."""
_FORMS = {
    "retrieval.reranker": ("auto|local|claude|cross-encoder:.+", "auto, local, claude or cross-encoder:MODEL"),
    "brains.captures": ("[^=]+=.+", "a list of name=glob"),
    "http.rights": (".+=[^:]+(:(read|write))?", "a list of GROUP=SPACE:read or GROUP=SPACE:write"),
}
"""The form of a text or of each entry of a list, and its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of the process, read once at start."""

    home: Path
    brain: Path | None = None
    claude_config: Path
    shell_logs: Path
    models: Path
    anthropic_api_key: str | None = field(default=None, repr=False)
    github_api_url: str | None = None
    session: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def current_folder() -> Path:
    """Return the current folder. Raises UsageError if it no longer exists."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("The current folder does not exist any more.", hint="Change to another folder.") from error


def expanded(path: Path | str) -> Path:
    """Return a path with `~` expanded, unless it names an unknown user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises RuntimeError there


def user_home(environment: Environment) -> Path:
    """Return the person's home folder."""
    return Path(environment.variables.get("HOME") or Path.home())


def config_home(environment: Environment) -> Path:
    """Return the user's configuration folder, as defined by the XDG base directory specification."""
    return Path(environment.variables.get("XDG_CONFIG_HOME") or user_home(environment) / ".config")


def rule_cache() -> Path | None:
    """Return the cache folder for compiled redaction rules; None if KF_RULE_CACHE_DIR sets it."""
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
        home=home, brain=expanded(brain) if brain else None, models=folder("NUGGET_MODELS", home / "models"),
        claude_config=folder("CLAUDE_CONFIG_DIR", user_home / ".claude"),
        anthropic_api_key=env.get("ANTHROPIC_API_KEY") or env.get("ANTHROPIC_AUTH_TOKEN") or None,
        github_api_url=env.get("GITHUB_API_URL") or None, session=env.get("CLAUDE_CODE_SESSION_ID") or None,
        shell_logs=expanded(env.get("AISH_LOG_DIR") or user_home / ".local" / "share" / "aish" / "logs"),
        variables=env,
    )  # fmt: skip


def absolute_folder(value: str, *, user_home: Path) -> Path:
    """Return the absolute path of a folder; a leading `~` stands for `user_home`, as in the hook."""
    whole = str(user_home) + value[1:] if value == "~" or value.startswith("~/") else value
    return Path(os.path.abspath(expanded(whole)))  # noqa: PTH100 - links stay links


def requirement(extra: str) -> str:
    """Return the requirement that installs an extra with pip: NUGGET_PACKAGE, or the place Nugget was installed from.

    A bare name is never returned: whoever publishes something under it would be installed.
    """
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="nugget")
    installed = command.dist
    assert installed is not None  # entry points that metadata lists have one
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address, version_control = origin.get("url", ""), origin.get("vcs_info")
    if version_control:
        address = f"{version_control['vcs']}+{address}@{version_control['commit_id']}"
    found = f"{installed.name} @ {address}" if address else f"{installed.name}=={installed.version}"
    pinned = read_environment().variables.get("NUGGET_PACKAGE") or found
    return re.sub(r"^[\w.-]+", rf"\g<0>[{extra}]", pinned)


def import_extra(module: str, extra: str, purpose: str, failure: type[NuggetError]) -> ModuleType:
    """Import a module of an extra; raise `failure` with the command that installs the extra if that is not possible."""
    try:
        return import_module(module)
    except ImportError as error:
        is_missing = (error.name or "").partition(".")[0] == module.partition(".")[0]
        reason = "" if is_missing else f", which cannot be loaded: {str(error).partition(chr(10))[0]}"
        message = f"{purpose} needs the extra `{extra}`{reason}."
        raise failure(message, hint=f"Install it: pip install '{requirement(extra)}'") from None


BrainFile = tuple[dict[str, Any], list["Problem"], dict[str, Entry]]
"""Values of a brain.yaml, its problems, and keys that only the user's own configuration may set."""


def load_settings(environment: Environment, brain: Path | None = None, *, refused: list[str] | None = None) -> Settings:
    """Layer brain.yaml, the user's config.yaml and `NUGGET_*` over the defaults.

    Invalid entries of brain.yaml are skipped. Raises UsageError, with place and key, for an invalid value elsewhere,
    unless `refused` is given, which then says so while the default holds.
    """
    shared = read_brain_file(brain)[0] if brain else {}
    values = dict(shared)
    file = environment.home / "config.yaml"
    mine = read_user_file(environment)
    key, offline = OLD_OFFLINE
    if offline == (mine[key][0] if key in mine else environment.variables.get(variable_of(key))):
        values["extraction.with"] = "offline"
    given = [(key, value, f"{file}:{line}") for key, (value, line) in mine.items()]
    given += [(key, environment.variables.get(variable_of(key)) or None, variable_of(key)) for key in _keys()]
    for key, value, where in given:
        if value is not None and is_known(key):
            try:
                values[key] = validated(key, value)
            except ValueError as error:
                if refused is None:
                    raise UsageError(f"{where}: `{key}` {error}.") from None
                refused.append(f"{where}: `{key}` {error}")
    for key in _JOINED:
        if entries := shared.get(key):
            values[key] = tuple(dict.fromkeys((*values[key], *entries)))
    return Settings(**{_keys()[key].name: value for key, value in values.items()})


def read_user_file(environment: Environment) -> dict[str, Entry]:
    """Return the dotted keys of the user's configuration. Raises UsageError for a file that cannot be read."""
    file = environment.home / "config.yaml"
    try:
        return read_entries(file) if file.is_file() else {}
    except YAMLRefused as refused:
        line = f":{refused.line}" if refused.line else ""
        raise UsageError(f"{file}{line}: {refused}.", hint="Correct that line." if line else None) from None


def read_brain_file(brain: Path) -> BrainFile:
    """Read brain.yaml; invalid entries are returned as problems."""
    from nugget.models import Problem, Severity

    file = brain / "brain.yaml"
    values, problems, misplaced = dict[str, Any](), list[Problem](), dict[str, Entry]()
    try:
        entries = read_entries(file) if file.is_file() else {}
    except YAMLRefused as refused:
        return {}, [Problem(path=file.name, reason=str(refused), line=refused.line)], {}
    for key, (value, line) in entries.items():
        if value is None or key.partition(".")[0] in _DESCRIPTIVE:
            continue
        if not is_known(key):
            reason = f"there is no setting `{printable(key)}`"
            problems.append(Problem(path=file.name, reason=reason, line=line, severity=Severity.WARNING))
        elif key in documented_keys() and key not in KNOWLEDGE_KEYS:
            misplaced[key] = value, line
        else:
            try:
                values[key] = validated(key, value)
            except ValueError as error:
                problems.append(Problem(path=file.name, reason=f"`{key}` {error}", line=line))
    folders = values.get("canon.folders", ())
    if outside := [folder for folder in folders if not _is_inside(folder)]:
        misplaced["canon.folders"] = outside, entries["canon.folders"][1]
        values["canon.folders"] = tuple(folder for folder in folders if _is_inside(folder))
    return values, problems, misplaced


def validated(key: str, value: Any) -> Any:
    """Return a value converted for its setting. Raises ValueError with the end of a sentence on it."""
    from pydantic import ValidationError

    if key not in _keys():
        raise ValueError("must be a section with its keys below it")
    if isinstance(value, str) and isinstance(_keys()[key].default, tuple):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        result = _adapter(key).validate_python(value)
    except ValidationError as error:
        raise ValueError(complaint(error.errors()[0])) from None
    if key == "index" and result:
        _check_address(result)
    form, wanted = _FORMS.get(key, ("", ""))
    for entry in ((result,) if isinstance(result, str) else result) if form else ():
        if not re.fullmatch(form, entry):
            raise ValueError(f"must be {wanted}, not {entry[:60]!r}")
    for pattern in result if key == "redaction.allow" else ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"must be a list of regular expressions ({repr(pattern)[:60]}: {error})") from None
    return result


def _check_address(address: str) -> None:
    """Raise ValueError if the address is not PostgreSQL's, or if it holds a password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("postgres", "postgresql"):
        raise ValueError("must be an address that begins with postgresql://")
    if parts.password or any(name.endswith("password") for name, _ in parse_qsl(parts.query)):
        raise ValueError("must be an address without a password (use PGPASSWORD, ~/.pgpass or a service file)")


def documented_keys() -> dict[str, tuple[Any, str]]:
    """Return every key with its default and meaning, in order: `{"embedding.model": (default, doc)}`."""
    return {key: (entry.default, entry.metadata["doc"]) for key, entry in _keys().items()}


def is_known(key: str) -> bool:
    """Return whether a key is a setting or a section of settings."""
    return key in _keys() or any(known.startswith(f"{key}.") for known in _keys())


def variable_of(key: str) -> str:
    """Return the environment variable that sets a key."""
    return f"NUGGET_{key.replace('.', '_').upper()}"


def _is_inside(folder: str) -> bool:
    """Return True if the path of a canon folder stays below the brain, judged without the file system."""
    path = PurePath(folder.partition("=")[2] or folder)
    return not (path.is_absolute() or ".." in path.parts or str(path).startswith("~"))


@functools.cache
def _keys() -> dict[str, Field[Any]]:
    """Return the field of every key."""
    return {entry.name.replace("_", ".", 1): entry for entry in fields(Settings)}


@functools.cache
def _adapter(key: str) -> TypeAdapter[Any]:
    from pydantic import Field as Limits
    from pydantic import TypeAdapter

    entry = _keys()[key]
    hint: Any = Annotated[typing.get_type_hints(Settings)[entry.name], Limits(**entry.metadata["limits"])]
    return TypeAdapter(hint)
