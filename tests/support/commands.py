"""What a command line left behind, as the `nugget` fixture (conftest.py) gives it; and the hook as a process."""

from __future__ import annotations

import json
import sys
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


PATIENT = [
    sys.executable,
    "-P",
    "-c",
    "from nugget import __main__, hooks; hooks._CONTEXT_S = 60; __main__.console()",
]
"""`nugget`, of which the hook says what it has to say also on a machine that is out of breath."""

Nugget = Callable[..., Result]
"""Runs a command line in this process."""
