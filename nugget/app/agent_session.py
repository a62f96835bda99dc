"""The brain of a server: opened when it is there, warmed up once and kept fresh. MCP and HTTP share it."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app.params import check_identity
from nugget.config import Environment
from nugget.errors import IndexUnavailable, NuggetError
from nugget.infra.brain_in_use import find_brain
from nugget.infra.query_log import Face
from nugget.models import Query

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.infra.llm import LLM, DailyBudget

PATIENCE_S = 20.0
"""Seconds that a question waits for a brain to be read for the first time."""


class AgentSession:
    """A brain that stays open for agents, with the identity whose memory they may search. Thread-safe.

    A brain that is not there yet is looked for at every question, so `nugget init` needs no restart of the server.
    """

    def __init__(
        self,
        *,
        flag: Path | None,
        environment: Environment,
        cwd: Path,
        face: Face = Face.MCP,
        identity: str | None = None,
        budget: DailyBudget | None = None,
    ) -> None:
        check_identity(identity)
        self.environment = environment
        self.cwd = cwd
        self.identity = identity
        self._flag = flag
        self._face = face
        self._budget = budget
        self._lock = threading.Lock()
        self._brain: Brain | None = None
        self._is_warm = threading.Event()
        self._reading = (0, 0)
        self._catching_up: threading.Thread | None = None

    def open(self) -> Brain:
        """Return the brain, and start its warm-up when it is first found. Raises BrainError if there is none."""
        from nugget.app import Brain

        with self._lock:
            if self._brain is None:
                path = find_brain(self.environment, flag=self._flag, cwd=self.cwd)
                self._brain = Brain(path, environment=self.environment, long_lived=True, face=self._face)
                threading.Thread(target=self._warm_up, args=(self._brain,), name="nugget-warm-up", daemon=True).start()
            return self._brain

    def warm(self) -> None:
        """Open the brain in advance; errors surface on the first question."""
        try:
            self.open()
        except NuggetError as error:
            warn(str(error))

    def ready(self) -> Brain:
        """Return the brain once it has been read. Raises BrainError, and IndexUnavailable if that takes too long."""
        brain = self.open()
        if not self._is_warm.wait(PATIENCE_S):
            done, total = self._reading
            progress = f" ({done} of {total} files)" if total else ""
            raise IndexUnavailable(
                f"Nugget is reading this brain for the first time{progress}.",
                hint="Go on with the task, and ask again in a minute.",
            )
        return brain

    @property
    def folder(self) -> Path | None:
        """The brain's folder; None until it is open and read."""
        return self._brain.path if self._brain is not None and self._is_warm.is_set() else None

    def llm(self, brain: Brain) -> LLM | None:
        """Return the LLM of the brain's settings, held to the server's daily budget."""
        from nugget.infra.llm import open_llm

        return open_llm(brain.settings, self.environment, budget=self._budget)

    def catch_up(self, *, beside: bool = False) -> None:
        """Sync in the background what is too much to wait for; with `beside` the other sources too."""
        brain = self.open()
        with self._lock:
            if self._catching_up is None or not self._catching_up.is_alive():
                self._catching_up = threading.Thread(
                    target=self._sync, args=(brain, beside), name="nugget-catch-up", daemon=True
                )
                self._catching_up.start()

    def close(self) -> None:
        """Let go of the brain. A warm-up or sync under way dies with the process, which is safe."""
        with self._lock:
            if self._brain is not None:
                self._brain.close()

    def _warm_up(self, brain: Brain) -> None:
        """Make the index if it is missing, then ask once, which loads the model, the index and numpy."""
        try:
            brain.refresh(progress=self._note_progress)
            self._is_warm.set()
            brain.ask(Query("What is known?", limit=1), fresh=False, log=False)
        except NuggetError as error:
            warn(str(error))
        except Exception as error:
            print_traceback(error)
        finally:
            self._is_warm.set()

    def _note_progress(self, what: str, done: int, total: int) -> None:
        self._reading = (done, total)

    def _sync(self, brain: Brain, beside: bool) -> None:
        try:
            brain.sync()
            if beside:
                brain.sync_local_sources()
        except NuggetError as error:
            warn(str(error))
        except Exception as error:
            print_traceback(error)


def warn(message: str) -> None:
    """Print a failure beside the answers on stderr, which a client may keep, without secrets."""
    from nugget.redaction import redact

    print(f"nugget: {redact(message).text}", file=sys.stderr)


def print_traceback(error: Exception) -> None:
    """Print the traceback of an unexpected error on stderr, without secrets."""
    warn("".join(traceback.format_exception(error)).rstrip())
