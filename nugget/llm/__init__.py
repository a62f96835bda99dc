"""The one gateway to an LLM: Claude, through the anthropic SDK.

Every call is redacted before it leaves, held to a deadline and to a cost cap, and written to the cost ledger,
`$NUGGET_HOME/ledger/costs.jsonl`. Every failure is LLMUnavailable with one clear sentence.
"""

from __future__ import annotations

import html
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nugget import ledger
from nugget.config import Environment, Settings
from nugget.errors import LLMUnavailable
from nugget.llm.call import Call, read_events, read_message
from nugget.llm.costs import COSTS
from nugget.llm.costs import spending as spending
from nugget.prices import takes_effort
from nugget.redaction import allow_list, redact
from nugget.schema import problems_in
from nugget.text import shorten

if TYPE_CHECKING:
    import anthropic

_DEFAULT_URL = "https://api.anthropic.com"
_MAX_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_CODE_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FENCES = ("question", "passage", "unit", "session", "candidate", "reply")
_FENCE_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(FENCES)})\b)", re.IGNORECASE)
_log = logging.getLogger("nugget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A structured reply. `usd` is what it cost, an upper estimate where the model's price is unknown."""

    value: dict[str, Any]
    usd: float
    input_tokens: int
    output_tokens: int
    stop_reason: str


class CostCapReached(LLMUnavailable):
    """A call was not made, because it could cost more than it may."""


class BadReply(LLMUnavailable):
    """The model answered, but not what the schema asks for.

    `value` is what could be read of it (None where it is no JSON), `problems` say what is wrong, so that the
    caller can ask again or keep the sound parts; `usd` is what it cost.
    """

    def __init__(self, message: str, *, text: str, value: object, problems: Sequence[str], usd: float) -> None:
        super().__init__(message, hint="Try again; the model's replies differ from call to call.")
        self.text = text
        self.value = value
        self.problems = tuple(problems)
        self.usd = usd


def open_llm(settings: Settings, environment: Environment) -> LLM | None:
    """The LLM of these settings; None without a key, or where `llm.enabled` is false. Imports nothing heavy yet."""
    if not settings.llm.enabled or not environment.anthropic_api_key:
        return None
    return LLM(
        api_key=environment.anthropic_api_key,
        base_url=environment.anthropic_base_url,
        home=environment.home,
        allow=allow_list(settings),
    )


class LLM:
    """Claude, asked for a structured value or for streamed text. Thread-safe; the SDK is imported on first use."""

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None,
        home: Path,
        allow: Sequence[re.Pattern[str]] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api_key = api_key.strip()
        self._base_url = base_url or _DEFAULT_URL
        self._home = home
        self._allow = tuple(allow)
        self._clock = clock

    def warm(self) -> None:
        """Import the SDK now (a second or so), without calling anything."""
        import anthropic

        _ = anthropic.Anthropic

    def spent_usd(self, session: str, *, within: timedelta) -> float:
        """What the calls for a session cost lately, as they count for caps."""
        return spending(self._home, since=self._clock() - within, session=session).usd

    def fence(self, text: str, tag: str, **attributes: object) -> str:
        """Untrusted text, redacted, between `<tag>` lines: material, not orders. `tag` is one of FENCES.

        The text can neither close nor open a fence, since a `<` before any of their names becomes `&lt;`.

        Redacting here, and not only when the prompt is sent, keeps an unclosed `<private>` inside its fence.
        """
        cleaned = redact(text, allow=self._allow).text
        inner = _FENCE_TAG.sub("&lt;", cleaned)
        named = "".join(f' {name}="{html.escape(" ".join(str(value).split()))}"' for name, value in attributes.items())
        return f"<{tag}{named}>\n{inner}\n</{tag}>"

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
            value, problems = _parse(text, schema, stop_reason=call.stop_reason)
            if call.stop_reason == "refusal":
                raise LLMUnavailable(f"{model} declined to answer ({purpose}).")
            if problems or not isinstance(value, dict):
                raise BadReply(
                    f"{model} did not reply as asked ({purpose}): {shorten(self._scrub('; '.join(problems)), 300)}.",
                    text=text,
                    value=value,
                    problems=problems,
                    usd=call.usd_counted,
                )
        return Reply(
            value=value,
            usd=call.usd_counted,
            input_tokens=call.prompt_tokens,
            output_tokens=call.tokens["output_tokens"],
            stop_reason=call.stop_reason,
        )

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

    def _clean(self, text: str) -> str:
        """What may leave this machine: redacted, and without halves of surrogate pairs, which JSON cannot carry."""
        return redact(text, allow=self._allow).text.encode("utf-8", "replace").decode()

    def _scrub(self, text: str) -> str:
        """A text from outside, fit for a message: it might hold the key, or any other secret."""
        return redact(text.replace(self._api_key, "[key]"), allow=self._allow).text

    def _client(self, call: Call) -> anthropic.Anthropic:
        """A client whose attempts and waits together stay within the call's deadline; it closes with the call.

        The SDK's own timeout starts again with each attempt and obeys a retry-after of any length.
        """
        if not self._api_key.isascii() or not self._api_key.isprintable():
            raise LLMUnavailable(
                "ANTHROPIC_API_KEY holds characters that no key has.", hint="Copy the key again, on one line."
            )
        if not self._base_url.startswith(("http://", "https://")):
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
            wait_s = _seconds(response.headers.get("retry-after"))
            if response.status_code >= 400 and wait_s is not None and wait_s >= call.left_s():
                response.close()
                call.refused = True
                raise LLMUnavailable(
                    f"The Anthropic API asks to wait {wait_s:.0f} s (HTTP {response.status_code}), longer than the "
                    f"{call.timeout_s:g} s that this call may take.",
                    hint="Try again later.",
                )
            return response

        return anthropic.Anthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=_MAX_RETRIES,
            timeout=httpx2.Timeout(call.timeout_s, connect=_CONNECT_TIMEOUT_S),
            middleware=[attempt],
        )

    @contextmanager
    def _recorded(self, call: Call, *, max_usd: float) -> Iterator[None]:
        """Refuse what is too dear, translate what fails, and write the call to the ledger whatever happens."""
        try:
            if call.usd_at_most > max_usd:
                call.sent = False
                raise CostCapReached(
                    f"Asking {call.model} ({call.purpose}) could cost ${call.usd_at_most:.4f}, more than the "
                    f"${max_usd:.4f} allowed.",
                    hint="Raise the cap in brain.yaml, or choose a cheaper model.",
                )
            yield
        except LLMUnavailable as error:
            call.error = str(error)
            raise
        except GeneratorExit:
            call.error = "the reader stopped listening"
            raise
        except Exception as error:
            told = self._translate(error, call)
            call.error = str(told or type(error).__name__)
            if told is None:
                raise
            raise told from None
        finally:
            self._record(call)

    def _record(self, call: Call) -> None:
        line = {
            "time": self._clock().isoformat(),
            "purpose": call.purpose,
            "model": call.model,
            "session": call.session,
            "ok": call.error is None,
            "error": call.error,
            **call.tokens,
            "usd": call.usd,
            "usd_counted": call.usd_counted,
            "seconds": round(time.monotonic() - call.started, 3),
        }
        try:
            ledger.append(self._home, COSTS, line)
        except OSError as error:
            # The reply is paid for: it is better used and unrecorded than thrown away.
            _log.warning("The cost ledger in %s cannot be written (%s).", self._home / "ledger", error.strerror)

    def _translate(self, error: Exception, call: Call) -> LLMUnavailable | None:
        """The sentence for an exception of the SDK or of its HTTP client; None for one of neither."""
        import anthropic
        import httpx2

        if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError)):
            return LLMUnavailable(f"{call.model} did not answer within {call.timeout_s:g} s ({call.purpose}).")
        if isinstance(error, anthropic.APIStatusError):
            call.refused = True
            return _status_sentence(error, call.model, said=shorten(self._scrub(error.api_message or ""), 200))
        if isinstance(error, (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError)):
            cause = error.__cause__ or error
            call.sent = not isinstance(cause, httpx2.ConnectError)
            reason = shorten(self._scrub(str(cause)), 160) or type(cause).__name__
            host = urlsplit(self._base_url).hostname or "the configured ANTHROPIC_BASE_URL"
            return LLMUnavailable(
                f"The connection to {host} failed ({reason}).", hint="Check the network and ANTHROPIC_BASE_URL."
            )
        if isinstance(error, (anthropic.AnthropicError, ValueError, RecursionError)):
            return LLMUnavailable(f"The reply of {call.model} could not be read ({type(error).__name__}).")
        return None


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _parse(text: str, schema: Mapping[str, Any], *, stop_reason: str) -> tuple[object, list[str]]:
    """The JSON value of a reply and what is wrong with it."""
    fenced = _CODE_FENCE.match(text)
    try:
        value: object = json.loads(fenced[1] if fenced else text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        cut = " and was cut at its limit of tokens" if stop_reason == "max_tokens" else ""
        return None, [f"the reply is no JSON{cut}" if text else "the reply holds no text"]
    return value, problems_in(value, schema)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _status_sentence(error: anthropic.APIStatusError, model: str, *, said: str) -> LLMUnavailable:
    status, tail = error.status_code, f": {said.rstrip('.')}" if said else ""
    if status in (401, 403):
        return LLMUnavailable(f"The Anthropic API refused the key (HTTP {status}).", hint="Check ANTHROPIC_API_KEY.")
    if status == 404:
        return LLMUnavailable(
            f"The Anthropic API does not know `{model}` (HTTP 404).", hint="Correct the `llm:` models in brain.yaml."
        )
    if status == 429:
        return LLMUnavailable(f"The Anthropic API's rate limit is reached (HTTP 429){tail}.", hint="Try again later.")
    if status >= 500:
        what = "is overloaded" if status == 529 else "failed"
        return LLMUnavailable(f"The Anthropic API {what} (HTTP {status}){tail}.", hint="Try again later.")
    return LLMUnavailable(f"The Anthropic API refused the request (HTTP {status}){tail}.")


def _printable(text: str) -> str:
    return _CONTROL.sub("", text)


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:
        return None
