"""One question to `nugget serve` over stdio, line by line, as a client sends it."""

import json
import subprocess
import sys
from typing import Any

from waiting import PATIENCE_S

RUN = [sys.executable, "-P", "-m", "nugget"]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def asked_over_mcp(**question: str) -> dict[str, Any]:
    """Start a server, initialize, call a tool once, end the server; the result of the call."""
    requests: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "get_relevant_context", "arguments": question}},
    ]
    answer: dict[str, Any] = {}
    with subprocess.Popen([*RUN, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        for request in requests:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline()) if "id" in request else answer
        server.stdin.close()
        server.wait(PATIENCE_S)
    result: dict[str, Any] = answer["result"]
    return result
