-- The persona of a user (seed 003 §6), kept in step with the memories; what answers were worth (seed 001); changing the embedder.

-- --- facts ---------------------------------------------------------------------------------------------------------------
INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('fact_categories', '{
        "personal": "name last_name called pronouns lives_in from born_in grew_up_in age birthday birth_year nationality native_language time_zone marital_status partner anniversary family parent_of pets lives_with height weight speaks owns drives budget condition allergic_to fear address name_spelling banks_with smokes",
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
    -- What a prompt needs of a fact, so that reading forty of them opens one table: the id of its note, where its memory was learned,
    -- since when it is so (its memory says so, or it took the place of another value), and at most eight messages that say it.
    note_id          uuid,
    said_session     uuid,
    said_turn        integer,
    since            timestamptz,
    said_messages    uuid[] NOT NULL DEFAULT '{}',
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
-- it until now does not bring it back; the memory blocks that quote it go with its words: their sessions begin a new epoch. False:
-- there was none.
CREATE FUNCTION agent_data.drop_fact(
    p_tenant uuid, p_user uuid, p_fact uuid, p_event text, p_memory uuid, p_actor text, p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    note uuid;
BEGIN
    DELETE FROM agent_data.user_facts f WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_id = p_fact
    RETURNING f.note_id INTO note;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_event = 'deleted' THEN
        UPDATE agent_data.user_fact_changes c SET fact_value = NULL, source_memory_id = NULL
        WHERE c.user_id = p_user AND c.tenant_id = p_tenant AND c.fact_id = p_fact;
    END IF;
    IF p_event IN ('deleted', 'forgotten') THEN
        WITH quoting AS (
            DELETE FROM agent_data.context_blocks b
            WHERE b.user_id = p_user AND b.tenant_id = p_tenant AND b.item_ids @> ARRAY[note]
            RETURNING b.session_id
        )
        UPDATE agent_data.sessions s SET block_epoch = s.block_epoch + 2
        WHERE s.tenant_id = p_tenant AND s.user_id = p_user AND s.session_id IN (SELECT q.session_id FROM quoting q);
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

-- Keeps what a new memory says of its user. Memories of one session, what was only concluded in it, and what another of its
-- speakers said are no facts.
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
    FOR EACH ROW WHEN (NEW.predicate IS NOT NULL AND NEW.object_value IS NOT NULL AND NEW.speaker IS NULL)
    EXECUTE FUNCTION agent_data.keep_facts();

CREATE TRIGGER facts_changed
    AFTER UPDATE OF status, memory_scope, confidence, reinforcement_count, predicate, object_value ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.speaker IS NULL AND
        (OLD.predicate IS NOT NULL AND OLD.object_value IS NOT NULL OR NEW.predicate IS NOT NULL AND NEW.object_value IS NOT NULL)
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
    -- There may be a pattern in it (seed 001 §4.1).
    INSERT INTO agent_data.consolidation_state AS c (user_id, tenant_id, due_at) VALUES (p_user, p_tenant, p_now)
    ON CONFLICT (user_id) DO UPDATE SET due_at = EXCLUDED.due_at WHERE c.due_at IS NULL;
    RETURN known;
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
    FOREACH kind IN ARRAY ARRAY['hnsw', 'memories'] LOOP
        EXECUTE format('DROP INDEX IF EXISTS agent_data.embeddings_%s_%s', kind, p_space);
    END LOOP;
    DELETE FROM agent_data.embedding_spaces WHERE space = p_space;
END $$;

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
    -- What says who spoke is shown as messages have it everywhere else, and every time in one form, that of the API.
    SELECT string_agg(CASE
               WHEN p_table = 'conversation_history' AND a.attname = 'role' THEN
                   'COALESCE((SELECT e.name FROM agent_data.enumerations e WHERE e.enumeration = ''role'' AND e.value = role), ''other'') AS role'
               WHEN a.atttypid = 'timestamptz'::regtype THEN
                   format('CASE WHEN isfinite(%1$I) THEN to_char(%1$I AT TIME ZONE ''UTC'', %2$L) ELSE %1$I::text END AS %1$I',
                          a.attname, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
               ELSE format('%I', a.attname) END, ', ' ORDER BY a.attnum) FILTER (WHERE a.atttypid <> 'tsvector'::regtype),
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

-- What is in doubt, and procedures: a few of a user's memories, or none at all.
CREATE INDEX memory_standing ON agent_data.memory_store (user_id) WHERE is_active AND (kind = 'procedure' OR status = 'aging');

-- The id of a note in a memory block: of what it says, so that a block whose notes are not all there any more is out of date. A
-- uuid of version 8, which no item has.
CREATE FUNCTION agent_data.note_id(p_text text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT overlay(overlay(encode(substring(sha256(convert_to(p_text, 'UTF8')) FOR 16), 'hex') PLACING '8' FROM 13)
                   PLACING 'a' FROM 17)::uuid
$$;

CREATE FUNCTION agent_data.note_fact() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said agent_data.memory_store;
BEGIN
    NEW.note_id := agent_data.note_id(NEW.fact_id::text || NEW.fact_value::text);
    NEW.said_session := NULL;
    NEW.said_turn := NULL;
    NEW.said_messages := '{}';
    IF TG_OP = 'INSERT' THEN
        NEW.since := NULL;
    ELSIF lower(OLD.fact_value #>> '{}') IS DISTINCT FROM lower(NEW.fact_value #>> '{}') THEN
        NEW.since := NEW.said_at;  -- the value of before was so until then
    END IF;
    IF NEW.source_memory_id IS NOT NULL THEN
        SELECT m.* INTO said FROM agent_data.memory_store m
        WHERE m.user_id = NEW.user_id AND m.memory_id = NEW.source_memory_id;
        NEW.said_session := said.session_id;
        NEW.said_turn := said.provenance_turn_index;
        NEW.said_messages := COALESCE(said.source_message_ids[1:8], '{}');
        IF said.details ? 'since' OR NEW.since IS NULL AND (said.kind = 'correction' OR said.provenance_type = 2) THEN
            NEW.since := said.valid_from;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER noted BEFORE INSERT OR UPDATE OF fact_value, source_memory_id ON agent_data.user_facts
    FOR EACH ROW EXECUTE FUNCTION agent_data.note_fact();

-- What a prompt says beside what was searched for (seed 001 §6): who the tenant is, what is known of the user, what to ask the user
-- about, and what the user has asked for always.
--
--   p_pooled   there is a user, whose memory is one; else only the tenant's profile
--   p_facts    most facts, the surest and newest first; p_floor: the least confidence of one
--   p_wishes   most standing wishes, the last ones said
--
-- `fact_messages`: for each fact the messages that say it, as JSON. A wish is an instruction in force that was learned from
-- messages of the user's own: `provenance_type` 0 (stated), 2 (correction), 5 (instruction), and no source is known to have another
-- role. What came by the API has no source, whoever asked it to be written, and is none. `wish_messages` as `fact_messages`.
-- `doubted`: memories in doubt, which are said to be so; `due`: those of them that the user may be asked about.
CREATE FUNCTION agent_data.standing(
    p_tenant uuid, p_user uuid, p_pooled boolean, p_facts integer, p_floor integer, p_wishes integer,
    OUT profile text, OUT profile_note uuid,
    OUT fact_ids uuid[], OUT fact_notes uuid[], OUT fact_keys text[], OUT fact_many boolean[], OUT fact_values text[],
    OUT fact_memories uuid[], OUT fact_sessions uuid[], OUT fact_turns integer[],
    OUT fact_since timestamptz[], OUT fact_messages text,
    OUT due uuid[], OUT due_noted timestamptz[],
    OUT procedures uuid[], OUT procedure_details text[],
    OUT wish_ids uuid[], OUT wish_texts text[], OUT wish_sessions uuid[], OUT wish_turns integer[], OUT wish_messages text,
    OUT doubted uuid[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    SELECT t.profile, f.ids, f.notes, f.keys, f.many, f.facts, f.memories, f.sessions, f.turns, f.since, f.messages::text,
           m.doubted, m.habits, m.details, w.ids, w.texts, w.sessions, w.turns, w.messages::text
    INTO profile, fact_ids, fact_notes, fact_keys, fact_many, fact_values, fact_memories, fact_sessions, fact_turns, fact_since,
         fact_messages, doubted, procedures, procedure_details, wish_ids, wish_texts, wish_sessions, wish_turns, wish_messages
    FROM (
        SELECT array_agg(u.fact_id) AS ids, array_agg(u.note_id) AS notes, array_agg(u.fact_key) AS keys,
               array_agg(u.is_many) AS many, array_agg(u.fact_value #>> '{}') AS facts,
               array_agg(u.source_memory_id) AS memories, array_agg(u.said_session) AS sessions,
               array_agg(u.said_turn) AS turns, array_agg(u.since) AS since, json_agg(u.said_messages) AS messages
        FROM (
            SELECT * FROM agent_data.user_facts x
            WHERE p_pooled AND x.user_id = p_user AND x.tenant_id = p_tenant AND x.confidence_score >= p_floor
            ORDER BY x.confidence_score DESC, x.said_at DESC, x.fact_id
            LIMIT p_facts
        ) u
    ) f
    CROSS JOIN (
        SELECT array_agg(x.memory_id) FILTER (WHERE x.status = 'aging') AS doubted,
               array_agg(x.memory_id) FILTER (WHERE x.kind = 'procedure') AS habits,
               array_agg(x.details::text) FILTER (WHERE x.kind = 'procedure') AS details
        FROM agent_data.memory_store x
        WHERE p_pooled AND x.user_id = p_user AND x.is_active AND (x.kind = 'procedure' OR x.status = 'aging')
          AND x.tenant_id = p_tenant AND (x.expires_at IS NULL OR x.expires_at > now())
    ) m
    CROSS JOIN (
        SELECT array_agg(u.memory_id ORDER BY u.said, u.memory_id) AS ids,
               array_agg(u.content_text ORDER BY u.said, u.memory_id) AS texts,
               array_agg(u.session_id ORDER BY u.said, u.memory_id) AS sessions,
               array_agg(u.provenance_turn_index ORDER BY u.said, u.memory_id) AS turns,
               json_agg(u.source_message_ids[1:8] ORDER BY u.said, u.memory_id) AS messages
        FROM (
            SELECT x.memory_id, x.content_text, x.session_id, x.provenance_turn_index, x.source_message_ids,
                   COALESCE(x.stated_at, x.created_at) AS said
            FROM agent_data.memory_store x
            WHERE p_pooled AND x.user_id = p_user AND x.is_active AND x.kind = 'instruction' AND x.tenant_id = p_tenant
              AND x.speaker IS NULL
              AND x.memory_scope = 1 AND x.provenance_type IN (0, 2, 5) AND x.source_message_ids <> '{}'
              AND (x.expires_at IS NULL OR x.expires_at > now())
              AND NOT EXISTS (
                  SELECT FROM jsonb_to_recordset(x.sources) AS s (message_id uuid, created_at timestamptz)
                  JOIN agent_data.conversation_history h
                      ON h.user_id = p_user AND h.message_id = s.message_id AND h.created_at = s.created_at
                  WHERE h.role <> 1)
              AND NOT EXISTS (
                  SELECT FROM agent_data.suppressions s WHERE s.user_id = p_user AND s.item_id = x.memory_id)
            ORDER BY said DESC, x.memory_id
            LIMIT p_wishes
        ) u
    ) w
    LEFT JOIN agent_data.tenant_profiles t ON t.tenant_id = p_tenant AND t.profile <> '';
    IF profile IS NOT NULL THEN
        profile := left(profile, 4000);  -- characters: five times its section, and what the API takes
        profile_note := agent_data.note_id(profile);
    END IF;
    IF doubted IS NOT NULL THEN
        SELECT array_agg(m.memory_id), array_agg(COALESCE(m.last_validated_at, m.created_at)) INTO due, due_noted
        FROM agent_data.life_policy() p, agent_data.memory_store m
        WHERE m.user_id = p_user AND m.memory_id = ANY (doubted)
          AND COALESCE((m.details ->> 'asked_at')::timestamptz
                       <= now() - p.ask_again * power(2, least((m.details ->> 'asked')::integer, 10) - 1), true);
    END IF;
END $$;

-- Notes that the user was asked about these, in a session (NULL: nobody knows where): not again for a while. One that somebody else
-- is changing is not waited for: its question is put again.
CREATE FUNCTION agent_data.note_asked(p_tenant uuid, p_user uuid, p_session uuid, p_memories uuid[], p_at timestamptz)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH held AS (
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.is_active
        ORDER BY m.memory_id
        FOR NO KEY UPDATE SKIP LOCKED
    ), noted AS (
        UPDATE agent_data.memory_store m SET details = m.details || jsonb_build_object(
            'asked_at', p_at, 'asked', COALESCE((m.details ->> 'asked')::integer, 0) + 1, 'asked_in', p_session)
        FROM held h WHERE m.user_id = p_user AND m.memory_id = h.memory_id
        RETURNING m.memory_id
    )
    INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, actor)
    SELECT p_tenant, p_user, n.memory_id, p_at, 'asked', 'system' FROM noted n
$$;

-- A prompt reads the surest and newest of a user's facts. What an earlier block says of another one is so still.

-- Of the items of memory blocks those that are the note of a fact as it stands, however many facts come before it; `p_floor` as of
-- `standing`. NULL: none.
CREATE FUNCTION agent_data.notes_in_force(p_tenant uuid, p_user uuid, p_items uuid[], p_floor integer) RETURNS uuid[]
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT array_agg(u.note_id) FROM agent_data.user_facts u
            WHERE u.user_id = p_user AND u.tenant_id = p_tenant AND u.note_id = ANY (p_items) AND u.confidence_score >= p_floor);
END $$;
-- A user's facts whose value contains this; as `memories_holding`.
CREATE FUNCTION agent_data.facts_holding(p_tenant uuid, p_user uuid, p_value jsonb) RETURNS uuid[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN ARRAY(SELECT f.fact_id FROM agent_data.user_facts f
                 WHERE f.user_id = p_user AND f.tenant_id = p_tenant AND f.fact_value @> p_value);
END $$;
CREATE INDEX user_facts_value ON agent_data.user_facts USING gin (user_id, fact_value jsonb_path_ops);
CREATE INDEX user_facts_note ON agent_data.user_facts (user_id, note_id);

-- Standing wishes: a few of a user's memories, or none.
CREATE INDEX memory_wishes ON agent_data.memory_store (user_id) WHERE is_active AND kind = 'instruction';

-- What was contradicted or denied, not what another memory says better.
CREATE INDEX memory_ended ON agent_data.memory_store (user_id)
    WHERE status = 'invalidated' OR status = 'superseded' AND superseded_how <> 'merged';

-- What of these messages and memories is so no more: the item, the memory that ended, the words that it was learned from (NULL: the
-- item is that memory itself), since when, and the memory in force that took its place (NULL: none did). Not what is forgotten.
CREATE FUNCTION agent_data.ended_since(p_tenant uuid, p_user uuid, p_items uuid[])
RETURNS TABLE (item_id uuid, memory_id uuid, said text, quote text, ended_at timestamptz, heir_id uuid, heir text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE gone AS (
        SELECT m.memory_id, m.content_text, m.valid_to, m.superseded_by, m.sources, m.source_message_ids
        FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant
          AND (m.status = 'invalidated' OR m.status = 'superseded' AND m.superseded_how <> 'merged')
          AND NOT agent_data.drawn(m.kind) AND m.kind <> 'entity_profile'
          AND (m.memory_id = ANY (p_items) OR m.source_message_ids && p_items)
    ), line AS (
        SELECT g.memory_id AS first, g.superseded_by AS next, 1 AS n FROM gone g WHERE g.superseded_by IS NOT NULL
        UNION ALL
        SELECT l.first, h.superseded_by, l.n + 1
        FROM line l JOIN agent_data.memory_store h ON h.user_id = p_user AND h.memory_id = l.next
        WHERE h.superseded_by IS NOT NULL AND l.n < 16  -- steps: as often as one thing is set right
    ), items AS (
        SELECT g.memory_id AS item, g.memory_id, NULL::text AS quote FROM gone g WHERE g.memory_id = ANY (p_items)
        UNION ALL
        SELECT i.item, g.memory_id,
               (SELECT s ->> 'quote' FROM jsonb_array_elements(g.sources) s WHERE s ->> 'message_id' = i.item::text LIMIT 1)
        FROM gone g CROSS JOIN LATERAL unnest(g.source_message_ids) AS i (item) WHERE i.item = ANY (p_items)
    )
    SELECT i.item, g.memory_id, g.content_text, i.quote, g.valid_to, h.memory_id, h.content_text
    FROM items i
    JOIN gone g ON g.memory_id = i.memory_id
    LEFT JOIN LATERAL (
        SELECT m.memory_id, m.content_text, m.source_message_ids FROM line l
        JOIN agent_data.memory_store m ON m.user_id = p_user AND m.memory_id = l.next AND m.is_active
        WHERE l.first = g.memory_id LIMIT 1
    ) h ON true
    WHERE h.memory_id IS NULL OR i.item <> ALL (h.source_message_ids)  -- a message that says both says which is so
    ORDER BY i.item, g.memory_id;
END $$;
