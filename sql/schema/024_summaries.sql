-- The summary of a session is a memory of kind `summary`, found as any other: its scope is `session_window` (seed 004, table 7: scope_type),
-- its `session_id` the session, its sources what it was drawn from. `sessions.summary_text` stays what a prompt of the session itself
-- shows. Both go, in one transaction, when something in the session is forgotten, or is not so any more.

CREATE INDEX memory_session_summary ON agent_data.memory_store (user_id, session_id)
    WHERE kind = 'summary' AND session_id IS NOT NULL;

-- Takes back the summaries of some sessions, at once; the session-end work makes new ones. Memory blocks that hold the old ones
-- go with their epoch: two further, so that it is no rebase's that is under way. (A block of another session that shows the
-- memory goes because that is not in force.)
CREATE OR REPLACE FUNCTION agent_data.drop_session_summaries(p_tenant uuid, p_user uuid, p_sessions uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    -- First the row that work under way looks at before it writes.
    UPDATE agent_data.session_work w SET version = w.version + 1, pending = true
    WHERE w.user_id = p_user AND w.tenant_id = p_tenant AND w.session_id = ANY (p_sessions);
    UPDATE agent_data.sessions s SET
        summary_text = NULL, summary_embedding = NULL, summary_token_count = 0, block_epoch = s.block_epoch + 2
    WHERE s.user_id = p_user AND s.tenant_id = p_tenant AND s.session_id = ANY (p_sessions) AND s.summary_text IS NOT NULL;
    UPDATE agent_data.conversation_history h SET content = NULL
    FROM agent_data.compactions c
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.session_id = ANY (p_sessions)
      AND h.user_id = p_user AND h.message_id = c.summary_id AND h.created_at = c.at AND h.content IS NOT NULL;
    WITH outdated AS (
        UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = now(), updated_at = now()
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.session_id = ANY (p_sessions) AND m.kind = 'summary'
          AND m.details ->> 'scope_type' = 'session_window' AND m.is_active
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, before, after, actor)
    SELECT p_user, p_tenant, o.memory_id, 'invalidated', '{"status": "active"}',
           '{"status": "invalidated", "reason": "a source changed"}', 'system'
    FROM outdated o;
END $$;

-- Something must not surface any more: no memory that was drawn from it keeps its words, nor does any summary, of whatever time, of
-- the sessions that said it, nor a memory block. (Blocks go with their epoch: two further, so that it is no rebase's that is under
-- way.)
CREATE OR REPLACE FUNCTION agent_data.forget_derived(p_tenant uuid, p_user uuid, p_item uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    sessions uuid[];
    said     uuid[];
    drawn    uuid[];
BEGIN
    SELECT m.source_message_ids INTO said FROM agent_data.memory_store m
    WHERE m.user_id = p_user AND m.memory_id = p_item AND m.tenant_id = p_tenant;
    UPDATE agent_data.consolidation_state c SET version = c.version + 1, due_at = COALESCE(c.due_at, now())
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant;
    SELECT array_agg(DISTINCT h.session_id) INTO sessions FROM agent_data.conversation_history h
    WHERE h.user_id = p_user AND h.tenant_id = p_tenant AND h.message_id = ANY (said || p_item);
    IF sessions IS NOT NULL THEN
        PERFORM agent_data.drop_session_summaries(p_tenant, p_user, sessions);
    END IF;
    DELETE FROM agent_data.memory_store_working w WHERE w.user_id = p_user AND w.tenant_id = p_tenant;
    DELETE FROM agent_data.episodes e
    WHERE e.user_id = p_user AND e.tenant_id = p_tenant AND e.message_id = p_item;
    SELECT array_agg(x.memory_id) INTO drawn FROM (
        SELECT m.memory_id FROM agent_data.derived_from(p_tenant, p_user, p_item) d
        JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = d.memory_id AND m.status <> 'forgotten'
        UNION
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.session_id = ANY (sessions) AND m.kind = 'summary'
          AND m.details ->> 'scope_type' = 'session_window' AND m.status <> 'forgotten'
    ) x;
    IF drawn IS NOT NULL THEN
        PERFORM agent_data.void_memories(p_tenant, p_user, drawn, now());
        INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, actor)
        SELECT p_user, p_tenant, d, 'deleted', 'system' FROM unnest(drawn) AS d;
    END IF;
    WITH quoting AS (
        DELETE FROM agent_data.context_blocks b
        WHERE b.tenant_id = p_tenant AND b.user_id = p_user AND b.item_ids && (drawn || p_item)
        RETURNING b.session_id
    )
    UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2
    WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
END $$;

-- Whether a memory is the summary of a session.
CREATE FUNCTION agent_data.of_session(p_kind text, p_session uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_kind = 'summary' AND p_session IS NOT NULL
$$;

-- In the place of a memory (see `item_place`) the role says what it sums up: 10 a session, 11 anything else, 9 nothing. NULL: 9.
CREATE FUNCTION agent_data.summary_mark(p_kind text, p_session uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN agent_data.of_session(p_kind, p_session) THEN 10 WHEN p_kind IN ('summary', 'entity_profile') THEN 11 END::smallint
$$;

-- As 015 has it; new: what a memory sums up.
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
               (SELECT agent_data.item_place(v.item, p_kind, COALESCE(m.valid_from, v.at), NULL, NULL,
                                             agent_data.summary_mark(m.kind, m.session_id), m.token_count, NULL)
                FROM agent_data.memory_store m
                WHERE p_kind = 1 AND m.user_id = p_user AND m.memory_id = v.item))
    FROM unnest(p_items, p_ats, p_vectors) AS v (item, at, vector)
    ON CONFLICT DO NOTHING;
END $$;

UPDATE agent_data.embeddings e SET
    place = agent_data.item_place(m.memory_id, 1::smallint, COALESCE(m.valid_from, e.item_at), NULL, NULL,
                                  agent_data.summary_mark(m.kind, m.session_id), m.token_count, NULL)
FROM agent_data.memory_store m
WHERE m.kind IN ('summary', 'entity_profile') AND m.content_text <> ''
  AND e.user_id = m.user_id AND e.item_id = m.memory_id AND e.item_kind = 1;

-- --- counts of words -----------------------------------------------------------------------------------------------------
--
-- What a session's summary says, its turns have said: counted once more, the rarest words of a conversation, which are the ones that
-- find its turns, would be half as rare.

-- As 015 has it; new: what is not counted.
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

CREATE OR REPLACE FUNCTION agent_data.recount_memory() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP TRIGGER recount_memory ON agent_data.memory_store;
CREATE CONSTRAINT TRIGGER recount_memory AFTER UPDATE OF content_text, kind, session_id ON agent_data.memory_store
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        OLD.content_text IS DISTINCT FROM NEW.content_text
        OR agent_data.of_session(OLD.kind, OLD.session_id) <> agent_data.of_session(NEW.kind, NEW.session_id))
    EXECUTE FUNCTION agent_data.recount_memory();

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
        WHERE NOT agent_data.of_session(m.kind, m.session_id)
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
        SELECT m.user_id, count(*) FILTER (WHERE NOT agent_data.of_session(m.kind, m.session_id)) AS n,
               COALESCE(sum(m.token_count) FILTER (WHERE NOT agent_data.of_session(m.kind, m.session_id)), 0) AS tokens,
               count(*) FILTER (WHERE EXISTS (
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

-- As 010 has it; new: a session's summary stands as long as its session does. It says what was said, not what is so, and a question
-- about March comes when nobody has asked about March for months.
CREATE OR REPLACE FUNCTION agent_data.shielded(m agent_data.memory_store) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(m.validated_by = 'user' AND m.memory_tier >= 3 AND (m.provenance_turn_id IS NULL OR m.provenance_type = 0), false)
        OR agent_data.grounded(m) AND m.status = 'active' OR agent_data.of_session(m.kind, m.session_id)
$$;

-- Counts the vectors of $2 users after $1 anew: what takes vectors away (forgetting, in many ways) leaves `user_stats.vectors` as it
-- was, and what adds them apart from words (a change of the embedder) as well. Each user's row first: whoever adds vectors changes
-- it in the same transaction, so that none is missed. How many were wrong, and after whom to go on (NULL: those were all).
CREATE FUNCTION agent_data.recount_vectors(INOUT p_user uuid, p_limit integer, OUT changed bigint) LANGUAGE plpgsql AS $$
DECLARE
    users uuid[] := ARRAY(SELECT u.user_id FROM agent_data.user_stats u WHERE u.user_id > p_user ORDER BY u.user_id LIMIT p_limit);
    own   uuid;
    many  bigint;
BEGIN
    changed := 0;
    FOREACH own IN ARRAY users LOOP
        PERFORM FROM agent_data.user_stats u WHERE u.user_id = own FOR UPDATE;
        SELECT COALESCE(max(s.n), 0) INTO many FROM (
            SELECT count(*) AS n FROM agent_data.embeddings e WHERE e.user_id = own GROUP BY e.space) s;
        UPDATE agent_data.user_stats u SET vectors = many WHERE u.user_id = own AND u.vectors <> many;
        IF FOUND THEN
            changed := changed + 1;
        END IF;
    END LOOP;
    p_user := CASE WHEN cardinality(users) = p_limit THEN users[p_limit] END;
END $$;

-- Sessions that were summarised before are summarised again, by and by: of the old summaries nobody knows what they quote.
UPDATE agent_data.session_work w SET pending = true
FROM agent_data.sessions s
WHERE s.user_id = w.user_id AND s.session_id = w.session_id AND s.summary_text IS NOT NULL AND NOT w.pending;
