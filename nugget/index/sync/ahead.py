"""Making the next thing in a thread while the last one is being used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def one_ahead(values: Iterable[T]) -> Iterator[T]:
    """The same values, each made in a thread while the one before it is being used."""
    ready: Queue[tuple[T | None, BaseException | None]] = Queue(maxsize=1)
    stopped = False

    def make() -> None:
        try:
            for value in values:
                if stopped:
                    return
                ready.put((value, None))
            ready.put((None, None))
        except BaseException as error:  # handed to the consumer, where it is raised
            ready.put((None, error))

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            value, error = ready.get()
            if error:
                raise error
            if value is None:
                return
            yield value
    finally:
        stopped = True
        while thread.is_alive():
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)
