-- Of the machine's index only: provenance: what is known of nuggets beside their units, of sessions, and of files.
-- Every row is made from the files of the store (files.path, here `file`) and goes with them. Paths are relative to the
-- workspace with `/`, '' for the whole of it; times are ISO 8601 in UTC, so that they compare as texts.

CREATE TABLE nuggets (
    id TEXT PRIMARY KEY,                -- units.id of source provenance
    file TEXT NOT NULL,
    workspace TEXT NOT NULL,
    type TEXT NOT NULL,
    path TEXT NOT NULL,
    folder TEXT NOT NULL,               -- of the path; '' also for the root
    symbol TEXT,
    confidence REAL NOT NULL,
    session TEXT NOT NULL,
    session_started TEXT,
    extracted_at TEXT,
    stale_after TEXT,                   -- ISO date
    line TEXT NOT NULL                  -- the nugget as a line of the store, as in the tables below
) WITHOUT ROWID;
CREATE INDEX nuggets_place ON nuggets (workspace, path, type, session_started);
CREATE INDEX nuggets_folder ON nuggets (workspace, folder);
CREATE INDEX nuggets_file ON nuggets (file);

CREATE TABLE provenance_sessions (
    file TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    session TEXT NOT NULL,
    started TEXT,
    line TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX provenance_sessions_workspace ON provenance_sessions (workspace, started);

CREATE TABLE file_touches (
    file TEXT NOT NULL,
    workspace TEXT NOT NULL,
    path TEXT NOT NULL,
    at TEXT,
    previous_path TEXT,
    line TEXT NOT NULL                  -- without the hashes of lines
);
CREATE INDEX file_touches_path ON file_touches (workspace, path);
CREATE INDEX file_touches_file ON file_touches (file);

CREATE TRIGGER provenance_file_gone AFTER DELETE ON files WHEN old.source = 'provenance' BEGIN
    DELETE FROM nuggets WHERE file = old.path;
    DELETE FROM provenance_sessions WHERE file = old.path;
    DELETE FROM file_touches WHERE file = old.path;
END;
