-- name: admit
-- Admits a call of a key, or says which limit keeps it out and for how long.
SELECT refused, wait_s, slot, requests_left, requests_reset_s, tokens_left, tokens_reset_s
FROM agent_data.admit_call($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: settle
-- What an admitted call came to.
SELECT agent_data.settle_call($1, $2, $3, $4, $5, $6, $7, $8)

-- name: spend
-- What a tenant spent from day $2 to day $3, both included, of user $4 if one is named, by $5 (key, user, session, model, day);
-- groups after $6, in order. Users who were erased (0) are of `nobody`, $8.
SELECT g.value, g.calls, g.prompt_tokens, g.completion_tokens, g.cached_tokens, g.unpriced_tokens, g.cost_microcents,
       CASE $5
           WHEN 'key' THEN (SELECT k.name FROM agent_data.api_keys k WHERE k.key_id = g.id AND k.tenant_id = $1)
           WHEN 'user' THEN (SELECT u.external_id FROM agent_data.users u WHERE u.user_id = g.id AND u.tenant_id = $1)
           WHEN 'session' THEN (SELECT s.external_id FROM agent_data.sessions s
                                WHERE s.user_id = g.owner AND s.session_id = g.id AND s.tenant_id = $1)
       END AS name
FROM (
    SELECT v.value, v.id, (array_agg(v.user_id))[1] AS owner, sum(v.calls)::bigint AS calls,
           sum(v.prompt_tokens)::bigint AS prompt_tokens, sum(v.completion_tokens)::bigint AS completion_tokens,
           sum(v.cached_tokens)::bigint AS cached_tokens, sum(v.unpriced_tokens)::bigint AS unpriced_tokens,
           sum(v.cost_microcents)::bigint AS cost_microcents
    FROM (
        SELECT s.*, i.id, COALESCE(i.id::text, CASE $5 WHEN 'day' THEN s.day::text ELSE s.model END) COLLATE "C" AS value
        FROM agent_data.spending s,
             LATERAL (SELECT CASE $5
                 WHEN 'key' THEN s.key_id
                 WHEN 'user' THEN COALESCE(NULLIF(s.user_id, '00000000-0000-0000-0000-000000000000'), $8)
                 WHEN 'session' THEN s.session_id END AS id) i
        WHERE s.tenant_id = $1 AND s.day BETWEEN $2 AND $3 AND ($4::uuid IS NULL OR s.user_id = $4)
    ) v
    WHERE v.value > $6 COLLATE "C"
    GROUP BY v.value, v.id
) g
ORDER BY g.value
LIMIT $7
