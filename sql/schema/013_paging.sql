-- Paging (seed 002): what long sessions are made of, at several fidelities, and what the model asked of what was left out.
--
-- The tables are the seed's, with user and tenant in every key, and turns as numbers beside times. All ids of objects are derived
-- from the session and the message, so that what is sent again makes no second one.
CREATE TABLE agent_data.paged_sessions (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    session_id     uuid NOT NULL,
    zone           text NOT NULL DEFAULT 'normal' CHECK (zone IN ('normal', 'caution', 'warning', 'critical', 'emergency')),
    turn           integer NOT NULL DEFAULT 0,       -- of the last decision
    budget         integer NOT NULL DEFAULT 0,       -- tokens of a prompt, then
    tokens         integer NOT NULL DEFAULT 0,       -- of that prompt as the client wrote it
    shown_tokens   integer NOT NULL DEFAULT 0,       -- as it was sent
    avoided_tokens bigint NOT NULL DEFAULT 0,        -- of all requests of the session
    offered        boolean NOT NULL DEFAULT false,   -- the phantom tools stand in its requests
    marks          bytea NOT NULL DEFAULT '',        -- 16 bytes for each message that was segmented
    updated_at     timestamptz NOT NULL DEFAULT now(),
    remembered_at   timestamptz,                 -- up to when its objects were looked through; NULL: never
    PRIMARY KEY (user_id, session_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('paged_sessions', current_setting('mneme.hash_partitions')::int);

CREATE TABLE agent_data.semantic_objects (
    user_id           uuid NOT NULL,
    tenant_id         uuid NOT NULL,
    session_id        uuid NOT NULL,
    object_id         uuid NOT NULL,
    ordinal           integer NOT NULL,              -- within the session, in the order in which they were made
    object_type       text NOT NULL,                 -- app/features/paging/values.py: ObjectType
    kind              text NOT NULL,                 -- what the content is made of: ContentKind
    source_tool       text,
    source_key        text,
    content_full      text NOT NULL,                 -- L0
    content_hash      bytea NOT NULL,                -- 16 bytes of BLAKE2b over the content as it came
    summary_detailed  text,                          -- L1
    summary_compact   text,                          -- L2
    stub              text NOT NULL,                 -- L3
    losses_l1         jsonb NOT NULL DEFAULT '[]',
    losses_l2         jsonb NOT NULL DEFAULT '[]',
    can_answer_l1     jsonb NOT NULL DEFAULT '[]',
    can_answer_l2     jsonb NOT NULL DEFAULT '[]',
    fault_when        jsonb NOT NULL DEFAULT '[]',
    key_entities      jsonb NOT NULL DEFAULT '[]',
    tags              text[] NOT NULL DEFAULT '{}',
    parts             jsonb NOT NULL,                -- [[mark as hex, start, stop], …]: where it stands in the transcript
    current_fidelity  smallint NOT NULL DEFAULT 0 CHECK (current_fidelity BETWEEN 0 AND 4),
    wanted            text CHECK (wanted IN ('restore', 'raise', 'release')),  -- of the next decision: by the model's faults, or the API
    pinned            boolean NOT NULL DEFAULT false,
    pin_reason        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    last_accessed     timestamptz NOT NULL DEFAULT now(),
    accessed_turn     integer NOT NULL,              -- the turn of `last_accessed`
    access_count      integer NOT NULL DEFAULT 0,
    fault_count       integer NOT NULL DEFAULT 0,
    micro_fault_count integer NOT NULL DEFAULT 0,
    tokens_l0         integer NOT NULL,
    tokens_l1         integer,
    tokens_l2         integer,
    tokens_l3         integer NOT NULL,
    source_turn_start integer NOT NULL,
    source_turn_end   integer NOT NULL,
    shrunk_at         timestamptz,                   -- NULL: a job has not made L1 and L2 yet
    content_tsv       tsvector,                      -- object_words, from then on
    space             smallint,                      -- of `embedding`; NULL: a job has not embedded it yet
    embedding         halfvec,
    -- How much of what speaks for it has become memory (app/features/paging/persistent_objects.py: `evidence`).
    remembered        integer NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, object_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('semantic_objects', current_setting('mneme.hash_partitions')::int);
CREATE INDEX objects_session ON agent_data.semantic_objects (user_id, session_id, ordinal);
CREATE INDEX objects_source_key ON agent_data.semantic_objects (user_id, session_id, source_key) WHERE source_key IS NOT NULL;
CREATE INDEX objects_found ON agent_data.semantic_objects USING gin (user_id, session_id, content_tsv, tags);
CREATE INDEX objects_unshrunk ON agent_data.semantic_objects (user_id, session_id, ordinal) WHERE shrunk_at IS NULL;

CREATE TABLE agent_data.object_relationships (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    source_id    uuid NOT NULL,
    target_id    uuid NOT NULL,
    relationship text NOT NULL CHECK (relationship IN ('parent_of', 'caused_by', 'references', 'supersedes', 'depends_on')),
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, source_id, target_id, relationship)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('object_relationships', current_setting('mneme.hash_partitions')::int);
CREATE INDEX relationships_target ON agent_data.object_relationships (user_id, target_id);
CREATE INDEX relationships_session ON agent_data.object_relationships (user_id, session_id);

CREATE TABLE agent_data.fault_history (
    user_id        uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    session_id     uuid NOT NULL,
    fault_id       uuid NOT NULL,
    call_id        uuid,                             -- NULL: asked through the API
    object_id      uuid,                             -- the best object; NULL: nothing answered
    fault_type     text NOT NULL CHECK (fault_type IN ('full_restore', 'micro_fault', 'entropy_triggered')),
    turn_number    integer NOT NULL,
    content_hash   bytea,
    question       text,
    answer         text,
    answer_tokens  integer NOT NULL DEFAULT 0,
    avoided_tokens integer NOT NULL DEFAULT 0,
    latency_ms     integer NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, fault_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('fault_history', current_setting('mneme.hash_partitions')::int);
CREATE INDEX faults_session ON agent_data.fault_history (user_id, session_id, turn_number);
CREATE INDEX faults_object ON agent_data.fault_history (user_id, object_id) WHERE object_id IS NOT NULL;

CREATE TABLE agent_data.fidelity_transitions (
    user_id       uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    session_id    uuid NOT NULL,
    object_id     uuid NOT NULL,
    call_id       uuid NOT NULL,
    from_fidelity smallint NOT NULL,
    to_fidelity   smallint NOT NULL,
    trigger       text NOT NULL CHECK (trigger IN ('pressure', 'access', 'fault', 'cooperative', 'goal_change')),
    turn_number   integer NOT NULL,
    pressure_zone text NOT NULL,
    token_count   integer NOT NULL,                  -- of the whole prompt when the change was decided, as is the zone
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, object_id, call_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('fidelity_transitions', current_setting('mneme.hash_partitions')::int);
CREATE INDEX transitions_session ON agent_data.fidelity_transitions (user_id, session_id, created_at);

CREATE TABLE agent_data.admission_scores (
    user_id         uuid NOT NULL,
    tenant_id       uuid NOT NULL,
    session_id      uuid NOT NULL,
    admission_id    uuid NOT NULL,
    object_id       uuid,                            -- NULL: rejected
    admitted        boolean NOT NULL,
    score_total     real NOT NULL,
    score_type      real NOT NULL,
    score_novelty   real NOT NULL,
    score_utility   real NOT NULL,
    score_recency   real NOT NULL,
    threshold       real NOT NULL,
    content_preview text,                            -- first 200 characters
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, admission_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('admission_scores', current_setting('mneme.hash_partitions')::int);
CREATE INDEX admissions_session ON agent_data.admission_scores (user_id, session_id, created_at);

-- What the model asked and was told behind the client's back, by the chain hash of the answer that the client knows.
CREATE TABLE agent_data.phantom_ledger (
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    answer_chain bytea NOT NULL,
    call_id      uuid NOT NULL,
    hidden       bytea NOT NULL,                     -- JSON (phantom_ledger.Hidden): text that Postgres' own types refuse may be in it
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id, answer_chain)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('phantom_ledger', current_setting('mneme.hash_partitions')::int);

-- A branch goes on with the settings of the session that it left.
CREATE FUNCTION agent_data.inherit_config() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.config := COALESCE((SELECT s.config FROM agent_data.sessions s
                            WHERE s.user_id = NEW.user_id AND s.session_id = NEW.parent_session_id), NEW.config);
    RETURN NEW;
END $$;

CREATE TRIGGER inherit_config BEFORE INSERT ON agent_data.sessions
    FOR EACH ROW WHEN (NEW.parent_session_id IS NOT NULL) EXECUTE FUNCTION agent_data.inherit_config();

-- A session's settings, beside `recognise` in the same statement; NULL: there is no such session.
CREATE FUNCTION agent_data.session_config(p_tenant uuid, p_user uuid, p_session uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT s.config FROM agent_data.sessions s
            WHERE s.user_id = p_user AND s.session_id = p_session AND s.tenant_id = p_tenant);
END $$;

-- --- reading -------------------------------------------------------------------------------------------------------------

-- The paging of a session, for each request: one round trip. No row in `paged_sessions`: all is NULL.
--
--   p_chains   chain hashes of the answers that the transcript holds: their exchanges come from the ledger
--   p_turns    so many turns back questions count
--
-- Objects in the order in which they were made, a value each in every array: of L1 and L2 the text only where it is shown now
-- (seed 002 §2.1), never the content. `numbers`: 14 for each: fidelity, the tokens of L0 to L3 (-1: not made), first and last
-- turn, turn of the last access, accesses, faults, micro-faults, 1 if pinned, what is wanted (1 restore, 2 raise, 3 release), 1 if
-- the job has made L1 and L2.
-- `notes`: one JSON array, of each what L1 and L2 lost and can answer, when to fault, entities and parts.
CREATE FUNCTION agent_data.read_paging(
    p_tenant uuid, p_user uuid, p_session uuid, p_chains bytea[], p_turns integer,
    OUT zone text, OUT offered boolean, OUT marks bytea,
    OUT objects uuid[], OUT types text[], OUT kinds text[], OUT tools text[], OUT keys text[], OUT hashes bytea[],
    OUT stubs text[], OUT details text[], OUT compacts text[], OUT tags text[], OUT reasons text[], OUT numbers bytea,
    OUT notes text,
    OUT sources uuid[], OUT targets uuid[], OUT relations text[],
    OUT asked uuid[], OUT asked_turns integer[], OUT questions text[],
    OUT answer_chains bytea[], OUT hidden bytea[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    latest integer;
BEGIN
    SELECT s.zone, s.offered, s.marks, s.turn INTO zone, offered, marks, latest FROM agent_data.paged_sessions s
    WHERE s.user_id = p_user AND s.session_id = p_session AND s.tenant_id = p_tenant;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(o.object_id), array_agg(o.object_type), array_agg(o.kind), array_agg(o.source_tool),
           array_agg(o.source_key), array_agg(o.content_hash), array_agg(o.stub),
           array_agg(CASE o.current_fidelity WHEN 1 THEN o.summary_detailed END),
           array_agg(CASE o.current_fidelity WHEN 2 THEN o.summary_compact END),
           array_agg(array_to_string(o.tags, E'\x1f')), array_agg(o.pin_reason),
           string_agg(
               int4send(o.current_fidelity) || int4send(o.tokens_l0) || int4send(COALESCE(o.tokens_l1, -1))
               || int4send(COALESCE(o.tokens_l2, -1)) || int4send(o.tokens_l3) || int4send(o.source_turn_start)
               || int4send(o.source_turn_end) || int4send(o.accessed_turn) || int4send(o.access_count)
               || int4send(o.fault_count) || int4send(o.micro_fault_count) || int4send(o.pinned::integer)
               || int4send(CASE o.wanted WHEN 'restore' THEN 1 WHEN 'raise' THEN 2 WHEN 'release' THEN 3 ELSE 0 END)
               || int4send((o.shrunk_at IS NOT NULL)::integer),
               ''),
           '[' || string_agg('[' || concat_ws(',', o.losses_l1, o.losses_l2, o.can_answer_l1, o.can_answer_l2, o.fault_when,
                                              o.key_entities, o.parts) || ']', ',') || ']'
    INTO objects, types, kinds, tools, keys, hashes, stubs, details, compacts, tags, reasons, numbers, notes
    FROM (
        SELECT * FROM agent_data.semantic_objects x
        WHERE x.user_id = p_user AND x.session_id = p_session AND x.tenant_id = p_tenant
        ORDER BY x.ordinal
    ) o;
    SELECT array_agg(r.source_id), array_agg(r.target_id), array_agg(r.relationship) INTO sources, targets, relations
    FROM agent_data.object_relationships r
    WHERE r.user_id = p_user AND r.session_id = p_session AND r.tenant_id = p_tenant;
    SELECT array_agg(f.object_id), array_agg(f.turn_number), array_agg(f.question) INTO asked, asked_turns, questions
    FROM (
        SELECT h.object_id, h.turn_number, h.question FROM agent_data.fault_history h
        WHERE h.user_id = p_user AND h.session_id = p_session AND h.tenant_id = p_tenant
          AND h.turn_number > latest - p_turns AND h.object_id IS NOT NULL AND h.question IS NOT NULL
        ORDER BY h.created_at, h.fault_id
    ) f;
    IF cardinality(p_chains) > 0 THEN
        SELECT array_agg(l.answer_chain), array_agg(l.hidden) INTO answer_chains, hidden FROM agent_data.phantom_ledger l
        WHERE l.user_id = p_user AND l.session_id = p_session AND l.tenant_id = p_tenant
          AND l.answer_chain = ANY (p_chains);
    END IF;
END $$;

-- Texts of objects, each of one level (seed 002 §1.2: 0 the content, 4 nothing), of one session or (NULL) of any of the user's.
-- A level that was not made has none.
CREATE FUNCTION agent_data.object_texts(p_tenant uuid, p_user uuid, p_session uuid, p_objects uuid[], p_levels integer[])
RETURNS TABLE (object_id uuid, text text) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = agent_data, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT o.object_id, CASE w.level WHEN 0 THEN o.content_full WHEN 1 THEN o.summary_detailed WHEN 2 THEN o.summary_compact
                                     WHEN 3 THEN o.stub END
    FROM unnest(p_objects, p_levels) AS w (object_id, level)
    JOIN agent_data.semantic_objects o ON o.user_id = p_user AND o.object_id = w.object_id
    WHERE o.tenant_id = p_tenant AND (p_session IS NULL OR o.session_id = p_session);
END $$;

-- The words of an object, prose or code: `TOKEN_EXPIRED` and `tokenExpired` are two. Those of its key count as said twice. A tsvector
-- holds at most 1 MB, and positions up to 16,383: of a very long text the beginning.
CREATE FUNCTION agent_data.object_words(p_key text, p_text text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_tsvector('english', regexp_replace(
        regexp_replace(concat(p_key, ' ', p_key, ' ', left(p_text, 200000)),
                       '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u007f]+', ' ', 'g'),
        '([a-z0-9])([A-Z])', '\1 \2', 'g'))
$$;

-- How often a word stands in a document. `ts_rank` with all weights 1 of a word that stands n times is H2(n) = Σ 1/i² for
-- i ≤ n, over π²/6; as π²/6 − H2(n) ≈ 1/(n + ½) to within rounding, the count comes back exactly, without unpacking the
-- document. (A single expression without SET, so that it is inlined.)
CREATE FUNCTION agent_data.times_said(document tsvector, word tsquery)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT round(1 / (1.64493406685 * (1 - ts_rank('{1,1,1,1}', document, word)::double precision)) - 0.5)
$$;

-- The objects of a session that answer a question best, evicted ones too (seed 002 §2.3): `likeness` and `words` are 0 to 1 each.
-- `likeness` is the cosine, where the object was embedded in the question's space. `words` is the mean of n / (n + p_saturation) over
-- the words of the question, each of which the object has n times; a word counts by ln(1 + objects / objects that have it), and not
-- at all where none has it. (ts_rank finds fewer, and its values, some 0.05, would weigh nothing beside a cosine.)
CREATE FUNCTION agent_data.search_objects(
    p_tenant uuid, p_user uuid, p_session uuid, p_query text, p_vector halfvec, p_space smallint,
    p_vector_weight double precision, p_text_weight double precision, p_saturation double precision, p_limit integer
) RETURNS TABLE (likeness double precision, words double precision, object agent_data.semantic_objects)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = agent_data, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    asked tsquery[] := ARRAY(SELECT quote_literal(q.lexeme)::tsquery FROM unnest(agent_data.object_words(NULL, p_query)) AS q);
    any_of_them tsquery := array_to_string(asked, ' | ')::tsquery;
BEGIN
    RETURN QUERY
    WITH compared AS MATERIALIZED (
        SELECT c.object_id, c.ordinal,
               CASE WHEN c.space = p_space THEN greatest(0, 1 - (c.embedding <=> p_vector)) ELSE 0 END AS likeness
        FROM agent_data.semantic_objects c
        WHERE c.user_id = p_user AND c.session_id = p_session AND c.tenant_id = p_tenant
    ), spoken AS MATERIALIZED (
        -- The contents that have one of the words, by their index; put together with nothing one is unpacked once, and not for each word.
        SELECT c.object_id, c.content_tsv || ''::tsvector AS content
        FROM agent_data.semantic_objects c
        WHERE c.user_id = p_user AND c.session_id = p_session AND c.tenant_id = p_tenant AND c.content_tsv @@ any_of_them
        UNION ALL
        SELECT c.object_id, agent_data.object_words(c.source_key, c.content_full)
        FROM agent_data.semantic_objects c
        WHERE c.user_id = p_user AND c.session_id = p_session AND c.tenant_id = p_tenant AND c.content_tsv IS NULL
          AND c.shrunk_at IS NULL
    ), held AS MATERIALIZED (
        SELECT c.object_id, a.n AS word, t.times
        FROM spoken c, unnest(asked) WITH ORDINALITY AS a (word, n),
             LATERAL (SELECT agent_data.times_said(c.content, a.word) AS times) t
        WHERE t.times > 0
    ), rare AS (
        SELECT h.word, ln(1 + (SELECT count(*) FROM compared)::double precision / count(*)) AS weight FROM held h GROUP BY h.word
    ), said AS (
        SELECT h.object_id, sum(r.weight * h.times / (h.times + p_saturation)) / (SELECT sum(x.weight) FROM rare x) AS words
        FROM held h JOIN rare r ON r.word = h.word GROUP BY h.object_id
    ), judged AS (
        SELECT c.object_id, c.ordinal, c.likeness, COALESCE(s.words, 0) AS words
        FROM compared c LEFT JOIN said s ON s.object_id = c.object_id
    ), best AS (
        SELECT j.*, p_vector_weight * j.likeness + p_text_weight * j.words AS score FROM judged j
        ORDER BY score DESC, j.ordinal DESC LIMIT p_limit
    )
    SELECT b.likeness, b.words, o
    FROM best b JOIN agent_data.semantic_objects o ON o.user_id = p_user AND o.object_id = b.object_id
    ORDER BY b.score DESC, b.ordinal DESC;
END $$;

-- A user's objects with a tag, of a session or of all (NULL); as `memories_holding`.
CREATE FUNCTION agent_data.objects_tagged(p_tenant uuid, p_user uuid, p_session uuid, p_tag text) RETURNS uuid[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN ARRAY(SELECT o.object_id FROM agent_data.semantic_objects o
                 WHERE o.user_id = p_user AND o.tenant_id = p_tenant AND (p_session IS NULL OR o.session_id = p_session)
                   AND o.tags @> ARRAY[p_tag]);
END $$;

-- --- writing -------------------------------------------------------------------------------------------------------------

-- Marks of 16 bytes each that are not among others yet.
CREATE FUNCTION agent_data.further_marks(p_known bytea, p_marks bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(string_agg(m.mark, '' ORDER BY n), '')
    FROM generate_series(0, octet_length(p_marks) / 16 - 1) AS n
    CROSS JOIN LATERAL (SELECT substring(p_marks FROM n * 16 + 1 FOR 16) AS mark) m
    WHERE position(m.mark IN p_known) = 0
$$;

-- What one call changes of a session's paging (app/features/paging/values.py: PagingRecord), in the transaction of its turn; or, without a
-- decision (`p_decided`), what was segmented late and what was asked through the API. False: the user is erased since `p_at`, when
-- it began, and nothing is written.
--
--   p_record    what is small of it, JSON; p_contents: of its objects, in their order
--   p_chains    answers whose exchanges the ledger is to hold, and the exchanges
--
-- The session's row comes first: two requests of one session go one after the other. Then its objects, in the order of their ids,
-- as everybody locks them.
CREATE FUNCTION agent_data.record_paging(
    p_tenant uuid, p_user uuid, p_session uuid, p_call uuid, p_at timestamptz, p_decided boolean,
    p_record jsonb, p_marks bytea, p_contents text[], p_chains bytea[], p_hidden bytea[]
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    session agent_data.paged_sessions;
    highest integer;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(agent_data.capture_lock(p_user));
    IF EXISTS (SELECT FROM agent_data.erased_users e WHERE e.user_id = p_user AND e.erased_before > p_at) THEN
        RETURN false;
    END IF;
    -- What was deleted meanwhile is not written down again, nor what may quote it.
    IF EXISTS (SELECT FROM agent_data.suppressions x
               WHERE x.user_id = p_user AND x.reason = 'deleted' AND x.created_at >= p_at) THEN
        p_contents := '{}';
        p_chains := '{}';
        p_hidden := '{}';
        p_record := p_record || '{"objects": [], "admissions": [], "faults": []}';
    END IF;
    INSERT INTO agent_data.paged_sessions AS s (
        user_id, tenant_id, session_id, zone, turn, budget, tokens, shown_tokens, avoided_tokens, offered, marks, updated_at)
    SELECT p_user, p_tenant, p_session, r.zone, r.turn, r.budget, r.tokens, r.shown_tokens, r.avoided_tokens, r.offered, p_marks,
           p_at
    FROM jsonb_to_record(p_record) AS r (
        zone text, turn integer, budget integer, tokens integer, shown_tokens integer, avoided_tokens bigint, offered boolean)
    ON CONFLICT (user_id, session_id) DO UPDATE SET
        zone = CASE WHEN p_decided THEN EXCLUDED.zone ELSE s.zone END,
        turn = CASE WHEN p_decided THEN EXCLUDED.turn ELSE s.turn END,
        budget = CASE WHEN p_decided THEN EXCLUDED.budget ELSE s.budget END,
        tokens = CASE WHEN p_decided THEN EXCLUDED.tokens ELSE s.tokens END,
        shown_tokens = CASE WHEN p_decided THEN EXCLUDED.shown_tokens ELSE s.shown_tokens END,
        avoided_tokens = s.avoided_tokens + EXCLUDED.avoided_tokens,
        offered = s.offered OR EXCLUDED.offered,
        marks = s.marks || agent_data.further_marks(s.marks, EXCLUDED.marks),
        updated_at = greatest(s.updated_at, EXCLUDED.updated_at)
    RETURNING s.* INTO session;

    IF cardinality(p_contents) > 0 THEN
        SELECT COALESCE(max(o.ordinal), 0) INTO highest FROM agent_data.semantic_objects o
        WHERE o.user_id = p_user AND o.session_id = p_session;
        INSERT INTO agent_data.semantic_objects (
            user_id, tenant_id, session_id, object_id, ordinal, object_type, kind, source_tool, source_key, content_full,
            content_hash, stub, key_entities, tags, parts, created_at, last_accessed, accessed_turn, tokens_l0, tokens_l3,
            source_turn_start, source_turn_end)
        SELECT p_user, p_tenant, p_session, r.id, highest + o.n, r.object_type, r.kind, r.source_tool, r.source_key,
               p_contents[o.n], decode(r.content_hash, 'hex'), r.stub, r.key_entities, r.tags, r.parts, p_at, p_at,
               r.last_accessed, r.tokens_l0, r.tokens_l3, r.source_turn_start, r.source_turn_end
        FROM jsonb_array_elements(p_record -> 'objects') WITH ORDINALITY AS o (object, n)
        CROSS JOIN LATERAL jsonb_to_record(o.object) AS r (
            id uuid, object_type text, kind text, source_tool text, source_key text, content_hash text, stub text,
            key_entities jsonb, tags text[], parts jsonb, last_accessed integer, tokens_l0 integer, tokens_l3 integer,
            source_turn_start integer, source_turn_end integer)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO agent_data.object_relationships (user_id, tenant_id, session_id, source_id, target_id, relationship, created_at)
    SELECT p_user, p_tenant, p_session, (r ->> 0)::uuid, (r ->> 1)::uuid, r ->> 2, p_at
    FROM jsonb_array_elements(p_record -> 'relationships') AS r
    ON CONFLICT DO NOTHING;
    -- The same content is judged once, however many requests bring it.
    INSERT INTO agent_data.admission_scores (
        user_id, tenant_id, session_id, admission_id, object_id, admitted, score_total, score_type, score_novelty, score_utility,
        score_recency, threshold, content_preview, created_at)
    SELECT p_user, p_tenant, p_session, md5(p_session::text || a.admission::text)::uuid, r.object_id, r.admitted, r.total, r.type,
           r.novelty, r.utility, r.recency, r.threshold, r.preview, p_at
    FROM jsonb_array_elements(p_record -> 'admissions') AS a (admission)
    CROSS JOIN LATERAL jsonb_to_record(a.admission) AS r (
        object_id uuid, admitted boolean, total real, type real, novelty real, utility real, recency real, threshold real,
        preview text)
    ON CONFLICT DO NOTHING;

    WITH held AS (
        SELECT o.object_id FROM agent_data.semantic_objects o
        WHERE o.user_id = p_user AND o.session_id = p_session AND o.object_id IN (
            SELECT x.id::uuid FROM jsonb_array_elements_text(p_record -> 'touched') AS x (id))
        ORDER BY o.object_id FOR NO KEY UPDATE
    ), changes AS (
        SELECT t.id::uuid AS object_id, (p_record -> 'levels' ->> t.id)::smallint AS level, p_record -> 'pinned' ? t.id AS pinned,
               p_record -> 'uses' ? t.id AS used, p_record -> 'heard' ? t.id AS heard
        FROM jsonb_array_elements_text(p_record -> 'touched') AS t (id)
    )
    UPDATE agent_data.semantic_objects o SET
        current_fidelity = COALESCE(c.level, o.current_fidelity),
        pinned = o.pinned OR c.pinned,
        pin_reason = COALESCE(o.pin_reason, CASE WHEN c.pinned THEN 'restored' END),
        access_count = o.access_count + c.used::integer,
        accessed_turn = CASE WHEN c.used THEN session.turn ELSE o.accessed_turn END,
        last_accessed = CASE WHEN c.used THEN p_at ELSE o.last_accessed END,
        wanted = CASE WHEN c.heard THEN NULL ELSE o.wanted END
    FROM changes c JOIN held h ON h.object_id = c.object_id
    WHERE o.user_id = p_user AND o.object_id = c.object_id;
    -- L1 and L2 that the request made, where nobody else has; vectors and words are still the job's.
    WITH held AS (
        SELECT o.object_id FROM agent_data.semantic_objects o
        WHERE o.user_id = p_user AND o.session_id = p_session AND o.shrunk_at IS NULL AND o.tokens_l1 IS NULL AND o.object_id IN (
            SELECT (x ->> 'id')::uuid FROM jsonb_array_elements(p_record -> 'made') AS x)
        ORDER BY o.object_id FOR NO KEY UPDATE
    )
    UPDATE agent_data.semantic_objects o SET
        summary_detailed = r.detailed, tokens_l1 = r.tokens_l1, losses_l1 = r.losses_l1, can_answer_l1 = r.can_answer_l1,
        summary_compact = r.compact, tokens_l2 = r.tokens_l2, losses_l2 = r.losses_l2, can_answer_l2 = r.can_answer_l2,
        fault_when = r.fault_when
    FROM jsonb_to_recordset(p_record -> 'made') AS r (
        id uuid, detailed text, tokens_l1 integer, losses_l1 jsonb, can_answer_l1 jsonb, compact text, tokens_l2 integer,
        losses_l2 jsonb, can_answer_l2 jsonb, fault_when jsonb)
    JOIN held h ON h.object_id = r.id
    WHERE o.user_id = p_user AND o.object_id = r.id;
    IF p_call IS NOT NULL THEN
        INSERT INTO agent_data.fidelity_transitions (
            user_id, tenant_id, session_id, object_id, call_id, from_fidelity, to_fidelity, trigger, turn_number, pressure_zone,
            token_count, created_at)
        SELECT p_user, p_tenant, p_session, r.object_id, p_call, r.before, r.after, r.trigger, r.turn, r.zone, r.token_count, p_at
        FROM jsonb_to_recordset(p_record -> 'transitions') AS r (
            object_id uuid, before smallint, after smallint, trigger text, turn integer, zone text, token_count integer)
        ON CONFLICT DO NOTHING;
    END IF;

    WITH noted AS (
        INSERT INTO agent_data.fault_history (
            user_id, tenant_id, session_id, fault_id, call_id, object_id, fault_type, turn_number, content_hash, question, answer,
            answer_tokens, avoided_tokens, latency_ms, created_at)
        SELECT p_user, p_tenant, p_session, r.fault_id, p_call, r.object_id, r.fault_type, r.turn, decode(r.content_hash, 'hex'),
               r.question, r.answer, r.answer_tokens, r.avoided_tokens, r.latency_ms, r.created_at
        FROM jsonb_to_recordset(p_record -> 'faults') AS r (
            fault_id uuid, object_id uuid, fault_type text, turn integer, content_hash text, question text, answer text,
            answer_tokens integer, avoided_tokens integer, latency_ms integer, created_at timestamptz)
        ON CONFLICT DO NOTHING
        RETURNING fault_id
    ), told AS (
        SELECT r.object_id, count(*) FILTER (WHERE r.fault_type = 'full_restore') AS faults,
               count(*) FILTER (WHERE r.fault_type <> 'full_restore') AS micro_faults, bool_or(r.pin) AS pins,
               bool_or(r.pin AND r.fault_type = 'full_restore') AS restores, bool_or(r.raises) AS raises,
               min(r.content_hash) FILTER (WHERE r.pin) AS hash
        FROM noted n
        JOIN jsonb_to_recordset(p_record -> 'faults') AS r (
            fault_id uuid, object_id uuid, fault_type text, content_hash text, pin boolean, raises boolean)
            ON r.fault_id = n.fault_id
        WHERE r.object_id IS NOT NULL GROUP BY r.object_id
    )
    UPDATE agent_data.semantic_objects o SET
        fault_count = o.fault_count + t.faults,
        micro_fault_count = o.micro_fault_count + t.micro_faults,
        pinned = o.pinned OR t.pins,
        pin_reason = COALESCE(o.pin_reason, CASE WHEN t.pins THEN 'fault ' || COALESCE(t.hash, '') END),
        wanted = CASE WHEN t.restores THEN 'restore' WHEN t.raises AND o.wanted IS DISTINCT FROM 'restore' THEN 'raise'
                      ELSE o.wanted END
    FROM told t WHERE o.user_id = p_user AND o.object_id = t.object_id AND o.session_id = p_session;

    INSERT INTO agent_data.phantom_ledger AS l (user_id, tenant_id, session_id, answer_chain, call_id, hidden, created_at)
    SELECT p_user, p_tenant, p_session, h.chain, p_call, h.hidden, p_at FROM unnest(p_chains, p_hidden) AS h (chain, hidden)
    WHERE p_call IS NOT NULL
    ORDER BY h.chain
    ON CONFLICT (user_id, session_id, answer_chain) DO UPDATE SET hidden = EXCLUDED.hidden;

    IF (session.zone <> 'normal' OR jsonb_array_length(p_record -> 'made') > 0) AND EXISTS (
        SELECT FROM agent_data.semantic_objects o
        WHERE o.user_id = p_user AND o.session_id = p_session AND o.shrunk_at IS NULL
    ) THEN
        PERFORM agent_data.enqueue(ARRAY[ROW(
            'shrink', convert_to(json_build_object('tenant', p_tenant, 'user', p_user, 'session', p_session)::text, 'UTF8'),
            'shrink:' || p_session, 0)::agent_data.job_record]);
    END IF;
    RETURN true;
END $$;
CREATE INDEX paged_unremembered ON agent_data.paged_sessions (user_id) WHERE remembered_at IS NULL OR remembered_at < updated_at;

-- The same content in other sessions.
CREATE INDEX objects_content ON agent_data.semantic_objects (content_hash, user_id);

-- The session that a session goes back to, branch by branch: two with the same one are one conversation, as far as they share it.
CREATE FUNCTION agent_data.session_root(p_user uuid, p_session uuid) RETURNS uuid LANGUAGE sql STABLE AS $$
    WITH RECURSIVE line AS (
        SELECT s.session_id, s.parent_session_id, 1 AS depth FROM agent_data.sessions s
        WHERE s.user_id = p_user AND s.session_id = p_session
        UNION ALL
        SELECT p.session_id, p.parent_session_id, l.depth + 1
        FROM line l JOIN agent_data.sessions p ON p.user_id = p_user AND p.session_id = l.parent_session_id
        WHERE l.depth < 64
    )
    SELECT COALESCE((SELECT l.session_id FROM line l ORDER BY l.depth DESC LIMIT 1), p_session)
$$;

-- Sessions that have been idle since `p_before` and whose objects were not looked through since: a job each. How many.
CREATE FUNCTION agent_data.enqueue_objects(p_before timestamptz, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    jobs agent_data.job_record[];
BEGIN
    SELECT array_agg(ROW('remember_objects', convert_to(jsonb_build_object(
               'tenant', x.tenant_id, 'user', x.user_id, 'session', x.session_id, 'id', gen_random_uuid())::text, 'UTF8'),
               'remember_objects:' || x.session_id, 0)::agent_data.job_record)
    INTO jobs
    FROM (SELECT p.* FROM agent_data.paged_sessions p
          WHERE (p.remembered_at IS NULL OR p.remembered_at < p.updated_at) AND p.updated_at <= p_before AND NOT EXISTS (
              SELECT FROM agent_data.pgqueuer q WHERE q.dedupe_key = 'remember_objects:' || p.session_id)
          ORDER BY p.updated_at LIMIT p_limit) x;
    IF jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM agent_data.enqueue(jobs);
    RETURN cardinality(jobs);
END $$;
