"""The resident server: one process with one model serves MCP to all windows of one home.

`nugget.infra.resident` starts it and pipes each client's bytes to it. It also embeds questions for commands and
recalls units for hooks, and exits some minutes after its last window.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.app.agent_session import AgentSession, print_traceback
from nugget.config import expanded, read_environment
from nugget.errors import NuggetError
from nugget.infra import files, resident, system

ServeLines = Callable[[AgentSession, "Lines", bool], Awaitable[None]]
"""Serve one client over its lines until it disconnects; the flag adds openqed's tools."""
_MAX_LINE_BYTES = 1 << 26
_REQUEST_PATIENCE_S = 5.0
_CHECK_S = 2.0
_MOST_PROMPT_CHARS = 8_000


class Resident:
    """The server of one socket, for windows, commands and hooks."""

    def __init__(self, file: Path, serve: ServeLines) -> None:
        self._file = file
        self._serve = serve
        self._sessions: list[AgentSession] = []
        self._last_window = time.monotonic()

    async def run(self) -> None:
        """Answer until the last window has been closed for a while, or the socket is gone."""
        listening = _listen(self._file)
        inode = self._file.lstat().st_ino
        server = await asyncio.start_server(self._answer, sock=listening, limit=_MAX_LINE_BYTES)
        while True:
            await asyncio.sleep(min(_CHECK_S, resident.idle_s()))
            is_ours = self._file.exists() and self._file.lstat().st_ino == inode
            if self._sessions:
                self._last_window = time.monotonic()
            elif not is_ours or time.monotonic() - self._last_window > resident.idle_s():
                break
        server.close()
        if is_ours:
            self._file.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await asyncio.wait_for(reader.readline(), _REQUEST_PATIENCE_S))
            if "cwd" in request:
                await self._serve_window(request, reader, writer)
            else:
                answer = await asyncio.to_thread(self._answer_question, request)
                writer.write(json.dumps(answer).encode())
                await writer.drain()
        except (OSError, ValueError, TypeError, RecursionError, NuggetError):
            pass  # the client serves itself, or goes without an answer
        except Exception as error:
            print_traceback(error)
        finally:
            writer.close()

    async def _serve_window(
        self, window: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        own = dict.fromkeys(resident.WINDOW_VARIABLES, "") | window["variables"]
        environment = read_environment({**read_environment().variables, **own})
        folder, cwd = window.get("brain"), Path(window["cwd"])
        if window.get("compat") not in (None, "openqed"):
            return
        session = AgentSession(
            flag=cwd / expanded(folder) if folder else None,
            environment=environment, cwd=cwd, identity=window.get("identity"),
        )  # fmt: skip
        self._sessions.append(session)
        try:
            writer.write(resident.READY)
            await self._serve(session, Lines(reader, writer), "compat" in window)
        finally:
            self._sessions.remove(session)
            self._last_window = time.monotonic()
            session.close()

    def _answer_question(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return `{"lines": [...]}` for `{"recall": prompt, "brains": {name: folder}, "folder": ...}`."""
        from nugget.infra.embedding import Embedder
        from nugget.upkeep.briefing import recalled

        embedders: list[Embedder] = []
        for session in [*self._sessions]:
            with suppress(NuggetError):
                embedders += filter(None, [session.open().embedder])
        prompt, folder = question["recall"], question["folder"]
        if len(prompt) > _MOST_PROMPT_CHARS:
            return {}
        home, now, embedder = read_environment().home, datetime.now(UTC), next(iter(embedders), None)
        brains = {name: Path(path) for name, path in question["brains"].items()}
        return {"lines": recalled(home, prompt, brains, Path(folder), embedder=embedder, now=now)}


class Lines:
    """A connection as a text file of lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        if line := await self._reader.readline():
            return line.decode("utf-8", "replace")
        raise StopAsyncIteration

    async def write(self, text: str) -> None:
        """Send text with the next flush."""
        self._writer.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None:
        """Send what was written."""
        await self._writer.drain()


def _listen(file: Path) -> socket.socket:
    """Return a listening socket; its file appears only once it listens. Raises OSError."""
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    listening = system.unix_socket()
    listening.bind(str(partial))
    partial.chmod(0o600)
    listening.listen(64)
    partial.replace(file)
    return listening


def main(serve: ServeLines) -> None:
    """Run the server of the socket named on the command line; what it reports goes to `$NUGGET_HOME/log/serve.log`."""
    home = read_environment().home
    os.chdir(home)
    with files.open_private(home / "log" / "serve.log", "w") as log, suppress(KeyboardInterrupt):
        sys.stderr = log
        asyncio.run(Resident(Path(sys.argv[1]), serve).run())
