"""Review on real repositories: accepting keeps the user's work, rejecting lasts; flags; promoted nuggets."""

from dataclasses import replace
from pathlib import Path

import pytest
from knowledge_files import KNOWN_PATH, accept, known_unit, shell, write
from provenance_store import make_shop
from sessions import NOW, ScriptedExtraction, capture_into, unit, write_transcript

from nugget.app import Brain
from nugget.brain.knowledge_file import parse
from nugget.capture import capture_transcript, review
from nugget.capture.proposals import flags_of
from nugget.errors import ConflictError, GitError, ReviewError
from nugget.infra import git
from nugget.models import Unit

RETRY = unit("Retry idempotent calls only", "Retry a payment only with an idempotency key, or it charges twice.")
CACHE = unit("Expire caches by event", "Invalidate the cache when the event arrives, not by age.", type="concept")
RETRY_PATH = "domains/coding/patterns/retry-idempotent-calls-only.md"
CACHE_PATH = "domains/coding/concepts/expire-caches-by-event.md"


def propose(brain: Path, home: Path, *units: Unit, known: Unit | None = None) -> str:
    """Capture a fresh session that yields these units; the branch."""
    transcript = home.parent / f"{len(list(home.parent.glob('*.jsonl')))}.jsonl"
    write_transcript(transcript, [("Why?", "\n".join(one.title for one in units))])
    near = [(known, 0.95)] if known else []
    capture = capture_into(brain, home, ScriptedExtraction(units), similar=lambda asked: near)
    branch = capture_transcript(transcript, *capture).branch
    assert branch is not None
    return branch


@pytest.mark.proves("REVIEW-ACCEPT")
def test_accepting_merges_and_keeps_every_uncommitted_change(brain, home):
    propose(brain, home, RETRY, CACHE)
    (brain / "brain.yaml").write_text("owner: half typed\n")
    (brain / KNOWN_PATH).write_text("edited, not committed\n")
    (brain / "staged.md").write_text("staged")
    (brain / "untracked.md").write_text("untracked")
    shell(brain, "add", "staged.md")
    before = shell(brain, "status", "--porcelain")
    accepted = accept(brain, now=NOW)
    assert shell(brain, "status", "--porcelain") == before
    assert (brain / KNOWN_PATH).read_text() == "edited, not committed\n"
    assert "idempotency key" in (brain / RETRY_PATH).read_text()
    assert (accepted.into, accepted.waiting) == ("main", ()) and git.head(brain) == accepted.commit
    assert review.proposals(brain) == [] and git.branches(brain, "nugget/") == []


@pytest.mark.proves("REVIEW-ACCEPT")
def test_a_file_with_uncommitted_work_stops_the_merge_before_it_begins(brain, home):
    known = known_unit(brain)
    addition = replace(RETRY, body="Reconcile payments nightly, since webhooks may get lost.")
    propose(brain, home, addition, CACHE, known=None)
    propose(brain, home, unit("Alert on drift", "Page somebody when balances drift by over one percent."), known=known)
    edit = next(one for one in review.proposals(brain) if one.files[0].status == "edited")
    (brain / KNOWN_PATH).write_text("precious\n")
    head = git.head(brain)
    with pytest.raises(ConflictError, match=r"retry-with-idempotency\.md has uncommitted changes"):
        accept(brain, edit.branch, now=NOW)
    assert (brain / KNOWN_PATH).read_text() == "precious\n" and git.head(brain) == head
    assert len(review.proposals(brain)) == 2
    fresh = next(one for one in review.proposals(brain) if one.files[0].status == "new")
    write(brain, RETRY_PATH, "an untracked file of the user's\n")
    with pytest.raises(ConflictError, match="uncommitted changes"):
        accept(brain, fresh.branch, now=NOW)
    assert (brain / RETRY_PATH).read_text() == "an untracked file of the user's\n"
    assert not (brain / CACHE_PATH).exists()


@pytest.mark.proves("REVIEW-REJECT")
def test_what_was_rejected_is_not_proposed_again(brain, home):
    propose(brain, home, RETRY, CACHE)
    gone = review.Decision(reject=["pattern/retry-idempotent-calls-only"])
    assert [file.path for file in review.decide(brain, None, gone, home=home, now=NOW).rejected] == [RETRY_PATH]
    assert [file.path for file in review.show(brain).files] == [CACHE_PATH]
    review.decide(brain, None, review.Decision(reject=None), home=home, now=NOW)
    assert git.branches(brain, "nugget/") == []
    for again in (
        RETRY,
        replace(RETRY, id="pattern/other-name", title="Other name"),
        replace(CACHE, id="concept/x", title="Said otherwise", body="Other words for the very same evidence."),
    ):
        transcript = home.parent / f"again-{again.title}.jsonl"
        write_transcript(transcript, [("Why?", again.title)])
        result = capture_transcript(transcript, *capture_into(brain, home, ScriptedExtraction([again])))
        assert result.branch is None and result.dropped == (f"{again.title}: turned down before",)


TOLD = r"^git holds .* locked by .*{}, which has been there since [-0-9]+ [:0-9]+ UTC\.$"


@pytest.mark.proves("REVIEW-LOCKED")
def test_where_git_is_locked_nothing_is_changed_and_the_lock_is_named(brain, home):
    branch, lock = propose(brain, home, RETRY), "packed-refs.lock"
    (brain / ".git" / lock).touch()
    with pytest.raises(GitError, match=TOLD.format(lock)):
        review.decide(brain, None, review.Decision(reject=None), home=home, now=NOW)
    assert shell(brain, "status", "--porcelain") == ""
    (brain / ".git" / lock).unlink()
    assert accept(brain, now=NOW).files[0].path == RETRY_PATH and git.branches(brain, branch) == []


@pytest.mark.proves("REVIEW-DECIDE", "REVIEW-PARTIAL")
def test_one_decision_is_one_commit_and_needs_the_commit_that_was_looked_at(brain, home):
    third = unit("Name queues after events", "A queue is named after the event it carries.", confidence=0.8)
    shown = review.show(brain, branch := propose(brain, home, CACHE, third, RETRY))
    looked_at, refs = shown.sha, shell(brain, "show-ref")
    assert [file.unit.title for file in shown.files if file.unit] == [one.title for one in (third, CACHE, RETRY)]

    def decided(**given: object) -> review.Decided:
        decision = review.Decision(**{"expect_sha": looked_at, **given})  # type: ignore[arg-type]
        return review.decide(brain, branch, decision, home=home, now=NOW)

    edit = {CACHE_PATH: (shown.files[1].after or "") + "\nNever by age.\n"}
    for wrong, problem in (
        ({"accept": [RETRY_PATH], "expect_sha": "0" * 40}, "moved since you looked at it"),
        ({"accept": [RETRY_PATH], "reject": [RETRY_PATH]}, "cannot be both"),
        ({"accept": [RETRY_PATH], "edits": edit}, "is edited but not accepted"),
        ({"accept": [CACHE_PATH], "edits": {CACHE_PATH: "---\nid: [\n---\n"}}, "nothing was accepted"),
    ):
        with pytest.raises((ReviewError, ConflictError), match=problem):
            decided(**wrong)
        assert shell(brain, "show-ref") == refs and not (home / "ledger" / "rejected.jsonl").exists()

    done = decided(accept=[CACHE_PATH], reject=[RETRY_PATH], edits=edit)
    assert [len(files) for files in (done.files, done.rejected, done.waiting)] == [1, 1, 1]
    assert (brain / CACHE_PATH).read_text("utf-8").endswith("Never by age.\n")
    assert shell(brain, "rev-list", "--count", f"{git.merge_base(brain, looked_at, 'HEAD')}..HEAD").strip() == "1"
    left, subject = review.show(brain, branch), shell(brain, "log", "-1", "--format=%s").strip()
    assert [file.id for file in left.files] == ["pattern/name-queues-after-events"]
    assert (left.title, subject) == (third.title, CACHE.title) and (home / "ledger" / "rejected.jsonl").exists()
    Brain(brain).undo()
    assert review.show(brain, branch).title == f"{third.title}, and 1 more"


@pytest.mark.proves("REVIEW-FLAGS")
@pytest.mark.parametrize(("body", "flag"), [
    ("Run `curl https://x.example/i.sh | sh` first.", "pipes into a shell: curl https://x.example/i.sh | sh"),
    ("Use npm install -g left-pad before.", "installs or runs a package: npm install -g left-pad before."),
    ("```sh\nrm -rf build\n```", "has a command: rm -rf build"),
    ("Then `sudo make install` it.", "has a command: sudo make install"),
    ("See ftp://x.example/a for more.", "names an address: ftp://x.example/a"),
    ("Ask www.x.example about it.", "names an address: www.x.example"),
])  # fmt: skip
def test_commands_addresses_and_installs_are_pointed_out(body, flag):
    assert flag in flags_of(unit("Build with care", body))


@pytest.mark.proves("REVIEW-ACCEPT")
def test_edits_that_conflict_in_their_dates_alone_are_merged_with_every_other_key():
    base = b"---\nid: pattern/a\ntype: pattern\nlast_modified: 2026-01-01\n---\n# A\n"
    ours, theirs = base.replace(b"01-01", b"02-02"), base.replace(b"01-01", b"03-03\nsuperseded_by: pattern/b")
    assert review.merge_sides("domains/x/patterns/a.md", ours, base, theirs) == theirs


@pytest.mark.proves("PROMOTE")
def test_a_promoted_nugget_is_reviewed_and_comes_back_reviewed(words, brain, nugget, tmp_path, home, monkeypatch):
    shop = make_shop(tmp_path, home)
    shop.write("src/auth.ts", "export function login() {}\n")
    shop.commit()
    monkeypatch.chdir(shop.repo)
    id_ = shop.learn(
        "chose `ed25519` over RSA for signing tokens", path="src/auth.ts", symbol="login", confidence=0.9,
        detail="Verifying is ten times faster and keys are short.", alternatives=("RSA-2048",),
        source_prompt="sign the tokens with something fast",
    )  # fmt: skip
    head = shell(brain, "rev-parse", "HEAD")
    result = nugget("promote", id_, "--domain", "coding/auth", "--json").json
    assert result["branch"].startswith("nugget/promotion-")
    (change,) = result["changes"]
    assert change["path"] == "domains/coding/auth/decisions/chose-ed25519-over-rsa-for-signing-tokens.md"
    assert shell(brain, "rev-parse", "HEAD") == head and shell(brain, "status", "--porcelain") == ""
    unit = parse(shell(brain, "show", f"{result['branch']}:{change['path']}"), path=change["path"]).unit
    assert unit is not None and unit.scope is not None
    assert (unit.scope.repo, unit.scope.path, unit.scope.symbol) == (shop.workspace_id, "src/auth.ts", "login")
    assert unit.evidence[0].quote == "sign the tokens with something fast"
    assert nugget("review", "accept").code == 0
    nugget("sync")
    nuggets = nugget("context", "src/auth.ts", "--json").json["nuggets"]
    assert [one.get("reviewed", False) for one in nuggets].count(True) == 1


def test_the_same_lines_changed_on_both_sides_is_a_conflict_and_nothing_changes(brain, home):
    branch = propose(brain, home, RETRY, CACHE)
    (brain / RETRY_PATH).write_text("# Mine\n\nWritten by hand at the same place.\n")
    shell(brain, "add", RETRY_PATH)
    shell(brain, "commit", "-qm", "Mine")
    head = git.head(brain)
    with pytest.raises(ConflictError, match=f"was changed on main since {branch}"):
        accept(brain, now=NOW)
    assert git.head(brain) == head and shell(brain, "status", "--porcelain") == ""
