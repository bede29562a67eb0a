-- name: adopt
-- Gives the queue's objects, which pgqueuer makes itself, to the owner of all others, and the roles the rights they need.
DO $$
BEGIN
    PERFORM agent_data.protect_tables();
    ALTER TYPE agent_data.pgqueuer_status OWNER TO mneme_owner;
    ALTER FUNCTION agent_data.fn_pgqueuer_changed() OWNER TO mneme_owner;
    GRANT DELETE ON agent_data.pgqueuer, agent_data.pgqueuer_log TO mneme_app;
    GRANT USAGE ON SEQUENCE agent_data.pgqueuer_id_seq, agent_data.pgqueuer_log_id_seq TO mneme_app, mneme_definer;
    -- A job that is given up is told to webhooks; a webhook that is, is not. Not made again at each start: its lock would wait for
    -- all who write jobs, and they for it.
    IF NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = 'agent_data.pgqueuer'::regclass AND g.tgname = 'tell_dead') THEN
        CREATE TRIGGER tell_dead AFTER UPDATE OF status ON agent_data.pgqueuer
            FOR EACH ROW WHEN (NEW.status = 'failed' AND OLD.status <> 'failed' AND NEW.entrypoint <> 'webhook')
            EXECUTE FUNCTION agent_data.tell_dead_job();
    END IF;
END $$

-- name: mark
-- Notes which pgqueuer has made the queue's tables; __version__ stands for it, for a comment takes no parameter.
COMMENT ON TABLE agent_data.pgqueuer IS 'pgqueuer __version__'

-- name: made_by
-- What `mark` noted; NULL where there is no queue.
SELECT obj_description(to_regclass('agent_data.pgqueuer'), 'pg_class')

-- name: enqueue
-- Puts jobs into the queue within the caller's transaction.
SELECT agent_data.enqueue($1::agent_data.job_record[])

-- name: counts
-- The work there is: due now, waiting for its next try, or for the helper LLM; running; held as dead letters; of one tenant, or of all.
SELECT count(*) FILTER (WHERE q.status = 'queued' AND (q.execute_after <= now() OR q.attempts > 0 OR q.entrypoint = 'learn_llm'))
           AS queued,
       count(*) FILTER (WHERE q.status = 'picked') AS running,
       count(*) FILTER (WHERE q.status = 'failed') AS dead
FROM agent_data.pgqueuer q
WHERE $1::uuid IS NULL OR agent_data.job_payload(q.payload) ->> 'tenant' = $1::text

-- name: waiting
-- Payloads of jobs of an entrypoint ($1) that wait and whose payload has a value ($3) in a field ($2), oldest first; at most $4.
SELECT q.payload FROM agent_data.pgqueuer q
WHERE q.entrypoint = $1 AND q.status = 'queued' AND agent_data.job_payload(q.payload) ->> $2::text = $3::text
ORDER BY q.id LIMIT $4

-- name: hold_back
-- Jobs of these keys that wait are not begun for a while ($2).
UPDATE agent_data.pgqueuer q SET execute_after = GREATEST(q.execute_after, now() + $2::interval)
WHERE q.dedupe_key = ANY ($1::text[]) AND q.status = 'queued'

-- name: drop_waiting
-- Takes jobs of these keys away that wait.
DELETE FROM agent_data.pgqueuer q WHERE q.dedupe_key = ANY ($1::text[]) AND q.status = 'queued'

-- name: dead_letters
-- Jobs that failed for good, newest first, each with its last error.
SELECT q.id, q.entrypoint, q.payload, q.attempts, q.created, q.updated, e.message
FROM agent_data.pgqueuer q
LEFT JOIN LATERAL (
    SELECT l.traceback ->> 'exception_message' AS message FROM agent_data.pgqueuer_log l
    WHERE l.job_id = q.id AND l.traceback IS NOT NULL ORDER BY l.created DESC, l.id DESC LIMIT 1
) e ON true
WHERE q.status = 'failed' AND ($1::uuid IS NULL OR agent_data.job_payload(q.payload) ->> 'tenant' = $1::text)
  AND ($2::bigint IS NULL OR q.id < $2)
ORDER BY q.id DESC LIMIT $3

-- name: retry
-- Gives a dead letter all its tries again, and wakes the workers.
UPDATE agent_data.pgqueuer q
SET status = 'queued', attempts = 0, execute_after = now(), updated = now(), queue_manager_id = NULL
WHERE q.id = $1 AND q.status = 'failed'
  AND ($2::uuid IS NULL OR agent_data.job_payload(q.payload) ->> 'tenant' = $2::text)
RETURNING q.id

-- name: finish
-- Ends jobs that $2 holds: done ones go, failed ones are held, cancelled ones wait for another worker. A worker that slept past
-- its lease holds them no more and ends nothing.
WITH ended AS (
    SELECT * FROM unnest($1::bigint[], $3::text[], $4::text[]) AS e (id, status, traceback)
), done AS (
    DELETE FROM agent_data.pgqueuer q USING ended e
    WHERE q.id = e.id AND q.queue_manager_id = $2 AND q.status = 'picked' AND e.status = 'successful'
    RETURNING q.id, q.entrypoint, q.priority
), kept AS (
    UPDATE agent_data.pgqueuer q
    SET status = CASE e.status WHEN 'canceled' THEN 'queued' ELSE 'failed' END::agent_data.pgqueuer_status,
        attempts = q.attempts + CASE e.status WHEN 'canceled' THEN 0 ELSE 1 END,
        updated = now(), queue_manager_id = NULL
    FROM ended e
    WHERE q.id = e.id AND q.queue_manager_id = $2 AND q.status = 'picked' AND e.status <> 'successful'
    RETURNING q.id, q.entrypoint, q.priority
)
INSERT INTO agent_data.pgqueuer_log (job_id, status, entrypoint, priority, traceback)
SELECT e.id, e.status::agent_data.pgqueuer_status, r.entrypoint, r.priority, e.traceback::jsonb
FROM ended e JOIN (SELECT * FROM done UNION ALL SELECT * FROM kept) r ON r.id = e.id

-- name: retry_later
-- Gives a job back for another try after a while; only whoever holds it may.
WITH later AS (
    UPDATE agent_data.pgqueuer q
    SET status = 'queued', attempts = q.attempts + 1, execute_after = now() + $3, updated = now(), queue_manager_id = NULL
    WHERE q.id = $1 AND q.queue_manager_id = $2 AND q.status = 'picked'
    RETURNING q.id, q.entrypoint, q.priority
)
INSERT INTO agent_data.pgqueuer_log (job_id, status, entrypoint, priority, traceback)
SELECT id, 'queued', entrypoint, priority, $4::text::jsonb FROM later

-- name: requeue_lost
-- Counts a try for each job whose worker has let its lease ($1) run out, and puts the job back, or holds it after $2 tries: a job
-- that ends its worker's process would otherwise run for ever. From the second loss on a job waits for a random part of a lease (at
-- least 10 s, longer than a worker takes to start) and more, so that jobs that ran beside the one at fault do not run beside it again.
WITH lost AS (
    UPDATE agent_data.pgqueuer q
    SET status = CASE WHEN q.attempts + 1 < $2 THEN 'queued' ELSE 'failed' END::agent_data.pgqueuer_status,
        attempts = q.attempts + 1, execute_after = now() + GREATEST($1::interval, '10 s') * q.attempts * random(), updated = now(), queue_manager_id = NULL
    WHERE q.id IN (SELECT s.id FROM agent_data.pgqueuer s WHERE s.status = 'picked' AND s.heartbeat < now() - $1::interval
                   FOR UPDATE SKIP LOCKED)
    RETURNING q.id, q.status, q.entrypoint, q.priority
)
INSERT INTO agent_data.pgqueuer_log (job_id, status, entrypoint, priority, traceback)
SELECT id, status, entrypoint, priority, jsonb_build_object('exception_message', 'its worker ended or stood still') FROM lost

-- name: beat
-- Says that these jobs are still being worked on, as far as they are still this worker's.
UPDATE agent_data.pgqueuer SET heartbeat = now()
WHERE id = ANY ($1::bigint[]) AND queue_manager_id = $2 AND status = 'picked'

-- name: probe
-- Notifies whoever listens, to see that notifications arrive.
SELECT pg_notify($1, $2)
