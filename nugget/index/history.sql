-- Of the machine's index only: transcripts, bridge channels and shell logs as searchable passages. No text stands
-- here: a passage says where its text is, and it is read from there again, and redacted again, when it is shown.

-- What sync has read of each file, and how far: a file that grew is read on from `taken`.
CREATE TABLE history_files (
    key INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    reader TEXT NOT NULL,               -- lines | events | channel | shell: how its places are to be understood
    agent TEXT NOT NULL,                -- which agent wrote it
    session TEXT NOT NULL,              -- session or channel
    subagent TEXT NOT NULL DEFAULT '',
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,   -- bytes read so far
    mark TEXT NOT NULL DEFAULT '',      -- hash of what stands before `taken`: another one means that the file is another
    family TEXT NOT NULL DEFAULT '',    -- the first record's uuid, which forks share
    exchanges INTEGER NOT NULL DEFAULT 0,
    folder TEXT NOT NULL DEFAULT '',    -- that the session worked in
    workspace TEXT,                     -- identity of the repository of `folder`; NULL until it has been looked up
    title TEXT NOT NULL DEFAULT '',
    problem TEXT NOT NULL DEFAULT ''
);
CREATE INDEX history_files_session ON history_files (session);

CREATE TABLE passages (
    key INTEGER PRIMARY KEY,            -- rises with time, roughly: older files are read first
    file INTEGER NOT NULL REFERENCES history_files (key),
    role INTEGER NOT NULL,              -- history.values.ROLES
    number INTEGER NOT NULL,            -- of the exchange in its session, the message in its channel: from 1
    at INTEGER NOT NULL,                -- seconds since the epoch; 0 where it is not known
    place BLOB NOT NULL                 -- where the text stands in the file: history.values.Place
);
CREATE INDEX passages_file ON passages (file, number);

-- Messages are numbered through their channel, and one that sender and receiver both recorded counts once.
CREATE TABLE messages (
    channel TEXT NOT NULL,
    hash TEXT NOT NULL,
    number INTEGER NOT NULL,
    passage INTEGER NOT NULL REFERENCES passages (key),
    PRIMARY KEY (channel, hash)
) WITHOUT ROWID;
CREATE INDEX messages_number ON messages (channel, number);
CREATE INDEX messages_passage ON messages (passage);

-- Contentless: rowid = passages.key. SQLite before 3.43 cannot delete from such a table without the old text, so a
-- row whose passage is gone stays and is passed over; when there are many, all of history is read anew.
-- Where in a passage a word stands, and how often, is not kept, which makes this a third of the size: phrases and
-- nearness are looked at in the texts. `text` holds the words that history/words.py makes of a passage.
CREATE VIRTUAL TABLE passages_fts USING fts5 (
    text,
    content='', columnsize=0, detail=none, tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO passages_fts (passages_fts, rank) VALUES ('hashsize', 16777216);
INSERT INTO meta VALUES ('history_last', '0'), ('history_rules', '');
