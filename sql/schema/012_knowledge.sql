-- What is true (seed 004): which things there are, what they are called, how a business's own tables hang together, and which tables
-- they are.

-- Things that are spoken of (seed 004, table 2). `user_id` is nil for those of the whole tenant; a thing that a user alone knows is
-- that user's. A thing need not have a row anywhere. One that a user named is found by its name for that user alone.
CREATE TABLE agent_data.canonical_entities (
    user_id         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    tenant_id       uuid NOT NULL,
    entity_id       text NOT NULL,              -- "customer:gai_123": the type, and the key of its row
    entity_type     text NOT NULL,
    canonical_name  text NOT NULL,
    name_norm       text NOT NULL,              -- as mentions are compared (app/features/knowledge/mentions.py)
    external_ref    jsonb NOT NULL DEFAULT '{}', -- {"domain", "table", "column", "key"}; {}: no row
    properties      jsonb NOT NULL DEFAULT '{}', -- to tell it from others; never an authority
    matches_by_name boolean NOT NULL DEFAULT true, -- false: a user named it, who has a row of their own
    last_referenced timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, tenant_id, entity_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('canonical_entities', current_setting('mneme.hash_partitions')::int);
CREATE INDEX entities_type ON agent_data.canonical_entities (user_id, tenant_id, entity_type, entity_id);
CREATE INDEX entities_trigram ON agent_data.canonical_entities USING gin (tenant_id, name_norm gin_trgm_ops);

INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('resolution', '{"exact": 1.0, "alias": 0.95, "fuzzy": 0.7, "fuzzy_span": 0.15, "coreference": 0.6, "choice": 0.85, "domain_key": 0.95, "domain_name": 0.8, "alias_gain": 1.02, "alias_most": 0.98}',
     'How sure each stage of resolution is, the factor by which each use makes an alias surer, and up to where (seed 004).');

-- What things are called (seed 004, table 3). `user_id` nil: by everybody of the tenant.
CREATE TABLE agent_data.entity_aliases (
    user_id      uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    tenant_id    uuid NOT NULL,
    alias_norm   text NOT NULL,
    entity_id    text NOT NULL,
    alias_id     uuid NOT NULL DEFAULT gen_random_uuid(),
    alias_text   text NOT NULL,
    alias_source text NOT NULL CHECK (alias_source IN ('exact', 'fuzzy', 'learned', 'user_stated', 'domain_db')),
    confidence   real NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    use_count    integer NOT NULL DEFAULT 1,
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, tenant_id, alias_norm, entity_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('entity_aliases', current_setting('mneme.hash_partitions')::int);
CREATE INDEX aliases_entity ON agent_data.entity_aliases (user_id, tenant_id, entity_id);
CREATE INDEX aliases_trigram ON agent_data.entity_aliases USING gin (tenant_id, alias_norm gin_trgm_ops);

-- The ontology of a tenant's domain, as it was loaded. `version` moves with every load.
CREATE TABLE agent_data.ontologies (
    tenant_id uuid NOT NULL,
    domain    text NOT NULL,
    version   bigint NOT NULL DEFAULT 1,
    source    text NOT NULL,                    -- the YAML
    loaded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, domain)
);

-- Types of things and the tables that they stand in: `spec` as app/features/knowledge/ontology.py writes it.
CREATE TABLE agent_data.ontology_types (
    tenant_id   uuid NOT NULL,
    entity_type text NOT NULL,
    domain      text NOT NULL,
    spec        jsonb NOT NULL,
    PRIMARY KEY (tenant_id, entity_type),
    FOREIGN KEY (tenant_id, domain) REFERENCES agent_data.ontologies ON DELETE CASCADE
);

-- How they relate (seed 004, table 8).
CREATE TABLE agent_data.domain_ontology (
    relation_id        bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id          uuid NOT NULL,
    domain             text NOT NULL,
    from_entity_type   text NOT NULL,
    relation_type      text NOT NULL,
    to_entity_type     text NOT NULL,
    cardinality        text NOT NULL CHECK (cardinality IN ('one_to_one', 'one_to_many', 'many_to_one', 'many_to_many')),
    relation_semantics text NOT NULL,
    join_spec          jsonb NOT NULL,          -- {"from_table", "to_table", "join_on", "columns": [[from, to], …]}
    constraints        jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, relation_id),
    UNIQUE (tenant_id, from_entity_type, relation_type, to_entity_type),
    FOREIGN KEY (tenant_id, domain) REFERENCES agent_data.ontologies ON DELETE CASCADE
);
CREATE INDEX ontology_to ON agent_data.domain_ontology (tenant_id, to_entity_type);
CREATE INDEX memory_conflicts_entity ON agent_data.memory_conflicts (user_id, entity_id, created_at DESC)
    WHERE entity_id IS NOT NULL;

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
-- A tenant's entity that comes from one user's words is found by its exact identifier alone, so that it does not change what names mean
-- to other users.
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
            WHERE e.user_id = who AND e.tenant_id = p_tenant AND e.name_norm = ANY (p_grams) AND e.matches_by_name
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
            WHERE x.user_id = who AND x.tenant_id = p_tenant AND x.name_norm OPERATOR(public.%) s.span AND x.matches_by_name
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
              AND (who <> nil OR x.alias_source <> 'domain_db')
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
              AND x.matches_by_name
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
CREATE INDEX memory_conflicts_tenant ON agent_data.memory_conflicts (tenant_id, created_at DESC, conflict_id DESC);
CREATE INDEX memory_conflicts_id ON agent_data.memory_conflicts (conflict_id);

-- What is not in doubt is in no open contradiction, either.
CREATE FUNCTION agent_data.out_of_conflict() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    NEW.details := NEW.details - 'in_conflict';
    RETURN NEW;
END $$;

CREATE TRIGGER out_of_conflict BEFORE UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status <> 'aging' AND OLD.status = 'aging' AND NEW.details ? 'in_conflict')
    EXECUTE FUNCTION agent_data.out_of_conflict();

-- A contradiction that was open is decided by what becomes of its memory: the user confirmed it (by an answer, or by saying it
-- again), or it is not in force any more.
CREATE FUNCTION agent_data.decide_conflicts() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    ended constant boolean := NEW.status <> 'active';
BEGIN
    UPDATE agent_data.memory_conflicts c SET
        resolved_at = NEW.updated_at,
        resolution_outcome = jsonb_strip_nulls(jsonb_build_object(
            'action', CASE WHEN ended THEN 'supersede_memory' ELSE 'keep_memory' END,
            'memory_updates', jsonb_build_array(jsonb_build_object('memory_id', NEW.memory_id, 'new_status', NEW.status)),
            'user_response', CASE WHEN NEW.status = 'active' THEN 'yes'
                                  WHEN NEW.status = 'superseded' AND NEW.superseded_how = 'corrected' THEN 'corrected'
                                  WHEN NEW.status = 'invalidated' AND NEW.confidence = 0 THEN 'no' END))
    WHERE c.user_id = NEW.user_id AND c.tenant_id = NEW.tenant_id AND c.resolved_at IS NULL
      AND NEW.memory_id = ANY (c.memory_ids)
      -- Of two that both stand one may be confirmed, and the other is as right as before.
      AND (ended OR c.resolution_strategy = 'ask_user');
    RETURN NULL;
END $$;

CREATE TRIGGER decide_conflicts AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (OLD.status = 'aging' AND NEW.status = 'active'
                       OR OLD.status IN ('active', 'aging') AND NEW.status IN ('superseded', 'invalidated', 'expired'))
    EXECUTE FUNCTION agent_data.decide_conflicts();

-- Whose words are forgotten, of that nobody learns either what it was about (`forget_said` blanks the rest).
CREATE FUNCTION agent_data.conflict_blanked() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    NEW.entity_id := NULL;
    RETURN NEW;
END $$;

CREATE TRIGGER blanked BEFORE UPDATE OF conflict_data ON agent_data.memory_conflicts
    FOR EACH ROW WHEN (NEW.conflict_data = '{}') EXECUTE FUNCTION agent_data.conflict_blanked();

-- The UI cards that were shown with answers (seed 003, table 4), so that "the second card from three questions ago" is found.

-- Two columns more than the seed's place of a card: `question` counts what the user asked, not messages, up to this answer; and
-- `sibling` tells answers to the same question apart.
CREATE TABLE agent_data.ui_cards_shown (
    card_id           uuid NOT NULL,
    user_id           uuid NOT NULL,
    tenant_id         uuid NOT NULL,
    session_id        uuid NOT NULL,
    turn_index        integer NOT NULL,        -- of the answer it was shown with, as in conversation_history
    sibling           smallint NOT NULL DEFAULT 0,
    message_id        uuid NOT NULL,           -- that answer
    question          integer NOT NULL,        -- 1: the first one; 0: shown before anything was asked
    card_type         text NOT NULL,
    card_data         jsonb NOT NULL,
    display_order     integer NOT NULL CHECK (display_order > 0),
    source            text NOT NULL CHECK (source IN ('api', 'tool')),
    tool_call_id      text,                    -- with source_message_id: the tool result that it was taken from
    source_message_id uuid,
    token_count       integer NOT NULL,        -- of its data as compact JSON
    shown_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, card_id),
    UNIQUE (user_id, session_id, turn_index, sibling, display_order)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('ui_cards_shown', current_setting('mneme.hash_partitions')::int);
CREATE INDEX cards_message ON agent_data.ui_cards_shown (user_id, message_id);
CREATE INDEX cards_source ON agent_data.ui_cards_shown (user_id, source_message_id) WHERE source_message_id IS NOT NULL;
CREATE INDEX cards_data ON agent_data.ui_cards_shown USING gin (user_id, card_data jsonb_path_ops);

-- The cards of a user, of all sessions, that hold `p_data` and are of a type (NULL: any), newest first, after (p_at, p_card).
-- Row-level security would keep @> from its index.
CREATE FUNCTION agent_data.find_cards(
    p_tenant uuid, p_user uuid, p_type text, p_data jsonb, p_at timestamptz, p_card uuid, p_limit integer
) RETURNS SETOF agent_data.ui_cards_shown
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT c.* FROM agent_data.ui_cards_shown c
    WHERE c.tenant_id = p_tenant AND c.user_id = p_user AND (p_type IS NULL OR c.card_type = p_type) AND c.card_data @> p_data
      AND (p_at IS NULL OR (c.shown_at, c.card_id) < (p_at, p_card))
    ORDER BY c.shown_at DESC, c.card_id DESC
    LIMIT p_limit
$$;
