"""What people of other tools expect: names of channels, near topics, questions about code in the log, Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Nugget
from loopback_anthropic import AnthropicServer, value
from paths import REPOSITORY
from replay import make_repository

import nugget as library


@pytest.fixture(autouse=True)
def in_use(brain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brain of the tests is the one in use."""
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))


@pytest.mark.proves("HIS-CHANNEL-NAME")
def test_the_name_of_a_channel_is_text(nugget: Nugget, brain: Path, isolated_home: Path) -> None:
    file = isolated_home / ".nugget/bridge/falconry.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"from": "ada", "to": "bob", "text": "It ships on Friday"}) + "\n")
    assert nugget("search", "falconry", "--source", "bridge", "-q").out == "bridge:falconry#1\n"


@pytest.mark.proves("HIS-RELATED-SHARE")
def test_what_is_far_from_the_nearest_is_not_related(nugget: Nugget, brain: Path) -> None:
    hits = nugget("search", "--related", "cache invalidation", "--json").json["hits"]
    cosines = [float(reason.split()[-1]) for hit in hits for reason in hit["reasons"] if reason.startswith("cosine")]
    assert cosines and min(cosines) >= 0.6 * max(cosines) - 0.01


@pytest.mark.proves("QUERIES-CODE")
def test_questions_about_code_are_in_the_log_with_budget_and_agent(
    nugget: Nugget, brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_repository(tmp_path / "shop"))
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    assert nugget("why", "--query", "why zebras", "--budget", "300").code == 0
    (asked,) = [one for one in nugget("queries", "--zero", "--json").json["queries"] if one["text"] == "why zebras"]
    assert (asked["zero"], asked["budget"], asked["agent"]) == (True, 300, "claude-code")


@pytest.mark.proves("API-PROVENANCE")
def test_extract_and_coverage_are_there_in_python(brain: Path, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop")
    with library.open(brain) as opened:
        seen = opened.provenance(repository)
        outcomes, tunings, workspace = seen.extract()
        assert (list(outcomes), tunings, workspace.root) == ([], 0, repository.resolve())
        assert seen.coverage() == []


@pytest.mark.proves("EVID-SELECT")
def test_a_model_chooses_evidence_on_the_command_line(
    nugget: Nugget, brain: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = isolated_home / ".claude/projects/-x/52ae3f06-3584-4ea8-a1be-f5d3bd9dd94c.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes((REPOSITORY / "examples/demo/session.jsonl").read_bytes())
    assert "needs a model" in nugget("logs", "context", "what failed", "--select").err
    with AnthropicServer(default=lambda request: value({"labels": ["e1", "e2"]})) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        chosen = nugget("logs", "context", "what failed", "--select", "--json").json
        assert chosen["chunks"] == len(api.requests) == 1 and len(chosen["source_ids"]) == 2
