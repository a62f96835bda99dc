"""Whose the lines of a commit are, and how its message is worded: by hand-computed cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nugget.commits.attribution import Attribution, StagedFile, attribute
from nugget.commits.message import (
    HEADER_CHARS,
    TYPES,
    commit_type,
    common_scope,
    draft,
    rendered,
    subject_of,
    trailers,
)
from nugget.models.nuggets import FileTouch, SessionRecord, TouchAction
from nugget.text import line_hash


def session(name: str, written: dict[str, str], agent: str = "claude-code") -> SessionRecord:
    touches = tuple(
        FileTouch(path=path, action=TouchAction.MODIFIED, line_hashes=tuple(map(line_hash, text.splitlines())))
        for path, text in written.items()
    )
    return SessionRecord(session=name, workspace="w", agent=agent, touches=touches)


def added(path: str, text: str, *, removed: str = "", status: str = "M", previous: str | None = None) -> StagedFile:
    return StagedFile(
        path=path, status=status, previous=previous, added=tuple(text.split("\n")), removed=tuple(removed.split("\n"))
    )


@pytest.mark.proves("COM-LINES")
def test_blank_and_trivial_lines_count_for_nobody() -> None:
    wrote = "def a():\n    return 1\n\n}\n);\n---"
    counted = attribute([added("a.py", f"{wrote}\n\nx = 2\n]")], [session("s", {"a.py": wrote})])
    assert (counted.agents, counted.human, counted.lines) == ({"claude-code": 2}, 1, 3)


@pytest.mark.proves("COM-LINES")
def test_moved_lines_count_for_nobody_also_when_indented_anew_or_in_another_file() -> None:
    staged = [
        added("new.py", "    total = 1\n    other = 2\ntotal = 1"),
        added("old.py", "", removed="total = 1\nother = 2"),
    ]
    counted = attribute(staged, [])
    assert counted.human == 1, "one line was removed once and added twice: one is moved, one is new"


@pytest.mark.proves("COM-LINES", "COM-HUMAN")
def test_lines_are_an_agents_only_in_the_file_that_it_wrote_them_in_also_under_its_old_name() -> None:
    wrote = session("s", {"a.py": "x = 1\ny = 2"})
    assert attribute([added("b.py", "x = 1")], [wrote]).human == 1
    assert attribute([added("b.py", "x = 1", status="R", previous="a.py")], [wrote]).agents == {"claude-code": 1}
    assert attribute([added("a.py", "x = 10\n  y = 2")], [wrote]).agents == {"claude-code": 1}


@pytest.mark.proves("COM-LINES")
def test_of_two_sessions_that_wrote_a_line_the_newest_has_it() -> None:
    newest, older = session("n", {"a.py": "x = 1"}, agent="codex"), session("o", {"a.py": "x = 1\ny = 2\nz = 3"})
    counted = attribute([added("a.py", "x = 1\ny = 2\nz = 3\nq = 4")], [newest, older])
    assert counted.agents == {"codex": 1, "claude-code": 2}
    assert dict(counted.sessions) == {"o": 2, "n": 1}
    assert counted.shares() == ({"claude-code": 50, "codex": 25}, 25)


@pytest.mark.proves("COM-100")
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 10**6)), st.integers(0, 10**6))
def test_shares_always_add_up_to_100(agents: dict[str, int], human: int) -> None:
    shares, rest = Attribution(agents=agents, human=human).shares()
    assert sum(shares.values()) + rest == (100 if agents or human else 0)
    assert set(shares) == set(agents) and all(share >= 1 for share in shares.values())
    assert (rest >= 1) == (human > 0)


@pytest.mark.proves("COM-TYPE")
@pytest.mark.parametrize(
    ("paths", "intent", "expected"),
    [
        (["docs/a.md", "README.md"], "fix the build", "docs"),
        (["tests/test_a.py", "src/a.test.ts"], "", "test"),
        ([".github/workflows/ci.yml"], "", "ci"),
        (["pyproject.toml", "uv.lock"], "", "build"),
        (["package-lock.json"], "", "build"),
        ([".gitignore"], "", "chore"),
        (["src/a.py"], "fix the crash on empty input", "fix"),
        (["src/a.py", "tests/test_a.py"], "add a retry", "feat"),
        (["src/a.py"], "refactor the parser", "refactor"),
        (["src/a.py", "README.md"], "bump the linter", "chore"),
        (["tests/test_a.py", "docs/a.md"], "", "test"),
    ],
)
def test_the_type_by_paths_and_request(paths: list[str], intent: str, expected: str) -> None:
    assert commit_type([added(path, "x = 1") for path in paths], intent) == expected


@pytest.mark.proves("COM-TYPE")
@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["src/auth.py"], "auth"),
        (["nugget/sources/agents/codex.py", "nugget/sources/agents/cursor.py"], "agents"),
        (["src/payments/a.py", "src/payments/b/c.py", "tests/test_a.py"], "payments"),
        (["a/x.py", "b/y.py"], ""),
        (["a.py", "b.py"], ""),
        (["pkg/billing/__init__.py"], "billing"),
        ([".gitignore"], "gitignore"),
        (["src/" + "x" * 40 + ".py"], ""),
    ],
)
def test_the_scope_is_the_common_folder_or_the_file(paths: list[str], expected: str) -> None:
    assert common_scope([added(path, "x = 1") for path in paths]) == expected


@pytest.mark.proves("COM-CONVENTIONAL")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Can you please add a retry with backoff? It must never retry a POST.", "add a retry with backoff"),
        ("ok, now let's rename the module", "rename the module"),
        ("I want you to Fix the README.", "fix the README"),
        ("OAuth tokens should expire", "OAuth tokens should expire"),
        ("why does this fail?", ""),
        ("yes", ""),
        ("Implement the following plan:\n\n# Plan: Publish to the tap\n\n## Goal\nUpdate it", "publish to the tap"),
        ("Implement the following plan: # Publish to the tap ## Goal Update it.", "publish to the tap"),
        ("I do want to use another linter", "use another linter"),
        ("continue", ""),
        ("", ""),
        ("fix(auth): expire tokens", "fix(auth): expire tokens"),
        ("bitte füge einen Test hinzu", "bitte füge einen Test hinzu"),
        ("支払いの 再試行を追加して", "支払いの 再試行を追加して"),
        ("fix what https://example.com/issue/1 tells of", "fix what tells of"),
        ("\x1b[31madd colours\x07 to it", "add colours to it"),
    ],
)
def test_a_request_becomes_a_subject(said: str, expected: str) -> None:
    assert subject_of(said) == expected


@pytest.mark.proves("COM-CONVENTIONAL")
@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=12))
def test_whatever_was_said_and_staged_the_first_line_is_conventional_and_short(said: str, paths: list[str]) -> None:
    made = draft([added(path, "x = 1") for path in paths], intents=[said])
    first = rendered(made).split("\n")[0]
    assert len(first) <= HEADER_CHARS
    assert first.split(":")[0].split("(")[0] in TYPES
    assert "\x1b" not in first and "\r" not in first


@pytest.mark.proves("COM-CONVENTIONAL")
def test_a_long_request_is_cut_at_a_word_and_stands_whole_in_the_body() -> None:
    asked = "add a retry with exponential backoff and jitter to every call of the payment client of the shop"
    message = rendered(draft([added("src/pay.py", "x = 1")], intents=[asked], reasons=["Constraint: Never a POST."]))
    first, blank, *body = message.splitlines()
    assert first == "feat(pay): add a retry with exponential backoff and jitter to every…"
    assert blank == ""
    assert " ".join(line.strip() for line in body).startswith(f"- A{asked[1:]}.")
    assert "- Constraint: Never a POST." in body
    assert all(len(line) <= 72 for line in body)


@pytest.mark.proves("COM-TRAILERS")
def test_trailers_say_sessions_shares_and_co_authors() -> None:
    counted = Attribution(agents={"claude-code": 6, "codex": 2}, human=2)
    assert trailers(counted, sessions=["s1", "s2"], name="Ada (Person)\nX: y") == [
        ("Nugget-Session", "s1"),
        ("Nugget-Session", "s2"),
        ("Nugget-Attribution", "60% agent (claude-code), 20% agent (codex), 20% human (Ada Person X: y)"),
        ("Co-authored-by", "Claude <noreply@anthropic.com>"),
        ("Co-authored-by", "Codex <noreply@openai.com>"),
    ]
    assert trailers(counted, sessions=["s1"], name="A", co_authors=False)[-1][0] == "Nugget-Attribution"
    assert trailers(Attribution(human=3), sessions=[], name="Ada") == []
    assert trailers(Attribution(human=3), sessions=["s"], name="Ada")[1] == (
        "Nugget-Attribution", "0% agent, 100% human (Ada)",
    )  # fmt: skip
    assert trailers(Attribution(), sessions=["s"], name="Ada") == [("Nugget-Session", "s")]
