-- All that is stored of a user (app/features/transfer/store.py), under row-level security.

-- name: tables
-- Every table that has rows of users, those that others lead to first.
SELECT c.relname AS name FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped)
ORDER BY array_position(ARRAY['users', 'sessions', 'conversation_history', 'memory_store'], c.relname::text), c.relname

-- name: rows
-- Some of the user's rows of a table; see the function.
SELECT r.line, r.key FROM agent_data.export_rows($1, $2, $3, $4, $5, $6) r

-- name: messages
-- Messages as they can be imported again, session by session, after ($3, $4, $5, $6); not what was forgotten or erased, nor what was
-- not to be found (imported it would be), nor other answers to a question that has one.
SELECT h.session_id, COALESCE(s.external_id, h.session_id::text) AS session, h.turn_index, h.sibling, h.message_id, h.role,
       h.content, h.content_parts, h.name, h.tool_calls, h.tool_call_id, h.created_at, h.metadata
FROM agent_data.conversation_history h
LEFT JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = h.session_id
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.role <= 5 AND NOT h.hidden
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
  AND ($3::uuid IS NULL OR (h.session_id, h.turn_index, h.sibling, h.message_id) > ($3, $4::integer, $5::smallint, $6::uuid))
ORDER BY h.session_id, h.turn_index, h.sibling, h.message_id
LIMIT $7
