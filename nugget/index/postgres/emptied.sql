-- Before a step that changes what is published. The next publication fills each space again, and makes its graph.
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
