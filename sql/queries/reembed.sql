-- Changing the embedder while turns are written (app/features/reembed/store.py). What concerns all tenants runs as mneme_owner.

-- name: alone
-- One reembedding of a database at a time; the lock goes with the connection.
SELECT pg_try_advisory_lock(hashtextextended('mneme.reembed', 0))

-- name: spaces
-- The spaces that there are, and how many vectors are in each.
SELECT s.space, s.name, s.dimensions, s.created_at,
       (SELECT count(*) FROM agent_data.embeddings e WHERE e.space = s.space) AS vectors
FROM agent_data.embedding_spaces s ORDER BY s.space

-- name: register
-- The number and the dimensions of a space, made where it is missing; its indexes come later.
INSERT INTO agent_data.embedding_spaces AS s (name, dimensions) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET name = s.name RETURNING space, dimensions

-- name: index_statements
-- What is to be run, one by one, to make the indexes of a space without keeping writers waiting.
SELECT agent_data.space_index_statements($1, $2) AS statement

-- name: users_lacking
-- Of $3 users after $2: how many of their messages and memories have no vector in space $1.
SELECT u.user_id, u.tenant_id,
    (SELECT count(*) FROM agent_data.conversation_history h
     WHERE h.user_id = u.user_id AND h.role IN (1, 2, 3, 4) AND h.content <> '' AND NOT h.hidden AND NOT h.is_pruned
       AND NOT EXISTS (SELECT FROM agent_data.embeddings e
                       WHERE e.user_id = u.user_id AND e.space = $1 AND e.item_id = h.message_id)
       AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                       WHERE x.user_id = u.user_id AND x.item_id = h.message_id AND x.reason <> 'superseded'))
    + (SELECT count(*) FROM agent_data.memory_store m
       WHERE m.user_id = u.user_id AND m.content_text <> '' AND m.status <> 'forgotten'
         AND NOT EXISTS (SELECT FROM agent_data.embeddings e
                         WHERE e.user_id = u.user_id AND e.space = $1 AND e.item_id = m.memory_id)) AS lacking
FROM (SELECT w.user_id, w.tenant_id FROM agent_data.users w
      WHERE $2::uuid IS NULL OR w.user_id > $2 ORDER BY w.user_id LIMIT $3) u
ORDER BY u.user_id

-- name: lacking
-- What of a user has no vector in space $2, in order, after ($3, $4, $5); without the texts, which come batch by batch.
SELECT x.kind, x.id, x.at FROM (
    SELECT 0::smallint AS kind, h.message_id AS id, h.created_at AS at FROM agent_data.conversation_history h
    WHERE h.user_id = $1 AND h.role IN (1, 2, 3, 4) AND h.content <> '' AND NOT h.hidden AND NOT h.is_pruned
      AND NOT EXISTS (SELECT FROM agent_data.embeddings e WHERE e.user_id = $1 AND e.space = $2 AND e.item_id = h.message_id)
      AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                      WHERE x.user_id = $1 AND x.item_id = h.message_id AND x.reason <> 'superseded')
    UNION ALL
    SELECT 1::smallint, m.memory_id, m.created_at FROM agent_data.memory_store m
    WHERE m.user_id = $1 AND m.content_text <> '' AND m.status <> 'forgotten'
      AND NOT EXISTS (SELECT FROM agent_data.embeddings e WHERE e.user_id = $1 AND e.space = $2 AND e.item_id = m.memory_id)
) x
WHERE $3::smallint IS NULL OR (x.kind, x.at, x.id) > ($3, $4::timestamptz, $5::uuid)
ORDER BY x.kind, x.at, x.id
LIMIT $6

-- name: texts
-- The words of messages said between $4 and $5, and of memories; and what they hash to.
SELECT 0::smallint AS kind, h.message_id AS id, h.created_at AS at, h.content AS text, h.content_hash AS hash
FROM agent_data.conversation_history h
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $4 AND $5
UNION ALL
SELECT 1::smallint, m.memory_id, m.created_at, m.content_text, m.content_hash FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.memory_id = ANY ($3::uuid[]) AND m.status <> 'forgotten'

-- name: epoch
-- Which life of the user this is; NULL where there is none.
SELECT erasure_epoch FROM agent_data.users WHERE user_id = $1

-- name: add
-- Vectors of items that are still what they were; see the function.
SELECT agent_data.add_missing_vectors($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: clear
-- Takes away what an earlier run left in the queue: whoever holds the lock is the only one at it.
DELETE FROM agent_data.pgqueuer WHERE entrypoint = 'reembed'

-- name: jobs
-- How many of its jobs wait or run, and how many failed for good.
SELECT count(*) FILTER (WHERE q.status <> 'failed') AS open, count(*) FILTER (WHERE q.status = 'failed') AS dead
FROM agent_data.pgqueuer q WHERE q.entrypoint = 'reembed'

-- name: only_in
-- How many items have a vector in space $1 and none in space $2: some, at most.
SELECT count(*) FROM (
    SELECT FROM agent_data.embeddings e
    WHERE e.space = $1
      AND NOT EXISTS (SELECT FROM agent_data.embeddings o WHERE o.user_id = e.user_id AND o.space = $2 AND o.item_id = e.item_id)
    LIMIT $3) x

-- name: drop_vectors
-- Takes some of a space's vectors away; how many.
WITH few AS (
    SELECT e.tableoid AS part, e.ctid AS place FROM agent_data.embeddings e WHERE e.space = $1 LIMIT $2
), gone AS (
    DELETE FROM agent_data.embeddings e USING few f WHERE e.tableoid = f.part AND e.ctid = f.place RETURNING 1
)
SELECT count(*) FROM gone

-- name: drop_space
-- The space itself, with its indexes.
SELECT agent_data.drop_embedding_space($1)
