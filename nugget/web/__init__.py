"""The page in the browser, `nugget web`: for one person, on this machine, on top of `nugget.Brain`.

Other users and other pages can reach a loopback port too. So a browser needs a one-time key, which becomes a
cookie, the Host must name this machine, only a POST from our own page changes anything, and pages load nothing else.
"""

from __future__ import annotations

import errno
import secrets
import sys
import webbrowser
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse

from nugget.app import brain_in_use, browsing
from nugget.app.agent_session import AgentSession
from nugget.config import current_folder, read_environment
from nugget.errors import NuggetError
from nugget.http import is_loopback, limited, listen, run, with_headers
from nugget.web.pages import make_app
from nugget.web.site import ErrorPage, problem_page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

DEFAULT_PORT = 5034
MAX_FORM_BYTES = 4_000_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A stricter referrer policy would make browsers send `Origin: null` with our own forms.
_HEADERS = {
    "content-security-policy": _POLICY, "x-content-type-options": "nosniff", "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin", "cache-control": "no-store",
}  # fmt: skip
_LOCKED_OUT = ErrorPage(
    401, "This page is private",
    "Run `nugget web` on this machine, again if a page is shown already: it makes a key that works once.",
)  # fmt: skip


class Gate:
    """ASGI middleware that checks the sender, the origin and the size of every request."""

    def __init__(self, app: ASGIApp, *, home: Path, port: int) -> None:
        self._app, self._home, self._port = app, home, port
        self._cookie, self._sessions = f"nugget-{port}", set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, let a browser in by its key, or answer with a page that says what is wrong."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path, send = Headers(scope=scope), scope["path"], with_headers(send, _HEADERS)
        too_large = ErrorPage(413, "This is too much", f"A form may hold {MAX_FORM_BYTES:,} bytes.")
        problem = self._refused(scope["method"], headers)
        if problem is None and path == "/enter":
            if browsing.use_key(self._home, self._port, Request(scope).query_params.get("key", "")):
                self._sessions.add(session := secrets.token_urlsafe(32))
                reply = RedirectResponse("/", status_code=303)
                reply.set_cookie(self._cookie, session, httponly=True, samesite="lax", path="/")
                await reply(scope, receive, send)
                return
            problem = _LOCKED_OUT
        is_known = Request(scope).cookies.get(self._cookie) in self._sessions
        if problem is None and not path.startswith("/assets/") and not is_known:
            problem = _LOCKED_OUT
        if problem is not None:
            await problem_page(problem)(scope, receive, send)
            return
        await self._app(scope, limited(receive, MAX_FORM_BYTES, too_large), send)

    def _refused(self, method: str, headers: Headers) -> ErrorPage | None:
        """Return why a request is refused for its host, origin or method, or None."""
        host = headers.get("host", "")
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not is_loopback(name.strip("[]")) or port != str(self._port):
            return ErrorPage(421, "Wrong address", f"Open http://127.0.0.1:{self._port} instead.")
        site = headers.get("sec-fetch-site", "none")
        if method in ("GET", "HEAD"):
            opens = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
            if site in ("none", "same-origin") or opens:
                return None
        elif method == "POST" and site == "same-origin" and headers.get("origin") == f"http://{host}":
            return None
        return ErrorPage(403, "Not from here", "Only pages of this server may do this.")


def serve(
    brain: Path | None = None, *, port: int | None = None, opens: bool = True, identity: str | None = None
) -> None:
    """Show the brain in the browser until SIGTERM or Ctrl-C; if it is shown already, open that page.

    Raises BrainError without a brain, NuggetError if another program has the port.
    """
    environment = read_environment()
    brain_in_use(brain, environment)
    port = DEFAULT_PORT if port is None else port
    try:
        listening = listen("127.0.0.1", port)
    except NuggetError as error:
        taken = error.__cause__
        is_taken = isinstance(taken, OSError) and taken.errno == errno.EADDRINUSE
        if is_taken and browsing.key_file(environment.home, port).is_file():
            _show(environment.home, port, opens=opens)
            return
        raise NuggetError(str(error), hint=f"Choose another port: nugget web --port {port + 1}") from error
    own = listening.getsockname()[1]
    session = AgentSession(flag=brain, environment=environment, cwd=current_folder(), face="web", identity=identity)
    app = make_app(session)
    app.add_middleware(Gate, home=environment.home, port=own)
    Thread(target=session.warm, name="nugget-open", daemon=True).start()
    _show(environment.home, own, opens=opens)
    try:
        run(app, listening)
    finally:
        browsing.key_file(environment.home, own).unlink(missing_ok=True)
        session.close()


def _show(home: Path, port: int, *, opens: bool) -> None:
    """Print an address that lets one browser in once, and open it."""
    address = f"http://127.0.0.1:{port}/enter?key={browsing.new_key(home, port)}"
    print(f"Nugget's page: {address} (Ctrl-C ends it).", file=sys.stderr, flush=True)
    if opens:
        webbrowser.open(address)
