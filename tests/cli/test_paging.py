"""The pager, at a real terminal: a pseudo-terminal with the size of one."""

import json
import os
import sys
from pathlib import Path

import pytest
from cli_stage import write_unit
from mcp_wire import RUN
from terminals import at_terminal

from nugget.text import clean

PAGER = """\
import json, os, sys
seen = {"text": sys.stdin.read(), "less": os.environ.get("LESS")}
open(os.environ["SEEN"], "w").write(json.dumps(seen))
print("PAGED")
"""


@pytest.fixture(autouse=True)
def note(words: Path) -> None:
    """A unit that is longer than a screen."""
    write_unit(words, "pattern/long", "# Long\n\n" + "\n\n".join(f"Line {n} of the long note." for n in range(60)))


def typed(*arguments: str, columns: int = 80, **variables: str) -> str:
    """What a terminal shows when a command is typed into it."""
    set_elsewhere = ("COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in set_elsewhere}
    return at_terminal([*RUN, *arguments], {**environment, "TERM": "xterm-256color", **variables}, columns=columns)


@pytest.mark.proves("CLI-PAGER")
@pytest.mark.parametrize(("variables", "less"), [({}, "FRX"), ({"NO_COLOR": "1", "LESS": "X"}, "X")])
def test_a_terminal_gets_its_pager(tmp_path, variables, less):
    (tmp_path / "pager.py").write_text(PAGER)
    pager = {"PAGER": f"{sys.executable} {tmp_path}/pager.py", "SEEN": str(tmp_path / "seen.json")}
    shown = typed("get", "pattern/long", **pager, **variables)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert "PAGED" in shown and "Line 59" not in shown
    assert "Line 0 of the long note." in seen["text"] and "Line 59" in seen["text"]
    assert seen["less"] == less and ("\x1b[3" not in seen["text"] or not variables)


@pytest.mark.proves("SEARCH-WIDTH")
@pytest.mark.parametrize("columns", [60, 200])
def test_results_are_wrapped_between_words(columns):
    asking = ("search", "line", "note", "retry", "payment", "--no-pager")
    typed("sync")
    shown = clean(typed(*asking, columns=columns))
    assert shown.split() == clean(typed(*asking, columns=1000)).split()
    assert max(map(len, shown.splitlines())) <= columns
    rows = clean(typed("doctor", columns=columns // 2)).split("\n\n")[1].splitlines()
    assert all(row.startswith(("✓ ", "! ", " " * 10)) for row in rows) and max(map(len, rows)) <= columns // 2
