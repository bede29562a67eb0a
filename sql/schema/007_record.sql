-- The one write of a turn: the call, its stream, its compilation, the messages, the session's totals, the heads that the next
-- transcript is recognised by, the vectors and the jobs, in one statement. The types are what the recorder sends.

CREATE TYPE agent_data.call_record AS (
    call_id uuid, tenant_id uuid, user_id uuid, session_id uuid, created_at timestamptz, method text, path text, upstream text,
    model text, answered_model text, streamed boolean, status smallint, outcome smallint, memory_status text, reason text,
    request_headers text, response_headers text,
    request_body bytea, request_truncated boolean,
    request_prefix bytea, request_suffix bytea, request_chain bytea, request_count integer, request_sha256 bytea,
    request_bytes bigint,
    sent_prefix bytea, sent_suffix bytea, sent_chain bytea, sent_count integer, sent_sha256 bytea,
    prompt_tokens integer, completion_tokens integer, cached_tokens integer, usage_counted boolean, cost_microcents bigint,
    latency_ms integer, first_byte_us bigint, overhead_us bigint, idempotency_key text, repeat_key bytea, retry_count smallint, error text,
    metadata text
);

CREATE TYPE agent_data.stream_record AS (
    body bytea, truncated boolean, chunk_offsets integer[], chunk_times bigint[], event_offsets integer[], event_times bigint[]
);

CREATE TYPE agent_data.chain_record AS (chain_hash bytea, parent_hash bytea, blobs bytea, lead bytea);

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
    hidden boolean                          -- never to be found by a search: said while Mneme was asked to learn nothing
);

-- The chains are positions from which the next request of the conversation is likely to go on (see request_chains).
CREATE TYPE agent_data.head_record AS (
    chain_hash bytea, message_id uuid, asked boolean, request_chain bytea, request_count integer, sent_chain bytea,
    sent_count integer, visible_from integer
);

CREATE TYPE agent_data.block_record AS (
    epoch integer, message_id uuid, chain_hash bytea, message_hash bytea, text text, item_ids uuid[], token_count integer
);

CREATE TYPE agent_data.job_record AS (entrypoint text, payload bytea, dedupe_key text, delay_s real);

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
            created_at, metadata, hidden, n)
    ) x WHERE x.message_id = p_session.head_message_id;
    IF p_session.system_prompt IS NOT NULL THEN
        INSERT INTO agent_data.system_prompts (tenant_id, prompt_hash, prompt, token_count)
        VALUES (p_tenant, p_session.system_prompt_hash, p_session.system_prompt, p_session.system_prompt_tokens)
        ON CONFLICT DO NOTHING;
    END IF;

    -- Two requests may bring the same new session at once: the row is made if it is missing, then counted up.
    INSERT INTO agent_data.sessions (
        session_id, user_id, tenant_id, external_id, expires_at, session_type, model_id, context_window_size,
        max_response_tokens, parent_session_id, branch_turn_index, turn_count)
    VALUES (
        p_session.session_id, p_user, p_tenant, p_session.external_id, p_session.expires_at,
        COALESCE(p_session.session_type, 'conversation'), COALESCE(p_session.model_id, ''),
        COALESCE(p_session.context_window_size, 0), COALESCE(p_session.max_response_tokens, 4096),
        p_session.parent_session_id, p_session.branch_turn_index, COALESCE(p_session.branch_turn_index, 0))
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO agent_data.users (user_id, tenant_id, external_id)
        VALUES (p_user, p_tenant, p_session.user_external_id) ON CONFLICT DO NOTHING;
        INSERT INTO agent_data.user_stats (user_id, tenant_id) VALUES (p_user, p_tenant) ON CONFLICT DO NOTHING;
        INSERT INTO agent_data.routes (tenant_id, id, user_id, kind, target)
        SELECT DISTINCT p_tenant, r, p_user, 'session', p_session.session_id
        FROM unnest(ARRAY[p_session.session_id, p_session.route_id]) AS r WHERE r IS NOT NULL
        ON CONFLICT DO NOTHING;
    END IF;

    UPDATE agent_data.sessions s SET
        -- An answer to a question that had none stands where the next message would have stood.
        turn_count = GREATEST(s.turn_count + fresh, beside),
        updated_at = now(),
        expires_at = COALESCE(p_session.expires_at, s.expires_at),
        status = CASE WHEN s.status = 4 THEN 1 ELSE s.status END,
        model_id = COALESCE(p_session.model_id, s.model_id),
        context_window_size = COALESCE(p_session.context_window_size, s.context_window_size),
        system_prompt_hash = COALESCE(p_session.system_prompt_hash, s.system_prompt_hash),
        system_prompt_tokens = COALESCE(p_session.system_prompt_tokens, s.system_prompt_tokens),
        temperature = COALESCE(p_session.temperature, s.temperature),
        top_p = COALESCE(p_session.top_p, s.top_p),
        max_response_tokens = COALESCE(p_session.max_response_tokens, s.max_response_tokens),
        total_prompt_tokens = s.total_prompt_tokens + COALESCE(p_prompt_tokens, 0),
        total_completion_tokens = s.total_completion_tokens + COALESCE(p_completion_tokens, 0),
        total_cost_microcents = s.total_cost_microcents + COALESCE(p_cost, 0),
        head_message_id = COALESCE(p_session.head_message_id, s.head_message_id),
        head_turn_index = CASE WHEN p_session.head_message_id IS NULL THEN s.head_turn_index
                               ELSE COALESCE(head_index, s.turn_count + head_ahead) END,
        head_chain = COALESCE(p_session.head_chain, s.head_chain),
        tail1 = COALESCE(p_session.tail1, s.tail1),
        tail2 = CASE WHEN p_session.tail1 IS NULL THEN s.tail2 ELSE p_session.tail2 END,
        block_epoch = COALESCE(p_session.block_epoch, s.block_epoch),
        first_message_at = LEAST(s.first_message_at, (SELECT min(m.created_at) FROM unnest(p_messages) m)),
        last_message_at = GREATEST(s.last_message_at, (SELECT max(m.created_at) FROM unnest(p_messages) m))
    WHERE s.user_id = p_user AND s.session_id = p_session.session_id
    RETURNING s.turn_count, s.first_message_at, s.last_message_at INTO total, began, ended;

    RETURN QUERY
    WITH placed AS (
        SELECT m.*, CASE WHEN m.turn_index > 0 THEN m.turn_index
                    ELSE total - fresh + (count(*) FILTER (WHERE m.turn_index IS NULL) OVER (ORDER BY m.n))::integer
                    END AS place
        FROM unnest(p_messages) WITH ORDINALITY AS m (
            message_id, turn_index, parent_message_id, role, content, content_parts, name, tool_calls, tool_call_id,
            content_hash, message_hash, token_count, model_id, finish_reason, prompt_tokens, completion_tokens, latency_ms,
            created_at, metadata, hidden, n)
    ), inserted AS (
        INSERT INTO agent_data.conversation_history (
            message_id, session_id, user_id, tenant_id, turn_index, sibling, parent_message_id, role, content, content_parts,
            name, tool_calls, tool_call_id, content_hash, message_hash, content_tsv, token_count, model_id, finish_reason,
            prompt_tokens, completion_tokens, latency_ms, call_id, created_at, metadata)
        SELECT p.message_id, p_session.session_id, p_user, p_tenant, p.place,
               row_number() OVER (PARTITION BY p.place ORDER BY p.n) - 1 + CASE WHEN p.turn_index > 0 THEN (
                   SELECT count(*) FROM agent_data.conversation_history h
                   WHERE h.user_id = p_user AND h.session_id = p_session.session_id AND h.turn_index = p.turn_index
                     AND h.created_at >= began AND h.created_at <= ended
               ) ELSE 0 END,
               p.parent_message_id, p.role, p.content, p.content_parts::jsonb, p.name, p.tool_calls::jsonb, p.tool_call_id,
               p.content_hash, p.message_hash,
               -- A tsvector holds at most 1 MB, and positions up to 16,383: of a very long text the beginning is indexed.
               CASE WHEN p.hidden IS NOT TRUE THEN to_tsvector('english', left(COALESCE(p.content, ''), 200000)) END,
               p.token_count, p.model_id, p.finish_reason, p.prompt_tokens, p.completion_tokens, p.latency_ms, p_call,
               p.created_at, COALESCE(p.metadata::jsonb, '{}')
        FROM placed p
        ON CONFLICT DO NOTHING
        RETURNING message_id, turn_index
    )
    SELECT i.message_id, i.turn_index FROM inserted i;
END $$;

-- Vectors of new items, and the count that chooses between the exact scan and the graph.
CREATE FUNCTION agent_data.add_vectors(
    p_tenant uuid, p_user uuid, p_space smallint, p_kind smallint, p_items uuid[], p_ats timestamptz[], p_vectors halfvec[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    many boolean;
BEGIN
    SELECT u.use_hnsw INTO many FROM agent_data.user_stats u WHERE u.user_id = p_user;
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

-- Records one call. Returns false when the call is stored already: a record that comes twice leaves one.
CREATE FUNCTION agent_data.record_turn(
    p_call agent_data.call_record, p_stream agent_data.stream_record, p_chains agent_data.chain_record[],
    p_blob_hashes bytea[], p_blobs bytea[],
    p_inputs text, p_audit text, p_eta real,
    p_session agent_data.session_record, p_messages agent_data.message_record[], p_heads agent_data.head_record[],
    p_block agent_data.block_record, p_space smallint, p_items uuid[], p_ats timestamptz[], p_vectors halfvec[],
    p_jobs agent_data.job_record[]
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    ids      uuid[];
    places   integer[];
    repeated boolean := false;
BEGIN
    IF p_call.repeat_key IS NOT NULL THEN
        SELECT n.repeated, n.session_id INTO repeated, p_call.session_id FROM agent_data.note_key(p_call) n;
    END IF;
    -- The call row comes before all else, which hangs on it (3-data-model: idempotency).
    INSERT INTO agent_data.upstream_calls (
        call_id, tenant_id, user_id, session_id, created_at, method, path, upstream, model, answered_model, streamed, status,
        outcome, memory_status, reason, request_headers, response_headers, request_body, request_truncated, request_prefix,
        request_suffix, request_chain, request_count, request_sha256, request_bytes, sent_prefix, sent_suffix, sent_chain,
        sent_count, sent_sha256, prompt_tokens, completion_tokens, cached_tokens, usage_counted, cost_microcents, latency_ms,
        first_byte_us, overhead_us, idempotency_key, retry_count, error, metadata)
    VALUES (
        p_call.call_id, p_call.tenant_id, p_call.user_id, p_call.session_id, p_call.created_at, p_call.method, p_call.path,
        p_call.upstream, p_call.model, p_call.answered_model, p_call.streamed, p_call.status, p_call.outcome,
        p_call.memory_status, p_call.reason, p_call.request_headers::jsonb, p_call.response_headers::jsonb,
        p_call.request_body, p_call.request_truncated, p_call.request_prefix, p_call.request_suffix, p_call.request_chain,
        p_call.request_count, p_call.request_sha256, p_call.request_bytes, p_call.sent_prefix, p_call.sent_suffix,
        p_call.sent_chain, p_call.sent_count, p_call.sent_sha256, p_call.prompt_tokens, p_call.completion_tokens,
        p_call.cached_tokens, p_call.usage_counted, p_call.cost_microcents, p_call.latency_ms, p_call.first_byte_us,
        p_call.overhead_us, p_call.idempotency_key, p_call.retry_count, p_call.error, COALESCE(p_call.metadata, '{}')::jsonb)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_stream.body IS NOT NULL THEN
        INSERT INTO agent_data.streams (call_id, tenant_id, user_id, body, truncated, chunk_offsets, chunk_times,
                                        event_offsets, event_times)
        VALUES (p_call.call_id, p_call.tenant_id, p_call.user_id, p_stream.body, p_stream.truncated, p_stream.chunk_offsets,
                p_stream.chunk_times, p_stream.event_offsets, p_stream.event_times);
    END IF;
    -- In the order of their keys, so that two calls of one user cannot wait for each other in a circle.
    INSERT INTO agent_data.message_blobs (user_id, tenant_id, blob_hash, body)
    SELECT p_call.user_id, p_call.tenant_id, b.hash, b.body FROM unnest(p_blob_hashes, p_blobs) AS b (hash, body)
    ORDER BY b.hash
    ON CONFLICT DO NOTHING;
    INSERT INTO agent_data.request_chains (user_id, tenant_id, chain_hash, parent_hash, blobs, lead)
    SELECT p_call.user_id, p_call.tenant_id, c.chain_hash, c.parent_hash, c.blobs, c.lead FROM unnest(p_chains) c
    ORDER BY c.chain_hash
    ON CONFLICT DO NOTHING;
    IF p_audit IS NOT NULL THEN
        INSERT INTO agent_data.compilations (call_id, tenant_id, user_id, session_id, inputs, audit, eta)
        VALUES (p_call.call_id, p_call.tenant_id, p_call.user_id, p_call.session_id, p_inputs::jsonb, p_audit::jsonb, p_eta);
    END IF;

    IF p_session.session_id IS NOT NULL AND NOT repeated THEN
        SELECT array_agg(a.placed_id), array_agg(a.placed_index) INTO ids, places
        FROM agent_data.append_messages(p_call.tenant_id, p_call.user_id, p_session, p_messages, p_call.call_id,
                                        p_call.prompt_tokens, p_call.completion_tokens, p_call.cost_microcents) a;
        INSERT INTO agent_data.session_heads (
            user_id, tenant_id, chain_hash, session_id, message_id, turn_index, asked, visible_from, request_chain,
            request_count, sent_chain, sent_count)
        SELECT p_call.user_id, p_call.tenant_id, h.chain_hash, p_session.session_id, h.message_id, m.place, h.asked,
               COALESCE(h.visible_from, 1), h.request_chain, h.request_count, h.sent_chain, h.sent_count
        FROM unnest(p_heads) h JOIN unnest(ids, places) AS m (id, place) ON m.id = h.message_id
        ON CONFLICT DO NOTHING;
        IF p_block.text IS NOT NULL THEN
            INSERT INTO agent_data.context_blocks (user_id, tenant_id, session_id, epoch, message_id, chain_hash, message_hash,
                                                   text, item_ids, token_count)
            VALUES (p_call.user_id, p_call.tenant_id, p_session.session_id, p_block.epoch, p_block.message_id,
                    p_block.chain_hash, p_block.message_hash, p_block.text, p_block.item_ids, p_block.token_count)
            ON CONFLICT DO NOTHING;
        END IF;
        IF cardinality(p_items) > 0 THEN
            PERFORM agent_data.add_vectors(p_call.tenant_id, p_call.user_id, p_space, 0::smallint, p_items, p_ats, p_vectors);
        END IF;
    END IF;
    IF cardinality(p_jobs) > 0 AND NOT repeated THEN
        PERFORM agent_data.enqueue(p_jobs);
    END IF;
    RETURN true;
END $$;

-- Counts the words of new documents (a job, after the turn): what BM25 knows of a user; and their vectors, by which the vector
-- scan is chosen. Words are written in order, so that two jobs of one user cannot wait for each other in a circle. `p_from` and
-- `p_to` bound the messages' times: they lead to their monthly partitions.
CREATE FUNCTION agent_data.count_words(
    p_tenant uuid, p_user uuid, p_messages uuid[], p_memories uuid[],
    p_from timestamptz DEFAULT '-infinity', p_to timestamptz DEFAULT 'infinity'
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    seen   integer;
    tokens bigint;
    found  bigint;
BEGIN
    WITH documents AS MATERIALIZED (
        SELECT h.content_tsv AS words, h.token_count FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.message_id = ANY (p_messages) AND h.created_at BETWEEN p_from AND p_to
          AND length(h.content_tsv) > 0
        UNION ALL
        SELECT m.content_tsv, m.token_count FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.memory_id = ANY (p_memories)
    ), counted AS (
        INSERT INTO agent_data.lexemes AS l (user_id, tenant_id, lexeme, documents)
        SELECT p_user, p_tenant, w.lexeme, count(*) FROM documents d, unnest(d.words) AS w
        GROUP BY w.lexeme ORDER BY w.lexeme
        ON CONFLICT (user_id, lexeme) DO UPDATE SET documents = l.documents + EXCLUDED.documents
    )
    SELECT count(*), COALESCE(sum(d.token_count), 0) INTO seen, tokens FROM documents d;
    SELECT COALESCE(max(s.n), 0) INTO found FROM (
        SELECT count(*) AS n FROM agent_data.embeddings e
        WHERE e.user_id = p_user AND e.item_id = ANY (p_messages || p_memories) GROUP BY e.space
    ) s;
    INSERT INTO agent_data.user_stats AS u (user_id, tenant_id, documents, total_terms, vectors)
    VALUES (p_user, p_tenant, seen, tokens, found)
    ON CONFLICT (user_id) DO UPDATE SET documents = u.documents + EXCLUDED.documents,
                                        total_terms = u.total_terms + EXCLUDED.total_terms,
                                        vectors = u.vectors + EXCLUDED.vectors;
    RETURN seen;
END $$;

-- The active memories of a scope (`dedup_scope`) whose cosine with a new memory is above a threshold, nearest first, for many new
-- ones at once: (which of `p_vectors`, from 1; the memory; the cosine). Always the exact scan: a user's memories are a small
-- part of the user's vectors, and have an index of their own.
CREATE FUNCTION agent_data.near_memories(
    p_tenant uuid, p_user uuid, p_scope uuid, p_space smallint, p_vectors halfvec[], p_threshold real, p_limit integer
) RETURNS TABLE (n integer, memory_id uuid, similarity real)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        -- OFFSET 0: first the few that are near, by the memories' own index, and only then what they are.
        'SELECT v.n::integer, x.item_id, x.similarity FROM unnest($1) WITH ORDINALITY AS v (vector, n), LATERAL ('
        '  SELECT e.item_id, e.similarity FROM ('
        '    SELECT c.item_id, (1 - (c.vector <=> v.vector))::real AS similarity FROM agent_data.embeddings c'
        '    WHERE c.user_id = $2 AND c.space = %s AND c.item_kind = 1 AND c.vector <=> v.vector < 1 - $3 OFFSET 0) e'
        '  JOIN agent_data.memory_store m ON m.user_id = $2 AND m.memory_id = e.item_id'
        '  WHERE m.tenant_id = $4 AND m.dedup_scope = $5 AND m.is_active'
        '  ORDER BY 2 DESC LIMIT $6) x ORDER BY 1, 3 DESC', p_space)
    USING p_vectors, p_user, p_threshold, p_tenant, p_scope, p_limit;
END $$;

-- When each task of the worker's schedule last ran: what keeps two workers from running it twice.
CREATE TABLE agent_data.ticks (
    name     text PRIMARY KEY,
    last_run timestamptz NOT NULL,
    took_ms  real NOT NULL,
    changed  bigint NOT NULL                -- rows, partitions, … that it changed
);

-- What the functions above need no one else to call. The functions belong to the definer, the tables to the owner.
SELECT agent_data.protect_tables();
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = 'agent_data'::regnamespace AND p.prosecdef LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO mneme_definer', f);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mneme_app', f);
    END LOOP;
END $$;
