-- name: user
-- What holds for a user now: erasure epoch (NULL: there is none), what memories of theirs were drawn together as, how often that
-- was made void, and what is worth drawing together.
SELECT (SELECT u.erasure_epoch FROM agent_data.users u WHERE u.user_id = $1) AS epoch,
       COALESCE((SELECT c.version FROM agent_data.consolidation_state c WHERE c.user_id = $1), 0) AS version,
       (SELECT p.value::text FROM agent_data.system_config p WHERE p.key = 'consolidation') AS triggers

-- name: session
-- A session as its summary sees it.
SELECT s.session_id, s.external_id, s.context_window_size, s.summary_text, s.summary_token_count, s.first_message_at,
       s.last_message_at, s.head_message_id, COALESCE(w.version, 0) AS version,
       COALESCE(w.active_tokens, 0) AS active_tokens, COALESCE((
           SELECT max(b.branch_turn_index) FROM agent_data.sessions b
           WHERE b.user_id = $1 AND b.parent_session_id = s.session_id), 0) AS shared_turn
FROM agent_data.sessions s
LEFT JOIN agent_data.session_work w ON w.user_id = $1 AND w.session_id = s.session_id
WHERE s.user_id = $1 AND s.session_id = $2

-- name: messages
-- A session's messages in their order, at most $5 of the newest. `quotable`: not forgotten, not said while Mneme was to learn
-- nothing, and not the source of something that is not so any more.
WITH gone AS (
    SELECT DISTINCT x.id FROM agent_data.memory_store m, unnest(m.source_message_ids) AS x (id)
    WHERE m.user_id = $1 AND m.status IN ('forgotten', 'superseded', 'invalidated')
      AND (m.status <> 'superseded' OR m.superseded_how IS DISTINCT FROM 'merged')  -- said better: still so
      AND NOT agent_data.drawn(m.kind)
)
SELECT * FROM (
    SELECT h.message_id, h.parent_message_id, h.turn_index, h.sibling, h.role, COALESCE(h.content, '') AS content,
           h.tool_calls, h.token_count,
           h.created_at, h.is_compressed,
           NOT h.hidden AND h.message_id NOT IN (SELECT g.id FROM gone g) AND NOT EXISTS (
               SELECT FROM agent_data.suppressions x WHERE x.user_id = $1 AND x.item_id = h.message_id) AS quotable
    FROM agent_data.conversation_history h
    WHERE h.user_id = $1 AND h.session_id = $2 AND h.created_at >= $3 AND h.created_at <= $4
      AND h.turn_index > 0 AND NOT h.is_pruned
    ORDER BY h.turn_index DESC, h.sibling DESC
    LIMIT $5
) x ORDER BY x.turn_index, x.sibling

-- name: statements
-- What is in force and was learned from these messages alone: what a summary may say in few words.
SELECT m.memory_id, m.content_text, m.importance, m.source_message_ids
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.is_active AND NOT agent_data.drawn(m.kind) AND m.kind NOT IN ('episode', 'tool_outcome')
  AND m.source_message_ids && $2::uuid[]

-- name: session_summaries
-- The memories that are the summary of a session: one, but for an older one that was restored.
SELECT ARRAY(SELECT m.memory_id FROM agent_data.memory_store m
             WHERE m.user_id = $1 AND m.session_id = $2 AND m.kind = 'summary' AND m.is_active
               AND m.details ->> 'scope_type' = 'session_window' ORDER BY m.memory_id)

-- name: forgot_summary
-- Whether a user had a summary forgotten ($2: the keyed hash of its key).
SELECT EXISTS (SELECT FROM agent_data.drawn_keys k
               JOIN agent_data.suppressions x ON x.user_id = $1 AND x.item_id = k.memory_id
               WHERE k.user_id = $1 AND k.key_hmac = $2)

-- name: retire_summaries
-- Of the summaries of a session ($3) that are not in force any more all but the last expire; all that were left so far.
WITH former AS (
    SELECT m.memory_id, row_number() OVER (ORDER BY m.memory_id DESC) AS n FROM agent_data.memory_store m
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.kind = 'summary'
      AND m.details ->> 'scope_type' = 'session_window' AND m.status IN ('superseded', 'invalidated')
), old AS (
    UPDATE agent_data.memory_store m SET status = 'expired', updated_at = now()
    FROM former f WHERE f.n > 1 AND m.user_id = $2 AND m.memory_id = f.memory_id
)
SELECT f.memory_id FROM former f

-- name: hold_session
-- What is still to be done for a session, held until the end of this transaction; no row where nothing is known of it. Whoever
-- forgets something of it changes this row first.
SELECT w.version FROM agent_data.session_work w WHERE w.user_id = $1 AND w.session_id = $2 FOR UPDATE

-- name: begin_session
-- The same for a session that nothing is known of.
INSERT INTO agent_data.session_work (user_id, tenant_id, session_id, pending, touched_at) VALUES ($2, $1, $3, true, $4)
ON CONFLICT DO NOTHING

-- name: summarise
-- The summary of a session; $8: the space of its vector.
UPDATE agent_data.sessions SET summary_text = $4, summary_token_count = $5, summary_embedding = $6, updated_at = $7,
    summary_space = $8
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: new_epoch
-- Memory blocks that stand before what is compacted are not shown again. (Two further: see `drop_session_summaries`.)
UPDATE agent_data.sessions SET block_epoch = block_epoch + 2 WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: end_session
-- The session-end work of a session is done, unless something was said since; its tokens were counted anew.
UPDATE agent_data.session_work SET pending = touched_at > $4, active_tokens = CASE WHEN touched_at > $4 THEN active_tokens ELSE $5 END
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: add_summary_message
-- The synthetic message that stands for compacted ones (seed 000 §7.3, step 4): before all turns, found by no search, and no part of
-- the prompt itself, which has its words as the session's summary.
INSERT INTO agent_data.conversation_history (
    message_id, session_id, user_id, tenant_id, turn_index, role, content, token_count, created_at, is_pruned, hidden, metadata)
VALUES ($4, $3, $2, $1, -1, 0, $5, $6, $7, true, true, '{"synthetic": "summary"}')

-- name: compact
-- Marks messages as compacted; how many.
SELECT agent_data.compact_messages($1, $2, $3, $4, $5, $6, $7)

-- name: add_compaction
-- A compaction, as it is reported.
INSERT INTO agent_data.compactions (
    user_id, tenant_id, session_id, summary_id, at, first_turn, last_turn, messages, removed_tokens, summary_tokens, ratio,
    method)
VALUES ($2, $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: count_compaction
-- Adds a compaction to those of its day.
INSERT INTO agent_data.compaction_figures AS f (day, compactions, removed_tokens, summary_tokens)
VALUES (($1::timestamptz AT TIME ZONE 'UTC')::date, 1, $2, $3)
ON CONFLICT (day) DO UPDATE SET
    compactions = f.compactions + 1, removed_tokens = f.removed_tokens + EXCLUDED.removed_tokens,
    summary_tokens = f.summary_tokens + EXCLUDED.summary_tokens

-- name: compaction_figures
-- All compactions so far.
SELECT COALESCE(sum(f.compactions), 0)::bigint AS count, COALESCE(sum(f.removed_tokens), 0)::bigint AS removed_tokens,
       COALESCE(sum(f.summary_tokens), 0)::bigint AS summary_tokens
FROM agent_data.compaction_figures f

-- name: take_tokens
-- A session has so many active tokens less.
UPDATE agent_data.session_work SET active_tokens = greatest(0, active_tokens - $4)
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: compactions
-- The compactions of a session, oldest first.
SELECT summary_id, at, first_turn, last_turn, messages, removed_tokens, summary_tokens, ratio, method
FROM agent_data.compactions WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 ORDER BY at, summary_id

-- name: enqueue_sessions
-- Puts due work of sessions into the queue (as the owner); how many jobs.
SELECT agent_data.enqueue_sessions($1, $2, $3, $4)

-- name: enqueue_users
-- Puts the users for whom there is something to draw together into the queue (as the owner); how many jobs.
SELECT agent_data.enqueue_users($1, $2)

-- name: note
-- What the learner's job leaves for later: episodes as JSON ($4), the tokens of the messages ($5, between $6 and $7), and that the
-- session has gone on.
WITH told AS (
    INSERT INTO agent_data.episodes (
        user_id, tenant_id, message_id, session_id, at, event_type, entities, topics, tools, measure)
    SELECT $2, $1, x.message_id, $3, x.at, x.event_type, x.entities, x.topics, x.tools, x.measure
    FROM jsonb_to_recordset($4::jsonb) AS x (
        message_id uuid, at timestamptz, event_type text, entities text[], topics text[], tools text[], measure jsonb)
    ON CONFLICT DO NOTHING
    RETURNING 1
), due AS (
    INSERT INTO agent_data.consolidation_state AS c (user_id, tenant_id, due_at)
    SELECT $2, $1, $8::timestamptz WHERE $9::boolean AND EXISTS (SELECT FROM told)
    ON CONFLICT (user_id) DO UPDATE SET due_at = EXCLUDED.due_at WHERE c.due_at IS NULL
)
INSERT INTO agent_data.session_work AS w (user_id, tenant_id, session_id, pending, touched_at, active_tokens)
SELECT $2, $1, $3, true, $8, COALESCE(sum(h.token_count), 0)
FROM agent_data.conversation_history h
WHERE h.user_id = $2 AND h.message_id = ANY ($5::uuid[]) AND h.created_at BETWEEN $6 AND $7
ON CONFLICT (user_id, session_id) DO UPDATE SET
    pending = true, touched_at = greatest(w.touched_at, EXCLUDED.touched_at), active_tokens = w.active_tokens + EXCLUDED.active_tokens

-- name: more_tools
-- Tools that were called to the same question as before: they belong to the session's last episode.
UPDATE agent_data.episodes e SET tools = e.tools || $4::text[]
WHERE e.tenant_id = $1 AND e.user_id = $2 AND cardinality(e.tools) < $5 AND e.message_id = (
    SELECT x.message_id FROM agent_data.episodes x WHERE x.user_id = $2 AND x.session_id = $3
    ORDER BY x.at DESC, x.message_id DESC LIMIT 1)

-- name: episodes
-- A user's newest episodes, newest first.
SELECT e.message_id, e.session_id, e.at, e.event_type, e.entities, e.topics, e.tools, e.measure, e.things
FROM agent_data.episodes e
WHERE e.user_id = $1 AND NOT EXISTS (
    SELECT FROM agent_data.suppressions x WHERE x.user_id = $1 AND x.item_id = e.message_id)
ORDER BY e.message_id DESC LIMIT $2

-- name: rated
-- What the answers of a user's newest $2 episodes were worth, where somebody said so.
SELECT e.message_id, o.score
FROM (SELECT x.message_id, x.at FROM agent_data.episodes x
      WHERE x.user_id = $1 AND EXISTS (SELECT FROM agent_data.answer_outcomes r WHERE r.user_id = $1)
      ORDER BY x.message_id DESC LIMIT $2) e
JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.message_id = e.message_id AND h.created_at = e.at
JOIN agent_data.answer_outcomes o ON o.user_id = $1 AND o.call_id = h.call_id

-- name: known_memories
-- A user's memories in force that an entity may be summarised from, most important first; none of a session alone (L1), none that
-- was drawn from others. Without those of its messages that must not surface, because of something else that they say.
SELECT m.memory_id, m.content_text, m.kind, m.confidence, m.importance, m.created_at, m.entity_ids, m.subject_entity_id,
       m.predicate, m.object_value, m.reinforcement_count, ARRAY(
           SELECT s.id FROM unnest(m.source_message_ids) WITH ORDINALITY AS s (id, n)
           WHERE NOT EXISTS (SELECT FROM agent_data.suppressions x
                             WHERE x.user_id = $1 AND x.item_id = s.id AND x.reason NOT IN ('superseded', 'resent'))
           ORDER BY s.n) AS source_message_ids, COALESCE((
           SELECT jsonb_agg(s.source ORDER BY s.n) FROM jsonb_array_elements(m.sources) WITH ORDINALITY AS s (source, n)
           WHERE NOT EXISTS (SELECT FROM agent_data.suppressions x
                             WHERE x.user_id = $1 AND x.item_id = (s.source ->> 'message_id')::uuid
                               AND x.reason NOT IN ('superseded', 'resent'))), '[]') AS sources
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.is_active AND m.memory_tier >= 2 AND m.memory_scope = 1
  AND NOT agent_data.drawn(m.kind) AND m.kind <> 'episode'
  AND (m.expires_at IS NULL OR m.expires_at > $2)
ORDER BY m.importance DESC, m.memory_id LIMIT $3

-- name: drawn
-- What was drawn from a user's memories and episodes, and is in force.
SELECT m.memory_id, m.kind, m.content_text, m.details, m.entity_ids, m.confidence
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.is_active AND agent_data.drawn(m.kind) AND m.details ? 'key'

-- name: forgotten_keys
-- Keys of what the user had forgotten of it.
SELECT k.key_hmac FROM agent_data.drawn_keys k
JOIN agent_data.suppressions x ON x.user_id = $1 AND x.item_id = k.memory_id
WHERE k.user_id = $1

-- name: texts
-- What was said in these messages, as far as it may be quoted.
SELECT h.message_id, h.session_id, s.external_id, h.turn_index, h.content, h.created_at
FROM agent_data.conversation_history h
JOIN agent_data.sessions s ON s.user_id = $1 AND s.session_id = h.session_id
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4
  AND NOT h.hidden AND NOT h.is_pruned
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = $1 AND x.item_id = h.message_id)
  AND NOT EXISTS (
      SELECT FROM agent_data.memory_store m
      WHERE m.user_id = $1 AND m.status IN ('forgotten', 'superseded', 'invalidated') AND h.message_id = ANY (m.source_message_ids)
        AND (m.status <> 'superseded' OR m.superseded_how IS DISTINCT FROM 'merged')
        AND NOT agent_data.drawn(m.kind))
ORDER BY h.created_at

-- name: hold_memories
-- Memories that are in force, held so until the end of this transaction; in order, so that two cannot wait for each other.
SELECT m.memory_id FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.memory_id = ANY ($2::uuid[]) AND m.is_active ORDER BY m.memory_id FOR UPDATE

-- name: suppressed
-- Whether one of these must not surface.
SELECT EXISTS (SELECT FROM agent_data.suppressions x
               WHERE x.user_id = $1 AND x.item_id = ANY ($2::uuid[]) AND x.reason NOT IN ('superseded', 'resent'))

-- name: hold_user
-- How often what was drawn for a user was made void, held until the end of this transaction.
SELECT c.version FROM agent_data.consolidation_state c WHERE c.user_id = $1 FOR UPDATE

-- name: begin_user
-- The same for a user of whom nothing is known.
INSERT INTO agent_data.consolidation_state (user_id, tenant_id) VALUES ($2, $1) ON CONFLICT DO NOTHING

-- name: derive
-- What new memories were drawn from.
INSERT INTO agent_data.derivations (user_id, tenant_id, source_id, derived_id)
SELECT $2, $1, x.source, x.derived FROM unnest($3::uuid[], $4::uuid[]) AS x (source, derived)
ON CONFLICT DO NOTHING

-- name: name_keys
-- Which pattern, procedure or summary new memories are.
INSERT INTO agent_data.drawn_keys (user_id, tenant_id, key_hmac, memory_id)
SELECT $2, $1, x.key, x.memory FROM unnest($3::bytea[], $4::uuid[]) AS x (key, memory)
ON CONFLICT DO NOTHING

-- name: confirm
-- A summary confirms what it was drawn from (seed 004, transformation 3): confidence rises by $4 up to $5, and never falls.
WITH confirmed AS (
    UPDATE agent_data.memory_store m SET confidence = greatest(m.confidence, least($5::real, m.confidence + $4::real)),
        updated_at = $6
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[])
    RETURNING m.memory_id, m.confidence
)
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, after, actor)
SELECT $2, $1, c.memory_id, $6, 'confirmed', jsonb_build_object('confidence', c.confidence), 'system' FROM confirmed c

-- name: end_user
-- A user's consolidation is done, as of $4; whether something is left for the next run ($5).
UPDATE agent_data.consolidation_state SET
    consolidated_at = $3, due_at = CASE WHEN $5::boolean OR due_at > $4 THEN COALESCE(due_at, $3) END
WHERE tenant_id = $1 AND user_id = $2

-- name: recent
-- The newest messages of a session, newest first: what its working memory is made from. Nothing hidden.
SELECT h.message_id, h.turn_index, h.role, left(COALESCE(h.content, ''), $5) AS content, h.name, h.tool_calls, h.tool_call_id,
       h.created_at
FROM agent_data.conversation_history h
JOIN agent_data.sessions s ON s.user_id = $2 AND s.session_id = h.session_id
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3 AND h.turn_index > 0 AND NOT h.is_pruned
  AND h.created_at >= s.first_message_at AND h.created_at <= s.last_message_at
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY h.turn_index DESC, h.sibling
LIMIT $4

-- name: preferences
-- How a user wants to be answered, most important first: in all sessions, and in this one. Of nobody's sessions only in this one.
SELECT m.memory_id, m.kind, m.content_text AS text FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.is_active AND m.kind IN ('preference', 'instruction')
  AND (m.session_id = $3 OR m.memory_scope = 1 AND NOT $4::boolean) AND (m.expires_at IS NULL OR m.expires_at > $5)
ORDER BY m.importance DESC, m.created_at DESC LIMIT $6

-- name: working
-- The working memory of a session, where it is not lost.
SELECT w.active_preferences, w.pending_confirmations, w.tool_results_buffer, w.updated_at
FROM agent_data.memory_store_working w WHERE w.tenant_id = $1 AND w.user_id = $2 AND w.session_id = $3

-- name: keep_working
-- Sets the working memory of a session.
INSERT INTO agent_data.memory_store_working AS w (
    tenant_id, user_id, session_id, active_preferences, pending_confirmations, tool_results_buffer, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (user_id, session_id) DO UPDATE SET
    active_preferences = EXCLUDED.active_preferences, pending_confirmations = EXCLUDED.pending_confirmations,
    tool_results_buffer = EXCLUDED.tool_results_buffer, updated_at = EXCLUDED.updated_at

-- name: clear_working
-- A session that has ended needs none (seed 001 §5.3).
DELETE FROM agent_data.memory_store_working WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3

-- name: summary
-- The summary of a session, and how much of it is not compacted.
SELECT s.summary_text, s.summary_token_count, COALESCE(w.active_tokens, 0) AS active_tokens,
       COALESCE(w.pending, false) AS pending
FROM agent_data.sessions s LEFT JOIN agent_data.session_work w ON w.user_id = $2 AND w.session_id = s.session_id
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3
