-- What a server keeps of a user in its own memory to rank by (sql/schema/015_index.sql).

-- name: read
-- What became of a user's ($2) index since the epoch $6 and the snapshot $7, and of the items that changed all that ranking needs.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, $6, $7, $8) r
LEFT JOIN LATERAL agent_data.index_rows($1, $2, $3, $4, $5, r.items) c ON r.items IS NOT NULL

-- name: load
-- A user's ($2) index, all of it.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, NULL, NULL, $6) r
LEFT JOIN LATERAL agent_data.index_all($1, $2, $3, $4, $5) c ON NOT r.many

-- name: recent
-- Of which users something changed lately, the latest first.
SELECT tenant_id, user_id FROM agent_data.index_recent($1)

-- name: warm
-- Plans what reads items that changed: of a user who is none.
SELECT c.places FROM agent_data.index_rows($1, $2, $3, 0, 0, '{}') c

-- name: terms
-- Keeps terms that a server made of texts.
SELECT agent_data.index_terms($1, $2, $3, $4, $5)

-- name: cut_some
-- Cuts what the logs of some users have that is old (as the owner); how many changes.
SELECT agent_data.index_cut_some($1)

-- name: whose
-- Which server this is, and since which fail-over.
SELECT s.system_identifier, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c
