-- The persona of a user (seed 003 §6).

-- name: page
-- A user's facts by category and key, after ($4, $5), of category $3 if one is named, whose value contains $7 if it is given.
SELECT f.fact_id, f.category, f.fact_key, f.is_many, f.fact_value, f.confidence_score, f.source_memory_ids, f.said_at,
       f.first_mentioned, f.last_updated
FROM agent_data.user_facts f
WHERE f.tenant_id = $1 AND f.user_id = $2 AND ($3::text IS NULL OR f.category = $3)
  AND ($4::text IS NULL OR (f.category, f.fact_key) > ($4, $5::text))
  AND ($7::jsonb IS NULL OR f.fact_id = ANY ((SELECT agent_data.facts_holding($1, $2, $7))::uuid[]))
ORDER BY f.category, f.fact_key
LIMIT $6

-- name: named
-- The facts of a user that have this key: one in each category, or in category $4.
SELECT f.fact_id, f.category, f.fact_key, f.is_many, f.fact_value, f.confidence_score, f.source_memory_ids, f.said_at,
       f.first_mentioned, f.last_updated
FROM agent_data.user_facts f
WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.fact_key = $3 AND ($4::text IS NULL OR f.category = $4)
ORDER BY f.category

-- name: category_of
-- Where a fact of this key belongs, if nobody says otherwise: of `wife.name` and `likes:tea` the predicate counts.
SELECT o.category FROM agent_data.fact_of('user', split_part(regexp_replace($1, '^.*\.', ''), ':', 1), '', 'fact') o

-- name: put
-- What a client says of a user; see the function.
SELECT agent_data.keep_fact($1, $2, $3, $4, false, $5, $6, NULL, $7, $7)

-- name: rate
-- Seed 003's `update_fact_confidence`; whether there was such a fact.
SELECT agent_data.update_fact_confidence($1, $2, $3, $4, $5)

-- name: drop
-- Takes a fact away, with the words of its history; whether there was one.
SELECT agent_data.drop_fact($1, $2, $3, 'deleted', NULL, 'api', $4)

-- name: ids_of
-- The ids that facts of this key have, in each category that is known or in use, or in category $2.
SELECT DISTINCT agent_data.fact_id($1, x.category, $3) AS fact_id
FROM (
    SELECT $2::text AS category WHERE $2 IS NOT NULL
    UNION SELECT jsonb_object_keys(c.value) FROM agent_data.system_config c WHERE c.key = 'fact_categories' AND $2 IS NULL
    UNION SELECT f.category FROM agent_data.user_facts f WHERE f.user_id = $1 AND $2 IS NULL
) x

-- name: history
-- What became of facts, oldest first, after the first $4 changes.
SELECT c.fact_id, c.at, c.event, c.fact_value, c.confidence_score, c.source_memory_id, c.actor
FROM agent_data.user_fact_changes c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.fact_id = ANY ($3::uuid[])
ORDER BY c.at, c.fact_id, c.n
OFFSET $4
LIMIT $5
