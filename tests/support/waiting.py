"""Deadlines and limits that a slow or busy machine keeps as well."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 120.0
"""Far longer than anything takes: it ends a test that would hang, and is no measure of speed."""

_REFERENCE_S = 0.0035
"""What `_work` takes on a machine for which the limits of processor time are meant."""


def wait_for(condition: Callable[[], object], said: str = "it did not come about in time") -> None:
    """Look again and again until the condition is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, said
        time.sleep(0.02)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The block takes at most so long by the clock on the wall: for what would otherwise take far longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def slowness() -> float:
    """How many times as long as on the reference machine plain Python takes here and now; at least 1."""
    taken = []
    for _ in range(7):
        began = time.process_time()
        _work()
        taken.append(time.process_time() - began)
    return max(1.0, statistics.median(taken) / _REFERENCE_S)


def _work() -> object:
    text = "".join(f"src/module_{number % 50}.py:{number}:value = {number}\n" for number in range(2000))
    found = [match[1] for match in re.finditer(r"(\w+)\.py:(\d+)", text)]
    counts: dict[str, int] = {}
    for name in found:
        counts[name] = counts.get(name, 0) + 1
    return json.loads(json.dumps(sorted((name, len(name)) for name in found)))
