"""What a command and its output tell of a failure: the lines that say it, and failures that an exit code hides."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nugget.extraction.fixes import signature_of
from nugget.sources.shell_logs import looks_failed
from nugget.text import shorten

MAX_LINES = 6
STARTERS = frozenset("sudo time env command npx bunx uv poetry pipenv run exec nohup".split())
"""Programs that run the program behind them."""

_READERS = frozenset(
    "cat grep egrep rg ag head tail less more sed awk ls find echo printf jq curl wget tree wc git-log git-show "
    "git-diff git-grep git-blame git-status gh-run gh-pr gh-issue gh-api docker-logs kubectl-logs journalctl".split()
)
"""Programs whose output shows what others wrote, so that an `error:` in it is no failure of theirs."""
_STRONG = re.compile(
    r"(?:error(?:\[\w+\])?:|\w*(?:Error|Exception): \S|FAIL(?:ED)?\b|Traceback \(most recent|panic: |fatal: |npm ERR!"
    r"|✗|✘|×|CONFLICT \(|Automatic merge failed"
    r"|\s*--- FAIL|E   |thread '.*' panicked|make(?:\[\d+\])?: \*\*\*|ERROR\b|Failed to |Cannot find |"
    r".*\berror TS\d+:|.*: command not found|.*No such file or directory|.*(?:[1-9]\d*) (?:failed|failing|errors?)\b)"
)
_LISTING = re.compile(r"\s*\d*\s*[│|]|\s*\d+ [│|]")
"""A line of code or of a difference that a tool shows around what it complains of."""


def programs_of(command: str) -> list[str]:
    """The programs of a command line, each with the sub-command where that tells more (`git-log`)."""
    found = []
    for part in re.split(r"\|\||&&|[|;\n]", command[:2000]):
        words = part.split()
        while words and ("=" in words[0] or words[0] in STARTERS):
            words = words[1:]
        if words and words[0] not in ("cd", "export", "source", "set"):
            program = words[0].rsplit("/", 1)[-1]
            compound = program in ("git", "gh", "docker", "kubectl") and len(words) > 1
            found.append(f"{program}-{words[1]}" if compound else program)
    return found


def telling_lines(lines: Sequence[str]) -> list[str]:
    """The lines of an output that say what went wrong, the most telling first."""
    lines = [line for line in lines if not _LISTING.match(line)]
    if not lines:
        return []
    signs = list(signature_of("\n".join(lines), limit=4))
    strong = [line.strip() for line in lines if _STRONG.match(line.strip())]
    if not signs and not strong:
        strong = [line.strip() for line in lines if looks_failed(line)]
    last = [line.strip() for line in lines[-2:] if line.strip()]
    return [shorten(line, 300) for line in dict.fromkeys([*signs, *strong[:MAX_LINES], *last])][:MAX_LINES]


def is_masked_failure(command: str, lines: Sequence[str]) -> bool:
    """Whether a command that went well by its exit code failed by what it printed, as behind `| tail` or `; echo`."""
    if not may_mask(command) or is_reading(command):
        return False
    return any(_STRONG.match(line.strip()) and not _is_nothing(line) for line in lines)


def may_mask(command: str) -> bool:
    """Whether the exit code of a command can be that of another one, or of none."""
    return "|" in command or ";" in command or "&" in command


def said_in(lines: Sequence[str]) -> set[str]:
    """The words of the lines of an output that look like failures, by which a question finds it."""
    failing = [line for line in lines if looks_failed(line)][:30]
    return {word.lower() for line in failing for word in re.findall(r"[^\W_]{3,40}", line)}


def _is_nothing(line: str) -> bool:
    return re.search(r"\b0 (?:failed|failing|errors?)\b", line) is not None and not re.search(r"\b[1-9]\d* ", line)


def is_reading(command: str) -> bool:
    """Whether a command shows what others wrote."""
    programs = programs_of(command)
    return bool(programs) and programs[0] in _READERS
