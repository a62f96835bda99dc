"""One call to the Messages API while it is under way: its deadline, its tokens, its cost, the reading of its reply."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra.llm.prices import cost_usd, estimate_cost_usd, price_of

_MAX_REPLY_BYTES = 16_000_000
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_ALWAYS_COUNTED = {"input_tokens", "output_tokens"}
_MOST_TOKENS = 1_000_000_000
"""No call reads or writes more; a larger count says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A structured reply. `usd` is what it cost, an upper estimate where the model's price is unknown."""

    value: dict[str, Any]
    usd: float
    input_tokens: int
    output_tokens: int
    stop_reason: str


@dataclass(slots=True, kw_only=True)
class Call:
    """One call while it is under way, and what it came to."""

    purpose: str
    model: str
    timeout_s: float
    request: dict[str, Any]
    session: str | None = None
    started: float = field(default_factory=time.monotonic)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_USAGE, 0))
    stop_reason: str = ""
    error: str | None = None
    sent: bool = True
    refused: bool = False
    usd_told: float | None = None
    counted: set[str] = field(default_factory=set)

    def left_s(self) -> float:
        """Seconds until the deadline. Raises TimeoutError behind it."""
        left = self.started + self.timeout_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def note_usage(self, usage: object) -> None:
        """Take over the token counts of a reply, as far as they are counts."""
        if not isinstance(usage, Mapping):
            return
        for name in _USAGE:
            count = usage.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST_TOKENS:
                self.tokens[name] = count
                self.counted.add(name)

    @property
    def prompt_tokens(self) -> int:
        """Tokens read, cached or not."""
        return sum(self.tokens.values()) - self.tokens["output_tokens"]

    @property
    def usd_at_most(self) -> float:
        """The most that the call can cost, estimated from its text before it is sent."""
        sent = json.dumps(
            [self.request["system"], self.request["messages"], self.request.get("output_config")], ensure_ascii=False
        )
        return estimate_cost_usd(self.model, sent, max_output_tokens=self.request["max_tokens"])

    def reply(self, value: dict[str, Any]) -> Reply:
        """The reply that this call came to."""
        return Reply(
            value=value,
            usd=self.usd_counted,
            input_tokens=self.prompt_tokens,
            output_tokens=self.tokens["output_tokens"],
            stop_reason=self.stop_reason,
        )

    @property
    def usd(self) -> float | None:
        """Return what the call cost; None if unknown: no list price, or no complete reply."""
        if not self.sent or self.refused:
            return 0.0
        if self.usd_told is not None:
            return round(self.usd_told, 8)
        return round(cost_usd(self.model, self.tokens), 8) if self._is_counted and price_of(self.model) else None

    @property
    def usd_counted(self) -> float:
        """Return what the call counts for against caps: an upper estimate if its cost is unknown."""
        if self.usd is not None:
            return self.usd
        return round(cost_usd(self.model, self.tokens) if self._is_counted else self.usd_at_most, 8)

    @property
    def _is_counted(self) -> bool:
        """Return whether the reply came to its end and told its tokens, both read and written."""
        return bool(self.stop_reason) and self.counted >= _ALWAYS_COUNTED


def read_message(chunks: Iterator[bytes], call: Call) -> dict[str, Any]:
    """Read a plain reply. Raises ValueError if it is not a JSON object, TimeoutError after the deadline."""
    message = json.loads(b"".join(watched(chunks, call)))
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message


def read_events(chunks: Iterator[bytes], call: Call) -> Iterator[str]:
    """The text deltas of a streamed reply. Source: platform.claude.com/docs, "Streaming messages"."""
    for line in _lines(watched(chunks, call)):
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        if not isinstance(event, dict):
            continue
        kind, delta = event.get("type"), event.get("delta")
        if kind == "error":
            raise LLMUnavailable(f"The Anthropic API broke off the answer ({error_type(event)}).")
        note_event(event, call)
        if kind == "content_block_delta" and isinstance(delta, dict) and isinstance(delta.get("text"), str):
            yield delta["text"]


def note_event(event: Mapping[str, Any], call: Call) -> None:
    """Take over what an event of a streamed reply says of tokens and of how it ended."""
    kind, delta = event.get("type"), event.get("delta")
    if kind == "message_start" and isinstance(event.get("message"), dict):
        call.note_usage(event["message"].get("usage"))
    if kind == "message_delta" and isinstance(delta, dict):
        call.note_usage(event.get("usage"))
        call.stop_reason = str(delta.get("stop_reason") or call.stop_reason)


def watched(chunks: Iterator[bytes], call: Call) -> Iterator[bytes]:
    """The chunks as they come, until the deadline and up to a size: each could be followed by another for ever."""
    size = 0
    for chunk in chunks:
        call.left_s()
        size += len(chunk)
        if size > _MAX_REPLY_BYTES:
            raise LLMUnavailable(f"The reply of {call.model} is longer than {_MAX_REPLY_BYTES // 1_000_000} MB.")
        yield chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    yield rest


def error_type(event: Mapping[str, Any]) -> str:
    """Return the type of error that an event of a streamed reply reports."""
    error = event.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return kind if isinstance(kind, str) and re.fullmatch(r"[a-z_]{1,40}", kind) else "error"
