"""Nugget: the memory layer for coding agents. Sessions become reviewed markdown; the right pieces come back.

import nugget
brain = nugget.open("~/brain")
bundle = brain.ask("how do we retry payments", limit=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nugget.app import Brain, open

__all__ = ["Brain", "__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("open", "Brain"):
        from nugget import app as api

        return getattr(api, name)
    raise AttributeError(f"module 'nugget' has no attribute {name!r}")
