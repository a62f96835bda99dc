"""Files of settings: brain.yaml and the user's config.yaml, read as dotted keys with their lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 64_000
"""Longer files of settings are refused."""


class YAMLRefused(ValueError):
    """YAML that is broken or out of bounds; `line` counts from 1, None if no line is to blame."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A value in a file of settings, as text or a list of texts, with the line of its key; None for an empty value."""

    value: Any
    line: int


def read_entries(file: Path) -> dict[str, Entry]:
    """Return the dotted keys of a file of settings. Raises YAMLRefused.

    Only two levels of keys with texts and lists of texts are looked at, so aliases cannot multiply. The pure Python
    loader meets deep nesting with a RecursionError.
    """
    import yaml

    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader) if len(content) <= MAX_BYTES else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise YAMLRefused(f"not valid YAML ({error.problem})", line) from None
    except UnicodeDecodeError:
        raise YAMLRefused("cannot be read as YAML (it is not UTF-8 text)") from None
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise YAMLRefused(f"cannot be read as YAML ({error})") from None
    if len(content) > MAX_BYTES:
        raise YAMLRefused(f"longer than {MAX_BYTES:,} bytes")
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise YAMLRefused("expected `key: value` lines")
    found: dict[str, Entry] = {}
    for key, node in root.value if root else ():
        if node.id == "mapping":
            found |= {f"{_name(key)}.{_name(inner)}": _entry(inner, leaf) for inner, leaf in node.value}
        else:
            found[_name(key)] = _entry(key, node)
    return found


def _name(key: Any) -> str:
    return str(key.value) if key.id == "scalar" else "?"


def _entry(key: Any, node: Any) -> Entry:
    value: Any = {}  # what no setting takes
    if node.id == "sequence":
        value = [part.value if part.id == "scalar" else {} for part in node.value]
    elif node.id == "scalar" and node.tag != "tag:yaml.org,2002:null":
        value = node.value
    elif node.id == "scalar":
        value = None
    return Entry(value=value, line=key.start_mark.line + 1)
