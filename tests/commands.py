"""What a command line left behind, as the `nugget` fixture (conftest.py) gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    """Exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON document that it has to be."""
        return json.loads(self.out)


Nugget = Callable[..., Result]
"""Runs a command line in this process."""
