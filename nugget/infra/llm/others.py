"""Models without the anthropic SDK: the `claude` command, and servers that speak OpenAI's API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nugget.config import Settings
from nugget.errors import LLMUnavailable
from nugget.infra import files, http_client, system
from nugget.infra.llm.gate import Model, ModelCall, Price, Request
from nugget.text import shorten

INSIDE = "NUGGET_INSIDE"
"""The variable set for every `claude` that Nugget starts."""
_SWITCHES = (
    "--print", "--output-format", "json", "--tools", "", "--safe-mode", "--strict-mcp-config", "--setting-sources", "",
    "--disable-slash-commands", "--no-session-persistence", "--permission-prompts", "none",
)  # fmt: skip
_SESSION_VARIABLES = (
    r"CLAUDECODE|CLAUDE_PID|CLAUDE_PROJECT_DIR|CLAUDE_ENV_FILE|CLAUDE_PLUGIN_\w+|AI_AGENT"
    r"|CLAUDE_CODE_(?:SESSION_\w+|CHILD_SESSION|ENTRYPOINT|MESSAGING_SOCKET)"
)
_ENDS = {"length": "max_tokens", "content_filter": "refusal"}


class ClaudeCli(Model):
    """The `claude` command, for structured values. Its cost is counted at list price.

    The command runs without tools, MCP servers, hooks, plugins, CLAUDE.md or memory, saves no session, and works in its
    own folder, whose sessions are never captured. Its environment says that Nugget started it, and a Nugget inside such
    a session does not start another. It asks again by itself, up to five times, if a reply does not follow the schema.
    """

    def __init__(self, *, home: Path, variables: Mapping[str, str], allow: Sequence[re.Pattern[str]] = ()) -> None:
        super().__init__(home=home, allow=allow, secret=variables.get("ANTHROPIC_API_KEY", ""))
        self._variables = variables

    def _body(self, request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
        return {"system": self._clean(request.system), "messages": self._clean(request.prompt)}

    def _complete(self, call: ModelCall, schema: Mapping[str, Any]) -> str:
        request = call.request
        output = self._run(call, [
            *_SWITCHES, "--model", request.model, "--effort", request.effort or "medium",
            "--max-budget-usd", f"{request.max_usd:.4f}", "--system-prompt", call.body["system"],
            "--json-schema", json.dumps(schema),
        ])  # fmt: skip
        result = json.loads(output)
        call.note_usage(result.get("usage"))
        call.stop_reason = str(result.get("stop_reason") or "")
        cost = result.get("total_cost_usd")
        if isinstance(cost, (int, float)) and 0 <= cost < 1_000:
            call.reported_usd = float(cost)
        if result.get("is_error") or "structured_output" not in result:
            reason = result.get("errors") or result.get("result") or result.get("subtype") or "no reply"
            text = "; ".join(map(str, reason)) if isinstance(reason, list) else str(reason)
            raise LLMUnavailable(f"`claude` failed: {shorten(self._scrub(text), 300).rstrip('.')}.")
        return json.dumps(result["structured_output"])

    def _run(self, call: ModelCall, arguments: Sequence[str]) -> bytes:
        command = shutil.which("claude", path=self._variables.get("PATH"))
        if command is None or self._variables.get(INSIDE):
            call.free = True
            if command is not None:
                raise LLMUnavailable("This Nugget was started by a `claude` of another Nugget, and starts no other.")
            raise LLMUnavailable("`claude` is not on the PATH.", hint="Install it, or change `extraction.with`.")
        folder = self._home / "claude-code"
        files.private_folder(folder)
        kept = {name: value for name, value in self._variables.items() if not re.fullmatch(_SESSION_VARIABLES, name)}
        try:
            process = subprocess.Popen(
                [command, *arguments], cwd=folder, env={**kept, INSIDE: "1", files.GUARD: "1"}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise LLMUnavailable(f"`claude` could not be started ({error.strerror}).") from error
        with process:
            try:
                output, errors = process.communicate(call.body["messages"].encode(), timeout=call.left_s())
            except BaseException:
                system.end_group(process)
                raise
        if not output.strip():
            reason = shorten(self._scrub(errors.decode("utf-8", "replace")), 200) or f"exit code {process.returncode}"
            raise LLMUnavailable(f"`claude` gave no reply ({reason}).", hint="Try `claude -p hello` in a terminal.")
        return output


class OpenAI(Model):
    """A server with OpenAI's chat completions (vLLM, Ollama, LM Studio, OpenAI itself), for structured values.

    Format: platform.openai.com/docs/api-reference/chat/create.
    """

    def __init__(
        self, settings: Settings, *, home: Path, variables: Mapping[str, str], allow: Sequence[re.Pattern[str]] = ()
    ) -> None:
        named = settings.llm_api_key_env
        super().__init__(home=home, allow=allow, secret=variables.get(named or "", "").strip())
        address = http_client.parts_of(settings.llm_base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            hint = "For Ollama: `nugget config set llm.base_url http://localhost:11434/v1`."
            raise LLMUnavailable("There is no address for `extraction.with: openai`.", hint=hint)
        if named and not (self._secret and self._secret.isascii() and self._secret.isprintable()):
            raise LLMUnavailable(f"{named} is not set, or holds characters that no key has.", hint=f"Set {named}.")
        self._url = f"{(settings.llm_base_url or '').rstrip('/')}/chat/completions"
        self._is_openai = address.hostname.endswith(".openai.com")
        usd, is_here = settings.llm_usd_per_million_tokens, address.hostname in http_client.THIS_MACHINE
        # A model on this machine costs nothing, others what the settings say.
        self._price = Price(0, 0) if usd is None and is_here else Price(usd, usd) if usd is not None else None
        self.name = f"The server at {address.hostname}"
        self.key_hint = f"Check {named}." if named else "Name the variable with its key as `llm.api_key_env`."

    def price(self, model: str) -> Price | None:
        """Return the price that the settings name; 0 on this machine."""
        return self._price

    def _body(self, request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
        import anthropic

        # Bounds are left to our own check: a grammar with them is too large for small servers.
        plain = anthropic.transform_schema(dict(schema))
        texts = (("system", request.system), ("user", request.prompt))
        return {
            "model": request.model,
            "max_completion_tokens" if self._is_openai else "max_tokens": request.max_tokens,
            "messages": [{"role": role, "content": self._clean(text)} for role, text in texts],
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": plain},
            },
        }  # fmt: skip

    def _complete(self, call: ModelCall, schema: Mapping[str, Any]) -> str:
        headers = {"Authorization": f"Bearer {self._secret}"} if self._secret else {}
        status, content = http_client.send(self._url, call.body, headers, until=call.until)
        if status != 200:
            raise self._refused(status, _reason(content), call)
        reply = json.loads(content)
        usage = reply.get("usage") or {}
        call.note_usage({"input_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens")})
        choice = reply["choices"][0]
        ended = str(choice.get("finish_reason") or "stop")
        call.stop_reason = "refusal" if choice["message"].get("refusal") else _ENDS.get(ended, ended)
        return str(choice["message"].get("content") or "")


def _reason(body: bytes) -> str:
    """Return a server's own message on an error, in the forms of OpenAI, vLLM and Ollama."""
    try:
        reply = json.loads(body)
        reply = reply.get("error") or reply.get("message") or reply.get("detail") or ""
        return str(reply.get("message") or "" if isinstance(reply, dict) else reply)
    except (ValueError, AttributeError, RecursionError):
        return ""
