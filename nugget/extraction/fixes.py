"""Failed commands: the lines of their output that say why, and commands without what surrounds them."""

from __future__ import annotations

import re

from nugget.sources.condense import plain
from nugget.text import shorten

_SIGNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r".*\b(?:unknown|unrecognized|invalid|no such|unsupported) (?:flag|option|argument|command|subcommand|key)\b",
        r"(?:\S+_test\.\w+:\d+: |E   +\w)",
        r".*\b(?:panic|fatal|segmentation fault)\b",
        r".*\((?:gosec|errcheck|staticcheck|revive|nilerr|govet|gocritic|typecheck|unused)\)",
        r".*\berror(?:\s+TS\d+|\[\w+\])?:",
        r"(?:E\s+)?[\w.]*(?:Error|Exception|Warning)\b",
        r".*\b(?:undefined|undeclared|not found|cannot|can't|could not|denied|refused|timed out|mismatch|conflict"
        r"|failed)\b",
    )
)
"""What the telling line of a failure looks like, the most telling first."""

_NOISE = re.compile(
    r"^\s*(?:--- FAIL|FAIL\b|=== |ok\s|PASS|exit status|\d+ (?:failed|passed)|npm ERR!? code|error: script|traceback)"
    r"|task failed|could not apply|\bCONFLICT\b|automatic merge failed|merge conflict",
    re.IGNORECASE,
)
_CD = re.compile(
    r"^(?:\s*(?:cd|export|source|set|timeout)\s+[^&;|]+(?:&&|;)\s*"
    r"|\s*[A-Z_][A-Z0-9_]*=(?:\$\([^()]*\)|\"[^\"]*\"|'[^']*'|[^\s;&|()\"'])*(?:\s*(?:&&|;)\s*|\s+))+"
)
_PLUMBING = re.compile(
    r"\s*(?:2>&1|\|\s*(?:head|tail|grep|sed|awk|tee|jq|wc|cat)\b.*$|>\s*/dev/null|<<.*$|\|\|\s*true\s*$"
    r"|\s--?(?:body|message|m|description|title)[ =]\s*[\"'].*$)",
    re.DOTALL,
)


def signature_of(output: str, *, limit: int = 3) -> tuple[str, ...]:
    """The lines of a failure that say what went wrong, the most telling kind first."""
    lines = [line.strip() for line in plain(output).splitlines()]
    lines = [line for line in lines if 8 <= len(line) <= 400 and not _NOISE.search(line)]
    for sign in _SIGNS:
        found = [line for line in lines if sign.match(line)]
        if found:
            return tuple(dict.fromkeys(shorten(line, 300) for line in found))[:limit]
    return ()


def bare_command(text: str) -> str:
    """A command without `cd …`, variables, redirections and filters, on one line."""
    first = _CD.sub("", text.strip())
    return " ".join(_PLUMBING.sub("", first).split())
