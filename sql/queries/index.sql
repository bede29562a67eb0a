-- What a server keeps of a user in its own memory to rank by (sql/schema/047_index.sql).

-- name: read
-- What became of a user's ($2) index since it had the stamp $6, and of the items that changed all that ranking needs.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, $6, $7, $8) r
LEFT JOIN LATERAL agent_data.index_rows($1, $2, $3, $4, $5, r.items) c ON r.items IS NOT NULL

-- name: load
-- A user's ($2) index, all of it.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, NULL, '{}', $6) r
LEFT JOIN LATERAL agent_data.index_all($1, $2, $3, $4, $5) c ON r.stamp IS NOT NULL

-- name: fill
-- Has all of a user's items in the index; whether they are.
SELECT agent_data.index_fill($1, $2)

-- name: terms
-- Keeps terms that a server made of texts.
SELECT agent_data.index_terms($1, $2, $3, $4, $5)

-- name: fold
-- Adds up what the log of a user has; how many numbers.
SELECT agent_data.index_fold($1, $2, now())

-- name: fold_some
-- Adds up what the logs of some users have that is old (as the owner); how many numbers.
SELECT agent_data.index_fold_some($1)
