-- What a prompt says beside what was searched for (seed 001 §6): who the tenant is, what is known of the user, what to ask the user
-- about, and what the user asks for next as a habit. It comes with `recognise`, in the same round trip.

-- What is in doubt, and procedures: a few of a user's memories, or none at all.
CREATE INDEX memory_standing ON agent_data.memory_store (user_id) WHERE is_active AND (kind = 'procedure' OR status = 'aging');

-- The id of a note in a memory block: of what it says, so that a block whose notes are not all there any more is out of date. A
-- uuid of version 8, which no item has.
CREATE FUNCTION agent_data.note_id(p_text text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT overlay(overlay(encode(substring(sha256(convert_to(p_text, 'UTF8')) FOR 16), 'hex') PLACING '8' FROM 13)
                   PLACING 'a' FROM 17)::uuid
$$;

-- The id that a fact's note has.
CREATE FUNCTION agent_data.fact_note(p_fact uuid, p_value jsonb) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT agent_data.note_id(p_fact::text || p_value::text)
$$;

--   p_pooled   there is a user, whose memory is one; else only the tenant's profile
--   p_facts    most facts, the surest and newest first; p_floor: the least confidence of one
--
-- `fact_memories`: the memory that said so last, where it is in force, and where that was said. `due`: what is in doubt and was
-- not asked about lately (see `memories_due`), `due_noted` since when it stands. `procedure_details` as they are stored.
CREATE FUNCTION agent_data.standing(
    p_tenant uuid, p_user uuid, p_pooled boolean, p_facts integer, p_floor integer,
    OUT profile text, OUT profile_note uuid,
    OUT fact_ids uuid[], OUT fact_notes uuid[], OUT fact_keys text[], OUT fact_many boolean[], OUT fact_values text[],
    OUT fact_memories uuid[], OUT fact_sessions uuid[], OUT fact_turns integer[],
    OUT due uuid[], OUT due_noted timestamptz[],
    OUT procedures uuid[], OUT procedure_details text[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    doubted uuid[];
BEGIN
    -- 4,000 characters: five times its section, and what the API takes.
    SELECT left(t.profile, 4000), agent_data.note_id(left(t.profile, 4000)) INTO profile, profile_note
    FROM agent_data.tenant_profiles t WHERE t.tenant_id = p_tenant AND t.profile <> '';
    IF NOT p_pooled THEN
        RETURN;
    END IF;
    SELECT array_agg(f.fact_id ORDER BY f.n), array_agg(agent_data.fact_note(f.fact_id, f.fact_value) ORDER BY f.n),
           array_agg(f.fact_key ORDER BY f.n), array_agg(f.is_many ORDER BY f.n),
           array_agg(f.fact_value #>> '{}' ORDER BY f.n), array_agg(m.memory_id ORDER BY f.n),
           array_agg(m.session_id ORDER BY f.n), array_agg(m.provenance_turn_index ORDER BY f.n)
    INTO fact_ids, fact_notes, fact_keys, fact_many, fact_values, fact_memories, fact_sessions, fact_turns
    FROM (
        SELECT u.fact_id, u.fact_key, u.is_many, u.fact_value, u.source_memory_id,
               row_number() OVER (ORDER BY u.confidence_score DESC, u.said_at DESC, u.fact_id) AS n
        FROM agent_data.user_facts u
        WHERE u.user_id = p_user AND u.tenant_id = p_tenant AND u.confidence_score >= p_floor
        ORDER BY u.confidence_score DESC, u.said_at DESC, u.fact_id
        LIMIT p_facts
    ) f
    LEFT JOIN agent_data.memory_store m
        ON m.user_id = p_user AND m.memory_id = f.source_memory_id AND m.tenant_id = p_tenant AND m.is_active;
    SELECT array_agg(m.memory_id) FILTER (WHERE m.status = 'aging'),
           array_agg(m.memory_id ORDER BY m.importance DESC, m.memory_id) FILTER (WHERE m.kind = 'procedure'),
           array_agg(m.details::text ORDER BY m.importance DESC, m.memory_id) FILTER (WHERE m.kind = 'procedure')
    INTO doubted, procedures, procedure_details
    FROM agent_data.memory_store m
    WHERE m.user_id = p_user AND m.is_active AND (m.kind = 'procedure' OR m.status = 'aging') AND m.tenant_id = p_tenant
      AND (m.expires_at IS NULL OR m.expires_at > now());
    IF doubted IS NOT NULL THEN
        SELECT array_agg(m.memory_id ORDER BY m.memory_id),
               array_agg(COALESCE(m.last_validated_at, m.created_at) ORDER BY m.memory_id)
        INTO due, due_noted
        FROM agent_data.life_policy() p, agent_data.memory_store m
        WHERE m.user_id = p_user AND m.memory_id = ANY (doubted)
          AND COALESCE((m.details ->> 'asked_at')::timestamptz
                       <= now() - p.ask_again * power(2, least((m.details ->> 'asked')::integer, 10) - 1), true);
    END IF;
END $$;

-- Notes that the user was asked about these, in a session (NULL: nobody knows where): not again for a while. One that somebody else
-- is changing is not waited for: its question is put again.
CREATE FUNCTION agent_data.note_asked(p_tenant uuid, p_user uuid, p_session uuid, p_memories uuid[], p_at timestamptz)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH held AS (
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.is_active
        ORDER BY m.memory_id
        FOR NO KEY UPDATE SKIP LOCKED
    ), noted AS (
        UPDATE agent_data.memory_store m SET details = m.details || jsonb_build_object(
            'asked_at', p_at, 'asked', COALESCE((m.details ->> 'asked')::integer, 0) + 1, 'asked_in', p_session)
        FROM held h WHERE m.user_id = p_user AND m.memory_id = h.memory_id
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, actor)
    SELECT p_tenant, p_user, n.memory_id, p_at, 'asked', 'system' FROM noted n
$$;

-- As in 012, and the memory blocks that quote a fact go with its words: their sessions begin a new epoch.
CREATE OR REPLACE FUNCTION agent_data.drop_fact(
    p_tenant uuid, p_user uuid, p_fact uuid, p_event text, p_memory uuid, p_actor text, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    note uuid;
BEGIN
    DELETE FROM agent_data.user_facts f WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_id = p_fact
    RETURNING agent_data.fact_note(f.fact_id, f.fact_value) INTO note;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_event = 'deleted' THEN
        UPDATE agent_data.user_fact_changes c SET fact_value = NULL, source_memory_id = NULL
        WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.fact_id = p_fact;
    END IF;
    IF p_event IN ('deleted', 'forgotten') THEN
        WITH quoting AS (
            DELETE FROM agent_data.context_blocks b
            WHERE b.user_id = p_user AND b.tenant_id = p_tenant AND b.item_ids @> ARRAY[note]
            RETURNING b.session_id
        )
        UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
        WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
    END IF;
    PERFORM agent_data.tell_fact(p_tenant, p_user, p_fact, p_event, NULL, NULL, p_memory, p_actor, p_now);
    RETURN true;
END $$;

-- A session's summary is compared with a question in one embedding space; after a change of the embedder by its words alone.
ALTER TABLE agent_data.sessions ADD COLUMN summary_space smallint;

GRANT DELETE ON agent_data.context_blocks TO mneme_definer;
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname IN ('standing', 'note_asked') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO mneme_definer', f);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mneme_app', f);
    END LOOP;
END $$;
