-- name: list_of_user
-- The calls of a user, newest first, before $7; times (to the millisecond) bound the ids, and so the months to open. $9: calls
-- before that; $10: their outcome; $11: all of these labels; $12: whether the answer called tools; $13: whether it failed (no
-- answer, an error's status, an error in it, or broken off); $14: at least that many milliseconds; $15: legs of calls as well.
SELECT c.call_id, c.user_id, u.external_id AS user_external_id, c.session_id, s.external_id AS session_external_id,
       c.created_at, c.method, c.path, c.upstream, c.model, c.answered_model, c.streamed, c.status, c.outcome,
       c.memory_status, c.reason, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_counted, c.cost_microcents,
       c.latency_ms, c.first_byte_us, c.overhead_us, c.retry_count, c.error, c.labels,
       (c.metadata ->> 'tool_calls')::integer AS tool_calls, c.metadata ->> 'leg_of' AS leg_of,
       (c.metadata ->> 'leg')::integer AS leg
FROM agent_data.upstream_calls c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = c.user_id AND s.session_id = c.session_id
WHERE c.tenant_id = $1 AND c.user_id = $2 AND ($3::uuid IS NULL OR c.session_id = $3) AND ($4::text IS NULL OR c.model = $4)
  AND ($5::smallint IS NULL OR c.status = $5)
  AND ($6::timestamptz IS NULL OR c.call_id >= agent_data.uuid7_floor(date_trunc('milliseconds', $6))) AND ($7::uuid IS NULL OR c.call_id < $7)
  AND ($9::timestamptz IS NULL OR c.call_id < agent_data.uuid7_floor(date_trunc('milliseconds', $9)))
  AND ($10::smallint IS NULL OR c.outcome = $10) AND ($11::text[] IS NULL OR c.labels @> $11)
  AND ($12::boolean IS NULL OR ((c.metadata ->> 'tool_calls') IS NOT NULL) = $12)
  AND ($13::boolean IS NULL OR (c.error IS NOT NULL OR COALESCE(c.status, 500) >= 400 OR c.outcome IN (1, 4)) = $13)
  AND ($14::integer IS NULL OR c.latency_ms >= $14) AND ($15::boolean OR (c.metadata ->> 'leg_of') IS NULL)
ORDER BY c.call_id DESC
LIMIT $8

-- name: list_of_tenant
-- As list_of_user, for all users of a tenant.
SELECT c.call_id, c.user_id, u.external_id AS user_external_id, c.session_id, s.external_id AS session_external_id,
       c.created_at, c.method, c.path, c.upstream, c.model, c.answered_model, c.streamed, c.status, c.outcome,
       c.memory_status, c.reason, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_counted, c.cost_microcents,
       c.latency_ms, c.first_byte_us, c.overhead_us, c.retry_count, c.error, c.labels,
       (c.metadata ->> 'tool_calls')::integer AS tool_calls, c.metadata ->> 'leg_of' AS leg_of,
       (c.metadata ->> 'leg')::integer AS leg
FROM agent_data.upstream_calls c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = c.user_id AND s.session_id = c.session_id
WHERE c.tenant_id = $1 AND ($2::uuid IS NULL OR c.session_id = $2) AND ($3::text IS NULL OR c.model = $3)
  AND ($4::smallint IS NULL OR c.status = $4)
  AND ($5::timestamptz IS NULL OR c.call_id >= agent_data.uuid7_floor(date_trunc('milliseconds', $5))) AND ($6::uuid IS NULL OR c.call_id < $6)
  AND ($8::timestamptz IS NULL OR c.call_id < agent_data.uuid7_floor(date_trunc('milliseconds', $8)))
  AND ($9::smallint IS NULL OR c.outcome = $9) AND ($10::text[] IS NULL OR c.labels @> $10)
  AND ($11::boolean IS NULL OR ((c.metadata ->> 'tool_calls') IS NOT NULL) = $11)
  AND ($12::boolean IS NULL OR (c.error IS NOT NULL OR COALESCE(c.status, 500) >= 400 OR c.outcome IN (1, 4)) = $12)
  AND ($13::integer IS NULL OR c.latency_ms >= $13) AND ($14::boolean OR (c.metadata ->> 'leg_of') IS NULL)
ORDER BY c.call_id DESC
LIMIT $7

-- name: one
-- A call, but for its bodies; of user $3 if one is named.
SELECT c.call_id, c.user_id, u.external_id AS user_external_id, c.session_id, s.external_id AS session_external_id,
       c.created_at, c.method, c.path, c.upstream, c.model, c.answered_model, c.streamed, c.status, c.outcome,
       c.memory_status, c.reason, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_counted, c.cost_microcents,
       c.latency_ms, c.first_byte_us, c.overhead_us, c.retry_count, c.error, c.labels,
       (c.metadata ->> 'tool_calls')::integer AS tool_calls, c.metadata ->> 'leg_of' AS leg_of,
       (c.metadata ->> 'leg')::integer AS leg, c.request_headers, c.response_headers,
       c.request_bytes, c.request_truncated, encode(c.request_sha256, 'hex') AS request_sha256,
       encode(c.sent_sha256, 'hex') AS sent_sha256, c.metadata,
       (SELECT octet_length(b.body) FROM agent_data.streams b
        WHERE b.call_id = c.call_id AND b.user_id = c.user_id) AS response_bytes,
       (SELECT b.truncated FROM agent_data.streams b
        WHERE b.call_id = c.call_id AND b.user_id = c.user_id) AS response_truncated
FROM agent_data.upstream_calls c
LEFT JOIN agent_data.users u ON u.user_id = c.user_id
LEFT JOIN agent_data.sessions s ON s.user_id = c.user_id AND s.session_id = c.session_id
WHERE c.tenant_id = $1 AND c.call_id = $2 AND ($3::uuid IS NULL OR c.user_id = $3)

-- name: legs
-- Calls that are legs of another ($4), in their order.
SELECT c.call_id, c.created_at, c.upstream, c.answered_model, c.status, c.outcome, c.latency_ms, c.first_byte_us, c.error,
       c.metadata
FROM agent_data.upstream_calls c
WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.call_id = ANY ($3::uuid[]) AND c.metadata ->> 'leg_of' = $4
ORDER BY (c.metadata ->> 'leg')::integer

-- name: label
-- Gives a call its labels; whether there is such a call.
SELECT agent_data.label_call($1, $2, $3, $4)

-- name: recipe
-- What a call's request is put together from: as received, and, where it was changed, as sent.
SELECT c.user_id, c.request_body, c.request_truncated, c.request_prefix, c.request_suffix, c.request_chain, c.request_count,
       c.request_sha256, c.sent_prefix, c.sent_suffix, c.sent_chain, c.sent_count, c.sent_sha256
FROM agent_data.upstream_calls c
WHERE c.tenant_id = $1 AND c.call_id = $2 AND ($3::uuid IS NULL OR c.user_id = $3)

-- name: elements
-- The elements of a request's `messages` array, in their order.
SELECT e.body FROM agent_data.request_elements($1, $2, $3) e

-- name: body
-- The bytes of an answer, as they came.
SELECT b.body, b.truncated FROM agent_data.streams b
WHERE b.tenant_id = $1 AND b.call_id = $2 AND ($3::uuid IS NULL OR b.user_id = $3)

-- name: events
-- Events $4 + 1 up to $4 + $5 of an answer: where and when each begins (one more than asked for says where the last one ends),
-- and the bytes from the first of them on. The body is opened once, not once an event.
SELECT s.offsets, s.times, s.total,
       substring(b.body FROM s.offsets[1] + 1 FOR COALESCE(s.offsets[$5 + 1], octet_length(b.body)) - s.offsets[1]) AS data
FROM agent_data.streams b
CROSS JOIN LATERAL (
    SELECT b.event_offsets[$4 + 1 : $4 + $5 + 1] AS offsets, b.event_times[$4 + 1 : $4 + $5] AS times,
           cardinality(b.event_offsets) AS total
) AS s
WHERE b.tenant_id = $1 AND b.call_id = $2 AND ($3::uuid IS NULL OR b.user_id = $3)

-- name: compilation
-- How the context of a call was compiled.
SELECT p.user_id, p.session_id, p.audit, p.eta FROM agent_data.compilations p
WHERE p.tenant_id = $1 AND p.call_id = $2 AND ($3::uuid IS NULL OR p.user_id = $3)

-- name: message_texts
-- The words of messages, as far as they may still be shown.
SELECT h.message_id AS id, h.content AS text, h.metadata FROM agent_data.conversation_history h
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.message_id = ANY ($3::uuid[])
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = $2 AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))

-- name: memory_texts
-- The words of memories, as far as they may still be shown.
SELECT m.memory_id AS id, m.content_text AS text, m.metadata FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.status <> 'forgotten'
