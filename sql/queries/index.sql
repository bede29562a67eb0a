-- What a server keeps of a user in its own memory to rank by (sql/schema/015_index.sql).

-- name: read
-- What became of a user's ($2) index since the epoch $6 and the snapshot $7, and of the items that changed all that ranking needs.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, $6, $7) r
LEFT JOIN LATERAL agent_data.index_rows($1, $2, $3, $4, $5, r.items) c ON r.items IS NOT NULL

-- name: load
-- A user's ($2) index: all of it, or of the messages the latest, where it would have more than $6 items.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, NULL, NULL) r, LATERAL agent_data.index_all($1, $2, $3, $4, $5, $6) c

-- name: session
-- The same of one session ($6) of nobody's.
SELECT r.*, c.* FROM agent_data.index_read($1, $2, NULL, NULL) r,
     LATERAL agent_data.index_rows($1, $2, $3, $4, $5, agent_data.index_session($1, $2, $6, $7)) c

-- name: beside
-- Of the messages that are too old for a user's index (before $7) those that are nearest to a vector ($6), at most $8.
SELECT c.* FROM agent_data.index_rows($1, $2, $3, $4, $5, agent_data.index_beside($1, $2, $3, $6, $7, $8)) c

-- name: recall
-- A question as `beside` asks it of the graph (at most $6), and the nearest $7 of all vectors (the sum keeps the graph out of it).
SELECT agent_data.index_beside($1, $2, $3, $4, $5, $6) AS found, array_agg(x.item_id) AS wanted FROM (
    SELECT e.item_id FROM agent_data.embeddings e
    WHERE e.tenant_id = $1 AND e.user_id = $2 AND e.space = $3 AND e.in_hnsw AND e.item_kind = 0
      AND e.item_at < CASE $5::bigint WHEN 9223372036854775807 THEN 'infinity'
                      ELSE timestamptz '2000-01-01 00:00:00+00' + $5 * interval '1 microsecond' END
    ORDER BY (e.vector <=> $4::halfvec) + 0 LIMIT $7) x

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
