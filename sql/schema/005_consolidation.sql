-- Consolidation: what many turns come to. Episodes are counted, sessions summarised and compacted, users' memories drawn together.

-- One light row for each answered exchange (seed 004, layer 3): what happened, not what was said, which stands in the history.
-- Apart from `memory_store`, so that an episode is never a candidate beside its own turn, and no sweep has to look at it.
CREATE TABLE agent_data.episodes (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    message_id   uuid NOT NULL,             -- the question; its id is the episode's
    session_id   uuid NOT NULL,
    at           timestamptz NOT NULL,
    event_type   text NOT NULL,             -- question, request, statement, correction, confirmation
    entities     text[] NOT NULL DEFAULT '{}',
    topics       text[] NOT NULL DEFAULT '{}',
    tools        text[] NOT NULL DEFAULT '{}',  -- the tools called, in their order
    measure      jsonb,                     -- {label: [words], value, unit}: "recipe post → 340 views"
    domain_facts jsonb NOT NULL DEFAULT '{}',
    -- The things that an exchange named, as seed 004 has `entities` of an episode: [{"canonical_id", "canonical_name", "type",
    -- "mentions": [{"text", "position", "confidence", "is_coreference"}]}].
    things          jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (user_id, message_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('episodes', current_setting('mneme.hash_partitions')::int);

-- What is still to be done for a session.
CREATE TABLE agent_data.session_work (
    user_id       uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    session_id    uuid NOT NULL,
    pending       boolean NOT NULL DEFAULT true,  -- something was said, or taken back, since its summary was made
    touched_at    timestamptz NOT NULL,     -- when it was last learned from: idle counts from here
    active_tokens bigint NOT NULL DEFAULT 0,      -- of its messages, as far as they are not compacted
    version       integer NOT NULL DEFAULT 0,     -- raised when something in it was forgotten: what was read before is void
    PRIMARY KEY (user_id, session_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('session_work', current_setting('mneme.hash_partitions')::int);
CREATE INDEX session_work_pending ON agent_data.session_work (user_id) WHERE pending;

-- The same for a user. `due_at`: since when there is something new to draw together.
CREATE TABLE agent_data.consolidation_state (
    user_id         uuid NOT NULL,
    tenant_id       uuid NOT NULL,
    due_at          timestamptz,
    consolidated_at timestamptz,
    version         integer NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('consolidation_state', current_setting('mneme.hash_partitions')::int);
CREATE INDEX consolidation_due ON agent_data.consolidation_state (due_at) WHERE due_at IS NOT NULL;

-- Every compaction (seed 000 §7.3), with its ratio ρ = removed ÷ summary tokens.
CREATE TABLE agent_data.compactions (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    session_id     uuid NOT NULL,
    summary_id     uuid NOT NULL,           -- the synthetic message in `conversation_history`
    at             timestamptz NOT NULL,
    first_turn     integer NOT NULL,
    last_turn      integer NOT NULL,
    messages       integer NOT NULL,
    removed_tokens bigint NOT NULL,
    summary_tokens integer NOT NULL,
    ratio          real NOT NULL,
    method         text NOT NULL,           -- extractive, helper
    PRIMARY KEY (user_id, summary_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('compactions', current_setting('mneme.hash_partitions')::int);
CREATE INDEX compactions_session ON agent_data.compactions (user_id, session_id, at);

-- All of them together, by day: what the metric adds up. Nobody's in particular, and it outlives them.
CREATE TABLE agent_data.compaction_figures (
    day            date PRIMARY KEY,
    compactions    bigint NOT NULL,
    removed_tokens bigint NOT NULL,
    summary_tokens bigint NOT NULL
);

-- From a message or a memory to the memories that were drawn from it: forgetting follows these.
CREATE TABLE agent_data.derivations (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    source_id  uuid NOT NULL,
    derived_id uuid NOT NULL,
    PRIMARY KEY (user_id, source_id, derived_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('derivations', current_setting('mneme.hash_partitions')::int);

-- Which pattern, procedure or summary a memory is, by keyed hash of its key: one that its user forgot is not drawn again.
CREATE TABLE agent_data.drawn_keys (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    key_hmac  bytea NOT NULL,
    memory_id uuid NOT NULL,
    PRIMARY KEY (user_id, key_hmac, memory_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('drawn_keys', current_setting('mneme.hash_partitions')::int);

-- The second of the three updates that history allows: messages that a summary stands for (seed 000 §2.3). How many.
CREATE FUNCTION agent_data.compact_messages(
    p_tenant uuid, p_user uuid, p_session uuid, p_messages uuid[], p_from timestamptz, p_to timestamptz, p_summary uuid
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    changed integer;
BEGIN
    UPDATE agent_data.conversation_history h SET is_compressed = true, compressed_summary_id = p_summary
    WHERE h.user_id = p_user AND h.tenant_id = p_tenant AND h.session_id = p_session AND h.message_id = ANY (p_messages)
      AND h.created_at BETWEEN p_from AND p_to AND NOT h.is_compressed;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;

-- Takes back the summaries of some sessions, at once; the session-end work makes new ones. Memory blocks that hold the old ones
-- go with their epoch: two further, so that it is no rebase's that is under way. (A block of another session that shows the
-- memory goes because that is not in force.)
CREATE FUNCTION agent_data.drop_session_summaries(p_tenant uuid, p_user uuid, p_sessions uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    -- First the row that work under way looks at before it writes.
    UPDATE agent_data.session_work w SET version = w.version + 1, pending = true
    WHERE w.user_id = p_user AND w.tenant_id = p_tenant AND w.session_id = ANY (p_sessions);
    UPDATE agent_data.sessions s SET
        summary_text = NULL, summary_embedding = NULL, summary_token_count = 0, block_epoch = s.block_epoch + 2
    WHERE s.user_id = p_user AND s.tenant_id = p_tenant AND s.session_id = ANY (p_sessions) AND s.summary_text IS NOT NULL;
    UPDATE agent_data.conversation_history h SET content = NULL
    FROM agent_data.compactions c
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.session_id = ANY (p_sessions)
      AND h.user_id = p_user AND h.message_id = c.summary_id AND h.created_at = c.at AND h.content IS NOT NULL;
    WITH outdated AS (
        UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = now(), updated_at = now()
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.session_id = ANY (p_sessions) AND m.kind = 'summary'
          AND m.details ->> 'scope_type' = 'session_window' AND m.is_active
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, before, after, actor)
    SELECT p_user, p_tenant, o.memory_id, 'invalidated', '{"status": "active"}',
           '{"status": "invalidated", "reason": "a source changed"}', 'system'
    FROM outdated o;
END $$;

-- What was drawn from an item, directly or by way of other memories.
CREATE FUNCTION agent_data.derived_from(p_tenant uuid, p_user uuid, p_item uuid) RETURNS TABLE (memory_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH RECURSIVE drawn AS (
        SELECT d.derived_id FROM agent_data.derivations d
        WHERE d.user_id = p_user AND d.tenant_id = p_tenant AND d.source_id = p_item
        UNION
        SELECT d.derived_id FROM drawn x JOIN agent_data.derivations d ON d.user_id = p_user AND d.source_id = x.derived_id
    )
    SELECT derived_id FROM drawn
$$;

-- Something must not surface any more: no memory that was drawn from it keeps its words, nor does any summary, of whatever time, of
-- the sessions that said it, nor a memory block. (Blocks go with their epoch: two further, so that it is no rebase's that is under
-- way.)
CREATE FUNCTION agent_data.forget_derived(p_tenant uuid, p_user uuid, p_item uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    sessions uuid[];
    said     uuid[];
    drawn    uuid[];
BEGIN
    SELECT m.source_message_ids INTO said FROM agent_data.memory_store m
    WHERE m.user_id = p_user AND m.memory_id = p_item AND m.tenant_id = p_tenant;
    UPDATE agent_data.consolidation_state c SET version = c.version + 1, due_at = COALESCE(c.due_at, now())
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant;
    SELECT array_agg(DISTINCT h.session_id) INTO sessions FROM agent_data.conversation_history h
    WHERE h.user_id = p_user AND h.tenant_id = p_tenant AND h.message_id = ANY (said || p_item);
    IF sessions IS NOT NULL THEN
        PERFORM agent_data.drop_session_summaries(p_tenant, p_user, sessions);
    END IF;
    DELETE FROM agent_data.memory_store_working w WHERE w.user_id = p_user AND w.tenant_id = p_tenant;
    DELETE FROM agent_data.episodes e
    WHERE e.user_id = p_user AND e.tenant_id = p_tenant AND e.message_id = p_item;
    SELECT array_agg(x.memory_id) INTO drawn FROM (
        SELECT m.memory_id FROM agent_data.derived_from(p_tenant, p_user, p_item) d
        JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = d.memory_id AND m.status <> 'forgotten'
        UNION
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.session_id = ANY (sessions) AND m.kind = 'summary'
          AND m.details ->> 'scope_type' = 'session_window' AND m.status <> 'forgotten'
    ) x;
    IF drawn IS NOT NULL THEN
        PERFORM agent_data.void_memories(p_tenant, p_user, drawn, now());
        INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, actor)
        SELECT p_user, p_tenant, d, 'deleted', 'system' FROM unnest(drawn) AS d;
    END IF;
    WITH quoting AS (
        DELETE FROM agent_data.context_blocks b
        WHERE b.tenant_id = p_tenant AND b.user_id = p_user AND b.item_ids && (drawn || p_item)
        RETURNING b.session_id
    )
    UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2
    WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
    -- What is of a shared space stands in its members' blocks.
    IF EXISTS (SELECT FROM agent_data.spaces x WHERE x.user_id = p_user AND x.tenant_id = p_tenant) THEN
        WITH quoting AS (
            DELETE FROM agent_data.context_blocks b
            WHERE b.tenant_id = p_tenant AND b.item_spaces IS NOT NULL AND b.item_ids && (drawn || p_item)
            RETURNING b.user_id, b.session_id
        )
        UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2
        WHERE s.tenant_id = p_tenant AND (s.user_id, s.session_id) IN (SELECT q.user_id, q.session_id FROM quoting q);
    END IF;
END $$;

CREATE FUNCTION agent_data.on_suppressed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM agent_data.forget_derived(NEW.tenant_id, NEW.user_id, NEW.item_id);
    RETURN NULL;
END $$;

-- Superseded is not gone (see `outdate_derived`), and `resent` was never summarised.
CREATE TRIGGER forget_derived AFTER INSERT OR UPDATE ON agent_data.suppressions
    FOR EACH ROW WHEN (NEW.reason NOT IN ('superseded', 'resent'))
    EXECUTE FUNCTION agent_data.on_suppressed();

-- Something is not so any more, or says something else: what says so on its authority, or on that of a wording that led to it,
-- is not in force, either, until it is drawn together anew.
CREATE FUNCTION agent_data.outdate_derived(p_tenant uuid, p_user uuid, p_memory uuid, p_sources jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    sessions uuid[];
BEGIN
    UPDATE agent_data.consolidation_state c SET version = c.version + 1, due_at = COALESCE(c.due_at, now())
    WHERE c.user_id = p_user AND c.tenant_id = p_tenant;
    SELECT array_agg(DISTINCT (s.source ->> 'session_id')::uuid) INTO sessions
    FROM jsonb_array_elements(p_sources) AS s (source) WHERE s.source ->> 'session_id' IS NOT NULL;
    IF sessions IS NOT NULL THEN
        PERFORM agent_data.drop_session_summaries(p_tenant, p_user, sessions);
    END IF;
    DELETE FROM agent_data.memory_store_working w WHERE w.user_id = p_user AND w.tenant_id = p_tenant;
    WITH sources AS (
        SELECT p_memory AS memory_id
        UNION
        SELECT v.memory_id FROM agent_data.memory_store v WHERE v.user_id = p_user AND v.superseded_by = p_memory
    ), outdated AS (
        UPDATE agent_data.memory_store m SET status = 'invalidated', valid_to = now(), updated_at = now()
        FROM (SELECT DISTINCT d.memory_id FROM sources s, agent_data.derived_from(p_tenant, p_user, s.memory_id) d) d
        WHERE m.user_id = p_user AND m.memory_id = d.memory_id AND m.is_active
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, event, before, after, actor)
    SELECT p_user, p_tenant, o.memory_id, 'invalidated', '{"status": "active"}',
           '{"status": "invalidated", "reason": "a source changed"}', 'system'
    FROM outdated o;
END $$;

CREATE FUNCTION agent_data.on_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM agent_data.outdate_derived(NEW.tenant_id, NEW.user_id, NEW.memory_id, OLD.sources);
    RETURN NULL;
END $$;

CREATE TRIGGER outdate_derived AFTER UPDATE OF status, content_text ON agent_data.memory_store
    FOR EACH ROW WHEN (OLD.status IN ('active', 'aging') AND NOT agent_data.drawn(NEW.kind)
        AND (NEW.status = 'invalidated' OR NEW.status = 'superseded' AND NEW.superseded_how IS DISTINCT FROM 'merged'
             OR NEW.content_hash <> OLD.content_hash AND NEW.status <> 'forgotten'))
    EXECUTE FUNCTION agent_data.on_outdated();

-- Session-end work and compaction that is due, some of it: jobs in the queue, one for each session at most. A user has at most
-- `p_each` of them at a time. How many.
CREATE FUNCTION agent_data.enqueue_sessions(
    p_entrypoint text, p_before timestamptz, p_each integer, p_limit integer
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    jobs agent_data.job_record[];
BEGIN
    SELECT array_agg(ROW(p_entrypoint, convert_to(jsonb_build_object(
               'tenant', y.tenant_id, 'user', y.user_id, 'session', y.session_id, 'id', gen_random_uuid())::text, 'UTF8'),
               p_entrypoint || ':' || y.session_id, 0)::agent_data.job_record)
    INTO jobs
    FROM (
        SELECT x.* FROM (
            SELECT w.*, row_number() OVER (PARTITION BY w.user_id ORDER BY w.touched_at, w.session_id) AS n
            FROM agent_data.session_work w
            JOIN agent_data.sessions s ON s.user_id = w.user_id AND s.session_id = w.session_id
            WHERE w.pending AND s.status <> 2  -- one that is paused waits
              AND CASE p_entrypoint
                  WHEN 'session_end' THEN w.touched_at <= p_before
                  ELSE s.context_window_size > 0 AND w.active_tokens > 2 * s.context_window_size END
              -- One that waits or runs stands for both; one that failed for good is not tried again and again.
              AND NOT EXISTS (SELECT FROM agent_data.pgqueuer q WHERE q.dedupe_key = p_entrypoint || ':' || w.session_id)
        ) x
        WHERE x.n <= p_each ORDER BY x.touched_at LIMIT p_limit
    ) y;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM agent_data.enqueue(jobs);
    RETURN cardinality(jobs);
END $$;

-- Users with something to draw together since `p_before`: a job each. How many.
CREATE FUNCTION agent_data.enqueue_users(p_before timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    jobs agent_data.job_record[];
BEGIN
    SELECT array_agg(ROW('consolidate', convert_to(jsonb_build_object(
               'tenant', x.tenant_id, 'user', x.user_id, 'id', gen_random_uuid())::text, 'UTF8'),
               'consolidate:' || x.user_id, 0)::agent_data.job_record)
    INTO jobs
    FROM (SELECT c.* FROM agent_data.consolidation_state c
          WHERE c.due_at <= p_before AND NOT EXISTS (
              SELECT FROM agent_data.pgqueuer q WHERE q.dedupe_key = 'consolidate:' || c.user_id)
          ORDER BY c.due_at LIMIT p_limit) x;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM agent_data.enqueue(jobs);
    RETURN cardinality(jobs);
END $$;

-- The summary of a session is a memory of kind `summary`, found as any other: its scope is `session_window` (seed 004, table 7: scope_type),
-- its `session_id` the session, its sources what it was drawn from. `sessions.summary_text` stays what a prompt of the session itself
-- shows. Both go, in one transaction, when something in the session is forgotten, or is not so any more.
CREATE INDEX memory_session_summary ON agent_data.memory_store (user_id, session_id)
    WHERE kind = 'summary' AND session_id IS NOT NULL;

-- Whether a memory is the summary of a session.
CREATE FUNCTION agent_data.of_session(p_kind text, p_session uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_kind = 'summary' AND p_session IS NOT NULL
$$;

-- In the place of a memory (see `item_place`) the role says what it sums up: 10 a session, 11 anything else, 9 nothing. NULL: 9.
CREATE FUNCTION agent_data.summary_mark(p_kind text, p_session uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN agent_data.of_session(p_kind, p_session) THEN 10 WHEN p_kind IN ('summary', 'entity_profile') THEN 11 END::smallint
$$;
