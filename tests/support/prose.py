"""Texts of a known number of words and sentences, and texts without their white space."""

from __future__ import annotations

import re


def words(count: int, stem: str = "word") -> str:
    return " ".join(f"{stem}{number}" for number in range(count))


def sentences(count: int, stem: str = "Sentence") -> str:
    return " ".join(f"{stem} number {number} says a thing." for number in range(count))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)
