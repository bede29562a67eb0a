-- A graph of vectors with more edges. Only the vectors of users with very many are in it, so that its making costs no turn of anybody
-- else; with the 16 and 64 of before, the nearest 50 of a user were found in .975 of all cases among 1,000,000 memories, whatever
-- number of rows was asked of it, and .98 is promised.

-- As 016 has it, but for the graph.
CREATE OR REPLACE FUNCTION agent_data.ensure_embedding_space(space_name text, dims integer) RETURNS smallint
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    number smallint;
    known  integer;
BEGIN
    SELECT space, dimensions INTO number, known FROM agent_data.embedding_spaces WHERE name = space_name;
    IF number IS NULL THEN
        INSERT INTO agent_data.embedding_spaces (name, dimensions) VALUES (space_name, dims)
        ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name RETURNING space, dimensions INTO number, known;
    END IF;
    IF known <> dims THEN
        RAISE EXCEPTION 'the embedding space % has % dimensions, not %', space_name, known, dims;
    END IF;
    IF to_regclass(format('agent_data.embeddings_hnsw_%s', number)) IS NULL THEN
        EXECUTE format('CREATE INDEX embeddings_hnsw_%s ON agent_data.embeddings USING hnsw '
                       '((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 24, ef_construction = 128) '
                       'WHERE space = %s AND in_hnsw', number, dims, number);
        -- For the search for near duplicates, which asks among the memories alone.
        EXECUTE format('CREATE INDEX embeddings_memories_%s ON agent_data.embeddings (user_id) %s '
                       'WHERE space = %s AND item_kind = 1', number,
                       CASE WHEN dims <= 1200 THEN 'INCLUDE (item_id, vector)' ELSE '' END, number);
    END IF;
    RETURN number;
END $$;

-- The same: as 016 has it, but for the graph. The statements that make the indexes of a space while turns are being written: as 012 has them, without the scan's.
CREATE OR REPLACE FUNCTION agent_data.space_index_statements(p_space smallint, p_dimensions integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    part   record;
    index  record;
    name   text;
BEGIN
    FOR part IN
        SELECT c.oid, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'agent_data.embeddings'::regclass ORDER BY c.relname
    LOOP
        FOR index IN
            -- As `ensure_embedding_space` has them.
            SELECT * FROM (VALUES
                ('hnsw', format('USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 24, ef_construction = 128) '
                                'WHERE space = %s AND in_hnsw', p_dimensions, p_space), true),
                ('memories', format('(user_id) %s WHERE space = %s AND item_kind = 1',
                                    CASE WHEN p_dimensions <= 1200 THEN 'INCLUDE (item_id, vector)' ELSE '' END, p_space), true)
            ) AS v (kind, definition, wanted) WHERE v.wanted
        LOOP
            name := format('%s_%s_%s', part.relname, index.kind, p_space);
            IF EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                       WHERE x.indrelid = part.oid AND c.relname = name AND NOT x.indisvalid) THEN
                RETURN NEXT format('DROP INDEX CONCURRENTLY agent_data.%I', name);
            END IF;
            IF NOT EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                           WHERE x.indrelid = part.oid AND c.relname = name AND x.indisvalid)
               AND to_regclass(format('agent_data.embeddings_%s_%s', index.kind, p_space)) IS NULL THEN
                RETURN NEXT format('CREATE INDEX CONCURRENTLY %I ON agent_data.%I %s', name, part.relname, index.definition);
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- Where nobody has so many vectors yet, the graph is made anew at once; elsewhere by `REINDEX` after its storage parameters were
-- set, when it suits (docs/recall.md).
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT s.space, s.dimensions FROM agent_data.embedding_spaces s LOOP
        CONTINUE WHEN EXISTS (SELECT FROM agent_data.embeddings e WHERE e.in_hnsw AND e.space = found.space);
        CONTINUE WHEN to_regclass(format('agent_data.embeddings_hnsw_%s', found.space)) IS NULL;
        EXECUTE format('DROP INDEX agent_data.embeddings_hnsw_%s', found.space);
        EXECUTE format('CREATE INDEX embeddings_hnsw_%s ON agent_data.embeddings USING hnsw '
                       '((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 24, ef_construction = 128) '
                       'WHERE space = %s AND in_hnsw', found.space, found.dimensions, found.space);
    END LOOP;
END $$;
