"""No secret of the redaction corpus is stored or returned, wherever in a log or a transcript it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import NOW, Logs
from secret_corpus import corpus, left_over
from test_evidence import transcript

from nugget.config import Settings
from nugget.evidence import bundle_json
from nugget.evidence.derive import ingest
from nugget.index.events import TABLES

SECRETS = [("".join(row["text"]), "".join(row["secret"])) for row in corpus("secrets")]
EDGES = (4, 12, 30, 60)
"""So many characters before a limit a text with a secret begins, so that the limit may go through the secret."""

Write = Callable[[Logs, int, str], object]


def _event(kind: str, **given: Callable[[str], Any]) -> Write:
    return lambda logs, ts, text: logs.happen("s", ts, kind, **{name: make(text) for name, make in given.items()})


def _at_edges(limit: int, write: Callable[[Logs, int, str], object]) -> Write:
    return lambda logs, ts, text: [write(logs, ts, "x " * ((limit - edge) // 2) + text) for edge in EDGES]


def _line(name: str, before: str = "") -> Write:
    return lambda logs, _, text: logs.write("s", name, before + text + "\n")


def _coloured(logs: Logs, _: int, text: str) -> object:
    half = len(text) // 2
    return logs.write("s", "stdout.log", f"\x1b[31m{text[:half]}\x1b[0m{text[half:]}\n")


PLACES: dict[str, Write] = {
    "a command": _event("command.start", cmd="deploy {}".format),
    "a folder": _event("command.start", cmd=lambda _: "ls", cwd="/srv/ {}".format),
    "the end of a command": _event("command.end", cmd="deploy {}".format, exit=lambda _: 1),
    "the name of a tool": _event("tool.start", tool=str, args=lambda _: {"command": "x"}),
    "the kind of an event": lambda logs, ts, text: logs.happen("s", ts, text, text="x"),
    "arguments": _event("tool.start", tool=lambda _: "http", args=lambda text: {"header": text, "more": [{"a": text}]}),
    "an error": _event("tool.end", tool=lambda _: "http", ok=lambda _: False, error="refused: {}".format),
    "the path of an edit": _event("tool.start", tool=lambda _: "fs.write", args=lambda text: {"path": f"src/ {text}"}),
    "a note": _event("note", text="todo: use this instead {}".format),
    "any other event": _event("other", stuff=lambda text: {"deep": [text]}),
    "what was typed": _line("stdin.log"),
    "a failing line": _line("stderr.log", "error: refused "),
    "output": _line("output.log"),
    "coloured output": _coloured,
    "a long command": _at_edges(2000, _event("command.start", cmd=str)),
    "a long line": _at_edges(1000, _line("stdout.log")),
}


def everything(logs: Logs, session: str) -> str:
    """All that is stored of a session and returned about it."""
    tables = ["log_sessions", "read_files", *TABLES]
    stored = [str(row) for table in tables for row in logs.index.execute(f"SELECT * FROM {table}")]
    told = [
        json.dumps(
            bundle_json(logs.ask(session, query, max_chars=10**6, max_lines=10**4), explain=True), ensure_ascii=False
        )
        for query in ("what went wrong", "where were we", "what changed", "give me an overview")
    ]
    return "\n".join([*stored, *told])


@pytest.mark.proves("EVI-REDACT")
@pytest.mark.parametrize("place", PLACES)
def test_no_secret_in_a_shell_log_is_stored_or_returned(logs: Logs, place: str) -> None:
    for number, (text, _) in enumerate(SECRETS):
        PLACES[place](logs, number * 10, text)
    assert logs.ingest("s")["bytes_read"]
    found = everything(logs, "s")
    assert [text for text, secret in SECRETS if left_over(secret, found)] == []


@pytest.mark.proves("EVI-REDACT")
def test_a_secret_that_is_written_in_two_parts_is_not_stored(logs: Logs) -> None:
    key = next(text for text, _ in SECRETS if "PRIVATE KEY" in text and "\n" in text)
    lines = key.split("\n")
    logs.write("s", "output.log", "\n".join(lines[:3]) + "\n")
    logs.ingest("s")
    logs.write("s", "output.log", "\n".join(lines[3:]) + "\n")
    logs.ingest("s")
    secret = next(secret for text, secret in SECRETS if text == key)
    assert not left_over(secret, everything(logs, "s"))


@pytest.mark.proves("EVI-REDACT", "EVI-SESSIONS")
def test_no_secret_in_an_agents_session_is_stored_or_returned(logs: Logs, tmp_path: Path) -> None:
    calls: list[tuple[str, dict[str, Any], str, bool]] = []
    for text, _ in SECRETS:
        calls.append(("Bash", {"command": f"deploy {text}"}, f"Exit code 1\nerror: refused {text}", True))
        calls.append(("Edit", {"file_path": f"/srv/ {text}", "old_string": text, "new_string": text}, text, True))
        calls.append(("mcp__http", {"header": text, "deep": [{"a": text}]}, text, True))
        calls.append((f"odd {text}", {"x": "y"}, "fine", False))
        calls.append(("TodoWrite", {"todos": [{"content": f"use {text}", "status": "pending"}]}, "ok", False))
        for edge in EDGES[1:3]:
            calls.append(
                ("Bash", {"command": "x " * ((2000 - edge) // 2) + text}, "y " * ((1000 - edge) // 2) + text, True)
            )
            calls.append(("mcp__http", {"q": "x"}, "z " * ((1500 - edge) // 2) + text, True))
    done = ingest(logs.index, transcript(tmp_path / "a.jsonl", calls), settings=Settings(), now=NOW)
    assert done["events"] > 5 * len(SECRETS) and done["incidents"]
    found = everything(logs, "a")
    assert [text for text, secret in SECRETS if left_over(secret, found)] == []
