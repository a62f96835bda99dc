"""Publishing and following against a real git server and a REST server on loopback, and when that fails."""

import threading

import pytest
from knowledge_files import commit
from loopback_github import NAME, OWNER, TOKEN
from programs import program
from publishing_stage import LOCKS, RETRY, Place
from sessions import unit

import nugget as library
from nugget.capture import following, review
from nugget.capture import publish as publishing
from nugget.capture.publish import Published
from nugget.config import Settings
from nugget.errors import ConflictError, ForgeError, GitError, PushRefused, ReviewError
from nugget.infra import git
from nugget.upkeep import distrust, trust
from nugget.upkeep.status import drift, status


@pytest.mark.proves("PUBLISH-PULL-REQUEST", "PUBLISH-LABELS")
def test_a_proposal_becomes_one_pull_request_with_its_branch_title_body_files_and_labels(place, monkeypatch):
    monkeypatch.setenv("NUGGET_CAPTURE_LABELS", "nugget, knowledge")
    branch = place.propose(RETRY, LOCKS)
    (done,) = place.publish().publications
    (pull,) = place.server.pulls
    proposal = review.show(place.brain, branch)
    assert (pull.branch, pull.base, pull.title) == (branch, "main", "retry-once, and 1 more")
    assert pull.title == proposal.title and pull.body == proposal.body and "### Evidence" in pull.body
    assert sorted(place.server.files_of(1)) == sorted(file.path for file in proposal.files)
    assert place.server.head(branch) == proposal.sha == done.sha and pull.labels == ["nugget", "knowledge"]
    assert done.state == "open" and done.url == f"{place.server.origin}/{OWNER}/{NAME}/pull/1"
    assert all(request.token == TOKEN for request in place.server.requests if "/api/" in request.path)
    place.propose(unit("t", "Another lesson of another day."), name="t")
    place.server.fail(403, path="/labels", message="Resource not accessible by personal access token")
    (done,) = place.publish().publications
    assert done.state == "open" and "without labels" in str(done.reason)


@pytest.mark.proves("PUBLISH-ONCE")
def test_what_is_there_already_is_found_by_several_at_once_and_when_a_reply_or_the_ledger_is_lost(place):
    branch = place.propose(RETRY)
    place.server.fail(502, method="POST", path="/pulls", after=True)
    done: list[Published] = []
    threads = [threading.Thread(target=lambda: done.append(place.publish())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(attempt.publications) for attempt in done) == [0, 0, 1] and len(place.server.pulls) == 1
    (place.home / "ledger" / publishing.PUBLISHED).unlink()
    (again,) = place.publish().publications
    assert (again.state, again.number, again.branch) == ("open", 1, branch) and len(place.server.pulls) == 1


@pytest.mark.proves("PUBLISH-LOCAL")
def test_without_remote_token_or_will_everything_stays_local(place, monkeypatch):
    place.propose(RETRY)
    monkeypatch.setenv("NUGGET_CAPTURE_PUBLISH", "never")
    assert place.publish().local == "capture.publish is `never`"
    monkeypatch.setenv("NUGGET_CAPTURE_PUBLISH", "auto")
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "no GitHub token" in str(place.publish().local)
    monkeypatch.setenv("GITHUB_API_URL", "https://127.0.0.1:99999")
    assert place.publish().local == "GITHUB_API_URL is not the address of a server"
    git.run(place.brain, "remote", "remove", "origin")
    assert place.publish().local == "the brain has no remote"
    assert place.server.requests == [] and place.waiting() == ["pattern/retry-once"]


FAULTS = {
    "no permission to push": ("no permission to push", "token or key"),
    "no permission for pull requests": ("may not do that in acme/brain", "pull requests: write"),
    "the network is down": ("cannot be reached", "network"),
}


def break_it(fault: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "no permission to push":
        place.server.may_push = False
    elif fault == "no permission for pull requests":
        message = "Resource not accessible by personal access token"
        place.server.fail(403, method="POST", path="/pulls", message=message)
    else:
        monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9/api/v3")
        git.run(place.brain, "remote", "set-url", "origin", f"http://127.0.0.1:9/{OWNER}/{NAME}.git")


@pytest.mark.proves("PUBLISH-FAULTS", "PUBLISH-STATUS")
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_is_told_and_is_made_good_by_the_next_attempt(fault, place, monkeypatch):
    branch = place.propose(RETRY)
    sha = git.resolve(place.brain, branch)
    break_it(fault, place, monkeypatch)
    (failed,) = place.publish().publications
    said, hint = FAULTS[fault]
    assert failed.state == "failed" and said in str(failed.reason) and hint in str(failed.reason)
    assert TOKEN not in str(failed.reason)
    assert place.waiting() == ["pattern/retry-once"] and git.resolve(place.brain, branch) == sha
    shown = status(place.brain, Settings(), place.environment)["publishing"]
    assert shown["local"] == 1 and shown["failures"] == [f"{branch}: {failed.reason}"]
    place.server.may_push = True
    monkeypatch.setenv("GITHUB_API_URL", place.server.api_url)
    git.run(place.brain, "remote", "set-url", "origin", place.server.url)
    (done,) = place.publish().publications
    assert done.state == "open" and place.server.files_of(1) and len(place.server.pulls) == 1
    shown = status(place.brain, Settings(), place.environment)["publishing"]
    assert (shown["local"], shown["failures"], shown["open"]) == (0, [], [done.url])


@pytest.mark.proves("PUBLISH-FAULTS")
def test_what_a_reviewer_committed_to_the_remote_branch_is_never_overwritten(place):
    branch = place.propose(RETRY)
    place.server.fail(403, method="POST", path="/pulls", message="no")
    place.publish()
    theirs = place.server.commit(branch, {"domains/coding/note.md": "mine\n"})
    (done,) = place.publish().publications
    assert done.state == "open" and place.server.head(branch) == theirs


@pytest.mark.proves("PUBLISH-OWN-FILES")
def test_commits_that_were_never_pushed_are_not_published_with_a_proposal(place):
    (place.brain / "domains" / "private.md").write_text("not for others yet\n")
    commit(place.brain, ["domains/private.md"], "Mine")
    branch = place.propose(RETRY)
    place.publish()
    assert list(place.server.files_of(1)) == ["domains/coding/patterns/retry-once.md"]
    assert place.server.head(branch) == git.resolve(place.brain, branch)
    assert place.waiting() == ["pattern/retry-once"]
    assert "private" not in place.server.git("log", "--all", "--name-only", "--format=")


@pytest.mark.proves("PUBLISH-MERGED")
@pytest.mark.parametrize("squash", [False, True])
def test_what_was_merged_is_pulled_answered_and_cleaned_up(place, squash):
    branch = place.propose(RETRY)
    place.publish()
    place.server.commit("main", {"domains/coding/meanwhile.md": "moved on\n"})
    place.server.merge(1, squash=squash, delete=True)
    (place.brain / "domains/coding").mkdir(parents=True)
    (place.brain / "domains/coding/meanwhile.md").write_text("mine\n")
    assert [entry.state for entry in place.follow().changed] == ["merged"]
    assert place.waiting() == ["pattern/retry-once"], "not pulled yet, so it is not lost here either"
    (place.brain / "domains/coding/meanwhile.md").unlink()
    done = place.follow()
    assert done.commit == git.head(place.brain) == place.server.head("main")
    assert [entry.state for entry in done.changed] == ["settled"]
    assert git.resolve(place.brain, branch) is None and place.waiting() == []
    with library.open(place.brain) as opened:
        assert opened.ask("retry a payment").hits[0].unit.id == "pattern/retry-once"
    assert place.publish() == Published() and place.follow() == following.Followed()


@pytest.mark.proves("PULL-CAREFUL")
def test_nothing_is_pulled_over_uncommitted_work_another_branch_or_own_commits(place):
    place.server.commit("main", {"domains/coding/new.md": "new\n"})
    before = git.head(place.brain)
    (place.brain / "domains/coding").mkdir(parents=True, exist_ok=True)
    (place.brain / "domains/coding/new.md").write_text("mine\n")
    with pytest.raises(ConflictError, match=r"new\.md has uncommitted changes of yours"):
        place.pull()
    (place.brain / "domains/coding/new.md").unlink()
    git.run(place.brain, "switch", "-q", "-c", "side")
    with pytest.raises(GitError, match="side is checked out in the brain, not main"):
        place.pull()
    git.run(place.brain, "switch", "-q", "main")
    assert git.head(place.brain) == before
    (place.brain / "domains" / "own.md").write_text("own\n")
    commit(place.brain, ["domains/own.md"], "Own")
    with pytest.raises(GitError, match="each have commits of their own"):
        place.pull()
    git.run(place.brain, "reset", "-q", "--hard", str(before))
    (place.brain / "brain.yaml").write_text("owner: edited\n")
    assert place.pull() == place.server.head("main")


@pytest.mark.proves("PULL-AUTOMATIC")
def test_the_worker_follows_the_remote_of_a_trusted_brain_unless_it_is_switched_off(place, nugget, monkeypatch):
    place.propose(RETRY)
    place.publish()
    place.server.merge(1)
    monkeypatch.setenv("NUGGET_SYNC_PULL", "false")
    assert nugget("capture").code == 0 and nugget("sync").code == 0
    monkeypatch.delenv("NUGGET_SYNC_PULL")
    distrust(place.environment, place.brain)
    before = len(place.server.requests)
    assert nugget("capture").code == 0 and nugget("sync").code == 0
    assert git.head(place.brain) != place.server.head("main") and len(place.server.requests) == before
    trust(place.environment, place.brain)
    assert nugget("capture").code == 0
    assert git.head(place.brain) == place.server.head("main") and place.waiting() == []


@pytest.mark.proves("PUBLISH-WITHDRAW")
def test_rejecting_here_closes_the_pull_request_with_a_comment_and_deletes_the_remote_branch(place, nugget):
    branch = place.propose(RETRY)
    place.publish()
    done = nugget("review", "reject", "--json")
    address = f"{place.server.origin}/{OWNER}/{NAME}/pull/1"
    assert (done.json["rejected"], done.json["closed"]) == (["pattern/retry-once"], [address])
    (pull,) = place.server.pulls
    assert pull.closed and pull.merged_as is None and place.server.head(branch) is None
    (comment,) = pull.comments
    assert "`nugget review reject`: `pattern/retry-once`" in comment and place.states() == {branch: "settled"}


THIRD = unit("utc-times", "Store moments in UTC. Local times repeat an hour in autumn.", id="belief/utc-times",
             type="belief", domain="coding/time")  # fmt: skip


@pytest.mark.proves("PUBLISH-DIGEST")
@pytest.mark.parametrize("every", ["day", "week"])
def test_the_sessions_of_a_day_or_week_share_a_pull_request_with_a_commit_each(place, every):
    branch = place.propose(RETRY, every=every)
    assert place.publish().publications[0].state == "open"
    (pull,) = place.server.pulls
    assert (pull.title, pull.labels) == ("retry-once", ["pattern", "coding"]) and branch.startswith("nugget/digest-")
    assert place.propose(LOCKS, name="t", every=every) == branch
    assert place.propose(THIRD, name="u", every=every) == branch
    assert place.publish().publications[0].number == 1 and len(place.server.pulls) == 1
    assert place.server.git("rev-list", "--count", f"main..{branch}") == "3"
    assert pull.title.endswith(", and 2 more") and set(pull.labels) == {"pattern", "belief", "coding", "coding/time"}
    for entry in (RETRY, LOCKS, THIRD):
        assert f"- [ ] **{entry.title}**" in pull.body and entry.body in pull.body
    pull.title = "Chosen by a person"
    place.propose(unit("small", "Serve thumbnails from the cache. Phones pay."), name="v", every=every)
    place.publish()
    assert pull.title == "Chosen by a person" and len(place.server.files_of(1)) == 4
    assert place.accept().pending is None and place.waiting() == [] and git.branches(place.brain, "nugget/") == []


@pytest.mark.proves("PUBLISH-DIGEST")
@pytest.mark.parametrize("does", ["squash", "close"])
def test_what_came_to_a_digest_after_it_was_decided_on_goes_on_waiting(place, does):
    place.propose(RETRY, every="day")
    place.publish()
    place.server.close(1) if does == "close" else place.server.merge(1, squash=True, delete=True)
    place.propose(LOCKS, name="t", every="day")
    place.publish()
    assert place.follow().problems == () and place.waiting() == ["pattern/lock-order"]
    place.publish()
    assert len(place.server.pulls) == 2 and list(place.server.files_of(2)) == ["domains/coding/patterns/lock-order.md"]
    if does == "close":
        place.refuses(RETRY)


RETRY_FILE, LOCKS_FILE = "domains/coding/patterns/retry-once.md", "domains/coding/patterns/lock-order.md"
OFFLINE = f"http://127.0.0.1:9/{OWNER}/{NAME}.git"


def seen(place: Place) -> tuple[str, str] | None:
    return drift(status(place.brain, Settings(), place.environment)["publishing"])


def is_one_history(place: Place) -> bool:
    place.follow()
    return git.head(place.brain) == place.server.head("main")


@pytest.mark.proves("ACCEPT-MERGES", "GITHUB-MERGE")
@pytest.mark.parametrize("way", ["merge", "squash"])
def test_accepting_merges_the_pull_request_on_github_and_brings_the_merge_here(place, way):
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


@pytest.mark.proves("ACCEPT-MERGES", "GITHUB-MERGE")
def test_where_github_forbids_the_merge_nothing_changes_and_the_page_is_named(place, nugget, monkeypatch):
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
def test_without_a_pull_request_accepting_pushes_and_a_push_that_failed_is_told_and_made_good(place, nugget):
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
def test_a_push_that_is_refused_by_a_rule_leaves_everything_as_it_was(place):
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
def test_what_a_person_edits_in_the_pull_request_comes_here_before_it_is_merged(place):
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
def test_a_main_that_diverged_is_told_and_mended_by_sync_with_rebase(place, nugget):
    place.server.commit("main", {"domains/coding/theirs.md": "theirs\n"})
    for name in ("one", "two"):
        (place.brain / f"domains/{name}.md").write_text(f"{name}\n")
        commit(place.brain, [f"domains/{name}.md"], f"Mine, {name}")
    done = nugget("sync")
    assert done.code == 0 and "each have commits of their own" in done.err and "nugget sync --rebase" in done.err
    assert seen(place) == ("diverged: 2 commits of its own, 1 behind the remote", "nugget sync --rebase")
    assert nugget("sync", "--rebase").code == 0 and git.head(place.brain) == place.server.head("main")
    (place.brain / "domains/one.md").write_text("mine\n")
    mine = commit(place.brain, ["domains/one.md"], "Both")
    place.server.commit("main", {"domains/one.md": "theirs\n"})
    refused = nugget("sync", "--rebase")
    assert refused.code == 1 and "domains/one.md was changed on both sides" in refused.err
    assert git.head(place.brain) == mine


@pytest.mark.proves("FOLLOW-RENAMED")
def test_a_repository_that_was_renamed_is_followed(place):
    place.propose(RETRY)
    place.publish()
    place.server.rename("knowledge")
    assert place.accept().pending is None and is_one_history(place)
    assert git.run(place.brain, "remote", "get-url", "origin").decode().strip() == place.server.url


@pytest.mark.proves("PUBLISH-FOREIGN")
def test_a_remote_branch_of_our_name_with_other_content_is_left_alone(place):
    branch = place.propose(RETRY)
    theirs = place.server.commit(branch, {"domains/coding/other.md": "theirs\n"})
    (done,) = place.publish().publications
    assert place.server.head(branch) == theirs and done.state == "failed" and "another branch" in (done.reason or "")
    assert place.waiting() == ["pattern/retry-once"]


@pytest.mark.proves("INIT-PUSHES")
def test_a_new_brain_is_pushed_to_its_remote_at_once_or_later(place, nugget, tmp_path, monkeypatch):
    place.server.git("update-ref", "-d", "refs/heads/main")
    monkeypatch.delenv("NUGGET_BRAIN")
    made = nugget("init", tmp_path / "new", "--remote", OFFLINE, "--no-install")
    assert made.code == 0 and "Not pushed yet" in made.err
    assert nugget("init", tmp_path / "new", "--remote", place.server.url, "--no-install").code == 0
    assert place.server.head("main") == git.head(tmp_path / "new")
    upstream = git.run(tmp_path / "new", "rev-parse", "--abbrev-ref", "main@{upstream}")  # for `git pull` and `push`
    assert upstream == b"origin/main\n"
