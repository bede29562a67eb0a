-- What the learner made of a turn (app/store/learning.py); row-level security holds it to the tenant.

-- name: said
-- The messages of a turn, in order, by the call that they came with, which came in at $4 and was over by $5.
SELECT message_id, role FROM agent_data.conversation_history
WHERE user_id = $1 AND session_id = $2 AND call_id = $3 AND created_at BETWEEN $4 AND $5
ORDER BY created_at, message_id

-- name: learned
-- Whether a job has had its effect.
SELECT EXISTS (SELECT FROM agent_data.job_effects WHERE user_id = $1 AND job_key = $2)

-- name: episode
-- What kind of exchange a question began.
SELECT event_type FROM agent_data.episodes WHERE user_id = $1 AND message_id = $2

-- name: made
-- The memories that were learned from these messages since $3, in the order in which they were made: also what a row of the
-- business's own has outranked by now, but not what was merged into another. (Their ids begin with their time.)
SELECT memory_id, kind, content_text, confidence FROM agent_data.memory_store
WHERE user_id = $1 AND memory_id >= agent_data.uuid7_floor($3)
  AND status <> 'forgotten' AND superseded_how IS DISTINCT FROM 'merged'
  AND (provenance_turn_id = ANY ($2) OR source_message_ids && $2)
ORDER BY memory_id
