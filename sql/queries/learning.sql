-- name: setting
-- What learning needs to know of a user and of the settings: the erasure epoch (NULL: there is no such user), the lives of a session
-- memory and of an episodic one, how far statements are believed, the threshold of near duplicates in spaces that have none of their own, the key of the forgotten's hashes; whether the
-- user has something that must not be learned again; whether the job ($3) had its effect before; whether a role play began in the
-- session ($4), and whether the user still has a role in it; whether the session left another one; the user's time zone, as it was
-- told.
SELECT (SELECT u.erasure_epoch FROM agent_data.users u WHERE u.user_id = $1) AS epoch,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'l1_ttl_hours') AS l1_ttl_hours,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'l2_ttl_days') AS l2_ttl_days,
       (SELECT c.value::float8 FROM agent_data.system_config c WHERE c.key = 'dedup_threshold') AS dedup_threshold,
       (SELECT c.value::text FROM agent_data.system_config c WHERE c.key = 'confidence') AS confidence,
       (SELECT c.value #>> '{}' FROM agent_data.system_config c WHERE c.key = 'content_hmac_key') AS hmac_key,
       EXISTS (SELECT FROM agent_data.erased_contents e WHERE e.user_id = $1)
       OR EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.content_hmac IS NOT NULL) AS buries,
       COALESCE((SELECT p.extraction_instructions FROM agent_data.tenant_profiles p WHERE p.tenant_id = $2), '')
           AS instructions,
       EXISTS (SELECT FROM agent_data.job_effects j WHERE j.user_id = $1 AND j.job_key = $3) AS done,
       EXISTS (SELECT FROM agent_data.sessions s WHERE s.user_id = $1 AND s.session_id = $4 AND s.in_role_play) AS in_role_play,
       EXISTS (SELECT FROM agent_data.sessions s WHERE s.user_id = $1 AND s.session_id = $4 AND s.is_playing) AS is_playing,
       EXISTS (SELECT FROM agent_data.sessions s
               WHERE s.user_id = $1 AND s.session_id = $4 AND s.parent_session_id IS NOT NULL) AS is_branch,
       (SELECT f.fact_value #>> '{}' FROM agent_data.user_facts f
        WHERE f.user_id = $1 AND f.fact_key IN ('time_zone', 'timezone') ORDER BY f.last_updated DESC LIMIT 1) AS time_zone

-- name: branches_in_play
-- Whether what is said from $3 begins a branch ($2) that leaves another session within its role play.
SELECT EXISTS (
    SELECT FROM agent_data.sessions s
    JOIN agent_data.sessions p ON p.user_id = $1 AND p.session_id = s.parent_session_id AND p.in_role_play
    JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.session_id = p.session_id
        AND h.turn_index = s.branch_turn_index AND h.created_at BETWEEN p.first_message_at AND p.last_message_at
    JOIN agent_data.suppressions x ON x.user_id = $1 AND x.item_id = h.message_id AND x.reason = 'superseded'
    WHERE s.user_id = $1 AND s.session_id = $2 AND s.first_message_at >= $3)

-- name: note_role_play
-- Notes whether the session ($3) is in a role play ($4), and whether the user has a role in it ($5).
UPDATE agent_data.sessions SET in_role_play = $4, is_playing = $5
WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND (in_role_play, is_playing) IS DISTINCT FROM ($4, $5)

-- name: hide_play
-- Hides messages of a role play ($3) outside of their own conversation.
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
SELECT $2, $1, m, 'superseded' FROM unnest($3::uuid[]) AS m
ON CONFLICT DO NOTHING

-- name: bury
-- Of these messages those that an erased user had said before, or that said what was forgotten: they stand in their session again,
-- because the client brought them again, and are neither found nor learned from. What the user says anew after it was forgotten is
-- no such message, but for the order to forget itself. $6 and $7 are the padded key of the hashes (app/store/erasure.py).
INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
SELECT h.user_id, h.tenant_id, h.message_id, 'resent'
FROM agent_data.conversation_history h,
     LATERAL (SELECT sha256($6::bytea || sha256($5::bytea || h.content_hash)) AS mark) k
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4
  AND (EXISTS (SELECT FROM agent_data.erased_contents e WHERE e.user_id = $1 AND e.content_hmac = k.mark)
       OR EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.content_hmac = k.mark
                  AND s.item_id <> h.message_id
                  AND (s.reason NOT IN ('forgotten', 'forgotten_by_chat') OR s.created_at >= h.created_at
                       OR EXISTS (SELECT FROM agent_data.memory_commands c WHERE c.user_id = $1 AND c.command_id = s.item_id)
                       OR agent_data.came_as_history($1, h.session_id, h.call_id, h.created_at))))
ON CONFLICT DO NOTHING

-- name: messages
-- The messages to learn from, in the order of the conversation; not those that must not surface, nor hidden ones: they
-- were said while Mneme was asked to learn nothing.
SELECT h.message_id, h.turn_index, h.role, h.content, h.tool_calls, h.created_at, h.metadata, h.name
FROM agent_data.conversation_history h
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4 AND NOT h.is_pruned
  AND NOT h.hidden
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = h.message_id)
ORDER BY h.turn_index, h.sibling

-- name: messages_again
-- Messages to learn from once more, as `messages`; also those whose statement was replaced, perhaps by another speaker's.
SELECT h.message_id, h.turn_index, h.role, h.content, h.tool_calls, h.created_at, h.metadata, h.name
FROM agent_data.conversation_history h
WHERE h.user_id = $1 AND h.message_id = ANY ($2::uuid[]) AND h.created_at BETWEEN $3 AND $4 AND NOT h.is_pruned
  AND NOT h.hidden
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s
                  WHERE s.user_id = $1 AND s.item_id = h.message_id AND s.reason <> 'superseded')
ORDER BY h.turn_index, h.sibling

-- name: session_speakers
-- The names on the user messages of a session ($2), in the order of their first messages; NULL: messages without a name.
SELECT h.name, (array_agg(h.message_id ORDER BY h.turn_index, h.sibling))[1] AS first_message
FROM agent_data.sessions s
JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.session_id = s.session_id
    AND h.created_at BETWEEN s.first_message_at AND s.last_message_at
WHERE s.user_id = $1 AND s.session_id = $2 AND h.role = 1 AND NOT h.hidden
GROUP BY h.name
ORDER BY min(h.turn_index)

-- name: user_beginnings
-- The user messages of a session ($2) that have no name, in order, with their first $3 characters.
SELECT h.message_id, left(h.content, $3) AS text, h.created_at AS said_at
FROM agent_data.sessions s
JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.session_id = s.session_id
    AND h.created_at BETWEEN s.first_message_at AND s.last_message_at
WHERE s.user_id = $1 AND s.session_id = $2 AND h.role = 1 AND h.name IS NULL AND NOT h.hidden AND h.content <> ''
ORDER BY h.turn_index, h.sibling
LIMIT 1000

-- name: own_names
-- The names by which the user is known: the client's id, and names that the user stated.
SELECT array_agg(x.name) FROM (
    SELECT u.external_id AS name FROM agent_data.users u WHERE u.user_id = $1 AND u.external_id IS NOT NULL
    UNION
    SELECT split_part(u.external_id, '@', 1) FROM agent_data.users u WHERE u.user_id = $1 AND u.external_id LIKE '%@%'
    UNION
    SELECT f.fact_value #>> '{}' FROM agent_data.user_facts f
    WHERE f.user_id = $1 AND f.fact_key IN ('name', 'called')
) x

-- name: misattributed
-- Memories in force that were learned as the user's own from messages of a session ($2) that have one of these names ($3), but for
-- the messages $4; and these messages.
SELECT m.memory_id, h.message_id, h.created_at AS said_at
FROM agent_data.memory_store m
JOIN agent_data.sessions s ON s.user_id = $1 AND s.session_id = $2
JOIN agent_data.conversation_history h ON h.user_id = $1 AND h.message_id = m.source_message_ids[1]
    AND h.created_at BETWEEN s.first_message_at AND s.last_message_at
WHERE m.user_id = $1 AND m.session_id = $2 AND m.is_active AND m.speaker IS NULL
  AND m.source_message_ids[1] = ALL (m.source_message_ids) AND m.kind IN ('fact', 'preference', 'correction', 'event', 'instruction')
  AND h.role = 1 AND h.name = ANY ($3::text[]) AND h.message_id <> ALL ($4::uuid[])
ORDER BY m.created_at
LIMIT 200

-- name: learned_as_own
-- Memories, in force or replaced, that were learned as the user's own from these messages ($3) of a session ($2) alone, the oldest first.
SELECT m.memory_id, m.source_message_ids[1] AS message_id FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.session_id = $2 AND m.speaker IS NULL AND m.status IN ('active', 'aging', 'superseded')
  AND m.source_message_ids[1] = ALL (m.source_message_ids) AND m.kind IN ('fact', 'preference', 'correction', 'event', 'instruction')
  AND m.source_message_ids[1] = ANY ($3::uuid[])
ORDER BY m.created_at, m.memory_id

-- name: restated
-- Of these messages ($2) of the user's own those that are only said again.
SELECT r AS message_id FROM agent_data.restated($1, $2, $3, $4) AS r

-- name: recent
-- What was learned (in the scope $2) from some turns of a session and has a triple, the latest first: the user's words, and the triple.
SELECT m.sources -> 0 ->> 'quote' AS quote, m.subject_entity_id AS subject, m.predicate, m.object_value AS value
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.session_id = $3 AND m.is_active AND m.predicate IS NOT NULL
  AND m.provenance_turn_index BETWEEN $4 AND $5
ORDER BY m.provenance_turn_index DESC, m.memory_id DESC
LIMIT 8

-- name: lock
-- One job at a time changes what is known of a user (or, where there is none, of a session). Its own statement: what comes after
-- it sees what others have written.
SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))

-- name: epoch
-- The user's erasure epoch, held as it is until the end of this transaction: an erasure waits, and then finds what was written.
SELECT erasure_epoch FROM agent_data.users WHERE user_id = $1 FOR SHARE

-- name: gone
-- Whether one of these messages, which were read before, may not surface any more.
SELECT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = ANY ($2::uuid[]))

-- name: claim
-- Writes down that a job has its effect; no row when it had it before.
INSERT INTO agent_data.job_effects (user_id, tenant_id, job_key, at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING true

-- name: near
-- For each of these vectors the memories in force, and their other wordings, nearer than a threshold.
SELECT n, memory_id, similarity FROM agent_data.near_memories($1, $2, $3, $4, $5, $6, $7)

-- name: members
-- Wordings of memories in force ("root": the one in force) with one of these hashes, (subject, predicate) pairs or ids, and
-- memories in force about one of these subjects ($7).
WITH found AS (
    SELECT m.memory_id FROM agent_data.memory_store m
    WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.content_hash = ANY ($3::bytea[]) AND m.is_active
    UNION
    SELECT m.memory_id FROM agent_data.memory_store m
    WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.content_hash = ANY ($3::bytea[]) AND m.superseded_how = 'merged'
    UNION
    SELECT m.memory_id FROM unnest($4::text[], $5::text[]) AS c (subject, predicate)
    JOIN agent_data.memory_store m ON m.user_id = $1 AND m.subject_entity_id = c.subject AND m.predicate = c.predicate
    WHERE m.dedup_scope = $2 AND (m.is_active OR m.superseded_how = 'merged')
    UNION
    SELECT unnest($6::uuid[])
    UNION
    SELECT m.memory_id FROM agent_data.memory_store m
    WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.subject_entity_id = ANY ($7::text[]) AND m.predicate IS NOT NULL
      AND m.is_active
)
SELECT m.memory_id, r.memory_id AS root, m.content_text, m.content_hash, m.kind, m.subject_entity_id, m.predicate,
       m.object_value, r.valid_to, m.speaker
FROM found f
JOIN agent_data.memory_store m ON m.user_id = $1 AND m.memory_id = f.memory_id
JOIN agent_data.memory_store r ON r.user_id = $1
    AND r.memory_id = CASE WHEN m.superseded_how = 'merged' THEN m.superseded_by ELSE m.memory_id END
WHERE r.is_active

-- name: known
-- Those of these memories that are in force, held against whoever would forget or change them meanwhile.
SELECT m.memory_id, m.content_text, m.content_hash, m.memory_tier, m.memory_scope, m.session_id, m.kind, m.confidence,
       m.importance, m.access_count, m.reinforcement_count, m.expires_at, m.is_validated, m.validated_by,
       m.provenance_type, COALESCE(m.valid_from, m.created_at) AS valid_from,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.sources, m.source_message_ids,
       m.subject_entity_id, m.predicate, m.object_value, m.valid_to, m.details ? 'since' AS dated, m.tags, m.speaker
FROM agent_data.memory_store m
WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
ORDER BY m.memory_id
FOR NO KEY UPDATE

-- name: logged
-- The memories of each contradiction that one of these took part in, whatever became of it.
SELECT c.memory_ids FROM agent_data.memory_conflicts c WHERE c.user_id = $1 AND c.memory_ids && $2::uuid[]

-- name: related
-- As `known`, and held against nobody: of a user's memories that somebody stated the latest ($4 of them), and those of $3; not what
-- must not surface.
WITH chosen AS (
    (SELECT m.memory_id FROM agent_data.memory_store m
     WHERE m.user_id = $1 AND m.dedup_scope = $2 AND m.is_active AND NOT agent_data.drawn(m.kind)
       AND m.kind NOT IN ('episode', 'tool_outcome', 'entity_profile')
     ORDER BY m.created_at DESC LIMIT $4)
    UNION
    SELECT unnest($3::uuid[])
)
SELECT m.memory_id, m.content_text, m.content_hash, m.memory_tier, m.memory_scope, m.session_id, m.kind, m.confidence,
       m.importance, m.access_count, m.reinforcement_count, m.expires_at, m.is_validated, m.validated_by,
       m.provenance_type, COALESCE(m.valid_from, m.created_at) AS valid_from,
       COALESCE(m.stated_at, m.created_at) AS stated_at, m.sources, m.source_message_ids,
       m.subject_entity_id, m.predicate, m.object_value, m.valid_to, m.details ? 'since' AS dated, m.tags, m.speaker
FROM chosen c JOIN agent_data.memory_store m ON m.user_id = $1 AND m.memory_id = c.memory_id
WHERE m.dedup_scope = $2 AND m.is_active AND NOT agent_data.drawn(m.kind)
  AND m.kind NOT IN ('episode', 'tool_outcome', 'entity_profile')
  AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.item_id = m.memory_id)

-- name: withdraw
-- Withdraws memories ($3) that rules took from messages in which the helper LLM did not find them, or that turned out to be about
-- another speaker; $5 is the reason. They can be restored for as long as what expired, and what was drawn from them is drawn anew. The
-- messages stay: only their reading was wrong.
WITH gone AS (
    UPDATE agent_data.memory_store m SET status = 'expired', updated_at = $4
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = ANY ($3::uuid[]) AND m.is_active
    RETURNING m.memory_id, m.sources
), told AS (
    INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
    SELECT $2, $1, g.memory_id, $4, 'withdrawn', '{"status": "active"}',
           jsonb_build_object('status', 'expired', 'reason', $5::text), 'system' FROM gone g
)
SELECT agent_data.outdate_derived($1, $2, g.memory_id, g.sources) FROM gone g

-- name: forgotten
-- Which of these keyed hashes belong to something that was forgotten or erased.
SELECT s.content_hmac FROM agent_data.suppressions s WHERE s.user_id = $1 AND s.content_hmac = ANY ($2::bytea[])
UNION
SELECT e.content_hmac FROM agent_data.erased_contents e WHERE e.user_id = $1 AND e.content_hmac = ANY ($2::bytea[])

-- name: refused
-- `place`: which (from 1) of these keyed hashes ($3), each said at a time ($4), belong to something that was forgotten since, or was
-- deleted or erased, in the scope $6. Said again after it was forgotten, a statement is news. The other rows: memories that were
-- denied or ended since $5 in the scope $2, and their other wordings; not those that learning again has retired, for there only
-- the reading of the rules was wrong, and a helper LLM may read the same words rightly.
SELECT w.place::integer, NULL::timestamptz AS denied_at, NULL AS content_text, NULL::bytea AS content_hash,
       NULL AS subject_entity_id, NULL AS predicate, NULL AS object_value, NULL::jsonb AS sources
FROM unnest($3::bytea[], $4::timestamptz[]) WITH ORDINALITY AS w (mark, said_at, place)
WHERE EXISTS (SELECT FROM agent_data.erased_contents e WHERE e.user_id = $1 AND e.content_hmac = w.mark)
   OR EXISTS (
       SELECT FROM agent_data.suppressions s
       WHERE s.user_id = $1 AND s.content_hmac = w.mark
         AND (s.created_at >= w.said_at OR s.reason NOT IN ('forgotten', 'forgotten_by_chat'))
         AND NOT EXISTS (SELECT FROM agent_data.memory_store o
                         WHERE o.user_id = $1 AND o.memory_id = s.item_id AND o.dedup_scope <> $6))
UNION ALL
SELECT NULL, d.valid_to, m.content_text, m.content_hash, m.subject_entity_id, m.predicate, m.object_value, m.sources
FROM agent_data.memory_store d
CROSS JOIN LATERAL (
    SELECT d.content_text, d.content_hash, d.subject_entity_id, d.predicate, d.object_value, d.sources
    UNION ALL
    SELECT v.content_text, v.content_hash, v.subject_entity_id, v.predicate, v.object_value, v.sources
    FROM agent_data.memory_store v
    WHERE v.user_id = $1 AND v.superseded_by = d.memory_id AND v.superseded_how = 'merged'
) m
WHERE d.user_id = $1 AND d.dedup_scope = $2 AND d.status = 'invalidated' AND d.valid_to >= $5 AND NOT agent_data.drawn(d.kind)
  AND NOT (d.valid_to = d.updated_at AND EXISTS (
      SELECT FROM agent_data.memory_events e
      WHERE e.user_id = $1 AND e.memory_id = d.memory_id AND e.at = d.updated_at AND e.event = 'invalidated'
        AND e.after ->> 'reason' = 'relearned'))

-- name: insert
-- New memories of one user, as JSON; those that are only other wordings of another one among them.
INSERT INTO agent_data.memory_store (
    memory_id, user_id, tenant_id, session_id, dedup_scope, memory_tier, memory_scope, kind, content_text, content_hash,
    provenance_type, provenance_turn_id, provenance_turn_index, source_message_ids, sources, confidence,
    confidence_factors, importance, access_count, reinforcement_count, created_at, updated_at, expires_at, valid_from,
    valid_to, stated_at, status, superseded_by, superseded_how, is_validated, validated_by, last_validated_at, token_count,
    subject_entity_id, predicate, predicate_type, object_value, speaker, entity_ids, tags, details)
SELECT x.memory_id, $2, $1, x.session_id, $4, x.tier, x.scope, x.kind, x.text, decode(x.content_hash, 'hex'),
       x.provenance_type, x.turn_id, x.turn_index, x.source_message_ids, x.sources, x.confidence,
       x.confidence_factors, x.importance, x.access_count, x.reinforcement_count, x.created_at, $5, x.expires_at, x.valid_from,
       x.valid_to, x.stated_at, x.status, x.superseded_by, x.superseded_how, x.validated, CASE WHEN x.validated THEN 'user' END,
       CASE WHEN x.validated THEN $5::timestamptz END, x.token_count,
       x.subject, x.predicate, x.predicate_type, x.object, x.speaker, x.entity_ids, x.tags, x.details
FROM jsonb_to_recordset($3::jsonb) AS x (
    memory_id uuid, session_id uuid, tier smallint, scope smallint, kind text, text text, content_hash text,
    provenance_type smallint, turn_id uuid, turn_index integer, source_message_ids uuid[], sources jsonb, confidence real,
    confidence_factors jsonb, importance real, access_count integer, reinforcement_count integer, created_at timestamptz,
    expires_at timestamptz, valid_from timestamptz, valid_to timestamptz, stated_at timestamptz, status text,
    superseded_by uuid, superseded_how text, validated boolean, token_count integer, subject text, predicate text,
    predicate_type text, object text, speaker text, entity_ids text[], tags text[], details jsonb)

-- name: reinforce
-- Memories that were said once more, as JSON: they count more, and are never less than what they are said to be now. Of sources
-- the first $5 are kept.
UPDATE agent_data.memory_store m SET
    access_count = m.access_count + x.times,
    reinforcement_count = m.reinforcement_count + x.times,
    memory_tier = GREATEST(m.memory_tier, x.tier),
    memory_scope = GREATEST(m.memory_scope, x.scope),
    importance = GREATEST(m.importance, x.importance),
    confidence = GREATEST(m.confidence, x.confidence),
    confidence_factors = x.confidence_factors,
    status = 'active',
    valid_from = LEAST(m.valid_from, x.valid_from),
    stated_at = GREATEST(m.stated_at, x.stated_at),
    expires_at = CASE WHEN m.expires_at IS NULL OR x.expires_at IS NULL THEN NULL
                      ELSE GREATEST(m.expires_at, x.expires_at) END,
    is_validated = m.is_validated OR x.validated,
    validated_by = CASE WHEN x.validated THEN 'user' ELSE m.validated_by END,
    last_validated_at = CASE WHEN x.validated THEN $4::timestamptz ELSE m.last_validated_at END,
    sources = CASE WHEN jsonb_array_length(m.sources) < $5 THEN m.sources || x.sources ELSE m.sources END,
    source_message_ids = CASE WHEN cardinality(m.source_message_ids) < $5 THEN m.source_message_ids || x.source_message_ids
                              ELSE m.source_message_ids END,
    updated_at = $4
FROM jsonb_to_recordset($3::jsonb) AS x (
    memory_id uuid, times integer, tier smallint, scope smallint, importance real, confidence real, confidence_factors jsonb,
    expires_at timestamptz, validated boolean, valid_from timestamptz, stated_at timestamptz, sources jsonb,
    source_message_ids uuid[])
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id AND m.is_active

-- name: supersede
-- Memories that another one took the place of, as JSON. The other wordings of one that is merged go with it.
WITH gone AS (
    UPDATE agent_data.memory_store m SET status = 'superseded', superseded_by = x.heir, superseded_how = x.how,
                                         valid_to = x.valid_to, updated_at = $4
    FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, heir uuid, how text, valid_to timestamptz)
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id AND m.is_active
    RETURNING m.memory_id, x.heir, x.how
)
UPDATE agent_data.memory_store m SET superseded_by = g.heir
FROM gone g
WHERE m.user_id = $2 AND m.superseded_by = g.memory_id AND m.superseded_how = 'merged' AND g.how = 'merged'

-- name: doubt
-- Memories that a statement puts in doubt, as JSON: they are due for a question, and only the user ends the doubt.
UPDATE agent_data.memory_store m SET
    status = 'aging', updated_at = $4,
    details = (m.details - '{asked_at,asked,asked_in}'::text[])
              || jsonb_build_object('in_conflict', x.conflict_id, 'doubted_by', x.message_id, 'doubted_at', $4::timestamptz)
FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, conflict_id uuid, message_id uuid)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.memory_id = x.memory_id AND m.is_active

-- name: close_earlier
-- What an earlier value had been superseded by is now known to have begun later than these, as JSON: theirs ends it.
UPDATE agent_data.memory_store m SET valid_to = x.valid_from
FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, subject text, predicate text, valid_from timestamptz)
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.subject_entity_id = x.subject AND m.predicate = x.predicate
  AND m.memory_id <> x.memory_id AND m.superseded_how IN ('corrected', 'conflict')
  AND m.valid_from < x.valid_from AND m.valid_to > x.valid_from

-- name: log_conflicts
-- Contradictions that were found, as JSON, and how they were resolved.
INSERT INTO agent_data.memory_conflicts (
    conflict_id, user_id, tenant_id, dedup_scope, session_id, detected_at_message, conflict_type, conflict_data, memory_ids,
    resolution_strategy, resolution_outcome, resolved_at, created_at, entity_id)
SELECT x.conflict_id, $2, $1, $4, x.session_id, x.detected_at_message, x.conflict_type, x.conflict_data, x.memory_ids,
       x.resolution_strategy, x.resolution_outcome, CASE WHEN x.resolution_outcome IS NOT NULL THEN $5::timestamptz END, $5,
       x.entity_id
FROM jsonb_to_recordset($3::jsonb) AS x (
    conflict_id uuid, session_id uuid, detected_at_message uuid, conflict_type text, conflict_data jsonb, memory_ids uuid[],
    resolution_strategy text, resolution_outcome jsonb, entity_id text)

-- name: route
-- Ways to new memories.
INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
SELECT $1, r, $2, 'memory', r FROM unnest($3::uuid[]) AS r
ON CONFLICT DO NOTHING

-- name: tell
-- What became of memories, as JSON.
INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
SELECT $2, $1, x.memory_id, $4, x.event, x.before, x.after, 'system'
FROM jsonb_to_recordset($3::jsonb) AS x (memory_id uuid, event text, before jsonb, after jsonb)

-- name: add_vectors
-- Vectors of messages ($4 = 0) or memories (1).
SELECT agent_data.add_vectors($1, $2, $3, $4, $5, $6, $7)
