"""Contents of a file before and after an edit, as hashes, as far as a transcript shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

MAX_CHARS = 8_000_000
"""A longer file is not hashed: nobody edits one by hand, and a transcript may repeat it for every edit."""


def content_hash(content: str | bytes) -> str:
    """The SHA-256 (hex) of a file's content; a text is taken as UTF-8."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()


def line_hash(line: str) -> str:
    """The first 16 hex digits of the SHA-256 of a line, without space at its ends."""
    return hashlib.sha256(line.strip().encode("utf-8", "replace")).hexdigest()[:16]


def apply_edit(content: str, before: str, after: str, *, everywhere: bool = False) -> str | None:
    """The content with `before` replaced by `after`, None where `before` does not stand in it.

    As Claude Code does it: to delete lines deletes the line end behind them too.
    """
    if before not in content or not before:
        return after if not before and not content else None
    if not after and not before.endswith("\n") and before + "\n" in content:
        before += "\n"
    return content.replace(before, after) if everywhere else content.replace(before, after, 1)


def edited_hashes(
    original: str | None, edits: Sequence[tuple[str | None, str]], details: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """The hashes of a file before and after a call's edits; None for one that is not known or was not there.

    `original` is what the file held, empty where it was not there, None where that is not known. An edit without a
    text to replace gives the whole file. `details` is the tool's structured result.
    """
    if original is not None and len(original) > MAX_CHARS:
        return None, None
    content = original
    for before, after in edits:
        if before is None:
            content = after if "cell_type" not in details and "new_source" not in details else None
        elif content is not None:
            content = apply_edit(content, before, after, everywhere=details.get("replaceAll") is True)
        if content is None or len(content) > MAX_CHARS:
            content = None
    whole = details.get("updated_file")
    if isinstance(whole, str) and len(whole) <= MAX_CHARS:
        content = whole
    return content_hash(original) if original else None, content_hash(content) if content is not None else None
