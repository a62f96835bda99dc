"""Kingfisher's engine with its built-in rules and those of `rules/`; opened when the first text is redacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from nugget.config import rule_cache
from nugget.redaction.judging import (
    is_given_password,
    is_issued,
    is_jumbled,
    is_jwt,
    is_not_placeholder,
    is_url_password,
)

RULES = Path(__file__).with_name("rules")
FAILED = "failed-rule"
"""The kind of what a rule failed on: it counts as a secret."""

_NO_SECRET = re.compile(
    r"client-id|account-id|tenant-id|application-id|app-id|auth-id|access-id$|api-id|-(?:host|domain|username|cloud-name)$"
    r"|pub(?:lic)?-(?:key|api-key|api-token)|address|(?:project|instance|rest|jfrog)-url|account-name|token-name"
    r"|-repository$|planetscale-id|kubernetes-secret-yaml|generic-credential-uri|posthog-project|devcycle-client"
)
"""Built-in rules that find names of accounts and hosts, or what our own rules find more closely."""
_RUN = re.compile(r"[A-Za-z0-9+/=_.%~-]*")

_JUDGES: dict[str, Callable[[str], bool]] = {
    "issued": lambda value: is_not_placeholder(value) and is_jumbled(value),
    "settings": lambda value: is_not_placeholder(value) and is_issued(value),
    "commands": is_given_password,
}
_JUDGES_OF_KINDS: dict[str, Callable[[str], bool]] = {
    "api-key": lambda value: is_not_placeholder(value) and is_issued(value),
    "google-key": is_not_placeholder,
    "session-cookie": is_issued,
    "bearer-token": is_not_placeholder,
    "npm-token": is_not_placeholder,
    "snmp-community": is_given_password,
    "totp-secret": is_jumbled,
    "webhook-url": bool,
    "jwt": is_jwt,
    "private-key": bool,
    "url-password": is_url_password,
}


@cache
def _scanner() -> Any:
    from kingfisher_sdk import Rules, Scanner  # 60 MB and .2 s that only commands that redact need

    paths = [str(path) for path in sorted(RULES.glob("*.yaml"))]
    return Scanner(Rules(paths, confidence="low", cache_dir=rule_cache()), base64=False)


def kinds() -> list[str]:
    """The kinds that our own rules name."""
    files = (file.read_text("utf-8") for file in RULES.glob("*.yaml"))
    return sorted({name for text in files for name in re.findall(r"(?m)^  - name: (.+)$", text)})


def issued_secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of what the engine's rules find, ours first."""
    data = text.encode("utf-8", "surrogatepass")
    findings = [finding for finding in _scanner().scan(data) if finding.visible]
    found = sorted(
        (finding.location["start_offset"], finding.location["end_offset"], finding.rule_id) for finding in findings
    )
    spans: list[tuple[bool, int, int, str]] = []
    at, chars = 0, 0
    for start, end, rule in found:
        family, kind = _named(rule)
        if not kind:
            continue
        chars += len(data[at:start].decode("utf-8", "surrogatepass"))
        at = start
        value = data[start:end].decode("utf-8", "surrogatepass")
        stop = chars + len(value)
        if judged := judge(family, kind, value):
            run = _RUN.match(text, stop) if family == "issued" and kind != "webhook-url" else None
            spans.append((family == "built-in", chars, run.end() if run and len(value) >= 120 else stop, judged))
    yield from ((start, end, kind) for _, start, end, kind in sorted(spans, key=lambda span: span[:2]))


@cache
def _named(rule: str) -> tuple[str, str]:
    """Return the family (the file of our rules, or `built-in`) and kind of a rule; no kind if it finds no secrets."""
    family, _, rest = rule.partition(".")
    kind = re.sub(r"\.\d+$", "", rest if family in _JUDGES else re.split(r"[./]", rule, maxsplit=1)[-1])
    kind = kind.removeprefix("secrets/")
    if family in _JUDGES:
        return family, kind
    return "built-in", "" if _NO_SECRET.search(kind) else kind


def judge(family: str, kind: str, value: str) -> str | None:
    """Return the kind of a value that a rule found; None if it is no secret, FAILED if that cannot be said."""
    try:
        accept = _JUDGES_OF_KINDS.get(kind) or _JUDGES.get(family, is_not_placeholder)
        return kind if accept(value) else None
    except Exception:
        return FAILED
