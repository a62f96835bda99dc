"""Every command of provenance on a real repository: the edits of a recorded session replayed, then changed by hand.

The transcript is tests/golden/provenance.txt; `UPDATE_GOLDEN=1 pytest tests/cli/test_provenance_golden.py` rewrites
it. What differs from run to run (commits, dates of today) is replaced.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from commands import Nugget
from paths import TESTS
from replay import Replay, change_by_hand, git, replay

GOLDEN = TESTS / "golden" / "provenance.txt"
TRANSCRIPT = "transcripts/claude-code/2026-02-10_a0927dd5_48415fae24d7.jsonl"
REMOTE = "https://github.com/acme/cli.git"


@pytest.fixture
def played(
    shared_data: Path, isolated_home: Path, tmp_path: Path, brain: Path, monkeypatch: pytest.MonkeyPatch
) -> Replay:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    made = replay(shared_data / TRANSCRIPT, tmp_path / "cli", isolated_home / ".claude", remote=REMOTE)
    assert made.session.ended is not None
    code = sorted(path for path in made.paths if path.endswith(".go") and (made.repo / path).is_file())
    later = made.session.ended + timedelta(days=1)
    changed = (made.repo / code[0]).read_text() + "\n// Changed by hand.\n"
    change_by_hand(made.repo, code[0], changed, at=later)
    git(made.repo, "mv", code[-1], code[-1].replace(".go", "_renamed.go"))
    git(made.repo, "commit", "-q", "-m", "Rename", at=later + timedelta(hours=1))
    monkeypatch.chdir(made.repo)
    return made


def commands(played: Replay) -> list[list[str]]:
    """What is shown, in order."""
    code = sorted(path for path in played.paths if path.endswith(".go"))
    session, changed, renamed = played.session.id[:8], code[0], code[-1].replace(".go", "_renamed.go")
    return [
        ["extract"], ["sessions"], ["sessions", "inspect", session], ["why", changed],
        ["why", renamed, "--depth", "deep", "--budget", "300"], ["why", "--query", "why was this test written"],
        ["why", changed, "--query", "test", "--type", "intent,tuning", "--explain"],
        ["why", "--symbol", "getReachableTemporaryCheckpoints", "--budget", "200"], ["why", changed, "--json"],
        ["nuggets", "--limit", "8"], ["nuggets", "--stale"], ["nuggets", "inspect", f"{session}-1"],
        ["nuggets", "inspect", session], ["nuggets", "inspect", "zzz"], ["nuggets", "--check"],
        ["coverage", "--limit", "6"], ["promote", f"{session}-1", "--domain", "coding"], ["review", "list"],
        ["why", "/etc/hostname"], ["why", "no/such/file.go"], ["coverage", "--gaps", "--limit", "4"],
    ]  # fmt: skip


@pytest.mark.proves("GOLDEN-TRANSCRIPT", "SESSIONS-INSPECT", "COVERAGE-BARS", "CONTEXT-TEXT", "NUGGETS-INSPECT")
def test_every_command_on_a_replayed_repository_prints_what_it_did_before(played: Replay, nugget: Nugget) -> None:
    shown = []
    for command in commands(played):
        code, out, err = nugget(*command)
        assert "Traceback" not in err
        said = out + "".join(f"! {line}\n" for line in err.splitlines())
        line = " ".join(f"'{word}'" if " " in word else word for word in command)
        shown.append(f"$ nugget {line}\n{said}" + (f"(exit {code})\n" if code else ""))
    text = settled("\n".join(shown), played)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")


def settled(text: str, played: Replay) -> str:
    """The text without what differs between two runs."""
    text = text.replace(str(played.repo), "REPO")
    text = re.sub(r"promotion-\d{8}-\d{6}", "promotion-TODAY", text)
    text = re.sub(r"\d+ days old", "N days old", text)
    text = re.sub(r"score 0\.\d{3}|\b0\.\d{3} (?=recency)", lambda found: re.sub(r"\d", "N", found[0]), text)
    text = re.sub(r"(Extracted:\s+)\S+Z", r"\1TODAY", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d \d\d:\d\d\b(?=.*promotion)", "TODAY", text)
    return re.sub(r"(?m)^(.*nugget/promotion.*?) {2,}.*$", r"\1", text)
