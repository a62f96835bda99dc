"""`nugget promote`: from a nugget over review into the brain, and back into the answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Nugget
from provenance_store import Shop, make_shop
from replay import git

from nugget.brain.knowledge_file import parse


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path, words: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = make_shop(tmp_path, isolated_home / ".nugget")
    made.write("src/auth.ts", "export function login() {}\n")
    made.commit()
    monkeypatch.chdir(made.repo)
    return made


@pytest.mark.proves("PROMOTE")
def test_a_promoted_nugget_goes_through_review_and_comes_back_reviewed(shop: Shop, brain: Path, nugget: Nugget) -> None:
    id_ = shop.learn(
        "chose `ed25519` over RSA for signing tokens", path="src/auth.ts", symbol="login", confidence=0.9,
        detail="Verifying is ten times faster and keys are short.", alternatives=("RSA-2048",),
        source_prompt="sign the tokens with something fast",
    )  # fmt: skip
    head = git(brain, "rev-parse", "HEAD")
    result = nugget("promote", id_, "--domain", "coding/auth", "--json").json
    assert result["branch"].startswith("nugget/promotion-")
    (change,) = result["changes"]
    assert change["path"] == "domains/coding/auth/decisions/chose-ed25519-over-rsa-for-signing-tokens.md"
    assert git(brain, "rev-parse", "HEAD") == head and git(brain, "status", "--porcelain") == ""
    text = git(brain, "show", f"{result['branch']}:{change['path']}")
    unit = parse(text, path=change["path"]).unit
    assert unit is not None and unit.scope is not None
    assert (unit.scope.repo, unit.scope.path, unit.scope.symbol) == (shop.workspace_id, "src/auth.ts", "login")
    assert unit.evidence[0].quote == "sign the tokens with something fast"
    assert nugget("review", "accept").code == 0
    nugget("sync")
    nuggets = nugget("context", "src/auth.ts", "--json").json["nuggets"]
    assert [one.get("reviewed", False) for one in nuggets].count(True) == 1
