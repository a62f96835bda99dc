"""Derive incidents, working notes and units from the new rows of sessions and shells.

Working notes are blockers, edits, todos and decisions. Todos and decisions come only from what a person said (a prompt,
a comment, an echoed note, a line typed to an assistant), not from commands such as `npx next build`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from nugget.evidence.candidates import MINOR
from nugget.evidence.incidents import OpenIncident, build_incidents, error_lines, is_reading, words_of
from nugget.index.embedded import events as store
from nugget.index.embedded import units as stored
from nugget.index.embedded.connection import write_transaction
from nugget.index.embedded.events import Ids, LogSession
from nugget.index.embedded.sync import chunks_of
from nugget.models import Scope, SourceName, Unit
from nugget.text import shorten

_MAX_LINES_OF_COMMAND = 80
_SPEECH_CHARS = 4000
_UNITS_A_SESSION = 100


def derive_sessions(connection: sqlite3.Connection, keys: Iterable[int]) -> tuple[int, int]:
    """Derive the incidents and notes of sessions that gained rows; return how many of each were added."""
    incidents = notes = 0
    for key in keys:
        with write_transaction(connection):
            session = store.log_session(connection, key)
            if session is None or session.derived >= session.last_number:
                continue
            before = store.row_counts(connection, key)
            _derive(connection, session)
            after = store.row_counts(connection, key)
            incidents += max(0, after["incidents"] - before["incidents"])
            notes += max(0, after["working_notes"] - before["working_notes"])
    return incidents, notes


def _derive(connection: sqlite3.Connection, session: LogSession) -> None:
    """Derive the incidents and notes of a session from all its rows: a new row may have fixed an old failure."""
    ids = Ids(session.key, session.last_number)
    first, end = store.id_range(ids.key)
    store.remove_rows(connection, "incidents", first, end)
    events = store.rows_in(connection, "events", first, end, where="kind IN ('command.end', 'tool.end')")
    edits = store.rows_in(connection, "file_edits", first, end)
    if session.source != SourceName.SHELL:  # a subagent's events are read after those of the session itself
        events, edits = (sorted(rows, key=lambda row: (row[1], row[0])) for rows in (events, edits))
    found = build_incidents(events, edits, _lines_of(connection, first, end))
    connection.execute(
        "UPDATE pane_output SET is_failure = 0 WHERE id >= ? AND id < ? AND is_failure = 1 AND command IS NOT NULL "
        "AND command NOT IN (SELECT value FROM json_each(?) WHERE value IS NOT NULL)",
        (first, end, json.dumps([event for one in found if not is_reading(one.command) for event in one.printers])),
    )  # a diff, a listing or a passing test may contain a word such as `error`
    _allot_loose_lines(connection, found, first, end)
    store.put_rows(connection, "incidents", [_incident_row(one, ids) for one in found])
    _derive_notes(connection, ids)
    store.put_session(connection, ids, derived=ids.number)


def _lines_of(connection: sqlite3.Connection, first: int, end: int) -> Callable[[int], Sequence[str]]:
    """Return a function that gives the output of a command by its event, stderr first, where failures are reported."""

    def lines(started: int) -> Sequence[str]:
        rows = connection.execute(
            "SELECT text FROM pane_output WHERE command = ? AND id >= ? AND id < ? "
            "ORDER BY stream = 'stderr' DESC, is_failure DESC, id LIMIT ?",
            (started, first, end, _MAX_LINES_OF_COMMAND),
        )
        return [row[0] for row in rows]

    return lines


def _allot_loose_lines(connection: sqlite3.Connection, found: Sequence[OpenIncident], begin: int, end: int) -> None:
    """Assign lines of unknown commands to the incident with most words in common, or to the last one."""
    commands = [one for one in found if one.command and len(one.lines) < 2]
    if not commands:
        return
    loose = store.rows_in(
        connection, "pane_output", begin, end, where="is_failure = 1 AND command IS NULL", limit=400, newest=True
    )
    loose = [row for row in loose if row[2] == "stderr"] or loose
    for line in error_lines([row[3] for row in loose]):
        words = words_of(line)
        best = max(commands, key=lambda one: (len(words & one.words), one.last_event))
        if line not in best.lines:
            best.lines.append(line)
            best.reasons["printed in the same session"] = None
            connection.executemany(
                "UPDATE pane_output SET command = ?, ts_ms = ? WHERE id = ?",
                [(best.printers[0], best.ts_ms, row[0]) for row in loose if row[3] == line],
            )


def _incident_row(one: OpenIncident, ids: Ids) -> list[Any]:
    reasons = [*one.reasons, f"failed {len(one.printers)} times"] if len(one.printers) > 1 else list(one.reasons)
    details = {
        "reasons": reasons, "words": sorted(one.said)[:120], "severity": round(one.severity, 3), "summary": one.summary
    }  # fmt: skip
    return [
        ids.next("incidents"), one.ts_ms, one.first_ms, one.last_event, one.title,
        "\n".join([one.title, *one.summary]), one.command, len(one.printers), one.fixed_by,
        json.dumps(details, ensure_ascii=False),
    ]  # fmt: skip


def _derive_notes(connection: sqlite3.Connection, ids: Ids) -> None:
    """Write the notes of a session from all its rows; existing notes keep their ids."""
    bounds = store.id_range(ids.key)
    wanted: dict[tuple[str, str], tuple[int, bool, int]] = {}
    for row in store.rows_in(connection, "incidents", *bounds, limit=200, newest=True):
        if json.loads(row[9])["severity"] >= 0.3:
            wanted["blocker", shorten(row[4], 300)] = (row[1], row[8] is None, row[0])
    for row in store.rows_in(connection, "file_edits", *bounds, where="ok IS NOT 0"):
        wanted["edit", f"Edited {row[2]} ({row[3]})"] = (row[1], True, row[0])
    where = "(kind = 'command.start' OR (kind = 'prompt' AND coalesce(speaker, 'user') = 'user'))"
    for row in store.rows_in(connection, "events", *bounds, where=where):
        find = notes_of_speech if row[2] == "prompt" else notes_of_command
        for kind, text in find(row[4][:_SPEECH_CHARS]):
            wanted[kind, text] = (row[1], True, row[0])
    for row in store.rows_in(connection, "command_inputs", *bounds):
        for kind, text in notes_of_command(row[2]):
            wanted.setdefault((kind, text), (row[1], True, row[0]))
    listed = "kind = 'tool.start' AND tool = 'TodoWrite'"
    for row in store.rows_in(connection, "events", *bounds, where=listed, limit=1, newest=True):
        for line in row[4].split("\n"):
            status, _, todo = line.strip().removeprefix("TodoWrite ").partition("] ")
            if todo and status.startswith("["):
                wanted["todo", shorten(todo, 300)] = (row[1], status != "[completed", row[0])
    known = {(row[2], row[3]): row[0] for row in store.rows_in(connection, "working_notes", *bounds)}
    store.remove_rows(connection, "working_notes", *bounds)
    ordered = sorted(wanted.items(), key=lambda note: (note[1][0], note[1][2]))
    rows = [
        [known.get(key) or ids.next("working_notes"), ts_ms, *key, int(is_open), about]
        for key, (ts_ms, is_open, about) in ordered
    ]
    store.put_rows(connection, "working_notes", sorted(rows))


def put_evidence_units(connection: sqlite3.Connection) -> int:
    """Update the units of incidents, todos and decisions; return the number of changed sessions.

    Search finds these units by meaning, once `embed_missing` has made their vectors. Blockers repeat incidents, and
    edits are only paths, so neither becomes a unit.
    """
    changed = [row[0] for row in connection.execute("SELECT key FROM log_sessions WHERE generation <> unit_generation")]
    for key in changed:
        with write_transaction(connection):
            if session := store.log_session(connection, key):
                _put_units(connection, session)
    return len(changed)


def _put_units(connection: sqlite3.Connection, session: LogSession) -> None:
    source = SourceName(session.source)
    for unit_id in stored.unit_ids_of_path(connection, source, session.id):
        stored.remove_unit(connection, source, unit_id)
    bounds = store.id_range(session.key)
    serious = f"json_extract(details, '$.severity') >= {MINOR}"
    rows = store.rows_in(connection, "incidents", *bounds, where=serious, limit=_UNITS_A_SESSION, newest=True)
    where = "type IN ('todo', 'decision')"
    notes = store.rows_in(connection, "working_notes", *bounds, where=where, limit=_UNITS_A_SESSION, newest=True)
    shown = [(row[0], "incident", row[4], row[5], row[1]) for row in rows]
    for row_id, kind, title, body, ts_ms in [*shown, *((row[0], row[2], row[3], row[3], row[1]) for row in notes)]:
        day = datetime.fromtimestamp(ts_ms / 1000, UTC).date() if 0 < ts_ms < 1 << 42 else None
        unit = Unit(
            id=f"{session.id}/{kind}-{row_id}", source=source, type=kind, title=title, body=body, path=session.id,
            session=session.id, scope=Scope(repo=session.workspace), created=day, last_modified=day,
        )  # fmt: skip
        stored.put_unit(connection, unit, chunks_of(unit))
    connection.execute("UPDATE log_sessions SET unit_generation = generation WHERE key = ?", (session.key,))


MAX_NOTE_CHARS = 300
_MAX_SENTENCES = 40
_LEADS = frozenset("todo todo: fixme fixme: next: later: decided decision: chosen:".split())

_TO_ASSISTANT = re.compile(
    r"(?:ai|ask|claude|codex|gemini|llm|aider|aish|chat|copilot)\s+(?!-)(?P<said>.{4,})", re.DOTALL
)
_ECHO = re.compile(r"^(?:echo|printf|note|jot|task add|todo(?: add)?|nugget add)\s+(?:-\w+\s+)*(?P<said>[^|>]+)")
_QUOTES = "\"' "
_SHELL_MARK = re.compile(r"(?:^|\s)-{1,2}[A-Za-z]|[|&;<>$`{}=\\]|\(\)|^\s*[./~]|://|\S\.\w+\s*$")
_ENGLISH = frozenset(
    "the a an we i you it is are was this that to of for from with and or not let's lets should must will instead in "
    "on as".split()
)
"""A line typed into a shell without any of these is a command."""
_DOING = (
    r"(?:add|fix|handle|clean up|come back|look at|refactor|implement|update|remove|do|deal with|revisit|write|test"
    r"|check|finish|move|rename|document)\b"
)
_TODO = re.compile(
    r"(?<![\w./-])(?:todo|fixme)(?![\w/-]|\.\w)"
    rf"|^(?:and )?(?:up )?next\s*[:,]?\s+(?:(?:up|step|we|i|you|is)\b|{_DOING})"
    r"|\bdo (?:it|this|that|these|the rest)?\s*(?:next|later)\b|^later\s*[:,]"
    rf"|\b{_DOING}.{{0,80}}\b(?:later|next)\W*$",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:we|i|i've|we've|they) (?:have |had )?(?:decided?|chose|chosen)\b|\bdecided? (?:to|on|that|against|for)\b"
    r"|^(?:decision|decided|chosen)\s*:|\b(?:is|was|were|been|have|has) chosen\b|\bchosen\b.{0,40}\b(?:over|because"
    r"|instead)\b|\b(?:switch(?:ing|ed)?|moving|migrat(?:e|ing)) to\b|\b(?:go|going|went) with\b|^(?:(?:ok|okay|yes"
    r"|no|please|just|always|and|so|then|instead)[, ]+)*(?:let'?s |we(?:'ll| will| should| must)? |i(?:'ll"
    r"| will) )?use\b|\b(?:let'?s|we(?:'ll| will| should| must)?|should|must|always) use\b|\buse\b.{1,60}\binstead\b",
    re.IGNORECASE,
)
_NO_DECISION = re.compile(
    r"\?\s*$|\b(?:can't|cannot|could not|couldn't|how (?:do|to|can)|what|which|whether|if|should (?:i|we)|do (?:i|we)"
    r"|don't know)\b.{0,60}\b(?:use|switch|go with|choose|decide)\b|\buse (?:of|case|cases)\b"
    r"|\bdecide (?:if|whether|which|how|what)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def notes_of_command(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (type, text) of the todos and decisions in a line typed into a shell."""
    said = _said_in_command(text.strip())
    if said and text.strip().startswith(("todo ", "task ")):
        return (("todo", shorten(said, MAX_NOTE_CHARS)),)
    return tuple(notes_of_speech(said)) if said else ()


def notes_of_speech(text: str) -> Iterator[tuple[str, str]]:
    """Yield the (type, text) of the todos and decisions in what a person said, sentence by sentence."""
    for sentence in re.split(r"(?<=[.!?;])\s+|\n+|\s+[-–—]\s+", text[:8000])[:_MAX_SENTENCES]:
        sentence = sentence.strip(_QUOTES + "*-•")
        if not 6 <= len(sentence) <= 600:
            continue
        if _TODO.search(sentence):
            yield "todo", shorten(sentence, MAX_NOTE_CHARS)
        elif _DECISION.search(sentence) and not _NO_DECISION.search(sentence):
            yield "decision", shorten(sentence, MAX_NOTE_CHARS)


def _said_in_command(line: str) -> str:
    """Return a person's words in a line typed into a shell (to an assistant, in a comment, in a note), or ""."""
    if not line or line.split()[0].rpartition("/")[2] == "git":
        return ""
    if found := _TO_ASSISTANT.match(line) or _ECHO.match(line) or re.search(r"(?m)(?:^|\s)#\s*(?P<said>\S.*)$", line):
        return str(found["said"]).strip(_QUOTES)
    words = line.split()
    is_speech = len(words) >= 3 and not _SHELL_MARK.search(line)
    is_led = words[0].lower() in _LEADS
    return line if is_speech and (is_led or any(word.lower().strip(".,;:!?") in _ENGLISH for word in words)) else ""
