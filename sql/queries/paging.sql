-- Semantic objects and what became of them (app/features/paging/store.py).

-- name: read
-- The paging of a session as a request needs it: one row.
SELECT * FROM agent_data.read_paging($1, $2, $3, $4, $5)

-- name: texts
-- Texts of objects ($4), each of one level ($5); of one session, where one is named.
SELECT * FROM agent_data.object_texts($1, $2, $3, $4, $5)

-- name: search
-- The objects that answer a question best, whole, with how like it they are.
SELECT s.likeness, s.words,
       (s.object).object_id, (s.object).object_type, (s.object).kind, (s.object).content_full, (s.object).stub,
       (s.object).tokens_l0, (s.object).tokens_l1, (s.object).tokens_l2, (s.object).tokens_l3, (s.object).parts,
       (s.object).content_hash, (s.object).source_turn_start, (s.object).source_turn_end, (s.object).source_tool,
       (s.object).source_key, (s.object).summary_detailed, (s.object).losses_l1, (s.object).can_answer_l1,
       (s.object).summary_compact, (s.object).losses_l2, (s.object).can_answer_l2, (s.object).fault_when,
       (s.object).key_entities, (s.object).tags, (s.object).current_fidelity, (s.object).pinned, (s.object).pin_reason,
       (s.object).accessed_turn, (s.object).access_count, (s.object).fault_count, (s.object).micro_fault_count
FROM agent_data.search_objects($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) s

-- name: record
-- What a call changes of a session's paging; false: its user was erased since.
SELECT agent_data.record_paging($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: unshrunk
-- Objects without L1 and L2, whole, oldest first; none of a user who is being erased.
SELECT o.object_id, o.object_type, o.kind, o.content_full, o.stub, o.tokens_l0, o.tokens_l1, o.tokens_l2, o.tokens_l3, o.parts,
       o.content_hash, o.source_turn_start, o.source_turn_end, o.source_tool, o.source_key, o.summary_detailed, o.losses_l1,
       o.can_answer_l1, o.summary_compact, o.losses_l2, o.can_answer_l2, o.fault_when, o.key_entities, o.tags,
       o.current_fidelity, o.pinned, o.pin_reason, o.accessed_turn, o.access_count, o.fault_count, o.micro_fault_count
FROM agent_data.semantic_objects o
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.session_id = $3 AND o.shrunk_at IS NULL
  AND NOT EXISTS (SELECT FROM agent_data.erased_users e WHERE e.user_id = $2 AND e.erased_before = 'infinity')
ORDER BY o.ordinal LIMIT $4

-- name: hold
-- Locks objects ($3) in the order of their ids, as everybody does.
SELECT o.object_id FROM agent_data.semantic_objects o
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = ANY ($3::uuid[])
ORDER BY o.object_id FOR NO KEY UPDATE

-- name: shrink
-- Stores L1 and L2 of objects that have none yet: other levels than those shown would change the beginning of prompts. A request may
-- have made them since the job read the object.
UPDATE agent_data.semantic_objects o SET
    summary_detailed = CASE WHEN o.tokens_l1 IS NULL THEN l.detailed ELSE o.summary_detailed END,
    losses_l1 = CASE WHEN o.tokens_l1 IS NULL THEN l.losses_l1::jsonb ELSE o.losses_l1 END,
    can_answer_l1 = CASE WHEN o.tokens_l1 IS NULL THEN l.can_answer_l1::jsonb ELSE o.can_answer_l1 END,
    summary_compact = CASE WHEN o.tokens_l1 IS NULL THEN l.compact ELSE o.summary_compact END,
    losses_l2 = CASE WHEN o.tokens_l1 IS NULL THEN l.losses_l2::jsonb ELSE o.losses_l2 END,
    can_answer_l2 = CASE WHEN o.tokens_l1 IS NULL THEN l.can_answer_l2::jsonb ELSE o.can_answer_l2 END,
    fault_when = CASE WHEN o.tokens_l1 IS NULL THEN l.fault_when::jsonb ELSE o.fault_when END,
    tokens_l2 = CASE WHEN o.tokens_l1 IS NULL THEN l.tokens_l2 ELSE o.tokens_l2 END,
    tokens_l1 = COALESCE(o.tokens_l1, l.tokens_l1), shrunk_at = $3,
    content_tsv = agent_data.object_words(o.source_key, o.content_full)
FROM unnest($4::uuid[], $5::text[], $6::integer[], $7::text[], $8::text[], $9::text[], $10::integer[], $11::text[], $12::text[],
            $13::text[]) AS l (object_id, detailed, tokens_l1, losses_l1, can_answer_l1, compact, tokens_l2, losses_l2,
                               can_answer_l2, fault_when)
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = l.object_id AND o.shrunk_at IS NULL

-- name: embed
-- Vectors of objects ($4, $5) in a space.
UPDATE agent_data.semantic_objects o SET space = $3, embedding = v.embedding
FROM unnest($4::uuid[], $5::halfvec[]) AS v (object_id, embedding)
WHERE o.tenant_id = $1 AND o.user_id = $2 AND o.object_id = v.object_id
