-- name: setting
-- What learning needs to know of a user and of the settings: the erasure epoch (NULL: there is no such user), the life of a
-- session memory, the threshold of near duplicates in spaces that have none of their own, the key of the forgotten's hashes; whether
-- something of the user's was erased or deleted before.
SELECT (SELECT u.erasure_epoch FROM agent_data.users u WHERE u.user_id = $1) AS epoch,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'l1_ttl_hours') AS l1_ttl_hours,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'dedup_threshold') AS dedup_threshold,
       (SELECT c.value #>> '{}' FROM agent_data.system_config c WHERE c.key = 'content_hmac_key') AS hmac_key,
       EXISTS (SELECT FROM agent_data.erased_contents e WHERE e.user_id = $1)
       OR EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.reason = 'deleted') AS erased

-- name: bury
-- Of these messages those that say what was erased with a user, or deleted: they stand in their session again, because the client
-- brought them again, and are neither found nor learned from. $6 and $7 are the padded key of the hashes (app/store/erasure.py).
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
SELECT h.user_id, h.tenant_id, h.message_id, 'resent'
FROM agent_data.conversation_history h
JOIN (
    SELECT e.content_hmac FROM agent_data.erased_contents e WHERE e.user_id = $1
    UNION
    SELECT s.content_hmac FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.reason = 'deleted'
) e ON e.content_hmac = sha256($6::bytea || sha256($5::bytea || h.content_hash))
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4
ON CONFLICT DO NOTHING

-- name: messages
-- The messages to learn from, in the order of the conversation; not those that must not surface, nor those without a tsvector:
-- they were said while Mneme was asked to learn nothing.
SELECT h.message_id, h.turn_index, h.role, h.content, h.tool_calls, h.created_at, h.metadata
FROM agent_data.conversation_history h
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4 AND NOT h.is_pruned
  AND h.content_tsv IS NOT NULL
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = h.message_id)
ORDER BY h.turn_index, h.sibling

-- name: lock
-- One job at a time changes what is known of a user (or, where there is none, of a session). Its own statement: what comes after
-- it sees what others have written.
SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))

-- name: epoch
-- The user's erasure epoch, held as it is until the end of this transaction: an erasure waits, and then finds what was written.
SELECT erasure_epoch FROM agent_data.users WHERE user_id = $1 FOR SHARE

-- name: gone
-- Whether one of these messages, which were read before, may not surface any more.
SELECT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = ANY ($2::uuid[]))

-- name: claim
-- Writes down that a job has its effect; no row when it had it before.
INSERT INTO agent_data.job_effects (user_id, tenant_id, job_key, at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING true

-- name: known
-- Active memories of a scope with one of these hashes or ids.
SELECT m.memory_id, m.content_text, m.content_hash, m.memory_tier, m.memory_scope, m.session_id, m.kind, m.confidence,
       m.importance, m.access_count, m.reinforcement_count, m.expires_at, m.is_validated, m.sources, m.source_message_ids,
       m.subject_entity_id, m.predicate, m.object_value
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.is_active
  AND (m.content_hash = ANY ($3::bytea[]) OR m.memory_id = ANY ($4::uuid[]))

-- name: claims
-- Active memories of a scope that say something of these (subject, predicate) pairs.
SELECT m.memory_id, m.content_text, m.content_hash, m.memory_tier, m.memory_scope, m.session_id, m.kind, m.confidence,
       m.importance, m.access_count, m.reinforcement_count, m.expires_at, m.is_validated, m.sources, m.source_message_ids,
       m.subject_entity_id, m.predicate, m.object_value
FROM agent_data.memory_store m
JOIN unnest($3::text[], $4::text[]) AS c (subject, predicate) ON c.subject = m.subject_entity_id AND c.predicate = m.predicate
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.is_active

-- name: near
-- For each of these vectors the active memories nearer than a threshold.
SELECT n, memory_id, similarity FROM agent_data.near_memories($1, $2, $3, $4, $5, $6, $7)

-- name: forgotten
-- Which of these keyed hashes belong to something that was forgotten or erased.
SELECT s.content_hmac FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.content_hmac = ANY ($2::bytea[])
UNION
SELECT e.content_hmac FROM agent_data.erased_contents e WHERE e.user_id = $1 AND e.content_hmac = ANY ($2::bytea[])

-- name: insert
-- New memories of one user, as JSON.
INSERT INTO agent_data.memory_store (
    memory_id, user_id, tenant_id, session_id, dedup_scope, memory_tier, memory_scope, kind, content_text, content_hash,
    provenance_type, provenance_turn_id, provenance_turn_index, source_message_ids, sources, confidence, importance,
    access_count, reinforcement_count, created_at, updated_at, expires_at, valid_from, valid_to, status, superseded_by,
    is_validated, validated_by, last_validated_at, token_count, subject_entity_id, predicate, predicate_type, object_value,
    entity_ids, tags, details)
SELECT x.memory_id, $2, $1, x.session_id, $4, x.tier, x.scope, x.kind, x.text, decode(x.content_hash, 'hex'),
       x.provenance_type, x.turn_id, x.turn_index, x.source_message_ids, x.sources, x.confidence, x.importance,
       x.access_count, x.reinforcement_count, x.created_at, $5, x.expires_at, x.created_at, x.valid_to, x.status,
       x.superseded_by, x.validated, CASE WHEN x.validated THEN 'user' END,
       CASE WHEN x.validated THEN $5::timestamptz END,
       x.token_count,
       x.subject, x.predicate, x.predicate_type, x.object, x.entity_ids, x.tags, x.details
FROM jsonb_to_recordset($3::jsonb) AS x (
    memory_id uuid, session_id uuid, tier smallint, scope smallint, kind text, text text, content_hash text,
    provenance_type smallint, turn_id uuid, turn_index integer, source_message_ids uuid[], sources jsonb, confidence real,
    importance real, access_count integer, reinforcement_count integer, created_at timestamptz, expires_at timestamptz,
    valid_to timestamptz, status text, superseded_by uuid, validated boolean, token_count integer, subject text,
    predicate text, predicate_type text, object text, entity_ids text[], tags text[], details jsonb)

-- name: reinforce
-- Memories that were said once more, as JSON: they count more, and are never less than what they are said to be now. Of sources
-- the first $5 are kept.
UPDATE agent_data.memory_store m SET
    access_count = m.access_count + x.times,
    reinforcement_count = m.reinforcement_count + x.times,
    memory_tier = GREATEST(m.memory_tier, x.tier),
    memory_scope = GREATEST(m.memory_scope, x.scope),
    importance = GREATEST(m.importance, x.importance),
    confidence = GREATEST(m.confidence, x.confidence),
    expires_at = CASE WHEN m.expires_at IS NULL OR x.expires_at IS NULL THEN NULL
                      ELSE GREATEST(m.expires_at, x.expires_at) END,
    is_validated = m.is_validated OR x.validated,
    validated_by = CASE WHEN x.validated THEN 'user' ELSE m.validated_by END,
    last_validated_at = CASE WHEN x.validated THEN $4::timestamptz ELSE m.last_validated_at END,
    sources = CASE WHEN jsonb_array_length(m.sources) < $5 THEN m.sources || x.sources ELSE m.sources END,
    source_message_ids = CASE WHEN cardinality(m.source_message_ids) < $5 THEN m.source_message_ids || x.source_message_ids
                              ELSE m.source_message_ids END,
    updated_at = $4
FROM jsonb_to_recordset($3::jsonb) AS x (
    memory_id uuid, times integer, tier smallint, scope smallint, importance real, confidence real, expires_at timestamptz,
    validated boolean, sources jsonb, source_message_ids uuid[])
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: supersede
-- Memories that another one took the place of.
UPDATE agent_data.memory_store m SET status = 'superseded', superseded_by = x.heir, valid_to = $5, updated_at = $5
FROM unnest($3::uuid[], $4::uuid[]) AS x (memory_id, heir)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: route
-- Ways to new memories.
INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
SELECT $1, r, $2, 'memory', r FROM unnest($3::uuid[]) AS r
ON CONFLICT DO NOTHING

-- name: tell
-- What became of memories, as JSON.
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
SELECT $2, $1, x.memory_id, $4, x.event, x.before, x.after, 'system'
FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, event text, before jsonb, after jsonb)

-- name: add_vectors
-- Vectors of messages ($4 = 0) or memories (1).
SELECT agent_data.add_vectors($1, $2, $3, $4, $5, $6, $7)

-- name: count_words
-- Counts the words of new messages and memories.
SELECT agent_data.count_words($1, $2, $3, $4, $5, $6)
