-- What a captured request was compiled from, read again (app/store/captures.py).

-- name: inputs
-- What was kept of a call's compile.
SELECT p.user_id, p.session_id, p.inputs, p.audit, p.eta FROM agent_data.compilations p
WHERE p.tenant_id = $1 AND p.call_id = $2 AND ($3::uuid IS NULL OR p.user_id = $3)

-- name: items
-- Messages and memories ($3) as they were at $4, those that may still be shown: an edited memory has its words of before; one that
-- was superseded, invalidated or has expired is there; what was forgotten, deleted or erased is not. `in_force`: it is today.
SELECT h.message_id AS id, false AS memory, h.content AS text, h.role, h.name, h.session_id, s.external_id, h.turn_index,
       h.token_count, h.created_at, h.content_hash, NULL::text[] AS entity_ids, NULL::uuid AS origin, NULL::jsonb AS sources,
       h.metadata,
       NOT EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = $2 AND x.item_id = h.message_id) AS in_force
FROM agent_data.conversation_history h
LEFT JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = h.session_id
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($3::uuid[]) AND h.content <> '' AND NOT h.is_pruned
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
UNION ALL
SELECT m.memory_id, true, COALESCE(e.before ->> 'text', m.content_text), NULL, NULL, m.session_id, NULL,
       m.provenance_turn_index, m.token_count, m.created_at,
       COALESCE(decode(e.before ->> 'content_hash', 'hex'), m.content_hash), NULLIF(m.entity_ids, '{}'),
       CASE WHEN m.source_message_ids[1] = ALL (m.source_message_ids) THEN m.source_message_ids[1] END, m.sources, NULL,
       m.is_active AND NOT EXISTS (
           SELECT FROM agent_data.suppressions x WHERE x.user_id = $2 AND x.item_id = m.memory_id)
FROM agent_data.memory_store m
LEFT JOIN LATERAL (
    SELECT v.before FROM agent_data.memory_events v
    WHERE v.user_id = $2 AND v.memory_id = m.memory_id AND v.event = 'edited' AND v.at > $4 AND v.before ? 'text'
    ORDER BY v.at LIMIT 1
) e ON true
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status <> 'forgotten'
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = m.memory_id AND x.reason NOT IN ('superseded', 'resent'))

-- name: facts
-- What facts ($3) said whose notes had these ids ($4). Not what was deleted or forgotten since $5; what only ended is there.
SELECT w.note, v.fact_key AS key, v.is_many AS many, v.fact_value #>> '{}' AS value
FROM unnest($3::uuid[], $4::uuid[]) AS w (fact_id, note)
CROSS JOIN LATERAL (
    SELECT f.fact_key, f.is_many, f.fact_value FROM agent_data.user_facts f
    WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.fact_id = w.fact_id AND f.note_id = w.note
    UNION ALL
    SELECT c.fact_key, c.is_many, c.fact_value FROM agent_data.user_fact_changes c
    WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.fact_id = w.fact_id AND c.fact_key IS NOT NULL
      AND agent_data.fact_note(c.fact_id, c.fact_value) = w.note
      AND NOT EXISTS (SELECT FROM agent_data.user_fact_changes x
                      WHERE x.user_id = $2 AND x.fact_id = w.fact_id AND x.event IN ('deleted', 'forgotten') AND x.at >= $5)
    LIMIT 1
) v

-- name: standing
-- What a prompt of the user says today whatever is asked, and what of the items that blocks quote ($6) is a note that is so still.
SELECT s.*, agent_data.notes_in_force($1, $2, $6, $5) AS notes_kept FROM agent_data.standing($1, $2, $3, $4, $5, $7) s

-- name: blocks
-- Memory blocks ($5: the messages that they stand in) of an epoch of a session, oldest first.
SELECT b.chain_hash, b.message_hash, b.message_id, b.text, b.item_ids, b.token_count FROM agent_data.context_blocks b
WHERE b.tenant_id = $1 AND b.user_id = $2 AND b.session_id = $3 AND b.epoch = $4 AND b.message_id = ANY ($5::uuid[])
ORDER BY b.created_at

-- name: session_messages
-- As agent_data.session_messages, hidden as they were at $6: what was compacted later was still shown; what was forgotten is not.
SELECT h.message_id, h.parent_message_id, h.turn_index, h.sibling, h.role, h.content, h.content_parts, h.name, h.tool_calls,
       h.tool_call_id, h.message_hash, h.token_count, h.metadata,
       h.is_pruned OR h.is_compressed AND NOT EXISTS (
           SELECT FROM agent_data.compactions c
           WHERE c.user_id = $2 AND c.summary_id = h.compressed_summary_id AND c.at > $6)
       OR EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent')) AS hidden,
       h.reasoning
FROM unnest($3::uuid[], $4::integer[]) WITH ORDINALITY AS l (session_id, before, n)
JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = l.session_id AND s.tenant_id = $1
CROSS JOIN LATERAL (
    SELECT * FROM agent_data.conversation_history c
    WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.session_id = l.session_id AND c.turn_index < l.before
      AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
    ORDER BY c.turn_index DESC, c.sibling DESC
    LIMIT $5
) h
ORDER BY l.n, h.turn_index DESC, h.sibling DESC
LIMIT $5

-- name: system_prompt
-- A system prompt by its SHA-256.
SELECT p.prompt FROM agent_data.system_prompts p WHERE p.tenant_id = $1 AND p.prompt_hash = $2

-- name: summaries
-- The summaries that a session has, and had when it was compacted.
SELECT s.summary_text AS text FROM agent_data.sessions s
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.summary_text IS NOT NULL
UNION ALL
SELECT h.content FROM agent_data.compactions c
JOIN agent_data.conversation_history h ON h.user_id = $2 AND h.message_id = c.summary_id AND h.created_at = c.at
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.session_id = $3 AND h.content IS NOT NULL

-- name: hold_user
-- Lets an erasure of the user ($1) wait for the end of this transaction, as it does for a call that is recorded.
SELECT pg_advisory_xact_lock_shared(agent_data.capture_lock($1))

-- name: note_spend
-- What an answer cost that was asked for again ($2 is the replay's own id): no call is recorded for it. Of a user who was erased
-- meanwhile only the sum.
INSERT INTO agent_data.spend_entries (
    call_id, user_id, tenant_id, key_id, session_id, model, day, prompt_tokens, completion_tokens, cached_tokens,
    unpriced_tokens, cost_microcents)
SELECT $2, CASE WHEN EXISTS (SELECT FROM agent_data.upstream_calls c
                             WHERE c.tenant_id = $1 AND c.call_id = $3 AND c.user_id = $4)
                THEN $4 ELSE '00000000-0000-0000-0000-000000000000' END,
       $1, COALESCE($5::uuid, '00000000-0000-0000-0000-000000000000'), '00000000-0000-0000-0000-000000000000',
       left($6::text, 200), ($7::timestamptz AT TIME ZONE 'UTC')::date, $8::bigint, $9::bigint, $10::bigint,
       CASE WHEN $11::boolean THEN 0 ELSE $8::bigint + $9::bigint END, $12::bigint
ON CONFLICT DO NOTHING
