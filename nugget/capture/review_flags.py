"""Flags for a reviewer: commands, URLs, and what a unit would have the reader install."""

from __future__ import annotations

import re

from nugget.models import Speaker, Unit
from nugget.text import shorten

MAX_FLAGS = 12
_SHOWN_CHARS = 120
_PROGRAMS = (
    r"(?:sudo|curl|wget|bash|sh|zsh|eval|python3?|node|npx|pip3?|pipx|uvx?|npm|pnpm|yarn|bun|brew|apt(?:-get)?|dnf|yum|apk"
    r"|pacman|snap|gem|cargo|go|composer|dotnet|docker|podman|kubectl|helm|terraform|git|ssh|scp|rsync|chmod|chown|rm|dd|nc"
    r"|powershell|pwsh|iex|iwr|make|claude|codex|gemini)"
)
_URL = re.compile(r"(?:\b[a-z][a-z0-9+.-]{1,20}://|\bwww\.|\bgit@)[^\s<>\"'`)\]|]{1,500}", re.IGNORECASE)
_PIPED = re.compile(
    r"[^\n`]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|fi)?sh\b[^\n`]{0,60}|\b(?:iex|eval)\b[^\n`]{1,200}", re.IGNORECASE
)
_INSTALL = re.compile(
    r"\b(?:(?:pip3?|pipx|uv|npm|pnpm|yarn|bun|brew|apt(?:-get)?|dnf|yum|apk|snap|gem|cargo|go|composer|helm|code|conda|mamba)"
    r"(?: \w+)? (?:install|add|i|get)\b|(?:npx|uvx|pipx run|docker run|docker pull|go run) )[^\n`]{0,200}",
    re.IGNORECASE,
)
_CODE = re.compile(r"`([^`\n]{2,400})`|^(?: {4}|\t|[$%] )\s*(.{2,400})$", re.MULTILINE)
_FENCED = re.compile(r"^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(rf"^\s*(?:[$%#>] )?(?:\w+=\S+ )*{_PROGRAMS}(?=\s|$).*")


def flags_of(unit: Unit, *, before: str | None = None, after: str | None = None) -> tuple[str, ...]:
    """Return what a reviewer should look at in a unit, each in a few words; at most MAX_FLAGS.

    Of a file that is there already, as it is `before` and `after`, only the new lines count.
    """
    text = f"{unit.title}\n{unit.body}"
    if before is not None and after is not None:
        known = set(before.splitlines())
        text = "\n".join(line for line in after.splitlines() if line not in known)
    found = [f"pipes into a shell: {one.strip()}" for one in _PIPED.findall(text)]
    found += [f"installs or runs a package: {one[0].strip()}" for one in _INSTALL.finditer(text)]
    found += [f"has a command: {one}" for one in _commands(text)]
    found += [f"names an address: {one[0]}" for one in _URL.finditer(text)]
    if unit.speaker in (Speaker.TOOL, Speaker.QUOTED):
        found.insert(0, "rests on what a tool printed or somebody else wrote")
    return tuple(dict.fromkeys(shorten(one, _SHOWN_CHARS) for one in found))[:MAX_FLAGS]


def _commands(text: str) -> list[str]:
    lines = [line for block in _FENCED.findall(text) for line in block.splitlines()]
    lines += [inline or indented for inline, indented in _CODE.findall(_FENCED.sub("", text))]
    return [line.strip() for line in lines if _COMMAND.match(line)]
