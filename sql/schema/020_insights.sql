-- Insights (seed 001 §4.1; docs/how-to/insights.md): what the business's own tables are asked again and again, and whose memory the
-- answers become.

-- `source`: one SELECT of a domain, checked when it was put. What it said last is `memory_id`; `error`: why it said nothing.
CREATE TABLE agent_data.insights (
    user_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    name        text NOT NULL,
    domain      text NOT NULL,
    title       text NOT NULL,
    unit        text NOT NULL DEFAULT '',
    source      text NOT NULL,
    period_days integer NOT NULL CHECK (period_days > 0),
    every_hours integer NOT NULL CHECK (every_hours > 0),
    due_at      timestamptz NOT NULL,
    ran_at      timestamptz,
    memory_id   uuid,
    error       text,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (user_id, name)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('insights', current_setting('mneme.hash_partitions')::int);
CREATE INDEX insights_due ON agent_data.insights (due_at);

-- Queues a job for each insight that is due at `p_now`, with the key that the server gives it, too; returns how many.
CREATE FUNCTION agent_data.enqueue_insights(p_now timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    jobs agent_data.job_record[];
BEGIN
    SELECT array_agg(ROW('insight', convert_to(jsonb_build_object('tenant', x.tenant_id, 'user', x.user_id, 'name', x.name,
               'id', gen_random_uuid(), 'due_at', x.due_at)::text, 'UTF8'), x.dedupe_key, 0)::agent_data.job_record)
    INTO jobs
    FROM (SELECT i.*, k.dedupe_key FROM agent_data.insights i CROSS JOIN LATERAL (
              SELECT format('insight:%s:%s:%s', i.user_id, i.name, to_char(i.due_at AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS'))
                     AS dedupe_key) k
          WHERE i.due_at <= p_now AND NOT EXISTS (SELECT FROM agent_data.pgqueuer q WHERE q.dedupe_key = k.dedupe_key)
          ORDER BY i.due_at LIMIT p_limit) x;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM agent_data.enqueue(jobs);
    RETURN cardinality(jobs);
END $$;

SELECT agent_data.protect_tables();
GRANT DELETE ON agent_data.insights TO mneme_app;
SELECT agent_data.give_functions('mneme_owner', ARRAY['enqueue_insights']);
