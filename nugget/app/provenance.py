"""Why code is the way it is: answers, nuggets, sessions and coverage of the workspace that a folder is in."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nugget import commits
from nugget.app import brains
from nugget.config import Environment, Settings, load_settings
from nugget.errors import GitError, TranscriptError
from nugget.evaluation import query_log
from nugget.index.embedded import Index
from nugget.index.embedded import provenance as stored
from nugget.index.embedded.connection import Unusable
from nugget.infra import git
from nugget.infra.embedding import Embedder, embedder_or_problem
from nugget.infra.llm import open_extractor, open_llm
from nugget.infra.workspace import Workspace, find_workspace
from nugget.models import Query, StaleReason
from nugget.models.nuggets import Nugget, NuggetBundle
from nugget.provenance import (
    answer_code,
    find_nugget,
    nugget_types,
    nuggets_below,
    open_index,
    reviewed_units,
    stale_reasons,
)
from nugget.provenance import inventory as known
from nugget.provenance.checkout import Checkout, find_workspace_of
from nugget.provenance.ranking import BUDGET_TOKENS
from nugget.sources.nugget_store import provenance_folder
from nugget.sources.sessions import find_session_by_id, find_sessions
from nugget.upkeep import default_brain

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.provenance.extraction import ExtractedSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Provenance of the workspace around a folder, with the reviewed units of a brain if there is one.

    Questions are logged under `face`, if set. `note` receives messages for the person, such as a missing model.
    """

    environment: Environment
    folder: Path
    brain: Brain | None
    face: query_log.Face | None = None
    note: Callable[[str], None] = lambda text: None

    @property
    def settings(self) -> Settings:
        """The brain's settings; without a brain, the user's."""
        return self.brain.settings if self.brain else load_settings(self.environment)

    def explain(self, query: Query) -> NuggetBundle:
        """Explain code, from nuggets and the brain's units. Raises UsageError for an unknown place or type."""
        now, started = datetime.now(UTC), time.perf_counter()
        query = brains.checked(query, Query("", budget_tokens=BUDGET_TOKENS))
        query = replace(query, filter=replace(query.filter, types=nugget_types(query.filter.types)))
        answer = answer_code(
            query, home=self.environment.home, folder=self.folder, now=now, brain_index=self._index(),
            embedder=self._embedder,
        )  # fmt: skip
        if self.face is not None:
            query_log.log_answer(answer, self.environment, self.settings, face=self.face, started=started, now=now)
        return answer

    def nuggets(
        self, file: str | None, types: Sequence[str], *, stale: bool, limit: int
    ) -> tuple[list[Nugget], Mapping[str, StaleReason], int]:
        """Return nuggets, newest session first, why some are stale, and how many there are in all."""
        chosen = nugget_types(types)
        with open_index(self.environment.home) as connection:
            is_known = partial(stored.is_known, connection)
            workspace, path = find_workspace_of(file, folder=self.folder, is_known=is_known)
            checkout = Checkout(workspace)
            found = list(stored.nugget_list(connection, workspace.identity, types=chosen))
            if path:
                found = nuggets_below(found, path, connection, checkout)
            asked = found if stale else found[:limit]
            reasons = stale_reasons(asked, connection=connection, checkout=checkout, today=datetime.now(UTC).date())
        if stale:
            found = [one for one in found if one.id in reasons]
        return found[:limit], reasons, len(found)

    def nugget(self, prefix: str) -> tuple[Nugget, StaleReason | None]:
        """Return the nugget with this id prefix and why it is stale. Raises NuggetError unless there is exactly one."""
        with self._workspace() as (connection, workspace):
            found = find_nugget(connection, prefix, workspace=workspace.identity)
            if found.scope.repo != workspace.identity:  # other workspaces' files are not here
                return found, None
            today = datetime.now(UTC).date()
            reasons = stale_reasons([found], connection=connection, checkout=Checkout(workspace), today=today)
        return found, reasons.get(found.id)

    def missing(self) -> tuple[list[dict[str, str]], int]:
        """Return mentioned paths and symbols that no longer exist, and how many nuggets and units were checked."""
        index, today = self._index(), datetime.now(UTC).date()
        with self._workspace() as (connection, workspace):
            units = [unit for unit, *_ in reviewed_units(index, workspace, text=None, today=today)] if index else []
            return known.check_names(connection, Checkout(workspace), units)

    def coverage(self) -> list[known.Covered]:
        """Return how many nuggets each file has, most first."""
        with self._workspace() as (connection, workspace):
            return known.coverage(connection, Checkout(workspace))

    def gaps(self) -> known.Gaps:
        """Return files that are asked about or changed more than explained."""
        entries = query_log.read(self.environment.home)
        with self._workspace() as (connection, workspace):
            asked = Counter(one.path for one in entries if one.path and one.workspace == workspace.identity)
            return known.find_gaps(connection, Checkout(workspace), asked, now=datetime.now(UTC))

    def extract(
        self,
        session: str | None = None,
        *,
        way: str | None = None,
        everything: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[Sequence[ExtractedSession], int, Workspace]:
        """Extract nuggets and file touches from new sessions of the workspace, from all, or from one.

        Returns the outcomes by session, how many files were changed by hand since, and the workspace.
        `way` is one of `extraction.with`. Raises LLMUnavailable without its model, TranscriptError without the session.
        """
        from nugget.provenance.extraction import Extractor, extract_sessions, note_tunings

        here = self.workspace()
        extractor = Extractor(
            home=self.environment.home, settings=self.settings, now=datetime.now(UTC),
            llm=open_extractor(self.settings, self.environment, way),
            is_optional=(way or self.settings.extraction_with) == "auto", force=force, dry_run=dry_run,
        )  # fmt: skip
        wanted = None if everything or session else here.identity
        one = find_session_by_id(self.environment, session) if session else None
        if session and one is None:
            folder = self.environment.claude_config / "projects"
            hint = f"Claude Code keeps transcripts under {folder}, for 30 days."
            raise TranscriptError(f"There is no session {session}.", hint=hint)
        found = [one] if one else list(find_sessions(self.environment))
        outcomes = list(extract_sessions(found, extractor, workspace=wanted))
        is_touched = not session or any(here.identity in one.workspaces for one in outcomes)
        return outcomes, (note_tunings(here, extractor) if is_touched else 0), here

    def export_lines(self, *, everything: bool) -> Iterator[str]:
        """Yield the nuggets and file touches of the workspace, or of all, as JSON lines."""
        return known.export_lines(self.environment.home, None if everything else self.workspace().identity)

    def import_lines(self, stream: BinaryIO, *, name: str, dry_run: bool) -> dict[str, Any]:
        """Import exported lines; existing nuggets are not changed."""
        return known.import_lines(self.environment.home, stream, name=name, settings=self.settings, dry_run=dry_run)

    def workspace(self) -> Workspace:
        """Return the workspace that the folder is in."""
        home = self.environment.home
        return find_workspace(self.folder, is_known=lambda identity: provenance_folder(home, identity).is_dir())

    @contextmanager
    def _workspace(self) -> Iterator[tuple[sqlite3.Connection, Workspace]]:
        with open_index(self.environment.home) as connection:
            is_known = partial(stored.is_known, connection)
            yield connection, find_workspace_of(None, folder=self.folder, is_known=is_known)[0]

    def _index(self) -> Index | None:
        """Return the brain's index without syncing it first."""
        if self.brain is not None:
            with suppress(Unusable):
                return Index(self.brain.index_folder / "index.db")
        return None

    def _embedder(self) -> Embedder | None:
        if self.brain is not None:
            embedder, problem = self.brain.embedder, self.brain.embedder_problem
        else:
            embedder, problem = embedder_or_problem(self.settings, self.environment)
        if problem:
            self.note(f"{problem} Searching by words alone.")
        return embedder


def prepare_commit(environment: Environment, folder: Path, *, offline: bool) -> commits.Commit:
    """Return the planned commit of the staged changes, with a message from their sessions. Raises GitError."""
    settings = load_settings(environment, environment.brain or default_brain(environment))
    llm = None if offline else open_llm(settings, environment)
    made = commits.prepare(folder, environment, settings, now=datetime.now(UTC), llm=llm)
    assert made is not None
    return made


def commit_staged(folder: Path, message: str, *, edit: bool) -> Path | None:
    """Commit the staged changes; if nothing was committed, return the file with the message. Raises GitError."""
    top = git.top_folder(folder)
    if (git.git_dir(top) / "MERGE_MSG").exists():
        hint = "Finish it with git; --dry-run shows ours."
        raise GitError("A merge, cherry-pick or rebase is under way: git has a message for it.", hint=hint)
    file = git.git_dir(top) / "NUGGET_EDITMSG"
    file.write_text(message, "utf-8")
    if git.commit_staged(top, file, edit=edit):
        return file
    file.unlink(missing_ok=True)
    return None
