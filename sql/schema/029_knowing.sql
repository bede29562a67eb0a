-- What a request asks before it knows whether there is anything to know, and what memories say of things.

-- Whether the tenant has things, or this user of his own. (By user: the table is partitioned so.)
CREATE FUNCTION agent_data.has_things(p_tenant uuid, p_user uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM agent_data.canonical_entities e
                   WHERE e.user_id = '00000000-0000-0000-0000-000000000000' AND e.tenant_id = p_tenant)
        OR EXISTS (SELECT FROM agent_data.canonical_entities e WHERE e.user_id = p_user AND e.tenant_id = p_tenant);
END $$;

-- What memories say of things, as triples; nothing of those without one, nor of those whose words are gone. `stated_at`: when it was
-- learned, or confirmed.
CREATE FUNCTION agent_data.memory_claims(p_tenant uuid, p_user uuid, p_memories uuid[])
RETURNS TABLE (memory_id uuid, entity_id text, predicate text, value text, stated_at timestamptz, confidence real)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT m.memory_id, m.subject_entity_id, m.predicate, m.object_value, COALESCE(m.last_validated_at, m.created_at),
           m.confidence
    FROM agent_data.memory_store m
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.status <> 'forgotten'
      AND m.subject_entity_id IS NOT NULL AND m.predicate IS NOT NULL AND m.object_value IS NOT NULL
$$;

SELECT agent_data.give_functions('mneme_definer', ARRAY['has_things', 'memory_claims'], ARRAY['mneme_app']);
