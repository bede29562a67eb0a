-- Ends, doubts and withdraws memories at later words of the user (app/jobs/changes.py), within a learning job's effect.

-- name: in_force
-- Returns the user's memories in force (of the scope $3) that were said before $4 by other messages than $5, and have one of the words
-- $6 (patterns) or predicates $7.
SELECT m.memory_id, m.content_text, m.kind, m.status, m.subject_entity_id AS subject, m.predicate, m.object_value AS value,
       ARRAY(SELECT q ->> 'quote' FROM jsonb_array_elements(m.sources) AS q WHERE q ->> 'quote' <> '') AS quotes
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.is_active AND m.speaker IS NULL
  AND m.kind IN ('fact', 'preference', 'correction')
  AND COALESCE(m.stated_at, m.created_at) < $4 AND NOT m.source_message_ids @> ARRAY[$5::uuid] AND m.validated_by IS DISTINCT FROM 'domain'
  AND (m.content_text ILIKE ANY ($6::text[]) OR m.sources::text ILIKE ANY ($6::text[]) OR m.predicate = ANY ($7::text[]))
ORDER BY m.created_at DESC
LIMIT 200

-- name: said_before
-- Returns at most $7 of the user's own messages of a session ($4) between the turns $5 and $6, the latest first, with the ids of
-- their memories in force (of the scope $3) that no other message says.
SELECT h.message_id, h.content,
       ARRAY(SELECT m.memory_id FROM agent_data.memory_store m
             WHERE m.user_id = $2 AND m.dedup_scope = $3 AND m.is_active AND m.speaker IS NULL
               AND m.source_message_ids = ARRAY[h.message_id]
             ORDER BY m.memory_id) AS memories
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $4 AND h.turn_index BETWEEN $5 AND $6 AND h.role = 1
  AND NOT h.is_pruned AND NOT h.hidden
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $2 AND s.item_id = h.message_id AND s.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC
LIMIT $7

-- name: texts
-- Returns the texts of memories ($3), and locks the memories against other writers.
SELECT m.memory_id, m.content_text, m.content_hash, m.status,
       ARRAY(SELECT q ->> 'quote' FROM jsonb_array_elements(m.sources) AS q WHERE q ->> 'quote' <> '') AS quotes
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
ORDER BY m.memory_id
FOR NO KEY UPDATE

-- name: close
-- Closes memories ($3), which were right until $4.
UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = COALESCE(m.valid_to, $4), updated_at = $5
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
RETURNING m.memory_id

-- name: doubt
-- Puts memories ($3) in doubt because of a message ($4): they are due for a question, and only the user ends the doubt.
UPDATE agent_data.memory_store m SET
    status = 'aging', updated_at = $5,
    details = (COALESCE(m.details, '{}') - '{asked_at,asked,asked_in}'::text[])
              || jsonb_build_object('in_conflict', $4::uuid, 'doubted_by', $4::uuid, 'doubted_at', $5::timestamptz)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status = 'active'
RETURNING m.memory_id

-- name: said_later
-- Returns the next user messages, of whatever speaker, after $4 (of the session $3, or NULL: of all) that fit one of the patterns $5; at most $7, of at
-- most $6 characters. Those of a session with a role play are left out.
SELECT h.message_id, h.turn_index, h.content, h.created_at, h.session_id, h.name
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND ($3::uuid IS NULL OR h.session_id = $3) AND h.created_at > $4 AND h.role = 1
  AND NOT h.is_pruned AND NOT h.hidden AND length(h.content) <= $6 AND h.content ILIKE ANY ($5::text[])
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.item_id = h.message_id)
  AND NOT EXISTS (SELECT FROM agent_data.sessions p WHERE p.user_id = $2 AND p.session_id = h.session_id AND p.in_role_play)
ORDER BY h.created_at
LIMIT $7

-- name: by_messages
-- Returns memories that rules ended or doubted because of one of the messages $3, and that were not changed since; hidden ones are
-- left out. The first of the messages was said at $4.
SELECT m.memory_id, m.content_text, m.content_hash, m.memory_tier, m.memory_scope, m.session_id, m.kind, m.confidence,
       m.importance, m.access_count, m.reinforcement_count, m.expires_at, m.is_validated, m.validated_by,
       m.provenance_type, COALESCE(m.valid_from, m.created_at) AS valid_from,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.sources, m.source_message_ids,
       m.subject_entity_id, m.predicate, m.object_value, m.valid_to, m.details ? 'since' AS dated, m.tags, m.speaker,
       m.status, (e.after ->> 'message_id')::uuid AS message_id
FROM agent_data.memory_store m
JOIN agent_data.memory_events e ON e.user_id = m.user_id AND e.memory_id = m.memory_id
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.status IN ('invalidated', 'aging') AND m.updated_at >= $4
  AND e.event IN ('invalidated', 'aging') AND (e.after ->> 'message_id')::uuid = ANY ($3::uuid[])
  AND NOT EXISTS (SELECT FROM agent_data.memory_events l
                  WHERE l.user_id = m.user_id AND l.memory_id = m.memory_id
                    AND (l.at > e.at OR l.at = e.at AND l.actor <> 'system'))
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = m.memory_id)
ORDER BY m.memory_id

-- name: bring_back
-- Brings memories ($3) back into force and out of doubt: the words that ended or doubted them were misread. A memory stays away
-- where another one in force has the same text.
WITH back AS (
    UPDATE agent_data.memory_store m SET
        status = 'active', superseded_by = NULL, updated_at = $4,
        valid_to = CASE WHEN m.status = 'aging' THEN m.valid_to END,
        details = m.details - '{in_conflict,doubted_by,doubted_at,asked_at,asked,asked_in}'::text[],
        confidence = COALESCE((m.confidence_factors ->> 'denied')::real, m.confidence),
        confidence_factors = m.confidence_factors - 'denied'
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status IN ('invalidated', 'aging')
      AND NOT EXISTS (SELECT FROM agent_data.memory_store o
                      WHERE o.user_id = $2 AND o.content_hash = m.content_hash AND o.dedup_scope = m.dedup_scope
                        AND o.is_active AND o.memory_id <> m.memory_id)
    RETURNING m.memory_id
)
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, after, actor)
SELECT $2, $1, b.memory_id, $4, 'restored', '{"status": "active", "reason": "not_confirmed_by_llm"}', 'system' FROM back b

-- name: bring_back_replaced
-- Brings back into force what withdrawn memories ($3) had contradicted.
WITH back AS (
    UPDATE agent_data.memory_store m SET status = 'active', superseded_by = NULL, valid_to = NULL, updated_at = $4
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.superseded_by = ANY ($3::uuid[]) AND m.status = 'superseded'
      AND m.superseded_how IN ('corrected', 'conflict')
      AND NOT EXISTS (SELECT FROM agent_data.memory_store o
                      WHERE o.user_id = $2 AND o.content_hash = m.content_hash AND o.dedup_scope = m.dedup_scope AND o.is_active)
    RETURNING m.memory_id
)
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
SELECT $2, $1, b.memory_id, $4, 'restored', '{"status": "superseded"}', '{"status": "active", "reason": "not_found_by_llm"}', 'system'
FROM back b

-- name: replace_ended
-- Notes the memories ($4) that replace memories ($3) which rules ended.
UPDATE agent_data.memory_store m SET
    status = 'superseded', superseded_by = x.heir, superseded_how = 'conflict', updated_at = $5
FROM unnest($3::uuid[], $4::uuid[]) AS x (memory_id, heir)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id AND m.status = 'invalidated' AND x.heir <> x.memory_id
