"""Values that need no conversion, passed on as they are.

Typer converts with pydantic, and loads it for every parameter of a command, given or not: 50 ms of each cold start.
Here a parameter asks typer's conversion only for a value that is not of the declared type already.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

_COUNT = re.compile(r"[0-9]{1,9}")
_WORDS = {"str": "TEXT", "int": "N", "float": "NUMBER", "path": "PATH", "file": "FILE", "directory": "FOLDER"}


def convert_only_what_needs_it(command: Any) -> None:
    """Let the parameters of a typer command convert only what needs to be converted."""
    listing = command.get_params

    def get_params(ctx: Any) -> Any:
        parameters = listing(ctx)
        for parameter in parameters:
            _spare(parameter)
            _name_plainly(parameter)
        return parameters

    command.get_params = get_params


def _spare(parameter: Any) -> None:
    converting = getattr(parameter, "get_runtime_param", None)
    declared = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if converting is None or declared is None or "get_runtime_param" in vars(parameter):
        return  # a parameter that is not as in typer 0.29 converts as it always did
    parameter.get_runtime_param = _WhereNeeded(declared=declared, converting=converting).itself


def _name_plainly(parameter: Any) -> None:
    """Let the help name the type of an option in words for people: `TEXT`, not `<str>`; nothing for a switch."""
    shown = getattr(parameter, "display_type_rich", None)
    if shown is not None and "display_type_rich" not in vars(parameter):
        is_argument = parameter.param_type_name == "argument"
        parameter.display_type_rich = lambda ctx: None if is_argument else _plain(shown(ctx=ctx))


def _plain(shown: str | None) -> str | None:
    """Typer's word for a type as ours. Choices get room around the bar, so that a line can end there."""
    if not (shown and shown.startswith("<") and shown.endswith(">")):
        return shown
    kind = shown[1:-1].removeprefix("list[").removesuffix("]").removesuffix(" range")
    return None if kind == "bool" else _WORDS.get(kind, kind.replace("|", " | "))


@dataclass(frozen=True, slots=True, kw_only=True)
class _WhereNeeded:
    """Stands where typer expects its conversion, which `converting` makes."""

    declared: Any
    converting: Callable[[], Any]

    def itself(self) -> _WhereNeeded:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command wants it. Raises typer's BadParameter for one that cannot be converted."""
        takes_many = param.multiple or param.nargs == -1
        if value is None:
            return () if takes_many else None
        if takes_many and get_origin(self.declared) is list and isinstance(value, list | tuple):
            (each,) = get_args(self.declared)
            if all(type(one) is each for one in value):
                return list(value)
        if isinstance(self.declared, type) and type(value) is self.declared:
            return value
        if isinstance(value, str):
            if self.declared is Path and _is_plain_path(value, param):
                return Path(value)
            if self.declared is int and _is_plain_count(value, param):
                return int(value)
            if isinstance(self.declared, type) and issubclass(self.declared, StrEnum) and value in list(self.declared):
                return self.declared(value)
        return self.converting().coerce(value, param=param, ctx=ctx)


def _is_plain_count(value: str, param: Any) -> bool:
    """Whether this is a whole number of nobody's particular range, as typer would read it too."""
    asked = param.type_descriptor.parameter_info
    return asked.min is None and asked.max is None and _COUNT.fullmatch(value) is not None


def _is_plain_path(value: str, param: Any) -> bool:
    """Whether typer would take this path as it is: nothing is asked of it, and it is not one that cannot be read."""
    asked = param.type_descriptor.parameter_info
    plain = asked.file_okay and asked.dir_okay and not (asked.exists or asked.writable or asked.resolve_path)
    try:
        return plain and (os.access(value, os.R_OK) or not os.path.lexists(value))
    except ValueError:  # a NUL in it
        return False
