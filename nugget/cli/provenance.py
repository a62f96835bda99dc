"""Commands about why code is the way it is: extract, context, coverage, promote, commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.capture import Method
from nugget.cli.terminal import (
    BrainOption,
    JsonOption,
    brain_folder,
    current_folder,
    listed,
    moment,
    open_brain,
    print_json,
    progress,
)
from nugget.config import Environment, load_settings, read_environment
from nugget.errors import BrainError, GitError, LLMUnavailable, TranscriptError
from nugget.infra.brain_in_use import default_brain, find_brain
from nugget.models import Depth, KnowledgeType
from nugget.models.nuggets import NuggetType
from nugget.render.json import context_json, extraction_json, gaps_json
from nugget.render.provenance import print_code_answer, print_coverage, print_extraction, print_gaps
from nugget.render.terminal import console, note
from nugget.text import DATE_FORMS, one_line

if TYPE_CHECKING:
    from nugget.config import Environment, Settings
    from nugget.index import Index
    from nugget.infra.embedding import Embedder
    from nugget.infra.llm import LLM, ClaudeCli
    from nugget.infra.workspace import Workspace
    from nugget.models import SessionFile
    from nugget.provenance.extraction import Outcome

commands = typer.Typer(add_completion=False)


@commands.command()
def extract(
    everything: Annotated[bool, typer.Option("--all", help="The sessions of every workspace.")] = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="One session, by its id or the beginning of it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Extract again what was extracted already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be extracted; write nothing.")] = False,
    method: Annotated[
        Method, typer.Option("--method", help="How to find nuggets; auto is generative with a key.")
    ] = Method.AUTO,
    as_json: JsonOption = False,
) -> None:
    """Extract nuggets, and which files were touched, from the sessions of this workspace.

    The workspace is the repository that the current folder is in; any worktree or clone of it counts. A session that
    was extracted is skipped until it has grown.
    """
    from nugget.provenance.extraction import Extractor, extract_sessions, note_tunings

    environment = read_environment()
    settings = settings_here(environment)
    here = workspace_here(environment)
    llm = _llm(method, settings, environment)
    extractor = Extractor(
        home=environment.home, settings=settings, now=datetime.now(UTC), llm=llm,
        is_optional=method is Method.AUTO, force=force, dry_run=dry_run,
    )  # fmt: skip
    wanted = None if everything or session else here.identity
    with progress() as tell:
        outcomes = list(
            extract_sessions(_sessions_to_extract(environment, session), extractor, workspace=wanted, progress=tell)
        )
    tunings = note_tunings(here, extractor) if not session or here.identity in _touched(outcomes) else 0
    if as_json:
        print_json(extraction_json(outcomes, here, tunings, dry_run=dry_run, everything=everything))
    else:
        print_extraction(outcomes, here, tunings, dry_run=dry_run, everything=everything or session is not None)
    raise typer.Exit(1 if any(outcome.state == "failed" for outcome in outcomes) else 0)


def settings_here(environment: Environment) -> Settings:
    """The settings of the brain in use; provenance needs none, so without one those of the user."""
    try:
        brain: Path | None = find_brain(environment, cwd=Path.cwd())
    except BrainError:
        brain = default_brain(environment)
        brain = brain if brain and brain.is_dir() else None
    return load_settings(environment, brain)


def workspace_here(environment: Environment) -> Workspace:
    """The workspace that the current folder is in."""
    from nugget.infra.workspace import find_workspace, vanished_workspace
    from nugget.sources.nugget_store import provenance_folder

    def is_known(identity: str) -> bool:
        return provenance_folder(environment.home, identity).is_dir()

    return find_workspace(Path.cwd(), is_known=is_known) or vanished_workspace(Path.cwd())


def _llm(method: Method, settings: Settings, environment: Environment) -> LLM | ClaudeCli | None:
    """Return the model for generative extraction; None for the heuristics. Raises LLMUnavailable."""
    if method is Method.HEURISTIC:
        return None
    from nugget.infra.llm import open_extractor

    llm = open_extractor(settings, environment)
    if llm is None and method is Method.GENERATIVE:
        raise LLMUnavailable(
            "Generative extraction needs an LLM and a key.",
            hint="Set ANTHROPIC_API_KEY, or `llm: {extract_with: claude-code}`; or use --method heuristic.",
        )
    return llm


def _sessions_to_extract(environment: Environment, session: str | None) -> list[SessionFile]:
    from nugget.sources.sessions import find_session_by_id, find_sessions

    if session is None:
        return list(find_sessions(environment))
    found = find_session_by_id(environment, session)
    if found is None:
        raise TranscriptError(
            f"There is no session {session}.",
            hint=f"Claude Code keeps transcripts under {environment.claude_config / 'projects'}, for 30 days.",
        )
    return [found]


def _touched(outcomes: Sequence[Outcome]) -> set[str]:
    return {name for outcome in outcomes for name in outcome.workspaces}


TYPE_NAMES = ", ".join(NuggetType)


NuggetTypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="T,..", help=f"Only these types: {TYPE_NAMES}.")
]


SessionSinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help=f"Only sessions since then: {DATE_FORMS}."),
]


@commands.command("context")
def code_context(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A file or folder of the repository.")] = None,
    symbol: Annotated[
        str | None, typer.Option("--symbol", metavar="NAME", help="A function, class or variable.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", metavar="TEXT", help="What you want to know.")] = None,
    budget: Annotated[int, typer.Option("--budget", metavar="TOKENS", help="Tokens in the answer.")] = 2000,
    types: NuggetTypeOption = None,
    depth: Annotated[Depth, typer.Option("--depth", help="How much of each nugget.")] = Depth.STANDARD,
    since: SessionSinceOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each score came about.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Say why code is the way it is.

    Give a path, a --query, or both: what matches both then comes first. The answer holds what earlier sessions decided,
    tried and turned down, and what a person reviewed and kept in the brain.
    """
    from nugget.infra.query_log import Face
    from nugget.provenance.answering import answer_code, code_query, log_answer

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
        print_code_answer(console(), answer.bundle, explain=explain)
    log_answer(answer, environment, load_settings(environment, place), face=Face.CLI, now=now)


def brain_if_any(flag: Path | None, environment: Environment) -> Path | None:
    """Open the brain in use; return None if there is none and none was named."""
    try:
        return brain_folder(flag, environment)
    except BrainError:
        if flag is not None:
            raise
        return None


def _brain_index(brain: Path | None) -> Index | None:
    """The brain's index as it is: an answer about code does not wait for a sync of the brain."""
    if brain is None:
        return None
    from nugget.index import Index, Unusable

    file = brain / ".nugget" / "index.db"
    if not file.is_file():  # of a read-only brain it lies elsewhere
        from nugget.index.sync import index_folder

        file = index_folder(brain, read_environment()) / "index.db"
    try:
        return Index(file)
    except Unusable:
        return None


def _embedder(environment: Environment, brain: Path | None) -> Embedder | None:
    from nugget.errors import EmbeddingUnavailable
    from nugget.infra.embedding import open_embedder

    try:
        return open_embedder(load_settings(environment, brain), environment)
    except EmbeddingUnavailable as error:
        note(f"{error} Searching by words alone.")
        return None


@commands.command("coverage")
def show_coverage(
    gaps: Annotated[bool, typer.Option("--gaps", help="Files asked about or changed more than explained.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Files, at most.")] = 40,
    as_json: JsonOption = False,
) -> None:
    """Show how many nuggets each file has, or with --gaps where they are missing."""
    from nugget.infra import query_log
    from nugget.provenance import coverage
    from nugget.provenance.asking import find_here, opened_index
    from nugget.provenance.checkout import Checkout

    environment, now = read_environment(), datetime.now(UTC)
    with opened_index(environment.home) as connection:
        checkout = Checkout(find_here(connection, current_folder()))
        if gaps:
            found = coverage.find_gaps(connection, checkout, query_log.read(environment.home), now=now)
        else:
            covered = coverage.coverage(connection, checkout)
    if gaps and as_json:
        print_json(gaps_json(found, limit))
    elif gaps:
        print_gaps(console(), found, limit)
    elif as_json:
        print_json({"files": [{"path": one.path, "nuggets": one.nuggets} for one in covered[:limit]],
                    "total": len(covered)})  # fmt: skip
    else:
        print_coverage(console(), covered, limit)


@commands.command()
def commit(
    auto: Annotated[bool, typer.Option("--auto", help="Commit at once, without opening the editor.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the message; commit nothing.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Write the message by rules, without a model.")] = False,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="The model that writes it.")] = None,
    hook: Annotated[
        Path | None, typer.Option("--hook", metavar="FILE", help="As git's hook: write the message into this file.")
    ] = None,
) -> None:
    """Commit what is staged, with a message from the sessions that wrote it.

    A conventional commit message, and trailers that say which sessions it comes from and whose the lines are. The
    editor opens as with git; the commit runs your hooks and is signed as your git is set up.
    """
    if hook is not None:
        from nugget.hooks import commit as commit_hook

        raise typer.Exit(commit_hook.main(["commit", "--hook", str(hook)]))
    from nugget import commits
    from nugget.infra import git
    from nugget.infra.llm import open_llm

    environment, here = read_environment(), current_folder()
    settings = load_settings(environment, environment.brain or default_brain(environment))
    llm = None if offline else open_llm(settings, environment)
    if model and llm is None and not offline:
        note("There is no key for a model (ANTHROPIC_API_KEY): the message is made by rules.")
    made = commits.prepare(here, environment, settings, now=datetime.now(UTC), llm=llm, model=model)
    assert made is not None
    for said in made.notes:
        note(said)
    if dry_run:
        typer.echo(made.message, nl=False)
        return
    top = git.top_folder(here)
    if (git.git_dir(top) / "MERGE_MSG").exists():
        hint = "Finish it with git; --dry-run shows ours."
        raise GitError("A merge, cherry-pick or rebase is under way: git has a message for it.", hint=hint)
    file = git.git_dir(top) / "NUGGET_EDITMSG"
    file.write_text(made.message, "utf-8")
    code = git.commit_staged(top, file, edit=not auto)
    if code:
        note(f"Nothing was committed. The message is in {file}")
        raise typer.Exit(1)
    file.unlink(missing_ok=True)


@commands.command("promote")
def promote_nugget(
    nugget: Annotated[str, typer.Argument(metavar="ID", help="A nugget's id, or the beginning of it.")],
    type: Annotated[
        str | None,
        typer.Option("--type", metavar="T", help=f"Become this type: {', '.join(KnowledgeType)}."),
    ] = None,
    domain: Annotated[str, typer.Option("--domain", metavar="D", help="File it under this domain.")] = "coding",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be proposed; write nothing.")] = False,
    as_json: JsonOption = False,
    brain: BrainOption = None,
) -> None:
    """Propose a nugget as a knowledge unit of the brain.

    It waits on a branch, as what capture finds does; `nugget review` shows, accepts or rejects it.
    """
    from nugget.app.similar_units import similar_units
    from nugget.capture.promotion import Promotion, promote
    from nugget.provenance import stale_reasons
    from nugget.provenance.asking import find_here, find_nugget, opened_index
    from nugget.provenance.checkout import Checkout

    with open_brain(brain) as opened:
        home, now = opened.environment.home, datetime.now(UTC)
        with opened_index(home) as connection:
            workspace = find_here(connection, current_folder())
            found = find_nugget(connection, nugget, workspace=workspace.identity)
            stale = None
            if found.scope.repo == workspace.identity:
                reasons = stale_reasons([found], connection=connection, checkout=Checkout(workspace), today=now.date())
                stale = reasons.get(found.id)
        bound = Promotion(
            brain=opened.path, home=home, settings=opened.settings, similar=similar_units(opened), now=now,
            type=type.lower() if type else None, domain=domain, dry_run=dry_run,
        )  # fmt: skip
        result = promote(found, bound, stale=stale)
    if as_json:
        changes = [{"path": one.path, "id": one.unit.id, "reason": one.reason} for one in result.changes]
        print_json({"nugget": result.nugget, "branch": result.branch, "changes": changes})
        return
    out = console()
    for one in result.changes:
        verb = "would be proposed" if dry_run else "is proposed"
        out.print(f"{one_line(found.id)} {verb} as {one_line(one.unit.id)} ({one_line(one.path)}).")
    if result.branch:
        out.print(f"It waits on {result.branch}; `nugget review show` shows it.")
