"""What a command line left behind, as the `nugget` fixture (conftest.py) gives it; and the hook as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from paths import REPOSITORY
from waiting import PATIENCE_S


class Result(NamedTuple):
    """Exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON document that it has to be."""
        return json.loads(self.out)


_PATIENT = "from nugget import __main__, hooks; hooks._CONTEXT_S = 60; __main__.console()"
"""`nugget`, of which the hook says what it has to say also on a machine that is out of breath."""


def hook(payload: object, *flags: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """The hook of a client as a process of its own, with this on stdin."""
    return subprocess.run(
        [sys.executable, "-P", "-c", _PATIENT, "capture-session", *flags],
        input=payload if isinstance(payload, bytes) else json.dumps(payload).encode(), capture_output=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


Nugget = Callable[..., Result]
"""Runs a command line in this process."""
