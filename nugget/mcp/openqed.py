"""openqed's three MCP tools, answered from Nugget's provenance: for agents whose instructions name them.

Names, parameters and the JSON that comes back are those of openqed's API reference.
"""

# No `from __future__ import annotations`: the SDK makes the tools' schemas from the annotations of nested functions.

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from nugget.errors import NuggetError, UsageError
from nugget.nuggets import NuggetQuery, NuggetType
from nugget.render.nuggets import context_json, decisions_json, file_history_json
from nugget.text import estimate_tokens

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from nugget.provenance.answering import CodeAnswer

DECISIVE = (NuggetType.DECISION, NuggetType.REJECTION, NuggetType.CONSTRAINT)
"""The types that `openqed_decisions` gives."""

AnswerCode = Callable[..., "CodeAnswer"]
"""Answers a NuggetQuery, `with_sessions` or without; raises NuggetError."""


def add_openqed_tools(server: "MCPServer[Any]", answer: AnswerCode, threads: ThreadPoolExecutor) -> None:
    """Give a server the tools `openqed_context`, `openqed_file_history` and `openqed_decisions`."""
    from mcp.types import CallToolResult, TextContent, ToolAnnotations
    from pydantic import Field

    look = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

    async def reply(make: Callable[[], dict[str, Any]]) -> CallToolResult:
        text, failed = await asyncio.get_running_loop().run_in_executor(threads, partial(_reply, make))
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    @server.tool(
        description="Query context/provenance for a file or topic. Returns ranked nuggets explaining WHY code is the "
        "way it is.",
        annotations=look,
        structured_output=False,
    )
    async def openqed_context(
        path: Annotated[str | None, Field(description="File path to query context for")] = None,
        symbol: Annotated[str | None, Field(description="Specific symbol (function, class) to query")] = None,
        query: Annotated[str | None, Field(description="Natural language query")] = None,
        token_budget: Annotated[float, Field(description="Max tokens in response")] = 2000,
        types: Annotated[list[str] | None, Field(description="Filter by nugget types")] = None,
        depth: Annotated[Literal["summary", "standard", "deep"], Field(description="How much of each nugget")] = (
            "standard"
        ),
    ) -> CallToolResult:
        return await reply(partial(_context, answer, path, symbol, query, token_budget, types or (), depth))

    @server.tool(
        description="Get the AI session history for a specific file: which sessions touched it and when.",
        annotations=look,
        structured_output=False,
    )
    async def openqed_file_history(
        path: Annotated[str, Field(description="Relative file path to look up")],
        token_budget: Annotated[float, Field(description="Max tokens in response")] = 1500,
    ) -> CallToolResult:
        return await reply(partial(_file_history, answer, path, token_budget))

    @server.tool(
        description="Get architectural decisions, rejections, and constraints from AI sessions.",
        annotations=look,
        structured_output=False,
    )
    async def openqed_decisions(
        path: Annotated[str | None, Field(description="File path to scope the query")] = None,
        token_budget: Annotated[float, Field(description="Max tokens in response")] = 2000,
    ) -> CallToolResult:
        return await reply(partial(_decisions, answer, path, token_budget))


def _context(
    answer: AnswerCode, path: str | None, symbol: str | None, query: str | None, budget: float, types: Any, depth: str
) -> dict[str, Any]:
    from nugget.provenance.answering import code_query

    asked = code_query(
        path=path, symbol=symbol, text=query, types=types, depth=depth, budget_tokens=_tokens(budget)
    )  # fmt: skip
    return context_json(answer(asked).bundle, strict=True)


def _file_history(answer: AnswerCode, path: str, budget: float) -> dict[str, Any]:
    found = answer(NuggetQuery(path=path, budget_tokens=1), with_sessions=True)
    place = found.bundle.query.path or path
    room, shown = _tokens(budget) - estimate_tokens(json.dumps(file_history_json(place, (), shown=0))), 0
    for known in found.sessions:
        room -= estimate_tokens(json.dumps(file_history_json("", [known], shown=1)["sessions"]))
        if room < 0:
            break
        shown += 1
    return file_history_json(place, found.sessions, shown=shown)


def _decisions(answer: AnswerCode, path: str | None, budget: float) -> dict[str, Any]:
    asked = NuggetQuery(path=path if path else ".", types=DECISIVE, budget_tokens=_tokens(budget))
    return decisions_json(answer(asked).bundle)


def _tokens(budget: float) -> int:
    if not 1 <= budget <= 1_000_000:
        raise UsageError(f"token_budget must be between 1 and 1,000,000, not {budget:g}.")
    return int(budget)


def _reply(make: Callable[[], dict[str, Any]]) -> tuple[str, bool]:
    """The JSON of an answer, or what went wrong in words, and whether it did."""
    try:
        return json.dumps(make(), ensure_ascii=False), False
    except NuggetError as error:
        return " ".join(part for part in (str(error), error.hint) if part), True
    except Exception as error:  # an agent reads no traceback
        return f"Something unexpected went wrong ({type(error).__name__}); go on without this.", True
