"""Who may call the HTTP server, and how little a flood, a slow client or a stranger can do. Real sockets throughout."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest
from paths import TESTS
from served import START, Served, read_all, served, served_brain, variables_for
from waiting import wait_for, within

from nugget.errors import UsageError
from nugget.http import connections, limits, replies
from nugget.http.security import Address, access_for, parse_address
from nugget.redaction import redact

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
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:5033", "localhost.", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:5033"]
)
def test_every_name_of_the_loopback_is_answered(server: Served, host: str) -> None:
    assert server.ask("/healthz", headers={"host": host}).status == 200


@pytest.mark.proves("HTTP-REBINDING")
@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost:x", "localhost@evil",
     "[::1", "[::2]", "", "localhost/..", "2130706433", "127.0.0.1:99999999"],
)  # fmt: skip
def test_no_other_name_is_answered(server: Served, host: str) -> None:
    for path in ("/healthz", "/v1/search?q=x", "/mcp", "/nothing"):
        assert server.ask(path, headers={"host": host}).status == 421


@pytest.mark.proves("HTTP-REBINDING")
def test_pages_of_other_origins_are_refused_whatever_they_ask(server: Served) -> None:
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("/v1/search?q=cache", headers={"origin": own}).status == 200
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        f"http://localhost:{server.port}",
        "file://",
        "",
    ):
        answer = server.ask("/v1/search?q=cache", headers={"origin": origin})
        assert (answer.status, answer.error.code) == (403, "foreign_origin")
    for site in ("cross-site", "same-site"):  # an <img> on a page sends no Origin
        assert server.ask("/v1/search?q=cache", headers={"sec-fetch-site": site}).status == 403
    assert server.ask("/healthz", headers={"sec-fetch-site": "none"}).status == 200


@pytest.mark.proves("HTTP-REBINDING")
def test_a_request_with_two_hosts_or_none_is_refused(server: Served) -> None:
    for headers in (("host: localhost", "host: evil.example"), ()):
        assert raw(server, get("/healthz", *headers)).startswith(b"HTTP/1.1 400 ")
    assert b" 421 " in raw(server, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert b" 404 " in raw(server, get("http://evil.example/healthz", "host: localhost"))


@pytest.mark.proves("HTTP-LOOPBACK")
def test_it_does_not_listen_beyond_loopback_without_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "example.com"):
        done = subprocess.run(
            [*START, "serve", "--http", f"{host}:0"], capture_output=True, env=variables_for(tmp_path), timeout=60
        )
        assert done.returncode == 2 and b"so a token is needed." in done.stderr and b"NUGGET_HTTP_TOKEN" in done.stderr
    short = subprocess.run(
        [*START, "serve", "--http", "127.0.0.1:0"], capture_output=True, timeout=60,
        env=variables_for(tmp_path, NUGGET_HTTP_TOKEN="short"),
    )  # fmt: skip
    assert short.returncode == 2 and b"16 or more" in short.stderr and b"short" not in short.stderr


@pytest.mark.proves("HTTP-LOOPBACK")
def test_what_is_loopback_and_what_is_an_address() -> None:
    for text in (
        "127.0.0.1:80",
        "localhost:80",
        "[::1]:80",
        "::1",
        "127.1.2.3",
        "80",
        ":80",
        "[::ffff:127.0.0.1]:80",
        "",
    ):
        assert parse_address(text).is_loopback, text
        access_for(parse_address(text), token=None, allowed_hosts=())
    for text in ("0.0.0.0:80", "[::]:80", "10.0.0.1", "example.com:80", "[::ffff:10.0.0.1]:80", "localhost.example:80"):
        assert not parse_address(text).is_loopback, text
        with pytest.raises(UsageError):
            access_for(parse_address(text), token=None, allowed_hosts=())
        access_for(parse_address(text), token=TOKEN, allowed_hosts=())
    for text in ("a b:80", "host:port", "host:99999", "[::1", "http://x:80", "-x/y", "::1:::"):
        with pytest.raises(UsageError):
            parse_address(text)
    assert Address(host="::1", port=5).url == "http://[::1]:5"


@pytest.mark.proves("HTTP-LOOPBACK", "HTTP-HEALTH")
def test_with_a_token_everybody_is_asked_for_it(tmp_path: Path) -> None:
    with served(
        tmp_path, address="0.0.0.0:0", NUGGET_HTTP_TOKEN=TOKEN, NUGGET_HTTP_ALLOWED_HOSTS="memory.example"
    ) as server:
        for header in (
            "",
            "Bearer",
            "Bearer wrong",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            TOKEN,
        ):
            for path in ("/v1/search?q=x", "/mcp", "/openapi.json", "/nothing", "/v1/units/x"):
                answer = server.ask(path, headers={"authorization": header} if header else {})
                assert (answer.status, answer.error.code) == (401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert TOKEN.encode() not in answer.body
        assert server.ask("/healthz").json == {"status": "ok"}
        server.headers = {"authorization": f"Bearer {TOKEN}"}
        assert server.ask("/healthz").json["pid"] == server.process.pid
        assert server.ask("/openapi.json").status == 200
        assert server.ask("/v1/search?q=x").status == 503, "let in; there is no brain"
        hosts = {
            "memory.example": 200,
            "10.1.2.3:80": 200,
            "[fe80::1]": 200,
            socket.gethostname(): 200,
            "evil.example": 421,
        }
        for host, status in hosts.items():
            assert server.ask("/healthz", headers={"host": host}).status == status, host


@pytest.mark.proves("HTTP-SLOW")
def test_slow_clients_are_let_go_and_others_do_not_notice(server: Served) -> None:
    """All at once, since each takes as long as its deadline."""

    def silent() -> bytes:
        return raw(server, b"")

    def half_a_head() -> bytes:
        with server.socket() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: local")
            with suppress(OSError):  # closed already, where each second took longer than one
                for _ in range(8):  # a byte now and then does not buy time
                    time.sleep(1)
                    connection.sendall(b"h")
            return read_all(connection)

    def half_a_body() -> bytes:
        head = (
            "POST /v1/ask HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
        )
        with server.socket() as connection:
            connection.sendall(head.encode())
            return read_all(connection)

    def idle() -> bytes:
        return raw(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")

    def second_head() -> bytes:
        return raw(server, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /heal")

    with within(60), ThreadPoolExecutor(5) as threads:
        futures = [threads.submit(call) for call in (silent, half_a_head, half_a_body, idle, second_head)]
        assert server.ask("/v1/search?q=cache").status == 200
        said = [future.result() for future in futures]
    assert said[0].startswith(b"HTTP/1.1 408 ") and b"request_timeout" in said[0]
    assert said[1].startswith(b"HTTP/1.1 408 ")
    assert said[2].startswith(b"HTTP/1.1 408 ") and b"The body did not arrive within" in said[2]
    assert said[3].startswith(b"HTTP/1.1 200 ") and said[3].count(b"HTTP/1.1") == 1
    assert said[4].startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in said[4]


@pytest.mark.proves("HTTP-SLOW", "HTTP-FLOOD")
def test_large_bodies_and_heads_are_refused_while_they_are_sent(server: Served) -> None:
    declared = f"POST /v1/ask HTTP/1.1\r\nhost: localhost\r\ncontent-length: {10**9}\r\n\r\n".encode()
    with within(limits.BODY_TIMEOUT_S), server.socket() as connection:
        connection.sendall(declared)
        refused = read_all(connection)  # to its end: the rest is not waited for
        assert refused.startswith(b"HTTP/1.1 413 ") and b"body_too_large" in refused
    chunked = b"POST /v1/ask HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    with server.socket() as connection:
        connection.sendall(chunked)
        connection.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        connection.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n" + b"5\r\nxxxxx\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
    long_head = get("/healthz", "host: localhost", f"x-long: {'y' * 40_000}")
    assert raw(server, long_head).startswith(b"HTTP/1.1 431 ")
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n"):
        answer = raw(server, nonsense + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.proves("HTTP-FLOOD")
def test_a_flood_is_told_to_wait_and_what_was_taken_is_answered(server: Served) -> None:
    body = json.dumps({"q": "how do we refresh stored copies of prices and sessions", "limit": 50, "budget": 100_000})
    request = (
        "POST /v1/ask HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    before = memory_kb(server)
    start = threading.Barrier(200)

    def once() -> bytes:
        with server.socket() as connection:
            start.wait()
            connection.sendall(request)
            return read_all(connection)

    with ThreadPoolExecutor(200) as threads:
        answers = [future.result() for future in [threads.submit(once) for _ in range(200)]]
    statuses = [int(answer.split(b" ")[1]) for answer in answers if answer]
    assert set(statuses) == {200, 429}
    refused = [answer for answer in answers if b" 429 " in answer[:20]]
    assert all(b"retry-after: " in answer and b'"busy"' in answer for answer in refused)
    # A machine that cannot answer all that it took in time says so, with a longer pause.
    assert statuses.count(200) + sum(b"retry-after: 5\r\n" in answer for answer in refused) >= 64
    assert server.ask("/v1/search?q=cache").status == 200
    assert memory_kb(server) - before < 150_000


def memory_kb(server: Served) -> int:
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


@pytest.mark.proves("HTTP-FLOOD")
def test_too_many_connections_are_refused_and_the_open_ones_go_on(server: Served) -> None:
    open_ones = [server.socket() for _ in range(connections.MAX_CONNECTIONS)]
    try:
        with server.socket() as one_more:
            refused = read_all(one_more)
        assert refused.startswith(b"HTTP/1.1 429 ") and b"too_many_connections" in refused
        open_ones[0].sendall(get("/healthz", "host: localhost"))
        assert read_all(open_ones[0]).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in open_ones:
            connection.close()
    wait_for(lambda: is_let_in(server))


def is_let_in(server: Served) -> bool:
    try:
        return server.ask("/healthz").status == 200
    except (OSError, HTTPException):  # refused before the request was read
        return False


@pytest.mark.proves("HTTP-FLOOD")
def test_the_limits_fit_each_other() -> None:
    assert limits.MAX_TARGET_BYTES < limits.MAX_HEAD_BYTES
    assert max(limits.LARGER_BODIES.values()) * 4 < limits.MAX_BUFFERED_BYTES


@pytest.mark.proves("HTTP-ASK")
def test_no_reply_holds_a_secret_whatever_stands_beside_it() -> None:
    folder = TESTS / "redaction_corpus"
    read = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("secrets", "lookalikes")}
    beside = ["".join(row["text"]) for row in read["lookalikes"]]
    for number, row in enumerate(read["secrets"]):
        text = "".join(row["text"])
        value = {"hits": [{"title": beside[number % len(beside)], "score": 0.5, "tags": [text]}], "weak": False}
        (cleaned,) = replies.without_secrets(value)["hits"][0]["tags"]
        assert cleaned == redact(text).text, row["kind"]
    clean = {"hits": [{"title": text, "path": None} for text in beside]}
    assert replies.without_secrets(clean) == clean
