"""A digest: the proposals of a day or a week in one pull request."""

from __future__ import annotations

import pytest
from publishing_stage import LOCKS, RETRY, Place
from sessions import unit

from nugget.infra import git

THIRD = unit("utc-times", "Store moments in UTC. Local times repeat an hour in autumn.", id="belief/utc-times",
             type="belief", domain="coding/time")  # fmt: skip


@pytest.mark.proves("PUBLISH-DIGEST")
def test_the_sessions_of_a_day_share_a_pull_request_with_a_commit_each(place: Place) -> None:
    branch = place.propose(RETRY, every="day")
    assert place.publish().publications[0].state == "open"
    (pull,) = place.server.pulls
    assert (pull.title, pull.labels) == ("retry-once", ["pattern", "coding"]) and branch.startswith("nugget/digest-")
    assert place.propose(LOCKS, name="t", every="day") == branch
    assert place.propose(THIRD, name="u", every="day") == branch
    assert place.publish().publications[0].number == 1 and len(place.server.pulls) == 1
    assert place.server.git("rev-list", "--count", f"main..{branch}") == "3"
    assert pull.title.endswith(", and 2 more") and set(pull.labels) == {"pattern", "belief", "coding", "coding/time"}
    for entry in (RETRY, LOCKS, THIRD):
        assert f"- [ ] **{entry.title}**" in pull.body and entry.body in pull.body
    pull.title = "Chosen by a person"
    place.propose(unit("small", "Serve thumbnails from the cache. Phones pay."), name="v", every="day")
    place.publish()
    assert pull.title == "Chosen by a person" and len(place.server.files_of(1)) == 4
    assert place.accept().pending is None and place.waiting() == [] and git.branches(place.brain, "nugget/") == []


@pytest.mark.proves("PUBLISH-DIGEST")
@pytest.mark.parametrize("does", ["merge", "squash", "close"])
def test_what_came_to_a_digest_after_it_was_decided_on_goes_on_waiting(place: Place, does: str) -> None:
    place.propose(RETRY, every="day")
    place.publish()
    place.server.close(1) if does == "close" else place.server.merge(1, squash=does == "squash", delete=True)
    place.propose(LOCKS, name="t", every="day")
    place.publish()
    assert place.follow().problems == () and place.waiting() == ["pattern/lock-order"]
    place.publish()
    assert len(place.server.pulls) == 2 and list(place.server.files_of(2)) == ["domains/coding/patterns/lock-order.md"]
    if does == "close":
        place.refuses(RETRY)
