-- What a server keeps of a user in its own memory to rank by (sql/schema/047_index.sql).

-- name: read
-- What became of a user's index since it was read, or all of it.
SELECT * FROM agent_data.index_read($1, $2, $3, $4, $5, $6, $7, $8)

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
