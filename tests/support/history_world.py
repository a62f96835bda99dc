"""A machine with transcripts of its own, and its index."""

from __future__ import annotations

import json
import sqlite3
from datetime import date
from pathlib import Path
from typing import Any

from sessions import write_transcript

from nugget.config import Environment, Settings, read_environment
from nugget.index.connection import open_home
from nugget.index.ingest import IngestRun, ingest_all
from nugget.models import Filter, Hit
from nugget.retrieval.history import search_history
from nugget.retrieval.query_language import SearchQuery, parse_search

TODAY = date(2026, 3, 1)


class World:
    """A machine with transcripts, and its index."""

    def __init__(self, home: Path) -> None:
        self.environment: Environment = read_environment({"HOME": str(home)})
        self.projects = self.environment.claude_config / "projects"
        self.connection: sqlite3.Connection = open_home(self.environment.home)

    def write(self, turns: list[tuple[str, str]], name: str = "11111111-aaaa", **more: Any) -> Path:
        file = self.projects / "-srv-shop" / f"{name}.jsonl"
        write_transcript(file, turns, session=name, **more)
        return file

    def write_line(self, number: int, prompt: str) -> None:
        """A session of one prompt, one of many."""
        file = self.projects / f"p{number % 10}" / f"{number:08}-aaaa.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"type": "user", "uuid": f"u{number}", "message": {"content": prompt}}) + "\n")

    def sync(self, settings: Settings | None = None) -> IngestRun:
        return ingest_all(self.connection, self.environment, settings or Settings())

    def search(
        self, query: str, *, since: date | None = None, until: date | None = None, sessions: tuple[str, ...] = (),
        **more: Any,
    ) -> list[Hit]:  # fmt: skip
        filter_ = Filter(since=since, until=until, sessions=sessions)
        return search_history(
            self.connection, SearchQuery(given=query, text=query, filter=filter_), today=TODAY, **more
        )

    def found(self, query: str, **more: Any) -> list[str]:
        return [hit.ref for hit in self.search(query, **more)]

    def matching(self, query: str) -> list[str]:
        parsed = parse_search(query, today=TODAY)
        assert parsed.match
        return [hit.ref for hit in search_history(self.connection, parsed, today=TODAY)]
