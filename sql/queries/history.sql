-- name: lineage
-- A session and those that it branched off, nearest first, each with the stretch of turns that belongs to this conversation:
-- above `low`, up to `high` (NULL: open).
WITH RECURSIVE line AS (
    SELECT s.session_id, s.parent_session_id, COALESCE(s.branch_turn_index, 0) AS low, NULL::integer AS high,
           s.first_message_at, s.last_message_at, 1 AS depth
    FROM agent_data.sessions s WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3
    UNION ALL
    SELECT p.session_id, p.parent_session_id, COALESCE(p.branch_turn_index, 0), LEAST(l.high, l.low),
           p.first_message_at, p.last_message_at, l.depth + 1
    FROM line l JOIN agent_data.sessions p ON p.user_id = $2 AND p.session_id = l.parent_session_id
    WHERE p.tenant_id = $1 AND l.depth < $4
)
SELECT session_id, low, high, first_message_at, last_message_at FROM line ORDER BY depth

-- name: messages
-- The messages of some stretches of sessions in their order, after ($8, $9, $10); $6 and $7 bound the months to open. What was
-- forgotten or erased is not shown; what is merely superseded was still said.
SELECT h.message_id, h.session_id, h.turn_index, h.sibling, h.parent_message_id, h.role, h.content, h.content_parts, h.name,
       h.tool_calls, h.tool_call_id, h.token_count, h.model_id, h.finish_reason, h.call_id, h.created_at, h.metadata,
       h.reasoning
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = line.session_id AND h.turn_index > line.low
 AND (line.high IS NULL OR h.turn_index <= line.high)
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.created_at >= $6 AND h.created_at <= $7
  AND ($8::integer IS NULL OR (h.turn_index, h.sibling, h.message_id) > ($8, $9::integer, $10::uuid))
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index, h.sibling, h.message_id
LIMIT $11

-- name: last
-- The last messages of some stretches of sessions, newest first; as `messages`.
SELECT h.message_id, h.session_id, h.turn_index, h.sibling, h.parent_message_id, h.role, h.content, h.content_parts, h.name,
       h.tool_calls, h.tool_call_id, h.token_count, h.model_id, h.finish_reason, h.call_id, h.created_at, h.metadata,
       h.reasoning
FROM unnest($3::uuid[], $4::integer[], $5::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = line.session_id AND h.turn_index > line.low
 AND (line.high IS NULL OR h.turn_index <= line.high)
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.created_at >= $6 AND h.created_at <= $7
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC, h.sibling DESC, h.message_id DESC
LIMIT $8

-- name: lock
-- A session's end, held against other writers: where the next message goes on.
SELECT s.head_message_id, s.head_chain, s.turn_count, s.first_message_at, s.last_message_at
FROM agent_data.sessions s WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3
FOR UPDATE

-- name: recent
-- The last messages of a session, newest first: what the hash of its last turns is taken from.
SELECT h.message_id, h.parent_message_id, h.role, h.message_hash FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3 AND h.created_at >= $4 AND h.created_at <= $5
ORDER BY h.turn_index DESC, h.sibling DESC
LIMIT $6

-- name: stored
-- Which of these messages are stored already; $4 and $5 bound the months to open.
SELECT h.message_id FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($3::uuid[]) AND h.created_at >= $4 AND h.created_at <= $5

-- name: find
-- The message $3 of some stretches of sessions, if it is shown; $7 and $8 bound the months to open.
SELECT h.session_id, h.created_at
FROM unnest($4::uuid[], $5::integer[], $6::integer[]) AS line (session_id, low, high)
JOIN agent_data.conversation_history h
  ON h.user_id = $2 AND h.session_id = line.session_id AND h.turn_index > line.low
 AND (line.high IS NULL OR h.turn_index <= line.high)
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3 AND h.created_at >= $7 AND h.created_at <= $8
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))

-- name: stored_times
-- When what stands in a session under these words was said: recognises imported messages that came without a time. What was
-- deleted has left its place and a keyed hash of its words ($5 and $6: the padded key, as in app/store/erasure.py).
SELECT COALESCE(h.content_hash, d.content_hash) AS content_hash, h.message_id, h.created_at
FROM agent_data.conversation_history h
LEFT JOIN LATERAL (
    SELECT w.hash AS content_hash FROM agent_data.suppressions s
    JOIN unnest($4::bytea[]) AS w (hash) ON s.content_hmac = sha256($6::bytea || sha256($5::bytea || w.hash))
    WHERE s.user_id = $2 AND s.item_id = h.message_id AND s.reason = 'deleted'
    LIMIT 1
) d ON h.content_hash IS NULL
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3
  AND (h.content_hash = ANY ($4::bytea[]) OR d.content_hash IS NOT NULL)
ORDER BY h.turn_index, h.sibling

-- name: append
-- Adds messages to a session; where each came to stand.
SELECT placed_id, placed_index FROM agent_data.append_messages($1, $2, $3, $4, NULL, 0, 0, 0)

-- name: heads
-- What the next transcript of this session is recognised by.
INSERT INTO agent_data.session_heads (user_id, tenant_id, chain_hash, session_id, message_id, turn_index, asked)
SELECT $2, $1, x.chain, $3, x.message, x.turn, x.asked
FROM unnest($4::bytea[], $5::uuid[], $6::integer[], $7::boolean[]) AS x (chain, message, turn, asked)
ON CONFLICT DO NOTHING

-- name: add_vectors
-- The vectors of messages (kind 0) or memories (kind 1).
SELECT agent_data.add_vectors($1, $2, $3, $4, $5, $6, $7)

-- name: enqueue
-- Puts jobs into the queue, in this transaction.
SELECT agent_data.enqueue($1)
