"""Odd arguments over MCP and HTTP: whatever they hold, the answer is a result or a sentence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Served, served_brain

from nugget.http.security import MAX_BODY_BYTES

TOOLS = {
    "get_relevant_context": (
        "task_description", "path", "symbol", "types", "sources", "ref", "profile", "depth", "token_budget", "limit",
    ),
    "openqed_context": ("path", "symbol", "query", "token_budget", "types", "depth"),
    "openqed_file_history": ("path", "token_budget"),
    "openqed_decisions": ("path", "token_budget"),
}  # fmt: skip
QUERIES = {
    "/v1/search": ("q", "limit", "types", "domains", "tags", "since", "explain", "sources"),
    "/v1/ask": ("q", "limit", "types", "domains", "tags", "since", "explain", "budget", "depth", "no_llm"),
    "/v1/logs/context/sess_1": (
        "q", "intent", "explain", "max_chars", "max_lines", "include_artifacts", "output_window", "max_incidents",
    ),
    "/v1/units/": ("around",),
}  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(
        ["#####", ".", "::", "..", "/", "\\", "../..", "a#b", "~", "*", "%", '"', "(((", "AND OR NOT", "NEAR(a b)", "-",
         "since:99999w", "path:../..", "type:", "session:", "memory:x/y", "canon:..", "brain:", ":", "\0", "\ud800",
         "\u202e", "💥", "9" * 400, "1e999", "nan", "true", "x" * 999, "retry", "pattern", "sessions", "deep"]
    ),
    st.text(max_size=40),
)  # fmt: skip
VALUES = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(), st.floats(), st.lists(TEXTS, max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
FEW = settings(max_examples=120, deadline=None, suppress_health_check=[*HealthCheck], database=None, derandomize=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("odd")
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "shop.py").write_text("def pay():\n    return 1\n")
    (folder / "logs/sess_1").mkdir(parents=True)
    (folder / "logs/sess_1/events.jsonl").write_text('{"ts_ms":1,"kind":"command.start","data":{"cmd":"make"}}\n')
    with served_brain(folder, "--compat", "openqed") as running:
        running.ask("/v1/search", q="warm")
        yield running


def arguments(names: tuple[str, ...], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=4)


@pytest.mark.proves("HTTP-ODD", "MCP-ERRORS")
@pytest.mark.parametrize("tool", TOOLS)
def test_no_argument_of_a_tool_ends_in_a_failure_that_nobody_foresaw(server: Served, tool: str) -> None:
    needed = {"get_relevant_context": {"task_description": "retry"}, "openqed_file_history": {"path": "shop.py"}}

    @FEW
    @given(arguments(TOOLS[tool], st.one_of(TEXTS, VALUES)))
    def call(given: dict[str, Any]) -> None:
        params = {"name": tool, "arguments": {**needed.get(tool, {}), **given}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        answer = server.ask("/mcp", body=asked, headers=accept)
        if answer.status == 400 and "error" in answer.json:
            return  # NaN and halves of surrogate pairs are not JSON
        (block,) = answer.json["result"]["content"]
        assert block["text"].strip() and "unexpected" not in block["text"], given
        assert not answer.json["result"].get("isError") or "Traceback" not in block["text"]

    call()


@pytest.mark.proves("HTTP-ODD")
@pytest.mark.parametrize("path", QUERIES)
def test_no_parameter_of_a_path_ends_in_a_failure_that_nobody_foresaw(server: Served, path: str) -> None:
    @FEW
    @given(arguments(QUERIES[path], TEXTS), TEXTS)
    def ask(given: dict[str, str], ref: str) -> None:
        query = {"q": "retry", **given} if "q" in QUERIES[path] else given
        written = "&".join(f"{name}={escaped(value)}" for name, value in query.items())
        answer = server.ask(f"{path}{escaped(ref) if path.endswith('/') else ''}?{written}")
        assert answer.status in (200, 404, 422), (given, answer.body)
        assert answer.status == 200 or answer.error.message.endswith("."), answer.body

    ask()


@pytest.mark.proves("HTTP-ODD")
@pytest.mark.parametrize("path", ["/v1/search", "/v1/ask", "/v1/sessions", "/v1/completions"])
def test_no_body_ends_in_a_failure_that_nobody_foresaw(server: Served, path: str) -> None:
    names = (*QUERIES.get(path, ()), "title", "messages", "system", "model", "max_tokens", "prompt", "context_mode")

    @FEW
    @given(st.one_of(arguments(names, VALUES), VALUES))
    def ask(given: Any) -> None:
        answer = server.ask(path, body=json.dumps(given).encode(), headers={"content-type": "application/json"})
        assert answer.status in (200, 201, 400, 422, 503), (given, answer.body)

    ask()
    for odd in (b"{", b"[" * 100_000, b"\xff\xfe", b"9" * 5000, b'{"q":"a","q":"b"}', b"a" * (MAX_BODY_BYTES - 1)):
        assert server.ask(path, body=odd, headers={"content-type": "application/json"}).status in (200, 400, 422)


def escaped(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")
