"""`nugget ask`: a question, answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli import layout
from nugget.cli.background import sync_in_background
from nugget.cli.completing import complete_domain, complete_tag, complete_type
from nugget.cli.terminal import BrainOption, JsonOption, console, note, open_brain, print_json, progress
from nugget.dates import DATE_FORMS, parse_day, parse_moment
from nugget.errors import LLMUnavailable, UsageError
from nugget.index.connection import NO_INDEX
from nugget.models import Bundle, Depth, KnowledgeType
from nugget.render import bundle_json, clean, one_line
from nugget.text import counted

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.infra.llm import LLM

TypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="T,..", help=f"Only these types: {', '.join(KnowledgeType)}.", autocompletion=complete_type
    ),
]
DomainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--domain", metavar="D,..", help="Only these domains and what is below them.", autocompletion=complete_domain
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="T,..", help="Only what has all these tags.", autocompletion=complete_tag),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help=f"Only what was made or changed since then: {DATE_FORMS}."),
]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Show how each score came about.")]


def ask(
    question: Annotated[list[str], typer.Argument(metavar="QUESTION", help="What you want to know.")],
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Units in the answer, at most.")] = None,
    budget: Annotated[int | None, typer.Option("--budget", metavar="TOKENS", help="Tokens in the answer.")] = None,
    types: TypeOption = None,
    domains: DomainOption = None,
    tags: TagOption = None,
    since: SinceOption = None,
    depth: Annotated[Depth, typer.Option("--depth", help="How much of each unit.")] = Depth.STANDARD,
    no_llm: Annotated[bool, typer.Option("--no-llm", help="Only passages, even with a key.")] = False,
    explain: ExplainOption = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Ask the brain.

    With an LLM key (ANTHROPIC_API_KEY) the answer is written out, with its sources; without one you get the best
    passages themselves.
    """
    from nugget.infra.llm import open_llm
    from nugget.retrieval.reranking import choose_reranker

    text = words(question, "a question")
    with open_brain(brain) as opened:
        llm = None if no_llm else open_llm(opened.settings, opened.environment)
        behind = freshen(opened)
        bundle = opened.ask(
            text, limit=limit, budget_tokens=budget, depth=depth, types=known_types(types), domains=listed(domains),
            tags=listed(tags), since=day(since), explain=explain, fresh=False,
            reranker=None if no_llm else choose_reranker(opened.settings, llm, opened.environment),
        )  # fmt: skip
        bundle = _with_degraded(bundle, "index_behind" if behind else "", "" if llm else "no_llm")
        if as_json:
            print_json(bundle_json(_answered(opened, bundle, llm)))
        elif llm and bundle.hits and not bundle.weak:
            _print_written_answer(opened, bundle, llm, explain=explain)
        else:
            if no_llm:
                bundle = replace(bundle, degraded=tuple(name for name in bundle.degraded if name != "no_llm"))
            layout.print_answer(console(), bundle, explain=explain)


def freshen(brain: Brain) -> bool:
    """Sync what changed; return True if that is so much that it runs in the background and this answer is older.

    An index without vectors of the configured model is made anew in the background too.
    """
    with progress() as tell:
        state = brain.freshen(progress=tell)
    if brain.embedder_problem:
        note(f"{brain.embedder_problem} Searching by words alone.")
    if state.synced and state.synced.rebuilt and state.synced.rebuilt != NO_INDEX:
        note(f"The index was made anew ({one_line(state.synced.rebuilt)}).")
    if state.behind:
        started = sync_in_background(brain.path, brain.environment)
        doing = "they are being indexed in the background" if started else "another process is indexing them"
        note(f"{counted(state.behind, 'file')} changed; {doing}, and this answer is from before.")
    elif state.model_problem:
        note(f"{state.model_problem} Searching by words alone; `nugget sync` tries the model again.")
    elif state.other_model and brain.embedder:
        sync_in_background(brain.path, brain.environment)
        note(f"The index is being made anew for {brain.embedder.model}; until then words alone are searched.")
    return state.behind > 0


def words(given: Sequence[str], what: str) -> str:
    """Join the words of an argument to one text. Raises UsageError if there are none."""
    text = " ".join(given).strip()
    if not text:
        raise UsageError(f"Give {what}.")
    return text


def listed(values: Sequence[str] | None) -> tuple[str, ...]:
    """The values of an option that may be repeated and may hold several, with commas between."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def known_types(values: Sequence[str] | None) -> tuple[str, ...]:
    """`listed`, for --type. Raises UsageError for a type that does not exist."""
    types = tuple(value.lower() for value in listed(values))
    if unknown := next((value for value in types if value not in list(KnowledgeType)), None):
        raise UsageError(f"There is no type {unknown!r}.", hint=f"Types are: {', '.join(KnowledgeType)}.")
    return types


def day(text: str | None) -> date | None:
    """Parse the day given by --since. Raises UsageError if it is not a date."""
    if text is None:
        return None
    found = parse_day(text.strip(), today=datetime.now(UTC).date())
    if found is None:
        raise _no_date(text)
    return found


def moment(text: str | None, *, now: datetime) -> datetime | None:
    """Parse the moment given by --since. Raises UsageError if it is not a date."""
    if text is None:
        return None
    found = parse_moment(text.strip(), now=now)
    if found is None:
        raise _no_date(text)
    return found


def _no_date(text: str) -> UsageError:
    return UsageError(f"{text!r} is no date.", hint=f"Write {DATE_FORMS}.")


def _with_degraded(bundle: Bundle, *names: str) -> Bundle:
    return replace(bundle, degraded=(*bundle.degraded, *(name for name in names if name)))


def _written(brain: Brain, bundle: Bundle, llm: LLM) -> Iterator[str]:
    from nugget.retrieval.answering import answer

    return answer(bundle.query.text, bundle.hits, llm, brain.settings)


def _answered(brain: Brain, bundle: Bundle, llm: LLM | None) -> Bundle:
    """Return the bundle with a written answer, if there is an LLM and something to answer from."""
    from nugget.retrieval.answering import answered

    return answered(bundle, llm, brain.settings)


def _print_written_answer(brain: Brain, bundle: Bundle, llm: LLM, *, explain: bool) -> None:
    """Stream the answer, then name its sources; where the LLM fails, the passages stand in."""
    from nugget.retrieval.answering import citations_in

    out = console()
    written = ""
    try:
        for part in _written(brain, bundle, llm):
            written += part
            out.print(clean(part), end="")
    except LLMUnavailable as error:
        bundle = _with_degraded(bundle, f"no_answer: {error}")
        if written:
            out.print("\n\nThe answer broke off here. The passages it was being written from:\n", style="yellow")
        layout.print_answer(out, bundle, explain=explain)
        return
    out.print()
    layout.print_sources(out, bundle.hits, citations_in(written, bundle.hits))
    layout.print_footer(out, bundle, explain=explain)
