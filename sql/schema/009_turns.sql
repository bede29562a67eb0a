-- The one write of turns: the calls, their streams, their compilations, the messages, the sessions' totals, the heads that the
-- next transcript is recognised by, the vectors, the jobs and the use of memories, in one statement. The types are what the
-- recorder sends.
CREATE TYPE agent_data.call_record AS (
    call_id uuid, tenant_id uuid, user_id uuid, session_id uuid, created_at timestamptz, method text, path text, upstream text,
    model text, answered_model text, streamed boolean, status smallint, outcome smallint, memory_status text, reason text,
    request_headers text, response_headers text,
    request_body bytea, request_truncated boolean,
    request_prefix bytea, request_suffix bytea, request_chain bytea, request_count integer, request_sha256 bytea,
    request_bytes bigint,
    sent_prefix bytea, sent_suffix bytea, sent_chain bytea, sent_count integer, sent_sha256 bytea,
    prompt_tokens integer, completion_tokens integer, cached_tokens integer, usage_counted boolean, cost_microcents bigint,
    latency_ms integer, first_byte_us bigint, overhead_us bigint, idempotency_key text, repeat_key bytea, retry_count smallint,
    error text, metadata text, key_id uuid, priced boolean,
    labels text[]  -- sorted, each once; NULL: none
);

CREATE TYPE agent_data.session_record AS (
    session_id uuid, user_external_id text, external_id text, route_id uuid, parent_session_id uuid, branch_turn_index integer,
    model_id text, context_window_size integer, system_prompt text, system_prompt_hash bytea, system_prompt_tokens integer,
    temperature real, top_p real, max_response_tokens integer, session_type text, expires_at timestamptz,
    head_message_id uuid, head_chain bytea, tail1 bytea, tail2 bytea, block_epoch integer
);

CREATE TYPE agent_data.message_record AS (
    message_id uuid, turn_index integer, parent_message_id uuid, role smallint, content text, content_parts text, name text,
    tool_calls text, tool_call_id text, content_hash bytea, message_hash bytea, token_count integer, model_id text,
    finish_reason smallint, prompt_tokens integer, completion_tokens integer, latency_ms integer, created_at timestamptz,
    metadata text,
    hidden boolean,                         -- never to be found by a search: said while Mneme was asked to learn nothing
    reasoning text
);

-- Where the messages of a turn come to stand. `fresh`: how many take the session's next places. `beside`: the highest place named
-- by one that stands beside another, else 0. The head's place is `head_index`, or the `head_ahead`th of the fresh ones.
CREATE TYPE agent_data.place_record AS (
    fresh integer, beside integer, head_index integer, head_ahead integer, first_at timestamptz, last_at timestamptz
);

CREATE TYPE agent_data.job_record AS (entrypoint text, payload bytea, dedupe_key text, delay_s real);

-- The write of turns: fewer arguments, of types that say which turn they belong to and that are NULL where there is none, and fewer
-- statements. A message brings its vector and its terms along, and what indexes know of it is written with it, not by triggers.

-- `turn`: which of the calls, from 1. A turn's session, and where its messages come to stand in it.
CREATE TYPE agent_data.turn_session AS (turn integer, session agent_data.session_record, place agent_data.place_record);

CREATE TYPE agent_data.turn_stream AS (
    turn integer, body bytea, truncated boolean, chunk_offsets integer[], chunk_times bigint[], event_offsets integer[],
    event_times bigint[]
);

CREATE TYPE agent_data.turn_compilation AS (turn integer, audit text, eta real);

CREATE TYPE agent_data.turn_blob AS (turn integer, blob_hash bytea, body bytea);

CREATE TYPE agent_data.turn_chain AS (turn integer, chain_hash bytea, parent_hash bytea, blobs bytea, lead bytea);

-- As `message_record`. `ahead`: it is the how many-th of the fresh ones, or stands beside that; `sibling`: its number among those of
-- the turn at the same place.
CREATE TYPE agent_data.turn_message AS (
    turn integer, ahead integer, sibling integer,
    message_id uuid, turn_index integer, parent_message_id uuid, role smallint, content text, content_parts text, name text,
    tool_calls text, tool_call_id text, content_hash bytea, message_hash bytea, token_count integer, model_id text,
    finish_reason smallint, prompt_tokens integer, completion_tokens integer, latency_ms integer, created_at timestamptz,
    metadata text, hidden boolean, reasoning text,
    terms bytea, space smallint, vector public.halfvec
);

-- From where the next transcript is recognised: the chains are positions from which the next request is likely to go on (see
-- request_chains). `index`: its place, where that is known; else it is that of the `ahead`th of the fresh messages.
CREATE TYPE agent_data.turn_head AS (
    turn integer, index integer, ahead integer,
    chain_hash bytea, message_id uuid, asked boolean, request_chain bytea, request_count integer, sent_chain bytea,
    sent_count integer, visible_from integer
);

CREATE TYPE agent_data.turn_block AS (
    turn integer, epoch integer, message_id uuid, chain_hash bytea, message_hash bytea, text text, item_ids uuid[],
    token_count integer, item_spaces uuid[]
);

CREATE TYPE agent_data.turn_job AS (turn integer, entrypoint text, payload bytea, dedupe_key text, delay_s real);

-- The memories of a user that were of use, in their order: how often each, and the sum of its scores.
CREATE TYPE agent_data.memory_uses AS (user_id uuid, items uuid[], times integer[], scores real[]);

-- Counts a session on and gives it its new head, made with its user where it is new. Returns how many messages it has then, and
-- the time of its first and last; `gone`: it was deleted after `p_at`, when this began. What begins later opens it again. Runs as its
-- caller does, in the caller's search path.
CREATE FUNCTION agent_data.move_session(
    p_tenant uuid, p_user uuid, p_session agent_data.session_record, p_place agent_data.place_record,
    p_prompt_tokens integer, p_completion_tokens integer, p_cost bigint, p_at timestamptz,
    OUT total integer, OUT began timestamptz, OUT ended timestamptz, OUT gone boolean
) LANGUAGE plpgsql AS $$
DECLARE
    made boolean := NOT EXISTS (
        SELECT FROM agent_data.sessions s WHERE s.user_id = p_user AND s.session_id = p_session.session_id);
BEGIN
    -- Two requests may bring the same new session at once: the second waits for the first, and counts on.
    INSERT INTO agent_data.sessions AS s (
        session_id, user_id, tenant_id, external_id, expires_at, session_type, model_id, context_window_size,
        system_prompt_hash, system_prompt_tokens, temperature, top_p, max_response_tokens, parent_session_id,
        branch_turn_index, turn_count, total_prompt_tokens, total_completion_tokens, total_cost_microcents, head_message_id,
        head_turn_index, head_chain, tail1, tail2, block_epoch, first_message_at, last_message_at)
    VALUES (
        p_session.session_id, p_user, p_tenant, p_session.external_id, p_session.expires_at,
        COALESCE(p_session.session_type, 'conversation'), COALESCE(p_session.model_id, ''),
        COALESCE(p_session.context_window_size, 0), p_session.system_prompt_hash, COALESCE(p_session.system_prompt_tokens, 0),
        p_session.temperature, p_session.top_p, COALESCE(p_session.max_response_tokens, 4096), p_session.parent_session_id,
        p_session.branch_turn_index, GREATEST(COALESCE(p_session.branch_turn_index, 0) + p_place.fresh, p_place.beside),
        COALESCE(p_prompt_tokens, 0), COALESCE(p_completion_tokens, 0), COALESCE(p_cost, 0), p_session.head_message_id,
        CASE WHEN p_session.head_message_id IS NULL THEN 0
             ELSE COALESCE(p_place.head_index, COALESCE(p_session.branch_turn_index, 0) + p_place.head_ahead) END,
        p_session.head_chain, p_session.tail1, CASE WHEN p_session.tail1 IS NOT NULL THEN p_session.tail2 END,
        GREATEST(p_session.block_epoch, 0), p_place.first_at, p_place.last_at)
    ON CONFLICT (user_id, session_id) DO UPDATE SET
        -- An answer to a question that had none stands where the next message would have stood.
        turn_count = GREATEST(s.turn_count + p_place.fresh, p_place.beside),
        updated_at = EXCLUDED.updated_at,
        expires_at = EXCLUDED.expires_at,
        status = CASE WHEN s.status = 4 OR (s.ended_at = s.deleted_at AND s.deleted_at <= p_at) THEN 1 ELSE s.status END,
        ended_at = CASE WHEN s.ended_at = s.deleted_at AND s.deleted_at <= p_at THEN NULL ELSE s.ended_at END,
        model_id = COALESCE(p_session.model_id, s.model_id),
        context_window_size = COALESCE(p_session.context_window_size, s.context_window_size),
        system_prompt_hash = COALESCE(EXCLUDED.system_prompt_hash, s.system_prompt_hash),
        system_prompt_tokens = COALESCE(p_session.system_prompt_tokens, s.system_prompt_tokens),
        temperature = COALESCE(EXCLUDED.temperature, s.temperature),
        top_p = COALESCE(EXCLUDED.top_p, s.top_p),
        max_response_tokens = COALESCE(p_session.max_response_tokens, s.max_response_tokens),
        total_prompt_tokens = s.total_prompt_tokens + EXCLUDED.total_prompt_tokens,
        total_completion_tokens = s.total_completion_tokens + EXCLUDED.total_completion_tokens,
        total_cost_microcents = s.total_cost_microcents + EXCLUDED.total_cost_microcents,
        head_message_id = COALESCE(EXCLUDED.head_message_id, s.head_message_id),
        head_turn_index = CASE WHEN EXCLUDED.head_message_id IS NULL THEN s.head_turn_index
                               ELSE COALESCE(p_place.head_index, s.turn_count + p_place.head_ahead) END,
        head_chain = COALESCE(EXCLUDED.head_chain, s.head_chain),
        tail1 = COALESCE(EXCLUDED.tail1, s.tail1),
        tail2 = CASE WHEN EXCLUDED.tail1 IS NULL THEN s.tail2 ELSE EXCLUDED.tail2 END,
        -- A turn that was under way while something was forgotten does not bring its epoch back.
        block_epoch = GREATEST(EXCLUDED.block_epoch, s.block_epoch),
        first_message_at = LEAST(s.first_message_at, EXCLUDED.first_message_at),
        last_message_at = GREATEST(s.last_message_at, EXCLUDED.last_message_at)
    RETURNING s.turn_count, s.first_message_at, s.last_message_at, s.deleted_at > p_at INTO total, began, ended, gone;
    IF made THEN
        INSERT INTO agent_data.users (user_id, tenant_id, external_id)
        VALUES (p_user, p_tenant, p_session.user_external_id) ON CONFLICT DO NOTHING;
        INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
        SELECT p_tenant, r, p_user, 'session', p_session.session_id
        FROM unnest(ARRAY[p_session.session_id, p_session.route_id]) AS r WHERE r IS NOT NULL
        ON CONFLICT DO NOTHING;
    END IF;
    -- To the minute: nobody looks closer, and most turns need not write the row.
    UPDATE agent_data.users u SET last_active = ended
    WHERE u.user_id = p_user AND u.last_active < ended - interval '1 minute';
END $$;

-- Adds messages to a session. `turn_index` of a message: NULL takes the session's next (by UPDATE … RETURNING), 0 stands beside
-- the message before it (another choice of the same answer), a number beside what stands there (a regenerated answer).
-- Makes the user and the session where they are new. Returns where each message came to stand.
CREATE FUNCTION agent_data.append_messages(
    p_tenant uuid, p_user uuid, p_session agent_data.session_record, p_messages agent_data.message_record[],
    p_call uuid, p_prompt_tokens integer, p_completion_tokens integer, p_cost bigint
) RETURNS TABLE (placed_id uuid, placed_index integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    fresh      integer;
    beside     integer;
    total      integer;
    head_index integer;
    head_ahead integer;
    began      timestamptz;
    ended      timestamptz;
BEGIN
    SELECT count(*) FILTER (WHERE m.turn_index IS NULL), COALESCE(max(m.turn_index), 0) INTO fresh, beside
    FROM unnest(p_messages) m;
    SELECT NULLIF(x.turn_index, 0), x.ahead INTO head_index, head_ahead FROM (
        SELECT m.message_id, m.turn_index, count(*) FILTER (WHERE m.turn_index IS NULL) OVER (ORDER BY m.n) AS ahead
        FROM unnest(p_messages) WITH ORDINALITY AS m (
            message_id, turn_index, parent_message_id, role, content, content_parts, name, tool_calls, tool_call_id,
            content_hash, message_hash, token_count, model_id, finish_reason, prompt_tokens, completion_tokens, latency_ms,
            created_at, metadata, hidden, reasoning, n)
    ) x WHERE x.message_id = p_session.head_message_id;
    IF p_session.system_prompt IS NOT NULL THEN
        INSERT INTO agent_data.system_prompts (tenant_id, prompt_hash, prompt, token_count)
        VALUES (p_tenant, p_session.system_prompt_hash, p_session.system_prompt, p_session.system_prompt_tokens)
        ON CONFLICT DO NOTHING;
    END IF;

    SELECT t.total, t.began, t.ended INTO total, began, ended
    FROM agent_data.move_session(p_tenant, p_user, p_session, ROW(
        fresh, beside, head_index, head_ahead,
        (SELECT min(m.created_at) FROM unnest(p_messages) m), (SELECT max(m.created_at) FROM unnest(p_messages) m)
    )::agent_data.place_record, p_prompt_tokens, p_completion_tokens, p_cost, 'infinity') t;

    RETURN QUERY
    WITH placed AS (
        SELECT m.*, CASE WHEN m.turn_index > 0 THEN m.turn_index
                    ELSE total - fresh + (count(*) FILTER (WHERE m.turn_index IS NULL) OVER (ORDER BY m.n))::integer
                    END AS place
        FROM unnest(p_messages) WITH ORDINALITY AS m (
            message_id, turn_index, parent_message_id, role, content, content_parts, name, tool_calls, tool_call_id,
            content_hash, message_hash, token_count, model_id, finish_reason, prompt_tokens, completion_tokens, latency_ms,
            created_at, metadata, hidden, reasoning, n)
    ), inserted AS (
        INSERT INTO agent_data.conversation_history (
            message_id, session_id, user_id, tenant_id, turn_index, sibling, parent_message_id, role, content, content_parts,
            name, tool_calls, tool_call_id, content_hash, message_hash, token_count, model_id, finish_reason,
            prompt_tokens, completion_tokens, latency_ms, call_id, created_at, metadata, hidden, reasoning)
        SELECT p.message_id, p_session.session_id, p_user, p_tenant, p.place,
               row_number() OVER (PARTITION BY p.place ORDER BY p.n) - 1 + CASE WHEN p.turn_index > 0 THEN (
                   SELECT count(*) FROM agent_data.conversation_history h
                   WHERE h.user_id = p_user AND h.session_id = p_session.session_id AND h.turn_index = p.turn_index
                     AND h.created_at >= began AND h.created_at <= ended
               ) ELSE 0 END,
               p.parent_message_id, p.role, p.content, p.content_parts::jsonb, p.name, p.tool_calls::jsonb, p.tool_call_id,
               p.content_hash, p.message_hash,
               p.token_count, p.model_id, p.finish_reason, p.prompt_tokens, p.completion_tokens, p.latency_ms, p_call,
               p.created_at, COALESCE(p.metadata::jsonb, '{}'), p.hidden IS TRUE, p.reasoning::jsonb
        FROM placed p
        ON CONFLICT DO NOTHING
        RETURNING message_id, turn_index
    )
    SELECT i.message_id, i.turn_index FROM inserted i;
END $$;

-- Vectors of new items.
CREATE FUNCTION agent_data.add_vectors(
    p_tenant uuid, p_user uuid, p_space smallint, p_kind smallint, p_items uuid[], p_ats timestamptz[], p_vectors halfvec[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    many boolean;
BEGIN
    SELECT u.use_hnsw INTO many FROM agent_data.users u WHERE u.user_id = p_user;
    INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector)
    SELECT p_user, p_tenant, p_space, v.item, p_kind, v.at, COALESCE(many, false), v.vector
    FROM unnest(p_items, p_ats, p_vectors) AS v (item, at, vector)
    ON CONFLICT DO NOTHING;
END $$;

-- Puts jobs into the queue within the same transaction; one that waits already under the same dedupe key stands for both.
-- (plpgsql, because the queue's tables are made by its own library, after these files.)
CREATE FUNCTION agent_data.enqueue(p_jobs agent_data.job_record[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    INSERT INTO agent_data.pgqueuer (priority, entrypoint, payload, dedupe_key, execute_after, status)
    SELECT 0, j.entrypoint, j.payload, j.dedupe_key, now() + make_interval(secs => COALESCE(j.delay_s, 0)), 'queued'
    FROM unnest(p_jobs) j
    ON CONFLICT DO NOTHING;
END $$;

-- What a job has done, written in the transaction of its effects: a job that runs again after a lost lease does nothing.
CREATE TABLE agent_data.job_effects (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    job_key   text NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, job_key)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('job_effects', current_setting('mneme.hash_partitions')::int);

-- What the helper LLM was used for, by day: all users and processes together, so that a budget of tokens holds for the whole
-- installation. Nobody's in particular.
CREATE TABLE agent_data.helper_days (
    day           date PRIMARY KEY,
    calls         bigint NOT NULL DEFAULT 0,
    tokens        bigint NOT NULL DEFAULT 0,
    messages      bigint NOT NULL DEFAULT 0,  -- of users that it read
    unread_budget bigint NOT NULL DEFAULT 0,  -- that it did not, because the day's tokens were spent
    unread_shape  bigint NOT NULL DEFAULT 0,  -- that it did not, because its answers had another shape
    unread_away   bigint NOT NULL DEFAULT 0   -- that it did not, because it never answered
);

-- Notes a call under its repeat key (user, Idempotency-Key, session named, body): the first one, until one of them was answered.
-- Where another process answered the same request meanwhile, `repeated`, and `session_id` is where its turn stands: a second one
-- is not to be added. Whoever comes second waits at the key's row for the first one's transaction.
CREATE FUNCTION agent_data.note_key(p_call agent_data.call_record, OUT repeated boolean, OUT session_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    earlier uuid;
BEGIN
    repeated := false;
    session_id := p_call.session_id;
    INSERT INTO agent_data.idempotency_keys (tenant_id, user_id, key_hash, call_id)
    VALUES (p_call.tenant_id, p_call.user_id, p_call.repeat_key, p_call.call_id)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT k.call_id INTO earlier FROM agent_data.idempotency_keys k
    WHERE k.user_id = p_call.user_id AND k.key_hash = p_call.repeat_key AND k.tenant_id = p_call.tenant_id FOR UPDATE;
    SELECT true, c.session_id INTO repeated, session_id FROM agent_data.upstream_calls c
    WHERE c.call_id = earlier AND c.user_id = p_call.user_id AND c.tenant_id = p_call.tenant_id
      AND c.call_id <> p_call.call_id AND c.outcome = 0 AND c.status BETWEEN 200 AND 299;
    IF NOT FOUND THEN
        repeated := false;
        session_id := p_call.session_id;
    END IF;
    IF p_call.outcome = 0 AND p_call.status BETWEEN 200 AND 299 THEN
        UPDATE agent_data.idempotency_keys k SET call_id = p_call.call_id
        WHERE k.user_id = p_call.user_id AND k.key_hash = p_call.repeat_key AND k.tenant_id = p_call.tenant_id;
    END IF;
END $$;

-- The inner (mask 54) or the outer (92) padded key of HMAC-SHA256 (RFC 2104): HMAC(key, m) = sha256(outer || sha256(inner || m)).
CREATE FUNCTION agent_data.hmac_pad(key bytea, mask integer)
RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_agg(set_byte('\x00', 0, CASE WHEN n < length(k.short) THEN get_byte(k.short, n) ELSE 0 END # mask), '' ORDER BY n)
    FROM (SELECT CASE WHEN length(key) > 64 THEN sha256(key) ELSE key END AS short) k, generate_series(0, 63) n
$$;

-- What is recorded of a turn whose session was deleted while it was under way: what a deletion leaves of messages (`deleting.blank`,
-- `memories.suppress`).
CREATE FUNCTION agent_data.bury_messages(p_messages agent_data.turn_message[], p_turn integer, p_tenant uuid, p_user uuid)
RETURNS agent_data.turn_message[] LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    key     bytea := decode((SELECT c.value #>> '{}' FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'), 'hex');
    message agent_data.turn_message;
BEGIN
    FOR n IN 1 .. cardinality(p_messages) LOOP
        message := p_messages[n];
        CONTINUE WHEN message.turn <> p_turn;
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac)
        VALUES (p_user, p_tenant, message.message_id, 'deleted', sha256(
            agent_data.hmac_pad(key, 92) || sha256(agent_data.hmac_pad(key, 54) || message.content_hash)))
        ON CONFLICT DO NOTHING;
        message.content := NULL;
        message.content_parts := NULL;
        message.name := NULL;
        message.tool_calls := NULL;
        message.tool_call_id := NULL;
        message.content_hash := NULL;
        message.metadata := NULL;
        message.reasoning := NULL;
        message.hidden := true;
        message.vector := NULL;
        p_messages[n] := message;
    END LOOP;
    RETURN p_messages;
END $$;

-- Records calls, all or none. False for a single call that is stored already, and for several that all are: a record that comes
-- twice leaves one. Several of which some are stored fail with unique_violation, and are sent one by one.
--
--   p_user   to whom all of them belong; NULL: there are several (Citus sends a call with one to that user's node)
--   p_keyed  which have a repeat key, in the order of users and keys
--   others   what belongs to the calls, each saying to which; NULL: there is none
--
-- Whatever may have to wait for another transaction is taken table by table and in the order of its keys, so that two
-- transactions cannot wait for each other in a circle; the caller has put the calls in the order of users and sessions.
-- Plans do not depend on the values: made anew each time (which partitions to open is what tempts Postgres) they cost more
-- than what they do.
CREATE FUNCTION agent_data.record_turns(
    p_user uuid, p_calls agent_data.call_record[], p_ids uuid[], p_tenants uuid[], p_users uuid[], p_session_ids uuid[],
    p_keyed integer[], p_streams agent_data.turn_stream[], p_blobs agent_data.turn_blob[], p_chains agent_data.turn_chain[],
    p_compilations agent_data.turn_compilation[], p_sessions agent_data.turn_session[], p_messages agent_data.turn_message[],
    p_heads agent_data.turn_head[], p_blocks agent_data.turn_block[], p_jobs agent_data.turn_job[],
    p_uses agent_data.memory_uses[], p_used_at timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = agent_data, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    many     integer := cardinality(p_calls);
    repeats  boolean[] := array_fill(false, ARRAY[many]);
    sessions uuid[] := p_session_ids;
    bases    integer[] := array_fill(0, ARRAY[many]);
    begans   timestamptz[];
    endeds   timestamptz[];
    graphs   boolean[] := array_fill(false, ARRAY[many]);
    gones    boolean[] := array_fill(false, ARRAY[many]);
    burying  boolean := false;
    before   integer[];
    call     agent_data.call_record;
    moved    agent_data.turn_session;
    used     agent_data.memory_uses;
    stored   integer;
    total    integer;
    began    timestamptz;
    ended    timestamptz;
    graph    boolean;
    buried   boolean;
    gone     boolean;
    again    boolean;
    there    uuid;
    wanted   uuid[];
    i        integer;
BEGIN
    IF p_keyed IS NOT NULL THEN
        FOREACH i IN ARRAY p_keyed LOOP
            call := p_calls[i];
            SELECT n.repeated, n.session_id INTO again, there FROM agent_data.note_key(call) n;
            repeats[i] := again;
            sessions[i] := there;
        END LOOP;
    END IF;
    -- The call row comes before all else, which hangs on it.
    INSERT INTO agent_data.upstream_calls (
        call_id, tenant_id, user_id, session_id, created_at, method, path, upstream, model, answered_model, streamed, status,
        outcome, memory_status, reason, request_headers, response_headers, request_body, request_truncated, request_prefix,
        request_suffix, request_chain, request_count, request_sha256, request_bytes, sent_prefix, sent_suffix, sent_chain,
        sent_count, sent_sha256, prompt_tokens, completion_tokens, cached_tokens, usage_counted, cost_microcents, latency_ms,
        first_byte_us, overhead_us, idempotency_key, retry_count, error, metadata, key_id, priced, labels)
    SELECT
        c.call_id, c.tenant_id, c.user_id, sessions[c.ordinality], c.created_at, c.method, c.path, c.upstream, c.model,
        c.answered_model, c.streamed, c.status, c.outcome, c.memory_status, c.reason, c.request_headers::json,
        c.response_headers::json, c.request_body, c.request_truncated, c.request_prefix, c.request_suffix, c.request_chain,
        c.request_count, c.request_sha256, c.request_bytes, c.sent_prefix, c.sent_suffix, c.sent_chain, c.sent_count,
        c.sent_sha256, c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.usage_counted, c.cost_microcents,
        c.latency_ms, c.first_byte_us, c.overhead_us, c.idempotency_key, c.retry_count, c.error,
        COALESCE(c.metadata, '{}')::json, c.key_id, COALESCE(c.priced, true), c.labels
    FROM unnest(p_calls) WITH ORDINALITY c
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored = 0 THEN
        RETURN false;
    ELSIF stored < many THEN
        RAISE EXCEPTION 'some of these calls are stored already' USING ERRCODE = 'unique_violation';
    END IF;
    IF p_streams IS NOT NULL THEN
        INSERT INTO agent_data.streams (
            call_id, tenant_id, user_id, body, truncated, chunk_offsets, chunk_times, event_offsets, event_times)
        SELECT p_ids[s.turn], p_tenants[s.turn], p_users[s.turn], s.body, s.truncated, s.chunk_offsets, s.chunk_times,
               s.event_offsets, s.event_times
        FROM unnest(p_streams) s;
    END IF;
    IF p_blobs IS NOT NULL THEN
        INSERT INTO agent_data.message_blobs (user_id, tenant_id, blob_hash, body)
        SELECT p_users[b.turn], p_tenants[b.turn], b.blob_hash, b.body FROM unnest(p_blobs) b
        ORDER BY 1, 3
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_chains IS NOT NULL THEN
        INSERT INTO agent_data.request_chains (user_id, tenant_id, chain_hash, parent_hash, blobs, lead)
        SELECT p_users[c.turn], p_tenants[c.turn], c.chain_hash, c.parent_hash, c.blobs, c.lead FROM unnest(p_chains) c
        ORDER BY 1, 3
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_compilations IS NOT NULL THEN
        INSERT INTO agent_data.compilations (call_id, tenant_id, user_id, session_id, audit, eta)
        SELECT p_ids[c.turn], p_tenants[c.turn], p_users[c.turn], sessions[c.turn], c.audit::json, c.eta
        FROM unnest(p_compilations) c;
    END IF;

    IF p_sessions IS NOT NULL THEN
        INSERT INTO agent_data.system_prompts (tenant_id, prompt_hash, prompt, token_count)
        SELECT p_tenants[s.turn], (s.session).system_prompt_hash, (s.session).system_prompt, (s.session).system_prompt_tokens
        FROM unnest(p_sessions) s WHERE (s.session).system_prompt IS NOT NULL AND NOT repeats[s.turn]
        ORDER BY 1, 2
        ON CONFLICT DO NOTHING;
        FOREACH moved IN ARRAY p_sessions LOOP
            i := moved.turn;
            CONTINUE WHEN repeats[i];
            call := p_calls[i];
            SELECT t.total, t.began, t.ended, t.gone INTO total, began, ended, gone
            FROM agent_data.move_session(call.tenant_id, call.user_id, moved.session, moved.place, call.prompt_tokens,
                                         call.completion_tokens, call.cost_microcents, call.created_at) t;
            IF gone THEN
                gones[i] := true;
                p_messages := agent_data.bury_messages(p_messages, i, call.tenant_id, call.user_id);
            END IF;
            bases[i] := total - (moved.place).fresh;
            IF (moved.place).beside > 0 THEN
                begans[i] := began;
                endeds[i] := ended;
            END IF;
            SELECT (SELECT u.use_hnsw FROM agent_data.users u WHERE u.user_id = call.user_id),
                   EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = call.user_id AND x.reason = 'deleted')
                   OR EXISTS (SELECT FROM agent_data.erased_contents x WHERE x.user_id = call.user_id)
            INTO graph, buried;
            graphs[i] := COALESCE(graph, false);
            burying := burying OR buried;
        END LOOP;
    END IF;
    IF p_messages IS NOT NULL THEN
        IF begans IS NOT NULL THEN
            -- What stands there already. (No batch has a session twice.)
            SELECT array_agg(x.many ORDER BY x.n) INTO before FROM (
                SELECT m.ordinality AS n, CASE WHEN m.turn_index > 0 THEN (
                    SELECT count(*) FROM agent_data.conversation_history h
                    WHERE h.user_id = COALESCE(p_user, p_users[m.turn]) AND h.session_id = sessions[m.turn]
                      AND h.turn_index = m.turn_index AND h.created_at >= begans[m.turn] AND h.created_at <= endeds[m.turn]
                ) ELSE 0 END::integer AS many
                FROM unnest(p_messages) WITH ORDINALITY AS m
            ) x;
        END IF;
        PERFORM set_config('mneme.recording', 'on', true);
        INSERT INTO agent_data.conversation_history (
            message_id, session_id, user_id, tenant_id, turn_index, sibling, parent_message_id, role, content, content_parts,
            name, tool_calls, tool_call_id, content_hash, message_hash, token_count, model_id, finish_reason,
            prompt_tokens, completion_tokens, latency_ms, call_id, created_at, metadata, hidden, reasoning)
        SELECT m.message_id, sessions[m.turn], p_users[m.turn], p_tenants[m.turn],
               CASE WHEN m.turn_index > 0 THEN m.turn_index ELSE bases[m.turn] + m.ahead END,
               m.sibling + COALESCE(before[m.ordinality], 0), m.parent_message_id, m.role, m.content, m.content_parts::jsonb,
               m.name, m.tool_calls::jsonb, m.tool_call_id, m.content_hash, m.message_hash,
               m.token_count, m.model_id, m.finish_reason, m.prompt_tokens, m.completion_tokens, m.latency_ms, p_ids[m.turn],
               m.created_at, COALESCE(m.metadata::jsonb, '{}'), m.hidden IS TRUE, m.reasoning::jsonb
        FROM unnest(p_messages) WITH ORDINALITY AS m
        WHERE NOT repeats[m.turn]
        ON CONFLICT DO NOTHING;
        -- What the trigger of a message would write, with the terms.
        INSERT INTO agent_data.index_items (user_id, item_id, tenant_id, item_kind, item_at, place, terms)
        SELECT p_users[m.turn], m.message_id, p_tenants[m.turn], 0, m.created_at,
               agent_data.item_place(
                   m.message_id, 0::smallint, m.created_at, sessions[m.turn],
                   CASE WHEN m.turn_index > 0 THEN m.turn_index ELSE bases[m.turn] + m.ahead END, m.role, m.token_count, m.name),
               m.terms
        FROM unnest(p_messages) m
        WHERE m.hidden IS NOT TRUE AND m.content <> '' AND NOT repeats[m.turn]
        ON CONFLICT DO NOTHING;
        INSERT INTO agent_data.index_log (user_id, tenant_id, item_id)
        SELECT p_users[m.turn], p_tenants[m.turn], m.message_id FROM unnest(p_messages) m
        WHERE m.hidden IS NOT TRUE AND m.content <> '' AND NOT repeats[m.turn]
        ON CONFLICT DO NOTHING;
    END IF;
    -- What says again what was deleted, or erased with the user, is not found from the start. (The job that learns looks once
    -- more, for what is deleted in between.)
    IF burying THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
        SELECT w.user_id, w.tenant_id, w.message_id, 'resent'
        FROM (
            SELECT p_users[m.turn] AS user_id, p_tenants[m.turn] AS tenant_id, m.message_id,
                   sha256(k.outer_pad || sha256(k.inner_pad || m.content_hash)) AS content_hmac
            FROM unnest(p_messages) AS m
            CROSS JOIN (
                SELECT agent_data.hmac_pad(decode(c.value #>> '{}', 'hex'), 54) AS inner_pad,
                       agent_data.hmac_pad(decode(c.value #>> '{}', 'hex'), 92) AS outer_pad
                FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'
                OFFSET 0  -- once, not for each message
            ) k
            WHERE NOT repeats[m.turn] AND m.content_hash IS NOT NULL
        ) w
        WHERE EXISTS (SELECT FROM agent_data.suppressions x
                      WHERE x.user_id = COALESCE(p_user, w.user_id) AND x.reason = 'deleted' AND x.content_hmac = w.content_hmac)
           OR EXISTS (SELECT FROM agent_data.erased_contents e
                      WHERE e.user_id = COALESCE(p_user, w.user_id) AND e.content_hmac = w.content_hmac)
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_heads IS NOT NULL THEN
        INSERT INTO agent_data.session_heads (
            user_id, tenant_id, chain_hash, session_id, message_id, turn_index, asked, visible_from, request_chain,
            request_count, sent_chain, sent_count)
        SELECT p_users[h.turn], p_tenants[h.turn], h.chain_hash, sessions[h.turn], h.message_id,
               COALESCE(h.index, bases[h.turn] + h.ahead), h.asked, COALESCE(h.visible_from, 1), h.request_chain,
               h.request_count, h.sent_chain, h.sent_count
        FROM unnest(p_heads) h
        WHERE NOT repeats[h.turn]
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_blocks IS NOT NULL THEN
        INSERT INTO agent_data.context_blocks (
            user_id, tenant_id, session_id, epoch, message_id, chain_hash, message_hash, text, item_ids, token_count,
            item_spaces)
        SELECT p_users[b.turn], p_tenants[b.turn], sessions[b.turn], b.epoch, b.message_id, b.chain_hash, b.message_hash,
               b.text, b.item_ids, b.token_count, b.item_spaces
        FROM unnest(p_blocks) b
        WHERE NOT repeats[b.turn]
          -- What was forgotten or deleted while the answer was on its way is not written down again.
          AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                          WHERE x.user_id = COALESCE(p_user, p_users[b.turn]) AND x.item_id = ANY (b.item_ids)
                            AND x.reason NOT IN ('superseded', 'resent'))
          AND (b.item_spaces IS NULL OR NOT EXISTS (
              SELECT FROM agent_data.gone_of_spaces(p_tenants[b.turn], p_users[b.turn], b.item_ids, b.item_spaces)))
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_messages IS NOT NULL THEN
        INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector)
        SELECT p_users[m.turn], p_tenants[m.turn], m.space, m.message_id, 0, m.created_at, graphs[m.turn], m.vector
        FROM unnest(p_messages) m
        WHERE m.vector IS NOT NULL AND NOT repeats[m.turn]
        ON CONFLICT DO NOTHING;
        PERFORM set_config('mneme.recording', '', true);
    END IF;
    IF p_jobs IS NOT NULL THEN  -- as `enqueue`
        INSERT INTO agent_data.pgqueuer (priority, entrypoint, payload, dedupe_key, execute_after, status)
        SELECT 0, j.entrypoint, j.payload, j.dedupe_key, now() + make_interval(secs => COALESCE(j.delay_s, 0)), 'queued'
        FROM unnest(p_jobs) j WHERE NOT repeats[j.turn] AND NOT gones[j.turn]
        ON CONFLICT DO NOTHING;
    END IF;
    -- Last, so that the locks of memories are held least. One that somebody else is changing is not waited for: a count that
    -- is lost matters less than answers that stand still.
    IF p_uses IS NOT NULL THEN
        FOREACH used IN ARRAY p_uses LOOP
            SELECT array_agg(x.memory_id) INTO wanted FROM (
                SELECT m.memory_id FROM agent_data.memory_store m
                WHERE m.user_id = used.user_id AND m.memory_id = ANY (used.items)
                ORDER BY m.memory_id
                FOR NO KEY UPDATE SKIP LOCKED
            ) x;
            UPDATE agent_data.memory_store m SET
                access_count = m.access_count + used.times[array_position(used.items, m.memory_id)],
                relevance_accumulator = m.relevance_accumulator + used.scores[array_position(used.items, m.memory_id)],
                last_accessed_at = GREATEST(m.last_accessed_at, p_used_at)
            WHERE m.user_id = used.user_id AND m.memory_id = ANY (wanted);
        END LOOP;
    END IF;
    RETURN true;
END $$;

-- When each task of the worker's schedule last ran: what keeps two workers from running it twice.
CREATE TABLE agent_data.ticks (
    name     text PRIMARY KEY,
    last_run timestamptz NOT NULL,
    took_ms  real NOT NULL,
    changed  bigint NOT NULL                -- rows, partitions, … that it changed
);

-- Lists of memories, writes that go to one shard, erasures that are told without a name, and marks that nothing can keep back.

-- Lists are newest first. Without this a user's memories were all sorted for each page: 130 ms of 100,000, and 0.1 ms with it. (Not
-- by tenant, too: that one tempts the planner away from the user's.)
CREATE INDEX memory_listed ON agent_data.memory_store (user_id, created_at DESC, memory_id DESC);

-- pglz, the default of most servers, costs several times the CPU of lz4 for about the same size of bodies and streams.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = 'record_turns'
               AND 'lz4' = ANY ((SELECT s.enumvals FROM pg_settings s WHERE s.name = 'default_toast_compression')::text[]) LOOP
        EXECUTE format('ALTER FUNCTION %s SET default_toast_compression = ''lz4''', f);
    END LOOP;
END $$;
