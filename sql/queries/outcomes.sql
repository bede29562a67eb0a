-- What answers were worth (seed 001).

-- name: rate
-- What a call's answer was worth, and what that does to its memories; see the function.
SELECT agent_data.rate_answer($1, $2, $3, $4, $5, $6, $7, $8)

-- name: block_items
-- What the last $4 memory blocks of a session hold that stood in the prompt of a call before its own: see `live_blocks` of a
-- compilation's audit.
SELECT DISTINCT i AS item_id FROM (
    SELECT b.item_ids FROM agent_data.context_blocks b
    WHERE b.tenant_id = $1 AND b.user_id = $2 AND b.session_id = $3
      AND b.created_at < (SELECT c.created_at FROM agent_data.upstream_calls c
                          WHERE c.tenant_id = $1 AND c.call_id = $5 AND c.user_id = $2)
    ORDER BY b.created_at DESC LIMIT $4
) x, unnest(x.item_ids) AS i

-- name: owner
-- Whose call this is; of user $3 if one is named.
SELECT c.user_id FROM agent_data.upstream_calls c
WHERE c.tenant_id = $1 AND c.call_id = $2 AND ($3::uuid IS NULL OR c.user_id = $3)
UNION
SELECT o.user_id FROM agent_data.answer_outcomes o
WHERE o.tenant_id = $1 AND o.call_id = $2 AND ($3::uuid IS NULL OR o.user_id = $3)
LIMIT 1

-- name: page
-- Outcomes of a user, the latest calls first, before the call $3; only the call $5 if one is named.
SELECT o.call_id, u.external_id AS user_external_id, o.user_id, o.session_id, o.score, o.comment, o.metadata, o.answered_at,
       o.created_at, o.updated_at,
       COALESCE((SELECT jsonb_agg(jsonb_build_object('id', m.memory_id, 'change', m.change) ORDER BY m.memory_id)
                 FROM agent_data.memory_outcomes m WHERE m.user_id = $2 AND m.call_id = o.call_id), '[]') AS memories
FROM agent_data.answer_outcomes o
LEFT JOIN agent_data.users u ON u.user_id = o.user_id
WHERE o.tenant_id = $1 AND o.user_id = $2 AND ($3::uuid IS NULL OR o.call_id < $3) AND ($5::uuid IS NULL OR o.call_id = $5)
ORDER BY o.call_id DESC
LIMIT $4

-- name: page_of_tenant
-- As page, for all users of a tenant: another statement, because only a named user prunes to one partition.
SELECT o.call_id, u.external_id AS user_external_id, o.user_id, o.session_id, o.score, o.comment, o.metadata, o.answered_at,
       o.created_at, o.updated_at,
       COALESCE((SELECT jsonb_agg(jsonb_build_object('id', m.memory_id, 'change', m.change) ORDER BY m.memory_id)
                 FROM agent_data.memory_outcomes m WHERE m.user_id = o.user_id AND m.call_id = o.call_id), '[]') AS memories
FROM agent_data.answer_outcomes o
LEFT JOIN agent_data.users u ON u.user_id = o.user_id
WHERE o.tenant_id = $1 AND ($2::uuid IS NULL OR o.call_id < $2)
ORDER BY o.call_id DESC
LIMIT $3

-- name: report
-- For each memory of a user that stood in a rated answer: how the answers with it did against those without it, of the time
-- since it was learned. Most answers first, after (answers, memory) = ($3, $4).
WITH rated AS (
    SELECT o.call_id, o.score, o.answered_at FROM agent_data.answer_outcomes o WHERE o.tenant_id = $1 AND o.user_id = $2
), used AS (
    SELECT x.memory_id, count(*) AS answers, count(*) FILTER (WHERE r.score > 0) AS positive,
           count(*) FILTER (WHERE r.score < 0) AS negative, sum(r.score::float8) AS total,
           min(r.answered_at) AS first_at
    FROM agent_data.memory_outcomes x JOIN rated r ON r.call_id = x.call_id
    WHERE x.tenant_id = $1 AND x.user_id = $2
    GROUP BY x.memory_id
), page AS (
    SELECT u.*, m.content_text, m.kind, m.status, m.importance, least(m.created_at, u.first_at) AS since
    FROM used u JOIN agent_data.memory_store m ON m.user_id = $2 AND m.memory_id = u.memory_id
    WHERE m.tenant_id = $1 AND m.status <> 'forgotten' AND ($3::bigint IS NULL OR (u.answers, u.memory_id) < ($3, $4::uuid))
    ORDER BY u.answers DESC, u.memory_id DESC
    LIMIT $5
)
SELECT p.memory_id, p.content_text, p.kind, p.status, p.importance, p.answers, p.positive, p.negative,
       p.total / p.answers AS mean_score, w.answers - p.answers AS other_answers, w.positive - p.positive AS other_positive,
       w.negative - p.negative AS other_negative,
       (w.total - p.total) / NULLIF(w.answers - p.answers, 0) AS other_mean_score
FROM page p
CROSS JOIN LATERAL (
    SELECT count(*) AS answers, count(*) FILTER (WHERE r.score > 0) AS positive,
           count(*) FILTER (WHERE r.score < 0) AS negative, COALESCE(sum(r.score::float8), 0) AS total
    FROM rated r WHERE r.answered_at >= p.since
) w
ORDER BY p.answers DESC, p.memory_id DESC

-- name: report_of_tenant
-- As report, for all users of a tenant; each memory against the other answers of its own user.
WITH rated AS (
    SELECT o.user_id, o.call_id, o.score, o.answered_at FROM agent_data.answer_outcomes o WHERE o.tenant_id = $1
), used AS (
    SELECT x.user_id, x.memory_id, count(*) AS answers, count(*) FILTER (WHERE r.score > 0) AS positive,
           count(*) FILTER (WHERE r.score < 0) AS negative, sum(r.score::float8) AS total,
           min(r.answered_at) AS first_at
    FROM agent_data.memory_outcomes x JOIN rated r ON r.user_id = x.user_id AND r.call_id = x.call_id
    WHERE x.tenant_id = $1
    GROUP BY x.user_id, x.memory_id
), page AS (
    SELECT u.*, m.content_text, m.kind, m.status, m.importance, least(m.created_at, u.first_at) AS since
    FROM used u JOIN agent_data.memory_store m ON m.user_id = u.user_id AND m.memory_id = u.memory_id
    WHERE m.tenant_id = $1 AND m.status <> 'forgotten' AND ($2::bigint IS NULL OR (u.answers, u.memory_id) < ($2, $3::uuid))
    ORDER BY u.answers DESC, u.memory_id DESC
    LIMIT $4
)
SELECT p.memory_id, p.content_text, p.kind, p.status, p.importance, p.answers, p.positive, p.negative,
       p.total / p.answers AS mean_score, w.answers - p.answers AS other_answers, w.positive - p.positive AS other_positive,
       w.negative - p.negative AS other_negative,
       (w.total - p.total) / NULLIF(w.answers - p.answers, 0) AS other_mean_score
FROM page p
CROSS JOIN LATERAL (
    SELECT count(*) AS answers, count(*) FILTER (WHERE r.score > 0) AS positive,
           count(*) FILTER (WHERE r.score < 0) AS negative, COALESCE(sum(r.score::float8), 0) AS total
    FROM rated r WHERE r.user_id = p.user_id AND r.answered_at >= p.since
) w
ORDER BY p.answers DESC, p.memory_id DESC
