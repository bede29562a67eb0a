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

-- name: hold_user
-- A user, held until the transaction ends: nobody else makes them a member meanwhile.
SELECT 1 FROM agent_data.users u WHERE u.tenant_id = $1 AND u.user_id = $2 FOR UPDATE

-- name: joined
-- How many spaces a user is in.
SELECT count(*) FROM agent_data.space_members m WHERE m.tenant_id = $1 AND m.user_id = $2

-- name: join
-- A member; nothing where they were one.
INSERT INTO agent_data.space_members (user_id, tenant_id, space_id, joined_at) VALUES ($2, $1, $3, $4)
ON CONFLICT DO NOTHING RETURNING user_id

-- name: leave
-- A member less, and the stored blocks of their prompts that quote the space; false where there was none.
SELECT agent_data.leave_space($1, $2, $3)

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

-- name: items
-- What is said and remembered in a space ($2), oldest first, after ($4, $5), with who said it: themselves, or the
-- messages that it comes from. $3: a member, who reads nothing else; NULL: whoever asks.
SELECT i.id, i.kind, i.text, i.said_at, ARRAY(
    SELECT DISTINCT u.external_id FROM agent_data.space_sayings y JOIN agent_data.users u ON u.user_id = y.user_id
    WHERE y.tenant_id = $1 AND y.space_id = $2 AND y.item_id = ANY (i.comes_from) ORDER BY 1) AS users
FROM (
    SELECT h.message_id AS id, 'message' AS kind, h.content AS text, h.created_at AS said_at,
           ARRAY[h.message_id] AS comes_from
    FROM agent_data.conversation_history h
    WHERE h.tenant_id = $1 AND h.user_id = $2 AND NOT h.is_pruned AND NOT h.hidden
      AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                      WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
    UNION ALL
    SELECT m.memory_id, m.kind, m.content_text, m.created_at, m.memory_id || m.source_message_ids
    FROM agent_data.memory_store m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.is_active
) i
WHERE ($4::timestamptz IS NULL OR (i.said_at, i.id) > ($4, $5::uuid))
  AND ($3::uuid IS NULL OR EXISTS (SELECT FROM agent_data.space_members m
                                   WHERE m.tenant_id = $1 AND m.user_id = $3 AND m.space_id = $2))
ORDER BY i.said_at, i.id LIMIT $6

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

-- name: takeable
-- An item of a space ($3) that is to be taken back by the user $2; NULL: by whoever manages the tenant (asked as mneme_eraser).
-- Nothing where it is not there, or the user has no part in it. `mine`: they said it, or all that it was learned from; `shared`:
-- others said it, too, or something that it was learned from.
SELECT $3::uuid AS space_id, $4::uuid AS item_id, i.session_id, $2::uuid IS NULL OR i.said OR i.others = 0 AND i.own > 0 AS mine,
       $2::uuid IS NOT NULL AND (i.others > 0 OR EXISTS (
           SELECT FROM agent_data.space_sayings y
           WHERE y.tenant_id = $1 AND y.space_id = $3 AND y.item_id = $4 AND y.user_id <> $2)) AS shared
FROM (
    SELECT f.session_id,
           EXISTS (SELECT FROM agent_data.space_sayings y
                   WHERE y.tenant_id = $1 AND y.user_id = $2 AND y.space_id = $3 AND y.item_id = $4) AS said,
           count(x.source) FILTER (WHERE y.user_id IS NOT NULL) AS own,
           count(x.source) FILTER (WHERE y.user_id IS NULL) AS others
    FROM (
        SELECT h.session_id, '{}'::uuid[] AS sources
        FROM agent_data.conversation_history h
        WHERE h.tenant_id = $1 AND h.user_id = $3 AND h.message_id = $4 AND NOT h.is_pruned
          AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                          WHERE x.user_id = $3 AND x.item_id = $4 AND x.reason NOT IN ('superseded', 'resent'))
        UNION ALL
        SELECT NULL, m.source_message_ids
        FROM agent_data.memory_store m
        WHERE m.tenant_id = $1 AND m.user_id = $3 AND m.memory_id = $4 AND m.status <> 'forgotten'
    ) f
    LEFT JOIN LATERAL unnest(f.sources) AS x (source) ON true
    LEFT JOIN agent_data.space_sayings y
           ON y.tenant_id = $1 AND y.user_id = $2 AND y.space_id = $3 AND y.item_id = x.source
    GROUP BY f.session_id
) i
WHERE EXISTS (SELECT FROM agent_data.spaces s WHERE s.tenant_id = $1 AND s.user_id = $3)
  AND ($2::uuid IS NULL OR i.said OR i.own > 0)

-- name: unsay_item
-- Nobody knows any more who said this item ($3).
DELETE FROM agent_data.space_sayings y WHERE y.tenant_id = $1 AND y.space_id = $2 AND y.item_id = $3

-- name: said_at
-- When a message of a space was said; nothing where it is gone.
SELECT h.created_at FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = $3 AND NOT h.is_pruned

-- name: unsay
-- Nobody knows any more that this user said this item.
DELETE FROM agent_data.space_sayings y WHERE y.tenant_id = $1 AND y.user_id = $2 AND y.space_id = $3 AND y.item_id = $4

-- name: words
-- What a user said in spaces, in words, for an export; after ($3, $4). `session`: of the user's, in which they said it (a space's own
-- ends with its id).
SELECT i.space, i.id, i.kind, i.session, i.said_at, i.text FROM (
    SELECT s.name AS space, y.item_id AS id, 'message' AS kind, h.created_at AS said_at, h.content AS text,
           COALESCE(o.external_id, o.session_id::text, q.external_id) AS session
    FROM agent_data.space_sayings y
    JOIN agent_data.spaces s ON s.user_id = y.space_id AND s.tenant_id = $1
    JOIN agent_data.conversation_history h
      ON h.tenant_id = $1 AND h.user_id = y.space_id AND h.message_id = y.item_id AND h.content IS NOT NULL
    JOIN agent_data.sessions q ON q.user_id = y.space_id AND q.session_id = h.session_id
    LEFT JOIN agent_data.sessions o ON o.user_id = $2 AND o.session_id::text = right(q.external_id, 36)
    WHERE y.tenant_id = $1 AND y.user_id = $2 AND y.item_kind = 0
    UNION ALL
    SELECT s.name, y.item_id, m.kind, m.created_at, m.content_text, NULL
    FROM agent_data.space_sayings y
    JOIN agent_data.spaces s ON s.user_id = y.space_id AND s.tenant_id = $1
    JOIN agent_data.memory_store m
      ON m.tenant_id = $1 AND m.user_id = y.space_id AND m.memory_id = y.item_id AND m.status <> 'forgotten'
    WHERE y.tenant_id = $1 AND y.user_id = $2 AND y.item_kind = 1
) i
WHERE $3::timestamptz IS NULL OR (i.said_at, i.id) > ($3, $4::uuid)
ORDER BY i.said_at, i.id LIMIT $5

-- name: unquote
-- Drops stored memory blocks of users that quote anything of whom is erased ($2), if that is a space: their prompts begin a new
-- epoch. How many.
WITH quoting AS (
    DELETE FROM agent_data.context_blocks b
    WHERE b.tenant_id = $1 AND b.item_spaces IS NOT NULL AND $2::uuid = ANY (b.item_spaces)
      AND (SELECT true FROM agent_data.spaces x WHERE x.tenant_id = $1 AND x.user_id = $2)
    RETURNING b.user_id, b.session_id
), begun AS (
    UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
    WHERE s.tenant_id = $1 AND (s.user_id, s.session_id) IN (SELECT q.user_id, q.session_id FROM quoting q)
)
SELECT count(*) FROM quoting
