"""What tests of agents' transcripts share: lines written to a file, and the events of one kind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from nugget.models import Event, EventKind, Session

SAMPLES = "transcripts/other-agents"
CODEX_ID = "019c4b43-1451-7af3-be4c-5576369bf1ba"


def counted(session: Session) -> dict[str, int]:
    return dict(Counter(event.kind.value for event in session.events))


def prompts(session: Session) -> list[str]:
    return [event.text for event in session.events if event.kind is EventKind.PROMPT]


def only(session: Session, kind: EventKind) -> list[Event]:
    return [event for event in session.events if event.kind is kind]


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
