-- What is remembered.

-- Seed 000 §2.2, the one table of everything remembered, with the columns that the other seeds need (their tables are views).
CREATE TABLE agent_data.memory_store (
    memory_id             uuid NOT NULL,
    user_id               uuid NOT NULL,
    tenant_id             uuid NOT NULL,
    session_id            uuid,
    -- The session for requests without a user, whose memories are never pooled; else the nil uuid.
    dedup_scope           uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    memory_tier           smallint NOT NULL CHECK (memory_tier BETWEEN 0 AND 4),
    memory_scope          smallint NOT NULL CHECK (memory_scope IN (0, 1)),
    kind                  text NOT NULL DEFAULT 'fact' CHECK (kind IN (
        'fact', 'preference', 'instruction', 'correction', 'episode', 'event', 'pattern', 'procedure', 'summary',
        'entity_profile', 'tool_outcome')),
    content_text          text NOT NULL,
    content_hash          bytea NOT NULL,
    provenance_type       smallint NOT NULL,
    provenance_turn_id    uuid,              -- the message that it was learned from
    provenance_turn_index integer,
    source_message_ids    uuid[] NOT NULL DEFAULT '{}',
    sources               jsonb NOT NULL DEFAULT '[]',  -- [{session, session_id, message_id, turn_index, quote, span, way, created_at, metadata}]
    confidence            real NOT NULL DEFAULT 0.5 CHECK (confidence BETWEEN 0 AND 1),
    confidence_factors    jsonb NOT NULL DEFAULT '{}',
    importance            real NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    relevance_accumulator real NOT NULL DEFAULT 0,
    access_count          integer NOT NULL DEFAULT 0,
    -- ⌊ln(access_count + 1)⌋, which an index may hold: most uses leave it as it is, and change no index then.
    use_level             smallint NOT NULL GENERATED ALWAYS AS (floor(ln(access_count + 1::double precision))) STORED,
    reinforcement_count   integer NOT NULL DEFAULT 0,
    last_accessed_at      timestamptz,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    expires_at            timestamptz,
    valid_from            timestamptz,
    valid_to              timestamptz,
    status                text NOT NULL DEFAULT 'active' CHECK (status IN (
        'active', 'aging', 'superseded', 'invalidated', 'expired', 'forgotten')),
    is_active             boolean GENERATED ALWAYS AS (status IN ('active', 'aging')) STORED,
    is_validated          boolean NOT NULL DEFAULT false,
    validated_by          text,
    last_validated_at     timestamptz,
    token_count           integer NOT NULL,
    superseded_by         uuid,
    subject_entity_id     text,
    predicate             text,
    predicate_type        text,
    object_value          text,
    speaker               text,              -- the other named speaker of a session whom it is about; NULL: the user
    entity_ids            text[] NOT NULL DEFAULT '{}',
    tags                  text[] NOT NULL DEFAULT '{}',
    details               jsonb NOT NULL DEFAULT '{}',
    metadata              jsonb NOT NULL DEFAULT '{}',
    importance_at         timestamptz,          -- until when decay is reckoned into `importance`
    -- How it was superseded: its heir says the same better, and its words lead there still; or it was put right; or contradicted.
    superseded_how        text CHECK (superseded_how IN ('merged', 'corrected', 'conflict')),
    stated_at             timestamptz,          -- when it was last said, by which contradictions are decided
    PRIMARY KEY (user_id, memory_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_store', current_setting('mneme.hash_partitions')::int);

-- Room in every page for the next version of a row, so that counting a use writes no index. A turn counts some ten that often
-- stand side by side: with a tenth of each page for them, the log of a turn was 3 to 6 % longer (loadtests.wal).
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'agent_data.memory_store'::regclass LOOP
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 50)', part);
    END LOOP;
END $$;

-- One active memory per text: what makes the exact duplicate check of seed 000 §5.4 hold under concurrency.
CREATE UNIQUE INDEX memory_content ON agent_data.memory_store (user_id, content_hash, dedup_scope) WHERE is_active;
CREATE INDEX memory_user_tier ON agent_data.memory_store (user_id, memory_tier, created_at DESC) WHERE is_active;
CREATE INDEX memory_entities ON agent_data.memory_store USING gin (user_id, entity_ids) WHERE is_active AND entity_ids <> '{}';
CREATE INDEX memory_expiry ON agent_data.memory_store (expires_at) WHERE expires_at IS NOT NULL AND is_active;
-- Most memories have neither, and pay for neither.
CREATE INDEX memory_tags ON agent_data.memory_store USING gin (user_id, tags) WHERE tags <> '{}';
CREATE INDEX memory_metadata ON agent_data.memory_store USING gin (user_id, metadata jsonb_path_ops) WHERE metadata <> '{}';
CREATE INDEX memory_superseded ON agent_data.memory_store (user_id, superseded_by) WHERE superseded_by IS NOT NULL;

-- What each kind is: the CHECK above, these, and `app/store/kinds.py`.
CREATE FUNCTION agent_data.memory_type(p_kind text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_kind IN ('fact', 'preference', 'instruction', 'correction', 'pattern') THEN 'semantic'
                WHEN p_kind IN ('event', 'tool_outcome', 'episode') THEN 'episodic'
                WHEN p_kind = 'procedure' THEN 'procedural'
                WHEN p_kind IN ('summary', 'entity_profile') THEN 'summary' END
$$;

-- What may cease to be true: that something happened stays true.
CREATE FUNCTION agent_data.doubtable(p_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_kind IN ('fact', 'preference', 'instruction', 'correction')
$$;

-- What consolidation makes from many messages, and makes anew.
CREATE FUNCTION agent_data.drawn(p_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_kind IN ('pattern', 'procedure', 'summary')
$$;

-- How to deal with the user.
CREATE FUNCTION agent_data.of_behaviour(p_kind text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_kind IN ('preference', 'instruction', 'pattern', 'procedure')
$$;

-- Memories in force that are about one of these, the latest first: one that is tied to a thing need not have its name.
CREATE FUNCTION agent_data.tied_memories(p_tenant uuid, p_user uuid, p_entities text[], p_limit integer) RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT array_agg(x.memory_id) FROM (
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.entity_ids && p_entities AND m.entity_ids <> '{}' AND m.is_active
        ORDER BY m.created_at DESC LIMIT p_limit
    ) x
$$;

-- Memories in force whose predicate is like one of these ([{like, entities, boost}]), about one of its entities (NULL: anything), the
-- latest first, each with the highest boost.
CREATE FUNCTION agent_data.claiming_memories(p_tenant uuid, p_user uuid, p_sought jsonb, p_limit integer,
                                             OUT items uuid[], OUT boosts real[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT array_agg(x.memory_id), array_agg(x.boost) FROM (
        SELECT m.memory_id, max(w.boost) AS boost
        FROM jsonb_to_recordset(p_sought) AS w ("like" text, entities text[], boost real)
        JOIN agent_data.memory_store m
          ON m.predicate LIKE w."like" AND (w.entities IS NULL OR m.entity_ids && w.entities OR m.subject_entity_id = ANY (w.entities))
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.is_active
        GROUP BY m.memory_id, m.created_at ORDER BY m.created_at DESC LIMIT p_limit
    ) x
$$;

-- The user's own statements in force, the most important first, and the number of all. Statements of another speaker of a session
-- are left out.
CREATE FUNCTION agent_data.own_statements(p_tenant uuid, p_user uuid, p_limit integer,
                                          OUT items uuid[], OUT ats timestamptz[], OUT total bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT array_agg(x.memory_id ORDER BY x.place), array_agg(x.created_at ORDER BY x.place), max(x.total)
    FROM (
        SELECT m.memory_id, m.created_at, count(*) OVER () AS total, row_number() OVER (
                   ORDER BY m.importance DESC, COALESCE(m.stated_at, m.created_at) DESC, m.memory_id) AS place
        FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant AND m.is_active AND m.memory_scope = 1 AND m.speaker IS NULL
          AND m.kind IN ('fact', 'preference', 'correction', 'event') AND m.provenance_type IN (0, 2, 3, 4, 5)
          AND m.dedup_scope = '00000000-0000-0000-0000-000000000000'
          AND (m.expires_at IS NULL OR m.expires_at > now())
          AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = p_user AND s.item_id = m.memory_id)
        ORDER BY place LIMIT p_limit
    ) x
$$;

-- A user's memories with all of these tags, whose metadata contain this, in whatever state; NULL: any. As a function of the definer's,
-- because behind row-level security `@>` uses no index; planned for what is asked for.
CREATE FUNCTION agent_data.memories_holding(p_tenant uuid, p_user uuid, p_tags text[], p_metadata jsonb) RETURNS uuid[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN ARRAY(
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.user_id = p_user AND m.tenant_id = p_tenant
          AND (p_tags IS NULL OR m.tags @> p_tags AND m.tags <> '{}')
          AND (p_metadata IS NULL OR m.metadata @> p_metadata AND m.metadata <> '{}'));
END $$;

-- Every change of a memory, oldest first.
CREATE TABLE agent_data.memory_events (
    user_id    uuid NOT NULL,
    tenant_id  uuid NOT NULL,
    memory_id  uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    event      text NOT NULL,               -- created, merged, reinforced, edited, invalidated, restored, superseded, deleted
    before     jsonb,
    after      jsonb,
    actor      text NOT NULL                -- system, user, api
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_events', current_setting('mneme.hash_partitions')::int);
CREATE INDEX memory_events_memory ON agent_data.memory_events (user_id, memory_id, at);

-- L0 (seed 000 §2.2): preferences in force, pending confirmations and tool results of a running session. Unlogged: losing it
-- loses nothing, it is rebuilt from the session.
CREATE UNLOGGED TABLE agent_data.memory_store_working (
    user_id             uuid NOT NULL,
    tenant_id           uuid NOT NULL,
    session_id          uuid NOT NULL,
    active_preferences  jsonb NOT NULL DEFAULT '[]',
    pending_confirmations jsonb NOT NULL DEFAULT '[]',
    tool_results_buffer jsonb NOT NULL DEFAULT '[]',
    updated_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id)
);

-- One vector space per embedding model; two spaces are never compared.
CREATE TABLE agent_data.embedding_spaces (
    space      smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    dimensions integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- All that ranking needs to know of an item beside its vector and its words, in one value of 56 bytes. `app/store/item_columns.py` reads it: item, session (nil: none), microseconds since 2000,
-- turn, tokens, role (9: a memory, or other), kind, and the start of SHA-256 of the speaker's first name (0: none).
CREATE FUNCTION agent_data.item_place(
    p_item uuid, p_kind smallint, p_at timestamptz, p_session uuid, p_turn integer, p_role smallint, p_tokens integer, p_name text
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT uuid_send(p_item) || uuid_send(COALESCE(p_session, '00000000-0000-0000-0000-000000000000')) || timestamptz_send(p_at)
        || int4send(COALESCE(p_turn, 0)) || int4send(COALESCE(p_tokens, 0)) || int2send(COALESCE(p_role, 9::smallint))
        || int2send(p_kind)
        || CASE WHEN p_name <> '' THEN substring(sha256(convert_to(lower(split_part(regexp_replace(p_name, '[_.-]+', ' ', 'g'), ' ', 1)), 'UTF8')) FOR 4)
           ELSE '\x00000000' END
$$;

-- Vectors of messages and memories, apart from them, so that changing the embedder changes neither. `in_hnsw` is set for
-- users who have outgrown the exact scan: only their rows pay for the graph.
CREATE TABLE agent_data.embeddings (
    user_id   uuid NOT NULL,
    tenant_id uuid NOT NULL,
    space     smallint NOT NULL,
    item_id   uuid NOT NULL,
    item_kind smallint NOT NULL,            -- 0 message, 1 memory
    item_at   timestamptz NOT NULL,         -- created_at of the item: leads to its monthly partition
    in_hnsw   boolean NOT NULL DEFAULT false,
    vector    halfvec NOT NULL,
    PRIMARY KEY (user_id, space, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('embeddings', current_setting('mneme.hash_partitions')::int);

-- One index covers the vectors of every space, so that what loads a user's need not name the space as a constant, and is planned
-- once. (A btree entry holds at most a third of a page: wide vectors go without, and are read from the table.)
CREATE INDEX embeddings_scan ON agent_data.embeddings (user_id, space) INCLUDE (item_id, vector)
WHERE vector_dims(vector) <= 1200;

-- Registers a space and makes its indexes; returns its number. Only the vectors of users with very many are in it, so that its making costs no turn of anybody
-- else; with pgvector's own 16 and 64 edges, the nearest 50 of a user were found in .975 of all cases among 1,000,000 memories, whatever
-- number of rows was asked of it, and .98 is promised.
CREATE FUNCTION agent_data.ensure_embedding_space(space_name text, dims integer) RETURNS smallint
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    number smallint;
    known  integer;
BEGIN
    SELECT space, dimensions INTO number, known FROM agent_data.embedding_spaces WHERE name = space_name;
    IF number IS NULL THEN
        INSERT INTO agent_data.embedding_spaces (name, dimensions) VALUES (space_name, dims)
        ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name RETURNING space, dimensions INTO number, known;
    END IF;
    IF known <> dims THEN
        RAISE EXCEPTION 'the embedding space % has % dimensions, not %', space_name, known, dims;
    END IF;
    IF to_regclass(format('agent_data.embeddings_hnsw_%s', number)) IS NULL THEN
        EXECUTE format('CREATE INDEX embeddings_hnsw_%s ON agent_data.embeddings USING hnsw '
                       '((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 24, ef_construction = 128) '
                       'WHERE space = %s AND in_hnsw', number, dims, number);
        -- For the search for near duplicates, which asks among the memories alone.
        EXECUTE format('CREATE INDEX embeddings_memories_%s ON agent_data.embeddings (user_id) %s '
                       'WHERE space = %s AND item_kind = 1', number,
                       CASE WHEN dims <= 1200 THEN 'INCLUDE (item_id, vector)' ELSE '' END, number);
    END IF;
    RETURN number;
END $$;

-- The memories of a scope (`dedup_scope`) in force, and their other wordings, whose cosine with a new memory is above a threshold,
-- nearest first, for many new ones at once: (which of `p_vectors`, from 1; the memory; the cosine). Always the exact scan: a user's memories are a small
-- part of the user's vectors, and have an index of their own.
CREATE FUNCTION agent_data.near_memories(
    p_tenant uuid, p_user uuid, p_scope uuid, p_space smallint, p_vectors halfvec[], p_threshold real, p_limit integer
) RETURNS TABLE (n integer, memory_id uuid, similarity real)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        -- OFFSET 0: first the few that are near, by the memories' own index, and only then what they are.
        'SELECT v.n::integer, x.item_id, x.similarity FROM unnest($1) WITH ORDINALITY AS v (vector, n), LATERAL ('
        '  SELECT e.item_id, e.similarity FROM ('
        '    SELECT c.item_id, (1 - (c.vector <=> v.vector))::real AS similarity FROM agent_data.embeddings c'
        '    WHERE c.user_id = $2 AND c.space = %s AND c.item_kind = 1 AND c.vector <=> v.vector < 1 - $3 OFFSET 0) e'
        '  JOIN agent_data.memory_store m ON m.user_id = $2 AND m.memory_id = e.item_id'
        '  WHERE m.tenant_id = $4 AND m.dedup_scope = $5 AND (m.is_active OR m.superseded_how = ''merged'')'
        '  ORDER BY 2 DESC LIMIT $6) x ORDER BY 1, 3 DESC', p_space)
    USING p_vectors, p_user, p_threshold, p_tenant, p_scope, p_limit;
END $$;

-- What makes the indexes of a space while turns are being written: statements to be run one by one, outside of a transaction. They
-- build each partition's indexes without a lock; `ensure_embedding_space` then finds them, and only joins them together. What an
-- interrupted run left half built goes first.
CREATE FUNCTION agent_data.space_index_statements(p_space smallint, p_dimensions integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    part   record;
    index  record;
    name   text;
BEGIN
    FOR part IN
        SELECT c.oid, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'agent_data.embeddings'::regclass ORDER BY c.relname
    LOOP
        FOR index IN
            -- As `ensure_embedding_space` has them.
            SELECT * FROM (VALUES
                ('hnsw', format('USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WITH (m = 24, ef_construction = 128) '
                                'WHERE space = %s AND in_hnsw', p_dimensions, p_space), true),
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

-- What must not surface: forgotten, erased or superseded items; and keyed hashes, without content, of what was forgotten, so
-- that a resent transcript does not bring it back.
CREATE TABLE agent_data.suppressions (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    item_id      uuid NOT NULL,
    reason       text NOT NULL,
    content_hmac bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, item_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('suppressions', current_setting('mneme.hash_partitions')::int);
-- Recording looks whether anything of the user's was deleted; what is superseded, which may be thousands, need not be read for it.
CREATE INDEX suppressions_deleted ON agent_data.suppressions (user_id) WHERE reason = 'deleted';
CREATE INDEX memory_wordings ON agent_data.memory_store (user_id, content_hash, dedup_scope) WHERE superseded_how = 'merged';
-- What was denied: an old message that is read again does not bring it back.
CREATE INDEX memory_denied ON agent_data.memory_store (user_id, valid_to) WHERE status = 'invalidated';
CREATE INDEX memory_claims ON agent_data.memory_store (user_id, subject_entity_id, predicate)
    WHERE subject_entity_id IS NOT NULL;

-- Contradictions (seed 004, table 9): what was said, and by what it was decided. Without `resolved_at` both stand, and nobody
-- has decided.
CREATE TABLE agent_data.memory_conflicts (
    conflict_id         uuid NOT NULL,
    user_id             uuid NOT NULL,
    tenant_id           uuid NOT NULL,
    dedup_scope         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    session_id          uuid,
    detected_at_message uuid,
    conflict_type       text NOT NULL CHECK (conflict_type IN ('memory_vs_memory', 'memory_vs_db', 'temporal')),
    conflict_data       jsonb NOT NULL,
    memory_ids          uuid[] NOT NULL DEFAULT '{}',
    resolution_strategy text CHECK (resolution_strategy IN (
        'trust_db', 'trust_recent', 'trust_authority', 'trust_confidence', 'ask_user', 'both')),
    resolution_outcome  jsonb,
    resolved_at         timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    entity_id       text,                        -- of which thing; NULL: of none that is known
    PRIMARY KEY (user_id, conflict_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_conflicts', current_setting('mneme.hash_partitions')::int);
CREATE INDEX memory_conflicts_open ON agent_data.memory_conflicts (user_id, created_at) WHERE resolved_at IS NULL;
CREATE INDEX memory_conflicts_memories ON agent_data.memory_conflicts USING gin (memory_ids);

-- HMAC-SHA256 (RFC 2104) of a content hash, with the key of what was forgotten.
CREATE FUNCTION agent_data.content_hmac(p_hash bytea) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    key   bytea := decode((SELECT c.value #>> '{}' FROM agent_data.system_config c WHERE c.key = 'content_hmac_key'), 'hex');
    inner_pad bytea := ''::bytea;
    outer_pad bytea := ''::bytea;
    byte  integer;
BEGIN
    FOR i IN 0..63 LOOP  -- the block of SHA-256 has 64 bytes; the key has 32
        byte := CASE WHEN i < length(key) THEN get_byte(key, i) ELSE 0 END;
        inner_pad := inner_pad || set_byte('\x00'::bytea, 0, byte # 54);
        outer_pad := outer_pad || set_byte('\x00'::bytea, 0, byte # 92);
    END LOOP;
    RETURN sha256(outer_pad || sha256(inner_pad || p_hash));
END $$;

-- Messages that a memory was learned from, by its sources: (id, hash of the text, length of the text). The sources' own times
-- say which months to open.
CREATE FUNCTION agent_data.source_messages(p_user uuid, p_sources jsonb)
RETURNS TABLE (message_id uuid, content_hash bytea, length integer)
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT h.message_id, h.content_hash, length(h.content)
    FROM jsonb_to_recordset(p_sources) AS s (message_id uuid, created_at timestamptz)
    JOIN agent_data.conversation_history h
        ON h.user_id = p_user AND h.message_id = s.message_id AND h.created_at = s.created_at
    WHERE s.message_id IS NOT NULL AND s.created_at IS NOT NULL
$$;

-- Messages that were hidden because what they say had been superseded come back, but for those that say something else which
-- still is; and the answers to them. The application may take away no other suppression.
CREATE FUNCTION agent_data.resurface(p_tenant uuid, p_user uuid, p_messages uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    WITH back AS (
        DELETE FROM agent_data.suppressions x
        WHERE x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = ANY (p_messages) AND x.reason = 'superseded'
          AND NOT EXISTS (
              SELECT FROM agent_data.memory_store o
              WHERE o.user_id = p_user AND o.source_message_ids @> ARRAY[x.item_id]
                AND NOT agent_data.drawn(o.kind)
                AND (o.status = 'invalidated' OR o.status = 'superseded' AND o.superseded_how IN ('corrected', 'conflict')))
        RETURNING x.item_id
    )
    DELETE FROM agent_data.suppressions x
    USING back b, agent_data.conversation_history q, agent_data.conversation_history a
    WHERE q.user_id = p_user AND q.message_id = b.item_id
      AND a.user_id = p_user AND a.session_id = q.session_id AND a.turn_index = q.turn_index + 1 AND a.role = 2
      AND x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = a.message_id AND x.reason = 'superseded'
$$;

-- What follows when a memory ends.
--
-- superseded by another claim, or invalidated: messages that said it do not surface as if it were so still; long ones do, for
--     they say much else ("superseded": they were said, and stay in their own conversation). Messages that also said what took
--     its place stay. When it is restored, they come back.
-- forgotten: see `forget_said`.
-- Of what was drawn together from many messages none says it: they stay, whatever becomes of it. Its older versions go with it.
CREATE FUNCTION agent_data.memory_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    -- Characters up to which a message is about that one thing: two sentences. Of longer ones the memory is a small part.
    brief constant integer := 240;
    drawn constant boolean := agent_data.drawn(NEW.kind);
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'forgotten' AND drawn THEN
        -- What was drawn is drawn anew, unless it was itself what the user forgot.
        PERFORM agent_data.void_memories(NEW.tenant_id, NEW.user_id, ARRAY(
            SELECT v.memory_id FROM agent_data.memory_store v
            WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged'), NEW.updated_at);
    ELSIF NEW.status = 'forgotten' THEN
        PERFORM agent_data.forget_said(NEW.tenant_id, NEW.user_id, NEW.memory_id, OLD.sources, OLD.object_value,
                                       NEW.updated_at);
    ELSIF NEW.status = 'invalidated' OR NEW.status = 'superseded' AND NEW.superseded_how IN ('corrected', 'conflict') THEN
        INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)
        SELECT NEW.user_id, NEW.tenant_id, s.message_id, 'superseded'
        FROM agent_data.saying_messages(NEW.user_id, NEW.sources, NEW.object_value) s
        WHERE NOT drawn AND s.length <= brief AND NOT EXISTS (
            SELECT FROM agent_data.memory_store h
            WHERE h.user_id = NEW.user_id AND h.memory_id = NEW.superseded_by AND h.source_message_ids @> ARRAY[s.message_id])
        ON CONFLICT DO NOTHING;
    ELSIF NEW.status = 'active' AND OLD.status IN ('superseded', 'invalidated') THEN
        PERFORM agent_data.resurface(NEW.tenant_id, NEW.user_id, NEW.source_message_ids);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER ended AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.memory_ended();

-- A memory that comes back is superseded by nothing; one whose text was changed by hand is none that its other wordings mean, nor
-- what its triple says.
CREATE FUNCTION agent_data.memory_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    IF NEW.status <> 'superseded' AND NEW.status <> 'forgotten' THEN
        NEW.superseded_how := NULL;
    END IF;
    IF NEW.content_text <> OLD.content_text AND NEW.status IN ('active', 'aging') THEN
        UPDATE agent_data.memory_store v SET superseded_how = 'corrected'
        WHERE v.user_id = NEW.user_id AND v.superseded_by = NEW.memory_id AND v.superseded_how = 'merged';
        IF NEW.object_value IS NOT DISTINCT FROM OLD.object_value THEN
            NEW.subject_entity_id := NULL;
            NEW.predicate := NULL;
            NEW.predicate_type := NULL;
            NEW.object_value := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER changed BEFORE UPDATE OF status, content_text ON agent_data.memory_store
    FOR EACH ROW EXECUTE FUNCTION agent_data.memory_changed();

-- What lost a contradiction before it was stored, because what ended it had been learned first.
CREATE TRIGGER ended_before AFTER INSERT ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status = 'superseded' AND NEW.superseded_how IN ('corrected', 'conflict'))
    EXECUTE FUNCTION agent_data.memory_ended();

-- One way in which the words of memories go for good, however it came to that; what they leave behind of a sentence that is to be
-- forgotten; and what does not make void what was drawn from it.

-- Takes the words of memories away: text, triple, sources, vectors, history. What follows of it (their other wordings, the messages
-- that said it, what was drawn from it) is told by `memory_ended` and `forget_derived`. Those that are forgotten already stay as they are. How many.
CREATE FUNCTION agent_data.void_memories(p_tenant uuid, p_user uuid, p_memories uuid[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    fresh uuid[];
BEGIN
    -- In order, so that two cannot wait for each other.
    SELECT array_agg(x.memory_id) INTO fresh FROM (
        SELECT m.memory_id FROM agent_data.memory_store m
        WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (p_memories) AND m.status <> 'forgotten'
        ORDER BY m.memory_id FOR UPDATE
    ) x;
    IF fresh IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM agent_data.embeddings e
    WHERE e.tenant_id = p_tenant AND e.user_id = p_user AND e.item_id = ANY (fresh);
    -- What happened stays, what they said does not; nor does it where another memory took one's place.
    UPDATE agent_data.memory_events e SET
        before = CASE WHEN e.before IS NOT NULL THEN '{"text": ""}'::jsonb END,
        after = CASE WHEN e.after IS NULL OR e.memory_id <> ALL (fresh) THEN e.after ELSE '{"text": ""}'::jsonb END
    WHERE e.tenant_id = p_tenant AND e.user_id = p_user
      AND (e.memory_id = ANY (fresh)
           OR e.before ->> 'memory_id' = ANY (fresh::text[]) AND e.memory_id IN (
               SELECT m.superseded_by FROM agent_data.memory_store m WHERE m.user_id = p_user AND m.memory_id = ANY (fresh)));
    UPDATE agent_data.memory_store m SET
        status = 'forgotten', content_text = '', content_hash = '', token_count = 0, sources = '[]', confidence_factors = '{}',
        subject_entity_id = NULL, predicate = NULL, predicate_type = NULL, object_value = NULL, entity_ids = '{}',
        tags = '{}', details = '{}', metadata = '{}', updated_at = p_now
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.memory_id = ANY (fresh);
    RETURN cardinality(fresh);
END $$;

-- Messages that say what a memory says: those that it was learned from, and of the answers to them those that repeat its value
-- ("Noted, Lisbon it is."): (id, hash of the text, length of the text).
CREATE FUNCTION agent_data.saying_messages(p_user uuid, p_sources jsonb, p_value text)
RETURNS TABLE (message_id uuid, content_hash bytea, length integer)
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT s.message_id, s.content_hash, s.length FROM agent_data.source_messages(p_user, p_sources) s
    UNION
    SELECT a.message_id, a.content_hash, length(a.content)
    FROM jsonb_to_recordset(p_sources) AS s (message_id uuid, created_at timestamptz)
    JOIN agent_data.conversation_history q
        ON q.user_id = p_user AND q.message_id = s.message_id AND q.created_at = s.created_at
    JOIN agent_data.conversation_history a
        ON a.user_id = p_user AND a.session_id = q.session_id AND a.turn_index = q.turn_index + 1 AND a.role = 2
    WHERE p_value <> '' AND (a.parent_message_id = q.message_id OR a.parent_message_id IS NULL)
      AND to_tsvector('simple', left(a.content, 100000)) @@ phraseto_tsquery('simple', p_value)
$$;

-- What follows when a memory is forgotten (called by `memory_ended`, with what its sources were): its other wordings are, the
-- contradictions it took part in, and the messages that said it (`saying_messages`, and those of the very same words), whose
-- hashes remain, keyed: sent again, in another session, they are neither found nor learned from. Memories that were learned from
-- those messages as well stay, and quote them no longer.
CREATE FUNCTION agent_data.forget_said(
    p_tenant uuid, p_user uuid, p_memory uuid, p_sources jsonb, p_value text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    -- Characters up to which a message stands for anything: "yes", "thanks".
    brief    constant integer := 7;
    said     uuid[];
    hashes   bytea[];
    hidden   uuid[];
    wordings uuid[];
BEGIN
    SELECT array_agg(s.message_id), array_agg(s.content_hash) FILTER (WHERE s.length > brief) INTO said, hashes
    FROM agent_data.saying_messages(p_user, p_sources, p_value) s;
    -- What was said more often than a memory has sources, or was never learned from, says so as well.
    SELECT array_agg(h.message_id) INTO hidden FROM agent_data.conversation_history h
    WHERE h.user_id = p_user AND h.tenant_id = p_tenant AND hashes IS NOT NULL AND h.content_hash = ANY (hashes);
    SELECT array_agg(DISTINCT i) INTO hidden FROM unnest(said || hidden) AS i;
    INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac, created_at)
    SELECT p_user, p_tenant, i, 'forgotten', (
        SELECT agent_data.content_hmac(s.content_hash) FROM agent_data.saying_messages(p_user, p_sources, p_value) s
        WHERE s.message_id = i AND s.length > brief LIMIT 1), p_now
    FROM unnest(hidden) AS i
    ON CONFLICT (user_id, item_id) DO UPDATE SET
        reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac, created_at = EXCLUDED.created_at
    WHERE suppressions.reason <> 'deleted';
    -- No search may find them: a vector would only wait in its space, and keep that from being dropped.
    DELETE FROM agent_data.embeddings e WHERE e.user_id = p_user AND e.item_id = ANY (hidden);
    UPDATE agent_data.memory_store o SET sources = (
        SELECT jsonb_agg(CASE WHEN s.source ->> 'message_id' = ANY (hidden::text[]) THEN s.source - 'quote' ELSE s.source END
                         ORDER BY s.n)
        FROM jsonb_array_elements(o.sources) WITH ORDINALITY AS s (source, n))
    WHERE o.user_id = p_user AND o.tenant_id = p_tenant AND o.memory_id <> p_memory AND o.source_message_ids && hidden
      AND o.sources <> '[]';
    UPDATE agent_data.memory_conflicts c SET conflict_data = '{}', resolution_outcome = '{}',
                                             resolved_at = COALESCE(c.resolved_at, p_now)
    WHERE c.user_id = p_user AND c.memory_ids @> ARRAY[p_memory];
    SELECT array_agg(v.memory_id) INTO wordings FROM agent_data.memory_store v
    WHERE v.user_id = p_user AND v.superseded_by = p_memory AND v.superseded_how = 'merged' AND v.status <> 'forgotten';
    INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason, content_hmac, created_at)
    SELECT v.user_id, v.tenant_id, v.memory_id, 'forgotten', agent_data.content_hmac(v.content_hash), p_now
    FROM agent_data.memory_store v WHERE v.user_id = p_user AND v.memory_id = ANY (wordings) AND v.content_hash <> ''
    ON CONFLICT (user_id, item_id) DO UPDATE SET
        reason = EXCLUDED.reason, content_hmac = EXCLUDED.content_hmac, created_at = EXCLUDED.created_at;
    PERFORM agent_data.void_memories(p_tenant, p_user, wordings, p_now);
END $$;

-- What users told memory to do in a chat (app/store/commands.py): forgotten in a way that can be undone.

-- One row for each command that something was done about, or asked back. It has no words: what was forgotten is told by the ids in
-- `items` ([{id, kind: memory|message, status: a memory's before, reason: why it was hidden before}]), whose words stay where they
-- are and are hidden by `suppressions` (reason 'forgotten_by_chat').
CREATE TABLE agent_data.memory_commands (
    command_id   uuid NOT NULL,
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    -- Hash of the conversation up to the message, with the number of the command in it: a retry is the same.
    mark         bytea NOT NULL,
    message_hash bytea,                        -- of the message that said it
    kind         text NOT NULL CHECK (kind IN ('forget', 'correct', 'stop', 'allow')),
    scope        text NOT NULL CHECK (scope IN ('thing', 'this', 'everything')),
    outcome      text NOT NULL CHECK (outcome IN ('done', 'ask', 'confirm')),
    items        jsonb NOT NULL DEFAULT '[]',  -- of 'confirm': what it would be done to
    heir         uuid,                         -- of a correction: the memory that says what is right
    at           timestamptz NOT NULL,
    undone_at    timestamptz,
    PRIMARY KEY (user_id, command_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_commands', current_setting('mneme.hash_partitions')::int);
CREATE INDEX commands_mark ON agent_data.memory_commands (user_id, mark);
CREATE INDEX commands_listed ON agent_data.memory_commands (user_id, at DESC, command_id DESC);

-- Shows again what was hidden by a command; the application may take away no other suppression, but for 'superseded'
-- (`resurface`). Which of them there were.
CREATE FUNCTION agent_data.unforget(p_tenant uuid, p_user uuid, p_items uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    DELETE FROM agent_data.suppressions x
    WHERE x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = ANY (p_items) AND x.reason = 'forgotten_by_chat'
    RETURNING x.item_id
$$;

-- A memory that is brought back by itself is found again, and so are the messages that said it and nothing else that is hidden.
CREATE FUNCTION agent_data.remembered() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    PERFORM agent_data.unforget(NEW.tenant_id, NEW.user_id, ARRAY(
        SELECT NEW.memory_id
        UNION
        SELECT s FROM unnest(NEW.source_message_ids) AS s
        WHERE NOT EXISTS (
            SELECT FROM agent_data.memory_store o
            JOIN agent_data.suppressions x ON x.user_id = o.user_id AND x.item_id = o.memory_id AND x.reason = 'forgotten_by_chat'
            WHERE o.user_id = NEW.user_id AND o.memory_id <> NEW.memory_id AND o.source_message_ids @> ARRAY[s])));
    RETURN NULL;
END $$;

CREATE TRIGGER remembered AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status = 'active' AND OLD.status IN ('invalidated', 'expired'))
    EXECUTE FUNCTION agent_data.remembered();
