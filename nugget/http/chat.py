"""`/v1/chat/completions`: calls of `/v1/completions` in OpenAI's form, for clients that speak no other.

Format: platform.openai.com/docs/api-reference/chat. Texts only; what has no counterpart (`n`, penalties) is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from pydantic import model_validator

from nugget.http.models import CompletionRequest

_RENAMED = {"max_completion_tokens": "max_tokens", "stop": "stop_sequences"}
_LEFT_OUT = ("frequency_penalty", "logprobs", "n", "presence_penalty", "seed", "store", "stream_options", "user")
_FINISH = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


class ChatRequest(CompletionRequest):
    """A call in OpenAI's form, with the same fields for evidence."""

    @model_validator(mode="before")
    @classmethod
    def from_openai(cls, given: Any) -> Any:
        """Return the fields by the names of the Messages API."""
        if not isinstance(given, dict):
            return given
        fields = {_RENAMED.get(name, name): value for name, value in given.items() if name not in _LEFT_OUT}
        if isinstance(fields.get("stop_sequences"), str):
            fields["stop_sequences"] = [fields["stop_sequences"]]
        if isinstance(fields.get("messages"), list):
            fields["messages"] = [
                one | {"role": "system"} if isinstance(one, dict) and one.get("role") == "developer" else one
                for one in fields["messages"]
            ]
        return fields


def completion(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a whole reply of the Messages API in OpenAI's form."""
    text = "".join(block.get("text", "") for block in reply["content"])
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply.get("stop_reason")), "logprobs": None}
    sent, made = (int(reply.get("usage", {}).get(name) or 0) for name in ("input_tokens", "output_tokens"))
    usage = {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}
    known = {name: reply[name] for name in ("context",) if name in reply}
    return _head(reply, "chat.completion") | {"choices": [choice], "usage": usage} | known


async def chunks(parts: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """Yield the events of a streamed reply in OpenAI's form, as they come."""
    head, rest = {}, b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for event in (json.loads(line[5:]) for line in lines if line.startswith(b"data:")):
            delta = event.get("delta", {})
            if event["type"] == "message_start":
                head = _head(event["message"], "chat.completion.chunk")
                yield _chunk(head, {"role": "assistant", "content": ""})
            elif event["type"] == "content_block_delta" and "text" in delta:
                yield _chunk(head, {"content": delta["text"]})
            elif event["type"] == "message_delta" and delta.get("stop_reason"):
                yield _chunk(head, {}, _finish(delta["stop_reason"]))
            elif event["type"] == "error":
                yield b"data: " + json.dumps({"error": event["error"]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _head(reply: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": reply.get("id"), "object": kind, "created": int(time.time()), "model": reply.get("model")}


def _chunk(head: dict[str, Any], delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**head, "choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


def _finish(reason: str | None) -> str:
    return _FINISH.get(reason or "", "stop")
