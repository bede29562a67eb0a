-- People's verdicts on learned memories (app/features/labels.py), under row-level security.

-- name: page
-- Returns learned memories of a tenant (of the user $2, or NULL: of all) with a person's last verdict (`invalidated` or `confirmed`),
-- its time, and the sources that may still be found; after ($3, $4), at most $5. Forgotten memories are left out, and memories that a
-- person restored have no verdict.
SELECT m.user_id, m.memory_id, m.kind, m.subject_entity_id AS subject, m.tags, v.event, v.at, (
           SELECT jsonb_agg(s.source ORDER BY s.n) FROM jsonb_array_elements(m.sources) WITH ORDINALITY AS s (source, n)
           WHERE NOT EXISTS (SELECT FROM agent_data.suppressions x
                             WHERE x.user_id = m.user_id AND x.item_id = (s.source ->> 'message_id')::uuid
                               AND x.reason NOT IN ('superseded', 'resent'))) AS sources
FROM agent_data.memory_store m
CROSS JOIN LATERAL (
    SELECT e.event, e.at FROM agent_data.memory_events e
    WHERE e.user_id = m.user_id AND e.memory_id = m.memory_id
      AND (e.event = 'restored' OR e.event = 'confirmed' AND e.actor IN ('api', 'user')
           OR e.event = 'invalidated' AND (e.actor = 'api' OR e.after ->> 'reason' = 'validation'))
    ORDER BY e.at DESC LIMIT 1) v
WHERE m.tenant_id = $1 AND ($2::uuid IS NULL OR m.user_id = $2) AND m.status <> 'forgotten' AND m.sources <> '[]'
  AND NOT agent_data.drawn(m.kind) AND v.event <> 'restored'
  AND ($3::uuid IS NULL OR (m.user_id, m.memory_id) > ($3, $4::uuid))
  AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                  WHERE x.user_id = m.user_id AND x.item_id = m.memory_id AND x.reason NOT IN ('superseded', 'resent'))
ORDER BY m.user_id, m.memory_id
LIMIT $5
