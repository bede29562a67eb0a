-- name: recognise
-- The session that a request belongs to, with its live memory blocks, what every prompt of its user says, and, where a server has
-- an index of the user's ($2), what became of that (`index.read`); and the spaces that the user may read: one row.
SELECT r.*, s.*, i.*, c.*, w.*, agent_data.notes_in_force($1, r.user_id, r.block_items, $13) AS notes_kept,
       CASE WHEN r.known THEN agent_data.session_config($1, r.user_id, r.session_id) END AS config
FROM agent_data.recognise($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) r
CROSS JOIN LATERAL agent_data.standing($1, r.user_id, NOT $3, $12, $13, $14) s
LEFT JOIN LATERAL (SELECT * FROM agent_data.index_read($1, $2, $18, $19) WHERE $19::text IS NOT NULL) i ON r.user_id = $2
LEFT JOIN LATERAL agent_data.index_rows($1, $2, $15, $16, $17, i.items) c ON i.items IS NOT NULL
LEFT JOIN LATERAL agent_data.spaces_read($1, $2, $15, $16, $17, $20, $21, $22) w ON r.user_id = $2 AND NOT $3

-- name: session_messages
-- Messages of a line of sessions, nearest first, each before a turn of its own; newest first.
SELECT message_id, parent_message_id, turn_index, sibling, role, content, content_parts, name, tool_calls, tool_call_id,
       message_hash, token_count, metadata, hidden, reasoning
FROM agent_data.session_messages($1, $2, $3, $4, $5)

-- name: tied
-- Memories that are about what a question names.
SELECT agent_data.tied_memories($1, $2, $3, $4) AS items

-- name: claiming
-- Facts that a habit has looked for.
SELECT items, boosts FROM agent_data.claiming_memories($1, $2, $3, $4)

-- name: own_statements
-- The user's own statements in force, the most important first, and the number of all.
SELECT items, ats, total FROM agent_data.own_statements($1, $2, $3)

-- name: procedures
-- A user's habits, which widen a search; a prompt has them with all else that holds for its user (`recognise`).
SELECT procedures, procedure_details FROM agent_data.standing($1, $2, true, 0, 0, 0)

-- name: strategies
-- The weights of seed 004's strategies, as JSON text.
SELECT value::text FROM agent_data.system_config WHERE key = 'retrieval_strategy_weights'

-- name: fetch_items
-- The best of it, whole.
SELECT f.*, NULL::uuid AS owner FROM agent_data.fetch_chosen($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) f

-- name: fetch_shared
-- The same of the user's own and of spaces ($10, each with the session of it that stands in the prompt: $11), as far as the user may
-- read them at this moment: with each item the space that it is of.
SELECT f.*, o.space AS owner
FROM (
    SELECT $2::uuid AS owner, NULL::uuid AS space, $6::uuid AS session, $7::integer AS visible
    UNION ALL
    SELECT s.id, s.id, s.session, 1
    FROM unnest($10::uuid[], $11::uuid[]) AS s (id, session)
    JOIN agent_data.spaces_among($1, $2, $10) a ON a.space_id = s.id
) o
CROSS JOIN LATERAL agent_data.fetch_chosen($1, o.owner, $3, $4, $5, NULL, o.session, o.visible, $8, $9) f

-- name: record_turns
-- The one write of turns, all or none; false when they are stored already. $1: whose they all are; NULL: there are several.
SELECT agent_data.record_turns($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: space_of
-- The number of an embedding space, NULL where it was never made.
SELECT space FROM agent_data.embedding_spaces WHERE name = $1

-- name: idempotent_call
-- The call that came earlier under the same repeat key, with what is needed to send the very same body again.
SELECT * FROM agent_data.idempotent_call($1, $2, $3)

-- name: secret
-- The secret of this database: keys what must not be guessed.
SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'secret'

-- name: ensure_space
-- Registers the embedder's space and makes its indexes (as the owner).
SELECT agent_data.ensure_embedding_space($1, $2)

-- name: ping
-- Whether the database answers.
SELECT 1
