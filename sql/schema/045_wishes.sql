-- A memory block says what the user has asked for always, facts with since when they are so, and of what was said and is so no more
-- what is so now (docs/context.md).

-- Since when a fact is so, where that is known: its memory says so, or the value took the place of another. And the messages that
-- say it, which a block need not quote beside it (eight: more of them do not come up together).
ALTER TABLE agent_data.user_facts ADD COLUMN since timestamptz, ADD COLUMN said_messages uuid[] NOT NULL DEFAULT '{}';

CREATE OR REPLACE FUNCTION agent_data.note_fact() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said agent_data.memory_store;
BEGIN
    NEW.note_id := agent_data.fact_note(NEW.fact_id, NEW.fact_value);
    NEW.said_session := NULL;
    NEW.said_turn := NULL;
    NEW.said_messages := '{}';
    IF TG_OP = 'INSERT' THEN
        NEW.since := NULL;
    ELSIF lower(OLD.fact_value #>> '{}') IS DISTINCT FROM lower(NEW.fact_value #>> '{}') THEN
        NEW.since := NEW.said_at;  -- the value of before was so until then
    END IF;
    IF NEW.source_memory_id IS NOT NULL THEN
        SELECT m.* INTO said FROM agent_data.memory_store m
        WHERE m.user_id = NEW.user_id AND m.memory_id = NEW.source_memory_id;
        NEW.said_session := said.session_id;
        NEW.said_turn := said.provenance_turn_index;
        NEW.said_messages := COALESCE(said.source_message_ids[1:8], '{}');
        IF said.details ? 'since' OR NEW.since IS NULL AND (said.kind = 'correction' OR said.provenance_type = 2) THEN
            NEW.since := said.valid_from;
        END IF;
    END IF;
    RETURN NEW;
END $$;
UPDATE agent_data.user_facts SET source_memory_id = source_memory_id WHERE source_memory_id IS NOT NULL;

-- Standing wishes: a few of a user's memories, or none.
CREATE INDEX memory_wishes ON agent_data.memory_store (user_id) WHERE is_active AND kind = 'instruction';
-- What was contradicted or denied, not what another memory says better.
CREATE INDEX memory_ended ON agent_data.memory_store (user_id)
    WHERE status = 'invalidated' OR status = 'superseded' AND superseded_how <> 'merged';

-- As in 014, with what the user has asked for always. (The function of 014 stays for servers of the version before, which know no
-- further columns.)
--
--   p_wishes   most standing wishes, the last ones said
--
-- `fact_messages`: for each fact the messages that say it, as JSON. A wish is an instruction in force that was learned from
-- messages of the user's own: `provenance_type` 0 (stated), 2 (correction), 5 (instruction), and no source is known to have another
-- role. What came by the API has no source, whoever asked it to be written, and is none. `wish_messages` as `fact_messages`.
-- `doubted`: memories in doubt, which are said to be so; `due`: those of them that the user may be asked about.
CREATE FUNCTION agent_data.standing(
    p_tenant uuid, p_user uuid, p_pooled boolean, p_facts integer, p_floor integer, p_wishes integer,
    OUT profile text, OUT profile_note uuid,
    OUT fact_ids uuid[], OUT fact_notes uuid[], OUT fact_keys text[], OUT fact_many boolean[], OUT fact_values text[],
    OUT fact_memories uuid[], OUT fact_sessions uuid[], OUT fact_turns integer[],
    OUT fact_since timestamptz[], OUT fact_messages text,
    OUT due uuid[], OUT due_noted timestamptz[],
    OUT procedures uuid[], OUT procedure_details text[],
    OUT wish_ids uuid[], OUT wish_texts text[], OUT wish_sessions uuid[], OUT wish_turns integer[], OUT wish_messages text,
    OUT doubted uuid[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    SELECT t.profile, f.ids, f.notes, f.keys, f.many, f.facts, f.memories, f.sessions, f.turns, f.since, f.messages::text,
           m.doubted, m.habits, m.details, w.ids, w.texts, w.sessions, w.turns, w.messages::text
    INTO profile, fact_ids, fact_notes, fact_keys, fact_many, fact_values, fact_memories, fact_sessions, fact_turns, fact_since,
         fact_messages, doubted, procedures, procedure_details, wish_ids, wish_texts, wish_sessions, wish_turns, wish_messages
    FROM (
        SELECT array_agg(u.fact_id) AS ids, array_agg(u.note_id) AS notes, array_agg(u.fact_key) AS keys,
               array_agg(u.is_many) AS many, array_agg(u.fact_value #>> '{}') AS facts,
               array_agg(u.source_memory_id) AS memories, array_agg(u.said_session) AS sessions,
               array_agg(u.said_turn) AS turns, array_agg(u.since) AS since, json_agg(u.said_messages) AS messages
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
    CROSS JOIN (
        SELECT array_agg(u.memory_id ORDER BY u.said, u.memory_id) AS ids,
               array_agg(u.content_text ORDER BY u.said, u.memory_id) AS texts,
               array_agg(u.session_id ORDER BY u.said, u.memory_id) AS sessions,
               array_agg(u.provenance_turn_index ORDER BY u.said, u.memory_id) AS turns,
               json_agg(u.source_message_ids[1:8] ORDER BY u.said, u.memory_id) AS messages
        FROM (
            SELECT x.memory_id, x.content_text, x.session_id, x.provenance_turn_index, x.source_message_ids,
                   COALESCE(x.stated_at, x.created_at) AS said
            FROM agent_data.memory_store x
            WHERE p_pooled AND x.user_id = p_user AND x.is_active AND x.kind = 'instruction' AND x.tenant_id = p_tenant
              AND x.memory_scope = 1 AND x.provenance_type IN (0, 2, 5) AND x.source_message_ids <> '{}'
              AND (x.expires_at IS NULL OR x.expires_at > now())
              AND NOT EXISTS (
                  SELECT FROM jsonb_to_recordset(x.sources) AS s (message_id uuid, created_at timestamptz)
                  JOIN agent_data.conversation_history h
                      ON h.user_id = p_user AND h.message_id = s.message_id AND h.created_at = s.created_at
                  WHERE h.role <> 1)
              AND NOT EXISTS (
                  SELECT FROM agent_data.suppressions s WHERE s.user_id = p_user AND s.item_id = x.memory_id)
            ORDER BY said DESC, x.memory_id
            LIMIT p_wishes
        ) u
    ) w
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

-- What of these messages and memories is so no more: the item, the memory that ended, the words that it was learned from (NULL: the
-- item is that memory itself), since when, and the memory in force that took its place (NULL: none did). Not what is forgotten.
CREATE FUNCTION agent_data.ended_since(p_tenant uuid, p_user uuid, p_items uuid[])
RETURNS TABLE (item_id uuid, memory_id uuid, said text, quote text, ended_at timestamptz, heir_id uuid, heir text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE gone AS (
        SELECT m.memory_id, m.content_text, m.valid_to, m.superseded_by, m.sources, m.source_message_ids
        FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant
          AND (m.status = 'invalidated' OR m.status = 'superseded' AND m.superseded_how <> 'merged')
          AND m.kind NOT IN ('summary', 'pattern', 'procedure', 'entity_profile')
          AND (m.memory_id = ANY (p_items) OR m.source_message_ids && p_items)
    ), line AS (
        SELECT g.memory_id AS first, g.superseded_by AS next, 1 AS n FROM gone g WHERE g.superseded_by IS NOT NULL
        UNION ALL
        SELECT l.first, h.superseded_by, l.n + 1
        FROM line l JOIN agent_data.memory_store h ON h.user_id = p_user AND h.memory_id = l.next
        WHERE h.superseded_by IS NOT NULL AND l.n < 16  -- steps: as often as one thing is set right
    ), items AS (
        SELECT g.memory_id AS item, g.memory_id, NULL::text AS quote FROM gone g WHERE g.memory_id = ANY (p_items)
        UNION ALL
        SELECT i.item, g.memory_id,
               (SELECT s ->> 'quote' FROM jsonb_array_elements(g.sources) s WHERE s ->> 'message_id' = i.item::text LIMIT 1)
        FROM gone g CROSS JOIN LATERAL unnest(g.source_message_ids) AS i (item) WHERE i.item = ANY (p_items)
    )
    SELECT i.item, g.memory_id, g.content_text, i.quote, g.valid_to, h.memory_id, h.content_text
    FROM items i
    JOIN gone g ON g.memory_id = i.memory_id
    LEFT JOIN LATERAL (
        SELECT m.memory_id, m.content_text, m.source_message_ids FROM line l
        JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = l.next AND m.is_active
        WHERE l.first = g.memory_id LIMIT 1
    ) h ON true
    WHERE h.memory_id IS NULL OR i.item <> ALL (h.source_message_ids)  -- a message that says both says which is so
    ORDER BY i.item, g.memory_id;
END $$;

SELECT agent_data.give_functions('mneme_definer', ARRAY['standing', 'ended_since'], ARRAY['mneme_app']);
