"""Transactions of a reader, one a thread, with a memory of what was read; and the lists that one statement gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nugget.errors import IndexUnavailable
from nugget.index.postgres.connection import Statement, begin, check_version, clean, clear_errors, lost, pool_of
from nugget.index.postgres.statements import STATE
from nugget.models import Filter

if TYPE_CHECKING:
    from psycopg import Connection

    from nugget.infra.embedding import Vector

Rows = list[tuple[Any, ...]]


@dataclass(slots=True)
class Snapshot:
    """One transaction of a thread, and what it has read."""

    connection: Connection[Any]
    state: tuple[str, int, int] | None = None
    trips: int = 0
    read: dict[str, dict[Any, Any]] = field(default_factory=dict)
    vector: Vector | None = None
    best: int | None = None
    filter: Filter = field(default_factory=Filter)

    def of(self, name: str) -> dict[Any, Any]:
        """Return what was read of one kind, by key; None stands for what is not there."""
        return self.read.setdefault(name, {})


class Transactions:
    """Reading a space: in one transaction within `reading`, else in one a call."""

    def __init__(self, url: str, space: str) -> None:
        self._url, self.space = url, space
        self._local = threading.local()
        self.trips = 0

    @property
    def _now(self) -> Snapshot | None:
        return getattr(self._local, "snapshot", None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything this thread reads within is of one state of the index, whatever is written meanwhile."""
        if self._now is not None:
            yield
            return
        with clear_errors():
            pool = pool_of(self._url)
            snapshot = self._local.snapshot = Snapshot(pool.getconn())
            try:
                yield
                if snapshot.state is not None:
                    snapshot.connection.execute("COMMIT")
            finally:
                if not snapshot.connection.closed:
                    snapshot.connection.rollback()  # sends nothing after a commit
                self.trips = snapshot.trips + 1
                self._local.snapshot = None
                pool.putconn(snapshot.connection)

    def _trip(self, *statements: Statement) -> list[Rows]:
        """Send statements together and return the rows of each; the first trip begins the transaction."""
        with self.reading():
            now = self._now
            assert now is not None
            if now.state is not None:
                return self._send(now, statements)
            first = [*begin(self.space), (STATE, {"space": self.space})]
            try:
                found = self._send(now, [*first, *statements])
            except Exception as error:  # a server that was restarted leaves dead connections in the pool
                if not lost(error) or now.trips:
                    raise
                pool = pool_of(self._url)
                pool.putconn(now.connection)
                pool.check()
                now.connection = pool.getconn()
                found = self._send(now, [*first, *statements])
            version, *state = found[len(first) - 1][0]
            check_version(version)
            if state[0] is None:
                raise IndexUnavailable(f"The team's index has no space {self.space}.", hint="Run: nugget sync")
            now.state = (state[0], state[1], state[2])
            return found[len(first) :]

    def _send(self, now: Snapshot, statements: Sequence[Statement]) -> list[Rows]:
        with now.connection.pipeline():
            cursors = [
                now.connection.execute(text, clean(parameters) if isinstance(parameters, dict) else parameters)
                for text, parameters in statements
            ]
        now.trips += 1
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def _rows(self, statement: str, **parameters: Any) -> Rows:
        return self._trip((statement, {"space": self.space, **parameters}))[0]

    @property
    def _state(self) -> tuple[str, int, int]:
        with self.reading():
            if self._now and self._now.state is None:
                self._trip()
            assert self._now is not None and self._now.state is not None
            return self._now.state

    def _known(self, name: str, keys: Iterable[Any], fetch: Callable[[list[Any]], Mapping[Any, Any]]) -> dict[Any, Any]:
        """Return what is known of these keys, after fetching what was not read in this transaction."""
        wanted = list(dict.fromkeys(keys))
        with self.reading():
            assert self._now is not None
            known = self._now.of(name)
            if missing := [key for key in wanted if key not in known]:
                fetched = fetch(missing)
                known.update((key, fetched.get(key)) for key in missing)
            return {key: known[key] for key in wanted if known[key] is not None}

    def unit_vector(self, unit_key: int) -> Vector | None:
        """Return the vector of a unit as a whole, if it has one."""
        import numpy as np

        statement = "SELECT embedding::text FROM nugget.unit_vectors WHERE space = %(space)s AND unit_key = %(key)s"
        rows = self._rows(statement, key=unit_key)
        return np.array(json.loads(rows[0][0]), dtype="<f4") if rows else None

    def titles(self, prefix: str, *, whole: bool, limit: int) -> list[tuple[str, str]]:
        """Return the ids that begin so, with their titles; with `whole` the refs, which name the source."""
        name = "source || ':' || id" if whole else "id"
        rows = self._rows(
            f"SELECT {name}, title FROM nugget.units WHERE space = %(space)s AND starts_with({name}, %(prefix)s) "
            "ORDER BY 1 LIMIT %(limit)s", prefix=prefix, limit=limit,
        )  # fmt: skip
        return [(ref, title) for ref, title in rows]
