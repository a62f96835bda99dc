"""The HTTP face, `nugget serve --http`: MCP and the endpoints of docs/http.md on one address."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.routing import Route

from nugget.app.agent_session import AgentSession
from nugget.config import Environment, Settings, load_settings, read_environment
from nugget.errors import BrainError, NuggetError
from nugget.evaluation.query_log import Face
from nugget.http.logs import LogApi
from nugget.http.routes import Server, make_app
from nugget.http.security import Address, Guard, access_for, curl_line, find_token, parse_address
from nugget.infra.llm import DailyBudget
from nugget.infra.server_socket import ServerSocket
from nugget.mcp import embedding_server
from nugget.mcp.server import make_server
from nugget.upkeep.trust import find_brain

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
    environment: Environment | None = None,
    cwd: Path | None = None,
    openqed: bool = False,
    identity: str | None = None,
    with_token: bool = True,
) -> None:
    """Answer over HTTP on `HOST:PORT` until SIGTERM or Ctrl-C.

    `brain` is the folder of `--brain`; without one the usual order of `find_brain` decides, at every question until
    there is a brain. `openqed` adds openqed's tools to MCP. `identity` is whose memory everybody who may ask can
    search. Raises UsageError for an address that is invalid or needs a token; NuggetError for one that is taken.
    """
    environment, cwd = environment or read_environment(), cwd or Path.cwd()
    wanted = parse_address(address)
    settings = _settings(brain, environment, cwd)
    token = find_token(environment.home, environment.http_token) if with_token else None
    access = access_for(wanted, token=token, allowed_hosts=settings.http.allowed_hosts)
    listening = _listen(wanted)
    heard = replace(wanted, port=listening.getsockname()[1])
    budget = DailyBudget(environment.home, max_usd=settings.http.max_usd_per_day, face="http")
    session = AgentSession(
        flag=brain, environment=environment, cwd=cwd, face=Face.HTTP, identity=identity, budget=budget
    )
    logs = LogApi(environment, settings)
    server = Server(
        session=session, environment=environment, settings=settings, logs=logs, budget=budget, identity=identity
    )
    mcp = make_server(session, openqed=openqed)
    # The SDK's own Host check is off (host="0.0.0.0"): the guard's knows about tokens and other names.
    mcp_app = mcp.streamable_http_app(json_response=True, stateless_http=True, host="0.0.0.0")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.session_manager.run():
            print(f"Nugget answers on {heard.url} (Ctrl-C ends it).", file=sys.stderr)
            print(_access_lines(heard, environment, settings, token), file=sys.stderr, flush=True)
            Thread(target=session.warm, name="nugget-open", daemon=True).start()
            listener = ServerSocket(environment.home, partial(embedding_server.answer, session=session))
            listener.start()
            if settings.http.backfill:
                logs.start_backfill()
            yield
            listener.stop()
            logs.stop()

    app = make_app(server, lifespan=lifespan)
    # POST alone: without sessions a GET would hold a stream open for nothing.
    app.router.routes.append(Route("/mcp", mcp_app.routes[0].app, methods=["POST"]))  # type: ignore[attr-defined]
    app.add_middleware(Guard, access=access)
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn ends in order, then hands the signal on
    try:
        _run(app, listening)
    finally:
        session.close()


def _run(app: Any, listening: socket.socket) -> None:
    """Run uvicorn on a socket that listens already, without its own words on stdout and stderr."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app, http="h11", ws="none", log_config=None, access_log=False, proxy_headers=False, server_header=False,
        lifespan="on", backlog=BACKLOG, limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=SHUTDOWN_S, h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


def _access_lines(address: Address, environment: Environment, settings: Settings, token: str | None) -> str:
    """Return how to ask, or what it opens that no token is needed."""
    if token is None:
        opened = "every program and every user of this machine can read what you know"
        if settings.llm.enabled and environment.anthropic_api_key:
            opened += f" and spend up to ${settings.http.max_usd_per_day:.2f} a day with your key"
        return f"No token is asked for: {opened}."
    return f"Ask it: {curl_line(address, environment.home, token=token, is_chosen=bool(environment.http_token))}"


def _settings(brain: Path | None, environment: Environment, cwd: Path) -> Settings:
    """Return the settings, even if there is no brain yet."""
    try:
        return load_settings(environment, find_brain(environment, flag=brain, cwd=cwd))
    except BrainError:
        return load_settings(environment)


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
