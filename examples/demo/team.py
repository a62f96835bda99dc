"""Play the same in a team: the session's knowledge goes through a pull request on a shared brain.

GitHub is played by a stand-in on this machine (`stand_in.py`), everything else is the real thing: the command, git,
the push, the pull.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from stage import Stage, run, title
from stand_in import TOKEN, PullRequest, StandIn

from nugget.errors import NuggetError
from nugget.text import clean

_SHOWN_LINES = 10
_SHOWN_FILES = 3


def play_team(stage: Stage, transcript: Path, *, number: int, question: str) -> None:
    """Show a shared brain: capture opens a pull request, its merge is followed, and the question is answered."""
    title(
        stage, number, "In a team", "the same session into a shared brain: what was found becomes a pull request, to "
        "be read and merged where the team does that. GitHub is played by a small server on this machine."
    )  # fmt: skip
    with StandIn(stage.home / "stand-in", stage.variables) as github:
        variables = stage.variables | {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": f"{github.origin}/api/v3"}
        team = replace(stage, variables=variables)
        run(team, "init", "~/team-brain", at_most_lines=1)
        _share(team, github)
        run(team, "capture-session", "--transcript", f"~/{transcript.relative_to(stage.home)}",
            "--with", "offline", "--brain", "~/team-brain", at_most_lines=1)  # fmt: skip
        pull = next(iter(github.pulls), None)
        if pull is None:
            raise NuggetError("Capture opened no pull request.", hint="This is a bug of Nugget's.")
        _show(team, github, pull)
        github.merge(pull)
        stage.screen.print(f"[dim]A reviewer merges #{pull.number} on the remote.[/]\n")
        run(team, "sync", "--pull", "--brain", "~/team-brain")
        run(team, "ask", question, "--no-llm", "--limit", "1", "--brain", "~/team-brain", at_most_lines=_SHOWN_LINES)


def _share(stage: Stage, github: StandIn) -> None:
    """Give the brain its remote."""
    brain = str(stage.home / "team-brain")
    stage.screen.print(f"[bold green]$[/] [bold]git remote add origin {github.url} && git push[/]\n", soft_wrap=True)
    for arguments in (["remote", "add", "origin", github.url], ["push", "--quiet", str(github.bare), "HEAD:main"]):
        subprocess.run(["git", "-C", brain, *arguments], env=stage.variables, check=True)


def _show(stage: Stage, github: StandIn, pull: PullRequest) -> None:
    """Show the pull request to its reviewer."""
    from rich.panel import Panel
    from rich.text import Text

    files = github.files(pull)
    lines = [line for line in clean(pull.body).splitlines() if line]
    told = [
        f"title   {clean(pull.title)}",
        f"branch  {clean(pull.branch)} -> {clean(pull.base)}",
        *(f"{'' if place else 'files':<8}{clean(path)}" for place, path in enumerate(files[:_SHOWN_FILES])),
        f"        … and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else "",
        "",
        *lines[:_SHOWN_FILES],
        f"… and {len(lines) - _SHOWN_FILES} more lines: each unit with the words it was learned from",
    ]
    stage.screen.print(Panel(Text("\n".join(told)), title=f"pull request #{pull.number} on the stand-in for GitHub"))
    stage.screen.print()
