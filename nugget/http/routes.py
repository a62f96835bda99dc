"""The endpoints of the HTTP face. FastAPI reads the requests and writes the OpenAPI document.

`/v1/completions` is a call of the Anthropic Messages API, with evidence from a session's logs in its system text. The
reply is the API's own, plain or streamed. The header `x-nugget-context` says what was added, and with
`context_explain` a plain reply has it under `context`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from nugget import __version__, errors
from nugget.app.agent_session import AgentSession, DailyCapReached, print_traceback
from nugget.app.logs import Logs, UnknownSession, evidence_json
from nugget.http import models
from nugget.http.models import MAX_QUESTION_CHARS, CompletionRequest, JSONReply, Refusal
from nugget.render.json import bundle_json, ingested_json, shown_json, without_secrets

LLM_THREADS = 16
"""Requests that wait for an LLM at the same time; the others use AnyIO's own threads."""

TIMEOUT_S = 600.0
"""For a whole call of /v1/completions: a long answer that streams takes minutes."""

_STATUS_OF: tuple[tuple[type[errors.NuggetError], int, str], ...] = (
    (DailyCapReached, 429, "daily_cap_reached"),
    (UnknownSession, 404, "unknown_session"),
    (errors.UsageError, 422, "invalid_request"),
    (errors.BrainError, 503, "no_brain"),
    (errors.IndexUnavailable, 503, "index_unavailable"),
    (errors.LLMUnavailable, 503, "llm_unavailable"),
    (errors.NuggetError, 500, "failed"),
)
"""The first kind that an error is decides its status and code."""
_REF = r"^[^\s:\x00-\x1f\x7f][^\x00-\x1f\x7f\\]*$"
_STATUSES = (400, 401, 403, 404, 405, 413, 415, 421, 422, 429, 500, 503)


@dataclass(frozen=True, slots=True)
class Server:
    """State that the endpoints share."""

    session: AgentSession
    logs: Logs
    llm_threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(LLM_THREADS))


def make_app(session: AgentSession, logs: Logs, *, lifespan: Callable[[FastAPI], Any]) -> FastAPI:
    """Return the application; `lifespan` holds what runs beside it."""
    app = FastAPI(
        title="Nugget", summary="The memory layer for coding agents", version=__version__, lifespan=lifespan,
        license_info={"name": "MIT", "identifier": "MIT"}, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        responses={code: {"model": models.Error, "description": HTTPStatus(code).phrase} for code in _STATUSES},
    )  # fmt: skip
    app.state.server = Server(session, logs)
    app.include_router(questions)
    app.include_router(router)
    add_handlers(app)
    return app


def make_space_app(session: AgentSession) -> FastAPI:
    """Return the application that answers questions to one brain, for a server of several."""
    app = FastAPI(title="Nugget", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.server = Server(session, Logs(environment=session.environment, settings=session.settings))
    app.include_router(questions)
    add_handlers(app)
    return app


def add_handlers(app: FastAPI) -> None:
    """Have every failure answered as `{"error": {"code", "message", "hint"}}`."""
    for kind, answer in (
        (RequestValidationError, _invalid), (HTTPException, _wrong), (Refusal, _refused), (errors.NuggetError, _failed),
        (sqlite3.Error, _failed), (Exception, _failed),
    ):  # fmt: skip
        app.add_exception_handler(kind, answer)  # type: ignore[arg-type]


async def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


questions, router = APIRouter(), APIRouter()
Running = Annotated[Server, Depends(_server)]
SessionId = Annotated[str, Path(description="The session's id", max_length=128, pattern=models.SESSION_ID)]


@router.get("/healthz")
async def health(request: Request, server: Running) -> Response:
    """Return the state of the server."""
    if not request.state.knows_token:
        return JSONReply({"status": "ok"})
    folder, state = server.session.folder, {"status": "ok", "version": __version__, "pid": os.getpid()}
    state |= {"brain": None if folder is None else str(folder), "under_way": request.state.under_way}
    return JSONReply({**state, "backfill": server.logs.backfill})


@questions.get("/v1/search")
def search_get(request: Annotated[models.SearchRequest, Query()], server: Running) -> Response:
    """Find everything that matches, as short excerpts: the JSON of `nugget search --json`."""
    return _search(request, server)


@questions.post("/v1/search")
def search_post(request: models.SearchRequest, server: Running) -> Response:
    """Find everything that matches, as short excerpts: the JSON of `nugget search --json`."""
    return _search(request, server)


@questions.get("/v1/ask")
async def ask_get(request: Annotated[models.AskRequest, Query()], server: Running) -> Response:
    """Find the best units for a question: the JSON of `nugget ask --json`."""
    return await _ask(request, server)


@questions.post("/v1/ask")
async def ask_post(request: models.AskRequest, server: Running) -> Response:
    """Find the best units for a question: the JSON of `nugget ask --json`."""
    return await _ask(request, server)


@questions.get("/v1/units/{ref:path}")
def unit(
    ref: Annotated[str, Path(pattern=_REF, max_length=500, description="A ref, its slashes as they are, `#` as %23")],
    server: Running,
    around: Annotated[int, Query(ge=0, le=50, description="Exchanges or messages before and after the named one")] = 1,
) -> Response:
    """Show what a ref names, whole: the JSON of `nugget get --json`."""
    try:
        shown = server.session.ready().get(ref, identity=server.session.identity, around=around)
    except errors.NuggetError as error:
        if type(error) not in (errors.NuggetError, errors.TranscriptError):
            raise
        known = str(error) if isinstance(error, errors.TranscriptError) else "Nothing has this ref."
        raise Refusal(404, "unknown_ref", known, hint="/v1/search finds refs.") from error
    return JSONReply(without_secrets(shown_json(shown)))


@router.post("/v1/sessions", status_code=201)
def make_session(server: Running, request: models.SessionRequest = models.SessionRequest()) -> Response:  # noqa: B008
    """Make a session with a folder for its logs."""
    return JSONReply(server.logs.make_session(request.title), status_code=201)


@router.get("/v1/logs/ingest/{session}")
@router.post("/v1/logs/ingest/{session}")
def ingest(session: SessionId, server: Running) -> Response:
    """Read what is new in the logs of a session."""
    return JSONReply(ingested_json(server.logs.ingest(session)))


@router.get("/v1/logs/context/{session}")
def logs_context(
    session: SessionId, request: Annotated[models.LogsContextRequest, Query()], server: Running
) -> Response:
    """Return what the logs of a session say about a question."""
    found = server.logs.session_evidence(session, request.q, request.options(), fresh=False)
    return JSONReply(evidence_json(found, explain=request.explain))


@router.post(
    "/v1/completions",
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def completions(request: models.CompletionRequest, server: Running) -> Response:
    """Call the Anthropic Messages API with evidence from a session's logs."""
    return await _complete(request, server.session, server.logs, limiter=server.llm_threads)


def _search(request: models.SearchRequest, server: Server) -> Response:
    session = server.session
    found = session.caught_up(session.ready().search(request.query(session.identity)))
    return JSONReply(without_secrets(bundle_json(found)))


async def _ask(request: models.AskRequest, server: Server) -> Response:
    def work() -> Response:
        return JSONReply(without_secrets(bundle_json(server.session.ask(request.query(), with_llm=not request.no_llm))))

    waits_for_llm = not request.no_llm and server.session.llm()
    return await to_thread.run_sync(work, limiter=server.llm_threads if waits_for_llm else None)


async def _complete(
    request: CompletionRequest, session: AgentSession, logs: Logs, *, limiter: CapacityLimiter
) -> Response:
    """Return the API's reply as it comes. Raises Refusal and LLMUnavailable before it begins."""
    llm, settings, mode = session.required_llm(), session.settings, request.context_mode

    def begin() -> tuple[Any, Any, str, dict[str, Any]]:
        text, facts, shown = "", "off" if mode == "off" else "no session", dict[str, Any]()
        if mode != "off" and request.session_id:
            question = _question(request)[:MAX_QUESTION_CHARS]
            text, facts, shown = logs.for_call(
                request.session_id, question, request.options(), request.selector(), mode=mode, llm=llm
            )
        body = llm.forward(
            _call(request, model=settings.llm.answer_model, added=text), purpose="completion", timeout_s=TIMEOUT_S,
            max_usd=settings.http.max_usd, session=request.session_id,
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
    """Read the parts in threads; the call ends with its last part, or when the client has gone."""
    try:
        while (part := await to_thread.run_sync(next, body, None, limiter=limiter)) is not None:
            yield part
    finally:
        body.close()


def _call(request: CompletionRequest, *, model: str, added: str) -> dict[str, Any]:
    """Return the body of the API's call. System messages go where the API takes them."""
    system = (
        [{"type": "text", "text": request.system}] if isinstance(request.system, str) else [*(request.system or ())]
    )
    given = [message for message in request.messages if message.get("role") == "system"]
    texts = [*(_text_of(message.get("content")) for message in given), *([added] if added else [])]
    messages = [message for message in request.messages if message.get("role") != "system"]
    if request.prompt:
        messages.append({"role": "user", "content": request.prompt})
    if not messages:
        raise Refusal(422, "missing_parameter", "There is no message.", hint="Send `messages`, or a `prompt`.")
    system += [{"type": "text", "text": text} for text in texts]
    call = {**request.call(), "model": request.model or model, "messages": messages}
    call.pop("system", None)
    return {**call, "system": system} if system else call


def _question(request: CompletionRequest) -> str:
    """Return the text of the user's last message."""
    if request.prompt:
        return request.prompt
    from_user = [message for message in request.messages if message.get("role") == "user"]
    return _text_of(from_user[-1].get("content")) if from_user else ""


def _text_of(content: object) -> str:
    """Return the text of a message's content: a text, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


async def _refused(_: Request, refusal: Refusal) -> Response:
    return refusal.reply()


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    """Describe the first problem of a request in a sentence."""
    problems = error.errors()
    place, kind = problems[0]["loc"], problems[0]["type"]
    name = ".".join(str(part) for part in place[1:])[:60] or "the body"
    message = str(problems[0]["msg"]).removeprefix("Value error, ")
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    status, code, hint = 422, "invalid_parameter", "/openapi.json describes every parameter."
    text = f"`{name}`: {message[:1].lower()}{message[1:150]}{more}."
    if kind == "json_invalid":
        status, code, text, hint = 400, "malformed_json", "The body is not valid JSON.", ""
    elif isinstance(error.body, bytes):
        status, code, hint = 415, "unsupported_media_type", "Send `Content-Type: application/json`."
        text = "The body must be JSON."
    elif kind in ("model_attributes_type", "dict_type") and len(place) == 1:
        status, code, text, hint = 400, "malformed_json", "The body must be a JSON object.", 'Write {"q": "..."}.'
    elif kind == "extra_forbidden":
        code, text = "unknown_parameter", f"There is no parameter `{name}`."
    elif kind == "missing":
        code, text = "missing_parameter", f"The parameter `{name}` is missing."
    elif place[:2] == ("path", "ref"):
        code, text = "invalid_ref", "This is not a ref."
        hint = "Refs look like pattern/retry-once or session:4f1c#3."
    elif place[-1] in ("session", "session_id"):
        code, text = "invalid_session_id", "This is not a session id."
        hint = "An id has letters, digits, `_`, `-`, `.`, `:` and `@`, 128 at most."
    return Refusal(status, code, text, hint=hint or None).reply()


async def _wrong(request: Request, error: HTTPException) -> Response:
    """Answer what Starlette and FastAPI refuse: an unknown path or method, a body that is too large or unreadable."""
    if error.status_code == 404:
        hint = "/openapi.json lists what there is."
        return Refusal(404, "not_found", "There is nothing at this path.", hint=hint).reply()
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow", "POST")
        text = f"{request.method[:20]} is not allowed here."
        return Refusal(405, "method_not_allowed", text, hint=f"Use {allow}.", headers={"allow": allow}).reply()
    if error.status_code == 413:
        return Refusal(413, "body_too_large", f"{error.detail}.", hint="Send less.").reply()
    return Refusal(error.status_code, "malformed_json", "The body cannot be read as JSON.").reply()


async def _failed(_: Request, error: Exception) -> Response:
    """Answer a failure in a sentence without secrets; whoever started the server gets the details of a surprise."""
    if isinstance(error, sqlite3.Error):
        text = f"The machine's index could not be used ({error})."
        error = errors.IndexUnavailable(text, hint="Try again; check the disk's space.")
    if isinstance(error, errors.NuggetError):
        status, code = next((status, code) for kind, status, code in _STATUS_OF if isinstance(error, kind))
        headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, DailyCapReached) else None
        return Refusal(status, code, str(error), hint=error.hint, headers=headers).reply()
    print_traceback(error)
    text = f"Something unexpected went wrong ({type(error).__name__})."
    return Refusal(500, "internal", text, hint="The server's error output has the details.").reply()
