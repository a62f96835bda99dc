"""Evidence from the logs of shells and agent sessions: take logs in, and answer from one session or a repository."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nugget import evidence
from nugget.config import Environment, Settings
from nugget.errors import EmbeddingUnavailable, IndexUnavailable, NuggetError
from nugget.evidence import BundleOptions, EvidenceBundle, IngestedSession
from nugget.index import read_home
from nugget.index.connection import open_home
from nugget.index.events import LogSession, log_sessions, session_counts
from nugget.index.vectors import Progress, embed_missing
from nugget.infra.embedding import Embedder, open_embedder
from nugget.infra.workspace import find_workspace
from nugget.models import Problem
from nugget.redaction import allow_list, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Access to the logs of this machine. `progress` and `note` report long work and missing models to a person."""

    environment: Environment
    settings: Settings
    progress: Progress
    note: Callable[[str], None]

    def ingest(self, session: str | None) -> tuple[Sequence[IngestedSession], Sequence[Problem]]:
        """Read what is new in the logs of a session, or of all. Raises NuggetError for an unknown session."""
        now, problems = datetime.now(UTC), list[Problem]()
        with self._index() as connection:
            if session is None:
                done, problems = evidence.ingest_all(
                    connection, self.environment, settings=self.settings, now=now, progress=self.progress
                )
            else:
                log = evidence.find_log(self.environment, session)
                if log is None:
                    raise NuggetError(f"There are no logs of a session {session}.", hint=self._where())
                done = [evidence.ingest(connection, log, settings=self.settings, now=now)]
            self._embed_units(connection)
        return done, problems

    def session_evidence(self, session: str | None, question: str, options: BundleOptions) -> EvidenceBundle:
        """Answer from one session, by default the one last written to, after reading its new logs."""
        now, text = datetime.now(UTC), self._redacted(question)
        with self._index() as connection:
            if session is None:
                log = max(evidence.all_logs(self.environment), key=lambda log: (log.mtime, log.id), default=None)
                if log is None:
                    raise NuggetError("There are no logs of any session yet.", hint=self._where())
            else:
                log = evidence.find_log(self.environment, session)
            if log is not None:
                evidence.ingest(connection, log, settings=self.settings, now=now)
            return evidence.evidence_bundle(
                connection, log.id if log else session or "", text, options=options, now=now
            )

    def workspace_evidence(self, folder: Path, question: str, options: BundleOptions) -> EvidenceBundle:
        """Answer from all sessions of the repository that a folder is in, after reading all new logs."""
        now, text = datetime.now(UTC), self._redacted(question)
        with self._index() as connection:
            evidence.ingest_all(connection, self.environment, settings=self.settings, now=now, progress=self.progress)

            def is_known(identity: str) -> bool:
                return bool(log_sessions(connection, workspace=identity, limit=1))

            here = find_workspace(folder, is_known=is_known)
            if here is None or not is_known(here.identity):
                raise NuggetError(
                    f"No session with logs has worked in {folder}.",
                    hint="`nugget logs sessions` lists the sessions with logs; ask one with --session.",
                )
            embedder = self._embed_units(connection)
            with closing(read_home(self.environment.home)) as index:
                return evidence.workspace_bundle(
                    index, text, workspace=here.identity, options=options, embedder=embedder, now=now
                )

    def sessions(self, limit: int) -> tuple[list[LogSession], Mapping[int, Mapping[str, int]], int, int]:
        """Return the latest sessions, their counts by key, how many are known, and how many are not read yet."""
        with self._index() as connection:
            known = log_sessions(connection)
            waiting = {log.id for log in evidence.all_logs(self.environment)} - {one.id for one in known}
            counts = {one.key: session_counts(connection, one.key) for one in known[:limit]}
        return known[:limit], counts, len(known), len(waiting)

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        with closing(open_home(self.environment.home)) as connection:
            try:
                yield connection
            except sqlite3.Error as error:
                raise IndexUnavailable(
                    f"The machine's index could not be used ({error}).", hint="Try again."
                ) from error

    def _redacted(self, question: str) -> str:
        return redact(question, allow=allow_list(self.settings)).text

    def _where(self) -> str:
        return f"Shell logs are looked for in {self.environment.shell_logs}, transcripts where agents keep them."

    def _embed_units(self, connection: sqlite3.Connection) -> Embedder | None:
        """Make incidents and notes searchable by meaning if there is a model, and return the model."""
        evidence.put_evidence_units(connection)
        try:
            embedder = open_embedder(self.settings, self.environment)
        except EmbeddingUnavailable as error:
            self.note(f"{error} Searching by words alone.")
            return None
        if embedder is not None:
            cache = self.environment.home / "embeddings"
            done = embed_missing(connection, embedder=embedder, cache_folder=cache, progress=self.progress)
            if problem := done.get("without_vectors"):
                self.note(f"{problem} Searching by words alone.")
        return embedder
