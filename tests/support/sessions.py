"""Sessions for tests: small transcripts in Claude Code's format, and an extraction that a test scripts."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nugget.capture.compare import ProposalTarget
from nugget.config import Settings
from nugget.extraction.proposals import Extraction, Proposal
from nugget.models import Evidence, Session, SourceName, Unit

STARTED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW = datetime(2026, 3, 1, 13, 0, 0, tzinfo=UTC)


def claude_record(
    role: str, content: Any, *, session: str, parent: str | None, cwd: object, at: datetime
) -> dict[str, Any]:
    """A record of a transcript in Claude Code's format."""
    return {
        "type": role, "uuid": str(uuid.uuid4()), "parentUuid": parent, "sessionId": session, "cwd": str(cwd),
        "timestamp": at.isoformat().replace("+00:00", "Z"), "version": "2.1.329", "gitBranch": "main",
        "isSidechain": False, "userType": "external", "message": {"role": role, "content": content},
    }  # fmt: skip


def write_transcript(
    file: Path, turns: Sequence[tuple[Any, ...]], *, session: str = "", started: datetime = STARTED,
    cwd: str = "/srv/shop", entrypoint: str = "cli",
) -> str:  # fmt: skip
    """Append turns as a session's records; returns the session id.

    A turn is a prompt, a reply, and calls between them: a tool, its input, what came back, and whether it failed.
    """
    session = session or str(uuid.uuid4())
    records = []
    written = file.read_text("utf-8").splitlines() if file.exists() else []
    parent = json.loads(written[-1])["uuid"] if written else None
    for number, (prompt, reply, *calls) in enumerate(turns):
        says: list[tuple[int, str, Any]] = [(0, "user", prompt)]
        for at, (tool, given, answer, failed) in enumerate(calls, 1):
            call = f"toolu_{number}_{at}"
            result = {"type": "tool_result", "tool_use_id": call, "content": answer, "is_error": failed}
            says.append((at, "assistant", [{"type": "tool_use", "id": call, "name": tool, "input": given}]))
            says.append((at, "user", [result]))
        for at, role, content in [*says, (10, "assistant", [{"type": "text", "text": reply}])]:
            moment = started + timedelta(seconds=20 * number + at)
            record = claude_record(role, content, session=session, parent=parent, cwd=cwd, at=moment)
            records.append(record | {"entrypoint": entrypoint})
            parent = record["uuid"]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record) + "\n" for record in records)
    return session


def fork(file: Path, target: Path) -> str:
    """What `claude --fork-session` writes: every record with its uuid, under a new session id."""
    session = str(uuid.uuid4())
    records = [json.loads(line) | {"sessionId": session} for line in file.read_text("utf-8").splitlines()]
    target.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return session


def unit(
    title: str, body: str, *, type: str = "pattern", domain: str = "coding", confidence: float = 0.7, quote: str = "",
    id: str = "",
) -> Unit:  # fmt: skip
    """A unit as an extractor would propose it."""
    evidence = Evidence(session="s", quote=quote or body.split(".")[0], records=("r",))
    return Unit(
        id=id or f"{type}/{title}", source=SourceName.BRAIN, type=type, title=title, body=body, domain=domain,
        confidence=confidence, evidence=(evidence,), tags=("stripe",),
    )  # fmt: skip


@dataclass
class ScriptedExtraction:
    """An extraction that gives these units for each prompt that starts with their title, and counts its calls."""

    units: Sequence[Unit]
    calls: int = 0

    def __call__(self, session: Session) -> Extraction:
        self.calls += 1
        said = "\n".join(event.text for event in session.events)
        found = [Proposal(unit=unit, reason=f"because of {unit.title}") for unit in self.units if unit.title in said]
        return Extraction(proposals=tuple(found), method="scripted", summary="What it was about.", usd=0.25)


def nothing_similar(unit: Unit) -> list[tuple[Unit, float]]:
    """An index that knows nothing."""
    return []


def capture_into(brain: Path, home: Path, extract: ScriptedExtraction, **changes: object) -> tuple[Any, Any]:
    """What a capture into a brain needs."""
    bound = {"settings": Settings(), "similar": nothing_similar, "now": NOW} | changes
    return ProposalTarget(brain=brain, home=home, **bound), extract  # type: ignore[arg-type]
