-- Shared memory (docs/how-to/spaces.md): spaces, who is a member of which, and who said what there.
--
-- A space's memory lies under a `user_id` of its own, which is derived as no user's is (`app/store/ids.py`): so partitions, indexes,
-- tombstones, sweeps and erasure hold for it as they are. Who may read it stands in `space_members` alone, and is asked in the very
-- statement that reads: whoever has left reads nothing any more.

-- `user_id`: the space's own. `by_word`: its members may say something to it in a conversation ("remember for the team: …").
CREATE TABLE agent_data.spaces (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    name       text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    kind       text NOT NULL CHECK (kind IN ('team', 'project', 'tenant')),
    title      text NOT NULL DEFAULT '',
    by_word    boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (user_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('spaces', current_setting('mneme.hash_partitions')::int);
CREATE INDEX spaces_tenant ON agent_data.spaces (tenant_id, name);

-- `user_id`: the member's.
CREATE TABLE agent_data.space_members (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    space_id  uuid NOT NULL,
    joined_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, space_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('space_members', current_setting('mneme.hash_partitions')::int);
CREATE INDEX space_members_space ON agent_data.space_members (space_id);

-- What a user (`user_id`) said in a space: a message of the space's (item_kind 0, in `session_id`), or a memory that was written there (1).
CREATE TABLE agent_data.space_sayings (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    space_id   uuid NOT NULL,
    item_id    uuid NOT NULL,
    item_kind  smallint NOT NULL CHECK (item_kind IN (0, 1)),
    session_id uuid,
    said_at    timestamptz NOT NULL,
    PRIMARY KEY (user_id, space_id, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('space_sayings', current_setting('mneme.hash_partitions')::int);
CREATE INDEX space_sayings_item ON agent_data.space_sayings (space_id, item_id);

-- Blocks that quote an item of a space: what is taken out of the space goes from them, too.
CREATE INDEX context_blocks_shared ON agent_data.context_blocks USING gin (item_ids) WHERE item_spaces IS NOT NULL;

-- Which of these spaces a user may read now: asked in the statement that fetches.
CREATE FUNCTION agent_data.spaces_among(p_tenant uuid, p_user uuid, p_spaces uuid[]) RETURNS TABLE (space_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT m.space_id FROM agent_data.space_members m
    WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.space_id = ANY (p_spaces)
$$;

-- Ends a membership, and drops the user's stored memory blocks that quote the space, of whatever epoch: their prompts begin a new
-- one. False: there was none.
CREATE FUNCTION agent_data.leave_space(p_tenant uuid, p_user uuid, p_space uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    DELETE FROM agent_data.space_members m WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.space_id = p_space;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH quoting AS (
        DELETE FROM agent_data.context_blocks b
        WHERE b.tenant_id = p_tenant AND b.user_id = p_user AND p_space = ANY (b.item_spaces)
        RETURNING b.session_id
    )
    UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 1
    WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
    RETURN true;
END $$;

-- Of a block's items (each with its space, NULL: the user's own) those of a space that may not be quoted any more: the user is no
-- member, or they are gone there.
CREATE FUNCTION agent_data.gone_of_spaces(p_tenant uuid, p_user uuid, p_items uuid[], p_spaces uuid[]) RETURNS TABLE (item uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT i.item FROM unnest(p_items, p_spaces) AS i (item, space)
    WHERE i.space IS NOT NULL
      AND (NOT EXISTS (SELECT FROM agent_data.space_members m
                       WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.space_id = i.space)
           OR EXISTS (SELECT FROM agent_data.suppressions u WHERE u.user_id = i.space AND u.item_id = i.item)
           OR EXISTS (SELECT FROM agent_data.memory_store m
                      WHERE m.user_id = i.space AND m.memory_id = i.item AND NOT m.is_active))
$$;

-- The spaces that a user may read, by name; and of those whose index a server has (`p_spaces`, as of `p_epochs` and `p_snapshots`)
-- what became of it: `index_read` and `index_rows`, an element for each space. NULL throughout for a user of no space.
CREATE FUNCTION agent_data.spaces_read(
    p_tenant uuid, p_user uuid, p_space smallint, p_version integer, p_chars integer,
    p_spaces uuid[], p_epochs bigint[], p_snapshots text[],
    OUT shared_ids uuid[], OUT shared_names text[], OUT shared_by_word boolean[], OUT shared_epochs bigint[],
    OUT shared_snapshots text[], OUT shared_wholes boolean[], OUT shared_items bytea[], OUT shared_ats bigint[],
    OUT shared_places bytea[], OUT shared_hides bytea[], OUT shared_untils bytea[], OUT shared_vectors bytea[],
    OUT shared_lengths bytea[], OUT shared_terms bytea[], OUT shared_revisions bytea[], OUT shared_texts text[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM agent_data.space_members m WHERE m.user_id = p_user AND m.tenant_id = p_tenant) THEN
        RETURN;
    END IF;
    SELECT array_agg(x.space_id), array_agg(x.name), array_agg(x.by_word), array_agg(x.epoch), array_agg(x.snapshot),
           array_agg(x.whole), array_agg(x.changed), array_agg(x.at), array_agg(x.places), array_agg(x.hides), array_agg(x.untils),
           array_agg(x.vectors), array_agg(x.lengths), array_agg(x.terms), array_agg(x.revisions), array_agg(x.told)
    INTO shared_ids, shared_names, shared_by_word, shared_epochs, shared_snapshots, shared_wholes, shared_items, shared_ats,
         shared_places, shared_hides, shared_untils, shared_vectors, shared_lengths, shared_terms, shared_revisions, shared_texts
    FROM (
        SELECT m.space_id, s.name, s.by_word, i.epoch, i.snapshot, i.whole, i.at, c.places, c.hides, c.untils, c.vectors,
               c.lengths, c.terms, c.revisions, array_to_json(c.texts)::text AS told,
               (SELECT string_agg(uuid_send(u.item), '') FROM unnest(i.items) AS u (item)) AS changed
        FROM agent_data.space_members m
        JOIN agent_data.spaces s ON s.user_id = m.space_id AND s.tenant_id = p_tenant
        LEFT JOIN unnest(p_spaces, p_epochs, p_snapshots) AS a (space_id, epoch, snapshot) ON a.space_id = m.space_id
        LEFT JOIN LATERAL (
            SELECT * FROM agent_data.index_read(p_tenant, m.space_id, a.epoch, a.snapshot) WHERE a.snapshot IS NOT NULL
        ) i ON true
        LEFT JOIN LATERAL agent_data.index_rows(p_tenant, m.space_id, p_space, p_version, p_chars, i.items) c
               ON i.items IS NOT NULL
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant
        ORDER BY s.name
    ) x;
END $$;

SELECT agent_data.protect_tables();
GRANT DELETE ON agent_data.space_members TO mneme_app, mneme_definer;
GRANT DELETE ON agent_data.space_sayings TO mneme_app;
SELECT agent_data.give_functions(
    'mneme_definer', ARRAY['spaces_among', 'gone_of_spaces', 'spaces_read', 'leave_space'], ARRAY['mneme_app']
);
