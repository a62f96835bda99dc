"""YAML files of settings, read with bounds: not too long, not too deep, no aliases and tags, plain values only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MAX_CHARS = 256_000
"""Longer YAML is refused."""

MAX_DEPTH = 40
"""Deeper nesting is refused."""

MAX_PLAIN_CHARS = 2_000
"""A longer value without quotes is refused: as a number, Python could not print it."""


class YAMLRefused(ValueError):
    """YAML that is broken or out of bounds; `line` counts from 1, None where no line is to blame."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def load(file: Path) -> object:
    """The value of a YAML file. Raises YAMLRefused for what cannot be read, is broken or out of bounds."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with file.open("rb") as opened:
            content = opened.read(4 * MAX_CHARS + 1)
        text = content.decode("utf-8-sig")
        if len(text) > MAX_CHARS:
            raise YAMLRefused(f"longer than {MAX_CHARS:,} characters")
        check(text, loader, is_plain=True)
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise YAMLRefused(f"not valid YAML ({error.problem})", line) from None
    except YAMLRefused:
        raise
    except UnicodeDecodeError:
        raise YAMLRefused("cannot be read as YAML (it is no UTF-8 text)") from None
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:  # ValueError: a date that is none
        raise YAMLRefused(f"cannot be read as YAML ({error})") from None


def check(text: str, loader: Any, *, is_plain: bool) -> None:
    """Raise YAMLRefused where YAML is nested too deep.

    With `is_plain`, for YAML that is constructed, also where it has an alias, which can stand for a thousandfold, a
    tag (PyYAML makes an IndexError of `!!int ""`) or a number without end. By its events: libyaml's composer recurses
    on the C stack and crashes the process on deep nesting.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else None
        if depth > MAX_DEPTH:
            raise YAMLRefused(f"nested more than {MAX_DEPTH} levels deep", line)
        if reason := _reason_against(event) if is_plain else None:
            raise YAMLRefused(reason, line)


def _reason_against(event: Any) -> str | None:
    """Why an event cannot stand in YAML that is constructed, None where it can."""
    import yaml

    if isinstance(event, yaml.AliasEvent):
        return "has an alias (`*name`), which is not taken; write the value out"
    if getattr(event, "tag", None):
        return "has a tag (`!name`), which is not taken; write the value without it"
    if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and len(event.value) > MAX_PLAIN_CHARS:
        return f"has a value of more than {MAX_PLAIN_CHARS:,} characters; put it in quotes"
    return None
