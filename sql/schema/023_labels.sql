-- One place for labels (app/capture/labels.py): those that a call's `X-Mneme-Label` gives it are written with the call, beside
-- those that are given to it afterwards, so that whoever looks for a label finds both.

ALTER TYPE agent_data.call_record ADD ATTRIBUTE labels text[];  -- sorted, each once; NULL: none

-- Calls recorded before: the labels of their header, or of the cassette that they came from, as app/capture/labels.py reads them.
-- A header is kept with a character for each byte; what is UTF-8 is read as that.
CREATE FUNCTION pg_temp.header_text(p_value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN convert_from(convert_to(p_value, 'LATIN1'), 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN p_value;
END $$;

UPDATE agent_data.upstream_calls c SET labels = f.labels
FROM (
    SELECT y.call_id, y.user_id, array_agg(y.label ORDER BY y.label COLLATE "C") AS labels
    FROM (
        SELECT x.call_id, x.user_id, x.label,
               row_number() OVER (PARTITION BY x.call_id, x.user_id ORDER BY min(x.source), min(x.place)) AS place
        FROM (
            SELECT k.call_id, k.user_id, btrim(l.label) AS label, l.source, l.place
            FROM agent_data.upstream_calls k
            CROSS JOIN LATERAL (
                SELECT g.label, 0 AS source, g.place FROM unnest(k.labels) WITH ORDINALITY AS g (label, place)
                UNION ALL SELECT k.metadata #>> '{imported,label}', 1, 1
                UNION ALL
                SELECT p.label, 1 + h.n, p.place
                FROM json_array_elements(k.request_headers) WITH ORDINALITY AS h (field, n),
                     string_to_table(pg_temp.header_text(h.field ->> 1), ',') WITH ORDINALITY AS p (label, place)
                WHERE lower(h.field ->> 0) = 'x-mneme-label' AND h.field ->> 1 <> '***'
            ) l
            WHERE k.request_headers::text ILIKE '%x-mneme-label%' OR k.metadata::text LIKE '%"imported"%'
        ) x
        WHERE length(x.label) BETWEEN 1 AND 256 AND x.label !~ '[\u0001-\u001f\u007f-\u009f]'
        GROUP BY x.call_id, x.user_id, x.label
    ) y
    WHERE y.place <= 32  -- labels of one call
    GROUP BY y.call_id, y.user_id
) f
WHERE c.call_id = f.call_id AND c.user_id = f.user_id AND c.labels IS DISTINCT FROM f.labels;

DROP FUNCTION pg_temp.header_text(text);

-- As before, with the labels.
CREATE OR REPLACE FUNCTION agent_data.record_turns(
    p_calls agent_data.call_record[], p_ids uuid[], p_tenants uuid[], p_users uuid[], p_session_ids uuid[], p_keyed integer[],
    p_streams agent_data.stream_record[],
    p_blob_turns integer[], p_blob_hashes bytea[], p_blobs bytea[],
    p_chain_turns integer[], p_chains agent_data.chain_record[],
    p_inputs text[], p_audits text[], p_etas real[],
    p_sessions agent_data.session_record[], p_places agent_data.place_record[], p_blocks agent_data.block_record[],
    p_message_turns integer[], p_aheads integer[], p_siblings integer[], p_messages agent_data.message_record[],
    p_head_turns integer[], p_head_indexes integer[], p_head_aheads integer[], p_heads agent_data.head_record[],
    p_spaces smallint[], p_vector_turns integer[], p_items uuid[], p_ats timestamptz[], p_vectors halfvec[],
    p_job_turns integer[], p_jobs agent_data.job_record[],
    p_use_users uuid[], p_use_from integer[], p_use_to integer[],
    p_uses uuid[], p_use_times integer[], p_use_scores real[], p_used_at timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = agent_data, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    many     integer := cardinality(p_calls);
    repeats  boolean[] := array_fill(false, ARRAY[many]);
    sessions uuid[] := p_session_ids;
    bases    integer[] := array_fill(0, ARRAY[many]);
    begans   timestamptz[] := array_fill(NULL::timestamptz, ARRAY[many]);
    endeds   timestamptz[] := array_fill(NULL::timestamptz, ARRAY[many]);
    graphs   boolean[] := array_fill(false, ARRAY[many]);
    beside   boolean := false;
    burying  boolean := false;
    before   integer[];
    call     agent_data.call_record;
    session  agent_data.session_record;
    place    agent_data.place_record;
    stored   integer;
    total    integer;
    began    timestamptz;
    ended    timestamptz;
    wanted   uuid[];
    again    boolean;
    there    uuid;
    i        integer;
BEGIN
    FOREACH i IN ARRAY p_keyed LOOP
        call := p_calls[i];
        SELECT n.repeated, n.session_id INTO again, there FROM agent_data.note_key(call) n;
        repeats[i] := again;
        sessions[i] := there;
    END LOOP;
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
    INSERT INTO agent_data.streams (
        call_id, tenant_id, user_id, body, truncated, chunk_offsets, chunk_times, event_offsets, event_times)
    SELECT p_ids[s.ordinality], p_tenants[s.ordinality], p_users[s.ordinality], s.body, s.truncated, s.chunk_offsets,
           s.chunk_times, s.event_offsets, s.event_times
    FROM unnest(p_streams) WITH ORDINALITY s WHERE s.body IS NOT NULL;
    INSERT INTO agent_data.message_blobs (user_id, tenant_id, blob_hash, body)
    SELECT p_users[b.turn], p_tenants[b.turn], b.hash, b.body
    FROM unnest(p_blob_turns, p_blob_hashes, p_blobs) AS b (turn, hash, body)
    ORDER BY 1, 3
    ON CONFLICT DO NOTHING;
    INSERT INTO agent_data.request_chains (user_id, tenant_id, chain_hash, parent_hash, blobs, lead)
    SELECT p_users[c.turn], p_tenants[c.turn], c.chain_hash, c.parent_hash, c.blobs, c.lead
    FROM ROWS FROM (unnest(p_chain_turns), unnest(p_chains)) AS c (turn)
    ORDER BY 1, 3
    ON CONFLICT DO NOTHING;
    INSERT INTO agent_data.compilations (call_id, tenant_id, user_id, session_id, inputs, audit, eta)
    SELECT p_ids[c.n], p_tenants[c.n], p_users[c.n], sessions[c.n], c.inputs::json, c.audit::json, c.eta
    FROM unnest(p_inputs, p_audits, p_etas) WITH ORDINALITY AS c (inputs, audit, eta, n) WHERE c.audit IS NOT NULL;

    INSERT INTO agent_data.system_prompts (tenant_id, prompt_hash, prompt, token_count)
    SELECT p_tenants[s.ordinality], s.system_prompt_hash, s.system_prompt, s.system_prompt_tokens
    FROM unnest(p_sessions) WITH ORDINALITY s WHERE s.system_prompt IS NOT NULL AND NOT repeats[s.ordinality]
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
    FOR i IN 1 .. many LOOP
        session := p_sessions[i];
        CONTINUE WHEN session.session_id IS NULL OR repeats[i];
        call := p_calls[i];
        place := p_places[i];
        SELECT t.total, t.began, t.ended INTO total, began, ended
        FROM agent_data.move_session(call.tenant_id, call.user_id, session, place, call.prompt_tokens,
                                     call.completion_tokens, call.cost_microcents) t;
        bases[i] := total - place.fresh;
        IF place.beside > 0 THEN
            beside := true;
            begans[i] := began;
            endeds[i] := ended;
        END IF;
        IF p_spaces[i] IS NOT NULL THEN
            SELECT u.use_hnsw INTO again FROM agent_data.user_stats u WHERE u.user_id = call.user_id;
            graphs[i] := COALESCE(again, false);
        END IF;
        burying := burying
            OR EXISTS (SELECT FROM agent_data.suppressions x WHERE x.user_id = call.user_id AND x.reason = 'deleted')
            OR EXISTS (SELECT FROM agent_data.erased_contents x WHERE x.user_id = call.user_id);
    END LOOP;
    IF beside THEN
        -- What stands there already. (No batch has a session twice.)
        SELECT array_agg(x.many ORDER BY x.n) INTO before FROM (
            SELECT m.ordinality AS n, CASE WHEN m.turn_index > 0 THEN (
                SELECT count(*) FROM agent_data.conversation_history h
                WHERE h.user_id = p_users[m.turn] AND h.session_id = sessions[m.turn] AND h.turn_index = m.turn_index
                  AND h.created_at >= begans[m.turn] AND h.created_at <= endeds[m.turn]
            ) ELSE 0 END::integer AS many
            FROM ROWS FROM (unnest(p_message_turns), unnest(p_messages)) WITH ORDINALITY AS m (turn)
        ) x;
    END IF;
    INSERT INTO agent_data.conversation_history (
        message_id, session_id, user_id, tenant_id, turn_index, sibling, parent_message_id, role, content, content_parts,
        name, tool_calls, tool_call_id, content_hash, message_hash, content_tsv, token_count, model_id, finish_reason,
        prompt_tokens, completion_tokens, latency_ms, call_id, created_at, metadata)
    SELECT m.message_id, sessions[m.turn], p_users[m.turn], p_tenants[m.turn],
           CASE WHEN m.turn_index > 0 THEN m.turn_index ELSE bases[m.turn] + m.ahead END,
           m.sibling + COALESCE(before[m.ordinality], 0), m.parent_message_id, m.role, m.content, m.content_parts::jsonb,
           m.name, m.tool_calls::jsonb, m.tool_call_id, m.content_hash, m.message_hash,
           -- A tsvector holds at most 1 MB, and positions up to 16,383: of a very long text the beginning is indexed.
           CASE WHEN m.hidden IS NOT TRUE THEN to_tsvector('english', left(COALESCE(m.content, ''), 200000)) END,
           m.token_count, m.model_id, m.finish_reason, m.prompt_tokens, m.completion_tokens, m.latency_ms, p_ids[m.turn],
           m.created_at, COALESCE(m.metadata::jsonb, '{}')
    FROM ROWS FROM (unnest(p_message_turns), unnest(p_aheads), unnest(p_siblings), unnest(p_messages))
         WITH ORDINALITY AS m (turn, ahead, sibling)
    WHERE NOT repeats[m.turn]
    ON CONFLICT DO NOTHING;
    -- What says again what was deleted, or erased with the user, is not found from the start. (The job that learns looks once
    -- more, for what is deleted in between.)
    IF burying THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
        SELECT w.user_id, w.tenant_id, w.message_id, 'resent'
        FROM (
            SELECT p_users[m.turn] AS user_id, p_tenants[m.turn] AS tenant_id, m.message_id,
                   sha256(k.outer_pad || sha256(k.inner_pad || m.content_hash)) AS content_hmac
            FROM ROWS FROM (unnest(p_message_turns), unnest(p_messages)) AS m (turn)
            CROSS JOIN (
                SELECT agent_data.hmac_pad(decode(c.value #>> '{}', 'hex'), 54) AS inner_pad,
                       agent_data.hmac_pad(decode(c.value #>> '{}', 'hex'), 92) AS outer_pad
                FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'
                OFFSET 0  -- once, not for each message
            ) k
            WHERE NOT repeats[m.turn] AND m.content_hash IS NOT NULL
        ) w
        WHERE EXISTS (SELECT FROM agent_data.suppressions x
                      WHERE x.user_id = w.user_id AND x.reason = 'deleted' AND x.content_hmac = w.content_hmac)
           OR EXISTS (SELECT FROM agent_data.erased_contents e
                      WHERE e.user_id = w.user_id AND e.content_hmac = w.content_hmac)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO agent_data.session_heads (
        user_id, tenant_id, chain_hash, session_id, message_id, turn_index, asked, visible_from, request_chain,
        request_count, sent_chain, sent_count)
    SELECT p_users[h.turn], p_tenants[h.turn], h.chain_hash, sessions[h.turn], h.message_id,
           COALESCE(h.index, bases[h.turn] + h.ahead), h.asked, COALESCE(h.visible_from, 1), h.request_chain,
           h.request_count, h.sent_chain, h.sent_count
    FROM ROWS FROM (unnest(p_head_turns), unnest(p_head_indexes), unnest(p_head_aheads), unnest(p_heads))
         AS h (turn, index, ahead)
    WHERE NOT repeats[h.turn]
    ON CONFLICT DO NOTHING;
    INSERT INTO agent_data.context_blocks (
        user_id, tenant_id, session_id, epoch, message_id, chain_hash, message_hash, text, item_ids, token_count)
    SELECT p_users[b.ordinality], p_tenants[b.ordinality], sessions[b.ordinality], b.epoch, b.message_id, b.chain_hash,
           b.message_hash, b.text, b.item_ids, b.token_count
    FROM unnest(p_blocks) WITH ORDINALITY b WHERE b.text IS NOT NULL AND NOT repeats[b.ordinality]
      -- What was forgotten or deleted while the answer was on its way is not written down again.
      AND NOT EXISTS (SELECT FROM agent_data.suppressions x
                      WHERE x.user_id = p_users[b.ordinality] AND x.item_id = ANY (b.item_ids)
                        AND x.reason NOT IN ('superseded', 'resent'))
    ON CONFLICT DO NOTHING;
    INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector, place)
    SELECT p_users[v.turn], p_tenants[v.turn], p_spaces[v.turn], v.item, 0, v.at, graphs[v.turn], v.vector,
           agent_data.item_place(
               v.item, 0::smallint, v.at, sessions[v.turn],
               CASE WHEN m.turn_index > 0 THEN m.turn_index ELSE bases[v.turn] + m.ahead END, m.role, m.token_count, m.name)
    FROM unnest(p_vector_turns, p_items, p_ats, p_vectors) AS v (turn, item, at, vector)
    LEFT JOIN ROWS FROM (unnest(p_aheads), unnest(p_messages)) AS m (ahead) ON m.message_id = v.item
    WHERE NOT repeats[v.turn]
    ON CONFLICT DO NOTHING;
    IF true = ANY (repeats) THEN
        SELECT array_agg(ROW(j.entrypoint, j.payload, j.dedupe_key, j.delay_s)::agent_data.job_record) INTO p_jobs
        FROM ROWS FROM (unnest(p_job_turns), unnest(p_jobs)) AS j (turn) WHERE NOT repeats[j.turn];
    END IF;
    IF cardinality(p_jobs) > 0 THEN
        PERFORM agent_data.enqueue(p_jobs);
    END IF;
    -- Last, so that the locks of memories are held least. One that somebody else is changing is not waited for: a count that
    -- is lost matters less than answers that stand still.
    FOR i IN 1 .. cardinality(p_use_users) LOOP
        wanted := p_uses[p_use_from[i] : p_use_to[i]];
        SELECT array_agg(x.memory_id) INTO wanted FROM (
            SELECT m.memory_id FROM agent_data.memory_store m
            WHERE m.user_id = p_use_users[i] AND m.memory_id = ANY (wanted)
            ORDER BY m.memory_id
            FOR NO KEY UPDATE SKIP LOCKED
        ) x;
        UPDATE agent_data.memory_store m SET
            access_count = m.access_count + p_use_times[array_position(p_uses, m.memory_id)],
            relevance_accumulator = m.relevance_accumulator + p_use_scores[array_position(p_uses, m.memory_id)],
            last_accessed_at = GREATEST(m.last_accessed_at, p_used_at)
        WHERE m.user_id = p_use_users[i] AND m.memory_id = ANY (wanted);
    END LOOP;
    RETURN true;
END $$;

-- pglz, the default of most servers, costs several times the CPU of lz4 for about the same size of bodies and streams.
DO $$
BEGIN
    IF 'lz4' = ANY ((SELECT s.enumvals FROM pg_settings s WHERE s.name = 'default_toast_compression')::text[]) THEN
        ALTER FUNCTION agent_data.record_turns SET default_toast_compression = 'lz4';
    END IF;
END $$;
