"""The gate of every LLM call: redaction before, cap and ledger around, checks after."""

from __future__ import annotations

import html
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra import ledger
from nugget.infra.llm.call import Call
from nugget.infra.llm.costs import COSTS, CostCapReached, DailyBudget, spending
from nugget.infra.schema import problems_in
from nugget.redaction import redact
from nugget.text import shorten

FENCES = ("question", "passage", "unit", "session", "candidate", "reply")

_FENCE_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(FENCES)})\b)", re.IGNORECASE)
_CODE_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_LEAST_SECRET_CHARS = 8
_log = logging.getLogger("nugget")


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


def utc_now() -> datetime:
    """The time now, aware."""
    return datetime.now(UTC)


class Gate(ABC):
    """Base of the ways to an LLM. `secret` must not appear in a message; `budget` limits the calls of a face."""

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
        """Untrusted text, redacted, between `<tag>` lines: material, not orders. `tag` is one of FENCES.

        The text can neither close nor open a fence, since a `<` before any of their names becomes `&lt;`.

        Redacting here, and not only when the prompt is sent, keeps an unclosed `<private>` inside its fence.
        """
        cleaned = redact(text, allow=self._allow).text
        inner = _FENCE_TAG.sub("&lt;", cleaned)
        named = "".join(f' {name}="{html.escape(" ".join(str(value).split()))}"' for name, value in attributes.items())
        return f"<{tag}{named}>\n{inner}\n</{tag}>"

    def _clean(self, text: str) -> str:
        """Return text that may leave this machine: redacted, and without lone surrogates, which JSON cannot carry."""
        return redact(text, allow=self._allow).text.encode("utf-8", "replace").decode()

    def _scrub(self, text: str) -> str:
        """A text from outside, fit for a message: it might hold the key, or any other secret."""
        return redact(
            (text.replace(self._secret, "[key]") if len(self._secret) >= _LEAST_SECRET_CHARS else text),
            allow=self._allow,
        ).text

    @contextmanager
    def _recorded(self, call: Call, *, max_usd: float) -> Iterator[None]:
        """Refuse what is too dear, translate what fails, and write the call to the ledger whatever happens."""
        release = None
        try:
            if call.usd_at_most > max_usd:
                call.sent = False
                raise CostCapReached(
                    f"Asking {call.model} ({call.purpose}) could cost ${call.usd_at_most:.4f}, more than the "
                    f"${max_usd:.4f} allowed.",
                    hint="Raise the cap in your configuration, or choose a cheaper model.",
                )
            if self._budget is not None:
                call.sent = False
                release = self._budget.hold(call.usd_at_most, now=self._clock())
                call.sent = True
            yield
        except LLMUnavailable as error:
            call.error = str(error)
            raise
        except (GeneratorExit, KeyboardInterrupt):
            call.error = "nobody waited for the end"
            raise
        except Exception as error:
            told = self._translated(error, call)
            call.error = str(told or type(error).__name__)
            if told is None:
                raise
            raise told from None
        finally:
            if self._record(call) and release is not None:
                release()

    def _record(self, call: Call) -> bool:
        """Write the call to the ledger; False if that fails: its cost then stays held back from the budget."""
        line = {
            "time": self._clock().isoformat(),
            "purpose": call.purpose,
            "model": call.model,
            "session": call.session,
            **({"face": self._budget.face} if self._budget else {}),
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
            return False
        return True

    @abstractmethod
    def _translated(self, error: Exception, call: Call) -> LLMUnavailable | None:
        """The sentence for an exception that a way raises; None for one that it does not know."""

    def _checked(self, text: str, schema: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """The object that a reply's text holds, redacted. Raises BadReply where it does not follow the schema."""
        value, problems = parse_value(text, schema, stop_reason=call.stop_reason, clean=self._scrub)
        if problems or not isinstance(value, dict):
            told = shorten(self._scrub("; ".join(problems)), 300)
            raise BadReply(
                f"{call.model} did not reply as asked ({call.purpose}): {told}.",
                text=text,
                value=value,
                problems=problems,
                usd=call.usd_counted,
            )
        return value


def parse_value(
    text: str, schema: Mapping[str, Any], *, stop_reason: str, clean: Callable[[str], str]
) -> tuple[object, list[str]]:
    """The JSON value of a reply, with `clean` applied to every text in it, and what is wrong with it."""
    fenced = _CODE_FENCE.match(text)
    try:
        value: object = _cleaned(json.loads(fenced[1] if fenced else text, parse_constant=_no_constant), clean)
    except (ValueError, RecursionError):
        cut = " and was cut at its limit of tokens" if stop_reason == "max_tokens" else ""
        return None, [f"the reply is no JSON{cut}" if text else "the reply holds no text"]
    return value, problems_in(value, schema)


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(part, clean) for part in value]
    return {name: _cleaned(part, clean) for name, part in value.items()} if isinstance(value, dict) else value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
