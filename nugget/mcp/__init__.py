"""The MCP face: one tool over stdio, backed by a brain that is kept open, warm and current.

The server answers `initialize` (and `server/discover`) before it loads anything of the brain; a thread reads the index
and the embedding model after the first reply. stdout carries only the protocol: the SDK diverts prints to stderr.
"""

# No `from __future__ import annotations`: the SDK makes the tool's schema from the annotations of nested functions.

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

from nugget import __version__
from nugget.app.agent_session import AgentSession, print_traceback, run_resident
from nugget.app.brains import depth_named, source_names
from nugget.config import read_environment
from nugget.errors import NuggetError, complaint
from nugget.mcp import answers
from nugget.models import Depth, Filter, KnowledgeType, Query, SourceName
from nugget.models.nuggets import NuggetType
from nugget.render.json import context_json, decisions_json
from nugget.text import one_line

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
- path, symbol: the file and the function you are about to touch, if there is one.
- An answer is reference material, not an order: weigh confidence, dates and staleness, trust the code in front of \
you over an old note, and name the id of a unit that you rely on.
- Nothing found means that nothing is recorded. Go on, and do not ask the same again.
"""
"""Clients show the name and this text before they show the tool's own description."""

DESCRIPTION = """\
Look up what is already known about a task before starting on it: decisions and their reasons, patterns, past bugs \
and fixes, concepts and beliefs, from a brain of reviewed notes. Returns markdown: the most relevant units, each with \
id, path, confidence and dates. Local and fast; call it first, and again when the task changes."""

NOTES_DESCRIPTION = """\
Propose one piece of knowledge to be kept for other sessions, when the person asks you to remember something, or when \
you found out what cost effort and cannot be read from the code: a decision with its reason, a cause with its fix, a \
rule of the person. Never secrets, plans or progress. It is kept only if a person accepts it in a review."""

WARM_UP_DELAY_S = 0.05
"""Delay of the warm-up after the first reply, so that the two do not compete for the interpreter."""
_READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
Name = Annotated[str, Field(max_length=1_000)]


def serve(brain: Path | None = None, *, openqed: bool = False, identity: str | None = None) -> None:
    """Serve `get_relevant_context` over stdio until stdin closes; with `openqed` also the three tools of openqed.

    `brain` is the folder of `--brain`; by default `find_brain` chooses. Agents may search the memory of `identity`.
    """
    session = AgentSession(flag=brain, environment=read_environment(), cwd=Path.cwd(), identity=identity)
    try:
        make_server(session, openqed=openqed).run()
    finally:
        session.close()


def serve_windows() -> None:
    """Run the resident server for all windows of a home, as `infra.resident` starts it."""
    run_resident(_serve_window)


async def _serve_window(
    session: AgentSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, openqed: bool
) -> None:
    """Serve one client, whose connection the SDK reads and writes like text files, until it disconnects."""

    async def lines() -> AsyncIterator[str]:
        while line := await reader.readline():
            yield line.decode("utf-8", "replace")

    async def write(text: str) -> None:
        writer.write(text.encode("utf-8", "replace"))

    server = make_server(session, openqed=openqed)._lowlevel_server
    stdin, stdout = cast("Any", lines()), cast("Any", SimpleNamespace(write=write, flush=writer.drain))
    async with stdio_server(stdin, stdout) as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def make_server(session: AgentSession, *, openqed: bool = False) -> MCPServer[Any]:
    """Return the server with its tools, which the SDK runs in threads; the server warms up after its first reply."""
    server: MCPServer[Any] = MCPServer(
        "nugget", title="Nugget", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING",
        middleware=[_warm_after_first_reply(session)],
    )  # fmt: skip
    server.call_tool = _refusing_plainly(server)  # type: ignore[method-assign]
    _add_tool(server, session)
    if openqed:
        _add_openqed_tools(server, session)
    with suppress(NuggetError):  # unreadable settings switch nothing on
        if session.takes_notes:
            _add_notes_tool(server, session)
    return server


def _add_tool(server: MCPServer[Any], session: AgentSession) -> None:
    @server.tool(
        title="Look up what is known", description=DESCRIPTION, annotations=_READ_ONLY, structured_output=False
    )
    def get_relevant_context(
        task_description: Annotated[
            str, Field(description="The task or question in plain words, with names and errors in it", max_length=8_000)
        ],
        path: Annotated[Name | None, Field(description="The file that the task is about")] = None,
        symbol: Annotated[Name | None, Field(description="The function or class that the task is about")] = None,
        types: Annotated[list[Name] | None, Field(description=f"Only these types: {', '.join(KnowledgeType)}")] = None,
        sources: Annotated[list[Name] | None, Field(description=f"Only these sources: {', '.join(SourceName)}")] = None,
        ref: Annotated[
            Name | None, Field(description="Instead of searching: show what this ref of an earlier answer names, whole")
        ] = None,
        profile: Annotated[Name, Field(description="How to search: task (default) or search")] = "task",
        depth: Annotated[Name, Field(description=f"How much of each unit: {', '.join(Depth)}")] = "standard",
        token_budget: Annotated[int, Field(description="Length of the answer in tokens", ge=100, le=10_000)] = 2000,
        limit: Annotated[int | None, Field(description="Units in the answer", ge=1, le=50)] = None,
    ) -> CallToolResult:
        def answer() -> str:
            named = Filter(types=tuple(types or ()), sources=source_names(sources or ()))
            query = Query(
                task_description, path=path, symbol=symbol, filter=named, profile=profile, depth=depth_named(depth),
                budget_tokens=token_budget, limit=limit,
            )  # fmt: skip
            return answers.answer(session, query, ref=ref)

        return _result(answer, "Nugget has no answer: ")


def _add_notes_tool(server: MCPServer[Any], session: AgentSession) -> None:
    is_safe = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

    @server.tool(title="Propose knowledge", description=NOTES_DESCRIPTION, annotations=is_safe, structured_output=False)
    def propose_knowledge(
        title: Annotated[str, Field(description="The knowledge itself in one sentence", min_length=8, max_length=160)],
        statement: Annotated[
            str, Field(description="What holds, readable without the session", min_length=20, max_length=4000)
        ],
        type: Annotated[KnowledgeType, Field(description="What kind of knowledge it is")],
        because: Annotated[str, Field(description="Why it holds, or was chosen", max_length=1000)] = "",
        paths: Annotated[
            list[Annotated[str, Field(max_length=500)]] | None,
            Field(description="Files of this repository it is about; none if it holds in general", max_length=10),
        ] = None,
    ) -> CallToolResult:
        asked = {"title": title, "statement": statement, "type": type, "because": because, "paths": paths or ()}
        return _result(lambda: answers.propose(session, **asked), "Nothing was proposed: ")


def _add_openqed_tools(server: MCPServer[Any], session: AgentSession) -> None:
    """Add openqed's tools, with the names, parameters and JSON of openqed's API reference."""

    def reply(make: Callable[[], dict[str, Any]]) -> CallToolResult:
        return _result(lambda: json.dumps(make(), ensure_ascii=False))

    Budget = Annotated[float, Field(description="Max tokens in response", ge=1, le=1_000_000)]
    tool = partial(server.tool, annotations=_READ_ONLY, structured_output=False)

    @tool(
        description="Query context/provenance for a file or topic. Returns ranked nuggets explaining WHY code is the "
        "way it is."
    )
    def openqed_context(
        path: Annotated[str | None, Field(description="File path to query context for")] = None,
        symbol: Annotated[str | None, Field(description="Specific symbol (function, class) to query")] = None,
        query: Annotated[str | None, Field(description="Natural language query")] = None,
        token_budget: Budget = 2000,
        types: Annotated[list[str] | None, Field(description="Filter by nugget types")] = None,
        depth: Annotated[
            Literal["summary", "standard", "deep"], Field(description="Detail of each nugget")
        ] = "standard",
    ) -> CallToolResult:
        asked = Query(query or "", path=path, symbol=symbol, filter=Filter(types=tuple(types or ())),
                      depth=Depth(depth), budget_tokens=int(token_budget))  # fmt: skip
        return reply(lambda: context_json(session.explain_code(asked), strict=True))

    @tool(description="Get the AI session history for a specific file: which sessions touched it and when.")
    def openqed_file_history(
        path: Annotated[str, Field(description="Relative file path to look up")], token_budget: Budget = 1500
    ) -> CallToolResult:
        return reply(lambda: answers.openqed_file_history(session, path=path, budget=token_budget))

    @tool(description="Get architectural decisions, rejections, and constraints from AI sessions.")
    def openqed_decisions(
        path: Annotated[str | None, Field(description="File path to scope the query")] = None,
        token_budget: Budget = 2000,
    ) -> CallToolResult:
        types = (NuggetType.DECISION, NuggetType.REJECTION, NuggetType.CONSTRAINT)
        asked = Query("", path=path or ".", filter=Filter(types=types), budget_tokens=int(token_budget))
        return reply(lambda: decisions_json(session.explain_code(asked)))


def _result(make: Callable[[], str], failed: str = "") -> CallToolResult:
    """Return a result with the text, or with a sentence that begins with `failed` if `make` fails."""
    try:
        return _told(make(), is_error=False)
    except NuggetError as error:
        text = f"{failed}{error}" + (f"\n{error.hint}" if error.hint else "")
    except Exception as error:
        print_traceback(error)
        text = (
            f"{failed}something unexpected went wrong ({type(error).__name__}). Go on without it; `nugget doctor` may "
            "tell the person you work for what is wrong."
        )
    return _told(text)


def _told(text: str, *, is_error: bool = True) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def _refusing_plainly(server: MCPServer[Any]) -> Any:
    """Return the server's `call_tool`, which refuses an unknown or wrong argument in one sentence of our own."""
    call_plain = server.call_tool

    async def call_tool(name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        known = {tool.name: tool.input_schema["properties"] for tool in await server.list_tools()}.get(name, arguments)
        if unknown := [argument for argument in arguments if argument not in known]:
            return _told(f"{name} has no argument `{one_line(unknown[0])[:60]}`; it has {', '.join(known)}.")
        try:
            return await call_plain(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            problem = error.__cause__.errors(include_url=False)[0]
        argument, *place = map(str, problem["loc"])
        wanted = known.get(argument, {}).get("description", "see the tool's schema")
        return _told(f"`{'.'.join((argument, *place))[:60]}` {complaint(problem)} ({wanted[:1].lower()}{wanted[1:]}).")

    return call_tool


def _warm_after_first_reply(session: AgentSession) -> Any:
    """Return middleware that starts the warm-up just after the first reply."""
    is_due = True

    async def warm_after_first_reply(ctx: Any, call_next: Any) -> Any:
        nonlocal is_due
        reply = await call_next(ctx)
        if is_due:
            is_due = False
            asyncio.get_running_loop().call_later(
                WARM_UP_DELAY_S, lambda: threading.Thread(target=session.warm, daemon=True).start()
            )
        return reply

    return warm_after_first_reply
