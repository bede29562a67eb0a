-- Every upstream call, byte for byte.
--
-- A request is a recipe. The elements of its `messages` array are kept once per user (`message_blobs`); a request's list of
-- them is a chain (`request_chains`): a node names its parent and only the elements that it adds, so that the next turn of a
-- conversation stores only what is new. The leading system messages stand apart, in the chain's last node: they often carry a
-- clock, and would make every chain a new one. What stands before the array and after it is with the call. Prefix, elements
-- and suffix put together are the exact bytes; the SHA-256 with the call proves it on reading.
CREATE TABLE agent_data.message_blobs (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    blob_hash bytea NOT NULL,               -- 16 bytes of BLAKE2b over the bytes
    body      bytea NOT NULL,               -- one array element, with the separator before it
    PRIMARY KEY (user_id, blob_hash)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('message_blobs', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.request_chains (
    user_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    chain_hash  bytea NOT NULL,             -- 16 bytes over all elements up to here
    parent_hash bytea,                      -- NULL: the chain begins here
    blobs       bytea NOT NULL,             -- blob hashes that this node adds, 16 bytes each, in order
    lead        bytea,                      -- blob hashes that stand before all others of the chain
    PRIMARY KEY (user_id, chain_hash)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('request_chains', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.upstream_calls (
    call_id            uuid NOT NULL,       -- version 7: its time is the partition key
    tenant_id          uuid NOT NULL,
    user_id            uuid NOT NULL,
    session_id         uuid,
    created_at         timestamptz NOT NULL DEFAULT now(),
    method             text NOT NULL,
    path               text NOT NULL,       -- with the query string
    upstream           text NOT NULL,
    model              text NOT NULL DEFAULT '',
    answered_model     text,
    streamed           boolean NOT NULL DEFAULT false,
    status             smallint,            -- of the upstream's answer; NULL: there was none
    outcome            smallint NOT NULL,
    memory_status      text NOT NULL,       -- ok, degraded, bypass
    reason             text,
    request_headers    json  NOT NULL DEFAULT '[]',   -- [[name, value], …], secrets masked
    response_headers   json  NOT NULL DEFAULT '[]',
    request_body       bytea,               -- whole, where the body is not a recipe
    request_truncated  boolean NOT NULL DEFAULT false,
    request_prefix     bytea,
    request_suffix     bytea,
    request_chain      bytea,
    request_count      integer,
    request_sha256     bytea,
    request_bytes      bigint NOT NULL DEFAULT 0,
    sent_prefix        bytea,               -- of the request as sent; NULL: sent as received
    sent_suffix        bytea,
    sent_chain         bytea,
    sent_count         integer,
    sent_sha256        bytea,
    prompt_tokens      integer,
    completion_tokens  integer,
    cached_tokens      integer,
    usage_counted      boolean NOT NULL DEFAULT false,  -- counted here, because the upstream told nothing
    cost_microcents    bigint NOT NULL DEFAULT 0,
    latency_ms         integer,
    first_byte_us      bigint,
    overhead_us        bigint,
    idempotency_key    text,
    retry_count        smallint NOT NULL DEFAULT 0,
    error              text,
    metadata           json  NOT NULL DEFAULT '{}',
    key_id             uuid,                -- NULL: no key was shown
    priced             boolean NOT NULL DEFAULT true,  -- false: nobody knows the model's price, and the cost says 0
    labels              text[],              -- sorted, each once; NULL: none
    PRIMARY KEY (call_id, user_id)
) PARTITION BY RANGE (call_id);
CREATE INDEX calls_user ON agent_data.upstream_calls (user_id, call_id DESC);

-- The body of an answer, exactly, with where and when each read and each event began.
CREATE TABLE agent_data.streams (
    call_id       uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    user_id       uuid NOT NULL,
    body          bytea NOT NULL,
    truncated     boolean NOT NULL DEFAULT false,
    chunk_offsets integer[] NOT NULL DEFAULT '{}',   -- bytes from the start
    chunk_times   bigint[] NOT NULL DEFAULT '{}',    -- microseconds since the request came in
    event_offsets integer[] NOT NULL DEFAULT '{}',
    event_times   bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (call_id, user_id)
) PARTITION BY RANGE (call_id);

-- Explains how the context of a call was compiled: budget, sections, and the fate of every candidate.
CREATE TABLE agent_data.compilations (
    call_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    user_id    uuid NOT NULL,
    session_id uuid,
    audit      json NOT NULL,
    eta        real,
    PRIMARY KEY (call_id, user_id)
) PARTITION BY RANGE (call_id);

DO $$
DECLARE
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['upstream_calls', 'streams', 'compilations'] LOOP
        EXECUTE format('CREATE TABLE agent_data.%I PARTITION OF agent_data.%I DEFAULT', parent || '_rest', parent);
    END LOOP;
END $$;

-- The monthly partitions of the captures, as `ensure_history_partitions` makes them for the history.
CREATE FUNCTION agent_data.ensure_capture_partitions(from_month date, to_month date) RETURNS integer
LANGUAGE plpgsql SET search_path = agent_data, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    month  date := date_trunc('month', from_month);
    made   integer := 0;
    parent text;
    part   text;
    low    uuid;
    high   uuid;
BEGIN
    WHILE month <= to_month LOOP
        low := agent_data.uuid7_floor(month::timestamptz);
        high := agent_data.uuid7_floor((month + interval '1 month')::timestamptz);
        FOREACH parent IN ARRAY ARRAY['upstream_calls', 'streams', 'compilations'] LOOP
            part := parent || '_' || to_char(month, 'YYYYMM');
            CONTINUE WHEN to_regclass('agent_data.' || quote_ident(part)) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE agent_data.%I PARTITION OF agent_data.%I FOR VALUES FROM (%L) TO (%L)',
                               part, parent, low, high);
            EXCEPTION WHEN check_violation THEN
                CONTINUE;  -- the default partition holds calls of this month
            END;
            EXECUTE format('ALTER TABLE agent_data.%I ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE agent_data.%I FORCE ROW LEVEL SECURITY', part);
            made := made + 1;
        END LOOP;
        month := month + interval '1 month';
    END LOOP;
    RETURN made;
END $$;

-- The call that a repetition repeats: the hash is of its Idempotency-Key, the session it names, and its body.
CREATE TABLE agent_data.idempotency_keys (
    tenant_id  uuid NOT NULL,
    user_id    uuid NOT NULL,
    key_hash   bytea NOT NULL,
    call_id    uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, key_hash)
);

-- One row an event, for reading: the bytes from where it begins to where the next one does.
CREATE VIEW agent_data.stream_events WITH (security_invoker = true) AS
SELECT s.call_id, s.tenant_id, s.user_id, (e.n - 1)::integer AS seq, e.at AS t_us, e.start AS "offset",
       substring(s.body FROM e.start + 1 FOR COALESCE(s.event_offsets[e.n + 1], length(s.body)) - e.start) AS data
FROM agent_data.streams s,
     unnest(s.event_offsets, s.event_times) WITH ORDINALITY AS e (start, at, n);

SELECT agent_data.ensure_capture_partitions(now()::date, (now() + interval '2 months')::date);
CREATE INDEX calls_labelled ON agent_data.upstream_calls (tenant_id, call_id DESC) WHERE labels IS NOT NULL;

-- Gives a call its labels, in place of those that it had; whether there is such a call (of user `p_user`, if one is named).
-- All else of a call is written once.
CREATE FUNCTION agent_data.label_call(p_tenant uuid, p_user uuid, p_call uuid, p_labels text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    UPDATE agent_data.upstream_calls c SET labels = NULLIF(p_labels, '{}')
    WHERE c.call_id = p_call AND c.tenant_id = p_tenant AND (p_user IS NULL OR c.user_id = p_user);
    RETURN FOUND;
END $$;

-- A tenant's calls by time, for lists and for the overview (GET /api/v1/overview). Without it the last hour of a small tenant is
-- looked for among everybody's calls. Ids grow with time, so that an entry is put behind the tenant's last one.
CREATE INDEX calls_tenant ON agent_data.upstream_calls (tenant_id, call_id DESC);
