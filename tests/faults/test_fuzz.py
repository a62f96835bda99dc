"""Seeds of what each face is given, changed at random but always in the same way: nothing unexpected comes of it."""

import json
import os
import random
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from mcp_wire import HELLO, RUN
from served import served_brain

CORPUS = Path(__file__).parent / "corpus"
ROUNDS = 400 if os.environ.get("NUGGET_FAULTS") == "all" else 12
"""Changed copies of each seed."""
NASTY = [
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", "\u202e\u200b\ufeff".encode(), b"9" * 5000, b"-1", b"1e999", b"NaN",
    b"[" * 500, b"{" * 500, b'"\\ud800"', b"null", b"../../../etc/passwd", b"\r", b"\r\n---\r\n", b"&a [*a]",
    b"!!python/object:os.system x", b"<private>",
    b"LS0tLS1CRUdJTi" + b"A" * 45, b"`" * 300, b"\x1b[2J", b"%s%n", b"*" * 200, b"'\"", b"$(touch x)",
    b"--", b"#####",
]  # fmt: skip


def changed(seed: bytes, chance: random.Random) -> bytes:
    """Return a seed with up to four changes."""
    text = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((1, 4, 30, 200)))
        match chance.randrange(5):
            case 0:
                del text[start:]
            case 1:
                del text[start:end]
            case 2:
                text[start:start] = text[start:end] * chance.choice((1, 3, 50))
            case 3:
                text[start:start] = chance.choice(NASTY)
            case _:
                text[start:end] = bytes(chance.randrange(256) for _ in range(end - start))
    return bytes(text)


def variants(face: str) -> Iterator[tuple[int, bytes]]:
    """Yield numbered changes of each seed of a face, the same in every run."""
    chance, number = random.Random(face), 0
    for file in sorted((CORPUS / face).iterdir()):
        for _ in range(ROUNDS):
            number += 1
            yield number, changed(file.read_bytes(), chance)


def opencode_part(storage: Path, number: int) -> Path:
    """Make a session of OpenCode with one message, and return where its part goes."""
    session = {"id": f"s{number}", "projectID": "p", "directory": "/srv/shop", "time": {"created": 1, "updated": 2}}
    message = {"id": f"m{number}", "sessionID": f"s{number}", "role": "user", "time": {"created": 1}}
    for path, value in ((f"session/p/s{number}", session), (f"message/s{number}/m{number}", message)):
        file = storage / f"{path}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    return storage / f"part/m{number}/p1.json"


AGENT = [["sync"], ["extract", "--all"], ["sessions"]]
"""Commands that read the sessions of an agent."""
FILES: dict[str, tuple[Callable[[Path, Path, int], Path], list[list[str]]]] = {
    "brain": (lambda home, brain, n: brain / "domains/coding/concepts" / f"fuzz-{n}.md", [["sync"], ["lint"]]),
    "transcripts": (
        lambda home, brain, n: home / ".claude/projects/-srv-shop" / f"11111111-0000-4000-8000-{n:012}.jsonl",
        [*AGENT, ["logs", "ingest", "--all"], ["capture", "--catch-up"]],
    ),
    "codex": (lambda home, brain, n: home / ".codex/sessions/2026/03/01" / f"rollout-{n}.jsonl", AGENT),
    "gemini": (lambda home, brain, n: home / f".gemini/tmp/{'0' * 16}/chats/session-2026-05-01T10-00-{n}.json", AGENT),
    "cursor": (lambda home, brain, n: home / f".cursor/projects/srv-shop/agent-transcripts/s{n}/s{n}.jsonl", AGENT),
    "opencode": (lambda home, brain, n: opencode_part(home / ".local/share/opencode/storage", n), AGENT),
    "shell": (lambda home, brain, n: home / f"shell/sess_{n}/events.jsonl", [["logs", "ingest", "--all"], ["sync"]]),
    "store": (lambda home, brain, n: home / ".nugget/provenance/shop" / f"s{n}.jsonl", [["sync"], ["nuggets"]]),
    "notes": (lambda home, brain, n: home / "notes" / f"{n}.md", [["import", "{home}/notes"]]),
}


def unexpected(result: object) -> bool:
    """Whether a command ended as it does only for a mistake in Nugget."""
    code, out, err = result  # type: ignore[misc]
    return code not in (0, 1, 2) or "Traceback" in out + err


@pytest.mark.proves("FAULT-FUZZ", "AGT-TORN")
@pytest.mark.parametrize("face", FILES)
def test_files_of_any_content_are_read_or_named(face, nugget, words, isolated_home, monkeypatch):
    monkeypatch.setenv("AISH_LOG_DIR", str(isolated_home / "shell"))
    place, lines = FILES[face]
    for number, content in variants(face):
        file = place(isolated_home, words, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    for line in lines:
        result = nugget(*(part.replace("{home}", str(isolated_home)) for part in line))
        assert not unexpected(result) and (line[0] == "lint" or result.code in (0, 1)), (line, result)
    assert "idempotency" in nugget("ask", "retry with idempotency keys", "--no-llm").out.lower()


@pytest.mark.proves("FAULT-FUZZ")
def test_settings_of_any_content_are_taken_or_refused(nugget, words):
    for number, content in variants("settings"):
        (words / "brain.yaml").write_bytes(content)
        result = nugget("search", "cache", "--quiet")
        assert not unexpected(result), (number, content, result)


@pytest.mark.proves("FAULT-FUZZ")
def test_arguments_of_any_kind_are_taken_or_refused(nugget, words):
    chance = random.Random("arguments")
    for line in (CORPUS / "arguments" / "seeds.txt").read_text().splitlines():
        command, *arguments = shlex.split(line)
        for _ in range(max(2, ROUNDS // 4)):
            place = chance.randrange(len(arguments))
            odd = changed(arguments[place].encode(), chance).replace(b"\0", b"").decode("utf-8", "surrogateescape")
            result = nugget(command, *arguments[:place], odd, *arguments[place + 1 :])
            assert not unexpected(result), (command, arguments, odd, result)


@pytest.mark.proves("FAULT-FUZZ")
def test_mcp_messages_of_any_content_are_answered_or_refused_and_the_next_is_answered(words, tmp_path):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    said = tmp_path / "stderr"
    with (
        said.open("w") as errors,
        subprocess.Popen([*RUN, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as server,
    ):
        assert server.stdin and server.stdout
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        server.stdin.write(f"{json.dumps(hello)}\n{json.dumps(ready)}\n".encode())
        for number, content in variants("mcp"):
            ping = {"jsonrpc": "2.0", "id": f"ping {number}", "method": "ping"}
            server.stdin.write(content + b"\n" + json.dumps(ping).encode() + b"\n")
            server.stdin.flush()
            assert any(json.loads(line).get("id") == ping["id"] for line in server.stdout), (content, said.read_text())
        server.stdin.close()
    assert "Traceback" not in said.read_text()


@pytest.mark.proves("FAULT-FUZZ")
def test_http_requests_of_any_content_are_answered_or_refused_and_the_next_is_answered(tmp_path):
    with served_brain(tmp_path) as server:
        for number, content in variants("http"):
            first, _, body = content.partition(b"\n")
            path = "/" + quote(first.removeprefix(b"/"), safe="/?=&%:")
            answer = server.ask(path, body=body or None, headers={"content-type": "application/json"})
            assert answer.status != 500 and b"Traceback" not in answer.body, (number, content, answer)
            assert answer.status < 400 or answer.error.message, (number, content, answer)
        assert server.ask("/v1/search", q="retry with idempotency keys").json["hits"]
        server.stop()
        assert b"Traceback" not in b"".join(server.said)
