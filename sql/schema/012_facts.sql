-- The persona of a user (seed 003 §6), kept in step with the memories; what answers were worth (seed 001); changing the embedder.

-- --- facts ---------------------------------------------------------------------------------------------------------------

INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('fact_categories', '{
        "personal": "name last_name called pronouns lives_in from born_in grew_up_in age birthday birth_year nationality native_language time_zone marital_status partner anniversary family parent_of pets lives_with height weight speaks owns drives budget condition allergic_to fear address name_spelling banks_with",
        "professional": "occupation works works_at works_in work_mode company business_in business_is business_does customers runs in_charge_of teaches degree school graduated_from studies codes_in reports_to",
        "preference": "likes dislikes prefers avoids diet style uses",
        "interest": "plays collects hobbies subscribes_to member_of"}',
     'Categories of facts (seed 003 §6) and the predicates in each; one that is in none is a preference where the memory is one, personal else.'),
    ('facts_of_many',
     '"allergic_to avoids banks_with codes_in collects condition customers degree dislikes drives family fear graduated_from hobbies in_charge_of likes lives_with member_of owns parent_of pets plays prefers runs school speaks studies style subscribes_to teaches uses"',
     'Predicates of which a subject may have several values at once: each is a fact of its own. All others have one, the last that was said.');

-- What is known of a user, one row a key. Not the memory that said so, which may be pruned and forgotten about: the fact stays
-- until a memory says otherwise, its source is deleted, or the user is.
CREATE TABLE agent_data.user_facts (
    fact_id          uuid NOT NULL,             -- of user, category and key (`fact_id`)
    user_id          uuid NOT NULL,
    tenant_id        uuid NOT NULL,
    category         text NOT NULL,
    fact_key         text NOT NULL,             -- `lives_in`, `wife.name`; of what there may be many `likes:tea`
    is_many          boolean NOT NULL DEFAULT false,
    fact_value       jsonb NOT NULL,
    confidence_score integer NOT NULL CHECK (confidence_score BETWEEN 0 AND 100),
    source_memory_id uuid,                      -- the memory that said so last; NULL: a client did
    source_memory_ids uuid[] NOT NULL DEFAULT '{}',
    said_at          timestamptz NOT NULL,      -- when it was last said: what was said before gives way to it
    first_mentioned  timestamptz NOT NULL,
    last_updated     timestamptz NOT NULL,
    PRIMARY KEY (user_id, fact_id),
    UNIQUE (user_id, category, fact_key)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('user_facts', current_setting('mneme.hash_partitions')::int);

-- Every change of a fact, in its order; what was deleted or forgotten is there without its words.
CREATE TABLE agent_data.user_fact_changes (
    user_id          uuid NOT NULL,
    tenant_id        uuid NOT NULL,
    fact_id          uuid NOT NULL,
    n                integer NOT NULL,
    at               timestamptz NOT NULL,
    event            text NOT NULL,             -- created, changed, rated, ended, deleted, forgotten
    fact_value       jsonb,                     -- NULL where it stayed, or went
    confidence_score integer,
    source_memory_id uuid,
    actor            text NOT NULL,             -- system, api
    PRIMARY KEY (user_id, fact_id, n)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('user_fact_changes', current_setting('mneme.hash_partitions')::int);

-- The id of a fact: a keyed hash, so that what is left of a deleted one does not say what it was.
CREATE FUNCTION agent_data.fact_id(p_user uuid, p_category text, p_key text) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT encode(substring(sha256(convert_to(
        concat_ws(chr(31), c.value #>> '{}', p_user, p_category, p_key), 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
    FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'
$$;

-- Adds a line to the history of a fact, whose row the caller holds.
CREATE FUNCTION agent_data.tell_fact(
    p_tenant uuid, p_user uuid, p_fact uuid, p_event text, p_value jsonb, p_confidence integer, p_memory uuid, p_actor text,
    p_now timestamptz
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO agent_data.user_fact_changes (
        user_id, tenant_id, fact_id, n, at, event, fact_value, confidence_score, source_memory_id, actor)
    SELECT p_user, p_tenant, p_fact, COALESCE(max(c.n), 0) + 1, p_now, p_event, p_value, p_confidence, p_memory, p_actor
    FROM agent_data.user_fact_changes c WHERE c.user_id = p_user AND c.fact_id = p_fact
$$;

-- Writes down what a memory says of a user (`p_memory`), or what a client does (NULL); says what became of it: created,
-- changed, confirmed, older (something else was said since), deleted (by a client, after this was said). A client's word holds
-- whenever it comes, and may lower the confidence; a memory only ever raises it.
CREATE FUNCTION agent_data.keep_fact(
    p_tenant uuid, p_user uuid, p_category text, p_key text, p_many boolean, p_value jsonb, p_confidence integer,
    p_memory uuid, p_said timestamptz, p_now timestamptz
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    fact  uuid := agent_data.fact_id(p_user, p_category, p_key);
    actor text := CASE WHEN p_memory IS NULL THEN 'api' ELSE 'system' END;
    held  agent_data.user_facts;
    rated integer;
BEGIN
    IF p_memory IS NOT NULL AND EXISTS (
        SELECT FROM agent_data.user_fact_changes c
        WHERE c.user_id = p_user AND c.fact_id = fact AND c.event = 'deleted' AND c.at >= p_said) THEN
        RETURN 'deleted';
    END IF;
    INSERT INTO agent_data.user_facts (
        fact_id, user_id, tenant_id, category, fact_key, is_many, fact_value, confidence_score, source_memory_id,
        source_memory_ids, said_at, first_mentioned, last_updated)
    VALUES (fact, p_user, p_tenant, p_category, p_key, p_many, p_value, p_confidence, p_memory,
            array_remove(ARRAY[p_memory], NULL), p_said, p_said, p_now)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM agent_data.tell_fact(p_tenant, p_user, fact, 'created', p_value, p_confidence, p_memory, actor, p_now);
        RETURN 'created';
    END IF;
    SELECT * INTO held FROM agent_data.user_facts f
    WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_id = fact FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'deleted';  -- between the two looks: whoever took it away came later than this
    END IF;
    IF held.fact_value = p_value
       OR jsonb_typeof(p_value) = 'string' AND lower(held.fact_value #>> '{}') = lower(p_value #>> '{}') THEN
        rated := CASE WHEN p_memory IS NULL THEN p_confidence ELSE greatest(held.confidence_score, p_confidence) END;
        UPDATE agent_data.user_facts f SET
            fact_value = CASE WHEN p_memory IS NULL THEN p_value ELSE f.fact_value END,
            confidence_score = rated,
            source_memory_id = COALESCE(p_memory, f.source_memory_id),
            -- 32: as many sources as a memory keeps (app/store/learning.py).
            source_memory_ids = CASE WHEN p_memory IS NULL OR p_memory = ANY (f.source_memory_ids)
                                          OR cardinality(f.source_memory_ids) >= 32
                                     THEN f.source_memory_ids ELSE f.source_memory_ids || p_memory END,
            said_at = greatest(f.said_at, p_said),
            first_mentioned = least(f.first_mentioned, p_said),
            last_updated = CASE WHEN rated <> f.confidence_score THEN p_now ELSE f.last_updated END
        WHERE f.user_id = p_user AND f.fact_id = fact;
        IF rated <> held.confidence_score THEN
            PERFORM agent_data.tell_fact(p_tenant, p_user, fact, 'rated', NULL, rated, p_memory, actor, p_now);
        END IF;
        RETURN 'confirmed';
    END IF;
    IF p_memory IS NOT NULL AND p_said < held.said_at THEN
        RETURN 'older';
    END IF;
    UPDATE agent_data.user_facts f SET
        fact_value = p_value, confidence_score = p_confidence, source_memory_id = p_memory,
        source_memory_ids = array_remove(ARRAY[p_memory], NULL), said_at = greatest(f.said_at, p_said), last_updated = p_now
    WHERE f.user_id = p_user AND f.fact_id = fact;
    PERFORM agent_data.tell_fact(p_tenant, p_user, fact, 'changed', p_value, p_confidence, p_memory, actor, p_now);
    RETURN 'changed';
END $$;

-- Takes a fact away. `ended`: it is not true any more, its history stays; `deleted`: its words go as well, and what was said of
-- it until now does not bring it back. False: there was none.
CREATE FUNCTION agent_data.drop_fact(
    p_tenant uuid, p_user uuid, p_fact uuid, p_event text, p_memory uuid, p_actor text, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    DELETE FROM agent_data.user_facts f WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_id = p_fact;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_event = 'deleted' THEN
        UPDATE agent_data.user_fact_changes c SET fact_value = NULL, source_memory_id = NULL
        WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.fact_id = p_fact;
    END IF;
    PERFORM agent_data.tell_fact(p_tenant, p_user, p_fact, p_event, NULL, NULL, p_memory, p_actor, p_now);
    RETURN true;
END $$;

-- Seed 003's `update_fact_confidence`. False: there is no such fact.
CREATE FUNCTION agent_data.update_fact_confidence(
    p_tenant uuid, p_user uuid, p_fact uuid, p_score integer, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    UPDATE agent_data.user_facts f SET confidence_score = p_score, last_updated = p_now
    WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_id = p_fact;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM agent_data.tell_fact(p_tenant, p_user, p_fact, 'rated', NULL, p_score, NULL, 'api', p_now);
    RETURN true;
END $$;

-- What a memory was the source of, when it is not true any more (`ended`) or was deleted (`forgotten`: its words leave the
-- histories, too). A fact that another memory in force says as well stays, and is then that one's.
CREATE FUNCTION agent_data.drop_facts_of(p_tenant uuid, p_user uuid, p_memory uuid, p_event text, p_now timestamptz)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    held  agent_data.user_facts;
    other uuid[];
BEGIN
    FOR held IN SELECT * FROM agent_data.user_facts f
                WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND p_memory = ANY (f.source_memory_ids)
                ORDER BY f.fact_id FOR UPDATE LOOP
        SELECT array_agg(m.memory_id ORDER BY m.created_at) INTO other FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.is_active AND m.memory_id <> p_memory
          AND m.memory_id = ANY (held.source_memory_ids);
        IF other IS NULL THEN
            PERFORM agent_data.drop_fact(p_tenant, p_user, held.fact_id, p_event, p_memory, 'system', p_now);
        ELSE
            UPDATE agent_data.user_facts f SET
                source_memory_ids = array_remove(f.source_memory_ids, p_memory),
                source_memory_id = CASE WHEN f.source_memory_id = p_memory THEN other[cardinality(other)]
                                        ELSE f.source_memory_id END
            WHERE f.user_id = p_user AND f.fact_id = held.fact_id;
        END IF;
    END LOOP;
    IF p_event = 'forgotten' THEN
        UPDATE agent_data.user_fact_changes c SET fact_value = NULL
        WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.source_memory_id = p_memory;
    END IF;
END $$;

-- What a triple says of a user, as a fact: its category and its key. `not_lives_in` is about `lives_in`.
CREATE FUNCTION agent_data.fact_of(
    p_subject text, p_predicate text, p_value text, p_kind text, OUT category text, OUT key text, OUT many boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    predicate text := regexp_replace(p_predicate, '^not_', '');
BEGIN
    SELECT predicate = ANY (string_to_array(c.value #>> '{}', ' ')) INTO many
    FROM agent_data.system_config c WHERE c.key = 'facts_of_many';
    SELECT e.key INTO category FROM agent_data.system_config c, jsonb_each_text(c.value) e
    WHERE c.key = 'fact_categories' AND predicate = ANY (string_to_array(e.value, ' ')) LIMIT 1;
    category := COALESCE(category, CASE WHEN p_kind IN ('preference', 'instruction') THEN 'preference' ELSE 'personal' END);
    key := CASE WHEN p_subject = 'user' THEN predicate ELSE p_subject || '.' || predicate END;
    many := COALESCE(many, false);
    IF many THEN
        key := key || ':' || lower(btrim(p_value));
    END IF;
    key := left(key, 255);  -- seed 003 §6: VARCHAR(255)
END $$;

-- After a memory: what it says of its user. Memories of one session, and what was only concluded in it, are no facts.
CREATE FUNCTION agent_data.keep_facts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fact record;
    said timestamptz;
    held uuid;
BEGIN
    IF NEW.status IN ('invalidated', 'forgotten') OR NEW.object_value IS NULL THEN
        IF TG_OP = 'UPDATE' THEN
            PERFORM agent_data.drop_facts_of(
                NEW.tenant_id, NEW.user_id, NEW.memory_id,
                CASE NEW.status WHEN 'forgotten' THEN 'forgotten' ELSE 'ended' END, NEW.updated_at);
        END IF;
        RETURN NULL;
    END IF;
    -- Corrected by what names no value of its own: the old one is not true any more.
    IF NEW.status = 'superseded' AND NEW.superseded_how = 'corrected' AND EXISTS (
        SELECT FROM agent_data.memory_store h
        WHERE h.user_id = NEW.user_id AND h.memory_id = NEW.superseded_by AND h.object_value IS NULL) THEN
        PERFORM agent_data.drop_facts_of(NEW.tenant_id, NEW.user_id, NEW.memory_id, 'ended', NEW.updated_at);
        RETURN NULL;
    END IF;
    IF NEW.status NOT IN ('active', 'aging') OR NEW.memory_scope <> 1 OR NEW.subject_entity_id IS NULL
       OR NEW.dedup_scope <> '00000000-0000-0000-0000-000000000000' THEN
        RETURN NULL;
    END IF;
    -- What was said twice was said the second time.
    SELECT max((s ->> 'created_at')::timestamptz) INTO said FROM jsonb_array_elements(NEW.sources) s;
    said := greatest(NEW.created_at, said);
    SELECT * INTO fact FROM agent_data.fact_of(NEW.subject_entity_id, NEW.predicate, NEW.object_value, NEW.kind);
    IF NEW.predicate LIKE 'not\_%' THEN
        SELECT f.fact_id INTO held FROM agent_data.user_facts f
        WHERE f.user_id = NEW.user_id AND f.fact_id = agent_data.fact_id(NEW.user_id, fact.category, fact.key)
          AND lower(f.fact_value #>> '{}') = lower(btrim(NEW.object_value)) AND f.said_at <= said;
        IF held IS NOT NULL THEN
            PERFORM agent_data.drop_fact(
                NEW.tenant_id, NEW.user_id, held, 'ended', NEW.memory_id, 'system', NEW.updated_at);
        END IF;
        RETURN NULL;
    END IF;
    PERFORM agent_data.keep_fact(
        NEW.tenant_id, NEW.user_id, fact.category, fact.key, fact.many, to_jsonb(btrim(NEW.object_value)),
        round(100 * NEW.confidence)::integer, NEW.memory_id, said, NEW.updated_at);
    RETURN NULL;
END $$;
CREATE TRIGGER facts_learned AFTER INSERT ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.predicate IS NOT NULL AND NEW.object_value IS NOT NULL)
    EXECUTE FUNCTION agent_data.keep_facts();
CREATE TRIGGER facts_changed
    AFTER UPDATE OF status, memory_scope, confidence, reinforcement_count, predicate, object_value ON agent_data.memory_store
    FOR EACH ROW WHEN (
        OLD.predicate IS NOT NULL AND OLD.object_value IS NOT NULL
        AND (OLD.status, OLD.memory_scope, OLD.reinforcement_count, OLD.object_value)
            IS DISTINCT FROM (NEW.status, NEW.memory_scope, NEW.reinforcement_count, NEW.object_value))
    EXECUTE FUNCTION agent_data.keep_facts();

-- --- outcomes ------------------------------------------------------------------------------------------------------------

INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('outcome_boost', '0.1', 'What one wholly good answer adds to the importance of each memory in its prompt (seed 001 §4.3).');

-- What an answer was worth: the last word on each call.
CREATE TABLE agent_data.answer_outcomes (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    call_id    uuid NOT NULL,
    session_id uuid,
    score      real NOT NULL CHECK (score BETWEEN -1 AND 1),
    comment    text,
    metadata   jsonb NOT NULL DEFAULT '{}',
    answered_at timestamptz NOT NULL,          -- when the call was made
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, call_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('answer_outcomes', current_setting('mneme.hash_partitions')::int);

-- The memories that stood in that answer's prompt, and what the outcome did to each.
CREATE TABLE agent_data.memory_outcomes (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    call_id   uuid NOT NULL,
    change    real NOT NULL,                   -- of its importance: what is taken back when the outcome changes
    PRIMARY KEY (user_id, memory_id, call_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_outcomes', current_setting('mneme.hash_partitions')::int);
CREATE INDEX memory_outcomes_call ON agent_data.memory_outcomes (user_id, call_id);

-- Seed 001 §4.3, compute importance: += 0.1 after a positive outcome; as much less after a negative one, in proportion to a
-- score in −1..1, and never outside of 0..1.
CREATE FUNCTION agent_data.outcome_importance(p_importance real, p_score real, p_boost real) RETURNS real
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(1, greatest(0, p_importance + p_score * p_boost))::real
$$;

-- Writes down what an answer was worth (NULL: takes it back), and moves the importance of its memories; what an earlier word on
-- the same call had done is undone first, so that only the last one counts. Saying the same again changes nothing. Says whether
-- there was an outcome before; NULL: there is no such call, or its user is gone.
CREATE FUNCTION agent_data.rate_answer(
    p_tenant uuid, p_user uuid, p_call uuid, p_score real, p_comment text, p_metadata jsonb, p_memories uuid[], p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    call   record;
    before agent_data.answer_outcomes;
    known  boolean;
    boost  real;
BEGIN
    -- As a call itself (`admit_call`): an erasure waits for what is being written, and what comes later meets its fence.
    PERFORM pg_advisory_xact_lock_shared(agent_data.capture_lock(p_user));
    SELECT * INTO before FROM agent_data.answer_outcomes o
    WHERE o.user_id = p_user AND o.call_id = p_call AND o.tenant_id = p_tenant FOR UPDATE;
    known := FOUND;
    SELECT c.session_id, c.created_at INTO call FROM agent_data.upstream_calls c
    WHERE c.tenant_id = p_tenant AND c.call_id = p_call AND c.user_id = p_user;
    IF EXISTS (SELECT FROM agent_data.erased_users e
               WHERE e.user_id = p_user AND e.erased_before > COALESCE(before.answered_at, call.created_at)) THEN
        RETURN NULL;
    END IF;
    IF known AND before.score = p_score THEN
        UPDATE agent_data.answer_outcomes o SET comment = p_comment, metadata = p_metadata, updated_at = p_now
        WHERE o.user_id = p_user AND o.call_id = p_call
          AND (o.comment, o.metadata) IS DISTINCT FROM (p_comment, p_metadata);
        RETURN true;
    END IF;
    IF NOT known THEN
        IF call.created_at IS NULL OR p_score IS NULL THEN
            RETURN NULL;
        END IF;
        INSERT INTO agent_data.answer_outcomes (
            user_id, tenant_id, call_id, session_id, score, comment, metadata, answered_at, created_at, updated_at)
        VALUES (p_user, p_tenant, p_call, call.session_id, p_score, p_comment, p_metadata, call.created_at, p_now, p_now)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN  -- two at once: the other one was first
            RETURN agent_data.rate_answer(p_tenant, p_user, p_call, p_score, p_comment, p_metadata, p_memories, p_now);
        END IF;
    ELSIF p_score IS NULL THEN
        DELETE FROM agent_data.answer_outcomes o WHERE o.user_id = p_user AND o.call_id = p_call;
    ELSE
        UPDATE agent_data.answer_outcomes o SET
            score = p_score, comment = p_comment, metadata = p_metadata, updated_at = p_now
        WHERE o.user_id = p_user AND o.call_id = p_call;
    END IF;
    SELECT c.value::real INTO boost FROM agent_data.system_config c WHERE c.key = 'outcome_boost';
    WITH touched AS (
        SELECT x.memory_id, COALESCE(max(x.change), 0) AS change FROM (
            SELECT o.memory_id, o.change FROM agent_data.memory_outcomes o WHERE o.user_id = p_user AND o.call_id = p_call
            UNION ALL SELECT r.memory_id, NULL FROM unnest(p_memories) AS r (memory_id) WHERE NOT known
        ) x GROUP BY x.memory_id
    ), held AS MATERIALIZED (
        SELECT m.memory_id, m.importance, agent_data.outcome_importance(
            greatest(0, m.importance - t.change)::real, COALESCE(p_score, 0), boost) AS due,
            greatest(0, m.importance - t.change)::real AS base
        FROM touched t JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = t.memory_id
        WHERE m.tenant_id = p_tenant AND m.status <> 'forgotten'
        ORDER BY m.memory_id FOR NO KEY UPDATE OF m
    ), moved AS (
        UPDATE agent_data.memory_store m SET importance = h.due, updated_at = p_now FROM held h
        WHERE m.user_id = p_user AND m.memory_id = h.memory_id AND m.importance <> h.due
    ), told AS (
        INSERT INTO agent_data.memory_events (user_id, tenant_id, memory_id, at, event, before, after, actor)
        SELECT p_user, p_tenant, h.memory_id, p_now, 'rated', jsonb_build_object('importance', h.importance),
               jsonb_build_object('importance', h.due, 'call', p_call), 'api'
        FROM held h WHERE h.importance <> h.due
    )
    INSERT INTO agent_data.memory_outcomes AS o (user_id, tenant_id, memory_id, call_id, change)
    SELECT p_user, p_tenant, h.memory_id, p_call, h.due - h.base FROM held h
    ON CONFLICT (user_id, memory_id, call_id) DO UPDATE SET change = EXCLUDED.change;
    IF p_score IS NULL THEN
        DELETE FROM agent_data.memory_outcomes o WHERE o.user_id = p_user AND o.call_id = p_call;
    END IF;
    RETURN known;
END $$;

-- --- another embedder ----------------------------------------------------------------------------------------------------

-- What makes the indexes of a space while turns are being written: statements to be run one by one, outside of a transaction.
-- They build each partition's indexes without a lock; `ensure_embedding_space` then finds them, and only joins them together.
-- What an interrupted run left half built goes first.
CREATE FUNCTION agent_data.space_index_statements(p_space smallint, p_dimensions integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    part   record;
    index  record;
    name   text;
    -- What ranking needs beside the vector, where the table has it.
    beside text := COALESCE((SELECT 'place, ' FROM pg_attribute a
                             WHERE a.attrelid = 'agent_data.embeddings'::regclass AND a.attname = 'place'), '');
BEGIN
    FOR part IN
        SELECT c.oid, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'agent_data.embeddings'::regclass ORDER BY c.relname
    LOOP
        FOR index IN
            -- As `ensure_embedding_space` has them.
            SELECT * FROM (VALUES
                ('hnsw', format('USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 64) '
                                'WHERE space = %s AND in_hnsw', p_dimensions, p_space), true),
                ('scan', format('(user_id) INCLUDE (item_id, item_kind, item_at, %svector) WHERE space = %s', beside, p_space),
                 p_dimensions <= 1200),
                ('memories', format('(user_id) %s WHERE space = %s AND item_kind = 1',
                                    CASE WHEN p_dimensions <= 1200 THEN 'INCLUDE (item_id, vector)' ELSE '' END, p_space), true)
            ) AS v (kind, definition, wanted) WHERE v.wanted
        LOOP
            name := format('%s_%s_%s', part.relname, index.kind, p_space);
            IF EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                       WHERE x.indrelid = part.oid AND c.relname = name AND NOT x.indisvalid) THEN
                RETURN NEXT format('DROP INDEX CONCURRENTLY agent_data.%I', name);
            END IF;
            IF NOT EXISTS (SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                           WHERE x.indrelid = part.oid AND c.relname = name AND x.indisvalid)
               AND to_regclass(format('agent_data.embeddings_%s_%s', index.kind, p_space)) IS NULL THEN
                RETURN NEXT format('CREATE INDEX CONCURRENTLY %I ON agent_data.%I %s', name, part.relname, index.definition);
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- Adds vectors of items that have none in a space yet, as far as they are still what they were when they were read: a memory
-- that was edited or forgotten meanwhile gets none, nor does anything of an erased user. How many; NULL: the user is not
-- the one (`p_epoch`) that they were read of.
CREATE FUNCTION agent_data.add_missing_vectors(
    p_tenant uuid, p_user uuid, p_space smallint, p_epoch integer, p_kinds smallint[], p_items uuid[], p_ats timestamptz[],
    p_hashes bytea[], p_vectors halfvec[]
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    valid uuid[];
    said  uuid[];
BEGIN
    -- Held until the end: an erasure waits, and then finds what was written; so does the deletion of a message.
    PERFORM pg_advisory_xact_lock_shared(agent_data.capture_lock(p_user));
    PERFORM FROM agent_data.users u
    WHERE u.user_id = p_user AND u.tenant_id = p_tenant AND u.erasure_epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(x.memory_id) INTO valid FROM (
        SELECT m.memory_id FROM agent_data.memory_store m
        JOIN unnest(p_items, p_kinds, p_hashes) AS v (item, kind, hash) ON v.item = m.memory_id AND v.hash = m.content_hash
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.memory_id = ANY (p_items) AND v.kind = 1
          AND m.status <> 'forgotten'
        ORDER BY m.memory_id FOR SHARE OF m
    ) x;
    SELECT array_agg(h.message_id) INTO said FROM unnest(p_items, p_kinds, p_ats, p_hashes) AS v (item, kind, at, hash)
    JOIN agent_data.conversation_history h ON h.user_id = p_user AND h.message_id = v.item AND h.created_at = v.at
    WHERE v.kind = 0 AND h.tenant_id = p_tenant AND h.content_hash IS NOT DISTINCT FROM v.hash AND h.content <> ''
      AND NOT h.is_pruned;
    PERFORM agent_data.add_vectors(
        p_tenant, p_user, p_space, x.kind, array_agg(x.item), array_agg(x.at), array_agg(x.vector))
    FROM unnest(p_items, p_kinds, p_ats, p_vectors) AS x (item, kind, at, vector)
    WHERE x.kind = 1 AND x.item = ANY (valid) OR x.kind = 0 AND x.item = ANY (said)
    GROUP BY x.kind;
    RETURN COALESCE(cardinality(valid), 0) + COALESCE(cardinality(said), 0);
END $$;

-- Takes a space away for good, its vectors having gone before: its indexes and its name.
CREATE FUNCTION agent_data.drop_embedding_space(p_space smallint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['hnsw', 'scan', 'memories'] LOOP
        EXECUTE format('DROP INDEX IF EXISTS agent_data.embeddings_%s_%s', kind, p_space);
    END LOOP;
    DELETE FROM agent_data.embedding_spaces WHERE space = p_space;
END $$;

-- --- what a tenant wants to be remembered --------------------------------------------------------------------------------

ALTER TABLE agent_data.tenant_profiles ALTER COLUMN profile SET DEFAULT '',
    ADD COLUMN IF NOT EXISTS extraction_instructions text NOT NULL DEFAULT '' CHECK (length(extraction_instructions) <= 8000);

-- What a tenant tells extraction in its own words; NULL: nothing. (Row-level security holds it to the transaction's tenant.)
CREATE FUNCTION agent_data.tenant_instructions(p_tenant uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT p.extraction_instructions FROM agent_data.tenant_profiles p
    WHERE p.tenant_id = p_tenant AND p.extraction_instructions <> ''
$$;

-- --- export --------------------------------------------------------------------------------------------------------------

-- Some rows of a user from any table that has a `user_id`, as JSON, in the order of its key (of a table without one, as they
-- lie there), after the row whose key is `p_after`; with the key of each. As many as have `p_bytes` together as they are stored,
-- but one at least, and at most `p_limit`. Words made ready for searching are left out: the text is there. (Row-level security
-- holds it to the transaction's tenant.)
CREATE FUNCTION agent_data.export_rows(
    p_tenant uuid, p_user uuid, p_table text, p_after text[], p_limit integer, p_bytes bigint
) RETURNS TABLE (line text, key text[]) LANGUAGE plpgsql STABLE AS $$
DECLARE
    source  regclass := format('agent_data.%I', p_table)::regclass;
    names   text[];
    types   text[];
    shown   text;
    size    text;
    ordered text;
    passed  text;
BEGIN
    SELECT array_agg(format('%I', a.attname) ORDER BY k.n), array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.n)
    INTO names, types
    FROM pg_index x, unnest(x.indkey::smallint[]) WITH ORDINALITY AS k (number, n)
    JOIN pg_attribute a ON a.attnum = k.number
    WHERE x.indrelid = source AND x.indisprimary AND a.attrelid = source AND a.attname NOT IN ('tenant_id', 'user_id');
    IF NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = source AND x.indisprimary) THEN
        names := ARRAY['ctid'];
        types := ARRAY['tid'];
    END IF;
    -- The size as it is stored: asking for it unpacks nothing.
    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE a.atttypid <> 'tsvector'::regtype),
           string_agg(format('COALESCE(pg_column_size(%I), 0)', a.attname), ' + ') FILTER (WHERE a.attlen = -1)
    INTO shown, size
    FROM pg_attribute a WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped;
    SELECT string_agg(n, ', '), string_agg(format('%s::text', n), ', ') INTO ordered, passed FROM unnest(names) AS n;
    RETURN QUERY EXECUTE format(
        'SELECT (SELECT row_to_json(x)::text FROM (SELECT %7$s) x), y._passed FROM ('
        '  SELECT *, ARRAY[%1$s]::text[] AS _passed, row_number() OVER (ORDER BY %3$s) AS _place,'
        '         sum(%2$s) OVER (ORDER BY %3$s) - (%2$s) AS _before FROM ('
        '    SELECT ctid, * FROM %4$s t WHERE t.user_id = $1 AND t.tenant_id = $2 %5$s ORDER BY %6$s LIMIT $4) z) y'
        ' WHERE y._before < $5 ORDER BY y._place',
        COALESCE(passed, ''), COALESCE(size, '0'), COALESCE(ordered, '1'), source,
        CASE WHEN p_after IS NOT NULL AND names IS NOT NULL THEN
            format('AND (%s) > (%s)', ordered, (SELECT string_agg(format('$3[%s]::%s', i, types[i]), ', ')
                                                FROM generate_subscripts(names, 1) AS i))
        -- Of a table whose key is the user there is one row.
        WHEN p_after IS NOT NULL THEN 'AND false' END,
        COALESCE(ordered, '1'), shown)
    USING p_user, p_tenant, p_after, p_limit, p_bytes;
END $$;

SELECT agent_data.protect_tables();
GRANT DELETE ON agent_data.user_facts, agent_data.answer_outcomes, agent_data.memory_outcomes TO mneme_definer;
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname IN (
                 'keep_fact', 'drop_fact', 'drop_facts_of', 'update_fact_confidence', 'rate_answer', 'add_missing_vectors') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO mneme_definer', f);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mneme_app', f);
    END LOOP;
END $$;
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['space_index_statements(smallint, integer)', 'drop_embedding_space(smallint)'] LOOP
        EXECUTE format('ALTER FUNCTION agent_data.%s OWNER TO mneme_owner', name);
        EXECUTE format('REVOKE ALL ON FUNCTION agent_data.%s FROM PUBLIC', name);
    END LOOP;
END $$;
-- The schedule changes memories as the owner, and a message is deleted by the eraser.
GRANT EXECUTE ON FUNCTION
    agent_data.keep_fact(uuid, uuid, text, text, boolean, jsonb, integer, uuid, timestamptz, timestamptz),
    agent_data.drop_fact(uuid, uuid, uuid, text, uuid, text, timestamptz),
    agent_data.drop_facts_of(uuid, uuid, uuid, text, timestamptz) TO mneme_owner, mneme_eraser;
