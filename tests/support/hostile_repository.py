"""A repository whose `.git` folder has a trap under each key of git-config(1) whose value is a program."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from paths import TESTS
from programs import program

TRAPS = json.loads((TESTS / "fixtures" / "git_traps.json").read_text("utf-8"))
"""Keys whose values are programs, what makes git run those or reach them in another way, and names of hooks."""


@dataclass(frozen=True)
class Traps:
    """The traps of a repository, and which of them were sprung."""

    folder: Path

    @property
    def sprung(self) -> set[str]:
        """The names of the programs that ran."""
        return {mark.name for mark in (self.folder / "marks").iterdir()}

    def program(self, name: str) -> Path:
        """A program that leaves a mark with its name."""
        slug = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in name)
        return program(self.folder / slug, f"echo ran > '{self.folder}/marks/{slug}'")


def plant(repo: Path, folder: Path) -> Traps:
    """Put the traps into the `.git` folder of a repository; what stands in its checkout stays."""
    (folder / "marks").mkdir(parents=True)
    (folder / "hooks").mkdir()
    traps = Traps(folder)
    traps.program("address")

    def setting(key: str, value: str, file: Path = repo / ".git/config") -> None:
        subprocess.run(["git", "config", "--file", str(file), "--add", key, value], check=True)

    for key in TRAPS["programs"]:
        value = str(traps.program(key))
        setting(key, f"!{value}" if key.startswith(("alias.", "submodule.")) else value)
    for key, value in TRAPS["supporting"].items():
        setting(key.format(folder=folder), value.format(folder=folder))
    setting("filter.included.clean", str(traps.program("filter.included.clean")), folder / "included")
    setting("filter.of-worktree.clean", str(traps.program("filter.of-worktree.clean")), repo / ".git/config.worktree")
    setting("extensions.worktreeConfig", "true")
    for name in TRAPS["hooks"]:
        for place in (folder / "hooks", repo / ".git/hooks"):
            program(place / name, str(traps.program("hook-" + name)))
    attributes = (
        "* filter=trap diff=trap merge=trap\n*.py filter=with=and.dots\n*.yaml filter=included\n"
        "*.toml filter=of-worktree\n"
    )
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/attributes").write_text(attributes)
    return traps
