"""Proposals as merge requests on GitLab: opened, merged there and here, edited, closed; refusals in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_gitlab import TOKEN, GitLabServer
from publishing_stage import LOCKS, RETRY, Place, laid_out
from sessions import NOW

from nugget.capture import publish as publishing
from nugget.capture import review
from nugget.capture.review import Decision
from nugget.errors import ForgeError
from nugget.infra import forges, git, remotes
from nugget.settings import Settings


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with laid_out(tmp_path, monkeypatch, on=GitLabServer) as ready:
        yield ready


@pytest.mark.proves("GITLAB")
def test_a_proposal_is_opened_once_and_what_is_merged_there_comes_here(stage: Place) -> None:
    branch = stage.propose(RETRY)
    (opened,) = stage.publish().publications
    assert (opened.state, opened.number) == ("open", 1) and (opened.url or "").endswith("/-/merge_requests/1")
    assert stage.publish().publications == ()
    merged = stage.server.merge(1)
    done = stage.follow()
    assert done.problems == () and done.commit == merged == git.head(stage.brain)
    assert [one.state for one in done.changed] == ["settled"] and review.proposals(stage.brain) == []
    assert git.resolve(stage.brain, f"refs/heads/{branch}") is None


@pytest.mark.proves("GITLAB")
def test_accepting_merges_the_request_and_rejecting_closes_it(stage: Place) -> None:
    stage.propose(RETRY)
    stage.publish()
    stage.server.refusal = "405 Method Not Allowed"
    with pytest.raises(ForgeError, match="cannot be merged now") as refused:
        stage.accept()
    assert "/-/merge_requests/1" in (refused.value.hint or "") and len(review.proposals(stage.brain)) == 1
    stage.server.refusal = ""
    assert stage.accept().pending is None
    assert git.head(stage.brain) == stage.server.head("main") and stage.server.merges[0]["state"] == "merged"
    stage.propose(LOCKS, name="t")
    stage.publish()
    stage.decide(Decision(reject=None))
    closed = publishing.close_pull_requests(stage.brain, environment=stage.environment, settings=Settings(), now=NOW)
    assert [one.state for one in closed.publications] == ["settled"]
    assert stage.server.merges[1]["state"] == "closed" and "Turned down" in stage.server.notes[0]


@pytest.mark.proves("GITLAB")
def test_refusals_are_sentences_without_the_token(stage: Place) -> None:
    for changed, expected in (
        ({"token": "wrong"}, "does not accept the token"),
        ({"name": "acme/other"}, "knows no project acme/other"),
        ({"server": "http://127.0.0.1:9"}, "cannot be reached"),
    ):
        asked = {"name": "acme/platform/brain", "token": TOKEN, "server": stage.server.origin} | changed
        with pytest.raises(ForgeError, match=expected) as refused:
            forges.GitLab(**asked).current_name()
        assert TOKEN not in str(refused.value)


@pytest.mark.proves("GITLAB", "GITHUB-TOKEN")
def test_a_token_goes_to_its_own_forge_alone(stage: Place) -> None:
    environment = replace(stage.environment, github_token="ghp_x")
    for url, token in (
        (stage.server.url, TOKEN), ("https://github.com/acme/brain", "ghp_x"),
        ("https://gitlab.com/acme/brain", None), ("https://evil.example/acme/brain", None),
    ):  # fmt: skip
        found = remotes.find_target(remotes.Remote(name="origin", url=url), environment)
        assert (found.remote.token if isinstance(found, remotes.Target) else None) == token
