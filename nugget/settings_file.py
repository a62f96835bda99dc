"""Parse YAML into nodes with line numbers: brain.yaml, config.yaml, frontmatter and golden questions.

No object is constructed, so tags, aliases and bombs in a hostile file have no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_CHARS = 256_000
"""Longer YAML is refused, unless the caller says otherwise."""
_MAX_BYTES = 64_000
"""Longer files of settings are refused."""
_MAX_DEPTH = 40
_DEEP_LINE = re.compile(rf"^[ \t?:-]{{{_MAX_DEPTH},}}", re.MULTILINE)
_YAML_ONLY_BREAKS = {0x85: " ", 0x2028: " ", 0x2029: " "}
"""Characters that end a line in YAML 1.1 and nowhere else; taken as spaces, so that lines are counted alike."""
NULL_TAG = "tag:yaml.org,2002:null"
Node = Any
"""A YAML node; `id` is `scalar`, `sequence` or `mapping`, and its marks count lines and columns from 0."""


class YAMLRefused(ValueError):
    """Invalid or oversized YAML; `line` counts from 1 and is None if no single line is at fault."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A value in a file of settings, as text or a list of texts, with the line of its key; None for an empty value."""

    value: Any
    line: int


def read_mapping(text: str, *, max_chars: int = MAX_CHARS) -> list[tuple[Node, Node]]:
    """Return the keys and values of a YAML text, none if it is empty. Raises YAMLRefused."""
    import yaml

    text = text.translate(_YAML_ONLY_BREAKS)
    if len(text) > max_chars:
        raise YAMLRefused(f"is longer than {max_chars:,} characters", 1)
    # libyaml would overflow the C stack on a text that is nested deep enough.
    is_deep = text.count("[") + text.count("{") > _MAX_DEPTH or _DEEP_LINE.search(text)
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
        raise YAMLRefused("is not valid YAML (a character that YAML does not take)", line) from None
    if node is None or node.tag == NULL_TAG:
        return []
    if node.id != "mapping":
        raise YAMLRefused("has no `key: value` lines", node.start_mark.line + 1)
    return list(node.value)


def read_entries(file: Path) -> dict[str, Entry]:
    """Return the dotted keys of a file of settings. Raises YAMLRefused.

    Only two levels of keys with texts and lists of texts are looked at, so aliases cannot multiply.
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
    value: Any = {}  # what no setting takes
    if node.id == "sequence":
        value = [part.value if part.id == "scalar" else {} for part in node.value]
    elif node.id == "scalar":
        value = None if node.tag == NULL_TAG else node.value
    return Entry(value=value, line=key.start_mark.line + 1)
