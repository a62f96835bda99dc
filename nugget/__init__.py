"""Nugget: the memory layer for coding agents. Sessions become reviewed markdown; the right pieces come back.

import nugget
with nugget.open("~/brain") as brain:
    bundle = brain.ask(nugget.Query("how do we retry payments", limit=5))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nugget import errors
    from nugget.app import Brain, open
    from nugget.errors import NuggetError
    from nugget.models import Bundle, Filter, Hit, Query, Unit

__all__ = ["Brain", "Bundle", "Filter", "Hit", "NuggetError", "Query", "Unit", "__version__", "errors", "open"]
__version__ = "0.2.0"

_PLACES = {"open": "app", "Brain": "app", "NuggetError": "errors"} | dict.fromkeys(
    ("Bundle", "Filter", "Hit", "Query", "Unit"), "models"
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a hook pays for none of them."""
    if name == "errors":
        return import_module("nugget.errors")
    if name in _PLACES:
        return getattr(import_module(f"nugget.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'nugget' has no attribute {name!r}")
