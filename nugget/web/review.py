"""The pages of review: what waits, and one proposal with a decision for each unit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nugget.app import browsing
from nugget.errors import NuggetError, ReviewError
from nugget.render.json import without_secrets
from nugget.text import clean
from nugget.web.site import Problem, Site, comes_from_here, render

if TYPE_CHECKING:
    from nugget.capture.review import ProposedFile

CARDS = 20
"""Units on one page."""


def waiting(site: Site, request: Request) -> Response:
    """Go to the oldest proposal that waits, or say that none does."""
    if found := site.proposals(site.session.ready()):
        return RedirectResponse(f"/review/{found[0].branch}?{request.url.query}".rstrip("?"), 303)
    return render(site, request, "nothing", done=request.query_params if comes_from_here(request) else {})


def proposal(
    site: Site, request: Request, *, problem: str = "", marks: Mapping[str, str] | None = None,
    edits: Mapping[str, str] | None = None, seen: str = "", status: int = 200,
) -> Response:  # fmt: skip
    """A proposal: its units as cards, each with what it rests on.

    `marks` and `edits` are not applied yet, by path; those of other pages travel along in hidden fields.
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
    tag = f"{shown.sha} {page}"
    cards = site.once(f"cards {branch}", tag, lambda: [_card(file) for file in files])
    return render(
        site, request, "review", status=status, proposals=everything, shown=shown, cards=cards, page=page,
        pages=pages, problem=problem, marks=marks, edits=edits, away=away,
        done=request.query_params if comes_from_here(request) else {},
    )  # fmt: skip


def _card(file: ProposedFile) -> tuple[ProposedFile, str, str, str, str]:
    """Return a file with its texts before and after, the text to edit, and the digest that shows an edit."""
    text = without_secrets(clean(file.after or ""))
    return file, *file.texts, text, _digest(text)


def _digest(text: str) -> str:
    """Return a digest that does not depend on how a browser ends lines."""
    return hashlib.sha256("\n".join(text.splitlines()).encode("utf-8", "replace")).hexdigest()[:16]


def nearest(site: Site, request: Request) -> Response:
    """The unit of the brain that is nearest to a proposed one: a line for its card, else the unit itself."""
    brain, path = site.session.ready(), request.query_params.get("path", "")
    files = (file for one in site.proposals(brain) for file in one.files if one.branch == request.path_params["branch"])
    unit = next((file.unit for file in files if file.path == path and file.unit), None)
    if unit is None:
        raise ReviewError("This unit is not proposed any more.", hint="It was decided already, here or elsewhere.")
    similar = site.once("similar", browsing.pulse(brain)["index"], brain.similar_units)  # neighbours are shared
    found = [(near, cosine) for near, cosine in similar(unit) if cosine >= 0.5][:1]
    if "partial" in request.query_params:
        return render(site, request, "near", near=found)
    if not found:
        raise Problem(404, "Nothing is like it", "No unit of the brain is near to this one in meaning.")
    return RedirectResponse(f"/unit/{quote(found[0][0].ref, safe='/:')}", 303)


def decide(site: Site, request: Request) -> Response:
    """Accept and reject as marked, all or nothing; if the proposal has changed meanwhile, show it with the marks."""
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
        return proposal(site, request, problem=f"{error} {error.hint or ''}", marks=marks, edits=edits, status=409)
    left = any(one.branch == branch for one in site.proposals(site.session.ready()))
    place = f"/review/{branch}" if left else "/review"
    return RedirectResponse(f"{place}?accepted={len(accepted)}&rejected={len(rejected)}"
                            f"&commit={decided.commit if accepted else ''}", 303)  # fmt: skip


def undo(site: Site, request: Request) -> Response:
    """Take back the change that the form names."""
    site.session.ready().undo(str(request.state.form.get("commit", "")))
    return RedirectResponse("/review?undone=1", 303)
