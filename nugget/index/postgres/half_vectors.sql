-- Version 5: vectors in half precision, which takes half the reading. Those of whole units and of titles are compared by
-- the client, which reads them as numpy does.
-- A graph that is made with more care finds .97 to .98 of the nearest 50 of 100,000, where it found .94.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('nugget.make_graph(text)'::regprocedure), '(m = 16)',
        '(m = 16, ef_construction = 128)');
END $$;
ALTER TABLE nugget.vectors ALTER embedding TYPE halfvec, ALTER embedding SET STORAGE PLAIN;
ALTER TABLE nugget.unit_vectors ALTER embedding TYPE bytea USING '', ALTER title_embedding TYPE bytea USING '',
    ALTER embedding SET STORAGE MAIN, ALTER title_embedding SET STORAGE MAIN;
ALTER TABLE nugget.postings ALTER places SET STORAGE EXTERNAL;
