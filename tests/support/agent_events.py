"""Records of transcripts, written to a file, and the events that are read of them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from nugget.models import Event, EventKind, Session, SpeechOrigin

SAMPLES = "transcripts/other-agents"
CODEX_ID = "019c4b43-1451-7af3-be4c-5576369bf1ba"
CLAUDE_ID = "11111111-2222-3333-4444-555555555555"


def counted(session: Session) -> dict[str, int]:
    return dict(Counter(event.kind.value for event in session.events))


def shown(session: Session) -> list[str]:
    """Each event as one line, with all that is worth comparing."""
    return [_line(event) for event in session.events]


def _line(event: Event) -> str:
    match event.kind:
        case EventKind.FILE_EDIT:
            return f"{event.tool} {event.path}: {event.before!r} -> {event.after!r} {event.ok}"
        case EventKind.OUTPUT:
            return f"output of {event.tool} {event.exit_code} {event.ok}: {event.text}"
        case EventKind.TOOL_RESULT:
            by = event.origin if event.origin is SpeechOrigin.HOOK else event.speaker
            return f"{event.kind} {event.tool} {by}: {event.text}"
        case EventKind.COMMAND | EventKind.TOOL_CALL:
            return f"{event.kind} {event.tool} {event.speaker}: {event.text}"
    return f"{event.kind} {event.speaker}: {event.text}"


def lines(file: Path, *records: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return file


def said(text: str, role: str = "user") -> dict[str, Any]:
    part = {"type": "input_text" if role == "user" else "output_text", "text": text}
    payload = {"type": "message", "role": role, "content": [part]}
    return {"timestamp": "2026-02-11T05:53:33Z", "type": "response_item", "payload": payload}


META = {
    "timestamp": "2026-02-11T05:53:33Z",
    "type": "session_meta",
    "payload": {"id": CODEX_ID, "cwd": "/srv/shop", "git": {"branch": "feature/retry"}},
}


def record(kind: str, content: Any = None, *, uuid: str = "", parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A record of Claude Code."""
    made = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": CLAUDE_ID, "cwd": "/work/shop",
            "gitBranch": "main", "timestamp": "2026-05-01T10:00:00.000Z", "isSidechain": False}  # fmt: skip
    return made | ({} if content is None else {"message": {"role": kind, "content": content}}) | more


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


def codex_call(name: str, given: object, output: object, number: int = 1) -> list[dict[str, Any]]:
    call_id = f"call_{number}"
    custom = {"type": "custom_tool_call", "input": given}
    called = custom if isinstance(given, str) else {"type": "function_call", "arguments": json.dumps(given)}
    printed = {"type": f"{called['type']}_output", "call_id": call_id, "output": output}
    about = {"timestamp": "2026-02-11T05:53:34Z", "type": "response_item"}
    return [about | {"payload": {"name": name, "call_id": call_id} | called}, about | {"payload": printed}]
