"""Everything that can be asked over HTTP: path, method, parameters, and the call that answers it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.responses import Response

from nugget import __version__
from nugget.config import Environment, Settings
from nugget.http import asking, openapi
from nugget.http.app import Call, Operation
from nugget.http.completions import CompletionDesk, CompletionRequest
from nugget.http.limits import Lane
from nugget.http.logs import LogDesk, LogsContextRequest
from nugget.http.parameters import AskRequest, RefRequest, SearchRequest, SessionRequest, check_is_json
from nugget.http.replies import json_reply
from nugget.infra.resident import Resident
from nugget.mcp import lending
from nugget.mcp.desk import Desk
from nugget.mcp.source_answers import BEHIND

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(slots=True, kw_only=True)
class Server:
    """What the operations share: the brain's desk, the settings, and two lanes of threads.

    `quick` is for work on this machine, `slow` for what waits for an LLM.
    """

    desk: Desk
    environment: Environment
    settings: Settings
    logs: LogDesk
    quick: Lane
    slow: Lane
    identity: str | None = None
    _resident: Resident | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin what runs beside the answers."""
        answer = partial(lending.answer, desk=self.desk, environment=self.environment)
        self._resident = Resident(self.environment.home, answer)
        self._resident.start()
        if self.settings.http.backfill:
            self.logs.start_backfill()

    def catch_up(self) -> None:
        """Take in what is too much to wait for, in the brain and beside it, behind the answers."""
        self.desk.catch_up(beside=True)

    def stop(self) -> None:
        """End it."""
        if self._resident is not None:
            self._resident.stop()
        self.logs.stop()


def operations_of(server: Server) -> list[Operation]:
    """Every operation of a server."""
    operations = [
        Operation(
            method="GET", path="/healthz", name="health", reply="Health",
            summary="Whether the server answers, and how far it is", answer=partial(_health, server),
        ),
        *(
            Operation(
                method=method, path="/v1/search", name=f"search_{method.lower()}", reply="Bundle",
                summary="Everything that matches, as short excerpts: the JSON of `nugget search --json`",
                parameters=SearchRequest, answer=partial(_search, server), errors=(422, 503),
            )
            for method in ("GET", "POST")
        ),
        *(
            Operation(
                method=method, path="/v1/ask", name=f"ask_{method.lower()}", reply="Bundle",
                summary="The best units for a question: the JSON of `nugget ask --json`",
                parameters=AskRequest, answer=partial(_ask, server), errors=(422, 503),
            )
            for method in ("GET", "POST")
        ),
        Operation(
            method="GET", path="/v1/units/{ref:path}", name="unit", reply="Shown",
            summary="What a ref names, whole: the JSON of `nugget get --json`", parameters=RefRequest,
            answer=partial(_shown, server), errors=(404, 422, 503),
        ),
        Operation(
            method="POST", path="/v1/sessions", name="make_session", reply="Session", status=201,
            summary="A new session, with a folder for its logs", parameters=SessionRequest,
            answer=partial(_make_session, server),
        ),
        *(
            Operation(
                method=method, path="/v1/logs/ingest/{session}", name=f"ingest_{method.lower()}", reply="Ingested",
                summary="Take in what is new in the logs of a session", answer=partial(_ingest, server),
                errors=(404, 503),
            )
            for method in ("GET", "POST")
        ),
        Operation(
            method="GET", path="/v1/logs/context/{session}", name="logs_context", reply="ContextBundle",
            summary="What the logs of a session say about a question", parameters=LogsContextRequest,
            answer=partial(_logs_context, server), errors=(404, 503),
        ),
        Operation(
            method="POST", path="/v1/completions", name="complete", reply="Message", streams=True,
            summary="A call of the Anthropic Messages API with what a session's logs say put in",
            parameters=CompletionRequest, answer=partial(_complete, server), errors=(502, 503, 529),
        ),
    ]  # fmt: skip
    described = Operation(
        method="GET", path="/openapi.json", name="openapi", reply="OpenAPI", summary="This document",
        answer=lambda _: _described(document),
    )  # fmt: skip
    operations.append(described)
    document = openapi.describe(operations)
    return operations


def mcp_endpoint(server: Server, app: ASGIApp) -> ASGIApp:
    """MCP behind the same bounded lane as the other questions."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        check_is_json(Headers(scope=scope).get("content-type", ""))
        with server.quick.place():
            await app(scope, receive, send)

    return answer


async def _described(document: dict[str, Any]) -> Response:
    return json_reply(document)


async def _health(server: Server, call: Call) -> Response:
    if not call.is_known:
        return json_reply({"status": "ok"})
    folder = server.desk.folder
    return json_reply(
        {
            "status": "ok",
            "version": __version__,
            "pid": os.getpid(),
            "brain": None if folder is None else str(folder),
            "under_way": server.quick.taken + server.slow.taken,
            "backfill": asdict(server.logs.backfill),
        }
    )


async def _search(server: Server, call: Call) -> Response:
    request: SearchRequest = call.parameters
    value = await server.quick.run(lambda: asking.search(server.desk.ready(), request, identity=server.identity))
    return _sent(server, value)


async def _ask(server: Server, call: Call) -> Response:
    request: AskRequest = call.parameters

    def answer() -> dict[str, Any]:
        from nugget.infra.llm import open_llm

        brain = server.desk.ready()
        llm = None if request.no_llm else open_llm(brain.settings, brain.environment)
        return asking.ask(brain, request, llm)

    asks_llm = not request.no_llm and server.settings.llm.enabled and server.environment.anthropic_api_key
    return _sent(server, await (server.slow if asks_llm else server.quick).run(answer))


def _sent(server: Server, bundle: dict[str, Any]) -> Response:
    """A bundle as it is sent; where much changed that it does not know of, that is taken in behind it."""
    if BEHIND & {*bundle["degraded"]}:
        server.catch_up()
    return json_reply(bundle)


async def _make_session(server: Server, call: Call) -> Response:
    made = await server.quick.run(lambda: server.logs.make_session(call.parameters, now=datetime.now(UTC)))
    return json_reply(made, status=201)


async def _ingest(server: Server, call: Call) -> Response:
    session = call.path_ids["session"]
    return json_reply(await server.quick.run(lambda: server.logs.ingest(session, now=datetime.now(UTC))))


async def _logs_context(server: Server, call: Call) -> Response:
    session, request = call.path_ids["session"], call.parameters
    return json_reply(await server.quick.run(lambda: server.logs.answer(session, request, now=datetime.now(UTC))))


async def _complete(server: Server, call: Call) -> Response:
    desk = CompletionDesk(server.environment, server.settings, server.logs, server.slow)
    return await desk.answer(call.parameters, now=datetime.now(UTC))


async def _shown(server: Server, call: Call) -> Response:
    ref, request = call.path_ids["ref"], call.parameters
    asked = partial(asking.shown, ref=ref, request=request, identity=server.identity)
    return json_reply(await server.quick.run(lambda: asked(server.desk.ready())))
