"""Whose the lines of a commit are, and how its message is worded: by hand-computed cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nugget.commits.attribution import Attribution, StagedFile, attribute
from nugget.commits.message import HEADER_CHARS, TYPES, commit_type, draft, render
from nugget.models.nuggets import FileTouch, SessionRecord, TouchAction
from nugget.text import line_hash


def session(name: str, written: dict[str, str]) -> SessionRecord:
    touches = tuple(
        FileTouch(path=path, action=TouchAction.MODIFIED, line_hashes=tuple(map(line_hash, text.splitlines())))
        for path, text in written.items()
    )
    return SessionRecord(session=name, workspace="w", agent="claude-code", touches=touches)


def added(path: str, text: str, *, removed: str = "", status: str = "M", previous: str | None = None) -> StagedFile:
    lines = {"added": tuple(text.split("\n")), "removed": tuple(removed.split("\n"))}
    return StagedFile(path=path, status=status, previous=previous, **lines)


@pytest.mark.proves("COM-LINES")
def test_blank_and_trivial_lines_count_for_nobody():
    wrote = "def a():\n    return 1\n\n}\n);\n---"
    counted = attribute([added("a.py", f"{wrote}\n\nx = 2\n]")], [session("s", {"a.py": wrote})])
    assert (counted.agents, counted.human, counted.lines) == ({"claude-code": 2}, 1, 3)


@pytest.mark.proves("COM-LINES")
def test_moved_lines_count_for_nobody_also_when_indented_anew_or_in_another_file():
    new, old = "    total = 1\n    other = 2\ntotal = 1", added("old.py", "", removed="total = 1\nother = 2")
    counted = attribute([added("new.py", new), old], [])
    assert counted.human == 1, "one line was removed once and added twice: one is moved, one is new"


@pytest.mark.proves("COM-LINES", "COM-HUMAN")
def test_lines_are_an_agents_only_in_the_file_that_it_wrote_them_in_also_under_its_old_name():
    wrote = session("s", {"a.py": "x = 1\ny = 2"})
    assert attribute([added("b.py", "x = 1")], [wrote]).human == 1
    assert attribute([added("b.py", "x = 1", status="R", previous="a.py")], [wrote]).agents == {"claude-code": 1}
    assert attribute([added("a.py", "x = 10\n  y = 2")], [wrote]).agents == {"claude-code": 1}


@pytest.mark.proves("COM-100")
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 10**6)), st.integers(0, 10**6))
def test_shares_always_add_up_to_100(agents, human):
    shares, rest = Attribution(agents=agents, human=human).shares()
    assert sum(shares.values()) + rest == (100 if agents or human else 0)
    assert set(shares) == set(agents) and all(share >= 1 for share in shares.values())
    assert (rest >= 1) == (human > 0)


@pytest.mark.proves("COM-TYPE")
@pytest.mark.parametrize(("paths", "intent", "expected"), [
    (["docs/a.md", "README.md"], "fix the build", "docs"), (["tests/test_a.py", "src/a.test.ts"], "", "test"),
    ([".github/workflows/ci.yml"], "", "ci"), (["pyproject.toml", "uv.lock"], "", "build"),
    ([".gitignore"], "", "chore"), (["src/a.py"], "fix the crash on empty input", "fix"),
    (["src/a.py"], "refactor the parser", "refactor"),
])  # fmt: skip
def test_the_type_by_paths_and_request(paths, intent, expected):
    assert commit_type([added(path, "x = 1") for path in paths], intent) == expected
    assert draft([added("a.py", "x")], intents=["Add a cart", "Fix what is…"])[1] == ("- Fix what is…",)


@pytest.mark.proves("COM-CONVENTIONAL")
@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=12))
def test_whatever_was_said_and_staged_the_first_line_is_conventional_and_short(said, paths):
    first, *rest = render((draft([added(one, "x") for one in paths], intents=[said])[0], (f"{said} #1",))).split("\n")
    assert not any(line.startswith("#") for line in rest)  # as a comment of git's
    assert len(first) <= HEADER_CHARS and first.split(":")[0].split("(")[0] in TYPES
