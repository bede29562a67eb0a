-- Paging (seed 002): what long sessions are made of, at several fidelities, and what the model asked of what was left out.
--
-- The tables are the seed's, with user and tenant in every key, and turns as numbers beside times. All ids of objects are derived
-- from the session and the message, so that what is sent again makes no second one.

CREATE TABLE agent_data.paged_sessions (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    session_id     uuid NOT NULL,
    zone           text NOT NULL DEFAULT 'normal' CHECK (zone IN ('normal', 'caution', 'warning', 'critical', 'emergency')),
    turn           integer NOT NULL DEFAULT 0,       -- of the last decision
    budget         integer NOT NULL DEFAULT 0,       -- tokens of a prompt, then
    tokens         integer NOT NULL DEFAULT 0,       -- of that prompt as the client wrote it
    shown_tokens   integer NOT NULL DEFAULT 0,       -- as it was sent
    avoided_tokens bigint NOT NULL DEFAULT 0,        -- of all requests of the session
    offered        boolean NOT NULL DEFAULT false,   -- the phantom tools stand in its requests
    marks          bytea NOT NULL DEFAULT '',        -- 16 bytes for each message that was segmented
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('paged_sessions', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.semantic_objects (
    user_id           uuid NOT NULL,
    tenant_id         uuid NOT NULL,
    session_id        uuid NOT NULL,
    object_id         uuid NOT NULL,
    ordinal           integer NOT NULL,              -- within the session, in the order in which they were made
    object_type       text NOT NULL,                 -- app/paging/values.py: ObjectType
    kind              text NOT NULL,                 -- what the content is made of: ContentKind
    source_tool       text,
    source_key        text,
    content_full      text NOT NULL,                 -- L0
    content_hash      bytea NOT NULL,                -- 16 bytes of BLAKE2b over the content as it came
    summary_detailed  text,                          -- L1
    summary_compact   text,                          -- L2
    stub              text NOT NULL,                 -- L3
    losses_l1         jsonb NOT NULL DEFAULT '[]',
    losses_l2         jsonb NOT NULL DEFAULT '[]',
    can_answer_l1     jsonb NOT NULL DEFAULT '[]',
    can_answer_l2     jsonb NOT NULL DEFAULT '[]',
    fault_when        jsonb NOT NULL DEFAULT '[]',
    key_entities      jsonb NOT NULL DEFAULT '[]',
    tags              text[] NOT NULL DEFAULT '{}',
    parts             jsonb NOT NULL,                -- [[mark as hex, start, stop], …]: where it stands in the transcript
    current_fidelity  smallint NOT NULL DEFAULT 0 CHECK (current_fidelity BETWEEN 0 AND 4),
    wanted            text CHECK (wanted IN ('restore', 'raise')),   -- what the model's faults ask of the next decision
    pinned            boolean NOT NULL DEFAULT false,
    pin_reason        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    last_accessed     timestamptz NOT NULL DEFAULT now(),
    accessed_turn     integer NOT NULL,              -- the turn of `last_accessed`
    access_count      integer NOT NULL DEFAULT 0,
    fault_count       integer NOT NULL DEFAULT 0,
    micro_fault_count integer NOT NULL DEFAULT 0,
    tokens_l0         integer NOT NULL,
    tokens_l1         integer,
    tokens_l2         integer,
    tokens_l3         integer NOT NULL,
    source_turn_start integer NOT NULL,
    source_turn_end   integer NOT NULL,
    shrunk_at         timestamptz,                   -- NULL: a job has not made L1 and L2 yet
    content_tsv       tsvector NOT NULL DEFAULT '',
    space             smallint,                      -- of `embedding`; NULL: a job has not embedded it yet
    embedding         halfvec,
    PRIMARY KEY (user_id, object_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('semantic_objects', current_setting('mneme.hash_partitions')::int);
CREATE INDEX objects_session ON agent_data.semantic_objects (user_id, session_id, ordinal);
CREATE INDEX objects_source_key ON agent_data.semantic_objects (user_id, session_id, source_key) WHERE source_key IS NOT NULL;

CREATE TABLE agent_data.object_relationships (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    source_id    uuid NOT NULL,
    target_id    uuid NOT NULL,
    relationship text NOT NULL CHECK (relationship IN ('parent_of', 'caused_by', 'references', 'supersedes', 'depends_on')),
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, source_id, target_id, relationship)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('object_relationships', current_setting('mneme.hash_partitions')::int);
CREATE INDEX relationships_target ON agent_data.object_relationships (user_id, target_id);
CREATE INDEX relationships_session ON agent_data.object_relationships (user_id, session_id);

CREATE TABLE agent_data.fault_history (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    session_id     uuid NOT NULL,
    fault_id       uuid NOT NULL,
    call_id        uuid,                             -- NULL: asked through the API
    object_id      uuid,                             -- the best object; NULL: nothing answered
    fault_type     text NOT NULL CHECK (fault_type IN ('full_restore', 'micro_fault', 'entropy_triggered')),
    turn_number    integer NOT NULL,
    content_hash   bytea,
    question       text,
    answer         text,
    answer_tokens  integer NOT NULL DEFAULT 0,
    avoided_tokens integer NOT NULL DEFAULT 0,
    latency_ms     integer NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, fault_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('fault_history', current_setting('mneme.hash_partitions')::int);
CREATE INDEX faults_session ON agent_data.fault_history (user_id, session_id, created_at);
CREATE INDEX faults_object ON agent_data.fault_history (user_id, object_id) WHERE object_id IS NOT NULL;

CREATE TABLE agent_data.fidelity_transitions (
    user_id       uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    session_id    uuid NOT NULL,
    object_id     uuid NOT NULL,
    call_id       uuid NOT NULL,
    from_fidelity smallint NOT NULL,
    to_fidelity   smallint NOT NULL,
    trigger       text NOT NULL CHECK (trigger IN ('pressure', 'access', 'fault', 'cooperative', 'goal_change')),
    turn_number   integer NOT NULL,
    pressure_zone text NOT NULL,
    token_count   integer NOT NULL,                  -- of the whole prompt before the changes of that turn
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, object_id, call_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('fidelity_transitions', current_setting('mneme.hash_partitions')::int);
CREATE INDEX transitions_session ON agent_data.fidelity_transitions (user_id, session_id, created_at);

CREATE TABLE agent_data.admission_scores (
    user_id         uuid NOT NULL,
    tenant_id       uuid NOT NULL,
    session_id      uuid NOT NULL,
    admission_id    uuid NOT NULL,
    object_id       uuid,                            -- NULL: rejected
    admitted        boolean NOT NULL,
    score_total     real NOT NULL,
    score_type      real NOT NULL,
    score_novelty   real NOT NULL,
    score_utility   real NOT NULL,
    score_recency   real NOT NULL,
    threshold       real NOT NULL,
    content_preview text,                            -- first 200 characters
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, admission_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('admission_scores', current_setting('mneme.hash_partitions')::int);
CREATE INDEX admissions_session ON agent_data.admission_scores (user_id, session_id, created_at);

-- What the model asked and was told behind the client's back, by the chain hash of the answer that the client knows.
CREATE TABLE agent_data.phantom_ledger (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    answer_chain bytea NOT NULL,
    call_id      uuid NOT NULL,
    hidden       bytea NOT NULL,                     -- JSON (phantom_ledger.Hidden): text that Postgres' own types refuse may be in it
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id, answer_chain)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('phantom_ledger', current_setting('mneme.hash_partitions')::int);

SELECT agent_data.protect_tables();
