"""Define the endpoints of the HTTP face; FastAPI reads the requests and writes the OpenAPI document.

`/v1/completions` calls the Anthropic Messages API with evidence from a session's logs in the system text and returns
the API's reply, plain or streamed. The header `x-nugget-context` describes the added evidence; with `context_explain`,
a plain reply holds it under `context`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Route

from nugget import __version__, errors
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.app.logs import Logs, evidence_json
from nugget.http import models
from nugget.http.models import MAX_QUESTION_CHARS, CompletionRequest, Refusal, json_reply
from nugget.render.json import bundle_json, shown_json, without_secrets

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

LLM_THREADS = 16
"""Maximum number of requests that wait for an LLM at the same time; the others use AnyIO's own threads."""

TIMEOUT_S = 600.0
"""Longest time of a call of /v1/completions; a long streamed answer takes minutes."""

_STATUS_OF: tuple[tuple[type[errors.NuggetError], int, str], ...] = (
    (errors.TranscriptError, 404, "unknown_session"),
    (errors.UsageError, 422, "invalid_request"),
    (errors.ConflictError, 409, "conflict"),
    (errors.BrainError, 503, "no_brain"),
    (errors.IndexUnavailable, 503, "index_unavailable"),
    (errors.LLMUnavailable, 503, "llm_unavailable"),
    (errors.NuggetError, 500, "failed"),
)
"""Status and code by kind of error; the first match counts."""
_REF = r"^[^\s:\x00-\x1f\x7f][^\x00-\x1f\x7f\\]*$"
_STATUSES = (400, 401, 403, 404, 405, 413, 421, 422, 429, 500, 503)
SessionId = Annotated[
    str, Path(alias="session", description="The session's id", max_length=128, pattern=models.SESSION_ID)
]


def make_app(
    session: AgentSession, logs: Logs | None = None, *, lifespan: Callable[[FastAPI], Any] | None = None
) -> FastAPI:
    """Return the application of a brain; a space of a team's server has no `logs`."""
    app = FastAPI(
        title="Nugget", summary="The memory layer for coding agents", version=__version__, lifespan=lifespan,
        license_info={"name": "MIT", "identifier": "MIT"}, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        responses={code: {"model": models.Error, "description": HTTPStatus(code).phrase} for code in _STATUSES},
    )  # fmt: skip
    llm_threads = CapacityLimiter(LLM_THREADS)
    _add_brain(app, session, llm_threads)
    if logs is not None:
        _add_logs(app, session, logs, llm_threads)
    add_handlers(app)
    return app


def mcp_route(server: MCPServer[Any]) -> Route:
    """Return the route of an MCP server, whose session manager must be running."""
    # The SDK's own Host check is off (host="0.0.0.0"); the guard's check knows about tokens and other names.
    app = server.streamable_http_app(json_response=True, stateless_http=True, host="0.0.0.0")
    # POST only: without sessions a GET would hold a stream open for nothing.
    return Route("/mcp", app.routes[0].app, methods=["POST"])  # type: ignore[attr-defined]


def add_handlers(app: FastAPI) -> None:
    """Register handlers that answer every failure as `{"error": {"code", "message", "hint"}}`."""
    for kind, answer in (
        (RequestValidationError, _invalid), (HTTPException, _wrong), (Refusal, _refused), (Exception, _failed),
        (errors.NuggetError, _failed), (sqlite3.Error, _failed),
    ):  # fmt: skip
        app.add_exception_handler(kind, answer)  # type: ignore[arg-type]


def _add_brain(app: FastAPI, session: AgentSession, llm_threads: CapacityLimiter) -> None:
    """Add the endpoints that read the brain."""

    @app.post("/v1/search")
    def search(request: models.SearchRequest) -> Response:
        """Find everything that matches, as short excerpts, in the JSON of `nugget search --json`."""
        found = session.caught_up(session.ready().search(request.query(session.identity)))
        return json_reply(without_secrets(bundle_json(found)))

    @app.get("/v1/search", description=search.__doc__)
    def search_get(request: Annotated[models.SearchRequest, Query()]) -> Response:
        return search(request)

    @app.post("/v1/ask")
    async def ask(request: models.AskRequest) -> Response:
        """Find what answers a question, in the JSON of `nugget ask --json`."""

        def work() -> Response:
            found = session.ask(request.query(session.identity), with_llm=not request.no_llm)
            return json_reply(without_secrets(bundle_json(found)))

        waits_for_llm = not request.no_llm and session.llm()
        return await to_thread.run_sync(work, limiter=llm_threads if waits_for_llm else None)

    @app.get("/v1/ask", description=ask.__doc__)
    async def ask_get(request: Annotated[models.AskRequest, Query()]) -> Response:
        return await ask(request)

    @app.get("/v1/units/{ref:path}")
    def unit(
        ref: Annotated[str, Path(pattern=_REF, max_length=500, description="A ref; write `/` as it is, `#` as %23")],
        around: Annotated[int, Query(ge=0, le=50, description="Exchanges before and after this one")] = 1,
    ) -> Response:
        """Show the source behind a ref in full, in the JSON of `nugget get --json`."""
        try:
            shown = session.ready().get(ref, identity=session.identity, around=around)
        except errors.NuggetError as error:
            if type(error) not in (errors.NuggetError, errors.TranscriptError):
                raise
            known = str(error) if isinstance(error, errors.TranscriptError) else "Nothing has this ref."
            raise Refusal(404, "unknown_ref", known, hint="/v1/search finds refs.") from error
        return json_reply(without_secrets(shown_json(shown)))


def _add_logs(app: FastAPI, session: AgentSession, logs: Logs, llm_threads: CapacityLimiter) -> None:
    """Add the endpoints of the server's state, of shell logs, and of completions with evidence from them."""

    @app.get("/healthz")
    async def health(request: Request) -> Response:
        """Return the state of the server."""
        if not request.state.knows_token:
            return json_reply({"status": "ok"})
        state = {"status": "ok", "version": __version__, "pid": os.getpid(), "under_way": request.state.under_way}
        return json_reply({**state, "brain": session.folder and str(session.folder), "backfill": logs.backfill})

    @app.post("/v1/sessions", status_code=201)
    def make_session(request: models.SessionRequest = models.SessionRequest()) -> Response:  # noqa: B008
        """Create a session with a folder for its logs."""
        return json_reply(logs.make_session(request.title), status_code=201)

    @app.get("/v1/logs/ingest/{session}")
    @app.post("/v1/logs/ingest/{session}")
    def ingest(session_id: SessionId) -> Response:
        """Read new log entries of a session."""
        return json_reply(logs.ingest(session_id))

    @app.get("/v1/logs/context/{session}")
    def logs_context(session_id: SessionId, request: Annotated[models.LogsContextRequest, Query()]) -> Response:
        """Return evidence for a question from the logs of a session."""
        found = logs.session_evidence(session_id, request.q, request.options(), fresh=False)
        return json_reply(evidence_json(found, explain=request.explain))

    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
    }

    @app.post("/v1/completions", responses=streamed)
    async def completions(request: models.CompletionRequest) -> Response:
        """Call the Anthropic Messages API with evidence from a session's logs."""
        return await _complete(request, session, logs, limiter=llm_threads)

    @app.post("/v1/chat/completions", responses=streamed)
    async def chat_completions(request: models.ChatRequest) -> Response:
        """Do the same as /v1/completions, with request and reply in the form of OpenAI's chat completions."""
        reply = await _complete(request, session, logs, limiter=llm_threads)
        if reply.status_code >= 400:
            return reply
        headers = {name: value for name, value in reply.headers.items() if name.startswith("x-nugget")}
        if isinstance(reply, StreamingResponse):
            return StreamingResponse(
                models.chunks(reply.body_iterator), media_type="text/event-stream", headers=headers
            )
        return json_reply(models.completion(json.loads(bytes(reply.body))), headers=headers)


async def _complete(
    request: CompletionRequest, session: AgentSession, logs: Logs, *, limiter: CapacityLimiter
) -> Response:
    """Return the API's reply, streamed if asked. Raises Refusal and LLMUnavailable before it begins."""
    llm, settings, mode = session.required_llm(), session.settings, request.context_mode

    def begin() -> tuple[Any, Any, str, dict[str, Any]]:
        text, facts, shown = "", "off" if mode == "off" else "no session", dict[str, Any]()
        if mode != "off" and request.session_id:
            question = request.question()[:MAX_QUESTION_CHARS]
            text, facts, shown = logs.for_call(request.session_id, question, request.options(), mode=mode, llm=llm)
        body = llm.forward(
            request.call(settings.llm_answer_model, added=text), purpose="completion", timeout_s=TIMEOUT_S,
            max_usd=settings.http_max_usd, session=request.session_id,
        )  # fmt: skip
        context = {"mode": mode, "injected": bool(text), **(shown if text else {"reason": facts})}
        return next(body), body, f"{'injected' if text else 'none'}; mode={mode}; {facts}", context

    (status, kept), body, added, context = await to_thread.run_sync(begin, limiter=limiter)
    headers = {**kept, "x-nugget-context": added}
    parts = _parts(body, limiter)
    if request.stream and status < 400:
        return StreamingResponse(parts, status_code=status, headers=headers)
    whole = b"".join([part async for part in parts])
    if request.context_explain and status < 400:
        whole = json.dumps({**json.loads(whole), "context": context}, ensure_ascii=False).encode()
    return Response(whole, status_code=status, headers=headers)


async def _parts(body: Any, limiter: CapacityLimiter) -> AsyncIterator[bytes]:
    """Yield the parts, read in threads; close the call after the last part or when the client disconnects."""
    try:
        while (part := await to_thread.run_sync(next, body, None, limiter=limiter)) is not None:
            yield part
    finally:
        body.close()


async def _refused(_: Request, refusal: Refusal) -> Response:
    return refusal.reply()


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    """Describe the first problem of a request in a sentence."""
    problem = error.errors()[0]
    place, kind = problem["loc"], problem["type"]
    name = ".".join(map(str, place[1:]))[:60] or "the body"
    status, code, text = 422, "invalid_parameter", f"`{name}` {errors.complaint(problem)}."
    if kind == "json_invalid" or (kind in ("model_attributes_type", "dict_type") and len(place) == 1):
        status, code, text = 400, "malformed_json", "The body must be a JSON object, sent as application/json."
    elif kind in ("extra_forbidden", "missing"):
        code = "unknown_parameter" if kind == "extra_forbidden" else "missing_parameter"
    elif place[0] == "path":
        code = "invalid_ref" if place[1] == "ref" else "invalid_session_id"
    hint = f"{request.scope['root_path']}/openapi.json describes every parameter."
    return Refusal(status, code, text, hint=hint).reply()


async def _wrong(request: Request, error: HTTPException) -> Response:
    """Answer refusals of Starlette and FastAPI: an unknown path or method, or an unreadable body."""
    code, text = "malformed_json", "The body cannot be read as JSON."
    hint = f"{request.scope['root_path']}/openapi.json describes every path."
    if error.status_code == 404:
        code, text = "not_found", "There is nothing at this path."
        hint = hint if request.app.openapi_url else "/v1/spaces lists your spaces."
    elif error.status_code == 405:
        code, text = "method_not_allowed", f"{request.method[:20]} is not allowed here."
    return Refusal(error.status_code, code, text, hint=hint, headers=error.headers).reply()


async def _failed(_: Request, error: Exception) -> Response:
    """Answer a failure with a sentence without secrets; print the traceback of an unexpected one on stderr."""
    if isinstance(error, sqlite3.Error):
        error = errors.IndexUnavailable(f"The index could not be used ({error}).", hint="Try again; check the disk.")
    if isinstance(error, errors.NuggetError):
        status, code = next((status, code) for kind, status, code in _STATUS_OF if isinstance(error, kind))
        wait = getattr(error, "retry_after_s", None)  # for a daily cap, or a busy database
        if wait and isinstance(error, errors.LLMUnavailable):
            status, code = 429, "daily_cap_reached"
        headers = {"retry-after": str(wait)} if wait else None
        return Refusal(status, code, str(error), hint=error.hint, headers=headers).reply()
    print_traceback(error)
    text = f"Something unexpected went wrong ({type(error).__name__})."
    return Refusal(500, "internal", text, hint="The server's error output has the details.").reply()
