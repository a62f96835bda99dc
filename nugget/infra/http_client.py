"""Plain requests to servers that we know: JSON comes back, redirects are not followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nugget.errors import NuggetError

_MAX_REPLY_BYTES = 1_000_000


def send(
    url: str, content: bytes | None = None, headers: Mapping[str, str] | None = None, *, timeout_s: float
) -> tuple[int, Any]:
    """Send a GET, or a POST if there is content; return the status and the JSON of the reply, None for other replies.

    Raises NuggetError if the server cannot be reached or says too much.
    """
    import httpx

    try:
        with httpx.stream("GET" if content is None else "POST", url, content=content, headers=headers,
                          timeout=timeout_s) as reply:  # fmt: skip
            body = bytearray()
            for part in reply.iter_bytes():
                body += part
                if len(body) > _MAX_REPLY_BYTES:
                    raise NuggetError(f"The reply of {httpx.URL(url).host} is too long.")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NuggetError(f"{url.partition('?')[0]} cannot be reached ({error}).", hint="Try again.") from error
    try:
        return reply.status_code, json.loads(body)
    except ValueError:
        return reply.status_code, None
