-- Semantic objects for whoever looks at them from outside (app/features/paging/object_store.py); what a request reads is in paging.sql.

-- name: list
-- Objects of a user, newest first, after ($9, $10, $11): of a session ($3), a type, a fidelity, with a tag, of a key, pinned or not; if $13 is
-- given, those of these alone.
SELECT o.object_id, o.session_id, o.ordinal, o.object_type, o.kind, o.source_tool, o.source_key, o.stub, o.key_entities, o.tags,
       o.current_fidelity, o.wanted, o.pinned, o.pin_reason, o.created_at, o.last_accessed, o.accessed_turn, o.access_count,
       o.fault_count, o.micro_fault_count, o.tokens_l0, o.tokens_l1, o.tokens_l2, o.tokens_l3, o.source_turn_start,
       o.source_turn_end, o.shrunk_at
FROM agent_data.semantic_objects o
WHERE o.tenant_id = $1 AND o.user_id = $2 AND ($3::uuid IS NULL OR o.session_id = $3) AND ($4::text IS NULL OR o.object_type = $4)
  AND ($5::smallint IS NULL OR o.current_fidelity = $5) AND ($6::text IS NULL OR o.object_id = ANY ((SELECT agent_data.objects_tagged($1, $2, $3, $6))::uuid[]))
  AND ($7::text IS NULL OR o.source_key = $7) AND ($8::boolean IS NULL OR o.pinned = $8)
  AND ($9::timestamptz IS NULL OR (o.created_at, o.ordinal, o.object_id) < ($9, $10::integer, $11::uuid))
  AND ($13::uuid[] IS NULL OR o.object_id = ANY ($13))
ORDER BY o.created_at DESC, o.ordinal DESC, o.object_id DESC
LIMIT $12

-- name: one
-- An object, whole; `turn`: of its session's last decision.
SELECT o.object_id, o.session_id, o.ordinal, o.object_type, o.kind, o.source_tool, o.source_key, o.stub, o.key_entities, o.tags,
       o.current_fidelity, o.wanted, o.pinned, o.pin_reason, o.created_at, o.last_accessed, o.accessed_turn, o.access_count,
       o.fault_count, o.micro_fault_count, o.tokens_l0, o.tokens_l1, o.tokens_l2, o.tokens_l3, o.source_turn_start,
       o.source_turn_end, o.shrunk_at,
       o.content_full, o.content_hash, o.summary_detailed, o.summary_compact, o.losses_l1, o.losses_l2, o.can_answer_l1,
       o.can_answer_l2, o.fault_when, COALESCE(p.turn, o.accessed_turn) AS turn
FROM agent_data.semantic_objects o
LEFT JOIN agent_data.paged_sessions p ON p.user_id = $2 AND p.session_id = o.session_id
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = $3

-- name: relationships
-- What an object has to do with others, and they with it.
SELECT e.source_id, e.target_id, e.relationship FROM agent_data.object_relationships e
WHERE e.tenant_id = $1 AND e.user_id = $2 AND (e.source_id = $3 OR e.target_id = $3)
ORDER BY e.created_at, e.source_id, e.target_id, e.relationship

-- name: asked
-- The questions about an object from a turn ($4) on, in their order.
SELECT f.turn_number, f.question FROM agent_data.fault_history f
WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.object_id = $3 AND f.turn_number >= $4 AND f.question IS NOT NULL
ORDER BY f.created_at, f.fault_id

-- name: faults
-- The faults of a session, newest first, after ($6, $7): of one object ($4), of a type ($5).
SELECT f.fault_id, f.call_id, f.object_id, f.fault_type, f.turn_number, f.content_hash, f.question, f.answer, f.answer_tokens,
       f.avoided_tokens, f.latency_ms, f.created_at
FROM agent_data.fault_history f
WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.session_id = $3 AND ($4::uuid IS NULL OR f.object_id = $4)
  AND ($5::text IS NULL OR f.fault_type = $5)
  AND ($6::timestamptz IS NULL OR (f.created_at, f.fault_id) < ($6, $7::uuid))
ORDER BY f.created_at DESC, f.fault_id DESC
LIMIT $8

-- name: transitions
-- The changes of fidelity of a session, newest first, after ($6, $7, $8): of one object ($4), of a trigger ($5).
SELECT t.object_id, t.call_id, t.from_fidelity, t.to_fidelity, t.trigger, t.turn_number, t.pressure_zone, t.token_count,
       t.created_at
FROM agent_data.fidelity_transitions t
WHERE t.tenant_id = $1 AND t.user_id = $2 AND t.session_id = $3 AND ($4::uuid IS NULL OR t.object_id = $4)
  AND ($5::text IS NULL OR t.trigger = $5)
  AND ($6::timestamptz IS NULL OR (t.created_at, t.call_id, t.object_id) < ($6, $7::uuid, $8::uuid))
ORDER BY t.created_at DESC, t.call_id DESC, t.object_id DESC
LIMIT $9

-- name: pressure
-- How full the prompt of a session was at its last decision, and its objects at the level they are shown at (seed 002 §2.4).
SELECT p.zone, p.turn, p.budget, p.tokens, p.shown_tokens, p.avoided_tokens, p.offered, p.updated_at,
       o.total_context_tokens, o.objects_at_l0, o.objects_at_l1, o.objects_at_l2, o.objects_at_l3, o.objects_evicted,
       o.objects_pinned
FROM agent_data.paged_sessions p
CROSS JOIN LATERAL (
    SELECT COALESCE(SUM(CASE x.current_fidelity
               WHEN 0 THEN x.tokens_l0
               WHEN 1 THEN COALESCE(x.tokens_l1, 0)
               WHEN 2 THEN COALESCE(x.tokens_l2, 0)
               WHEN 3 THEN x.tokens_l3
               ELSE 0
           END), 0) AS total_context_tokens,
           COUNT(*) FILTER (WHERE x.current_fidelity = 0) AS objects_at_l0,
           COUNT(*) FILTER (WHERE x.current_fidelity = 1) AS objects_at_l1,
           COUNT(*) FILTER (WHERE x.current_fidelity = 2) AS objects_at_l2,
           COUNT(*) FILTER (WHERE x.current_fidelity = 3) AS objects_at_l3,
           COUNT(*) FILTER (WHERE x.current_fidelity = 4) AS objects_evicted,
           COUNT(*) FILTER (WHERE x.pinned) AS objects_pinned
    FROM agent_data.semantic_objects x
    WHERE x.user_id = $2 AND x.session_id = $3
) o
WHERE p.tenant_id = $1 AND p.user_id = $2 AND p.session_id = $3

-- name: pin
-- Pins an object, so that it is not shown shorter before all others are; what was released is needed again.
UPDATE agent_data.semantic_objects o
SET pinned = true, pin_reason = COALESCE(o.pin_reason, 'api'), wanted = NULLIF(o.wanted, 'release')
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = $3
RETURNING o.object_id

-- name: unpin
-- Whoever pinned it.
UPDATE agent_data.semantic_objects o SET pinned = false, pin_reason = NULL
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = $3
RETURNING o.object_id

-- name: release
-- Says that an object is needed no more: the next decision shows its stub (seed 002 §1.5: cooperative).
UPDATE agent_data.semantic_objects o
SET pinned = false, pin_reason = NULL, wanted = CASE WHEN o.current_fidelity < 3 THEN 'release' END
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = $3
RETURNING o.object_id
