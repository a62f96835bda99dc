"""Kingfisher's engine with its built-in rules and those of `rules/`; opened when the first text is redacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from nugget.config import rule_cache
from nugget.redaction.judging import (
    RULES,
    holds_settings,
    is_generated,
    is_given_password,
    is_issued,
    is_jumbled,
    is_jwt,
    is_not_placeholder,
    is_odd,
    is_phrase,
    is_public,
    is_random,
    is_random_pair,
    is_scrambled,
    is_strong,
    is_unknown_token,
    is_url_password,
)

_NO_SECRET = re.compile(
    r"client-id|account-id|tenant-id|application-id|app-id|auth-id|access-id$|api-id|-(?:host|domain|username|cloud-name)$"
    r"|pub(?:lic)?-(?:key|api-key|api-token)|address|(?:project|instance|rest|jfrog)-url|account-name|token-name"
    r"|-repository$|planetscale-id|kubernetes-secret-yaml|generic-credential-uri|posthog-project|devcycle-client"
)
"""Built-in rules that find names of accounts and hosts, or what our own rules find more closely."""
_LAST = frozenset(["unknown-token", "environment-token", "named-token", "encoded-secret"])
"""Kinds that name a secret only if no other kind does."""
_RUN = re.compile(r"[A-Za-z0-9+/=_.%~-]*")
"""How a secret goes on that is longer than a rule reads."""
_COLOUR = re.compile(r"\[(?:\d{1,3};)*\d{1,3}m")
_SAID = re.compile(r"(?s).*[^.,;:!?)\]*]")
"""A value in a sentence, without the sentence's signs."""
_CODES = re.compile(
    r"(?:[\s,;*•|-]{0,8}(?:and\s|\d{1,2}[.)]\s)?(?:(?=[A-Za-z]{0,9}\d)[A-Za-z0-9]{4,10}|[a-f]{5}\b)"
    r"(?:-[A-Za-z0-9]{3,10}|[ ]\d{4}\b){0,3})+"
)
"""Codes in a row, each of which holds a digit."""

_JUDGES: dict[str, Callable[[str], bool]] = {
    "issued": lambda value: is_not_placeholder(value) and is_jumbled(value),
    "settings": lambda value: is_not_placeholder(value) and is_issued(value),
    "commands": is_given_password,
    "prose": is_strong,
}
"""How values are judged, by the file of rules that found them; the next table has the kinds that differ."""
_JUDGES_OF_KINDS: dict[str, Callable[[str], bool]] = {
    "api-key": lambda value: is_not_placeholder(value) and is_issued(value),
    "unknown-token": is_unknown_token,
    "google-key": is_not_placeholder,
    "session-cookie": is_issued,
    "bearer-token": is_not_placeholder,
    "npm-token": is_not_placeholder,
    "snmp-community": is_given_password,
    "totp-secret": is_jumbled,
    "wallet-key": is_random,
    "webhook-url": is_jumbled,
    "jwt": is_jwt,
    "private-key": bool,
    "url-password": is_url_password,
    "pin": bool,
    "passphrase": is_phrase,
    "recovery-code": bool,
    "encoded-secret": holds_settings,
    "given-login": is_strong,
    "issued-pair": is_jumbled,
    "random-pair": is_random_pair,
    "told-password": is_odd,
    "flag-token": lambda value: is_random(value) or is_odd(value) or is_scrambled(value),
    "given-basic": is_strong,
    "named-token": lambda value: is_random(value) and not is_public(value) and is_not_placeholder(value),
    "masked-value": is_given_password,
    "upload-token": is_not_placeholder,
    "environment-token": lambda value: is_issued(value.rpartition("_")[2]) and not is_public(value),
    "recovery-list": bool,
    "xml-setting": is_given_password,
    "json-parameter": is_given_password,
    "vpn-key": is_strong,
    "told-token": lambda value: is_generated(value, quoted=True),
}


@cache
def _scanner() -> Any:
    """Return the engine, or the error that its rules raise: compiling takes seconds even if it fails."""
    from kingfisher_sdk import Rules, Scanner  # 60 MB and .2 s that only commands that redact need

    paths = [str(path) for path in sorted(RULES.glob("*.yaml"))]
    try:
        return Scanner(Rules(paths, confidence="low", cache_dir=rule_cache()), base64=False)
    except RuntimeError as error:
        return error


def is_prepared() -> bool:
    """Return True if rules were compiled on this machine before."""
    folder = rule_cache()
    return folder is None or any(folder.glob("*.vscdb"))


def prepare() -> None:
    """Open the engine; the first time on a machine, the rules are compiled, which takes seconds."""
    _scanner()


def kinds() -> list[str]:
    """Return the kinds that our own rules name."""
    files = (file.read_text("utf-8") for file in RULES.glob("*.yaml"))
    return sorted({name for text in files for name in re.findall(r"(?m)^  - name: (.+)$", text)})


def issued_secrets(view: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of what the engine's rules find, ours first; a view has a character for a byte."""
    found: list[tuple[int, int, int, str]] = []
    scanner = _scanner()
    if isinstance(scanner, RuntimeError):
        raise scanner
    # Built-in rules for key blocks and curl take time by the square of their number; both are found without them.
    for finding in scanner.scan(view.replace("BEGIN ", "B3G1N ").replace("curl", "kurl").encode("latin-1")):
        family, kind = _named(finding.rule_id)
        if not kind or not finding.visible:
            continue
        place = finding.location
        start, end = place["start_offset"], place["end_offset"]
        if kind in ("unknown-token", "encoded-secret"):
            start, end = _whole(view, start, end)
        value = view[start:end].encode("latin-1").decode("utf-8", "replace")
        if family == "prose":
            kept = _CODES.search(value) if kind == "recovery-code" else _SAID.match(value)
            start += len(value[: kept.start()].encode()) if kept else 0
            value = kept.group() if kept else ""
            end = start + len(value.encode())
        if _accepts(family, kind)(value):
            run = _RUN.match(view, end) if len(value) >= 95 and kind != "webhook-url" else None
            rank = 2 if kind in _LAST else int(family == "built-in")
            found.append((rank, start, run.end() if run else end, kind))
    yield from ((start, end, kind) for _, start, end, kind in sorted(found))


def _whole(view: str, start: int, end: int) -> tuple[int, int]:
    """Return where the word around a part begins and ends that a rule found."""
    first = start
    while first > 0 and start - first < 1024 and (view[first - 1].isalnum() or view[first - 1] in "_.-/+=%"):
        first -= 1
    if colour := _COLOUR.match(view, first - 1):
        first = min(colour.end(), start)
    run = _RUN.match(view, end, end + 65_536)
    return first, run.end() if run else end


@cache
def _named(rule: str) -> tuple[str, str]:
    """Return the family (the file of our rules, or `built-in`) and kind of a rule; no kind if it finds no secrets."""
    family, _, rest = rule.partition(".")
    if family in _JUDGES:
        return family, re.sub(r"\.\d+$", "", rest)
    kind = re.split(r"[./]", rule, maxsplit=1)[-1].removeprefix("secrets/")
    return "built-in", "" if _NO_SECRET.search(kind) else kind


@cache
def _accepts(family: str, kind: str) -> Callable[[str], bool]:
    """Return what judges the values that a rule finds."""
    given = is_given_password if family in _JUDGES and kind.endswith("-password") else None
    return _JUDGES_OF_KINDS.get(kind) or given or _JUDGES.get(family, is_not_placeholder)
