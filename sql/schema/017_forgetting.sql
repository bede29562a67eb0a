-- One way in which the words of memories go for good, however it came to that; what they leave behind of a sentence that is to be
-- forgotten; and what does not make void what was drawn from it.

-- Takes the words of memories away: text, triple, sources, vectors, history. What follows of it (their other wordings, the messages
-- that said it, what was drawn from it) is told by `memory_ended` and `forget_derived`; the user's counts follow by
-- `recount_memory`. Those that are forgotten already stay as they are. How many.
CREATE FUNCTION agent_data.void_memories(p_tenant uuid, p_user uuid, p_memories uuid[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    fresh uuid[];
BEGIN
    -- In order, so that two cannot wait for each other.
    SELECT array_agg(x.memory_id) INTO fresh FROM (
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.status <> 'forgotten'
        ORDER BY m.memory_id FOR UPDATE
    ) x;
    IF fresh IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM agent_data.embeddings e
    WHERE e.tenant_id = p_tenant AND e.user_id = p_user AND e.item_id = ANY (fresh);
    -- What happened stays, what they said does not; nor does it where another memory took one's place.
    UPDATE agent_data.memory_events e SET
        before = CASE WHEN e.before IS NOT NULL THEN '{"text": ""}'::jsonb END,
        after = CASE WHEN e.after IS NULL OR e.memory_id <> ALL (fresh) THEN e.after ELSE '{"text": ""}'::jsonb END
    WHERE e.tenant_id = p_tenant AND e.user_id = p_user
      AND (e.memory_id = ANY (fresh)
           OR e.before ->> 'memory_id' = ANY (fresh::text[]) AND e.memory_id IN (
               SELECT m.superseded_by FROM agent_data.memory_store m WHERE m.user_id = p_user AND m.memory_id = ANY (fresh)));
    UPDATE agent_data.memory_store m SET
        status = 'forgotten', content_text = '', content_hash = '', token_count = 0, sources = '[]', confidence_factors = '{}',
        subject_entity_id = NULL, predicate = NULL, predicate_type = NULL, object_value = NULL, entity_ids = '{}',
        tags = '{}', details = '{}', metadata = '{}', updated_at = p_now
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (fresh);
    RETURN cardinality(fresh);
END $$;

-- Something must not surface any more: no memory that was drawn from it keeps its words, nor does a session's summary, nor a
-- memory block. (Blocks go with their epoch: two further, so that it is no rebase's that is under way.)
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
    SELECT array_agg(d.memory_id) INTO drawn FROM agent_data.derived_from(p_tenant, p_user, p_item) d
    JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = d.memory_id AND m.status <> 'forgotten';
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

-- Messages that say what a memory says: those that it was learned from, and of the answers to them those that repeat its value
-- ("Noted, Lisbon it is."): (id, hash of the text, length of the text).
CREATE FUNCTION agent_data.saying_messages(p_user uuid, p_sources jsonb, p_value text)
RETURNS TABLE (message_id uuid, content_hash bytea, length integer)
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT s.message_id, s.content_hash, s.length FROM agent_data.source_messages(p_user, p_sources) s
    UNION
    SELECT a.message_id, a.content_hash, length(a.content)
    FROM jsonb_to_recordset(p_sources) AS s (message_id uuid, created_at timestamptz)
    JOIN agent_data.conversation_history q
        ON q.user_id = p_user AND q.message_id = s.message_id AND q.created_at = s.created_at
    JOIN agent_data.conversation_history a
        ON a.user_id = p_user AND a.session_id = q.session_id AND a.turn_index = q.turn_index + 1 AND a.role = 2
    WHERE p_value <> '' AND (a.parent_message_id = q.message_id OR a.parent_message_id IS NULL)
      AND to_tsvector('simple', left(a.content, 100000)) @@ phraseto_tsquery('simple', p_value)
$$;

-- Messages that were hidden because what they say had been superseded come back, but for those that say something else which
-- still is; and the answers to them. The application may take away no other suppression.
CREATE OR REPLACE FUNCTION agent_data.resurface(p_tenant uuid, p_user uuid, p_messages uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH back AS (
        DELETE FROM agent_data.suppressions x
        WHERE x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = ANY (p_messages) AND x.reason = 'superseded'
          AND NOT EXISTS (
              SELECT FROM agent_data.memory_store o
              WHERE o.user_id = p_user AND o.source_message_ids @> ARRAY[x.item_id]
                AND o.kind NOT IN ('summary', 'pattern', 'procedure')
                AND (o.status = 'invalidated' OR o.status = 'superseded' AND o.superseded_how IN ('corrected', 'conflict')))
        RETURNING x.item_id
    )
    DELETE FROM agent_data.suppressions x
    USING back b, agent_data.conversation_history q, agent_data.conversation_history a
    WHERE q.user_id = p_user AND q.message_id = b.item_id
      AND a.user_id = p_user AND a.session_id = q.session_id AND a.turn_index = q.turn_index + 1 AND a.role = 2
      AND x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = a.message_id AND x.reason = 'superseded'
$$;

-- What follows when a memory is forgotten (called by `memory_ended`, with what its sources were): its other wordings are, the
-- contradictions it took part in, and the messages that said it (`saying_messages`, and those of the very same words), whose
-- hashes remain, keyed: sent again, in another session, they are neither found nor learned from. Memories that were learned from
-- those messages as well stay, and quote them no longer.
CREATE FUNCTION agent_data.forget_said(
    p_tenant uuid, p_user uuid, p_memory uuid, p_sources jsonb, p_value text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    -- Characters up to which a message stands for anything: "yes", "thanks".
    brief    constant integer := 7;
    said     uuid[];
    hashes   bytea[];
    hidden   uuid[];
    wordings uuid[];
BEGIN
    SELECT array_agg(s.message_id), array_agg(s.content_hash) FILTER (WHERE s.length > brief) INTO said, hashes
    FROM agent_data.saying_messages(p_user, p_sources, p_value) s;
    -- What was said more often than a memory has sources, or was never learned from, says so as well.
    SELECT array_agg(h.message_id) INTO hidden FROM agent_data.conversation_history h
    WHERE h.user_id = p_user AND h.tenant_id = p_tenant AND hashes IS NOT NULL AND h.content_hash = ANY (hashes);
    SELECT array_agg(DISTINCT i) INTO hidden FROM unnest(said || hidden) AS i;
    INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)
    SELECT p_user, p_tenant, i, 'forgotten', (
        SELECT agent_data.content_hmac(s.content_hash) FROM agent_data.saying_messages(p_user, p_sources, p_value) s
        WHERE s.message_id = i AND s.length > brief LIMIT 1)
    FROM unnest(hidden) AS i
    ON CONFLICT (user_id, item_id) DO UPDATE SET reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac
    WHERE suppressions.reason <> 'deleted';
    -- No search may find them: a vector would only wait in its space, and keep that from being dropped.
    DELETE FROM agent_data.embeddings e WHERE e.user_id = p_user AND e.item_id = ANY (hidden);
    UPDATE agent_data.memory_store o SET sources = (
        SELECT jsonb_agg(CASE WHEN s.source ->> 'message_id' = ANY (hidden::text[]) THEN s.source - 'quote' ELSE s.source END
                         ORDER BY s.n)
        FROM jsonb_array_elements(o.sources) WITH ORDINALITY AS s (source, n))
    WHERE o.user_id = p_user AND o.tenant_id = p_tenant AND o.memory_id <> p_memory AND o.source_message_ids && hidden
      AND o.sources <> '[]';
    UPDATE agent_data.memory_conflicts c SET conflict_data = '{}', resolution_outcome = '{}',
                                             resolved_at = COALESCE(c.resolved_at, p_now)
    WHERE c.user_id = p_user AND c.memory_ids @> ARRAY[p_memory];
    SELECT array_agg(v.memory_id) INTO wordings FROM agent_data.memory_store v
    WHERE v.user_id = p_user AND v.superseded_by = p_memory AND v.superseded_how = 'merged' AND v.status <> 'forgotten';
    INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)
    SELECT v.user_id, v.tenant_id, v.memory_id, 'forgotten', agent_data.content_hmac(v.content_hash)
    FROM agent_data.memory_store v WHERE v.user_id = p_user AND v.memory_id = ANY (wordings) AND v.content_hash <> ''
    ON CONFLICT (user_id, item_id) DO UPDATE SET reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac;
    PERFORM agent_data.void_memories(p_tenant, p_user, wordings, p_now);
END $$;

-- What follows when a memory ends.
--
-- superseded by another claim, or invalidated: messages that said it do not surface as if it were so still; long ones do, for
--     they say much else ("superseded": they were said, and stay in their own conversation). Messages that also said what took
--     its place stay. When it is restored, they come back.
-- forgotten: see `forget_said`.
-- Of what was drawn together from many messages none says it: they stay, whatever becomes of it. Its older versions go with it.
CREATE OR REPLACE FUNCTION agent_data.memory_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    -- Characters up to which a message is about that one thing: two sentences. Of longer ones the memory is a small part.
    brief constant integer := 240;
    drawn constant boolean := NEW.kind IN ('summary', 'pattern', 'procedure');
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'forgotten' AND drawn THEN
        -- What was drawn is drawn anew, unless it was itself what the user forgot.
        PERFORM agent_data.void_memories(NEW.tenant_id, NEW.user_id, ARRAY(
            SELECT v.memory_id FROM agent_data.memory_store v
            WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged'), NEW.updated_at);
    ELSIF NEW.status = 'forgotten' THEN
        PERFORM agent_data.forget_said(NEW.tenant_id, NEW.user_id, NEW.memory_id, OLD.sources, OLD.object_value,
                                       NEW.updated_at);
    ELSIF NEW.status = 'invalidated' OR NEW.status = 'superseded' AND NEW.superseded_how IN ('corrected', 'conflict') THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
        SELECT NEW.user_id, NEW.tenant_id, s.message_id, 'superseded'
        FROM agent_data.saying_messages(NEW.user_id, NEW.sources, NEW.object_value) s
        WHERE NOT drawn AND s.length <= brief AND NOT EXISTS (
            SELECT FROM agent_data.memory_store h
            WHERE h.user_id = NEW.user_id AND h.memory_id = NEW.superseded_by AND h.source_message_ids @> ARRAY[s.message_id])
        ON CONFLICT DO NOTHING;
    ELSIF NEW.status = 'active' AND OLD.status IN ('superseded', 'invalidated') THEN
        PERFORM agent_data.resurface(NEW.tenant_id, NEW.user_id, NEW.source_message_ids);
    END IF;
    RETURN NULL;
END $$;

-- Something is not so any more, or says something else: what says so on its authority, or on that of a wording that led to it,
-- is not in force, either, until it is drawn together anew.
CREATE OR REPLACE FUNCTION agent_data.outdate_derived(p_tenant uuid, p_user uuid, p_memory uuid, p_sources jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    sessions uuid[];
BEGIN
    UPDATE agent_data.consolidation_state c SET version = c.version + 1, due_at = COALESCE(c.due_at, now())
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant;
    SELECT array_agg(DISTINCT (s.source ->> 'session_id')::uuid) INTO sessions
    FROM jsonb_array_elements(p_sources) AS s (source) WHERE s.source ->> 'session_id' IS NOT NULL;
    IF sessions IS NOT NULL THEN
        PERFORM agent_data.drop_session_summaries(p_tenant, p_user, sessions);
    END IF;
    DELETE FROM agent_data.memory_store_working w WHERE w.user_id = p_user AND w.tenant_id = p_tenant;
    WITH sources AS (
        SELECT p_memory AS memory_id
        UNION
        SELECT v.memory_id FROM agent_data.memory_store v WHERE v.user_id = p_user AND v.superseded_by = p_memory
    ), outdated AS (
        UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = now(), updated_at = now()
        FROM (SELECT DISTINCT d.memory_id FROM sources s, agent_data.derived_from(p_tenant, p_user, s.memory_id) d) d
        WHERE m.user_id = p_user AND m.memory_id = d.memory_id AND m.is_active
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, before, after, actor)
    SELECT p_user, p_tenant, o.memory_id, 'invalidated', '{"status": "active"}',
           '{"status": "invalidated", "reason": "a source changed"}', 'system'
    FROM outdated o;
END $$;

-- A better wording ("merged") says the same: what was drawn from the old one still holds.
DROP TRIGGER outdate_derived ON agent_data.memory_store;
CREATE TRIGGER outdate_derived AFTER UPDATE OF status, content_text ON agent_data.memory_store
    FOR EACH ROW WHEN (OLD.status IN ('active', 'aging') AND NEW.kind NOT IN ('summary', 'pattern', 'procedure')
        AND (NEW.status = 'invalidated' OR NEW.status = 'superseded' AND NEW.superseded_how IS DISTINCT FROM 'merged'
             OR NEW.content_hash <> OLD.content_hash AND NEW.status <> 'forgotten'))
    EXECUTE FUNCTION agent_data.on_outdated();

GRANT DELETE ON agent_data.context_blocks TO mneme_definer;
SELECT agent_data.give_functions('mneme_definer', ARRAY['void_memories', 'forget_said'],
                                 ARRAY['mneme_app', 'mneme_owner', 'mneme_eraser']);
