-- What is taken away again: the users who were erased, and captures whose time is over.

-- A key of this database's keyed hashes: what was forgotten or erased is remembered by them, without saying it.
INSERT INTO agent_data.system_config (key, value, description)
VALUES ('content_hmac_key',
        to_jsonb(encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex')),
        'Key of the hashes that remember what was forgotten without saying it. Never change it.')
ON CONFLICT DO NOTHING;

-- Receipts: who (as a keyed hash), when, and how many rows of which table. No content, and no id.
CREATE TABLE agent_data.erasures (
    erasure_id  uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL,
    user_hash   bytea NOT NULL,             -- HMAC-SHA256 of the user's id
    tombstones  boolean NOT NULL,
    counts      jsonb NOT NULL DEFAULT '{}',
    began_at    timestamptz NOT NULL,
    finished_at timestamptz
);

-- The fence: a call of this user that began before `erased_before` is not recorded any more. 'infinity': the erasure runs.
CREATE TABLE agent_data.erased_users (
    user_id       uuid PRIMARY KEY,
    tenant_id     uuid NOT NULL,
    erasure_id    uuid NOT NULL,
    erased_before timestamptz NOT NULL
);

-- Keyed hashes of what an erased user had said and Mneme had learned, so that a transcript that comes again is not learned from.
CREATE TABLE agent_data.erased_contents (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    content_hmac bytea NOT NULL,
    PRIMARY KEY (user_id, content_hmac)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('erased_contents', current_setting('mneme.hash_partitions')::int);

-- Users of whom captures were dropped, and whose blobs and chains are to be collected: first no head leads to what is older than
-- `before` any more (`released_at`), and once no turn is on its way that still knew it, what nothing refers to goes.
CREATE TABLE agent_data.capture_sweeps (
    user_id     uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL,
    before      timestamptz NOT NULL,
    released_at timestamptz
);
CREATE INDEX user_emails_user ON agent_data.user_emails (user_id);

-- Keys come in the order of time: some pages say which blocks are old.
CREATE INDEX idempotency_created ON agent_data.idempotency_keys USING brin (created_at);

-- The payload of a job, NULL where it cannot be read.
CREATE FUNCTION agent_data.job_payload(p_payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(p_payload, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;

-- What the recording of a call and the collection of what no call refers to must not do at the same time.
CREATE FUNCTION agent_data.capture_lock(p_user uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended('mneme.captures:' || p_user::text, 0)
$$;

-- Before a call is recorded: not while what it builds on is being collected, and not for an erased user, if it began before.
-- (`record_turn` takes a call that is not inserted for one that was stored already, and writes nothing of it.)
CREATE FUNCTION agent_data.admit_capture() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('mneme.captures:' || NEW.user_id::text, 0));
    IF EXISTS (SELECT FROM agent_data.erased_users e
               WHERE e.user_id = NEW.user_id AND e.erased_before > NEW.created_at) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER admit BEFORE INSERT ON agent_data.upstream_calls
    FOR EACH ROW EXECUTE FUNCTION agent_data.admit_capture();

-- The same for the note of an Idempotency-Key, which is made before the call is.
CREATE FUNCTION agent_data.admit_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM agent_data.erased_users e
               WHERE e.user_id = NEW.user_id
                 AND (e.erased_before = 'infinity' OR NEW.call_id < agent_data.uuid7_floor(e.erased_before))) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER admit BEFORE INSERT ON agent_data.idempotency_keys
    FOR EACH ROW EXECUTE FUNCTION agent_data.admit_key();

-- --- erasure ---------------------------------------------------------------------------------------------------------

-- Deletes up to `p_limit` rows of a user from any table that has a `user_id`; how many. (A month of history that went into its archive
-- meanwhile has none.)
CREATE FUNCTION agent_data.erase_rows(p_tenant uuid, p_user uuid, p_table text, p_limit integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    EXECUTE format(
        'WITH gone AS ('
        '  DELETE FROM agent_data.%1$I t USING ('
        '    SELECT tableoid AS part, ctid AS place FROM agent_data.%1$I WHERE user_id = $1 AND tenant_id = $2 LIMIT $3) x'
        '  WHERE t.user_id = $1 AND t.tableoid = x.part AND t.ctid = x.place RETURNING 1)'
        ' SELECT count(*) FROM gone', p_table)
    INTO gone USING p_user, p_tenant, p_limit;
    RETURN gone;
EXCEPTION WHEN undefined_table THEN
    RETURN 0;
END $$;

-- --- retention -------------------------------------------------------------------------------------------------------

-- Notes the users who have calls in a month ('YYYYMM') that is about to be dropped; how many.
CREATE FUNCTION agent_data.note_capture_month(p_month text, p_before timestamptz) RETURNS bigint
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    noted bigint := 0;
BEGIN
    IF to_regclass('agent_data.upstream_calls_' || p_month) IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format(
        'INSERT INTO agent_data.capture_sweeps AS s (user_id, tenant_id, before)'
        ' SELECT DISTINCT c.user_id, c.tenant_id, $1 FROM agent_data.upstream_calls c WHERE c.call_id >= $2 AND c.call_id < $3'
        ' ON CONFLICT (user_id) DO UPDATE SET before = greatest(s.before, EXCLUDED.before), released_at = NULL')
    USING p_before, agent_data.uuid7_floor(to_timestamp(p_month || '+00', 'YYYYMMTZH')),
          agent_data.uuid7_floor(to_timestamp(p_month || '+00', 'YYYYMMTZH') + interval '1 month');
    GET DIAGNOSTICS noted = ROW_COUNT;
    RETURN noted;
END $$;

-- Drops the captures of a month, the calls last: an erasure finds the rest by them. How many partitions.
CREATE FUNCTION agent_data.drop_capture_month(p_month text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent  text;
    dropped integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['streams', 'compilations', 'upstream_calls'] LOOP
        IF to_regclass('agent_data.' || parent || '_' || p_month) IS NOT NULL THEN
            EXECUTE format('DROP TABLE agent_data.%I', parent || '_' || p_month);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    RETURN dropped;
END $$;

-- The chains that calls of a user lead to, from `p_since` on, and those that heads still build on.
CREATE FUNCTION agent_data.chains_in_use(p_user uuid, p_since uuid) RETURNS TABLE (chain_hash bytea) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE roots AS (
        SELECT c.request_chain AS hash FROM agent_data.upstream_calls c WHERE c.user_id = p_user AND c.call_id >= p_since
        UNION SELECT c.sent_chain FROM agent_data.upstream_calls c WHERE c.user_id = p_user AND c.call_id >= p_since
        UNION SELECT h.request_chain FROM agent_data.session_heads h WHERE h.user_id = p_user
        UNION SELECT h.sent_chain FROM agent_data.session_heads h WHERE h.user_id = p_user
    ), used AS (
        SELECT r.hash FROM roots r WHERE r.hash IS NOT NULL
        UNION
        SELECT n.parent_hash FROM used u JOIN agent_data.request_chains n ON n.user_id = p_user AND n.chain_hash = u.hash
        WHERE n.parent_hash IS NOT NULL
    )
    SELECT u.hash FROM used u
$$;

-- The blobs that chains name: 16 bytes each, one after the other.
CREATE FUNCTION agent_data.blobs_of(p_user uuid, p_chains bytea[]) RETURNS TABLE (blob_hash bytea) LANGUAGE sql STABLE AS $$
    SELECT DISTINCT substring(p.hashes FROM n * 16 + 1 FOR 16)
    FROM agent_data.request_chains r
    CROSS JOIN LATERAL (VALUES (r.blobs), (r.lead)) AS p (hashes)
    CROSS JOIN LATERAL generate_series(0, octet_length(p.hashes) / 16 - 1) AS n
    WHERE r.user_id = p_user AND r.chain_hash = ANY (p_chains)
$$;

-- Collects what of a user's chains and blobs nothing refers to, some at a time; how many rows went, NULL: the user is busy.
-- First looked for without a lock. Then, with the recording of this user's calls shut out, what calls since `p_since` brought
-- into use again is left out; `p_since` lies further back than any call on its way can have begun.
CREATE FUNCTION agent_data.collect_captures(p_user uuid, p_since uuid, p_limit integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    used   bytea[];
    chains bytea[];
    blobs  bytea[];
    fresh  bytea[];
    went   bigint;
    more   bigint;
BEGIN
    used := ARRAY(SELECT u.chain_hash FROM agent_data.chains_in_use(p_user, '00000000-0000-0000-0000-000000000000') u);
    chains := ARRAY(SELECT r.chain_hash FROM agent_data.request_chains r
                    LEFT JOIN unnest(used) AS u (hash) ON u.hash = r.chain_hash
                    WHERE r.user_id = p_user AND u.hash IS NULL LIMIT p_limit);
    blobs := ARRAY(SELECT b.blob_hash FROM agent_data.message_blobs b
                   LEFT JOIN agent_data.blobs_of(p_user, used) AS u ON u.blob_hash = b.blob_hash
                   WHERE b.user_id = p_user AND u.blob_hash IS NULL LIMIT p_limit);
    IF cardinality(chains) = 0 AND cardinality(blobs) = 0 THEN
        RETURN 0;
    END IF;
    IF NOT pg_try_advisory_xact_lock(agent_data.capture_lock(p_user)) THEN
        RETURN NULL;
    END IF;
    fresh := ARRAY(SELECT u.chain_hash FROM agent_data.chains_in_use(p_user, p_since) u);
    DELETE FROM agent_data.request_chains r
    WHERE r.user_id = p_user AND r.chain_hash = ANY (chains) AND r.chain_hash <> ALL (fresh);
    GET DIAGNOSTICS went = ROW_COUNT;
    DELETE FROM agent_data.message_blobs b
    WHERE b.user_id = p_user AND b.blob_hash = ANY (blobs)
      AND NOT EXISTS (SELECT FROM agent_data.blobs_of(p_user, fresh) u WHERE u.blob_hash = b.blob_hash);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN went + more;
END $$;
