"""Fake secrets and look-alikes, and how much of a secret is left in a text."""

from __future__ import annotations

import json
from typing import Any

from paths import TESTS

CORPUS = TESTS / "redaction_corpus"


def corpus(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((CORPUS / f"{name}.json").read_text("utf-8"))
    return rows


def left_over(secret: str, text: str) -> bool:
    """Whether any run of 12 characters of the secret is still there."""
    size = min(12, len(secret))
    return any(secret[start : start + size] in text for start in range(len(secret) - size + 1))
