-- What later words of the user end or take back (app/jobs/changes.py), within a learning job's effect.

-- name: in_force
-- Memories in force (of the session $3, where there is no user) that were said before $4 by other messages than $5, and
-- have one of the words $6 (patterns) or predicates $7.
SELECT m.memory_id, m.content_text, m.kind, m.status, m.subject_entity_id AS subject, m.predicate, m.object_value AS value,
       ARRAY(SELECT q ->> 'quote' FROM jsonb_array_elements(m.sources) AS q WHERE q ->> 'quote' <> '') AS quotes
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.is_active AND m.kind IN ('fact', 'preference', 'correction')
  AND COALESCE(m.stated_at, m.created_at) < $4 AND NOT m.source_message_ids @> ARRAY[$5::uuid] AND m.validated_by IS DISTINCT FROM 'domain'
  AND (m.content_text ILIKE ANY ($6::text[]) OR m.sources::text ILIKE ANY ($6::text[]) OR m.predicate = ANY ($7::text[]))
ORDER BY m.created_at DESC
LIMIT 200

-- name: said_before
-- At most $7 of the user's own messages of a session ($4) between the turns $5 and $6, the latest first, with their memories in
-- force (of the scope $3) that no other message says.
SELECT h.message_id, h.content,
       ARRAY(SELECT m.memory_id FROM agent_data.memory_store m
             WHERE m.user_id = $2 AND m.dedup_scope = $3 AND m.is_active AND m.source_message_ids = ARRAY[h.message_id]
             ORDER BY m.memory_id) AS memories
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $4 AND h.turn_index BETWEEN $5 AND $6 AND h.role = 1
  AND NOT h.is_pruned AND NOT h.hidden
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $2 AND s.item_id = h.message_id AND s.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC
LIMIT $7

-- name: texts
-- What memories ($3) say, held against other writers.
SELECT m.memory_id, m.content_text, m.content_hash, m.status,
       ARRAY(SELECT q ->> 'quote' FROM jsonb_array_elements(m.sources) AS q WHERE q ->> 'quote' <> '') AS quotes
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
ORDER BY m.memory_id
FOR NO KEY UPDATE

-- name: close
-- Memories ($3) that were right until $4.
UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = COALESCE(m.valid_to, $4), updated_at = $5
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
RETURNING m.memory_id

-- name: doubt
-- Memories ($3) that a message ($4) puts in doubt: they are due for a question, and only the user ends the doubt.
UPDATE agent_data.memory_store m SET
    status = 'aging', updated_at = $5,
    details = (COALESCE(m.details, '{}') - '{asked_at,asked,asked_in}'::text[])
              || jsonb_build_object('in_conflict', $4::uuid, 'doubted_by', $4::uuid, 'doubted_at', $5::timestamptz)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status = 'active'
RETURNING m.memory_id

-- name: said_later
-- The next messages of the user's own after $4 (of the session $3, or NULL: of all) that fit one of these patterns ($5), at most
-- $7 of at most $6 characters.
SELECT h.message_id, h.turn_index, h.content, h.created_at, h.session_id
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND ($3::uuid IS NULL OR h.session_id = $3) AND h.created_at > $4 AND h.role = 1
  AND NOT h.is_pruned AND NOT h.hidden AND length(h.content) <= $6 AND h.content ILIKE ANY ($5::text[])
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.item_id = h.message_id)
ORDER BY h.created_at
LIMIT $7
