"""`nugget search`, `get` and `suggest`: everything at once, one thing whole, and what can be asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.app.asked import as_sources
from nugget.cli import layout
from nugget.cli.asking import (
    DomainOption,
    ExplainOption,
    SinceOption,
    TagOption,
    day,
    freshen,
    listed,
    words,
)
from nugget.cli.background import sync_machine_in_background
from nugget.cli.completing import complete_any_type, complete_ref
from nugget.cli.paging import PagerOption, paged
from nugget.cli.terminal import BrainOption, JsonOption, console, note, open_brain, print_json
from nugget.errors import NuggetError, UsageError
from nugget.models import SourceName
from nugget.render import bundle_json, clean, one_line, shown_json
from nugget.retrieval.query_language import TYPES
from nugget.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nugget.app import Brain
    from nugget.models import Bundle
    from nugget.retrieval.search import Results

AsOption = Annotated[
    str | None,
    typer.Option("--as", metavar="IDENTITY", help="Also search the memory of this identity, such as claude-code."),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", "--scope", metavar="S,..", help=f"Only these sources: {', '.join(SourceName)}."),
]

TypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="T,..", help=f"Only these types: {', '.join(TYPES)}.", autocompletion=complete_any_type
    ),
]
RelatedOption = Annotated[
    str | None,
    typer.Option(
        "--related",
        metavar="REF",
        help="What is near this ref, or these words, instead of QUERY.",
        autocompletion=complete_ref,
    ),
]


def search(
    query: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="Words, or the query language of docs/search.md.")
    ] = None,
    source: SourceOption = None,
    identity: AsOption = None,
    types: TypeOption = None,
    domains: DomainOption = None,
    tags: TagOption = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Results of each source, at most.")] = 50,
    related: RelatedOption = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="In the order of time: how an idea evolved.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print refs only, one a line.")] = False,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Find everything that matches, in every source at once: the brain, canon, provenance, sessions and more.

    "phrases", AND, OR, NOT, prefix*, NEAR(one two, 5) and filters such as type:bug domain:go since:2026-01-01 are
    understood; anything else is searched by words and by meaning. Filters alone list all that they admit, the newest
    first. Memory is private: it takes --as IDENTITY.
    """  # fmt: skip
    is_narrowed = any((related, source, types, domains, tags, since))
    if related and any((query, types, domains, tags, since)):
        raise UsageError("--related stands for words and filters.", hint="It goes with --source, --as and --limit.")
    text = " ".join(query or []) if is_narrowed else words(query or [], "something to look for")
    _check_identity(identity)
    with open_brain(brain) as opened:
        behind = freshen(opened)
        if related is not None:
            sources = sources_of(source) if source else ()
            bundle, found = opened.related(
                related, limit=limit, sources=sources, as_identity=identity, explain=explain, fresh=False
            )
        else:
            behind = _freshen_machine(opened, sources_of(source), is_quiet=quiet) or behind
            bundle, found = opened.search_all(
                text, limit=limit, sources=listed(source), types=_known(types), domains=listed(domains),
                tags=listed(tags), since=day(since), as_identity=identity, explain=explain, fresh=False,
            )  # fmt: skip
    if behind:
        bundle = _behind(bundle)
    if sources_of(source) == (SourceName.CANON,) and not opened.settings.canon.folders:
        note(f"No folder is canon yet: name some as `canon.folders` in {opened.environment.home / 'config.yaml'}.")
    _show(bundle, found, timeline=timeline, quiet=quiet, explain=explain, as_json=as_json)


def _show(bundle: Bundle, found: Results, *, timeline: bool, quiet: bool, explain: bool, as_json: bool) -> None:
    """Print the results in the requested form."""
    from nugget.cli import results

    if as_json:
        print_json(bundle_json(bundle) | ({"timeline": results.timeline_json(found)} if timeline else {}))
    elif quiet:
        for hit in results.in_time(found) if timeline else bundle.hits:
            typer.echo(clean(hit.ref))
    elif timeline:
        results.print_timeline(console(), found)
    else:
        results.print_results(console(), bundle, found, explain=explain)


def get(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="A ref or id, such as pattern/retry-once or session:4f1c#3.",
            autocompletion=complete_ref,
        ),
    ],
    identity: AsOption = None,
    around: Annotated[int, typer.Option("--around", metavar="N", help="Exchanges or messages before and behind.")] = 1,
    pager: PagerOption = True,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show what a ref names, whole: a unit, a note, a section, an exchange or message with those around it.

    On a terminal that is too small for it, it is shown in a pager.
    """  # fmt: skip
    _check_identity(identity)
    with open_brain(brain) as opened:
        freshen(opened)
        try:
            shown = opened.get(ref, as_identity=identity, neighbours=max(0, around), fresh=":" in ref)
        except UsageError:
            raise
        except NuggetError as error:
            raise _with_near(opened, ref, error) from None
    if as_json:
        print_json(shown_json(shown))
        return
    out = console()
    with paged(out, is_wanted=pager):
        if shown.unit is not None:
            layout.print_unit(out, shown.unit, today=datetime.now(UTC).date())
        elif shown.excerpt is not None:
            from nugget.cli import results

            results.print_excerpt(out, shown.excerpt)


def suggest(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="How it begins.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Of each kind, at most.")] = 10,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Show what can be asked for: domains, tags, types, paths, people and frequent words, with counts."""
    from nugget.retrieval.exploring import suggest as look

    with open_brain(brain) as opened:
        freshen(opened)
        found = look(prefix.strip(), opened.indexes(), brain=opened.path, limit=limit)
    kinds = {name: getattr(found, name) for name in ("domains", "tags", "types", "paths", "people", "terms")}
    if as_json:
        print_json({name: [{"name": text, "count": count} for text, count in kind] for name, kind in kinds.items()})
        return
    out = console()
    if not any(kinds.values()):
        out.print("Nothing begins like that.", style="yellow")
    for name, kind in kinds.items():
        if kind:
            out.print(f"{name.title():<8} {', '.join(f'{one_line(text)} ({count})' for text, count in kind)}")


def sources_of(given: Sequence[str] | None) -> tuple[SourceName, ...]:
    """The sources that an option names, all for none. Raises UsageError for one that does not exist."""
    return as_sources([name.lower() for name in listed(given)]) or tuple(SourceName)


def _check_identity(identity: str | None) -> None:
    """Raises UsageError for what cannot be an identity, before anything is opened."""
    if identity is not None:
        from nugget.sources.memory import check_identity

        check_identity(identity)


def _known(values: list[str] | None) -> tuple[str, ...]:
    """`listed`, for --type of any source. Raises UsageError for a type that no source has."""
    types = tuple(value.lower() for value in listed(values))
    if unknown := next((value for value in types if value not in TYPES), None):
        raise UsageError(f"There is no type {unknown!r}.", hint=f"Types are: {', '.join(TYPES)}.")
    return types


def _freshen_machine(opened: Brain, sources: Sequence[SourceName], *, is_quiet: bool) -> bool:
    """Take in what little changed beside the brain; True when more waits, which is then synced in the background."""
    state = opened.freshen_machine(sources)
    for problem in () if is_quiet else state.problems:
        note(str(problem))
    if not state.total and not state.lacks_vectors:
        return False
    started = sync_machine_in_background(opened.path, opened.environment)
    if not state.total or is_quiet:
        return state.total > 0
    doing = "they are being indexed in the background" if started else "another process is indexing them"
    parts = ", ".join(f"{count} of {source}" for source, count in state.files.items())
    note(f"{counted(state.total, 'file')} changed beside the brain ({parts}); {doing}, and this answer is from before.")
    return True


def _behind(bundle: Bundle) -> Bundle:
    from dataclasses import replace

    return replace(bundle, degraded=tuple(dict.fromkeys((*bundle.degraded, "index_behind"))))


def _with_near(opened: Brain, ref: str, error: NuggetError) -> NuggetError:
    """The error, with what is near in the brain as its hint where the ref was one of the brain."""
    name = ref.removeprefix("brain:")
    if ":" in name:
        return error
    text = name.replace("/", " ").replace("-", " ")
    near = opened.ask(text, limit=3, profile="search", fresh=False, log=False).hits
    if near:
        error.hint = f"Near: {', '.join(hit.unit.id for hit in near)}."
    return error
