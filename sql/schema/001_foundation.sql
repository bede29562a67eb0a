-- A tour of the schema, in the order of the files.
--
--   001 foundation   roles, tenants, users, keys, routes, the lookups
--   002 history      sessions, messages (append-only, by user and by month), heads, prompt blocks
--   003 memory       what was learned, vectors by space, word counts, suppressions, working memory
--   004 capture      every upstream call, byte for byte
--   005 access       row-level security and grants
--   006 reads        the hot reads, as functions with mandatory tenant and user
--   007 record       the one write of a turn
--   008 limits       what a key may use, and what was spent
--   009 privacy      erasure and retention
--   010 lifecycle    what becomes of a memory: its formulas and sweeps
--   011 consolidation episodes, summaries, compaction, and what forgetting does to them
--   012 facts        the persona, outcomes, another embedder, export
--   013 triples      wordings of one memory, contradictions, and what follows when a memory ends
--
-- Three planes share `user_id` as their hash key (seed 000 §2, §3), so that one user's data sits in one partition of each
-- table and every hot query touches just that one. Every primary and unique key therefore contains `user_id`; references
-- between partitioned tables are kept by the writer (seed 000 §12). `tenant_id` stands in every row for row-level security.
--
-- Roles: `mneme_owner` owns the tables; `mneme_app` is what the server and the worker run as, held to one tenant by
-- row-level security; `mneme_definer` owns the hot-path functions, whose tenant and user arguments are mandatory, because
-- row-level security keeps the operators of full text and arrays from using their indexes; `mneme_eraser` may delete.

CREATE SCHEMA IF NOT EXISTS agent_data;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['mneme_owner', 'mneme_app', 'mneme_definer', 'mneme_eraser'] LOOP
        -- Roles belong to the whole server: another database of it may have made them already, even this very moment.
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
        IF NOT pg_has_role(session_user, name, 'SET') THEN
            EXECUTE format('GRANT %I TO %I', name, session_user);
        END IF;
    END LOOP;
END $$;

CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;

GRANT USAGE, CREATE ON SCHEMA agent_data TO mneme_owner;
GRANT USAGE ON SCHEMA agent_data TO mneme_app, mneme_definer, mneme_eraser;
-- The owner of a function must be able to create in its schema while its functions are being replaced.
GRANT CREATE ON SCHEMA agent_data TO mneme_definer;

-- Makes the hash partitions of a table: `name_p0` … `name_p<n-1>`.
CREATE FUNCTION agent_data.make_hash_partitions(parent text, n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 0 .. n - 1 LOOP
        EXECUTE format('CREATE TABLE agent_data.%I PARTITION OF agent_data.%I FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                       parent || '_p' || i, parent, n, i);
    END LOOP;
END $$;

-- The first uuid of version 7 of a moment: the border between two monthly partitions keyed by call id.
CREATE FUNCTION agent_data.uuid7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

-- Enumerations are SMALLINT (seed 000 §2.2); this is what the numbers mean.
CREATE TABLE agent_data.enumerations (
    enumeration text     NOT NULL,
    value       smallint NOT NULL,
    name        text     NOT NULL,
    PRIMARY KEY (enumeration, value)
);
INSERT INTO agent_data.enumerations VALUES
    ('session_status', 1, 'active'), ('session_status', 2, 'paused'), ('session_status', 3, 'closed'),
    ('session_status', 4, 'expired'),
    ('role', 0, 'system'), ('role', 1, 'user'), ('role', 2, 'assistant'), ('role', 3, 'tool'), ('role', 4, 'function'),
    ('role', 5, 'developer'), ('role', 9, 'other'),
    ('finish_reason', 0, 'stop'), ('finish_reason', 1, 'length'), ('finish_reason', 2, 'tool_calls'),
    ('finish_reason', 3, 'content_filter'), ('finish_reason', 4, 'function_call'), ('finish_reason', 5, 'abort'),
    ('finish_reason', 8, 'interrupted'), ('finish_reason', 9, 'other'),
    ('memory_tier', 0, 'working'), ('memory_tier', 1, 'session'), ('memory_tier', 2, 'episodic'),
    ('memory_tier', 3, 'semantic'), ('memory_tier', 4, 'procedural'),
    ('memory_scope', 0, 'local'), ('memory_scope', 1, 'global'),
    ('provenance_type', 0, 'user_stated'), ('provenance_type', 1, 'system_inferred'), ('provenance_type', 2, 'correction'),
    ('provenance_type', 3, 'preference'), ('provenance_type', 4, 'fact'), ('provenance_type', 5, 'instruction'),
    ('provenance_type', 6, 'tool_output'),
    ('call_outcome', 0, 'complete'), ('call_outcome', 1, 'broken'), ('call_outcome', 2, 'gone'),
    ('call_outcome', 3, 'cancelled'), ('call_outcome', 4, 'failed'),
    ('item_kind', 0, 'message'), ('item_kind', 1, 'memory');

-- Parameters that an operator may change while Mneme runs; a row here beats the default in the code.
CREATE TABLE agent_data.system_config (
    key         text PRIMARY KEY,
    value       jsonb NOT NULL,
    description text NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('dedup_threshold', '0.92', 'Cosine above which two memories are one (seed 000 §5.4); static spaces have their own.'),
    ('l1_ttl_hours', '24', 'Life of a session memory after it was learned (seed 000 §5.1).'),
    ('vector_exact_limit', '50000', 'Vectors of one user up to which the exact scan is used, some 0.4 ms for each 1,000; HNSW above.'),
    ('bm25_k1', '1.2', 'Saturation of BM25''s term count (Robertson''s usual value).'),
    ('bm25_b', '0.75', 'Length normalisation of BM25 (Robertson''s usual value).'),
    ('secret', to_jsonb(gen_random_uuid()::text || gen_random_uuid()::text),
     'Keys the delimiters of memory blocks and the hashes of what was forgotten; made once, never shown.'),
    ('query_terms', '16', 'Rarest words of a question that count, at most 16; each further one costs a posting list.');

CREATE TABLE agent_data.tenants (
    tenant_id  uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    metadata   jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);
-- The tenant of `open` mode.
INSERT INTO agent_data.tenants (tenant_id, name) VALUES ('00000000-0000-0000-0000-000000000001', 'local');

-- What a tenant's assistants are told about it (seed 001 §6, step 2).
CREATE TABLE agent_data.tenant_profiles (
    tenant_id  uuid PRIMARY KEY REFERENCES agent_data.tenants,
    profile    text NOT NULL,
    metadata   jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- A key is random; only its SHA-256 is kept.
CREATE TABLE agent_data.api_keys (
    key_hash     bytea PRIMARY KEY,
    key_id       uuid NOT NULL UNIQUE,
    tenant_id    uuid NOT NULL REFERENCES agent_data.tenants,
    name         text NOT NULL,
    hint         text NOT NULL,           -- the first characters, to tell keys apart
    user_external_id text,                -- a key made for one user
    scopes       text[] NOT NULL DEFAULT '{}',
    limits       jsonb NOT NULL DEFAULT '{}',   -- as app/store/limits.py writes them
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz
);

CREATE TABLE agent_data.users (
    user_id       uuid NOT NULL,          -- uuid5 of tenant and external id
    tenant_id     uuid NOT NULL,
    external_id   text NOT NULL,
    name          text,
    email         text,
    metadata      jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    last_active   timestamptz NOT NULL DEFAULT now(),
    erasure_epoch integer NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('users', current_setting('mneme.hash_partitions')::int);
CREATE INDEX users_tenant ON agent_data.users (tenant_id, external_id);

-- E-mail is unique within a tenant (seed 003); a key of `users` must contain its hash key, so it lives here.
CREATE TABLE agent_data.user_emails (
    tenant_id uuid NOT NULL,
    email     text NOT NULL,
    user_id   uuid NOT NULL,
    PRIMARY KEY (tenant_id, email)
);

-- Running totals of a user, one row updated in place: sizes for BM25 and for the choice of the vector scan.
CREATE TABLE agent_data.user_stats (
    user_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    documents   bigint NOT NULL DEFAULT 0,  -- messages and memories counted in `lexemes`
    total_terms bigint NOT NULL DEFAULT 0,  -- their tokens, for the mean length
    vectors     bigint NOT NULL DEFAULT 0,
    use_hnsw    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (user_id)
) PARTITION BY HASH (user_id) ;
SELECT agent_data.make_hash_partitions('user_stats', current_setting('mneme.hash_partitions')::int);

-- From an id that Mneme issued, or a client's own name of a session, to its user: what makes `/sessions/{id}` one look-up.
CREATE TABLE agent_data.routes (
    tenant_id uuid NOT NULL,
    id        uuid NOT NULL,             -- an issued id, or uuid5(tenant, kind, the client's text)
    user_id   uuid NOT NULL,
    kind      text NOT NULL,             -- session, memory
    target    uuid NOT NULL,
    PRIMARY KEY (tenant_id, id, user_id)
);
CREATE INDEX routes_user ON agent_data.routes (user_id);
