"""Lines of Claude Code transcripts, made and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nugget.models import EventKind, Session
from nugget.sources.claude_code import read_session

SESSION = "11111111-2222-3333-4444-555555555555"


def record(kind: str, content: Any = None, *, uuid: str = "", parent: str | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "cwd": "/work/shop",
        "gitBranch": "main",
        "timestamp": "2026-05-01T10:00:00.000Z",
        "isSidechain": False,
    }
    if content is not None:
        made["message"] = {"role": kind, "content": content}
    return made | more


def call(call_id: str, name: str, /, *, uuid: str = "", **given: Any) -> dict[str, Any]:
    return record("assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": given}], uuid=uuid)


def result(call_id: str, text: str, *, error: bool = False, details: Any = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": error}
    return record("user", [block], toolUseResult=details, version="2.1.36")


def refusal(call_id: str, reason: str) -> dict[str, Any]:
    """What the client writes when a person refuses a call and says why."""
    text = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
        f"the new_string was NOT written to the file). To tell you how to proceed, the user said:\n{reason}"
    )
    return result(call_id, text, error=True, details=f"Error: {text}")


def write(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def read(tmp_path: Path, *lines: Any) -> Session:
    return read_session(write(tmp_path / f"{SESSION}.jsonl", *lines))


def texts(session: Session, kind: EventKind) -> list[str]:
    return [event.text for event in session.events if event.kind is kind]
