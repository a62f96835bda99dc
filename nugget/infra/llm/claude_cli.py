"""Structured replies through the `claude` command, for those who have a subscription and no key. Opt-in.

The command runs without tools, MCP servers, hooks, plugins, CLAUDE.md or memory, saves no session, and works in a
folder of Nugget's own, whose sessions are never captured. Its environment says that Nugget started it, and a
Nugget that finds itself inside such a session starts no other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nugget.errors import LLMUnavailable
from nugget.infra import files
from nugget.infra.llm.gate import Call, Gate, Reply, Request
from nugget.text import shorten

INSIDE = "NUGGET_INSIDE"
"""Set for every `claude` that Nugget starts."""

_SWITCHES = (
    "--print", "--output-format", "json", "--tools", "", "--safe-mode", "--strict-mcp-config", "--setting-sources", "",
    "--disable-slash-commands", "--no-session-persistence", "--permission-prompts", "none",
)  # fmt: skip
_OF_THE_SESSION_AROUND = re.compile(
    r"CLAUDECODE|CLAUDE_PID|CLAUDE_PROJECT_DIR|CLAUDE_ENV_FILE|CLAUDE_PLUGIN_\w+|AI_AGENT"
    r"|CLAUDE_CODE_(?:SESSION_\w+|CHILD_SESSION|ENTRYPOINT|MESSAGING_SOCKET)"
)


class ClaudeCli(Gate):
    """The `claude` command as an LLM that gives structured values. What it costs is counted at list price."""

    def __init__(self, *, home: Path, variables: Mapping[str, str], allow: Sequence[re.Pattern[str]] = ()) -> None:
        super().__init__(home=home, allow=allow, secret=variables.get("ANTHROPIC_API_KEY", ""))
        self._variables = variables

    def structured(self, request: Request, schema: Mapping[str, Any]) -> Reply:
        """Ask as `LLM.structured` does; `max_tokens` only serves the estimate of the cost.

        The command itself asks again, up to five times, when a reply does not follow the schema.
        """
        system, prompt = self._clean(request.system), self._clean(request.prompt)
        call = Call(request=request, body={"system": system, "messages": [prompt]})
        with self._recorded(call):
            arguments = [
                *_SWITCHES, "--model", request.model, "--effort", request.effort or "medium",
                "--max-budget-usd", f"{request.max_usd:.4f}", "--system-prompt", system,
                "--json-schema", json.dumps(schema),
            ]  # fmt: skip
            result = self._result(self._run(arguments, prompt, call), call)
            return self._reply(json.dumps(result.get("structured_output")), schema, call)

    def _run(self, arguments: Sequence[str], prompt: str, call: Call) -> bytes:
        command = shutil.which("claude", path=self._variables.get("PATH"))
        if command is None:
            call.free = True
            raise LLMUnavailable(
                "There is no `claude` command on the PATH.",
                hint="Install Claude Code, or set `llm: {extract_with: api}` and ANTHROPIC_API_KEY.",
            )
        if self._variables.get(INSIDE):
            call.free = True
            raise LLMUnavailable("Nugget was started by a `claude` that Nugget started, and starts no other.")
        folder = self._home / "claude-code"
        files.private_folder(folder)
        kept = {name: value for name, value in self._variables.items() if not _OF_THE_SESSION_AROUND.fullmatch(name)}
        process = subprocess.Popen(
            [command, *arguments], cwd=folder, env={**kept, INSIDE: "1", files.GUARD: "1"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        with process:
            try:
                output, errors = process.communicate(prompt.encode(), timeout=call.left_s())
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with its children
                raise
        if not output.strip():
            said = shorten(self._scrub(errors.decode("utf-8", "replace")), 200) or f"exit code {process.returncode}"
            raise LLMUnavailable(f"`claude` gave no reply ({said}).", hint="Try `claude -p hello` in a terminal.")
        return output

    def _result(self, output: bytes, call: Call) -> dict[str, Any]:
        """Parse the output of `claude --print --output-format json`, and note its cost."""
        result = json.loads(output)
        if not isinstance(result, dict):
            raise ValueError("no result")
        call.note_usage(result.get("usage"))
        call.stop_reason = str(result.get("stop_reason") or "")
        cost = result.get("total_cost_usd")
        if isinstance(cost, (int, float)) and 0 <= cost < 1_000:
            call.reported_usd = float(cost)
        if result.get("is_error") or "structured_output" not in result:
            reason = result.get("errors") or result.get("result") or result.get("subtype") or "no reply"
            text = "; ".join(map(str, reason)) if isinstance(reason, list) else str(reason)
            raise LLMUnavailable(f"`claude` failed: {shorten(self._scrub(text), 300).rstrip('.')}.")
        return result

    def _translated(self, error: Exception, call: Call) -> LLMUnavailable:
        if isinstance(error, (subprocess.TimeoutExpired, TimeoutError)):
            return LLMUnavailable(
                f"`claude` did not answer within {call.request.timeout_s:g} s ({call.request.purpose})."
            )
        if isinstance(error, OSError):
            return LLMUnavailable(f"`claude` could not be started ({error.strerror}).")
        return LLMUnavailable(f"The reply of `claude` could not be read ({type(error).__name__}).")
