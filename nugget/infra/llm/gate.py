"""The base of all models: redaction before a call, caps and the cost ledger around it, checks after it.

The ledger is `$NUGGET_HOME/ledger/costs.jsonl`, with one line for every call, even failed ones. Prices are
list prices as of 2026-11-20, from platform.claude.com/docs/en/about-claude/pricing.
"""

from __future__ import annotations

import html
import json
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, NamedTuple

from nugget.errors import LLMUnavailable
from nugget.infra import files, http_client
from nugget.redaction import redact
from nugget.text import json_in, map_texts, shorten

if TYPE_CHECKING:
    from nugget.infra.llm import DailyBudget


class Price(NamedTuple):
    """The price in USD per million tokens of input and output.

    `cache_read` is a share of `input`; `effort` is true if the model accepts an effort. A prompt of more than 100,000
    tokens costs `long_prompt` times as much.
    """

    input: float
    output: float
    cache_read: float = 0.1
    effort: bool = True
    long_prompt: float = 1.0


PRICES: Mapping[str, Price] = {
    "claude-haiku-5-5": Price(0.1, 0.5, long_prompt=5.0),
    "claude-sonnet-5-5": Price(2, 10, cache_read=0.05),
    "claude-opus-5-5": Price(4, 20, cache_read=0.05),
    "claude-fable-5-1": Price(10, 50, cache_read=0.025),
    "claude-fable-5": Price(10, 50),
    "claude-sonnet-5": Price(2, 10),
    **dict.fromkeys((f"claude-opus-{version}" for version in ("5", "4-8", "4-7", "4-6", "4-5")), Price(5, 25)),
    "claude-opus-4-1": Price(15, 75, effort=False),
    "claude-sonnet-4-6": Price(3, 15),
    "claude-sonnet-4-5": Price(3, 15, effort=False),
    "claude-haiku-4-5": Price(1, 5, effort=False),
}
_DEAREST = max(PRICES.values(), key=lambda price: price.output)
_CACHE_WRITE = 1.25
_FENCE_TAG = r"(?i)<(?=\s*/?\s*(?:question|passage|unit|session|reply)\b)"
_COSTS = "costs.jsonl"
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_STATUSES: dict[int, tuple[str, str | None]] = {
    **dict.fromkeys((401, 403), ("refused the key", None)),
    404: ("does not know `{model}`", "Correct `llm` in your configuration."),
    429: ("has reached its rate limit", "Try again later."),
    529: ("is overloaded", "Try again later."),
}
_log = logging.getLogger("nugget")


class BadReply(LLMUnavailable):
    """A reply that does not follow the schema; the caller can ask again or use its valid parts.

    `value` is the JSON, if it could be parsed; `problems` are the violations, `usd` is the cost.
    """

    def __init__(self, message: str, *, text: str, value: object, problems: Sequence[str], usd: float) -> None:
        super().__init__(message, hint="Try again; the model's replies differ from call to call.")
        self.text, self.value, self.problems, self.usd = text, value, tuple(problems), usd


class CostCapReached(LLMUnavailable):
    """Raised instead of a call that could exceed its cost cap; `retry_after_s` is set for a daily cap."""

    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call to a model: its texts, its limits, and its names in the cost ledger.

    `effort` (`low` to `max`) is left out for models that take none.
    """

    purpose: str
    model: str
    system: str = ""
    prompt: str = ""
    max_tokens: int
    timeout_s: float
    max_usd: float = math.inf
    effort: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A structured reply. `usd` is its cost, an upper estimate if the model's price is unknown."""

    value: dict[str, Any]
    usd: float


@dataclass(slots=True, kw_only=True)
class ModelCall:
    """A request under way, with the `body` that is sent and the tokens that came back.

    `free` is true if nothing was sent or the call was refused; `reported_usd` is the cost that the server reports.
    """

    request: Request
    body: Mapping[str, Any]
    price: Price | None
    started: float = field(default_factory=time.monotonic)
    tokens: dict[str, int] = field(default_factory=dict)
    stop_reason: str = ""
    error: str | None = None
    free: bool = False
    reported_usd: float | None = None

    @property
    def until(self) -> float:
        """The deadline, as a value of time.monotonic."""
        return self.started + self.request.timeout_s

    def left_s(self) -> float:
        """Return the seconds until the deadline. Raises TimeoutError after it."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def note_usage(self, usage: object) -> None:
        """Keep the token counts of a reply."""
        if isinstance(usage, Mapping):
            self.tokens |= {name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)}

    def usd_at_most(self) -> float:
        """Return the most that the call can cost, estimated from its text before it is sent."""
        sent = [self.body.get(name) for name in ("system", "messages", "output_config", "response_format")]
        text = json.dumps(sent, ensure_ascii=False)
        return estimate_cost_usd(self.price, text, max_output_tokens=self.request.max_tokens)

    def cost(self) -> tuple[float | None, float]:
        """Return the cost, None if it is unknown, and the cost that counts for caps, an upper estimate then."""
        has_tokens = self.stop_reason and self.tokens.keys() >= {"input_tokens", "output_tokens"}
        by_tokens = _cost_usd(self.price, self.tokens) if has_tokens else None
        usd = 0.0 if self.free else self.reported_usd
        if usd is None and self.price is not None:
            usd = by_tokens
        if usd is not None:
            return round(usd, 8), round(usd, 8)
        return None, round(self.usd_at_most() if by_tokens is None else by_tokens, 8)


def spending(
    home: Path, *, since: datetime | None = None, session: str | None = None, face: str | None = None
) -> tuple[int, float]:
    """Return the number of calls in the cost ledger since `since` (an aware time), and their cost in USD.

    All calls count, or those of a session or face; an unknown cost counts as its upper estimate.
    """
    found: list[float] = []
    for line in files.read_lines(home / "ledger" / _COSTS):
        with suppress(LookupError, TypeError, ValueError):
            is_asked = since is None or datetime.fromisoformat(line["time"]) >= since
            if is_asked and session in (None, line["session"]) and face in (None, line.get("face")):
                found.append(float(line["usd_counted"]))
    return len(found), sum(found)


class Model(ABC):
    """Base of all models; each subclass makes the body of a call and sends it. Thread-safe.

    `secret` never appears in a message; `budget` limits the calls of a face; `name` is the model's name in messages.
    """

    name = "The model"
    key_hint: str | None = None

    def __init__(
        self, *, home: Path, allow: Sequence[re.Pattern[str]], secret: str, budget: DailyBudget | None = None
    ) -> None:
        self._budget, self._home, self._allow, self._secret = budget, home, allow, secret

    def structured(self, request: Request, schema: Mapping[str, Any]) -> Reply:
        """Ask for a JSON object that follows `schema`.

        Raises BadReply if the reply does not follow the schema (also if it was cut at `max_tokens`), and
        LLMUnavailable for everything else, before the call if its cost could exceed the cap.
        """
        call = ModelCall(request=request, body=self._body(request, schema), price=self.price(request.model))
        with self._recorded(call):
            text = self._complete(call, schema)
            refuse_refusal(call)
            return self._reply(text, schema, call)

    def price(self, model: str) -> Price | None:
        """Return the price of a model, None if it is unknown."""
        return price_of(model)

    @abstractmethod
    def _body(self, request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the redacted body of a call."""

    @abstractmethod
    def _complete(self, call: ModelCall, schema: Mapping[str, Any]) -> str:
        """Send a call; return the text of the reply, and record its tokens, cost and stop reason in the call."""

    def spent_usd(self, session: str, *, within: timedelta) -> float:
        """Return the recent cost of the calls for a session, as counted for caps."""
        return spending(self._home, since=datetime.now(UTC) - within, session=session)[1]

    def fence(self, text: str, tag: str, **attributes: object) -> str:
        """Redact untrusted text and put it between `<tag>` lines.

        The text can neither close nor open a fence: a `<` before the name of any becomes `&lt;`. Redacting here, and
        not only when the prompt is sent, keeps an unclosed `<private>` inside its fence.
        """
        inner = re.sub(_FENCE_TAG, "&lt;", redact(text, allow=self._allow).text)
        named = "".join(f' {name}="{html.escape(" ".join(str(value).split()))}"' for name, value in attributes.items())
        return f"<{tag}{named}>\n{inner}\n</{tag}>"

    def _clean(self, text: str) -> str:
        """Return text that may leave this machine: redacted, and without lone surrogates, which JSON cannot carry."""
        return redact(text, allow=self._allow).text.encode("utf-8", "replace").decode()

    def _scrub(self, text: str) -> str:
        """Redact text from outside for a message: it might hold the key, or any other secret."""
        known = text.replace(self._secret, "[key]") if len(self._secret) >= 8 else text
        return redact(known, allow=self._allow).text

    @contextmanager
    def _recorded(self, call: ModelCall) -> Iterator[None]:
        """Refuse a call above its cap, translate its errors, and write it to the ledger in every case."""
        request, most, held = call.request, call.usd_at_most(), False
        try:
            call.free = True
            if most > request.max_usd:
                raise CostCapReached(
                    f"Asking {request.model} ({request.purpose}) could cost ${most:.4f}, more than the "
                    f"${request.max_usd:.4f} allowed.",
                    hint="Raise the cap in your configuration, or choose a cheaper model.",
                )
            if self._budget is not None:
                self._budget.hold(most)
                held = True
            call.free = False
            yield
        except LLMUnavailable as error:
            call.error = str(error)
            raise
        except (GeneratorExit, KeyboardInterrupt):
            call.error = "nobody waited for the end"
            raise
        except Exception as error:
            translated = self._translated(error, call)
            call.error = str(translated)
            raise translated from None
        finally:
            if self._record(call) and held and self._budget:
                self._budget.release(most)

    def _record(self, call: ModelCall) -> bool:
        """Write the call to the ledger; return False if that fails, and its cost then stays reserved in the budget."""
        usd, usd_counted = call.cost()
        line = {
            "time": datetime.now(UTC).isoformat(), "purpose": call.request.purpose, "model": call.request.model,
            "session": call.request.session, **({"face": self._budget.face} if self._budget else {}),
            "ok": call.error is None, "error": call.error,
            **{name: call.tokens.get(name, 0) for name in _USAGE}, "usd": usd, "usd_counted": usd_counted,
            "seconds": round(time.monotonic() - call.started, 3),
        }  # fmt: skip
        try:
            files.append_line(self._home / "ledger" / _COSTS, line)
        except OSError as error:
            # The reply is paid for: better to use it unrecorded than to throw it away.
            _log.warning("The cost ledger in %s cannot be written (%s).", self._home / "ledger", error.strerror)
            return False
        return True

    def _translated(self, error: Exception, call: ModelCall) -> LLMUnavailable:
        """Return the sentence for an exception of the SDK, of HTTP or of the command."""
        import anthropic
        import httpx2

        model, request, cause = call.request.model, call.request, error.__cause__ or error
        if isinstance(error, (TimeoutError, TimeoutExpired, anthropic.APITimeoutError, httpx2.TimeoutException)):
            return LLMUnavailable(f"{model} did not answer within {request.timeout_s:g} s ({request.purpose}).")
        if isinstance(error, anthropic.APIStatusError):
            if error.status_code == 200:
                return LLMUnavailable(f"{self.name} broke off the answer.", hint="Try again later.")
            text = error.api_message if isinstance(error.api_message, str) else ""
            return self._refused(error.status_code, text, call)
        failures = (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
        if isinstance(error, (*failures, ConnectionError)):
            call.free = isinstance(cause, (httpx2.ConnectError, ConnectionRefusedError))
            reason = http_client.tls_problem(error) or shorten(self._scrub(str(cause)), 160) or type(cause).__name__
            name, hint = self.name[0].lower() + self.name[1:], "Check the network and the address."
            return LLMUnavailable(f"The connection to {name} failed ({reason}).", hint=hint)
        return LLMUnavailable(f"The reply of {model} could not be read ({type(error).__name__}).")

    def _refused(self, status: int, text: str, call: ModelCall) -> LLMUnavailable:
        """Return the sentence for a status other than 200; `text` is the server's own message."""
        call.free = True
        failed = ("failed", "Try again later.") if status >= 500 else ("refused the request", None)
        problem, hint = _STATUSES.get(status, failed)
        if 300 <= status < 400:
            problem, hint, text = "redirects", "Configure the address that it redirects to.", ""
        elif status in (401, 403):
            hint = self.key_hint
        reason = "" if status in (401, 403, 404) else shorten(self._scrub(text), 200).rstrip(".")
        sentence = f"{self.name} {problem.format(model=call.request.model)} (HTTP {status})"
        return LLMUnavailable(f"{sentence}: {reason}." if reason else f"{sentence}.", hint=hint)

    def _reply(self, text: str, schema: Mapping[str, Any], call: ModelCall) -> Reply:
        """Parse and redact the text of a reply. Raises BadReply if it does not follow the schema."""
        value: object = None
        try:
            value = map_texts(json_in(text), self._scrub)
            problems = problems_in(value, schema)
        except (ValueError, RecursionError):
            cut = " and was cut at its limit of tokens" if call.stop_reason == "max_tokens" else ""
            problems = [f"the reply is not JSON{cut}" if text else "the reply has no text"]
        usd = call.cost()[1]
        if problems or not isinstance(value, dict):
            reasons = shorten(self._scrub("; ".join(problems)), 300)
            message = f"{call.request.model} did not reply as asked ({call.request.purpose}): {reasons}."
            raise BadReply(message, text=text, value=value, problems=problems, usd=usd)
        return Reply(value=value, usd=usd)


def price_of(model: str) -> Price | None:
    """Return the price of a model by its id, with or without a trailing date, or None if it is not listed."""
    return PRICES.get(re.sub(r"-20\d{6}$", "", model))


def _cost_usd(price: Price | None, tokens: Mapping[str, int]) -> float:
    """Return the cost of a call from the token counts of its reply; an unknown price counts as the highest one."""
    price = price or _DEAREST
    plain, output, written, cached = (tokens.get(name, 0) for name in _USAGE)
    read = plain + _CACHE_WRITE * written + price.cache_read * cached
    factor = price.long_prompt if plain + written + cached > 100_000 else 1.0
    return factor * (price.input * read + price.output * output) / 1e6


def estimate_cost_usd(price: Price | None, text: str, *, max_output_tokens: int) -> float:
    """Return the most that a call with this text can cost, before it is made.

    A token is three ASCII characters or one other character: newer models make some 30 % more tokens of a text than
    the usual estimate of four characters each. All input is counted as written to the cache.
    """
    ascii_chars = len(text.encode("ascii", "ignore"))
    prompt_tokens = -(-ascii_chars // 3) + len(text) - ascii_chars
    return _cost_usd(price, {"output_tokens": max_output_tokens, "cache_creation_input_tokens": prompt_tokens})


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties."""
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


def problems_in(value: object, schema: Mapping[str, Any], *, where: str = "reply") -> list[str]:
    """List the places where a value breaks a JSON Schema (`reply.units[2].type: ...`), at most twenty."""
    from jsonschema import Draft202012Validator

    errors = islice(Draft202012Validator(schema).iter_errors(value), 20)
    return [f"{error.json_path.replace('$', where, 1)}: {shorten(error.message, 120)}" for error in errors]


def refuse_refusal(call: ModelCall) -> None:
    """Raise LLMUnavailable if the model declined to answer."""
    if call.stop_reason == "refusal":
        raise LLMUnavailable(f"{call.request.model} declined to answer ({call.request.purpose}).")
