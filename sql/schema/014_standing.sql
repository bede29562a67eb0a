-- What a prompt says beside what was searched for (seed 001 §6): who the tenant is, what is known of the user, what to ask the user
-- about, and what the user asks for next as a habit. It comes with `recognise`, in the same round trip.

-- Gives functions and procedures (all of these names) to a role, and lets these others call them, and nobody else.
CREATE FUNCTION agent_data.give_functions(p_owner text, p_names text[], p_callers text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name   text;
    caller text;
    f      regprocedure;
BEGIN
    FOREACH name IN ARRAY p_names LOOP
        IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = name) THEN
            RAISE EXCEPTION 'there is no function agent_data.%', name;
        END IF;
        FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
                 WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = name LOOP
            EXECUTE format('ALTER ROUTINE %s OWNER TO %I', f, p_owner);
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', f);
            FOREACH caller IN ARRAY p_callers LOOP
                EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', f, caller);
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION agent_data.give_functions(text, text[], text[]) FROM PUBLIC;

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

-- What a prompt needs of a fact stands in its own row, so that reading forty of them opens one table: the id of its note, and where
-- the memory was learned that said so last.
ALTER TABLE agent_data.user_facts ADD COLUMN note_id uuid, ADD COLUMN said_session uuid, ADD COLUMN said_turn integer;

CREATE FUNCTION agent_data.note_fact() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.note_id := agent_data.fact_note(NEW.fact_id, NEW.fact_value);
    NEW.said_session := NULL;
    NEW.said_turn := NULL;
    IF NEW.source_memory_id IS NOT NULL THEN
        SELECT m.session_id, m.provenance_turn_index INTO NEW.said_session, NEW.said_turn FROM agent_data.memory_store m
        WHERE m.user_id = NEW.user_id AND m.memory_id = NEW.source_memory_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER noted BEFORE INSERT OR UPDATE OF fact_value, source_memory_id ON agent_data.user_facts
    FOR EACH ROW EXECUTE FUNCTION agent_data.note_fact();
UPDATE agent_data.user_facts SET source_memory_id = source_memory_id;

--   p_pooled   there is a user, whose memory is one; else only the tenant's profile
--   p_facts    most facts, the surest and newest first; p_floor: the least confidence of one
--
-- `fact_memories`: the memory that said so last. `due`: what is in doubt and was not asked about lately (see `memories_due`),
-- `due_noted` since when it stands. `procedure_details` as they are stored. One statement, for each takes as long as all its rows.
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
    SELECT t.profile, f.ids, f.notes, f.keys, f.many, f.facts, f.memories, f.sessions, f.turns, m.doubted, m.habits, m.details
    INTO profile, fact_ids, fact_notes, fact_keys, fact_many, fact_values, fact_memories, fact_sessions, fact_turns, doubted,
         procedures, procedure_details
    FROM (
        SELECT array_agg(u.fact_id) AS ids, array_agg(u.note_id) AS notes, array_agg(u.fact_key) AS keys,
               array_agg(u.is_many) AS many, array_agg(u.fact_value #>> '{}') AS facts,
               array_agg(u.source_memory_id) AS memories, array_agg(u.said_session) AS sessions,
               array_agg(u.said_turn) AS turns
        FROM (
            SELECT * FROM agent_data.user_facts x
            WHERE p_pooled AND x.user_id = p_user AND x.tenant_id = p_tenant AND x.confidence_score >= p_floor
            ORDER BY x.confidence_score DESC, x.said_at DESC, x.fact_id
            LIMIT p_facts
        ) u
    ) f
    CROSS JOIN (
        SELECT array_agg(x.memory_id) FILTER (WHERE x.status = 'aging') AS doubted,
               array_agg(x.memory_id) FILTER (WHERE x.kind = 'procedure') AS habits,
               array_agg(x.details::text) FILTER (WHERE x.kind = 'procedure') AS details
        FROM agent_data.memory_store x
        WHERE p_pooled AND x.user_id = p_user AND x.is_active AND (x.kind = 'procedure' OR x.status = 'aging')
          AND x.tenant_id = p_tenant AND (x.expires_at IS NULL OR x.expires_at > now())
    ) m
    LEFT JOIN agent_data.tenant_profiles t ON t.tenant_id = p_tenant AND t.profile <> '';
    IF profile IS NOT NULL THEN
        profile := left(profile, 4000);  -- characters: five times its section, and what the API takes
        profile_note := agent_data.note_id(profile);
    END IF;
    IF doubted IS NOT NULL THEN
        SELECT array_agg(m.memory_id), array_agg(COALESCE(m.last_validated_at, m.created_at)) INTO due, due_noted
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
    RETURNING f.note_id INTO note;
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
        UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2
        WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
    END IF;
    PERFORM agent_data.tell_fact(p_tenant, p_user, p_fact, p_event, NULL, NULL, p_memory, p_actor, p_now);
    RETURN true;
END $$;

-- A session's summary is compared with a question in one embedding space; after a change of the embedder by its words alone.
ALTER TABLE agent_data.sessions ADD COLUMN summary_space smallint;

GRANT DELETE ON agent_data.context_blocks TO mneme_definer;
SELECT agent_data.give_functions('mneme_definer', ARRAY['standing', 'note_asked'], ARRAY['mneme_app']);
