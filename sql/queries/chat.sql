-- What the learner made of a turn (app/store/learned.py); row-level security holds it to the tenant.

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
-- The memories that were learned from these messages and are in force, in the order in which they were made. (Every tier is named:
-- the index is by tier and time.)
SELECT memory_id, kind, content_text, confidence FROM agent_data.memory_store
WHERE user_id = $1 AND is_active AND memory_tier IN (0, 1, 2, 3, 4) AND created_at >= $3
  AND (provenance_turn_id = ANY ($2) OR source_message_ids && $2)
ORDER BY created_at, memory_id
