-- name: resolve
-- The sessions that an id may mean: one that Mneme issued, or a client's own name for it ($2 holds both), of user $3 if named.
-- The issued one comes first.
SELECT r.user_id, r.target AS session_id, r.id = r.target AS issued
FROM agent_data.routes r
WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.kind = 'session' AND ($3::uuid IS NULL OR r.user_id = $3)
ORDER BY 3 DESC, 1, 2

-- name: one
-- A session with its user's name.
SELECT s.session_id, s.user_id, u.external_id AS user_external_id, s.external_id, s.created_at, s.updated_at, s.expires_at,
       s.ended_at, s.status, s.session_type, s.model_id, s.turn_count, s.total_prompt_tokens, s.total_completion_tokens,
       s.total_cost_microcents, s.summary_text, s.parent_session_id, s.branch_turn_index, s.first_message_at,
       s.last_message_at, s.metadata, s.config
FROM agent_data.sessions s
LEFT JOIN agent_data.users u ON u.user_id = s.user_id
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3

-- name: list_of_user
-- The sessions of a user, newest first, after ($4, $5); branches of $7 where it is given. One that was deleted is in no list until it
-- goes on.
SELECT s.session_id, s.user_id, u.external_id AS user_external_id, s.external_id, s.created_at, s.updated_at, s.expires_at,
       s.ended_at, s.status, s.session_type, s.model_id, s.turn_count, s.total_prompt_tokens, s.total_completion_tokens,
       s.total_cost_microcents, s.summary_text, s.parent_session_id, s.branch_turn_index, s.first_message_at,
       s.last_message_at, s.metadata, s.config
FROM agent_data.sessions s
LEFT JOIN agent_data.users u ON u.user_id = s.user_id
WHERE s.tenant_id = $1 AND s.user_id = $2 AND ($3::smallint IS NULL OR s.status = $3)
  AND (s.deleted_at IS NULL OR s.ended_at IS DISTINCT FROM s.deleted_at)
  AND ($4::timestamptz IS NULL OR (s.created_at, s.session_id) < ($4, $5::uuid))
  AND ($7::uuid IS NULL OR s.parent_session_id = $7)
ORDER BY s.created_at DESC, s.session_id DESC
LIMIT $6

-- name: list_of_tenant
-- As list_of_user, for all users of a tenant, but not for spaces (no user speaks there, and `items` lists what is said): another
-- statement, because only a named user prunes to one partition.
SELECT s.session_id, s.user_id, u.external_id AS user_external_id, s.external_id, s.created_at, s.updated_at, s.expires_at,
       s.ended_at, s.status, s.session_type, s.model_id, s.turn_count, s.total_prompt_tokens, s.total_completion_tokens,
       s.total_cost_microcents, s.summary_text, s.parent_session_id, s.branch_turn_index, s.first_message_at,
       s.last_message_at, s.metadata, s.config
FROM agent_data.sessions s
LEFT JOIN agent_data.users u ON u.user_id = s.user_id
WHERE s.tenant_id = $1 AND ($2::smallint IS NULL OR s.status = $2)
  AND (s.deleted_at IS NULL OR s.ended_at IS DISTINCT FROM s.deleted_at)
  AND ($3::timestamptz IS NULL OR (s.created_at, s.session_id) < ($3, $4::uuid))
  AND NOT EXISTS (SELECT FROM agent_data.spaces x WHERE x.tenant_id = $1 AND x.user_id = s.user_id)
ORDER BY s.created_at DESC, s.session_id DESC
LIMIT $5

-- name: search_of_user
-- The sessions of a user whose summaries answer best: by their vectors in the space $6 ($5: the question's), and by the words of the
-- question $4 (those in another space, or in none, by these alone). A word in common counts as a tenth of a cosine, three at most.
SELECT s.session_id, s.user_id, u.external_id AS user_external_id, s.external_id, s.created_at, s.updated_at, s.expires_at,
       s.ended_at, s.status, s.session_type, s.model_id, s.turn_count, s.total_prompt_tokens, s.total_completion_tokens,
       s.total_cost_microcents, s.summary_text, s.parent_session_id, s.branch_turn_index, s.first_message_at,
       s.last_message_at, s.metadata, s.config, x.score
FROM (
    SELECT c.user_id, c.session_id,
           CASE WHEN c.summary_space = $6 THEN 1 - (c.summary_embedding <=> $5::halfvec) ELSE 0 END
           + 0.1 * least(3, (SELECT count(*) FROM unnest(to_tsvector('english', c.summary_text)) AS t
                             WHERE t.lexeme = ANY (tsvector_to_array(to_tsvector('english', $4))))) AS score
    FROM agent_data.sessions c
    WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.summary_text IS NOT NULL AND ($3::smallint IS NULL OR c.status = $3)
    ORDER BY score DESC, c.created_at DESC, c.session_id DESC
    LIMIT $7
) x
JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = x.session_id
LEFT JOIN agent_data.users u ON u.user_id = s.user_id
WHERE x.score > 0
ORDER BY x.score DESC, s.created_at DESC, s.session_id DESC

-- name: make
-- A session where there is none of that id; a row only where it is new.
INSERT INTO agent_data.sessions (session_id, user_id, tenant_id, external_id, created_at, updated_at, expires_at, session_type,
                                 metadata, config)
VALUES ($3, $2, $1, $4, $5, $6, $7, $8, $9, jsonb_strip_nulls($10::jsonb))
ON CONFLICT DO NOTHING
RETURNING session_id

-- name: route
-- Ways to a session: its own id, and the client's name of it.
INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
SELECT $1, r, $2, 'session', $3 FROM unnest($4::uuid[]) AS r
ON CONFLICT DO NOTHING

-- name: close
-- Ends a session that is not ended.
UPDATE agent_data.sessions SET status = 3, ended_at = $4, updated_at = $4
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND status <> 3

-- name: change
-- Its owner's choices ($4): what is null there goes back to what key and server say; and its status $5, paused or active, if one is
-- named: NULL where it is over, and has neither.
UPDATE agent_data.sessions SET config = jsonb_strip_nulls(config || $4::jsonb),
    updated_at = CASE WHEN $5::smallint IS NULL OR status = $5::smallint THEN updated_at ELSE $6::timestamptz END, status = COALESCE($5::smallint, status)
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND ($5::smallint IS NULL OR status IN (1, 2))
RETURNING true
