-- What happened in sessions and shells, read from their logs. Ids are unique over all these tables: the session's key
-- in the upper bits, then a number that counts within the session, then the table (index/evidence.py). So the rows of
-- a session lie side by side, in the order in which they happened, and `rowid` of evidence_fts names a row anywhere.

CREATE TABLE log_sessions (
    key INTEGER PRIMARY KEY,
    source TEXT NOT NULL,               -- shell | sessions
    id TEXT NOT NULL,
    path TEXT NOT NULL,                 -- the log folder, or the transcript
    agent TEXT,
    folder TEXT,                        -- where it last worked
    workspace TEXT,                     -- the identity of the code repository of that folder
    title TEXT,
    started_ms INTEGER,
    ended_ms INTEGER,
    last_number INTEGER NOT NULL DEFAULT 0, -- the last number given to a row
    derived INTEGER NOT NULL DEFAULT 0, -- the last number that incidents and notes have been derived from
    generation INTEGER NOT NULL DEFAULT 0,  -- raised by every ingest that found something
    unit_generation INTEGER NOT NULL DEFAULT 0, -- the generation whose incidents and notes stand in units
    malformed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, id)
);
CREATE INDEX log_sessions_id ON log_sessions (id);
CREATE INDEX log_sessions_workspace ON log_sessions (workspace, ended_ms);

-- How far each file has been read (sources/shell.py), or what a transcript was when it was read whole.
CREATE TABLE log_files (
    session_key INTEGER NOT NULL,
    name TEXT NOT NULL,
    offset INTEGER NOT NULL,
    head TEXT NOT NULL,
    before TEXT NOT NULL,
    PRIMARY KEY (session_key, name)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,                 -- command.start | command.end | tool.start | tool.end | prompt | reply | …
    tool TEXT,
    text TEXT NOT NULL,                 -- the command, the error, what was said
    ok INTEGER,                         -- 0 for a failure; NULL where the outcome is unknown
    exit_code INTEGER,
    started INTEGER,                    -- the event that this one ends
    offset INTEGER                      -- in events.jsonl; NULL for a transcript
);
CREATE INDEX events_failed ON events (id) WHERE ok = 0;
CREATE INDEX events_commands ON events (id) WHERE kind = 'command.start';

CREATE TABLE command_inputs (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    text TEXT NOT NULL,
    offset INTEGER
);

CREATE TABLE pane_output (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    stream TEXT NOT NULL,               -- merged | stdout | stderr
    text TEXT NOT NULL,                 -- one line
    is_failure INTEGER NOT NULL,        -- 1 where it looks like one
    command INTEGER,                    -- the command.start event that printed it, where that is known
    offset INTEGER
);
CREATE INDEX pane_output_failed ON pane_output (id) WHERE is_failure = 1;
CREATE INDEX pane_output_command ON pane_output (command) WHERE command IS NOT NULL;

CREATE TABLE file_edits (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    path TEXT NOT NULL,
    action TEXT NOT NULL,               -- overwrite | append | edit
    ok INTEGER
);

CREATE TABLE working_notes (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    type TEXT NOT NULL,                 -- blocker | edit | todo | decision
    text TEXT NOT NULL,
    is_open INTEGER NOT NULL,           -- 0 for a todo that was done, a blocker that was overcome
    about INTEGER                       -- the row that it was derived from
);
CREATE INDEX working_notes_open ON working_notes (type, id) WHERE is_open = 1;

CREATE TABLE incidents (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,             -- of the last failure
    first_ms INTEGER NOT NULL,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,                 -- title and summary lines, as searched and shown
    command TEXT NOT NULL,              -- empty for the failure of a tool
    failures INTEGER NOT NULL,
    fixed_by TEXT,                      -- the command that later went well
    fixed_ms INTEGER,
    details TEXT NOT NULL               -- JSON {lines, edits, reasons, events, severity, exit_code, tool}
);

-- Contentless: it forgets a row only when told the very text, which is why that text stands in a column of each table.
CREATE VIRTUAL TABLE evidence_fts USING fts5 (
    text, content='', detail=none, tokenize='porter unicode61 remove_diacritics 2'
);
