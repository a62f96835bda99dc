"""Evidence chosen by a model over the whole history, against a scripted API on loopback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from logs import NOW, Logs
from loopback_anthropic import AnthropicServer, status, value

from nugget.config import LLMSettings, Settings
from nugget.evidence import BundleOptions
from nugget.evidence.selection import SelectorOptions, select_with_llm
from nugget.infra.llm import LLM


@pytest.fixture
def logs(logs: Logs) -> Logs:
    for number in range(400):
        logs.run("s", number * 10, f"step {number} --of-many", int(number == 17), stdout=f"step {number} is done")
    logs.write("s", "stdin.log", "step 399 --of-many\n")
    logs.write("s", "stderr.log", "warning: the very last word\n")
    logs.ingest("s")
    return logs


def choose(logs: Logs, server: AnthropicServer, settings: Settings = Settings(), **options: Any) -> dict[str, Any]:  # noqa: B008
    llm = LLM(api_key="sk-ant-loopback", base_url=server.url, home=logs.home)
    bundle_options = BundleOptions(max_chars=options.pop("max_chars", 12_000), max_lines=options.pop("max_lines", 120))
    return select_with_llm(
        logs.index, "s", "why did step 17 fail?", llm=llm, settings=settings, options=bundle_options,
        selector=SelectorOptions(**options), now=NOW,
    )  # fmt: skip


def label_of(prompt: str, text: str) -> str:
    return next(line.split(" ", 1)[0] for line in prompt.split("\n") if text in line)


@pytest.mark.proves("EVI-SELECT")
def test_what_the_model_names_is_looked_up_and_the_latest_streams_are_carried(logs: Logs) -> None:
    with AnthropicServer() as server:
        server.script(value({"labels": ["e99999", "nonsense"]}))
        choose(logs, server)
        wanted = label_of(server.requests[0].prompt, "exit 1 failed] step 17 ")
        server.script(value({"labels": [wanted, "<made up>"]}))
        found = choose(logs, server)
    assert "[command.end exit 1 failed] step 17 --of-many" in found["context_text"]
    assert "made up" not in found["context_text"] and len(found["source_ids"]) == 1
    for carried in (
        "latest stderr:",
        "warning: the very last word",
        "latest stdout:",
        "step 399 is done",
        "latest stdin:",
    ):
        assert carried in found["context_text"]
    assert found["chunks"] == 1 and found["usd"] > 0 and not found["degraded"]
    assert "why did step 17 fail?" in server.requests[0].prompt


@pytest.mark.proves("EVI-SELECT")
def test_a_cap_on_cost_and_a_failing_model_leave_an_answer_that_says_so(logs: Logs) -> None:
    with AnthropicServer() as server:
        server.default = lambda _: status(400)
        found = choose(logs, server)
        assert found["chunks"] == 0 and found["degraded"][0].startswith("llm_select: ")
        assert "step 17 --of-many" in found["context_text"]
        asked = len(server.requests)
        cheap = replace(Settings(), llm=LLMSettings(select_max_usd=0.0))
        found = choose(logs, server, cheap)
        assert len(server.requests) == asked and "more than the $0.0000 allowed" in found["degraded"][0]
        ledger = (logs.home / "ledger" / "costs.jsonl").read_text("utf-8")
    assert "select evidence" in ledger


@pytest.mark.proves("EVI-SELECT", "EVI-REDACT")
def test_no_secret_goes_to_the_model(logs: Logs) -> None:
    logs.run("s", 99_999, "curl -H 'Authorization: Bearer ghp_" + "a1B2c3D4e5" * 3 + "abcdef'", 1)
    logs.ingest("s")
    with AnthropicServer() as server:
        server.default = lambda _: value({"labels": []})
        choose(logs, server)
        assert "a1B2c3D4e5" not in server.requests[0].prompt


@pytest.mark.proves("EVI-SELECT")
def test_history_is_cut_into_chunks_of_which_the_latest_are_read(logs: Logs) -> None:
    with AnthropicServer() as server:
        server.default = lambda _: value({"labels": ["e1"]})
        found = choose(logs, server, chunk_tokens=800, max_chunks=3, include_events=False)
        prompts = [request.prompt for request in server.requests]
    assert found["chunks"] == len(prompts) == 3 and found["left_out"]
    assert "history_cut" in found["degraded"]
    assert all(len(prompt) < 800 * 4 + 1000 for prompt in prompts)
    assert "step 399 is done" in prompts[-1] and "step 0 is done" not in prompts[0]
    assert not any("command.end" in prompt for prompt in prompts)
