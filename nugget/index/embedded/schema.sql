-- The derived index. Everything here can be made again from the sources; nothing lives only here.
-- A change of this file, of the chunking or of the tokens in chunks_fts needs a new SCHEMA_VERSION.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- What sync has seen of each file: one row a file, also for files that could not be taken.
CREATE TABLE files (
    source TEXT NOT NULL,
    path TEXT NOT NULL,                 -- relative to the source's folder, with /
    hash TEXT NOT NULL,                 -- SHA-256 of the bytes
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    unit_id TEXT,                       -- the id that the file claims; NULL when it could not be parsed
    problems TEXT NOT NULL DEFAULT '[]',-- JSON [{line, reason, severity}]
    PRIMARY KEY (source, path)
) WITHOUT ROWID;
CREATE INDEX files_unit ON files (unit_id);

CREATE TABLE units (
    key INTEGER PRIMARY KEY,
    source TEXT NOT NULL,               -- brain | canon | provenance | sessions | shell | memory | bridge
    id TEXT NOT NULL,
    path TEXT,
    title TEXT NOT NULL,
    type TEXT NOT NULL,
    domain TEXT,
    tags TEXT NOT NULL,                 -- JSON array
    confidence REAL NOT NULL,
    origin TEXT,                        -- ai-session | manual | imported
    created TEXT,                       -- ISO date
    last_modified TEXT,
    stale_after TEXT,
    scope_repo TEXT,
    scope_path TEXT,
    scope_symbol TEXT,
    session TEXT,
    details TEXT NOT NULL,              -- JSON {evidence, alternatives}
    content TEXT NOT NULL,              -- the whole body, for display
    UNIQUE (source, id)
);
CREATE INDEX units_id ON units (id);
CREATE INDEX units_path ON units (source, path);
-- Has all columns of most filters, so that these read no texts.
CREATE INDEX units_filtered ON units (source, type, domain, confidence, session, created, last_modified);

CREATE TABLE chunks (
    key INTEGER PRIMARY KEY,
    unit_key INTEGER NOT NULL REFERENCES units (key),
    position INTEGER NOT NULL,          -- from 0, in the order of the unit
    heading_breadcrumb TEXT NOT NULL,
    content TEXT NOT NULL               -- without the breadcrumb
);
CREATE INDEX chunks_unit ON chunks (unit_key, position);

-- float32, little-endian, L2-normalised. Plain blobs: any SQLite can write them, numpy can search them.
CREATE TABLE vectors (chunk_key INTEGER PRIMARY KEY REFERENCES chunks (key), embedding BLOB NOT NULL);
-- One bit for each number of the vector: a search reads all of these, and the vectors of the nearest.
-- The numbers only rise, so that a reader that holds the signs in memory finds what was added since.
CREATE TABLE signs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk_key INTEGER NOT NULL UNIQUE REFERENCES chunks (key),
    bits BLOB NOT NULL
);
CREATE TABLE unit_vectors (
    unit_key INTEGER PRIMARY KEY REFERENCES units (key),
    embedding BLOB NOT NULL,            -- of the title and as much of the body as the model reads
    title_embedding BLOB                -- NULL for a unit without a title of its own
);

CREATE TABLE relationships (
    source_key INTEGER NOT NULL REFERENCES units (key),
    target_id TEXT NOT NULL,
    relation_type TEXT NOT NULL
);
CREATE INDEX relationships_source ON relationships (source_key);
CREATE INDEX relationships_target ON relationships (target_id);

-- Contentless: the texts stand in chunks and units. rowid = chunks.key and units.key. The columns are made by
-- chunk_columns and unit_columns.
CREATE VIRTUAL TABLE chunks_fts USING fts5 (
    title, body, parts,
    content='', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE units_fts USING fts5 (
    title, body, parts,
    content='', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE chunks_vocabulary USING fts5vocab (chunks_fts, 'row');
CREATE VIRTUAL TABLE chunks_places USING fts5vocab (chunks_fts, 'instance');
CREATE VIRTUAL TABLE units_places USING fts5vocab (units_fts, 'instance');

-- Numbers of 500 documents with keys that follow each other: four bytes for each, as the machine has them.
CREATE TABLE documents (
    kind TEXT NOT NULL,                 -- chunks | units
    number INTEGER NOT NULL,            -- from 0, by key
    words BLOB NOT NULL,                -- how many terms a document has, and one; 0 where there is none
    units BLOB NOT NULL,                -- the key of its unit
    PRIMARY KEY (kind, number)
);
