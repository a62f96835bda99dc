"""Shell logs over HTTP: the walkthrough of docs/http.md as it stands there, and what its answers have to say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import ShellLogs
from served import REPOSITORY, Served, served, served_brain, variables_for
from waiting import wait_for

BLOCK = re.compile(r"^```sh run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = BLOCK.findall((REPOSITORY / "docs/http.md").read_text("utf-8"))
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_brain(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def walked(server: Served) -> dict[str, str]:
    """What each example prints, by its text: all run in one shell, one after the other."""
    if shutil.which("curl") is None:
        pytest.skip("the examples are written with curl")
    script = "\n".join(f"{example}\nprintf '\\0'" for example in EXAMPLES)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60, check=True,
        env=variables_for(server.home, AISHD_URL=server.url),
    )  # fmt: skip
    return dict(zip(EXAMPLES, done.stdout.split("\0"), strict=False))


def printed(walked: dict[str, str], part: str) -> Any:
    """The JSON that the example with this part in it printed."""
    (found,) = [output for example, output in walked.items() if part in example]
    return json.loads(found)


@pytest.mark.proves("HTTP-EXAMPLES")
def test_a_question_about_a_failure_finds_the_command_and_the_line(walked: dict[str, str]) -> None:
    taken = printed(walked, "/v1/logs/ingest/")
    assert (taken["events"], taken["command_inputs"], taken["pane_output"], taken["malformed"]) == (4, 2, 1, 0)
    bundle = printed(walked, "do%20wrong%20with%20cargo")
    assert bundle["intent"] == "debug"
    assert "cargo test --workspace" in bundle["incidents"][0]["title"]
    assert any("error[E0425]" in one["text"] for one in bundle["selected_evidence"])


@pytest.mark.proves("HTTP-LOGS")
def test_secrets_leave_neither_the_logs_nor_the_question(server: Served) -> None:
    session = "sess_secret"
    ShellLogs(server.logs).run(session, 1000, f"deploy --token {SECRET}", 2, stderr=f"bad {SECRET}")
    taken = server.ask(f"/v1/logs/ingest/{session}")
    bundle = server.ask(f"/v1/logs/context/{session}", q=f"why did deploy fail with {SECRET}", explain="true")
    assert bundle.status == 200 and "deploy" in bundle.json["context_text"]
    assert SECRET.encode() not in taken.body + bundle.body
    made = server.ask("/v1/sessions", body={"title": f"try {SECRET}"})
    assert SECRET.encode() not in made.body and made.status == 201
    index = server.home / ".nugget/index.db"
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in index.parent.glob("index.db*"))


@pytest.mark.proves("HTTP-BACKFILL")
def test_the_start_takes_in_all_logs_behind_the_answers(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number in range(30):
        ShellLogs(logs).run(f"sess_{number}", 1000, f"make target{number}", 2)
    (logs / "sess_3/events.jsonl").write_bytes(b"\x00\xff\n" * 1000)
    with served(tmp_path) as server:
        wait_for(lambda: server.ask("/healthz").json["backfill"]["state"] != "running")
        assert server.ask("/healthz").json["backfill"] == {"state": "done", "done": 1, "total": 1, "problems": []}
        assert "target7" in server.ask("/v1/logs/context/sess_7", q="what failed").json["context_text"]
