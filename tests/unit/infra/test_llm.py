"""The gateways to models: Claude by the real SDK and servers with OpenAI's API, scripted on loopback."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llm_calls import MODEL, TOKEN, ask, costs
from loopback_anthropic import AnthropicServer, Message, Raw, Slow, status, text, value
from waiting import within

from nugget.config import Environment, Settings, read_environment
from nugget.errors import LLMUnavailable
from nugget.infra.llm import LLM, BadReply, Model, Request, open_extractor, open_llm, spending
from nugget.infra.llm.others import OpenAI

KEY = "sk-ant-api03-Zk3" + "Qv7Tn2Lw9Xc4" * 7 + "AA"
LOCAL = "sk-local-" + "Qv7Tn2Lw9Xc4" * 3


@pytest.fixture
def environment(server: AnthropicServer, tmp_path: Path) -> Environment:
    keys = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url, "LOCAL_KEY": LOCAL}
    return read_environment({"HOME": str(tmp_path), **keys})


def stream(llm: LLM, **changed: Any) -> Iterator[str]:
    asked: dict[str, Any] = {
        "purpose": "test", "model": "claude-sonnet-5-5", "system": "Tell.", "prompt": "tell", "max_tokens": 300,
        "timeout_s": 60.0,
    }  # fmt: skip
    return llm.stream(Request(**{**asked, **changed}))


@pytest.mark.proves("LLM-OFF")
def test_there_is_no_llm_without_a_key_or_when_it_is_switched_off(environment):
    assert open_llm(Settings(), replace(environment, anthropic_api_key=None)) is None
    assert open_llm(Settings(llm_enabled=False), environment) is None


@pytest.mark.proves("LLM-REDACT")
def test_secrets_and_private_blocks_do_not_leave(llm, server):
    server.script(value({"count": 3}), text("done"))
    ask(llm, prompt=f"token {TOKEN}, <private>my diary</private> and the rest", system=f"never say {TOKEN}")
    list(stream(llm, prompt=f"token {TOKEN}"))
    sent = json.dumps([request.body for request in server.requests])
    assert TOKEN not in sent and "diary" not in sent
    assert "and the rest" in sent and "[redacted:" in sent


@pytest.mark.proves("LLM-KEY")
@pytest.mark.parametrize("code", [400, 401, 429, 529])
def test_the_key_is_never_told_even_when_the_server_repeats_it(code, llm, server, environment):
    server.default = lambda request: status(
        code, message=f"no: {KEY} and {request.headers['authorization']}", headers={"retry-after": "0.01"}
    )
    with pytest.raises(LLMUnavailable) as told:
        ask(llm)
    everything = f"{told.value} {told.value.hint} {told.value.__cause__} {json.dumps(costs(environment))}"
    assert KEY not in everything and "Zk3Qv7" not in everything and f"HTTP {code}" in str(told.value)


@pytest.mark.proves("LLM-LEDGER")
def test_every_call_is_in_the_ledger(llm, server, environment):
    usage = {
        "input_tokens": 10, "output_tokens": 20, "cache_creation_input_tokens": 400, "cache_read_input_tokens": 5000,
    }  # fmt: skip
    server.script(value({"count": 3}, usage=usage), status(400), text("told"))
    ask(llm, purpose="rerank")
    with pytest.raises(LLMUnavailable):
        ask(llm)
    with pytest.raises(LLMUnavailable):
        ask(llm, max_usd=0.0)
    assert "".join(stream(llm, purpose="answer")) == "told"
    lines = costs(environment)
    assert [(line["purpose"], line["ok"]) for line in lines] == [
        ("rerank", True), ("test", False), ("test", False), ("answer", True),
    ]  # fmt: skip
    assert lines[0]["usd"] == pytest.approx(1e-7 * (10 + 1.25 * 400 + 0.1 * 5000) + 5e-7 * 20)
    assert [line["usd"] for line in lines[1:3]] == [0.0, 0.0], "refused calls cost nothing"
    assert "HTTP 400" in lines[1]["error"] and lines[0]["error"] is None
    _, usd = spending(environment.home)
    assert usd == pytest.approx(lines[0]["usd"] + lines[3]["usd"])


@pytest.mark.proves("LLM-CAP")
def test_a_call_beyond_its_cap_is_not_made(llm, server):
    with pytest.raises(LLMUnavailable, match=r"could cost \$0\.\d+, more than the \$0\.0100 allowed"):
        ask(llm, prompt="word " * 200_000, max_usd=0.01)
    with pytest.raises(LLMUnavailable, match="could cost"):
        list(stream(llm, max_tokens=100_000, max_usd=0.01))
    assert server.requests == []


@pytest.mark.proves("LLM-RETRY")
def test_overload_and_rate_limits_are_retried_as_the_server_asks(llm, server):
    server.script(status(529), status(429, headers={"retry-after": "0.4"}), status(500), value({"count": 3}))
    assert ask(llm).value == {"count": 3} and len(server.requests) == 4
    assert server.times[2] - server.times[1] >= 0.4


@pytest.mark.proves("LLM-DEADLINE")
@pytest.mark.parametrize("reply", [
    Slow(wait_s=30, reply=text("late")), status(429, headers={"retry-after": "3600"}),
    Raw(chunks=(b" ",) * 300, pause_s=0.1),
])  # fmt: skip
def test_no_call_outlasts_its_timeout(reply, llm, server):
    __import__("anthropic")  # which takes a second
    server.default = lambda request: reply
    for call in (lambda: ask(llm, timeout_s=0.5), lambda: list(stream(llm, timeout_s=0.5))):
        with within(10), pytest.raises(LLMUnavailable):
            call()


@pytest.mark.proves("LLM-REDIRECT")
@pytest.mark.parametrize("code", [301, 307])
def test_the_key_does_not_follow_a_redirect(code, llm, server):
    with AnthropicServer() as elsewhere:
        server.default = lambda request: status(code, headers={"location": f"{elsewhere.url}/v1/messages"})
        with pytest.raises(LLMUnavailable, match=rf"redirects \(HTTP {code}\)"):
            ask(llm)
        assert elsewhere.requests == []


@pytest.mark.proves("LLM-REPLY-REDACT")
@pytest.mark.parametrize("content", [{"count": 3, "tags": [f"of {TOKEN}"]}, {"count": 0, "tags": [TOKEN, KEY]}])
def test_a_secret_in_a_reply_goes_no_further(content, llm, server):
    server.default = lambda request: value(content)
    try:
        came: object = ask(llm).value
    except BadReply as bad:
        came = bad.value
    assert isinstance(came, dict) and len(came["tags"]) == len(content["tags"])
    assert TOKEN not in str(came) and KEY not in str(came)


@pytest.mark.proves("LLM-TERMINAL")
def test_no_control_characters_reach_the_reader(llm, server):
    server.script(text("red \x1b[31m, title \x1b]0;x\x07, back\r\b, c1 \x9b31m, kept: tab\tline\nend"))
    told = "".join(stream(llm))
    assert not any(char in told for char in "\x1b\x07\r\b\x9b") and told.endswith("kept: tab\tline\nend")


@pytest.fixture
def model(server: AnthropicServer, environment: Environment) -> Model:
    """A server with OpenAI's API."""
    settings = Settings(llm_api="openai", llm_base_url=f"{server.url}/v1", llm_api_key_env="LOCAL_KEY")
    found = open_extractor(settings, environment)
    assert isinstance(found, OpenAI)
    return found


@pytest.mark.proves("LLM-OPENAI")
def test_a_structured_reply_comes_back_and_its_tokens_are_in_the_ledger(model, server, environment):
    server.script(value({"count": 3}))
    reply = ask(model, prompt=f"how many? {TOKEN} <private>diary</private>")
    assert (reply.value, reply.usd) == ({"count": 3}, 0.0)
    [request] = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {LOCAL}")
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    assert "how many?" in request.prompt and TOKEN not in request.prompt and "diary" not in request.prompt
    sent = request.body["response_format"]["json_schema"]["schema"]
    assert sent["required"] == ["count"] and "minimum" not in sent["properties"]["count"]
    assert (request.body["model"], request.body["max_tokens"]) == (MODEL, 300)
    [line] = costs(environment)
    assert (line["input_tokens"], line["output_tokens"], line["usd"], line["ok"]) == (1000, 200, 0.0, True)


@pytest.mark.proves("LLM-SENTENCE", "LLM-KEY", "LLM-REDIRECT")
@pytest.mark.parametrize(
    ("by", "reply", "sentence"),
    [
        ("llm", status(401), r"refused the key \(HTTP 401\)"),
        ("llm", Raw(chunks=(b'{"error": {"message": ["no"]}}',), status=422), r"the request \(HTTP 422\)\."),
        ("llm", Raw(chunks=(b"[" * 100_000,)), r"could not be read"),
        ("llm", Raw(chunks=(b'{"content": 7, "usage": {"input_tokens": -4}}',)), r"could not be read"),
        ("llm", text('{"count": 3}', cut_after=60), r"connection to the Anthropic API failed"),
        ("llm", Message(content=[], stop_reason="refusal"), r"declined to answer"),
        ("model", status(401, message=LOCAL), r"The server at 127.0.0.1 refused the key \(HTTP 401\)\."),
        ("model", status(400, message=f"context\nof {LOCAL}"), r"HTTP 400\): context of \[key\]\."),
        ("model", status(307, headers={"location": "http://127.0.0.1:9/v1"}), r"redirects \(HTTP 307\)"),
        ("model", Raw(chunks=(b"[" * 100_000,)), r"could not be read"),
        ("model", Message(content=[], stop_reason="refusal"), r"declined to answer"),
    ],
)
def test_every_failure_is_told_in_one_sentence(by, reply, sentence, server, environment, request):
    server.default = lambda _: reply
    with pytest.raises(LLMUnavailable, match=sentence) as told:
        ask(request.getfixturevalue(by))
    assert server.requests[-1].headers["accept-encoding"] == "identity"
    assert "\n" not in str(told.value) and str(told.value).endswith(".") and LOCAL not in str(told.value)
    assert costs(environment)[-1]["error"] == str(told.value)
