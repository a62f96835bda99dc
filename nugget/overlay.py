"""Values from configuration files and variables, laid over settings: read, checked and converted by type."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nugget import guarded_yaml
from nugget.errors import UsageError

_S = TypeVar("_S", bound=Any)


_MOST = 1e9
"""More than any setting needs; what is much larger overflows timers, floats or SQLite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Which values of a setting make sense: numbers in a range, some words, any text but none, regular expressions."""

    least: float | None = None
    most: float = _MOST
    one_of: tuple[str, ...] = ()
    is_needed: bool = False
    are_patterns: bool = False


_COUNT, _USD, _SECONDS = Limit(least=1), Limit(least=0), Limit(least=0.1)
LIMITS: Mapping[str, Limit] = {
    "embedding.model": Limit(is_needed=True),
    "embedding.timeout_s": _SECONDS,
    "retrieval.limit": _COUNT,
    "retrieval.budget_tokens": _COUNT,
    "retrieval.candidates": _COUNT,
    "retrieval.rrf_k": Limit(least=0),
    "retrieval.hops": Limit(least=0, most=2),
    "retrieval.ranking": Limit(one_of=("calibrated", "rrf")),
    "retrieval.rerank_timeout_s": _SECONDS,
    "retrieval.rerank_max_usd": _USD,
    "llm.select_max_usd": _USD,
    "llm.extract_with": Limit(one_of=("api", "claude-code")),
    "llm.timeout_s": _SECONDS,
    "llm.max_usd_per_session": _USD,
    "capture.method": Limit(one_of=("auto", "generative", "heuristic")),
    "capture.max_units": _COUNT,
    "capture.publish": Limit(one_of=("auto", "never")),
    "commit.recent_days": Limit(least=0, most=36_500),
    "commit.timeout_s": _SECONDS,
    "commit.max_usd": _USD,
    "canon.max_files": _COUNT,
    "http.max_usd": _USD,
    "redaction.allow": Limit(are_patterns=True),
}
"""Which values can be taken, for settings where not all of their type can."""


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
            if wanted := _missed(changes[entry.name], LIMITS.get(key, Limit())):
                raise UsageError(f"{where}: `{key}` must be {wanted}, not {_shown(value)}.")
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
        return "" if value is None and kind is str else kind(value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UsageError(f"{where}: `{key}` must be {_words(kind)}, not {_shown(value)}.") from None


def _missed(value: Any, limit: Limit) -> str | None:
    """What a value must be where it is not."""
    if limit.least is not None and not limit.least <= value <= limit.most:
        is_told = limit.most != _MOST or value > limit.most
        return f"{limit.least:g} to {limit.most:,.0f}" if is_told else f"at least {limit.least:g}"
    if limit.one_of and value not in limit.one_of:
        return f"one of {', '.join(limit.one_of)}"
    if limit.is_needed and not value:
        return "given"
    for pattern in value if limit.are_patterns else ():
        try:
            re.compile(pattern)
        except re.error as error:
            return f"a list of regular expressions ({pattern!r} is none: {error})"
    return None


def _words(kind: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(kind, "a list")


def _shown(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 60 else said[:57] + "..."
