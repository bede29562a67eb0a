-- Shared memory (sql/schema/021_spaces.sql), under row-level security.

-- name: add
-- A space; nothing where there is one of this name.
INSERT INTO agent_data.spaces (user_id, tenant_id, name, kind, title, by_word, created_at)
VALUES ($2, $1, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING user_id

-- name: page
-- Spaces by name, after $3; of a user ($2) those that they are a member of, NULL: all of the tenant's.
SELECT s.user_id AS space_id, s.name, s.kind, s.title, s.by_word, s.created_at,
       (SELECT count(*) FROM agent_data.space_members c WHERE c.space_id = s.user_id) AS members
FROM agent_data.spaces s
WHERE s.tenant_id = $1 AND s.name > $3
  AND ($2::uuid IS NULL OR EXISTS (
      SELECT FROM agent_data.space_members m WHERE m.user_id = $2 AND m.space_id = s.user_id))
ORDER BY s.name LIMIT $4

-- name: one
-- A space, for the whole tenant ($2 NULL) or for one of its members.
SELECT s.user_id AS space_id, s.name, s.kind, s.title, s.by_word, s.created_at,
       (SELECT count(*) FROM agent_data.space_members c WHERE c.space_id = s.user_id) AS members
FROM agent_data.spaces s
WHERE s.tenant_id = $1 AND s.user_id = $3
  AND ($2::uuid IS NULL OR EXISTS (
      SELECT FROM agent_data.space_members m WHERE m.user_id = $2 AND m.space_id = s.user_id))

-- name: hold
-- A space, held until the transaction ends: it is not erased meanwhile.
SELECT s.user_id FROM agent_data.spaces s WHERE s.tenant_id = $1 AND s.user_id = $2 FOR UPDATE

-- name: is_member
-- Whether a user is a member, who cannot leave before the transaction ends.
SELECT 1 FROM agent_data.space_members m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.space_id = $3 FOR UPDATE

-- name: joined
-- How many spaces a user is in.
SELECT count(*) FROM agent_data.space_members m WHERE m.tenant_id = $1 AND m.user_id = $2

-- name: join
-- A member; nothing where they were one.
INSERT INTO agent_data.space_members (user_id, tenant_id, space_id, joined_at) VALUES ($2, $1, $3, $4)
ON CONFLICT DO NOTHING RETURNING user_id

-- name: leave
-- A member less; nothing where there was none.
DELETE FROM agent_data.space_members m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.space_id = $3 RETURNING m.user_id

-- name: members
-- The members of a space by their names, after $3.
SELECT u.external_id AS user, m.joined_at FROM agent_data.space_members m
JOIN agent_data.users u ON u.user_id = m.user_id AND u.tenant_id = $1
WHERE m.tenant_id = $1 AND m.space_id = $2 AND u.external_id > $3
ORDER BY u.external_id LIMIT $4

-- name: of
-- The spaces that a user may read, by name.
SELECT s.user_id AS space_id, s.name FROM agent_data.space_members m
JOIN agent_data.spaces s ON s.user_id = m.space_id AND s.tenant_id = $1
WHERE m.tenant_id = $1 AND m.user_id = $2 ORDER BY s.name

-- name: say
-- Notes who said an item of a space.
INSERT INTO agent_data.space_sayings (user_id, tenant_id, space_id, item_id, item_kind, session_id, said_at)
SELECT $2, $1, $3, i, $5, $6, $7 FROM unnest($4::uuid[]) AS i ON CONFLICT DO NOTHING

-- name: sayers
-- By whom memories of a space were said: they themselves, or a message that they come from.
SELECT m.memory_id, array_agg(DISTINCT u.external_id) AS users
FROM agent_data.memory_store m
JOIN agent_data.space_sayings y ON y.space_id = $2 AND (y.item_id = m.memory_id OR y.item_id = ANY (m.source_message_ids))
JOIN agent_data.users u ON u.user_id = y.user_id
WHERE m.tenant_id = $1 AND m.user_id = $2 AND y.tenant_id = $1 AND m.memory_id = ANY ($3::uuid[])
GROUP BY 1

-- name: empty
-- Ends all membership of a space, and what is known of who said what there: from here on nobody reads it.
WITH gone AS (DELETE FROM agent_data.space_members m WHERE m.tenant_id = $1 AND m.space_id = $2)
DELETE FROM agent_data.space_sayings y WHERE y.tenant_id = $1 AND y.space_id = $2

-- name: said
-- What a user said in spaces (asked as mneme_eraser). `shared`: somebody else said it, too, or it was
-- learned from a message.
SELECT y.space_id, y.item_id, y.item_kind, y.session_id,
       EXISTS (SELECT FROM agent_data.space_sayings o
               WHERE o.space_id = y.space_id AND o.item_id = y.item_id AND o.user_id <> y.user_id)
       OR EXISTS (SELECT FROM agent_data.memory_store m
                  WHERE m.user_id = y.space_id AND m.memory_id = y.item_id AND m.source_message_ids <> '{}') AS shared
FROM agent_data.space_sayings y WHERE y.tenant_id = $1 AND y.user_id = $2 ORDER BY y.space_id, y.item_id

-- name: said_at
-- When a message of a space was said; nothing where it is gone.
SELECT h.created_at FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3 AND NOT h.is_pruned

-- name: unsay
-- Nobody knows any more that this user said this item.
DELETE FROM agent_data.space_sayings y WHERE y.tenant_id = $1 AND y.user_id = $2 AND y.space_id = $3 AND y.item_id = $4

-- name: words
-- What a user said in spaces, in words, for an export.
SELECT s.name AS space, y.item_id AS id, CASE y.item_kind WHEN 0 THEN 'message' ELSE 'memory' END AS kind, y.said_at,
       CASE y.item_kind
           WHEN 0 THEN (SELECT h.content FROM agent_data.conversation_history h
                        WHERE h.tenant_id = $1 AND h.user_id = y.space_id AND h.message_id = y.item_id)
           ELSE (SELECT m.content_text FROM agent_data.memory_store m
                 WHERE m.tenant_id = $1 AND m.user_id = y.space_id AND m.memory_id = y.item_id) END AS text
FROM agent_data.space_sayings y JOIN agent_data.spaces s ON s.user_id = y.space_id
WHERE y.tenant_id = $1 AND y.user_id = $2 ORDER BY y.said_at, y.item_id

-- name: unquote
-- Drops stored memory blocks of a tenant's users that quote one of these items ($2) of a space: their prompts begin a new epoch.
WITH quoting AS (
    DELETE FROM agent_data.context_blocks b
    WHERE b.tenant_id = $1 AND b.item_spaces IS NOT NULL AND b.item_ids && $2::uuid[]
    RETURNING b.user_id, b.session_id
)
UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
WHERE s.tenant_id = $1 AND (s.user_id, s.session_id) IN (SELECT q.user_id, q.session_id FROM quoting q)

-- name: unquote_space
-- The same of all items of whom is erased ($2), if that is a space.
WITH quoting AS (
    DELETE FROM agent_data.context_blocks b
    WHERE b.tenant_id = $1 AND b.item_spaces IS NOT NULL AND $2::uuid = ANY (b.item_spaces)
      AND (SELECT true FROM agent_data.spaces x WHERE x.tenant_id = $1 AND x.user_id = $2)
    RETURNING b.user_id, b.session_id
)
UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
WHERE s.tenant_id = $1 AND (s.user_id, s.session_id) IN (SELECT q.user_id, q.session_id FROM quoting q)
