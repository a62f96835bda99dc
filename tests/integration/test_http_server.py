"""The HTTP face over real sockets: what it answers, who may call it, and how little a flood or a stranger can do."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from cli_stage import write_unit
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from served import START, Served, read_all, served, served_brain, variables_for
from waiting import PATIENCE_S

from nugget import http as security
from nugget.app.agent_session import http_token
from nugget.config import read_environment
from nugget.errors import UsageError
from nugget.http import check_token, parse_address
from nugget.mcp import INSTRUCTIONS

QUESTION = "users still see old prices after we changed them, how do we refresh stored copies"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    for identity, text in (("zealot", "The khaydarin crystal hums."), ("roast", "The khaydarin crystal is a fake.")):
        notes = folder / ".nugget/memory" / identity
        notes.mkdir(parents=True)
        (notes / "plan.md").write_text(f"# Plan\n\n{text}\n")
    with served_brain(folder) as running:
        yield running


@pytest.mark.proves("HTTP-ASK")
def test_ask_answers_with_the_json_of_the_command_line(server):
    environment = variables_for(server.home, NUGGET_BRAIN=str(server.brain))
    done = subprocess.run([*START, "ask", QUESTION, "--limit", "3", "--json"], capture_output=True, env=environment)
    answer = server.ask("/v1/ask", q=QUESTION, limit=3)
    assert answer.json == json.loads(done.stdout) == server.ask("/v1/ask", body={"q": QUESTION, "limit": 3}).json
    assert answer.json["hits"][0]["id"] == "concept/cache-invalidation"
    assert server.ask("/v1/ask", q="where were we").json["answer"] == "There are no sessions of this repository yet."


@pytest.mark.proves("HTTP-UNIT")
def test_no_path_leads_anywhere_else(server):
    for path in ("../brain.yaml", "concept/..%2f..%2fbrain", "concept/x%00y", "..%5cx", "%2e%2e/x",
                 "canon:../../etc/passwd", "bridge:..%2f..%2fetc/passwd"):  # fmt: skip
        assert server.ask(f"/v1/units/{path}").error.code in ("unknown_ref", "invalid_ref"), path


@pytest.mark.proves("HTTP-ASK")
def test_a_new_unit_is_found_and_secrets_in_units_are_not_given_out(server):
    assert server.brain
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    write_unit(server.brain, "pattern/zebra-rollout", f"# Zebra rollout\n\nUse {token} for it.")
    found = server.ask("/v1/search", q="zebra rollout", types="pattern,constraint")
    assert found.json["hits"][0]["id"] == "pattern/zebra-rollout"
    for answer in (found, server.ask("/v1/units/pattern/zebra-rollout")):
        assert token.encode() not in answer.body and b"[redacted:" in answer.body


@pytest.mark.proves("HTTP-MCP")
def test_mcp_answers_over_streamable_http(server):
    async def talk() -> None:
        async with (
            httpx2.AsyncClient(headers=server.headers, timeout=PATIENCE_S) as sender,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=sender)) as client,
        ):
            assert client.instructions == INSTRUCTIONS
            result = await client.call_tool("get_relevant_context", {"task_description": QUESTION})
            (block,) = result.content
            assert isinstance(block, TextContent) and "concept/cache-invalidation" in block.text

    asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))
    assert server.ask("/mcp").headers["allow"] == "POST", "no stream is left open for nothing"


@pytest.mark.proves("HTTP-MEMORY")
def test_memory_is_that_of_the_servers_identity_alone(server):
    for refused in (server.ask("/v1/search", q="crystal", sources="memory"),
                    server.ask("/v1/units/memory:zealot/plan.md")):  # fmt: skip
        assert refused.status in (404, 422) and b"hums" not in refused.body
    assert server.ask("/v1/search?q=crystal&identity=zealot").error.code == "unknown_parameter"
    with served(server.home, "--as", "zealot", brain=server.brain) as zealot:
        for path in ("/v1/search", "/v1/ask"):
            found = zealot.ask(path, q="crystal", sources="Memory", offset=0)
            assert [hit["ref"] for hit in found.json["hits"]] == ["memory:zealot/plan.md"] and b"hums" in found.body
        assert b"hums" in zealot.ask("/v1/units/memory:zealot/plan.md").body
        assert b"fake" not in found.body + zealot.ask("/v1/units/memory:roast/plan.md").body


@pytest.mark.proves("HTTP-OPENAPI")
def test_the_openapi_document_is_valid_and_lists_every_path(server):
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = server.ask("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()
    for path, methods in document["paths"].items():
        filled = path.replace("{ref}", "concept/cache-invalidation").replace("{session}", "sess_1")
        allowed = server.ask(filled, method="DELETE").headers["allow"]
        assert {method.upper() for method in methods} >= set(allowed.split(", ")), path
        assert all("security" in described for described in methods.values())


@pytest.mark.proves("HTTP-BAD-INPUT")
def test_bad_requests_get_one_clear_sentence(server):
    cases: list[tuple[str, Any, int, str]] = [
        ("/v1/ask", b"{not json", 400, "malformed_json"), ("/v1/ask", b"[" * 20_000, 400, "malformed_json"),
        ("/v1/ask", b"\xff\xfe\xff", 400, "malformed_json"), ("/v1/ask", {}, 422, "missing_parameter"),
        ("/v1/ask", {"q": "x", "colour": "red"}, 422, "unknown_parameter"),
        ("/v1/ask", {"q": "x", "limit": 10**9}, 422, "invalid_parameter"),
        ("/v1/ask", {"q": "x" * 1_000_001}, 413, "body_too_large"), ("/v1/ask?q=a%00b", None, 422, "invalid_parameter"),
        ("/v1/nothing", None, 404, "not_found"), ("/v1/ask?q=x&types=recipe", None, 422, "invalid_request"),
    ]  # fmt: skip
    for path, body, status, code in cases:
        sent = {"content-type": "application/json"} if isinstance(body, bytes) else {}
        answer = server.ask(path, body=body, headers=sent)
        assert (answer.status, answer.error.code) == (status, code), path
        assert answer.error.message.endswith(".") and len(answer.error.message) < 200


@pytest.mark.proves("HTTP-START")
def test_an_address_that_cannot_be_had_is_told_in_one_sentence(server, nugget):
    for address, said in ((f"127.0.0.1:{server.port}", f"Error: Port {server.port} of 127.0.0.1 is taken"),
                          ("nowhere:x", "Error: "), ("0.0.0.0:0 --no-token", "Error: Other machines")):  # fmt: skip
        refused = nugget("serve", "--http", *address.split())
        assert refused.code in (1, 2) and refused.err.startswith(said) and refused.out == ""


@pytest.mark.proves("HTTP-END")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_in_order(tmp_path, number, code):
    with served(tmp_path) as server, server.socket():  # an idle connection does not hold it
        assert server.ask("/healthz").status == 200
        assert server.stop(number) == code
    assert b"Traceback" not in b"".join(server.said)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=2)


@pytest.mark.proves("HTTP-END")
def test_a_signal_before_it_serves_ends_it_too():
    early = "uvicorn.Server.run = lambda *given, **named: (signal.raise_signal(15), run(*given, **named)); "
    script = f"import signal, uvicorn; from nugget import http; run = uvicorn.Server.run; {early}"
    script += "http.run(http.FastAPI(), http.listen('127.0.0.1', 0))"
    assert subprocess.run([sys.executable, "-c", script], timeout=PATIENCE_S).returncode == 0


TOKEN = "a-long-and-random-token-0123456789"


@pytest.mark.proves("HTTP-REBINDING")
def test_no_other_name_is_answered(server):
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost@evil",
                 "[::1", "", "localhost/..", "2130706433"):  # fmt: skip
        for path in ("/healthz", "/v1/search?q=x", "/mcp", "/nothing"):
            assert server.ask(path, headers={"host": host}).status == 421, host


@pytest.mark.proves("HTTP-REBINDING")
def test_pages_of_other_origins_are_refused_whatever_they_ask(server):
    assert server.ask("/v1/search?q=cache", headers={"origin": f"http://127.0.0.1:{server.port}"}).status == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"http://localhost:{server.port}", ""):
        answer = server.ask("/v1/search?q=cache", headers={"origin": origin})
        assert (answer.status, answer.error.code) == (403, "foreign_origin")
    for site in ("cross-site", "same-site"):  # an <img> on a page sends no Origin
        assert server.ask("/v1/search?q=cache", headers={"sec-fetch-site": site}).status == 403
    assert server.ask("/healthz", headers={"sec-fetch-site": "none"}).status == 200


@pytest.mark.proves("HTTP-TOKEN")
def test_the_first_start_makes_a_token_that_only_its_owner_can_read(tmp_path):
    file = tmp_path / ".nugget/http-header"
    umask = os.umask(0)
    try:
        with served(tmp_path) as server:
            token = file.read_text().removeprefix("Authorization: Bearer ").strip()
            assert len(token) >= 40 and file.stat().st_mode & 0o777 == 0o600
            (line,) = server.said
            assert line.startswith(b"Ask it: curl -H @") and token.encode() not in line
            assert [server.ask("/mcp", headers=sent).status for sent in ({"Authorization": ""}, {})] == [401, 405]
    finally:
        os.umask(umask)
    environment = read_environment(variables_for(tmp_path))
    assert http_token(environment) == token, "the token stays from start to start"
    file.chmod(0o644)
    assert http_token(environment) not in ("", token), "others may have read the old one"


@pytest.mark.proves("HTTP-TOKEN")
def test_without_a_token_it_answers_on_loopback_only_and_says_what_that_opens(tmp_path):
    with served(tmp_path, "--no-token", ANTHROPIC_API_KEY="sk-ant-test-0123456789") as server:
        assert server.ask("/openapi.json").status == 200
        assert server.ask("/healthz", headers={"host": "evil.example"}).status == 421
        assert server.ask("/healthz", headers={"origin": "http://evil.example"}).status == 403
        (line,) = server.said
        assert b"every user of this machine can read what you know" in line and b"$2.00 a day" in line
    assert not (tmp_path / ".nugget/http-header").exists()


@pytest.mark.proves("HTTP-LOOPBACK")
def test_what_is_loopback_and_what_is_an_address():
    for text in ("127.0.0.1:80", "localhost:80", "[::1]:80", "127.1.2.3", "80", "[::ffff:127.0.0.1]:80", ""):
        check_token(parse_address(text)[0], None)
    for text in ("0.0.0.0:80", "[::]:80", "10.0.0.1", "[::ffff:10.0.0.1]:80", "localhost.example:80"):
        with pytest.raises(UsageError):
            check_token(parse_address(text)[0], None)
    for text in ("host:port", "host:99999", "[::1", "http://x:80"):
        with pytest.raises(UsageError):
            parse_address(text)


@pytest.mark.proves("HTTP-LOOPBACK", "HTTP-HEALTH", "HTTP-START")
def test_with_a_token_everybody_is_asked_for_it(tmp_path):
    given = {"NUGGET_HTTP_TOKEN": TOKEN, "NUGGET_HTTP_ALLOWED_HOSTS": "memory.example"}
    with served(tmp_path, address="0.0.0.0:0", **given) as server:
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
        answer = server.ask("/v1/search?q=x")
        assert (answer.status, answer.error.code) == (503, "no_brain"), "it starts without a brain"
        for host in ("memory.example", "10.1.2.3:80", "[fe80::1]", socket.gethostname()):
            assert server.ask("/healthz", headers={"host": host}).status == 200, host
        assert server.ask("/healthz", headers={"host": "evil.example"}).status == 421


@pytest.mark.proves("HTTP-FLOOD")
def test_large_bodies_and_heads_are_refused_while_they_are_sent(server):
    header = f"authorization: {server.headers['Authorization']}\r\n"
    head = f"POST /v1/ask HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/json\r\n"
    chunks = (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 16
    for length, body in ((f"content-length: {10**9}", b""), ("transfer-encoding: chunked", chunks)):
        with server.socket() as connection:
            connection.sendall(f"{head}{length}\r\n\r\n".encode() + body)
            refused = b""
            while b"}" not in refused and (part := connection.recv(4096)):  # it comes in one piece or in several
                refused += part
            assert refused.startswith(b"HTTP/1.1 413 ") and b"body_too_large" in refused
    long_head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"y" * 200_000 + b"\r\n\r\n"
    for nonsense in (long_head, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n"):
        with server.socket() as connection:
            connection.sendall(nonsense)
            assert read_all(connection).startswith(b"HTTP/1.1 400 ")
    assert server.ask("/healthz").status == 200


@pytest.mark.proves("HTTP-FLOOD")
def test_a_flood_is_told_to_wait_and_what_was_taken_is_answered(server):
    question = {"q": "how do we refresh stored copies of prices and sessions"}
    with ThreadPoolExecutor(100) as threads:
        answers = [*threads.map(lambda _: server.ask("/v1/ask", body=question), range(100))]
    assert {answer.status for answer in answers} <= {200, 429}
    assert sum(answer.status == 200 for answer in answers) >= security.MAX_UNDER_WAY
    for answer in answers:
        if answer.status == 429:
            assert answer.error.code == "busy" and answer.headers["retry-after"] == "1"
    assert server.ask("/v1/search?q=cache").status == 200
