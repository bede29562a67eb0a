-- Seed 002 as views, with the columns that its own example queries use (§2.1 to 2.6): as those of 032, read-only and
-- `security_invoker`. docs/views.md says what is what.

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

DO $$
DECLARE
    v record;
BEGIN
    FOR v IN SELECT c.oid::regclass AS name FROM pg_class c
             WHERE c.relnamespace = 'seed_002'::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('ALTER VIEW %s OWNER TO mneme_owner', v.name);
    END LOOP;
END $$;
GRANT USAGE ON SCHEMA seed_002 TO mneme_app;
GRANT SELECT ON ALL TABLES IN SCHEMA seed_002 TO mneme_app;
