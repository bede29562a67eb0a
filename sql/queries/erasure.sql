-- Erasing a user (app/store/erasure.py), as mneme_eraser; row-level security holds it to the tenant that the session names.

-- name: set_tenant
-- Whose rows this session may see and erase.
SELECT set_config('mneme.tenant', $1, false)

-- name: tenant
-- A tenant by its name.
SELECT tenant_id FROM agent_data.tenants WHERE name = $1

-- name: alone
-- One erasure of a user at a time; the lock goes with the connection.
SELECT pg_try_advisory_lock(hashtextextended('mneme.erase:' || $1::uuid::text, 0))

-- name: alone_no_more
-- Another erasure of the user may begin.
SELECT pg_advisory_unlock(hashtextextended('mneme.erase:' || $1::uuid::text, 0))

-- name: hmac_key
-- Keys the hashes that remain.
SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'content_hmac_key'

-- name: receipt
-- A new receipt, or the one of an erasure that did not come to its end.
WITH begun AS (
    SELECT e.erasure_id FROM agent_data.erased_users u JOIN agent_data.erasures e ON e.erasure_id = u.erasure_id
    WHERE u.user_id = $2 AND u.tenant_id = $1 AND e.finished_at IS NULL
), new AS (
    INSERT INTO agent_data.erasures (erasure_id, tenant_id, user_hash, tombstones, began_at)
    SELECT $3, $1, $4, $5, $6 WHERE NOT EXISTS (SELECT FROM begun)
    RETURNING erasure_id
)
SELECT erasure_id FROM begun UNION ALL SELECT erasure_id FROM new

-- name: fence
-- From now on nothing of this user's is recorded, until `open` says otherwise.
INSERT INTO agent_data.erased_users AS u (user_id, tenant_id, erasure_id, erased_before) VALUES ($2, $1, $3, 'infinity')
ON CONFLICT (user_id) DO UPDATE SET erasure_id = EXCLUDED.erasure_id, erased_before = 'infinity'

-- name: new_epoch
-- Jobs that have begun find another user than the one they read of. Waits for those that are writing.
UPDATE agent_data.users SET erasure_epoch = erasure_epoch + 1 WHERE tenant_id = $1 AND user_id = $2

-- name: settle
-- Waits for the calls of the user that are being recorded this moment; later ones meet the fence.
SELECT pg_advisory_xact_lock(agent_data.capture_lock($1))

-- name: tell_servers
-- Tells the servers, over channel $1, to drop what they keep of user $2 in memory.
SELECT pg_notify($1, $2)

-- name: revoke_keys
-- Keys made for this user end, and do not say any more whose they were.
WITH ended AS (
    UPDATE agent_data.api_keys k SET
        name = 'erased', user_external_id = 'erased ' || k.key_id, revoked_at = COALESCE(k.revoked_at, $3)
    WHERE k.tenant_id = $1 AND k.user_external_id = $2 RETURNING 1
)
SELECT count(*) FROM ended

-- name: name_of
-- What the tenant calls this user.
SELECT external_id FROM agent_data.users WHERE tenant_id = $1 AND user_id = $2

-- name: tell
-- Whoever wants to know is told when it has ended.
SELECT agent_data.tell_erasing($1, $2, $3)

-- name: mark_messages
-- Keyed hashes of what was said: $3 and $4 are the key's inner and outer pad (HMAC, RFC 2104).
INSERT INTO agent_data.erased_contents (user_id, tenant_id, content_hmac)
SELECT DISTINCT $2::uuid, $1::uuid, sha256($4::bytea || sha256($3::bytea || h.content_hash))
FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.content_hash IS NOT NULL
ON CONFLICT DO NOTHING

-- name: mark_memories
-- The same of what was learned, and of what memories said before they were edited.
INSERT INTO agent_data.erased_contents (user_id, tenant_id, content_hmac)
SELECT DISTINCT $2::uuid, $1::uuid, sha256($4::bytea || sha256($3::bytea || x.content_hash)) FROM (
    SELECT m.content_hash FROM agent_data.memory_store m
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.content_hash <> ''
    UNION ALL
    SELECT decode(e.before ->> 'content_hash', 'hex') FROM agent_data.memory_events e
    WHERE e.tenant_id = $1 AND e.user_id = $2 AND e.before ? 'content_hash'
) x
ON CONFLICT DO NOTHING

-- name: mark_forgotten
-- What was forgotten before stays forgotten.
INSERT INTO agent_data.erased_contents (user_id, tenant_id, content_hmac)
SELECT DISTINCT s.user_id, s.tenant_id, s.content_hmac FROM agent_data.suppressions s
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.content_hmac IS NOT NULL
ON CONFLICT DO NOTHING

-- name: calls
-- Erases some of the user's captured calls, each with its stream and its compilation: how many of each.
WITH few AS MATERIALIZED (
    SELECT c.call_id FROM agent_data.upstream_calls c
    WHERE c.tenant_id = $1 AND c.user_id = $2 ORDER BY c.call_id LIMIT $3
), s AS (
    DELETE FROM agent_data.streams t USING few WHERE t.call_id = few.call_id AND t.user_id = $2 RETURNING 1
), p AS (
    DELETE FROM agent_data.compilations t USING few WHERE t.call_id = few.call_id AND t.user_id = $2 RETURNING 1
), c AS (
    DELETE FROM agent_data.upstream_calls t USING few WHERE t.call_id = few.call_id AND t.user_id = $2 RETURNING 1
)
SELECT (SELECT count(*) FROM c) AS upstream_calls, (SELECT count(*) FROM s) AS streams,
       (SELECT count(*) FROM p) AS compilations

-- name: tables
-- Every other table that has rows of users, those that lead to others, or follow them, last (the log of changes when the user's row is
-- gone, and with it what servers took for the present); `held`: row-level security has a policy for it.
SELECT c.relname AS name, EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenant') AS held
FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'user_id' AND NOT a.attisdropped)
  AND c.relname NOT IN ('upstream_calls', 'streams', 'compilations', 'erased_users', 'erased_contents', 'spend', 'spend_entries')
ORDER BY array_position(ARRAY['index_items', 'routes', 'sessions', 'users', 'index_log', 'index_state'], c.relname::text)
         NULLS FIRST, c.relname

-- name: rows
-- Erases some of the user's rows of a table; how many.
SELECT agent_data.erase_rows($1, $2, $3, $4)

-- name: spend_entries
-- What calls cost stays, for the budgets and totals of keys; that they were this user's does not. How many.
WITH few AS (
    SELECT e.ctid AS place FROM agent_data.spend_entries e WHERE e.tenant_id = $1 AND e.user_id = $2 LIMIT $3
), cut AS (
    UPDATE agent_data.spend_entries e
    SET user_id = '00000000-0000-0000-0000-000000000000', session_id = '00000000-0000-0000-0000-000000000000'
    FROM few f WHERE e.ctid = f.place AND e.user_id = $2 RETURNING 1
)
SELECT count(*) FROM cut

-- name: spend
-- The same of what was added up. (In the order of the key, as `fold_spend`, so that two who add to the same rows do not block
-- each other.)
WITH few AS (
    SELECT s.ctid AS place FROM agent_data.spend s WHERE s.tenant_id = $1 AND s.user_id = $2 LIMIT $3
), taken AS (
    DELETE FROM agent_data.spend s USING few f WHERE s.ctid = f.place AND s.user_id = $2 RETURNING s.*
), added AS (
    INSERT INTO agent_data.spend AS s (
        tenant_id, day, key_id, user_id, session_id, model, calls, prompt_tokens, completion_tokens, cached_tokens,
        unpriced_tokens, cost_microcents)
    SELECT t.tenant_id, t.day, t.key_id, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', t.model,
           sum(t.calls), sum(t.prompt_tokens), sum(t.completion_tokens), sum(t.cached_tokens), sum(t.unpriced_tokens),
           sum(t.cost_microcents)
    FROM taken t
    GROUP BY t.tenant_id, t.day, t.key_id, t.model
    ORDER BY t.tenant_id, t.day, t.key_id, t.model
    ON CONFLICT (tenant_id, day, key_id, user_id, session_id, model) DO UPDATE SET
        calls = s.calls + EXCLUDED.calls, prompt_tokens = s.prompt_tokens + EXCLUDED.prompt_tokens,
        completion_tokens = s.completion_tokens + EXCLUDED.completion_tokens,
        cached_tokens = s.cached_tokens + EXCLUDED.cached_tokens,
        unpriced_tokens = s.unpriced_tokens + EXCLUDED.unpriced_tokens,
        cost_microcents = s.cost_microcents + EXCLUDED.cost_microcents
)
SELECT count(*) FROM taken

-- name: jobs
-- Takes the user's jobs out of the queue, whatever their state, with what is logged of them; how many.
WITH gone AS (
    DELETE FROM agent_data.pgqueuer q
    WHERE agent_data.job_payload(q.payload) ->> 'tenant' = $1::uuid::text
      AND agent_data.job_payload(q.payload) ->> 'user' = $2::uuid::text
    RETURNING q.id
), told AS (
    DELETE FROM agent_data.pgqueuer_log l USING gone g WHERE l.job_id = g.id
)
SELECT count(*) FROM gone

-- name: prompts
-- System prompts of the tenant that no session uses any more; how many. (A session that begins to use one this moment brings it
-- again with its next turn.)
WITH gone AS (
    DELETE FROM agent_data.system_prompts p
    WHERE p.tenant_id = $1 AND NOT EXISTS (
        SELECT FROM agent_data.sessions s WHERE s.tenant_id = $1 AND s.system_prompt_hash = p.prompt_hash)
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: note
-- Adds to a receipt's counts what was erased just now.
UPDATE agent_data.erasures e SET counts = (
    SELECT COALESCE(jsonb_object_agg(x.key, x.n), '{}') FROM (
        SELECT k.key, sum(k.value::bigint) AS n
        FROM (SELECT * FROM jsonb_each_text(e.counts) UNION ALL SELECT * FROM jsonb_each_text($2::text::jsonb)) k
        GROUP BY k.key) x)
WHERE e.erasure_id = $1

-- name: open
-- The user is erased: what begins from now on is a new user's.
UPDATE agent_data.erased_users SET erased_before = $2 WHERE user_id = $1

-- name: drop_tombstones
-- Nothing remains of the user but the receipt.
WITH contents AS (DELETE FROM agent_data.erased_contents WHERE tenant_id = $1 AND user_id = $2)
DELETE FROM agent_data.erased_users WHERE tenant_id = $1 AND user_id = $2

-- name: finish
-- Ends a receipt, and shows it.
UPDATE agent_data.erasures SET finished_at = COALESCE(finished_at, $2) WHERE erasure_id = $1
RETURNING erasure_id, tenant_id, user_hash, tombstones, counts::text AS counts, began_at, finished_at

-- name: unfinished
-- Erasures that did not come to their end (asked as the owner, who sees all tenants).
SELECT u.tenant_id, u.user_id, e.tombstones FROM agent_data.erased_users u
JOIN agent_data.erasures e ON e.erasure_id = u.erasure_id WHERE e.finished_at IS NULL ORDER BY e.began_at

-- name: archived
-- Whether months of history stand in files, or on the way there.
SELECT EXISTS (SELECT FROM agent_data.history_archives WHERE state IN ('detached', 'archived'))
