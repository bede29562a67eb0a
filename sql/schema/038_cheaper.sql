-- Reads that do not grow with what is suppressed.

-- Recording looks whether anything of the user's was deleted; what is superseded, which may be thousands, need not be read for it.
CREATE INDEX suppressions_deleted ON agent_data.suppressions (user_id) WHERE reason = 'deleted';

-- As 022 has it, its arguments and results told in 006. New: what is suppressed is looked up in a hash table (`NOT IN` a subquery);
-- `<> ALL` an array compares every item with every one of it, eleven thousand with a thousand for 30 ms.
CREATE OR REPLACE FUNCTION agent_data.retrieve(
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
