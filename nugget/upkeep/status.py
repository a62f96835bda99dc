"""Status of a brain, its index, its remote and its capture. Reads only."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nugget import __version__
from nugget.brain import knowledge_paths
from nugget.capture import ledger, queue
from nugget.capture.publish import publications
from nugget.capture.review import proposals
from nugget.config import Environment, Settings, load_settings, read_brain_file
from nugget.errors import IndexUnavailable, NuggetError
from nugget.index.embedded import Index
from nugget.index.embedded.connection import Unusable, empty_home, index_folder, open_read_only
from nugget.index.embedded.ingest import changed_logs
from nugget.index.embedded.sync import document_changes, knowledge_units
from nugget.index.embedded.units import file_states
from nugget.index.embedded.vectors import embedding_under_way
from nugget.index.postgres.connection import place_of
from nugget.index.postgres.writer import space_state
from nugget.infra import files, git, remotes
from nugget.infra.llm import spending
from nugget.models import SourceName
from nugget.sources import source_of
from nugget.sources.notes import open_canon
from nugget.sources.nugget_store import nugget_units
from nugget.text import counted
from nugget.upkeep import default_brain


def drift(publishing: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return how brain and remote differ and the command that resolves it; None if they do not."""
    ahead, behind, unpushed = publishing["ahead"], publishing["behind"], publishing["unpushed"]
    if publishing["remote"] is None or (ahead, behind) == (0, 0):
        return None
    if unpushed:
        return f"accepted, but not pushed ({unpushed.rstrip('.')})", "nugget sync"
    if ahead is None or behind is None:
        return "not compared with the remote yet", "nugget sync --pull"
    if ahead and behind:
        return f"diverged: {counted(ahead, 'commit')} of its own, {behind} behind the remote", "nugget sync --rebase"
    if ahead:
        return f"{counted(ahead, 'commit')} ahead of the remote", "nugget sync --rebase, which pushes"
    return f"{counted(behind, 'commit')} behind the remote", "nugget sync --pull"


def status(brain: Path, settings: Settings, environment: Environment) -> dict[str, Any]:
    """Return the status of the brain and of capture, as `nugget status --json` prints it. Writes and loads nothing.

    `misplaced` are ignored keys of brain.yaml, which it may not set.
    """
    captured, (calls, usd) = queue.overview(environment.home), spending(environment.home)
    usual = default_brain(environment)
    waiting: set[str] = set()
    with suppress(NuggetError):
        waiting = {proposal.branch for proposal in proposals(brain)}
    index, brain_row = index_status(brain, environment)
    return {
        "version": __version__, "brain": str(brain),
        "is_default": usual is not None and usual.resolve() == brain.resolve(),
        "configured_model": settings.embedding_model, "has_key": bool(environment.anthropic_api_key),
        "index": index, "team_index": team_status(brain, settings, environment),
        "sources": sources_status(brain, settings, environment, brain_row),
        "repository": _git_status(brain), "proposals": len(waiting),
        "capture": {**captured, "calls": calls, "usd": usd},
        "publishing": _publishing_status(brain, environment.home, waiting), "misplaced": [*read_brain_file(brain)[2]],
    }  # fmt: skip


def sending(environment: Environment) -> dict[str, Any]:
    """Return the status of a machine without a brain, whose sessions go to a team's server."""
    home, captured = environment.home, queue.overview(environment.home)
    captured["queue"]["skipped"] -= sum((job.reason or "").startswith("sent ") for job in queue.jobs(home, "skipped"))
    lines = files.read_lines(home / "ledger" / ledger.CAPTURES)
    sent = {line.get("session") for line in lines if line.get("event") == "sent"}
    known = {"version": __version__, "brain": None, "server": load_settings(environment).capture_server}
    return known | {"sent": len(sent), "capture": captured}


def index_status(brain: Path, environment: Environment) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the state of a brain's index, and its row among the sources, None if the index is unusable.

    The state is `ready`, `behind` by a number of files, `absent`, `outdated` or `unusable`.
    """
    sizes = dict.fromkeys(("units", "chunks", "vectors", "relations", "files"), 0)
    known: dict[str, Any] = {
        "state": "absent", "reason": "there is no index yet", "behind": 0, **sizes, "bytes": 0, "model": None,
        "model_problem": None, "vector_search": None, "problems": [], "hint": "nugget rebuild",
    }  # fmt: skip
    try:
        file = index_file(brain, environment)
    except OSError as error:
        reason = f"there is none, and {error.filename} cannot be made ({error.strerror})"
        return known | {"state": "unusable", "reason": reason, "hint": f"make {brain} writable"}, None
    if file is None or not file.is_file():
        late = [*_times(map(brain.joinpath, paths := [*knowledge_paths(brain)]))]
        return known | {"files": len(paths)}, _row(SourceName.BRAIN, "", 0, 0, len(paths), late)
    try:
        with closing(Index(file)) as index:
            counts, states = index.counts(), file_states(index.connection, SourceName.BRAIN)
            modified, removed, _ = document_changes(knowledge_units(brain), index.connection)
            behind, late = len(modified) + len(removed), [*_times(file for _, file in modified)]
            problems = [asdict(one) for path in sorted(states) for one in states[path].problems]
            row = _documents(index.connection, SourceName.BRAIN, "", behind, late)
            return known | {
                "state": "behind" if behind else "ready", "reason": None, "behind": behind, "units": counts["units"],
                "chunks": counts["chunks"], "vectors": counts["vectors"], "relations": counts["relationships"],
                "files": counts["files"], "bytes": file.stat().st_size, "model": index.embedding_model,
                "model_problem": index.model_problem(), "problems": problems,
                "vector_search": index.vector_search if index.embedding_model else None,
            }, row | {"embedding": embedding_under_way(file.with_name("embeddings"))}  # fmt: skip
    except (IndexUnavailable, sqlite3.DatabaseError) as error:
        is_outdated = isinstance(error, Unusable) and error.is_outdated
        return known | {"state": "outdated" if is_outdated else "unusable", "reason": str(error)}, None


def team_status(brain: Path, settings: Settings, environment: Environment) -> dict[str, Any] | None:
    """Return the state of a brain's space in the team's index; None if none is configured.

    It is `ready`, `behind` by a number of units, or `unusable` for a `reason`. `published` is the time of publishing.
    """
    if not settings.index:
        return None
    known: dict[str, Any] = {
        "space": None, "state": "unusable", "reason": None, "hint": None, "behind": 0, "published": None,
    }  # fmt: skip
    try:
        url, known["space"] = place_of(settings, brain)
        with closing(Index(index_file(brain, environment) or brain / "index.db")) as index:
            published, behind = space_state(index, url, known["space"])
        state = "behind" if behind else "ready"
        return known | {"state": state, "behind": behind, "published": published.isoformat(timespec="seconds")}
    except NuggetError as error:
        return known | {"reason": str(error), "hint": error.hint}


def sources_status(
    brain: Path, settings: Settings, environment: Environment, brain_row: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """Return for each source the numbers of files and passages, and how many files wait since when.

    `unembedded` units are found by words alone; `embedding` is the progress of their vectors if they are being made.
    Memory is private to its identity, so only its name is returned.
    """
    rows = [brain_row] if brain_row else []
    # An empty index in memory replaces a missing or unusable one.
    with closing(open_read_only(environment.home) or empty_home()) as connection:
        if settings.canon_folders:
            canon = open_canon(environment, settings, brain)
            changed, removed, _ = document_changes(canon, connection)
            for folder in dict.fromkeys(f"{key.partition('/')[0]}/" for key, _ in canon.files()):
                late = [*_times(file for key, file in changed if key.startswith(folder))]
                gone = sum(key.startswith(folder) for key in removed)
                rows.append(_documents(connection, SourceName.CANON, folder, len(late) + gone, late))
        logs, _, _ = changed_logs(connection, environment, settings, brain)
        for source in (SourceName.SESSIONS, SourceName.SHELL, SourceName.BRIDGE):
            late = [min(file.mtime_ns for file in log) for log in logs if source_of(log) is source]
            read, said = connection.execute(_READ, (source,) * 2).fetchone()
            if said or late:
                rows.append(_row(source, "", read, said, len(late), late))
        if (environment.home / "provenance").is_dir():
            changed, removed, _ = document_changes(nugget_units(environment.home), connection)
            late = [*_times(file for _, file in changed)]
            rows.append(_documents(connection, SourceName.PROVENANCE, "", len(changed) + len(removed), late))
    for row in rows:
        if settings.embedding_model == "none":
            row["unembedded"] = 0
        elif row["unembedded"] and row["source"] != SourceName.BRAIN:
            row["embedding"] = embedding_under_way(environment.home / "embeddings")
    if any((environment.home / "memory").glob("*/")):
        rows.append({"source": "memory", "name": "memory"})
    return rows


_READ = """SELECT count(*), (SELECT count(*) FROM events JOIN read_files ON file = read_files.key JOIN log_sessions s
ON read_files.session = s.key WHERE number IS NOT NULL AND s.source = ?)
FROM log_sessions WHERE source = ? AND gone = 0"""


def _documents(
    connection: sqlite3.Connection, source: SourceName, folder: str, pending: int, late: Sequence[int]
) -> dict[str, Any]:
    """Return the row of a source of documents, or of one of its folders."""
    files, passages, unembedded = connection.execute(
        """SELECT (SELECT count(*) FROM files WHERE source = :s AND substr(path, 1, :n) = :f),
           (SELECT count(*) FROM chunks JOIN units u ON unit_key = u.key
            WHERE source = :s AND substr(path, 1, :n) = :f),
           (SELECT count(*) FROM units u WHERE source = :s AND substr(path, 1, :n) = :f AND
            EXISTS (SELECT 1 FROM chunks WHERE unit_key = u.key)
            AND NOT EXISTS (SELECT 1 FROM unit_vectors WHERE unit_key = u.key))""",
        {"s": source, "n": len(folder), "f": folder},
    ).fetchone()
    return _row(source, folder.rstrip("/"), files, passages, pending, late) | {"unembedded": unembedded}


def _row(
    source: SourceName, folder: str, files: int, passages: int, pending: int, late: Sequence[int]
) -> dict[str, Any]:
    since = datetime.fromtimestamp(min(late) / 1e9, UTC).isoformat(timespec="seconds") if late else None
    return {
        "source": str(source), "name": f"{source} {folder}".strip(), "files": files, "passages": passages,
        "pending": pending, "since": since, "unembedded": 0, "embedding": None,
    }  # fmt: skip


def _times(paths: Iterable[Path]) -> Iterator[int]:
    """Yield the modification times of existing files, in nanoseconds."""
    for path in paths:
        with suppress(OSError):
            yield path.stat().st_mtime_ns


def index_file(brain: Path, environment: Environment) -> Path | None:
    """Return the path of the index, None before the first sync. Raises OSError if its folder cannot be made."""
    is_built = (brain / ".nugget").exists() or not os.access(brain, os.W_OK)
    return index_folder(brain, environment.home) / "index.db" if is_built else None


def _git_status(brain: Path) -> dict[str, Any] | None:
    if not git.is_repository(brain):
        return None
    known = {"branch": None, "head": None, "uncommitted": 0, "unsettled": None, "problem": None, "hint": None}
    try:
        head = git.head(brain)
        unsettled = found[0] if head and (found := git.unsettled(brain)) else None
        return known | {
            "branch": git.current_branch(brain), "head": head,
            "uncommitted": len(git.uncommitted_paths(brain)), "unsettled": unsettled,
        }  # fmt: skip
    except NuggetError as error:
        return known | {"problem": str(error).rstrip("."), "hint": error.hint}


def _publishing_status(brain: Path, home: Path, waiting: set[str]) -> dict[str, Any]:
    """Return the remote as last seen, and pull requests that are open, merged but not pulled, failed or missing.

    `ahead` and `behind` count commits that only the brain or only the remote has; None if it was never seen.
    """
    try:
        remote = remotes.find_remote(brain)
        known = publications(brain, home=home) if remote else {}
    except NuggetError:
        remote, known = None, {}
    failed = [entry for entry in known.values() if entry.state == "failed" and entry.branch in waiting]
    branch = git.current_branch(brain) or "" if remote else ""
    apart = git.distance(brain, "HEAD", f"refs/remotes/{remote.name}/{branch}") if remote else None
    main = known.get(branch)
    return {
        "remote": re.sub(r"(?<=://)[^/]*@", "", remote.url) if remote else None,
        "ahead": apart[0] if apart else None, "behind": apart[1] if apart else None,
        "unpushed": main.reason if main and main.state == "unpushed" else None,
        "open": [entry.url or entry.branch for entry in known.values() if entry.state == "open"],
        "merged": sum(entry.state == "merged" for entry in known.values()),
        "local": sum(one not in known or known[one].state == "failed" for one in waiting) if remote else 0,
        "failures": [f"{entry.branch}: {entry.reason}" for entry in failed],
    }  # fmt: skip
