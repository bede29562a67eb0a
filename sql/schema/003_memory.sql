-- What is remembered.

-- Seed 000 §2.2, the one table of everything remembered, with the columns that the other seeds need (their tables are views).
CREATE TABLE agent_data.memory_store (
    memory_id             uuid NOT NULL,
    user_id               uuid NOT NULL,
    tenant_id             uuid NOT NULL,
    session_id            uuid,
    -- The session for requests without a user, whose memories are never pooled; else the nil uuid.
    dedup_scope           uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    memory_tier           smallint NOT NULL CHECK (memory_tier BETWEEN 0 AND 4),
    memory_scope          smallint NOT NULL CHECK (memory_scope IN (0, 1)),
    kind                  text NOT NULL DEFAULT 'fact' CHECK (kind IN (
        'fact', 'preference', 'instruction', 'correction', 'episode', 'event', 'pattern', 'procedure', 'summary',
        'entity_profile', 'tool_outcome')),
    content_text          text NOT NULL,
    content_hash          bytea NOT NULL,
    content_tsv           tsvector GENERATED ALWAYS AS (to_tsvector('english', content_text)) STORED,
    provenance_type       smallint NOT NULL,
    provenance_turn_id    uuid,              -- the message that it was learned from
    provenance_turn_index integer,
    source_message_ids    uuid[] NOT NULL DEFAULT '{}',
    sources               jsonb NOT NULL DEFAULT '[]',  -- [{session, session_id, message_id, turn_index, quote, metadata}]
    confidence            real NOT NULL DEFAULT 0.5 CHECK (confidence BETWEEN 0 AND 1),
    confidence_factors    jsonb NOT NULL DEFAULT '{}',
    importance            real NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    relevance_accumulator real NOT NULL DEFAULT 0,
    access_count          integer NOT NULL DEFAULT 0,
    -- ⌊ln(access_count + 1)⌋, which an index may hold: most uses leave it as it is, and change no index then.
    use_level             smallint NOT NULL GENERATED ALWAYS AS (floor(ln(access_count + 1::double precision))) STORED,
    reinforcement_count   integer NOT NULL DEFAULT 0,
    last_accessed_at      timestamptz,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    expires_at            timestamptz,
    valid_from            timestamptz,
    valid_to              timestamptz,
    status                text NOT NULL DEFAULT 'active' CHECK (status IN (
        'active', 'aging', 'superseded', 'invalidated', 'expired', 'forgotten')),
    is_active             boolean GENERATED ALWAYS AS (status IN ('active', 'aging')) STORED,
    is_validated          boolean NOT NULL DEFAULT false,
    validated_by          text,
    last_validated_at     timestamptz,
    token_count           integer NOT NULL,
    superseded_by         uuid,
    subject_entity_id     text,
    predicate             text,
    predicate_type        text,
    object_value          text,
    entity_ids            text[] NOT NULL DEFAULT '{}',
    tags                  text[] NOT NULL DEFAULT '{}',
    details               jsonb NOT NULL DEFAULT '{}',
    metadata              jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (user_id, memory_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_store', current_setting('mneme.hash_partitions')::int);
-- Room in every page for the next version of a row, so that counting a use writes no index.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'agent_data.memory_store'::regclass LOOP
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 90)', part);
    END LOOP;
END $$;
-- One active memory per text: what makes the exact duplicate check of seed 000 §5.4 hold under concurrency.
CREATE UNIQUE INDEX memory_content ON agent_data.memory_store (user_id, content_hash, dedup_scope) WHERE is_active;
CREATE INDEX memory_user_tier ON agent_data.memory_store (user_id, memory_tier, created_at DESC) WHERE is_active;
CREATE INDEX memory_frequent ON agent_data.memory_store (user_id, use_level DESC) WHERE is_active AND memory_scope = 1;
CREATE INDEX memory_text ON agent_data.memory_store USING gin (user_id, content_tsv) WHERE is_active;
CREATE INDEX memory_expiry ON agent_data.memory_store (expires_at) WHERE expires_at IS NOT NULL AND is_active;
CREATE INDEX memory_tags ON agent_data.memory_store USING gin (user_id, tags) WHERE is_active;
CREATE INDEX memory_superseded ON agent_data.memory_store (user_id, superseded_by) WHERE superseded_by IS NOT NULL;

-- Every change of a memory, oldest first.
CREATE TABLE agent_data.memory_events (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    memory_id  uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    event      text NOT NULL,               -- created, merged, reinforced, edited, invalidated, restored, superseded, deleted
    before     jsonb,
    after      jsonb,
    actor      text NOT NULL                -- system, user, api
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_events', current_setting('mneme.hash_partitions')::int);
CREATE INDEX memory_events_memory ON agent_data.memory_events (user_id, memory_id, at);

-- L0 (seed 000 §2.2): preferences in force, pending confirmations and tool results of a running session. Unlogged: losing it
-- loses nothing, it is rebuilt from the session.
CREATE UNLOGGED TABLE agent_data.memory_store_working (
    user_id             uuid NOT NULL,
    tenant_id           uuid NOT NULL,
    session_id          uuid NOT NULL,
    active_preferences  jsonb NOT NULL DEFAULT '[]',
    pending_confirmations jsonb NOT NULL DEFAULT '[]',
    tool_results_buffer jsonb NOT NULL DEFAULT '[]',
    updated_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id)
);

-- One vector space per embedding model; two spaces are never compared.
CREATE TABLE agent_data.embedding_spaces (
    space      smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    dimensions integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- All that ranking needs to know of an item beside its vector and its words, in one value of 56 bytes, so that a thousand of them
-- leave an index as fast as one number each. `app/store/places.py` reads it: item, session (nil: none), microseconds since 2000,
-- turn, tokens, role (9: a memory, or other), kind, and the start of SHA-256 of the speaker's first name (0: none).
CREATE FUNCTION agent_data.item_place(
    p_item uuid, p_kind smallint, p_at timestamptz, p_session uuid, p_turn integer, p_role smallint, p_tokens integer, p_name text
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT uuid_send(p_item) || uuid_send(COALESCE(p_session, '00000000-0000-0000-0000-000000000000')) || timestamptz_send(p_at)
        || int4send(COALESCE(p_turn, 0)) || int4send(COALESCE(p_tokens, 0)) || int2send(COALESCE(p_role, 9::smallint))
        || int2send(p_kind)
        || CASE WHEN p_name <> '' THEN substring(sha256(convert_to(lower(split_part(p_name, ' ', 1)), 'UTF8')) FOR 4)
           ELSE '\x00000000' END
$$;

-- Vectors of messages and memories, apart from them, so that changing the embedder changes neither. `in_hnsw` is set for
-- users who have outgrown the exact scan: only their rows pay for the graph.
CREATE TABLE agent_data.embeddings (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    space     smallint NOT NULL,
    item_id   uuid NOT NULL,
    item_kind smallint NOT NULL,            -- 0 message, 1 memory
    item_at   timestamptz NOT NULL,         -- created_at of the item: leads to its monthly partition
    in_hnsw   boolean NOT NULL DEFAULT false,
    vector    halfvec NOT NULL,
    place     bytea,                        -- see item_place; NULL: an item that stands alone
    PRIMARY KEY (user_id, space, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('embeddings', current_setting('mneme.hash_partitions')::int);

-- Registers a space and makes its indexes; returns its number. The covering index makes the exact scan of one user an
-- index-only scan; a btree entry holds at most a third of a page, so wide vectors go without.
CREATE FUNCTION agent_data.ensure_embedding_space(space_name text, dims integer) RETURNS smallint
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    number smallint;
    known  integer;
BEGIN
    SELECT space, dimensions INTO number, known FROM agent_data.embedding_spaces WHERE name = space_name;
    IF number IS NULL THEN
        INSERT INTO agent_data.embedding_spaces (name, dimensions) VALUES (space_name, dims)
        ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name RETURNING space, dimensions INTO number, known;
    END IF;
    IF known <> dims THEN
        RAISE EXCEPTION 'the embedding space % has % dimensions, not %', space_name, known, dims;
    END IF;
    IF to_regclass(format('agent_data.embeddings_hnsw_%s', number)) IS NULL THEN
        EXECUTE format('CREATE INDEX embeddings_hnsw_%s ON agent_data.embeddings USING hnsw '
                       '((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 64) '
                       'WHERE space = %s AND in_hnsw', number, dims, number);
        IF dims <= 1200 THEN
            EXECUTE format('CREATE INDEX embeddings_scan_%s ON agent_data.embeddings (user_id) '
                           'INCLUDE (item_id, item_kind, item_at, place, vector) WHERE space = %s', number, number);
        END IF;
        -- For the search for near duplicates, which asks among the memories alone.
        EXECUTE format('CREATE INDEX embeddings_memories_%s ON agent_data.embeddings (user_id) %s '
                       'WHERE space = %s AND item_kind = 1', number,
                       CASE WHEN dims <= 1200 THEN 'INCLUDE (item_id, vector)' ELSE '' END, number);
    END IF;
    RETURN number;
END $$;

-- In how many of a user's documents a word stands: what turns full text into BM25.
CREATE TABLE agent_data.lexemes (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    lexeme    text NOT NULL,
    documents integer NOT NULL,
    PRIMARY KEY (user_id, lexeme)
) PARTITION BY HASH (user_id) ;
SELECT agent_data.make_hash_partitions('lexemes', current_setting('mneme.hash_partitions')::int);

-- What must not surface: forgotten, erased or superseded items; and keyed hashes, without content, of what was forgotten, so
-- that a resent transcript does not bring it back.
CREATE TABLE agent_data.suppressions (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    item_id      uuid NOT NULL,
    reason       text NOT NULL,
    content_hmac bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('suppressions', current_setting('mneme.hash_partitions')::int);
