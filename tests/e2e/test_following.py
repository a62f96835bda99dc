"""Following the remote: accepted there or here, edited, renamed, out of reach; and one history all the while."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Nugget
from knowledge_files import commit
from loopback_github import NAME, OWNER
from programs import program
from publishing_stage import LOCKS, RETRY, Place

from nugget.capture import review
from nugget.config import Settings
from nugget.errors import ForgeError, PushRefused, ReviewError
from nugget.infra import git
from nugget.upkeep.status import drift, status

RETRY_FILE, LOCKS_FILE = "domains/coding/patterns/retry-once.md", "domains/coding/patterns/lock-order.md"
OFFLINE = f"http://127.0.0.1:9/{OWNER}/{NAME}.git"


def seen(place: Place) -> tuple[str, str] | None:
    return drift(status(place.brain, Settings(), place.environment)["publishing"])


def is_one_history(place: Place) -> bool:
    place.follow()
    return git.head(place.brain) == place.server.head("main")


@pytest.mark.proves("ACCEPT-MERGES")
@pytest.mark.parametrize("way", ["merge", "squash"])
def test_accepting_merges_the_pull_request_on_github_and_brings_the_merge_here(place: Place, way: str) -> None:
    branch = place.propose(RETRY)
    place.publish()
    place.server.methods["merge"] = way == "merge"
    place.server.commit("main", {"domains/coding/meanwhile.md": "moved on\n"})
    (place.brain / "domains/own.md").write_text("never pushed\n")
    commit(place.brain, ["domains/own.md"], "Own work")
    done = place.accept()
    assert (done.into, [file.id for file in done.files], done.pending) == ("main", ["pattern/retry-once"], None)
    (pull,) = place.server.pulls
    assert pull.merged_as == place.server.head("main") and place.server.head(branch) is None
    assert place.server.asked("PUT", "/merge")[0].body["merge_method"] == way
    assert git.merge_base(place.brain, "HEAD", str(pull.merged_as)) == pull.merged_as
    assert (place.brain / RETRY_FILE).exists() and (place.brain / "domains/own.md").exists()
    assert git.branches(place.brain, "nugget/") == [] and place.states()[branch] == "settled"
    assert "own.md" not in place.server.git("ls-tree", "-r", "--name-only", "main"), "what is mine stays mine"


@pytest.mark.proves("ACCEPT-MERGES")
def test_where_github_forbids_the_merge_nothing_changes_and_the_page_is_named(
    place: Place, nugget: Nugget, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.propose(RETRY)
    place.publish()
    before = git.head(place.brain)
    place.server.forbids_merging = "At least 1 approving review is required by reviewers with write access."
    refused = nugget("review", "accept")
    assert refused.code == 1 and "cannot be merged now" in refused.err and "approving review" in refused.err
    assert f"{place.server.origin}/{OWNER}/{NAME}/pull/1" in refused.err
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9/api/v3")
    with pytest.raises(ForgeError, match="cannot be reached"):
        place.accept()
    assert git.head(place.brain) == before == place.server.head("main") and place.waiting() == ["pattern/retry-once"]


@pytest.mark.proves("ACCEPT-PUSHES")
def test_without_a_pull_request_accepting_pushes_and_a_push_that_failed_is_told_and_made_good(
    place: Place, nugget: Nugget
) -> None:
    place.propose(RETRY)
    place.server.commit("main", {"domains/coding/meanwhile.md": "moved on\n"})
    assert place.accept().pending is None
    assert git.head(place.brain) == place.server.head("main") and place.server.pulls == []
    place.propose(LOCKS, name="t")
    git.run(place.brain, "remote", "set-url", "origin", OFFLINE)
    done = nugget("review", "accept")
    assert done.code == 0 and "not pushed yet" in done.err and (place.brain / LOCKS_FILE).exists()
    told = seen(place)
    assert told and "accepted, but not pushed" in told[0] and told[1] == "nugget sync"
    place.server.commit("main", {"domains/coding/theirs.md": "moved on again\n"})
    git.run(place.brain, "remote", "set-url", "origin", place.server.url)
    assert nugget("sync").code == 0
    assert git.head(place.brain) == place.server.head("main") and seen(place) is None
    assert (place.brain / "domains/coding/theirs.md").exists() and (place.brain / LOCKS_FILE).exists()


@pytest.mark.proves("ACCEPT-PUSHES")
def test_a_push_that_is_refused_by_a_rule_leaves_everything_as_it_was(place: Place) -> None:
    branch = place.propose(RETRY, LOCKS)
    place.publish()
    refusal = "[ $1 != refs/heads/main ] || { echo 'GH006: Protected branch' >&2; exit 1; }"
    hook = program(place.server.bare / "hooks" / "update", refusal)
    before = git.head(place.brain), git.resolve(place.brain, branch)
    with pytest.raises(PushRefused, match=r"GH006: Protected branch.*Nothing was accepted") as refusal:
        place.accept("pattern/retry-once")
    assert str(refusal.value.hint).endswith("/pull/1")
    assert (git.head(place.brain), git.resolve(place.brain, branch)) == before
    hook.unlink()
    assert place.accept("pattern/retry-once").pending is None and is_one_history(place)
    assert place.waiting() == ["pattern/lock-order"]
    assert place.publish().publications[0].state == "open" and list(place.server.files_of(1)) == [LOCKS_FILE]


@pytest.mark.proves("FOLLOW-EDITED", "PUBLISH-REJECTED")
def test_what_a_person_edits_in_the_pull_request_comes_here_before_it_is_merged(place: Place) -> None:
    branch = place.propose(RETRY, LOCKS)
    place.publish()
    reworded = place.server.files_of(1)[RETRY_FILE] + "\n\nReworded.\n"
    place.server.commit(branch, {LOCKS_FILE: None, RETRY_FILE: reworded})
    with pytest.raises(ReviewError, match="was edited on GitHub meanwhile; nothing was accepted"):
        place.accept()
    assert place.waiting() == ["pattern/retry-once"] and git.resolve(place.brain, branch) == place.server.head(branch)
    assert "Reworded." in str(review.show(place.brain).files[0].after)
    place.refuses(LOCKS)
    place.accept()
    assert is_one_history(place) and "Reworded." in (place.brain / RETRY_FILE).read_text()
    assert not (place.brain / LOCKS_FILE).exists() and place.waiting() == []


@pytest.mark.proves("FOLLOW-DIVERGED")
def test_a_main_that_diverged_is_told_and_mended_by_sync_with_rebase(place: Place, nugget: Nugget) -> None:
    place.server.commit("main", {"domains/coding/theirs.md": "theirs\n"})
    for name in ("one", "two"):
        (place.brain / f"domains/{name}.md").write_text(f"{name}\n")
        commit(place.brain, [f"domains/{name}.md"], f"Mine, {name}")
    done = nugget("sync")
    assert done.code == 0 and "each have commits of their own" in done.err and "nugget sync --rebase" in done.err
    told = seen(place)
    assert told == ("diverged: 2 commits of its own, and 1 behind the remote", "nugget sync --rebase")
    assert nugget("sync", "--rebase").code == 0 and git.head(place.brain) == place.server.head("main")
    (place.brain / "domains/one.md").write_text("mine\n")
    mine = commit(place.brain, ["domains/one.md"], "Both")
    place.server.commit("main", {"domains/one.md": "theirs\n"})
    refused = nugget("sync", "--rebase")
    assert refused.code == 1 and "domains/one.md was changed on both sides" in refused.err
    assert git.head(place.brain) == mine


@pytest.mark.proves("FOLLOW-RENAMED")
def test_a_repository_that_was_renamed_is_followed(place: Place) -> None:
    place.propose(RETRY)
    place.publish()
    place.server.rename("knowledge")
    assert place.accept().pending is None and is_one_history(place)
    assert git.run(place.brain, "remote", "get-url", "origin").decode().strip() == place.server.url


@pytest.mark.proves("PUBLISH-FOREIGN")
def test_a_remote_branch_of_our_name_with_other_content_is_left_alone(place: Place) -> None:
    branch = place.propose(RETRY)
    theirs = place.server.commit(branch, {"domains/coding/other.md": "theirs\n"})
    (done,) = place.publish().publications
    assert place.server.head(branch) == theirs and done.state == "failed" and "another branch" in (done.reason or "")
    assert place.waiting() == ["pattern/retry-once"]


@pytest.mark.proves("INIT-PUSHES")
def test_a_new_brain_is_pushed_to_its_remote_at_once_or_later(
    place: Place, nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.server.git("update-ref", "-d", "refs/heads/main")
    monkeypatch.delenv("NUGGET_BRAIN")
    made = nugget("init", tmp_path / "new", "--remote", OFFLINE, "--no-install")
    assert made.code == 0 and "Not pushed yet" in made.err
    assert nugget("init", tmp_path / "new", "--remote", place.server.url, "--no-install").code == 0
    assert place.server.head("main") == git.head(tmp_path / "new")
