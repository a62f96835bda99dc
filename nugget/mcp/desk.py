"""Where agents' questions are answered: one brain, found when it is there, warmed once and kept fresh.

The MCP and HTTP faces put their questions here.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from nugget.config import Environment
from nugget.errors import BrainError, IndexUnavailable, NuggetError, UsageError
from nugget.infra.brain_in_use import find_brain
from nugget.infra.query_log import Face
from nugget.mcp.agent_code import answer_agent, code_part
from nugget.mcp.source_answers import LEAST_TOKENS, Place, answer_beyond, is_beyond_the_brain
from nugget.models import KnowledgeType
from nugget.nuggets import NuggetQuery, NuggetType
from nugget.render import MAX_CHARS, bundle_markdown

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.provenance.answering import CodeAnswer

MAX_BUDGET_TOKENS = 10_000
LARGEST_CHARS = 49_000
"""Claude Code puts results of more than 50,000 characters into a file and shows the first 2 KB of it."""

MAX_QUESTION_CHARS = 8_000
MAX_NAME_CHARS = 1_000
"""Of any other argument: a longer one names nothing, and an answer that repeats it would drown."""

PATIENCE_S = 20.0
"""How long a question waits for the first reading of a brain, before it is told to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The arguments of one call, as they came."""

    text: str
    path: str | None = None
    symbol: str | None = None
    types: Sequence[str] = ()
    sources: Sequence[str] = ()
    profile: str = "task"
    depth: str = "standard"
    budget_tokens: int = 2000
    ref: str | None = None


class Desk:
    """Where questions are answered: finds the brain, warms it once, keeps it fresh. Thread-safe.

    A brain that is not there yet is looked for again with every question, so that `nugget init` needs no restart.
    """

    def __init__(
        self,
        *,
        flag: Path | None,
        environment: Environment,
        cwd: Path,
        face: Face = Face.MCP,
        identity: str | None = None,
    ) -> None:
        self._identity = identity
        self._flag = flag
        self._environment = environment
        self._cwd = cwd
        self._face = face
        self._lock = threading.Lock()
        self._brain: Brain | None = None
        self._is_warm = threading.Event()
        self._reading = (0, 0)
        self._catching_up: threading.Thread | None = None

    def open(self) -> Brain:
        """The brain; when it is first found, its warm-up starts. Raises BrainError where there is none."""
        from nugget.app import Brain

        with self._lock:
            if self._brain is None:
                path = find_brain(self._environment, flag=self._flag, cwd=self._cwd)
                self._brain = Brain(path, environment=self._environment, resident=True, face=self._face)
                threading.Thread(target=self._warm_up, args=(self._brain,), name="nugget-warm-up", daemon=True).start()
            return self._brain

    def warm(self) -> None:
        """Open the brain if there is one; what is wrong with it is told to whoever asks."""
        try:
            self.open()
        except NuggetError as error:
            tell(str(error))

    def ready(self) -> Brain:
        """The brain, once it has been read. Raises BrainError, and IndexUnavailable where that takes too long."""
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
        """The brain's folder, as far as it is open and read."""
        return self._brain.path if self._brain is not None and self._is_warm.is_set() else None

    def answer(self, question: Question) -> str:
        """The markdown for one question. Raises NuggetError."""
        from nugget.infra.llm import open_llm
        from nugget.retrieval.reranking import choose_reranker

        _check(question)
        most = min(max(MAX_CHARS, 5 * question.budget_tokens), LARGEST_CHARS)
        if question.ref or is_beyond_the_brain(question.sources):
            return answer_beyond(
                self.ready(), _words(question), ref=question.ref, sources=question.sources, types=question.types,
                depth=question.depth, budget_tokens=question.budget_tokens, max_chars=most, identity=self._identity,
                place=Place(path=question.path, symbol=question.symbol), code=self.answer_code,
                catch_up=partial(self.catch_up, beside=True),
            )  # fmt: skip
        said = code_part(
            self.answer_code, path=question.path, symbol=question.symbol, types=question.types, depth=question.depth,
            budget_tokens=max(question.budget_tokens // 2, LEAST_TOKENS), max_chars=most // 2,
        )  # fmt: skip
        of_code, used = said.text, said.used
        kinds = [name for name in question.types if name in list(KnowledgeType)]
        if of_code and question.types and not kinds:
            return of_code
        try:
            brain = self.ready()
        except BrainError:
            if of_code:
                return of_code
            raise
        bundle = brain.ask(
            _words(question),
            budget_tokens=max(question.budget_tokens - used, LEAST_TOKENS),
            depth=question.depth,
            types=kinds,
            sources=question.sources,
            profile=question.profile,
            reranker=choose_reranker(brain.settings, open_llm(brain.settings, self._environment), self._environment),
        )
        if "index_behind" in bundle.degraded:
            self.catch_up()
        if not of_code:
            return bundle_markdown(bundle, most)
        return f"{of_code}\n\n{bundle_markdown(bundle, most - len(of_code) - 2)}"

    def answer_code(self, query: NuggetQuery, *, with_sessions: bool = False) -> CodeAnswer:
        """What is known of a piece of code, with a brain or without. Raises NuggetError."""
        try:
            brain = self.ready()
        except NuggetError:
            brain = None
        return answer_agent(
            query, brain=brain, environment=self._environment, folder=self._cwd, with_sessions=with_sessions
        )

    def close(self) -> None:
        """Let go of the brain. A warm-up or sync that still runs dies with the process: it is safe to kill."""
        with self._lock:
            if self._brain is not None:
                self._brain.close()

    def _warm_up(self, brain: Brain) -> None:
        """Make the index if there is none, then ask once: that loads the model, the index and numpy."""
        try:
            brain.freshen(progress=self._note_progress)
            self._is_warm.set()
            brain.ask("What is known?", limit=1, fresh=False, log=False)
        except NuggetError as error:
            tell(str(error))
        except Exception:
            print_traceback()
        finally:
            self._is_warm.set()

    def _note_progress(self, what: str, done: int, total: int) -> None:
        self._reading = (done, total)

    def catch_up(self, *, beside: bool = False) -> None:
        """Sync what is too much to wait for, also what is searched `beside` the brain; a thread, one at a time."""
        brain = self.open()
        with self._lock:
            if self._catching_up is None or not self._catching_up.is_alive():
                self._catching_up = threading.Thread(
                    target=self._sync, args=(brain, beside), name="nugget-catch-up", daemon=True
                )
                self._catching_up.start()

    def _sync(self, brain: Brain, beside: bool) -> None:
        try:
            brain.sync()
            if beside:
                brain.sync_machine()
        except NuggetError as error:
            tell(str(error))
        except Exception:
            print_traceback()


def tell(failure: str) -> None:
    """What went wrong beside the answers, on stderr, which a client may keep: without secrets."""
    from nugget.redaction import redact

    print(f"nugget: {redact(failure).text}", file=sys.stderr)


def print_traceback() -> None:
    """The traceback of what nobody foresaw."""
    tell(traceback.format_exc().rstrip())


def _check(question: Question) -> None:
    """What the brain itself does not check. Raises UsageError."""
    if not question.text.strip() and not question.ref:
        raise UsageError("task_description is empty.", hint="Say in a sentence what you are about to do.")
    if len(question.text) > MAX_QUESTION_CHARS:
        raise UsageError(
            f"task_description is {len(question.text):,} characters long; {MAX_QUESTION_CHARS:,} are the limit.",
            hint="Say in a few sentences what you are about to do; leave out logs and file contents.",
        )
    for argument in ("path", "symbol", "ref", "profile", "depth", "types", "sources"):
        value = getattr(question, argument) or ""
        longest = max(map(len, [value] if isinstance(value, str) else value), default=0)
        if longest > MAX_NAME_CHARS:
            raise UsageError(f"{argument} is {longest:,} characters long; {MAX_NAME_CHARS:,} are the limit.")
    of_code = bool(question.path or question.symbol)
    known: Sequence[str] = [*KnowledgeType, *(NuggetType if of_code else ())]
    if is_beyond_the_brain(question.sources):
        from nugget.index.query_language import TYPES

        known = TYPES
    unknown = [name for name in question.types if name not in known]
    if unknown:
        named = known if is_beyond_the_brain(question.sources) else KnowledgeType
        raise UsageError(f"There is no type {unknown[0]!r}.", hint=f"Types are: {', '.join(named)}.")
    if not 100 <= question.budget_tokens <= MAX_BUDGET_TOKENS:
        raise UsageError(
            f"token_budget must be between 100 and {MAX_BUDGET_TOKENS}, not {question.budget_tokens}.",
            hint="2000 is the default.",
        )


def _words(question: Question) -> str:
    """What is searched for: the task, with the symbol and the name of the file as words of it."""
    name = PurePath(question.path.replace("\\", "/")).name if question.path else ""
    return " ".join(part for part in (question.text.strip(), question.symbol, name) if part)
