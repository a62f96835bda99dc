"""Servers with OpenAI's API, over HTTP against a scripted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llm_calls import MODEL, TOKEN, ask, costs
from loopback_anthropic import AnthropicServer, Message, Raw, status, value

from nugget.config import Environment, LLMSettings, Settings, read_environment
from nugget.errors import LLMUnavailable
from nugget.infra.llm import Model, open_extractor
from nugget.infra.llm.others import OpenAI

KEY = "sk-local-" + "Qv7Tn2Lw9Xc4" * 3


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return read_environment({"HOME": str(tmp_path), "LOCAL_KEY": KEY})


def opened(url: str | None, environment: Environment, **changed: Any) -> Model:
    llm = LLMSettings(api="openai", base_url=url, api_key_env="LOCAL_KEY", **changed)
    found = open_extractor(Settings(llm=llm), environment)
    assert isinstance(found, OpenAI)
    return found


@pytest.fixture
def model(server: AnthropicServer, environment: Environment) -> Model:
    return opened(f"{server.url}/v1", environment)


@pytest.mark.proves("LLM-OPENAI")
def test_a_structured_reply_comes_back_and_its_tokens_are_in_the_ledger(
    model: Model, server: AnthropicServer, environment: Environment
) -> None:
    server.script(value({"count": 3}))
    reply = ask(model, prompt=f"how many? {TOKEN} <private>diary</private>")
    assert (reply.value, reply.usd) == ({"count": 3}, 0.0)
    [request] = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    assert "how many?" in request.prompt and TOKEN not in request.prompt and "diary" not in request.prompt
    sent = request.body["response_format"]["json_schema"]["schema"]
    assert sent["required"] == ["count"] and "minimum" not in sent["properties"]["count"]
    assert (request.body["model"], request.body["max_tokens"]) == (MODEL, 300)
    [line] = costs(environment)
    assert (line["input_tokens"], line["output_tokens"], line["usd"], line["ok"]) == (1000, 200, 0.0, True)


@pytest.mark.proves("LLM-SENTENCE", "LLM-KEY", "LLM-REDIRECT")
@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (status(401, message=KEY), r"The server at 127.0.0.1 refused the key \(HTTP 401\)\."),
        (status(400, message=f"context\nof {KEY}"), r"HTTP 400\): context of \[key\]\."),
        (Raw(chunks=(b'{"message": "too long", "object": "error"}',), status=400), r"HTTP 400\): too long\."),
        (status(307, headers={"location": "http://127.0.0.1:9/v1"}), r"redirects \(HTTP 307\)"),
        (Raw(chunks=(b"[" * 100_000,)), r"could not be read"),
        (Message(content=[], stop_reason="refusal"), r"declined to answer"),
    ],
)
def test_every_failure_is_told_in_one_sentence(
    reply: Any, sentence: str, model: Model, server: AnthropicServer, environment: Environment
) -> None:
    server.default = lambda request: reply
    with pytest.raises(LLMUnavailable, match=sentence) as told:
        ask(model)
    assert "\n" not in str(told.value) and str(told.value).endswith(".") and KEY not in str(told.value)
    assert costs(environment)[-1]["error"] == str(told.value)
