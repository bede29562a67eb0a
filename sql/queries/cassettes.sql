-- Captured calls as cassettes (app/store/captures.py), under row-level security.

-- name: wanted
-- Calls whose content was kept, the oldest first, after $10: of a user, a session, a model, a status, from $6 up to before $7, with
-- all of the labels $8, by their ids; legs of calls only by theirs, or where $12 says so. Times (to the millisecond) bound the ids, and so the months to open.
SELECT c.call_id FROM agent_data.upstream_calls c
WHERE c.tenant_id = $1 AND ($2::uuid IS NULL OR c.user_id = $2) AND ($3::uuid IS NULL OR c.session_id = $3)
  AND ($4::text IS NULL OR c.model = $4) AND ($5::smallint IS NULL OR c.status = $5)
  AND ($6::timestamptz IS NULL OR c.call_id >= agent_data.uuid7_floor(date_trunc('milliseconds', $6)))
  AND ($7::timestamptz IS NULL OR c.call_id < agent_data.uuid7_floor(date_trunc('milliseconds', $7)))
  AND ($8::text[] IS NULL OR c.labels @> $8)
  AND ($9::uuid[] IS NULL OR c.call_id = ANY ($9)) AND ($10::uuid IS NULL OR c.call_id > $10)
  AND (c.metadata ->> 'captured') IS DISTINCT FROM 'false'
  AND ($12::boolean OR $9 IS NOT NULL OR (c.metadata ->> 'leg_of') IS NULL)
ORDER BY c.call_id
LIMIT $11

-- name: stream
-- An answer: its bytes, and where and when each piece of it began.
SELECT b.body, b.truncated, b.chunk_offsets, b.chunk_times FROM agent_data.streams b
WHERE b.tenant_id = $1 AND b.call_id = $2 AND ($3::uuid IS NULL OR b.user_id = $3)

-- name: holders
-- Whose the calls $2 are, of those that are there.
SELECT c.call_id, c.user_id FROM agent_data.upstream_calls c WHERE c.tenant_id = $1 AND c.call_id = ANY ($2::uuid[])
