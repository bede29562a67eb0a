-- What of a session's objects becomes memory (app/features/paging/persistent_objects.py).

-- name: session
-- A session whose objects are looked through: as of when, up to when they were before, and its name.
SELECT p.updated_at, p.remembered_at, s.external_id
FROM agent_data.paged_sessions p
JOIN agent_data.sessions s ON s.user_id = p.user_id AND s.session_id = p.session_id
WHERE p.tenant_id = $1 AND p.user_id = $2 AND p.session_id = $3

-- name: readings
-- The objects of a session in their order, but for phases of the conversation, without their contents: how often each was
-- asked back, in how many turns it was asked about, whether it is pinned, and whether another conversation before had the same
-- content under the same key.
SELECT o.object_id, o.object_type, o.kind, o.source_tool, o.source_key, o.tags[1] AS family, o.content_hash, o.stub, o.parts,
       o.tokens_l0, o.created_at, o.fault_count, o.pinned, o.remembered,
       (SELECT count(DISTINCT f.turn_number) FROM agent_data.fault_history f
        WHERE f.user_id = $2 AND f.object_id = o.object_id AND f.fault_type <> 'full_restore') AS asked_turns,
       o.source_key IS NOT NULL AND EXISTS (
           SELECT FROM agent_data.semantic_objects e
           WHERE e.user_id = $2 AND e.content_hash = o.content_hash AND e.source_key = o.source_key
             AND e.session_id <> $3 AND e.created_at < o.created_at
             AND agent_data.session_root($2, e.session_id) <> agent_data.session_root($2, $3)) AS again
FROM agent_data.semantic_objects o
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.session_id = $3
  AND o.object_type NOT IN ('conversation_phase', 'debugging_session')
ORDER BY o.ordinal

-- name: messages
-- The messages of some stretches of sessions ($3, $4, $5) in their order, by the hashes that objects know them by; $6 and $7 bound
-- the months to open. `usable`: it may surface, and was not said while Mneme was to learn nothing.
SELECT h.message_id, h.session_id, h.turn_index, h.created_at, h.message_hash, h.content_hash,
       NOT h.hidden AND NOT h.is_pruned AND NOT EXISTS (
           SELECT FROM agent_data.suppressions x WHERE x.user_id = $2 AND x.item_id = h.message_id) AS usable
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = line.session_id AND h.turn_index > line.low
 AND (line.high IS NULL OR h.turn_index <= line.high)
WHERE h.tenant_id = $1 AND h.created_at >= $6 AND h.created_at <= $7 AND h.message_hash IS NOT NULL
ORDER BY h.turn_index, h.sibling

-- name: contents
-- The contents of objects, with what L2 tells of them and the last questions about each, the latest first.
SELECT o.object_id, o.content_full, o.summary_compact, ARRAY(
           SELECT f.question FROM agent_data.fault_history f
           WHERE f.user_id = $2 AND f.object_id = o.object_id AND f.question IS NOT NULL
           ORDER BY f.created_at DESC LIMIT $4) AS questions
FROM agent_data.semantic_objects o
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = ANY ($3::uuid[])

-- name: known
-- The memories by these keyed hashes of keys, held against other writers; `forgotten`: their user had them forgotten.
SELECT k.key_hmac, m.memory_id, m.is_active, m.details #>> '{object,hash}' AS content_hash, m.memory_tier, m.memory_scope,
       m.confidence, m.importance, m.reinforcement_count, m.expires_at, COALESCE(m.valid_from, m.created_at) AS valid_from,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.status, m.source_message_ids,
       EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = $2 AND x.item_id = m.memory_id) AS forgotten
FROM agent_data.drawn_keys k
JOIN agent_data.memory_store m ON m.user_id = $2 AND m.memory_id = k.memory_id
WHERE k.tenant_id = $1 AND k.user_id = $2 AND k.key_hmac = ANY ($3::bytea[])
ORDER BY m.memory_id FOR NO KEY UPDATE OF m

-- name: done
-- A session's objects ($4, with what speaks for each, $5) were looked through as of $6.
WITH counted AS (
    UPDATE agent_data.semantic_objects o SET remembered = greatest(o.remembered, x.evidence)
    FROM (SELECT o.object_id, c.evidence FROM unnest($4::uuid[], $5::integer[]) AS c (object_id, evidence)
          JOIN agent_data.semantic_objects o ON o.user_id = $2 AND o.object_id = c.object_id
          ORDER BY o.object_id FOR NO KEY UPDATE OF o) x
    WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = x.object_id
)
UPDATE agent_data.paged_sessions p SET remembered_at = $6 WHERE p.tenant_id = $1 AND p.user_id = $2 AND p.session_id = $3

-- name: enqueue
-- Puts sessions whose objects are to be looked through into the queue (as the owner); how many jobs.
SELECT agent_data.enqueue_objects($1, $2)
