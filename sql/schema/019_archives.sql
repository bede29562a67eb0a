-- Months of history that are in files (seed 000 §3.2, §9.2): written, restored and dropped by app/features/archive/archives.py.
--
-- A part is the month of one hash partition. It is detached, leaves the indexes in batches, is written to a file, and dropped; each
-- step may be the last before a crash, and the next run goes on from what stands here. While its table stands by itself (`detached`), an
-- erasure reaches it as any table; after that it rewrites the file.

-- Of every tenant's users; only the owner and an erasure change it. `restored`: it is a partition again, and stays one until an operator
-- archives it anew.
CREATE TABLE agent_data.history_archives (
    part       text PRIMARY KEY,           -- the partition's name: conversation_history_p3_202501
    month      text NOT NULL,              -- 202501
    remainder  integer NOT NULL,           -- of the hash of its users
    state      text NOT NULL CHECK (state IN ('detached', 'archived', 'restored', 'dropped')),
    file       text,                       -- under the folder of this database's archives
    rows       bigint,
    bytes      bigint,                     -- of the file
    sha256     bytea,                      -- of the file: what is not as it was written is not restored
    changed_at timestamptz NOT NULL DEFAULT now(),
    CHECK (state <> 'archived' OR (file, rows, bytes, sha256) IS NOT NULL)
);

-- Marks, or no more, that messages are archived where a memory says what it was learned from.
CREATE FUNCTION agent_data.sources_archived(p_sources jsonb, p_messages uuid[], p_archived boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(jsonb_agg(CASE
        WHEN s.source ->> 'message_id' IS NULL OR (s.source ->> 'message_id')::uuid <> ALL (p_messages) THEN s.source
        WHEN p_archived THEN s.source || '{"archived": true}'
        ELSE s.source - 'archived' END ORDER BY s.n), '[]')
    FROM jsonb_array_elements(p_sources) WITH ORDINALITY AS s (source, n)
$$;

-- Takes some messages of a detached part out of the indexes, in the order of the key, after (`p_user`, `p_message`): they are found no more,
-- and what was learned from them says that they are archived. NULL for both: that was the last.
CREATE FUNCTION agent_data.leave_index(
    p_part text, p_limit integer, INOUT p_user uuid, INOUT p_message uuid
) LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    each_user record;
    owners uuid[];
    items  uuid[];
BEGIN
    EXECUTE format('SELECT array_agg(x.user_id), array_agg(x.message_id) FROM ('
                   '  SELECT h.user_id, h.message_id FROM agent_data.%I h WHERE (h.user_id, h.message_id) > ($1, $2) '
                   '  ORDER BY h.user_id, h.message_id LIMIT $3) x', p_part)
    INTO owners, items USING p_user, p_message, p_limit;
    FOR each_user IN
        SELECT x.user_id, array_agg(x.item) AS items FROM unnest(owners, items) AS x (user_id, item) GROUP BY 1 ORDER BY 1
    LOOP
        DELETE FROM agent_data.embeddings e WHERE e.user_id = each_user.user_id AND e.item_id = ANY (each_user.items);
        WITH gone AS (
            DELETE FROM agent_data.index_items i WHERE i.user_id = each_user.user_id AND i.item_id = ANY (each_user.items)
            RETURNING i.user_id, i.tenant_id, i.item_id
        )
        INSERT INTO agent_data.index_log (user_id, tenant_id, item_id)
        SELECT g.user_id, g.tenant_id, g.item_id FROM gone g ON CONFLICT DO NOTHING;
        UPDATE agent_data.memory_store m SET sources = agent_data.sources_archived(m.sources, each_user.items, true)
        WHERE m.user_id = each_user.user_id AND m.source_message_ids && each_user.items;
    END LOOP;
    p_user := CASE WHEN cardinality(items) = p_limit THEN owners[p_limit] END;
    p_message := CASE WHEN cardinality(items) = p_limit THEN items[p_limit] END;
END $$;

-- Detaches a part, which stands by itself then, with the policies that its parent had, and notes it.
CREATE FUNCTION agent_data.detach_history_part(p_part text, p_month text, p_remainder integer, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE agent_data.%I DETACH PARTITION agent_data.%I', 'conversation_history_p' || p_remainder, p_part);
    EXECUTE format('CREATE POLICY tenant ON agent_data.%I TO mneme_app, mneme_eraser '
                   'USING (tenant_id = agent_data.current_tenant()) '
                   'WITH CHECK (tenant_id = agent_data.current_tenant())', p_part);
    EXECUTE format('CREATE POLICY definer ON agent_data.%I TO mneme_definer USING (true) WITH CHECK (true)', p_part);
    EXECUTE format('CREATE POLICY owner ON agent_data.%I TO mneme_owner USING (true) WITH CHECK (true)', p_part);
    EXECUTE format('GRANT SELECT, DELETE ON agent_data.%I TO mneme_eraser', p_part);
    INSERT INTO agent_data.history_archives AS a (part, month, remainder, state, changed_at)
    VALUES (p_part, p_month, p_remainder, 'detached', p_now)
    ON CONFLICT (part) DO UPDATE SET state = 'detached', file = NULL, rows = NULL, bytes = NULL, sha256 = NULL, changed_at = p_now;
END $$;

-- Drops a part that is in its file now.
CREATE FUNCTION agent_data.drop_history_part(
    p_part text, p_file text, p_rows bigint, p_bytes bigint, p_sha256 bytea, p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE agent_data.%I', p_part);
    UPDATE agent_data.history_archives
    SET state = 'archived', file = p_file, rows = p_rows, bytes = p_bytes, sha256 = p_sha256, changed_at = p_now
    WHERE part = p_part;
END $$;

-- Rows of a file come back; how many. `p_active`: into prompts and searches; else pruned: in the history and its exports alone.
-- What an erasure took stays away, and what is there already is not doubled.
CREATE FUNCTION agent_data.restore_history(p_lines text[], p_active boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    each_user record;
    came bigint;
BEGIN
    WITH lines AS (
        SELECT l.line::jsonb AS j FROM unnest(p_lines) AS l (line)
    ), shown AS (
        SELECT l.j || CASE
            WHEN p_active AND l.j -> 'metadata' ? 'archived' THEN
                jsonb_build_object('is_pruned', false, 'metadata', (l.j -> 'metadata') - 'archived')
            WHEN p_active OR (l.j ->> 'is_pruned')::boolean THEN '{}'
            ELSE jsonb_build_object('is_pruned', true, 'metadata', (l.j -> 'metadata') || '{"archived": true}') END AS j
        FROM lines l
    )
    INSERT INTO agent_data.conversation_history
    SELECT r.* FROM shown s CROSS JOIN LATERAL jsonb_populate_record(NULL::agent_data.conversation_history, s.j) r
    WHERE NOT EXISTS (SELECT FROM agent_data.erased_users e WHERE e.user_id = r.user_id AND r.created_at <= e.erased_before)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS came = ROW_COUNT;
    FOR each_user IN
        SELECT (l.line::jsonb ->> 'user_id')::uuid AS user_id, array_agg((l.line::jsonb ->> 'message_id')::uuid) AS items
        FROM unnest(p_lines) AS l (line) GROUP BY 1 ORDER BY 1
    LOOP
        UPDATE agent_data.memory_store m SET sources = agent_data.sources_archived(m.sources, each_user.items, false)
        WHERE m.user_id = each_user.user_id AND m.source_message_ids && each_user.items;
    END LOOP;
    RETURN came;
END $$;

SELECT agent_data.protect_tables();
REVOKE INSERT, UPDATE, DELETE ON agent_data.history_archives FROM mneme_app, mneme_definer;
REVOKE DELETE ON agent_data.history_archives FROM mneme_eraser;
SELECT agent_data.give_functions('mneme_owner', ARRAY[
    'leave_index', 'detach_history_part', 'drop_history_part', 'restore_history', 'sources_archived'
]);
