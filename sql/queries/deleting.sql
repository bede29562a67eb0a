-- Deleting a message (app/store/erasure.py), as mneme_eraser, in one transaction; row-level security holds it to the tenant.

-- name: hold
-- A message that is shown, held against others. `said`: its words, with those of its tool calls.
SELECT h.session_id, h.content_hash, h.compressed_summary_id, concat_ws(' ', h.content, h.tool_calls::text) AS said,
       h.message_hash
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3 AND h.created_at = $4
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
FOR UPDATE OF h

-- name: of_session
-- Messages of a session that are shown, the newest first, at most $4.
SELECT h.message_id, h.session_id, h.created_at FROM agent_data.conversation_history h
JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = h.session_id
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3
  AND h.created_at BETWEEN s.first_message_at AND s.last_message_at
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC, h.sibling DESC
LIMIT $4

-- name: dropped
-- Messages of a session that went with their month (`mneme archive drop`), as memories name them, with what these quote of them.
SELECT x.message_id, x.said FROM (
    SELECT (s.source ->> 'message_id')::uuid AS message_id, string_agg(DISTINCT s.source ->> 'quote', ' ') AS said
    FROM agent_data.memory_store m CROSS JOIN jsonb_array_elements(m.sources) AS s (source)
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.status <> 'forgotten' AND s.source ->> 'session_id' = $3::uuid::text
    GROUP BY 1
) x
WHERE NOT EXISTS (SELECT FROM agent_data.conversation_history h WHERE h.user_id = $2 AND h.message_id = x.message_id)
ORDER BY x.message_id

-- name: archived
-- Months of a session's time that are archived, where no single message is deleted (2026-01); NULL: none.
SELECT array_agg(DISTINCT left(a.month, 4) || '-' || right(a.month, 2)) FROM agent_data.sessions s
JOIN agent_data.history_archives a ON a.state = 'archived' AND a.month BETWEEN
    to_char(s.first_message_at AT TIME ZONE 'UTC', 'YYYYMM') AND to_char(s.last_message_at AT TIME ZONE 'UTC', 'YYYYMM')
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3

-- name: end_session
-- Ends a session whose messages are deleted, without what was said of it. Turns that have begun are recorded as deleted.
UPDATE agent_data.sessions SET
    status = 3, ended_at = $4, deleted_at = $4, updated_at = $4, metadata = '{}', summary_text = NULL,
    summary_embedding = NULL, summary_token_count = 0
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: learned
-- What was learned from a message, and the summary that stands for it, held in the order in which all take memories. Not what was
-- drawn from many: that goes with the message (`forget_derived`), and is not what its user wants forgotten, but drawn anew.
SELECT m.memory_id, m.kind, m.content_text, m.sources, m.source_message_ids,
       m.provenance_turn_id IS NULL AND m.is_validated AS stated
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.status <> 'forgotten'
  AND ($3 = ANY (m.source_message_ids) OR m.provenance_turn_id = $3 OR m.memory_id = $4::uuid)
  AND NOT (m.kind = 'summary' AND m.details ? 'key')
ORDER BY m.memory_id
FOR UPDATE

-- name: older
-- What these memories ($3) said more of, and took the place of; not what they corrected, which was said to be untrue, nor what
-- another one in force says in the same words.
SELECT m.memory_id, m.superseded_by AS heir, m.content_text FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.superseded_by = ANY ($3::uuid[]) AND m.superseded_how = 'merged'
  AND m.status = 'superseded' AND m.memory_id <> ALL ($3::uuid[]) AND (m.expires_at IS NULL OR m.expires_at > $4)
  AND NOT EXISTS (SELECT FROM agent_data.memory_store o
                  WHERE o.user_id = $2 AND o.content_hash = m.content_hash AND o.dedup_scope = m.dedup_scope
                    AND o.is_active AND o.memory_id <> ALL ($3::uuid[]))
ORDER BY m.memory_id
FOR UPDATE

-- name: part
-- Parts wordings from the memory that they were merged into, before that is forgotten: each goes to the one ($4) that is to stand
-- in its place, and that one to none.
UPDATE agent_data.memory_store m SET
    superseded_by = x.heir, superseded_how = CASE WHEN x.heir = m.memory_id THEN NULL ELSE m.superseded_how END
FROM unnest($3::uuid[], $4::uuid[]) AS x (memory_id, heir)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id

-- name: only_source
-- Memories that are to be forgotten stand for this message ($4) alone: what else said a part of it stays.
UPDATE agent_data.memory_store m SET sources = '[]', source_message_ids = ARRAY[$4::uuid]
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[])

-- name: restore
-- Brings memories back whose place nothing takes any more.
UPDATE agent_data.memory_store m SET status = 'active', superseded_by = NULL, valid_to = NULL, updated_at = $4
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status = 'superseded'

-- name: lose_source
-- Takes a message ($4) from the sources of memories that have others. If its place was the memory's, that is the first other one's.
UPDATE agent_data.memory_store m SET
    sources = k.kept,
    source_message_ids = array_remove(m.source_message_ids, $4),
    reinforcement_count = GREATEST(0, m.reinforcement_count - 1),
    provenance_turn_id = CASE m.provenance_turn_id WHEN $4 THEN (array_remove(m.source_message_ids, $4))[1]
                                                   ELSE m.provenance_turn_id END,
    provenance_turn_index = CASE m.provenance_turn_id WHEN $4 THEN (k.kept -> 0 ->> 'turn_index')::integer
                                                      ELSE m.provenance_turn_index END,
    session_id = CASE m.provenance_turn_id WHEN $4 THEN COALESCE((k.kept -> 0 ->> 'session_id')::uuid, m.session_id)
                                           ELSE m.session_id END,
    updated_at = $5
FROM (
    SELECT o.memory_id, COALESCE(
        (SELECT jsonb_agg(s.source ORDER BY s.n) FROM jsonb_array_elements(o.sources) WITH ORDINALITY AS s (source, n)
         WHERE s.source ->> 'message_id' IS DISTINCT FROM $4::uuid::text), '[]') AS kept
    FROM agent_data.memory_store o WHERE o.user_id = $2 AND o.memory_id = ANY ($3::uuid[])
) k
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = k.memory_id

-- name: summaries
-- Takes the summaries of a session and of its branches away; which had one. They are written anew from what is left.
WITH RECURSIVE branches AS (
    SELECT $3::uuid AS session_id
    UNION
    SELECT s.session_id FROM branches b JOIN agent_data.sessions s ON s.user_id = $2 AND s.parent_session_id = b.session_id
)
UPDATE agent_data.sessions s SET summary_text = NULL, summary_embedding = NULL, summary_token_count = 0
FROM branches b
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = b.session_id AND s.summary_text IS NOT NULL
RETURNING s.session_id

-- name: uncompress
-- Shows again what a summary stood for that is gone.
UPDATE agent_data.conversation_history h SET is_compressed = false, compressed_summary_id = NULL
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.compressed_summary_id = $3

-- name: blocks
-- Drops stored memory blocks that quote one of these items ($3), and all of sessions whose summary is gone ($4): their prompts
-- begin a new epoch.
WITH quoting AS (
    DELETE FROM agent_data.context_blocks b
    WHERE b.tenant_id = $1 AND b.user_id = $2 AND (b.item_ids && $3::uuid[] OR b.session_id = ANY ($4::uuid[]))
    RETURNING b.session_id
)
UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id IN (SELECT q.session_id FROM quoting q)

-- name: blank
-- Leaves of a message its place in the conversation, and the hash of its form by which a transcript is recognised.
UPDATE agent_data.conversation_history h SET
    content = NULL, content_parts = NULL, name = NULL, tool_calls = NULL, tool_call_id = NULL, content_hash = NULL,
    metadata = '{}', reasoning = NULL, is_pruned = true, hidden = true, is_compressed = false, compressed_summary_id = NULL
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3 AND h.created_at = $4

-- name: working
-- Working memory of a session, which is rebuilt from it.
DELETE FROM agent_data.memory_store_working WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: cards
-- The cards that were shown with a message, or taken from it.
DELETE FROM agent_data.ui_cards_shown c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND (c.message_id = $3 OR c.source_message_id = $3)

-- name: same
-- How many messages of a session ($3) say the same ($4: the hash of their form).
SELECT count(*) AS many FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3 AND h.message_hash = $4

-- name: paged
-- Takes away what paging has of a message ($4: what it may be known by, as hex) in its session and the branches of that: the objects
-- that stand in it with all that is about them; and questions, answers and hidden exchanges, which may quote it.
WITH RECURSIVE branches AS (
    SELECT $3::uuid AS session_id
    UNION
    SELECT s.session_id FROM branches b JOIN agent_data.sessions s ON s.user_id = $2 AND s.parent_session_id = b.session_id
), gone AS (
    DELETE FROM agent_data.semantic_objects o USING branches b
    WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.session_id = b.session_id
      AND EXISTS (SELECT FROM jsonb_array_elements(o.parts) AS p WHERE p ->> 0 = ANY ($4::text[]))
    RETURNING o.object_id
), apart AS (
    DELETE FROM agent_data.object_relationships r USING gone g
    WHERE r.tenant_id = $1 AND r.user_id = $2 AND g.object_id IN (r.source_id, r.target_id)
), unmoved AS (
    DELETE FROM agent_data.fidelity_transitions t USING gone g
    WHERE t.tenant_id = $1 AND t.user_id = $2 AND t.object_id = g.object_id
), unadmitted AS (
    DELETE FROM agent_data.admission_scores a USING branches b
    WHERE a.tenant_id = $1 AND a.user_id = $2 AND a.session_id = b.session_id
      AND (a.object_id IS NULL OR a.object_id IN (SELECT g.object_id FROM gone g))
), unasked AS (
    UPDATE agent_data.fault_history f SET
        question = NULL, answer = NULL,
        object_id = CASE WHEN f.object_id IN (SELECT g.object_id FROM gone g) THEN NULL ELSE f.object_id END
    FROM branches b
    WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.session_id = b.session_id
)
DELETE FROM agent_data.phantom_ledger l USING branches b
WHERE l.tenant_id = $1 AND l.user_id = $2 AND l.session_id = b.session_id
