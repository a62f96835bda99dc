-- Version 1: a team's index. Every table begins with `space`: a brain, or one identity's memory, by name.
-- Rows are seen only in a transaction that names their space in `nugget.spaces`, and changed only in one that names it
-- in `nugget.writable`; without the settings there are no rows.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA nugget;

CREATE FUNCTION nugget.named(setting text) RETURNS text[] LANGUAGE sql STABLE AS
    $$ SELECT string_to_array(nullif(current_setting(setting, true), ''), ',') $$;

CREATE TABLE nugget.spaces (
    space text COLLATE "C" NOT NULL PRIMARY KEY,
    model text NOT NULL,                -- '' without vectors
    dimensions int NOT NULL,
    origin text NOT NULL,               -- the first commit of the brain's repository, so that no other takes its place
    last_key int NOT NULL,              -- of units and chunks; a key is never given out twice
    written timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE nugget.units (
    space text COLLATE "C" NOT NULL,
    key int NOT NULL,
    hash bytea NOT NULL,                -- of everything that the unit was written from
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    path text COLLATE "C",
    title text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    domain text COLLATE "C",
    tags text COLLATE "C" NOT NULL,     -- JSON array
    confidence float8 NOT NULL,
    origin text COLLATE "C",
    created text COLLATE "C",           -- ISO date
    last_modified text COLLATE "C",
    stale_after text COLLATE "C",
    scope_repo text COLLATE "C",
    scope_path text COLLATE "C",
    scope_symbol text COLLATE "C",
    session text COLLATE "C",
    details text NOT NULL,              -- JSON {evidence, alternatives}
    content text NOT NULL,
    PRIMARY KEY (space, key),
    UNIQUE (space, source, id)
) PARTITION BY HASH (space);

CREATE TABLE nugget.chunks (
    space text COLLATE "C" NOT NULL,
    key int NOT NULL,
    unit_key int NOT NULL,
    position int NOT NULL,
    heading_breadcrumb text NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (space, key) INCLUDE (unit_key)
) PARTITION BY HASH (space);
CREATE INDEX ON nugget.chunks (space, unit_key);

-- `vector` without a number of dimensions: those are the space's. PLAIN: compared where they lie, never fetched apart.
CREATE TABLE nugget.vectors (
    space text COLLATE "C" NOT NULL,
    chunk_key int NOT NULL,
    unit_key int NOT NULL,
    embedding vector STORAGE PLAIN NOT NULL,
    PRIMARY KEY (space, chunk_key)
) PARTITION BY HASH (space);
CREATE INDEX ON nugget.vectors (space, unit_key);

CREATE TABLE nugget.unit_vectors (
    space text COLLATE "C" NOT NULL,
    unit_key int NOT NULL,
    embedding vector NOT NULL,
    title_embedding vector,
    PRIMARY KEY (space, unit_key)
) PARTITION BY HASH (space);

CREATE TABLE nugget.relationships (
    space text COLLATE "C" NOT NULL,
    source_key int NOT NULL,
    target_id text COLLATE "C" NOT NULL,
    relation_type text NOT NULL
) PARTITION BY HASH (space);
CREATE INDEX ON nugget.relationships (space, source_key);
CREATE INDEX ON nugget.relationships (space, target_id);

-- BM25. Each sync adds a segment: the documents (kind 0: chunks, 1: whole units) of each term, with the weighted
-- frequency of the term in half units and the length of the document in terms. What a sync removes stays in its
-- segment and is named in `dead` until the segments are merged; `docs` and `tokens` are net of it at once, so that
-- their sums over all segments are those of the documents that are there.
CREATE TABLE nugget.postings (
    space text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    term text COLLATE "C" NOT NULL,
    segment int NOT NULL,
    docs int NOT NULL,
    keys int[] STORAGE EXTERNAL NOT NULL,   -- not compressed: that costs a search more than it saves
    freqs smallint[] STORAGE EXTERNAL NOT NULL,
    lengths int[] STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (space, kind, term, segment) INCLUDE (docs)
) PARTITION BY HASH (space);

CREATE TABLE nugget.segments (
    space text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    segment int NOT NULL,               -- in the order of time, and so of keys
    docs int NOT NULL,
    tokens bigint NOT NULL,
    size int NOT NULL,                  -- documents that came and went, less those that were merged away
    last_key int NOT NULL,              -- the largest key in the arrays; those of the segments before are all smaller
    PRIMARY KEY (space, kind, segment)
) PARTITION BY HASH (space);

CREATE TABLE nugget.dead (
    space text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    key int NOT NULL,
    PRIMARY KEY (space, kind, key)
) PARTITION BY HASH (space);

DO $$
DECLARE
    name text;
    part text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nugget_service') THEN
        CREATE ROLE nugget_service NOLOGIN;
    END IF;
    FOREACH name IN ARRAY
        '{units,chunks,vectors,unit_vectors,relationships,postings,segments,dead}'::text[] LOOP
        FOR i IN 0..7 LOOP
            EXECUTE format('CREATE TABLE nugget.%I PARTITION OF nugget.%I FOR VALUES WITH (MODULUS 8, REMAINDER %s)',
                name || '_' || i, name, i);
        END LOOP;
    END LOOP;
    FOR part IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'nugget'::regnamespace AND c.relkind IN ('r', 'p')
    LOOP
        EXECUTE format('ALTER TABLE nugget.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', part);
        EXECUTE format('CREATE POLICY readers ON nugget.%I FOR SELECT
            USING (space = ANY ((SELECT nugget.named(''nugget.spaces''))::text[]))', part);
        EXECUTE format('CREATE POLICY writers ON nugget.%I FOR INSERT
            WITH CHECK (space = ANY ((SELECT nugget.named(''nugget.writable''))::text[]))', part);
        EXECUTE format('CREATE POLICY changers ON nugget.%I FOR UPDATE
            USING (space = ANY ((SELECT nugget.named(''nugget.writable''))::text[]))', part);
        EXECUTE format('CREATE POLICY removers ON nugget.%I FOR DELETE
            USING (space = ANY ((SELECT nugget.named(''nugget.writable''))::text[]))', part);
    END LOOP;
END $$;

-- The service owns nothing; the graph of a large space is made for it by the owner.
CREATE FUNCTION nugget.make_graph(wanted text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT AS $$
DECLARE
    part regclass;
    graph text := 'vectors_hnsw_' || md5(wanted);
    size int;
BEGIN
    IF NOT wanted = ANY (coalesce(nugget.named('nugget.writable'), '{}')) THEN
        RAISE insufficient_privilege USING MESSAGE = 'no right to write this space';
    END IF;
    SELECT tableoid::regclass, vector_dims(embedding) INTO part, size FROM nugget.vectors WHERE space = wanted LIMIT 1;
    IF part IS NOT NULL AND to_regclass('nugget.' || graph) IS NULL THEN
        EXECUTE format('CREATE INDEX %I ON %s USING hnsw ((embedding::halfvec(%s)) halfvec_ip_ops)
            WITH (m = 16) WHERE space = %L', graph, part, size, wanted);
    END IF;
END $$;
REVOKE ALL ON FUNCTION nugget.make_graph(text) FROM PUBLIC;

GRANT USAGE ON SCHEMA nugget TO nugget_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON nugget.spaces, nugget.units, nugget.chunks, nugget.vectors,
    nugget.unit_vectors, nugget.relationships, nugget.postings, nugget.segments, nugget.dead TO nugget_service;
GRANT EXECUTE ON FUNCTION nugget.make_graph(text) TO nugget_service;
