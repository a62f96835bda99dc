"""The gate of every call to a model: redaction before it, caps and the cost ledger around it, checks after it.

The ledger is `$NUGGET_HOME/ledger/costs.jsonl`, with one line for every call, also for those that failed.
"""

from __future__ import annotations

import html
import json
import logging
import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra import files
from nugget.infra.llm.prices import cost_usd, estimate_cost_usd, price_of
from nugget.redaction import redact
from nugget.text import shorten

FENCES = ("question", "passage", "unit", "session", "candidate", "reply")

_FENCE_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(FENCES)})\b)", re.IGNORECASE)
_CODE_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_COSTS = "costs.jsonl"
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_MOST_TOKENS = 1_000_000_000
"""No call reads or writes more; a larger count is an error of the endpoint."""
_MOST_PROBLEMS = 20
_LEAST_SECRET_CHARS = 8
_log = logging.getLogger("nugget")


class BadReply(LLMUnavailable):
    """A reply that does not follow the schema, which the caller can ask for again or use the sound parts of.

    `value` is the JSON that could be read (None if there was none), `problems` say what is wrong, `usd` is the cost.
    """

    def __init__(self, message: str, *, text: str, value: object, problems: Sequence[str], usd: float) -> None:
        super().__init__(message, hint="Try again; the model's replies differ from call to call.")
        self.text = text
        self.value = value
        self.problems = tuple(problems)
        self.usd = usd


class CostCapReached(LLMUnavailable):
    """A call that was not made because it could exceed its cost cap."""


class DailyCapReached(CostCapReached):
    """A call that was not made because its face could exceed its daily limit."""

    retry_after_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call to a model: its texts, its limits, and the names under which the cost ledger lists it.

    `effort` (`low` to `max`) is left out for models that take none.
    """

    purpose: str
    model: str
    system: str
    prompt: str
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
    input_tokens: int
    output_tokens: int
    stop_reason: str


@dataclass(slots=True, kw_only=True)
class Call:
    """A call under way, with the `body` that is sent, its tokens and its cost.

    `free` says that nothing was sent, or that it was refused; `reported_usd` is the cost that the other end states.
    """

    purpose: str
    model: str
    timeout_s: float
    max_usd: float
    body: dict[str, Any]
    session: str | None = None
    started: float = field(default_factory=time.monotonic)
    tokens: dict[str, int] = field(default_factory=dict)
    stop_reason: str = ""
    error: str | None = None
    free: bool = False
    reported_usd: float | None = None

    def left_s(self) -> float:
        """Return the seconds until the deadline. Raises TimeoutError after it."""
        left = self.started + self.timeout_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def note_usage(self, usage: object) -> None:
        """Take the valid token counts of a reply over."""
        for name, count in usage.items() if isinstance(usage, Mapping) else ():
            if name in _USAGE and type(count) is int and 0 <= count <= _MOST_TOKENS:
                self.tokens[name] = count

    @property
    def all_tokens(self) -> dict[str, int]:
        """The token counts under all four names."""
        return {name: self.tokens.get(name, 0) for name in _USAGE}

    @property
    def usd_at_most(self) -> float:
        """The most that the call can cost, estimated from its text before it is sent."""
        sent = [self.body["system"], self.body["messages"], self.body.get("output_config")]
        text = json.dumps(sent, ensure_ascii=False)
        return estimate_cost_usd(self.model, text, max_output_tokens=self.body["max_tokens"])

    @property
    def usd(self) -> float | None:
        """The cost of the call; None if the model has no list price or the reply was incomplete."""
        if self.free:
            return 0.0
        if self.reported_usd is not None:
            return round(self.reported_usd, 8)
        return round(cost_usd(self.model, self.all_tokens), 8) if self._is_counted and price_of(self.model) else None

    @property
    def usd_counted(self) -> float:
        """The cost that counts for caps: an upper estimate if the real one is unknown."""
        if self.usd is not None:
            return self.usd
        return round(cost_usd(self.model, self.all_tokens) if self._is_counted else self.usd_at_most, 8)

    @property
    def _is_counted(self) -> bool:
        return bool(self.stop_reason) and self.tokens.keys() >= {"input_tokens", "output_tokens"}


def open_call(request: Request, body: dict[str, Any]) -> Call:
    """Return the call of a request that is sent as `body`."""
    return Call(
        purpose=request.purpose, model=request.model, timeout_s=request.timeout_s, max_usd=request.max_usd, body=body,
        session=request.session,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Cost of calls: `usd` sums known and estimated costs; `estimated_calls` had no known price."""

    calls: int
    failed_calls: int
    estimated_calls: int
    usd: float


class DailyBudget:
    """A limit in USD on the calls of one face from midnight to midnight UTC. Thread-safe.

    The amount spent is read from the cost ledger, so a restart changes nothing. A call under way counts at the most
    it can cost; the calls of other processes count once they are done.
    """

    def __init__(self, home: Path, *, max_usd: float, face: str) -> None:
        self.face = face
        self._home = home
        self._max_usd = max_usd
        self._lock = threading.Lock()
        self._under_way_usd = 0.0

    def hold(self, usd: float, *, now: datetime) -> Callable[[], None]:
        """Reserve `usd` for a call, and return a function that releases it. Raises DailyCapReached."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        with self._lock:
            spent = spending(self._home, since=midnight, face=self.face).usd + self._under_way_usd
            if spent + usd > self._max_usd:
                error = DailyCapReached(
                    f"This call could cost ${usd:.4f}, and ${spent:.4f} of the ${self._max_usd:.2f} a day is spent.",
                    hint="Try again after midnight UTC, or raise `http.max_usd_per_day`.",
                )
                error.retry_after_s = int((midnight + timedelta(days=1) - now).total_seconds()) + 1
                raise error
            self._under_way_usd += usd

        def release() -> None:
            with self._lock:
                self._under_way_usd -= usd

        return release


def spending(
    home: Path, *, since: datetime | None = None, session: str | None = None, face: str | None = None
) -> Spending:
    """Sum up the cost ledger from `since` (an aware time) on: all calls, or those of a session or a face."""
    lines = [
        line
        for line in files.read_lines(home / "ledger" / _COSTS)
        if (since is None or _time(line) >= since)
        and (session is None or line.get("session") == session)
        and (face is None or line.get("face") == face)
    ]
    return Spending(
        calls=len(lines),
        failed_calls=sum(line.get("ok") is not True for line in lines),
        estimated_calls=sum(line.get("usd") is None for line in lines),
        usd=sum(_number(line.get("usd_counted")) for line in lines),
    )


def _time(line: Mapping[str, Any]) -> datetime:
    try:
        time = datetime.fromisoformat(str(line.get("time")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def utc_now() -> datetime:
    """Return the current time, aware."""
    return datetime.now(UTC)


class Gate(ABC):
    """Base of the ways to a model. `secret` never appears in a message; `budget` limits the calls of a face."""

    def __init__(
        self,
        *,
        home: Path,
        allow: Sequence[re.Pattern[str]] = (),
        secret: str = "",
        clock: Callable[[], datetime] = utc_now,
        budget: DailyBudget | None = None,
    ) -> None:
        self._budget = budget
        self._home = home
        self._allow = tuple(allow)
        self._secret = secret
        self._clock = clock

    def spent_usd(self, session: str, *, within: timedelta) -> float:
        """Return the recent cost of the calls for a session, as it counts for caps."""
        return spending(self._home, since=self._clock() - within, session=session).usd

    def fence(self, text: str, tag: str, **attributes: object) -> str:
        """Redact untrusted text and put it between `<tag>` lines; `tag` is one of FENCES.

        The text can neither close nor open a fence: a `<` before any of their names becomes `&lt;`. Redacting here, and
        not only when the prompt is sent, keeps an unclosed `<private>` inside its fence.
        """
        cleaned = redact(text, allow=self._allow).text
        inner = _FENCE_TAG.sub("&lt;", cleaned)
        named = "".join(f' {name}="{html.escape(" ".join(str(value).split()))}"' for name, value in attributes.items())
        return f"<{tag}{named}>\n{inner}\n</{tag}>"

    def _clean(self, text: str) -> str:
        """Return text that may leave this machine: redacted, and without lone surrogates, which JSON cannot carry."""
        return redact(text, allow=self._allow).text.encode("utf-8", "replace").decode()

    def _scrub(self, text: str) -> str:
        """Redact text from outside for a message: it might hold the key, or any other secret."""
        known = len(self._secret) >= _LEAST_SECRET_CHARS
        return redact(text.replace(self._secret, "[key]") if known else text, allow=self._allow).text

    @contextmanager
    def _recorded(self, call: Call) -> Iterator[None]:
        """Refuse a call above its cap, translate its errors, and write it to the ledger in every case."""
        release = None
        try:
            call.free = True
            if call.usd_at_most > call.max_usd:
                raise CostCapReached(
                    f"Asking {call.model} ({call.purpose}) could cost ${call.usd_at_most:.4f}, more than the "
                    f"${call.max_usd:.4f} allowed.",
                    hint="Raise the cap in your configuration, or choose a cheaper model.",
                )
            if self._budget is not None:
                release = self._budget.hold(call.usd_at_most, now=self._clock())
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
            if self._record(call) and release is not None:
                release()

    def _record(self, call: Call) -> bool:
        """Write the call to the ledger. If that fails, return False, and its cost stays reserved in the budget."""
        line = {
            "time": self._clock().isoformat(), "purpose": call.purpose, "model": call.model, "session": call.session,
            **({"face": self._budget.face} if self._budget else {}), "ok": call.error is None, "error": call.error,
            **call.all_tokens, "usd": call.usd, "usd_counted": call.usd_counted,
            "seconds": round(time.monotonic() - call.started, 3),
        }  # fmt: skip
        try:
            files.append_line(self._home / "ledger" / _COSTS, line)
        except OSError as error:
            # The reply is paid for: using it unrecorded is better than throwing it away.
            _log.warning("The cost ledger in %s cannot be written (%s).", self._home / "ledger", error.strerror)
            return False
        return True

    @abstractmethod
    def _translated(self, error: Exception, call: Call) -> LLMUnavailable:
        """Return the sentence for an exception of the SDK or command."""

    def _reply(self, text: str, schema: Mapping[str, Any], call: Call) -> Reply:
        """Parse and redact the text of a reply. Raises BadReply if it does not follow the schema."""
        fenced = _CODE_FENCE.match(text)
        value: object = None
        try:
            value = map_texts(json.loads(fenced[1] if fenced else text, parse_constant=_refuse_constant), self._scrub)
            problems = problems_in(value, schema)
        except (ValueError, RecursionError):
            cut = " and was cut at its limit of tokens" if call.stop_reason == "max_tokens" else ""
            problems = [f"the reply is not JSON{cut}" if text else "the reply has no text"]
        if problems or not isinstance(value, dict):
            said = shorten(self._scrub("; ".join(problems)), 300)
            message = f"{call.model} did not reply as asked ({call.purpose}): {said}."
            raise BadReply(message, text=text, value=value, problems=problems, usd=call.usd_counted)
        tokens = call.all_tokens
        written = tokens["output_tokens"]
        return Reply(
            value=value, usd=call.usd_counted, input_tokens=sum(tokens.values()) - written, output_tokens=written,
            stop_reason=call.stop_reason,
        )  # fmt: skip


def problems_in(value: object, schema: Mapping[str, Any], *, where: str = "reply") -> list[str]:
    """List the places where a value breaks a JSON Schema (`reply.units[2].type: ...`), at most twenty."""
    from jsonschema import Draft202012Validator

    errors = islice(Draft202012Validator(schema).iter_errors(value), _MOST_PROBLEMS)
    return [f"{error.json_path.replace('$', where, 1)}: {shorten(error.message, 120)}" for error in errors]


def map_texts(value: Any, change: Callable[[str], str], *, exact: Collection[str] = ()) -> Any:
    """Apply `change` to every text in a JSON value, but for those under the keys in `exact`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(part, change, exact=exact) for part in value]
    if isinstance(value, dict):
        return {key: part if key in exact else map_texts(part, change, exact=exact) for key, part in value.items()}
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
