"""Evidence chosen by a model that reads the whole history of a session, chunk by chunk.

The rows that a reply names are looked up again, so that the text holds only what was logged, never a model's words.
The latest lines of stdout, stderr and stdin are always included.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from nugget.config import Settings
from nugget.errors import LLMUnavailable
from nugget.evidence import BundleOptions, evidence_bundle, fit_lines, ingested_session, output_lines
from nugget.index.embedded import events as store
from nugget.infra.llm import LLM, Reply, Request, object_schema, prompt_text
from nugget.text import CHARS_PER_TOKEN, shorten

LEAST_CHUNK_TOKENS, MOST_CHUNK_TOKENS, MOST_CHUNKS = 500, 500_000, 64
_MOST_CHOSEN = 60
_LINE_CHARS = 600
_LATEST_LINES, _LATEST_INPUTS = 15, 10
_MAX_REPLY_TOKENS = 4000
_Entry = tuple[int, str]
"""A row's id and the line that shows it."""
_SCHEMA = object_schema({"labels": {"type": "array", "items": {"type": "string"}}})


_HISTORY = (
    "SELECT ts_ms, id, '[typed] ' || text FROM command_inputs",
    "SELECT ts_ms, id, '[' || stream || '] ' || text FROM pane_output",
    "SELECT ts_ms, id, '[edit] ' || path || ' (' || action || ')' FROM file_edits",
    "SELECT ts_ms, id, '[note ' || type || '] ' || text FROM working_notes",
    "SELECT ts_ms, id, '[' || kind || coalesce(' exit ' || exit_code, '') || iif(ok = 0, ' failed', '') "
    "|| '] ' || text FROM events",
)


def select_with_llm(
    connection: sqlite3.Connection, session: str, query: str, *, options: BundleOptions, llm: LLM, settings: Settings,
    now: datetime,
) -> dict[str, Any]:  # fmt: skip
    """Let a model choose the rows of a session's history that help to answer a question; return its choice as JSON.

    `chunks` were read; `left_out` says whether the history was longer.
    All calls together cost at most `llm.select_max_usd`. If the model fails or the cap is reached, the rows chosen so
    far are used; if no chunk was read, the bundle is built without a model. `degraded` names both. Raises NuggetError
    for an unknown session.
    """
    known = ingested_session(connection, session)
    chunks, left_out = _history_chunks(connection, known.key, options)
    chosen: dict[int, str] = {}
    degraded: list[str] = ["history_cut"] if left_out else []
    usd, read = 0.0, 0
    for chunk in chunks:
        try:
            reply = _ask(chunk, session, query, llm=llm, settings=settings, options=options, usd=usd)
        except LLMUnavailable as error:
            degraded.append(f"llm_select: {error}")
            break
        usd, read = usd + reply.usd, read + 1
        labels = reply.value.get("labels")
        named = {label.strip(" []") for label in labels[:_MOST_CHOSEN] if isinstance(label, str)} if labels else set()
        chosen |= {row_id: line for n, (row_id, line) in enumerate(chunk, 1) if f"e{n}" in named}
    if not read and chunks:
        text = evidence_bundle(connection, session, query, options=options, now=now).context_text
    else:
        lines = [f"session: {session}", "intent: llm-select", f"query: {shorten(query, 300)}"]
        lines += [*(["evidence:"] if chosen else []), *(f"- {chosen[row_id]}" for row_id in sorted(chosen))]
        text, _ = fit_lines(lines, options, last=output_lines(_latest(connection, known.key)))
    return {
        "session_id": session, "query": query, "context_text": text, "source_ids": sorted(chosen), "chunks": read,
        "left_out": left_out, "usd": round(usd, 6), "degraded": degraded,
    }  # fmt: skip


def _history_chunks(
    connection: sqlite3.Connection, key: int, options: BundleOptions
) -> tuple[list[list[_Entry]], bool]:
    """Return the latest chunks of a session's history, and whether there are more."""
    room = options.chunk_tokens * CHARS_PER_TOKEN
    parts = _HISTORY if options.include_events else _HISTORY[:-1]
    union = " UNION ALL ".join(f"{part} WHERE id >= :first AND id < :end" for part in parts)
    first, end = store.id_range(key)
    rows = connection.execute(f"{union} ORDER BY ts_ms DESC, id DESC", {"first": first, "end": end})
    chunks: list[list[_Entry]] = [[]]
    size = 0
    for _, row_id, text in rows:
        line = shorten(text, _LINE_CHARS)
        if size + len(line) + 12 > room and chunks[-1]:
            if len(chunks) == options.max_chunks:
                return [chunk[::-1] for chunk in reversed(chunks)], True
            chunks.append([])
            size = 0
        chunks[-1].append((row_id, line))
        size += len(line) + 12
    return [chunk[::-1] for chunk in reversed(chunks) if chunk], False


def _ask(
    chunk: Sequence[_Entry], session: str, query: str, *, llm: LLM, settings: Settings, options: BundleOptions,
    usd: float,
) -> Reply:  # fmt: skip
    log = "\n".join(f"e{number} {line}" for number, (_, line) in enumerate(chunk, 1))
    prompt = f"{llm.fence(log, 'session', id=session)}\n\n{llm.fence(query[:8000], 'question')}"
    request = Request(
        purpose="select evidence", model=options.model or settings.llm_select_model, prompt=prompt,
        system=prompt_text(__file__, "select"), max_tokens=_MAX_REPLY_TOKENS, timeout_s=settings.llm_timeout_s,
        max_usd=max(0.0, settings.llm_select_max_usd - usd), session=session,
    )  # fmt: skip
    return llm.structured(request, _SCHEMA)


def _latest(connection: sqlite3.Connection, key: int) -> dict[str, list[str]]:
    """Return the latest lines of each stream and of the typed input."""

    def newest(table: str, where: str, column: int, limit: int) -> list[str]:
        rows = store.rows_in(connection, table, *store.id_range(key), where=where, limit=limit, newest=True)
        return [row[column] for row in rows]

    streams = ("stderr", "stdout", "merged")
    latest = {name: newest("pane_output", f"stream = '{name}'", 3, _LATEST_LINES) for name in streams}
    typed = newest("command_inputs", "1", 2, _LATEST_INPUTS)
    latest["stdin"] = typed or newest("events", "kind = 'command.start'", 4, _LATEST_INPUTS)
    return {name: lines for name, lines in latest.items() if lines}
