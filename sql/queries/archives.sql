-- Months of history in files (app/features/archive/archives.py), as mneme_owner; `of_user` and below as mneme_eraser.

-- name: folder
-- What tells this database's archives from another's in the same folder.
SELECT left(encode(sha256(convert_to(c.value #>> '{}', 'UTF8')), 'hex'), 12) FROM agent_data.system_config c
WHERE c.key = 'content_hmac_key'

-- name: alone
-- One at a time archives, restores and drops; the lock goes with the connection.
SELECT pg_try_advisory_lock(hashtextextended('mneme.archive', 0))

-- name: alone_no_more
-- The next may.
SELECT pg_advisory_unlock(hashtextextended('mneme.archive', 0))

-- name: lock_month
-- Nobody else touches a month's files, nor reads which of them are in force, until `unlock_month`.
SELECT pg_advisory_lock(hashtextextended('mneme.archive ' || $1, 0))

-- name: unlock_month
-- The next may.
SELECT pg_advisory_unlock(hashtextextended('mneme.archive ' || $1, 0))

-- name: is_partition
-- Whether a part has a table of its own.
SELECT to_regclass(format('agent_data.%I', $1::text)) IS NOT NULL

-- name: due
-- Parts that are attached, of months up to $1, or of the month $2 alone; without a month asked for, none that was restored.
SELECT c.relname AS part, right(c.relname, 6) AS month, substring(c.relname FROM '_p(\d+)_\d{6}$')::int AS remainder
FROM pg_inherits base JOIN pg_inherits i ON i.inhparent = base.inhrelid JOIN pg_class c ON c.oid = i.inhrelid
WHERE base.inhparent = 'agent_data.conversation_history'::regclass AND c.relname ~ '_p\d+_\d{6}$'
  AND right(c.relname, 6) <= $1 AND ($2::text IS NULL OR right(c.relname, 6) = $2)
  AND ($2 IS NOT NULL OR NOT EXISTS (SELECT FROM agent_data.history_archives a WHERE a.part = c.relname AND a.state = 'restored'))
ORDER BY month, remainder

-- name: hurry
-- For this transaction: rather try again later than make others wait.
SELECT set_config('lock_timeout', $1, true)

-- name: leave_index
-- Some of a part's messages leave the indexes; where to go on, NULL at the end.
SELECT p_user, p_message FROM agent_data.leave_index($1, $2, $3, $4)

-- name: detach
-- A part stands by itself.
SELECT agent_data.detach_history_part($1, $2, $3, $4)

-- name: in_state
-- The parts in a state, oldest first; of one month, if $2 names it.
SELECT a.part, a.month, a.remainder, a.state, a.file, a.rows, a.bytes AS size, a.sha256, a.changed_at FROM agent_data.history_archives a
WHERE ($1::text IS NULL OR a.state = $1) AND ($2::text IS NULL OR a.month = $2) ORDER BY a.month, a.remainder

-- name: held
-- A part, for this transaction nobody else's.
SELECT a.part, a.month, a.remainder, a.state, a.file, a.rows, a.bytes AS size, a.sha256, a.changed_at FROM agent_data.history_archives a
WHERE a.part = $1 FOR UPDATE

-- name: written
-- A part is in its file: its table goes.
SELECT agent_data.drop_history_part($1, $2, $3, $4, $5, $6)

-- name: months_anew
-- The partitions of a month, where they are missing; how many were made.
SELECT agent_data.ensure_history_partitions($1, $1)

-- name: restore
-- Some lines of a file are rows again; how many.
SELECT agent_data.restore_history($1, $2)

-- name: no_file
-- A part has no file any more: it is a partition again (`restored`), or gone (`dropped`).
UPDATE agent_data.history_archives SET state = $2, file = NULL, rows = NULL, bytes = NULL, sha256 = NULL, changed_at = $3
WHERE part = $1

-- name: in_default
-- Messages that no month has a partition for (imports of long ago): they are not archived. At most $1 are counted.
SELECT count(*) FROM (
    SELECT FROM agent_data.conversation_history h
    WHERE h.tableoid IN (SELECT c.oid FROM pg_class c
                         WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relname ~ '^conversation_history_p\d+_rest$')
    LIMIT $1) x

-- name: of_user
-- The parts that may hold messages of a user, by the hash of the id: those with a table of their own, and those in files.
SELECT a.part, a.month, a.remainder, a.state, a.file, a.rows, a.bytes AS size, a.sha256, a.changed_at FROM agent_data.history_archives a
WHERE a.state IN ('detached', 'archived') AND satisfies_hash_partition(
    'agent_data.conversation_history'::regclass,
    (SELECT count(*)::int FROM pg_inherits i WHERE i.inhparent = 'agent_data.conversation_history'::regclass), a.remainder, $1::uuid)
ORDER BY a.month

-- name: tombstones
-- Whether the erasure of a user that is under way keeps keyed hashes, and their key.
SELECT c.value #>> '{}' FROM agent_data.system_config c
WHERE c.key = 'content_hmac_key' AND EXISTS (
    SELECT FROM agent_data.erased_users u JOIN agent_data.erasures e ON e.erasure_id = u.erasure_id
    WHERE u.user_id = $1 AND e.tombstones)

-- name: mark
-- Keyed hashes of what a file said.
INSERT INTO agent_data.erased_contents (user_id, tenant_id, content_hmac)
SELECT $2, $1, x.hmac FROM unnest($3::bytea[]) AS x (hmac) ON CONFLICT DO NOTHING

-- name: rewritten
-- A part is in another file.
UPDATE agent_data.history_archives SET file = $2, rows = $3, bytes = $4, sha256 = $5, changed_at = $6 WHERE part = $1
