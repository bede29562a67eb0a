-- Sessions and their messages.

-- Seed 000 §2.1, with 003's type and end. `turn_count` counts messages, as the seed does; it is taken by UPDATE … RETURNING.
CREATE TABLE agent_data.sessions (
    session_id              uuid NOT NULL,
    user_id                 uuid NOT NULL,
    tenant_id               uuid NOT NULL,
    external_id             text,
    created_at              timestamptz NOT NULL DEFAULT now(),
    updated_at              timestamptz NOT NULL DEFAULT now(),
    expires_at              timestamptz NOT NULL,
    ended_at                timestamptz,
    status                  smallint NOT NULL DEFAULT 1 CHECK (status BETWEEN 1 AND 4),  -- `session_status` of `enumerations`
    session_type            text NOT NULL DEFAULT 'conversation',
    model_id                text NOT NULL DEFAULT '',
    context_window_size     integer NOT NULL DEFAULT 0,
    system_prompt_hash      bytea,
    system_prompt_tokens    integer NOT NULL DEFAULT 0,
    temperature             real,
    top_p                   real,
    max_response_tokens     integer NOT NULL DEFAULT 4096,
    turn_count              integer NOT NULL DEFAULT 0,
    total_prompt_tokens     bigint NOT NULL DEFAULT 0,
    total_completion_tokens bigint NOT NULL DEFAULT 0,
    total_cost_microcents   bigint NOT NULL DEFAULT 0,
    summary_text            text,
    summary_embedding       halfvec,
    summary_token_count     integer NOT NULL DEFAULT 0,
    parent_session_id       uuid,
    branch_turn_index       integer,       -- the last message shared with the parent
    in_role_play            boolean NOT NULL DEFAULT false,  -- a message of the user began a role play or a story
    is_playing              boolean NOT NULL DEFAULT false,  -- the user has a role in it, and has not stopped: nothing is learned
    head_message_id         uuid,          -- the newest answer: where the conversation goes on
    head_turn_index         integer NOT NULL DEFAULT 0,
    head_chain              bytea,         -- chain hash up to there: a server-managed turn is chained on it
    tail1                   bytea,         -- hash of the last answered turn, for clients that cut the head off
    tail2                   bytea,         -- hash of the last two
    block_epoch             integer NOT NULL DEFAULT 0,  -- raised by a rebase of the memory blocks
    first_message_at        timestamptz,   -- with last_message_at: the months that a read of the history must open
    last_message_at         timestamptz,
    metadata                jsonb NOT NULL DEFAULT '{}',
    summary_space           smallint,        -- of `summary_embedding`; after a change of the embedder the words alone count
    config                  jsonb NOT NULL DEFAULT '{}',  -- settings of this session (seed 002 §1.1), such as whether it is paged
    deleted_at              timestamptz,   -- it was deleted then, and with it every turn that had begun
    PRIMARY KEY (user_id, session_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('sessions', current_setting('mneme.hash_partitions')::int);
CREATE INDEX sessions_user_all ON agent_data.sessions (user_id, created_at DESC);
CREATE INDEX sessions_tail ON agent_data.sessions (user_id, tail1) WHERE tail1 IS NOT NULL;
CREATE INDEX sessions_expiry ON agent_data.sessions (expires_at) WHERE status <> 4;

-- Where transcripts are recognised: after every answer, the chain hash of all that was said so far.
CREATE TABLE agent_data.session_heads (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    chain_hash     bytea NOT NULL,          -- 16 bytes
    session_id     uuid NOT NULL,
    message_id     uuid NOT NULL,           -- the answer (or, for `asked`, the question)
    turn_index     integer NOT NULL,
    asked          boolean NOT NULL,        -- the chain up to a question: finds regenerations and retries
    visible_from   integer NOT NULL DEFAULT 1, -- turn index of the first message of that transcript: later, where its head was cut
    request_chain  bytea,                   -- that call's request (see request_chains), to store only what is new
    request_count  integer,
    sent_chain     bytea,
    sent_count     integer,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, chain_hash, session_id, message_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('session_heads', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.system_prompts (
    tenant_id   uuid NOT NULL,
    prompt_hash bytea NOT NULL,            -- SHA-256 of the text
    prompt      text NOT NULL,
    token_count integer NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, prompt_hash)
);

-- Seed 000 §2.3. A session is a tree: `parent_message_id` is what a message followed; a regenerated answer is a sibling with
-- the same `turn_index`. Vectors live in `embeddings`, so that this table stays append-only.
CREATE TABLE agent_data.conversation_history (
    message_id            uuid NOT NULL,
    session_id            uuid NOT NULL,
    user_id               uuid NOT NULL,
    tenant_id             uuid NOT NULL,
    turn_index            integer NOT NULL,
    sibling               smallint NOT NULL DEFAULT 0,
    parent_message_id     uuid,
    role                  smallint NOT NULL CHECK (role IN (0, 1, 2, 3, 4, 5, 9)),  -- `role` of `enumerations`
    content               text,
    content_parts         jsonb,             -- multimodal content, whole
    name                  text,
    tool_calls            jsonb,
    tool_call_id          text,
    reasoning             jsonb,             -- what a model thought before its answer, in the form in which it came: never searched
    content_hash          bytea,             -- SHA-256 of the normalised text
    message_hash          bytea,             -- 16 bytes: the canonical form that transcripts are compared by
    token_count           integer NOT NULL,
    model_id              text,
    finish_reason         smallint,
    prompt_tokens         integer,
    completion_tokens     integer,
    latency_ms            integer,
    call_id               uuid,              -- the upstream call that this message was part of
    created_at            timestamptz NOT NULL DEFAULT now(),
    is_compressed         boolean NOT NULL DEFAULT false,
    compressed_summary_id uuid,
    is_pruned             boolean NOT NULL DEFAULT false,
    hidden                boolean NOT NULL DEFAULT false, -- said while Mneme was asked to learn nothing: never found by a search
    metadata              jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (user_id, message_id, created_at)
) PARTITION BY HASH (user_id);

DO $$
DECLARE
    n int := current_setting('mneme.history_partitions')::int;
BEGIN
    FOR i IN 0 .. n - 1 LOOP
        EXECUTE format('CREATE TABLE agent_data.conversation_history_p%s PARTITION OF agent_data.conversation_history '
                       'FOR VALUES WITH (MODULUS %s, REMAINDER %s) PARTITION BY RANGE (created_at)', i, n, i);
        EXECUTE format('CREATE TABLE agent_data.conversation_history_p%s_rest '
                       'PARTITION OF agent_data.conversation_history_p%s DEFAULT', i, i);
    END LOOP;
END $$;
CREATE INDEX history_session_turn ON agent_data.conversation_history (user_id, session_id, turn_index DESC);

-- Makes the monthly partitions from one month to another, both included, and those of the captures. Run ahead of time by the
-- owner's schedule, never by the writer. A month of which the default partition already holds rows stays there: moving
-- them would lock the table. Returns how many partitions it made.
CREATE FUNCTION agent_data.ensure_history_partitions(from_month date, to_month date) RETURNS integer
LANGUAGE plpgsql SET search_path = agent_data, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    month date := date_trunc('month', from_month);
    made  integer := 0;
    base  record;
    part  text;
BEGIN
    WHILE month <= to_month LOOP
        FOR base IN
            SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'agent_data.conversation_history'::regclass ORDER BY 1
        LOOP
            part := base.name || '_' || to_char(month, 'YYYYMM');
            CONTINUE WHEN to_regclass('agent_data.' || quote_ident(part)) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE agent_data.%I PARTITION OF agent_data.%I FOR VALUES FROM (%L) TO (%L)',
                               part, base.name, month::timestamptz, (month + interval '1 month')::timestamptz);
            EXCEPTION WHEN check_violation THEN
                CONTINUE;  -- the default partition holds rows of this month
            END;
            EXECUTE format('ALTER TABLE agent_data.%I ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE agent_data.%I FORCE ROW LEVEL SECURITY', part);
            EXECUTE format('CREATE TRIGGER index_emptied AFTER TRUNCATE ON agent_data.%I EXECUTE FUNCTION agent_data.index_emptied()', part);
            made := made + 1;
        END LOOP;
        month := month + interval '1 month';
    END LOOP;
    RETURN made;
END $$;

-- History is only ever added to (seed 000 §2.3, §13). Compaction and pruning may set their three columns; the erasing role
-- may do anything.
CREATE FUNCTION agent_data.guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = 'mneme_eraser' THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        OLD.is_compressed := NEW.is_compressed;
        OLD.compressed_summary_id := NEW.compressed_summary_id;
        OLD.is_pruned := NEW.is_pruned;
        -- The words of a summary go with what they were drawn from.
        IF OLD.turn_index = -1 AND NEW.content IS NULL THEN
            OLD.content := NULL;
        END IF;
        IF OLD IS NOT DISTINCT FROM NEW THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'conversation_history is append-only' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON agent_data.conversation_history
    FOR EACH ROW EXECUTE FUNCTION agent_data.guard_history();

-- The memory block of a turn, as it stands in the prompt: emitted again byte for byte in later turns of its epoch.
CREATE TABLE agent_data.context_blocks (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    epoch        integer NOT NULL,
    message_id   uuid NOT NULL,             -- the user message that it stands in
    chain_hash   bytea NOT NULL,
    message_hash bytea NOT NULL,
    text         text NOT NULL,
    item_ids     uuid[] NOT NULL,
    item_spaces  uuid[],                    -- of each item the space that it is of, NULL: the user's own; NULL where all are
    token_count  integer NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id, epoch, message_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('context_blocks', current_setting('mneme.hash_partitions')::int);

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
    OUT gone_items uuid[], OUT block_spaces uuid[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
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
    -- A space is never a caller: who asks by its id, or by that of a session of it, is refused as for somebody else's session.
    IF EXISTS (SELECT FROM agent_data.spaces x WHERE x.tenant_id = p_tenant AND x.user_id = p_user)
       OR p_issued IS NOT NULL
          AND EXISTS (SELECT FROM agent_data.spaces x WHERE x.tenant_id = p_tenant AND x.user_id = p_issued) THEN
        how := 'foreign';
        RETURN;
    END IF;
    IF p_issued IS NOT NULL THEN
        SELECT r.user_id, r.target INTO owner, wanted FROM agent_data.routes r
        WHERE r.tenant_id = p_tenant AND r.id = p_issued AND r.kind = 'session'
        ORDER BY (r.user_id = p_user) DESC LIMIT 1;
        IF owner <> p_user
           AND (NOT p_nobody OR EXISTS (SELECT FROM agent_data.spaces x WHERE x.tenant_id = p_tenant AND x.user_id = owner)) THEN
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
        SELECT array_agg(i.item ORDER BY b.created_at, i.n), array_agg(i.space ORDER BY b.created_at, i.n)
        INTO block_items, block_spaces
        FROM agent_data.context_blocks b, unnest(b.item_ids, b.item_spaces) WITH ORDINALITY AS i (item, space, n)
        WHERE b.user_id = p_user AND b.session_id = s.session_id AND b.epoch = s.block_epoch;
        -- Forgetting goes before caching: what is suppressed, or no longer in force, must leave the prompt.
        SELECT array_agg(x.item) INTO gone_items FROM (
            SELECT u.item_id AS item FROM agent_data.suppressions u
            WHERE u.user_id = p_user AND u.item_id = ANY (block_items)
            UNION
            SELECT m.memory_id FROM agent_data.memory_store m
            WHERE m.user_id = p_user AND m.memory_id = ANY (block_items) AND NOT m.is_active
            UNION
            SELECT g.item FROM agent_data.context_blocks b
            CROSS JOIN LATERAL agent_data.gone_of_spaces(p_tenant, p_user, b.item_ids, b.item_spaces) AS g (item)
            WHERE b.user_id = p_user AND b.session_id = s.session_id AND b.epoch = s.block_epoch AND b.item_spaces IS NOT NULL
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
    created_at timestamptz, metadata jsonb, hidden boolean, reasoning jsonb
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT h.message_id, h.parent_message_id, h.turn_index, h.sibling, h.role, h.content, h.content_parts, h.name,
           h.tool_calls, h.tool_call_id, h.message_hash, h.token_count, h.created_at, h.metadata,
           h.is_compressed OR h.is_pruned OR EXISTS (
               SELECT FROM agent_data.suppressions x
               WHERE x.user_id = p_user AND x.item_id = h.message_id AND x.reason NOT IN ('superseded', 'resent')),
           h.reasoning
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

-- Whether a message of a session, said at `p_at`, came as the history of a request (`p_call`; NULL: of an import): an answer and
-- something newer of the user's came with it, microseconds later (`app/capture/record.py`).
CREATE FUNCTION agent_data.came_as_history(p_user uuid, p_session uuid, p_call uuid, p_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM agent_data.conversation_history r
        JOIN agent_data.conversation_history n ON n.user_id = p_user AND n.session_id = p_session AND n.role = 1
            AND n.created_at > r.created_at AND n.created_at < p_at + interval '1 second'
            AND n.call_id IS NOT DISTINCT FROM p_call
        WHERE r.user_id = p_user AND r.session_id = p_session AND r.role <> 1
          AND r.created_at > p_at AND r.created_at < p_at + interval '1 second')
$$;

-- Of some messages of the user's those that are only said again: they stood in another session before, word for word, and came as the
-- history of a request, or are of the very same moment as another, as what is imported twice: of these the first teaches. They are found like any, but teach nothing, and what they order was ordered then.
-- One look at all of the user's messages, whatever their number: they have no index by their hash.
CREATE FUNCTION agent_data.restated(p_user uuid, p_messages uuid[], p_since timestamptz, p_until timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    WITH again AS MATERIALIZED (
        SELECT h.message_id, h.session_id, h.message_hash, h.created_at,
               agent_data.came_as_history(p_user, h.session_id, h.call_id, h.created_at) AS history
        FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.message_id = ANY (p_messages) AND h.created_at BETWEEN p_since AND p_until AND h.role = 1
    )
    SELECT a.message_id FROM again a
    WHERE EXISTS (
        SELECT FROM agent_data.conversation_history o
        WHERE o.user_id = p_user AND o.role = 1 AND o.created_at <= p_until AND o.message_hash = a.message_hash
          AND o.session_id <> a.session_id
          AND (o.created_at = a.created_at AND o.message_id < a.message_id OR a.history AND o.created_at < a.created_at))
$$;
