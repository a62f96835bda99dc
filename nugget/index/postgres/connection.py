"""Connections to a team's PostgreSQL: address, one pool per database, transactions in a space, versions of the schema.

This is the only module that imports psycopg, which comes with the extra `team`.
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nugget.config import Settings, import_extra
from nugget.errors import IndexUnavailable, UsageError
from nugget.index.postgres.statements import STATE
from nugget.text import slugify

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from nugget.infra.embedding import Vector

MIGRATIONS = (
    ["schema"], ["units_by_type"], ["vectors_in_line"], ["emptied", "packed_postings"], ["emptied", "half_vectors"],
    ["emptied", "careful_graphs"],
)  # fmt: skip
"""The scripts of each step of the schema; its version is the number of steps taken."""
SERVICE = "nugget_service"
"""The role of every transaction, which may read and write rows of its spaces and owns nothing."""
PATIENCE_S = 5
"""Longest wait of a question for a connection or for a reply, in seconds."""
MOST_CONNECTIONS = 8
_MIGRATING = 0x6E756767
# One plan serves every question: statements name the space as text, so that its partition and graph are known.
_SETTINGS = {"plan_cache_mode": "force_generic_plan", "jit": "off", "enable_seqscan": "off"}
_SETTINGS["hnsw.iterative_scan"] = "relaxed_order"

_opening = threading.Lock()
_pools: dict[str, ConnectionPool[Any]] = {}
atexit.register(lambda: close_pools())

Statement = tuple[str, dict[str, Any]]
Rows = list[tuple[Any, ...]]


class IndexBusy(IndexUnavailable):
    """Every connection of the pool is in use, or a reply took too long; try again."""

    retry_after_s = PATIENCE_S


def place_of(settings: Settings, brain: Path) -> tuple[str, str]:
    """Return the address of the team's database and a brain's space in it, by default the brain's name.

    Raises UsageError for a name that cannot be a space's.
    """
    url, _, named = settings.index.partition("#")
    space = named or slugify(settings.name or brain.name)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", space):
        raise UsageError(f"{space!r} cannot name a space.", hint="Use small letters, digits, dots and hyphens.")
    return url, space


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn psycopg's errors into one sentence without address and password."""
    psycopg = _psycopg()
    from psycopg_pool import PoolTimeout

    try:
        yield
    except PoolTimeout as error:
        raise IndexBusy("The team's index has no free connection, or is down.", hint="Try again later.") from error
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable) as error:
        raise IndexUnavailable("The database has no current Nugget index.", hint="Run: nugget index migrate") from error
    except psycopg.errors.QueryCanceled as error:
        raise IndexBusy(f"The team's index took longer than {PATIENCE_S} s.", hint="Try again.") from error
    except psycopg.Error as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise IndexUnavailable(f"The team's index failed ({first}).", hint="Check that the database is up.") from error


def open_connection(url: str) -> Connection[Any]:
    """Open a separate autocommit connection, for work without a time limit."""
    with clear_errors():
        connection: Connection[Any] = _psycopg().connect(url, autocommit=True, **_limits(url))
        return connection


def clean(value: Any) -> Any:
    """Return texts without NUL and half surrogates, which PostgreSQL cannot store, and a list of numbers as a text."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        is_text = value and isinstance(value[0], str)
        return [clean(one) for one in value] if is_text else f"{{{','.join(map(str, value))}}}"
    return {key: clean(one) for key, one in value.items()} if isinstance(value, dict) else value


def pool_of(url: str) -> ConnectionPool[Any]:
    """Return the process's pool of connections to a database."""
    _psycopg()
    from psycopg_pool import ConnectionPool

    with _opening:
        if url not in _pools:
            with clear_errors():  # a pool would retry for long, and then not say why
                open_connection(url).close()
            _pools[url] = ConnectionPool(
                url, min_size=0, max_size=MOST_CONNECTIONS, timeout=PATIENCE_S, open=True, num_workers=1,
                reconnect_timeout=PATIENCE_S, kwargs={"autocommit": True, "prepare_threshold": 0, **_limits(url)},
            )  # fmt: skip
        return _pools[url]


def close_pools() -> None:
    """Close the connections of this process; later questions open new ones."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


def begin(*, writes: bool = False) -> list[str]:
    """Return the statements that begin a transaction of the service in %(space)s."""
    named = {"nugget.spaces": "%(space)s", "nugget.writable": "%(space)s" if writes else "''"}
    settings = {"role": SERVICE, "statement_timeout": "0" if writes else f"{PATIENCE_S}s", **_SETTINGS}
    named |= {name: f"'{value}'" for name, value in settings.items()}
    level = "READ COMMITTED" if writes else "REPEATABLE READ, READ ONLY"
    calls = ", ".join(f"set_config('{name}', {value}, true)" for name, value in named.items())
    return [f"BEGIN ISOLATION LEVEL {level}", f"SELECT {calls}"]


@contextmanager
def transaction(connection: Connection[Any], space: str, *, writes: bool) -> Iterator[None]:
    """Work in a space as the service role, in one transaction; a writer waits until it is the only one.

    Raises IndexUnavailable if the schema is of another version.
    """
    with connection.transaction():
        check_version(one_value(connection, "SELECT nugget.schema_version()"))
        connection.execute(begin(writes=writes)[1], {"space": space})
        if writes:
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (space,))
        yield


def one_value(connection: Connection[Any], sql: str, *parameters: object) -> Any:
    """Return the single value of a statement."""
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return row[0]


def check_version(version: int) -> None:
    """Raise IndexUnavailable unless the schema is the one for this version of Nugget."""
    if version != len(MIGRATIONS):
        hint = "Upgrade Nugget." if version > len(MIGRATIONS) else "Run: nugget index migrate"
        has = f"The team's index has schema {version}"
        raise IndexUnavailable(f"{has}, this version of Nugget knows {len(MIGRATIONS)}.", hint=hint)


def migrate(url: str) -> tuple[int, int]:
    """Bring the schema forward as its owner, in one transaction; return its version before and after."""
    with clear_errors(), open_connection(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        is_new = one_value(connection, "SELECT to_regprocedure('nugget.schema_version()')") is None
        before = 0 if is_new else int(one_value(connection, "SELECT nugget.schema_version()"))
        check_version(max(before, len(MIGRATIONS)))
        for script in (name for step in MIGRATIONS[before:] for name in step):
            connection.execute(Path(__file__).with_name(f"{script}.sql").read_text("utf-8"))
        version = f"nugget.schema_version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT {len(MIGRATIONS)}'"
        connection.execute(f"CREATE OR REPLACE FUNCTION {version}")
    return before, len(MIGRATIONS)


def _limits(url: str) -> dict[str, Any]:
    """Return the network timeouts, unless the address sets its own."""
    limits = {"connect_timeout": PATIENCE_S, "tcp_user_timeout": PATIENCE_S * 1000, "application_name": "nugget"}
    return {name: value for name, value in limits.items() if f"{name}=" not in url}


@lru_cache(maxsize=256)
def _named(text: str, space: str) -> str:
    """Return a statement that names a space."""
    return text.replace("%(space)s", _psycopg().sql.Literal(space).as_string(None).replace("%", "%%"))


@cache
def _psycopg() -> Any:
    psycopg = import_extra("psycopg", "team", "A team's index", UsageError)
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # every failure is one of our exceptions
    return psycopg


@dataclass(slots=True)
class Snapshot:
    """One transaction of a thread, and its results by kind and key; None means missing.

    `lent` gives the connection back to its pool.
    """

    lent: ExitStack
    connection: Connection[Any]
    state: tuple[Any, ...] | None = None
    trips: int = 0
    read: defaultdict[str, dict[Any, Any]] = field(default_factory=lambda: defaultdict(dict))
    vector: Vector | None = None
    written: str = ""


class Transactions:
    """Reads of a space, in one transaction within `reading`, otherwise one per call."""

    def __init__(self, url: str, space: str) -> None:
        self._url, self.space = url, space
        self._local = threading.local()
        self.trips = 0

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """Read one state of the index throughout the block, even if others write to it."""
        if (now := getattr(self._local, "snapshot", None)) is not None:
            yield now
            return
        with clear_errors(), ExitStack() as lent:
            snapshot = self._local.snapshot = Snapshot(lent, lent.enter_context(pool_of(self._url).connection()))
            try:
                yield snapshot
            finally:
                self.trips = snapshot.trips + 1
                self._local.snapshot = None

    def _trip(self, *statements: Statement) -> list[Rows]:
        """Send statements together and return the rows of each; the first trip begins the transaction."""
        with self.reading() as now:
            if now.state is not None:
                return self._send(now, statements)
            first: list[Statement] = [(text, {}) for text in (*begin(), STATE)]
            try:
                found = self._send(now, [*first, *statements])
            except _psycopg().OperationalError:  # a server that was restarted leaves dead connections in the pool
                if now.trips or not now.connection.closed:
                    raise
                now.lent.close()
                pool_of(self._url).check()
                now.connection = now.lent.enter_context(pool_of(self._url).connection())
                found = self._send(now, [*first, *statements])
            version, *state = found[len(first) - 1][0]
            check_version(version)
            if state[0] is None:
                raise IndexUnavailable(f"The team's index has no space {self.space}.", hint="Run: nugget sync")
            now.state = tuple(state)
            return found[len(first) :]

    def _send(self, now: Snapshot, statements: Sequence[Statement]) -> list[Rows]:
        with now.connection.pipeline():
            cursors = [
                now.connection.execute(_named(text, self.space), clean(parameters), binary=True)
                for text, parameters in statements
            ]
        now.trips += 1
        return [[] if cursor.rownumber is None else cursor.fetchall() for cursor in cursors]

    def _rows(self, statement: str, **parameters: Any) -> Rows:
        return self._trip((statement, parameters))[0]

    @property
    def _state(self) -> tuple[Any, ...]:
        with self.reading() as now:
            if now.state is None:
                self._trip()
            return now.state or ()

    def _known(self, name: str, keys: Iterable[Any], fetch: Callable[[list[Any]], Mapping[Any, Any]]) -> dict[Any, Any]:
        """Return the values of these keys, fetching those not yet read in this transaction."""
        wanted = list(dict.fromkeys(keys))
        with self.reading() as now:
            known = now.read[name]
            if missing := [key for key in wanted if key not in known]:
                fetched = fetch(missing)
                known.update((key, fetched.get(key)) for key in missing)
            return {key: known[key] for key in wanted if known[key] is not None}
