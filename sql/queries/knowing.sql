-- What a request asks of what is known.

-- name: has_things
-- Whether the tenant has things, or the user of his own.
SELECT agent_data.has_things($1, $2)

-- name: claims
-- What memories ($3) of a user say of things.
SELECT * FROM agent_data.memory_claims($1, $2, $3)
