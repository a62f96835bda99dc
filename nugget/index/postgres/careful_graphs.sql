-- Version 6: graphs are made with more care, which takes twice the time. With ef_construction 128 some searches ended
-- far from the question and found none of the nearest 50.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('nugget.make_graph(text)'::regprocedure), 'ef_construction = 128',
        'ef_construction = 256');
END $$;
