"""How much at once: the length of a request, the memory of all bodies, the work under way and the work that waits.

What is too much is refused at once and politely (429 with Retry-After), so that what was taken is answered in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from nugget.http.replies import Refusal

if TYPE_CHECKING:
    from starlette.types import Message, Receive

MAX_TARGET_BYTES = 16_384
"""Path and query; a long text belongs into a body."""
MAX_HEAD_BYTES = 32_768
"""All headers; enough for any token and cookie that a browser sends along."""
HEAD_TOO_LARGE = f"The headers are longer than {MAX_HEAD_BYTES:,} bytes."
MAX_BODY_BYTES = 65_536
LARGER_BODIES: Mapping[str, int] = {"/mcp": 1_000_000, "/v1/completions": 8_000_000}
MAX_BUFFERED_BYTES = 64_000_000
"""All bodies that are in memory at the same time."""
BODY_TIMEOUT_S = 15.0
WAIT_TIMEOUT_S = 10.0
"""Work that waited longer than this is given up before it begins: its client has most likely gone."""

_T = TypeVar("_T")


def busy(retry_after_s: int = 1) -> Refusal:
    """The refusal of a server that has enough to do."""
    return Refusal(
        429, "busy", "The server has more to do than it can take.", hint="Try again in a moment.",
        headers={"retry-after": str(retry_after_s)},
    )  # fmt: skip


class Lane:
    """Threads for one kind of work, and a bounded number of places in front of them."""

    def __init__(self, name: str, *, workers: int, waiting: int) -> None:
        self.threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=f"nugget-{name}")
        self._places = workers + waiting
        self._taken = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the lane, for as long as the request takes. Raises Refusal where all are taken."""
        if self._taken >= self._places:
            raise busy()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do blocking work in one of the threads. Raises Refusal where too much waits already."""
        waits_since = time.monotonic()

        def begin() -> _T:
            if time.monotonic() - waits_since > WAIT_TIMEOUT_S:
                raise busy(retry_after_s=5)
            return work()

        with self.place():
            return await asyncio.get_running_loop().run_in_executor(self.threads, begin)

    @property
    def taken(self) -> int:
        """Requests that are worked on or wait."""
        return self._taken

    def close(self) -> None:
        """Take nothing more; what runs is left to end."""
        self.threads.shutdown(wait=False, cancel_futures=True)


class Bodies:
    """The bodies of all requests, read whole and held to a size, a time and a common memory."""

    def __init__(self) -> None:
        self._buffered = 0

    @contextmanager
    def counted(self) -> Iterator[Callable[[int], None]]:
        """A function that takes up bytes of the common memory until the block is left."""
        own = 0

        def take(size: int) -> None:
            nonlocal own
            if self._buffered + size > MAX_BUFFERED_BYTES:
                raise busy()
            self._buffered += size
            own += size

        try:
            yield take
        finally:
            self._buffered -= own


async def read_body(receive: Receive, take: Callable[[int], None], *, path: str, declared: str | None) -> bytes:
    """The whole body. `take` counts what is read; `declared` is the Content-Length. Raises Refusal."""
    most = LARGER_BODIES.get(path, MAX_BODY_BYTES)
    if declared and declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "disconnected", "The client left before its request was complete.")
                part = message.get("body", b"")
                if len(body) + len(part) > most:
                    raise _too_large(most)
                take(len(part))
                body += part
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(
            408, "request_timeout", f"The body did not arrive within {BODY_TIMEOUT_S:g} s.",
            hint="Send the request at once.", headers={"connection": "close"},
        ) from None  # fmt: skip


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, and then goes on with the real one."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def check_head(scope: Mapping[str, Any]) -> None:
    """Refuse a path and query, or headers, that are too long. Raises Refusal."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
        raise Refusal(
            414, "uri_too_long", f"The address is longer than {MAX_TARGET_BYTES:,} bytes.",
            hint="Ask with fewer words, or send them in a POST body.",
        )  # fmt: skip
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
        raise Refusal(431, "headers_too_large", HEAD_TOO_LARGE, hint="Send a long text in a POST body.")


def _too_large(most: int) -> Refusal:
    return Refusal(413, "body_too_large", f"The body is larger than {most:,} bytes.", hint="Send less at once.")
