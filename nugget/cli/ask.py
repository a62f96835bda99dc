"""Commands that ask: ask, search, get, suggest, brief, recall."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nugget.cli import (
    BrainOption,
    ExplainOption,
    JsonOption,
    PagerOption,
    brains,
    briefing,
    day,
    library,
    listed,
    logs,
    open_brain,
    paged,
    print_json,
    refresh,
    show,
    words,
)
from nugget.config import current_folder, read_environment
from nugget.errors import LLMUnavailable, UsageError
from nugget.models import Bundle, Depth, Filter, Query, SourceName
from nugget.models.nuggets import TYPES
from nugget.render.json import bundle_json, shown_json
from nugget.render.terminal import console, put, put_report, put_text
from nugget.text import DATE_FORMS, clean, estimate_tokens

if TYPE_CHECKING:
    from nugget.app import Brain

commands = typer.Typer(add_completion=False)
_MOST = 100
"""The most completions offered."""


def complete_ref(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of a ref with their titles, except those of memory."""
    return _suggested(lambda brain: brain.refs_beginning(incomplete, limit=_MOST))


def _named(kind: str, incomplete: str) -> list[str]:
    return [name for name, _ in _suggested(lambda brain: brain.suggest(incomplete, limit=_MOST)[kind])]


def _suggested(ask: Callable[[Brain], list[tuple[str, Any]]]) -> list[tuple[str, Any]]:
    """Ask the brain in use without syncing; errors are swallowed during completion."""
    try:
        with library.open() as brain:
            return ask(brain)
    except Exception:
        return []


TypeOption = Annotated[
    list[str] | None,
    Option("--type", metavar="T,..", help=f"Only these types: {', '.join(TYPES)}.",
           autocompletion=lambda incomplete: [name for name in TYPES if name.startswith(incomplete)]),
]  # fmt: skip
DomainOption = Annotated[
    list[str] | None,
    Option("--domain", metavar="D,..", help="Only these domains and their subdomains.",
           autocompletion=lambda incomplete: _named("domains", incomplete)),
]  # fmt: skip
TagOption = Annotated[
    list[str] | None,
    Option("--tag", metavar="T,..", help="Only units with all of these tags.",
           autocompletion=lambda incomplete: _named("tags", incomplete)),
]  # fmt: skip
SinceOption = Annotated[
    str | None, Option("--since", metavar="DATE", help=f"Only what was created or changed since: {DATE_FORMS}.")
]
AsOption = Annotated[
    str | None, Option("--as", metavar="IDENTITY", help="Also search the memory of this identity, such as claude-code.")
]
LimitOption = Annotated[int | None, Option("--limit", "-n", metavar="N", help="Maximum number of results.")]
MoreOption = Annotated[int, Option("--more", count=True, help="Show the next page; repeat it for later pages.")]
SourceOption = Annotated[
    list[str] | None,
    Option("--source", "--scope", metavar="S,..", help=f"Only these sources: {', '.join(SourceName)}."),
]


@commands.command()
def ask(
    question: Annotated[list[str], Argument(metavar="QUESTION", help="The question.")],
    limit: LimitOption = None,
    more: MoreOption = 0,
    budget: Annotated[
        int | None, Option("--budget", metavar="TOKENS", help="Maximum size of the answer, in tokens.")
    ] = None,
    source: SourceOption = None,
    identity: AsOption = None,
    types: TypeOption = None,
    domains: DomainOption = None,
    tags: TagOption = None,
    since: SinceOption = None,
    depth: Annotated[Depth, Option("--depth", help="How much of each unit to show.")] = Depth.STANDARD,
    no_llm: Annotated[bool, Option("--no-llm", help="Show passages only, even if a key is set.")] = False,
    pager: PagerOption = True,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Answer a question from everything that is indexed: the brain, canon, sessions and more.

    With an LLM key (ANTHROPIC_API_KEY) you get a written answer with its sources, without one the best passages, as
    from `nugget search`. A question that names no subject, such as "what went wrong", is answered from the latest
    sessions of the current folder's repository.
    """
    text = words(question, "a question")
    with open_brain(brain) as opened:
        llm = None if no_llm else opened.llm()
        filter_ = _filter(types, domains, tags, since, source)
        limit = opened.settings.retrieval_limit if limit is None else limit
        query = Query(
            text, filter=filter_, limit=limit, offset=more * limit, budget_tokens=budget, identity=identity,
            depth=depth, explain=explain,
        )  # fmt: skip
        behind = refresh(opened, filter_.sources or tuple(SourceName), is_quiet=as_json)
        read = logs.Logs(environment=opened.environment, settings=opened.settings)
        latest = "" if identity else read.latest_sessions(current_folder(), query)
        reranker = None if no_llm or latest else opened.reranker(llm)
        bundle = opened.ask(query, fresh=False, log=not latest, reranker=reranker)
        bundle = _with_degraded(bundle, behind, "no_llm" if as_json and not llm else "")
        if as_json:
            print_json(bundle_json(replace(bundle, answer=latest) if latest else opened.answer(bundle, llm)))
        elif latest:
            with paged(is_wanted=pager):
                put_report("latest", text=latest)
        else:
            parts = opened.stream_answer(bundle, llm) if llm and bundle.hits and not bundle.weak else ()
            _show_answer(opened, bundle, parts, pager=pager, explain=explain)


def _show_answer(opened: Brain, bundle: Bundle, parts: Iterable[str], *, pager: bool, explain: bool) -> None:
    """Stream the parts of a written answer and list its sources; without parts, or if they fail, show the passages."""
    written = ""
    try:
        for part in parts:
            written += part
            console().print(clean(part), end="")
    except LLMUnavailable as error:
        if written:
            put("\n\nThe answer broke off here. The passages it was being written from:\n", style="yellow")
        bundle, written = _with_degraded(bundle, f"no_answer: {error}"), ""
    if not written:
        with paged(is_wanted=pager):
            put_report("answer", bundle=bundle, explain=explain, is_empty=_is_empty(opened, bundle))
        return
    put("")
    cited, by_name = opened.citations(written, bundle), {hit.name: hit for hit in bundle.hits}
    shown = [by_name[name] for name in cited] or bundle.hits
    put_report("sources", hits=shown, cited=cited, bundle=bundle, explain=explain)


def _is_empty(opened: Brain, bundle: Bundle) -> bool:
    return not (bundle.hits or opened.index.has_source(SourceName.BRAIN))


def _with_degraded(bundle: Bundle, *names: str) -> Bundle:
    return replace(bundle, degraded=tuple(dict.fromkeys((*bundle.degraded, *filter(None, names)))))


@commands.command()
def search(
    query: Annotated[
        list[str] | None, Argument(metavar="QUERY", help="Words, or the query language of docs/search.md.")
    ] = None,
    source: SourceOption = None,
    identity: AsOption = None,
    types: TypeOption = None,
    domains: DomainOption = None,
    tags: TagOption = None,
    since: SinceOption = None,
    limit: LimitOption = None,
    more: MoreOption = 0,
    related: Annotated[
        str | None,
        Option("--related", metavar="REF", help="Show what is similar to this ref or text, instead of QUERY.",
               autocompletion=complete_ref),
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only refs, one per line.")] = False,
    pager: PagerOption = True,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Search every source at once: the brain, canon, provenance, sessions and more.

    Understands "phrases", AND, OR, NOT, prefix*, NEAR(one two, 5) and filters such as type:bug domain:go
    since:2026-01-01; anything else is searched by words and by meaning. Filters without words list everything they
    match, newest first. Memory is private and needs --as IDENTITY.
    """  # fmt: skip
    is_narrowed = any((related, source, types, domains, tags, since))
    if related and any((query, types, domains, tags, since)):
        raise UsageError("--related takes no words or filters.", hint="Only --source, --as and --limit apply.")
    text = " ".join(query or []) if is_narrowed else words(query or [], "something to look for")
    with open_brain(brain) as opened:
        filter_ = _filter(types, domains, tags, since, source)
        limit = opened.settings.retrieval_limit if limit is None else limit
        asked = Query(
            related or text, filter=filter_, limit=limit, offset=more * limit, identity=identity, explain=explain
        )
        behind = refresh(opened, filter_.sources or tuple(SourceName), is_quiet=quiet)
        bundle = opened.related(asked, fresh=False) if related else opened.search(asked, fresh=False)
        is_empty = _is_empty(opened, bundle)
    bundle = _with_degraded(bundle, behind)
    if as_json:
        print_json(bundle_json(bundle))
    elif quiet:
        for ref in dict.fromkeys(hit.ref for hit in bundle.hits):  # an exchange may be a hit by both of its sides
            typer.echo(clean(ref))
    else:
        with paged(is_wanted=pager):
            put_report("results", bundle=bundle, explain=explain, is_empty=is_empty)


def _filter(
    types: Sequence[str] | None, domains: Sequence[str] | None, tags: Sequence[str] | None, since: str | None,
    sources: Sequence[str] | None,
) -> Filter:  # fmt: skip
    return Filter(
        sources=brains.source_names(listed(sources)), types=listed(types), domains=listed(domains), tags=listed(tags),
        since=day(since),
    )  # fmt: skip


@commands.command()
def get(
    ref: Annotated[
        str,
        Argument(
            metavar="REF", help="A ref or id, such as pattern/retry-once or session:4f1c#3.",
            autocompletion=complete_ref,
        ),
    ],
    identity: AsOption = None,
    around: Annotated[int, Option("--around", help="How many exchanges or messages to show before and after.")] = 1,
    pager: PagerOption = True,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:  # fmt: skip
    """Show a unit, note, section, exchange or message in full.

    Exchanges and messages come with their neighbours. Long output is shown in a pager on a terminal.
    """
    with open_brain(brain) as opened:
        refresh(opened)
        shown = opened.get(ref, identity=identity, around=max(0, around), fresh=":" in ref)
    if as_json:
        print_json(shown_json(shown))
        return
    with paged(is_wanted=pager):
        if shown.unit is not None:
            related = [f"{edge.relation} {edge.id}" for edge in shown.unit.related]
            put_report("unit", unit=shown.unit, related=related, today=datetime.now(UTC).date())
        elif shown.excerpt is not None:
            put_report("excerpt", excerpt=shown.excerpt)


@commands.command()
def suggest(
    prefix: Annotated[str, Argument(metavar="PREFIX", help="Only names that begin with this.")] = "",
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum entries of each kind.")] = 10,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """List domains, tags, types, paths, people and frequent words, with counts."""
    with open_brain(brain) as opened:
        refresh(opened)
        kinds = opened.suggest(prefix.strip(), limit=limit)
    value = {name: [{"name": text, "count": count} for text, count in kind] for name, kind in kinds.items()}
    show(value if as_json else None, report="suggestions", kinds=kinds)


@commands.command()
def brief(as_json: JsonOption = False) -> None:
    """Show the brief with which a session in this folder would start.

    With `nugget install --brief`, each new session starts with it: an open failure, open todos,
    constraints of this code, and the state of capture.
    """
    text = briefing.brief(read_environment(), current_folder(), now=datetime.now(UTC))
    _show_text(text, "A session here would start without a brief.", as_json=as_json)


@commands.command()
def recall(
    prompt: Annotated[list[str], Argument(metavar="PROMPT", help="A prompt as you would type it.")],
    as_json: JsonOption = False,
) -> None:
    """Show what Nugget would add to a prompt.

    With `nugget install --recall`, each prompt gets it: the few strongest units, found by words (and by meaning while
    an agent is connected), or nothing if nothing is likely to help.
    """
    text = briefing.recall(read_environment(), words(prompt, "a prompt"), current_folder(), now=datetime.now(UTC))
    _show_text(text, "Nothing is likely to help with this.", as_json=as_json)


def _show_text(text: str | None, nothing: str, *, as_json: bool) -> None:
    from rich.text import Text

    if as_json:
        print_json({"text": text, "tokens": estimate_tokens(text or "")})
    for line in () if as_json else (text or nothing).splitlines():
        put_text(Text(line))  # clean except for our own tags
