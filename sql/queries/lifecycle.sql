-- name: promote
-- Memories that rise, some at a time; how many.
SELECT agent_data.promote_memories($1, $2)

-- name: age
-- Memories that come into doubt, or out of it, some at a time; how many.
SELECT agent_data.age_memories($1, $2)

-- name: remove
-- Expired memories that go for good, some at a time; how many.
SELECT agent_data.remove_memories($1, $2)

-- name: demote
-- Memories that fall, among some after a place; the place where it stopped (NULL: the end), and how many.
SELECT p_user, p_memory, changed FROM agent_data.demote_memories($1, $2, $3, $4)

-- name: decay
-- The same for importance that fades.
SELECT p_user, p_memory, changed FROM agent_data.decay_memories($1, $2, $3, $4)

-- name: prune
-- The same for what nobody will miss.
SELECT p_user, p_memory, changed FROM agent_data.prune_memories($1, $2, $3, $4)

-- name: due
-- What to ask the user about, what matters most first; $5: of this session only.
SELECT memory_id, content_text, noted_at, confidence, importance FROM agent_data.memories_due($1, $2, $3, $4, $5)

-- name: asked
-- Notes that these were asked about.
SELECT agent_data.note_asked($1, $2, NULL, $3, $4)

-- name: asked_in_turn
-- The same for what a turn of the session $3 asked about, in its own transaction.
SELECT agent_data.note_asked($1, $2, $3, $4, $5)

-- name: pending
-- What was asked about in the session $2 and has no answer yet, with what the assistant said last before the message at turn $3.
SELECT m.memory_id, m.content_text, m.object_value, m.predicate, m.subject_entity_id, m.dedup_scope, a.content AS said
FROM agent_data.memory_store m
JOIN agent_data.sessions s ON s.user_id = $1 AND s.session_id = $2
CROSS JOIN LATERAL (
    SELECT h.content FROM agent_data.conversation_history h
    WHERE h.user_id = $1 AND h.session_id = $2 AND h.role = 2 AND h.turn_index < $3 AND h.turn_index >= $3 - 1
      AND h.created_at >= s.first_message_at AND h.created_at <= s.last_message_at AND h.content <> ''
    ORDER BY h.turn_index DESC, h.sibling DESC LIMIT 1
) a
WHERE m.user_id = $1 AND m.is_active AND m.status = 'aging' AND m.details ->> 'asked_in' = $2::text

-- name: hold
-- A memory to be judged by its user, held against other writers.
SELECT m.status, m.content_hash, m.confidence, m.memory_tier, m.dedup_scope, m.expires_at, m.created_at
FROM agent_data.memory_store m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3
FOR UPDATE

-- name: alone
-- By what learning takes its turns: the session for nobody's, else the user.
SELECT COALESCE(NULLIF(m.dedup_scope, '00000000-0000-0000-0000-000000000000'), m.user_id)
FROM agent_data.memory_store m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: confirm
-- It is right (seed 004): certain again, from now on, and where a statement of the user's belongs.
UPDATE agent_data.memory_store m SET
    status = 'active',
    confidence = GREATEST(m.confidence, LEAST(p.confidence_cap, m.confidence + p.confirmed_gain)),
    reinforcement_count = m.reinforcement_count + 1,
    memory_tier = t.tier,
    memory_scope = CASE WHEN t.tier > 1 AND m.dedup_scope = '00000000-0000-0000-0000-000000000000' THEN 1 ELSE m.memory_scope END,
    expires_at = CASE WHEN t.tier >= 3 OR m.expires_at IS NULL THEN NULL ELSE GREATEST(m.expires_at, $4::timestamptz + p.l2_ttl) END,
    is_validated = true, validated_by = 'user', last_validated_at = $4, details = m.details - '{asked_at,asked,asked_in}'::text[], updated_at = $4
FROM agent_data.life_policy() p, agent_data.memory_store old
CROSS JOIN LATERAL (SELECT CASE WHEN NOT agent_data.doubtable(old.kind) THEN old.memory_tier
                                WHEN agent_data.behavioural(old.kind, old.provenance_type) THEN 4::smallint
                                ELSE GREATEST(old.memory_tier, 3::smallint) END AS tier) t
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3 AND old.user_id = $2 AND old.memory_id = $3
RETURNING m.memory_tier, m.confidence

-- name: deny
-- It is wrong, says the user at $5 (seed 004): confidence 0, and never found again. What it was believed before comes back should it
-- be restored.
UPDATE agent_data.memory_store SET
    status = 'invalidated', valid_to = $5, updated_at = $4, details = details - '{asked_at,asked,asked_in}'::text[],
    confidence_factors = confidence_factors || jsonb_build_object('denied', confidence), confidence = 0
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3

-- name: twin
-- The memory in force that says the same as a correction already.
SELECT memory_id FROM agent_data.memory_store
WHERE tenant_id = $1 AND user_id = $2 AND dedup_scope = $3 AND content_hash = $4 AND is_active
FOR UPDATE

-- name: correct
-- A memory in place of another one, which it sets right (seed 004): the same subject, said by the user himself.
INSERT INTO agent_data.memory_store (
    memory_id, user_id, tenant_id, session_id, dedup_scope, memory_tier, memory_scope, kind, content_text, content_hash,
    provenance_type, confidence, importance, created_at, updated_at, valid_from, expires_at, is_validated, validated_by,
    last_validated_at, token_count, subject_entity_id, predicate, predicate_type, object_value, speaker, entity_ids, tags,
    metadata)
SELECT $4, m.user_id, m.tenant_id, m.session_id, m.dedup_scope, t.tier,
       CASE WHEN t.tier > 1 AND m.dedup_scope = '00000000-0000-0000-0000-000000000000' THEN 1 ELSE m.memory_scope END,
       m.kind, $5, $6, 2, p.correction_confidence, m.importance, $9, $9, $9,
       CASE WHEN t.tier < 3 THEN GREATEST(m.expires_at, $9::timestamptz + p.l2_ttl) END, true, 'user', $9, $7,
       m.subject_entity_id, m.predicate, m.predicate_type, $8, m.speaker, m.entity_ids, m.tags, m.metadata
FROM agent_data.life_policy() p, agent_data.memory_store m
CROSS JOIN LATERAL (SELECT CASE WHEN NOT agent_data.doubtable(m.kind) THEN m.memory_tier
                                WHEN agent_data.behavioural(m.kind, m.provenance_type) THEN 4::smallint
                                ELSE GREATEST(m.memory_tier, 3::smallint) END AS tier) t
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = $3

-- name: supersede
-- It gives way to the memory $4.
UPDATE agent_data.memory_store SET
    status = 'superseded', superseded_by = $4, superseded_how = 'corrected', valid_to = $5, updated_at = $5,
    details = details - '{asked_at,asked,asked_in}'::text[]
WHERE tenant_id = $1 AND user_id = $2 AND memory_id = $3
