"""The pager, at a real terminal: a pseudo-terminal with the size of one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cli_stage import write_unit
from terminals import at_terminal

from nugget.text import clean

NUGGET = [sys.executable, "-c", "from nugget.__main__ import console; console()"]
PAGER = """\
import json, os, sys
text = sys.stdin.read()
seen = {"text": text, "arguments": sys.argv[1:], "less": os.environ.get("LESS")}
open(os.environ["SEEN"], "w").write(json.dumps(seen))
print("PAGED")
"""


@pytest.fixture
def notes(brain: Path, isolated_home: Path) -> Path:
    """A brain with a long unit; the home folder, where the pager leaves what it saw."""
    write_unit(brain, "pattern/long", "# Long\n\n" + "\n\n".join(f"Line {n} of the long note." for n in range(60)))
    (isolated_home / "pager.py").write_text(PAGER)
    return isolated_home


def typed(arguments: list[str], brain: Path, home: Path, variables: Mapping[str, str], *, columns: int = 80) -> str:
    """What a terminal shows when a command is typed into it."""
    environment = {
        **os.environ, "HOME": str(home), "NUGGET_BRAIN": str(brain), "NUGGET_EMBEDDING_MODEL": "none",
        "TERM": "xterm-256color", "SEEN": str(home / "seen.json"), **variables,
    }  # fmt: skip
    for name in ("COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR"):
        environment.pop(name, None) if name not in variables else None
    return at_terminal([*NUGGET, *arguments], environment, columns=columns)


@pytest.fixture
def pager(notes: Path) -> str:
    return f"{sys.executable} {notes / 'pager.py'}"


@pytest.mark.proves("CLI-PAGER")
@pytest.mark.parametrize(("variables", "less"), [({}, "FRX"), ({"NO_COLOR": "1", "LESS": "X"}, "X")])
def test_a_terminal_gets_its_pager(brain: Path, notes: Path, pager: str, variables: dict[str, str], less: str) -> None:
    shown = typed(["get", "pattern/long"], brain, notes, {"PAGER": pager, **variables})
    seen = json.loads((notes / "seen.json").read_text())
    assert "PAGED" in shown and "Line 59" not in shown
    assert "Line 0 of the long note." in seen["text"] and "Line 59" in seen["text"]
    assert seen["less"] == less and ("\x1b[3" not in seen["text"] or not variables)


@pytest.mark.proves("SEARCH-WIDTH")
@pytest.mark.parametrize("columns", [60, 200])
def test_results_are_wrapped_between_words(brain: Path, notes: Path, columns: int) -> None:
    asking = ["search", "line", "note", "retry", "payment", "--no-pager"]
    typed(["sync"], brain, notes, {})
    wide = clean(typed(asking, brain, notes, {}, columns=1000))
    shown = clean(typed(asking, brain, notes, {}, columns=columns))
    assert shown.split() == wide.split()
    assert max(map(len, shown.splitlines())) <= columns
