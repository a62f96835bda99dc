"""The same secret elsewhere: as it is, in a URL, in base64, or split over lines."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from nugget.redaction.structured import places

_SHORTEST = 8
"""Characters of the shortest secret that is looked for elsewhere: a shorter one may be part of anything."""

_BREAK = r"(?:\\[nrt]|[\s\"'\\+>|]){0,60}?"
"""What stands between two lines of a secret that is split: white space, quotes, signs of code and of quotation."""


def echoes(text: str, known: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of each place at which a known secret (to its kind) stands once more."""
    for secret, kind in known.items():
        mixed = any(map(str.isalpha, secret)) and not (secret.isalpha() and len(secret) < 20)
        if kind == "private" or not mixed or not _SHORTEST <= len(secret) <= 4096:
            continue
        for form in {secret, quote(secret.encode("latin-1"), safe=""), *_encoded(secret)}:
            yield from ((at, at + len(form), kind) for at in places(text, form))
        if len(secret) >= 16:
            split = re.compile(_BREAK.join(map(re.escape, secret[:256])))
            for at in places(text, secret[:6]):
                if not text.startswith(secret, at) and (found := split.match(text, at)):
                    yield *found.span(), kind


def _encoded(secret: str) -> Iterator[str]:
    """Yield what base64 makes of a secret at each of the three places in which it can stand in a group of bytes."""
    data = secret.encode("latin-1")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        skipped, spare = (0, 2, 3)[before], (len(data) + before) % 3
        core = whole.rstrip("=")[skipped : None if not spare else len(whole.rstrip("=")) - 1]
        if len(core) >= _SHORTEST:
            yield core
            yield core.replace("+", "-").replace("/", "_")
