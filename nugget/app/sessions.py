"""Sessions of agents and shells on this machine: list them with their outcomes, show, pause, erase and import them."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.app.local_sources import INLINE_FILES, read_new_logs
from nugget.capture import ledger, queue
from nugget.config import expanded
from nugget.errors import IndexUnavailable, NuggetError, UsageError, only_id
from nugget.evidence.derive import derive_sessions, put_evidence_units
from nugget.importing import chats
from nugget.index.embedded import Index, events, provenance
from nugget.index.embedded.connection import open_home, write_transaction
from nugget.index.embedded.sync import sync_provenance
from nugget.infra import files
from nugget.infra.workspace import Workspace, WorkspaceFinder
from nugget.models import EventKind, Session, SessionFile, SourceName
from nugget.models.nuggets import FileTouch, Nugget
from nugget.provenance import open_index
from nugget.sources import nugget_store, parse_timestamp
from nugget.sources.condense import Exchange
from nugget.sources.sessions import ERASED, archive_file, find_sessions, id_in, read_whole_session
from nugget.text import counted

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.app.provenance import Provenance

_HEAD_BYTES = 65_536
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSession:
    """A session with its metadata and its outcome.

    `captured` is `yes`, `no`, `queued` or `failed`. `units` counts proposed units: `kept`, `waiting`, `rejected`,
    and `absent` for another reason. `log_key` (index) and `store_file` (provenance) are None until the session is read.

    Only `find_session` sets the fields from `session` on: the redacted conversation (`is_archived` if the client's own
    transcript is gone), or the `problem` if it cannot be read.
    """

    id: str
    agent: str
    title: str = ""
    first_prompt: str = ""
    project: str = ""
    folder: str | None = None
    workspace: str | None = None
    branch: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    store_file: str | None = None
    nuggets: int = 0
    files: int = 0
    log_key: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    captured: str = "no"
    units: Mapping[str, int] = field(default_factory=dict)
    session: Session | None = None
    exchanges: tuple[Exchange, ...] = ()
    is_archived: bool = False
    touches: tuple[FileTouch, ...] = ()
    learned: tuple[Nugget, ...] = ()
    problem: NuggetError | None = None

    @property
    def seconds(self) -> int | None:
        """The duration of the session."""
        return int((self.ended - self.started).total_seconds()) if self.started and self.ended else None

    @property
    def outcome(self) -> str:
        """A summary of the result, such as `2 kept, 1 nugget`."""
        units = [f"{count} {what.replace('absent', 'not in the brain')}" for what, count in self.units.items() if count]
        units = units or [{"yes": "nothing to keep", "no": "not captured"}.get(self.captured, self.captured)]
        more = {"nugget": self.nuggets, "open failure": self.counts.get("open", 0)}
        return ", ".join(units + [counted(count, what) for what, count in more.items() if count])

    @property
    def prompts(self) -> list[str]:
        """The texts of its prompts."""
        said = [event.text for one in self.exchanges for event in one.events if event.kind is EventKind.PROMPT]
        return said or [self.first_prompt] * bool(self.first_prompt)

    @property
    def events(self) -> Counter[str]:
        """Counts of its events by kind, and of those that `failed`."""
        found = [event for one in self.exchanges for event in one.events]
        return Counter([str(event.kind) for event in found] + ["failed" for event in found if event.ok is False])


def list_sessions(
    asked: Provenance, *, everything: bool = False, since: datetime | None = None
) -> tuple[Workspace, list[KnownSession]]:
    """Return the workspace of the folder and its sessions, or all sessions with `everything`, newest first.

    New logs are read first if they are few.
    """
    home = asked.environment.home
    workspace = asked.workspace()
    with open_index(home) as connection:
        with suppress(IndexUnavailable, sqlite3.Error):
            read_new_logs(connection, asked.environment, asked.settings, asked.brain.path if asked.brain else None)
            if len(underived := events.underived_sessions(connection)) <= INLINE_FILES:
                derive_sessions(connection, underived)
        found = _stored_sessions(connection, workspace.identity)
        finder = WorkspaceFinder(nugget_store.known_workspaces(home))
        for file in find_sessions(asked.environment):
            if file.id not in found:
                found[file.id] = _unread_session(file, finder)
        chosen = [one for one in found.values() if everything or one.workspace == workspace.identity]
        chosen = [one for one in chosen if since is None or (one.ended or one.started or _EARLIEST) >= since]
        chosen.sort(key=lambda one: (one.started or one.ended or _EARLIEST, one.id), reverse=True)
        for place, one in enumerate(chosen):
            name = finder.of_folder(one.folder).name if one.folder else (one.workspace or "").rpartition("-")[0]
            chosen[place] = replace(one, project=name)
        return workspace, _with_outcomes(connection, asked, chosen)


def find_session(asked: Provenance, name: str) -> KnownSession:
    """Return one session by its id, an id prefix, or a ref. Raises UsageError if there is not exactly one."""
    prefix = id_in(name)
    _, everything = list_sessions(asked, everything=True)
    by_id = {one.id: one for one in everything}
    found = by_id[named] if prefix and (named := only_id(prefix, by_id, "session")) else None
    session, exchanges, is_archived, problem = None, tuple[Exchange, ...](), False, None
    try:
        session, exchanges, is_archived = read_whole_session(asked.environment, asked.settings, name)
    except NuggetError as error:
        problem = error
        if found and found.agent == SourceName.SHELL:
            hint = f"See what happened in it: nugget logs context --session {found.id}"
            problem = NuggetError(f"{found.id} is the log of a shell.", hint=hint)
    if session is not None and found is None:
        found = KnownSession(id=session.id, agent=session.agent, title=session.title or "", folder=session.cwd,
                             branch=session.branch, started=session.started, ended=session.ended)  # fmt: skip
    if found is None:
        raise problem or UsageError(f"There is no session {name}.", hint="`nugget sessions --all` lists them.")
    known = replace(found, session=session, exchanges=exchanges, is_archived=is_archived, problem=problem)
    if known.store_file is None:
        return known
    with open_index(asked.environment.home) as connection:
        touches = tuple(provenance.touches_of(connection, known.store_file))
        learned = tuple(provenance.nugget_list(connection, known.workspace or "", session=known.id))
        return replace(known, touches=touches, learned=learned)


def _stored_sessions(connection: sqlite3.Connection, here: str) -> dict[str, KnownSession]:
    """Return the sessions that were read or extracted; one with several workspaces is listed under `here`."""
    found: dict[str, KnownSession] = {}
    for log in events.log_sessions(connection):
        found[log.id] = KnownSession(
            id=log.id, agent=log.agent or log.source, title=log.title or "",
            first_prompt=events.first_prompt(connection, log.key),
            folder=log.folder, workspace=log.workspace, log_key=log.key,
            started=parse_timestamp(log.started_ms or None), ended=parse_timestamp(log.ended_ms or None),
        )  # fmt: skip
    extracted = sorted(provenance.sessions(connection), key=lambda one: one[0].workspace == here)
    for record, file, nuggets, files_ in extracted:
        read = found.get(record.session) or KnownSession(id=record.session, agent=record.agent)
        found[record.session] = replace(
            read, title=record.title or read.title, first_prompt=record.first_prompt or read.first_prompt,
            workspace=here if read.workspace == here else record.workspace,
            branch=record.branch, started=record.started or read.started, ended=record.ended or read.ended,
            store_file=file, nuggets=nuggets, files=files_,
        )  # fmt: skip
    return found


def _unread_session(file: SessionFile, finder: WorkspaceFinder) -> KnownSession:
    """Return an unread session from the first bytes of its transcript and the file's time."""
    head = ""
    with suppress(OSError):
        if not file.is_shared:
            with file.path.open("rb") as opened:
                head = opened.read(_HEAD_BYTES).decode("utf-8", "replace")
    folder, started = (_first_text(head, key) for key in ("cwd", "timestamp"))
    return KnownSession(
        id=file.id, agent=file.agent, folder=folder, workspace=finder.of_folder(folder).identity if folder else None,
        started=parse_timestamp(started), ended=datetime.fromtimestamp(file.mtime, UTC),
    )  # fmt: skip


def _first_text(content: str, key: str) -> str | None:
    """Return the first text under a key in JSON that may be incomplete."""
    found = re.search(rf'"{key}"\s*:\s*"((?:[^"\\]|\\.)*)"', content)
    return found[1].replace("\\\\", "\\").replace('\\"', '"') if found else None


def _with_outcomes(
    connection: sqlite3.Connection, asked: Provenance, chosen: Sequence[KnownSession]
) -> list[KnownSession]:
    """Return the sessions with their outcomes, from the ledger, the queue and the brain."""
    home, brain = asked.environment.home, asked.brain
    captures: dict[str, list[dict[str, Any]]] = {}
    for line in files.read_lines(home / "ledger" / ledger.CAPTURES):
        if line.get("event") == "captured":
            captures.setdefault(str(line.get("session")), []).append(line)
    queued = {job.session: job.state for state in ("failed", "pending", "running") for job in queue.jobs(home, state)}
    places = {"rejected": frozenset(line.get("id") for line in files.read_lines(home / "ledger" / ledger.REJECTED))}
    if brain is not None:
        with suppress(NuggetError, sqlite3.Error):
            waiting = frozenset(file.id for one in brain.proposals() for file in one.files)
            kept = frozenset(Index(brain.index_folder / "index.db").unit_ids())
            places = {"waiting": waiting, "kept": kept, **places}
    done = []
    for one in chosen:
        units: Counter[str] = Counter()
        for line in captures.get(one.id, ()):
            for unit in line.get("units") or ():
                units[next((name for name, ids in places.items() if unit in ids), "absent")] += 1
        state = queued.get(one.id)
        captured = "failed" if state == "failed" else "queued" if state else "yes" if one.id in captures else "no"
        counts = events.session_counts(connection, one.log_key) if one.log_key else {}
        done.append(replace(one, captured=captured, units=units, counts=counts))
    return done


def pause(home: Path, *, session: str | None = None, end: bool = False) -> None:
    """Pause capture of all sessions or of one, or end the pause."""
    line = {"time": datetime.now(UTC).timestamp(), "session": session, "paused": not end}
    files.append_line(home / queue.PAUSES, line)


def erase_session(asked: Provenance, name: str) -> tuple[str, list[str]]:
    """Permanently remove a session from everything that Nugget keeps; return its id and what was removed.

    The client's own transcript and the brain are not changed, and the session is not read again. Raises UsageError if
    there is not exactly one.
    """
    if len(name) < 4:
        raise UsageError(f"{name!r} is too short, since erasing cannot be undone.", hint="Give 4 characters or more.")
    home, known = asked.environment.home, find_session(asked, name)
    session, removed = known.id, []
    files.append_line(home / ERASED, {"session": session}, once=True)
    named = nugget_store.session_file(home, "", session).name
    places = [archive_file(home, session), *(file for file in nugget_store.session_files(home) if file.name == named)]
    for state in queue.JOB_STATES:
        jobs = [job for job in queue.jobs(home, state) if job.session == session]
        places += [home / "queue" / state / job.name for job in jobs]
    for file in places:
        if file.is_file():
            file.unlink()
            removed.append(file.relative_to(home).as_posix())
    ledger.forget_texts(home, session)
    with closing(open_home(home)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with write_transaction(connection):
            for one in (events.find_log_session(connection, session, source) for source in ("sessions", "shell")):
                if one is not None:
                    events.forget_session(connection, one.key)
                    removed.append("index.db")
            for table in ("events_fts", "evidence_fts", "units_fts"):
                connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        sync_provenance(home, connection)
        put_evidence_units(connection)
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return session, list(dict.fromkeys(removed))


def import_chats(brain: Brain, path: Path, *, dry_run: bool = False) -> dict[str, str] | None:
    """Archive the conversations of a ChatGPT or Claude export as sessions; return their titles by id.

    Returns None if the path is not such an export. Raises UsageError if it cannot be read.
    """
    file = chats.find_export(expanded(path))
    if file is None:
        return None
    return chats.import_chats(file, brain.environment.home, brain.settings, dry_run=dry_run)
