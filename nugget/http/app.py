"""The ASGI application: every request passes the same gate, then goes to the one operation of its path and method."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from nugget.errors import NuggetError
from nugget.http.limits import Bodies, check_head, read_body, replayed
from nugget.http.parameters import NothingRequest, Parameters, read_parameters
from nugget.http.replies import Refusal, refusal_of
from nugget.http.security import Access
from nugget.mcp.desk import print_traceback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as an operation sees it: what was asked, the ids in its path, and whether it may know everything."""

    parameters: Any
    path_ids: Mapping[str, str]
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked of a path. `reply` names the schema of the answer in the OpenAPI document."""

    method: str
    path: str
    name: str
    summary: str
    answer: Callable[[Call], Awaitable[Response]]
    reply: str
    parameters: type[Parameters] = NothingRequest
    status: int = 200
    streams: bool = False
    errors: tuple[int, ...] = ()


def make_app(
    operations: Sequence[Operation],
    *,
    access: Access,
    raw: Mapping[str, ASGIApp],
    while_open: Callable[[], Any],
) -> ASGIApp:
    """The application. `raw` are paths (POST only) that speak a protocol of their own.

    `while_open()` is an async context manager that is held while the server runs.
    """
    paths: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    routes = [Route(path, _Endpoint(methods)) for path, methods in paths.items()]
    routes += [Route(path, _PostOnly(app)) for path, app in raw.items()]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with while_open():
            yield

    return _Gate(Router(routes, redirect_slashes=False, default=_not_found, lifespan=lifespan), access)


class _Gate:
    """What every request passes: length, Host, Origin, path, token, body. No failure leaves it as a traceback."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_marked(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        try:
            with self._bodies.counted() as take:
                await self._pass(scope, receive, send_marked, take)
        except Refusal as refusal:
            answer = refusal.reply()
        except NuggetError as error:
            answer = refusal_of(error).reply()
        except Exception as error:
            answer = _unexpected(error).reply()
        else:
            return
        if has_begun:
            raise ConnectionAbortedError  # half an answer is out: all that can be done is to break it off
        await answer(scope, receive, send_marked)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, take: Callable[[int], None]) -> None:
        check_head(scope)
        headers = Headers(scope=scope)
        scope["nugget.is_known"] = self._access.check(headers, scope["path"], raw_path=scope["raw_path"])
        scope["nugget.body"] = b""
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            declared = headers.get("content-length")
            body = await read_body(receive, take, path=scope["path"], declared=declared)
            scope["nugget.body"], receive = body, replayed(body, receive)
        await self._app(scope, receive, send)


class _Endpoint:
    """The operations of one path."""

    def __init__(self, methods: Mapping[str, Operation]) -> None:
        self._methods = methods
        names = [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]
        self._allow = {"allow": ", ".join(names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            await Response(status_code=204, headers=self._allow)(scope, receive, send)
            return
        operation = self._methods.get(method)
        if operation is None:
            raise _wrong_method(scope["method"], self._allow)
        request = Request(scope, receive)
        parameters = read_parameters(
            operation.parameters,
            query_string=scope["query_string"],
            body=scope["nugget.body"],
            content_type=request.headers.get("content-type", ""),
        )
        call = Call(parameters=parameters, path_ids=request.path_params, is_known=scope["nugget.is_known"])
        response = await operation.answer(call)
        await response(scope, receive, send)


class _PostOnly:
    """A protocol of its own behind POST: no stream that stays open for nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise _wrong_method(scope["method"], {"allow": "POST"})
        await self._app(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        raise Refusal(404, "not_found", "There is nothing at this path.", hint="/openapi.json lists what there is.")


def _wrong_method(method: str, allow: Mapping[str, str]) -> Refusal:
    said = f"{method[:20]} is not allowed here."
    return Refusal(405, "method_not_allowed", said, hint=f"Use {allow['allow']}.", headers=allow)


def _unexpected(error: Exception) -> Refusal:
    """What nobody foresaw: the details go to whoever started the server, without secrets."""
    print_traceback()
    return Refusal(
        500, "internal", f"Something unexpected went wrong ({type(error).__name__}).",
        hint="The server's error output has the details.",
    )  # fmt: skip
