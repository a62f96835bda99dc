"""The pager, at a real terminal: a pseudo-terminal with the size of one."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

NUGGET = [sys.executable, "-c", "from nugget.__main__ import console; console()"]
ROWS = 24
PAGER = """\
import json, os, sys
text = sys.stdin.read()
seen = {"text": text, "arguments": sys.argv[1:], "less": os.environ.get("LESS")}
open(os.environ["SEEN"], "w").write(json.dumps(seen))
print("PAGED")
"""


@pytest.fixture
def notes(brain: Path, isolated_home: Path) -> Path:
    """A brain with a long and a short unit; the home folder, where the pager leaves what it saw."""
    for slug, lines in (("long", 60), ("short", 2)):
        body = "\n\n".join(f"Line {number} of the {slug} note." for number in range(lines))
        (brain / "domains/coding/patterns" / f"{slug}.md").write_text(
            f"---\nid: pattern/{slug}\ntype: pattern\ndomain: coding\ntags: []\nconfidence: 0.9\nsource: manual\n"
            f"related: []\ncreated: 2026-11-01\nlast_modified: 2026-11-01\n---\n# {slug}\n\n{body}\n"
        )
    (isolated_home / "pager.py").write_text(PAGER)
    return isolated_home


def at_terminal(arguments: list[str], brain: Path, home: Path, variables: Mapping[str, str]) -> str:
    """What a terminal of 80 columns shows when a command is typed into it."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, 80))
    environment = {
        **os.environ, "HOME": str(home), "NUGGET_BRAIN": str(brain), "NUGGET_EMBEDDING_MODEL": "none",
        "TERM": "xterm-256color", "SEEN": str(home / "seen.json"), **variables,
    }  # fmt: skip
    for name in ("COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR"):
        environment.pop(name, None) if name not in variables else None
    with subprocess.Popen(
        [*NUGGET, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:  # what Linux says when the other end is closed
                break
            if not some:
                break
            shown += some
        assert process.wait(60) == 0, shown
    os.close(ours)
    return shown.decode()


@pytest.fixture
def pager(notes: Path) -> str:
    return f"{sys.executable} {notes / 'pager.py'}"


@pytest.mark.proves("CLI-PAGER")
def test_what_is_longer_than_the_screen_goes_through_the_pager_and_no_shell(
    brain: Path, notes: Path, pager: str
) -> None:
    hostile = f"{pager} '$HOME' ; touch {notes / 'owned'} `id`"
    shown = at_terminal(["get", "pattern/long"], brain, notes, {"PAGER": hostile})
    seen = json.loads((notes / "seen.json").read_text())
    assert "PAGED" in shown and "Line 59" not in shown
    assert "Line 0 of the long note." in seen["text"] and "Line 59" in seen["text"] and "\x1b[" in seen["text"]
    assert seen["arguments"] == ["$HOME", ";", "touch", str(notes / "owned"), "`id`"] and not (notes / "owned").exists()
    assert seen["less"] == "FRX"


@pytest.mark.proves("CLI-PAGER")
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["get", "pattern/short"], {}),
        (["get", "pattern/long", "--no-pager"], {}),
        (["get", "pattern/long"], {"PAGER": ""}),
        (["get", "pattern/long"], {"PAGER": "cat"}),
        (["get", "pattern/long", "--json"], {}),
    ],
)
def test_there_is_no_pager_where_none_is_needed_or_wanted(
    brain: Path, notes: Path, pager: str, arguments: list[str], variables: dict[str, str]
) -> None:
    shown = at_terminal(arguments, brain, notes, {"PAGER": pager, **variables})
    assert "PAGED" not in shown and not (notes / "seen.json").exists()
    assert f"Line {1 if 'short' in arguments[1] else 59}" in shown


@pytest.mark.proves("CLI-PAGER")
def test_the_pager_gets_no_colour_where_none_is_wanted(brain: Path, notes: Path, pager: str) -> None:
    at_terminal(["get", "pattern/long"], brain, notes, {"PAGER": pager, "NO_COLOR": "1", "LESS": "X"})
    seen = json.loads((notes / "seen.json").read_text())
    assert "\x1b[3" not in seen["text"] and "\x1b[9" not in seen["text"] and seen["less"] == "X"


@pytest.mark.proves("CLI-PAGER")
def test_a_pager_that_is_not_there_costs_no_answer(brain: Path, notes: Path) -> None:
    shown = at_terminal(["get", "pattern/long"], brain, notes, {"PAGER": "no-such-pager --x"})
    assert "Line 59" in shown and "PAGER=no-such-pager cannot be run" in shown


@pytest.mark.proves("CLI-PAGER")
def test_a_whole_session_is_paged_too(brain: Path, notes: Path, pager: str) -> None:
    session = notes / ".claude" / "projects" / "shop" / "5e55.jsonl"
    session.parent.mkdir(parents=True)
    lines = [
        {"type": "user", "uuid": f"u{number}", "message": {"role": "user", "content": f"Prompt {number}"}}
        for number in range(30)
    ]
    session.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "PAGED" in at_terminal(["sessions", "show", "5e55"], brain, notes, {"PAGER": pager})
    assert "Prompt 29" in json.loads((notes / "seen.json").read_text())["text"]
    assert "Prompt 29" in at_terminal(["sessions", "show", "5e55", "--no-pager"], brain, notes, {"PAGER": pager})
