"""Commands of provenance as people and scripts use them; all on a replayed session (UPDATE_GOLDEN=1 rewrites it)."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import provenance_store
import pytest
from cli_stage import write_unit
from commands import Nugget
from paths import TESTS
from provenance_store import Shop, make_shop
from replay import Agent, Replay, change_by_hand, git, replay

from nugget.config import read_environment


@pytest.fixture
def shop(tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(provenance_store, "NOW", datetime.now(UTC))
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    made = make_shop(tmp_path, isolated_home / ".nugget")
    for path in ("src/auth.py", "src/cache.py", "src/config.py"):
        made.write(path, "def load():\n    return 1\n")
    made.commit(at=provenance_store.NOW - timedelta(days=30))
    monkeypatch.chdir(made.repo)
    return made


@pytest.mark.proves("NUGGETS-LIST")
def test_nuggets_are_chosen_by_file_type_and_staleness(shop, nugget):
    shop.learn("about auth", path="src/auth.py", session=1)
    shop.learn("about src", path="src", type="caveat", session=2)
    shop.learn("of everything", type="intent", session=3)
    shop.learn("about cache", path="src/cache.py", session=4)
    shop.write("src/cache.py", "changed\n")

    def found(*arguments: str) -> list[str]:
        return [one["summary"] for one in nugget("nuggets", "--json", *arguments).json["nuggets"]]

    assert found("--file", "src/auth.py") == ["about auth"]
    assert found("--file", "src") == ["about cache", "about src", "about auth"]
    assert found("--type", "intent,caveat") == ["of everything", "about src"]
    assert found("--stale") == ["about cache"]
    git(shop.repo, "mv", "src/auth.py", "src/login.py")
    shop.commit()
    assert found("--file", "src/login.py") == ["about auth"]


@pytest.mark.proves("NUGGETS-CHECK")
def test_what_is_named_and_gone_is_listed(shop, brain, nugget, monkeypatch):
    shop.learn("fine", path="src/auth.py", symbol="load", detail="`load()` in src/cache.py and auth.py")
    assert nugget("nuggets", "--check").code == 0
    shop.learn("of a gone function", path="src/cache.py", symbol="store", session=3)
    shop.learn("names them", detail="see lib/old.py, `flush_all()` and `json`; https://a.b/c/d.py is none", session=4)
    shop.learn("names a renamed one", detail="see src/config.py", session=5)
    git(shop.repo, "mv", "src/config.py", "src/settings.py")
    shop.commit()
    (shop.repo / "src/auth.py").unlink()
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    write_unit(brain, "bug/gone", "# Gone\n\nX.", scope="{path: src/gone.py}")
    nugget("sync")
    found = nugget("nuggets", "--check", "--json")
    named = {(one["summary"], one["kind"], one["name"]) for one in found.json["missing"]}
    assert named == {
        ("fine", "path", "src/auth.py"), ("of a gone function", "symbol", "store"),
        ("names them", "path", "lib/old.py"), ("names them", "symbol", "flush_all"), ("Gone", "path", "src/gone.py"),
    }  # fmt: skip
    assert found.code == 1 and "no symbol flush_all" in nugget("nuggets", "--check").out


@pytest.fixture
def agent(shop: Shop) -> Agent:
    """A session that lies on disk and was not extracted."""
    playing = Agent(shop.repo, read_environment().claude_config, started=datetime.now(UTC) - timedelta(days=5))
    playing.prompt("make config reload itself, with AKIAIOSFODNN7EXAMPLQ")
    playing.moment += timedelta(days=3)
    playing.write("src/config.py", "def load():\n    return 2\n")
    return playing


@pytest.mark.proves("SESSIONS-LIST", "SESSIONS-INSPECT")
def test_sessions_are_listed_extracted_or_not(shop, agent, nugget, brain, monkeypatch):
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    shop.learn("chose JWT", path="src/auth.py", session=1, days_ago=2)
    listed = nugget("sessions", "--json").json["sessions"]
    assert {(one["id"], one["extracted"], one["nuggets"], one["files"]) for one in listed} == {
        (shop.records[1].session, True, 1, 1), (agent.session, False, 0, 0),
    }  # fmt: skip
    (unread,) = [one for one in listed if not one["extracted"]]
    assert (unread["project"], unread["captured"], unread["outcome"]) == ("shop", "no", "not captured")
    assert "make config reload itself" in (out := nugget("sessions").out) and " · 3 days · claude-code" in out
    for since, count in (("24h", 0), ("3d", 1)):
        found = nugget("sessions", "--since", since, "--json").json["sessions"]
        assert len([one for one in found if one["extracted"]]) == count, since
    assert "AKIA" not in nugget("sessions", "inspect", agent.session).out
    assert nugget("extract").code == nugget("sync").code == 0
    (hit,) = nugget("search", "reload itself", "--source", "sessions", "--json").json["hits"]
    assert hit["title"] in nugget("sessions").out and hit["title"].startswith("Make config reload itself")


@pytest.mark.proves("COVERAGE-GAPS")
def test_gaps_come_from_questions_and_from_churn(shop, nugget):
    shop.learn("known", path="src/auth.py")
    shop.learn("everywhere")
    assert nugget("coverage", "--json").json == {"files": [{"path": "src/auth.py", "nuggets": 1}], "total": 1}
    for _ in range(3):
        nugget("why", "src/config.py")
    nugget("why", "src/auth.py")
    nugget("why", "src/auth.py")
    for number in range(4):
        shop.write("src/cache.py", f"x = {number}\n")
        shop.write("package-lock.json", f"{number}\n")
        shop.commit()
    found = nugget("coverage", "--gaps", "--json").json
    assert [(gap["path"], gap["queryCount"], gap["nuggetCount"]) for gap in found["gaps"]] == [
        ("src/config.py", 3, 0), ("src/auth.py", 2, 1),
    ]  # fmt: skip
    assert {gap["path"]: gap["changes"] for gap in found["unexplained"]} == {"src/cache.py": 5, "src/config.py": 1}
    assert nugget("coverage", "--gaps", "--limit", "1").out.count("1 more; --limit shows them.") == 2


NODE = {
    "src/auth.ts": "export class Session {\n  refresh(): void {}\n}\nexport function login(name: string) {}\n",
    "src/cache.py": "def get(key):\n    return key\n",
    "lib/cache.py": "def get(key):\n    return None\n",
}


@pytest.fixture
def known(shop: Shop) -> Shop:
    """The three nuggets of the design's example."""
    for path, text in NODE.items():
        shop.write(path, text)
    shop.commit()
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
def test_the_json_has_openqeds_shape(known, nugget):
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
def test_paths_are_meant_from_where_one_stands(known, nugget, monkeypatch):
    monkeypatch.chdir(known.repo / "src")
    assert asked(nugget, "../src/./auth.ts")["query"]["path"] == "src/auth.ts"
    monkeypatch.chdir("/")
    assert len(asked(nugget, str(known.repo / "src" / "auth.ts"))["nuggets"]) == 3


@pytest.mark.proves("CONTEXT-BAD-INPUT")
def test_what_cannot_be_answered_is_told_in_a_sentence(known, nugget):
    for arguments, said in (
        ([], "Give a path"),
        (["/etc/hostname"], "outside of the workspace shop"),
        (["../elsewhere/x.py"], "outside of the workspace shop"),
        (["--symbol", "get"], "defined in 2 files: lib/cache.py:1-2 (function get); src/cache.py:1-2"),
        (["--symbol", "rm -rf /"], "cannot be the name"),
    ):
        output = nugget("why", *arguments)
        assert (output.code, output.out) == (2, "") and said in " ".join(output.err.split()), arguments


@pytest.mark.proves("CONTEXT-SYMBOL")
def test_a_symbol_is_found_in_its_language_and_its_nuggets_lead(known, nugget):
    about = known.learn("login never says which of the two was wrong", path="src/auth.ts", type="intent", days_ago=9)
    lines = nugget("why", "--symbol", "login").out.splitlines()
    assert lines[0].startswith("Context for src/auth.ts#login") and "src/auth.ts:4 (function login)" in lines
    explained = asked(nugget, "src/auth.ts", "--symbol", "login", "--explain")["explain"]["nuggets"]
    scores = {one["id"]: [part["name"] for part in one["contributions"]] for one in explained}
    assert "symbol" in scores[about]
    assert "No definition of set was found in src/cache.py." in nugget("why", "src/cache.py", "--symbol", "set").out


GOLDEN = TESTS / "golden" / "provenance.txt"
TRANSCRIPT = "transcripts/claude-code/2026-02-10_a0927dd5_48415fae24d7.jsonl"
REMOTE = "https://github.com/acme/cli.git"


@pytest.fixture
def played(
    shared_data: Path, isolated_home: Path, tmp_path: Path, brain: Path, monkeypatch: pytest.MonkeyPatch
) -> Replay:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    made = replay(shared_data / TRANSCRIPT, tmp_path / "cli", isolated_home / ".claude", remote=REMOTE)
    assert made.session.ended is not None
    code = sorted(path for path in made.paths if path.endswith(".go") and (made.repo / path).is_file())
    later = made.session.ended + timedelta(days=1)
    changed = (made.repo / code[0]).read_text() + "\n// Changed by hand.\n"
    change_by_hand(made.repo, code[0], changed, at=later)
    git(made.repo, "mv", code[-1], code[-1].replace(".go", "_renamed.go"))
    git(made.repo, "commit", "-q", "-m", "Rename", at=later + timedelta(hours=1))
    monkeypatch.chdir(made.repo)
    return made


def commands(played: Replay) -> list[list[str]]:
    """What is shown, in order."""
    code = sorted(path for path in played.paths if path.endswith(".go"))
    session, changed, renamed = played.session.id[:8], code[0], code[-1].replace(".go", "_renamed.go")
    return [
        ["extract"], ["sessions"], ["sessions", "inspect", session], ["why", changed],
        ["why", renamed, "--depth", "deep", "--budget", "300"], ["why", "--query", "why was this test written"],
        ["why", changed, "--query", "test", "--type", "intent,tuning", "--explain"],
        ["why", "--symbol", "getReachableTemporaryCheckpoints", "--budget", "200"], ["why", changed, "--json"],
        ["nuggets", "--limit", "8"], ["nuggets", "--stale"], ["nuggets", "inspect", f"{session}-1"],
        ["nuggets", "inspect", session], ["nuggets", "inspect", "zzz"], ["nuggets", "--check"],
        ["coverage", "--limit", "6"], ["promote", f"{session}-1", "--domain", "coding"], ["review", "list"],
        ["why", "/etc/hostname"], ["why", "no/such/file.go"], ["coverage", "--gaps", "--limit", "4"],
    ]  # fmt: skip


@pytest.mark.proves("GOLDEN-TRANSCRIPT", "SESSIONS-INSPECT", "COVERAGE-BARS", "CONTEXT-TEXT", "NUGGETS-INSPECT")
def test_every_command_on_a_replayed_repository_prints_what_it_did_before(played, nugget):
    shown = []
    for command in commands(played):
        code, out, err = nugget(*command)
        assert "Traceback" not in err
        said = out + "".join(f"! {line}\n" for line in err.splitlines())
        line = " ".join(f"'{word}'" if " " in word else word for word in command)
        shown.append(f"$ nugget {line}\n{said}" + (f"(exit {code})\n" if code else ""))
    text = settled("\n".join(shown), played)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")


def settled(text: str, played: Replay) -> str:
    """The text without what differs between two runs."""
    text = text.replace(str(played.repo), "REPO")
    text = re.sub(r"promotion-\d{8}-\d{6}", "promotion-TODAY", text)
    text = re.sub(r"\d+ days old", "N days old", text)
    text = re.sub(r"score 0\.\d{3}|\b0\.\d{3} (?=recency)", lambda found: re.sub(r"\d", "N", found[0]), text)
    text = re.sub(r"(Extracted:\s+)\S+Z", r"\1TODAY", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d \d\d:\d\d\b(?=.*promotion)", "TODAY", text)
    return re.sub(r"(?m)^(.*nugget/promotion.*?) {2,}.*$", r"\1", text)
