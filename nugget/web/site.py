"""What all pages share: the open brain, the templates, and how a problem is shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nugget.app import browsing
from nugget.app.agent_session import AgentSession
from nugget.models.sessions import said_how, standing
from nugget.render.json import without_secrets
from nugget.text import ago, clean, counted, shorten
from nugget.web.markup import body, difference, markdown

if TYPE_CHECKING:
    from nugget.app import Brain

ASSETS = Path(__file__).parent / "assets"
_PATIENCE_S = 0.2


@dataclass(eq=False)
class Problem(Exception):
    """Why a page cannot be shown, in a sentence, and the way on."""

    status: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """What the pages share: the open brain, and what was worked out for a state of it."""

    session: AgentSession
    kept: dict[str, tuple[str, Any]] = field(default_factory=dict)
    running: Any = field(default_factory=Lock)

    def once(self, name: str, tag: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returned for this tag, calling it only if the tag is another one."""
        held = self.kept.get(name)
        if held is None or held[0] != tag:
            held = self.kept[name] = (tag, make())
        return held[1]

    def meanwhile(self, name: str, tag: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returned last, calling it beside the page if the tag is another one; None at first.

        What takes long, such as checking 10,000 files, then keeps no page waiting; what is quick is there at once.
        """
        if tag != self.kept.get(name, ("",))[0] and self.running.acquire(blocking=False):

            def work() -> None:
                try:
                    self.once(name, tag, make)
                finally:
                    self.running.release()

            thread = Thread(target=work, name=f"nugget-{name}", daemon=True)
            thread.start()
            thread.join(_PATIENCE_S)
        return self.kept.get(name, ("", None))[1]

    def proposals(self, brain: Brain) -> Sequence[Any]:
        """Return the proposals that wait; git is asked only if something changed."""
        found: Sequence[Any] = self.once("proposals", browsing.pulse(brain)["review"], brain.proposals)
        return found


def problem_page(problem: Problem) -> Response:
    """Return the page of a problem."""
    return HTMLResponse(_templates().get_template("problem.html").render(problem=problem, header=None), problem.status)


def render(site: Site, request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page by its template; what still looks like a secret is taken out."""
    brain = site.session.ready()
    header = {
        "brain": brain.path.name, "waiting": sum(len(one.files) for one in site.proposals(brain)),
        "path": request.url.path, "pulse": browsing.pulse(brain),
    }  # fmt: skip
    text = _templates().get_template(f"{name}.html").render(header=header, request=request, **values)
    return HTMLResponse(without_secrets(text), status)


def comes_from_here(request: Request) -> bool:
    """Return whether a person opened the address here; a link of another page asks nothing in their name."""
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


@cache
def asset_hashes() -> dict[str, str]:
    """Return a short digest of each style sheet and script, by its name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in ASSETS.iterdir()}


def _text(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Templates:
    made = Templates(
        loader=PackageLoader("nugget.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_text,
    )  # fmt: skip
    made.globals |= {"hashes": asset_hashes(), "quote": lambda text: quote(str(text), safe="/:")}
    made.filters |= {
        "markdown": markdown, "body": body, "ago": lambda moment: ago(moment, datetime.now(UTC)), "counted": counted,
        "said_how": said_how, "standing": standing, "difference": difference, "short": shorten,
        "one_line": lambda text: " ".join(str(text).split()),
    }  # fmt: skip
    return made
