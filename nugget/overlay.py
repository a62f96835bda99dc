"""Values from configuration files and variables, laid over settings: read, checked and converted by type."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nugget import guarded_yaml
from nugget.errors import UsageError

_S = TypeVar("_S", bound=Any)


def read_yaml(file: Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises UsageError with file and line where it is none."""
    try:
        loaded = guarded_yaml.load(file)
    except guarded_yaml.YAMLRefused as refused:
        line = f":{refused.line}" if refused.line else ""
        raise UsageError(f"{file}{line}: {refused}.", hint="Correct that line." if line else None) from refused
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{file}: expected `key: value` lines, found a {type(loaded).__name__}.")
    return loaded


def overlay(settings: _S, values: Mapping[str, Any], *, where: str, prefix: str = "") -> _S:
    """The settings with these values in place of their own. Raises UsageError naming `where` and key."""
    changes: dict[str, Any] = {}
    kinds = typing.get_type_hints(type(settings))
    for entry in fields(settings):
        if entry.name not in values:
            continue
        value, current, key = values[entry.name], getattr(settings, entry.name), f"{prefix}{entry.name}"
        if is_dataclass(current):
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise UsageError(f"{where}: `{key}` must be a section with its keys below it.")
            changes[entry.name] = overlay(current, value, where=where, prefix=f"{key}.")
        else:
            changes[entry.name] = _convert(value, kinds[entry.name], key=key, where=where)
    return replace(settings, **changes)


def _convert(value: Any, kind: Any, *, key: str, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or value == "":
            return None
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
        origin = typing.get_origin(kind)
    try:
        if origin is tuple:
            parts = value.split(",") if isinstance(value, str) else (value or ())
            return tuple(str(part).strip() for part in parts if str(part).strip())
        if kind is bool:
            words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            return value if isinstance(value, bool) else words[str(value).strip().lower()]
        if kind in (int, float) and isinstance(value, bool):
            raise ValueError
        return "" if value is None else kind(value)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{where}: `{key}` must be {_words(kind)}, not {value!r}.") from None


def _words(kind: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(kind, "a list")
