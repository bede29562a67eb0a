-- name: of_entities
-- The contradictions about things in a user's log: open, or resolved since $4; the latest first. None of a session of nobody's.
SELECT c.conflict_id, c.user_id, NULL AS user_external_id, c.session_id, c.detected_at_message, c.conflict_type,
       c.conflict_data, c.memory_ids, c.resolution_strategy, c.resolution_outcome, c.resolved_at, c.created_at, c.entity_id
FROM agent_data.memory_conflicts c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.entity_id = ANY ($3::text[])
  AND c.dedup_scope = '00000000-0000-0000-0000-000000000000' AND (c.resolved_at IS NULL OR c.resolved_at >= $4)
ORDER BY c.created_at DESC, c.conflict_id DESC
LIMIT $5

-- name: list_of_user
-- The contradictions of a user ($8), newest first, after ($5, $6): open ones ($2 true), resolved ones (false), of a type, about a
-- thing. What was forgotten has no content left, and is not listed.
SELECT c.conflict_id, c.user_id, u.external_id AS user_external_id, c.session_id, c.detected_at_message, c.conflict_type,
       c.conflict_data, c.memory_ids, c.resolution_strategy, c.resolution_outcome, c.resolved_at, c.created_at, c.entity_id
FROM agent_data.memory_conflicts c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
WHERE c.tenant_id = $1 AND c.user_id = $8 AND ($2::boolean IS NULL OR (c.resolved_at IS NULL) = $2)
  AND ($3::text IS NULL OR c.conflict_type = $3) AND ($4::text IS NULL OR c.entity_id = $4) AND c.conflict_data <> '{}'
  AND ($5::timestamptz IS NULL OR (c.created_at, c.conflict_id) < ($5, $6::uuid))
ORDER BY c.created_at DESC, c.conflict_id DESC
LIMIT $7

-- name: list_of_tenant
-- As list_of_user, for all users of a tenant: another statement, because only a named user prunes to one partition.
SELECT c.conflict_id, c.user_id, u.external_id AS user_external_id, c.session_id, c.detected_at_message, c.conflict_type,
       c.conflict_data, c.memory_ids, c.resolution_strategy, c.resolution_outcome, c.resolved_at, c.created_at, c.entity_id
FROM agent_data.memory_conflicts c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
WHERE c.tenant_id = $1 AND ($2::boolean IS NULL OR (c.resolved_at IS NULL) = $2)
  AND ($3::text IS NULL OR c.conflict_type = $3) AND ($4::text IS NULL OR c.entity_id = $4) AND c.conflict_data <> '{}'
  AND ($5::timestamptz IS NULL OR (c.created_at, c.conflict_id) < ($5, $6::uuid))
ORDER BY c.created_at DESC, c.conflict_id DESC
LIMIT $7

-- name: one
-- A contradiction; $3: of this user only.
SELECT c.conflict_id, c.user_id, u.external_id AS user_external_id, c.session_id, c.detected_at_message, c.conflict_type,
       c.conflict_data, c.memory_ids, c.resolution_strategy, c.resolution_outcome, c.resolved_at, c.created_at, c.entity_id
FROM agent_data.memory_conflicts c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
WHERE c.tenant_id = $1 AND c.conflict_id = $2 AND ($3::uuid IS NULL OR c.user_id = $3) AND c.conflict_data <> '{}'

-- name: hold
-- The same, held against others who would resolve it.
SELECT c.conflict_type, c.conflict_data, c.memory_ids, c.resolved_at FROM agent_data.memory_conflicts c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.conflict_id = $3 AND c.conflict_data <> '{}'
FOR UPDATE

-- name: resolve
-- Says how a contradiction was decided.
UPDATE agent_data.memory_conflicts c SET resolution_outcome = $4, resolved_at = $5
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.conflict_id = $3

-- name: held_memories
-- The memories of a contradiction that have not been forgotten, held against other writers, in the order in which all take them.
SELECT m.memory_id, m.status, m.memory_tier, m.confidence FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status <> 'forgotten'
ORDER BY m.memory_id
FOR UPDATE

-- name: stand
-- Memories that stood in doubt for a contradiction alone, and do not any more.
UPDATE agent_data.memory_store m SET status = 'active', updated_at = $4
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status = 'aging' AND m.details ? 'in_conflict'
RETURNING m.memory_id
