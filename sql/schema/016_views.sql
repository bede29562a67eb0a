-- The seeds as views, with the columns that their own example queries use: for reports, and for tools that were written for
-- them. docs/reference/views.md says what is what.
--
-- They are read-only, and `security_invoker`: whoever reads them sees what the tables show to that role, under row-level security
-- one tenant. Ids are Mneme's (uuid, where the seeds have bigserial). `seed_003.….user_id` is Mneme's own id of a user, with the
-- client's beside it (`external_id`); `seed_004.….user_id` is text there, and so the client's own.
CREATE SCHEMA seed_003 AUTHORIZATION mneme_owner;
CREATE SCHEMA seed_004 AUTHORIZATION mneme_owner;

-- The embedding space whose vectors the views show: the one named by `SET mneme.space`, else the newest.
CREATE FUNCTION agent_data.shown_space() RETURNS smallint LANGUAGE sql STABLE AS $$
    SELECT s.space FROM agent_data.embedding_spaces s
    WHERE s.name = NULLIF(current_setting('mneme.space', true), '') OR NULLIF(current_setting('mneme.space', true), '') IS NULL
    ORDER BY s.space DESC LIMIT 1
$$;

-- Things as the seed writes them beside an episode, those that were resolved with their mentions (p_things); a user's own name for
-- one goes before the tenant's.
CREATE FUNCTION agent_data.shown_entities(p_tenant uuid, p_user uuid, p_ids text[], p_things jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT COALESCE(jsonb_agg(jsonb_build_object(
        'canonical_id', i.id, 'canonical_name', COALESCE(c.canonical_name, i.id), 'type', c.entity_type) || COALESCE((
            SELECT jsonb_build_object('mentions', t.thing -> 'mentions') FROM jsonb_array_elements(p_things) AS t (thing)
            WHERE t.thing ->> 'canonical_id' = i.id LIMIT 1), '{}') ORDER BY i.n), '[]')
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
    LEFT JOIN LATERAL (
        SELECT k.canonical_name, k.entity_type FROM agent_data.canonical_entities k
        WHERE k.user_id IN (p_user, '00000000-0000-0000-0000-000000000000') AND k.tenant_id = p_tenant AND k.entity_id = i.id
        ORDER BY k.user_id DESC LIMIT 1
    ) c ON true
$$;

-- --- seed 003: sessions and their replay, memories and facts -------------------------------------------------------------
CREATE VIEW seed_003.users WITH (security_invoker = true) AS
SELECT u.user_id, u.external_id, u.name, u.email, u.metadata, u.created_at, u.last_active
FROM agent_data.users u;

-- Through `routes`, which leads from the id of a session to its user, and so to its partition.
CREATE VIEW seed_003.sessions WITH (security_invoker = true) AS
SELECT r.id AS session_id, s.user_id, s.external_id, s.session_type, s.metadata, s.created_at AS started_at, s.ended_at,
       s.ended_at IS NULL AND s.status = 1 AS is_active
FROM agent_data.routes r
JOIN agent_data.sessions s ON s.user_id = r.user_id AND s.session_id = r.id
WHERE r.kind = 'session';

-- `turn_number` counts questions from 1, as cards do (0: said before the first), so that "three questions ago" is
-- MAX(turn_number) - 3; `turn_index` is the place of a message. What was forgotten is not shown.
CREATE VIEW seed_003.session_messages WITH (security_invoker = true) AS
SELECT m.message_id, r.id AS session_id, r.user_id, m.turn_number, m.turn_index, m.sibling, n.name AS role, m.content, m.metadata,
       m.created_at
FROM agent_data.routes r
CROSS JOIN LATERAL (
    SELECT h.message_id, h.turn_index, h.sibling, h.role, h.content, h.metadata, h.created_at,
           (count(*) FILTER (WHERE h.role = 1 AND h.sibling = 0)
                OVER (ORDER BY h.turn_index RANGE UNBOUNDED PRECEDING))::integer AS turn_number
    FROM agent_data.conversation_history h
    WHERE h.user_id = r.user_id AND h.session_id = r.id AND h.turn_index > 0
) m
JOIN agent_data.enumerations n ON n.enumeration = 'role' AND n.value = m.role
WHERE r.kind = 'session'
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = r.user_id AND x.item_id = m.message_id AND x.reason NOT IN ('superseded', 'resent'));

CREATE VIEW seed_003.ui_cards_shown WITH (security_invoker = true) AS
SELECT c.card_id, r.id AS session_id, c.user_id, c.question AS turn_number, c.turn_index, c.card_type, c.card_data,
       c.display_order, c.source, c.shown_at
FROM agent_data.routes r
JOIN agent_data.ui_cards_shown c ON c.user_id = r.user_id AND c.session_id = r.id
WHERE r.kind = 'session';

-- What is in force. `relevance_score` is a memory's importance, 0..1.
CREATE VIEW seed_003.user_memories WITH (security_invoker = true) AS
SELECT m.memory_id, m.user_id, m.content_text AS memory_text,
       (SELECT e.vector::vector FROM agent_data.embeddings e
        WHERE e.user_id = m.user_id AND e.item_id = m.memory_id AND e.space = (SELECT agent_data.shown_space())) AS embedding,
       m.kind AS memory_type, m.metadata, m.importance AS relevance_score, m.created_at, m.updated_at
FROM agent_data.memory_store m
WHERE m.is_active AND (m.expires_at IS NULL OR m.expires_at > now());

CREATE VIEW seed_003.user_facts WITH (security_invoker = true) AS
SELECT f.fact_id, f.user_id, f.category, f.fact_key, f.fact_value, f.confidence_score, f.source_memory_id, f.first_mentioned,
       f.last_updated
FROM agent_data.user_facts f;

-- --- seed 004: events, what they are about, what was learned -------------------------------------------------------------
CREATE VIEW seed_004.chat_events WITH (security_invoker = true) AS
SELECT h.message_id AS event_id, h.session_id, u.external_id AS user_id, n.name AS role, h.content,
       encode(h.content_hash, 'hex') AS content_hash, h.metadata, h.created_at
FROM agent_data.users u
JOIN agent_data.conversation_history h ON h.user_id = u.user_id
JOIN agent_data.enumerations n ON n.enumeration = 'role' AND n.value = h.role
WHERE h.turn_index > 0
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = u.user_id AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'));

-- `user_id` NULL: known to the whole tenant.
CREATE VIEW seed_004.canonical_entities WITH (security_invoker = true) AS
SELECT e.entity_id, e.entity_type, e.canonical_name, e.external_ref, e.properties, e.last_referenced, e.created_at, e.updated_at,
       u.external_id AS user_id
FROM agent_data.canonical_entities e
LEFT JOIN agent_data.users u ON u.user_id = e.user_id;

CREATE VIEW seed_004.entity_aliases WITH (security_invoker = true) AS
SELECT a.alias_id, a.entity_id AS canonical_entity_id, a.alias_text, a.alias_source, u.external_id AS user_id, a.confidence,
       a.use_count, a.metadata, a.created_at
FROM agent_data.entity_aliases a
LEFT JOIN agent_data.users u ON u.user_id = a.user_id;

-- Of every answered exchange one, by its question; and the memories of what happened. What was forgotten has no words, and is not
-- shown. Importance of an exchange: the seed's two examples (0.6 of a question, 0.7 of a statement), and its default.
CREATE VIEW seed_004.episodic_memories WITH (security_invoker = true) AS
SELECT e.message_id AS memory_id, u.external_id AS user_id, e.session_id,
       CASE e.event_type WHEN 'question' THEN 'User asked: ' WHEN 'request' THEN 'User requested: '
           WHEN 'statement' THEN 'User stated: ' WHEN 'correction' THEN 'User corrected: '
           WHEN 'confirmation' THEN 'User confirmed: ' ELSE 'User said: ' END || h.content AS summary,
       e.event_type, ARRAY[e.message_id] AS source_event_ids,
       agent_data.shown_entities(e.tenant_id, e.user_id, e.entities, e.things) AS entities, e.domain_facts AS domain_facts_ref,
       e.domain_facts AS domain_facts_referenced,
       (CASE e.event_type WHEN 'question' THEN 0.6 WHEN 'statement' THEN 0.7 ELSE 0.5 END)::real AS importance,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = e.user_id AND v.item_id = e.message_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       e.at AS created_at
FROM agent_data.users u
JOIN agent_data.episodes e ON e.user_id = u.user_id
JOIN agent_data.conversation_history h ON h.user_id = u.user_id AND h.message_id = e.message_id AND h.created_at = e.at
WHERE h.content IS NOT NULL
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = u.user_id AND x.item_id = e.message_id AND x.reason NOT IN ('superseded', 'resent'))
UNION ALL
SELECT m.memory_id, u.external_id, m.session_id, m.content_text, COALESCE(m.details ->> 'event_type', 'statement'),
       m.source_message_ids, agent_data.shown_entities(m.tenant_id, m.user_id, m.entity_ids, '[]'),
       COALESCE(m.details -> 'domain_facts', '{}'), COALESCE(m.details -> 'domain_facts', '{}'), m.importance,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())),
       m.created_at
FROM agent_data.users u
JOIN agent_data.memory_store m ON m.user_id = u.user_id
WHERE agent_data.memory_type(m.kind) = 'episodic' AND m.is_active AND (m.expires_at IS NULL OR m.expires_at > now());

-- Facts, preferences, instructions, corrections and patterns, whatever became of them (but for those that were forgotten). A memory
-- that is no triple has its kind as predicate, and its words as value.
CREATE VIEW seed_004.semantic_memories WITH (security_invoker = true) AS
SELECT m.memory_id, u.external_id AS user_id, COALESCE(m.subject_entity_id, 'user') AS subject_entity_id,
       COALESCE(m.predicate, m.kind) AS predicate,
       COALESCE(m.predicate_type, CASE m.kind WHEN 'preference' THEN 'preference' WHEN 'instruction' THEN 'requirement'
           WHEN 'pattern' THEN 'observation' ELSE 'attribute' END) AS predicate_type,
       CASE WHEN m.object_value ~ '^-?[0-9]{1,15}(\.[0-9]{1,15})?$'
            THEN jsonb_build_object('type', 'numeric', 'value', m.object_value::numeric)
            WHEN m.object_value ~* ('^-?[0-9]{1,15}(\.[0-9]{1,15})? ([mck]?m|k?g|m?l|%|feet|ft|inch(es)?|kilos?|pounds?|lbs?|miles?'
                '|(second|minute|hour|day|week|month|year|euro|dollar|litre|liter|percent)s?|eur|usd|gbp)$')
            THEN jsonb_build_object('type', 'numeric', 'value', split_part(m.object_value, ' ', 1)::numeric,
                                    'unit', split_part(m.object_value, ' ', 2))
            ELSE jsonb_build_object('type', CASE WHEN m.object_value IS NULL THEN 'text' ELSE 'string' END,
                                    'value', COALESCE(m.object_value, m.content_text)) END AS object_value,
       m.content_text, m.confidence, m.confidence_factors, m.reinforcement_count, m.last_validated_at,
       CASE WHEN m.provenance_type = 2 THEN 'correction' WHEN m.details ? 'key' THEN 'consolidation'
            WHEN m.provenance_type = 1 THEN 'inference' ELSE 'episodic' END AS source_type,
       m.provenance_turn_id AS source_memory_id, m.provenance_turn_id AS extracted_from_event_id,
       CASE WHEN m.is_active AND m.expires_at <= now() THEN 'expired' ELSE m.status END AS status,
       m.superseded_by AS superseded_by_memory_id,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       m.importance, m.created_at, m.updated_at
FROM agent_data.users u
JOIN agent_data.memory_store m ON m.user_id = u.user_id
WHERE agent_data.memory_type(m.kind) = 'semantic' AND m.status <> 'forgotten';

CREATE VIEW seed_004.procedural_memories WITH (security_invoker = true) AS
SELECT m.memory_id, u.external_id AS user_id, COALESCE(m.details #>> '{trigger,pattern}', m.content_text) AS trigger_pattern,
       COALESCE(m.details -> 'trigger', '{}') AS trigger_features, m.content_text AS action_heuristic,
       COALESCE(m.details -> 'action', '{}') AS action_structure,
       CASE WHEN jsonb_typeof(m.details -> 'observed_count') = 'number' THEN (m.details ->> 'observed_count')::numeric::integer
            ELSE 1 END AS observed_count,
       m.confidence,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       m.created_at, m.updated_at
FROM agent_data.users u
JOIN agent_data.memory_store m ON m.user_id = u.user_id
WHERE m.kind = 'procedure' AND m.is_active AND (m.expires_at IS NULL OR m.expires_at > now());

-- `supersedes_summary_id`: the summary that this one took the place of.
CREATE VIEW seed_004.memory_summaries WITH (security_invoker = true) AS
SELECT m.memory_id AS summary_id, u.external_id AS user_id,
       COALESCE(m.details ->> 'scope_type', CASE m.kind WHEN 'entity_profile' THEN 'entity' ELSE 'topic' END) AS scope_type,
       m.details ->> 'scope_identifier' AS scope_identifier, m.content_text AS summary_text,
       COALESCE(m.details -> 'key_facts', '{}') AS key_facts, COALESCE(m.details -> 'source_data', '{}') AS source_data,
       (SELECT o.memory_id FROM agent_data.memory_store o WHERE o.user_id = m.user_id AND o.superseded_by = m.memory_id
        ORDER BY o.created_at DESC LIMIT 1) AS supersedes_summary_id,
       m.confidence,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       m.created_at
FROM agent_data.users u
JOIN agent_data.memory_store m ON m.user_id = u.user_id
WHERE agent_data.memory_type(m.kind) = 'summary' AND m.is_active AND (m.expires_at IS NULL OR m.expires_at > now());

CREATE VIEW seed_004.domain_ontology WITH (security_invoker = true) AS
SELECT o.relation_id, o.domain, o.from_entity_type, o.relation_type, o.to_entity_type, o.cardinality, o.relation_semantics,
       o.join_spec, o.constraints, o.created_at
FROM agent_data.domain_ontology o;

CREATE VIEW seed_004.memory_conflicts WITH (security_invoker = true) AS
SELECT c.conflict_id, u.external_id AS user_id, c.detected_at_message AS detected_at_event_id, c.entity_id, c.conflict_type,
       c.conflict_data, c.resolution_strategy, c.resolution_outcome, c.resolved_at, c.created_at
FROM agent_data.users u
JOIN agent_data.memory_conflicts c ON c.user_id = u.user_id;

-- Without what Mneme keeps to itself.
CREATE VIEW seed_004.system_config WITH (security_invoker = true) AS
SELECT c.key AS config_key, c.value AS config_value, c.updated_at
FROM agent_data.system_config c
WHERE c.key NOT IN ('secret', 'content_hmac_key', 'embedding')
UNION ALL
SELECT 'embedding', jsonb_build_object('model', s.name, 'dimensions', s.dimensions), s.created_at
FROM agent_data.embedding_spaces s WHERE s.space = (SELECT agent_data.shown_space());

-- Seed 002 as views, with the columns that its own example queries use (§2.1 to 2.6): read-only and
-- `security_invoker`. docs/reference/views.md says what is what.
CREATE SCHEMA seed_002 AUTHORIZATION mneme_owner;

-- Through `routes`, which leads from the id of a session to its user, and so to its partition.
CREATE VIEW seed_002.sessions WITH (security_invoker = true) AS
SELECT r.id, s.external_id, s.model_id AS model, s.created_at, s.updated_at AS last_active_at, COALESCE(p.turn, 0) AS total_turns,
       (SELECT count(*)::integer FROM agent_data.semantic_objects o
        WHERE o.user_id = s.user_id AND o.session_id = s.session_id) AS total_objects,
       (SELECT count(*)::integer FROM agent_data.fault_history f
        WHERE f.user_id = s.user_id AND f.session_id = s.session_id AND f.fault_type = 'full_restore') AS total_faults,
       (SELECT count(*)::integer FROM agent_data.fault_history f
        WHERE f.user_id = s.user_id AND f.session_id = s.session_id AND f.fault_type <> 'full_restore') AS total_micro_faults,
       CASE s.status WHEN 3 THEN 'completed' WHEN 4 THEN 'abandoned' ELSE 'active' END AS status, s.config
FROM agent_data.routes r
JOIN agent_data.sessions s ON s.user_id = r.user_id AND s.session_id = r.id
LEFT JOIN agent_data.paged_sessions p ON p.user_id = s.user_id AND p.session_id = s.session_id
WHERE r.kind = 'session';

-- `accessed_turn`: the turn of `last_accessed`; turns are what the seed's "3 turns" counts, and no interval.
CREATE VIEW seed_002.semantic_objects WITH (security_invoker = true) AS
SELECT o.object_id AS id, r.id AS session_id, o.object_type, o.source_tool, o.source_key, o.content_full, o.summary_detailed,
       o.summary_compact, o.stub, o.losses_l1, o.losses_l2, o.can_answer_l1, o.can_answer_l2, o.fault_when, o.key_entities, o.tags,
       o.current_fidelity::integer AS current_fidelity, o.pinned, o.pin_reason, o.created_at, o.last_accessed, o.accessed_turn,
       o.access_count, o.fault_count, o.micro_fault_count, o.tokens_l0, o.tokens_l1, o.tokens_l2, o.tokens_l3,
       o.source_turn_start, o.source_turn_end,
       CASE WHEN o.space = (SELECT agent_data.shown_space()) THEN o.embedding::vector END AS embedding
FROM agent_data.routes r
JOIN agent_data.semantic_objects o ON o.user_id = r.user_id AND o.session_id = r.id
WHERE r.kind = 'session';

CREATE VIEW seed_002.object_relationships WITH (security_invoker = true) AS
SELECT md5(e.source_id::text || e.target_id || e.relationship)::uuid AS id, r.id AS session_id, e.source_id, e.target_id,
       e.relationship, e.metadata, e.created_at
FROM agent_data.routes r
JOIN agent_data.object_relationships e ON e.user_id = r.user_id AND e.session_id = r.id
WHERE r.kind = 'session';

-- `object_id` NULL: nothing answered.
CREATE VIEW seed_002.fault_history WITH (security_invoker = true) AS
SELECT f.fault_id AS id, r.id AS session_id, f.object_id, f.fault_type, f.turn_number, encode(f.content_hash, 'hex') AS content_hash,
       f.question, f.answer, f.answer_tokens, f.avoided_tokens, f.latency_ms, f.created_at
FROM agent_data.routes r
JOIN agent_data.fault_history f ON f.user_id = r.user_id AND f.session_id = r.id
WHERE r.kind = 'session';

CREATE VIEW seed_002.fidelity_transitions WITH (security_invoker = true) AS
SELECT md5(t.object_id::text || t.call_id)::uuid AS id, r.id AS session_id, t.object_id, t.from_fidelity::integer AS from_fidelity,
       t.to_fidelity::integer AS to_fidelity, t.trigger, t.turn_number, t.pressure_zone, t.token_count, t.created_at
FROM agent_data.routes r
JOIN agent_data.fidelity_transitions t ON t.user_id = r.user_id AND t.session_id = r.id
WHERE r.kind = 'session';

CREATE VIEW seed_002.admission_scores WITH (security_invoker = true) AS
SELECT a.admission_id AS id, r.id AS session_id, a.object_id, a.admitted, a.score_total, a.score_type, a.score_novelty,
       a.score_utility, a.score_recency, a.threshold, a.content_preview, a.created_at
FROM agent_data.routes r
JOIN agent_data.admission_scores a ON a.user_id = r.user_id AND a.session_id = r.id
WHERE r.kind = 'session';

CREATE VIEW seed_002.persistent_objects WITH (security_invoker = true) AS
SELECT m.memory_id AS id, u.external_id AS user_id, (m.details #>> '{object,id}')::uuid AS source_object_id,
       m.session_id AS source_session_id, m.details #>> '{object,type}' AS object_type, m.content_text AS content,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       agent_data.effective_confidence(
           m.confidence, greatest(m.stated_at, m.last_validated_at, m.created_at), now(),
           (agent_data.life_policy()).confidence_decay)::real AS confidence,
       greatest(m.stated_at, m.last_validated_at, m.created_at) AS last_reinforced, m.created_at
FROM agent_data.users u
JOIN agent_data.memory_store m ON m.user_id = u.user_id
WHERE m.details ? 'object' AND m.is_active AND (m.expires_at IS NULL OR m.expires_at > now());

-- --- seed 001: its one table ---------------------------------------------------------------------------------------------
CREATE SCHEMA seed_001 AUTHORIZATION mneme_owner;

-- What is in force or has expired, in the seed's five types; `accessed_at`: when it was made, where nothing has used it yet.
CREATE VIEW seed_001.ai_memory WITH (security_invoker = true) AS
SELECT m.memory_id AS id, m.tenant_id, u.external_id AS user_id, m.content_text AS content,
       CASE WHEN m.kind IN ('preference', 'instruction') THEN 'preference'
            WHEN agent_data.of_behaviour(m.kind) THEN 'pattern'
            WHEN agent_data.memory_type(m.kind) = 'episodic' THEN 'episode'
            WHEN m.kind = 'entity_profile' OR m.kind = 'summary' AND m.details ->> 'scope_type' = 'entity' THEN 'entity'
            ELSE 'fact' END AS memory_type,
       m.importance, m.access_count, m.entity_ids,
       CASE WHEN m.source_message_ids <> '{}' THEN 'conversation' WHEN m.details ? 'insight' THEN 'insight' ELSE 'api' END AS source_type,
       (SELECT v.vector::vector FROM agent_data.embeddings v
        WHERE v.user_id = m.user_id AND v.item_id = m.memory_id AND v.space = (SELECT agent_data.shown_space())) AS embedding,
       COALESCE(m.last_accessed_at, m.created_at) AS accessed_at, m.created_at, m.expires_at
FROM agent_data.memory_store m JOIN agent_data.users u ON u.user_id = m.user_id
WHERE m.is_active;

DO $$
DECLARE
    v record;
BEGIN
    FOR v IN SELECT c.oid::regclass AS name FROM pg_class c
             WHERE c.relnamespace::regnamespace::text LIKE 'seed\_%' AND c.relkind = 'v' LOOP
        EXECUTE format('ALTER VIEW %s OWNER TO mneme_owner', v.name);
    END LOOP;
END $$;
GRANT USAGE ON SCHEMA seed_001, seed_002, seed_003, seed_004 TO mneme_app;
GRANT SELECT ON ALL TABLES IN SCHEMA seed_001, seed_002, seed_003, seed_004 TO mneme_app;
