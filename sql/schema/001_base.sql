-- A tour of the schema, in the order of the files.
--
--   001 base           roles, tenants, users, keys, routes, the lookups, rights
--   002 history        sessions, messages (append-only, by user and by month), heads, prompt blocks; the reads of a turn
--   003 memory         what was learned, vectors by space, suppressions, contradictions, what follows when a memory ends
--   004 lifecycle      what becomes of a memory: its formulas and sweeps
--   005 consolidation  episodes, summaries, compaction, and what forgetting does to them
--   006 facts          the persona, what a prompt says whatever is asked, outcomes, another embedder, export
--   008 calls          every upstream call, byte for byte
--   009 turns          the one write of a turn
--   010 limits         what a key may use, and what was spent
--   011 privacy        erasure and retention
--   012 knowledge      things, their names, a business's own tables, cards
--   013 paging         the objects of long sessions
--   014 webhooks       who is told what
--   015 index          what a server keeps of a user to rank by, and what it fetches of what it chose
--   016 views          the tables of the seeds as read-only views
--   017 replicas       which writes a standby has
--   018 access         who may do what
--   021 spaces         memory that several users share
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
        -- Roles belong to the whole server: another database of it may have made them already, even this very moment; or an
        -- administrator has, for a login that may make none.
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        IF NOT pg_has_role(session_user, name, CASE WHEN current_setting('server_version_num')::int >= 160000
                                                    THEN 'SET' ELSE 'MEMBER' END) THEN
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
    ('dedup_threshold', '0', 'Cosine above which two memories are one (seed 000 §5.4); 0: the one that was measured for the embedder.'),
    ('l1_ttl_hours', '24', 'Life of a session memory after it was learned (seed 000 §5.1).'),
    ('retrieval_limits', '{"vector": 50, "entity": 30, "time": 30, "recent": 10, "summary": 5}',
     'Most items that each way of finding brings to the four strategies (seed 004, stage 2, table 10); read when a server starts.'),
    ('secret', to_jsonb(gen_random_uuid()::text || gen_random_uuid()::text),
     'Keys the delimiters of memory blocks and the hashes of what was forgotten; made once, never shown.'),
    ('retrieval_strategy_weights', '{
        "factual_entity_focused": {"semantic_similarity": 0.25, "entity_overlap": 0.40, "temporal_relevance": 0.20,
                                   "importance": 0.10, "reinforcement": 0.05},
        "procedural":             {"semantic_similarity": 0.45, "entity_overlap": 0.05, "temporal_relevance": 0.05,
                                   "importance": 0.15, "reinforcement": 0.30},
        "exploratory":            {"semantic_similarity": 0.35, "entity_overlap": 0.25, "temporal_relevance": 0.15,
                                   "importance": 0.20, "reinforcement": 0.05},
        "temporal_focused":       {"semantic_similarity": 0.30, "entity_overlap": 0.15, "temporal_relevance": 0.40,
                                   "importance": 0.10, "reinforcement": 0.05}}',
     'Weights of the four strategies (seed 004, table 10), read when a server starts. What the seed leaves open of the last three is shared out to a sum of 1, importance to reinforcement as 2 to 1 where both are open.');

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
    profile    text NOT NULL DEFAULT '',
    metadata   jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT now(),
    extraction_instructions text NOT NULL DEFAULT '' CHECK (length(extraction_instructions) <= 8000)
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
    use_hnsw      boolean NOT NULL DEFAULT false,   -- whether their vectors are in the graph
    erasure_epoch integer NOT NULL DEFAULT floor(random() * 1000000000)::integer,
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

-- Who may do what. A new table with a `tenant_id` gets its protection by running `protect_tables()` again at the end of its
-- migration; a test proves that none is without.
CREATE FUNCTION agent_data.current_tenant() RETURNS uuid LANGUAGE sql STABLE AS $$
    -- Outside a transaction that set it, the setting is NULL or '': then nothing is visible.
    SELECT NULLIF(current_setting('mneme.tenant', true), '')::uuid
$$;

CREATE FUNCTION agent_data.protect_tables() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t record;
BEGIN
    FOR t IN
        SELECT c.oid, c.relname AS name, c.relispartition AS part
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
        WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')
          AND c.relname NOT IN ('api_keys', 'tenants')  -- read by the authentication, before there is a tenant
          -- A partition that was detached has lost the policies of its parent.
          AND (NOT c.relrowsecurity
               OR NOT c.relispartition AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
    LOOP
        EXECUTE format('ALTER TABLE agent_data.%I ENABLE ROW LEVEL SECURITY', t.name);
        EXECUTE format('ALTER TABLE agent_data.%I FORCE ROW LEVEL SECURITY', t.name);
        -- Reached through their parent, partitions have no policy of their own: asked for by name, they show nothing.
        IF NOT t.part THEN
            EXECUTE format('CREATE POLICY tenant ON agent_data.%I TO mneme_app, mneme_eraser '
                           'USING (tenant_id = agent_data.current_tenant()) '
                           'WITH CHECK (tenant_id = agent_data.current_tenant())', t.name);
            EXECUTE format('CREATE POLICY definer ON agent_data.%I TO mneme_definer USING (true) WITH CHECK (true)', t.name);
            EXECUTE format('CREATE POLICY owner ON agent_data.%I TO mneme_owner USING (true) WITH CHECK (true)', t.name);
        END IF;
    END LOOP;
    FOR t IN
        SELECT c.relname AS name, c.relkind AS kind
        FROM pg_class c
        WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND pg_get_userbyid(c.relowner) <> 'mneme_owner' AND c.relname <> 'schema_migrations'
    LOOP
        EXECUTE format('ALTER %s agent_data.%I OWNER TO mneme_owner',
                       CASE t.kind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, t.name);
    END LOOP;
    GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA agent_data TO mneme_app, mneme_definer;
    GRANT SELECT, DELETE, UPDATE ON ALL TABLES IN SCHEMA agent_data TO mneme_eraser;
    -- What the application may take away itself, row by row.
    GRANT DELETE ON agent_data.embeddings, agent_data.routes, agent_data.memory_store_working,
        agent_data.user_emails TO mneme_app, mneme_definer;
    -- What only the owner (a migration, the schedule) or an operator changes.
    FOR t IN SELECT unnest(ARRAY['enumerations', 'system_config', 'embedding_spaces', 'ticks', 'schema_migrations', 'write_epoch',
                                 'erasures', 'erased_users', 'erased_contents', 'capture_sweeps']) AS name LOOP
        CONTINUE WHEN to_regclass('agent_data.' || t.name) IS NULL;
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON agent_data.%I FROM mneme_app, mneme_definer', t.name);
    END LOOP;
    -- What is written once, by the functions of the hot path, and never changed by the application.
    FOR t IN SELECT unnest(ARRAY['conversation_history', 'upstream_calls', 'streams', 'compilations', 'message_blobs',
                                 'request_chains', 'system_prompts', 'context_blocks', 'job_effects', 'embeddings']) AS name LOOP
        CONTINUE WHEN to_regclass('agent_data.' || t.name) IS NULL;
        EXECUTE format('REVOKE UPDATE ON agent_data.%I FROM mneme_app', t.name);
    END LOOP;
    -- What follows the tables that indexes are made of, by triggers and the hot path alone.
    FOR t IN SELECT unnest(ARRAY['index_items', 'index_log', 'index_state']) AS name LOOP
        CONTINUE WHEN to_regclass('agent_data.' || t.name) IS NULL;
        EXECUTE format('REVOKE INSERT, UPDATE ON agent_data.%I FROM mneme_app', t.name);
    END LOOP;
    -- The eraser takes away what belongs to users, and nothing that all of them stand on.
    FOR t IN SELECT unnest(ARRAY['enumerations', 'system_config', 'embedding_spaces', 'ticks', 'schema_migrations', 'write_epoch',
                                 'tenants', 'tenant_profiles', 'ontologies', 'ontology_types', 'domain_ontology']) AS name LOOP
        CONTINUE WHEN to_regclass('agent_data.' || t.name) IS NULL;
        EXECUTE format('REVOKE UPDATE, DELETE ON agent_data.%I FROM mneme_eraser', t.name);
    END LOOP;
END $$;

-- Gives functions and procedures (all of these names) to a role, and lets these others call them, and nobody else.
CREATE FUNCTION agent_data.give_functions(p_owner text, p_names text[], p_callers text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name   text;
    caller text;
    f      regprocedure;
BEGIN
    FOREACH name IN ARRAY p_names LOOP
        IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = name) THEN
            RAISE EXCEPTION 'there is no function agent_data.%', name;
        END IF;
        FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
                 WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = name LOOP
            EXECUTE format('ALTER ROUTINE %s OWNER TO %I', f, p_owner);
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', f);
            FOREACH caller IN ARRAY p_callers LOOP
                EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', f, caller);
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION agent_data.give_functions(text, text[], text[]) FROM PUBLIC;
