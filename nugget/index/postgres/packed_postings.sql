-- Version 4: postings are packed as numpy reads them, with the places of each term. Only the client counts with them.
ALTER TABLE nugget.postings DROP keys, DROP freqs, DROP lengths,
    ADD entries bytea STORAGE EXTERNAL NOT NULL,   -- bm25.ENTRY, not compressed: that costs a search more than it saves
    ADD places bytea NOT NULL;                     -- int4: a column (2 bits) and an offset, inverted where an entry begins
ALTER TABLE nugget.segments DROP last_key;
