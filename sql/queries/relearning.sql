-- Learning again from the stored history (app/jobs/relearn.py). A user's part is one transaction; users are listed as mneme_owner.

-- name: users
-- Returns users after $1, of the tenant $2 or (NULL) of all, without shared spaces; at most $3.
SELECT u.user_id, u.tenant_id, u.external_id, t.name AS tenant FROM agent_data.users u
JOIN agent_data.tenants t ON t.tenant_id = u.tenant_id
WHERE ($1::uuid IS NULL OR u.user_id > $1) AND ($2::uuid IS NULL OR u.tenant_id = $2)
  AND NOT EXISTS (SELECT FROM agent_data.spaces s WHERE s.tenant_id = u.tenant_id AND s.user_id = u.user_id)
ORDER BY u.user_id LIMIT $3

-- name: begin
-- Returns when the run began: a run that was stopped since $2 goes on, else a run begins now ($1).
INSERT INTO agent_data.job_effects AS j (user_id, tenant_id, job_key, at)
VALUES ('00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 'relearn', $1)
ON CONFLICT (user_id, job_key) DO UPDATE SET at = CASE WHEN j.at > $2 THEN j.at ELSE EXCLUDED.at END
RETURNING at

-- name: finish
-- Notes that the run is finished.
DELETE FROM agent_data.job_effects WHERE user_id = '00000000-0000-0000-0000-000000000000' AND job_key = 'relearn'

-- name: messages
-- Returns a user's messages that may be learned from, in the order of time; the messages of a turn stand together.
SELECT h.message_id, h.session_id, s.external_id AS session_name, h.role, h.created_at
FROM agent_data.conversation_history h
JOIN agent_data.sessions s ON s.user_id = h.user_id AND s.session_id = h.session_id
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.turn_index > 0 AND NOT h.hidden AND NOT h.is_pruned
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason <> 'superseded')
ORDER BY h.created_at, h.session_id, h.turn_index, h.sibling

-- name: clear_role_play
-- Resets all sessions to the state before their first message, in which no role play has begun.
UPDATE agent_data.sessions SET in_role_play = false, is_playing = false
WHERE tenant_id = $1 AND user_id = $2 AND (in_role_play OR is_playing)

-- name: role_plays
-- Returns the sessions in which a role play began.
SELECT session_id, is_playing FROM agent_data.sessions WHERE tenant_id = $1 AND user_id = $2 AND in_role_play

-- name: set_role_plays
-- Notes that a role play began in the sessions $3 and in no other one, and that the user has a role in the sessions $4.
UPDATE agent_data.sessions SET in_role_play = session_id = ANY ($3::uuid[]), is_playing = session_id = ANY ($4::uuid[])
WHERE tenant_id = $1 AND user_id = $2
  AND (in_role_play, is_playing) IS DISTINCT FROM (session_id = ANY ($3::uuid[]), session_id = ANY ($4::uuid[]))

-- name: uncover
-- Shows superseded messages again: they are learned from, and superseded again.
UPDATE agent_data.suppressions SET item_id = gen_random_uuid() WHERE tenant_id = $1 AND user_id = $2 AND reason = 'superseded'

-- name: memories
-- Returns the memories of a scope ($3). Learning again leaves those with `is_fixed` as they are: what somebody wrote, changed,
-- confirmed, denied, ended or hid, what a row of the business confirmed or a helper LLM said, what expired, and what was not
-- learned from the user's own words.
SELECT m.memory_id, m.content_text, m.content_hash, m.kind, m.status, m.superseded_by, m.superseded_how,
       m.subject_entity_id AS subject, m.predicate, m.object_value AS value, m.source_message_ids,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.updated_at, m.expires_at, to_jsonb(m) AS columns,
       m.kind NOT IN ('fact', 'preference', 'instruction', 'correction', 'event')
       OR m.validated_by = 'domain' IS TRUE OR m.status = 'expired' OR m.is_active AND m.expires_at <= $4
       OR m.tags @> '{llm}' OR m.details ? 'object' OR m.confidence_factors ? 'denied'
       OR NOT EXISTS (SELECT FROM jsonb_array_elements(m.sources) AS q WHERE q ->> 'quote' <> '')
       OR EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = $2 AND x.item_id = m.memory_id)
       OR EXISTS (SELECT FROM agent_data.memory_events e
                  WHERE e.user_id = $2 AND e.memory_id = m.memory_id AND e.actor <> 'system')
       OR m.status = 'invalidated'
          AND NOT EXISTS (SELECT FROM agent_data.memory_events e
                          WHERE e.user_id = $2 AND e.memory_id = m.memory_id AND e.event = 'invalidated'
                            AND e.after ->> 'reason' IN ('ended', 'relearned')) AS is_fixed
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.status <> 'forgotten'
ORDER BY m.memory_id

-- name: add
-- Adds memories (JSON of their columns) in the scope of users' memories.
INSERT INTO agent_data.memory_store (
    memory_id, user_id, tenant_id, session_id, memory_tier, memory_scope, kind, content_text, content_hash, provenance_type,
    provenance_turn_id, provenance_turn_index, source_message_ids, sources, confidence, confidence_factors, importance,
    access_count, reinforcement_count, created_at, updated_at, expires_at, valid_from, valid_to, stated_at, status,
    superseded_by, superseded_how, is_validated, validated_by, last_validated_at, token_count, subject_entity_id, predicate,
    predicate_type, object_value, entity_ids, tags, details)
SELECT x.memory_id, $2, $1, x.session_id, x.memory_tier, x.memory_scope, x.kind, x.content_text, x.content_hash, x.provenance_type,
    x.provenance_turn_id, x.provenance_turn_index, x.source_message_ids, x.sources, x.confidence, x.confidence_factors, x.importance,
    x.access_count, x.reinforcement_count, x.created_at, $4, x.expires_at, x.valid_from, x.valid_to, x.stated_at, x.status,
    x.superseded_by, x.superseded_how, x.is_validated, x.validated_by, x.last_validated_at, x.token_count, x.subject_entity_id, x.predicate,
    x.predicate_type, x.object_value, x.entity_ids, x.tags, x.details
FROM jsonb_populate_recordset(NULL::agent_data.memory_store, $3::jsonb) AS x

-- name: reword
-- Gives memories ($3: JSON of the columns that today's learning gives them) the words of today's learning.
UPDATE agent_data.memory_store m SET
    content_text = x.content_text, content_hash = x.content_hash, token_count = x.token_count, kind = x.kind, sources = x.sources,
    source_message_ids = x.source_message_ids, tags = x.tags, entity_ids = x.entity_ids, updated_at = $4
FROM jsonb_populate_recordset(NULL::agent_data.memory_store, $3::jsonb) AS x
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: give_claims
-- Gives these memories ($3, as in `reword`) their claims, in a statement of its own because a change of the text removes them.
UPDATE agent_data.memory_store m SET
    subject_entity_id = x.subject_entity_id, predicate = x.predicate, predicate_type = x.predicate_type, object_value = x.object_value
FROM jsonb_populate_recordset(NULL::agent_data.memory_store, $3::jsonb) AS x
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: settle
-- Gives memories their new state (JSON).
UPDATE agent_data.memory_store m SET
    status = x.status, superseded_by = x.superseded_by, superseded_how = x.superseded_how, valid_to = x.valid_to,
    details = m.details || x.details, updated_at = $4
FROM jsonb_to_recordset($3::jsonb) AS x (
    memory_id uuid, status text, superseded_by uuid, superseded_how text, valid_to timestamptz, details jsonb)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: retire
-- Retires memories ($3) that today's learning does not find. Their sources are removed, so that the messages stay in searches: only
-- their reading was wrong.
UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = $4, updated_at = $4, sources = '[]'
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[])

-- name: give_sources
-- Gives retired memories ($3, as JSON) their sources again.
UPDATE agent_data.memory_store m SET sources = x.sources
FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, sources jsonb)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: read_by_llm
-- Returns the messages that a helper LLM is known to have read: those of its memories, and of its jobs of the last days ($3: the
-- beginning of their keys).
SELECT i AS message_id FROM agent_data.memory_store m, unnest(m.source_message_ids) AS i
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.tags @> '{llm}'
UNION
SELECT substr(j.job_key, length($3::text) + 1)::uuid FROM agent_data.job_effects j
WHERE j.tenant_id = $1 AND j.user_id = $2 AND starts_with(j.job_key, $3)
