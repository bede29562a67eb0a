-- Insights (app/features/insights): what is asked of domains again and again.

-- name: put
-- Says what is asked, at once and from then on.
INSERT INTO agent_data.insights AS i (
    tenant_id, user_id, name, domain, title, unit, source, period_days, every_hours, due_at, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10)
ON CONFLICT (user_id, name) DO UPDATE SET
    domain = EXCLUDED.domain, title = EXCLUDED.title, unit = EXCLUDED.unit, source = EXCLUDED.source,
    period_days = EXCLUDED.period_days, every_hours = EXCLUDED.every_hours, due_at = EXCLUDED.due_at, error = NULL,
    updated_at = EXCLUDED.updated_at

-- name: count
-- How many a user has beside this one, and whether this one is there.
SELECT count(*) FILTER (WHERE i.name <> $3) AS others, count(*) FILTER (WHERE i.name = $3) > 0 AS known
FROM agent_data.insights i WHERE i.tenant_id = $1 AND i.user_id = $2

-- name: list
-- Those of a user (NULL: of all), by user and name, after ($3, $4).
SELECT i.user_id, u.external_id AS user_external_id, i.name, i.domain, i.title, i.unit, i.source, i.period_days, i.every_hours,
       i.due_at, i.ran_at, i.memory_id, i.error
FROM agent_data.insights i JOIN agent_data.users u ON u.user_id = i.user_id
WHERE i.tenant_id = $1 AND ($2::uuid IS NULL OR i.user_id = $2) AND ($3::uuid IS NULL OR (i.user_id, i.name) > ($3, $4::text))
ORDER BY i.user_id, i.name LIMIT $5

-- name: one
-- One of a user's.
SELECT i.user_id, u.external_id AS user_external_id, i.name, i.domain, i.title, i.unit, i.source, i.period_days, i.every_hours,
       i.due_at, i.ran_at, i.memory_id, i.error
FROM agent_data.insights i JOIN agent_data.users u ON u.user_id = i.user_id
WHERE i.tenant_id = $1 AND i.user_id = $2 AND i.name = $3

-- name: drop
-- Takes one away; whether there was one.
DELETE FROM agent_data.insights i WHERE i.tenant_id = $1 AND i.user_id = $2 AND i.name = $3 RETURNING true

-- name: lock_due
-- Locks an insight that is still due at $4, so that it is neither changed nor dropped until the transaction ends; NULL: it is not.
SELECT true FROM agent_data.insights i WHERE i.tenant_id = $1 AND i.user_id = $2 AND i.name = $3 AND i.due_at = $4 FOR UPDATE

-- name: ran
-- Records a run at $4 with its memory $6 (NULL: the earlier one stands) and its error $7, and when the insight is due again ($5), unless
-- it was changed meanwhile (then its due_at is not $8).
UPDATE agent_data.insights i SET ran_at = $4, due_at = $5, memory_id = COALESCE($6, i.memory_id), error = $7
WHERE i.tenant_id = $1 AND i.user_id = $2 AND i.name = $3 AND i.due_at = $8

-- name: said_before
-- The memory that is what it said last, where that is in force still.
SELECT m.memory_id FROM agent_data.memory_store m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3 AND m.is_active

-- name: enqueue
-- A job for each that is due.
SELECT agent_data.enqueue_insights($1, $2)
