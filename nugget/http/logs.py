"""`/v1/sessions` and `/v1/logs/...`: read the logs of sessions, and find evidence in them. Everything here blocks."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget import evidence
from nugget.config import Environment, Settings
from nugget.errors import NuggetError
from nugget.evidence.selection import LlmSelection, SelectorOptions, select_with_llm
from nugget.http.models import LogsContextRequest, Refusal, SessionRequest
from nugget.index.connection import open_home
from nugget.index.events import find_log_session
from nugget.infra import files
from nugget.redaction import allow_list, redact
from nugget.render.json import ingested_json
from nugget.sources.shell_logs import is_session_id

if TYPE_CHECKING:
    from nugget.infra.llm import LLM

_REST_SHARE = 0.5
_MAX_REST_S = 1.0
_MAX_PROBLEMS = 20


@dataclass(slots=True)
class Backfill:
    """Progress of the reading of all logs at the start."""

    state: str = "off"
    done: int = 0
    total: int = 0
    problems: list[str] = field(default_factory=list)


class LogApi:
    """Sessions and their evidence. Thread-safe: every call opens the machine's index for itself."""

    def __init__(self, environment: Environment, settings: Settings) -> None:
        self._environment = environment
        self._settings = settings
        self._allow = allow_list(settings)
        self._stopping = threading.Event()
        self.backfill = Backfill()

    def make_session(self, request: SessionRequest) -> dict[str, Any]:
        """Make a session with its folder below the shell logs."""
        session = f"sess_{secrets.token_hex(12)}"
        folder = self._environment.shell_logs / session
        title = redact(request.title, allow=self._allow).text
        made = {"id": session, "title": title, "created_ms": time.time_ns() // 1_000_000}
        try:
            files.private_folder(folder)
            files.replace(folder / "session.json", json.dumps(made).encode())
        except OSError as error:
            raise NuggetError(
                f"The folder of a new session cannot be made ({error.strerror}).", hint="Check AISH_LOG_DIR."
            ) from error
        return {**made, "log_dir": str(folder)}

    def ingest(self, session: str) -> dict[str, Any]:
        """Read what is new in the logs of a session. Raises Refusal if it has no logs."""
        log = evidence.find_log(self._environment, _checked(session))
        if log is not None:
            with self._opened() as connection:
                return ingested_json(evidence.ingest(connection, log, settings=self._settings, now=datetime.now(UTC)))
        folder = self._environment.shell_logs / session
        if folder.is_dir() and not folder.is_symlink():
            return ingested_json(evidence.IngestedSession(session=session, source="shell"))
        raise _unknown(session)

    def answer(self, session: str, request: LogsContextRequest) -> dict[str, Any]:
        """Return the evidence for a question as JSON."""
        return evidence.bundle_json(self.bundle(session, request.q, request.options()), explain=request.explain)

    def bundle(self, session: str, question: str, options: evidence.BundleOptions) -> evidence.EvidenceBundle:
        """Return the evidence for a question."""
        text = redact(question, allow=self._allow).text
        with self._opened(session) as connection:
            return evidence.evidence_bundle(connection, session, text, options=options, now=datetime.now(UTC))

    def select(
        self, session: str, question: str, options: evidence.BundleOptions, selector: SelectorOptions, *, llm: LLM
    ) -> LlmSelection:
        """Return what a model selects from the whole history of a session, with its latest output."""
        text = redact(question, allow=self._allow).text
        with self._opened(session) as connection:
            return select_with_llm(
                connection, session, text, llm=llm, settings=self._settings, options=options, selector=selector,
                now=datetime.now(UTC),
            )  # fmt: skip

    def start_backfill(self) -> None:
        """Read all logs in a thread that pauses between them."""
        self.backfill.state = "running"
        threading.Thread(target=self._read_all, name="nugget-backfill", daemon=True).start()

    def stop(self) -> None:
        """End the backfill after the session that it is at."""
        self._stopping.set()

    @contextmanager
    def _opened(self, session: str | None = None) -> Iterator[sqlite3.Connection]:
        """Open the machine's index, after reading a session that is not in it yet. Raises Refusal if it has no logs."""
        with closing(open_home(self._environment.home)) as connection:
            if session is not None and find_log_session(connection, _checked(session)) is None:
                self.ingest(session)
                if find_log_session(connection, session) is None:
                    raise _unknown(session)
            yield connection

    def _read_all(self) -> None:
        progress = self.backfill
        try:
            logs = list(evidence.all_logs(self._environment))
            progress.total = len(logs)
            with self._opened() as connection:
                for log in logs:
                    began = time.monotonic()
                    try:
                        evidence.ingest(connection, log, settings=self._settings, now=datetime.now(UTC))
                    except Exception as error:  # one log must not keep the others out
                        if len(progress.problems) < _MAX_PROBLEMS:
                            progress.problems.append(f"{Path(log.path).name}: {redact(str(error)).text}")
                    progress.done += 1
                    if self._stopping.wait(min(_MAX_REST_S, _REST_SHARE * (time.monotonic() - began))):
                        progress.state = "stopped"
                        return
                evidence.put_evidence_units(connection)
            progress.state = "done"
        except Exception as error:  # nobody waits for this thread: `/healthz` shows what went wrong
            progress.state = "failed"
            progress.problems.append(f"{type(error).__name__}: {redact(str(error)).text}")


def _checked(session: str) -> str:
    if not is_session_id(session):
        raise Refusal(
            422, "invalid_session_id", "This is not a session id.",
            hint="An id has letters, digits, `_`, `-`, `.`, `:` and `@`, 128 at most.",
        )  # fmt: skip
    return session


def _unknown(session: str) -> Refusal:
    return Refusal(
        404, "unknown_session", f"There are no logs of a session {session}.",
        hint="POST /v1/sessions makes a session; its logs go into the folder of its id below AISH_LOG_DIR.",
    )  # fmt: skip
