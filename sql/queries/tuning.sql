-- Parameters that an operator may change (app/store/tuning.py).

-- name: parameters
-- Those of these names, as JSON.
SELECT c.key, c.value::text AS value FROM agent_data.system_config c WHERE c.key = ANY ($1::text[])

-- name: lives
-- How long new memories of L1 and L2 live.
SELECT (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'l1_ttl_hours') AS l1_hours,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'l2_ttl_days') AS l2_days
