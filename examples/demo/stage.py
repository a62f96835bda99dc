"""The stage of the demo, and how it shows and runs a command."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A temporary HOME with its environment, the installed command, and the screen."""

    home: Path
    variables: dict[str, str]
    command: str
    screen: Console

    @property
    def brain(self) -> Path:
        """Return the folder of the brain that the demo makes."""
        return self.home / "brain"


def title(stage: Stage, number: int, name: str, what: str) -> None:
    """Print the heading of a step."""
    stage.screen.rule(f"[bold cyan]{number}. {name}", align="left", style="cyan")
    stage.screen.print(f"[dim]{what}[/]\n")


def run(stage: Stage, *arguments: str, at_most_lines: int | None = None, folder: Path | None = None) -> None:
    """Show a command as it would be typed, run it, and show what it prints."""
    typed = " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
    stage.screen.print(f"[bold green]$[/] [bold]nugget {typed}[/]", soft_wrap=True)
    real = [argument.replace("~", str(stage.home), 1) if argument.startswith("~/") else argument
            for argument in arguments]  # fmt: skip
    sys.stdout.flush()
    limited = at_most_lines is not None
    done = subprocess.run(
        [stage.command, *real], env=stage.variables, cwd=folder or stage.home, check=True, text=True,
        stdout=subprocess.PIPE if limited else None,
    )  # fmt: skip
    if limited:
        lines = done.stdout.rstrip().splitlines()
        stage.screen.out("\n".join(lines[:at_most_lines]), highlight=False)
        if len(lines) > (at_most_lines or 0):
            stage.screen.print(f"[dim]… and {len(lines) - (at_most_lines or 0)} more lines[/]")
    stage.screen.print()
