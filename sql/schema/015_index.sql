-- What a server keeps of a user in its own memory to rank by (app/index), and how it knows that it is still so.
--
-- `index_items` has of each message and memory that may ever come up all that ranking needs beside its vector: no text. It follows
-- the tables that are the truth by triggers, of each row and whatever statement changed it, so that no way of changing forgets it.
--
-- A server that holds a user's items knows in which *snapshot* it read them. Each change of a row leaves the item in `index_log`, with
-- the transaction that changes it; so what became visible since is what was changed by transactions that the old snapshot did not
-- see, and nothing else need be read again. Writers wait for nobody: versions that are counted would need a lock of the user's from
-- the change until the commit, in one order among all users of a transaction.
--
-- The log is cut by and by: `index_state` says up to which transaction, and whose snapshot is older reads all again. So does who has
-- another *epoch*: since then the user was erased, and came anew, or a table was emptied by a statement that no row's trigger sees.
CREATE TABLE agent_data.index_items (
    user_id   uuid NOT NULL,
    item_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    item_kind smallint NOT NULL,            -- 0 message, 1 memory
    item_at   timestamptz NOT NULL,         -- created_at of the item: leads to its monthly partition
    hides     smallint NOT NULL DEFAULT 0,  -- 1: not in force any more; 2: shown in its own session alone (a memory's `local`)
    until     timestamptz,                  -- a memory's end
    -- Raised with each other text: whoever made terms says of which. It begins anywhere, so that an item that is made anew has another.
    revision  integer NOT NULL DEFAULT floor(random() * 1000000000)::integer,
    place     bytea NOT NULL,               -- see item_place; of a memory with its session and turn (-1: none)
    terms     bytea,                        -- its words (app/index/analyse.py); NULL: whoever reads it makes them
    PRIMARY KEY (user_id, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('index_items', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.index_log (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    item_id   uuid NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, xid, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('index_log', current_setting('mneme.hash_partitions')::int);

-- Rows come in the order of time: some pages say which are old.
CREATE INDEX index_log_at ON agent_data.index_log USING brin (at);

CREATE TABLE agent_data.index_state (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    cut       xid8 NOT NULL,  -- the latest transaction of which the log has lost a change
    PRIMARY KEY (user_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('index_state', current_setting('mneme.hash_partitions')::int);

INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('index_log_keep', '"1 hour"', 'How long a change stays in the log of a user''s index: a server that looks that often reads what changed alone.'),
    ('index_epoch', '0', 'Raised when a table that indexes are made of is emptied: servers read all of them again.')
ON CONFLICT DO NOTHING;

-- --- what follows the truth ----------------------------------------------------------------------------------------------

-- The place of a memory in the index: as `item_place` has it, with the session and turn that it comes from, which say where it may
-- come up. Its speaker is set where the memory is about another speaker than the user.
CREATE FUNCTION agent_data.memory_place(
    p_memory uuid, p_at timestamptz, p_session uuid, p_turn integer, p_kind text, p_tokens integer, p_speaker text
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT agent_data.item_place(p_memory, 1::smallint, p_at, p_session, COALESCE(p_turn, -1),
                                 agent_data.summary_mark(p_kind, p_session), p_tokens, p_speaker)
$$;

CREATE FUNCTION agent_data.memory_hides(p_status text, p_scope smallint) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((CASE WHEN p_status IN ('active', 'aging') THEN 0 ELSE 1 END) | (CASE p_scope WHEN 1 THEN 0 ELSE 2 END))::smallint
$$;

-- An item is as told, or gone (`p_place` NULL); `p_same`: its text is as before.
CREATE FUNCTION agent_data.index_put(
    p_tenant uuid, p_user uuid, p_item uuid, p_kind smallint, p_at timestamptz, p_hides smallint, p_until timestamptz,
    p_place bytea, p_same boolean
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    IF p_place IS NOT NULL THEN
        INSERT INTO agent_data.index_items AS i (user_id, item_id, tenant_id, item_kind, item_at, hides, until, place)
        VALUES (p_user, p_item, p_tenant, p_kind, p_at, p_hides, p_until, p_place)
        ON CONFLICT (user_id, item_id) DO UPDATE
        SET item_at = EXCLUDED.item_at, hides = EXCLUDED.hides, until = EXCLUDED.until, place = EXCLUDED.place,
            terms = CASE WHEN p_same THEN i.terms END, revision = i.revision + CASE WHEN p_same THEN 0 ELSE 1 END;
    ELSE
        DELETE FROM agent_data.index_items i WHERE i.user_id = p_user AND i.item_id = p_item;
    END IF;
    INSERT INTO agent_data.index_log (user_id, tenant_id, item_id) VALUES (p_user, p_tenant, p_item) ON CONFLICT DO NOTHING;
END $$;

-- Something about an item that does not stand in `index_items` is other than it was: whoever has the item reads it again.
CREATE FUNCTION agent_data.index_note(p_tenant uuid, p_user uuid, p_item uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    INSERT INTO agent_data.index_log (user_id, tenant_id, item_id) VALUES (p_user, p_tenant, p_item) ON CONFLICT DO NOTHING
$$;

CREATE FUNCTION agent_data.index_message() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    h agent_data.conversation_history := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.user_id <> NEW.user_id THEN
        PERFORM agent_data.index_put(OLD.tenant_id, OLD.user_id, OLD.message_id, 0::smallint, OLD.created_at, 0::smallint, NULL, NULL, false);
    END IF;
    PERFORM agent_data.index_put(
        h.tenant_id, h.user_id, h.message_id, 0::smallint, h.created_at, 0::smallint, NULL,
        CASE WHEN TG_OP <> 'DELETE' AND NOT h.hidden AND h.content <> '' AND NOT h.is_pruned THEN
            agent_data.item_place(h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role, h.token_count, h.name)
        END, false);
    RETURN NULL;
END $$;

CREATE FUNCTION agent_data.index_memory() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    m    agent_data.memory_store := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    same boolean := false;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.user_id <> NEW.user_id THEN
        PERFORM agent_data.index_put(OLD.tenant_id, OLD.user_id, OLD.memory_id, 1::smallint, OLD.created_at, 0::smallint, NULL, NULL, false);
    ELSIF TG_OP = 'UPDATE' THEN
        same := OLD.content_text = NEW.content_text;
    END IF;
    PERFORM agent_data.index_put(
        m.tenant_id, m.user_id, m.memory_id, 1::smallint, m.created_at, agent_data.memory_hides(m.status, m.memory_scope),
        m.expires_at,
        CASE WHEN TG_OP <> 'DELETE' AND m.status <> 'forgotten' AND m.content_text <> '' THEN
            agent_data.memory_place(m.memory_id, COALESCE(m.valid_from, m.created_at), m.session_id, m.provenance_turn_index,
                                    m.kind, m.token_count, m.speaker)
        END, same);
    RETURN NULL;
END $$;

-- A vector came, went or is another; or something is suppressed, or no more.
CREATE FUNCTION agent_data.index_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM agent_data.index_note(NEW.tenant_id, NEW.user_id, NEW.item_id);
    END IF;
    IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND (OLD.user_id, OLD.item_id) <> (NEW.user_id, NEW.item_id) THEN
        PERFORM agent_data.index_note(OLD.tenant_id, OLD.user_id, OLD.item_id);
    END IF;
    RETURN NULL;
END $$;

-- What no row's trigger sees, and only the owner may do: a table or a part of one is empty now, and all that servers have is void.
CREATE FUNCTION agent_data.index_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    emptied regclass := COALESCE(pg_partition_root(TG_RELID), TG_RELID);
BEGIN
    IF emptied = 'agent_data.conversation_history'::regclass THEN
        DELETE FROM agent_data.index_items i WHERE i.item_kind = 0 AND NOT EXISTS (
            SELECT FROM agent_data.conversation_history h
            WHERE h.user_id = i.user_id AND h.message_id = i.item_id AND h.created_at = i.item_at);
    ELSIF emptied = 'agent_data.memory_store'::regclass THEN
        DELETE FROM agent_data.index_items i WHERE i.item_kind = 1 AND NOT EXISTS (
            SELECT FROM agent_data.memory_store m WHERE m.user_id = i.user_id AND m.memory_id = i.item_id);
    END IF;
    UPDATE agent_data.system_config SET value = to_jsonb((value #>> '{}')::bigint + 1) WHERE key = 'index_epoch';
    RETURN NULL;
END $$;

-- Makes all of it anew, and has servers read it (as an operator). For what no trigger can see: a partition that is dropped, detached or
-- attached, and whatever is done with triggers off (`session_replication_role`, `DISABLE TRIGGER`) or to `index_items` and `index_state`
-- by hand. How many items there are.
CREATE FUNCTION agent_data.index_anew() RETURNS bigint LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    LOCK TABLE agent_data.conversation_history, agent_data.memory_store IN SHARE MODE;  -- nothing comes or goes meanwhile
    DELETE FROM agent_data.index_items;
    INSERT INTO agent_data.index_items (user_id, item_id, tenant_id, item_kind, item_at, hides, until, place)
    SELECT h.user_id, h.message_id, h.tenant_id, 0, h.created_at, 0, NULL,
           agent_data.item_place(h.message_id, 0::smallint, h.created_at, h.session_id, h.turn_index, h.role, h.token_count, h.name)
    FROM agent_data.conversation_history h WHERE NOT h.hidden AND h.content <> '' AND NOT h.is_pruned
    UNION ALL
    SELECT m.user_id, m.memory_id, m.tenant_id, 1, m.created_at, agent_data.memory_hides(m.status, m.memory_scope), m.expires_at,
           agent_data.memory_place(m.memory_id, COALESCE(m.valid_from, m.created_at), m.session_id, m.provenance_turn_index, m.kind,
                                   m.token_count, m.speaker)
    FROM agent_data.memory_store m WHERE m.status <> 'forgotten' AND m.content_text <> '';
    GET DIAGNOSTICS made = ROW_COUNT;
    UPDATE agent_data.system_config SET value = to_jsonb((value #>> '{}')::bigint + 1) WHERE key = 'index_epoch';
    RETURN made;
END $$;

-- A user's log has lost changes up to a transaction of this cluster's. (What another one's left, whose numbers are higher than any here,
-- was never seen by a snapshot of this one.)
CREATE FUNCTION agent_data.index_lost(p_tenant uuid, p_user uuid, p_cut xid8) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    INSERT INTO agent_data.index_state AS t (user_id, tenant_id, cut) VALUES (p_user, p_tenant, p_cut)
    ON CONFLICT (user_id) DO UPDATE
    SET cut = CASE WHEN t.cut > greatest(pg_current_xact_id(), pg_snapshot_xmax(pg_current_snapshot())) THEN EXCLUDED.cut
                   ELSE greatest(t.cut, EXCLUDED.cut) END
$$;

-- … by `index_cut`, an erasure or an operator's DELETE.
CREATE FUNCTION agent_data.index_log_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM agent_data.index_lost(x.tenant_id, x.user_id, x.cut) FROM (
        SELECT g.tenant_id, g.user_id, max(g.xid) AS cut FROM gone g
        WHERE g.xid <= greatest(pg_current_xact_id(), pg_snapshot_xmax(pg_current_snapshot()))
        GROUP BY 1, 2 ORDER BY 2
    ) x;
    RETURN NULL;
END $$;

CREATE TRIGGER index_made AFTER INSERT ON agent_data.conversation_history
    FOR EACH ROW WHEN (NOT NEW.hidden AND current_setting('mneme.recording', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION agent_data.index_message();

CREATE TRIGGER index_changed AFTER UPDATE ON agent_data.conversation_history
    FOR EACH ROW WHEN ((OLD.user_id, OLD.content, OLD.hidden, OLD.is_pruned, OLD.session_id, OLD.turn_index, OLD.role, OLD.name,
                        OLD.token_count, OLD.created_at)
                       IS DISTINCT FROM (NEW.user_id, NEW.content, NEW.hidden, NEW.is_pruned, NEW.session_id, NEW.turn_index, NEW.role,
                                         NEW.name, NEW.token_count, NEW.created_at))
    EXECUTE FUNCTION agent_data.index_message();

CREATE TRIGGER index_gone AFTER DELETE ON agent_data.conversation_history
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_message();

-- (Each turn counts uses: an update that fires nothing here.)
CREATE TRIGGER index_made AFTER INSERT ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_memory();

CREATE TRIGGER index_changed AFTER UPDATE ON agent_data.memory_store
    FOR EACH ROW WHEN ((OLD.user_id, OLD.status, OLD.content_text, OLD.expires_at, OLD.valid_from, OLD.session_id, OLD.memory_scope,
                        OLD.provenance_turn_index, OLD.token_count, OLD.kind, OLD.created_at)
                       IS DISTINCT FROM (NEW.user_id, NEW.status, NEW.content_text, NEW.expires_at, NEW.valid_from, NEW.session_id,
                                         NEW.memory_scope, NEW.provenance_turn_index, NEW.token_count, NEW.kind, NEW.created_at))
    EXECUTE FUNCTION agent_data.index_memory();

CREATE TRIGGER index_gone AFTER DELETE ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_memory();

CREATE TRIGGER index_made AFTER INSERT ON agent_data.embeddings
    FOR EACH ROW WHEN (current_setting('mneme.recording', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION agent_data.index_item();

CREATE TRIGGER index_changed AFTER UPDATE ON agent_data.embeddings
    FOR EACH ROW WHEN ((OLD.user_id, OLD.space, OLD.item_id) IS DISTINCT FROM (NEW.user_id, NEW.space, NEW.item_id)
                       -- (By its schema: a dump is restored without a search_path.)
                       OR NOT OLD.vector OPERATOR(public.=) NEW.vector)
    EXECUTE FUNCTION agent_data.index_item();

CREATE TRIGGER index_gone AFTER DELETE ON agent_data.embeddings
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_item();

CREATE TRIGGER index_made AFTER INSERT ON agent_data.suppressions
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_item();

CREATE TRIGGER index_changed AFTER UPDATE ON agent_data.suppressions
    FOR EACH ROW WHEN ((OLD.user_id, OLD.item_id, OLD.reason) IS DISTINCT FROM (NEW.user_id, NEW.item_id, NEW.reason))
    EXECUTE FUNCTION agent_data.index_item();

CREATE TRIGGER index_gone AFTER DELETE ON agent_data.suppressions
    FOR EACH ROW EXECUTE FUNCTION agent_data.index_item();

-- (A statement's triggers are those of the tables that it names, and of TRUNCATE those of all that it empties. So each partition has
-- them, and of TRUNCATE no other table; of those to come: `ensure_history_partitions`.)
DO $$
DECLARE
    name text;
    part regclass;
BEGIN
    FOREACH name IN ARRAY ARRAY['conversation_history', 'memory_store', 'embeddings', 'suppressions', 'index_items', 'index_log',
                                'index_state'] LOOP
        FOR part IN SELECT c.oid FROM pg_class c
                    WHERE c.relkind = 'r' AND COALESCE(pg_partition_root(c.oid), c.oid) = ('agent_data.' || name)::regclass LOOP
            EXECUTE format('CREATE TRIGGER index_emptied AFTER TRUNCATE ON %s '
                           'FOR EACH STATEMENT EXECUTE FUNCTION agent_data.index_emptied()', part);
        END LOOP;
    END LOOP;
    FOR part IN SELECT c.oid FROM pg_class c
                WHERE c.relkind IN ('r', 'p') AND COALESCE(pg_partition_root(c.oid), c.oid) = 'agent_data.index_log'::regclass LOOP
        EXECUTE format('CREATE TRIGGER index_log_gone AFTER DELETE ON %s REFERENCING OLD TABLE AS gone '
                       'FOR EACH STATEMENT EXECUTE FUNCTION agent_data.index_log_gone()', part);
    END LOOP;
END $$;

SELECT agent_data.ensure_history_partitions(now()::date, (now() + interval '2 months')::date);

-- --- what a server reads -------------------------------------------------------------------------------------------------

-- What of items is handed out, column by column, each item's after the other's: of thousands that takes a tenth of what rows or arrays
-- take.
--
--   places     56 bytes each (see `index_items`)
--   hides      a byte: as there, and 4: superseded; 8: there is a vector
--   untils     int8: microseconds since 2000, the greatest number for none
--   vectors    of this space, as pgvector sends them, of those that have one
--   lengths    int4: bytes of the terms; -1: they are of no or of another version of the analyser, and there is a text for them
--   terms      of all that have them; texts  of all others, of the revisions (int4 each) that they are
CREATE TYPE agent_data.index_columns AS (
    places bytea, hides bytea, untils bytea, vectors bytea, lengths bytea, terms bytea, revisions bytea, texts text[]
);

-- The items of a user's index (`index_rows`: some; `index_all`: all memories, and the latest messages up to `p_most` items), of those that may come up at all: what is suppressed for good never
-- leaves the database.
DO $do$
DECLARE
    columns constant text := $$
        SELECT (string_agg(x.place, ''), string_agg(x.hides, ''), string_agg(x.until, ''), string_agg(x.vector, ''),
                string_agg(int4send(COALESCE(octet_length(x.terms), -1)), ''), string_agg(x.terms, ''),
                string_agg(x.revision, '') FILTER (WHERE x.terms IS NULL),
                array_agg(CASE x.item_kind WHEN 0 THEN (
                    SELECT left(h.content, p_chars) FROM agent_data.conversation_history h
                    WHERE h.user_id = p_user AND h.message_id = x.item_id AND h.created_at = x.item_at
                ) ELSE (
                    SELECT left(m.content_text, p_chars) FROM agent_data.memory_store m
                    WHERE m.user_id = p_user AND m.memory_id = x.item_id
                ) END) FILTER (WHERE x.terms IS NULL))::agent_data.index_columns
        FROM (
            SELECT i.item_id, i.item_kind, i.item_at, i.place, int4send(i.revision) AS revision,
                   public.halfvec_send(e.vector) AS vector,
                   substring(int4send(i.hides | CASE WHEN s.item_id IS NOT NULL THEN 4 ELSE 0 END
                                      | CASE WHEN e.item_id IS NOT NULL THEN 8 ELSE 0 END) FROM 4) AS hides,
                   int8send(COALESCE((extract(epoch FROM i.until - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint,
                                     9223372036854775807)) AS until,
                   CASE WHEN substring(i.terms FOR 1) = substring(int4send(p_version) FROM 4) THEN i.terms END AS terms
            FROM agent_data.index_items i
            LEFT JOIN agent_data.suppressions s ON s.user_id = p_user AND s.item_id = i.item_id
            LEFT JOIN agent_data.embeddings e ON e.user_id = p_user AND e.space = p_space AND e.item_id = i.item_id %s
                AND vector_dims(e.vector) = (SELECT d.dimensions FROM agent_data.embedding_spaces d WHERE d.space = p_space)
            WHERE i.user_id = p_user AND i.tenant_id = p_tenant AND (s.item_id IS NULL OR s.reason = 'superseded') %s
        ) x
    $$;
    latest constant text := 'AND (i.item_kind = 1 OR i.item_at >= since)';
BEGIN
    EXECUTE format($made$
        CREATE FUNCTION agent_data.index_rows(
            p_tenant uuid, p_user uuid, p_space smallint, p_version integer, p_chars integer, p_items uuid[]
        ) RETURNS agent_data.index_columns LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
        SET plan_cache_mode = force_generic_plan AS $body$
        BEGIN
            RETURN (%s);
        END $body$
    $made$, format(columns, '', 'AND i.item_id = ANY (p_items)'));
    EXECUTE format($made$
        CREATE FUNCTION agent_data.index_all(
            p_tenant uuid, p_user uuid, p_space smallint, p_version integer, p_chars integer, p_most bigint
        ) RETURNS agent_data.index_columns LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
        -- Looked up one by one, ten thousand vectors take four times as long.
        SET enable_nestloop = off AS $body$
        DECLARE
            since timestamptz := '-infinity';
        BEGIN
            IF (SELECT count(*) FROM (SELECT FROM agent_data.index_items i WHERE i.user_id = p_user LIMIT p_most + 1) x) > p_most THEN
                SELECT COALESCE(min(x.item_at), 'infinity') INTO since FROM (
                    SELECT i.item_at FROM agent_data.index_items i WHERE i.user_id = p_user AND i.item_kind = 0
                    ORDER BY i.item_at DESC LIMIT greatest(0, p_most - (
                        SELECT count(*) FROM agent_data.index_items m WHERE m.user_id = p_user AND m.item_kind = 1))
                ) x;
            END IF;
            IF (SELECT d.dimensions > 1200 FROM agent_data.embedding_spaces d WHERE d.space = p_space) THEN
                RETURN (%s);
            END IF;
            -- What `embeddings_scan` covers.
            RETURN (%s);
        END $body$
    $made$, format(columns, '', latest), format(columns, 'AND vector_dims(e.vector) <= 1200', latest));
END $do$;

-- The items of one session of nobody's, whose user is shared by all of them: its memories, and at most `p_most` of its messages, the
-- latest.
CREATE FUNCTION agent_data.index_session(p_tenant uuid, p_user uuid, p_session uuid, p_most bigint) RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT array_agg(x.id) FROM (
        (SELECT h.message_id AS id FROM agent_data.sessions s
         CROSS JOIN LATERAL (
             SELECT c.message_id FROM agent_data.conversation_history c
             WHERE c.user_id = p_user AND c.session_id = p_session
               AND c.created_at >= s.first_message_at AND c.created_at <= s.last_message_at
             ORDER BY c.turn_index DESC LIMIT p_most
         ) h
         WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id = p_session)
        UNION ALL
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.session_id = p_session
    ) x
$$;

-- Messages from before `p_before` (microseconds since 2000; the greatest number: all), for which a server has no room, that are nearest to a vector: by the
-- graph, which only the vectors of users with very many are in.
CREATE FUNCTION agent_data.index_beside(p_tenant uuid, p_user uuid, p_space smallint, p_vector halfvec, p_before bigint, p_limit integer)
RETURNS uuid[] LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    items  uuid[];
    before timestamptz := CASE p_before WHEN 9223372036854775807 THEN 'infinity'
                              ELSE timestamptz '2000-01-01 00:00:00+00' + p_before * interval '1 microsecond' END;
BEGIN
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
            set_config('hnsw.ef_search', least(1000, greatest(400, 4 * p_limit))::text, true);
    -- The space as a constant: a graph is of one alone.
    EXECUTE format(
        'SELECT array_agg(x.item_id) FROM ('
        '  SELECT e.item_id FROM agent_data.embeddings e'
        '  WHERE e.user_id = $2 AND e.tenant_id = $3 AND e.space = %2$s AND e.in_hnsw AND e.item_kind = 0 AND e.item_at < $4'
        '  ORDER BY e.vector::halfvec(%1$s) <=> $1::halfvec(%1$s) LIMIT $5) x', vector_dims(p_vector), p_space)
    INTO items USING p_vector, p_user, p_tenant, before, p_limit;
    RETURN items;
END $$;

-- What became of a user's index since a server read it. Asked for in one statement with the items (`index_rows`, `index_all`), and so in
-- one snapshot; but not by one function, which would carry megabytes from one to another.
--
--   p_epoch, p_snapshot   as the server was told them when it read what it has; NULL: it has nothing
--
-- `epoch` (NULL: there is no such user), `snapshot`: of what this statement reads. `whole`: all is to be read, for the log does not
-- lead there; else `items`: those that changed, NULL where none did. `at`: now, microseconds since 2000.
CREATE FUNCTION agent_data.index_read(
    p_tenant uuid, p_user uuid, p_epoch bigint, p_snapshot text,
    OUT epoch bigint, OUT snapshot text, OUT whole boolean, OUT items uuid[], OUT at bigint
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    here pg_snapshot := pg_current_snapshot();
    seen pg_snapshot := p_snapshot;
BEGIN
    -- A standby's snapshot does not tell which of the latest transactions are under way: none of them counts as seen.
    snapshot := CASE WHEN pg_is_in_recovery() THEN format('%s:%1$s:', pg_snapshot_xmin(here)) ELSE here::text END;
    SELECT (SELECT (extract(epoch FROM u.created_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
            FROM agent_data.users u WHERE u.user_id = p_user AND u.tenant_id = p_tenant) + c.value::text::bigint,
           (extract(epoch FROM now() - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint,
           -- (A cut of another cluster's numbers, which a dump brings, says nothing here.)
           COALESCE((SELECT t.cut >= pg_snapshot_xmin(seen) AND t.cut < pg_snapshot_xmax(here)
                     FROM agent_data.index_state t WHERE t.user_id = p_user), seen IS NULL)
    INTO epoch, at, whole
    FROM agent_data.system_config c WHERE c.key = 'index_epoch';
    whole := COALESCE(whole OR p_epoch <> epoch, true);
    IF NOT whole THEN
        SELECT array_agg(DISTINCT g.item_id) INTO items
        FROM agent_data.index_log g
        WHERE g.user_id = p_user AND g.xid >= pg_snapshot_xmin(seen) AND NOT pg_visible_in_snapshot(g.xid, seen);
        -- More than a server decodes while requests wait (`indexed.AT_ONCE`): all is read, aside.
        IF cardinality(items) > 500 THEN
            whole := true;
            items := NULL;
        END IF;
    END IF;
END $$;

-- Whose index will be asked for next, as far as the log tells: of whom something changed lately, the latest first.
CREATE FUNCTION agent_data.index_recent(p_limit integer) RETURNS TABLE (tenant_id uuid, user_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT g.tenant_id, g.user_id FROM agent_data.index_log g
    WHERE g.at > now() - (SELECT (c.value #>> '{}')::interval FROM agent_data.system_config c WHERE c.key = 'index_log_keep')
    GROUP BY 1, 2 ORDER BY max(g.at) DESC LIMIT p_limit
$$;

-- --- what a server writes ------------------------------------------------------------------------------------------------

-- Stores terms that a server made of texts that still have the given revision (NULL: written in this transaction); returns how many.
-- The revision stays, because a server that has read an item has its terms.
CREATE FUNCTION agent_data.index_terms(p_tenant uuid, p_user uuid, p_items uuid[], p_revisions integer[], p_terms bytea[])
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    kept integer;
BEGIN
    WITH held AS (
        SELECT i.item_id, t.terms FROM unnest(p_items, p_revisions, p_terms) AS t (item, revision, terms)
        JOIN agent_data.index_items i ON i.user_id = p_user AND i.item_id = t.item
        WHERE i.tenant_id = p_tenant AND i.revision = COALESCE(t.revision, i.revision) AND i.terms IS DISTINCT FROM t.terms
        ORDER BY i.item_id FOR UPDATE OF i SKIP LOCKED
    )
    UPDATE agent_data.index_items i SET terms = h.terms FROM held h WHERE i.user_id = p_user AND i.item_id = h.item_id;
    GET DIAGNOSTICS kept = ROW_COUNT;
    RETURN kept;
END $$;

-- Cuts what the log of a user has from before `p_before` (see `index_lost`), and what another cluster's transactions left. How many
-- changes. What a transaction under way may have left stays, or one that is open for hours would have all servers read all anew.
CREATE FUNCTION agent_data.index_cut(p_tenant uuid, p_user uuid, p_before timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    WITH here AS MATERIALIZED (
        SELECT pg_snapshot_xmin(s) AS least, pg_snapshot_xmax(s) AS next FROM pg_current_snapshot() s  -- the one that deletes
    )
    DELETE FROM agent_data.index_log g USING here
    WHERE g.user_id = p_user AND g.tenant_id = p_tenant AND g.at < p_before AND (g.xid < here.least OR g.xid >= here.next);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- The same of some users who have anything that old, for the schedule (as the owner). How many changes.
CREATE FUNCTION agent_data.index_cut_some(p_limit integer) RETURNS bigint
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    before timestamptz := now() - (SELECT (c.value #>> '{}')::interval FROM agent_data.system_config c WHERE c.key = 'index_log_keep');
    gone   bigint;
BEGIN
    SELECT COALESCE(sum(agent_data.index_cut(u.tenant_id, u.user_id, before)), 0) INTO gone FROM (
        SELECT DISTINCT x.tenant_id, x.user_id FROM (
            SELECT g.tenant_id, g.user_id FROM agent_data.index_log g WHERE g.at < before LIMIT p_limit) x
        ORDER BY x.user_id  -- in order, so that two cannot wait for each other
    ) u;
    RETURN gone;
END $$;

-- --- what was chosen ------------------------------------------------------------------------------------------------------

-- Whether a memory (its first five arguments) may come up in a request, as `UserIndex` has it. (Without SET, so that it is inlined.)
CREATE FUNCTION agent_data.may_surface(
    p_status text, p_expires timestamptz, p_of uuid, p_scope smallint, p_turn integer,
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (p_status IN ('active', 'aging') AND (p_expires IS NULL OR p_expires > now())
            OR p_history AND p_status <> 'forgotten')
       AND (p_confine IS NULL OR p_of = p_confine)
       AND (p_session IS NULL OR p_scope = 1 OR p_of = p_session)
       AND (p_session IS NULL OR p_of IS DISTINCT FROM p_session OR p_turn IS NULL OR p_turn < p_visible)
       AND (p_of IS NULL OR p_of <> ALL (p_ancestors))
$$;

-- What was chosen by its place is fetched in one statement: the texts, how sure each memory is, and what of them is so no more.

-- `p_ats`: when the items were made, in microseconds since 2000. `reinforcements`: how often a memory was said again;
-- `sure_since`, when it was last known to be right (seed 004 weighs both); `ended`: what the item says that is so no more, as
-- `ended_since` tells it, NULL for nothing.
CREATE FUNCTION agent_data.fetch_chosen(
    p_tenant uuid, p_user uuid, p_ids uuid[], p_kinds smallint[], p_ats bigint[],
    p_confine uuid, p_session uuid, p_visible integer, p_ancestors uuid[], p_history boolean
) RETURNS TABLE (
    n integer, item_kind smallint, item_id uuid, kind text, content text, role smallint, name text, session_id uuid,
    external_id text, turn_index integer, tier smallint, provenance_type smallint, confidence real, importance real,
    access_count integer, last_accessed_at timestamptz, created_at timestamptz, token_count integer, content_hash bytea,
    status text, entity_ids text[], origin uuid, sources jsonb, metadata jsonb, reinforcements integer, sure_since timestamptz,
    ended jsonb
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone       uuid[];
    superseded uuid[];
    no_more    jsonb;
BEGIN
    SELECT COALESCE(array_agg(x.item_id) FILTER (WHERE NOT (p_history AND x.reason = 'superseded')), '{}'),
           COALESCE(array_agg(x.item_id) FILTER (WHERE x.reason = 'superseded'), '{}')
    INTO gone, superseded
    FROM agent_data.suppressions x WHERE x.user_id = p_user AND x.item_id = ANY (p_ids);
    IF EXISTS (SELECT FROM agent_data.memory_store m WHERE m.user_id = p_user
               AND (m.status = 'invalidated' OR m.status = 'superseded' AND m.superseded_how <> 'merged')) THEN
        SELECT jsonb_object_agg(x.item_id, x.told) INTO no_more FROM (
            SELECT e.item_id, jsonb_agg(to_jsonb(e) ORDER BY e.memory_id) AS told
            FROM agent_data.ended_since(p_tenant, p_user, p_ids) e GROUP BY e.item_id
        ) x;
    END IF;
    RETURN QUERY
    SELECT i.n::integer, 0::smallint, h.message_id, 'message', h.content, h.role, h.name, h.session_id, z.external_id,
           h.turn_index, NULL::smallint, (CASE h.role WHEN 1 THEN 0 WHEN 3 THEN 6 WHEN 4 THEN 6 ELSE 1 END)::smallint, 1::real,
           0.5::real, 0, NULL::timestamptz, h.created_at, h.token_count, h.content_hash,
           CASE WHEN h.message_id = ANY (superseded) THEN 'superseded' ELSE 'active' END, NULL::text[], NULL::uuid,
           NULL::jsonb, NULLIF(h.metadata, '{}'), 0, NULL::timestamptz, no_more -> h.message_id::text
    FROM unnest(p_ids, p_kinds, p_ats) WITH ORDINALITY AS i (id, kind, at, n)
    JOIN agent_data.conversation_history h ON h.user_id = p_user AND h.message_id = i.id
         AND h.created_at = timestamptz '2000-01-01 00:00:00+00' + i.at * interval '1 microsecond'
    LEFT JOIN agent_data.sessions z ON z.user_id = p_user AND z.session_id = h.session_id
    WHERE i.kind = 0 AND h.tenant_id = p_tenant AND h.content <> '' AND NOT h.is_pruned AND h.message_id <> ALL (gone)
      AND (p_confine IS NULL OR h.session_id = p_confine)
      AND (p_session IS NULL OR h.session_id <> p_session OR h.turn_index < p_visible) AND h.session_id <> ALL (p_ancestors)
    UNION ALL
    SELECT i.n::integer, 1::smallint, m.memory_id, m.kind, m.content_text, NULL::smallint, m.speaker, m.session_id, NULL,
           m.provenance_turn_index, m.memory_tier, m.provenance_type, m.confidence, m.importance,
           m.access_count, m.last_accessed_at, m.created_at, m.token_count, m.content_hash,
           CASE WHEN m.is_active AND m.expires_at <= now() THEN 'expired' ELSE m.status END,
           NULLIF(m.entity_ids, '{}'),
           CASE WHEN m.source_message_ids[1] = ALL (m.source_message_ids) THEN m.source_message_ids[1] END,
           NULLIF(m.sources, '[]'), NULL::jsonb, m.reinforcement_count, COALESCE(m.last_validated_at, m.created_at),
           no_more -> m.memory_id::text
    FROM unnest(p_ids, p_kinds) WITH ORDINALITY AS i (id, kind, n)
    JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = i.id
    WHERE i.kind = 1 AND m.tenant_id = p_tenant AND m.memory_id <> ALL (gone)
      AND agent_data.may_surface(m.status, m.expires_at, m.session_id, m.memory_scope, m.provenance_turn_index,
                                 p_confine, p_session, p_visible, p_ancestors, p_history);
END $$;
