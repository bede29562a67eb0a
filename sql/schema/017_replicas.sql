-- Reading from standbys without ever reading less than was acknowledged (app/features/replicas/reads.py, docs/how-to/scaling.md).
--
-- A transaction that changes anything of a user's leaves a mark: a number of its own, under the user's id, in the table `write_marks`.
-- A standby has the mark if and only if it has the change, for they are of one transaction. So a request asks the primary for the
-- user's marks while it reads from a standby, which tells the marks that it has in the snapshot it read in; where they are not the
-- same, it reads again, from the primary. No clocks, no positions in the log: a position says nothing of one user, so that on a
-- busy primary every standby would be behind, and a standby's own pg_current_snapshot() does not know what is under way.
--
-- Nothing of this is done, and nothing is marked, before `marks_begin`: `mneme migrate` calls it where a setting names a standby.

-- Only ever added to by writers, under a number that is theirs alone: no two of them wait for each other. No `user_id`, for it is
-- not the user's: the eraser's own mark has to outlive the user.
CREATE TABLE agent_data.write_marks (
    whose uuid NOT NULL,                    -- a user, or the tenant where all its users are concerned
    mark  bigint NOT NULL,
    PRIMARY KEY (whose, mark)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0);

-- One row once marks are made: when they were last taken away, in microseconds. A standby that has this number has all that was
-- marked before. It is no count: one that was promoted counts on from where it was, and so would come to the number of a standby
-- that cannot follow it.
CREATE TABLE agent_data.write_epoch (epoch bigint NOT NULL);

-- Marks a user once in a transaction. `mneme.marked` names the user and the transaction: one that a session brings along from
-- elsewhere says nothing.
CREATE FUNCTION agent_data.mark_write() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    marked uuid;
    told   text;
BEGIN
    IF TG_ARGV[0] = 'user' THEN
        marked := COALESCE(NEW.user_id, OLD.user_id);
        -- What belongs to no user of the tenant's is everybody's.
        IF marked = '00000000-0000-0000-0000-000000000000' THEN
            marked := COALESCE(NEW.tenant_id, OLD.tenant_id);
        END IF;
    ELSE
        marked := COALESCE(NEW.tenant_id, OLD.tenant_id);
    END IF;
    IF marked IS NULL THEN
        RETURN NULL;
    END IF;
    told := marked || ' ' || pg_current_xact_id();
    IF current_setting('mneme.marked', true) IS DISTINCT FROM told THEN
        INSERT INTO agent_data.write_marks
        VALUES (marked, hashint8extended(pg_current_xact_id()::text::bigint, (extract(epoch FROM now()) * 1000000)::bigint)
                        & ((1::bigint << 52) - 1))
        ON CONFLICT DO NOTHING;
        PERFORM set_config('mneme.marked', told, true);
    END IF;
    RETURN NULL;
END $$;

-- Tables of which a prompt may say something, and that do not mark yet. Left out is what is only ever written together with one of
-- the others (the parts of a call), what is no user's text (spending), and what is not in the log (L0).
CREATE FUNCTION agent_data.unmarked_tables() RETURNS TABLE (name text, scope text) LANGUAGE sql STABLE AS $$
    SELECT c.relname::text, CASE WHEN u.attname IS NOT NULL THEN 'user' ELSE 'tenant' END
    FROM pg_class c
    JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped
    LEFT JOIN pg_attribute u ON u.attrelid = c.oid AND u.attname = 'user_id' AND NOT u.attisdropped
    WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relpersistence = 'p'
      AND (u.attname IS NOT NULL OR c.relname IN ('tenant_profiles', 'ontologies', 'ontology_types', 'domain_ontology'))
      AND c.relname NOT IN ('streams', 'compilations', 'message_blobs', 'request_chains', 'index_items', 'index_log', 'index_state',
                            'spend', 'spend_entries', 'capture_sweeps', 'erased_contents', 'erased_users')
      AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = 'marks')
    ORDER BY 1
$$;

-- Has a table mark from now on. A table at a time: the lock waits for those who are writing, and others wait for it.
CREATE FUNCTION agent_data.mark_table(p_name text, p_scope text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER marks AFTER INSERT OR UPDATE OR DELETE ON agent_data.%I '
                   'FOR EACH ROW EXECUTE FUNCTION agent_data.mark_write(%L)', p_name, p_scope);
END $$;

-- Every table marks: from here on standbys may be read.
CREATE FUNCTION agent_data.marks_begin() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM agent_data.unmarked_tables()) THEN
        RAISE EXCEPTION 'a table does not mark yet';
    END IF;
    INSERT INTO agent_data.write_epoch
    SELECT extract(epoch FROM clock_timestamp()) * 1000000 WHERE NOT EXISTS (SELECT FROM agent_data.write_epoch);
END $$;

-- For an operator who gives up his standbys: nobody reads from them any more, and then nothing is marked.
CREATE PROCEDURE agent_data.marks_end() LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    DELETE FROM agent_data.write_epoch;
    COMMIT;
    FOR name IN SELECT c.relname FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
                WHERE g.tgname = 'marks' AND c.relnamespace = 'agent_data'::regnamespace AND NOT c.relispartition LOOP
        EXECUTE format('DROP TRIGGER marks ON agent_data.%I', name);
        COMMIT;
    END LOOP;
    DELETE FROM agent_data.write_marks;
END $$;

-- Takes away the marks that are there, and says when, in one transaction: a standby that has the time has what they stood for.
CREATE FUNCTION agent_data.take_marks() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    taken bigint;
BEGIN
    DELETE FROM agent_data.write_marks;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken > 0 THEN
        UPDATE agent_data.write_epoch SET epoch = extract(epoch FROM clock_timestamp()) * 1000000;
    END IF;
    RETURN taken;
END $$;
