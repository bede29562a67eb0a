-- name: last_runs
-- When each task last ran.
SELECT name, last_run FROM agent_data.ticks

-- name: lock
-- Takes the lock of a task, if nobody has it; it goes with the connection.
SELECT pg_try_advisory_lock($1, hashtext($2))

-- name: unlock
-- Gives the lock of a task back.
SELECT pg_advisory_unlock($1, hashtext($2))

-- name: ran
-- Notes that a task ran.
INSERT INTO agent_data.ticks AS t (name, last_run, took_ms, changed) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET last_run = EXCLUDED.last_run, took_ms = EXCLUDED.took_ms, changed = EXCLUDED.changed

-- name: partitions
-- The monthly partitions from one month to another, both included, where they are missing; how many were made.
SELECT agent_data.ensure_history_partitions($1, $2) + agent_data.ensure_capture_partitions($1, $2)

-- name: expire_memories
-- Memories whose life is over, some at a time (seed 000 §9.2); how many.
SELECT agent_data.expire_memories($1, $2)

-- name: expire_sessions
-- Sessions untouched for too long, some at a time (seed 000 §9.2); how many.
SELECT agent_data.expire_sessions($1, $2)

-- name: crowded
-- Users who have more than so many vectors, of whom something changed lately, and who are not in the graph.
SELECT u.tenant_id, u.user_id FROM (SELECT DISTINCT g.tenant_id, g.user_id FROM agent_data.index_log g) u
WHERE NOT EXISTS (SELECT FROM agent_data.users s WHERE s.user_id = u.user_id AND s.use_hnsw)
  AND (SELECT count(*) FROM (SELECT FROM agent_data.embeddings e WHERE e.user_id = u.user_id LIMIT $1::bigint + 1) x) > $1

-- name: graph_users
-- Users whose vectors are searched by the graph.
SELECT u.user_id FROM agent_data.users u WHERE u.use_hnsw

-- name: enter_graph
-- Puts some of a user's vectors into the graph; how many.
WITH outside AS (
    SELECT e.space, e.item_id FROM agent_data.embeddings e WHERE e.user_id = $1 AND NOT e.in_hnsw LIMIT $2
), entered AS (
    UPDATE agent_data.embeddings e SET in_hnsw = true
    FROM outside o WHERE e.user_id = $1 AND e.space = o.space AND e.item_id = o.item_id RETURNING 1
)
SELECT count(*) FROM entered

-- name: use_graph
-- From now on the user's vectors are searched by the graph, and new ones enter it at once.
UPDATE agent_data.users SET use_hnsw = true WHERE tenant_id = $1 AND user_id = $2

-- name: purge_effects
-- Forgets what old jobs have done: their leases ran out long ago. How many.
WITH old AS (DELETE FROM agent_data.job_effects WHERE at < $1 RETURNING 1) SELECT count(*) FROM old

-- name: purge_log
-- Forgets the queue's log of jobs that are gone. How many.
WITH old AS (
    DELETE FROM agent_data.pgqueuer_log l
    WHERE l.created < $1 AND NOT EXISTS (SELECT FROM agent_data.pgqueuer q WHERE q.id = l.job_id) RETURNING 1
)
SELECT count(*) FROM old

-- name: fold_spend
-- Adds some of the calls' costs to what was spent; how many. A call that is still to be settled waits: a budget knows it by its
-- own id until then.
WITH due AS (
    SELECT e.call_id, e.user_id FROM agent_data.spend_entries e
    WHERE NOT EXISTS (SELECT FROM agent_data.key_reservations r
                      WHERE r.key_id = e.key_id AND r.call_id = e.call_id AND r.expires_at > $1)
    LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM agent_data.spend_entries e USING due d WHERE e.call_id = d.call_id AND e.user_id = d.user_id RETURNING e.*
), added AS (
    INSERT INTO agent_data.spend AS s (
        tenant_id, day, key_id, user_id, session_id, model, calls, prompt_tokens, completion_tokens, cached_tokens,
        unpriced_tokens, cost_microcents)
    SELECT t.tenant_id, t.day, t.key_id, t.user_id, t.session_id, t.model, count(*), sum(t.prompt_tokens),
           sum(t.completion_tokens), sum(t.cached_tokens), sum(t.unpriced_tokens), sum(t.cost_microcents)
    FROM taken t
    GROUP BY t.tenant_id, t.day, t.key_id, t.user_id, t.session_id, t.model
    ORDER BY t.tenant_id, t.day, t.key_id, t.user_id, t.session_id, t.model
    ON CONFLICT (tenant_id, day, key_id, user_id, session_id, model) DO UPDATE SET
        calls = s.calls + EXCLUDED.calls, prompt_tokens = s.prompt_tokens + EXCLUDED.prompt_tokens,
        completion_tokens = s.completion_tokens + EXCLUDED.completion_tokens,
        cached_tokens = s.cached_tokens + EXCLUDED.cached_tokens,
        unpriced_tokens = s.unpriced_tokens + EXCLUDED.unpriced_tokens,
        cost_microcents = s.cost_microcents + EXCLUDED.cost_microcents
)
SELECT count(*) FROM taken

-- name: budgeted_keys
-- The keys whose budgets are counted.
SELECT k.key_id FROM agent_data.key_usage k WHERE k.token_since IS NOT NULL OR k.money_since IS NOT NULL

-- name: refresh_budget
-- Brings what a key has spent up to date.
SELECT agent_data.refresh_budget($1, $2)
