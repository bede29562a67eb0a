-- name: figures
-- What the calls of a tenant came to (of user $2 if one is named), by spans of time from $3[n] to $4[n], by spans and the reason
-- why memory was degraded (`why`: that row has counts only), and all together (`span` is null). Of each span the newest $5 calls
-- are read, whatever of them counts: legs stand with their call, and imported calls are of another time. Of the newest $6 it is
-- read how the context was compiled, which is long. Times in milliseconds.
WITH read AS MATERIALIZED (
    SELECT b.n::integer AS n, c.call_id, c.user_id, c.created_at, c.streamed, c.prompt_tokens, c.completion_tokens,
           c.cost_microcents, c.overhead_us / 1000.0::double precision AS overhead, c.latency_ms::double precision AS whole,
           c.first_byte_us / 1000.0::double precision AS first,
           (c.metadata ->> 'leg_of') IS NULL AND (c.metadata ->> 'imported') IS NULL AS counts,
           c.error IS NOT NULL OR COALESCE(c.status, 500) >= 400 OR c.outcome IN (1, 4) AS failed,
           CASE c.memory_status WHEN 'degraded' THEN COALESCE(c.reason, '') END AS why,
           row_number() OVER (PARTITION BY b.n ORDER BY c.call_id DESC) AS nth
    FROM unnest($3::timestamptz[], $4::timestamptz[]) WITH ORDINALITY AS b (low, high, n)
    CROSS JOIN LATERAL (
        (SELECT t.* FROM agent_data.upstream_calls t
         WHERE $2::uuid IS NULL AND t.tenant_id = $1
           AND t.call_id >= agent_data.uuid7_floor(b.low) AND t.call_id < agent_data.uuid7_floor(b.high)
         ORDER BY t.call_id DESC LIMIT $5)
        UNION ALL
        (SELECT u.* FROM agent_data.upstream_calls u
         WHERE u.tenant_id = $1 AND u.user_id = $2
           AND u.call_id >= agent_data.uuid7_floor(b.low) AND u.call_id < agent_data.uuid7_floor(b.high)
         ORDER BY u.call_id DESC LIMIT $5)
    ) c
)
SELECT r.n AS span, r.why, grouping(r.why) = 0 AS by_reason, count(*) AS read, min(r.created_at) AS oldest,
       count(*) FILTER (WHERE r.counts) AS calls,
       count(*) FILTER (WHERE r.counts AND r.failed) AS errors,
       count(*) FILTER (WHERE r.counts AND r.streamed) AS streams,
       COALESCE(sum(r.prompt_tokens) FILTER (WHERE r.counts), 0)::bigint AS prompt_tokens,
       COALESCE(sum(r.completion_tokens) FILTER (WHERE r.counts), 0)::bigint AS completion_tokens,
       COALESCE(sum(r.cost_microcents) FILTER (WHERE r.counts), 0)::bigint AS cost_microcents,
       count(*) FILTER (WHERE r.counts AND r.nth <= $6) AS looked_into,
       COALESCE(sum(k.tokens) FILTER (WHERE r.counts), 0)::bigint AS memory_tokens,
       count(k.tokens) FILTER (WHERE r.counts) AS compiled,
       count(*) FILTER (WHERE r.counts AND k.tokens = 0) AS without,
       avg(k.eta) FILTER (WHERE r.counts) AS eta,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY r.overhead) FILTER (WHERE r.counts) AS overhead,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY r.first) FILTER (WHERE r.counts) AS first,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY r.whole) FILTER (WHERE r.counts) AS whole
FROM read r
LEFT JOIN LATERAL (
    SELECT (p.audit ->> 'tokens')::integer AS tokens, p.eta FROM agent_data.compilations p
    WHERE r.nth <= $6 AND p.tenant_id = $1 AND p.user_id = r.user_id AND p.call_id = r.call_id
    LIMIT 1  -- call by call, each in its month; a join would read all months
) k ON true
GROUP BY GROUPING SETS ((r.n), (r.n, r.why), ())
HAVING grouping(r.why) = 1 OR r.why IS NOT NULL
ORDER BY r.n
