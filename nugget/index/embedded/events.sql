-- Of the machine's index only: what was said and what happened in sessions, shells and channels, with its text, redacted.
-- Ids are unique over all tables of rows: the session's key in the upper bits, then a number that counts within the
-- session, then the table (index/events.py). The rows of a session lie side by side, in the order in which they were
-- read, and the `rowid` of a full-text table names a row anywhere.

CREATE TABLE log_sessions (
    key INTEGER PRIMARY KEY,
    source TEXT NOT NULL,               -- sessions | shell | bridge (a channel)
    id TEXT NOT NULL,
    path TEXT NOT NULL,                 -- the log folder, or the transcript
    agent TEXT,
    folder TEXT,                        -- where it worked; of a shell, where it last worked
    workspace TEXT,                     -- the identity of the code repository of that folder
    title TEXT,
    started_ms INTEGER,
    ended_ms INTEGER,
    last_number INTEGER NOT NULL DEFAULT 0, -- the last number given to a row
    derived INTEGER NOT NULL DEFAULT 0, -- the last number that incidents and notes have been derived from
    generation INTEGER NOT NULL DEFAULT 0,  -- raised by every ingest that found something
    unit_generation INTEGER NOT NULL DEFAULT 0, -- the generation whose incidents and notes stand in units
    gone INTEGER NOT NULL DEFAULT 0,    -- 1 when the files were deleted: asked about by name, no longer searched
    UNIQUE (source, id)
);
CREATE INDEX log_sessions_id ON log_sessions (id);
CREATE INDEX log_sessions_workspace ON log_sessions (workspace, ended_ms);

-- The one registry of what was read. A file that changed is read again, whole.
CREATE TABLE read_files (
    key INTEGER PRIMARY KEY AUTOINCREMENT, -- rows name the file that they were read from, also when it is gone
    path TEXT NOT NULL UNIQUE,          -- a session in a shared database: PATH#ID
    session INTEGER,                    -- key of the session
    part TEXT NOT NULL DEFAULT '',      -- the subagent whose transcript it is
    size INTEGER NOT NULL DEFAULT -1,   -- size and time when it was read; -1 when something was left unread
    mtime_ns INTEGER NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT ''
);
CREATE INDEX read_files_session ON read_files (session);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,                 -- command.start | command.end | tool.start | tool.end | prompt | reply | …
    tool TEXT,
    text TEXT NOT NULL,
    ok INTEGER,                         -- 0 failed, 1 well, NULL unknown
    exit_code INTEGER,
    started INTEGER,                    -- the event that this one ends
    speaker TEXT,                       -- who says it (models.Speaker); of a message the sender
    origin TEXT,                        -- how the words came into the session (models.SpeechOrigin)
    number INTEGER,                     -- of the exchange, command or message; NULL for what search does not find
    file INTEGER,                       -- the row of read_files that it was read from
    record INTEGER                      -- a hash of the record's uuid, which forks share; of a message, of its text
);
CREATE INDEX events_failed ON events (id) WHERE ok = 0;
CREATE INDEX events_commands ON events (id) WHERE kind = 'command.start';
CREATE INDEX events_said ON events (ts_ms) WHERE number IS NOT NULL;
CREATE INDEX events_record ON events (record) WHERE record IS NOT NULL;
CREATE INDEX events_messages ON events (file) WHERE kind = 'message';

CREATE TABLE command_inputs (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    text TEXT NOT NULL,
    number INTEGER
);

CREATE TABLE pane_output (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    stream TEXT NOT NULL,               -- merged | stdout | stderr
    text TEXT NOT NULL,                 -- one line
    is_failure INTEGER NOT NULL,        -- 1 where it looks like one
    command INTEGER,                    -- the command.start event that printed it, where that is known
    number INTEGER                      -- of the passage of lines that it stands in
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
    last_event INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,                 -- title and summary lines, as searched and shown
    command TEXT NOT NULL,              -- empty for the failure of a tool
    failures INTEGER NOT NULL,
    fixed_by TEXT,                      -- the command that later went well
    details TEXT NOT NULL               -- JSON {reasons, words, severity, summary}
);

-- Both are contentless: they forget a row only when told the very texts, which stand in the columns above.
-- What people search (rows with a number): with places, for phrases and NEAR. `parts` are made by fulltext.said_parts.
CREATE VIRTUAL TABLE events_fts USING fts5 (
    text, parts, content='', columnsize=0, tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO events_fts (events_fts, rank) VALUES ('hashsize', 16777216);
-- All other rows, for questions about a session: which of them a word stands in is enough.
CREATE VIRTUAL TABLE evidence_fts USING fts5 (
    text, content='', columnsize=0, detail=none, tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO meta VALUES ('said_rows', '0'), ('events_rules', '');
