"""What a rule of redaction is made of, and what every secret has in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

SHORTEST_RUN = 20
"""Characters of the shortest secret that is known by its beginning (an AWS access key id)."""


FAILED = "failed-rule"
"""The kind of what a rule failed on: it counts as a secret."""

_LOOKED_AT = 160
"""Characters of a value by which it is judged."""


class Shape:
    """A regular expression, compiled when it is first tried: most texts hold the trigger of no rule."""

    def __init__(self, expression: str, flags: int = 0) -> None:
        self._expression = expression
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The expression, compiled."""
        return re.compile(self._expression, self._flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one kind of secret is found.

    `trigger` (or `anchor`, where no fixed text is telling) is searched first. `pattern` is then tried right there, in
    the `longest` characters from it; the run that follows a match of that length belongs to it. With `before`, it is
    tried anywhere from so many characters before to the end of the line, or `after` characters further where
    `across_lines`. `unbroken` says that trigger and secret are one run of at least SHORTEST_RUN characters without
    white space, so that only long words need be searched. The secret is the group `secret`, else the whole match. A
    match is taken only when `accept` says so.
    """

    kind: str
    trigger: str
    pattern: Shape
    before: int = 0
    after: int = 1024
    across_lines: bool = False
    any_case: bool = False
    longest: int = 1024
    unbroken: bool = False
    anchor: re.Pattern[str] | None = None
    accept: Callable[[str], bool] = bool

    def judge(self, value: str) -> str | None:
        """Return the kind of a value that the pattern found; None if it is no secret, FAILED if that cannot be said."""
        try:
            return self.kind if self.accept(value) else None
        except Exception:
            return FAILED


def entropy(text: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    counts = [text.count(char) for char in set(text)]
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def is_mixed(value: str) -> bool:
    """Whether a value has digits and letters and no long runs, as issued keys have."""
    value = value[:_LOOKED_AT]
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and entropy(value) >= 2.8


_PLACEHOLDER = re.compile(
    r"""(?ix) ^\W*$ | ^[$@&%*]\w+[%*]?$ | ^[$%@]?[({<\[] | ^\\ | %s | \.\.\.|… | \*{3,} | x{4,} | \byour | ^my[_-]
    | example | placeholder | redacted
    | change[_-]?me | dummy | (?:^|[^a-z])fake | sample | insert[_-] | replace[_-] | process\.env | environ
    | getenv | env\(
    | ^(?:none|null|nil|true|false|undefined|string|str|int|bool|boolean|number|any|bytes|object|optional|required|unset
        |empty|test|testing|secret|password|passwd|pass|token|user|username|admin|root|key|value|default|hidden)\d{0,3}$
    | ^(?:https?|file|op|vault|ssm|arn|urn|projects|secretsmanager):[/:] | ^(?:arn|op|vault|ref|secrets?): | ^env[:.]
    | ^@Microsoft\.
    | ^(?:/|\./|~/|\.\./) | ^(?:0+|1+|123|123456?7?8?9?0?|abc|abcdef|xyz|foo|bar|baz|foobar|qwerty)$
    | \$\{|\{\{|<[a-z_ -]+>
    """
)


def is_not_placeholder(value: str, letters: int = 4) -> bool:
    """Whether a value can be a real one: no variable, no path, no `<your token>`, no `changeme`.

    It has so many different `letters` at least.
    """
    return not _PLACEHOLDER.search(value[:_LOOKED_AT]) and len(set(value)) >= letters
