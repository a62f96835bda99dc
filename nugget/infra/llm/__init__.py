"""The one gateway to an LLM: Claude, through the anthropic SDK.

Every call is redacted before it leaves, held to a deadline and to a cost cap, and written to the cost ledger,
`$NUGGET_HOME/ledger/costs.jsonl`. Every failure is LLMUnavailable with one clear sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nugget.config import Environment, Settings
from nugget.errors import LLMUnavailable, UsageError
from nugget.infra.llm.call import Call, Reply, read_events, read_message, watched
from nugget.infra.llm.claude_cli import ClaudeCli
from nugget.infra.llm.costs import CostCapReached, DailyBudget, DailyCapReached, Spending, spending
from nugget.infra.llm.forwarding import Head, arguments, cleaned_strings, kept, streamed, whole
from nugget.infra.llm.gate import FENCES, BadReply, Gate, utc_now
from nugget.infra.llm.prices import takes_effort
from nugget.redaction import allow_list
from nugget.text import shorten

if TYPE_CHECKING:
    import anthropic

__all__ = [
    "FENCES", "LLM", "BadReply", "ClaudeCli", "CostCapReached", "DailyBudget", "DailyCapReached", "Head", "Reply",
    "Spending", "open_extractor", "open_llm", "spending",
]  # fmt: skip

_DEFAULT_URL = "https://api.anthropic.com"
_MAX_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AssertionError, RecursionError)
"""What the SDK and its HTTP client raise where a reply is not what they take it for, such as text in a charset of
another kind."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def open_llm(settings: Settings, environment: Environment, *, budget: DailyBudget | None = None) -> LLM | None:
    """Return the LLM of these settings; None without a key or if `llm.enabled` is false. Imports nothing heavy yet."""
    if not settings.llm.enabled or not environment.anthropic_api_key:
        return None
    return LLM(
        api_key=environment.anthropic_api_key,
        base_url=environment.anthropic_base_url,
        home=environment.home,
        allow=allow_list(settings),
        budget=budget,
    )


def open_extractor(settings: Settings, environment: Environment) -> LLM | ClaudeCli | None:
    """The LLM that reads sessions: the API's, or the `claude` command where `llm.extract_with` says so.

    Raises UsageError for a way that does not exist.
    """
    if settings.llm.extract_with == "api":
        return open_llm(settings, environment)
    if settings.llm.extract_with != "claude-code":
        raise UsageError(f"`llm.extract_with` must be api or claude-code, not {settings.llm.extract_with!r}.")
    if not settings.llm.enabled:
        return None
    return ClaudeCli(home=environment.home, variables=environment.variables, allow=allow_list(settings))


class LLM(Gate):
    """Claude, asked for a structured value or for streamed text. Thread-safe; the SDK is imported on first use."""

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None,
        home: Path,
        allow: Sequence[re.Pattern[str]] = (),
        clock: Callable[[], datetime] = utc_now,
        budget: DailyBudget | None = None,
    ) -> None:
        super().__init__(home=home, allow=allow, secret=api_key.strip(), clock=clock, budget=budget)
        self._base_url = base_url or _DEFAULT_URL

    def warm(self) -> None:
        """Import the SDK now (a second or so), without calling anything."""
        import anthropic

        _ = anthropic.Anthropic

    def structured(
        self,
        *,
        purpose: str,
        model: str,
        system: str,
        prompt: str,
        schema: Mapping[str, Any],
        max_tokens: int,
        timeout_s: float,
        max_usd: float,
        effort: str | None = None,
        session: str | None = None,
    ) -> Reply:
        """Ask for a JSON object that follows `schema`, within `timeout_s` seconds and `max_usd`.

        `purpose` and `session` name the call in the ledger. `effort` (`low` to `max`) is left out for models that take
        none.
        Raises BadReply when the reply does not follow the schema (also when it was cut at `max_tokens`), and
        LLMUnavailable for everything else, before the call where its cost could exceed the cap.
        """
        import anthropic

        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": anthropic.transform_schema(dict(schema))}}
        request = self._request(model, system, prompt, max_tokens=max_tokens, output=output, effort=effort)
        call = Call(purpose=purpose, model=model, timeout_s=timeout_s, request=request, session=session)
        with self._recorded(call, max_usd=max_usd):
            with self._client(call) as client, client.messages.with_streaming_response.create(**request) as response:
                message = read_message(response.iter_bytes(), call)
            call.note_usage(message.get("usage"))
            call.stop_reason = str(message.get("stop_reason") or "")
            text = _text_of(message)
            if call.stop_reason == "refusal":
                raise LLMUnavailable(f"{model} declined to answer ({purpose}).")
            value = self._checked(text, schema, call)
        return call.reply(value)

    def stream(
        self,
        *,
        purpose: str,
        model: str,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_s: float,
        max_usd: float = float("inf"),
        effort: str | None = None,
    ) -> Iterator[str]:
        """Ask for text and yield it as it comes, without control characters, which a terminal would obey.

        Raises LLMUnavailable, also in the middle of the text.
        """
        request = self._request(model, system, prompt, max_tokens=max_tokens, output={}, effort=effort)
        call = Call(purpose=purpose, model=model, timeout_s=timeout_s, request=request)
        with self._recorded(call, max_usd=max_usd):
            request["stream"] = True
            with self._client(call) as client, client.messages.with_streaming_response.create(**request) as response:
                for delta in read_events(response.iter_bytes(), call):
                    yield _printable(delta)
            if call.stop_reason == "refusal":
                raise LLMUnavailable(f"{model} declined to answer ({purpose}).")
            if call.stop_reason == "max_tokens":
                yield " […]"
            if not call.stop_reason:
                raise LLMUnavailable(f"The connection to {model} was cut before its answer was complete.")

    def forward(
        self,
        request: Mapping[str, Any],
        *,
        purpose: str,
        timeout_s: float,
        max_usd: float,
        session: str | None = None,
    ) -> Generator[Head | bytes]:
        """Pass a caller's own call (the API's JSON body) on: first a Head, then the body in pieces as they come.

        An error of the API comes back the same way, with its status. Nothing is tried again: that is the caller's
        choice. Raises LLMUnavailable where there is no whole reply, and before a call that could exceed `max_usd`.
        """
        import anthropic

        cleaned = cleaned_strings({"system": [], **request}, self._clean)
        call = Call(purpose=purpose, model=request["model"], timeout_s=timeout_s, request=cleaned, session=session)
        with self._recorded(call, max_usd=max_usd), self._client(call, retries=0) as client:
            try:
                with client.messages.with_streaming_response.create(**arguments(cleaned)) as response:
                    yield Head(status=response.status_code, headers=kept(response.headers))
                    chunks = watched(response.iter_bytes(), call)
                    yield from streamed(chunks, call) if request.get("stream") else whole(chunks, call)
            except anthropic.APIStatusError as error:
                call.refused = True
                call.error = f"HTTP {error.status_code}"
                yield Head(status=error.status_code, headers=kept(error.response.headers))
                yield self._scrub(error.response.text).encode()

    def _request(
        self, model: str, system: str, prompt: str, *, max_tokens: int, output: dict[str, Any], effort: str | None
    ) -> dict[str, Any]:
        if effort and takes_effort(model):
            output = {**output, "effort": effort}
        request: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "system": [{"type": "text", "text": self._clean(system), "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": self._clean(prompt)}],
        }
        return {**request, "output_config": output} if output else request

    def _client(self, call: Call, *, retries: int = _MAX_RETRIES) -> anthropic.Anthropic:
        """A client whose attempts and waits together stay within the call's deadline; it closes with the call.

        The SDK's own timeout starts again with each attempt and obeys a retry-after of any length.
        """
        if not self._secret.isascii() or not self._secret.isprintable():
            raise LLMUnavailable(
                "ANTHROPIC_API_KEY holds characters that no key has.", hint="Copy the key again, on one line."
            )
        if _host(self._base_url) is None:
            raise LLMUnavailable("ANTHROPIC_BASE_URL is no http:// or https:// address.", hint="Correct or unset it.")
        import anthropic
        import httpx2

        def attempt(request: Any, call_next: Callable[[Any], Any]) -> Any:
            left_s = call.left_s()
            timeout = httpx2.Timeout(left_s, connect=min(left_s, _CONNECT_TIMEOUT_S))
            try:
                response = call_next(request.copy(timeout=timeout))
            except anthropic.APIConnectionError:
                call.left_s()
                raise
            if retries and response.status_code >= 400:
                _hold_wait(response, call)
            return response

        return anthropic.Anthropic(
            api_key=self._secret,
            base_url=self._base_url,
            max_retries=retries,
            timeout=httpx2.Timeout(call.timeout_s, connect=_CONNECT_TIMEOUT_S),
            # The key would go along to wherever a redirect leads.
            http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
            middleware=[attempt],
        )

    def _translated(self, error: Exception, call: Call) -> LLMUnavailable | None:
        """The sentence for an exception of the SDK or of its HTTP client; None for one of neither."""
        import anthropic
        import httpx2

        if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError)):
            return LLMUnavailable(f"{call.model} did not answer within {call.timeout_s:g} s ({call.purpose}).")
        if isinstance(error, anthropic.APIStatusError):
            call.refused = True
            return _status_sentence(error, call.model, said=shorten(self._scrub(_said(error)), 200))
        if isinstance(error, (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)):
            cause = error.__cause__ or error
            call.sent = not isinstance(cause, httpx2.ConnectError)
            reason = shorten(self._scrub(str(cause)), 160) or type(cause).__name__
            return LLMUnavailable(
                f"The connection to {_host(self._base_url)} failed ({reason}).",
                hint="Check the network and ANTHROPIC_BASE_URL.",
            )
        if isinstance(error, (anthropic.AnthropicError, *_UNREADABLE)):
            return LLMUnavailable(f"The reply of {call.model} could not be read ({type(error).__name__}).")
        return None


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _status_sentence(error: anthropic.APIStatusError, model: str, *, said: str) -> LLMUnavailable:
    status, tail = error.status_code, f": {said.rstrip('.')}" if said else ""
    if status in (401, 403):
        return LLMUnavailable(f"The Anthropic API refused the key (HTTP {status}).", hint="Check ANTHROPIC_API_KEY.")
    if status == 404:
        return LLMUnavailable(
            f"The Anthropic API does not know `{model}` (HTTP 404).",
            hint="Correct `llm` in your configuration.",
        )
    if 300 <= status < 400:
        hint = "Give the address that it redirects to as ANTHROPIC_BASE_URL."
        return LLMUnavailable(f"The Anthropic API redirects (HTTP {status}), and the key goes nowhere else.", hint=hint)
    if status == 429:
        return LLMUnavailable(f"The Anthropic API's rate limit is reached (HTTP 429){tail}.", hint="Try again later.")
    if status >= 500:
        what = "is overloaded" if status == 529 else "failed"
        return LLMUnavailable(f"The Anthropic API {what} (HTTP {status}){tail}.", hint="Try again later.")
    return LLMUnavailable(f"The Anthropic API refused the request (HTTP {status}){tail}.")


def _host(url: str) -> str | None:
    """The host of an http(s) address; None for any other text."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and url.isprintable() and " " not in url and parts.port != 0
    except ValueError:
        return None
    return parts.hostname if sound else None


def _printable(text: str) -> str:
    return _CONTROL.sub("", text)


def _said(error: anthropic.APIStatusError) -> str:
    """The API's own words for an error, which may be of any type."""
    return error.api_message if isinstance(error.api_message, str) else ""


def _hold_wait(response: Any, call: Call) -> None:
    """Leave the SDK a wait in seconds or none, of the three forms that it obeys whatever their length.

    Raises LLMUnavailable where the wait is longer than the call may take.
    """
    wait_s = _seconds(response.headers.get("retry-after"))
    for name in ("retry-after", "retry-after-ms"):
        response.headers.pop(name, None)
    if wait_s is None:
        return
    if wait_s >= call.left_s():
        response.close()
        call.refused = True
        raise LLMUnavailable(
            f"The Anthropic API asks to wait {wait_s:.0f} s (HTTP {response.status_code}), longer than the "
            f"{call.timeout_s:g} s that this call may take.",
            hint="Try again later.",
        )
    response.headers["retry-after"] = str(wait_s)


def _seconds(header: str | None) -> float | None:
    """A `retry-after`, which is a number of seconds or a time. Source: RFC 9110, 10.2.3."""
    try:
        return float(header) if header else None
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return (parsedate_to_datetime(header or "") - utc_now()).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
