-- Parameters that an operator may change (app/store/tuning.py).

-- name: parameters
-- Those of these names, as JSON.
SELECT c.key, c.value::text AS value FROM agent_data.system_config c WHERE c.key = ANY ($1::text[])
