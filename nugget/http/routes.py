"""The endpoints of the HTTP face. FastAPI reads the requests and writes the OpenAPI document."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Match

from nugget import __version__, errors
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.config import Environment, Settings
from nugget.http import models
from nugget.http.completions import complete, no_llm
from nugget.http.logs import LogApi
from nugget.http.models import JSONReply, Refusal, without_secrets
from nugget.infra.llm import DailyBudget, DailyCapReached, open_llm
from nugget.models import Bundle
from nugget.redaction import redact
from nugget.render.json import bundle_json, shown_json

LLM_THREADS = 16
"""Requests that wait for an LLM at the same time; the others use AnyIO's own threads."""

_STATUS_OF: tuple[tuple[type[errors.NuggetError], int, str], ...] = (
    (DailyCapReached, 429, "daily_cap_reached"),
    (errors.UsageError, 422, "invalid_request"),
    (errors.BrainError, 503, "no_brain"),
    (errors.IndexUnavailable, 503, "index_unavailable"),
    (errors.LLMUnavailable, 503, "llm_unavailable"),
    (errors.NuggetError, 500, "failed"),
)
"""The first kind that an error is decides its status and code."""
_REF = r"^[^\s:\x00-\x1f\x7f][^\x00-\x1f\x7f\\]*$"
_STATUSES = (400, 401, 403, 404, 405, 413, 415, 421, 422, 429, 500, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """State that the endpoints share."""

    session: AgentSession
    environment: Environment
    settings: Settings
    logs: LogApi
    budget: DailyBudget
    identity: str | None = None
    llm_threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(LLM_THREADS))


def make_app(server: Server, *, lifespan: Callable[[FastAPI], Any]) -> FastAPI:
    """Return the application; `lifespan` holds what runs beside it."""
    app = FastAPI(
        title="Nugget", summary="The memory layer for coding agents", version=__version__, lifespan=lifespan,
        license_info={"name": "MIT", "identifier": "MIT"}, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        responses={code: {"model": models.Error, "description": HTTPStatus(code).phrase} for code in _STATUSES},
    )  # fmt: skip
    app.state.server = server
    app.include_router(router)
    for kind, answer in (
        (Refusal, _refused), (RequestValidationError, _invalid), (HTTPException, _wrong), (errors.NuggetError, _failed),
        (sqlite3.Error, _unreadable), (Exception, _unexpected),
    ):  # fmt: skip
        app.add_exception_handler(kind, answer)  # type: ignore[arg-type]
    return app


async def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


router = APIRouter()
Running = Annotated[Server, Depends(_server)]
SessionId = Annotated[str, Path(description="The session's id", max_length=500)]


@router.get("/healthz", response_model=models.Health)
async def health(request: Request, server: Running) -> Response:
    """Return the state of the server."""
    if not request.state.knows_token:
        return JSONReply({"status": "ok"})
    folder, state = server.session.folder, {"status": "ok", "version": __version__, "pid": os.getpid()}
    state |= {"brain": None if folder is None else str(folder), "under_way": request.state.under_way}
    return JSONReply({**state, "backfill": asdict(server.logs.backfill)})


@router.get("/v1/search", response_model=models.FoundBundle)
def search_get(request: Annotated[models.SearchRequest, Query()], server: Running) -> Response:
    """Find everything that matches, as short excerpts: the JSON of `nugget search --json`."""
    return _search(request, server)


@router.post("/v1/search", response_model=models.FoundBundle)
def search_post(request: models.SearchRequest, server: Running) -> Response:
    """Find everything that matches, as short excerpts: the JSON of `nugget search --json`."""
    return _search(request, server)


@router.get("/v1/ask", response_model=models.FoundBundle)
async def ask_get(request: Annotated[models.AskRequest, Query()], server: Running) -> Response:
    """Find the best units for a question: the JSON of `nugget ask --json`."""
    return await _ask(request, server)


@router.post("/v1/ask", response_model=models.FoundBundle)
async def ask_post(request: models.AskRequest, server: Running) -> Response:
    """Find the best units for a question: the JSON of `nugget ask --json`."""
    return await _ask(request, server)


@router.get("/v1/units/{ref:path}", response_model=models.WholeUnit | models.Excerpt)
def unit(
    ref: Annotated[str, Path(pattern=_REF, max_length=500, description="A ref, its slashes as they are, `#` as %23")],
    server: Running,
    around: Annotated[int, Query(ge=0, le=50, description="Exchanges or messages before and after the named one")] = 1,
) -> Response:
    """Show what a ref names, whole: the JSON of `nugget get --json`."""
    try:
        shown = server.session.ready().get(ref, identity=server.identity, around=around)
    except errors.NuggetError as error:
        if type(error) not in (errors.NuggetError, errors.TranscriptError):
            raise
        known = redact(str(error)).text if isinstance(error, errors.TranscriptError) else "Nothing has this ref."
        raise Refusal(404, "unknown_ref", known, hint="/v1/search finds refs.") from error
    return JSONReply(without_secrets(shown_json(shown)))


@router.post("/v1/sessions", response_model=models.NewSession, status_code=201)
def make_session(server: Running, request: models.SessionRequest = models.SessionRequest()) -> Response:  # noqa: B008
    """Make a session with a folder for its logs."""
    return JSONReply(server.logs.make_session(request), status_code=201)


@router.get("/v1/logs/ingest/{session}", response_model=models.IngestedLogs)
@router.post("/v1/logs/ingest/{session}", response_model=models.IngestedLogs)
def ingest(session: SessionId, server: Running) -> Response:
    """Read what is new in the logs of a session."""
    return JSONReply(server.logs.ingest(session))


@router.get("/v1/logs/context/{session}", response_model=models.LogsBundle)
def logs_context(
    session: SessionId, request: Annotated[models.LogsContextRequest, Query()], server: Running
) -> Response:
    """Return what the logs of a session say about a question."""
    return JSONReply(server.logs.answer(session, request))


@router.post(
    "/v1/completions", response_model=dict[str, Any],
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def completions(request: models.CompletionRequest, server: Running) -> Response:
    """Call the Anthropic Messages API with evidence from a session's logs."""
    llm = open_llm(server.settings, server.environment, budget=server.budget)
    if llm is None:
        raise no_llm(server.settings)
    return await complete(request, llm=llm, settings=server.settings, logs=server.logs, limiter=server.llm_threads)


def _search(request: models.SearchRequest, server: Server) -> Response:
    return _sent(server.session.ready().search(request.query(server.identity)), server)


async def _ask(request: models.AskRequest, server: Server) -> Response:
    def work() -> Response:
        brain = server.session.ready()
        llm = None if request.no_llm else open_llm(brain.settings, brain.environment, budget=server.budget)
        bundle = brain.ask(request.query(), reranker=None if request.no_llm else brain.reranker(llm))
        if llm is None:
            bundle = replace(bundle, degraded=(*bundle.degraded, "no_llm"))
        return _sent(brain.answer(bundle, llm), server)

    waits_for_llm = not request.no_llm and server.settings.llm.enabled and server.environment.anthropic_api_key
    return await to_thread.run_sync(work, limiter=server.llm_threads if waits_for_llm else None)


def _sent(bundle: Bundle, server: Server) -> Response:
    return JSONReply(without_secrets(bundle_json(server.session.caught_up(bundle))))


async def _refused(_: Request, refusal: Refusal) -> Response:
    return refusal.reply()


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    """Describe the first problem of a request in a sentence."""
    problems = error.errors()
    first = problems[0]
    place, kind, message = first["loc"], first["type"], str(first["msg"]).removeprefix("Value error, ")
    name = ".".join(str(part) for part in place[1:])[:60] or "the body"
    hint = "/openapi.json describes every parameter."
    if kind == "json_invalid":
        return Refusal(400, "malformed_json", "The body is not valid JSON.").reply()
    if isinstance(error.body, bytes):
        example = "Send `Content-Type: application/json`."
        return Refusal(415, "unsupported_media_type", "The body must be JSON.", hint=example).reply()
    if kind in ("model_attributes_type", "dict_type") and len(place) == 1:
        return Refusal(400, "malformed_json", "The body must be a JSON object.", hint='Write {"q": "..."}.').reply()
    if kind == "extra_forbidden":
        return Refusal(422, "unknown_parameter", f"There is no parameter `{name}`.", hint=hint).reply()
    if kind == "missing":
        return Refusal(422, "missing_parameter", f"The parameter `{name}` is missing.", hint=hint).reply()
    if place[:2] == ("path", "ref"):
        example = "Refs look like pattern/retry-once or session:4f1c#3."
        return Refusal(422, "invalid_ref", "This is not a ref.", hint=example).reply()
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    text = f"`{name}`: {message[:1].lower()}{message[1:150]}{more}."
    return Refusal(422, "invalid_parameter", text, hint=hint).reply()


async def _wrong(request: Request, error: HTTPException) -> Response:
    """Answer what Starlette and FastAPI refuse: an unknown path or method, a body that is too large or unreadable."""
    if error.status_code == 404:
        hint = "/openapi.json lists what there is."
        return Refusal(404, "not_found", "There is nothing at this path.", hint=hint).reply()
    if error.status_code == 405:
        matching = [route for route in router.routes if route.matches(request.scope)[0] is not Match.NONE]
        named = {method for route in matching if isinstance(route, APIRoute) for method in route.methods or ()}
        allow = ", ".join(sorted(named)) or "POST"
        text = f"{request.method[:20]} is not allowed here."
        return Refusal(405, "method_not_allowed", text, hint=f"Use {allow}.", headers={"allow": allow}).reply()
    if error.status_code == 413:
        return Refusal(413, "body_too_large", f"{error.detail}.", hint="Send less.").reply()
    return Refusal(error.status_code, "malformed_json", "The body cannot be read as JSON.").reply()


async def _failed(_: Request, error: errors.NuggetError) -> Response:
    """Answer an expected failure; its sentence may hold what a file says, so it is redacted."""
    status, code = next((status, code) for kind, status, code in _STATUS_OF if isinstance(error, kind))
    hint = redact(error.hint).text if error.hint else None
    headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, DailyCapReached) else None
    return Refusal(status, code, redact(str(error)).text, hint=hint, headers=headers).reply()


async def _unreadable(request: Request, error: sqlite3.Error) -> Response:
    text = f"The machine's index could not be used ({error})."
    return await _failed(request, errors.IndexUnavailable(text, hint="Try again; check the disk's space."))


async def _unexpected(_: Request, error: Exception) -> Response:
    """Answer a failure that nobody foresaw; whoever started the server gets the details, without secrets."""
    print_traceback(error)
    text = f"Something unexpected went wrong ({type(error).__name__})."
    return Refusal(500, "internal", text, hint="The server's error output has the details.").reply()
