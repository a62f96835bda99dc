"""Accepting here and merging there, in any order, with and without a network: there is one history in the end."""

import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from laboratory import FAULTS
from loopback_github import NAME, OWNER
from publishing_stage import laid_out
from sessions import NOW, unit

from nugget.capture import publish as publishing
from nugget.capture import review
from nugget.config import load_settings
from nugget.errors import NuggetError
from nugget.infra import git

TOPICS = {
    "retry-once": "Retry a payment once. A second retry doubles the load on the provider.",
    "lock-order": "Take locks in one order everywhere. Two orders deadlock sooner or later.",
    "utc-times": "Store moments in UTC. Local times repeat an hour each autumn.",
    "small-images": "Serve thumbnails from the cache. Full images exhaust the bandwidth of phones.",
    "named-queues": "Name every queue after its consumer. Producers come and go more often.",
}
places = st.integers(0, 7)


class Machine(RuleBasedStateMachine):
    """A brain and its remote; the model knows of each topic whether it waits, is wanted or unwanted."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        fresh = self.folder / str(next(self.numbers))
        fresh.mkdir()
        self.place = self.stack.enter_context(laid_out(fresh, self.monkeypatch))
        self.topics = iter(TOPICS)
        self.waiting: dict[str, str] = {}
        """Topic by branch, of what nobody has decided on, as far as the model knows."""
        self.wanted: set[str] = set()
        self.unwanted: set[str] = set()
        self.commits = 0

    @rule()
    def propose(self) -> None:
        if (topic := next(self.topics, None)) is not None:
            entry = unit(topic, TOPICS[topic], id=f"pattern/{topic}")
            self.waiting[self.place.propose(entry, name=topic)] = topic

    @rule()
    def publish(self) -> None:
        self.place.publish()

    @precondition(lambda self: self.waiting)
    @rule(place=places, accepted=st.booleans())
    def decide_here(self, place: int, accepted: bool) -> None:
        branch = sorted(self.waiting)[place % len(self.waiting)]
        try:
            if accepted:
                self.place.accept(name=branch)
            else:
                review.decide(self.place.brain, branch, review.Decision(reject=None), home=self.place.home, now=NOW)
                environment = self.place.environment
                publishing.close_pull_requests(
                    self.place.brain, environment=environment, settings=load_settings(environment), now=NOW
                )
        except NuggetError:
            return  # decided or edited there, or out of reach
        (self.wanted if accepted else self.unwanted).add(self.waiting.pop(branch))

    @rule(place=places, does=st.sampled_from(["merge", "squash", "close", "edit"]))
    def decide_there(self, place: int, does: str) -> None:
        server = self.place.server
        server.notice_pushes()
        waits = [pull for pull in server.pulls if not pull.closed and pull.branch in self.waiting]
        if not waits:
            return
        pull = waits[place % len(waits)]
        if does == "edit":
            ((path, text),) = server.files_of(pull.number).items()
            server.commit(pull.branch, {path: text + "\n\nReworded.\n"})
        elif does == "close":
            server.close(pull.number)
            self.unwanted.add(self.waiting.pop(pull.branch))
        else:
            server.merge(pull.number, squash=does == "squash", delete=place % 2 == 0)
            self.wanted.add(self.waiting.pop(pull.branch))

    @rule()
    def somebody_commits(self) -> None:
        self.commits += 1
        self.place.server.commit("main", {f"domains/notes/{self.commits}.md": "moved on\n"})

    @rule(online=st.booleans())
    def network(self, online: bool) -> None:
        url = self.place.server.url if online else f"http://127.0.0.1:9/{OWNER}/{NAME}.git"
        git.run(self.place.brain, "remote", "set-url", "origin", url)

    @rule()
    def follow(self) -> None:
        self.place.follow()

    def teardown(self) -> None:
        try:
            self.network(online=True)
            assert self.place.follow().problems == ()
            brain, server = self.place.brain, self.place.server
            assert git.head(brain) == server.head("main")
            assert git.run(brain, "status", "--porcelain") == b""
            names = [Path(path).stem for path in git.files_at(brain, "HEAD", under=["domains/coding"])]
            assert sorted(names) == sorted(self.wanted)
            held = {file.id.partition("/")[2] for proposal in review.proposals(brain) for file in proposal.files}
            assert held == {*self.waiting.values()}
        finally:
            self.stack.close()


@pytest.mark.proves("ONE-HISTORY")
def test_accepting_and_merging_in_any_order_never_diverges(tmp_path, monkeypatch):
    class Here(Machine):
        pass

    Here.folder, Here.monkeypatch = tmp_path, monkeypatch
    examples, steps = (3, 12) if FAULTS == 1 else (100, 25)
    run_state_machine_as_test(Here, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None))
