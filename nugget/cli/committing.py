"""`nugget commit`: commit what is staged, with a message that says what for and by whom."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nugget.cli.terminal import current_folder, note
from nugget.config import load_settings, read_environment
from nugget.errors import GitError
from nugget.infra.brain_in_use import default_brain


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
    if operation := git.operation_in_progress(top):
        raise GitError(
            f"A {operation} is under way: git has a message for it.", hint="Finish it with git; --dry-run shows ours."
        )
    file = git.git_dir(top) / "NUGGET_EDITMSG"
    file.write_text(made.message, "utf-8")
    code = git.commit_staged(top, file, edit=not auto)
    if code:
        note(f"Nothing was committed. The message is in {file}")
        raise typer.Exit(1)
    file.unlink(missing_ok=True)
