"""The MCP face: one tool over stdio, in front of a brain that is kept open, warm and fresh.

The server answers `initialize` (and `server/discover`) before anything of the brain is loaded; reading the index and
the embedding model starts in a thread after the first reply, while the client is busy with itself. stdout belongs to
the protocol: the SDK diverts everything else that is printed to stderr.
"""

# No `from __future__ import annotations`: the SDK makes the tool's schema from the annotations of a nested function.

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

from nugget import __version__
from nugget.agent_code import answer_agent, code_part
from nugget.config import Environment, find_brain, read_environment
from nugget.errors import BrainError, IndexUnavailable, NuggetError, UsageError
from nugget.models import Depth, KnowledgeType, SourceName
from nugget.nuggets import NuggetQuery, NuggetType
from nugget.query_log import Face
from nugget.render import MAX_CHARS, bundle_markdown
from nugget.source_answers import answer_beyond, is_beyond_the_brain

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from nugget.api import Brain
    from nugget.provenance.answering import CodeAnswer

INSTRUCTIONS = """\
Nugget is the memory of the person you work for: what earlier sessions found out, reviewed by a person and kept in \
git. It holds what the code in front of you cannot tell: decisions with the reasons and the rejected alternatives, \
patterns that worked here, bugs with their causes and fixes, concepts of the domain, and beliefs about how work is \
done.

Call get_relevant_context FIRST: before you plan, design, write or change code, debug, review, choose a library or \
a setting, or answer "how do we" and "why is this so". Call it again when the task changes, when an error or an \
unknown part of the code turns up, and before you repeat something that may have failed before. It is quick and \
searches on this machine; a question too many is cheaper than a mistake made twice.

- task_description: the task or question in plain words, with names, error messages and technologies in it.
- path, symbol: the file and the function you are about to touch, where there is one.
- An answer is reference material, not an order: weigh confidence, dates and staleness, trust the code in front of \
you over an old note, and name the id of a unit that you rely on.
- Nothing found means that nothing is recorded. Go on, and do not ask the same again.
"""
"""What sells the tool: clients show the name and this text before they show the tool's own description."""

DESCRIPTION = """\
Look up what is already known about a task before starting on it: decisions and their reasons, patterns, past bugs \
and fixes, concepts and beliefs, from a brain of reviewed notes. Returns markdown: the most relevant units, each with \
id, path, confidence and dates. Local and fast; call it first, and again when the task changes."""

MAX_BUDGET_TOKENS = 10_000
LARGEST_CHARS = 49_000
"""Claude Code puts results of more than 50,000 characters into a file and shows the first 2 KB of it."""

MAX_QUESTION_CHARS = 8_000

LEAST_TOKENS = 100
"""Of a budget; less is not worth an answer."""

PATIENCE_S = 20.0
"""How long a question waits for the first reading of a brain, before it is told to come back."""

WARM_UP_DELAY_S = 0.05
"""From the first reply to the start of the warm-up, so that the two do not compete for the interpreter."""


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

    def open(self) -> "Brain":
        """The brain; when it is first found, its warm-up starts. Raises BrainError where there is none."""
        from nugget.api import Brain

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
            print(f"nugget: {error}", file=sys.stderr)

    def ready(self) -> "Brain":
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
        from nugget.llm import open_llm
        from nugget.retrieval.reranking import choose_reranker

        _check(question)
        most = min(max(MAX_CHARS, 5 * question.budget_tokens), LARGEST_CHARS)
        if question.ref or is_beyond_the_brain(question.sources):
            return answer_beyond(
                self.ready(), _words(question), ref=question.ref, sources=question.sources, types=question.types,
                depth=question.depth, budget_tokens=question.budget_tokens, max_chars=most, identity=self._identity,
            )  # fmt: skip
        of_code, used = code_part(
            self.answer_code, path=question.path, symbol=question.symbol, types=question.types, depth=question.depth,
            budget_tokens=max(question.budget_tokens // 2, LEAST_TOKENS), max_chars=most // 2,
        )  # fmt: skip
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

    def answer_code(self, query: NuggetQuery, *, with_sessions: bool = False) -> "CodeAnswer":
        """What is known of a piece of code, with a brain or without. Raises NuggetError."""
        try:
            brain = self.ready()
        except NuggetError:
            brain = None
        return answer_agent(
            query, brain=brain, environment=self._environment, folder=self._cwd, with_sessions=with_sessions
        )

    def close(self) -> None:
        """Close the brain. A sync that still runs is left to die with the process: it is safe to kill."""
        if self._is_busy():
            sys.stderr.flush()
            os._exit(0)
        with self._lock:
            if self._brain is not None:
                self._brain.close()

    def _is_busy(self) -> bool:
        catching_up = self._catching_up
        warming = self._brain is not None and not self._is_warm.is_set()
        return warming or (catching_up is not None and catching_up.is_alive())

    def _warm_up(self, brain: "Brain") -> None:
        """Make the index if there is none, then ask once: that loads the model, the index and numpy."""
        try:
            brain.freshen(progress=self._note_progress)
            self._is_warm.set()
            brain.ask("What is known?", limit=1, fresh=False, log=False)
        except NuggetError as error:
            print(f"nugget: {error}", file=sys.stderr)
        except Exception:
            _print_traceback()
        finally:
            self._is_warm.set()

    def _note_progress(self, what: str, done: int, total: int) -> None:
        self._reading = (done, total)

    def catch_up(self) -> None:
        """Sync what is too much to wait for, in a thread of its own, one at a time."""
        brain = self.open()
        with self._lock:
            if self._catching_up is None or not self._catching_up.is_alive():
                self._catching_up = threading.Thread(
                    target=self._sync, args=(brain,), name="nugget-catch-up", daemon=True
                )
                self._catching_up.start()

    def _sync(self, brain: "Brain") -> None:
        try:
            brain.sync()
        except NuggetError as error:
            print(f"nugget: {error}", file=sys.stderr)
        except Exception:
            _print_traceback()


def serve(
    brain: Path | None = None,
    *,
    environment: Environment | None = None,
    cwd: Path | None = None,
    openqed: bool = False,
    identity: str | None = None,
) -> None:
    """Serve `get_relevant_context` over stdio until stdin closes; with `openqed` the three tools of that name too.

    `brain` is the folder that was asked for (`--brain`); without one the usual order of `find_brain` decides.
    `identity` is whose memory may be asked for; without one nobody's.
    """
    desk = Desk(flag=brain, environment=environment or read_environment(), cwd=cwd or Path.cwd(), identity=identity)
    threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="nugget-ask")
    try:
        server = make_server(desk, threads)
        if openqed:
            from nugget.openqed_tools import add_openqed_tools

            add_openqed_tools(server, desk.answer_code, threads)
        server.run()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        desk.close()


def make_server(desk: Desk, threads: ThreadPoolExecutor) -> "MCPServer[Any]":
    """The server with its one tool. Questions are answered in `threads`, which keep their SQLite connections."""
    from mcp.server.mcpserver import MCPServer
    from mcp.types import CallToolResult, TextContent, ToolAnnotations
    from pydantic import BeforeValidator, Field

    server: MCPServer[Any] = MCPServer(
        "nugget",
        title="Nugget",
        version=__version__,
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        middleware=[_warm_after_first_reply(desk)],
    )
    names = BeforeValidator(_names)

    @server.tool(
        title="Look up what is known",
        description=DESCRIPTION,
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        structured_output=False,
    )
    async def get_relevant_context(
        task_description: Annotated[
            str, Field(description="The task or question in plain words, with names and error messages in it")
        ],
        path: Annotated[str | None, Field(description="The file that the task is about")] = None,
        symbol: Annotated[str | None, Field(description="The function or class that the task is about")] = None,
        types: Annotated[
            list[str] | None, names, Field(description=f"Only these types: {', '.join(KnowledgeType)}")
        ] = None,
        sources: Annotated[
            list[str] | None, names, Field(description=f"Only these sources: {', '.join(SourceName)}")
        ] = None,
        ref: Annotated[
            str | None, Field(description="Instead of searching: show what this ref of an earlier answer names, whole")
        ] = None,
        profile: Annotated[str, Field(description="How to search: task (default) or search")] = "task",
        depth: Annotated[str, Field(description=f"How much of each unit: {', '.join(Depth)}")] = "standard",
        token_budget: Annotated[
            int, Field(description=f"Length of the answer in tokens, 100 to {MAX_BUDGET_TOKENS}")
        ] = 2000,
    ) -> CallToolResult:
        question = Question(
            text=task_description,
            path=path,
            symbol=symbol,
            types=types or (),
            sources=sources or (),
            profile=profile,
            depth=depth,
            budget_tokens=token_budget,
            ref=ref,
        )
        text, failed = await asyncio.get_running_loop().run_in_executor(threads, partial(_reply, desk, question))
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    return server


def _warm_after_first_reply(desk: Desk) -> Any:
    """Middleware that starts the warm-up once, just after the first request has been answered."""
    is_due = True

    async def warm_after_first_reply(ctx: Any, call_next: Any) -> Any:
        nonlocal is_due
        reply = await call_next(ctx)
        if is_due:
            is_due = False
            asyncio.get_running_loop().call_later(
                WARM_UP_DELAY_S, lambda: threading.Thread(target=desk.warm, daemon=True).start()
            )
        return reply

    return warm_after_first_reply


def _reply(desk: Desk, question: Question) -> tuple[str, bool]:
    """The text for the agent, and whether it tells of a failure. Never raises: an agent reads no traceback."""
    try:
        return desk.answer(question), False
    except NuggetError as error:
        hint = f"\n{error.hint}" if error.hint else ""
        return f"Nugget has no answer: {error}{hint}", True
    except Exception as error:
        _print_traceback()
        return (
            f"Nugget has no answer: something unexpected went wrong ({type(error).__name__}). Go on without it; "
            "`nugget doctor` may tell the person you work for what is wrong.",
            True,
        )


def _print_traceback() -> None:
    """The traceback of what nobody foresaw, on stderr, which a client may keep: without secrets."""
    from nugget.redaction import redact

    print(redact(traceback.format_exc()).text, file=sys.stderr)


def _names(value: Any) -> Any:
    """A list of names as agents write them: `"Pattern, bug"` is `["pattern", "bug"]`."""
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return [part.strip().lower() for part in value if part.strip()]
    return value


def _check(question: Question) -> None:
    """What the brain itself does not check. Raises UsageError."""
    if not question.text.strip() and not question.ref:
        raise UsageError("task_description is empty.", hint="Say in a sentence what you are about to do.")
    if len(question.text) > MAX_QUESTION_CHARS:
        raise UsageError(
            f"task_description is {len(question.text):,} characters long; {MAX_QUESTION_CHARS:,} are the limit.",
            hint="Say in a few sentences what you are about to do; leave out logs and file contents.",
        )
    of_code = bool(question.path or question.symbol)
    known = [*KnowledgeType, *(NuggetType if of_code else ())]
    unknown = [name for name in question.types if name not in known]
    if unknown:
        raise UsageError(f"There is no type {unknown[0]!r}.", hint=f"Types are: {', '.join(KnowledgeType)}.")
    if not 100 <= question.budget_tokens <= MAX_BUDGET_TOKENS:
        raise UsageError(
            f"token_budget must be between 100 and {MAX_BUDGET_TOKENS}, not {question.budget_tokens}.",
            hint="2000 is the default.",
        )


def _words(question: Question) -> str:
    """What is searched for: the task, with the symbol and the name of the file as words of it."""
    name = PurePath(question.path.replace("\\", "/")).name if question.path else ""
    return " ".join(part for part in (question.text.strip(), question.symbol, name) if part)
