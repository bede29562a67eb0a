-- What users told memory to do in a chat (app/features/commands/store.py), within one transaction of theirs.

-- name: earlier
-- What was done about this very message ($3: its mark): in its session ($4), or, since $5, in one that was never stored.
SELECT c.command_id, c.kind, c.scope, c.outcome, c.items, c.undone_at FROM agent_data.memory_commands c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.mark = $3 AND (c.session_id = $4 OR $5::timestamptz IS NOT NULL AND c.at > $5)
ORDER BY c.session_id = $4 DESC, c.at DESC
LIMIT 1

-- name: pending
-- What the user asked to forget in the message ($3) before, since $4: to be confirmed, or done by now.
SELECT c.command_id, c.kind, c.scope, c.outcome, c.items, c.undone_at FROM agent_data.memory_commands c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.message_hash = $3 AND c.kind = 'forget' AND c.outcome IN ('confirm', 'done')
  AND c.at > $4
ORDER BY c.at DESC
LIMIT 1

-- name: memories
-- Memories ($3: their session, where there is no user) that fit one of these patterns ($4); at most $5.
SELECT m.memory_id, m.content_text, m.subject_entity_id, m.predicate, m.object_value, m.is_active, m.kind
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.status <> 'forgotten'
  AND m.content_text ILIKE ANY ($4::text[])
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.item_id = m.memory_id)
ORDER BY m.is_active DESC, m.created_at DESC
LIMIT $5

-- name: memories_of
-- Of these memories ($3) those that are not forgotten, with their other wordings.
SELECT m.memory_id, m.status, m.content_hash FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.status <> 'forgotten'
  AND (m.memory_id = ANY ($3::uuid[]) OR m.superseded_by = ANY ($3::uuid[]) AND m.superseded_how = 'merged')
ORDER BY m.memory_id
FOR UPDATE

-- name: texts
-- What memories say.
SELECT m.memory_id, m.content_text FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[])

-- name: messages
-- Messages that fit all of these patterns ($4), of the session $3 or (NULL) of all, and are not forgotten; at most $5.
SELECT h.message_id, h.content, h.content_hash FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND ($3::uuid IS NULL OR h.session_id = $3) AND NOT h.is_pruned
  AND NOT h.hidden AND h.content ILIKE ALL ($4::text[])
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $2 AND s.item_id = h.message_id AND s.reason NOT IN ('superseded', 'resent'))
ORDER BY h.created_at DESC
LIMIT $5

-- name: said_by
-- The messages that said these memories ($3), and of the answers to them those that repeat what they say.
SELECT DISTINCT s.message_id, s.content_hash, s.length FROM agent_data.memory_store m
CROSS JOIN LATERAL agent_data.saying_messages(m.user_id, m.sources, m.object_value) s
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[])

-- name: messages_of
-- Some messages ($3).
SELECT h.message_id, h.content_hash, COALESCE(length(h.content), 0) AS length FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($3::uuid[]) AND NOT h.is_pruned

-- name: said_lately
-- Memories in force that stood in a prompt ($4), themselves or by a message that said them, or were learned from the last turns ($5) of a session ($3).
SELECT m.memory_id, m.content_text, m.subject_entity_id, m.predicate, m.object_value, m.is_active, m.kind
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.is_active
  AND (m.memory_id = ANY ($4::uuid[]) OR m.source_message_ids && $4::uuid[]
       OR m.session_id = $3 AND m.provenance_turn_index > (
           SELECT max(h.turn_index) FROM agent_data.conversation_history h WHERE h.user_id = $2 AND h.session_id = $3) - $5::integer)
ORDER BY m.created_at DESC

-- name: wishes
-- What the user has asked for always ($3: the session, where there is no user) before $4, and is in force.
SELECT m.memory_id, m.content_text, m.subject_entity_id, m.predicate, m.object_value, m.is_active, m.kind
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.is_active AND m.kind = 'instruction'
  AND COALESCE(m.stated_at, m.created_at) < $4
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.item_id = m.memory_id)
ORDER BY m.created_at DESC

-- name: heeded
-- Where a message ($3) stands, and what was done about it (NULL: nothing).
SELECT h.session_id, h.message_hash, c.command_id, c.kind, c.scope, c.outcome, c.items, c.undone_at
FROM agent_data.conversation_history h
LEFT JOIN LATERAL (
    SELECT q.* FROM agent_data.memory_commands q
    WHERE q.tenant_id = $1 AND q.user_id = $2
      AND (q.mark = uuid_send($3) OR q.session_id = h.session_id AND q.message_hash = h.message_hash)
    ORDER BY q.at DESC LIMIT 1) c ON true
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3

-- name: said_since
-- The next user messages, of whatever speaker, after $4 (of the session $3, or NULL: of all), at most $6 of at most $5 characters; not those
-- that are only said again.
WITH next AS MATERIALIZED (
    SELECT h.message_id, h.content, h.created_at, h.session_id, h.name FROM agent_data.conversation_history h
    WHERE h.tenant_id = $1 AND h.user_id = $2 AND ($3::uuid IS NULL OR h.session_id = $3) AND h.created_at > $4 AND h.role = 1
      AND NOT h.is_pruned AND NOT h.hidden AND length(h.content) <= $5
      AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.item_id = h.message_id)
    ORDER BY h.created_at
    LIMIT $6
)
SELECT n.message_id, n.content, n.created_at, n.session_id, n.name FROM next n
WHERE $3::uuid IS NOT NULL OR n.message_id NOT IN (
    SELECT agent_data.restated($2, array_agg(x.message_id), min(x.created_at), max(x.created_at)) FROM next x)
ORDER BY n.created_at

-- name: asked_by
-- The wishes in force that a message (of the session $3, by the hash $4 of its form) asked for.
SELECT m.memory_id FROM agent_data.conversation_history h
JOIN agent_data.memory_store m ON m.user_id = $2 AND m.is_active AND m.kind = 'instruction' AND m.source_message_ids = ARRAY[h.message_id]
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3 AND h.message_hash = $4

-- name: turn
-- A message of a session ($3), by the hash of its form ($4), with the answers to it.
SELECT h.message_id, h.content_hash, COALESCE(length(h.content), 0) AS length
FROM agent_data.conversation_history q
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = $3 AND (h.message_id = q.message_id OR h.role <> 1 AND h.parent_message_id = q.message_id)
WHERE q.tenant_id = $1 AND q.user_id = $2 AND q.session_id = $3 AND q.message_hash = $4

-- name: learned_from
-- Memories of which these messages ($3) are the only sources, and the words of them that say it.
SELECT m.memory_id, COALESCE((SELECT string_agg(q->>'quote', E'\n') FROM jsonb_array_elements(m.sources) AS q), '') AS quotes
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.status <> 'forgotten' AND m.source_message_ids && $3::uuid[]
  AND m.source_message_ids <@ $3::uuid[]

-- name: all_memories
-- All that is remembered ($3: of a session, where there is no user); what is hidden by a command already is left out.
SELECT m.memory_id FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.dedup_scope = $3 AND m.status <> 'forgotten'
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $2 AND s.item_id = m.memory_id AND s.reason NOT IN ('superseded', 'resent'))

-- name: all_messages
-- All that was said (of the session $3, or NULL).
SELECT h.message_id, h.content_hash, COALESCE(length(h.content), 0) AS length FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND ($3::uuid IS NULL OR h.session_id = $3) AND NOT h.is_pruned
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $2 AND s.item_id = h.message_id AND s.reason NOT IN ('superseded', 'resent'))

-- name: hidden
-- Why some of these ($3) are hidden already.
SELECT s.item_id, s.reason FROM agent_data.suppressions s WHERE s.user_id = $2 AND s.tenant_id = $1 AND s.item_id = ANY ($3::uuid[])

-- name: hide
-- Hides items ($3) with the keyed hashes of what they say ($4), by which they are known when they are sent again. What was
-- forgotten or deleted for good stays so.
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac, created_at)
SELECT $2, $1, x.item, 'forgotten_by_chat', x.mark, $5 FROM unnest($3::uuid[], $4::bytea[]) AS x (item, mark)
ON CONFLICT (user_id, item_id) DO UPDATE SET
    reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac, created_at = EXCLUDED.created_at
WHERE suppressions.reason IN ('superseded', 'resent')

-- name: drop_facts
-- What these memories ($3) were the source of is no fact any more ($5: 'ended', 'forgotten'), unless another one in force says it,
-- too.
SELECT agent_data.drop_facts_of($1, $2, m, $5, $4) FROM unnest($3::uuid[]) AS m

-- name: hide_again
-- Items ($3) go back to why they were hidden before ($4).
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, created_at)
SELECT $2, $1, x.item, x.reason, $5 FROM unnest($3::uuid[], $4::text[]) AS x (item, reason)
ON CONFLICT DO NOTHING

-- name: in_force_beside
-- Of these memories ($3) and others about the same subjects those in force, the one that was said last first.
SELECT m.memory_id, m.content_text, m.subject_entity_id, m.predicate, m.object_value, m.is_active, m.kind, m.valid_from
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.is_active AND m.predicate IS NOT NULL AND m.object_value IS NOT NULL
  AND EXISTS (SELECT FROM agent_data.memory_store r
              WHERE r.user_id = $2 AND r.memory_id = ANY ($3::uuid[]) AND r.dedup_scope = m.dedup_scope
                AND r.subject_entity_id = m.subject_entity_id)
ORDER BY COALESCE(m.stated_at, m.created_at) DESC, m.memory_id DESC

-- name: give_way
-- A memory ($3) is replaced by another ($4), which is so since $5.
UPDATE agent_data.memory_store m SET
    status = 'superseded', superseded_by = $4, superseded_how = 'conflict', valid_to = COALESCE(m.valid_to, $5), updated_at = $6
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: unforget
-- Shows again what a command hid.
SELECT u FROM agent_data.unforget($1, $2, $3) AS u

-- name: note
-- Writes down a command, or what became of one that was asked about.
INSERT INTO agent_data.memory_commands AS c (
    command_id, user_id, tenant_id, session_id, mark, message_hash, kind, scope, outcome, items, heir, at)
VALUES ($3, $2, $1, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: confirmed
-- A command that the user has confirmed: done to these items ($4).
UPDATE agent_data.memory_commands c SET outcome = 'done', items = $4 WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.command_id = $3

-- name: hold
-- A command, held against others.
SELECT c.command_id, c.session_id, c.message_hash, c.kind, c.scope, c.outcome, c.items, c.heir, c.undone_at
FROM agent_data.memory_commands c
WHERE c.tenant_id = $1 AND c.command_id = $3 AND c.user_id = $2
FOR UPDATE

-- name: begin_anew
-- The blocks of a session ($3) leave the prompt: one of them says that something was done which is undone. (By two: a request that is
-- under way may raise it by one.)
UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2 WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3

-- name: undone
-- A command was undone.
UPDATE agent_data.memory_commands c SET undone_at = $4 WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.command_id = $3

-- name: owner
-- Whose command it is.
SELECT c.user_id FROM agent_data.memory_commands c WHERE c.tenant_id = $1 AND c.command_id = $2 AND ($3::uuid IS NULL OR c.user_id = $3)

-- name: list
-- Commands of a user ($2; NULL: of all) after ($3, $4), newest first.
SELECT c.command_id, c.user_id, u.external_id AS user_external_id, c.session_id, c.kind, c.scope, c.outcome, c.items, c.heir, c.at,
       c.undone_at, h.message_id
FROM agent_data.memory_commands c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
LEFT JOIN LATERAL (
    SELECT q.message_id FROM agent_data.conversation_history q
    WHERE q.user_id = c.user_id AND q.session_id = c.session_id AND q.message_hash = c.message_hash
    ORDER BY q.created_at DESC LIMIT 1) h ON true
WHERE c.tenant_id = $1 AND ($2::uuid IS NULL OR c.user_id = $2)
  AND ($3::timestamptz IS NULL OR (c.at, c.command_id) < ($3, $4::uuid))
ORDER BY c.at DESC, c.command_id DESC
LIMIT $5
