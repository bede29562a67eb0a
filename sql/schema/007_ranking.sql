-- How often a word stands in a document. `ts_rank` with all weights 1 of a word that stands n times is H2(n) = Σ 1/i² for
-- i ≤ n, over π²/6; as π²/6 − H2(n) ≈ 1/(n + ½) to within rounding, the count comes back exactly, without unpacking the
-- document. (This and the next are single expressions without SET, so that they are inlined: a loop over the words takes three
-- times as long.)
CREATE FUNCTION agent_data.times_said(document tsvector, word tsquery)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT round(1 / (1.64493406685 * (1 - ts_rank('{1,1,1,1}', document, word)::double precision)) - 0.5)
$$;

-- How often each of up to eight words stands in a document, a byte each, at most 127: the n-th word's is the n-th lowest byte.
CREATE FUNCTION agent_data.times_each(
    document tsvector, a tsquery, b tsquery, c tsquery, d tsquery, e tsquery, f tsquery, g tsquery, h tsquery
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(COALESCE(agent_data.times_said(document, a), 0), 127)::bigint
        | (least(COALESCE(agent_data.times_said(document, b), 0), 127)::bigint << 8)
        | (least(COALESCE(agent_data.times_said(document, c), 0), 127)::bigint << 16)
        | (least(COALESCE(agent_data.times_said(document, d), 0), 127)::bigint << 24)
        | (least(COALESCE(agent_data.times_said(document, e), 0), 127)::bigint << 32)
        | (least(COALESCE(agent_data.times_said(document, f), 0), 127)::bigint << 40)
        | (least(COALESCE(agent_data.times_said(document, g), 0), 127)::bigint << 48)
        | (least(COALESCE(agent_data.times_said(document, h), 0), 127)::bigint << 56)
$$;

-- Whether a memory (its first five arguments) may come up in a request: see `retrieve`. (Without SET, so that it is inlined.)
CREATE FUNCTION agent_data.may_surface(
    p_status text, p_expires timestamptz, p_of uuid, p_scope smallint, p_turn integer,
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (p_status IN ('active', 'aging') AND (p_expires IS NULL OR p_expires > now())
            OR p_history AND p_status <> 'forgotten')
       AND (p_confine IS NULL OR p_of = p_confine)
       AND (p_session IS NULL OR p_scope = 1 OR p_of = p_session)
       AND (p_session IS NULL OR p_of IS DISTINCT FROM p_session OR p_turn IS NULL OR p_turn < p_visible)
       AND (p_of IS NULL OR p_of <> ALL (p_ancestors))
$$;

-- What is suppressed is looked up in a hash table (`NOT IN` a subquery);
-- `<> ALL` an array compares every item with every one of it, eleven thousand with a thousand for 30 ms.
CREATE FUNCTION agent_data.retrieve(
    p_tenant uuid, p_user uuid, p_query text, p_vector halfvec, p_space smallint,
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean,
    p_vectors integer, p_texts integer, p_frequent integer, p_only smallint,
    OUT scanned bytea, OUT sims bytea, OUT said bytea, OUT counts bytea, OUT used bytea,
    OUT words text[], OUT holding integer[], OUT counted bigint, OUT mean double precision,
    OUT k1 double precision, OUT b double precision
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
-- Planning for each question would take three times as long as answering it.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    w          tsquery[];
    any_of     tsquery;
    of_said    tsquery;
    of_learned tsquery;
    crowded    boolean;
    many       boolean;
    stored     bigint;
    terms      integer;
    hidden     uuid[] := '{}';
    own        uuid[];
    suppressed uuid[];
    began      timestamptz;
    ended      timestamptz;
    dims       integer := vector_dims(p_vector);
BEGIN
    SELECT COALESCE(u.documents, 0), COALESCE(u.vectors, 0), COALESCE(u.use_hnsw, false), c.k1, c.b,
           greatest(1, COALESCE(u.total_terms, 0)::double precision / greatest(1, COALESCE(u.documents, 0))), c.terms, x.hidden
    INTO counted, stored, many, k1, b, mean, terms, suppressed
    FROM (
        SELECT (max(f.value::text) FILTER (WHERE f.key = 'bm25_k1'))::double precision AS k1,
               (max(f.value::text) FILTER (WHERE f.key = 'bm25_b'))::double precision AS b,
               (max(f.value::text) FILTER (WHERE f.key = 'query_terms'))::integer AS terms
        FROM agent_data.system_config f WHERE f.key IN ('bm25_k1', 'bm25_b', 'query_terms')
    ) c
    CROSS JOIN (
        SELECT COALESCE(array_agg(x.item_id), '{}') AS hidden
        FROM agent_data.suppressions x WHERE x.user_id = p_user AND NOT (p_history AND x.reason = 'superseded')
    ) x
    LEFT JOIN agent_data.user_stats u ON u.user_id = p_user;

    IF p_confine IS NOT NULL THEN
        SELECT s.first_message_at, s.last_message_at INTO began, ended
        FROM agent_data.sessions s WHERE s.user_id = p_user AND s.session_id = p_confine;
    END IF;

    -- Vectors: of one session, its own items; else an index-only scan of all the user's, or the graph for those with very many.
    IF p_vector IS NOT NULL AND p_vectors > 0 THEN
        many := many AND p_confine IS NULL;
        IF (many OR stored > p_vectors) AND (p_session IS NOT NULL OR p_ancestors <> '{}') THEN
            -- A long session's own words would otherwise take all the places.
            SELECT COALESCE(array_agg(h.message_id), '{}') INTO hidden
            FROM unnest(p_session || p_ancestors) AS l (session_id)
            JOIN agent_data.sessions s ON s.user_id = p_user AND s.session_id = l.session_id
            CROSS JOIN LATERAL (
                SELECT c.message_id FROM agent_data.conversation_history c
                WHERE c.user_id = p_user AND c.session_id = s.session_id
                  AND c.turn_index >= CASE l.session_id WHEN p_session THEN p_visible ELSE 0 END
                  AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
                OFFSET 0  -- session by session, so that only its months are opened
            ) h;
        END IF;
        hidden := hidden || suppressed;
        IF p_confine IS NOT NULL THEN
            SELECT array_agg(o.id) INTO own FROM (
                SELECT h.message_id AS id FROM agent_data.conversation_history h
                WHERE h.user_id = p_user AND h.session_id = p_confine
                  AND h.created_at >= began AND h.created_at <= ended
                UNION ALL
                SELECT m.memory_id FROM agent_data.memory_store m WHERE m.user_id = p_user AND m.session_id = p_confine
            ) o;
        ELSIF many THEN
            PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                    set_config('hnsw.ef_search', least(1000, greatest(400, 4 * p_vectors))::text, true);
        END IF;
        IF p_confine IS NULL AND NOT many AND dims <= 1200 AND stored <= p_vectors THEN
            -- What `embeddings_scan` covers. Planned once: planning takes as long as going through a thousand vectors.
            SELECT string_agg(x.place, ''), string_agg(float4send((1 - x.distance)::real), '') INTO scanned, sims FROM (
                SELECT COALESCE(e.place, agent_data.item_place(e.item_id, e.item_kind, e.item_at, NULL, NULL, NULL, NULL, NULL))
                           AS place, e.vector <=> p_vector AS distance
                FROM agent_data.embeddings e
                WHERE e.user_id = p_user AND e.space = p_space AND vector_dims(e.vector) <= 1200
                  AND e.item_id NOT IN (SELECT unnest(hidden)) AND (p_only IS NULL OR e.item_kind = p_only)
                LIMIT 5 * p_vectors  -- not all counted yet
            ) x;
        ELSE
            EXECUTE format(
                'SELECT string_agg(place, ''''), string_agg(float4send((1 - distance)::real), '''') FROM ('
                '  SELECT COALESCE(place, agent_data.item_place(item_id, item_kind, item_at, NULL, NULL, NULL, NULL, NULL)) AS place,'
                '         %1$s AS distance FROM agent_data.embeddings'
                '  WHERE user_id = $2 AND space = %2$s %3$s %4$s %5$s %6$s) x',
                CASE WHEN many THEN format('vector::halfvec(%1$s) <=> $1::halfvec(%1$s)', dims) ELSE 'vector <=> $1' END,
                p_space,
                CASE WHEN p_confine IS NOT NULL THEN 'AND item_id = ANY ($5)' WHEN many THEN 'AND in_hnsw'
                     WHEN dims <= 1200 THEN 'AND vector_dims(vector) <= 1200' END,
                CASE WHEN hidden <> '{}' THEN 'AND item_id NOT IN (SELECT unnest($3))' END,
                CASE WHEN p_only IS NOT NULL THEN 'AND item_kind = $6' END,
                CASE WHEN many OR stored > p_vectors THEN 'ORDER BY distance LIMIT $4' ELSE 'LIMIT 5 * $4' END)  -- not all counted yet
            INTO scanned, sims USING p_vector, p_user, hidden, CASE WHEN many THEN least(p_vectors, 500) ELSE p_vectors END, own,
                                    p_only;
        END IF;
    END IF;

    -- Words: the rarest of the question, by the user's own counts. All of them count, but documents are looked for by the rarest:
    -- once those bring four times as many as are asked for, one that has only commoner words would not be among the best.
    IF p_query <> '' AND p_texts > 0 THEN
        SELECT array_agg(t.lexeme), array_agg(t.documents), array_agg(t.word),
               (string_agg(t.word::text, ' | ') FILTER (WHERE t.before < 4 * p_texts))::tsquery,
               sum(t.documents) FILTER (WHERE t.before < 4 * p_texts) > 16 * p_texts
        INTO words, holding, w, any_of, crowded
        FROM (
            SELECT q.lexeme, ('''' || replace(replace(q.lexeme, '\', '\\'), '''', '''''') || '''')::tsquery AS word,
                   COALESCE(l.documents, 0) AS documents,
                   COALESCE(sum(l.documents) OVER (ORDER BY COALESCE(l.documents, 0), q.lexeme
                                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM unnest(to_tsvector('english', p_query)) AS q
            LEFT JOIN agent_data.lexemes l ON l.user_id = p_user AND l.lexeme = q.lexeme
            ORDER BY COALESCE(l.documents, 0), q.lexeme
            LIMIT least(16, terms)
        ) t;
        of_said := CASE WHEN p_only IS DISTINCT FROM 1 THEN any_of END;
        of_learned := CASE WHEN p_only IS DISTINCT FROM 0 THEN any_of END;
        SELECT string_agg(agent_data.item_place(d.id, d.kind, d.at, d.session_id, d.turn_index, d.role, d.token_count, d.name), ''),
               string_agg(int8send(d.first) || int8send(
                   CASE WHEN w[9] IS NULL THEN 0 ELSE
                       agent_data.times_each(d.document, w[9], w[10], w[11], w[12], w[13], w[14], w[15], w[16]) END), '')
        INTO said, counts FROM (
            SELECT y.* FROM (
                SELECT x.*, agent_data.times_each(x.document, w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]) AS first
                FROM (
                    SELECT h.message_id AS id, 0::smallint AS kind, h.created_at AS at, h.session_id, h.turn_index, h.role,
                           h.token_count, h.name, h.content_tsv AS document
                    FROM agent_data.conversation_history h
                    WHERE of_said IS NOT NULL AND p_confine IS NULL AND h.user_id = p_user AND h.content_tsv @@ of_said
                      AND h.tenant_id = p_tenant AND NOT h.is_pruned
                      -- What stands in the prompt is context for the rest, while it takes no places from it.
                      AND (NOT crowded OR (p_session IS NULL OR h.session_id <> p_session OR h.turn_index < p_visible)
                                          AND h.session_id <> ALL (p_ancestors))
                    UNION ALL
                    SELECT h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role, h.token_count, h.name,
                           h.content_tsv
                    FROM agent_data.conversation_history h
                    WHERE of_said IS NOT NULL AND p_confine IS NOT NULL AND h.user_id = p_user AND h.session_id = p_confine
                      AND h.created_at >= began AND h.created_at <= ended AND h.content_tsv @@ of_said
                      AND h.tenant_id = p_tenant AND NOT h.is_pruned
                    UNION ALL
                    SELECT m.memory_id, 1::smallint, m.created_at, NULL, NULL, NULL, m.token_count, NULL, m.content_tsv
                    FROM agent_data.memory_store m
                    WHERE of_learned IS NOT NULL AND m.user_id = p_user AND m.content_tsv @@ of_learned AND m.is_active
                      AND m.tenant_id = p_tenant
                      AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                                 p_confine, p_session, p_visible, p_ancestors, p_history)
                    UNION ALL
                    SELECT m.memory_id, 1::smallint, m.created_at, NULL, NULL, NULL, m.token_count, NULL, m.content_tsv
                    FROM agent_data.memory_store m
                    WHERE of_learned IS NOT NULL AND p_history AND m.user_id = p_user AND m.content_tsv @@ of_learned
                      AND NOT m.is_active AND m.tenant_id = p_tenant
                      AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                                 p_confine, p_session, p_visible, p_ancestors, p_history)
                ) x
                WHERE x.id NOT IN (SELECT unnest(suppressed))
                OFFSET 0  -- each is counted once, though the order asks for it several times
            ) y
            -- Where the rarest word is common: those that have the most different words, the rarest of them weighing most.
            ORDER BY CASE WHEN crowded THEN
                - (sign(y.first & 127) * 1.5 + sign((y.first >> 8) & 127) + sign((y.first >> 16) & 127) + sign((y.first >> 24) & 127)
                   + sign((y.first >> 32) & 127) + sign((y.first >> 40) & 127)) END
            LIMIT 16 * p_texts
        ) d;
    END IF;

    IF p_frequent > 0 AND p_only IS DISTINCT FROM 0 AND p_confine IS NULL THEN
        SELECT string_agg(agent_data.item_place(f.memory_id, 1::smallint, f.created_at, NULL, NULL, NULL, f.token_count, NULL), '')
        INTO used FROM (
            SELECT m.memory_id, m.created_at, m.token_count FROM agent_data.memory_store m
            WHERE m.user_id = p_user AND m.is_active AND m.memory_scope = 1 AND m.tenant_id = p_tenant
              AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                         p_confine, p_session, p_visible, p_ancestors, p_history)
              AND m.memory_id NOT IN (SELECT unnest(suppressed))
            ORDER BY m.use_level DESC LIMIT p_frequent
        ) f;
    END IF;
END $$;

-- --- counts of words -----------------------------------------------------------------------------------------------------
--
-- What a session's summary says, its turns have said: counted once more, the rarest words of a conversation, which are the ones that
-- find its turns, would be half as rare.

-- The words of items, counted.
CREATE FUNCTION agent_data.count_words(
    p_tenant uuid, p_user uuid, p_messages uuid[], p_memories uuid[],
    p_from timestamptz DEFAULT '-infinity', p_to timestamptz DEFAULT 'infinity'
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    seen   integer;
    tokens bigint;
    found  bigint;
BEGIN
    INSERT INTO agent_data.user_stats (user_id, tenant_id) VALUES (p_user, p_tenant) ON CONFLICT (user_id) DO NOTHING;
    PERFORM FROM agent_data.user_stats u WHERE u.user_id = p_user FOR UPDATE;
    WITH documents AS MATERIALIZED (
        SELECT h.content_tsv AS words, h.token_count FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.message_id = ANY (p_messages) AND h.created_at BETWEEN p_from AND p_to
          AND length(h.content_tsv) > 0
        UNION ALL
        SELECT m.content_tsv, m.token_count FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.content_text <> ''
          AND NOT agent_data.of_session(m.kind, m.session_id)
    ), counted AS (
        INSERT INTO agent_data.lexemes AS l (user_id, tenant_id, lexeme, documents)
        SELECT p_user, p_tenant, w.lexeme, count(*) FROM documents d, unnest(d.words) AS w
        GROUP BY w.lexeme ORDER BY w.lexeme
        ON CONFLICT (user_id, lexeme) DO UPDATE SET documents = l.documents + EXCLUDED.documents
    )
    SELECT count(*), COALESCE(sum(d.token_count), 0) INTO seen, tokens FROM documents d;
    SELECT COALESCE(max(s.n), 0) INTO found FROM (
        SELECT count(*) AS n FROM agent_data.embeddings e
        WHERE e.user_id = p_user AND e.item_id = ANY (p_messages || p_memories) GROUP BY e.space
    ) s;
    UPDATE agent_data.user_stats u SET
        documents = u.documents + seen, total_terms = u.total_terms + tokens, vectors = u.vectors + found
    WHERE u.user_id = p_user;
    RETURN seen;
END $$;

-- The memories of a scope (`dedup_scope`) in force, and their other wordings, whose cosine with a new memory is above a threshold,
-- nearest first, for many new ones at once: (which of `p_vectors`, from 1; the memory; the cosine). Always the exact scan: a user's memories are a small
-- part of the user's vectors, and have an index of their own.
CREATE FUNCTION agent_data.near_memories(
    p_tenant uuid, p_user uuid, p_scope uuid, p_space smallint, p_vectors halfvec[], p_threshold real, p_limit integer
) RETURNS TABLE (n integer, memory_id uuid, similarity real)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        -- OFFSET 0: first the few that are near, by the memories' own index, and only then what they are.
        'SELECT v.n::integer, x.item_id, x.similarity FROM unnest($1) WITH ORDINALITY AS v (vector, n), LATERAL ('
        '  SELECT e.item_id, e.similarity FROM ('
        '    SELECT c.item_id, (1 - (c.vector <=> v.vector))::real AS similarity FROM agent_data.embeddings c'
        '    WHERE c.user_id = $2 AND c.space = %s AND c.item_kind = 1 AND c.vector <=> v.vector < 1 - $3 OFFSET 0) e'
        '  JOIN agent_data.memory_store m ON m.user_id = $2 AND m.memory_id = e.item_id'
        '  WHERE m.tenant_id = $4 AND m.dedup_scope = $5 AND (m.is_active OR m.superseded_how = ''merged'')'
        '  ORDER BY 2 DESC LIMIT $6) x ORDER BY 1, 3 DESC', p_space)
    USING p_vectors, p_user, p_threshold, p_tenant, p_scope, p_limit;
END $$;

-- What makes the indexes of a space while turns are being written: statements to be run one by one, outside of a transaction. They
-- build each partition's indexes without a lock; `ensure_embedding_space` then finds them, and only joins them together. What an
-- interrupted run left half built goes first.
CREATE FUNCTION agent_data.space_index_statements(p_space smallint, p_dimensions integer) RETURNS SETOF text
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

-- More ways to find: by entities, by time, by what is latest, by what sums much up; and counts of words that stay true.

-- --- strategies ----------------------------------------------------------------------------------------------------------
INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('retrieval_strategy_weights', '{
        "factual_entity_focused": {"semantic_similarity": 0.25, "entity_overlap": 0.40, "temporal_relevance": 0.20,
                                   "importance": 0.10, "reinforcement": 0.05},
        "procedural":             {"semantic_similarity": 0.45, "entity_overlap": 0.05, "temporal_relevance": 0.05,
                                   "importance": 0.15, "reinforcement": 0.30},
        "exploratory":            {"semantic_similarity": 0.35, "entity_overlap": 0.25, "temporal_relevance": 0.15,
                                   "importance": 0.20, "reinforcement": 0.05},
        "temporal_focused":       {"semantic_similarity": 0.30, "entity_overlap": 0.15, "temporal_relevance": 0.40,
                                   "importance": 0.10, "reinforcement": 0.05}}',
     'Weights of the four strategies (seed 004, table 10), read when a server starts. What the seed leaves open of the last three is shared out to a sum of 1, importance to reinforcement as 2 to 1 where both are open.');

-- --- further legs --------------------------------------------------------------------------------------------------------
CREATE INDEX memory_entities ON agent_data.memory_store USING gin (user_id, entity_ids) WHERE is_active AND entity_ids <> '{}';

-- What else could answer a question (seed 004, sources 2 to 4): beside `retrieve`, for a strategy, or for a user who has more
-- than the nearest vectors can stand for. Of each leg the nearest to `p_vector`, where there is one, else the latest.
--
--   p_entities   what the question names: memories that are about one of these
--   p_from, p_to the time that it speaks of: messages said then, and memories that began to hold then (NULL: open, or none)
--   p_entity, p_time, p_recent, p_summary   how many at most of each leg; 0: not asked for
--   the others   as of `retrieve`
--
-- `places` of the items (see `item_place`), `sims` their cosines (float4, NaN: there is no vector), and of each a byte `legs`: 1
-- entity, 2 time, 4 recent, 8 summary. As there, what may not surface is left out when it is fetched.
CREATE FUNCTION agent_data.retrieve_more(
    p_tenant uuid, p_user uuid, p_vector halfvec, p_space smallint, p_confine uuid, p_session uuid, p_visible integer,
    p_ancestors uuid[], p_history boolean, p_only smallint, p_entities text[], p_from timestamptz, p_to timestamptz,
    p_entity integer, p_time integer, p_recent integer, p_summary integer,
    OUT places bytea, OUT sims bytea, OUT legs bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- Items looked at for each that is wanted, where a vector chooses among them.
    ahead constant integer := 20;
    said    boolean := p_only IS DISTINCT FROM 1;
    learned boolean := p_only IS DISTINCT FROM 0;
    timed   boolean := p_time > 0 AND (p_from IS NOT NULL OR p_to IS NOT NULL);
BEGIN
    SELECT string_agg(l.place, '' ORDER BY l.id), string_agg(float4send(l.similarity), '' ORDER BY l.id),
           string_agg(substring(int4send(l.leg) FROM 4), '' ORDER BY l.id)
    INTO places, sims, legs FROM (
        SELECT x.id, (array_agg(x.place))[1] AS place, min(x.similarity) AS similarity, bit_or(x.leg) AS leg FROM (
            SELECT y.*, row_number() OVER (PARTITION BY y.leg ORDER BY
                       CASE WHEN y.leg <> 4 AND p_vector IS NOT NULL THEN - COALESCE(NULLIF(y.similarity, 'NaN'), -1) END,
                       y.at DESC, y.id) AS n
            FROM (
                SELECT f.leg, f.id, f.at, f.place,
                       CASE WHEN p_vector IS NULL OR e.vector IS NULL THEN 'NaN'::real
                            ELSE (1 - (e.vector <=> p_vector))::real END AS similarity
                FROM (
                    (SELECT 1 AS leg, m.memory_id AS id, m.created_at AS at,
                            agent_data.item_place(m.memory_id, 1::smallint, COALESCE(m.valid_from, m.created_at), NULL, NULL,
                                                  NULL, m.token_count, NULL) AS place
                     FROM agent_data.memory_store m
                     WHERE learned AND p_entity > 0 AND m.user_id = p_user AND m.tenant_id = p_tenant
                       AND m.entity_ids && p_entities AND m.entity_ids <> '{}' AND m.is_active
                       AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                                  p_confine, p_session, p_visible, p_ancestors, p_history)
                     ORDER BY m.created_at DESC LIMIT ahead * p_entity)
                    UNION ALL
                    (SELECT 2, m.memory_id, COALESCE(m.valid_from, m.created_at),
                            agent_data.item_place(m.memory_id, 1::smallint, COALESCE(m.valid_from, m.created_at), NULL, NULL,
                                                  NULL, m.token_count, NULL)
                     FROM agent_data.memory_store m
                     WHERE learned AND timed AND m.user_id = p_user AND m.tenant_id = p_tenant AND m.is_active
                       AND COALESCE(m.valid_from, m.created_at) >= COALESCE(p_from, '-infinity')
                       AND COALESCE(m.valid_from, m.created_at) < COALESCE(p_to, 'infinity')
                       AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                                  p_confine, p_session, p_visible, p_ancestors, p_history)
                     ORDER BY 3 DESC LIMIT ahead * p_time)
                    UNION ALL
                    (SELECT 2, h.message_id, h.created_at, h.place
                     FROM agent_data.sessions s CROSS JOIN LATERAL (
                         SELECT c.message_id, c.created_at,
                                agent_data.item_place(c.message_id, 0::smallint, c.created_at, c.session_id, c.turn_index, c.role,
                                                      c.token_count, c.name) AS place
                         FROM agent_data.conversation_history c
                         WHERE c.user_id = p_user AND c.session_id = s.session_id AND c.turn_index > 0 AND NOT c.is_pruned
                           AND c.created_at >= GREATEST(p_from, s.first_message_at)
                           AND c.created_at <= s.last_message_at AND (p_to IS NULL OR c.created_at < p_to)
                           AND (p_session IS NULL OR c.session_id <> p_session OR c.turn_index < p_visible)
                         OFFSET 0  -- session by session, so that only its months are opened
                     ) h
                     WHERE said AND timed AND s.user_id = p_user AND s.tenant_id = p_tenant
                       AND (p_confine IS NULL OR s.session_id = p_confine) AND s.session_id <> ALL (p_ancestors)
                       AND (p_to IS NULL OR s.first_message_at < p_to) AND (p_from IS NULL OR s.last_message_at >= p_from)
                     ORDER BY s.last_message_at DESC LIMIT ahead * p_time)
                    UNION ALL
                    (SELECT 4, h.message_id, h.created_at, h.place
                     FROM (SELECT t.session_id, t.first_message_at, t.last_message_at FROM agent_data.sessions t
                           WHERE said AND p_recent > 0 AND t.user_id = p_user AND t.tenant_id = p_tenant
                             AND (p_confine IS NULL OR t.session_id = p_confine) AND t.session_id <> ALL (p_ancestors)
                           ORDER BY t.last_message_at DESC NULLS LAST LIMIT 3) s
                     CROSS JOIN LATERAL (
                         SELECT c.message_id, c.created_at,
                                agent_data.item_place(c.message_id, 0::smallint, c.created_at, c.session_id, c.turn_index, c.role,
                                                      c.token_count, c.name) AS place
                         FROM agent_data.conversation_history c
                         WHERE c.user_id = p_user AND c.session_id = s.session_id AND c.turn_index > 0 AND NOT c.is_pruned
                           AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
                           AND (p_session IS NULL OR c.session_id <> p_session OR c.turn_index < p_visible)
                         ORDER BY c.turn_index DESC LIMIT p_recent
                     ) h)
                    UNION ALL
                    (SELECT 8, m.memory_id, m.created_at,
                            agent_data.item_place(m.memory_id, 1::smallint, COALESCE(m.valid_from, m.created_at), NULL, NULL,
                                                  NULL, m.token_count, NULL)
                     FROM agent_data.memory_store m
                     WHERE learned AND p_summary > 0 AND m.user_id = p_user AND m.tenant_id = p_tenant AND m.is_active
                       AND m.kind IN ('summary', 'entity_profile')
                       AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                                  p_confine, p_session, p_visible, p_ancestors, p_history)
                     ORDER BY m.created_at DESC LIMIT ahead * p_summary)
                ) f
                LEFT JOIN agent_data.embeddings e ON e.user_id = p_user AND e.space = p_space AND e.item_id = f.id
            ) y
        ) x
        WHERE x.n <= CASE x.leg WHEN 1 THEN p_entity WHEN 2 THEN p_time WHEN 4 THEN p_recent ELSE p_summary END
        GROUP BY x.id
    ) l;
END $$;

-- How often memories were said again, and when they were last known to be right: what the strategies of seed 004 weigh beside
-- what `fetch_chosen` brings.
CREATE FUNCTION agent_data.memory_standing(p_tenant uuid, p_user uuid, p_memories uuid[])
RETURNS TABLE (memory_id uuid, reinforcements integer, sure_since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT m.memory_id, m.reinforcement_count, COALESCE(m.last_validated_at, m.created_at)
    FROM agent_data.memory_store m
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories)
$$;

-- Takes the words of a document out of a user's counts, and those of another one in: a text that changed, or is gone (NULL).
CREATE FUNCTION agent_data.exchange_words(p_tenant uuid, p_user uuid, p_old tsvector, p_new tsvector, p_documents integer, p_terms integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    gone text[] := ARRAY(SELECT w.lexeme FROM unnest(p_old) AS w EXCEPT SELECT w.lexeme FROM unnest(p_new) AS w);
BEGIN
    UPDATE agent_data.user_stats u SET documents = GREATEST(0, u.documents + p_documents),
                                       total_terms = GREATEST(0, u.total_terms + p_terms)
    WHERE u.user_id = p_user;
    IF NOT FOUND THEN  -- the user was erased, or nothing was counted yet
        RETURN;
    END IF;
    DELETE FROM agent_data.lexemes l WHERE l.user_id = p_user AND l.lexeme = ANY (gone) AND l.documents <= 1;
    UPDATE agent_data.lexemes l SET documents = l.documents - 1 WHERE l.user_id = p_user AND l.lexeme = ANY (gone);
    INSERT INTO agent_data.lexemes AS l (user_id, tenant_id, lexeme, documents)
    SELECT p_user, p_tenant, w.lexeme, 1 FROM (
        SELECT x.lexeme FROM unnest(p_new) AS x EXCEPT SELECT x.lexeme FROM unnest(p_old) AS x) w
    ON CONFLICT (user_id, lexeme) DO UPDATE SET documents = l.documents + 1;
END $$;

CREATE FUNCTION agent_data.recount_memory() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was   boolean := NOT agent_data.of_session(OLD.kind, OLD.session_id);
    stays boolean := NOT agent_data.of_session(NEW.kind, NEW.session_id);
BEGIN
    PERFORM agent_data.exchange_words(
        NEW.tenant_id, NEW.user_id, CASE WHEN was THEN OLD.content_tsv END, CASE WHEN stays THEN NEW.content_tsv END,
        (stays AND NEW.content_text <> '')::integer - (was AND OLD.content_text <> '')::integer,
        CASE WHEN stays THEN NEW.token_count ELSE 0 END - CASE WHEN was THEN OLD.token_count ELSE 0 END);
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER recount_memory AFTER UPDATE OF content_text, kind, session_id ON agent_data.memory_store
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        OLD.content_text IS DISTINCT FROM NEW.content_text
        OR agent_data.of_session(OLD.kind, OLD.session_id) <> agent_data.of_session(NEW.kind, NEW.session_id))
    EXECUTE FUNCTION agent_data.recount_memory();

-- Cheaper reads: less to plan, and plans that are smaller.

-- One index covers the exact scan of every space, so that the statement need not name the space as a constant, and is planned
-- once. (A btree entry holds at most a third of a page: wide vectors go without, and are read from the table.)
CREATE INDEX embeddings_scan ON agent_data.embeddings (user_id, space) INCLUDE (item_id, item_kind, item_at, place, vector)
WHERE vector_dims(vector) <= 1200;

-- Reads that do not grow with what is suppressed.

-- Recording looks whether anything of the user's was deleted; what is superseded, which may be thousands, need not be read for it.
CREATE INDEX suppressions_deleted ON agent_data.suppressions (user_id) WHERE reason = 'deleted';

-- What was chosen by its place is fetched in one statement: the texts, how sure each memory is, and what of them is so no more.

-- `p_ats`: when the items were made, in microseconds since 2000. `reinforcements`: how often a memory was said again;
-- `sure_since`, when it was last known to be right (seed 004 weighs both); `ended`: what the item says that is so no more, as
-- `ended_since` tells it, NULL for nothing.
CREATE FUNCTION agent_data.fetch_chosen(
    p_tenant uuid, p_user uuid, p_ids uuid[], p_kinds smallint[], p_ats bigint[],
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS TABLE (
    n integer, item_kind smallint, item_id uuid, kind text, content text, role smallint, name text, session_id uuid,
    external_id text, turn_index integer, tier smallint, provenance_type smallint, confidence real, importance real,
    access_count integer, last_accessed_at timestamptz, created_at timestamptz, token_count integer, content_hash bytea,
    status text, entity_ids text[], origin uuid, sources jsonb, metadata jsonb, reinforcements integer, sure_since timestamptz,
    ended jsonb
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone       uuid[];
    superseded uuid[];
    no_more    jsonb;
BEGIN
    SELECT COALESCE(array_agg(x.item_id) FILTER (WHERE NOT (p_history AND x.reason = 'superseded')), '{}'),
           COALESCE(array_agg(x.item_id) FILTER (WHERE x.reason = 'superseded'), '{}')
    INTO gone, superseded
    FROM agent_data.suppressions x WHERE x.user_id = p_user AND x.item_id = ANY (p_ids);
    IF EXISTS (SELECT FROM agent_data.memory_store m WHERE m.user_id = p_user
               AND (m.status = 'invalidated' OR m.status = 'superseded' AND m.superseded_how <> 'merged')) THEN
        SELECT jsonb_object_agg(x.item_id, x.told) INTO no_more FROM (
            SELECT e.item_id, jsonb_agg(to_jsonb(e) ORDER BY e.memory_id) AS told
            FROM agent_data.ended_since(p_tenant, p_user, p_ids) e GROUP BY e.item_id
        ) x;
    END IF;
    RETURN QUERY
    SELECT i.n::integer, 0::smallint, h.message_id, 'message', h.content, h.role, h.name, h.session_id, z.external_id,
           h.turn_index, NULL::smallint, (CASE h.role WHEN 1 THEN 0 WHEN 3 THEN 6 WHEN 4 THEN 6 ELSE 1 END)::smallint, 1::real,
           0.5::real, 0, NULL::timestamptz, h.created_at, h.token_count, h.content_hash,
           CASE WHEN h.message_id = ANY (superseded) THEN 'superseded' ELSE 'active' END, NULL::text[], NULL::uuid,
           NULL::jsonb, NULLIF(h.metadata, '{}'), 0, NULL::timestamptz, no_more -> h.message_id::text
    FROM unnest(p_ids, p_kinds, p_ats) WITH ORDINALITY AS i (id, kind, at, n)
    JOIN agent_data.conversation_history h ON h.user_id = p_user AND h.message_id = i.id
         AND h.created_at = timestamptz '2000-01-01 00:00:00+00' + i.at * interval '1 microsecond'
    LEFT JOIN agent_data.sessions z ON z.user_id = p_user AND z.session_id = h.session_id
    WHERE i.kind = 0 AND h.tenant_id = p_tenant AND h.content <> '' AND NOT h.is_pruned AND h.message_id <> ALL (gone)
      AND (p_confine IS NULL OR h.session_id = p_confine)
      AND (p_session IS NULL OR h.session_id <> p_session OR h.turn_index < p_visible) AND h.session_id <> ALL (p_ancestors)
    UNION ALL
    SELECT i.n::integer, 1::smallint, m.memory_id, m.kind, m.content_text, NULL::smallint, NULL, m.session_id, NULL,
           m.provenance_turn_index, m.memory_tier, m.provenance_type, m.confidence, m.importance,
           m.access_count, m.last_accessed_at, m.created_at, m.token_count, m.content_hash,
           CASE WHEN m.is_active AND m.expires_at <= now() THEN 'expired' ELSE m.status END,
           NULLIF(m.entity_ids, '{}'),
           CASE WHEN m.source_message_ids[1] = ALL (m.source_message_ids) THEN m.source_message_ids[1] END,
           NULLIF(m.sources, '[]'), NULL::jsonb, m.reinforcement_count, COALESCE(m.last_validated_at, m.created_at),
           no_more -> m.memory_id::text
    FROM unnest(p_ids, p_kinds) WITH ORDINALITY AS i (id, kind, n)
    JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = i.id
    WHERE i.kind = 1 AND m.tenant_id = p_tenant AND m.memory_id <> ALL (gone)
      AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                 p_confine, p_session, p_visible, p_ancestors, p_history);
END $$;
