"""Serve MCP and the endpoints of docs/http.md on one address: `nugget serve --http`.

A web page can send requests to its visitor's loopback address, even under its own host name (DNS rebinding).
Therefore Host and Origin must be ours, and there is no CORS.
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
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders

from nugget.app.agent_session import HEADER_FILE, AgentSession, http_token
from nugget.app.logs import Logs
from nugget.app.team import MAX_SESSION_BYTES, usable_brains
from nugget.config import Environment, Settings, read_environment
from nugget.errors import BrainError, NuggetError, UsageError
from nugget.http.models import Refusal, bearer
from nugget.http.routes import make_app, mcp_route
from nugget.http.team import make_team_app
from nugget.mcp import make_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 5033
MAX_UNDER_WAY = 64
MAX_BODY_BYTES, MAX_COMPLETION_BYTES = 1_000_000, 8_000_000
OPEN_PATH = "/healthz"
"""The path that needs no token; without one, its reply is shorter."""

_HOST = r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))?(?::([0-9]{1,5}))?"
"""A host and a port, both optional."""
_ADDED = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_BACKLOG = 256


def guarded(
    app: ASGIApp, *, host: str, allowed_hosts: Sequence[str], token: str | None, limits: Mapping[str, int]
) -> ASGIApp:
    """Wrap an application in checks of access, body sizes and the number of concurrent requests.

    On a wildcard address every IP address is accepted as a Host, since no name can point to one.
    """
    ip, under_way = _ip(host), 0
    any_address = ip is not None and ip.is_unspecified
    own = socket.gethostname() if any_address else host
    hosts = frozenset(host.strip().lower().rstrip(".") for host in (*allowed_hosts, own))

    def check(headers: Headers, path: str) -> bool:
        """Check a request; return whether it has a valid token. Raises Refusal if it is not allowed."""
        host = headers.get("host", "")
        found = re.fullmatch(_HOST, host)
        name = (found[1] or found[2] or "").lower().rstrip(".") if found else ""
        if not (name in hosts or is_loopback(name) or (any_address and _ip(name))):
            hint = "Call it by localhost or by its address; `http.allowed_hosts` adds names."
            raise Refusal(421, "wrong_host", "This server does not answer to the Host of this request.", hint=hint)
        own = (None, f"http://{host}".lower(), f"https://{host}".lower())
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or headers.get("origin") not in own:
            hint = "Call it from a program, not from a browser."
            raise Refusal(403, "foreign_origin", "Web pages of another origin may not call this server.", hint=hint)
        given = bearer(headers)
        if token is None or (given and hmac.compare_digest(given.encode(), token.encode())):
            return True
        if path == OPEN_PATH:
            return False
        text = "This server asks for a bearer token, and this request has none or a wrong one."
        hint = "Send the header that the server named when it started."
        raise Refusal(401, "unauthorized", text, hint=hint, headers={"www-authenticate": 'Bearer realm="nugget"'})

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers, path, send = Headers(scope=scope), scope["path"], with_headers(send, _ADDED)
        limit = limits.get(path, MAX_BODY_BYTES)
        too_large = Refusal(413, "body_too_large", f"The body is larger than {limit:,} bytes.", hint="Send less.")
        try:
            knows_token = check(headers, path)
            if int(headers.get("content-length", 0)) > limit:
                raise too_large
            if under_way >= MAX_UNDER_WAY:
                busy, retry = "The server has more to do than it can take.", {"retry-after": "1"}
                raise Refusal(429, "busy", busy, hint="Try again in a moment.", headers=retry)
        except Refusal as refusal:
            await refusal.reply()(scope, receive, send)
            return
        scope.setdefault("state", {}).update(knows_token=knows_token, under_way=under_way)
        under_way += 1
        try:
            await app(scope, limited(receive, limit, too_large), send)
        finally:
            under_way -= 1

    return answer


def limited(receive: Receive, limit: int, too_large: Exception) -> Receive:
    """Return a channel that raises `too_large` once a body is longer than `limit` bytes."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise too_large
        return message

    return receive_limited


def with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a channel that adds these headers to a reply unless it has them."""

    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = MutableHeaders(scope=message)
            for name, value in headers.items():
                given.setdefault(name, value)
        await send(message)

    return send_marked


def check_token(host: str, token: str | None) -> None:
    """Raise UsageError if other machines can reach a host without a token."""
    if not is_loopback(host) and not token:
        hint = "Leave out --no-token, or listen on 127.0.0.1."
        raise UsageError(f"Other machines can reach {host}, so a token is needed.", hint=hint)


def parse_address(text: str | None) -> tuple[str, int]:
    """Parse `HOST:PORT`, `HOST`, `PORT` or `[IPV6]:PORT`; port 0 means any free port. Raises UsageError."""
    text = (text or "").strip()
    whole = f":{text}" if text.isdigit() else f"[{text}]" if _ip(text) and ":" in text else text
    found = re.fullmatch(_HOST, whole)
    if found is None or int(found[3] or 0) > 65535 or (found[1] and _ip(found[1]) is None):
        hint = f"Write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT}."
        raise UsageError(f"{text!r} is not an address.", hint=hint)
    return found[1] or found[2] or DEFAULT_HOST, int(found[3] or DEFAULT_PORT)


def is_loopback(host: str) -> bool:
    """Return True if a host is `localhost` or a loopback address."""
    ip = _ip(host)
    if ip is None:
        return host.lower().rstrip(".") == "localhost"
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def serve(
    address: str | None = None, *, brain: Path | None = None, openqed: bool = False, identity: str | None = None,
    with_token: bool = True,
) -> None:  # fmt: skip
    """Serve over HTTP on `HOST:PORT` until SIGTERM or Ctrl-C.

    `brain` is the folder of `--brain`; without it, each question looks for a brain in the usual order until one is
    found. `openqed` adds openqed's tools to MCP. Every caller can search the memory of `identity`. Raises UsageError
    if the address is invalid or needs a token, NuggetError if it is taken.
    """
    environment, (host, port) = read_environment(), parse_address(address)
    session = AgentSession(flag=brain, environment=environment, cwd=Path.cwd(), face="http", identity=identity)
    settings = session.settings
    token = http_token(environment) if with_token else None
    check_token(host, token)
    listening = listen(host, port)
    url = _url(host, listening)
    logs = Logs(environment=environment, settings=settings)
    mcp = make_server(session, openqed=openqed)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.session_manager.run():
            print(f"Nugget answers on {url} (Ctrl-C ends it).", file=sys.stderr)
            print(_access_line(url, session, token), file=sys.stderr, flush=True)
            Thread(target=session.warm, name="nugget-open", daemon=True).start()
            if settings.http_backfill:
                logs.start_backfill()
            yield
            session.close()

    app = make_app(session, logs, lifespan=lifespan)
    app.router.routes.append(mcp_route(mcp))
    app.add_middleware(guarded, host=host, allowed_hosts=settings.http_allowed_hosts, token=token,
                       limits={"/v1/completions": MAX_COMPLETION_BYTES})  # fmt: skip
    run(app, listening)


def serve_team(environment: Environment, settings: Settings, address: str | None) -> None:
    """Serve all spaces on `HOST:PORT` until SIGTERM or Ctrl-C. Raises UsageError, BrainError, NuggetError."""
    host, port = parse_address(address)
    brains, left_out = usable_brains(environment, settings)
    for sentence in left_out:
        print(f"nugget: not served: {sentence}", file=sys.stderr)
    if not brains:
        raise BrainError("There is no brain to serve.", hint="Run `nugget init`, or set `brains.folders`.")
    listening = listen(host, port)
    url = _url(host, listening)
    app = make_team_app(environment, settings, brains, url=(settings.http_public_url or url).rstrip("/"))
    # The guard checks Host, Origin and sizes; callers are identified behind it.
    app.add_middleware(guarded, host=host, allowed_hosts=settings.http_allowed_hosts, token=None,
                       limits={"/v1/sessions": MAX_SESSION_BYTES})  # fmt: skip
    print(f"Nugget serves the team on {url} (Ctrl-C ends it).", file=sys.stderr)
    print(f"Spaces: {', '.join(brains)}.", file=sys.stderr, flush=True)
    run(app, listening)


def run(app: Any, listening: socket.socket) -> None:
    """Run uvicorn on a listening socket, without its own output."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    server = uvicorn.Server(uvicorn.Config(
        app, http="h11", ws="none", log_config=None, access_log=False, proxy_headers=False, server_header=False,
        lifespan="on", backlog=_BACKLOG, limit_concurrency=256, timeout_keep_alive=15, timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=32_768,
    ))  # fmt: skip
    signal.signal(signal.SIGTERM, server.handle_exit)  # one before uvicorn has its own, and one that it passes on
    server.run(sockets=[listening])


def _access_line(url: str, session: AgentSession, token: str | None) -> str:
    """Return a `curl` command without the token itself, or a warning without a token."""
    environment = session.environment
    if token is None:
        spends = f" and spend up to ${session.settings.http_max_usd_per_day:.2f} a day with your key"
        opened = "every program and every user of this machine can read what you know"
        return f"No token is asked for: {opened}{spends if session.llm() else ''}."
    kept = shlex.quote(f"@{environment.home / HEADER_FILE}")
    header = '"Authorization: Bearer $NUGGET_HTTP_TOKEN"' if environment.variables.get("NUGGET_HTTP_TOKEN") else kept
    return f"Ask it: curl -H {header} '{url}/v1/search?q=cache'"


def _url(host: str, listening: socket.socket) -> str:
    """Return a server's address as a client writes it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises NuggetError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        text = f"Nugget cannot listen on {host}:{port} ({error.strerror or error})."
        if error.errno == errno.EADDRINUSE:
            text = f"Port {port} of {host} is taken by another program."
        hint = f"Name a free port of this machine, such as: nugget serve --http {DEFAULT_HOST}:{DEFAULT_PORT + 1}"
        raise NuggetError(text, hint=hint) from error
    # Without this, each reply waits 40 ms for an ACK; connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
