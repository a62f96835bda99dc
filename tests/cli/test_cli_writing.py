"""Commands that change a brain: `init`, `add`, `forget`, `lint`, `sync`, capture and review."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_stage import golden, write_unit
from commands import Nugget
from knowledge_files import add_first_units
from loopback_anthropic import AnthropicServer, value
from paths import REPOSITORY
from sessions import write_transcript

from nugget.config import load_settings, read_environment
from nugget.infra import git

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def propose(brain: Path, branch: str = "nugget/session-20260304-050607-abcd1234") -> str:
    """A proposal of two units on a local branch."""
    files: dict[str, bytes | None] = {
        f"domains/coding/patterns/{slug}.md": (
            f"---\nid: pattern/{slug}\ntype: pattern\ndomain: coding\ntags: [zebra]\nconfidence: 0.7\n"
            "source: ai-session\nevidence:\n  - session: s1\n    quote: the zebra said so\n---\n"
            f"# The {slug} way\n\nDo it the {slug} way.\n"
        ).encode()
        for slug in ("zebra", "okapi")
    }
    git.create_branch(brain, branch, files=files, message="Knowledge from session 2026-03-04 05:06\n\nTwo.", now=NOW)
    return branch


@pytest.mark.proves("CLI-HAND")
def test_what_is_added_is_found_and_what_is_forgotten_is_gone(nugget: Nugget, words: Path) -> None:
    added = nugget("add", "Quokkas smile because of their jaws.", "--domain", "zoology", "--tag", "animals,jaws")
    golden("add", added.out)
    unit_id = re.findall(r"Kept as (\S+) in", added.out)[0]
    assert nugget("search", "quokkas", "-q").out == f"brain:{unit_id}\n"
    assert nugget("get", unit_id, "--json").json["tags"] == ["animals", "jaws"]
    assert git.uncommitted_paths(words) == []

    moved = nugget("mv", unit_id, "--domain", "zoology/marsupials", "--name", "quokka-jaws")
    golden("mv", moved.out)
    assert nugget("search", "quokkas", "-q").out == "brain:pattern/quokka-jaws\n"

    gone = nugget("forget", "pattern/quokka-jaws")
    golden("forget", gone.out, Path.home())
    assert nugget("search", "quokkas", "-q").out == ""


@pytest.mark.proves("CLI-LINT")
def test_lint_names_file_line_and_reason(nugget: Nugget, words: Path) -> None:
    clean = nugget("lint")
    assert (clean.code, clean.out) == (0, "All is well.\n")
    odd = write_unit(words, "pattern/odd", "# Odd\n\nText.", related="[{id: concept/nowhere, relation: uses}]")
    assert nugget("lint", odd).code == 0, "a warning fails nothing"
    write_unit(words, "pattern/broken", "# Broken", tags="[unclosed")
    shown = nugget("lint")
    assert shown.code == 1
    golden("lint", shown.out)


@pytest.mark.proves("CLI-INIT")
def test_init_makes_a_brain_that_is_asked_from_anywhere(
    nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    folder = tmp_path / "my brain"
    made = nugget("init", folder, "--remote", "https://git.example.invalid/brain.git")
    assert made.code == 0
    golden("init", made.out, folder)
    assert git.head(folder) and load_settings(read_environment(), folder).owner == "Test Person"
    assert git.run(folder, "remote", "get-url", "origin") == b"https://git.example.invalid/brain.git\n"
    monkeypatch.chdir(tmp_path)
    add_first_units(folder)
    assert "pattern/expand-then-contract" in nugget("ask", "--no-llm", "change an interface without breaking").out

    head = git.head(folder)
    assert nugget("init", folder).out.startswith(f"The brain is there already: {folder}\n") and git.head(folder) == head


@pytest.mark.proves("CLI-REVIEW")
def test_a_proposal_is_listed_shown_and_accepted(nugget: Nugget, words: Path) -> None:
    assert nugget("review").out.startswith("Nothing waits for review.")
    branch = propose(words)
    golden("review-list", nugget("review").out)
    golden("review-show", nugget("review", "show", "abcd").out)
    assert "   +# The zebra way" in nugget("review", "show", "--diff").out
    assert nugget("search", "zebra", "-q").out == ""

    accepted = nugget("review", "accept", branch, "--unit", "pattern/zebra")
    assert accepted.code == 0
    golden("review-accept", accepted.out)
    assert nugget("search", "zebra", "-q").out == "brain:pattern/zebra\n"
    assert nugget("review", "reject").out.startswith("Rejected, and not to be proposed again: pattern/okapi.")


@pytest.mark.proves("EXT-EXPLAIN")
def test_explain_shows_what_a_model_found_and_what_kept_it_out(
    nugget: Nugget, words: Path, server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    quote = "Stripe sends some events twice"
    unit = {"type": "bug", "title": quote, "domain": "coding/web", "tags": [], "confidence": 0.9, "quotes": [quote],
            "body": f"{quote}, so a handler has to remember the ids it has seen.", "reason": "it surprised everybody",
            "alternatives": [], "relations": []}  # fmt: skip
    server.default = lambda request: value({"summary": "s", "units": [unit, unit | {"title": "Kafka holds the queue"}]})
    transcript = words.parent / "s.jsonl"
    write_transcript(transcript, [(f"Why is it booked again? {quote}, I read.", "I made the handler idempotent.")])
    shown = nugget("capture-session", "--transcript", transcript, "--explain", "--with", "api")
    assert shown.code == 0 and "Judged by claude-sonnet-5-5." in shown.out
    assert "0.90 bug Stripe sends some events twice: proposed as domains/coding/web/bugs/" in shown.out
    assert "it surprised everybody" in shown.out and f"“{quote}” said by the user" in shown.out
    assert "left out: Kafka holds the queue: its quotes do not say it" in shown.out
    assert nugget("review", "list", "--json").json == []


@pytest.mark.proves("CLI-CAPTURE")
def test_a_session_becomes_knowledge_that_is_found(nugget: Nugget, words: Path) -> None:
    session = REPOSITORY / "examples/demo/session.jsonl"
    capture = ("capture-session", "--transcript", session, "--with", "offline")
    tried = nugget(*capture, "--dry-run")
    assert tried.code == 0 and "would be proposed (heuristic)" in tried.out
    assert nugget("review", "list", "--json").json == []

    done = nugget(*capture, "--json").json
    assert done["method"] == "heuristic" and done["units"] and done["skipped"] is None
    (waiting,) = nugget("review", "list", "--json").json
    assert waiting["branch"] == done["branch"]
    assert {file["id"] for file in waiting["files"]} == {unit["id"] for unit in done["units"]}
    again = nugget(*capture)
    assert again.code == 0 and again.out == "Nothing to propose: nothing new since it was captured.\n"

    assert nugget("review", "accept").code == 0
    (listed,) = nugget("sessions", "--all", "--json").json["sessions"]
    assert (listed["captured"], listed["units"]) == ("yes", {"kept": len(done["units"])})
    first = done["units"][0]
    assert nugget("search", first["title"], "-q", "-n", "3").out.count(f"brain:{first['id']}\n") == 1
