"""The Python face: a brain, opened once, asked many times. The CLI, MCP and HTTP faces are made of these calls."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from nugget.app.asked import as_depth, as_filter, as_sources, at_least_one
from nugget.config import Environment, Settings, expanded, load_settings, read_environment
from nugget.errors import BrainError, IndexUnavailable, NuggetError
from nugget.index import Index, Unusable, read_home
from nugget.index.connection import discard_damaged, find_damage, is_damage
from nugget.index.sync import IndexState, Progress, SyncResult, index_folder, pending_changes, sync
from nugget.infra import git
from nugget.infra.brain_in_use import find_brain
from nugget.infra.embedding import ConfiguredModel, Embedder, QuestionEmbedder
from nugget.infra.pace import Pace
from nugget.infra.query_log import Face, QuestionLog
from nugget.models import Bundle, Depth, Query, SourceName
from nugget.models.nuggets import NuggetBundle
from nugget.retrieval import profiles, retrieve
from nugget.retrieval.reranking import Reranker
from nugget.retrieval.search import DEFAULT_LIMIT

if TYPE_CHECKING:
    from nugget.app.machine import Behind
    from nugget.importing import ImportResult
    from nugget.retrieval.refs import Shown
    from nugget.retrieval.search import Indexes, Results

T = TypeVar("T")

INLINE_CHANGES = 50
"""Up to this many changed files are synced before a question is answered; more are left to a sync of their own."""


class Brain:
    """A brain with its index and embedding model. Thread-safe; close it, or use it in a `with` statement.

    Questions that come through a `face` are kept in the query log, unless `retrieval.log_queries` is false.
    """

    def __init__(
        self,
        path: Path,
        *,
        environment: Environment | None = None,
        settings: Settings | None = None,
        resident: bool = False,
        face: Face | None = None,
    ) -> None:
        self.path = path
        self.environment = environment or read_environment()
        self.settings = settings or load_settings(self.environment, path)
        self._resident = resident
        self._asks_once = face is Face.CLI
        self.query_log: QuestionLog | None = None
        if face is not None and self.settings.retrieval.log_queries:
            self.query_log = QuestionLog(path, face=face, environment=self.environment, settings=self.settings)
        self._lock = threading.RLock()
        self._index: Index | None = None
        self._machine: Index | None = None
        self._model = ConfiguredModel(self.settings, self.environment)
        self._pace: Pace[Behind] | None = Pace() if resident else None

    def __enter__(self) -> Brain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def embedder(self) -> Embedder | None:
        """The configured embedding model; None for `none`, or where it cannot be had (`embedder_problem` says why)."""
        return self._model.embedder

    @property
    def embedder_problem(self) -> str | None:
        """Return the reason why a configured embedding model is missing."""
        return self._model.problem

    @property
    def _question_embedder(self) -> QuestionEmbedder | None:
        return self._model.for_one_question() if self._asks_once else self._model.embedder

    @property
    def index(self) -> Index:
        """Return the index, opened for reading; build it first if there is no usable one."""
        with self._lock:
            if self._index is None:
                file = index_folder(self.path, self.environment) / "index.db"
                try:
                    self._index = Index(file, resident=self._resident)
                except Unusable:
                    self.sync()
                    self._index = Index(file, resident=self._resident)
            return self._index

    def sync(self, *, rebuild: bool = False, in_passing: bool = False, progress: Progress | None = None) -> SyncResult:
        """Bring the index in line with the files. Raises IndexUnavailable when it cannot be written."""
        result = sync(
            self.path,
            self.environment,
            embedder=self.embedder,
            unavailable=self.embedder_problem,
            rebuild=rebuild,
            in_passing=in_passing,
            progress=progress,
        )
        if result.rebuilt:
            self._reopen()
        return result

    def freshen(self, *, progress: Progress | None = None) -> IndexState:
        """Sync what little changed since the last question; leave much, or another model, to a sync of its own.

        Where there is no usable index at all, make it now: there is nothing to answer from. An index that cannot be
        written (a full disk, another process at work) is used as it is. Raises BrainError where the folder is gone.
        """
        if not self.path.is_dir():
            raise BrainError(f"{self.path} is not there any more.", hint="Put it back, or name another brain.")
        git.finish_pending(self.path)
        pending = pending_changes(self.path, self.environment)
        if pending is None:
            return IndexState(synced=self.sync(progress=progress))
        embedder = self.embedder
        stands = IndexState()
        if embedder is not None and embedder.model != self.index.embedding_model:
            stands = IndexState(other_model=True, model_problem=self.index.model_problem(embedder.model))
        if pending == 0 or pending > INLINE_CHANGES:
            return replace(stands, behind=pending)
        try:
            return replace(stands, synced=self.sync(in_passing=True, progress=progress))
        except IndexUnavailable:
            return replace(stands, behind=pending)

    def ask(
        self,
        text: str,
        *,
        limit: int | None = None,
        budget_tokens: int | None = None,
        depth: Depth | str = Depth.STANDARD,
        types: Sequence[str] = (),
        domains: Sequence[str] = (),
        tags: Sequence[str] = (),
        sources: Sequence[SourceName | str] = (),
        since: date | None = None,
        profile: str = "task",
        explain: bool = False,
        reranker: Reranker | None = None,
        now: datetime | None = None,
        fresh: bool = True,
        log: bool = True,
    ) -> Bundle:
        """Answer a question from the brain: the whole pipeline, without writing an answer.

        `fresh=False` skips the look at what changed, `log=False` keeps the question out of the query log.
        Raises UsageError for a filter that names nothing known.
        """
        started = time.perf_counter()
        defaults = self.settings.retrieval
        query = Query(
            text=text.encode("utf-8", "replace").decode("utf-8"),  # lone surrogates are no text that can be stored
            filter=as_filter(types, domains, tags, sources, since),
            limit=at_least_one("limit", limit if limit is not None else defaults.limit),
            budget_tokens=at_least_one(
                "budget", budget_tokens if budget_tokens is not None else defaults.budget_tokens
            ),
            depth=as_depth(depth),
            explain=explain,
        )
        state = self.freshen() if fresh else IndexState()
        chosen = profiles.configured(profile, defaults)
        moment = now or datetime.now(UTC)
        bundle = self._guarded(
            lambda: retrieve(query, chosen, self.index, embedder=self._question_embedder, reranker=reranker, now=moment)
        )
        if state.is_behind:
            bundle = replace(bundle, degraded=(*bundle.degraded, "index_behind"))
        if self.query_log and log:
            self.query_log.note(bundle, started=started, now=moment)
        return bundle

    def search(self, text: str, *, limit: int = DEFAULT_LIMIT, **options: Any) -> Bundle:
        """`search_all` as one Bundle: its hits source by source, without memory unless `as_identity` names one."""
        return self.search_all(text, limit=limit, **options)[0]

    def search_all(
        self,
        text: str,
        *,
        limit: int = DEFAULT_LIMIT,
        types: Sequence[str] = (),
        domains: Sequence[str] = (),
        tags: Sequence[str] = (),
        sources: Sequence[SourceName | str] = (),
        since: date | None = None,
        sessions: Sequence[str] = (),
        as_identity: str | None = None,
        profile: str = "search",
        depth: Depth | str = Depth.SUMMARY,
        explain: bool = False,
        now: datetime | None = None,
        fresh: bool = True,
        log: bool = True,
    ) -> tuple[Bundle, Results]:
        """Search every source at once, `limit` results of each: one Bundle, and the same by source.

        `text` is of the query language (docs/search.md). Memory is searched only for `as_identity`. `fresh` and `log`
        are as in `ask`. Raises UsageError for a filter that names nothing known, or memory without an identity.
        """
        from nugget.retrieval.query_language import merge_filters, parse_search
        from nugget.retrieval.search import as_bundle, chosen_sources, search_everything

        started = time.perf_counter()
        moment = now or datetime.now(UTC)
        query = parse_search(text, today=moment.date())
        merged = merge_filters(as_filter(types, domains, tags, sources, since, sessions), query.filter)
        lists = not query.text.strip() and not merged.is_empty
        query = replace(query, filter=replace(merged, sources=()), lists=lists)
        chosen = chosen_sources(merged.sources, identity=as_identity)
        wanted = at_least_one("limit", limit)
        state = self.freshen() if fresh and SourceName.BRAIN in chosen else IndexState()
        beside = self.freshen_machine(chosen) if fresh else None

        def search_once() -> Results:
            return search_everything(
                query, self.indexes(as_identity), sources=chosen, settings=self.settings.retrieval,
                embedder=self._question_embedder, now=moment, limit=wanted, depth=as_depth(depth), profile=profile,
                explain=explain,
            )  # fmt: skip

        results = self._guarded(search_once)
        if state.is_behind or (beside and beside.total):
            results = replace(results, degraded=(*results.degraded, "index_behind"))
        if beside and beside.lacks_vectors:
            results = replace(results, degraded=(*results.degraded, "vectors_behind"))
        bundle = as_bundle(results, limit=wanted, depth=as_depth(depth), profile=profile, explain=explain)
        of_memory_alone = chosen == (SourceName.MEMORY,)  # of which the log may not even say that it was of use
        if self.query_log and log and query.text.strip() and not of_memory_alone:
            self.query_log.note(bundle, started=started, now=moment)
        return bundle, results

    def related(self, given: str, **options: Any) -> tuple[Bundle, Results]:
        """Return what is similar to a ref or to a thought in words; `options` are those of `neighbours.near_to`.

        Raises UsageError for memory without its identity, NuggetError for a ref by which nothing is known.
        """
        from nugget.app.neighbours import near_to

        return near_to(self, given, **options)

    def get(self, ref: str, *, as_identity: str | None = None, neighbours: int = 1, fresh: bool = True) -> Shown:
        """Return what a ref names: a unit or a section of it, an exchange or message with its neighbours.

        Raises UsageError for what is no ref, NuggetError where nothing is known by it.
        """
        from nugget.retrieval.refs import show, split_ref

        source, _ = split_ref(ref)
        if fresh and source is SourceName.BRAIN:
            self.freshen()
        elif fresh:
            self.freshen_machine((source,))
        return show(
            ref, self.indexes(as_identity), identity=as_identity, neighbours=neighbours,

        )  # fmt: skip

    def indexes(self, as_identity: str | None = None) -> Indexes:
        """Return the indexes a search reads: the brain's, the machine's if it exists, an identity's memory if named."""
        from nugget.retrieval.search import Indexes

        brain = self.index
        with self._lock:
            if self._machine is None:
                with suppress(Unusable):
                    self._machine = read_home(self.environment.home, resident=self._resident)
            memory = self._memory_of(as_identity) if as_identity is not None else None
            return Indexes(brain=brain, machine=self._machine, memory=memory)

    def freshen_machine(self, sources: Sequence[SourceName]) -> Behind:
        """Take in the little that changed beside the brain; how much was left to `sync_machine`."""
        from nugget.app.machine import Behind, freshen_machine

        try:
            return freshen_machine(
                self.environment, self.settings, brain=self.path, sources=sources, embedder=self.embedder,
                pace=self._pace,
            )  # fmt: skip
        except (IndexUnavailable, sqlite3.DatabaseError):  # a full disk, another process at work, damage
            return Behind()

    def sync_machine(
        self, sources: Sequence[SourceName | str] = (), *, progress: Progress | None = None
    ) -> dict[SourceName, SyncResult]:
        """Bring what is searched beside the brain in line with its files; what was done, by source."""
        from nugget.app.machine import MACHINE_SOURCES, sync_machine

        named = as_sources(sources)
        return sync_machine(
            self.environment, self.settings, brain=self.path, sources=named or MACHINE_SOURCES,
            embedder=self.embedder, now=datetime.now(UTC), progress=progress,
        )  # fmt: skip

    def _memory_of(self, identity: str) -> Index:
        from nugget.app.machine import open_memory_of
        from nugget.infra.workspace import find_workspace

        here = find_workspace(Path.cwd())
        return open_memory_of(
            identity, self.environment, self.settings, brain=self.path, workspaces=[here.root] if here else [],
            embedder=self.embedder, resident=self._resident,
        )  # fmt: skip

    def _guarded(self, ask: Callable[[], T]) -> T:
        """Ask; if the brain's index turns out to be damaged, rebuild it and ask once more."""
        try:
            return ask()
        except Exception as error:  # damage also shows as a row that is missing or a value of another kind
            if isinstance(error, NuggetError) and not isinstance(error, Unusable):
                raise
            if isinstance(error, sqlite3.Error) and not is_damage(error):
                raise IndexUnavailable(f"The index could not be read ({error}).", hint="Try again.") from error
            if discard_damaged(self.environment.home):  # the files are the truth
                self._machine = None
            elif isinstance(error, (sqlite3.Error, Unusable)) or self._is_damaged():
                self._reopen()
                self.sync(rebuild=True)
            else:
                raise
            return ask()

    def _is_damaged(self) -> bool:
        return find_damage(index_folder(self.path, self.environment) / "index.db") is not None

    def context(
        self, path: str | None = None, *, query: str | None = None, folder: Path | None = None,
        now: datetime | None = None, **options: Any,
    ) -> NuggetBundle:  # fmt: skip
        """Explain why code is the way it is, from nuggets of earlier sessions and this brain's units on the same code.

        A relative path is meant from `folder`, the current one unless given; `options` are those of
        `provenance.answering.code_query` (symbol, types, since, depth, budget_tokens). Raises UsageError for a place or
        symbol that cannot be found.
        """
        from nugget.provenance.answering import answer_code, code_query, log_answer

        moment = now or datetime.now(UTC)
        answer = answer_code(
            code_query(path=path, text=query, **options), home=self.environment.home, folder=folder or Path.cwd(),
            now=moment, brain_index=self.index, embedder=lambda: self.embedder,
        )  # fmt: skip
        if self.query_log:
            log_answer(answer, self.environment, self.settings, face=self.query_log.face, now=moment)
        return answer.bundle

    def import_notes(self, path: Path | str, **options: Any) -> ImportResult:
        """Propose units from notes or an export, on a branch; `options` are those of `bringing.bring_in`.

        Raises UsageError for a path or domain that is none, BrainError and GitError; nothing was proposed then.
        """
        from nugget.app.bringing import bring_in

        return bring_in(self, path, **options)

    def close(self) -> None:
        """Let go of the index, and log what is not logged yet.

        An index closes itself when nobody reads it any more: closing it under a thread that does would end the process.
        """
        if self.query_log:
            self.query_log.write()
        with self._lock:
            self._index = self._machine = None

    def _reopen(self) -> None:
        """Let go of the index. Other threads may be reading it: it closes itself when the last of them is done."""
        with self._lock:
            self._index = None


def open(path: Path | str | None = None) -> Brain:
    """The brain at `path`, or the one in use: `NUGGET_BRAIN`, the current folder's, the user's default.

    Raises BrainError when there is none.
    """
    environment = read_environment()
    flag = expanded(path) if path is not None else None
    return Brain(find_brain(environment, flag=flag, cwd=Path.cwd()), environment=environment, face=Face.PYTHON)
