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
    status                  smallint NOT NULL DEFAULT 1,
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
    head_message_id         uuid,          -- the newest answer: where the conversation goes on
    head_turn_index         integer NOT NULL DEFAULT 0,
    head_chain              bytea,         -- chain hash up to there: a server-managed turn is chained on it
    tail1                   bytea,         -- hash of the last answered turn, for clients that cut the head off
    tail2                   bytea,         -- hash of the last two
    block_epoch             integer NOT NULL DEFAULT 0,  -- raised by a rebase of the memory blocks
    first_message_at        timestamptz,   -- with last_message_at: the months that a read of the history must open
    last_message_at         timestamptz,
    metadata                jsonb NOT NULL DEFAULT '{}',
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
    role                  smallint NOT NULL,
    content               text,
    content_parts         jsonb,             -- multimodal content, whole
    name                  text,
    tool_calls            jsonb,
    tool_call_id          text,
    content_hash          bytea,             -- SHA-256 of the normalised text
    message_hash          bytea,             -- 16 bytes: the canonical form that transcripts are compared by
    content_tsv           tsvector,
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
CREATE INDEX history_text ON agent_data.conversation_history USING gin (user_id, content_tsv);

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
    token_count  integer NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id, epoch, message_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('context_blocks', current_setting('mneme.hash_partitions')::int);
