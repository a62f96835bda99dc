"""The HTTP server under odd requests over raw sockets: each gets an answer in form, or none, and none a 500."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from served import Served, served_brain

PATHS = (
    "/healthz", "/v1/search", "/v1/ask", "/v1/units/pattern/retry-with-idempotency", "/v1/units/a/../b", "/v1/sessions",
    "/v1/units/%00", "/v1/logs/context/s1", "/v1/logs/ingest/..", "/v1/completions", "/openapi.json", "/mcp", "*",
    "//v1//search", "/%ff%fe", "http://localhost/v1/search", "/" + "z" * 9000,
)  # fmt: skip
NAMES = ("q", "q", "limit", "types", "since", "sources", "budget", "depth", "no_llm", "around", "session", "other")
VALUES = (
    "retry", "", "%00", "%ff", "%F0%9F%98%80", "%ED%A0%80", "-1", "1e999", "9" * 400, "true", "NaN", "memory", "(((",
    "9999-99-99", "AND+OR+NOT", "%22", "since:99999w", "path:../..", "*", "deep",
)  # fmt: skip
HOSTS = (
    "evil.example",
    "localhost:99999",
    "localhost:",
    "",
    "LOCALHOST.",
    "[::1]",
    "[::1%lo]",
    "a" * 300,
    "2130706433",
)
ORIGINS = ("null", "http://localhost", "http://localhost:99999", "http://evil.example", "http://[::1", "\xff")
JSON = (
    None, True, 0, -1, 10**400, float("inf"), float("nan"), "", "retry", "\ud800", "\x00", [], [[]], {}, {"a": 1},
    "x" * 999,
)  # fmt: skip
METHODS = ("initialize", "tools/list", "tools/call", "ping", "notifications/cancelled", "server/discover", "", "x")
BYTES = (
    b"",
    b"{",
    b"[" * 100_000,
    b"\xff\xfe",
    b"null",
    b"9" * 5000,
    b'{"q":"a","q":"b"}',
    b'{"\\ud800":1}',
    b"a" * 3_000_000,
)


def _body(random: Random) -> bytes:
    def some() -> object:
        return random.choice(JSON)

    match random.randrange(4):
        case 0:
            return json.dumps({"q": some(), random.choice(NAMES): some()}).encode()
        case 1:
            arguments = {"task_description": some(), random.choice(["types", "token_budget", "ref", "x"]): some()}
            call = {"name": random.choice(["get_relevant_context", "x", some()]), "arguments": arguments}
            parameters = random.choice([call, call, {}, some()])
            message = {"jsonrpc": "2.0", "id": some(), "method": random.choice(METHODS), "params": parameters}
            return json.dumps(random.choice([message, message, [message], {}])).encode()
        case 2:
            asked = {"model": some(), "max_tokens": some(), "messages": [{"role": "user", "content": some()}]}
            return json.dumps(asked).encode()
        case _:
            return random.choice(BYTES)


def _request(random: Random) -> bytes:
    method = random.choice(["GET", "POST"] * 8 + ["HEAD", "OPTIONS", "PUT", "TRACE", "get", "M" * 300, "\x00"])
    path = random.choice(PATHS)
    if random.random() < 0.6:
        given = [f"{random.choice(NAMES)}={random.choice(VALUES)}" for _ in range(random.choice([1, 2, 80]))]
        path += "?" + "&".join(given)
    headers = [
        ("Host", random.choice([*["localhost"] * 50, *HOSTS])),
        ("Accept", "application/json, text/event-stream"),
    ]
    if random.random() < 0.1:
        headers.append(("Origin", random.choice(ORIGINS)))
    if random.random() < 0.05:
        headers.append(
            random.choice([("Host", "b"), ("Expect", "100-continue"), ("Upgrade", "h2c"), ("X", "y" * 70_000)])
        )
    body = b"" if method == "GET" else _body(random)
    headers.append(("Content-Type", random.choice(["application/json"] * 9 + ["text/plain"])))
    if random.random() < 0.2:
        headers.append(("Transfer-Encoding", "chunked"))
        body = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        body += random.choice([b"0\r\n\r\n", b"zz\r\n", b"f" * 17 + b"\r\n"])
    else:
        headers.append(("Content-Length", str(len(body) + random.choice([0] * 30 + [9, 10**12]))))
    version = random.choice(["HTTP/1.1"] * 30 + ["HTTP/1.0", "HTTP/9", ""])
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers), "", ""]
    whole = "\r\n".join(lines).encode("latin-1") + body
    return whole[: random.randrange(len(whole))] if random.random() < 0.02 else whole


def _answer(server: Served, request: bytes) -> bytes:
    """What comes back, as far as it comes soon."""
    answer = b""
    with server.socket() as connection:
        connection.settimeout(0.3)
        try:
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
                head, _, body = answer.partition(b"\r\n\r\n")
                if f"content-length: {len(body)}\r\n".encode() in head.lower() + b"\r\n":
                    break
        except (TimeoutError, ConnectionError):
            pass
    return answer


@pytest.mark.proves("HTTP-ODD")
def test_no_request_brings_the_server_down_or_a_traceback_up(tmp_path: Path) -> None:
    random = Random(11)
    came: Counter[int] = Counter()
    with served_brain(tmp_path) as server:
        for _ in range(250):
            request = _request(random)
            answer = _answer(server, request)
            if not answer:
                continue
            assert answer.startswith(b"HTTP/1.1 "), (request[:300], answer[:100])
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head.split()[1])
            came[status] += 1
            assert status != 500, (request[:300], body)
            if status >= 400 and body:
                assert "error" in json.loads(body), (request[:300], body)
        assert server.ask("/healthz").json["status"] == "ok"
        assert server.stop() == 0
    assert b"".join(server.said) == b""
    assert {200, 400, 404, 405, 415, 421, 422} <= {*came}


@pytest.mark.proves("HTTP-ODD")
def test_a_request_that_goes_wrong_while_it_is_answered_is_told_once(tmp_path: Path) -> None:
    broken = b"%s /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    with served_brain(tmp_path) as server:
        for method in (b"OPTIONS", b"GET", b"POST"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
                connection.sendall(broken % method)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"content-length: ") == 1
        server.stop()
    assert b"".join(server.said) == b""
