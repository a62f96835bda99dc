"""A repository with provenance, for tests: files on disk, sessions in the store, the machine's index over them."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from replay import commit, make_repository

from nugget.index.embedded.connection import open_home
from nugget.index.embedded.sync import sync_provenance
from nugget.infra.workspace import find_workspace
from nugget.models import Filter, Query, Scope
from nugget.models.nuggets import FileTouch, Nugget, NuggetBundle, NuggetType, SessionRecord, TouchAction
from nugget.provenance.checkout import Checkout
from nugget.provenance.ranking import locate, why
from nugget.sources.nugget_store import write_session

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
REMOTE = "https://github.com/acme/shop.git"


@dataclass
class Shop:
    """A repository `shop` and what is known of it. Sessions are numbered from 1, each a day younger than the last."""

    repo: Path
    home: Path
    records: dict[int, SessionRecord] = field(default_factory=dict)

    @property
    def workspace_id(self) -> str:
        return find_workspace(self.repo).identity

    def write(self, path: str, text: str) -> str:
        """Write a file; returns its SHA-256."""
        file = self.repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="")
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def commit(self, message: str = "Work", *, at: datetime | None = None) -> str:
        return commit(self.repo, message, at=at or NOW)

    def learn(
        self, summary: str, *, session: int = 1, days_ago: float | None = None, path: str | None = None,
        symbol: str | None = None, type: str = "decision", previous: str | None = None, **more: Any,
    ) -> str:  # fmt: skip
        """Put a nugget into the store, with the file's present hash; returns its id."""
        age = timedelta(days=days_ago if days_ago is not None else 100 - session)
        id_ = f"{session:08x}-0000-4000-8000-000000000000"
        record = self.records.get(session) or SessionRecord(
            session=id_, workspace=self.workspace_id, title=f"Session {session}", first_prompt=f"please do {summary}",
            started=NOW - age, ended=NOW - age + timedelta(hours=1), branch="main", records=10,
        )  # fmt: skip
        file = self.repo / path if path else None
        file_hash = hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else None
        nugget = Nugget(
            id=f"{session:08x}-{len(record.nuggets) + 1}", type=NuggetType(type), summary=summary, session=id_,
            scope=Scope(repo=self.workspace_id, path=path, symbol=symbol),
            **{"confidence": 0.5, "file_hash": file_hash, "session_started": NOW - age,
               "extracted_at": NOW - age, **more},
        )  # fmt: skip
        touches = list(record.touches)
        if path and (self.repo / path).is_file() and path not in {known.path for known in touches}:
            touches.append(
                FileTouch(path=path, action=TouchAction.RENAMED if previous else TouchAction.MODIFIED,
                          at=NOW - age, after_hash=file_hash, previous_path=previous)
            )  # fmt: skip
        record = replace(record, nuggets=(*record.nuggets, nugget), touches=tuple(touches))
        self.records[session] = record
        write_session(self.home, record)
        return nugget.id

    @contextmanager
    def index(self) -> Iterator[sqlite3.Connection]:
        with closing(open_home(self.home)) as connection:
            sync_provenance(self.home, connection)
            yield connection

    def checkout(self) -> Checkout:
        return Checkout(find_workspace(self.repo))

    def why(self, path: str | None = None, text: str | None = None, **more: Any) -> NuggetBundle:
        filter_ = Filter(**{name: more.pop(name) for name in ("types", "since") if name in more})
        known = {name: more.pop(name) for name in ("depth", "budget_tokens", "symbol") if name in more}
        query, checkout = Query(text or "", path=path, filter=filter_, **known), more.pop("checkout", None)
        with self.index() as connection:
            return why(query, *locate(query, connection, checkout or self.checkout()), now=NOW, **more)


def make_shop(folder: Path, home: Path) -> Shop:
    """A shop whose store is below `home` (NUGGET_HOME)."""
    return Shop(make_repository(folder / "shop", remote=REMOTE), home)


def ids(bundle: NuggetBundle) -> list[str]:
    return [hit.nugget.id for hit in bundle.hits]


def summaries(bundle: NuggetBundle) -> Sequence[str]:
    return [hit.nugget.summary for hit in bundle.hits]
