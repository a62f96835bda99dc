"""One connection: HTTP/1.1 by h11, with the deadlines and the number of connections that uvicorn leaves open.

uvicorn ends a connection that is idle between two requests. What is added here: a head that does not arrive, a reader
that does not read, a body that nobody wants, too many connections at once, and errors as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nugget.http.limits import HEAD_TOO_LARGE
from nugget.http.replies import error_body

HEAD_TIMEOUT_S = 10.0
"""From the connection, or the first byte of a further request, to the end of its headers."""
IDLE_TIMEOUT_S = 15
"""Between two requests on one connection."""
UNREAD_TIMEOUT_S = 30.0
"""How long an answer may wait for a client that does not take it."""
UNWANTED_TIMEOUT_S = 2.0
"""How long the rest of a refused body is read and thrown away, so that the client reads the refusal."""
MAX_CONNECTIONS = 256

_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 429: b"Too Many Requests", 431: b"Headers Too Large"}


class Connection(H11Protocol):
    """uvicorn's protocol with deadlines. One is made for each connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or refuse the one that is too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(429, "too_many_connections", "Too many connections are open.", "Try again in a second.")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every clock."""
        for timer in (self._head_timer, self._end_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read on; a head that has begun has to end."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_awaiting_head()
        elif self._head_timer is None and self.conn.trailing_data[0] and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        """Go on with the next request; where the body of this one is still coming, not for long."""
        if self.conn.their_state is h11.SEND_BODY:
            self._end_timer = self.loop.call_later(UNWANTED_TIMEOUT_S, self._end_unless_read)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read: give it a while."""
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request. `msg` is uvicorn's sentence; ours says what is too long."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        if status == 431:
            self._refuse(431, "headers_too_large", HEAD_TOO_LARGE, "Send a long text in a POST body.")
        else:
            self._refuse(400, "bad_request", "This is no HTTP/1.1 request.", None)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _stop_awaiting_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            said = f"The headers did not arrive within {HEAD_TIMEOUT_S:g} s."
            self._refuse(408, "request_timeout", said, "Send the request at once.")

    def _end_unless_read(self) -> None:
        self._end_timer = None
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str, hint: str | None) -> None:
        """Answer without the application, and close."""
        body = json.dumps(error_body(code, message, hint)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *([(b"retry-after", b"1")] if status == 429 else []),
        ]
        with suppress(h11.LocalProtocolError):  # in the middle of another answer nothing can be said
            head = h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b"Refused"))
            sent = [self.conn.send(event) for event in (head, h11.Data(data=body), h11.EndOfMessage())]
            self.transport.write(b"".join(part or b"" for part in sent))
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application may be at work on an answer, which has no place any more
        self.transport.close()
