"""Play the way from a session to an answer in a temporary home, offline, and say what works on this machine."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nugget.config import read_environment

_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
)
_LIMIT_S = 300
_SAID = "remember: sourdough in a cold kitchen needs twice the time, because yeast is slow below 18 degrees."
_SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae17" + "8B4a"
_PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'

Finding = dict[str, Any]


def self_check() -> Iterator[Finding]:
    """Yield one finding for each step, as `doctor` does; nothing outside the temporary folder is read or written."""
    with tempfile.TemporaryDirectory(prefix="nugget-self-check-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        session = home / "session.jsonl"
        session.write_text("".join(map(_record, (_SAID, f"The token is {_SECRET}."))), "utf-8")
        steps: tuple[tuple[str, tuple[str, ...], Callable[[str], bool]], ...] = (
            ("brain", ("init", str(home / "brain"), "--no-install"), lambda out: "Made the brain" in out),
            ("write", ("add", "Rye dough is sticky.", "--type", "pattern", "--domain", "baking"), bool),
            ("lint", ("lint",), lambda out: True),
            ("capture", ("capture-session", "--transcript", str(session), "--with", "offline"), bool),
            ("review", ("review", "accept"), bool),
            (
                "redaction",
                ("redact", str(session)),
                lambda out: "github-token" in out and not _holds(home, _SECRET, besides=session),
            ),
            ("index", ("sync", "--rebuild"), lambda out: True),
            ("words", ("search", "sourdough", "--json"), lambda out: "twice the time" in out),
            ("meaning", ("ask", "bread in winter", "--no-llm", "--json"), _is_by_meaning),
            ("agents", ("serve",), lambda out: json.loads(out.splitlines()[0]).get("id") == 1),
        )
        for name, arguments, is_right in steps:
            yield _run(home, name, arguments, is_right)


def _run(home: Path, name: str, arguments: tuple[str, ...], is_right: Callable[[str], bool]) -> Finding:
    """Run one command in the temporary home; a step that fails does not stop the others."""
    variables = read_environment().variables
    kept = {key: variables[key] for key in _KEPT if key in variables}
    places = {"HOME": str(home), "USERPROFILE": str(home), "NUGGET_HOME": str(home / ".nugget"), "USER": "nugget"}
    command = [sys.executable, "-P", "-m", "nugget", *arguments]
    shown = f"nugget {shlex.join(arguments)}".replace(str(home), "~")
    try:
        done = subprocess.run(
            command, cwd=home, env={**kept, **places, "NUGGET_RESIDENT_S": "0"}, input=_PING, timeout=_LIMIT_S,
            capture_output=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        works = done.returncode == 0 and is_right(done.stdout)
        reason = done.stderr.strip().split("\n")[0] or "an answer that was not expected"
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        works, reason = False, str(error) or type(error).__name__
    state, said = ("ok", shown) if works else ("error", f"{shown}: {reason}")
    return {"name": name, "state": state, "said": said, "next_step": None}


def _is_by_meaning(out: str) -> bool:
    answer = json.loads(out)
    return "no_vectors" not in answer["degraded"] and "sourdough" in json.dumps(answer["hits"])


def _holds(folder: Path, text: str, *, besides: Path) -> bool:
    every = (file for file in folder.rglob("*") if file.is_file() and file != besides)
    return any(text.encode() in file.read_bytes() for file in every)


def _record(said: str) -> str:
    """Return a prompt as Claude Code writes it to a transcript."""
    return json.dumps({
        "type": "user", "uuid": str(len(said)), "parentUuid": None, "sessionId": "self-check", "cwd": "/bakery",
        "timestamp": "2026-01-01T12:00:00.000Z", "version": "2.1.0", "isSidechain": False, "userType": "external",
        "entrypoint": "cli", "message": {"role": "user", "content": said},
    }) + "\n"  # fmt: skip
