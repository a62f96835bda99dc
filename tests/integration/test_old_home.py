"""A HOME that 0.1.0 left behind is opened by this version: every command works, and nothing is lost or done twice."""

import gzip
import json
import os
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from commands import Nugget, Result
from paths import TESTS

ROOT = Path("/tmp", "nugget-old-home-".ljust(123, "x"))
"""The folder that the archived HOME was made in."""
MADE_BY_0_1_0 = TESTS / "fixtures" / "home-0.1.0.tar.xz"
DEMO = "52ae3f06-3584-4ea8-a1be-f5d3bd9dd94c"
"""Captured and archived; its transcript is gone."""
GONE = "7ded50fb-479a-586d-a236-6a481c4d3008"
"""Indexed and never captured; its transcript is gone."""

pytestmark = pytest.mark.usefixtures("old_home")


@pytest.fixture
def old_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked HOME. Its path is as long as the one that it was made in, and takes its place in every file."""
    base = tmp_path_factory.mktemp("h").resolve()
    home = base / ("x" * (len(str(ROOT)) - len(str(base)) - 1))
    old, new = os.fsencode(ROOT), os.fsencode(home)
    assert len(old) == len(new), "the folder for temporary files has too long a path"
    with tarfile.open(MADE_BY_0_1_0) as archive:
        archive.extractall(home, filter="data")
    for file in home.rglob("*"):
        if file.is_file() and ".git" not in file.parts:
            times = file.stat()
            content = file.read_bytes()
            if file.suffix == ".gz":
                content = gzip.compress(gzip.decompress(content).replace(old, new))
            file.write_bytes(content.replace(old, new))
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.chdir(home / "src" / "shop")
    return home


COMMANDS = {
    "status": "made by another version of Nugget. Next: nugget sync",
    "ask webhook signature raw body --no-llm": "pattern/the-signature-must-be-verified-over-the-raw-body-before",
    "search idempotency": "brain:bug/the-client-retried-the-payment-without-an-idempotency-key",
    "get bug/the-client-retried-the-payment-without-an-idempotency-key": "idempotency key",
    f"get session:{DEMO}#1": "Two customers were charged twice",
    "suggest web": "webhooks",
    "sessions": "Why was the customer charged twice?",
    "sessions inspect ae06ddce": "modified  retry.py",
    f"sessions show {DEMO}": "Two customers were charged twice",
    "nuggets": "14 nuggets",
    "nuggets inspect ae06ddce-3": "the gateway bans a client after three attempts",
    "nuggets export": '"kind": "nugget"',
    "coverage": "retry.py",
    "context retry.py": "ae06ddce-3",
    "promote ae06ddce-3 --dry-run": "would be proposed",
    "extract": "Extracted: 4",  # three were read by an earlier version
    "logs ingest --all": "",
    "logs sessions": GONE[:8],
    "logs context --session 11111111-2222-4333-8444-555555555555 what failed": "cargo test --workspace",
    f"logs context --session {GONE} zebrafinch": "The zebrafinch index is slow, why?",
    "brief": "Reviewed, from work on this code",
    "recall how should retry.py treat the gateway": "",
    "review list": "pattern/always-cap-the-size-of-the-outbound-mail-queue",
    "review show": "a full disk",
    "capture": "1 session processed: 1 proposal, 0 failed",
    "queries": "how do I groom a walrus",
    "lint": "All is well",
    "eval": "recall@1   1.000",
    "sync": "Index up to date",
    "rebuild": "20 added",
    "add Deploys start with the petrel. --title Petrel": "pattern/petrel",
    "mv belief/no-friday-deploys --domain ops": "domains/ops/beliefs/no-friday-deploys.md",
    "forget belief/no-friday-deploys": "belief/no-friday-deploys",
    "install": "",
    "uninstall": "",
}
"""Each command with a part of what it prints."""


def run(nugget: Nugget, line: str) -> Result:
    """Run a command line without quotes in it."""
    done = nugget(*line.split())
    assert done.code == 0, f"nugget {line}: {done.out}{done.err}"
    return done


def refs(nugget: Nugget, words: str) -> set[str]:
    """The refs of what a search finds, in every source."""
    return {hit["ref"] for hit in run(nugget, f"search {words} --json --as claude-code").json["hits"]}


@pytest.mark.proves("HOUSE-OLD-HOME")
def test_every_command_works_on_what_0_1_0_left(nugget):
    for line, part in COMMANDS.items():
        assert part in run(nugget, line).out, f"nugget {line}"
    doctor = nugget("doctor")
    assert "All is well" in doctor.out or "1 session failed" in doctor.out


@pytest.mark.proves("HOUSE-OLD-HOME")
def test_everything_that_was_searchable_is_found(nugget):
    expected = {
        "minor units": "brain:decision/money-in-minor-units",
        "friday": "brain:belief/no-friday-deploys",
        "petrel": "canon:notes/deploys.md",
        "integer": "memory:claude-code/@workspace/shop-",
        "kingfisher": "bridge:release#1",
        "puffin": "shell:11111111-2222-4333-8444-555555555555/stderr.log#1",
        "gateway": "provenance:ae06ddce-3",
        "retries": "session:ae06ddce-b3dd-5c31-a8e6-1137a36ba9f6#1",
        "webhooks verified": "session:3f181f73-2b7e-5422-8fa0-c0b1f6fc43f2#1",
        "idempotency key": f"session:{DEMO}#1",
        "outbound mail queue": "session:2ca834e1-2b33-5ee2-b46f-ff0b3bf33c6c#1",
    }
    for words, ref in expected.items():
        assert any(one.startswith(ref) for one in refs(nugget, words)), words
    assert "pattern/tabs-in-makefiles" not in "".join(refs(nugget, "tabs in makefiles"))


@pytest.mark.proves("HOUSE-OLD-HOME")
def test_nothing_is_captured_twice(nugget, old_home, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    ledger = old_home / ".nugget" / "ledger"
    before = (ledger / "captures.jsonl").read_text("utf-8")
    run(nugget, "capture --catch-up")
    assert "0 sessions processed" in run(nugget, "capture --catch-up").out
    after = (ledger / "captures.jsonl").read_text("utf-8")
    assert after.startswith(before)
    plans = [line for line in map(json.loads, after.splitlines()) if line.get("event") == "planned"]
    assert set(Counter(key for plan in plans for key in plan["records"].split()).values()) == {1}
    listed = subprocess.run(["git", "-C", old_home / "brain", "branch"], check=True, capture_output=True, text=True)
    assert [name.split("-")[-1] for name in listed.stdout.split() if name.startswith("nugget/")] == [
        "2ca834e1", "3f181f73",
    ]  # fmt: skip
    assert "currency-into-the-cache-key" not in run(nugget, "review list").out, "it was turned down"


@pytest.mark.proves("HOUSE-OLD-HOME")
def test_what_is_not_derived_stays_as_it_is(nugget, old_home, monkeypatch):
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    ledgers = ("captures", "rejected", "published", "costs", "queries")
    kept = [*(f"ledger/{name}.jsonl" for name in ledgers), "config.yaml", "queue", "provenance", "archive"]

    def contents() -> dict[Path, bytes]:
        places = [old_home / ".nugget" / name for name in kept]
        files = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
        return {file: file.read_bytes() for file in files if file.suffix in (".jsonl", ".yaml", ".gz")}

    before = contents()
    for line in ("sync", "rebuild", "status", "nuggets", "sessions", "review list", f"get session:{DEMO}#1"):
        run(nugget, line)
    assert contents() == before
