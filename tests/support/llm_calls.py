"""A call for a count, as every way to a model takes it, and the ledger in which it is listed."""

import json
from typing import Any

from nugget.config import Environment
from nugget.infra.llm import Model, Reply, Request

TOKEN = "ghp_" + "vK8wQ2nR5tY7mB3xL9cD4fG6hJ1pS0zA8eUi"
MODEL = "claude-haiku-5-5"
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["count"],
    "properties": {"count": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}}},
}  # fmt: skip


def ask(llm: Model, **changed: Any) -> Reply:
    asked: dict[str, Any] = {
        "purpose": "test", "model": MODEL, "system": "Count.", "prompt": "how many?", "max_tokens": 300,
        "timeout_s": 60.0, "max_usd": 1.0,
    }  # fmt: skip
    return llm.structured(Request(**{**asked, **changed}), SCHEMA)


def costs(environment: Environment) -> list[dict[str, Any]]:
    ledger = environment.home / "ledger" / "costs.jsonl"
    return [json.loads(line) for line in ledger.read_text("utf-8").splitlines()]
