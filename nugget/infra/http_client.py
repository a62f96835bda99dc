"""Plain requests to known servers; redirects are not followed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

_MAX_REPLY_BYTES, _ATTEMPTS = 64_000_000, 4
NOT_PACKED = {"accept-encoding": "identity"}
"""Bodies are read as they come, since a few bytes can unpack to more than the memory holds."""
_RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
UNTRUSTED = "its certificate is not trusted{}; SSL_CERT_FILE can name the file of your own authority"
THIS_MACHINE = "localhost", "127.0.0.1", "::1"


def parts_of(url: str | None) -> SplitResult:
    """Return the parts of an address, all of them empty if it cannot be parsed."""
    try:
        parts = urlsplit(url or "")
        _ = parts.port
        return parts
    except ValueError:  # a bracket without its other half, or a port that is none
        return urlsplit("")


def is_private(url: str) -> bool:
    """Return whether what is sent to an address is encrypted or stays on this machine."""
    parts = parts_of(url)
    is_here = parts.scheme == "http" and parts.hostname in THIS_MACHINE
    return is_here or (parts.scheme == "https" and bool(parts.hostname))


def send(url: str, body: object, headers: Mapping[str, str], *, until: float) -> tuple[int, bytes]:
    """Send a POST of bytes or JSON, or a GET for None; retry as the server asks while it is overloaded.

    Returns the last status and reply. Raises TimeoutError at `until`, a value of time.monotonic; ConnectionRefusedError
    if nothing could be sent, ConnectionError if the connection failed later, ValueError for a reply without end.
    """
    import httpx

    wait_s = 0.0
    try:
        with httpx.Client(headers={**headers, **NOT_PACKED}, follow_redirects=False) as client:
            for attempt in range(1, _ATTEMPTS + 1):
                time.sleep(wait_s)
                left_s = max(until - time.monotonic(), 0.001)
                timeout = httpx.Timeout(left_s, connect=min(left_s, 5.0))
                sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
                with client.stream("GET" if body is None else "POST", url, timeout=timeout, **sent) as reply:
                    content = b"".join(bounded(reply.iter_raw(), until=until))
                retry_after = reply.headers.get("retry-after", "")
                wait_s = float(retry_after) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", retry_after) else 0.5 * 2**attempt
                if reply.status_code not in _RETRIED or time.monotonic() + wait_s >= until:
                    break
    except httpx.TimeoutException as error:
        raise TimeoutError from error
    except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConnectionRefusedError(tls_problem(error) or str(error)) from error
    except httpx.HTTPError as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
    return reply.status_code, content


def tls_problem(error: BaseException | None) -> str:
    """Return a sentence for an untrusted certificate, else an empty string."""
    import ssl

    while error:
        if isinstance(error, ssl.SSLCertVerificationError):
            return UNTRUSTED.format(f": {error.verify_message}")
        error = error.__cause__ or error.__context__
    return ""


def bounded(parts: Iterable[bytes], *, until: float) -> Iterator[bytes]:
    """Yield the parts of a body. Raises TimeoutError at `until`, ValueError for a body without end."""
    size = 0
    for part in parts:
        size += len(part)
        if time.monotonic() > until:
            raise TimeoutError("it takes too long")
        if size > _MAX_REPLY_BYTES:
            raise ValueError("a reply without end")
        yield part
