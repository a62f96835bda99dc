-- Version 4: postings are packed as numpy reads them, with the places of each term. Only the client counts with them.
-- The next publication fills each space again, and makes its graph.
DO $$
DECLARE
    graph regclass;
BEGIN
    FOR graph IN SELECT oid FROM pg_class WHERE relnamespace = 'nugget'::regnamespace AND relname ^@ 'vectors_hnsw_' LOOP
        EXECUTE format('DROP INDEX %s', graph);
    END LOOP;
END $$;
TRUNCATE nugget.spaces, nugget.units, nugget.chunks, nugget.vectors, nugget.unit_vectors, nugget.relationships,
    nugget.postings, nugget.segments, nugget.dead;
ALTER TABLE nugget.postings DROP keys, DROP freqs, DROP lengths,
    ADD entries bytea STORAGE EXTERNAL NOT NULL,   -- bm25.ENTRY, not compressed: that costs a search more than it saves
    ADD places bytea NOT NULL;                     -- int4: a column (2 bits) and an offset, inverted where an entry begins
ALTER TABLE nugget.segments DROP last_key;
