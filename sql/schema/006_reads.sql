-- The hot reads. Each is a SECURITY DEFINER function whose tenant and user come first and are mandatory: row-level security
-- would keep `@@`, `&&` and `@>` from using their indexes (measured: 0.4 → 9.7 ms). Every statement inside names `user_id`,
-- so it prunes to one partition.

-- Finds the session that a request belongs to, and what is needed to go on with it, in one round trip.
--
--   p_nobody    the request names no user: `p_user` is where the sessions of nobody are kept
--   p_issued    the session id that the client sent, if it is a uuid: perhaps one that Mneme issued
--   p_named     uuid5 of the client's own session name
--   p_chains    chain hash after each assistant message of the transcript, oldest first
--   p_question  chain hash of what stands before the last of them
--   p_whole     chain hash of the whole transcript
--   p_tail1/2   hash of its last one and two answered turns
--   p_retry     the client says that it sends this again
--
-- `user_id`: whose session it is; another than `p_user` where nobody was named, and an issued id says who it was.
-- `how`: foreign (an issued id of somebody else), named, asked (ends in a question that was asked before), chain, rewritten
-- (the last answer is not as it was given; the caller judges by `tip_text` whether it is still the same one; NULL: it was deleted),
-- tail, none.
-- `head_open`: nothing was said after the head that was found.
CREATE FUNCTION agent_data.recognise(
    p_tenant uuid, p_user uuid, p_nobody boolean, p_issued uuid, p_named uuid,
    p_chains bytea[], p_question bytea, p_whole bytea, p_tail1 bytea, p_tail2 bytea, p_retry boolean,
    OUT how text, OUT user_id uuid, OUT session_id uuid, OUT known boolean, OUT external_id text, OUT parent_session_id uuid,
    OUT branch_turn_index integer, OUT ancestors uuid[], OUT ancestor_turns integer[],
    OUT tip_message_id uuid, OUT tip_turn_index integer, OUT tip_chain bytea, OUT tip_text text, OUT tail1 bytea,
    OUT tip_question_id uuid, OUT tip_question_hash bytea, OUT tip_question_index integer,
    OUT head_message_id uuid, OUT head_turn_index integer, OUT head_position integer, OUT head_open boolean,
    OUT head_visible_from integer, OUT asked_message_id uuid, OUT asked_turn_index integer,
    OUT request_chain bytea, OUT request_count integer, OUT sent_chain bytea, OUT sent_count integer,
    OUT system_prompt text, OUT system_prompt_tokens integer, OUT summary_text text, OUT summary_token_count integer,
    OUT block_epoch integer, OUT block_texts text[], OUT block_chains bytea[], OUT block_hashes bytea[],
    OUT block_messages uuid[], OUT block_items uuid[], OUT block_item_counts integer[], OUT block_tokens integer[],
    OUT gone_items uuid[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    wanted uuid;
    owner  uuid;
    last   bytea := p_chains[cardinality(p_chains)];
    head   agent_data.session_heads;
    asked  agent_data.session_heads;
    s      agent_data.sessions;
    given  boolean := false;
BEGIN
    how := 'none';
    known := false;
    user_id := p_user;
    IF p_issued IS NOT NULL THEN
        SELECT r.user_id, r.target INTO owner, wanted FROM agent_data.routes r
        WHERE r.tenant_id = p_tenant AND r.id = p_issued AND r.kind = 'session'
        ORDER BY (r.user_id = p_user) DESC LIMIT 1;
        IF owner IS NOT NULL AND owner <> p_user AND NOT p_nobody THEN
            how := 'foreign';
            RETURN;
        END IF;
        p_user := COALESCE(owner, p_user);
        user_id := p_user;
    END IF;
    IF wanted IS NULL THEN
        wanted := p_named;
    END IF;

    -- Several conversations may hold the same words: the one that has not gone on from there, else the latest.
    IF last IS NOT NULL THEN
        SELECT * INTO head FROM agent_data.session_heads h
        WHERE h.user_id = p_user AND h.chain_hash = last AND NOT h.asked AND (wanted IS NULL OR h.session_id = wanted)
        ORDER BY (SELECT t.head_message_id = h.message_id FROM agent_data.sessions t
                  WHERE t.user_id = p_user AND t.session_id = h.session_id) DESC NULLS LAST, h.created_at DESC
        LIMIT 1;
        IF head.session_id IS NOT NULL THEN
            SELECT * INTO s FROM agent_data.sessions t
            WHERE t.user_id = p_user AND t.session_id = head.session_id AND t.tenant_id = p_tenant;
            head_position := cardinality(p_chains) - 1;
        END IF;
    END IF;
    -- A question asked before counts as the same one only inside a conversation that Mneme knows, or when the client says that
    -- it repeats itself, which no SDK does for longer than three times its ten minutes: two conversations may both begin with
    -- "hi". And not where an identical conversation is about to ask it: one that was spoken in since, and is still open.
    IF p_whole IS NOT NULL AND (p_retry OR wanted IS NOT NULL OR last IS NOT NULL) THEN
        SELECT * INTO asked FROM agent_data.session_heads h
        WHERE h.user_id = p_user AND h.chain_hash = p_whole AND h.asked AND (wanted IS NULL OR h.session_id = wanted)
          AND (wanted IS NOT NULL OR last IS NOT NULL OR h.created_at > now() - interval '1 hour')
        ORDER BY h.created_at DESC LIMIT 1;
        IF asked.session_id IS NOT NULL
           AND (p_retry OR head.session_id IS NULL OR head.message_id IS DISTINCT FROM s.head_message_id
                OR head.created_at <= asked.created_at) THEN
            how := 'asked';
            head := asked;
            head_position := NULL;
            asked_message_id := asked.message_id;
            asked_turn_index := asked.turn_index;
        END IF;
    END IF;
    IF how = 'none' AND head.session_id IS NULL AND p_question IS NOT NULL THEN
        -- An answer that the client changed, or stopped reading: it still answers the last question of a session.
        SELECT * INTO asked FROM agent_data.session_heads h
        WHERE h.user_id = p_user AND h.chain_hash = p_question AND h.asked AND (wanted IS NULL OR h.session_id = wanted)
        ORDER BY h.created_at DESC LIMIT 1;
        IF asked.session_id IS NOT NULL THEN
            SELECT h.content, h.content IS NOT NULL OR h.is_pruned INTO tip_text, given
            FROM agent_data.sessions t JOIN agent_data.conversation_history h
              ON h.user_id = p_user AND h.session_id = t.session_id AND h.turn_index = t.head_turn_index
             AND h.message_id = t.head_message_id
            WHERE t.user_id = p_user AND t.session_id = asked.session_id AND t.tenant_id = p_tenant
              AND t.head_turn_index = asked.turn_index + 1
              AND h.created_at >= t.first_message_at AND h.created_at <= t.last_message_at;
        END IF;
    END IF;
    IF how = 'none' AND head.session_id IS NULL AND cardinality(p_chains) > 1 THEN
        SELECT * INTO head FROM agent_data.session_heads h
        WHERE h.user_id = p_user AND h.chain_hash = ANY (p_chains) AND NOT h.asked
          AND (wanted IS NULL OR h.session_id = wanted)
        ORDER BY array_position(p_chains, h.chain_hash) DESC, h.created_at DESC LIMIT 1;
        head_position := array_position(p_chains, head.chain_hash) - 1;
    END IF;
    IF given AND (head.session_id IS NULL OR head.session_id = asked.session_id) THEN
        how := 'rewritten';
        asked_turn_index := asked.turn_index;
        IF head.session_id IS NULL THEN
            head.session_id := asked.session_id;
        END IF;
    ELSE
        tip_text := NULL;
    END IF;
    IF how <> 'asked' AND head.message_id IS NOT NULL THEN
        how := CASE how WHEN 'none' THEN 'chain' ELSE how END;
        head_message_id := head.message_id;
        head_turn_index := head.turn_index;
    END IF;
    head_visible_from := CASE how WHEN 'rewritten' THEN asked.visible_from ELSE head.visible_from END;
    IF head.session_id IS NOT NULL THEN
        SELECT * INTO s FROM agent_data.sessions t
        WHERE t.user_id = p_user AND t.session_id = head.session_id AND t.tenant_id = p_tenant;
    ELSIF wanted IS NOT NULL THEN
        SELECT * INTO s FROM agent_data.sessions t
        WHERE t.user_id = p_user AND t.session_id = wanted AND t.tenant_id = p_tenant;
        how := 'named';
        session_id := wanted;
    ELSIF p_tail1 IS NOT NULL THEN
        SELECT * INTO s FROM agent_data.sessions t
        WHERE t.user_id = p_user AND t.tail1 = p_tail1 AND (p_tail2 IS NULL OR t.tail2 = p_tail2) AND t.tenant_id = p_tenant
        ORDER BY t.updated_at DESC LIMIT 1;
        IF s.session_id IS NOT NULL THEN
            how := 'tail';
        END IF;
    END IF;
    IF s.session_id IS NULL THEN
        RETURN;
    END IF;

    known := true;
    session_id := s.session_id;
    external_id := s.external_id;
    parent_session_id := s.parent_session_id;
    branch_turn_index := s.branch_turn_index;
    tip_message_id := s.head_message_id;
    tip_turn_index := s.head_turn_index;
    tip_chain := s.head_chain;
    tail1 := s.tail1;
    summary_text := s.summary_text;
    summary_token_count := s.summary_token_count;
    system_prompt_tokens := s.system_prompt_tokens;
    block_epoch := s.block_epoch;
    IF head.message_id IS NULL THEN
        -- Named, or found by its tail: what is stored can be built on all the same.
        SELECT * INTO head FROM agent_data.session_heads h
        WHERE h.user_id = p_user AND h.chain_hash = s.head_chain AND h.session_id = s.session_id
          AND h.message_id = s.head_message_id;
    END IF;
    request_chain := head.request_chain;
    request_count := head.request_count;
    sent_chain := head.sent_chain;
    sent_count := head.sent_count;
    IF head_message_id IS NOT NULL THEN
        head_open := head_message_id = s.head_message_id OR NOT EXISTS (
            SELECT FROM agent_data.conversation_history h
            WHERE h.user_id = p_user AND h.session_id = s.session_id AND h.turn_index > head.turn_index
              AND h.parent_message_id = head.message_id
              AND h.created_at >= s.first_message_at AND h.created_at <= s.last_message_at);
    END IF;
    IF s.parent_session_id IS NOT NULL THEN
        WITH RECURSIVE up AS (
            SELECT s.parent_session_id AS id, s.branch_turn_index AS turn, 1 AS depth
            UNION ALL
            SELECT p.parent_session_id, LEAST(u.turn, p.branch_turn_index), u.depth + 1
            FROM up u JOIN agent_data.sessions p ON p.user_id = p_user AND p.session_id = u.id
            WHERE p.parent_session_id IS NOT NULL AND u.depth < 100
        )
        SELECT array_agg(u.id ORDER BY u.depth), array_agg(u.turn ORDER BY u.depth) INTO ancestors, ancestor_turns FROM up u;
    END IF;
    IF s.system_prompt_hash IS NOT NULL THEN
        SELECT p.prompt INTO system_prompt FROM agent_data.system_prompts p
        WHERE p.tenant_id = p_tenant AND p.prompt_hash = s.system_prompt_hash;
    END IF;
    IF p_retry THEN
        -- The last question, whether it was answered or not.
        SELECT h.message_hash, h.message_id, h.turn_index INTO tip_question_hash, tip_question_id, tip_question_index
        FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.session_id = s.session_id AND h.role <> 2
          AND h.created_at >= s.first_message_at AND h.created_at <= s.last_message_at
        ORDER BY h.turn_index DESC LIMIT 1;
    END IF;
    SELECT array_agg(b.text ORDER BY b.created_at), array_agg(b.chain_hash ORDER BY b.created_at),
           array_agg(b.message_hash ORDER BY b.created_at), array_agg(b.message_id ORDER BY b.created_at),
           array_agg(cardinality(b.item_ids) ORDER BY b.created_at), array_agg(b.token_count ORDER BY b.created_at)
    INTO block_texts, block_chains, block_hashes, block_messages, block_item_counts, block_tokens
    FROM agent_data.context_blocks b
    WHERE b.user_id = p_user AND b.session_id = s.session_id AND b.epoch = s.block_epoch;
    IF block_texts IS NOT NULL THEN
        SELECT array_agg(i.item ORDER BY b.created_at, i.n) INTO block_items
        FROM agent_data.context_blocks b, unnest(b.item_ids) WITH ORDINALITY AS i (item, n)
        WHERE b.user_id = p_user AND b.session_id = s.session_id AND b.epoch = s.block_epoch;
        -- Forgetting goes before caching: what is suppressed, or no longer in force, must leave the prompt.
        SELECT array_agg(x.item) INTO gone_items FROM (
            SELECT u.item_id AS item FROM agent_data.suppressions u
            WHERE u.user_id = p_user AND u.item_id = ANY (block_items)
            UNION
            SELECT m.memory_id FROM agent_data.memory_store m
            WHERE m.user_id = p_user AND m.memory_id = ANY (block_items) AND NOT m.is_active
        ) x;
    END IF;
END $$;

-- Messages of a line of sessions, nearest first, each before a turn of its own; newest first. The caller follows
-- `parent_message_id` to the path that is in force. `hidden`: forgotten or erased, not to be shown again; what is merely
-- superseded, or sent again after an erasure, was still said.
CREATE FUNCTION agent_data.session_messages(
    p_tenant uuid, p_user uuid, p_sessions uuid[], p_befores integer[], p_limit integer
) RETURNS TABLE (
    message_id uuid, parent_message_id uuid, turn_index integer, sibling smallint, role smallint, content text,
    content_parts jsonb, name text, tool_calls jsonb, tool_call_id text, message_hash bytea, token_count integer,
    created_at timestamptz, metadata jsonb, hidden boolean
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT h.message_id, h.parent_message_id, h.turn_index, h.sibling, h.role, h.content, h.content_parts, h.name,
           h.tool_calls, h.tool_call_id, h.message_hash, h.token_count, h.created_at, h.metadata,
           h.is_compressed OR h.is_pruned OR EXISTS (
               SELECT FROM agent_data.suppressions x
               WHERE x.user_id = p_user AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent'))
    FROM unnest(p_sessions, p_befores) WITH ORDINALITY AS l (session_id, before, n)
    JOIN agent_data.sessions s ON s.user_id = p_user AND s.session_id = l.session_id AND s.tenant_id = p_tenant
    CROSS JOIN LATERAL (
        SELECT * FROM agent_data.conversation_history c
        WHERE c.user_id = p_user AND c.session_id = l.session_id AND c.turn_index < l.before
          AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
        ORDER BY c.turn_index DESC, c.sibling DESC
        LIMIT p_limit
    ) h
    ORDER BY l.n, h.turn_index DESC, h.sibling DESC
    LIMIT p_limit
$$;

-- The elements of a request's `messages` array, in their order: the chain back to its root, each node's blobs in turn.
CREATE FUNCTION agent_data.request_elements(p_tenant uuid, p_user uuid, p_chain bytea)
RETURNS TABLE (body bytea) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH RECURSIVE chain AS (
        SELECT r.parent_hash, r.blobs, r.lead, 0 AS back FROM agent_data.request_chains r
        WHERE r.tenant_id = p_tenant AND r.user_id = p_user AND r.chain_hash = p_chain
        UNION ALL
        SELECT p.parent_hash, p.blobs, p.lead, c.back + 1
        FROM chain c JOIN agent_data.request_chains p ON p.user_id = p_user AND p.chain_hash = c.parent_hash
        WHERE p.tenant_id = p_tenant
    ), parts AS (
        SELECT 0 AS part, c.back, c.lead AS hashes FROM chain c WHERE c.lead IS NOT NULL
        UNION ALL
        SELECT 1, c.back, c.blobs FROM chain c
    )
    SELECT b.body
    FROM parts p
    CROSS JOIN LATERAL generate_series(0, octet_length(p.hashes) / 16 - 1) AS n
    JOIN agent_data.message_blobs b ON b.user_id = p_user AND b.blob_hash = substring(p.hashes FROM n * 16 + 1 FOR 16)
    WHERE b.tenant_id = p_tenant
    ORDER BY p.part, p.back DESC, n
$$;

-- The call that came earlier under the same repeat key, with the parts of the body that went upstream then (none where it was
-- not captured, or lacks what is not to be stored; nor where Mneme added something and something of the user's was forgotten or
-- deleted since: it may quote just that). `answered`: its answer came whole, so that another one adds nothing.
CREATE FUNCTION agent_data.idempotent_call(
    p_tenant uuid, p_user uuid, p_key bytea,
    OUT call_id uuid, OUT session_id uuid, OUT answered boolean,
    OUT prefix bytea, OUT elements bytea[], OUT suffix bytea, OUT sha256 bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    chain bytea;
    lacks boolean;
BEGIN
    SELECT c.call_id, c.session_id, c.outcome = 0 AND c.status BETWEEN 200 AND 299,
           COALESCE(c.sent_prefix, c.request_prefix), COALESCE(c.sent_suffix, c.request_suffix),
           COALESCE(c.sent_sha256, c.request_sha256), COALESCE(c.sent_chain, c.request_chain),
           COALESCE(c.metadata::jsonb -> 'redacted' ? CASE WHEN c.sent_prefix IS NULL THEN 'request' ELSE 'sent' END, false)
           OR c.sent_prefix IS NOT NULL AND EXISTS (
               SELECT FROM agent_data.suppressions x
               WHERE x.user_id = p_user AND x.reason IN ('forgotten', 'deleted') AND x.created_at >= c.created_at)
    INTO call_id, session_id, answered, prefix, suffix, sha256, chain, lacks
    FROM agent_data.idempotency_keys k
    JOIN agent_data.upstream_calls c ON c.call_id = k.call_id AND c.user_id = p_user
    WHERE k.user_id = p_user AND k.key_hash = p_key
      AND k.tenant_id = p_tenant AND c.tenant_id = p_tenant;
    IF lacks THEN
        prefix := NULL;
    ELSIF chain IS NOT NULL THEN
        SELECT array_agg(e.body) INTO elements FROM agent_data.request_elements(p_tenant, p_user, chain) e;
    END IF;
END $$;

-- How often a word stands in a document. `ts_rank` with all weights 1 of a word that stands n times is H2(n) = Σ 1/i² for
-- i ≤ n, over π²/6; as π²/6 − H2(n) ≈ 1/(n + ½) to within rounding, the count comes back exactly, without unpacking the
-- document. (This and the next are single expressions without SET, so that they are inlined: a loop over the words takes three
-- times as long.)
CREATE FUNCTION agent_data.times_said(document tsvector, word tsquery)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT round(1 / (1.64493406685 * (1 - ts_rank('{1,1,1,1}', document, word)::double precision)) - 0.5)
$$;

-- How often each of up to eight words stands in a document, a byte each, at most 127: the n-th word's is the n-th lowest byte.
CREATE FUNCTION agent_data.times_each(
    document tsvector, a tsquery, b tsquery, c tsquery, d tsquery, e tsquery, f tsquery, g tsquery, h tsquery
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(COALESCE(agent_data.times_said(document, a), 0), 127)::bigint
        | (least(COALESCE(agent_data.times_said(document, b), 0), 127)::bigint << 8)
        | (least(COALESCE(agent_data.times_said(document, c), 0), 127)::bigint << 16)
        | (least(COALESCE(agent_data.times_said(document, d), 0), 127)::bigint << 24)
        | (least(COALESCE(agent_data.times_said(document, e), 0), 127)::bigint << 32)
        | (least(COALESCE(agent_data.times_said(document, f), 0), 127)::bigint << 40)
        | (least(COALESCE(agent_data.times_said(document, g), 0), 127)::bigint << 48)
        | (least(COALESCE(agent_data.times_said(document, h), 0), 127)::bigint << 56)
$$;

-- Whether a memory (its first five arguments) may come up in a request: see `retrieve`. (Without SET, so that it is inlined.)
CREATE FUNCTION agent_data.may_surface(
    p_status text, p_expires timestamptz, p_of uuid, p_scope smallint, p_turn integer,
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (p_status IN ('active', 'aging') AND (p_expires IS NULL OR p_expires > now())
            OR p_history AND p_status <> 'forgotten')
       AND (p_confine IS NULL OR p_of = p_confine)
       AND (p_session IS NULL OR p_scope = 1 OR p_of = p_session)
       AND (p_session IS NULL OR p_of IS DISTINCT FROM p_session OR p_turn IS NULL OR p_turn < p_visible)
       AND (p_of IS NULL OR p_of <> ALL (p_ancestors))
$$;

-- What could answer a question, by three legs (seed 000 §6.4 phase 3): nearest vectors, words in common, most used. Narrow: places
-- (see `item_place`), one number each, all in one row, for the ranking to go through everything that a user has; the texts come
-- by `fetch_items`, of the best alone. Vectors never leave the database.
--
--   p_confine    only this session (a request without a user), or NULL
--   p_session    the session of the request, p_visible its first turn that is already in the prompt: not returned again
--   p_ancestors  the sessions that it branched off from: what it shares with them stands in the prompt, and what was said there
--                instead of it was taken back
--   p_history    also what is superseded, invalidated or expired (a search with `history: true`), but nothing forgotten
--   p_vectors    all vectors while there are no more of them; else so many of the nearest
--   p_texts      documents are looked for by the rarest words, until those bring four times as many
--   p_only       0: messages only, 1: memories only, NULL: both
--
-- `scanned`: places, `sims` their cosines (float4). `said`: places of documents that have words of the question, `counts` how often
-- each word stands there: two int8 of `times_each`, the first eight words' and the next eight's. `used`: places of the most used
-- memories. `words`: the rarest first, `holding`: how many documents have each; `counted`: how many there are; `mean`: their mean
-- length in tokens. What is not in force any more is among `scanned`, and left out by `fetch_items`.
CREATE FUNCTION agent_data.retrieve(
    p_tenant uuid, p_user uuid, p_query text, p_vector halfvec, p_space smallint,
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean,
    p_vectors integer, p_texts integer, p_frequent integer, p_only smallint,
    OUT scanned bytea, OUT sims bytea, OUT said bytea, OUT counts bytea, OUT used bytea,
    OUT words text[], OUT holding integer[], OUT counted bigint, OUT mean double precision,
    OUT k1 double precision, OUT b double precision
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
-- Planning for each question would take three times as long as answering it.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    w          tsquery[];
    any_of     tsquery;
    of_said    tsquery;
    of_learned tsquery;
    crowded    boolean;
    many       boolean;
    stored     bigint;
    terms      integer;
    hidden     uuid[] := '{}';
    own        uuid[];
    suppressed uuid[];
    began      timestamptz;
    ended      timestamptz;
    dims       integer := vector_dims(p_vector);
BEGIN
    SELECT COALESCE(u.documents, 0), COALESCE(u.vectors, 0), COALESCE(u.use_hnsw, false), c.k1, c.b,
           greatest(1, COALESCE(u.total_terms, 0)::double precision / greatest(1, COALESCE(u.documents, 0))), c.terms, x.hidden
    INTO counted, stored, many, k1, b, mean, terms, suppressed
    FROM (
        SELECT (max(f.value::text) FILTER (WHERE f.key = 'bm25_k1'))::double precision AS k1,
               (max(f.value::text) FILTER (WHERE f.key = 'bm25_b'))::double precision AS b,
               (max(f.value::text) FILTER (WHERE f.key = 'query_terms'))::integer AS terms
        FROM agent_data.system_config f WHERE f.key IN ('bm25_k1', 'bm25_b', 'query_terms')
    ) c
    CROSS JOIN (
        SELECT COALESCE(array_agg(x.item_id), '{}') AS hidden
        FROM agent_data.suppressions x WHERE x.user_id = p_user AND NOT (p_history AND x.reason = 'superseded')
    ) x
    LEFT JOIN agent_data.user_stats u ON u.user_id = p_user;

    IF p_confine IS NOT NULL THEN
        SELECT s.first_message_at, s.last_message_at INTO began, ended
        FROM agent_data.sessions s WHERE s.user_id = p_user AND s.session_id = p_confine;
    END IF;

    -- Vectors: of one session, its own items; else an index-only scan of all the user's, or the graph for those with very many.
    IF p_vector IS NOT NULL AND p_vectors > 0 THEN
        many := many AND p_confine IS NULL;
        IF (many OR stored > p_vectors) AND (p_session IS NOT NULL OR p_ancestors <> '{}') THEN
            -- A long session's own words would otherwise take all the places.
            SELECT COALESCE(array_agg(h.message_id), '{}') INTO hidden
            FROM unnest(p_session || p_ancestors) AS l (session_id)
            JOIN agent_data.sessions s ON s.user_id = p_user AND s.session_id = l.session_id
            CROSS JOIN LATERAL (
                SELECT c.message_id FROM agent_data.conversation_history c
                WHERE c.user_id = p_user AND c.session_id = s.session_id
                  AND c.turn_index >= CASE l.session_id WHEN p_session THEN p_visible ELSE 0 END
                  AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
                OFFSET 0  -- session by session, so that only its months are opened
            ) h;
        END IF;
        hidden := hidden || suppressed;
        IF p_confine IS NOT NULL THEN
            SELECT array_agg(o.id) INTO own FROM (
                SELECT h.message_id AS id FROM agent_data.conversation_history h
                WHERE h.user_id = p_user AND h.session_id = p_confine
                  AND h.created_at >= began AND h.created_at <= ended
                UNION ALL
                SELECT m.memory_id FROM agent_data.memory_store m WHERE m.user_id = p_user AND m.session_id = p_confine
            ) o;
        ELSIF many THEN
            PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                    set_config('hnsw.ef_search', least(1000, greatest(400, 4 * p_vectors))::text, true);
        END IF;
        EXECUTE format(
            'SELECT string_agg(place, ''''), string_agg(float4send((1 - distance)::real), '''') FROM ('
            '  SELECT COALESCE(place, agent_data.item_place(item_id, item_kind, item_at, NULL, NULL, NULL, NULL, NULL)) AS place,'
            '         %1$s AS distance FROM agent_data.embeddings'
            '  WHERE user_id = $2 AND space = %2$s %3$s %4$s %5$s %6$s) x',
            CASE WHEN many THEN format('vector::halfvec(%1$s) <=> $1::halfvec(%1$s)', dims) ELSE 'vector <=> $1' END,
            p_space,
            CASE WHEN p_confine IS NOT NULL THEN 'AND item_id = ANY ($5)' WHEN many THEN 'AND in_hnsw' END,
            CASE WHEN hidden <> '{}' THEN 'AND item_id <> ALL ($3)' END,
            CASE WHEN p_only IS NOT NULL THEN 'AND item_kind = $6' END,
            CASE WHEN many OR stored > p_vectors THEN 'ORDER BY distance LIMIT $4' ELSE 'LIMIT 5 * $4' END)  -- not all counted yet
        INTO scanned, sims USING p_vector, p_user, hidden, CASE WHEN many THEN least(p_vectors, 500) ELSE p_vectors END, own,
                                p_only;
    END IF;

    -- Words: the rarest of the question, by the user's own counts. All of them count, but documents are looked for by the rarest:
    -- once those bring four times as many as are asked for, one that has only commoner words would not be among the best.
    IF p_query <> '' AND p_texts > 0 THEN
        SELECT array_agg(t.lexeme), array_agg(t.documents), array_agg(t.word),
               (string_agg(t.word::text, ' | ') FILTER (WHERE t.before < 4 * p_texts))::tsquery,
               sum(t.documents) FILTER (WHERE t.before < 4 * p_texts) > 16 * p_texts
        INTO words, holding, w, any_of, crowded
        FROM (
            SELECT q.lexeme, ('''' || replace(replace(q.lexeme, '\', '\\'), '''', '''''') || '''')::tsquery AS word,
                   COALESCE(l.documents, 0) AS documents,
                   COALESCE(sum(l.documents) OVER (ORDER BY COALESCE(l.documents, 0), q.lexeme
                                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM unnest(to_tsvector('english', p_query)) AS q
            LEFT JOIN agent_data.lexemes l ON l.user_id = p_user AND l.lexeme = q.lexeme
            ORDER BY COALESCE(l.documents, 0), q.lexeme
            LIMIT least(16, terms)
        ) t;
        of_said := CASE WHEN p_only IS DISTINCT FROM 1 THEN any_of END;
        of_learned := CASE WHEN p_only IS DISTINCT FROM 0 THEN any_of END;
        SELECT string_agg(d.place, ''), string_agg(int8send(d.first) || int8send(d.second), '') INTO said, counts FROM (
            SELECT x.place, x.first,
                   CASE WHEN w[9] IS NULL THEN 0 ELSE
                       agent_data.times_each(x.document, w[9], w[10], w[11], w[12], w[13], w[14], w[15], w[16]) END AS second
            FROM (
                SELECT agent_data.item_place(h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role,
                                             h.token_count, h.name) AS place,
                       h.message_id AS id, h.content_tsv AS document,
                       agent_data.times_each(h.content_tsv, w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]) AS first
                FROM agent_data.conversation_history h
                WHERE of_said IS NOT NULL AND p_confine IS NULL AND h.user_id = p_user AND h.content_tsv @@ of_said
                  AND h.tenant_id = p_tenant AND NOT h.is_pruned
                  -- What stands in the prompt is context for the rest, while it takes no places from it.
                  AND (NOT crowded OR (p_session IS NULL OR h.session_id <> p_session OR h.turn_index < p_visible)
                                      AND h.session_id <> ALL (p_ancestors))
                UNION ALL
                SELECT agent_data.item_place(h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role,
                                             h.token_count, h.name),
                       h.message_id, h.content_tsv,
                       agent_data.times_each(h.content_tsv, w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8])
                FROM agent_data.conversation_history h
                WHERE of_said IS NOT NULL AND p_confine IS NOT NULL AND h.user_id = p_user AND h.session_id = p_confine
                  AND h.created_at >= began AND h.created_at <= ended AND h.content_tsv @@ of_said
                  AND h.tenant_id = p_tenant AND NOT h.is_pruned
                UNION ALL
                SELECT agent_data.item_place(m.memory_id, 1::smallint, m.created_at, NULL, NULL, NULL, m.token_count, NULL),
                       m.memory_id, m.content_tsv,
                       agent_data.times_each(m.content_tsv, w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8])
                FROM agent_data.memory_store m
                WHERE of_learned IS NOT NULL AND m.user_id = p_user AND m.content_tsv @@ of_learned AND m.is_active
                  AND m.tenant_id = p_tenant
                  AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                             p_confine, p_session, p_visible, p_ancestors, p_history)
                UNION ALL
                SELECT agent_data.item_place(m.memory_id, 1::smallint, m.created_at, NULL, NULL, NULL, m.token_count, NULL),
                       m.memory_id, m.content_tsv,
                       agent_data.times_each(m.content_tsv, w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8])
                FROM agent_data.memory_store m
                WHERE of_learned IS NOT NULL AND p_history AND m.user_id = p_user AND m.content_tsv @@ of_learned
                  AND NOT m.is_active AND m.tenant_id = p_tenant
                  AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                             p_confine, p_session, p_visible, p_ancestors, p_history)
            ) x
            WHERE suppressed = '{}' OR x.id <> ALL (suppressed)
            -- Where the rarest word is common: those that have the most different words, the rarest of them weighing most.
            ORDER BY CASE WHEN crowded THEN
                - (sign(x.first & 127) * 1.5 + sign((x.first >> 8) & 127) + sign((x.first >> 16) & 127) + sign((x.first >> 24) & 127)
                   + sign((x.first >> 32) & 127) + sign((x.first >> 40) & 127)) END
            LIMIT 16 * p_texts
        ) d;
    END IF;

    IF p_frequent > 0 AND p_only IS DISTINCT FROM 0 AND p_confine IS NULL THEN
        SELECT string_agg(agent_data.item_place(f.memory_id, 1::smallint, f.created_at, NULL, NULL, NULL, f.token_count, NULL), '')
        INTO used FROM (
            SELECT m.memory_id, m.created_at, m.token_count FROM agent_data.memory_store m
            WHERE m.user_id = p_user AND m.is_active AND m.memory_scope = 1 AND m.tenant_id = p_tenant
              AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                         p_confine, p_session, p_visible, p_ancestors, p_history)
              AND (suppressed = '{}' OR m.memory_id <> ALL (suppressed))
            ORDER BY m.use_level DESC LIMIT p_frequent
        ) f;
    END IF;
END $$;

-- The items that `retrieve` found and the ranking wants, whole: those of them that may come up. `p_ats`: when they were made, in
-- microseconds since 2000.
CREATE FUNCTION agent_data.fetch_items(
    p_tenant uuid, p_user uuid, p_ids uuid[], p_kinds smallint[], p_ats bigint[],
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS TABLE (
    n integer, item_kind smallint, item_id uuid, kind text, content text, role smallint, name text, session_id uuid,
    external_id text, turn_index integer, tier smallint, provenance_type smallint, confidence real, importance real,
    access_count integer, last_accessed_at timestamptz, created_at timestamptz, token_count integer, content_hash bytea,
    status text, entity_ids text[], origin uuid, sources jsonb, metadata jsonb
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone       uuid[];
    superseded uuid[];
BEGIN
    SELECT COALESCE(array_agg(x.item_id) FILTER (WHERE NOT (p_history AND x.reason = 'superseded')), '{}'),
           COALESCE(array_agg(x.item_id) FILTER (WHERE x.reason = 'superseded'), '{}')
    INTO gone, superseded
    FROM agent_data.suppressions x WHERE x.user_id = p_user AND x.item_id = ANY (p_ids);
    RETURN QUERY
    SELECT i.n::integer, 0::smallint, h.message_id, 'message', h.content, h.role, h.name, h.session_id, z.external_id,
           h.turn_index, NULL::smallint, (CASE h.role WHEN 1 THEN 0 WHEN 3 THEN 6 WHEN 4 THEN 6 ELSE 1 END)::smallint, 1::real,
           0.5::real, 0, NULL::timestamptz, h.created_at, h.token_count, h.content_hash,
           CASE WHEN h.message_id = ANY (superseded) THEN 'superseded' ELSE 'active' END, NULL::text[], NULL::uuid,
           NULL::jsonb, NULLIF(h.metadata, '{}')
    FROM unnest(p_ids, p_kinds, p_ats) WITH ORDINALITY AS i (id, kind, at, n)
    JOIN agent_data.conversation_history h ON h.user_id = p_user AND h.message_id = i.id
         AND h.created_at = timestamptz '2000-01-01 00:00:00+00' + i.at * interval '1 microsecond'
    LEFT JOIN agent_data.sessions z ON z.user_id = p_user AND z.session_id = h.session_id
    WHERE i.kind = 0 AND h.tenant_id = p_tenant AND h.content <> '' AND NOT h.is_pruned AND h.message_id <> ALL (gone)
      AND (p_confine IS NULL OR h.session_id = p_confine)
      AND (p_session IS NULL OR h.session_id <> p_session OR h.turn_index < p_visible) AND h.session_id <> ALL (p_ancestors)
    UNION ALL
    SELECT i.n::integer, 1::smallint, m.memory_id, m.kind, m.content_text, NULL::smallint, NULL, m.session_id, NULL,
           m.provenance_turn_index, m.memory_tier, m.provenance_type, m.confidence, m.importance,
           m.access_count, m.last_accessed_at, m.created_at, m.token_count, m.content_hash,
           CASE WHEN m.is_active AND m.expires_at <= now() THEN 'expired' ELSE m.status END,
           NULLIF(m.entity_ids, '{}'),
           CASE WHEN m.source_message_ids[1] = ALL (m.source_message_ids) THEN m.source_message_ids[1] END,
           NULLIF(m.sources, '[]'), NULL::jsonb
    FROM unnest(p_ids, p_kinds) WITH ORDINALITY AS i (id, kind, n)
    JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = i.id
    WHERE i.kind = 1 AND m.tenant_id = p_tenant AND m.memory_id <> ALL (gone)
      AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                 p_confine, p_session, p_visible, p_ancestors, p_history);
END $$;
