-- What the helper LLM was used for, by day (app/store/helper_usage.py). $1 is now.

-- name: reserve
-- Counts a call with its tokens ($2); no row where the day would have more than $3 (NULL: no limit).
INSERT INTO agent_data.helper_days AS d (day, calls, tokens)
SELECT ($1::timestamptz AT TIME ZONE 'UTC')::date, 1, $2::bigint WHERE $3::bigint IS NULL OR $2::bigint <= $3::bigint
ON CONFLICT (day) DO UPDATE SET calls = d.calls + 1, tokens = d.tokens + EXCLUDED.tokens
WHERE $3::bigint IS NULL OR d.tokens + EXCLUDED.tokens <= $3::bigint
RETURNING true

-- name: settle
-- Adds to the day's tokens what a call needed beyond its reservation, or ($2 < 0) did not need of it.
INSERT INTO agent_data.helper_days AS d (day, tokens)
SELECT ($1::timestamptz AT TIME ZONE 'UTC')::date, GREATEST(0, $2::bigint)
ON CONFLICT (day) DO UPDATE SET tokens = GREATEST(0, d.tokens + $2::bigint)
RETURNING true

-- name: count_messages
-- Adds to the messages that were read ($2), left out for lack of tokens ($3), for want of an answer of the right shape ($4),
-- or of any answer ($5).
INSERT INTO agent_data.helper_days AS d (day, messages, unread_budget, unread_shape, unread_away)
SELECT ($1::timestamptz AT TIME ZONE 'UTC')::date, $2::bigint, $3::bigint, $4::bigint, $5::bigint
ON CONFLICT (day) DO UPDATE SET
    messages = d.messages + EXCLUDED.messages, unread_budget = d.unread_budget + EXCLUDED.unread_budget,
    unread_shape = d.unread_shape + EXCLUDED.unread_shape, unread_away = d.unread_away + EXCLUDED.unread_away
RETURNING true

-- name: day
-- The figures of today.
SELECT d.calls, d.tokens, d.messages, d.unread_budget, d.unread_shape, d.unread_away FROM agent_data.helper_days d
WHERE d.day = ($1::timestamptz AT TIME ZONE 'UTC')::date
