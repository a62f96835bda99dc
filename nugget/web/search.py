"""The page of search: the hits of `nugget search` with the shares of their scores, and what narrows them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from nugget.models import Query
from nugget.render import degraded_sentences, stale_words
from nugget.text import parse_day, shorten
from nugget.web.site import Problem, Site, comes_from_here, marked, render

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


def results(site: Site, request: Request) -> Response:
    """The hits of `nugget search`, with facets; only the list of results if the script asks for it."""
    brain = site.session.ready()
    text = request.query_params.get("q", "")
    if len(text) > MAX_QUERY_CHARS:
        raise Problem(422, "This question is too long", f"A question may have {MAX_QUERY_CHARS:,} characters.")
    text = text.replace("\0", " ")
    chosen = {name: [value for value in request.query_params.getlist(name) if value] for name in _FACETS}
    bundle = None
    if text.strip():
        words = [text, *(f"{name}:{value}" for name, values in chosen.items() for value in values)]
        query = Query(" ".join(words), limit=20, explain=True, identity=site.session.identity)
        bundle = brain.search(query, log=comes_from_here(request) and "partial" not in request.query_params)
    hits = [_shown_hit(hit, text) for hit in bundle.hits] if bundle else []
    begins = {age: parse_day(age, today=datetime.now(UTC).date()) or date.max for age in _AGES}
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
        "hit": hit, "unit": hit.unit, "section": " › ".join(crumbs), "bar": bar, "link": link_to(hit),
        "snippet": marked(shorten(" ".join(chunk.text.split()), 320) if chunk else "", text),
        "title": marked(hit.unit.title, text), "parts": [(name, one.value, one.detail) for _, name, one in named],
        "stale": stale_words(hit) if hit.stale_reason else "",
    }  # fmt: skip


def link_to(hit: Any) -> str:
    """Return the address of what was found: its session for history, else its own page."""
    source, _, name = hit.ref.partition(":")
    if source in ("session", "sessions") and "#" in name:
        session, _, number = name.partition("#")
        return f"/session/{quote(session, safe='')}#exchange-{number}"
    return f"/unit/{quote(hit.ref, safe='/:')}"
