"""The HTTP face, `nugget serve --http`: MCP and the endpoints of docs/http.md on one address."""

from __future__ import annotations

import errno
import logging
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.routing import Route

from nugget.app.agent_session import AgentSession, header_file, http_token
from nugget.app.logs import Logs
from nugget.config import read_environment
from nugget.errors import NuggetError
from nugget.http.routes import make_app
from nugget.http.security import Address, Guard, access_for, parse_address
from nugget.mcp import make_server

__all__ = ["serve"]

BACKLOG = 256
MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 32_768
IDLE_TIMEOUT_S = 15
"""Between two requests on one connection."""
SHUTDOWN_S = 5
"""How long replies under way may take to end after SIGTERM or Ctrl-C."""


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
    listening = _listen(wanted)
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
            logs.stopping.set()
            session.close()

    app = make_app(session, logs, lifespan=lifespan)
    # POST alone: without sessions a GET would hold a stream open for nothing.
    app.router.routes.append(Route("/mcp", mcp_app.routes[0].app, methods=["POST"]))  # type: ignore[attr-defined]
    app.add_middleware(Guard, access=access)
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn ends in order, then hands the signal on
    _run(app, listening)


def _run(app: Any, listening: socket.socket) -> None:
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


def _listen(address: Address) -> socket.socket:
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
