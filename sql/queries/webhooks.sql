-- Webhooks (app/features/webhooks/delivery.py), as mneme_owner: they concern every tenant.

-- name: targets
-- Who wants to know what, from the settings: others go, with their counts; they are returned. What waits for them stays until it is
-- pruned.
WITH wanted AS (
    SELECT * FROM jsonb_to_recordset($1::jsonb) AS t (name text, events text[], tenant text)
), gone AS (
    DELETE FROM agent_data.webhook_targets t WHERE t.name NOT IN (SELECT name FROM wanted) RETURNING t.name
), named AS (
    INSERT INTO agent_data.webhook_targets AS t (name, events, tenant) SELECT name, events, tenant FROM wanted
    ON CONFLICT (name) DO UPDATE SET events = EXCLUDED.events, tenant = EXCLUDED.tenant
)
SELECT name FROM gone ORDER BY 1

-- name: claim
-- Messages of a target that are due, the oldest first; until `$3` from now nobody else takes them.
WITH due AS (
    SELECT o.user_id, o.message_id FROM agent_data.webhook_outbox o
    WHERE o.target = $1 AND o.due_at <= now() AND o.dead_at IS NULL
    ORDER BY o.due_at LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE agent_data.webhook_outbox o SET attempts = o.attempts + 1, due_at = now() + $3
    FROM due d WHERE o.user_id = d.user_id AND o.message_id = d.message_id AND o.target = $1
    RETURNING o.*
)
SELECT t.message_id, t.tenant_id, n.name AS tenant, t.user_id, u.external_id AS user_name, t.event, t.subject, t.data, t.created_at,
       t.attempts, m.content_text AS text
FROM taken t
LEFT JOIN agent_data.tenants n ON n.tenant_id = t.tenant_id
LEFT JOIN agent_data.users u ON u.user_id = t.user_id AND u.tenant_id = t.tenant_id
LEFT JOIN agent_data.memory_store m
    ON $4 AND t.event LIKE 'memory.%' AND m.user_id = t.user_id AND m.memory_id = t.subject AND m.status <> 'forgotten'
ORDER BY t.created_at

-- name: delivered
-- It was taken.
WITH gone AS (
    DELETE FROM agent_data.webhook_outbox WHERE user_id = $2 AND message_id = $3 AND target = $1
)
UPDATE agent_data.webhook_targets SET delivered = delivered + 1 WHERE name = $1

-- name: later
-- It was not, and is tried again after a while.
WITH waits AS (
    UPDATE agent_data.webhook_outbox SET due_at = now() + $4 WHERE user_id = $2 AND message_id = $3 AND target = $1
)
UPDATE agent_data.webhook_targets SET failed = failed + 1 WHERE name = $1

-- name: bury
-- It was not, for the last time.
SELECT agent_data.bury_webhook($2, $3, $1, $4)

-- name: retry
-- A dead letter is tried again; false: there is no such message any more. (As mneme_app.)
SELECT agent_data.retry_webhook($1, $2, $3, $4)

-- name: tell_degraded
-- Degradations become a message, once a while.
SELECT agent_data.tell_degraded($1, $2)

-- name: prune
-- Messages that are too old to be told, with their dead letters; how many.
WITH gone AS (
    DELETE FROM agent_data.webhook_outbox o WHERE o.created_at < $1 RETURNING o.message_id
), dead AS (
    DELETE FROM agent_data.pgqueuer q
    WHERE q.entrypoint = 'webhook' AND q.status = 'failed' AND q.created < $1 RETURNING q.id
), told AS (
    DELETE FROM agent_data.pgqueuer_log l USING dead d WHERE l.job_id = d.id
)
SELECT count(*) FROM gone

-- name: figures
-- By target: what waits and since when, and what became of the rest. (Figures, and nobody's rows: as mneme_app, too.)
SELECT * FROM agent_data.webhook_figures()
