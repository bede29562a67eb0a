-- What was chosen by its place is fetched in one statement: the texts, how sure each memory is, and what of them is so no more.

-- As `fetch_items` of 006, which stays for servers of the version before. New: `reinforcements`, how often a memory was said again, and
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

SELECT agent_data.give_functions('mneme_definer', ARRAY['fetch_chosen'], ARRAY['mneme_app']);
