"""The pages of units: proposals with a decision for each, one unit and its changes, and sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nugget.app import browsing
from nugget.app.sessions import find_session
from nugget.errors import NuggetError, ReviewError
from nugget.models import SourceName, Unit
from nugget.render.json import without_secrets
from nugget.text import clean, content_hash, plain
from nugget.web.site import ErrorPage, Site, comes_from_here, link_to, render

if TYPE_CHECKING:
    from nugget.app import Brain

CARDS = 20
"""The number of units on one page."""
_DONE = {
    "edit": "Your edit is saved.", "move": "The unit was moved.", "add": "The unit was added.",
    "forget": "The unit was forgotten and will not be proposed again.", "open": "The file was opened in your editor.",
}  # fmt: skip


def waiting(site: Site, request: Request) -> Response:
    """Go to the oldest waiting proposal, or say that nothing waits."""
    if found := site.proposals(site.session.ready()):
        return RedirectResponse(f"/review/{found[0].branch}?{request.url.query}".rstrip("?"), 303)
    return render(site, request, "nothing", done=request.query_params if comes_from_here(request) else {})


def proposal(
    site: Site, request: Request, *, problem: str = "", marks: Mapping[str, str] | None = None,
    edits: Mapping[str, str] | None = None, seen: str = "", status: int = 200,
) -> Response:  # fmt: skip
    """Show a proposal with a card for each unit.

    `marks` and `edits` are pending choices by path; hidden fields carry the choices of other pages.
    """
    brain, branch = site.session.ready(), request.path_params["branch"]
    everything = site.proposals(brain)
    shown = next((one for one in everything if one.branch == branch), None)
    if shown is None:
        raise ReviewError(f"There is no proposal {branch}.", hint="It was decided already, here or elsewhere.")
    given = request.query_params.get("page", "1")
    pages = max(1, -(-len(shown.files) // CARDS))
    page = min(max(1, int(given)), pages) if given.isdecimal() and len(given) < 6 else 1
    files = shown.files[(page - 1) * CARDS : page * CARDS]
    marks, edits = marks or {}, edits or {}
    away = [
        file
        for file in shown.files
        if file not in files and (file.path in edits or marks.get(file.path, "later") != "later")
    ]
    if seen not in ("", shown.sha):
        problem = problem or "This proposal changed since you looked at it; what you marked is kept."
    cards = site.once(f"cards {branch}", f"{shown.sha} {page}", lambda: [  # with a digest that detects edits
        (file, *file.texts, text := without_secrets(clean(file.after or "")), _digest(text)) for file in files
    ])  # fmt: skip
    return render(
        site, request, "review", status=status, proposals=everything, shown=shown, cards=cards, page=page,
        pages=pages, problem=problem, marks=marks, edits=edits, away=away,
        done=request.query_params if comes_from_here(request) else {},
    )  # fmt: skip


def _digest(text: str) -> str:
    """Return a digest that ignores the line ends of browsers."""
    return content_hash("\n".join(text.splitlines()))[:16]


def nearest(site: Site, request: Request) -> Response:
    """Show the unit nearest to a proposed one, as a line for its card or as its page."""
    brain, path = site.session.ready(), request.query_params.get("path", "")
    files = (file for one in site.proposals(brain) for file in one.files if one.branch == request.path_params["branch"])
    unit = next((file.unit for file in files if file.path == path and file.unit), None)
    if unit is None:
        raise ReviewError("This unit is no longer proposed.", hint="It was decided already, here or elsewhere.")
    similar = site.once("similar", browsing.pulse(brain)["index"], brain.similar_units)  # neighbours are shared
    found = [(near, cosine) for near, cosine in similar(unit) if cosine >= 0.5][:1]
    if "partial" in request.query_params:
        return render(site, request, "near", near=found)
    if not found:
        raise ErrorPage(404, "No similar unit", "No unit of the brain has a similar meaning.")
    return RedirectResponse(link_to(found[0][0].ref), 303)


def decide(site: Site, request: Request) -> Response:
    """Accept and reject as marked, all or nothing; if the proposal has changed, show it with the marks."""
    form, branch = request.state.form, request.path_params["branch"]
    marks: dict[str, str] = {}
    edits: dict[str, str] = {}
    number = 0
    while (path := form.get(f"path-{number}")) is not None:
        marks[str(path)] = str(form.get(f"mark-{number}", "later"))
        text = str(form.get(f"text-{number}", "")).replace("\r\n", "\n")
        if text.strip() and _digest(text) != form.get(f"was-{number}"):
            edits[str(path)] = text
        number += 1
    if "turn" in form:
        return proposal(site, request, marks=marks, edits=edits, seen=str(form.get("sha", "")))
    accepted = [path for path, mark in marks.items() if mark == "accept"]
    rejected = [path for path, mark in marks.items() if mark == "reject"]
    if not accepted and not rejected:
        return proposal(site, request, problem="Mark a unit first: accept or reject it.", edits=edits, status=422)
    try:
        decided = site.session.ready().decide(
            branch, expect_sha=str(form.get("sha", "")), accept=accepted, reject=rejected,
            edits={path: text for path, text in edits.items() if path not in rejected},
        )  # fmt: skip
    except NuggetError as error:
        return proposal(site, request, problem=error.with_hint, marks=marks, edits=edits, status=409)
    left = any(one.branch == branch for one in site.proposals(site.session.ready()))
    place = f"/review/{branch}" if left else "/review"
    return RedirectResponse(f"{place}?accepted={len(accepted)}&rejected={len(rejected)}"
                            f"&commit={decided.commit if accepted else ''}", 303)  # fmt: skip


def undo(site: Site, request: Request) -> Response:
    """Undo the change that the form names."""
    site.session.ready().undo(str(request.state.form.get("commit", "")))
    return RedirectResponse("/review?undone=1", 303)


def unit(site: Site, request: Request, *, problem: str = "", typed: str = "") -> Response:
    """Show a unit: text, evidence, graph, history and the questions it answered; or a part of a conversation."""
    brain, ref = site.session.ready(), request.path_params["ref"]
    shown = brain.get(ref, identity=site.session.identity, fresh=False)
    if shown.unit is None:
        return render(site, request, "excerpt", excerpt=shown.excerpt)
    found: Unit = shown.unit
    is_ours = found.source is SourceName.BRAIN
    near = graph_ = None
    history: Sequence[Any] = ()
    file, digest = "", ""
    if is_ours:
        graph_ = around(site, found.ref, steps=1)
        tag = f"{found.id} {browsing.pulse(brain)['review']}"
        history = site.once("history", tag, lambda: browsing.unit_history(brain, found))
        file, digest = browsing.unit_file(brain, found)
    else:
        near = brain.related(found.ref, fresh=False).hits[:5]
    report = site.once("all questions", browsing.pulse(brain)["log"], brain.asked_questions)
    asked = [one for one in report["queries"] if is_ours and any(found.id == its["id"] for its in one["units"])]
    return render(
        site, request, "unit", unit=found, graph=graph_ and drawn(graph_), near=near or (), history=history, file=file,
        digest=digest, is_ours=is_ours, typed=typed, problem=problem, status=409 if problem else 200,
        asked=asked[:8], stale=browsing.stale_cause(brain, found) if is_ours else None, done=done_of(request),
    )  # fmt: skip


def around(site: Site, ref: str, *, steps: int, near: bool = True) -> browsing.Graph:
    """Return the graph around a unit; the last graph is cached."""
    brain = site.session.ready()
    tag = f"{browsing.pulse(brain)['index']} {ref} {steps} {near}"
    return site.once("graph", tag, lambda: browsing.graph(brain, ref, steps=steps, near=near))


def drawn(graph: browsing.Graph) -> dict[str, Any]:
    """Return a graph as its template draws it: the view box, its lines and its nodes with names in two lines."""
    nodes, links, left_out = graph
    places = {unit.id: (x, y) for unit, _, x, y in nodes}
    xs, ys = zip(*places.values(), strict=True)
    left, top = min(xs) - 130, min(ys) - 50
    size = (max(xs) + 130 - left, max(ys) + 80 - top)
    return {
        "box": f"{left:.0f} {top:.0f} {size[0]:.0f} {size[1]:.0f}", "links": links, "left_out": left_out,
        "lines": [(*places[source], *places[target], relation) for source, target, relation in links],
        "nodes": [(*node, _two_lines(plain(node[0].title))) for node in nodes],
        "titles": {unit.id: unit.title for unit, *_ in nodes},
    }  # fmt: skip


def _two_lines(title: str) -> list[str]:
    lines = [""]
    for word in title.split():
        if lines[-1] and len(lines[-1]) + len(word) >= 24:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    short = [line if len(line) <= 30 else line[:29] + "…" for line in lines[:2]]
    if len(lines) > 2:
        short[1] = short[1].rstrip("…") + " …"
    return short


def change_unit(site: Site, request: Request) -> Response:
    """Edit, restore, move, forget or open a unit."""
    brain, ref, form = site.session.ready(), request.path_params["ref"], request.state.form
    shown = brain.get(ref, fresh=False).unit
    if shown is None or shown.source is not SourceName.BRAIN:
        raise ErrorPage(422, "That did not work", "Only units of the brain can be changed.")
    act, goes_to, before = str(form.get("act", "")), shown.ref, browsing.head(brain.path)
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
            return unit(site, request, problem=f"{error.with_hint} Your text is kept below.", typed=text)
    else:
        raise ErrorPage(422, "That did not work", "There is no such change.")
    return _after(brain, act, goes_to, before)


def add(site: Site, request: Request) -> Response:
    """Add a text as a new unit."""
    form = request.state.form
    text, kind, domain = (str(form.get(name, "")) for name in ("text", "type", "domain"))
    brain = site.session.ready()
    before = browsing.head(brain.path)
    unit_id, _ = brain.add(text.replace("\r\n", "\n"), type=kind, domain=domain.strip() or "general")
    return _after(brain, "add", unit_id, before)


def _after(brain: Brain, act: str, ref: str, before: str | None) -> Response:
    """Redirect to a unit, or home if it is gone, with a message on what was done since the commit `before`."""
    head = browsing.head(brain.path)
    place = link_to(ref) if ref else "/"
    return RedirectResponse(f"{place}?done={act}&commit={head if head not in (None, before) else ''}", 303)


def done_of(request: Request) -> tuple[str, str]:
    """Return the message on the last change and the commit to undo, or empty texts."""
    if not comes_from_here(request):
        return "", ""
    return _DONE.get(request.query_params.get("done", ""), ""), request.query_params.get("commit", "")


def conversation(site: Site, request: Request) -> Response:
    """Show a session: its exchanges, with failures marked, and its outcome."""
    brain = site.session.ready()
    detail = find_session(brain.provenance(site.session.cwd), request.path_params["session"])
    quoted = " ".join(request.query_params.get("quote", "")[:300].split())
    if "partial" in request.query_params and detail.session:
        texts = [(one, [" ".join(event.text.split()) for event in one.events]) for one in detail.exchanges]
        found = [one for one, said in texts if quoted and any(quoted[:60] in text for text in said)]
        return render(site, request, "exchanges", exchanges=found[:1], quote=quoted)
    return render(site, request, "session", detail=detail, quote=quoted)


def capture(site: Site, request: Request) -> Response:
    """Queue a session for capture and show its page."""
    brain, session = site.session.ready(), request.path_params["session"]
    browsing.queue_session(brain, find_session(brain.provenance(site.session.cwd), session).id)
    return RedirectResponse(f"/session/{quote(session, safe='')}?queued=1", 303)


def promote(site: Site, request: Request) -> Response:
    """Propose a nugget as a unit and show the proposal."""
    brain = site.session.ready()
    nugget, stale = brain.provenance(site.session.cwd).nugget(str(request.state.form.get("nugget", ""))[:200])
    domain = str(request.state.form.get("domain", "")).strip() or "coding"
    done = brain.promote(nugget, stale=stale, type=None, domain=domain, dry_run=False)
    return RedirectResponse(f"/review/{done.branch}", 303)
