"""`nugget extract`: why code is the way it is, from the sessions that wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli.capturing import Method
from nugget.cli.terminal import JsonOption, console, note, print_json, progress
from nugget.config import load_settings, read_environment
from nugget.errors import BrainError, LLMUnavailable, TranscriptError
from nugget.infra.brain_in_use import default_brain, find_brain
from nugget.render import clean, one_line
from nugget.text import counted

if TYPE_CHECKING:
    from nugget.config import Environment, Settings
    from nugget.infra.llm import LLM, ClaudeCli
    from nugget.infra.workspace import Workspace
    from nugget.models import SessionFile
    from nugget.provenance.extraction import Outcome


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
        outcomes = list(extract_sessions(_found(environment, session), extractor, workspace=wanted, progress=tell))
    tunings = note_tunings(here, extractor) if not session or here.identity in _touched(outcomes) else 0
    if as_json:
        print_json(_as_json(outcomes, here, tunings, dry_run=dry_run, everything=everything))
    else:
        _print(outcomes, here, tunings, dry_run=dry_run, everything=everything or session is not None)
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


def _found(environment: Environment, session: str | None) -> list[SessionFile]:
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


def _as_json(
    outcomes: Sequence[Outcome], here: Workspace, tunings: int, *, dry_run: bool, everything: bool
) -> dict[str, object]:
    counts = {state: sum(one.state == state for one in outcomes) for state in ("extracted", "skipped", "failed")}
    return {
        **counts,
        "nuggets": sum(one.nuggets for one in outcomes),
        "tunings": tunings,
        "usd": round(sum(one.usd for one in outcomes), 6),
        "dry_run": dry_run,
        "workspace": None if everything else here.identity,
        "sessions": [asdict(one) for one in outcomes],
    }


def _print(outcomes: Sequence[Outcome], here: Workspace, tunings: int, *, dry_run: bool, everything: bool) -> None:
    out = console()
    for one in outcomes:
        if one.state == "extracted":
            what = f"{counted(one.nuggets, 'nugget')}, {counted(one.touches, 'file')}"
            out.print(f"  {clean(one.session[:8])}  {what:<24} {one_line(one.title)}".rstrip())
        elif one.state == "failed":
            note(f"failed: {clean(one.session)}: {one_line(one.reason)}")
        for line in one.dropped:
            note(f"left out: {clean(one.session[:8])}: {one_line(line)}")
    counts = {state: sum(one.state == state for one in outcomes) for state in ("extracted", "skipped", "failed")}
    if counts["extracted"]:
        out.print("")
    out.print("Would be extracted:" if dry_run else "Extraction Results:")
    out.print(f"  Extracted: {counts['extracted']}")
    out.print(f"  Skipped:   {counts['skipped']}")
    out.print(f"  Failed:    {counts['failed']}")
    if tunings:
        out.print(f"  Changed by hand since: {counted(tunings, 'file')}")
    if usd := sum(one.usd for one in outcomes):
        out.print(f"  Cost:      ${usd:.4f}")
    if not outcomes and not everything:
        out.print(f"No session worked in {clean(here.name)} ({clean(str(here.root))}).")
        out.print("Next: nugget extract --all takes the sessions of every workspace.")
