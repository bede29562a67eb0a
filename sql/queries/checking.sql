-- name: things_known
-- Whether the tenant, or this user, has spoken of things at all.
SELECT EXISTS (SELECT FROM agent_data.canonical_entities e
               WHERE e.tenant_id = $1 AND e.user_id = ANY (ARRAY[$2, '00000000-0000-0000-0000-000000000000']::uuid[]))

-- name: said_before
-- The last $4 messages of a session before a turn, oldest first, as far as they may be read.
SELECT * FROM (
    SELECT h.role, h.content, h.turn_index, h.sibling
    FROM agent_data.sessions s
    JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.session_id = s.session_id
        AND h.created_at >= s.first_message_at AND h.created_at <= s.last_message_at
    WHERE s.user_id = $1 AND s.session_id = $2 AND h.turn_index < $3 AND h.turn_index >= 0 AND h.role IN (1, 2)
      AND h.content <> '' AND NOT h.is_pruned
      AND NOT EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = $1 AND x.item_id = h.message_id)
    ORDER BY h.turn_index DESC, h.sibling DESC LIMIT $4
) x ORDER BY x.turn_index, x.sibling

-- name: preferred_days
-- Which preferred day of these things is known: "Friday deliveries".
SELECT DISTINCT m.subject_entity_id AS thing, m.predicate FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.subject_entity_id = ANY ($3::text[]) AND m.is_active
  AND right(m.predicate, 14) = 'day_preference'

-- name: tie
-- Memories that were learned before their thing was known by its name have it for their subject now.
UPDATE agent_data.memory_store m SET
    subject_entity_id = x.thing, updated_at = $5,
    entity_ids = CASE WHEN x.thing = ANY (m.entity_ids) THEN m.entity_ids ELSE x.thing || m.entity_ids END
FROM unnest($3::text[], $4::text[]) AS x (named, thing)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $6 AND m.subject_entity_id = x.named AND m.predicate IS NOT NULL

-- name: name_things
-- The things that exchanges named, as JSON, and the queries that their calls' own prompts made, stand with their episodes.
UPDATE agent_data.episodes e SET
    entities = (SELECT array_agg(DISTINCT each.id) FROM unnest(x.ids || e.entities) AS each (id)),
    things = x.things,
    domain_facts = COALESCE((
        SELECT jsonb_build_object('queries', a.audit -> 'domain' -> 'queries')
        FROM agent_data.conversation_history h
        CROSS JOIN LATERAL (
            SELECT c.audit::jsonb AS audit FROM agent_data.compilations c WHERE c.call_id = h.call_id AND c.user_id = $2
        ) a
        WHERE h.user_id = $2 AND h.message_id = e.message_id AND h.created_at = e.at AND a.audit -> 'domain' ? 'queries'
    ), e.domain_facts)
FROM jsonb_to_recordset($3::jsonb) AS x (message_id uuid, ids text[], things jsonb)
WHERE e.tenant_id = $1 AND e.user_id = $2 AND e.message_id = x.message_id

-- name: claimed
-- Whether a job had its effect.
SELECT EXISTS (SELECT FROM agent_data.job_effects j WHERE j.user_id = $1 AND j.job_key = $2)

-- name: claims
-- What is in force and says something of a thing that its row may say, too: now, not of another time.
SELECT m.memory_id, m.subject_entity_id AS entity_id, m.predicate, m.object_value AS value,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.confidence
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.subject_entity_id = $3 AND m.predicate = ANY ($4::text[]) AND m.is_active
  AND m.object_value IS NOT NULL AND (m.valid_to IS NULL OR m.valid_to > $5) AND (m.expires_at IS NULL OR m.expires_at > $5)
ORDER BY m.memory_id

-- name: hold_claims
-- Those of these memories that still say so, held against other writers, in the order in which all take them.
SELECT m.memory_id, m.status FROM agent_data.memory_store m
JOIN unnest($3::uuid[], $4::text[]) AS x (memory_id, value) ON x.memory_id = m.memory_id AND x.value = m.object_value
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
ORDER BY m.memory_id
FOR NO KEY UPDATE OF m

-- name: known_clash
-- Whether this very contradiction stands in the log: of a memory, by what it says ($5), and what the row says ($6).
SELECT EXISTS (
    SELECT FROM agent_data.memory_conflicts c
    WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.entity_id = $3 AND $4 = ANY (c.memory_ids)
      AND c.conflict_data -> 'memory' ->> 'value' = $5 AND c.conflict_data -> 'db_source' ->> 'field' = $6
      AND c.conflict_data -> 'db_source' ->> 'value' = $7)

-- name: end_clashes
-- Open contradictions of a memory with a row that says something else by now.
UPDATE agent_data.memory_conflicts c SET resolved_at = $5, resolution_outcome = $6
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.entity_id = $3 AND c.resolved_at IS NULL AND c.conflict_data ? 'db_source'
  AND $4 = ANY (c.memory_ids)

-- name: invalidate
-- A row says otherwise.
UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = $4, updated_at = $4
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: doubt
-- A row says otherwise, and the user has the word: the memory is due for a question, whenever it was asked about.
UPDATE agent_data.memory_store m SET
    status = 'aging', updated_at = $5,
    details = (m.details - '{asked_at,asked,asked_in}'::text[]) || jsonb_build_object('in_conflict', $4::uuid)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: agree
-- A row says the same.
UPDATE agent_data.memory_store m SET
    status = 'active', is_validated = true, validated_by = 'domain', last_validated_at = $4, updated_at = $4,
    details = m.details - '{asked_at,asked,asked_in}'::text[]
FROM agent_data.memory_store old
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3 AND old.user_id = $2 AND old.memory_id = $3
RETURNING old.status, old.validated_by

-- name: beaten
-- What had lost a contradiction to a memory that a row has ended.
SELECT m.memory_id, m.object_value AS value FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.superseded_by = $3 AND m.superseded_how = 'conflict' AND m.status = 'superseded'
  AND m.object_value IS NOT NULL AND NOT EXISTS (
      SELECT FROM agent_data.memory_store o
      WHERE o.user_id = $2 AND o.dedup_scope = m.dedup_scope AND o.content_hash = m.content_hash AND o.is_active)
ORDER BY m.memory_id
FOR UPDATE
