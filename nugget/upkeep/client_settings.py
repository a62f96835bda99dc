"""Edit other programs' settings: only our entries change.

Everything else keeps its value, its order and its indent.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nugget.errors import ConflictError, NuggetError
from nugget.infra import files

SettingsScope = Literal["user", "project"]
"""The user's settings, or those of one project."""
_LISTS = frozenset({"SessionEnd", "SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "allow"})
"""Keys whose value is a list; all others that we edit have objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The text of a file before and after a change, None for no file; `mode` applies to a new file."""

    path: Path
    before: str | None
    after: str | None
    mode: int = 0o600


def apply(changes: Sequence[FileChange]) -> None:
    """Write planned changes. Raises ConflictError if a file changed meanwhile, or NuggetError, before writing any.

    A symbolic link is followed, and the mode of an existing file stays.
    """
    for change in changes:
        if read_text(change.path) != change.before:
            raise ConflictError(f"{change.path} changed since it was read; nothing was written.", hint="Try again.")
        if change.path.exists() and not os.access(change.path, os.W_OK):
            raise NuggetError(f"{change.path} is read-only; nothing was written.", hint="Make it writable.")
    for change in changes:
        write_text(change.path, change.after, mode=change.mode)


def diff(changes: Sequence[FileChange]) -> str:
    """Return planned changes as a unified diff."""
    lines: list[str] = []
    for change in changes:
        before, after = (text.splitlines() if text else [] for text in (change.before, change.after))
        old, new = ("/dev/null" if text is None else str(change.path) for text in (change.before, change.after))
        lines += difflib.unified_diff(before, after, old, new, lineterm="")
    return "\n".join(lines)


def planned(paths: Sequence[Path], edits: Sequence[Callable[[Any], None]], *, mode: int = 0o600) -> list[FileChange]:
    """Return the changes that these edits of the parsed files make."""
    changes = []
    for path, edit in zip(paths, edits, strict=True):
        before = read_text(path)
        edit(value := parse(path, before))
        if value != parse(path, before):
            changes.append(FileChange(path=path, before=before, after=_dumped(value, before or ""), mode=mode))
    return changes


def parse(path: Path, text: str | None) -> Any:
    """Parse a settings file. Raises NuggetError if it is not a JSON object, or not TOML."""
    is_toml = path.suffix == ".toml"
    try:
        if is_toml:
            import tomlkit

            return tomlkit.parse(text or "")
        value = json.loads(text) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        kind, also = ("TOML", "") if is_toml else ("JSON", " Comments and trailing commas cannot be kept.")
        hint = f"Correct the file, then run the command again.{also}"
        raise NuggetError(f"{path} is not valid {kind}: {reason}; it was left alone.", hint=hint) from error
    if not isinstance(value, dict):
        raise NuggetError(f"{path} is not a JSON object; it was left alone.")
    return value


def _dumped(value: Any, before: str) -> str | None:
    """Return a value as text, with the indent and line ends of the old file; None if the value is empty."""
    if not value:
        return None
    if hasattr(value, "as_string"):  # a TOML document keeps its own layout
        return str(value.as_string())
    indent = re.search(r"\n([ \t]+)\S", before)
    is_one_line = before.strip() and "\n" not in before.strip()
    separators = (",", ":") if is_one_line and '": ' not in before else None
    depth = None if is_one_line else indent[1] if indent else "  "
    text = json.dumps(value, ensure_ascii=False, indent=depth, separators=separators)
    text += "" if before.strip() and not before.endswith("\n") else "\n"
    return text.replace("\n", "\r\n") if "\r\n" in before else text


def part(path: Path, value: Any, *place: str) -> Any:
    """Return the object or list under these keys, created if missing. Raises NuggetError for another type."""
    for depth, key in enumerate(place, 1):
        is_list = key in _LISTS
        if key not in value and hasattr(value, "as_string"):
            import tomlkit

            value[key] = tomlkit.table(is_super_table=True)
        value = value.setdefault(key, [] if is_list else {})
        if not isinstance(value, list if is_list else dict):
            kind = "a list" if is_list else "an object"
            hint = "Correct the file, then run the command again."
            raise NuggetError(f"{path}: `{'.'.join(place[:depth])}` is not {kind}; it was left alone.", hint=hint)
    return value


def drop_empty(path: Path, value: Any, *place: str) -> None:
    """Remove an empty container, then its parents if they became empty."""
    while place and not part(path, value, *place):
        del part(path, value, *place[:-1])[place[-1]]
        place = place[:-1]


def add_server(path: Path, place: str, entry: Mapping[str, Any], value: Any) -> None:
    """Add our MCP server to parsed settings, keeping arguments that a person set. Raises NuggetError."""
    found = part(path, value, place).setdefault("nugget", dict(entry))
    if not is_our_server(found):
        hint = "Rename or remove it, then run the command again."
        raise NuggetError(f"{path} has another MCP server called nugget; it was left alone.", hint=hint)
    if command_line(found)[:1] != command_line(entry)[:1] or "alwaysLoad" in entry:
        found.update({name: own for name, own in entry.items() if name in ("type", "command", "alwaysLoad")})


def drop_server(path: Path, place: str, value: Any) -> None:
    """Remove our MCP server from a parsed file."""
    servers = part(path, value, place)
    if is_our_server(servers.get("nugget")):
        del servers["nugget"]
    drop_empty(path, value, place)


def is_our_server(entry: object) -> bool:
    """Return True if an MCP server runs `nugget serve`, from any folder and with any options."""
    words = command_line(entry) if isinstance(entry, dict) else []
    return bool(words) and is_nugget(words[0]) and "serve" in words


def is_nugget(command: str) -> bool:
    """Return True if a command is `nugget`, in any folder."""
    return Path(command).name == "nugget"


def command_line(entry: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line, given as command and arguments, as one list, or as a shell line."""
    command, arguments = entry.get("command"), entry.get("args")
    with suppress(ValueError):
        if isinstance(command, list) or isinstance(arguments, list):
            words = command if isinstance(command, list) else [command]
            return [str(word) for word in [*words, *(arguments or [])]]
        return shlex.split(command) if isinstance(command, str) else []
    return []


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends; None if it is missing. Raises NuggetError."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise NuggetError(f"{path} is not UTF-8 text (byte {error.start}); it was left alone.") from error
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror or error}.") from error


def write_text(path: Path, text: str | None, *, mode: int = 0o600) -> None:
    """Write a text to a file, or remove the file for None. Raises NuggetError."""
    target = path.resolve()
    try:
        if text is None:
            target.unlink(missing_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            mode = stat.S_IMODE(target.stat().st_mode)
        files.replace(target, text.encode("utf-8"), mode=mode)
    except OSError as error:
        raise NuggetError(f"{path} cannot be written: {error.strerror or error}.") from error
