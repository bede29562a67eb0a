-- Webhooks (docs/how-to/webhooks.md): what is told to others is written down in the very transaction of what it tells, and sent by the
-- worker. Where no target is configured, a change of a memory costs one look at an empty table, and a turn nothing.

-- Who wants to know what: the worker writes it from the settings when it starts. Counts are of all time.
CREATE TABLE agent_data.webhook_targets (
    name      text PRIMARY KEY,
    events    text[] NOT NULL,
    tenant    text,                         -- the one tenant of which it is told; NULL: all
    delivered bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,    -- tries that failed
    dead      bigint NOT NULL DEFAULT 0     -- messages that were given up
);

-- What waits to be told, for each target. Ids only: names and texts are read when it is sent, so that what was forgotten meanwhile
-- is not told. A row goes when it is delivered.
CREATE TABLE agent_data.webhook_outbox (
    message_id uuid NOT NULL,               -- the receiver's key against duplicates
    target     text NOT NULL,
    tenant_id  uuid NOT NULL,
    user_id    uuid NOT NULL,               -- nil: it is about no user, or about one who is gone
    event      text NOT NULL,
    subject    uuid,                        -- the memory, the conflict, the erasure
    data       jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts   integer NOT NULL DEFAULT 0,
    due_at     timestamptz NOT NULL DEFAULT now(),  -- while it is being sent: when another may try
    dead_at    timestamptz,
    PRIMARY KEY (user_id, message_id, target)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
CREATE INDEX webhook_due ON agent_data.webhook_outbox (target, due_at) WHERE dead_at IS NULL;
CREATE INDEX webhook_subject ON agent_data.webhook_outbox (subject) WHERE due_at = 'infinity' AND dead_at IS NULL;

-- Degraded requests until they are told together: a storm of them is one message a minute.
CREATE TABLE agent_data.webhook_degradations (
    tenant_id uuid NOT NULL,
    user_id   uuid NOT NULL,
    call_id   uuid NOT NULL,
    reason    text NOT NULL,
    at        timestamptz NOT NULL
);
CREATE INDEX webhook_degraded_user ON agent_data.webhook_degradations (user_id);

-- Puts an event into the outbox of everybody who wants it. `p_due`: 'infinity' for what has not happened yet.
CREATE FUNCTION agent_data.tell_webhooks(
    p_tenant uuid, p_user uuid, p_event text, p_subject uuid, p_data jsonb, p_due timestamptz DEFAULT now()
) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH message AS MATERIALIZED (SELECT gen_random_uuid() AS id)
    INSERT INTO agent_data.webhook_outbox (message_id, target, tenant_id, user_id, event, subject, data, due_at)
    SELECT m.id, t.name, p_tenant, COALESCE(p_user, '00000000-0000-0000-0000-000000000000'), p_event, p_subject, p_data, p_due
    FROM agent_data.webhook_targets t, message m
    WHERE p_event = ANY (t.events)
      AND (t.tenant IS NULL OR t.tenant = (SELECT n.name FROM agent_data.tenants n WHERE n.tenant_id = p_tenant))
$$;

-- Memories: what becomes of them.
CREATE FUNCTION agent_data.tell_memory() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM agent_data.tell_webhooks(NEW.tenant_id, NEW.user_id, 'memory.created', NEW.memory_id,
            jsonb_build_object('kind', NEW.kind, 'tier', NEW.memory_tier));
    ELSIF NEW.status <> OLD.status THEN
        PERFORM agent_data.tell_webhooks(
            NEW.tenant_id, NEW.user_id, 'memory.' || CASE WHEN NEW.is_active THEN 'restored' ELSE NEW.status END, NEW.memory_id,
            jsonb_strip_nulls(jsonb_build_object(
                'kind', NEW.kind, 'tier', NEW.memory_tier,
                'superseded_by', CASE WHEN NEW.status = 'superseded' THEN NEW.superseded_by END,
                'how', CASE WHEN NEW.status = 'superseded' THEN NEW.superseded_how END)));
    ELSE
        PERFORM agent_data.tell_webhooks(NEW.tenant_id, NEW.user_id, 'memory.promoted', NEW.memory_id,
            jsonb_build_object('kind', NEW.kind, 'tier', NEW.memory_tier, 'from_tier', OLD.memory_tier));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tell_created AFTER INSERT ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status IN ('active', 'aging')) EXECUTE FUNCTION agent_data.tell_memory();

-- Doubt (`aging`) is not told: the memory is in force.
CREATE TRIGGER tell_changed AFTER UPDATE OF status, memory_tier ON agent_data.memory_store
    FOR EACH ROW WHEN (
        NEW.status <> OLD.status
            AND (NEW.status NOT IN ('active', 'aging') OR OLD.status NOT IN ('active', 'aging'))
        OR NEW.status = OLD.status AND NEW.memory_tier > OLD.memory_tier AND NEW.status IN ('active', 'aging'))
    EXECUTE FUNCTION agent_data.tell_memory();

CREATE FUNCTION agent_data.tell_conflict() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    PERFORM agent_data.tell_webhooks(NEW.tenant_id, NEW.user_id, 'conflict.found', NEW.conflict_id, jsonb_strip_nulls(
        jsonb_build_object('type', NEW.conflict_type, 'memory_ids', to_jsonb(NEW.memory_ids),
                           'strategy', NEW.resolution_strategy, 'resolved', NEW.resolved_at IS NOT NULL)));
    RETURN NULL;
END $$;

CREATE TRIGGER tell_found AFTER INSERT ON agent_data.memory_conflicts
    FOR EACH ROW EXECUTE FUNCTION agent_data.tell_conflict();

CREATE FUNCTION agent_data.note_degradation(p_tenant uuid, p_user uuid, p_call uuid, p_reason text, p_at timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    INSERT INTO agent_data.webhook_degradations (tenant_id, user_id, call_id, reason, at)
    SELECT p_tenant, p_user, p_call, p_reason, p_at
    WHERE EXISTS (SELECT FROM agent_data.webhook_targets t WHERE 'request.degraded' = ANY (t.events))
$$;

CREATE FUNCTION agent_data.note_degraded() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    PERFORM agent_data.note_degradation(NEW.tenant_id, NEW.user_id, NEW.call_id, COALESCE(NEW.reason, 'memory'), NEW.created_at);
    RETURN NULL;
END $$;

CREATE TRIGGER note_degraded AFTER INSERT ON agent_data.upstream_calls
    FOR EACH ROW WHEN (NEW.memory_status = 'degraded') EXECUTE FUNCTION agent_data.note_degraded();

-- Degradations whose first is older than `p_before`, as one message for each tenant; how many messages' worth of tenants.
CREATE FUNCTION agent_data.tell_degraded(p_before timestamptz, p_examples integer) RETURNS integer
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    t    record;
    told integer := 0;
BEGIN
    -- Two workers must not tell the same.
    IF NOT pg_try_advisory_xact_lock(hashtextextended('mneme.webhooks.degraded', 0)) THEN
        RETURN 0;
    END IF;
    FOR t IN
        WITH due AS (
            SELECT d.tenant_id FROM agent_data.webhook_degradations d GROUP BY d.tenant_id HAVING min(d.at) <= p_before
        ), gone AS (
            DELETE FROM agent_data.webhook_degradations d USING due WHERE d.tenant_id = due.tenant_id
            RETURNING d.tenant_id, d.call_id, d.reason, d.at
        ), reasons AS (
            SELECT g.tenant_id, g.reason, count(*) AS n FROM gone g GROUP BY g.tenant_id, g.reason
        )
        SELECT g.tenant_id, count(*) AS requests, min(g.at) AS since, max(g.at) AS until,
               (SELECT jsonb_object_agg(r.reason, r.n) FROM reasons r WHERE r.tenant_id = g.tenant_id) AS reasons,
               (array_agg(g.call_id ORDER BY g.call_id))[1:p_examples] AS calls
        FROM gone g GROUP BY g.tenant_id
    LOOP
        PERFORM agent_data.tell_webhooks(t.tenant_id, NULL, 'request.degraded', NULL, jsonb_build_object(
            'requests', t.requests, 'reasons', t.reasons, 'since', t.since, 'until', t.until, 'call_ids', to_jsonb(t.calls)));
        told := told + 1;
    END LOOP;
    RETURN told;
END $$;

-- A job that is held as a dead letter. (The trigger is made with the queue: sql/queries/queue.sql.)
CREATE FUNCTION agent_data.tell_dead_job() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    payload constant jsonb := agent_data.job_payload(NEW.payload);
BEGIN
    IF payload ->> 'tenant' IS NOT NULL THEN
        PERFORM agent_data.tell_webhooks((payload ->> 'tenant')::uuid, (payload ->> 'user')::uuid, 'job.dead', NULL,
            jsonb_build_object('job_id', NEW.id, 'entrypoint', NEW.entrypoint, 'attempts', NEW.attempts));
    END IF;
    RETURN NULL;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN NULL;  -- a payload that nobody can read belongs to nobody
END $$;

-- The end of an erasure is told by ids: what waits for a receiver that is away would else hold the name of somebody who was erased.
CREATE FUNCTION agent_data.tell_erasing(p_tenant uuid, p_user uuid, p_erasure uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT agent_data.tell_webhooks(p_tenant, NULL, 'user.erased', p_erasure,
        jsonb_build_object('user_id', p_user, 'tenant_id', p_tenant), 'infinity')
    WHERE NOT EXISTS (SELECT FROM agent_data.webhook_outbox o
                      WHERE o.subject = p_erasure AND o.due_at = 'infinity' AND o.dead_at IS NULL)
$$;

CREATE FUNCTION agent_data.tell_erased() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    UPDATE agent_data.webhook_outbox o SET due_at = now()
    WHERE o.subject = NEW.erasure_id AND o.due_at = 'infinity' AND o.dead_at IS NULL;
    RETURN NULL;
END $$;

CREATE TRIGGER tell_erased AFTER UPDATE OF finished_at ON agent_data.erasures
    FOR EACH ROW WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) EXECUTE FUNCTION agent_data.tell_erased();

-- Gives a message up: it is held as a dead letter of the queue, which shows and retries it like any other.
CREATE FUNCTION agent_data.bury_webhook(p_user uuid, p_message uuid, p_target text, p_error text) RETURNS void
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    o   agent_data.webhook_outbox;
    job bigint;
BEGIN
    UPDATE agent_data.webhook_outbox SET dead_at = now()
    WHERE user_id = p_user AND message_id = p_message AND target = p_target RETURNING * INTO o;
    IF NOT FOUND THEN
        RETURN;  -- its user was erased
    END IF;
    UPDATE agent_data.webhook_targets SET failed = failed + 1, dead = dead + 1 WHERE name = p_target;
    INSERT INTO agent_data.pgqueuer (priority, entrypoint, payload, status, attempts, execute_after)
    VALUES (0, 'webhook', convert_to(jsonb_strip_nulls(jsonb_build_object(
        'tenant', o.tenant_id, 'user', o.user_id, 'message', o.message_id, 'target', o.target, 'event', o.event))::text, 'UTF8'),
        'failed', o.attempts, now())
    RETURNING id INTO job;
    INSERT INTO agent_data.pgqueuer_log (job_id, status, entrypoint, priority, traceback)
    VALUES (job, 'failed', 'webhook', 0, jsonb_build_object('exception_message', p_error));
END $$;

-- A dead letter is tried again: its message has all its tries.
CREATE FUNCTION agent_data.retry_webhook(p_tenant uuid, p_user uuid, p_message uuid, p_target text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH again AS (
        UPDATE agent_data.webhook_outbox o SET dead_at = NULL, attempts = 0, due_at = now()
        WHERE o.user_id = p_user AND o.message_id = p_message AND o.target = p_target AND o.tenant_id = p_tenant
          AND o.dead_at IS NOT NULL
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM again)
$$;

-- What waits and since when, and what became of the rest; also of targets that are named no more and have something waiting.
CREATE FUNCTION agent_data.webhook_figures()
RETURNS TABLE (name text, delivered bigint, failed bigint, dead bigint, waiting bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT COALESCE(t.name, w.target), COALESCE(t.delivered, 0), COALESCE(t.failed, 0), COALESCE(t.dead, 0),
           COALESCE(w.waiting, 0), w.oldest
    FROM agent_data.webhook_targets t
    FULL JOIN (SELECT o.target, count(*) AS waiting, min(o.created_at) AS oldest FROM agent_data.webhook_outbox o
               WHERE o.dead_at IS NULL AND o.due_at < 'infinity' GROUP BY o.target) w ON w.target = t.name
    ORDER BY 1
$$;

-- Who is told of what is the operator's: the application neither sees nor changes it.
ALTER TABLE agent_data.webhook_targets ENABLE ROW LEVEL SECURITY;

ALTER TABLE agent_data.webhook_targets FORCE ROW LEVEL SECURITY;

CREATE POLICY owner ON agent_data.webhook_targets TO mneme_owner USING (true) WITH CHECK (true);

CREATE POLICY definer ON agent_data.webhook_targets FOR SELECT TO mneme_definer USING (true);
