"""The brain of a server: opened when it is there, warmed up once and kept fresh. MCP and HTTP share it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.app.params import check_identity
from nugget.config import Environment, load_settings
from nugget.errors import IndexUnavailable, NuggetError, UsageError
from nugget.evaluation.query_log import Face
from nugget.models import Bundle, Depth, Query, SourceName
from nugget.upkeep.trust import find_brain

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.infra.llm import LLM, DailyBudget
    from nugget.provenance import CodeAnswer

PATIENCE_S = 20.0
"""Seconds that a question waits for a brain to be read for the first time."""
_BEHIND = frozenset({"index_behind", "vectors_behind"})
"""Parts of an answer that are missing until a sync."""


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
                self._brain = Brain(path, environment=self.environment, face=self._face)
                threading.Thread(target=self._warm_up, args=(self._brain,), name="nugget-warm-up", daemon=True).start()
            return self._brain

    def warm(self) -> None:
        """Open the brain in advance; errors surface on the first question."""
        _reported(self.open)

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

    def search(self, query: Query, sessions: Sequence[str], *, budget_tokens: int) -> Bundle:
        """Search the sources of a query, and pack the best hits of all into a budget.

        Of the source `sessions` only the given ones are searched, if there are any.
        """
        from nugget.retrieval.packing import pack

        brain, given = self.ready(), query.filter
        filters = [given]
        if sessions and SourceName.SESSIONS in given.sources:
            others = tuple(name for name in given.sources if name is not SourceName.SESSIONS)
            filters = [replace(given, sources=others)] if others else []
            filters.append(replace(given, sources=(SourceName.SESSIONS,), sessions=tuple(sessions)))
        bundles = [brain.search(replace(query, filter=one, identity=self.identity)) for one in filters]
        hits = sorted((hit for bundle in bundles for hit in bundle.hits), key=lambda hit: -hit.score)
        packed, used, hint = pack(hits, budget_tokens=budget_tokens, depth=query.depth or Depth.STANDARD)
        degraded = tuple(dict.fromkeys(reason for bundle in bundles for reason in bundle.degraded))
        weak = all(bundle.weak for bundle in bundles)
        return self.caught_up(
            replace(bundles[0], hits=packed, budget=used, more_context_hint=hint, degraded=degraded, weak=weak)
        )

    def explain_code(self, *, with_sessions: bool = False, **asked: Any) -> CodeAnswer:
        """Return what is known of a piece of code, with the brain's units if there is a brain. Raises NuggetError."""
        from nugget.app.provenance import explain_code

        try:
            brain = self.ready()
        except UsageError:  # the brain here is not trusted: nothing is looked at in its folder
            raise
        except NuggetError:
            brain = None
        return explain_code(
            asked, self.environment, brain.settings if brain else load_settings(self.environment), folder=self.cwd,
            face=Face.MCP, brain_index=brain.index if brain else None,
            embedder=(lambda: brain.embedder) if brain else None, with_sessions=with_sessions,
        )  # fmt: skip

    def caught_up(self, bundle: Bundle) -> Bundle:
        """Return the bundle, and sync in the background what it does not know yet."""
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
        """Let go of the brain. A warm-up or sync under way dies with the process, which is safe."""
        with self._lock:
            if self._brain is not None:
                self._brain.close()

    def _warm_up(self, brain: Brain) -> None:
        """Make the index if it is missing, then ask once, which loads the model, the index and numpy."""

        def note(what: str, done: int, total: int) -> None:
            self._reading = (done, total)

        _reported(lambda: brain.refresh(progress=note))
        self._is_warm.set()
        _reported(lambda: brain.ask(Query("What is known?", limit=1), fresh=False, log=False))


def _reported(work: Callable[[], object]) -> None:
    """Do work that nobody waits for; print what goes wrong on stderr."""
    try:
        work()
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
