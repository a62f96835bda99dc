"""Deadlines and limits that a slow or busy machine keeps as well."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 120.0
"""Far longer than anything takes: it ends a test that would hang, and is no measure of speed."""


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
