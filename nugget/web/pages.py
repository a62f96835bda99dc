"""The application of all pages, and those of the whole brain: home, search, the map, activity and why."""

from __future__ import annotations

import errno
import mimetypes
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nugget.app import browsing
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.app.brains import source_names
from nugget.app.sessions import list_sessions
from nugget.errors import BrainError, ConflictError, NuggetError, ReviewError, TranscriptError, UsageError
from nugget.models import Filter, KnowledgeType, Query, SourceName
from nugget.render import degraded_sentences, stale_words
from nugget.text import content_hash, parse_day, shorten
from nugget.web import units
from nugget.web.site import (
    ASSETS,
    ErrorPage,
    Site,
    asset_hashes,
    comes_from_here,
    link_to,
    marked,
    problem_page,
    render,
)

_RECENT = timedelta(days=14)
_PAUSE_S = 1800
"""A visit ends after a pause of this length."""
MAX_QUERY_CHARS = 2_000
_FACETS = ("source", "type", "domain", "since")
_AGES = {"30d": "the last month", "12m": "the last year"}
_SHARES = {
    "vector": ("meaning", "meaning of the passage"), "vector, whole unit": ("meaning", "meaning of the whole"),
    "vector, title": ("meaning", "meaning of the title"),
    "bm25": ("words", "its words"), "words": ("words", "its words"),
    "near the best match": ("relations", "near the best match"), "relation": ("relations", "related to another result"),
}  # fmt: skip
"""The colour and the name of each part of a score; every other part is `other`."""


def make_app(session: AgentSession) -> Starlette:
    """Return the application with all pages."""
    pages: Mapping[str, Callable[[Site, Request], Response]] = {
        "/": home, "/pulse": pulse, "/review": units.waiting, "/review/{branch:path}": units.proposal,
        "/near/{branch:path}": units.nearest, "/search": results, "/unit/{ref:path}": units.unit,
        "/session/{session}": units.conversation, "/graph": graph_page, "/activity": activity, "/why": why,
    }  # fmt: skip
    actions: Mapping[str, Callable[[Site, Request], Response]] = {
        "/review/{branch:path}": units.decide, "/undo": units.undo, "/unit/{ref:path}": units.change_unit,
        "/add": units.add, "/session/{session}": units.capture, "/why": units.promote,
    }  # fmt: skip
    site = Site(session)
    routes = [
        Route("/assets/{name}", asset),
        *(Route(path, partial(page, site), methods=["GET"]) for path, page in pages.items()),
        *(Route(path, partial(_act, site, action), methods=["POST"]) for path, action in actions.items()),
    ]
    kinds = (ErrorPage, NuggetError, HTTPException, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, _problem))


async def _act(site: Site, action: Callable[[Site, Request], Response], request: Request) -> Response:
    request.state.form = await request.form(max_fields=5_000)
    return await run_in_threadpool(action, site, request)


async def _problem(request: Request, error: Exception) -> Response:
    """Return the page of an error."""
    if isinstance(error, ErrorPage):
        return problem_page(error)
    if isinstance(error, NuggetError):
        status, title = 404 if type(error) in (NuggetError, TranscriptError) else 500, "That did not work"
        if isinstance(error, BrainError):
            status, title = 503, "There is no brain here"
        elif isinstance(error, ConflictError):
            status, title = 409, "Something changed meanwhile"
        elif isinstance(error, (ReviewError, UsageError)):
            status = 404 if request.method == "GET" else 422
        return problem_page(ErrorPage(status, title, error.with_hint))
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return problem_page(ErrorPage(404, "Not found", "There is nothing at this address."))
        return problem_page(ErrorPage(error.status_code, "Not possible", str(error.detail)))
    print_traceback(error)
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "disk is full" in str(error):
        return problem_page(ErrorPage(507, "The disk is full", "Nothing was changed. Free some space, then try again."))
    text = f"Something unexpected went wrong ({type(error).__name__}). The terminal of `nugget web` has the details."
    return problem_page(ErrorPage(500, "This failed", text))


def asset(request: Request) -> Response:
    """Return a style sheet or script; it can be cached for good, since its address contains a digest."""
    name = request.path_params["name"]
    if name not in asset_hashes():
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response((ASSETS / name).read_bytes(), media_type=mimetypes.guess_type(name)[0], headers=headers)


def pulse(site: Site, request: Request) -> Response:
    """Return the change tags, or 304 if the browser has them."""
    tags = browsing.pulse(site.session.ready())
    mark = f'"{content_hash(repr(tags))[:16]}"'
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers={"etag": mark})
    return JSONResponse(tags, headers={"etag": mark})


def home(site: Site, request: Request) -> Response:
    """Show waiting proposals, new units, unanswered questions, and problems."""
    brain = site.session.ready()
    tags = browsing.pulse(brain)
    proposals = site.proposals(brain)
    now = datetime.now(UTC)
    since = now.date() - _RECENT
    cookie = f"nugget-visits-{content_hash(str(brain.path))[:8]}"
    visits = _visits(request.cookies.get(cookie, ""), now)
    seen = datetime.fromtimestamp(visits[0], UTC).date() if visits[0] else since
    fresh, imported = site.once("fresh", f"{tags['index']} {seen}", lambda: browsing.newest(brain, since=seen))
    report = site.once("report", tags["log"] + tags["index"], lambda: brain.asked_questions(since))
    open_questions = [one for one in report["queries"] if (one["weak"] or one["zero"]) and not one["used"]][:8]
    problems = site.meanwhile("problems", f"{tags} {now:%H%M}", lambda: browsing.problems(brain))
    shown = render(
        site, request, "home", seen=seen if visits[0] else None, proposals=proposals, fresh=fresh[:12],
        more=len(fresh[12:]), imported=imported, questions=open_questions, report=report, problems=problems,
        types=list(KnowledgeType), done=units.done_of(request),
        text=request.query_params.get("text", "")[:MAX_QUERY_CHARS],
    )  # fmt: skip
    shown.set_cookie(cookie, f"{visits[0]}.{visits[1]}", max_age=31_536_000, httponly=True, samesite="strict")
    return shown


def _visits(kept: str, now: datetime) -> tuple[int, int]:
    """Return the times of the previous visit (0 if unknown) and of this one, which ends after a pause."""
    parts = [int(part) for part in kept.split(".") if part.isdecimal() and len(part) < 12]
    before, last = parts if len(parts) == 2 else (0, 0)
    moment = int(now.timestamp())
    return (before, moment) if moment - last < _PAUSE_S else (last, moment)


def results(site: Site, request: Request) -> Response:
    """Show the hits of `nugget search` with facets, or only the hits if the script asks."""
    brain = site.session.ready()
    text = request.query_params.get("q", "")
    if len(text) > MAX_QUERY_CHARS:
        raise ErrorPage(422, "This question is too long", f"A question may have {MAX_QUERY_CHARS:,} characters.")
    text = text.replace("\0", " ")
    chosen = {name: [value for value in request.query_params.getlist(name) if value] for name in _FACETS}
    bundle, today = None, datetime.now(UTC).date()
    if text.strip():
        begin = next((day for value in chosen["since"] if (day := parse_day(value, today=today))), None)
        filter_ = Filter(sources=source_names(chosen["source"]), types=tuple(chosen["type"]),
                         domains=tuple(chosen["domain"]), since=begin)  # fmt: skip
        query = Query(text, filter=filter_, limit=20, explain=True, identity=site.session.identity)
        bundle = brain.search(query, log=comes_from_here(request) and "partial" not in request.query_params)
    hits = [_shown_hit(hit, text) for hit in bundle.hits] if bundle else []
    begins = {age: parse_day(age, today=today) or date.max for age in _AGES}
    days = [hit["unit"].last_modified or hit["unit"].created for hit in hits]
    facets = {
        "source": Counter(str(hit["unit"].source) for hit in hits),
        "type": Counter(hit["unit"].type for hit in hits),
        "domain": Counter(dict(Counter(hit["unit"].domain for hit in hits if hit["unit"].domain).most_common(8))),
        "since": Counter({age: sum(day is not None and day >= begin for day in days) for age, begin in begins.items()}),
    }  # fmt: skip

    def narrowed(name: str, value: str) -> str:
        values = {**chosen, name: [] if value in ("", *chosen[name]) else [value]}
        return "/search?" + urlencode([("q", text), *((key, one) for key, given in values.items() for one in given)])

    return render(
        site, request, "results" if "partial" in request.query_params else "search", text=text, hits=hits,
        whole={name: narrowed(name, "") for name, values in chosen.items() if values},
        facets=facets, chosen=chosen, narrowed=narrowed, ages=_AGES, weak=bool(bundle and bundle.weak),
        notes=degraded_sentences(bundle.degraded) if bundle else [], counts=facets["source"],
        is_empty=not brain.index.has_source(SourceName.BRAIN),
    )  # fmt: skip


def _shown_hit(hit: Any, text: str) -> dict[str, Any]:
    """Return a hit with its snippet, its words marked, and its score as parts of a bar."""
    parts = Counter[str]()
    named = [(*_SHARES.get(one.name, ("other", one.name)), one) for one in hit.contributions]
    for colour, _, one in named:
        parts[colour] += max(one.value, 0.0)
    chunk = hit.chunks[0] if hit.chunks else None
    crumbs = [part for part in (chunk.breadcrumb.split(" > ") if chunk else []) if part and part != hit.unit.title]
    bar, start = [], 0.0
    for name in ("meaning", "words", "relations", "other"):
        if parts[name] > 0.001:
            bar.append((name, round(start * 100, 1), round(min(parts[name], 1 - start) * 100, 1)))
            start = min(start + parts[name], 1.0)
    return {
        "hit": hit, "unit": hit.unit, "section": " › ".join(crumbs), "bar": bar, "link": link_to(hit.ref),
        "snippet": marked(shorten(" ".join(chunk.text.split()), 320) if chunk else "", text),
        "title": marked(hit.unit.title, text), "parts": [(name, one.value, one.detail) for _, name, one in named],
        "stale": stale_words(hit) if hit.stale_reason else "",
    }  # fmt: skip


def graph_page(site: Site, request: Request) -> Response:
    """Show the units around one, or the map of all domains."""
    brain, focus = site.session.ready(), request.query_params.get("focus", "")
    steps = 1 if request.query_params.get("steps") == "1" else 2
    if not focus:
        areas = site.once("map", browsing.pulse(brain)["index"], lambda: browsing.domain_map(brain))
        size = (1240, max((area["y"] + area["radius"] for area in areas), default=100) + 40)
        return render(site, request, "map", areas=areas, size=size)
    nodes, links, left_out = units.around(site, focus, steps=steps, near=request.query_params.get("near") != "no")
    types, chosen = sorted({unit.type for unit, *_ in nodes}), request.query_params.get("type", "")
    if chosen:
        nodes = tuple(node for node in nodes if node[0].type == chosen or node[1] == 0)
        ids = {unit.id for unit, *_ in nodes}
        links = tuple(one for one in links if {*one[:2]} <= ids)
    graph = units.drawn((nodes, links, left_out))
    return render(site, request, "graph", graph=graph, steps=steps, focus=focus, types=types, chosen=chosen)


def activity(site: Site, request: Request) -> Response:
    """Show what was captured, asked and spent in the last 14 or 90 days."""
    brain = site.session.ready()
    days = 90 if request.query_params.get("days") == "90" else 14
    since = datetime.now(UTC).date() - timedelta(days=days - 1)
    tags, begin = browsing.pulse(brain), datetime.combine(since, time(), UTC)
    _, sessions = site.once(
        f"sessions {days}", f"{tags} {datetime.now(UTC):%Y%m%d%H%M}",
        lambda: list_sessions(brain.provenance(site.session.cwd), everything=True, since=begin),
    )  # fmt: skip
    wanted = request.query_params.get("filter", "")[:200].casefold()
    questions = [(one, "not answered" * (one.weak or not one.units)) for one in browsing.questions(brain, since)]
    asked = [one for one, outcome in questions if wanted in _words_of(one.text, one.face, outcome)]
    keys = brain.index.unit_keys({name for one in asked[:100] for name in one.unit_ids})
    return render(
        site, request, "activity", days=days, asked=asked[:100], filter=wanted, more=len(asked[100:]),
        sessions=[one for one in sessions if wanted in _words_of(one.title, one.first_prompt, one.agent, one.outcome)],
        report=site.once(f"questions {since}", tags["log"] + tags["index"], lambda: brain.asked_questions(since)),
        spent=browsing.spending(brain.environment.home, since=begin),
        titles={unit.id: unit.title for unit in brain.index.units(keys.values()).values()},
    )  # fmt: skip


def _words_of(*parts: object) -> str:
    return " ".join(map(str, parts)).casefold()


def why(site: Site, request: Request) -> Response:
    """Show the workspace's files by their nuggets, where nuggets are missing, and the answer for one file."""
    path = request.query_params.get("path", "").strip()[:500]
    answer = site.session.explain_code(Query("", path=path)) if path else None
    brain = site.session.ready()
    tag = browsing.pulse(brain)["log"]
    covered, gaps = site.once("coverage", tag, lambda: browsing.coverage(brain, folder=site.session.cwd))
    return render(site, request, "why", path=path, answer=answer, covered=covered[:60], gaps=gaps)
