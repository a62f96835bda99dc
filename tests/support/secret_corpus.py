"""A corpus of secrets and look-alikes, made by program: each kind of `secret_kinds.txt` in every place it may stand.

A template holds random parts as `<class length>`: `d` digits, `x` and `X` hex, `a` lower and `u` upper case letters,
`l` either, `n` letters and digits, `L` lower case and digits, `U` upper case and digits, `T` base32, `W` base58,
`b` base64url, `B` base64; and the wholes `<uuid>`, `<password>`, `<pw>` (of many makes), `<word>`, `<words4>` and
`<jwt>`.
"""

import base64
import json
import random
import re
import string
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMES = "wide blind told fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"
LISTS = ("", *(f"_{name}" for name in f"{_NAMES} fifteenth sixteenth seventeenth eighteenth".split()))
"""The list that our rules were written along, and those that were written without regard to them."""

_HERE = Path(__file__).parent

_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
_CLASSES = {
    "d": _DIGITS, "x": "0123456789abcdef", "X": "0123456789ABCDEF", "a": _LOWER, "u": _UPPER, "l": _LOWER + _UPPER,
    "n": _LOWER + _UPPER + _DIGITS, "L": _LOWER + _DIGITS, "U": _UPPER + _DIGITS, "T": _UPPER + "234567",
    "W": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "b": _LOWER + _UPPER + _DIGITS + "-_", "B": _LOWER + _UPPER + _DIGITS + "+/",
}  # fmt: skip
_WORDS = (
    "kaffee regen harbour wolke tiger orbit velvet copper lantern meadow saffron pebble walnut glacier thunder marble "
    "willow cactus anchor bamboo candle falcon garnet hazel island jasmine kettle lemon magnet nectar olive pepper"
).split()
_PART = re.compile(r"<(?:(?P<cls>[dxXaulnLUTWbB])(?P<size>\d+)|(?P<name>uuid|password|pw|word|words\d+|jwt|github))>")
_MARKED = re.compile(r"«(.*?)»", re.DOTALL)

_PLACES = {
    "prose": ("I pasted {} into the chat by accident.", "use {} for now, we rotate it on Friday"),
    "shell": ("tool login {}", "./deploy.sh --env prod {} && echo done"),
    "code": ('client = Client("{}")', "const c = new Api('{}');"),
    "config": ("value: {}", '"x": "{}",'),
    "log": ("2026-03-04T10:11:12Z INFO worker using {} for upload", "[debug] sent {} (200 OK)"),
}
_WIDE_PLACES = {
    "chat": ("hey can you try with {}", "{}", "it's {}, thanks!"),
    "table": ("| staging | {} | bob |", "staging,{},2026-01-01"),
    "diff": ('+  "{}",', "-x = '{}'"),
    "json": ('{{"text": "{}", "ok": true}}', '{{\\"a\\": \\"{}\\"}}'),
    "markup": ("<value>{}</value>", "`{}`"),
    "output": ("$ cat f\\n{}\\n$", "  1\t{}", "\x1b[32m{}\x1b[0m"),
}
"""Where an issued token may stand without a telling name."""


@dataclass(frozen=True, slots=True)
class Example:
    """A text, what of it must go, and where the kind stands; `apart` for the kinds that no rule was tuned on."""

    kind: str
    context: str
    text: str
    secrets: tuple[str, ...]
    apart: bool


def expanded(template: str, chance: random.Random) -> str:
    """The template with random values in place of its parts."""

    def value(found: re.Match[str]) -> str:
        if found["cls"]:
            size, letters = int(found["size"]), _CLASSES[found["cls"]]
            return "".join(chance.choice(letters) for _ in range(size))
        return _whole(found["name"], chance)

    return _PART.sub(value, template)


def _whole(name: str, chance: random.Random) -> str:
    if name == "uuid":
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))
    if name == "word":
        return chance.choice(_WORDS)
    if name.startswith("words"):
        return " ".join(chance.sample(_WORDS, int(name[5:])))
    if name == "jwt":
        parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": str(chance.getrandbits(40)), "iat": 1760000000})
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        return ".".join([*encoded, expanded("<b43>", chance)])
    if name == "github":  # 30 random characters, and their CRC-32 in base 62
        body = expanded("<n30>", chance)
        return body + _base62(zlib.crc32(body.encode()))
    if name == "pw":
        return _chosen(chance)
    word, sign = chance.choice(_WORDS).capitalize(), chance.choice("!#%*+?")
    return f"{word}{chance.randrange(10, 9999)}{sign}{expanded('<l3>', chance)}"


def _chosen(chance: random.Random) -> str:
    """A password of one of the makes that people and their managers use."""
    first, second = chance.sample(_WORDS, 2)
    makes = ("<n7>!<n6>", "<L10><d2>", "<n4>@<n3>#<n5>", "<n16>", f"{first}<d3>", f"{first.capitalize()}<d2>!",
             f"{first}-{second}-<d2>", f"{first.capitalize()}{second.capitalize()}<d1>",
             first.replace("a", "4").replace("e", "3").replace("o", "0") + "_<d2>", "<U3>-<L5>-<n5>")  # fmt: skip
    return expanded(chance.choice(makes), chance)


def _base62(number: int) -> str:
    letters, written = _DIGITS + _UPPER + _LOWER, ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        written = letters[rest] + written
    return written


def _lines(name: str, which: str) -> Iterator[str]:
    lines = (_HERE / f"secret_{name}{which}.txt").read_text("utf-8").splitlines()
    yield from (line for line in lines if line and not line.startswith("#"))


def secrets(seed: int = 1, which: str = "") -> Iterator[Example]:
    """Every kind of a list in every place it has, secrets marked by « » in the list taken out of the text."""
    for line in _lines("kinds", which):
        kind, context, template = (part.strip() for part in line.split("|", 2))
        chance = random.Random(f"{seed}{kind}{template}")
        apart = zlib.crc32(kind.encode()) % (2 if which else 3) == 0
        frames = [(context, template)]
        if context in ("issued", "bare"):
            places = _WIDE_PLACES if which else _PLACES
            frames = [
                (f"{context} in {name}", chance.choice(frame).format(f"«{template}»")) for name, frame in places.items()
            ]
        for where, frame in frames:
            text = expanded(frame.replace("\\n", "\n"), chance)
            yield Example(kind, where, _MARKED.sub(r"\1", text), tuple(_MARKED.findall(text)), apart)


def lookalikes(seed: int = 1, which: str = "") -> Iterator[tuple[bool, str]]:
    """Texts of which nothing may go, each with whether it is kept apart."""
    chance = random.Random(seed)
    for line in _lines("lookalikes", which):
        apart = zlib.crc32(line.encode()) % (2 if which else 3) == 0
        for _ in range(3 if "<" in line else 1):
            yield apart, expanded(line.replace("\\n", "\n"), chance)


def corpus(name: str) -> list[dict[str, Any]]:
    """The fake secrets, or the look-alikes, that were written by hand."""
    rows: list[dict[str, Any]] = json.loads((_HERE.parent / "redaction_corpus" / f"{name}.json").read_text("utf-8"))
    return rows


def left_over(secret: str, text: str) -> bool:
    """Whether any run of 12 characters of the secret is still there: each holds one of its blocks of six."""
    size, block = min(12, len(secret)), min(6, (len(secret) + 1) // 2)
    if not any(secret[start : start + block] in text for start in range(0, len(secret) - block + 1, block)):
        return False
    return any(secret[start : start + size] in text for start in range(len(secret) - size + 1))
