"""`nugget context`, `nuggets`, `coverage` and `promote`: why code is the way it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.asking import listed
from nugget.cli.terminal import BrainOption, JsonOption, brain_folder, console, current_folder, note, print_json
from nugget.config import Environment, load_settings, read_environment
from nugget.errors import BrainError, UsageError
from nugget.models import Depth
from nugget.nuggets import NuggetType

if TYPE_CHECKING:
    from nugget.embedding import Embedder
    from nugget.index import Index

TYPE_NAMES = ", ".join(NuggetType)
NuggetTypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="T,..", help=f"Only these types: {TYPE_NAMES}.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help="Only sessions since then: a date (YYYY-MM-DD), or 24h, 3d, 1w, 2m."),
]
_DURATION = re.compile(r"(\d{1,5})\s*([hdwm])")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30}


def code_context(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A file or folder of the repository.")] = None,
    symbol: Annotated[
        str | None, typer.Option("--symbol", metavar="NAME", help="A function, class or variable.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", metavar="TEXT", help="What you want to know.")] = None,
    budget: Annotated[int, typer.Option("--budget", metavar="TOKENS", help="Tokens in the answer.")] = 2000,
    types: NuggetTypeOption = None,
    depth: Annotated[Depth, typer.Option("--depth", help="How much of each nugget.")] = Depth.STANDARD,
    since: SinceOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each score came about.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Say why code is the way it is.

    Give a path, a --query, or both: what matches both then comes first. The answer holds what earlier sessions decided,
    tried and turned down, and what a person reviewed and kept in the brain.
    """
    from nugget.provenance.answering import answer_code, code_query, log_answer
    from nugget.query_log import Face
    from nugget.render_nuggets import context_json

    environment, now = read_environment(), datetime.now(UTC)
    asked = code_query(
        path=path, symbol=symbol, text=query, types=[name.lower() for name in listed(types)],
        since=moment(since, now=now), depth=depth, budget_tokens=budget,
    )  # fmt: skip
    place = brain_if_any(brain, environment)
    answer = answer_code(
        asked, home=environment.home, folder=current_folder(), now=now, brain_index=_brain_index(place),
        embedder=lambda: _embedder(environment, place),
    )  # fmt: skip
    if as_json:
        for text in answer.bundle.notes:
            note(text)
        print_json(context_json(answer.bundle, explain=explain))
    else:
        from nugget.cli.provenance_layout import print_code_answer

        print_code_answer(console(), answer.bundle, explain=explain)
    log_answer(answer, environment, load_settings(environment, place), face=Face.CLI, now=now)


def brain_if_any(flag: Path | None, environment: Environment) -> Path | None:
    """The brain in use; None where there is none and none was named."""
    try:
        return brain_folder(flag, environment)
    except BrainError:
        if flag is not None:
            raise
        return None


def moment(text: str | None, *, now: datetime) -> datetime | None:
    """A date (`2026-11-01`, with a time if you like), or so long ago: `24h`, `3d`, `1w`, `2m` (of 30 days).

    Raises UsageError for anything else.
    """
    if text is None:
        return None
    if found := _DURATION.fullmatch(text.strip().lower()):
        return now - timedelta(hours=int(found[1]) * _HOURS[found[2]])
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is no date.", hint="Write YYYY-MM-DD, or so long ago: 24h, 3d, 1w, 2m.") from None
    return given if given.tzinfo else given.astimezone()


def _brain_index(brain: Path | None) -> Index | None:
    """The brain's index as it is: an answer about code does not wait for a sync of the brain."""
    if brain is None:
        return None
    from nugget.index import Index, Unusable

    file = brain / ".nugget" / "index.db"
    if not file.is_file():  # of a read-only brain it lies elsewhere
        from nugget.sync import index_folder

        file = index_folder(brain, read_environment()) / "index.db"
    try:
        return Index(file)
    except Unusable:
        return None


def _embedder(environment: Environment, brain: Path | None) -> Embedder | None:
    from nugget.embedding import open_embedder
    from nugget.errors import EmbeddingUnavailable

    try:
        return open_embedder(load_settings(environment, brain), environment)
    except EmbeddingUnavailable as error:
        note(f"{error} Searching by words alone.")
        return None
