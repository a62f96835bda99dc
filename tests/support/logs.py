"""Shell logs for tests."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget.app.logs import ingest
from nugget.config import Environment, Settings, read_environment
from nugget.evidence import BundleOptions, EvidenceBundle, evidence_bundle
from nugget.index.embedded.connection import open_home
from nugget.sources import session_file
from nugget.sources.sessions import find_log

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class ShellLogs:
    """A folder of shell logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, session: str, name: str, text: str | bytes) -> Path:
        """Append to a file of a session."""
        file = self.folder / session / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(text.encode() if isinstance(text, str) else text)
        return file

    def happen(self, session: str, ts_ms: int, kind: str, **given: Any) -> None:
        """Append an event."""
        line = json.dumps({"ts_ms": ts_ms, "session_id": session, "kind": kind, "data": given})
        self.write(session, "events.jsonl", line + "\n")

    def run(self, session: str, ts_ms: int, command: str, code: int = 0, *, stderr: str = "", stdout: str = "") -> None:
        """Append a command with its end and, where given, what it printed and where."""
        streams: dict[str, list[int]] = {}
        for stream, text in (("stderr", stderr), ("stdout", stdout)):
            if text:
                end = self.write(session, f"{stream}.log", text + "\n").stat().st_size
                streams[stream] = [end - len(text.encode()) - 1, end]
        self.happen(session, ts_ms, "command.start", cmd=command)
        self.happen(session, ts_ms + 1, "command.end", exit=code, streams=streams)


class Logs(ShellLogs):
    """Shell logs with the machine's index beside them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "logs")
        self.home = folder / "nugget"
        variables = {"HOME": str(folder), "AISH_LOG_DIR": str(self.folder), "NUGGET_HOME": str(self.home)}
        self.environment: Environment = read_environment(variables)
        self.index: sqlite3.Connection = open_home(self.home)

    def walkthrough(self, session: str) -> None:
        """The session of the walkthrough: a failing test run, a tool that failed too, an edit."""
        self.happen(session, 1000, "command.start", cmd="cargo test --workspace")
        self.happen(session, 1001, "command.end", exit=101)
        self.happen(session, 1002, "tool.end", tool="shell", ok=False, error="tests still failing")
        arguments = {"path": "src/lib.rs", "append": False, "content": "fn add(){}"}
        self.happen(session, 1003, "tool.start", tool="fs.write", args=arguments)
        self.write(session, "stdin.log", "cargo test --workspace\nai resume from where we left off\n")
        self.write(session, "stderr.log", "error[E0425]: cannot find value `foo` in this scope\n")

    def ingest(self, session: str, transcript: Path | None = None) -> dict[str, Any]:
        """Take in what is new in a session's shell log, or in an agent's transcript."""
        agent = session_file(transcript, agent="claude-code", name=session) if transcript else None
        log = (agent,) if agent else find_log(self.environment, session)
        assert log is not None
        return ingest(self.index, log, settings=Settings(), now=NOW)

    def ask(self, session: str, query: str, **options: Any) -> EvidenceBundle:
        """Ask about a session that has been taken in."""
        return evidence_bundle(self.index, session, query, options=BundleOptions(**options), now=NOW)


@contextmanager
def logs_in(folder: Path) -> Iterator[Logs]:
    """Logs whose index is closed in the end."""
    logs = Logs(folder)
    try:
        yield logs
    finally:
        logs.index.close()
