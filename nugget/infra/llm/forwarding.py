"""Forwarding a caller's own call to the Messages API: its request, and its reply as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra.llm.call import Call, error_type, note_event

_EXACT = frozenset(
    {"id", "tool_use_id", "signature", "data", "type", "name", "role", "media_type", "cache_control", "thinking"}
)
"""What the API compares or decodes, and what therefore has to stay as it is."""
_HEADERS = ("content-type", "retry-after", "request-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of the API's reply: its status, and those of its headers that mean something to the caller."""

    status: int
    headers: Mapping[str, str]


def arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as arguments of the SDK, which goes before the API: what it does not name goes into the body."""
    request = {name: value for name, value in request.items() if name != "system" or value}
    named = {"model", "max_tokens", "messages", "system", "stream"}
    extra = {name: value for name, value in request.items() if name not in named}
    return {**{name: value for name, value in request.items() if name in named}, "extra_body": extra or None}


def whole(chunks: Iterator[bytes], call: Call) -> Iterator[bytes]:
    """A plain reply, in one piece, so that its usage can be counted."""
    body = b"".join(chunks)
    message = json.loads(body)
    if isinstance(message, dict):
        call.note_usage(message.get("usage"))
        call.stop_reason = str(message.get("stop_reason") or "")
    yield body


def streamed(chunks: Iterator[bytes], call: Call) -> Iterator[bytes]:
    """The events as they come, byte for byte; what they say of usage is noted on the way."""
    rest = b""
    for chunk in chunks:
        yield chunk
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (b'"usage"' in line or b'"error"' in line):
                event = _event(line[5:])
                note_event(event, call)
                if event.get("type") == "error":
                    call.error = f"The Anthropic API broke off the answer ({error_type(event)})."
    if not call.stop_reason and call.error is None:
        raise LLMUnavailable(f"The connection to {call.model} was cut before its answer was complete.")


def _event(text: bytes) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a reply that are passed on."""
    return {name: headers[name] for name in _HEADERS if name in headers}


def cleaned_strings(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with `clean` applied to every text in it but those that have to stay exact."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned_strings(part, clean) for part in value]
    if isinstance(value, dict):
        return {name: part if name in _EXACT else cleaned_strings(part, clean) for name, part in value.items()}
    return value
