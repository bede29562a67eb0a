-- name: secret
-- The key of this database's keyed hashes.
SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'content_hmac_key'

-- name: resolve
-- Whose a memory is.
SELECT user_id FROM agent_data.routes WHERE tenant_id = $1 AND id = $2 AND kind = 'memory'

-- name: one
-- A memory. One whose time is over counts as expired, whether or not the sweep has been here.
SELECT m.memory_id, m.user_id, u.external_id AS user_external_id, m.session_id, s.external_id AS session_external_id,
       m.memory_tier, m.memory_scope, m.kind, m.content_text, m.provenance_type, m.sources, m.confidence,
       m.confidence_factors, m.importance, m.access_count, m.reinforcement_count, m.last_accessed_at, m.created_at,
       m.updated_at, m.expires_at, m.valid_from, m.valid_to,
       CASE WHEN m.is_active AND m.expires_at <= $4 THEN 'expired' ELSE m.status END AS status,
       m.is_validated, m.validated_by, m.token_count, m.superseded_by, m.subject_entity_id, m.predicate, m.object_value,
       m.speaker, m.entity_ids, m.tags, m.details, m.metadata
FROM agent_data.memory_store m
LEFT JOIN agent_data.users u ON u.user_id = m.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = m.user_id AND s.session_id = m.session_id
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: list_of_user
-- The memories of a user, newest first, after ($10, $11), by tiers, kinds, statuses, tags (all of them), metadata
-- and what they were superseded by.
SELECT m.memory_id, m.user_id, u.external_id AS user_external_id, m.session_id, s.external_id AS session_external_id,
       m.memory_tier, m.memory_scope, m.kind, m.content_text, m.provenance_type, m.sources, m.confidence,
       m.confidence_factors, m.importance, m.access_count, m.reinforcement_count, m.last_accessed_at, m.created_at,
       m.updated_at, m.expires_at, m.valid_from, m.valid_to,
       CASE WHEN m.is_active AND m.expires_at <= $2 THEN 'expired' ELSE m.status END AS status,
       m.is_validated, m.validated_by, m.token_count, m.superseded_by, m.subject_entity_id, m.predicate, m.object_value,
       m.speaker, m.entity_ids, m.tags, m.details, m.metadata
FROM agent_data.memory_store m
LEFT JOIN agent_data.users u ON u.user_id = m.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = m.user_id AND s.session_id = m.session_id
WHERE m.tenant_id = $1 AND m.user_id = $3
  AND ($4::smallint[] IS NULL OR m.memory_tier = ANY ($4)) AND ($5::text[] IS NULL OR m.kind = ANY ($5))
  AND (CASE WHEN m.is_active AND m.expires_at <= $2 THEN 'expired' ELSE m.status END) = ANY ($6::text[])
  AND ($7::text[] IS NULL AND $8::jsonb IS NULL
       OR m.memory_id = ANY ((SELECT agent_data.memories_holding($1, $3, $7, $8))::uuid[]))
  AND ($9::uuid IS NULL OR m.superseded_by = $9)
  AND ($10::timestamptz IS NULL OR (m.created_at, m.memory_id) < ($10, $11::uuid))
ORDER BY m.created_at DESC, m.memory_id DESC
LIMIT $12

-- name: list_of_tenant
-- As list_of_user, for all users of a tenant: another statement, because only a named user prunes to one partition.
SELECT m.memory_id, m.user_id, u.external_id AS user_external_id, m.session_id, s.external_id AS session_external_id,
       m.memory_tier, m.memory_scope, m.kind, m.content_text, m.provenance_type, m.sources, m.confidence,
       m.confidence_factors, m.importance, m.access_count, m.reinforcement_count, m.last_accessed_at, m.created_at,
       m.updated_at, m.expires_at, m.valid_from, m.valid_to,
       CASE WHEN m.is_active AND m.expires_at <= $2 THEN 'expired' ELSE m.status END AS status,
       m.is_validated, m.validated_by, m.token_count, m.superseded_by, m.subject_entity_id, m.predicate, m.object_value,
       m.speaker, m.entity_ids, m.tags, m.details, m.metadata
FROM agent_data.memory_store m
LEFT JOIN agent_data.users u ON u.user_id = m.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = m.user_id AND s.session_id = m.session_id
WHERE m.tenant_id = $1
  AND ($3::smallint[] IS NULL OR m.memory_tier = ANY ($3)) AND ($4::text[] IS NULL OR m.kind = ANY ($4))
  AND (CASE WHEN m.is_active AND m.expires_at <= $2 THEN 'expired' ELSE m.status END) = ANY ($5::text[])
  AND ($6::text[] IS NULL OR m.tags @> $6) AND ($7::jsonb IS NULL OR m.metadata @> $7)
  AND ($8::uuid IS NULL OR m.superseded_by = $8)
  AND ($9::timestamptz IS NULL OR (m.created_at, m.memory_id) < ($9, $10::uuid))
ORDER BY m.created_at DESC, m.memory_id DESC
LIMIT $11

-- name: matching
-- Those of these memories ($3), and of these messages ($6, said at $7), that have all tags and contain the metadata.
SELECT m.memory_id AS id FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.tags @> $4::text[]
  AND ($5::jsonb IS NULL OR m.metadata @> $5)
UNION ALL
SELECT h.message_id FROM unnest($6::uuid[], $7::timestamptz[]) AS w (id, at)
JOIN agent_data.conversation_history h ON h.user_id = $2 AND h.message_id = w.id AND h.created_at = w.at
WHERE h.tenant_id = $1 AND ($5::jsonb IS NULL OR h.metadata @> $5)

-- name: add
-- New memories of one user, as JSON; those whose text is in force already are left out (one active memory per text). What a
-- client says outright is validated by it.
INSERT INTO agent_data.memory_store (
    memory_id, user_id, tenant_id, session_id, memory_tier, memory_scope, kind, content_text, content_hash, provenance_type,
    confidence, importance, token_count, tags, metadata, created_at, updated_at, valid_from, expires_at, is_validated,
    validated_by, last_validated_at)
SELECT x.memory_id, $2, $1, x.session_id, x.tier, x.scope, x.kind, x.text, decode(x.content_hash, 'hex'), x.provenance,
       x.confidence, x.importance, x.token_count, x.tags, x.metadata, $4, $4, $4, x.expires_at, true, 'user', $4
FROM jsonb_to_recordset($3) AS x (
    memory_id uuid, session_id uuid, tier smallint, scope smallint, kind text, text text, content_hash text,
    provenance smallint, confidence real, importance real, token_count integer, tags text[], metadata jsonb,
    expires_at timestamptz)
ON CONFLICT DO NOTHING
RETURNING memory_id

-- name: reinforce
-- A memory that a client says once more: it counts one more time, and is never less than what it is said to be now.
UPDATE agent_data.memory_store SET
    access_count = access_count + 1,
    reinforcement_count = reinforcement_count + 1,
    memory_tier = GREATEST(memory_tier, $4),
    memory_scope = GREATEST(memory_scope, $5),
    confidence = GREATEST(confidence, $6),
    expires_at = CASE WHEN $7::timestamptz IS NULL THEN NULL ELSE GREATEST(expires_at, $7) END,
    status = 'active',
    is_validated = true,
    validated_by = 'user',
    last_validated_at = $8,
    updated_at = $8
WHERE tenant_id = $1 AND user_id = $2 AND content_hash = $3 AND is_active
  AND dedup_scope = '00000000-0000-0000-0000-000000000000'
RETURNING memory_id

-- name: route
-- Ways to memories.
INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
SELECT $1, r, $2, 'memory', r FROM unnest($3::uuid[]) AS r
ON CONFLICT DO NOTHING

-- name: event
-- One change of a memory.
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
VALUES ($2, $1, $3, $4, $5, $6, $7, $8)

-- name: lock
-- A memory as it is, held against other writers.
SELECT status, is_active, content_text, content_hash, memory_tier, kind, tags, metadata, importance, confidence, expires_at
FROM agent_data.memory_store WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3
FOR UPDATE

-- name: update
-- Changes what is not NULL; a text comes with its hash and its token count, and what was read out of the one before goes: what is
-- written by hand does not say the same triple any more.
UPDATE agent_data.memory_store SET
    content_text = COALESCE($4, content_text),
    predicate = CASE WHEN $4 IS NULL THEN predicate END,
    predicate_type = CASE WHEN $4 IS NULL THEN predicate_type END,
    object_value = CASE WHEN $4 IS NULL THEN object_value END,
    content_hash = COALESCE($5, content_hash),
    token_count = COALESCE($6, token_count),
    kind = COALESCE($7, kind),
    memory_tier = COALESCE($8, memory_tier),
    memory_scope = COALESCE($9, memory_scope),
    tags = COALESCE($10, tags),
    metadata = COALESCE($11, metadata),
    importance = COALESCE($12, importance),
    confidence = COALESCE($13, confidence),
    expires_at = CASE WHEN $14 THEN $15 ELSE expires_at END,
    is_validated = true,
    validated_by = 'user',
    last_validated_at = $16,
    updated_at = $16
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3

-- name: set_status
-- Ends a memory ($5 is when it ceased to be true), or brings it back.
UPDATE agent_data.memory_store SET
    status = $4, valid_to = $5, updated_at = $6,
    superseded_by = CASE WHEN $4 = 'active' THEN NULL ELSE superseded_by END,
    -- Whoever brings it back vouches for it: no sweep takes it at once again.
    validated_by = CASE WHEN $4 = 'active' THEN 'user' ELSE validated_by END,
    is_validated = is_validated OR $4 = 'active',
    last_validated_at = CASE WHEN $4 = 'active' THEN $6 ELSE last_validated_at END,
    confidence = CASE WHEN $4 = 'active' THEN COALESCE((confidence_factors ->> 'denied')::real, confidence) ELSE confidence END,
    confidence_factors = CASE WHEN $4 = 'active' THEN confidence_factors - 'denied' ELSE confidence_factors END,
    expires_at = CASE WHEN $4 = 'active' AND expires_at <= $6 THEN NULL ELSE expires_at END
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3

-- name: hold
-- Of these memories those that are not forgotten yet, held against other writers, in the order in which all take them.
SELECT memory_id, status, content_hash FROM agent_data.memory_store
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = ANY ($3::uuid[]) AND status <> 'forgotten'
ORDER BY memory_id
FOR UPDATE

-- name: void
-- Leaves of memories that there were some: see the function.
SELECT agent_data.void_memories($1, $2, $3, $4)

-- name: hashes_before
-- The content hashes of what memories said before they were edited.
SELECT DISTINCT memory_id, decode(before ->> 'content_hash', 'hex') AS content_hash FROM agent_data.memory_events
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = ANY ($3::uuid[]) AND before ? 'content_hash'

-- name: suppress
-- What must not surface, nor be learned again.
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac, created_at)
SELECT $2, $1, x.item, $4, x.mark, $6 FROM unnest($3::uuid[], $5::bytea[]) AS x (item, mark)
ON CONFLICT (user_id, item_id) DO UPDATE SET
    reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac, created_at = EXCLUDED.created_at

-- name: drop_vectors
-- The vectors of memories (or messages), in every space.
DELETE FROM agent_data.embeddings WHERE tenant_id = $1 AND user_id = $2 AND item_id = ANY ($3::uuid[])

-- name: events
-- What became of a memory, oldest first, after the first $4 changes.
SELECT at, event, before - 'content_hash' AS before, after, actor FROM agent_data.memory_events
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3
ORDER BY at
OFFSET $4
LIMIT $5
