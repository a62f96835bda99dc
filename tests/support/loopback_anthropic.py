"""A scripted Anthropic Messages API on loopback, for the real SDK to talk to; at another path OpenAI's API.

    with AnthropicServer() as server:
        server.script(status(529), text("hello"))

Each request takes the next reply of the script; behind its end `server.default` answers. A reply answers plainly
or as server-sent events, as the request asks. `server.requests` records what was asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def system(self) -> str:
        """The text of the system blocks."""
        if "system" not in self.body:
            return str(self.body["messages"][0]["content"])
        return "".join(block["text"] for block in self.body["system"])

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return str(self.body["messages"][-1]["content"])

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A reply of the model. `cut_after` ends the connection after so many characters of text."""

    content: list[dict[str, Any]]
    stop_reason: str | None = "end_turn"
    usage: Any = field(default_factory=lambda: dict(USAGE))
    cut_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Bytes as they are, sent in `chunks` with `pause_s` between; `length` claims another content-length.

    `before` is called with the number of each chunk but the first, and may wait.
    """

    chunks: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    pause_s: float = 0.0
    before: Callable[[int], object] = lambda number: None
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A reply that comes late."""

    wait_s: float
    reply: Answer


Answer = Message | Raw | Slow
Responder = Callable[[Request], Answer]

USAGE = {"input_tokens": 1000, "output_tokens": 200, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def text(content: str, **fields: Any) -> Message:
    """A reply of one text block."""
    return Message(content=[{"type": "text", "text": content}], **fields)


def value(content: Any, **fields: Any) -> Message:
    """A structured reply."""
    return text(json.dumps(content), **fields)


def tool_use(name: str, arguments: Mapping[str, Any]) -> Message:
    """A reply that calls a tool nobody offered."""
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": dict(arguments)}
    return Message(content=[block], stop_reason="tool_use")


def status(code: int, kind: str = "api_error", *, message: str = "no", headers: Mapping[str, str] | None = None) -> Raw:
    """An error as the API words it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Raw(chunks=(json.dumps(body).encode(),), status=code, headers=headers or {})


class AnthropicServer:
    """The server; a context manager. `url` is the base URL for the SDK."""

    def __init__(self, *, default: Responder | None = None) -> None:
        self.default: Responder = default or (lambda request: text("ok"))
        self.requests: list[Request] = []
        self.times: list[float] = []
        self._script: list[Answer] = []
        self._lock = Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *answers: Answer) -> None:
        """The next replies, in order."""
        self._script += answers

    def answer(self, request: Request) -> Answer:
        """Record the request and take the next reply."""
        with self._lock:
            self.requests.append(request)
            self.times.append(time.monotonic())
            return self._script.pop(0) if self._script else self.default(request)

    def __enter__(self) -> AnthropicServer:
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: AnthropicServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): content for name, content in self.headers.items()}
            request = Request(path=self.path, headers=headers, body=body)
            answer = server.answer(request)
            try:
                if isinstance(answer, Slow):
                    time.sleep(answer.wait_s)
                    answer = answer.reply
                self._send(request, answer)
            except OSError:
                self.close_connection = True

        def _send(self, request: Request, answer: Answer) -> None:
            if isinstance(answer, Message) and request.path.endswith("/chat/completions"):
                answer = _completion(request, answer)
            elif isinstance(answer, Message):
                answer = _streamed(request, answer) if request.streams else _plain(request, answer)
            assert isinstance(answer, Raw)
            self.send_response(answer.status)
            for name, content in {"content-type": answer.content_type, **answer.headers}.items():
                self.send_header(name, content)
            self.send_header("content-length", str(answer.length or sum(map(len, answer.chunks))))
            self.end_headers()
            for number, chunk in enumerate(answer.chunks):
                if number:
                    time.sleep(answer.pause_s)
                    answer.before(number)
                self.wfile.write(chunk)
                self.wfile.flush()
            if answer.length:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _body(request: Request, content: list[dict[str, Any]], stop_reason: str | None, usage: Any) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": request.body["model"], "content": content,
        "stop_reason": stop_reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def _plain(request: Request, message: Message) -> Raw:
    encoded = json.dumps(_body(request, message.content, message.stop_reason, message.usage)).encode()
    whole = len(encoded) if message.cut_after is not None else None
    return Raw(chunks=(encoded[: message.cut_after],), length=whole)


def _completion(request: Request, message: Message) -> Raw:
    """The reply of OpenAI's chat completions."""
    usage = message.usage or {}
    told = {"prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens")}
    ended = {"max_tokens": "length", "refusal": "content_filter"}.get(message.stop_reason or "", "stop")
    content = "".join(block.get("text", "") for block in message.content)
    choice = {"index": 0, "finish_reason": ended, "message": {"role": "assistant", "content": content}}
    body = {"object": "chat.completion", "model": request.body["model"], "choices": [choice], "usage": told}
    return Raw(chunks=(json.dumps(body).encode(),))


def _streamed(request: Request, message: Message) -> Raw:
    """The events in which the API streams a message."""
    events = list(_events(request, message))
    chunks = tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    length = sum(map(len, chunks)) + 100 if message.cut_after is not None else None
    return Raw(chunks=chunks, content_type="text/event-stream", length=length)


def _events(request: Request, message: Message) -> Iterator[dict[str, Any]]:
    usage = message.usage if isinstance(message.usage, dict) else {}
    yield {"type": "message_start", "message": _body(request, [], None, {**usage, "output_tokens": 1})}
    yield {"type": "ping"}
    sent = 0
    for index, block in enumerate(message.content):
        opened = {**block, "input": {}} if "input" in block else {**block, "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        if "input" in block:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        for start in range(0, len(block.get("text", "")), 12):
            if message.cut_after is not None and sent >= message.cut_after:
                return
            piece = block["text"][start : start + 12]
            sent += len(piece)
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": index}
    if message.cut_after is not None:
        return
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message.stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": usage.get("output_tokens", 1)},
    }
    yield {"type": "message_stop"}
