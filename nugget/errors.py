"""The exceptions for all expected failures; each carries one sentence and an exit code.

The gateway module of each third-party package translates its exceptions into these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PLAIN_WORDS = {
    "a valid boolean": "true or false", "a valid integer": "a whole number", "a valid number": "a number",
    "a valid string": "text", "a valid tuple": "a list", "greater than or equal to": "at least",
    "less than or equal to": "at most", "Field required": "is missing", "Extra inputs are": "is", "a valid ": "a ",
}  # fmt: skip
"""What pydantic calls something, and what people call it."""


class NuggetError(Exception):
    """Base of every expected failure.

    `hint` is the next command or action for the person who reads the message; it is printed on its own line.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(re.sub(r"\[Errno -?\d+\] ", "", message))  # a number means nothing to people
        self.hint = hint

    @property
    def with_hint(self) -> str:
        """The message and the hint on one line."""
        return f"{self} {self.hint or ''}".rstrip()


class UsageError(NuggetError):
    """A command or call has an invalid argument."""

    exit_code = 2


class BrainError(NuggetError):
    """The brain folder is missing, foreign, read-only or otherwise unusable."""


class KnowledgeError(NuggetError):
    """A knowledge file cannot be read or written."""


class IndexUnavailable(NuggetError):
    """The derived index cannot be opened, written or rebuilt."""


class EmbeddingUnavailable(NuggetError):
    """No vectors can be made: the model is absent, the network is down, or the reply was bad."""


class LLMUnavailable(NuggetError):
    """No LLM answer is available: no key, no network, timeout, cost cap, or a bad reply."""


class TranscriptError(NuggetError):
    """A session is unknown, or its transcript cannot be read."""


class GitError(NuggetError):
    """git refused."""


class PushRefused(GitError):
    """The remote refuses a push, by a rule or for lack of permission."""


class ForgeError(NuggetError):
    """GitHub or GitLab refused, or could not be reached."""


class ReviewError(NuggetError):
    """A proposal cannot be shown, accepted or rejected."""


class ConflictError(NuggetError):
    """A file changed between reading and writing; nothing was written."""


def only_id(prefix: str, ids: Iterable[str], noun: str, *, error: type[NuggetError] = UsageError) -> str | None:
    """Return the id that is a prefix, else the only one that begins with it, or None; raise `error` for several."""
    found = sorted(name for name in ids if name.startswith(prefix))
    if prefix in found or len(found) < 2:
        return prefix if prefix in found else next(iter(found), None)
    some = ", ".join(found[:3])
    raise error(f"{len(found)} {noun}s have an id that begins with {prefix!r} ({some}…).", hint="Give more.")


def reason_of(error: Exception) -> str:
    """Return the reason of a failure in one line, for loops that skip what fails."""
    if isinstance(error, NuggetError):
        return str(error)
    said = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
    return f"cannot be read ({' '.join(said.split())[:200]})"


def complaint(problem: Mapping[str, Any]) -> str:
    """Return what pydantic says of a value as the end of a sentence, such as `must be a whole number, not 'x'`."""
    said = str(problem["msg"]).removeprefix("Value error, ").partition(", unable")[0].partition(", got")[0]
    for theirs, ours in _PLAIN_WORDS.items():
        said = said.replace(theirs, ours)
    _, is_wanted, wanted = said[:150].partition(" should ")
    return f"must {wanted}, not {repr(problem['input'])[:60]}" if is_wanted else said


def alike(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the known name that is most like this one, or an empty text."""
    from difflib import get_close_matches

    found = get_close_matches(name[:80], known, 1, 0.8)
    return f" Did you mean '{found[0]}'?" if found else ""


def require_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first of these names that is not known."""
    listed = list(known)
    if (unknown := next((name for name in names if name not in listed), None)) is not None:
        hint = f"{what.capitalize()}s: {', '.join(listed)}."
        raise UsageError(f"There is no {what} {unknown[:80]!r}.{alike(unknown, listed)}", hint=hint)
