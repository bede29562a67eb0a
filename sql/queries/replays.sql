-- What a captured request cost that was sent again (app/features/replay/store.py).

-- name: hold_user
-- Lets an erasure of the user ($1) wait for the end of this transaction, as it does for a call that is recorded.
SELECT pg_advisory_xact_lock_shared(agent_data.capture_lock($1))

-- name: record_spend
-- Adds the cost of a replayed answer ($2 is the replay's own id); no call is recorded for it. Of a user who was erased meanwhile
-- only the sum is kept.
INSERT INTO agent_data.spend_entries (
    call_id, user_id, tenant_id, key_id, session_id, model, day, prompt_tokens, completion_tokens, cached_tokens,
    unpriced_tokens, cost_microcents)
SELECT $2, CASE WHEN EXISTS (SELECT FROM agent_data.upstream_calls c
                             WHERE c.tenant_id = $1 AND c.call_id = $3 AND c.user_id = $4)
                THEN $4 ELSE '00000000-0000-0000-0000-000000000000' END,
       $1, COALESCE($5::uuid, '00000000-0000-0000-0000-000000000000'), '00000000-0000-0000-0000-000000000000',
       left($6::text, 200), ($7::timestamptz AT TIME ZONE 'UTC')::date, $8::bigint, $9::bigint, $10::bigint,
       CASE WHEN $11::boolean THEN 0 ELSE $8::bigint + $9::bigint END, $12::bigint
ON CONFLICT DO NOTHING
