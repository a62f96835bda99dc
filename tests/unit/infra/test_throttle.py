"""How often a process that stays looks for changes: what is quick each time, what takes long at most so often."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from history_world import World

from nugget.app import Brain
from nugget.infra.throttle import SHARE, Throttle


class Clock:
    """A clock that is moved by hand, by whoever works too."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Look:
    """Takes so long each time, and finds how often it was asked."""

    def __init__(self, clock: Clock, takes_s: float) -> None:
        self.clock, self.takes_s, self.times = clock, takes_s, 0

    def __call__(self) -> int:
        self.clock.now += self.takes_s
        self.times += 1
        return self.times


def test_what_is_quick_is_looked_for_each_time() -> None:
    clock = Clock()
    throttle, look = Throttle[int](clock, clock), Look(clock, 0.001)
    assert [throttle.cached("brain", look) for _ in range(50)] == list(range(1, 51))


@pytest.mark.proves("SEARCH-PACE")
def test_what_takes_long_is_looked_for_again_when_a_multiple_of_that_has_passed() -> None:
    clock = Clock()
    throttle, look, other = Throttle[int](clock, clock), Look(clock, 0.1), Look(clock, 0.1)
    assert throttle.cached("sessions", look) == 1
    assert throttle.cached("sessions", look) == 2, "the first time says nothing: it also imports"
    assert [throttle.cached("sessions", look) for _ in range(9)] == [2] * 9
    assert throttle.cached("canon", other) == 1, "each name has a time of its own"
    clock.now += SHARE * 0.1 - 0.2
    assert throttle.cached("sessions", look) == 2
    clock.now += 0.2
    look.takes_s = 5.0
    assert throttle.cached("sessions", look) == 3
    clock.now += SHARE * 0.1 + 0.1
    assert throttle.cached("sessions", look) == 4, "once much was to be done, which says nothing of the next time"


@pytest.mark.proves("SEARCH-PACE")
def test_a_process_that_stays_finds_new_sessions_among_thousands_soon(tmp_path: Path, brain: Path) -> None:
    world = World(tmp_path)
    for number in range(1500):
        world.write_line(number, f"lantern number {number}")
    world.sync()
    world.connection.close()
    with Brain(brain, environment=world.environment, long_lived=True) as staying:
        for number in range(3):
            world.write_line(2000 + number, f"the walnut {number} is new")
            given_up = time.monotonic() + 60
            while not staying.search(f"walnut {number} source:sessions", log=False).hits:
                assert time.monotonic() < given_up
    with Brain(brain, environment=world.environment) as asking:
        for number in range(3):
            world.write_line(3000 + number, f"the chestnut {number} is new")
            assert asking.search(f"chestnut {number} source:sessions", log=False).hits, "a command always looks"
