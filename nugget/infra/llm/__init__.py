"""The one gateway to models: Claude through the anthropic SDK here, the `claude` command and OpenAI's API in `others`.

Every call is redacted before it leaves, limited in time and cost, and written to the cost ledger. Every failure is
LLMUnavailable with one clear sentence.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.config import Environment, Settings
from nugget.errors import LLMUnavailable
from nugget.infra import http_client
from nugget.infra.llm.gate import (
    BadReply,
    CostCapReached,
    Model,
    ModelCall,
    Reply,
    Request,
    object_schema,
    price_of,
    refuse_refusal,
    spending,
)
from nugget.infra.llm.others import INSIDE, ClaudeCli, OpenAI
from nugget.redaction import allow_list
from nugget.text import map_texts

if TYPE_CHECKING:
    import anthropic

__all__ = [
    "LLM", "BadReply", "CostCapReached", "DailyBudget", "Model", "Reply", "Request",
    "object_schema", "open_extractor", "open_llm", "prompt_text", "spending",
]  # fmt: skip

_MAX_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_CONTROL = dict.fromkeys([*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)])
_EXACT = frozenset(
    {"id", "tool_use_id", "signature", "data", "type", "name", "role", "media_type", "cache_control", "thinking"}
)
"""Fields that the API compares or decodes, so that redaction must not change them."""
_NAMED = ("model", "max_tokens", "messages", "stream")
"""Arguments that the SDK takes by name."""
_HEADERS = ("content-type", "retry-after", "request-id")


class DailyBudget:
    """A limit in USD on the calls of one face from midnight to midnight UTC. Thread-safe.

    The amount spent is read from the cost ledger, so it survives a restart. A call under way counts with its largest
    possible cost; calls of other processes count once they are done.
    """

    def __init__(self, home: Path, *, max_usd: float, face: str) -> None:
        self.face = face
        self._home = home
        self._max_usd = max_usd
        self._lock = threading.Lock()
        self._under_way_usd = 0.0

    def hold(self, usd: float) -> None:
        """Reserve `usd` for a call. Raises CostCapReached with the time until the next day."""
        now = datetime.now(UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        with self._lock:
            spent = spending(self._home, since=midnight, face=self.face)[1] + self._under_way_usd
            if spent + usd > self._max_usd:
                error = CostCapReached(
                    f"This call could cost ${usd:.4f}, and ${spent:.4f} of the ${self._max_usd:.2f} a day is spent.",
                    hint="Try again after midnight UTC, or raise `http.max_usd_per_day`.",
                )
                error.retry_after_s = int((midnight + timedelta(days=1) - now).total_seconds()) + 1
                raise error
            self._under_way_usd += usd

    def release(self, usd: float) -> None:
        """Release the amount reserved for a call once it is in the ledger."""
        with self._lock:
            self._under_way_usd -= usd


def prompt_text(module_file: str, name: str, **values: object) -> str:
    """Return the text of a prompt in the folder `prompts` beside a module, with its `{{places}}` filled in."""
    text = (Path(module_file).with_name("prompts") / f"{name}.md").read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"{{{{{key}}}}}", str(value))
    return text


def open_llm(settings: Settings, environment: Environment, *, budget: DailyBudget | None = None) -> LLM | None:
    """Return the configured LLM, or None without a key or if `llm.enabled` is false. Imports nothing heavy yet."""
    if not settings.llm_enabled or not environment.anthropic_api_key:
        return None
    return LLM(
        api_key=environment.anthropic_api_key, base_url=environment.variables.get("ANTHROPIC_BASE_URL"),
        home=environment.home, allow=allow_list(settings), budget=budget,
    )  # fmt: skip


def open_extractor(settings: Settings, environment: Environment, way: str | None = None) -> Model | None:
    """Return the model that finds knowledge in sessions; None for offline extraction.

    `way` is a value of `extraction.with`, by default the configured one; `generative` is `auto`, but needs a model.
    Raises LLMUnavailable if the requested model is unavailable.
    """
    variables, found = environment.variables, None
    way = way or (settings.extraction_with if settings.llm_enabled else "offline")
    if way != "offline" and not settings.llm_enabled:
        raise LLMUnavailable("LLM calls are switched off.", hint="Set `llm.enabled: true`.")
    is_agreed = settings.extraction_use_claude and not variables.get(INSIDE)
    is_there = is_agreed and shutil.which("claude", path=variables.get("PATH")) is not None
    if way == "claude-code" or (way in ("auto", "generative") and is_there):
        return ClaudeCli(home=environment.home, variables=variables, allow=allow_list(settings))
    if way == "openai" or (way != "offline" and settings.llm_api == "openai"):
        return OpenAI(settings, home=environment.home, variables=variables, allow=allow_list(settings))
    if way != "offline":
        found = open_llm(settings, environment)
    if found is None and way in ("api", "generative"):
        hint = "Set ANTHROPIC_API_KEY, or `nugget config set extraction.with claude-code` (or openai, or offline)."
        raise LLMUnavailable("There is no key for a model that could find knowledge.", hint=hint)
    return found


class LLM(Model):
    """Claude over the API, for structured values or streamed text. Thread-safe; imports the SDK on first use."""

    name = "The Anthropic API"
    key_hint = "Check ANTHROPIC_API_KEY."

    def __init__(
        self, *, api_key: str, base_url: str | None, home: Path, allow: Sequence[re.Pattern[str]] = (),
        budget: DailyBudget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(home=home, allow=allow, secret=api_key.strip(), budget=budget)
        self._base_url = base_url or "https://api.anthropic.com"

    def stream(self, request: Request) -> Generator[str]:
        """Ask for text and yield it as it comes, without control characters.

        Raises LLMUnavailable, also in the middle of the text.
        """
        call = ModelCall(request=request, body=self._body(request), price=self.price(request.model))
        with self._recorded(call):
            with self._client(call) as client, client.messages.create(**call.body, stream=True) as events:
                for event in events:
                    call.left_s()
                    _note(event.to_dict(warnings=False), call)
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        yield event.delta.text.translate(_CONTROL)
            refuse_refusal(call)
            if call.stop_reason == "max_tokens":
                yield " […]"
            _require_end(call)

    def forward(
        self, body: Mapping[str, Any], *, purpose: str, timeout_s: float, max_usd: float, session: str | None = None
    ) -> Generator[tuple[int, Mapping[str, str]] | bytes]:
        """Forward a caller's own call (the API's JSON body); yield status and headers, then the reply as it comes.

        An error of the API comes back the same way, with its status. Nothing is retried.
        Raises LLMUnavailable if the reply is incomplete, and before a call that could exceed `max_usd`.
        """
        import anthropic

        sent = map_texts(dict(body), self._clean, exact=_EXACT)
        request = Request(
            purpose=purpose, model=sent["model"], max_tokens=sent["max_tokens"], timeout_s=timeout_s, max_usd=max_usd,
            session=session,
        )  # fmt: skip
        call = ModelCall(request=request, body=sent, price=self.price(request.model))
        named = {name: sent[name] for name in _NAMED if name in sent}
        more = {name: value for name, value in sent.items() if name not in _NAMED}
        with self._recorded(call), self._client(call, retries=0) as client:
            try:
                with client.messages.with_streaming_response.create(**named, extra_body=more) as response:
                    yield response.status_code, _kept(response.headers)
                    chunks = response.iter_bytes()
                    yield from _streamed(chunks, call) if body.get("stream") else _whole(chunks, call)
            except anthropic.APIStatusError as error:
                call.free = True
                call.error = f"HTTP {error.status_code}"
                yield error.status_code, _kept(error.response.headers)
                yield self._scrub(error.response.text).encode()

    def _body(self, request: Request, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
        output: dict[str, Any] = {}
        if schema is not None:
            import anthropic

            output["format"] = {"type": "json_schema", "schema": anthropic.transform_schema(dict(schema))}
        if request.effort and (price := price_of(request.model)) and price.effort:
            output["effort"] = request.effort
        system = {"type": "text", "text": self._clean(request.system), "cache_control": {"type": "ephemeral"}}
        return {
            "model": request.model, "max_tokens": request.max_tokens, "system": [system],
            "messages": [{"role": "user", "content": self._clean(request.prompt)}],
            **({"output_config": output} if output else {}),
        }  # fmt: skip

    def _complete(self, call: ModelCall, schema: Mapping[str, Any]) -> str:
        with self._client(call) as client:
            message = client.messages.create(**call.body)
        _note(message.to_dict(warnings=False), call)
        return "".join(getattr(block, "text", "") for block in message.content)

    def _client(self, call: ModelCall, *, retries: int = _MAX_RETRIES) -> anthropic.Anthropic:
        """Open a client whose attempts and waits together stay within the call's deadline.

        The SDK's own timeout starts again with each attempt, and it obeys a retry-after of any length.
        """
        if not self._secret.isascii() or not self._secret.isprintable():
            raise LLMUnavailable("ANTHROPIC_API_KEY has characters that no key has.", hint="Copy it again.")
        import anthropic
        import httpx2

        def attempt(request: Any, call_next: Callable[[Any], Any]) -> Any:
            left_s = call.left_s()
            response = call_next(request.copy(timeout=httpx2.Timeout(left_s, connect=min(left_s, _CONNECT_TIMEOUT_S))))
            response.headers.pop("retry-after-ms", None)
            wait = response.headers.get("retry-after", "0")
            if response.status_code >= 400 and not (
                re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", wait) and float(wait) < call.left_s()
            ):
                response.headers["x-should-retry"] = "false"
            return response

        def bound(response: httpx2.Response) -> None:
            parts = http_client.bounded(response.stream, until=call.until)  # type: ignore[arg-type]
            response.headers.pop("content-encoding", None)
            response.stream = httpx2.Response(200, content=parts).stream

        # A redirect would take the key along.
        sender = anthropic.DefaultHttpxClient(
            follow_redirects=False, headers=http_client.NOT_PACKED, event_hooks={"response": [bound]}
        )
        return anthropic.Anthropic(
            api_key=self._secret, base_url=self._base_url, max_retries=retries, http_client=sender, middleware=[attempt]
        )


def _note(data: Mapping[str, Any], call: ModelCall) -> None:
    """Record the token counts and the stop reason of a message, or of an event of a streamed one."""
    message, delta = data.get("message"), data.get("delta")
    for part in (data, message):
        if isinstance(part, Mapping):
            call.note_usage(part.get("usage"))
    ended = delta if isinstance(delta, Mapping) else data
    call.stop_reason = str(ended.get("stop_reason") or call.stop_reason)


def _require_end(call: ModelCall) -> None:
    if not call.stop_reason and call.error is None:
        raise LLMUnavailable(f"The connection to {call.request.model} was cut before its answer was complete.")


def _whole(chunks: Iterator[bytes], call: ModelCall) -> Iterator[bytes]:
    """Yield a plain reply in one piece, and note its usage."""
    body = b"".join(chunks)
    if isinstance(message := json.loads(body), dict):
        _note(message, call)
    yield body


def _streamed(chunks: Iterator[bytes], call: ModelCall) -> Iterator[bytes]:
    """Yield the events byte for byte as they come, and note the usage in them."""
    rest = b""
    for chunk in chunks:
        call.left_s()
        yield chunk
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line[5:]) if line.startswith(b"data:") else None
                if isinstance(event, dict):
                    _note(event, call)
                    if event.get("type") == "error":
                        call.error = "The Anthropic API broke off the answer."
    _require_end(call)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _HEADERS if name in headers}
