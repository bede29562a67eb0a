-- What of a session's objects becomes memory (seed 002, "Cross-Session Memory"): rows of `memory_store` like any other, which are
-- told by `details.object`; here is what finds them, and the seed's own table as a view.

-- Up to when a session's objects were looked through; NULL: never.
ALTER TABLE agent_data.paged_sessions ADD COLUMN remembered_at timestamptz;
CREATE INDEX paged_unremembered ON agent_data.paged_sessions (user_id) WHERE remembered_at IS NULL OR remembered_at < updated_at;
-- How much of what speaks for an object has become memory (app/paging/lasting.py: `evidence`).
ALTER TABLE agent_data.semantic_objects ADD COLUMN remembered integer NOT NULL DEFAULT 0;
-- The same content in other sessions.
CREATE INDEX objects_content ON agent_data.semantic_objects (content_hash, user_id);

-- The session that a session goes back to, branch by branch: two with the same one are one conversation, as far as they share it.
CREATE FUNCTION agent_data.session_root(p_user uuid, p_session uuid) RETURNS uuid LANGUAGE sql STABLE AS $$
    WITH RECURSIVE line AS (
        SELECT s.session_id, s.parent_session_id, 1 AS depth FROM agent_data.sessions s
        WHERE s.user_id = p_user AND s.session_id = p_session
        UNION ALL
        SELECT p.session_id, p.parent_session_id, l.depth + 1
        FROM line l JOIN agent_data.sessions p ON p.user_id = p_user AND p.session_id = l.parent_session_id
        WHERE l.depth < 64
    )
    SELECT COALESCE((SELECT l.session_id FROM line l ORDER BY l.depth DESC LIMIT 1), p_session)
$$;

-- Sessions that have been idle since `p_before` and whose objects were not looked through since: a job each. How many.
CREATE FUNCTION agent_data.enqueue_objects(p_before timestamptz, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    jobs agent_data.job_record[];
BEGIN
    SELECT array_agg(ROW('remember_objects', convert_to(jsonb_build_object(
               'tenant', x.tenant_id, 'user', x.user_id, 'session', x.session_id, 'id', gen_random_uuid())::text, 'UTF8'),
               'remember_objects:' || x.session_id, 0)::agent_data.job_record)
    INTO jobs
    FROM (SELECT p.* FROM agent_data.paged_sessions p
          WHERE (p.remembered_at IS NULL OR p.remembered_at < p.updated_at) AND p.updated_at <= p_before AND NOT EXISTS (
              SELECT FROM agent_data.pgqueuer q WHERE q.dedupe_key = 'remember_objects:' || p.session_id)
          ORDER BY p.updated_at LIMIT p_limit) x;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM agent_data.enqueue(jobs);
    RETURN cardinality(jobs);
END $$;

-- The seed's table, as far as what was remembered is in force. `user_id` is the client's own id, as text; confidence is what is
-- left of it since it was last reinforced.
CREATE SCHEMA IF NOT EXISTS seed_002 AUTHORIZATION mneme_owner;
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
ALTER VIEW seed_002.persistent_objects OWNER TO mneme_owner;
GRANT USAGE ON SCHEMA seed_002 TO mneme_app;
GRANT SELECT ON seed_002.persistent_objects TO mneme_app;

DO $$
BEGIN
    ALTER FUNCTION agent_data.enqueue_objects(timestamptz, integer) OWNER TO mneme_owner;
    REVOKE ALL ON FUNCTION agent_data.enqueue_objects(timestamptz, integer) FROM PUBLIC;
    ALTER FUNCTION agent_data.session_root(uuid, uuid) OWNER TO mneme_owner;
END $$;
GRANT EXECUTE ON FUNCTION agent_data.session_root(uuid, uuid) TO mneme_app;
