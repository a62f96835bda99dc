"""The HTTP face, `nugget serve --http`: MCP and the endpoints of docs/http.md on one address.

A web page can send requests to the loopback of whoever visits it, and can point a name of its own there (DNS
rebinding). So the Host must be one of ours, an Origin must be our own, and there is no CORS.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import logging
import re
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.datastructures import Headers
from starlette.routing import Route

from nugget.app.agent_session import AgentSession, header_file, http_token
from nugget.app.logs import Logs
from nugget.config import read_environment
from nugget.errors import NuggetError, UsageError
from nugget.http.models import Refusal
from nugget.http.routes import make_app
from nugget.mcp import make_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 5033
MAX_UNDER_WAY = 64
MAX_BODY_BYTES, MAX_COMPLETION_BYTES = 1_000_000, 8_000_000
OPEN_PATHS = ("/healthz",)
"""Paths that answer without a token, with less in the reply."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))?(?::([0-9]{1,5}))?")
"""A host and its port, both of which may be missing."""
_ADDED = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


BACKLOG = 256
MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 32_768
IDLE_TIMEOUT_S = 15
"""Between two requests on one connection."""
SHUTDOWN_S = 5
"""How long replies under way may take to end after SIGTERM or Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of the server; port 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The address as a client writes it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules. With `any_address` every IP address is accepted as a Host, since no name can point to one."""

    hosts: frozenset[str]
    any_address: bool = False
    token: str | None = None

    def check(self, headers: Headers, path: str) -> bool:
        """Return False for a request without a token to an open path. Raises Refusal for one that may not pass."""
        host = headers.get("host", "")
        found = _HOST.fullmatch(host)
        name = (found[1] or found[2] or "").lower().rstrip(".") if found else ""
        is_known = name in self.hosts or is_loopback(name) or (self.any_address and _ip(name) is not None)
        if not name or not is_known:
            hint = "Call it by localhost or by its address; `http.allowed_hosts` adds names."
            raise Refusal(421, "wrong_host", "This server does not answer to the Host of this request.", hint=hint)
        if not _is_own_origin(headers, host):
            hint = "Call it from a program, not from a browser."
            raise Refusal(403, "foreign_origin", "Web pages of another origin may not call this server.", hint=hint)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_same = hmac.compare_digest(given.strip().encode(), (self.token or "").encode())
        if self.token is None or (scheme.lower() == "bearer" and is_same):
            return True
        if path in OPEN_PATHS:
            return False
        raise Refusal(
            401, "unauthorized", "This server asks for a bearer token, and this request has none or a wrong one.",
            hint="Send the header that the server named when it started.",
            headers={"www-authenticate": 'Bearer realm="nugget"'},
        )  # fmt: skip


class Guard:
    """ASGI middleware that every request passes: access, size, and the number of requests under way."""

    def __init__(self, app: ASGIApp, *, access: Access, limits: Mapping[str, int]) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        headers, path, received = Headers(scope=scope), scope["path"], 0
        limit = self._limits.get(path, MAX_BODY_BYTES)

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(413, f"The body is larger than {limit:,} bytes")
            return message

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ADDED]
            await send(message)

        try:
            knows_token = self._access.check(headers, path)
            if int(headers.get("content-length", 0)) > limit:
                raise Refusal(413, "body_too_large", f"The body is larger than {limit:,} bytes.", hint="Send less.")
            if self.under_way >= MAX_UNDER_WAY:
                busy = "The server has more to do than it can take."
                raise Refusal(429, "busy", busy, hint="Try again in a moment.", headers={"retry-after": "1"})
        except Refusal as refusal:
            await refusal.reply()(scope, receive, send_marked)
            return
        scope.setdefault("state", {}).update(knows_token=knows_token, under_way=self.under_way)
        self.under_way += 1
        try:
            await self._app(scope, receive_limited, send_marked)
        finally:
            self.under_way -= 1


def access_for(address: Address, *, token: str | None, allowed_hosts: Sequence[str]) -> Access:
    """Return who may ask at an address. Raises UsageError if others can reach it and there is no token."""
    if not address.is_loopback and not token:
        hint = "Leave out --no-token, or listen on 127.0.0.1."
        raise UsageError(f"Other machines can reach {address.host}, so a token is needed.", hint=hint)
    ip = _ip(address.host)
    is_wildcard = ip is not None and ip.is_unspecified
    own = socket.gethostname() if is_wildcard else address.host
    hosts = frozenset(host.strip().lower().rstrip(".") for host in (*allowed_hosts, own))
    return Access(hosts=hosts, any_address=is_wildcard, token=token)


def parse_address(text: str | None) -> Address:
    """Parse `HOST:PORT`, `HOST`, `PORT` or `[IPV6]:PORT`. Raises UsageError."""
    text = (text or "").strip()
    whole = f":{text}" if text.isdigit() else f"[{text}]" if ":" in text and _ip(text) else text
    found = _HOST.fullmatch(whole)
    if found is None or int(found[3] or 0) > 65535 or (found[1] and _ip(found[1]) is None):
        hint = f"Write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT}."
        raise UsageError(f"{text!r} is not an address.", hint=hint)
    return Address(host=found[1] or found[2] or DEFAULT_HOST, port=int(found[3] or DEFAULT_PORT))


def is_loopback(host: str) -> bool:
    """Return True if a name or an address means this machine alone."""
    ip = _ip(host)
    if ip is None:
        return host.lower().rstrip(".") == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def _is_own_origin(headers: Headers, host: str) -> bool:
    """Return True unless a page of another origin sent the request."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    try:
        parts = urlsplit(origin or "")
    except ValueError:
        return False
    return origin is None or (parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower())


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def serve(
    address: str | None = None,
    *,
    brain: Path | None = None,
    openqed: bool = False,
    identity: str | None = None,
    with_token: bool = True,
) -> None:
    """Answer over HTTP on `HOST:PORT` until SIGTERM or Ctrl-C.

    `brain` is the folder of `--brain`; without one the usual order of `find_brain` decides, at every question until
    there is a brain. `openqed` adds openqed's tools to MCP. `identity` is whose memory everybody who may ask can
    search. Raises UsageError for an address that is invalid or needs a token; NuggetError for one that is taken.
    """
    environment, wanted = read_environment(), parse_address(address)
    session = AgentSession(flag=brain, environment=environment, cwd=Path.cwd(), face="http", identity=identity)
    settings = session.settings
    token = http_token(environment) if with_token else None
    access = access_for(wanted, token=token, allowed_hosts=settings.http.allowed_hosts)
    listening = listen(wanted)
    heard = replace(wanted, port=listening.getsockname()[1])
    logs = Logs(environment=environment, settings=settings)
    mcp = make_server(session, openqed=openqed)
    # The SDK's own Host check is off (host="0.0.0.0"): the guard's knows about tokens and other names.
    mcp_app = mcp.streamable_http_app(json_response=True, stateless_http=True, host="0.0.0.0")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.session_manager.run():
            print(f"Nugget answers on {heard.url} (Ctrl-C ends it).", file=sys.stderr)
            print(_access_line(heard, session, token), file=sys.stderr, flush=True)
            Thread(target=session.warm, name="nugget-open", daemon=True).start()
            if settings.http.backfill:
                logs.start_backfill()
            yield
            session.close()

    app = make_app(session, logs, lifespan=lifespan)
    # POST alone: without sessions a GET would hold a stream open for nothing.
    app.router.routes.append(Route("/mcp", mcp_app.routes[0].app, methods=["POST"]))  # type: ignore[attr-defined]
    app.add_middleware(Guard, access=access, limits={"/v1/completions": MAX_COMPLETION_BYTES})
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn ends in order, then hands the signal on
    run(app, listening)


def run(app: Any, listening: socket.socket) -> None:
    """Run uvicorn on a socket that listens already, without its own words on stdout and stderr."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app, http="h11", ws="none", log_config=None, access_log=False, proxy_headers=False, server_header=False,
        lifespan="on", backlog=BACKLOG, limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=SHUTDOWN_S, h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


def _access_line(address: Address, session: AgentSession, token: str | None) -> str:
    """Return how to ask, without the token itself, or what it opens that no token is needed."""
    environment = session.environment
    if token is None:
        opened = "every program and every user of this machine can read what you know"
        if session.llm():
            opened += f" and spend up to ${session.settings.http.max_usd_per_day:.2f} a day with your key"
        return f"No token is asked for: {opened}."
    kept = shlex.quote(f"@{header_file(environment.home)}")
    header = '"Authorization: Bearer $NUGGET_HTTP_TOKEN"' if environment.http_token else kept
    return f"Ask it: curl -H {header} '{address.url}/v1/search?q=cache'"


def listen(address: Address) -> socket.socket:
    """Return a socket that listens. Raises NuggetError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listening = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise NuggetError(
                f"Port {address.port} of {address.host} is taken by another program.",
                hint=f"End that one, or choose another port: nugget serve --http {address.host}:{address.port + 1}",
            ) from error
        raise NuggetError(
            f"Nugget cannot listen on {address.host}:{address.port} ({error.strerror or error}).",
            hint="Choose an address of this machine and a port from 1024 on, such as 127.0.0.1:5033.",
        ) from error
    # Without this each reply waits 40 ms for an ACK; connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
