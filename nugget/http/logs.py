"""`/v1/sessions` and `/v1/logs/...`: logs taken in, and what they say about a question. All of it blocking."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from nugget import evidence
from nugget.config import Environment, Settings
from nugget.errors import IndexUnavailable, NuggetError
from nugget.evidence.bundle import MAX_CHARS, MAX_INCIDENTS, MAX_LINES, MAX_WINDOW
from nugget.evidence.selection import LlmSelection, SelectorOptions, select_with_llm
from nugget.http.parameters import MAX_QUESTION_CHARS, Intent, Parameters, SessionRequest
from nugget.http.replies import Refusal
from nugget.index.evidence import find_log_session
from nugget.index.home import home_index_file, open_home
from nugget.infra import files
from nugget.mcp.desk import tell
from nugget.redaction import allow_list, redact
from nugget.sources.shell_logs import is_session_id

if TYPE_CHECKING:
    from nugget.infra.llm import LLM

_DEFAULTS = evidence.BundleOptions()
_REST_SHARE = 0.5
_LONGEST_REST_S = 1.0
_MAX_PROBLEMS = 20


class LogsContextRequest(Parameters):
    """What a bundle of evidence is asked with."""

    q: str = Field(default="", max_length=MAX_QUESTION_CHARS, description="The question; empty asks for an overview")
    intent: Intent | None = Field(default=None, description="The profile, instead of the one that the question shows")
    explain: bool = Field(default=False, description="Add counts, caps and weights")
    max_chars: int = Field(default=_DEFAULTS.max_chars, ge=0, le=MAX_CHARS, description="Length of context_text")
    max_lines: int = Field(default=_DEFAULTS.max_lines, ge=0, le=MAX_LINES, description="Lines of context_text")
    include_artifacts: bool = Field(
        default=True, description="Also what was derived: blockers, edits, todos, decisions"
    )
    output_window: int = Field(
        default=_DEFAULTS.output_window, ge=0, le=MAX_WINDOW, description="Latest lines of each stream to look at"
    )
    max_incidents: int = Field(
        default=_DEFAULTS.max_incidents, ge=0, le=MAX_INCIDENTS, description="Incidents, at most"
    )

    def options(self) -> evidence.BundleOptions:
        """The same as the use case takes it."""
        return evidence.BundleOptions(
            intent=self.intent,
            max_lines=self.max_lines,
            max_chars=self.max_chars,
            output_window=self.output_window,
            max_incidents=self.max_incidents,
            include_artifacts=self.include_artifacts,
            explain=self.explain,
        )


@dataclass(slots=True)
class Backfill:
    """How far the reading of all logs at the start has come."""

    state: str = "off"
    done: int = 0
    total: int = 0
    problems: list[str] = field(default_factory=list)


class LogDesk:
    """Where logs are taken in and asked: a connection to the machine's index for each thread. Thread-safe."""

    def __init__(self, environment: Environment, settings: Settings) -> None:
        self._environment = environment
        self._settings = settings
        self._allow = allow_list(settings)
        self._own = threading.local()
        self._stopping = threading.Event()
        self.backfill = Backfill()

    def connection(self) -> sqlite3.Connection:
        """This thread's connection; a new one where the index has been made anew. Raises IndexUnavailable."""
        held: tuple[sqlite3.Connection, int] | None = getattr(self._own, "held", None)
        with suppress(OSError):
            if held is not None and home_index_file(self._environment.home).stat().st_ino == held[1]:
                return held[0]
        opened = open_home(self._environment.home)
        self._own.held = (opened, home_index_file(self._environment.home).stat().st_ino)
        return opened

    def make_session(self, request: SessionRequest, *, now: datetime) -> dict[str, Any]:
        """A new session with its folder below the shell logs."""
        session = f"sess_{secrets.token_hex(12)}"
        folder = self._environment.shell_logs / session
        created_ms = int(now.timestamp() * 1000)
        title = redact(request.title, allow=self._allow).text
        try:
            files.private_folder(folder)
            about = {"id": session, "title": title, "created_ms": created_ms}
            files.replace(folder / "session.json", json.dumps(about).encode())
        except OSError as error:
            raise NuggetError(
                f"The folder of a new session cannot be made ({error.strerror}).", hint="Check AISH_LOG_DIR."
            ) from error
        return {**about, "log_dir": str(folder)}

    def ingest(self, session: str, *, now: datetime) -> dict[str, Any]:
        """Take in what is new in the logs of a session. Raises Refusal where there are none."""
        log = evidence.find_log(self._environment, _checked(session))
        if log is None:
            folder = self._environment.shell_logs / session
            if folder.is_dir() and not folder.is_symlink():
                return _ingested_json(evidence.Ingested(session=session, source="shell"))
            raise _unknown(session)
        with _translated():
            return _ingested_json(evidence.ingest(self.connection(), log, settings=self._settings, now=now))

    def bundle(
        self, session: str, query: str, options: evidence.BundleOptions, *, now: datetime
    ) -> evidence.EvidenceBundle:
        """What speaks to a question. A session that was never taken in is taken in first."""
        connection = self._known(session, now=now)
        with _translated():
            asked = redact(query, allow=self._allow).text
            return evidence.evidence_bundle(connection, session, asked, options=options, now=now)

    def select(
        self,
        session: str,
        query: str,
        options: evidence.BundleOptions,
        selector: SelectorOptions,
        *,
        llm: LLM,
        now: datetime,
    ) -> LlmSelection:
        """What a model chooses from the whole history of a session, with its latest output."""
        connection = self._known(session, now=now)
        with _translated():
            asked = redact(query, allow=self._allow).text
            return select_with_llm(
                connection, session, asked, llm=llm, settings=self._settings, options=options, selector=selector,
                now=now,
            )  # fmt: skip

    def _known(self, session: str, *, now: datetime) -> sqlite3.Connection:
        """The connection, once the session is in the index: one that was never taken in is taken in first."""
        connection = self.connection()
        with _translated():
            if find_log_session(connection, _checked(session)) is None:
                self.ingest(session, now=now)
                if find_log_session(connection, session) is None:
                    raise _unknown(session)
        return connection

    def answer(self, session: str, request: LogsContextRequest, *, now: datetime) -> dict[str, Any]:
        """The JSON of a bundle."""
        bundle = self.bundle(session, request.q, request.options(), now=now)
        return evidence.bundle_json(bundle, explain=request.explain)

    def start_backfill(self) -> None:
        """Begin to take in all logs, in a thread that rests as it goes."""
        self.backfill.state = "running"
        threading.Thread(target=self._take_in_all, name="nugget-backfill", daemon=True).start()

    def stop(self) -> None:
        """Have the backfill end with the session that it is at."""
        self._stopping.set()

    def _take_in_all(self) -> None:
        told = self.backfill
        try:
            logs = list(evidence.all_logs(self._environment))
            told.total = len(logs)
            connection = self.connection()
            for log in logs:
                began = time.monotonic()
                try:
                    evidence.ingest(connection, log, settings=self._settings, now=datetime.now(UTC))
                except (NuggetError, OSError, sqlite3.OperationalError) as error:
                    if len(told.problems) < _MAX_PROBLEMS:
                        told.problems.append(f"{Path(log.path).name}: {redact(str(error)).text}")
                told.done += 1
                rest_s = min(_LONGEST_REST_S, _REST_SHARE * (time.monotonic() - began))
                if self._stopping.wait(rest_s):
                    told.state = "stopped"
                    return
            evidence.put_evidence_units(connection)
            told.state = "done"
        except Exception as error:  # a thread of its own: nobody else hears of it
            told.state = "failed"
            told.problems.append(f"{type(error).__name__}: {redact(str(error)).text}")
            tell(f"reading the logs failed: {error}")


@contextmanager
def _translated() -> Iterator[None]:
    """SQLite's failures as Nugget's: a disk that is full, an index that is held."""
    try:
        yield
    except sqlite3.Error as error:
        raise IndexUnavailable(
            f"The machine's index could not be used ({error}).", hint="Try again; check the disk's space."
        ) from error


def _checked(session: str) -> str:
    if not is_session_id(session):
        raise Refusal(
            422, "invalid_session_id", "This is no session id.",
            hint="An id has letters, digits, `_`, `-`, `.`, `:` and `@`, 128 at most.",
        )  # fmt: skip
    return session


def _unknown(session: str) -> Refusal:
    return Refusal(
        404, "unknown_session", f"There are no logs of a session {session}.",
        hint="POST /v1/sessions makes a session; its logs go into the folder of its id below AISH_LOG_DIR.",
    )  # fmt: skip


def _ingested_json(result: evidence.Ingested) -> dict[str, Any]:
    value = asdict(result)
    return {"session_id": value.pop("session"), **value, "anew": list(result.anew), "redacted": dict(result.redacted)}
