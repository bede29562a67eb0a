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
    GRANT DELETE ON agent_data.embeddings, agent_data.routes, agent_data.lexemes, agent_data.memory_store_working,
        agent_data.user_emails TO mneme_app, mneme_definer;
    -- What only the owner (a migration, the schedule) or an operator changes.
    FOR t IN SELECT unnest(ARRAY['enumerations', 'system_config', 'embedding_spaces', 'ticks', 'schema_migrations',
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
    -- The eraser takes away what belongs to users, and nothing that all of them stand on.
    FOR t IN SELECT unnest(ARRAY['enumerations', 'system_config', 'embedding_spaces', 'ticks', 'schema_migrations', 'tenants',
                                 'tenant_profiles']) AS name LOOP
        CONTINUE WHEN to_regclass('agent_data.' || t.name) IS NULL;
        EXECUTE format('REVOKE UPDATE, DELETE ON agent_data.%I FROM mneme_eraser', t.name);
    END LOOP;
END $$;
SELECT agent_data.protect_tables();
ALTER FUNCTION agent_data.ensure_history_partitions(date, date) OWNER TO mneme_owner;
ALTER FUNCTION agent_data.ensure_capture_partitions(date, date) OWNER TO mneme_owner;
ALTER FUNCTION agent_data.ensure_embedding_space(text, integer) OWNER TO mneme_owner;
GRANT SELECT ON agent_data.schema_migrations TO mneme_app;
