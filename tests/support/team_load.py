"""Two writers and readers of two spaces, for a process of its own: ADDRESS FOLDER SECONDS READERS.

Of two such processes one adds units (its FOLDER has an index a space) and publishes them, the other publishes the same
index again from nothing. A reader checks each time that the units of a space are all there, and only its own.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from nugget.index.embedded import Index
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import write_transaction
from nugget.index.postgres import PostgresIndex
from nugget.index.postgres.connection import IndexBusy, close_pools
from nugget.index.postgres.writer import publish
from nugget.models import Chunk, Query, SourceName, Unit
from nugget.retrieval import retrieve
from nugget.retrieval.candidates import TASK
from nugget.retrieval.search import Indexes

SPACES = ("first", "second")


def add(index: Index, space: str, number: int) -> None:
    """Write one unit of a space, without a vector."""
    body = f"# Note {number}\n\nA note of the {space} space about connection pools."
    made = Unit(id=f"concept/{space}-{number}", source=SourceName.BRAIN, type="concept", title=f"Note {number}",
                body=body, path=f"{space}-{number}.md")  # fmt: skip
    with write_transaction(index.connection):
        stored.put_unit(index.connection, made, [Chunk(position=0, breadcrumb=made.title, text=body)])


def write(address: str, file: Path, until: float, *, adds: bool) -> int:
    """Publish an index again and again; return how often."""
    done = 0
    with closing(Index(file)) as index:
        while time.time() < until:
            if adds:
                add(index, file.stem, len(index.unit_ids()))
            publish(index, address, file.stem, rebuild=not adds)
            done += 1
    return done


def read(address: str, space: str, until: float) -> int:
    """Ask a space again and again; return how often it answered."""
    team, last, answered = PostgresIndex(address, space), 0, 0
    while time.time() < until:
        try:
            with team.reading():
                ids = team.unit_ids()
                found = retrieve(Query("connection pools", limit=20), TASK, Indexes(brain=team), embedder=None,
                                 now=datetime.now(UTC))  # fmt: skip
        except IndexBusy:
            continue
        assert set(ids) == {f"concept/{space}-{number}" for number in range(len(ids))}, ids
        assert len(ids) >= last and len(found.hits) == min(len(ids), 20), (len(ids), last, len(found.hits))
        assert all(f"the {space} space" in hit.unit.body for hit in found.hits)
        last, answered = len(ids), answered + 1
    return answered


def main() -> None:
    """Run the writers and readers, and print what they did."""
    address, folder, seconds, readers, adds = sys.argv[1:]
    until = time.time() + float(seconds)
    with ThreadPoolExecutor(2 + int(readers)) as pool:
        files = [Path(folder, f"{space}.db") for space in SPACES]
        writing = [pool.submit(write, address, file, until, adds=adds == "adds") for file in files]
        reading = [pool.submit(read, address, SPACES[at % 2], until) for at in range(int(readers))]
        published, answered = (sum(one.result() for one in its) for its in (writing, reading))
    close_pools()
    print(json.dumps({"published": published, "answered": answered}))


if __name__ == "__main__":
    main()
