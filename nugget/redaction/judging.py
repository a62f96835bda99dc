"""How a value reads that stands where a secret could: placeholder, reference, word, or something somebody issued."""

from __future__ import annotations

import base64
import json
import math
import re

from nugget.redaction.words import is_reference

_LOOKED_AT = 160
"""Characters of a value by which it is judged."""

_PLACEHOLDER = re.compile(
    r"""(?ix) ^\W*$ | ^[$@&%*]\w+[%*]?$ | ^[$%@]?[({<\[] | ^\\ | %s(?![A-Za-z]) | \.\.\.|… | \*{3,} | x{4,} | \byour
    | ^my[_-]
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
_PORTS = re.compile(r"^\d{1,5}(?:[:/-]\d{1,5})*(?:/\w+)?$|^[\w.]+:\d{1,5}:\d{1,5}$")
_VARIABLE = re.compile(r"^[A-Z_]*(?:PASS|PASSWORD|PASSWD|PWD|PW|SECRET|TOKEN|KEY)$")


def entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits per character."""
    counts = [text.count(char) for char in set(text)]
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def is_not_placeholder(value: str, letters: int = 4) -> bool:
    """Return True for a value that can be a real one: no variable, no path, no `<your token>`, no `changeme`.

    It has at least so many different `letters`.
    """
    return not _PLACEHOLDER.search(value[:_LOOKED_AT]) and len(set(value)) >= letters


def is_issued(value: str) -> bool:
    """Return True for a value in which letters and digits mix without long runs, as in issued keys."""
    seen = value[:_LOOKED_AT]
    return any(map(str.isdigit, seen)) and any(map(str.isalpha, seen)) and entropy(seen) >= 2.8


def is_jumbled(value: str) -> bool:
    """Return True for a value whose letters come in no order of a word, even if no digit is among them."""
    return is_issued(value) or (entropy(value[:_LOOKED_AT]) >= 3.8 and any(map(str.isupper, value[4:])))


def is_jwt(value: str) -> bool:
    """Return True if the first part decodes to a JSON object: the header of a JWS or JWE (RFC 7515 and 7516, in which
    what follows may be encrypted), or what a web framework keeps in a signed cookie. A cut end still counts.
    """
    header = value.partition(".")[0]
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))), dict)
    except ValueError:
        return False


def is_url_password(value: str) -> bool:
    """Return True for what can be a password in a URL, where nothing else can stand but a placeholder."""
    if value in ("root", "admin", "qwerty") or (value.isdigit() and len(value) > 3):
        return True
    return is_not_placeholder(value, letters=2) and not _VARIABLE.match(value)


def is_given_password(value: str) -> bool:
    """Return True for what can be a password where a program takes one, however plain a word it is."""
    if value in ("root", "admin", "qwerty"):
        return True
    digits = value.isdigit() and len(value) > 5
    return digits or (is_not_placeholder(value, letters=3) and not _PORTS.match(value) and not is_reference(value))


def lowered(text: str) -> str:
    """Return the text in lower case and of the same length, so that positions agree (some letters grow)."""
    small = text.lower()
    return small if len(small) == len(text) else "".join(char.lower() if char.isascii() else char for char in text)
