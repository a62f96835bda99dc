"""Define requests and refusals of the HTTP face, which FastAPI checks and documents in `/openapi.json`.

A request comes from the query string or a JSON body. An unknown parameter is an error, so that misspelt names are seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nugget.app import logs
from nugget.app.brains import source_names
from nugget.app.logs import MAX_CHARS, MAX_INCIDENTS, MAX_LINES, MAX_WINDOW
from nugget.models import Depth, Filter, Query, SourceName
from nugget.models.nuggets import TYPES
from nugget.render.json import without_secrets

MAX_QUESTION_CHARS = 8_000
SESSION_ID = r"^[A-Za-z0-9_](?:\.?[A-Za-z0-9_@:-])*\.?$"

_DEFAULTS = logs.BundleOptions()


def _split(value: Any) -> Any:
    """Split comma-separated names."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(part, str) for part in values):
        return value
    return [name.strip() for part in values for name in part.split(",") if name.strip()]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


Words = Annotated[str, Field(max_length=MAX_QUESTION_CHARS), AfterValidator(_no_nul)]
Names = Annotated[list[Annotated[str, Field(max_length=200)]], BeforeValidator(_split), Field(max_length=50)]
Intent = Literal["debug", "what-changed", "resume", "status", "general"]


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request's headers."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() or None if scheme.lower() == "bearer" else None


class Parameters(BaseModel):
    """Base of all requests."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        """Drop empty parameters, such as `name=` in a query string."""
        return {name: value for name, value in given.items() if value != ""} if isinstance(given, dict) else given


class SearchRequest(Parameters):
    """Parameters of `nugget search`."""

    q: Annotated[Words, AfterValidator(_not_blank)] = Field(description="The question, or the words to look for")
    limit: int | None = Field(default=None, ge=1, le=200, description="Maximum number of results")
    offset: int = Field(default=0, ge=0, le=1000, description="Number of results to skip, for further pages")
    types: Names = Field(default=[], description=f"Only these types: {', '.join(TYPES)}")
    domains: Names = Field(default=[], description="Only these domains and those below them")
    tags: Names = Field(default=[], description="Only units with all these tags")
    since: date | None = Field(default=None, description="Only what was created or changed since (YYYY-MM-DD)")
    sources: Names = Field(default=[], description=f"Only these sources: {', '.join(SourceName)}")
    explain: bool = Field(default=False, description="Explain each score")

    def query(self, identity: str | None) -> Query:
        """Return the query of the request, which may search the memory of this identity."""
        filter_ = Filter(
            sources=source_names(self.sources), types=tuple(self.types), domains=tuple(self.domains),
            tags=tuple(self.tags), since=self.since,
        )  # fmt: skip
        return Query(
            self.q, filter=filter_, limit=self.limit, offset=self.offset, identity=identity, explain=self.explain
        )


class AskRequest(SearchRequest):
    """Parameters of `nugget ask`."""

    budget: int | None = Field(default=None, ge=100, le=100_000, description="Maximum tokens in the answer")
    depth: Depth = Field(default=Depth.STANDARD, description="How much of each unit")
    no_llm: bool = Field(default=False, description="Only passages, even with an API key")

    def query(self, identity: str | None) -> Query:
        """Return the query of the request, which may search the memory of this identity."""
        return replace(super().query(identity), budget_tokens=self.budget, depth=self.depth)


class SessionRequest(Parameters):
    """A new shell session."""

    title: str = Field(default="", max_length=500, description="A title for the session")


class LogsContextRequest(Parameters):
    """Parameters of a question about the logs of a session."""

    q: Words = Field(default="", description="The question; without one, an overview")
    intent: Intent | None = Field(default=None, description="The profile; by default, detected from the question")
    explain: bool = Field(default=False, description="Add counts, caps and weights")
    max_chars: int = Field(default=_DEFAULTS.max_chars, ge=0, le=MAX_CHARS, description="Length of context_text")
    max_lines: int = Field(default=_DEFAULTS.max_lines, ge=0, le=MAX_LINES, description="Lines of context_text")
    include_artifacts: bool = Field(default=True, description="Include blockers, edits, todos and decisions")
    output_window: int = Field(
        default=_DEFAULTS.output_window, ge=0, le=MAX_WINDOW, description="Latest lines of each stream to read"
    )
    max_incidents: int = Field(default=_DEFAULTS.max_incidents, ge=0, le=MAX_INCIDENTS, description="Incidents")

    def options(self) -> logs.BundleOptions:
        """Return the options of the bundle."""
        return logs.BundleOptions(**self.model_dump(exclude={"q"}))


class CompletionRequest(Parameters):
    """A call of the Messages API with options for the added evidence; other fields are passed on."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]] = Field(default=[], max_length=10_000, description="As in the Messages API")
    prompt: str = Field(default="", description="One message of the user, instead of `messages`")
    system: str | list[dict[str, Any]] | None = Field(default=None, description="The system text of the call")
    model: str | None = Field(default=None, max_length=200, description="The model; `llm.answer_model` by default")
    max_tokens: int = Field(default=4096, ge=1, le=200_000)
    stream: bool = Field(default=False, description="true: server-sent events, passed on as they come")
    session_id: str | None = Field(
        default=None, max_length=128, pattern=SESSION_ID, description="The session whose logs are read"
    )
    context_mode: Literal["off", "diagnostic", "always", "llm-select"] = Field(
        default="diagnostic",
        description="When evidence is added: never; if the last message asks what went wrong; always; always, and a "
        "model selects it from the whole history. Never without session_id",
    )
    context_intent: Intent | None = Field(default=None, description="The profile; detected from the message by default")
    context_max_lines: int = Field(default=_DEFAULTS.max_lines, ge=0, le=MAX_LINES)
    context_max_chars: int = Field(default=_DEFAULTS.max_chars, ge=0, le=MAX_CHARS)
    context_output_window: int = Field(default=_DEFAULTS.output_window, ge=0, le=MAX_WINDOW)
    context_max_incidents: int = Field(default=_DEFAULTS.max_incidents, ge=0, le=MAX_INCIDENTS)
    context_include_artifacts: bool = True
    context_explain: bool = Field(default=False, description="Add the evidence and its reasons to a plain reply")
    context_selector_chunk_tokens: int = Field(default=128_000, ge=logs.LEAST_CHUNK_TOKENS, le=logs.MOST_CHUNK_TOKENS)
    context_selector_max_chunks: int = Field(default=16, ge=1, le=logs.MOST_CHUNKS)
    context_selector_include_events: bool = True
    context_selector_model: str | None = Field(default=None, max_length=200)

    def options(self) -> logs.BundleOptions:
        """Return the options of the bundle."""
        given = self.model_dump(exclude={"context_mode"})
        named = {name.removeprefix("context_"): value for name, value in given.items() if name.startswith("context_")}
        return logs.BundleOptions(**{name.removeprefix("selector_"): value for name, value in named.items()})

    def call(self, model: str, *, added: str) -> dict[str, Any]:
        """Return the body of the API call, by default to `model`, with `added` at the end of its system text.

        System messages become system text, as the API requires. Raises Refusal without a message.
        """
        messages = [message for message in self.messages if message.get("role") != "system"]
        if self.prompt:
            messages.append({"role": "user", "content": self.prompt})
        if not messages:
            raise Refusal(422, "missing_parameter", "There is no message.", hint="Send `messages`, or a `prompt`.")
        system = [{"type": "text", "text": self.system}] if isinstance(self.system, str) else [*(self.system or ())]
        texts = [_text_of(message.get("content")) for message in self.messages if message.get("role") == "system"]
        system += [{"type": "text", "text": text} for text in (*texts, added) if text]
        own = self.model_dump(exclude_none=True, exclude={"session_id", "prompt", "system"})
        own = {name: value for name, value in own.items() if not name.startswith("context_")}
        call = {**own, "model": self.model or model, "messages": messages}
        return {**call, "system": system} if system else call

    def question(self) -> str:
        """Return the text of the user's last message."""
        from_user = [message for message in self.messages if message.get("role") == "user"]
        return self.prompt or (_text_of(from_user[-1].get("content")) if from_user else "")


def _text_of(content: object) -> str:
    """Return the text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


Error = dict[Literal["error"], dict[Literal["code", "message", "hint"], str | None]]
"""The body of every reply with status 400 or above."""


def json_reply(content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON document as UTF-8, with `?` for half of a surrogate pair."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(text, status_code, headers, media_type="application/json")


class Refusal(HTTPException):
    """A refused request: its status, a code, and a sentence with the reason."""

    def __init__(
        self, status: int, code: str, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.error = {"code": code, "message": message, "hint": hint}

    def reply(self) -> Response:
        """Return the refusal as a response."""
        return json_reply({"error": without_secrets(self.error)}, self.status_code, self.headers)


_RENAMED = {"max_completion_tokens": "max_tokens", "stop": "stop_sequences"}
_LEFT_OUT = ("frequency_penalty", "logprobs", "n", "presence_penalty", "seed", "store", "stream_options", "user")
_FINISH = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def from_openai(given: Any) -> Any:
    """Rename the fields of a call in OpenAI's form to those of the Messages API."""
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


ChatRequest = Annotated[CompletionRequest, BeforeValidator(from_openai)]
"""A call in OpenAI's form, with the same fields for evidence."""


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
    """Yield the events of a streamed reply in OpenAI's form."""
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
