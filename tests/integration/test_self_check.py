"""`nugget self-check`: every step works here, and one that does not is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Nugget


@pytest.mark.proves("HOUSE-SELF-CHECK")
def test_every_step_works_and_nothing_is_left(nugget: Nugget, isolated_home: Path) -> None:
    before = sorted(isolated_home.rglob("*"))
    checked = nugget("self-check", "--json")
    assert checked.code == 0 and checked.json["ok"], checked.out
    names = [finding["name"] for finding in checked.json["findings"]]
    assert {"brain", "capture", "review", "redaction", "words", "meaning", "agents"} <= {*names}
    assert sorted(isolated_home.rglob("*")) == before
