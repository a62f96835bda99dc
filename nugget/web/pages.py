"""The pages: what each shows. Nothing is decided here."""

from __future__ import annotations

import errno
import hashlib
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nugget.app import browsing
from nugget.app.agent_session import AgentSession, print_traceback
from nugget.app.provenance import Provenance
from nugget.app.sessions import find_session, list_sessions
from nugget.errors import BrainError, ConflictError, NuggetError, ReviewError, TranscriptError, UsageError
from nugget.models import Event, KnowledgeType, SourceName, Unit
from nugget.text import clean
from nugget.web import review, search
from nugget.web.search import MAX_QUERY_CHARS
from nugget.web.site import ASSETS, Problem, Site, asset_hashes, comes_from_here, problem_page, render

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.evaluation.query_log import Asked

_RECENT = timedelta(days=14)
_PAUSE_S = 1800
"""A visit ends when nothing was opened for so long."""
_DONE = {
    "edit": "Your edit is saved.", "move": "The unit was moved.", "add": "The unit was added.",
    "forget": "The unit was forgotten and will not be proposed again.", "open": "The file was opened in your editor.",
}  # fmt: skip


def make_app(session: AgentSession) -> Starlette:
    """Return the application of all pages."""
    pages: Mapping[str, Callable[[Site, Request], Response]] = {
        "/": home, "/review": review.waiting, "/review/{branch:path}": review.proposal,
        "/near/{branch:path}": review.nearest, "/search": search.results,
        "/unit/{ref:path}": unit, "/session/{session}": conversation, "/graph": graph, "/activity": activity,
        "/why": why,
    }  # fmt: skip
    actions: Mapping[str, Callable[[Site, Any], Response]] = {
        "/review/{branch:path}": review.decide, "/undo": review.undo, "/unit/{ref:path}": change_unit, "/add": add,
        "/session/{session}": capture, "/why": promote,
    }  # fmt: skip
    site = Site(session)
    routes = [
        Route("/assets/{name}", asset), Route("/pulse", partial(_answer, site, pulse)),
        *(Route(path, partial(_answer, site, page), methods=["GET"]) for path, page in pages.items()),
        *(Route(path, partial(_act, site, action), methods=["POST"]) for path, action in actions.items()),
    ]  # fmt: skip
    return Starlette(
        routes=routes, exception_handlers={Problem: _problem, HTTPException: _problem, Exception: _problem}
    )


async def _answer(site: Site, page: Callable[[Site, Request], Response], request: Request) -> Response:
    return await run_in_threadpool(_guarded, page, site, request)


async def _act(site: Site, action: Callable[[Site, Any], Response], request: Request) -> Response:
    request.state.form = await request.form(max_fields=5_000)
    return await run_in_threadpool(_guarded, action, site, request)


def _guarded(page: Callable[[Site, Request], Response], site: Site, request: Request) -> Response:
    """Return a page, or one that says in a sentence what is wrong."""
    try:
        return page(site, request)
    except BrainError as error:
        problem = Problem(503, "There is no brain here", _sentence(error))
    except ConflictError as error:
        problem = Problem(409, "Something changed meanwhile", _sentence(error))
    except (ReviewError, UsageError) as error:
        problem = Problem(404 if request.method == "GET" else 422, "That did not work", _sentence(error))
    except NuggetError as error:
        is_unknown = type(error) in (NuggetError, TranscriptError)
        problem = Problem(404 if is_unknown else 500, "That did not work", _sentence(error))
    return problem_page(problem)


def _sentence(error: NuggetError) -> str:
    return f"{error} {error.hint or ''}".strip()


async def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, Problem):
        return problem_page(error)
    if isinstance(error, HTTPException):
        text = "There is nothing at this address." if error.status_code == 404 else str(error.detail)
        return problem_page(
            Problem(error.status_code, "Not found" if error.status_code == 404 else "Not possible", text)
        )
    print_traceback(error)
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "disk is full" in str(error):
        return problem_page(Problem(507, "The disk is full", "Nothing was changed. Free some space, then try again."))
    text = f"Something unexpected went wrong ({type(error).__name__}). The terminal of `nugget web` has the details."
    return problem_page(Problem(500, "This failed", text))


def asset(request: Request) -> Response:
    """Return a style sheet or script; its address names its content, so that it can be kept."""
    name = request.path_params["name"]
    if name not in asset_hashes():
        raise HTTPException(404)
    kind = mimetypes.guess_type(name)[0]
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response((ASSETS / name).read_bytes(), media_type=kind, headers=headers)


def pulse(site: Site, request: Request) -> Response:
    """Return the tags of what changes, or 304 if they are those that the browser knows."""
    tags = browsing.pulse(site.session.ready())
    mark = '"' + hashlib.sha256(repr(tags).encode()).hexdigest()[:16] + '"'
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers={"etag": mark})
    return JSONResponse(tags, headers={"etag": mark})


def home(site: Site, request: Request) -> Response:
    """What waits, what is new, what was asked in vain, and what is wrong."""
    brain = site.session.ready()
    tags = browsing.pulse(brain)
    proposals = site.proposals(brain)
    now = datetime.now(UTC)
    since = now.date() - _RECENT
    cookie = f"nugget-visits-{hashlib.sha256(str(brain.path).encode()).hexdigest()[:8]}"
    visits = _visits(request.cookies.get(cookie, ""), now)
    seen = datetime.fromtimestamp(visits[0], UTC).date() if visits[0] else since
    fresh, imported = site.once("fresh", f"{tags['index']} {seen}", lambda: browsing.newest(brain, since=seen))
    report = site.once("report", tags["log"] + tags["index"], lambda: brain.asked_questions(since))
    open_questions = [one for one in report["queries"] if (one["weak"] or one["zero"]) and not one["used"]][:8]
    problems = site.meanwhile("problems", f"{tags} {now:%H%M}", lambda: browsing.problems(brain))
    shown = render(
        site, request, "home", seen=seen if visits[0] else None, proposals=proposals, fresh=fresh[:12],
        more=len(fresh[12:]), imported=imported, questions=open_questions, report=report, problems=problems,
        types=list(KnowledgeType), done=_done(request), text=request.query_params.get("text", "")[:MAX_QUERY_CHARS],
    )  # fmt: skip
    shown.set_cookie(cookie, f"{visits[0]}.{visits[1]}", max_age=31_536_000, httponly=True, samesite="strict")
    return shown


def _done(request: Request) -> tuple[str, str]:
    """Return what was just done, and the commit by which it can be undone, each empty if there is none."""
    if not comes_from_here(request):
        return "", ""
    return _DONE.get(request.query_params.get("done", ""), ""), request.query_params.get("commit", "")


def _after(brain: Brain, act: str, ref: str, before: str | None) -> Response:
    """Go to a unit, or home from one that is gone, and say what was done since the commit `before`."""
    head = browsing.head(brain)
    place = f"/unit/{quote(ref, safe='/:')}" if ref else "/"
    return RedirectResponse(f"{place}?done={act}&commit={head if head not in (None, before) else ''}", 303)


def _visits(kept: str, now: datetime) -> tuple[int, int]:
    """Return the times of the visit before this one (0 if unknown) and of this one, which ends after a pause."""
    parts = [int(part) for part in kept.split(".") if part.isdecimal() and len(part) < 12]
    before, last = parts if len(parts) == 2 else (0, 0)
    moment = int(now.timestamp())
    return (before, moment) if moment - last < _PAUSE_S else (last, moment)


def unit(site: Site, request: Request, *, problem: str = "", typed: str = "") -> Response:
    """A unit, whole: its text, evidence, relations both ways, what is near, its history and who used it."""
    brain, ref = site.session.ready(), request.path_params["ref"]
    shown = brain.get(ref, identity=site.session.identity, fresh=False)
    if shown.unit is None:
        assert shown.excerpt is not None
        return RedirectResponse(f"/session/{quote(shown.excerpt.session, safe='')}", 303)
    found: Unit = shown.unit
    is_ours = found.source is SourceName.BRAIN
    near = graph_ = None
    history: Sequence[Any] = ()
    file, digest = "", ""
    if is_ours:
        graph_ = _around(site, found.ref, steps=1)
        tag = f"{found.id} {browsing.pulse(brain)['review']}"
        history = site.once("history", tag, lambda: browsing.unit_history(brain, found))
        file, digest = browsing.unit_file(brain, found)
    else:
        near = brain.related(found.ref, fresh=False).hits[:5]
    report = site.once("all questions", browsing.pulse(brain)["log"], brain.asked_questions)
    return render(
        site, request, "unit", unit=found, graph=graph_ and drawn(graph_), near=near or (), history=history, file=file,
        digest=digest, is_ours=is_ours, typed=typed, problem=problem, status=409 if problem else 200,
        asked=_askings(report, found) if is_ours else [], stale=browsing.stale_cause(brain, found) if is_ours else None,
        done=_done(request),
    )  # fmt: skip


def _askings(report: Mapping[str, Any], unit: Unit) -> list[Any]:
    """Return the questions that the unit was part of the answer to."""
    return [one for one in report["queries"] if any(unit.id == its["id"] for its in one["units"])][:8]


def change_unit(site: Site, request: Request) -> Response:
    """Edit, restore, move, forget or open a unit."""
    brain, ref, form = site.session.ready(), request.path_params["ref"], request.state.form
    shown = brain.get(ref, fresh=False).unit
    if shown is None or shown.source is not SourceName.BRAIN:
        raise Problem(422, "That did not work", "Only units of the brain can be changed.")
    act, goes_to, before = str(form.get("act", "")), shown.ref, browsing.head(brain)
    if act == "open":
        browsing.open_file(brain, shown)
    elif act == "forget":
        brain.forget(shown.id)
        goes_to = ""
    elif act == "move":
        goes_to = brain.move(shown.id, domain=str(form.get("domain", "")) or None)[0].new_id
    elif act == "edit":
        text = str(form.get("text", "")).replace("\r\n", "\n")
        try:
            browsing.edit_unit(brain, shown.id, text, expect=str(form.get("digest", "")))
        except NuggetError as error:
            return unit(site, request, problem=f"{_sentence(error)} Your text is kept below.", typed=text)
    else:
        raise Problem(422, "That did not work", "There is no such change.")
    return _after(brain, act, goes_to, before)


def add(site: Site, request: Request) -> Response:
    """Keep a text as a new unit."""
    form = request.state.form
    text, kind, domain = (str(form.get(name, "")) for name in ("text", "type", "domain"))
    brain = site.session.ready()
    before = browsing.head(brain)
    unit_id, _ = brain.add(text.replace("\r\n", "\n"), type=kind, domain=domain.strip() or "general")
    return _after(brain, "add", unit_id, before)


def conversation(site: Site, request: Request) -> Response:
    """A session: its exchanges, failures marked, and what came of it."""
    brain = site.session.ready()
    detail = find_session(_seen(site, brain), request.path_params["session"])
    quoted = " ".join(request.query_params.get("quote", "")[:300].split())
    if "partial" in request.query_params and detail.session:
        found = [one for one in detail.exchanges if any(_says(event, quoted) for event in one.events)]
        return render(site, request, "exchanges", exchanges=found[:1], quote=quoted)
    return render(site, request, "session", detail=detail, quote=quoted)


def capture(site: Site, request: Request) -> Response:
    """Queue a session for capture; the page says so, and shows what came of it once the worker is done."""
    brain, session = site.session.ready(), request.path_params["session"]
    browsing.queue_session(brain, find_session(_seen(site, brain), session).known.id)
    return RedirectResponse(f"/session/{quote(session, safe='')}?queued=1", 303)


def promote(site: Site, request: Request) -> Response:
    """Propose a nugget as a unit, and show the proposal."""
    brain = site.session.ready()
    nugget, stale = _seen(site, brain).nugget(str(request.state.form.get("nugget", ""))[:200])
    domain = str(request.state.form.get("domain", "")).strip() or "coding"
    done = brain.promote(nugget, stale=stale, type=None, domain=domain, dry_run=False)
    return RedirectResponse(f"/review/{done.branch}", 303)


def _says(event: Event, quoted: str) -> bool:
    return bool(quoted) and quoted[:60] in " ".join(event.text.split())


def _seen(site: Site, brain: Brain) -> Provenance:
    return Provenance(environment=brain.environment, folder=site.session.cwd, brain=brain)


def graph(site: Site, request: Request) -> Response:
    """The units around one; without one, the map of all domains."""
    brain, focus = site.session.ready(), request.query_params.get("focus", "")
    steps = 1 if request.query_params.get("steps") == "1" else 2
    if not focus:
        areas = site.once("map", browsing.pulse(brain)["index"], lambda: browsing.domain_map(brain))
        size = (1240, max((area.y + area.radius for area in areas), default=100) + 40)
        return render(site, request, "map", areas=areas, size=size)
    found = _around(site, focus, steps=steps, near=request.query_params.get("near") != "no")
    types, chosen = sorted({node.unit.type for node in found.nodes}), request.query_params.get("type", "")
    if chosen:
        nodes = tuple(node for node in found.nodes if node.unit.type == chosen or node.steps == 0)
        ids = {node.unit.id for node in nodes}
        found = replace(found, nodes=nodes, links=tuple(one for one in found.links if {*one[:2]} <= ids))
    return render(site, request, "graph", graph=drawn(found), steps=steps, focus=focus, types=types, chosen=chosen)


def _around(site: Site, ref: str, *, steps: int, near: bool = True) -> browsing.Graph:
    """Return the graph around a unit; the last one is kept, since its page is often opened again."""
    brain = site.session.ready()
    tag = f"{browsing.pulse(brain)['index']} {ref} {steps} {near}"
    made: browsing.Graph = site.once("graph", tag, lambda: browsing.graph(brain, ref, steps=steps, near=near))
    return made


def drawn(graph: browsing.Graph) -> dict[str, Any]:
    """Return a graph as its template draws it: the view box, its lines and its nodes with names in two lines."""
    xs, ys = [node.x for node in graph.nodes], [node.y for node in graph.nodes]
    left, top = min(xs) - 130, min(ys) - 50
    places = {node.unit.id: node for node in graph.nodes}
    lines = [
        (places[source].x, places[source].y, places[target].x, places[target].y, relation)
        for source, target, relation in graph.links
    ]
    nodes = [(node, _two_lines(clean(node.unit.title))) for node in graph.nodes]
    size = (max(xs) + 130 - left, max(ys) + 80 - top)
    return {
        "box": f"{left:.0f} {top:.0f} {size[0]:.0f} {size[1]:.0f}", "lines": lines, "nodes": nodes,
        "links": graph.links, "left_out": graph.left_out,
        "titles": {key: one.unit.title for key, one in places.items()},
    }  # fmt: skip


def _two_lines(title: str, width: int = 24) -> list[str]:
    lines = [""]
    for word in title.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    short = [line if len(line) <= width + 6 else line[: width + 5] + "…" for line in lines[:2]]
    if len(lines) > 2:
        short[1] = short[1].rstrip("…") + " …"
    return short


def activity(site: Site, request: Request) -> Response:
    """What was captured, asked and spent in the last 14 or 90 days."""
    brain = site.session.ready()
    days = 90 if request.query_params.get("days") == "90" else 14
    since = datetime.now(UTC).date() - timedelta(days=days - 1)
    tags, begin = browsing.pulse(brain), datetime.combine(since, time(), UTC)
    _, sessions = site.once(
        f"sessions {days}", f"{tags} {datetime.now(UTC):%Y%m%d%H%M}",
        lambda: list_sessions(_seen(site, brain), everything=True, since=begin),
    )  # fmt: skip
    wanted = request.query_params.get("filter", "")[:200].casefold()
    asked = [one for one in browsing.questions(brain, since) if wanted in _words_of(one.text, one.face, _outcome(one))]
    return render(
        site, request, "activity", days=days, asked=asked[:100], filter=wanted, more=len(asked[100:]),
        sessions=[one for one in sessions if wanted in _words_of(one.title, one.first_prompt, one.agent, one.outcome)],
        report=site.once(f"questions {since}", tags["log"] + tags["index"], lambda: brain.asked_questions(since)),
        spent=browsing.spent(brain, begin),
        titles=browsing.titles(brain, {name for one in asked[:100] for name in one.unit_ids}),
    )  # fmt: skip


def _outcome(asked: Asked) -> str:
    return "not answered" if asked.weak or not asked.units else ""


def _words_of(*parts: object) -> str:
    return " ".join(map(str, parts)).casefold()


def why(site: Site, request: Request) -> Response:
    """Files of the workspace by what is known of them, what is missing, and the answer for one file."""
    path = request.query_params.get("path", "").strip()[:500]
    answer = site.session.explain_code(path=path) if path else None
    brain = site.session.ready()
    tag = browsing.pulse(brain)["log"]
    covered, gaps = site.once("coverage", tag, lambda: browsing.coverage(brain, folder=site.session.cwd))
    return render(site, request, "why", path=path, answer=answer, covered=covered[:60], gaps=gaps)
