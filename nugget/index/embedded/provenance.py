"""Provenance in the machine's index: nuggets, with their sessions and the files that those touched.

Plain functions over a connection. Rows come and go with files of the store; callers hold a write transaction to write.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from nugget.index.embedded.units import select_in
from nugget.index.fulltext import BM25_WEIGHTS, LARGEST_CHARACTER, Vocabulary, terms_of
from nugget.models.nuggets import FileTouch, Nugget, SessionRecord
from nugget.sources.nugget_store import line_of, value_in


def put_record(connection: sqlite3.Connection, file: str, record: SessionRecord, unit_ids: Collection[str]) -> None:
    """Add the rows of a file of the store, which must not have any yet.

    `unit_ids` are the nuggets that became units; an id that another file already has stays with that file.
    """
    row = (file, record.workspace, record.session, _stamp(record.started), _line(record))
    connection.execute("INSERT INTO provenance_sessions VALUES (?,?,?,?,?)", row)
    rows = [_nugget_row(file, record, nugget) for nugget in record.nuggets if nugget.id in unit_ids]
    connection.executemany(f"INSERT OR REPLACE INTO nuggets VALUES ({','.join('?' * 13)})", rows)
    touches = [
        (file, record.workspace, one.path, _stamp(one.at), one.previous_path, _line(replace(one, line_hashes=())))
        for one in record.touches
    ]
    connection.executemany("INSERT INTO file_touches VALUES (?,?,?,?,?,?)", touches)


def nuggets_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Nugget]:
    """Return the nuggets of these ids."""
    rows = select_in(connection, "SELECT id, line FROM nuggets WHERE id IN", ids)
    return {row[0]: value_in(row[1], Nugget) for row in rows}


def ids_beginning_with(connection: sqlite3.Connection, prefix: str, *, workspace: str | None = None) -> list[str]:
    """Return at most 20 ids of nuggets with a prefix, sorted."""
    rows = connection.execute(
        "SELECT id FROM nuggets WHERE id >= ? AND id < ? AND (? IS NULL OR workspace = ?) ORDER BY id LIMIT 20",
        (prefix, prefix + LARGEST_CHARACTER, workspace, workspace),
    )
    return [row[0] for row in rows]


def nuggets_at(
    connection: sqlite3.Connection, workspace: str, *, paths: Sequence[str], folders: Sequence[str],
    below: Sequence[str], types: Sequence[str], since: datetime | None,
) -> list[Nugget]:  # fmt: skip
    """Return the nuggets scoped to one of `paths`, to a file directly in one of `folders`, or to any path `below` one.

    The path `''` stands for the whole workspace; everything is below `''`.
    """
    where, fixed = _selection(workspace, types, since)
    start = f"SELECT id, line FROM nuggets n WHERE {where}"
    rows = [*select_in(connection, f"{start} AND path IN", list(paths), fixed)]
    # A nugget of the whole workspace has no folder, but the column must have a value.
    rows += select_in(connection, f"{start} AND path != '' AND folder IN", list(folders), fixed)
    for folder in below:
        rows += connection.execute(f"{start} AND path >= ? AND path < ?", (*fixed, *_bounds_below(folder)))
    return [value_in(line, Nugget) for line in dict(rows).values()]


def search_nuggets(
    connection: sqlite3.Connection, workspace: str, text: str, *, limit: int, types: Sequence[str],
    since: datetime | None,
) -> dict[str, float]:  # fmt: skip
    """Return the ids of a workspace's nuggets that contain words of a text, with BM25 scores, best first."""
    terms = terms_of(Vocabulary(connection), text)
    if not terms.match:
        return {}
    where, fixed = _selection(workspace, types, since)
    rows = connection.execute(
        f"""SELECT n.id, -bm25(units_fts, {BM25_WEIGHTS}) AS score FROM units_fts
            JOIN units u ON u.key = units_fts.rowid JOIN nuggets n ON n.id = u.id
            WHERE {where} AND units_fts MATCH ? AND u.source = 'provenance' ORDER BY score DESC LIMIT ?""",
        (*fixed, terms.match, limit),
    )
    return dict(rows.fetchall())


def naming(connection: sqlite3.Connection, workspace: str, ids: Sequence[str], word: str) -> set[str]:
    """Return those nuggets whose summary, detail or evidence contains a string (case-sensitive)."""
    told = "json_extract(line, '$.summary', '$.detail', '$.alternatives', '$.evidence')"
    sql = f"SELECT id FROM nuggets WHERE workspace = ? AND instr({told}, ?) AND id IN"
    return {row[0] for row in select_in(connection, sql, ids, (workspace, word))}


def has_newer(connection: sqlite3.Connection, workspace: str, nugget: Nugget, paths: Sequence[str]) -> bool:
    """Return whether a later session has a nugget of the same type and symbol at one of these paths."""
    sql = (
        "SELECT 1 FROM nuggets later JOIN nuggets n ON n.id = ? WHERE later.workspace = ? AND later.type = n.type "
        "AND later.session_started > n.session_started AND later.session != n.session AND later.symbol IS n.symbol "
        "AND later.path IN"
    )
    return next(select_in(connection, sql, paths, (nugget.id, workspace)), None) is not None


def scoped_paths(connection: sqlite3.Connection, workspace: str) -> dict[str, int]:
    """Return every path that nuggets of a workspace are scoped to, with their number."""
    rows = connection.execute(
        "SELECT path, count(*) FROM nuggets WHERE workspace = ? AND path != '' GROUP BY path ORDER BY path",
        (workspace,),
    )
    return dict(rows)


def nugget_list(
    connection: sqlite3.Connection, workspace: str, *, types: Sequence[str] = (), session: str | None = None
) -> Iterator[Nugget]:
    """Yield the nuggets of a workspace, newest session first."""
    rows = connection.execute(
        """SELECT type, line FROM nuggets WHERE workspace = ? AND (? IS NULL OR session = ?)
            ORDER BY session_started DESC, session, length(id), id""",
        (workspace, session, session),
    )
    return (value_in(line, Nugget) for type_, line in rows if not types or type_ in types)


def is_known(connection: sqlite3.Connection, workspace: str) -> bool:
    """Return whether any session of a workspace was extracted."""
    sql = "SELECT 1 FROM provenance_sessions WHERE workspace = ?"
    return connection.execute(sql, (workspace,)).fetchone() is not None


def sessions(connection: sqlite3.Connection, workspace: str | None = None) -> list[tuple[SessionRecord, str, int, int]]:
    """Return the sessions of a workspace, or of all, newest first, without their nuggets and touches.

    Each comes with the key of its file in the store, and its numbers of nuggets and touched files.
    """
    rows = connection.execute(
        """SELECT line, file, (SELECT count(*) FROM nuggets n WHERE n.file = s.file),
               (SELECT count(*) FROM file_touches t WHERE t.file = s.file)
            FROM provenance_sessions s WHERE ?1 IS NULL OR workspace = ?1 ORDER BY started DESC, session""",
        (workspace,),
    )
    return [(value_in(line, SessionRecord), *counts) for line, *counts in rows]


def touches_of(connection: sqlite3.Connection, file: str) -> list[FileTouch]:
    """Return the files that the session in a file of the store touched, by path."""
    rows = connection.execute("SELECT line FROM file_touches WHERE file = ? ORDER BY path", (file,))
    return [value_in(row[0], FileTouch) for row in rows]


def sessions_touching(
    connection: sqlite3.Connection, workspace: str, paths: Sequence[str], *, below: Sequence[str]
) -> list[SessionRecord]:
    """Return the sessions that touched one of these files, or anything below a folder, newest first."""
    start = "SELECT file FROM file_touches WHERE workspace = ?"
    found = {row[0] for row in select_in(connection, f"{start} AND path IN", paths, (workspace,))}
    for folder in below:
        rows = connection.execute(f"{start} AND path >= ? AND path < ?", (workspace, *_bounds_below(folder)))
        found.update(row[0] for row in rows)
    return [record for record, file, *_ in sessions(connection, workspace) if file in found] if found else []


def touched_renames(connection: sqlite3.Connection, workspace: str) -> list[tuple[str, str]]:
    """Return (old path, new path) of each rename that sessions made, oldest first."""
    sql = "SELECT previous_path, path FROM file_touches WHERE workspace = ? AND previous_path IS NOT NULL ORDER BY at"
    return connection.execute(sql, (workspace,)).fetchall()


def earliest_session(connection: sqlite3.Connection, workspace: str) -> datetime | None:
    """Return the start of a workspace's first session."""
    sql = "SELECT min(started) FROM provenance_sessions WHERE workspace = ?"
    text = connection.execute(sql, (workspace,)).fetchone()[0]
    return datetime.fromisoformat(text) if text else None


def sessions_of(connection: sqlite3.Connection, workspace: str) -> list[str]:
    """Return the ids of the sessions that worked in a workspace."""
    rows = connection.execute(
        "SELECT session FROM provenance_sessions WHERE workspace = ?1 UNION SELECT id FROM log_sessions "
        "WHERE workspace = ?1", (workspace,)
    )  # fmt: skip
    return [row[0] for row in rows]


def stated_rules(connection: sqlite3.Connection, workspace: str, *, limit: int, today: date) -> list[tuple[str, str]]:
    """Return (path, summary) of the constraints and caveats that the user typed, constraints and newest first.

    Nuggets are not reviewed, so text of an agent, a tool or a paste is not passed on as a rule.
    """
    rows = connection.execute(
        "SELECT path, json_extract(line, '$.summary') FROM nuggets "
        "WHERE workspace = ? AND type IN ('constraint', 'caveat') "
        "AND json_extract(line, '$.speaker') = 'user' AND json_extract(line, '$.origin') = 'typed' "
        "AND (stale_after IS NULL OR stale_after >= ?) "
        "ORDER BY type = 'caveat', confidence DESC, session_started DESC LIMIT ?",
        (workspace, today.isoformat(), limit),
    )
    return rows.fetchall()


def _selection(workspace: str, types: Sequence[str], since: datetime | None) -> tuple[str, list[object]]:
    """Return the SQL condition, with parameters, for nuggets `n` of a workspace, by type and age."""
    sql = "n.workspace = ?"
    parameters: list[object] = [workspace, *types]
    if types:
        sql += f" AND n.type IN ({','.join('?' * len(types))})"
    if since is not None:
        sql += " AND coalesce(n.session_started, n.extracted_at, '') >= ?"
        parameters.append(_stamp(since))
    return sql, parameters


def _bounds_below(folder: str) -> tuple[str, str]:
    """Return the bounds between which the paths below a folder sort."""
    return (f"{folder}/", f"{folder}0") if folder else ("", LARGEST_CHARACTER)


def _nugget_row(file: str, record: SessionRecord, nugget: Nugget) -> tuple[object, ...]:
    path, started = nugget.scope.path or "", nugget.session_started or record.started
    nugget = replace(nugget, scope=replace(nugget.scope, repo=record.workspace), session_started=started)
    return (
        nugget.id, file, record.workspace, nugget.type, path, path.rpartition("/")[0], nugget.scope.symbol,
        nugget.confidence, nugget.session, _stamp(started), _stamp(nugget.extracted_at),
        nugget.stale_after.isoformat() if nugget.stale_after else None, _line(nugget)
    )  # fmt: skip


def _line(value: SessionRecord | Nugget | FileTouch) -> str:
    return json.dumps(line_of(value), ensure_ascii=False)


def _stamp(moment: datetime | None) -> str | None:
    """Return a time as ISO 8601 in UTC, in one form, so that texts compare like times."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
