"""The HTTP face: `nugget serve --http`. Starlette and uvicorn, MCP and the endpoints of docs/http.md on one address.

Imported only to serve, so its modules may import Starlette, uvicorn and pydantic at their top.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from nugget.config import Environment, Settings, load_settings, read_environment
from nugget.errors import BrainError, NuggetError
from nugget.http.app import make_app
from nugget.http.connections import IDLE_TIMEOUT_S, Connection
from nugget.http.limits import MAX_HEAD_BYTES, Lane
from nugget.http.logs import LogDesk
from nugget.http.operations import Server, mcp_endpoint, operations_of
from nugget.http.security import Access, Address, access_for, parse_address
from nugget.infra.brain_in_use import find_brain
from nugget.infra.query_log import Face
from nugget.mcp.desk import Desk
from nugget.mcp.openqed import add_openqed_tools
from nugget.mcp.server import make_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["serve"]

BACKLOG = 256
SWITCH_S = 0.001
"""How long a thread that computes may keep the others waiting: with the usual 5 ms the slowest answers take twice as
long, since the thread that reads and writes waits for each of the others."""
SHUTDOWN_S = 5
"""How long answers under way may take to end after SIGTERM or Ctrl-C."""


def serve(
    address: str | None = None,
    *,
    brain: Path | None = None,
    environment: Environment | None = None,
    cwd: Path | None = None,
    openqed: bool = False,
    identity: str | None = None,
) -> None:
    """Answer over HTTP on `HOST:PORT` until SIGTERM or Ctrl-C.

    `brain` is the folder that was asked for (`--brain`); without one the usual order of `find_brain` decides, with
    every question anew until there is one. `openqed` adds openqed's tools to MCP; `identity` is
    whose memory may be asked for, by everybody who may ask; without one nobody's.
    Raises UsageError for an address that cannot be, or that needs a token; NuggetError where the address is taken.
    """
    environment = environment or read_environment()
    wanted = parse_address(address)
    settings = _settings(brain, environment, cwd or Path.cwd())
    access = access_for(wanted, token=environment.http_token, allowed_hosts=settings.http.allowed_hosts)
    listening = _listen(wanted)
    heard = replace(wanted, port=listening.getsockname()[1])
    server = Server(
        desk=Desk(
            flag=brain,
            environment=environment,
            cwd=cwd or Path.cwd(),
            face=Face.HTTP,
            identity=identity,
        ),
        environment=environment,
        settings=settings,
        logs=LogDesk(environment, settings),
        quick=Lane("quick", workers=4, waiting=60),
        slow=Lane("slow", workers=8, waiting=8),
        identity=identity,
    )
    sys.setswitchinterval(SWITCH_S)
    signal.signal(signal.SIGTERM, _end_quietly)
    try:
        _run(_application(server, access, heard, openqed=openqed), listening)
    finally:
        _close(server)


def _run(app: ASGIApp, listening: socket.socket) -> None:
    """Run uvicorn on a socket that listens already; without its own words on stdout and stderr, but for errors."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _application(server: Server, access: Access, address: Address, *, openqed: bool) -> ASGIApp:
    mcp = make_server(server.desk, server.quick.threads)
    if openqed:
        add_openqed_tools(mcp, server.desk.answer_code, server.quick.threads)
    # Their Host check is off (host="0.0.0.0"): ours has been passed, and knows about tokens and other names.
    mcp.streamable_http_app(json_response=True, stateless_http=True, host="0.0.0.0")

    @asynccontextmanager
    async def while_open() -> AsyncIterator[None]:
        async with mcp.session_manager.run():
            # Before anything starts that may have something to say: where it answers is always the first line.
            print(f"Nugget answers on {address.url} (Ctrl-C ends it).", file=sys.stderr, flush=True)
            Thread(target=server.desk.warm, name="nugget-open", daemon=True).start()
            server.start()
            yield
            server.stop()

    raw = {"/mcp": mcp_endpoint(server, mcp.session_manager.handle_request)}
    return make_app(operations_of(server), access=access, raw=raw, while_open=while_open)


def _settings(brain: Path | None, environment: Environment, cwd: Path) -> Settings:
    """The settings, also where there is no brain yet."""
    try:
        folder = find_brain(environment, flag=brain, cwd=cwd)
    except BrainError:
        return load_settings(environment)
    return load_settings(environment, folder)


def _listen(address: Address) -> socket.socket:
    """A socket that listens. Raises NuggetError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family = next((entry[0] for entry in found if entry[0] == family), found[0][0])
        # With the protocol named, asyncio sets TCP_NODELAY: without it each answer waits 40 ms for an ACK.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
    except OSError as error:
        raise _not_listening(address, error) from error
    return listening


def _not_listening(address: Address, error: OSError) -> NuggetError:
    import errno

    if error.errno == errno.EADDRINUSE:
        return NuggetError(
            f"Port {address.port} of {address.host} is taken by another program.",
            hint=f"End that one, or choose another port: nugget serve --http {address.host}:{address.port + 1}",
        )
    if error.errno == errno.EACCES:
        hint = "Choose a port from 1024 on."
        return NuggetError(f"Port {address.port} of {address.host} may not be used by you.", hint=hint)
    return NuggetError(
        f"{address.host}:{address.port} cannot be listened on ({error.strerror or error}).",
        hint="Choose an address of this machine, such as 127.0.0.1:5033.",
    )


def _end_quietly(*_: object) -> None:
    """uvicorn has ended in order when it hands SIGTERM on; nothing is left to do."""


def _close(server: Server) -> None:
    """Let go of everything. Work that still runs is left to die with the process: it is safe to kill."""
    server.quick.close()
    server.slow.close()
    server.desk.close()
