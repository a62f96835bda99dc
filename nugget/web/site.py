"""Parts that all pages share: the open brain, the templates, the page of a problem, and HTML of texts.

Texts are untrusted: nothing in their HTML runs or loads.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nugget.app import browsing
from nugget.app.agent_session import AgentSession
from nugget.models.sessions import said_how, standing
from nugget.render import body_of, question_spans
from nugget.render.json import without_secrets
from nugget.text import Item, clean, content_hash, counted, duration, one_line, plain, shorten

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from nugget.app import Brain

ASSETS = Path(__file__).parent / "assets"
_PATIENCE_S = 0.2
_TAGS = frozenset("a blockquote br code del em hr li ol p pre s strong table tbody td th thead tr ul".split())
_WORDS = r"\s+|\w+|[^\w\s]"
_MAX_DIFF_CHARS = 60_000
_MARKS = r"\*\*|__|`|^(?:[-*>#]+ )+"
_TAG = r'(<(?:[^>"]|"[^"]*")*>)'


@dataclass(eq=False)
class ErrorPage(Exception):
    """A page that cannot be shown: its status, a heading and a sentence."""

    status: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """State that the pages share: the open brain, and results cached for a state of it."""

    session: AgentSession
    kept: dict[str, tuple[str, Any]] = field(default_factory=dict)
    running: Any = field(default_factory=Lock)

    def once(self, name: str, tag: str, make: Callable[[], Item]) -> Item:
        """Return the result of `make` for this tag, cached until the tag changes."""
        held = self.kept.get(name)
        if held is None or held[0] != tag:
            held = self.kept[name] = (tag, make())
        return held[1]

    def meanwhile(self, name: str, tag: str, make: Callable[[], Any]) -> Any:
        """Return the last result of `make`, recomputed in the background if the tag changed; None at first.

        Slow work, such as checking 10,000 files, then delays no page; a quick result is returned at once.
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
        """Return the waiting proposals, cached until the repository changes."""
        return self.once("proposals", browsing.pulse(brain)["review"], brain.proposals)


def link_to(ref: str) -> str:
    """Return the address of the page for a ref: its session for an exchange, else its own."""
    source, _, name = ref.partition(":")
    if source in ("session", "sessions") and "#" in name and "/" not in name:  # of a subagent
        session, _, number = name.partition("#")
        return f"/session/{quote(session, safe='')}#exchange-{number}"
    return f"/unit/{quote(ref, safe='/:')}"


def problem_page(problem: ErrorPage) -> Response:
    """Return the page of a problem."""
    return HTMLResponse(_templates().get_template("problem.html").render(problem=problem, header=None), problem.status)


def render(site: Site, request: Request, name: str, *, status: int = 200, **values: Any) -> Response:
    """Render a page from its template without secrets; `&#39;` in `they're passed` would look like one."""
    brain = site.session.ready()
    header = {
        "brain": brain.path.name, "waiting": sum(len(one.files) for one in site.proposals(brain)),
        "path": request.url.path, "pulse": browsing.pulse(brain),
    }  # fmt: skip
    text = _templates().get_template(f"{name}.html").render(header=header, request=request, **values)
    # Each text and attribute by itself: a secret at the end of one would take a quote or a tag along.
    parts = [part.split('"') if part[:1] == "<" else part for part in re.split(_TAG, text.replace("&#39;", "'"))]
    shown = ('"'.join(part) if isinstance(part, list) else part for part in without_secrets(parts))
    return HTMLResponse("".join(shown), status)


def comes_from_here(request: Request) -> bool:
    """Return whether the address was opened here, not by a link of another page."""
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


@cache
def asset_hashes() -> dict[str, str]:
    """Return a short digest of each style sheet and script, by its name."""
    return {file.name: content_hash(file.read_bytes())[:12] for file in ASSETS.iterdir()}


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
        "markdown": markdown, "body_of": body_of, "ago": lambda moment: f"{duration(datetime.now(UTC) - moment)} ago",
        "counted": counted, "said_how": said_how, "standing": standing, "difference": difference, "short": shorten,
        "one_line": one_line, "plain": plain,
        "code": lambda title: Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(_text(title))))),
    }  # fmt: skip
    return made


def markdown(text: str) -> Markup:
    """Return markdown as HTML: no HTML of its own, images as links, links to the web only."""
    import nh3

    made = _parser().render(clean(text))
    return Markup(
        nh3.clean(made, tags=set(_TAGS), attributes={"a": {"href", "title"}, "ol": {"start"}},
                  url_schemes={"http", "https", "mailto"}, link_rel="noopener noreferrer nofollow")
    )  # fmt: skip


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])

    def image(tokens: Any, at: int, *_: object) -> str:
        source, words = tokens[at].attrGet("src") or "", tokens[at].content or "image"
        return f'<a href="{escape(source)}">{escape(words)}</a>'

    def heading(tokens: Any, at: int, options: Any, env: Any) -> str:
        # Headings of a text are not headings of the page, and would break its outline.
        return "</strong></p>" if tokens[at].nesting < 0 else "<p><strong>"

    parser.renderer.rules |= {"image": image, "heading_open": heading, "heading_close": heading}  # type: ignore[attr-defined]
    return parser


def marked(text: str, question: str) -> Markup:
    """Return a line of markdown as text, with the words of a question marked."""
    text, shown, end = clean(re.sub(_MARKS, "", text)), Markup(), 0
    for start, stop in question_spans(text, question):
        shown += escape(text[end:start]) + Markup("<mark>{}</mark>").format(text[start:stop])
        end = stop
    return shown + escape(text[end:])


def difference(before: str, after: str) -> list[tuple[str, Markup]]:
    """Return the changed lines of two texts and a few around them, as (`same`, `old`, `new` or `gap`, HTML).

    Within a line that was changed, the words that differ are marked.
    """
    ours, theirs = clean(before)[:_MAX_DIFF_CHARS].splitlines(), clean(after)[:_MAX_DIFF_CHARS].splitlines()
    found: list[tuple[str, Markup]] = []
    for number, group in enumerate(difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_grouped_opcodes(2)):
        if number:
            found.append(("gap", Markup("⋯")))
        for tag, first, last, begin, end in group:
            if tag == "equal":
                found += [("same", escape(line)) for line in ours[first:last]]
            elif tag == "replace" and last - first == end - begin:
                for old, new in zip(ours[first:last], theirs[begin:end], strict=True):
                    found += _words_of(old, new)
            else:
                found += [("old", escape(line)) for line in ours[first:last]]
                found += [("new", escape(line)) for line in theirs[begin:end]]
    return found


def _words_of(old: str, new: str) -> Iterator[tuple[str, Markup]]:
    ours, theirs = re.findall(_WORDS, old), re.findall(_WORDS, new)
    sides: tuple[list[Markup], list[Markup]] = ([], [])
    for tag, first, last, begin, end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        for side, text in ((sides[0], "".join(ours[first:last])), (sides[1], "".join(theirs[begin:end]))):
            if text:
                side.append(escape(text) if tag == "equal" else Markup("<mark>{}</mark>").format(text))
    yield "old", Markup().join(sides[0])
    yield "new", Markup().join(sides[1])
