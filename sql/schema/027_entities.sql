-- What a mention means (seed 004, "Entity Resolution"): names, aliases and what is spelled nearly so, in one round trip.

-- "Gai" of "Gai Media Entertainment": a range of bytes, whatever the collation.
CREATE INDEX entities_prefix ON agent_data.canonical_entities (user_id, tenant_id, name_norm text_pattern_ops);

-- Who sees what: a user's own things and those of the whole tenant (under the nil user); where both have one id, the user's own.
-- p_user NULL: nobody's, only the tenant's.
CREATE FUNCTION agent_data.entity_name(p_tenant uuid, p_user uuid, p_entity text, OUT entity_type text, OUT canonical_name text)
LANGUAGE sql STABLE AS $$
    SELECT x.entity_type, x.canonical_name FROM (
        SELECT 1 AS rank, e.entity_type, e.canonical_name FROM agent_data.canonical_entities e
        WHERE e.user_id = p_user AND e.tenant_id = p_tenant AND e.entity_id = p_entity
        UNION ALL
        SELECT 2, e.entity_type, e.canonical_name FROM agent_data.canonical_entities e
        WHERE e.user_id = '00000000-0000-0000-0000-000000000000' AND e.tenant_id = p_tenant AND e.entity_id = p_entity
    ) x ORDER BY x.rank LIMIT 1
$$;

--   p_grams   stretches of a text, as names are compared: looked up exactly
--   p_spans   those that look like a name: also looked for by trigrams (similarity above 0.7, seed 004), and as the first words
--             of a name, unless they hold, or are part of, what was found exactly
--   p_near    most rows of each way for each span
--
-- `stage`: 1 name, 2 alias, 3 nearly a name, 4 nearly an alias, 5 the first words of a name. `own`: the row is the user's.
CREATE FUNCTION agent_data.look_up_mentions(
    p_tenant uuid, p_user uuid, p_grams text[], p_spans text[], p_near integer
) RETURNS TABLE (
    stage smallint, mention text, entity_id text, entity_type text, canonical_name text, own boolean,
    alias_source text, confidence real, use_count integer, last_used_at timestamptz, similarity real
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan SET pg_trgm.similarity_threshold = 0.7 AS $$
DECLARE
    nil   CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    whose uuid[] := CASE WHEN p_user IS NULL OR p_user = nil THEN ARRAY[nil] ELSE ARRAY[p_user, nil] END;
    known text[] := '{}';
    spans text[];
    who   uuid;
BEGIN
    FOREACH who IN ARRAY whose LOOP
        FOR stage, mention, entity_id, entity_type, canonical_name, alias_source, confidence, use_count, last_used_at IN
            SELECT 1, e.name_norm, e.entity_id, e.entity_type, e.canonical_name, NULL::text, NULL::real, NULL::integer,
                   NULL::timestamptz
            FROM agent_data.canonical_entities e
            WHERE e.user_id = who AND e.tenant_id = p_tenant AND e.name_norm = ANY (p_grams)
            UNION ALL
            SELECT 2, a.alias_norm, a.entity_id, n.entity_type, n.canonical_name, a.alias_source, a.confidence, a.use_count,
                   a.last_used_at
            FROM agent_data.entity_aliases a
            CROSS JOIN LATERAL agent_data.entity_name(p_tenant, p_user, a.entity_id) n
            WHERE a.user_id = who AND a.tenant_id = p_tenant AND a.alias_norm = ANY (p_grams) AND n.entity_type IS NOT NULL
        LOOP
            own := who <> nil;
            known := known || mention;
            RETURN NEXT;
        END LOOP;
    END LOOP;

    -- Trigrams are ten times as dear as all of the above.
    SELECT array_agg(s.span) INTO spans FROM unnest(p_spans) s (span)
    WHERE NOT EXISTS (SELECT FROM unnest(known) k (norm)
                      WHERE strpos(' ' || s.span || ' ', ' ' || k.norm || ' ') + strpos(' ' || k.norm || ' ', ' ' || s.span || ' ') > 0);
    IF spans IS NULL THEN
        RETURN;
    END IF;
    FOREACH who IN ARRAY whose LOOP
        RETURN QUERY
        SELECT 3::smallint, s.span, e.entity_id, e.entity_type, e.canonical_name, who <> nil,
               NULL::text, NULL::real, NULL::integer, NULL::timestamptz, e.near
        FROM unnest(spans) s (span)
        CROSS JOIN LATERAL (
            SELECT x.entity_id, x.entity_type, x.canonical_name, public.similarity(x.name_norm, s.span) AS near
            FROM agent_data.canonical_entities x
            WHERE x.user_id = who AND x.tenant_id = p_tenant AND x.name_norm OPERATOR(public.%) s.span
            ORDER BY near DESC, x.entity_id LIMIT p_near
        ) e
        UNION ALL
        SELECT 4::smallint, s.span, a.entity_id, n.entity_type, n.canonical_name, who <> nil,
               NULL::text, NULL::real, NULL::integer, NULL::timestamptz, a.near
        FROM unnest(spans) s (span)
        CROSS JOIN LATERAL (
            SELECT x.entity_id, public.similarity(x.alias_norm, s.span) AS near
            FROM agent_data.entity_aliases x
            WHERE x.user_id = who AND x.tenant_id = p_tenant AND x.alias_norm OPERATOR(public.%) s.span
            ORDER BY near DESC, x.entity_id LIMIT p_near
        ) a
        CROSS JOIN LATERAL agent_data.entity_name(p_tenant, p_user, a.entity_id) n
        WHERE n.entity_type IS NOT NULL
        UNION ALL
        SELECT 5::smallint, s.span, e.entity_id, e.entity_type, e.canonical_name, who <> nil,
               NULL::text, NULL::real, NULL::integer, NULL::timestamptz, NULL::real
        FROM unnest(spans) s (span)
        CROSS JOIN LATERAL (
            SELECT x.entity_id, x.entity_type, x.canonical_name FROM agent_data.canonical_entities x
            WHERE x.user_id = who AND x.tenant_id = p_tenant
              AND x.name_norm ~>=~ (s.span || ' ') AND x.name_norm ~<~ (s.span || '!')  -- the byte after a space
            ORDER BY x.name_norm USING ~<~ LIMIT p_near
        ) e;
    END LOOP;
END $$;

-- Takes away aliases that nobody used for `p_idle`, and whose confidence has faded (by e^(−p_rate · days)) below `p_floor`; how many,
-- at most `p_limit`. What the business's own database calls a thing stays.
CREATE FUNCTION agent_data.forget_aliases(
    p_now timestamptz, p_limit integer, p_idle interval, p_rate double precision, p_floor double precision
) RETURNS bigint LANGUAGE sql AS $$
    WITH due AS (
        SELECT a.user_id, a.tenant_id, a.alias_norm, a.entity_id FROM agent_data.entity_aliases a
        WHERE a.last_used_at < p_now - p_idle
          AND NOT (a.alias_source = 'domain_db' AND a.user_id = '00000000-0000-0000-0000-000000000000')
          AND a.confidence * exp(-p_rate * extract(epoch FROM p_now - a.last_used_at) / 86400) < p_floor
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM agent_data.entity_aliases a USING due d
        WHERE a.user_id = d.user_id AND a.tenant_id = d.tenant_id AND a.alias_norm = d.alias_norm AND a.entity_id = d.entity_id
        RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

SELECT agent_data.give_functions('mneme_definer', ARRAY['look_up_mentions'], ARRAY['mneme_app']);
SELECT agent_data.give_functions('mneme_definer', ARRAY['entity_name']);
SELECT agent_data.give_functions('mneme_owner', ARRAY['forget_aliases']);
