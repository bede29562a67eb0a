-- Triples with a life of their own (seed 004): wordings of one memory, contradictions between two, and forgetting that reaches
-- both. `subject_entity_id`, `predicate`, `predicate_type` and `object_value` stand in `memory_store` itself.

-- How a superseded memory was superseded: 'merged' (its heir says the same better, and its words lead there still),
-- 'corrected', 'conflict'. `stated_at`: when it was last said, by which contradictions are decided.
ALTER TABLE agent_data.memory_store
    ADD COLUMN superseded_how text CHECK (superseded_how IN ('merged', 'corrected', 'conflict')),
    ADD COLUMN stated_at timestamptz;
CREATE INDEX memory_wordings ON agent_data.memory_store (user_id, content_hash, dedup_scope) WHERE superseded_how = 'merged';
CREATE INDEX memory_claims ON agent_data.memory_store (user_id, subject_entity_id, predicate)
    WHERE subject_entity_id IS NOT NULL;

-- Contradictions (seed 004, table 9): what was said, and by what it was decided. Without `resolved_at` both stand, and nobody
-- has decided.
CREATE TABLE agent_data.memory_conflicts (
    conflict_id         uuid NOT NULL,
    user_id             uuid NOT NULL,
    tenant_id           uuid NOT NULL,
    dedup_scope         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    session_id          uuid,
    detected_at_message uuid,
    conflict_type       text NOT NULL CHECK (conflict_type IN ('memory_vs_memory', 'memory_vs_db', 'temporal')),
    conflict_data       jsonb NOT NULL,
    memory_ids          uuid[] NOT NULL DEFAULT '{}',
    resolution_strategy text CHECK (resolution_strategy IN (
        'trust_db', 'trust_recent', 'trust_authority', 'trust_confidence', 'ask_user', 'both')),
    resolution_outcome  jsonb,
    resolved_at         timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, conflict_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_conflicts', current_setting('mneme.hash_partitions')::int);
CREATE INDEX memory_conflicts_open ON agent_data.memory_conflicts (user_id, created_at) WHERE resolved_at IS NULL;
CREATE INDEX memory_conflicts_memories ON agent_data.memory_conflicts USING gin (memory_ids);

-- HMAC-SHA256 (RFC 2104) of a content hash, with the key of what was forgotten.
CREATE FUNCTION agent_data.content_hmac(p_hash bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    key   bytea := decode((SELECT c.value #>> '{}' FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'), 'hex');
    inner_pad bytea := ''::bytea;
    outer_pad bytea := ''::bytea;
    byte  integer;
BEGIN
    FOR i IN 0..63 LOOP  -- the block of SHA-256 has 64 bytes; the key has 32
        byte := CASE WHEN i < length(key) THEN get_byte(key, i) ELSE 0 END;
        inner_pad := inner_pad || set_byte('\x00'::bytea, 0, byte # 54);
        outer_pad := outer_pad || set_byte('\x00'::bytea, 0, byte # 92);
    END LOOP;
    RETURN sha256(outer_pad || sha256(inner_pad || p_hash));
END $$;

-- Messages that a memory was learned from, by its sources: (id, hash of the text, length of the text). The sources' own times
-- say which months to open.
CREATE FUNCTION agent_data.source_messages(p_user uuid, p_sources jsonb)
RETURNS TABLE (message_id uuid, content_hash bytea, length integer)
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT h.message_id, h.content_hash, length(h.content)
    FROM jsonb_to_recordset(p_sources) AS s (message_id uuid, created_at timestamptz)
    JOIN agent_data.conversation_history h
        ON h.user_id = p_user AND h.message_id = s.message_id AND h.created_at = s.created_at
    WHERE s.message_id IS NOT NULL AND s.created_at IS NOT NULL
$$;

-- Messages that were hidden because what they say had been superseded come back, but for those that say something else which
-- still is; the application may take away no other suppression.
CREATE FUNCTION agent_data.resurface(p_tenant uuid, p_user uuid, p_messages uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    DELETE FROM agent_data.suppressions x
    WHERE x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = ANY (p_messages) AND x.reason = 'superseded'
      AND NOT EXISTS (
          SELECT FROM agent_data.memory_store o
          WHERE o.user_id = p_user AND o.source_message_ids @> ARRAY[x.item_id]
            AND o.kind NOT IN ('summary', 'pattern', 'procedure')
            AND (o.status = 'invalidated' OR o.status = 'superseded' AND o.superseded_how IN ('corrected', 'conflict')))
$$;

-- What follows when a memory ends.
--
-- superseded by another claim, or invalidated: messages that said it do not surface as if it were so still; long ones do, for
--     they say much else ("superseded": they were said, and stay in their own conversation). Messages that also said what took
--     its place stay. When it is restored, they come back.
-- forgotten: so are all its other wordings, the contradictions it took part in, and the messages that said it, whose hashes
--     remain, keyed: sent again, in another session, they are neither found nor learned from.
-- Of what was drawn together from many messages none says it: they stay, whatever becomes of it.
CREATE FUNCTION agent_data.memory_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    -- Characters up to which a message is about that one thing: two sentences. Of longer ones the memory is a small part.
    brief constant integer := 240;
    drawn constant boolean := NEW.kind IN ('summary', 'pattern', 'procedure');
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'forgotten' THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)
        SELECT DISTINCT ON (s.message_id) NEW.user_id, NEW.tenant_id, s.message_id, 'forgotten',
               CASE WHEN s.length > 7 THEN agent_data.content_hmac(s.content_hash) END  -- "yes" and "thanks" stand for anything
        FROM agent_data.source_messages(NEW.user_id, OLD.sources) s
        WHERE NOT drawn
        ON CONFLICT (user_id, item_id) DO UPDATE SET reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac;
        -- No search may find them: a vector would only wait in its space, and keep that from being dropped.
        DELETE FROM agent_data.embeddings e USING agent_data.source_messages(NEW.user_id, OLD.sources) s
        WHERE NOT drawn AND e.user_id = NEW.user_id AND e.item_id = s.message_id;
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)
        SELECT v.user_id, v.tenant_id, v.memory_id, 'forgotten', agent_data.content_hmac(v.content_hash)
        FROM agent_data.memory_store v
        WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged'
          -- What was drawn is drawn anew, unless it was itself what the user forgot.
          AND v.content_hash <> '' AND NOT drawn
        ON CONFLICT (user_id, item_id) DO UPDATE SET reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac;
        DELETE FROM agent_data.embeddings e USING agent_data.memory_store v
        WHERE e.user_id = NEW.user_id AND e.item_id = v.memory_id
          AND v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged';
        UPDATE agent_data.memory_events e SET
            before = CASE WHEN e.before IS NULL THEN NULL ELSE '{"text": ""}'::jsonb END,
            after = CASE WHEN e.after IS NULL THEN NULL ELSE '{"text": ""}'::jsonb END
        FROM agent_data.memory_store v
        WHERE e.user_id = NEW.user_id AND e.memory_id = v.memory_id
          AND v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged';
        UPDATE agent_data.memory_conflicts c SET conflict_data = '{}', resolution_outcome = '{}',
                                                 resolved_at = COALESCE(c.resolved_at, NEW.updated_at)
        WHERE c.user_id = NEW.user_id AND c.memory_ids @> ARRAY[NEW.memory_id];
        UPDATE agent_data.memory_store v SET
            status = 'forgotten', content_text = '', content_hash = '', token_count = 0, sources = '[]',
            confidence_factors = '{}', subject_entity_id = NULL, predicate = NULL, predicate_type = NULL, object_value = NULL,
            entity_ids = '{}', tags = '{}', details = '{}', metadata = '{}', updated_at = NEW.updated_at
        WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged'
          AND v.status <> 'forgotten';
    ELSIF NEW.status = 'invalidated' OR NEW.status = 'superseded' AND NEW.superseded_how IN ('corrected', 'conflict') THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
        SELECT NEW.user_id, NEW.tenant_id, s.message_id, 'superseded'
        FROM agent_data.source_messages(NEW.user_id, NEW.sources) s
        WHERE NOT drawn AND s.length <= brief AND NOT EXISTS (
            SELECT FROM agent_data.memory_store h
            WHERE h.user_id = NEW.user_id AND h.memory_id = NEW.superseded_by AND h.source_message_ids @> ARRAY[s.message_id])
        ON CONFLICT DO NOTHING;
    ELSIF NEW.status = 'active' AND OLD.status IN ('superseded', 'invalidated') THEN
        PERFORM agent_data.resurface(NEW.tenant_id, NEW.user_id, NEW.source_message_ids);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ended AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.memory_ended();

-- A memory that comes back is superseded by nothing; one whose text was changed by hand is none that its other wordings mean, nor
-- what its triple says.
CREATE FUNCTION agent_data.memory_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    IF NEW.status <> 'superseded' AND NEW.status <> 'forgotten' THEN
        NEW.superseded_how := NULL;
    END IF;
    IF NEW.content_text <> OLD.content_text AND NEW.status IN ('active', 'aging') THEN
        UPDATE agent_data.memory_store v SET superseded_how = 'corrected'
        WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged';
        IF NEW.object_value IS NOT DISTINCT FROM OLD.object_value THEN
            NEW.subject_entity_id := NULL;
            NEW.predicate := NULL;
            NEW.predicate_type := NULL;
            NEW.object_value := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER changed BEFORE UPDATE OF status, content_text ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.memory_changed();

-- What lost a contradiction before it was stored, because what ended it had been learned first.
CREATE TRIGGER ended_before AFTER INSERT ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status = 'superseded' AND NEW.superseded_how IN ('corrected', 'conflict'))
    EXECUTE FUNCTION agent_data.memory_ended();

SELECT agent_data.protect_tables();
GRANT DELETE ON agent_data.suppressions TO mneme_definer;
ALTER FUNCTION agent_data.resurface(uuid, uuid, uuid[]) OWNER TO mneme_definer;
REVOKE ALL ON FUNCTION agent_data.resurface(uuid, uuid, uuid[]) FROM PUBLIC;
-- The schedule ends memories as the owner, and a deleted message brings some back as the eraser.
GRANT EXECUTE ON FUNCTION agent_data.resurface(uuid, uuid, uuid[]) TO mneme_app, mneme_owner, mneme_eraser;
