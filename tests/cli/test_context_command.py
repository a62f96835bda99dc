"""`nugget why` as people and scripts use it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import provenance_store
import pytest
from commands import Nugget
from provenance_store import Shop, make_shop

NODE = {
    "src/auth.ts": "export class Session {\n  refresh(): void {}\n}\nexport function login(name: string) {}\n",
    "src/cache.py": "def get(key):\n    return key\n",
    "lib/cache.py": "def get(key):\n    return None\n",
}


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop in which the commands run: what is learned is so many days old now."""
    monkeypatch.setattr(provenance_store, "NOW", datetime.now(UTC))
    made = make_shop(tmp_path, isolated_home / ".nugget")
    for path, text in NODE.items():
        made.write(path, text)
    made.commit()
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    return made


@pytest.fixture
def known(shop: Shop) -> Shop:
    """The three nuggets of the design's example."""
    shop.learn(
        "chose JWT over session cookies for stateless auth", path="src/auth.ts", days_ago=4, confidence=0.9,
        detail="JWT provides stateless authentication which is better for horizontal scaling",
        alternatives=("session cookies",), source_prompt="let people log in",
    )  # fmt: skip
    shop.learn("must support Node 18 and above", type="constraint", days_ago=4)
    shop.learn("human-edited AI output in src/auth.ts", path="src/auth.ts", type="tuning", days_ago=4)
    return shop


def asked(nugget: Nugget, *arguments: str) -> Any:
    """The JSON of `nugget why`."""
    shown = nugget("why", *arguments, "--json")
    assert shown.code == 0
    return shown.json


@pytest.mark.proves("CONTEXT-JSON", "CONTEXT-DEPTH")
def test_the_json_has_openqeds_shape(known: Shop, nugget: Nugget) -> None:
    answer = asked(nugget, "src/auth.ts")
    assert list(answer) == ["query", "budget", "nuggets", "moreContextHint"]
    assert answer["query"] == {"path": "src/auth.ts", "depth": "standard"}
    assert list(answer["budget"]) == ["requested", "used", "available", "truncated"]
    decision = next(one for one in answer["nuggets"] if one["type"] == "decision")
    assert list(decision) == [
        "type", "summary", "detail", "scope", "confidence", "sessionDate", "sessionAgent", "alternatives",
        "speaker", "reviewed",
    ]  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", decision["sessionDate"])
    scopes = {one["type"]: one["scope"] for one in answer["nuggets"]}
    assert scopes == {"decision": "src/auth.ts", "constraint": "workspace", "tuning": "src/auth.ts"}
    deep = asked(nugget, "src/auth.ts", "--query", "JWT", "--depth", "deep", "--type", "decision,rejection")
    assert deep["query"] == {"path": "src/auth.ts", "text": "JWT", "depth": "deep"}
    assert [one["sourcePrompt"] for one in deep["nuggets"]] == ["let people log in"]
    brief = asked(nugget, "--query", "authentication", "--depth", "summary")
    assert "detail" not in brief["nuggets"][0] and brief["query"] == {"text": "authentication", "depth": "summary"}


@pytest.mark.proves("CONTEXT-PATHS")
def test_paths_are_meant_from_where_one_stands(known: Shop, nugget: Nugget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(known.repo / "src")
    assert asked(nugget, "../src/./auth.ts")["query"]["path"] == "src/auth.ts"
    monkeypatch.chdir("/")
    assert len(asked(nugget, str(known.repo / "src" / "auth.ts"))["nuggets"]) == 3


@pytest.mark.proves("CONTEXT-BAD-INPUT")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a path"),
        (["/etc/hostname"], "outside of the workspace shop"),
        (["../elsewhere/x.py"], "outside of the workspace shop"),
        (["--symbol", "get"], "defined in 2 files: lib/cache.py:1-2 (function get); src/cache.py:1-2"),
        (["--symbol", "rm -rf /"], "cannot be the name"),
    ],
)
def test_what_cannot_be_answered_is_told_in_a_sentence(
    known: Shop, nugget: Nugget, arguments: list[str], said: str
) -> None:
    output = nugget("why", *arguments)
    assert (output.code, output.out) == (2, "")
    assert said in " ".join(output.err.split()) and "Traceback" not in output.err


@pytest.mark.proves("CONTEXT-SYMBOL")
def test_a_symbol_is_found_in_its_language_and_its_nuggets_lead(known: Shop, nugget: Nugget) -> None:
    about = known.learn("login never says which of the two was wrong", path="src/auth.ts", type="intent", days_ago=9)
    lines = nugget("why", "--symbol", "login").out.splitlines()
    assert lines[0].startswith("Context for src/auth.ts#login") and "src/auth.ts:4 (function login)" in lines
    scores = {
        one["id"]: one for one in asked(nugget, "src/auth.ts", "--symbol", "login", "--explain")["explain"]["nuggets"]
    }
    assert "symbol" in [part["name"] for part in scores[about]["contributions"]]
    missing = nugget("why", "src/cache.py", "--symbol", "set").out
    assert "No definition of set was found in src/cache.py." in missing
