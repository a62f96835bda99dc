"""The one gateway to an LLM: Claude, through the anthropic SDK, or the `claude` command for those without a key.

Every call is redacted before it leaves, limited in time and cost, and written to the cost ledger. Every failure is
LLMUnavailable with one clear sentence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.config import Environment, Settings
from nugget.errors import LLMUnavailable
from nugget.infra import files
from nugget.infra.llm.gate import (
    BadReply,
    CostCapReached,
    DailyBudget,
    DailyCapReached,
    Gate,
    ModelCall,
    Reply,
    Request,
    price_of,
    spending,
)
from nugget.redaction import allow_list
from nugget.text import map_texts, shorten

if TYPE_CHECKING:
    import anthropic

__all__ = [
    "LLM", "BadReply", "ClaudeCli", "CostCapReached", "DailyBudget", "DailyCapReached", "Head", "Reply", "Request",
    "open_extractor", "open_llm", "spending",
]  # fmt: skip

_MAX_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_EXACT = frozenset(
    {"id", "tool_use_id", "signature", "data", "type", "name", "role", "media_type", "cache_control", "thinking"}
)
"""Fields that the API compares or decodes, and that redaction must not change."""
_NAMED = ("model", "max_tokens", "messages", "stream")
"""Arguments that the SDK wants by name."""
_HEADERS = ("content-type", "retry-after", "request-id")
_STATUSES: dict[int, tuple[str, str | None]] = {
    **dict.fromkeys((401, 403), ("refused the key", "Check ANTHROPIC_API_KEY.")),
    404: ("does not know `{model}`", "Correct `llm` in your configuration."),
    429: ("has reached its rate limit", "Try again later."),
    529: ("is overloaded", "Try again later."),
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a forwarded reply: its status, and the headers that the caller needs."""

    status: int
    headers: Mapping[str, str]


def open_llm(settings: Settings, environment: Environment, *, budget: DailyBudget | None = None) -> LLM | None:
    """Return the LLM of these settings; None without a key or if `llm.enabled` is false. Imports nothing heavy yet."""
    if not settings.llm.enabled or not environment.anthropic_api_key:
        return None
    return LLM(
        api_key=environment.anthropic_api_key,
        base_url=environment.anthropic_base_url,
        home=environment.home,
        allow=allow_list(settings),
        budget=budget,
    )


def open_extractor(settings: Settings, environment: Environment) -> LLM | ClaudeCli | None:
    """Return the model that reads sessions: the API's, or the `claude` command if `llm.extract_with` says so."""
    if settings.llm.extract_with == "api":
        return open_llm(settings, environment)
    if not settings.llm.enabled:
        return None
    return ClaudeCli(home=environment.home, variables=environment.variables, allow=allow_list(settings))


class LLM(Gate):
    """Claude over the API, for structured values or streamed text. Thread-safe; imports the SDK on first use."""

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None,
        home: Path,
        allow: Sequence[re.Pattern[str]] = (),
        budget: DailyBudget | None = None,
    ) -> None:
        super().__init__(home=home, allow=allow, secret=api_key.strip(), budget=budget)
        self._base_url = base_url or "https://api.anthropic.com"

    def structured(self, request: Request, schema: Mapping[str, Any]) -> Reply:
        """Ask for a JSON object that follows `schema`.

        Raises BadReply if the reply does not follow the schema (also if it was cut at `max_tokens`), and
        LLMUnavailable for everything else, before the call if its cost could exceed the cap.
        """
        import anthropic

        output: dict[str, Any] = {"format": {"type": "json_schema", "schema": anthropic.transform_schema(dict(schema))}}
        call = self._call(request, output)
        with self._recorded(call):
            with self._client(call) as client:
                message = client.messages.create(**call.body)
            _note(message.to_dict(warnings=False), call)
            _refuse_refusal(call)
            blocks = (block for block in message.content if getattr(block, "type", None) == "text")
            return self._reply("".join(getattr(block, "text", "") for block in blocks), schema, call)

    def stream(self, request: Request) -> Generator[str]:
        """Ask for text and yield it as it comes, without control characters, which a terminal would obey.

        Raises LLMUnavailable, also in the middle of the text.
        """
        call = self._call(request, {})
        with self._recorded(call):
            with self._client(call) as client, client.messages.create(**call.body, stream=True) as events:
                for event in events:
                    call.left_s()
                    _note(event.to_dict(warnings=False), call)
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        yield _CONTROL.sub("", event.delta.text)
            _refuse_refusal(call)
            if call.stop_reason == "max_tokens":
                yield " […]"
            _require_end(call)

    def forward(
        self, body: Mapping[str, Any], *, purpose: str, timeout_s: float, max_usd: float, session: str | None = None
    ) -> Generator[Head | bytes]:
        """Pass a caller's own call (the API's JSON body) on: yield a Head first, then the reply as it comes.

        An error of the API comes back the same way, with its status. Nothing is retried: that is the caller's choice.
        Raises LLMUnavailable if the reply is incomplete, and before a call that could exceed `max_usd`.
        """
        import anthropic

        sent = map_texts(dict(body), self._clean, exact=_EXACT)
        request = Request(
            purpose=purpose, model=sent["model"], max_tokens=sent["max_tokens"], timeout_s=timeout_s, max_usd=max_usd,
            session=session,
        )  # fmt: skip
        call = ModelCall(request=request, body=sent)
        named = {name: sent[name] for name in _NAMED if name in sent}
        more = {name: value for name, value in sent.items() if name not in _NAMED}
        with self._recorded(call), self._client(call, retries=0) as client:
            try:
                with client.messages.with_streaming_response.create(**named, extra_body=more) as response:
                    yield Head(status=response.status_code, headers=_kept(response.headers))
                    chunks = response.iter_bytes()
                    yield from _streamed(chunks, call) if body.get("stream") else _whole(chunks, call)
            except anthropic.APIStatusError as error:
                call.free = True
                call.error = f"HTTP {error.status_code}"
                yield Head(status=error.status_code, headers=_kept(error.response.headers))
                yield self._scrub(error.response.text).encode()

    def _call(self, request: Request, output: dict[str, Any]) -> ModelCall:
        if request.effort and (price := price_of(request.model)) and price.effort:
            output = {**output, "effort": request.effort}
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_tokens,
            "system": [{"type": "text", "text": self._clean(request.system), "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": self._clean(request.prompt)}],
        }
        return ModelCall(request=request, body={**body, "output_config": output} if output else body)

    def _client(self, call: ModelCall, *, retries: int = _MAX_RETRIES) -> anthropic.Anthropic:
        """Open a client whose attempts and waits together stay within the call's deadline.

        The SDK's own timeout starts again with each attempt, and it obeys a retry-after of any length.
        """
        if not self._secret.isascii() or not self._secret.isprintable():
            raise LLMUnavailable(
                "ANTHROPIC_API_KEY contains characters that no key has.", hint="Copy the key again, on one line."
            )
        import anthropic
        import httpx2

        def attempt(request: Any, call_next: Callable[[Any], Any]) -> Any:
            left_s = call.left_s()
            response = call_next(request.copy(timeout=httpx2.Timeout(left_s, connect=min(left_s, _CONNECT_TIMEOUT_S))))
            response.headers.pop("retry-after-ms", None)
            wait = response.headers.get("retry-after", "0")
            if response.status_code >= 400 and not (_SECONDS.fullmatch(wait) and float(wait) < call.left_s()):
                response.headers["x-should-retry"] = "false"
            return response

        return anthropic.Anthropic(
            api_key=self._secret,
            base_url=self._base_url,
            max_retries=retries,
            # The key would go along to wherever a redirect leads.
            http_client=anthropic.DefaultHttpxClient(follow_redirects=False),
            middleware=[attempt],
        )

    def _translated(self, error: Exception, call: ModelCall) -> LLMUnavailable:
        import anthropic
        import httpx2

        model = call.request.model
        if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError)):
            timeout = f"{call.request.timeout_s:g} s ({call.request.purpose})"
            return LLMUnavailable(f"{model} did not answer within {timeout}.")
        if isinstance(error, anthropic.APIStatusError):
            if error.status_code == 200:
                return LLMUnavailable("The Anthropic API broke off the answer.", hint="Try again later.")
            call.free, status = True, error.status_code
            problem, hint = _STATUSES.get(status, ("refused the request", None))
            text = error.api_message if isinstance(error.api_message, str) and status not in (401, 403, 404) else ""
            if 300 <= status < 400:
                problem, text = "redirects", "the key goes nowhere else"
                hint = "Give the address that it redirects to as ANTHROPIC_BASE_URL."
            elif status >= 500 and status not in _STATUSES:
                problem, hint = "failed", "Try again later."
            tail = f": {shorten(self._scrub(text), 200).rstrip('.')}" if text else ""
            sentence = f"The Anthropic API {problem.format(model=model)} (HTTP {status}){tail}."
            return LLMUnavailable(sentence, hint=hint)
        if isinstance(error, (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)):
            cause = error.__cause__ or error
            call.free = isinstance(cause, httpx2.ConnectError)
            reason = shorten(self._scrub(str(cause)), 160) or type(cause).__name__
            return LLMUnavailable(
                f"The connection to the Anthropic API failed ({reason}).",
                hint="Check the network and ANTHROPIC_BASE_URL.",
            )
        return LLMUnavailable(f"The reply of {model} could not be read ({type(error).__name__}).")


class ClaudeCli(Gate):
    """The `claude` command as an LLM that gives structured values. What it costs is counted at list price.

    The command runs without tools, MCP servers, hooks, plugins, CLAUDE.md or memory, saves no session, and works in a
    folder of Nugget's own, whose sessions are never captured. Its environment says that Nugget started it, and a
    Nugget that finds itself inside such a session starts no other.
    """

    def __init__(self, *, home: Path, variables: Mapping[str, str], allow: Sequence[re.Pattern[str]] = ()) -> None:
        super().__init__(home=home, allow=allow, secret=variables.get("ANTHROPIC_API_KEY", ""))
        self._variables = variables

    def structured(self, request: Request, schema: Mapping[str, Any]) -> Reply:
        """Ask as `LLM.structured` does; `max_tokens` only serves the estimate of the cost.

        The command itself asks again, up to five times, when a reply does not follow the schema.
        """
        system, prompt = self._clean(request.system), self._clean(request.prompt)
        call = ModelCall(request=request, body={"system": system, "messages": [prompt]})
        with self._recorded(call):
            arguments = [
                *_SWITCHES, "--model", request.model, "--effort", request.effort or "medium",
                "--max-budget-usd", f"{request.max_usd:.4f}", "--system-prompt", system,
                "--json-schema", json.dumps(schema),
            ]  # fmt: skip
            result = self._result(self._run(arguments, prompt, call), call)
            return self._reply(json.dumps(result.get("structured_output")), schema, call)

    def _run(self, arguments: Sequence[str], prompt: str, call: ModelCall) -> bytes:
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

    def _result(self, output: bytes, call: ModelCall) -> dict[str, Any]:
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

    def _translated(self, error: Exception, call: ModelCall) -> LLMUnavailable:
        if isinstance(error, (subprocess.TimeoutExpired, TimeoutError)):
            return LLMUnavailable(
                f"`claude` did not answer within {call.request.timeout_s:g} s ({call.request.purpose})."
            )
        if isinstance(error, OSError):
            return LLMUnavailable(f"`claude` could not be started ({error.strerror}).")
        return LLMUnavailable(f"The reply of `claude` could not be read ({type(error).__name__}).")


def _note(data: Mapping[str, Any], call: ModelCall) -> None:
    """Record the token counts and the stop reason of a message, or of an event of a streamed one."""
    message, delta = data.get("message"), data.get("delta")
    for part in (data, message):
        if isinstance(part, Mapping):
            call.note_usage(part.get("usage"))
    ended = delta if isinstance(delta, Mapping) else data
    call.stop_reason = str(ended.get("stop_reason") or call.stop_reason)


def _refuse_refusal(call: ModelCall) -> None:
    if call.stop_reason == "refusal":
        raise LLMUnavailable(f"{call.request.model} declined to answer ({call.request.purpose}).")


def _require_end(call: ModelCall) -> None:
    if not call.stop_reason and call.error is None:
        raise LLMUnavailable(f"The connection to {call.request.model} was cut before its answer was complete.")


def _whole(chunks: Iterator[bytes], call: ModelCall) -> Iterator[bytes]:
    """Yield a plain reply in one piece, and note its usage."""
    body = b"".join(chunks)
    message = json.loads(body)
    if isinstance(message, dict):
        _note(message, call)
    yield body


def _streamed(chunks: Iterator[bytes], call: ModelCall) -> Iterator[bytes]:
    """Yield the events byte for byte as they come, and note the usage in them."""
    rest = b""
    for chunk in chunks:
        call.left_s()
        yield chunk
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (b'"usage"' in line or b'"error"' in line):
                try:
                    event = json.loads(line[5:])
                except ValueError:
                    continue
                if isinstance(event, dict):
                    _note(event, call)
                    if event.get("type") == "error":
                        call.error = "The Anthropic API broke off the answer."
    _require_end(call)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _HEADERS if name in headers}
