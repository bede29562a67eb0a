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
-- what `fetch_items` brings.
CREATE FUNCTION agent_data.memory_standing(p_tenant uuid, p_user uuid, p_memories uuid[])
RETURNS TABLE (memory_id uuid, reinforcements integer, sure_since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT m.memory_id, m.reinforcement_count, COALESCE(m.last_validated_at, m.created_at)
    FROM agent_data.memory_store m
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories)
$$;

-- A memory stands, for the ranking, at the time from which it holds.
CREATE OR REPLACE FUNCTION agent_data.add_vectors(
    p_tenant uuid, p_user uuid, p_space smallint, p_kind smallint, p_items uuid[], p_ats timestamptz[], p_vectors halfvec[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    many boolean;
BEGIN
    SELECT u.use_hnsw INTO many FROM agent_data.user_stats u WHERE u.user_id = p_user;
    INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector, place)
    SELECT p_user, p_tenant, p_space, v.item, p_kind, v.at, COALESCE(many, false), v.vector,
           COALESCE(
               (SELECT agent_data.item_place(v.item, p_kind, v.at, h.session_id, h.turn_index, h.role, h.token_count, h.name)
                FROM agent_data.conversation_history h
                WHERE p_kind = 0 AND h.user_id = p_user AND h.message_id = v.item AND h.created_at = v.at),
               (SELECT agent_data.item_place(v.item, p_kind, COALESCE(m.valid_from, v.at), NULL, NULL, NULL, m.token_count, NULL)
                FROM agent_data.memory_store m
                WHERE p_kind = 1 AND m.user_id = p_user AND m.memory_id = v.item))
    FROM unnest(p_items, p_ats, p_vectors) AS v (item, at, vector)
    ON CONFLICT DO NOTHING;
END $$;

-- --- counts of words -----------------------------------------------------------------------------------------------------
--
-- `lexemes` and `user_stats` are what they would be if all of a user's memories and indexed messages were counted anew. What
-- changes them holds the user's row of `user_stats` before it touches `lexemes`: they are changed by one transaction after
-- another, whatever the order of the words. New documents are counted by whoever adds them (`count_words`); a memory whose words
-- change, or are taken away, by whatever statement and however deep inside a trigger, by the trigger below, when the transaction
-- ends and nothing else is to be waited for.

-- As before, but for the user's row, which is held first.
CREATE OR REPLACE FUNCTION agent_data.count_words(
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
BEGIN
    PERFORM agent_data.exchange_words(
        NEW.tenant_id, NEW.user_id, OLD.content_tsv, NEW.content_tsv,
        (NEW.content_text <> '')::integer - (OLD.content_text <> '')::integer, NEW.token_count - OLD.token_count);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER recount_memory AFTER UPDATE OF content_text ON agent_data.memory_store
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.content_text IS DISTINCT FROM NEW.content_text)
    EXECUTE FUNCTION agent_data.recount_memory();

-- As before, but for the order in which rows are taken.
CREATE OR REPLACE FUNCTION agent_data.remove_memories(p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    p     agent_data.life_policy := agent_data.life_policy();
    users uuid[];
    items uuid[];
BEGIN
    SELECT array_agg(d.user_id), array_agg(d.memory_id) INTO users, items FROM (
        SELECT m.user_id, m.memory_id FROM agent_data.memory_store m
        WHERE m.status = 'expired' AND m.updated_at <= p_now - p.remove_after
          AND NOT EXISTS (SELECT FROM agent_data.memory_store o WHERE o.user_id = m.user_id AND o.superseded_by = m.memory_id)
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) d;
    IF users IS NULL THEN
        RETURN 0;
    END IF;
    -- First each user's row: what changes a user's counts waits for it (see `count_words`).
    PERFORM FROM agent_data.user_stats u WHERE u.user_id = ANY (users) ORDER BY u.user_id FOR UPDATE;
    WITH words AS (
        SELECT m.user_id, w.lexeme, count(*) AS n
        FROM unnest(users, items) AS d (user_id, memory_id)
        JOIN agent_data.memory_store m ON m.user_id = d.user_id AND m.memory_id = d.memory_id
        CROSS JOIN LATERAL unnest(m.content_tsv) AS w
        GROUP BY m.user_id, w.lexeme
    ), held AS (
        SELECT l.user_id, l.lexeme, l.documents - w.n AS rest
        FROM words w JOIN agent_data.lexemes l ON l.user_id = w.user_id AND l.lexeme = w.lexeme
        ORDER BY l.user_id, l.lexeme FOR UPDATE OF l
    ), gone AS (
        DELETE FROM agent_data.lexemes l USING held h WHERE l.user_id = h.user_id AND l.lexeme = h.lexeme AND h.rest <= 0
    )
    UPDATE agent_data.lexemes l SET documents = h.rest
    FROM held h WHERE l.user_id = h.user_id AND l.lexeme = h.lexeme AND h.rest > 0;
    WITH fewer AS (
        SELECT m.user_id, count(*) AS n, sum(m.token_count) AS tokens, count(*) FILTER (WHERE EXISTS (
                   SELECT FROM agent_data.embeddings e WHERE e.user_id = m.user_id AND e.item_id = m.memory_id)) AS vectors
        FROM unnest(users, items) AS d (user_id, memory_id)
        JOIN agent_data.memory_store m ON m.user_id = d.user_id AND m.memory_id = d.memory_id
        GROUP BY m.user_id
    ), held AS (
        SELECT u.user_id, f.n, f.tokens, f.vectors FROM fewer f JOIN agent_data.user_stats u ON u.user_id = f.user_id
        ORDER BY u.user_id FOR UPDATE OF u
    )
    UPDATE agent_data.user_stats u SET documents = greatest(0, u.documents - h.n), vectors = greatest(0, u.vectors - h.vectors),
                                       total_terms = greatest(0, u.total_terms - h.tokens)
    FROM held h WHERE u.user_id = h.user_id;
    DELETE FROM agent_data.embeddings e USING unnest(users, items) AS d (user_id, memory_id)
    WHERE e.user_id = d.user_id AND e.item_id = d.memory_id;
    DELETE FROM agent_data.memory_events e USING unnest(users, items) AS d (user_id, memory_id)
    WHERE e.user_id = d.user_id AND e.memory_id = d.memory_id;
    DELETE FROM agent_data.routes r USING unnest(users, items) AS d (user_id, memory_id)
    WHERE r.user_id = d.user_id AND r.id = d.memory_id AND r.kind = 'memory';
    DELETE FROM agent_data.memory_store m USING unnest(users, items) AS d (user_id, memory_id)
    WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id;
    RETURN cardinality(items);
END $$;

SELECT agent_data.give_functions('mneme_definer', ARRAY['retrieve_more', 'memory_standing'], ARRAY['mneme_app']);
-- Memories are forgotten by the doors, by the schedule as the owner, and by the eraser.
SELECT agent_data.give_functions('mneme_definer', ARRAY['exchange_words'], ARRAY['mneme_app', 'mneme_owner', 'mneme_eraser']);
