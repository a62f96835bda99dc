"""The brain of a server, opened once and kept warm and current; MCP and HTTP share it. Also the resident server.

The resident server is one process with one model that serves MCP to all windows of a home and recalls units for
hooks. `nugget.infra.resident` starts it and pipes each client's bytes to it; it exits minutes after its last client.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.app import Brain, brains
from nugget.config import Environment, Settings, expanded, load_settings, read_environment
from nugget.errors import BrainError, IndexUnavailable, LLMUnavailable, NuggetError, UsageError
from nugget.evaluation.query_log import Face
from nugget.evidence.candidates import is_diagnostic
from nugget.infra import files, resident, system
from nugget.infra.embedding import Embedder
from nugget.infra.llm import LLM, DailyBudget, open_llm
from nugget.models import Bundle, Query, SourceName
from nugget.redaction import redact
from nugget.sources.notes import check_identity
from nugget.upkeep import find_brain

if TYPE_CHECKING:
    from nugget.models.nuggets import NuggetBundle

PATIENCE_S = 20.0
"""The time that a question waits for the first read of a brain."""
REVIEWED, RECORDS = (SourceName.BRAIN, SourceName.CANON), (SourceName.SESSIONS, SourceName.SHELL)
_BEHIND = frozenset({"index_behind", "vectors_behind"})
"""Values of `degraded` that a sync resolves."""
MIN_TOKEN_CHARS = 16
HEADER_FILE, _BEARER = "http-header", "Authorization: Bearer "
Serve = Callable[["AgentSession", asyncio.StreamReader, asyncio.StreamWriter, bool], Awaitable[None]]
"""Serve one client over its connection until it disconnects; the flag adds openqed's tools."""
_MAX_LINE_BYTES, _MOST_PROMPT_CHARS = 1 << 26, 8_000
_REQUEST_PATIENCE_S, _CHECK_S = 5.0, 2.0


class AgentSession:
    """A brain that stays open for agents, with the identity whose memory they may search. Thread-safe.

    Each question looks for a missing brain again, so the server need not be restarted after `nugget init`.
    """

    def __init__(
        self, *, flag: Path | None, environment: Environment, cwd: Path, face: Face = "mcp",
        identity: str | None = None,
    ) -> None:  # fmt: skip
        check_identity(identity)
        self.environment = environment
        self.cwd = cwd
        self.identity = identity
        self._flag = flag
        self._face: Face = face
        self._lock = threading.Lock()
        self._brain: Brain | None = None
        self._is_warm = threading.Event()
        self._catching_up: threading.Thread | None = None
        self._closed = threading.Event()

    def open(self) -> Brain:
        """Return the brain, and warm it up when it is first opened. Raises BrainError without a brain."""
        with self._lock:
            if self._brain is None:
                path = find_brain(self.environment, flag=self._flag, cwd=self.cwd)
                self._brain = Brain(path, environment=self.environment, face=self._face)
                if not (self._flag or self.environment.brain):
                    brains.join(self._brain)
                threading.Thread(target=self._warm_up, args=(self._brain,), name="nugget-warm-up", daemon=True).start()
            return self._brain

    def warm(self) -> None:
        """Open the brain in advance; errors surface on the first question."""
        _reported(self.open)

    def ready(self) -> Brain:
        """Return the brain once it has been read. Raises BrainError, or IndexUnavailable after `PATIENCE_S`."""
        brain = self.open()
        if not self._is_warm.wait(PATIENCE_S):
            hint = "Go on with the task, and ask again in a minute."
            raise IndexUnavailable("Nugget is reading this brain for the first time.", hint=hint)
        return brain

    @property
    def folder(self) -> Path | None:
        """The brain's folder; None until it is open and read."""
        return self._brain.path if self._brain is not None and self._is_warm.is_set() else None

    @property
    def is_of_a_team(self) -> bool:
        """True on a team's server."""
        return brains.serves_team(self._face, self.settings)

    @property
    def takes_notes(self) -> bool:
        """True if the user lets agents propose knowledge during a session."""
        return self._face == "mcp" and load_settings(self.environment).capture_notes

    @cached_property
    def settings(self) -> Settings:
        """The brain's settings at the first use; without a brain, the user's."""
        try:
            return load_settings(self.environment, find_brain(self.environment, flag=self._flag, cwd=self.cwd))
        except BrainError:
            return load_settings(self.environment)

    @cached_property
    def _budget(self) -> DailyBudget | None:
        if self._face != "http":
            return None
        return DailyBudget(self.environment.home, max_usd=self.settings.http_max_usd_per_day, face="http")

    def llm(self, brain: Brain | None = None) -> LLM | None:
        """Return the LLM of the brain's settings, limited to the server's daily budget; None without a key."""
        return open_llm(brain.settings if brain else self.settings, self.environment, budget=self._budget)

    def required_llm(self) -> LLM:
        """Return the LLM of the server's settings. Raises LLMUnavailable without a key."""
        if llm := self.llm():
            return llm
        if not self.settings.llm_enabled:
            raise LLMUnavailable("LLM calls are switched off.", hint="Set `llm.enabled: true`.")
        hint = "Start the server with ANTHROPIC_API_KEY set."
        raise LLMUnavailable("There is no key for the Anthropic API.", hint=hint)

    def ask(self, query: Query, *, with_llm: bool) -> Bundle:
        """Answer from the brain; an LLM writes the answer if one is configured and allowed."""
        brain, latest = self.ready(), self.latest_sessions(query)
        llm = self.llm(brain) if with_llm else None
        bundle = brain.ask(query, reranker=brain.reranker(llm) if with_llm and not latest else None, log=not latest)
        if llm is None:
            bundle = replace(bundle, degraded=(*bundle.degraded, "no_llm"))
        return self.caught_up(replace(bundle, answer=latest) if latest else brain.answer(bundle, llm))

    def latest_sessions(self, query: Query) -> str:
        """Return what a question without a subject asks for, such as "where were we"; empty on a team's server."""
        from nugget.app.logs import Logs

        logs = Logs(environment=self.environment, settings=self.settings)
        return "" if self.is_of_a_team else logs.latest_sessions(self.cwd, query)

    def consult(self, query: Query) -> Bundle:
        """Return passages for an agent, only those that are likely to help if the query names no source.

        Such a query searches written or reviewed sources, and sessions and shells too if it asks about a failure.
        """
        brain, sources = self.ready(), query.filter.sources
        usual = (*REVIEWED, *RECORDS) if is_diagnostic(query.text) else REVIEWED
        filter_ = replace(query.filter, sources=sources or usual)
        asked = replace(query, filter=filter_, identity=self.identity, only_helpful=not sources)
        return self.caught_up(brain.ask(asked, reranker=brain.reranker(self.llm(brain))))

    def explain_code(self, query: Query) -> NuggetBundle:
        """Explain a piece of code from its nuggets and, if there is a brain, its units. Raises NuggetError."""
        from nugget.app.provenance import Provenance

        if self.is_of_a_team:
            raise NuggetError("a team's server answers from its brain alone.")
        try:
            brain = self.ready()
        except UsageError:  # the brain in this folder is not trusted
            raise
        except NuggetError:
            brain = None
        return Provenance(environment=self.environment, folder=self.cwd, brain=brain, face="mcp").explain(query)

    def follow(self) -> None:
        """Pull what was merged on the remote; print failures on stderr."""
        _reported(lambda: self._bring_in(self.open(), if_due=False))

    def _bring_in(self, brain: Brain, *, if_due: bool) -> None:
        if brain.follow(if_due=if_due) is not None and self.is_of_a_team:
            brain.publish_index()  # a team's server keeps the team's index

    def caught_up(self, bundle: Bundle) -> Bundle:
        """Return the bundle, and start a sync in the background if it is incomplete."""
        brain = self.open()
        with self._lock:
            if _BEHIND & {*bundle.degraded} and not (self._catching_up and self._catching_up.is_alive()):
                self._catching_up = threading.Thread(
                    target=_reported, args=(lambda: (brain.sync(), brain.sync_local_sources()),),
                    name="nugget-catch-up", daemon=True,
                )  # fmt: skip
                self._catching_up.start()
        return bundle

    def close(self) -> None:
        """Close the brain."""
        self._closed.set()
        with self._lock:
            if self._brain is not None:
                self._brain.close()

    def _warm_up(self, brain: Brain) -> None:
        """Build the index if it is missing and ask once to load model, index and numpy; then follow the remote."""
        _reported(brain.refresh)
        self._is_warm.set()
        _reported(lambda: brain.ask(Query("What is known?", limit=1), fresh=False, log=False))
        if brain.settings.sync_pull:
            threading.Thread(target=self._follow, args=(brain,), name="nugget-follow", daemon=True).start()

    def _follow(self, brain: Brain) -> None:
        """Follow the remote until the session is closed, without delaying questions."""
        while not self._closed.is_set():
            for one in (brain, *brain.others):
                _reported(lambda one=one: self._bring_in(one, if_due=True))  # type: ignore[misc]
            self._closed.wait(files.FOLLOW_EVERY_S)


def _reported(work: Callable[[], object]) -> None:
    """Run background work; print failures on stderr."""
    try:
        work()
    except NuggetError as error:
        warn(error.with_hint)
    except Exception as error:
        print_traceback(error)


def warn(message: str) -> None:
    """Print a failure on stderr, redacted, since clients may keep their servers' stderr."""
    print(f"nugget: {redact(message).text}", file=sys.stderr)


def print_traceback(error: Exception) -> None:
    """Print the traceback of an unexpected error on stderr, without secrets."""
    warn("".join(traceback.format_exception(error)).rstrip())


def http_token(environment: Environment) -> str:
    """Return the token of NUGGET_HTTP_TOKEN, else the one in the header file, which is made if it is missing.

    A file that others could read or write is replaced. Raises UsageError for a chosen token that is too weak.
    """
    if chosen := environment.variables.get("NUGGET_HTTP_TOKEN", "").strip():
        if not _is_token(chosen):
            raise UsageError(
                f"NUGGET_HTTP_TOKEN must be {MIN_TOKEN_CHARS} or more plain characters without spaces.",
                hint="Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        return chosen
    file = environment.home / HEADER_FILE
    with files.locked(environment.home / "run" / "http-header.lock"):
        try:
            held = file.lstat()
            kept = file.read_text("ascii").removeprefix(_BEARER).strip() if stat.S_ISREG(held.st_mode) else ""
            is_private = held.st_uid == system.user_id() and not held.st_mode & system.OTHERS
        except (OSError, ValueError):
            kept, is_private = "", False
        if not (is_private and _is_token(kept)):
            kept = secrets.token_urlsafe(32)
            files.replace(file, f"{_BEARER}{kept}\n".encode())
    return kept


def _is_token(text: str) -> bool:
    return len(text) >= MIN_TOKEN_CHARS and text.isascii() and text.isprintable() and " " not in text


async def _serve_socket(file: Path, serve: Serve) -> None:
    """Serve windows and hooks on a socket until the last window has been closed for a while or the socket is gone."""
    sessions: list[AgentSession] = []
    last_window = time.monotonic()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal last_window
        try:
            request = json.loads(await asyncio.wait_for(reader.readline(), _REQUEST_PATIENCE_S))
            if "cwd" in request:
                await _serve_window(request, reader, writer, serve, sessions)
                last_window = time.monotonic()
            else:
                writer.write(json.dumps(await asyncio.to_thread(_recalled, request, [*sessions])).encode())
                await writer.drain()
        except (OSError, ValueError, TypeError, RecursionError, NuggetError):
            pass  # the client serves itself, or goes without an answer
        except Exception as error:
            print_traceback(error)
        finally:
            writer.close()

    listening = _listen(file)
    inode = file.lstat().st_ino
    server = await asyncio.start_server(answer, sock=listening, limit=_MAX_LINE_BYTES)
    while True:
        await asyncio.sleep(min(_CHECK_S, resident.idle_s()))
        is_ours = file.exists() and file.lstat().st_ino == inode
        if sessions:
            last_window = time.monotonic()
        elif not is_ours or time.monotonic() - last_window > resident.idle_s():
            break
    server.close()
    if is_ours:
        file.unlink(missing_ok=True)


async def _serve_window(
    window: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, serve: Serve,
    sessions: list[AgentSession],
) -> None:  # fmt: skip
    """Serve one window until it disconnects; meanwhile its session is among `sessions`."""
    own = dict.fromkeys(resident.WINDOW_VARIABLES, "") | window["variables"]
    environment = read_environment({**read_environment().variables, **own})
    folder, cwd = window.get("brain"), Path(window["cwd"])
    session = AgentSession(
        flag=cwd / expanded(folder) if folder else None,
        environment=environment, cwd=cwd, identity=window.get("identity"),
    )  # fmt: skip
    sessions.append(session)
    try:
        writer.write(resident.READY)
        await serve(session, reader, writer, "compat" in window)
    finally:
        sessions.remove(session)
        session.close()


def _recalled(question: dict[str, Any], sessions: Sequence[AgentSession]) -> dict[str, Any]:
    """Return `{"lines": [...]}` for `{"recall": prompt, "brains": {name: folder}, "folder": ...}`."""
    from nugget.upkeep.briefing import recalled

    embedders: list[Embedder] = []
    for session in sessions:
        with suppress(NuggetError):
            embedders += filter(None, [session.open().embedder])
    prompt, folder = question["recall"], question["folder"]
    if len(prompt) > _MOST_PROMPT_CHARS:
        return {}
    home, now, embedder = read_environment().home, datetime.now(UTC), next(iter(embedders), None)
    asked = {name: Path(path) for name, path in question["brains"].items()}
    return {"lines": recalled(home, prompt, asked, Path(folder), embedder=embedder, now=now)}


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


def run_resident(serve: Serve) -> None:
    """Run the server of the socket named on the command line, with its stderr in `$NUGGET_HOME/log/serve.log`."""
    home = read_environment().home
    os.chdir(home)
    with files.open_private(home / "log" / "serve.log", "w") as log, suppress(KeyboardInterrupt):
        sys.stderr = log
        asyncio.run(_serve_socket(Path(sys.argv[1]), serve))
