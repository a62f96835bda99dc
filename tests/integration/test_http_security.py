"""Who may call the HTTP server, and how little a flood, a slow client or a stranger can do. Real sockets throughout."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import Answer, Served, read_all, served, served_brain

from nugget import http as security
from nugget.errors import UsageError
from nugget.http import access_for, parse_address

TOKEN = "a-long-and-random-token-0123456789"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_brain(tmp_path_factory.mktemp("served")) as running:
        yield running


def raw(server: Served, request: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    with server.socket() as connection:
        connection.sendall(request)
        return read_all(connection)


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", *headers, "connection: close", "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.proves("HTTP-REBINDING")
def test_no_other_name_is_answered(server: Served) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost@evil",
                 "[::1", "", "localhost/..", "2130706433"):  # fmt: skip
        for path in ("/healthz", "/v1/search?q=x", "/mcp", "/nothing"):
            assert server.ask(path, headers={"host": host}).status == 421, host


@pytest.mark.proves("HTTP-REBINDING")
def test_pages_of_other_origins_are_refused_whatever_they_ask(server: Served) -> None:
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/v1/search?q=cache", headers={"origin": own}).status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://localhost:{server.port}", ""):
        answer = server.ask("/v1/search?q=cache", headers={"origin": origin})
        assert (answer.status, answer.error.code) == (403, "foreign_origin")
    for site in ("cross-site", "same-site"):  # an <img> on a page sends no Origin
        assert server.ask("/v1/search?q=cache", headers={"sec-fetch-site": site}).status == 403
    assert server.ask("/healthz", headers={"sec-fetch-site": "none"}).status == 200


@pytest.mark.proves("HTTP-TOKEN")
def test_the_first_start_makes_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    file = tmp_path / ".nugget/http-header"
    umask = os.umask(0)
    try:
        with served(tmp_path) as server:
            token = file.read_text().removeprefix("Authorization: Bearer ").strip()
            assert len(token) >= 40 and file.stat().st_mode & 0o777 == 0o600
            (line,) = server.said
            assert line.startswith(b"Ask it: curl -H @") and token.encode() not in line
            answers = {
                path: server.ask(path, headers={"Authorization": ""}).status
                for path in ("/v1/search?q=x", "/mcp", "/openapi.json", "/nothing", "/healthz")
            }
            assert answers == {**dict.fromkeys(answers, 401), "/healthz": 200}
            assert server.ask("/openapi.json").status == 200
    finally:
        os.umask(umask)
    with served(tmp_path):
        assert token in file.read_text(), "the token stays from start to start"
    file.chmod(0o644)
    with served(tmp_path):
        assert token not in file.read_text() and file.stat().st_mode & 0o777 == 0o600, "others may have read the old"


@pytest.mark.proves("HTTP-TOKEN")
def test_without_a_token_it_answers_on_loopback_only_and_says_what_that_opens(tmp_path: Path) -> None:
    with served(tmp_path, "--no-token", ANTHROPIC_API_KEY="sk-ant-test-0123456789") as server:
        assert server.ask("/openapi.json").status == 200
        assert server.ask("/healthz", headers={"host": "evil.example"}).status == 421
        assert server.ask("/healthz", headers={"origin": "http://evil.example"}).status == 403
        (line,) = server.said
        assert b"every user of this machine can read what you know" in line and b"$2.00 a day" in line
    assert not (tmp_path / ".nugget/http-header").exists()
    with (
        pytest.raises(AssertionError, match="so a token is needed"),
        served(tmp_path, "--no-token", address="0.0.0.0:0"),
    ):
        pass


@pytest.mark.proves("HTTP-LOOPBACK")
def test_what_is_loopback_and_what_is_an_address() -> None:
    for text in ("127.0.0.1:80", "localhost:80", "[::1]:80", "127.1.2.3", "80", "[::ffff:127.0.0.1]:80", ""):
        access_for(parse_address(text), token=None, allowed_hosts=())
    for text in ("0.0.0.0:80", "[::]:80", "10.0.0.1", "[::ffff:10.0.0.1]:80", "localhost.example:80"):
        with pytest.raises(UsageError):
            access_for(parse_address(text), token=None, allowed_hosts=())
    for text in ("host:port", "host:99999", "[::1", "http://x:80"):
        with pytest.raises(UsageError):
            parse_address(text)


@pytest.mark.proves("HTTP-LOOPBACK", "HTTP-HEALTH")
def test_with_a_token_everybody_is_asked_for_it(tmp_path: Path) -> None:
    with served(
        tmp_path, address="0.0.0.0:0", NUGGET_HTTP_TOKEN=TOKEN, NUGGET_HTTP_ALLOWED_HOSTS="memory.example"
    ) as server:
        for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
            for path in ("/v1/search?q=x", "/mcp", "/openapi.json", "/nothing", "/v1/units/x"):
                answer = server.ask(path, headers={"authorization": header} if header else {})
                assert (answer.status, answer.error.code) == (401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert TOKEN.encode() not in answer.body
        assert server.ask("/healthz").json == {"status": "ok"}
        server.headers = {"authorization": f"Bearer {TOKEN}"}
        assert server.ask("/healthz").json["pid"] == server.process.pid
        assert server.ask("/openapi.json").status == 200
        assert server.ask("/v1/search?q=x").status == 503, "let in; there is not a brain"
        for host in ("memory.example", "10.1.2.3:80", "[fe80::1]", socket.gethostname()):
            assert server.ask("/healthz", headers={"host": host}).status == 200, host
        assert server.ask("/healthz", headers={"host": "evil.example"}).status == 421


def answer_on(connection: socket.socket) -> bytes:
    """Return a refusal as it comes, in one piece or in several."""
    answer = b""
    while b"}" not in answer and (part := connection.recv(4096)):
        answer += part
    return answer


@pytest.mark.proves("HTTP-FLOOD")
def test_large_bodies_and_heads_are_refused_while_they_are_sent(server: Served) -> None:
    header = f"authorization: {server.headers['Authorization']}\r\n"
    head = f"POST /v1/ask HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/json\r\n"
    with server.socket() as connection:
        connection.sendall(f"{head}content-length: {10**9}\r\n\r\n".encode())
        refused = answer_on(connection)  # before the body
        assert refused.startswith(b"HTTP/1.1 413 ") and b"body_too_large" in refused
    with server.socket() as connection:
        connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        for _ in range(16):
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        refused = answer_on(connection)
        assert refused.startswith(b"HTTP/1.1 413 ") and b"body_too_large" in refused
    long_head = get("/healthz", "host: localhost", f"x-long: {'y' * 200_000}")
    for nonsense in (long_head, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n"):
        assert raw(server, nonsense).startswith(b"HTTP/1.1 400 ")
    assert server.ask("/healthz").status == 200


@pytest.mark.proves("HTTP-FLOOD")
def test_a_flood_is_told_to_wait_and_what_was_taken_is_answered(server: Served) -> None:
    question = {"q": "how do we refresh stored copies of prices and sessions"}
    start = threading.Barrier(100)

    def once() -> Answer:
        start.wait()
        return server.ask("/v1/ask", body=question)

    with ThreadPoolExecutor(100) as threads:
        answers = [future.result() for future in [threads.submit(once) for _ in range(100)]]
    assert {answer.status for answer in answers} <= {200, 429}
    assert sum(answer.status == 200 for answer in answers) >= security.MAX_UNDER_WAY
    for answer in answers:
        if answer.status == 429:
            assert answer.error.code == "busy" and answer.headers["retry-after"] == "1"
    assert server.ask("/v1/search?q=cache").status == 200
