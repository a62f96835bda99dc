"""The Python library: open a brain once, ask it many times. CLI, MCP and HTTP are built on these calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from nugget.app import brains, local_sources, writing
from nugget.app.brains import checked
from nugget.app.local_sources import IndexState
from nugget.config import Environment, Settings, current_folder, expanded, load_settings, read_environment
from nugget.errors import BrainError, NuggetError, UsageError
from nugget.evaluation.query_log import Asked, Face, asked_of, record
from nugget.index import IndexReader
from nugget.index.embedded import Index, read_home
from nugget.index.embedded.connection import Unusable, home_index_file, index_folder
from nugget.index.embedded.sync import SyncResult, sync
from nugget.infra import git
from nugget.infra.embedding import Embedder, embedder_or_problem
from nugget.infra.llm import open_llm
from nugget.models import Bundle, Depth, Query, SourceName, Unit
from nugget.models.nuggets import NuggetBundle
from nugget.retrieval import refs, retrieve
from nugget.retrieval.candidates import configured_profile
from nugget.retrieval.llm import Reranker, add_answer, answer, choose_reranker, citations_in
from nugget.retrieval.query_language import SearchQuery, merge_filters, parse_search, with_saved, with_synonyms
from nugget.retrieval.search import Indexes, chosen_sources
from nugget.upkeep import default_brain, find_brain
from nugget.upkeep.repair import repair

if TYPE_CHECKING:
    from nugget.app.provenance import Provenance
    from nugget.infra.llm import LLM

SEARCH_TOKENS = 200_000
"""Token budget of a search, larger than its snippets ever need."""


class Brain:
    """A brain with its index and embedding model. Thread-safe; close it, or use it in a `with` statement.

    Questions that come through a `face` are kept in the query log, unless `retrieval.log_queries` is false.
    """

    add, forget, move, lint = writing.add, writing.forget, writing.move, writing.lint
    import_notes, promote, follow = writing.import_notes, writing.promote, writing.follow
    propose = writing.propose
    proposals, proposal, proposal_diff = writing.proposals, writing.proposal, writing.proposal_diff
    waiting = brains.waiting_in
    decide, accept, reject, make_current = writing.decide, writing.accept, writing.reject, writing.make_current
    leaks, scrub = writing.leaks, writing.scrub
    changes, undo = writing.changes, writing.undo
    evaluate, asked_questions = brains.evaluate, brains.asked_questions
    similar_units, neighbours = brains.similar_units, brains.neighbours
    sync_local_sources = local_sources.sync_local_sources
    refresh = local_sources.refresh
    publish_index = brains.publish_index
    sync_in_background = local_sources.sync_in_background

    def __init__(
        self, path: Path, *, environment: Environment | None = None, settings: Settings | None = None,
        face: Face | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.environment = environment or read_environment()
        self.settings = settings or load_settings(self.environment, path)
        self._is_read_by_people = face == "cli"
        self._is_of_a_team = brains.serves_team(face, self.settings)
        self.logs_as = face if self.settings.retrieval_log_queries else None
        self._unlogged: list[Asked] = []
        self._lock = threading.RLock()
        self._index: Index | None = None
        self._team: IndexReader | None = None
        self._local: Index | None = None
        self._model = cache(partial(embedder_or_problem, self.settings, self.environment))
        self.name, self.is_chosen = path.name, True
        self.others, self.left_out = tuple[Brain, ...](), tuple[str, ...]()

    def __enter__(self) -> Brain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def embedder(self) -> Embedder | None:
        """The configured embedding model; None for `none`, or if it is unavailable (`embedder_problem` says why)."""
        return self._model()[0]

    @property
    def embedder_problem(self) -> str | None:
        """Return why the configured embedding model is unavailable."""
        return self._model()[1]

    @property
    def index_folder(self) -> Path:
        """Return the folder of the brain's index and caches."""
        return index_folder(self.path, self.environment.home)

    @property
    def index(self) -> IndexReader:
        """Return the index that answers questions: the team's if one is configured, else the embedded one."""
        if not self.settings.index:
            return self.embedded_index
        with self._lock:  # one for all calls, which share a transaction within `reading`
            if self._team is None:
                from nugget.index.postgres import PostgresIndex
                from nugget.index.postgres.connection import place_of

                self._team = PostgresIndex(*place_of(self.settings, self.path))
            return self._team

    @property
    def embedded_index(self) -> Index:
        """Return the brain's own index for reading, built first if it is missing or unusable."""
        with self._lock:
            if self._index is None:
                file = self.index_folder / "index.db"
                try:
                    self._index = Index(file)
                except Unusable:
                    self.sync()
                    self._index = Index(file)
            return self._index

    def sync(self, *, rebuild: bool = False, in_passing: bool = False) -> SyncResult:
        """Update the index from the files. Raises IndexUnavailable if it cannot be written."""
        result = sync(
            self.path, self.environment, embedder=self.embedder, unavailable=self.embedder_problem, rebuild=rebuild,
            in_passing=in_passing,
        )  # fmt: skip
        if result.rebuilt:
            self._index = None
        return result

    def ask(
        self, question: Query | str, *, reranker: Reranker | None = None, now: datetime | None = None,
        fresh: bool = True, log: bool = True, alone: bool = False,
    ) -> Bundle:  # fmt: skip
        """Return the best passages for a question, from every source or those of its filter.

        Memory is searched only for the query's `identity`, other brains unless `alone`. `fresh=False` skips the check
        for changed files, `log=False` keeps the question out of the query log. `answer` adds a written answer. Raises
        UsageError for an unknown name in the filter, or memory without an identity.
        """
        limit, tokens = self.settings.retrieval_limit, self.settings.retrieval_budget_tokens
        query = checked(question, Query("", limit=limit, budget_tokens=tokens, profile="task"))
        parsed = SearchQuery(given=query.text, text=query.text, filter=query.filter)
        return self._retrieve(query, parsed, reranker, now or datetime.now(UTC), fresh=fresh, log=log, alone=alone)

    def search(
        self, question: Query | str, *, now: datetime | None = None, fresh: bool = True, log: bool = True
    ) -> Bundle:
        """Search by a text in the query language (docs/search.md).

        `fresh` and `log` are as in `ask`. Raises UsageError as `ask` does.
        """
        moment = now or datetime.now(UTC)
        limit = self.settings.retrieval_limit
        usual = Query("", limit=limit, budget_tokens=SEARCH_TOKENS, depth=Depth.SUMMARY, profile="task")
        query = checked(question, usual)
        text = with_saved(query.text, self.settings.retrieval_searches)
        parsed = parse_search(text, today=moment.date())
        merged = merge_filters(query.filter, parsed.filter)
        problem = parsed.problem or (f"there is no saved query {text.split()[0]}" if text[:1] == "@" else None)
        parsed = replace(parsed, filter=merged, lists=not parsed.text.strip() and not merged.is_empty, problem=problem)
        return self._retrieve(query, parsed, None, moment, fresh=fresh, log=log)

    def _retrieve(
        self, query: Query, parsed: SearchQuery, reranker: Reranker | None, now: datetime, *, fresh: bool, log: bool,
        alone: bool = False,
    ) -> Bundle:  # fmt: skip
        started, settings = time.perf_counter(), self.settings
        sources = chosen_sources(parsed.filter.sources, identity=query.identity)
        profile = configured_profile(query.profile or "task", settings)
        profile = replace(profile, reads_closely=self._is_read_by_people)
        text = parsed.text if parsed.match else with_synonyms(parsed.text, settings.retrieval_synonyms)
        parsed = replace(parsed, text=text, filter=replace(parsed.filter, sources=()))
        state = self.refresh(sources) if fresh else IndexState()
        bundle = brains.ask_all(
            self,
            lambda others: retrieve(
                query, profile, replace(self.indexes(query.identity), others=others), sources=sources, parsed=parsed,
                embedder=self.embedder, reranker=reranker, now=now,
            ),
            alone=alone,
        )  # fmt: skip
        behind = ["index_behind"] * state.is_behind + ["vectors_behind"] * state.lacks_vectors
        bundle = replace(
            bundle, query=replace(query, text=parsed.given, filter=parsed.filter),
            degraded=(*bundle.degraded, *behind),
        )  # fmt: skip
        of_memory_alone = sources == (SourceName.MEMORY,)  # the log may not even mention memory
        if self.logs_as and log and parsed.text.strip() and not of_memory_alone:
            asked = asked_of(bundle, self.path, self.environment, face=self.logs_as, started=started, now=now)
            self._unlogged.append(asked)
            if self.logs_as != "cli":  # the CLI logs it once the answer is on the screen
                self._log_asked()
        return bundle

    def _log_asked(self) -> None:
        with suppress(IndexError):  # emptied, perhaps by another thread
            while True:
                record(self.environment.home, self._unlogged.pop(0), settings=self.settings)

    def related(self, question: Query | str, *, fresh: bool = True) -> Bundle:
        """Return units similar to a ref or a text. Raises NuggetError for an unknown ref."""
        query = checked(question, Query("", limit=self.settings.retrieval_limit, depth=Depth.SUMMARY, profile="task"))
        chosen = chosen_sources(query.filter.sources, identity=query.identity)
        return refs.related(
            self._named(query, fresh=fresh), query, self.indexes(query.identity), sources=chosen, now=datetime.now(UTC),
            profile=configured_profile("task", self.settings), embedder=self.embedder,
        )  # fmt: skip

    def _named(self, query: Query, *, fresh: bool) -> Unit | str:
        """Return the unit or the text of the exchange that a ref names; any other text unchanged."""
        given = query.text
        try:
            shown = self.get(given, identity=query.identity, around=0, fresh=fresh)
        except NuggetError:
            source, colon, _ = given.partition(":")
            looks_like_an_id = "/" in given and " " not in given.strip()
            if (colon and source in (*SourceName, "session")) or looks_like_an_id:
                raise
            return given
        if shown.unit is not None:
            return shown.unit
        assert shown.excerpt is not None
        return " ".join(passage.text for passage in shown.excerpt.passages if passage.is_target)[:2000]

    def llm(self) -> LLM | None:
        """Return the configured LLM; None without a key."""
        return open_llm(self.settings, self.environment)

    def reranker(self, llm: LLM | None) -> Reranker | None:
        """Return the configured re-ranker, which may be the LLM."""
        return choose_reranker(self.settings, llm, self.environment)

    def answer(self, bundle: Bundle, llm: LLM | None) -> Bundle:
        """Return the bundle with a written answer, if there is an LLM and something to answer from."""
        return add_answer(bundle, llm, self.settings)

    def stream_answer(self, bundle: Bundle, llm: LLM) -> Iterator[str]:
        """Yield a written answer in parts. Raises LLMUnavailable."""
        return answer(bundle.query.text, bundle.hits, llm, self.settings)

    def citations(self, answer: str, bundle: Bundle) -> list[str]:
        """Return the ids of the units that an answer cites, in the order of the answer."""
        return citations_in(answer, bundle.hits)

    def get(self, ref: str, *, identity: str | None = None, around: int = 1, fresh: bool = True) -> refs.Shown:
        """Return what a ref names: a unit or a section of it, an exchange or message with its neighbours.

        Raises UsageError for an invalid ref, NuggetError for an unknown one.
        """
        source, _ = refs.split_ref(ref)
        if fresh:
            self.refresh((source,))
        try:
            return refs.show(ref, self.indexes(identity), identity=identity, neighbours=around)
        except UsageError:
            raise
        except NuggetError:
            for other in self.others:
                with suppress(NuggetError):
                    return other.get(ref, fresh=fresh)
            raise

    def suggest(self, prefix: str, *, limit: int = 10) -> dict[str, list[tuple[str, int]]]:
        """Return domains, tags, types, paths, people and words that begin with a prefix, with counts."""
        return refs.suggest(prefix, self.indexes(), brain=self.path, limit=limit)

    def refs_beginning(self, prefix: str, *, limit: int) -> list[tuple[str, str]]:
        """Return refs that begin with a prefix, with their titles, except those of memory."""
        return refs.refs_beginning(prefix, self.indexes(), limit=limit)

    def indexes(self, identity: str | None = None) -> Indexes:
        """Return the indexes to search: the brain's, that of local sources and, for an identity, its memory."""
        with self._lock:
            if self._local is None:
                with suppress(Unusable):
                    self._local = read_home(self.environment.home)
            memory = local_sources.open_memory_of(self, identity) if identity is not None else None
            local = None if self._is_of_a_team else self._local
            return Indexes(brain=self.index, machine=local, memory=memory, name=self.name)

    def context(self, query: Query | str) -> NuggetBundle:
        """Explain why code is the way it is, from nuggets of earlier sessions and this brain's units on the same code.

        A string is a path relative to the current folder. Raises UsageError for an unknown path or symbol.
        """
        self.embedded_index  # noqa: B018 - built if there is none
        return self.provenance().explain(Query("", path=query) if isinstance(query, str) else query)

    def provenance(self, folder: Path | None = None) -> Provenance:
        """Return the provenance of a folder's workspace, for `extract`, `nuggets`, `coverage` and `gaps`."""
        from nugget.app.provenance import Provenance

        where = folder or current_folder()
        return Provenance(environment=self.environment, folder=where, brain=self, face=self.logs_as)

    def repair(self) -> list[str]:
        """Repair traces of killed processes, rebuild removed indexes, and return what was done."""
        machine = home_index_file(self.environment.home)
        was_there, done = machine.exists(), repair(self.path, self.environment.home)
        self.sync()
        if was_there and not machine.exists():
            self.sync_local_sources()
        return done

    def close(self) -> None:
        """Write pending log lines and release the index, which closes when the last thread is done."""
        self._log_asked()
        for other in self.others:
            other.close()
        with self._lock:
            self._index = self._local = None


def brain_in_use(path: Path | str | None, environment: Environment) -> Path:
    """Return the folder of the brain in use, after finishing a change that a killed process left.

    Raises BrainError without a brain.
    """
    found = find_brain(environment, flag=expanded(path) if path is not None else None, cwd=current_folder())
    git.finish_pending(found)
    return found


def brain_or_server(path: Path | str | None, environment: Environment) -> Path | None:
    """Return the brain in use; None if none was ever chosen and sessions go to a team's server. Raises BrainError."""
    try:
        return brain_in_use(path, environment)
    except BrainError:
        is_chosen = path or environment.brain or default_brain(environment)
        if not is_chosen and load_settings(environment).capture_server:
            return None
        raise


def open(path: Path | str | None = None, *, face: Face = "python") -> Brain:
    """Open the brain at `path` or in NUGGET_BRAIN; by default the current folder's or the default one, with the others.

    `face` is the caller's name in the query log. Raises BrainError if there is no brain.
    """
    environment = read_environment()
    opened = Brain(brain_in_use(path, environment), environment=environment, face=face)
    return opened if path or environment.brain else brains.join(opened)
