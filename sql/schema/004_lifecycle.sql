-- The life of a memory: what raises it, what lowers it, what makes it doubtful, what ends it (docs/explanation/memory.md).
--
-- The formulas are those of tests/support/lifecycle.py, and the numbers below its POLICY; the tests hold the two together. Every
-- sweep takes the time as a parameter, changes some rows at a time, writes each change to memory_events, and finds nothing left to
-- do when it is run again. Rows that somebody else is changing are left for the next time, so that two may sweep at once. By hand
-- or from pg_cron: CALL agent_data.sweep('promotion'), as mneme_owner or a superuser.
INSERT INTO agent_data.system_config (key, value, description) VALUES
    ('promotion_l1_l2', '{"discount": 0.01, "threshold": 0.3, "min_access": 3}',
     'λ per hour, θ and least uses of the promotion from L1 to L2 (seed 000 §5.2).'),
    ('promotion_l2_l3', '{"discount": 0.001, "threshold": 0.5, "min_access": 10}', 'The same from L2 to L3.'),
    ('promotion_l2_l4', '{"discount": 0.001, "threshold": 0.5, "min_access": 10}', 'The same from L2 to L4.'),
    ('promotion_sources', '2', 'Messages that must say so before use alone makes a memory L3 or L4.'),
    ('l2_ttl_days', '90', 'Life of an episodic memory (seed 000 §5.1).'),
    ('activity_floor_l2', '{"uses": 3, "days": 45}', 'φ of L2: so many uses for so many idle days (seed 000 §5.3 gives no numbers).'),
    ('activity_floor_l3', '{"uses": 10, "days": 90}', 'φ of L3.'),
    ('activity_floor_l4', '{"uses": 10, "days": 90}', 'φ of L4.'),
    ('demotion_grace_days', '7', 'Idle days before want of use counts (as in seed 001 §4.4).'),
    ('decay_parameters', '{"default_rate_per_day": 0.01, "validation_threshold_days": 90}',
     'How fast confidence fades, and after how long it is asked for (seed 004).'),
    ('aging', '{"below": 0.5, "statements": 2}',
     'Effective confidence below which a memory is in doubt, and the times said that keep it from that (seed 004).'),
    ('validation', '{"gain": 0.05, "cap": 0.95, "correction": 0.85, "ask_again_days": 7}',
     'What a yes adds to confidence and up to where, the confidence of a correction (seed 004); days until a question is put again, twice as long each time.'),
    ('confidence', '{"fact": 0.7, "preference": 0.6, "correction": 0.85, "boost_1": 0.15, "boost_2": 0.1, "boost_3": 0.05, "boost_more": 0.02, "most": 0.95}',
     'How far a first statement is believed, what the first, second, third and each further confirmation adds, and up to where (seed 004).'),
    ('consolidation', '{"sessions": 3, "episodes": 20, "facts": 3, "gain": 0.05, "most": 0.95}',
     'Sessions or episodes from which an entity gets a summary, facts from which that is made anew, what it adds to the confidence of its facts, and up to where (seed 004).'),
    ('importance_decay', '{"rate": 0.001, "hours": 6, "after_days": 7, "step": 0.05}',
     'What importance loses each period after so many idle days, and the least loss written (seed 001 §4.4; rate and step ours).'),
    ('prune', '{"below": 0.1, "idle_days": 30}', 'Importance and idle days at which a memory goes (seed 001 §4.4).'),
    ('removal_days', '90', 'Days that an expired memory can still be restored; then it is removed for good.');

-- What sweeps look for all the time: memories in the lower tiers that were used, old statements that nobody confirmed, what is in
-- doubt, what is over. None of these changes with every use, nor (for importance and updated_at stand in none) with every change.
CREATE INDEX memory_promotable ON agent_data.memory_store (memory_tier, use_level)
    WHERE is_active AND memory_tier IN (1, 2) AND use_level >= 1;
CREATE INDEX memory_validated ON agent_data.memory_store ((COALESCE(last_validated_at, created_at)))
    WHERE status = 'active' AND memory_tier >= 3;
CREATE INDEX memory_aging ON agent_data.memory_store (user_id) WHERE status = 'aging';
CREATE INDEX memory_expired ON agent_data.memory_store (memory_id) WHERE status = 'expired';

-- The numbers above, as one value.
CREATE TYPE agent_data.life_policy AS (
    discounts double precision[], thresholds double precision[], min_access integer[],  -- to L2, L3, L4
    promotion_sources integer, l2_ttl interval, floors double precision[],              -- of L2, L3, L4, uses per hour
    demotion_grace interval, confidence_decay double precision, validation_after interval,
    aging_below double precision, aging_statements integer,
    confirmed_gain double precision, confidence_cap double precision, correction_confidence double precision, ask_again interval,
    importance_decay double precision, decay_hours double precision, decay_after interval, importance_step double precision,
    prune_below double precision, prune_idle interval, remove_after interval
);

CREATE FUNCTION agent_data.life_policy() RETURNS agent_data.life_policy LANGUAGE sql STABLE AS $$
    WITH c AS (SELECT jsonb_object_agg(s.key, s.value) AS v FROM agent_data.system_config s
               WHERE s.key IN ('promotion_l1_l2', 'promotion_l2_l3', 'promotion_l2_l4', 'promotion_sources', 'l2_ttl_days',
                               'activity_floor_l2', 'activity_floor_l3', 'activity_floor_l4', 'demotion_grace_days',
                               'decay_parameters', 'aging', 'validation', 'importance_decay', 'prune', 'removal_days')),
    steps AS (SELECT array_agg((c.v -> k ->> 'discount')::float8 ORDER BY k) AS discounts,
                     array_agg((c.v -> k ->> 'threshold')::float8 ORDER BY k) AS thresholds,
                     array_agg((c.v -> k ->> 'min_access')::integer ORDER BY k) AS min_access
              FROM c, unnest(ARRAY['promotion_l1_l2', 'promotion_l2_l3', 'promotion_l2_l4']) AS k),
    floors AS (SELECT array_agg((c.v -> k ->> 'uses')::float8 / ((c.v -> k ->> 'days')::float8 * 24) ORDER BY k) AS floors
               FROM c, unnest(ARRAY['activity_floor_l2', 'activity_floor_l3', 'activity_floor_l4']) AS k)
    SELECT ROW(
        steps.discounts, steps.thresholds, steps.min_access, (c.v ->> 'promotion_sources')::integer,
        make_interval(secs => (c.v ->> 'l2_ttl_days')::float8 * 86400), floors.floors,
        make_interval(secs => (c.v ->> 'demotion_grace_days')::float8 * 86400),
        (c.v #>> '{decay_parameters,default_rate_per_day}')::float8,
        make_interval(secs => (c.v #>> '{decay_parameters,validation_threshold_days}')::float8 * 86400),
        (c.v #>> '{aging,below}')::float8, (c.v #>> '{aging,statements}')::integer,
        (c.v #>> '{validation,gain}')::float8, (c.v #>> '{validation,cap}')::float8, (c.v #>> '{validation,correction}')::float8,
        make_interval(secs => (c.v #>> '{validation,ask_again_days}')::float8 * 86400),
        (c.v #>> '{importance_decay,rate}')::float8, (c.v #>> '{importance_decay,hours}')::float8,
        make_interval(secs => (c.v #>> '{importance_decay,after_days}')::float8 * 86400),
        (c.v #>> '{importance_decay,step}')::float8,
        (c.v #>> '{prune,below}')::float8, make_interval(secs => (c.v #>> '{prune,idle_days}')::float8 * 86400),
        make_interval(secs => (c.v ->> 'removal_days')::float8 * 86400)
    )::agent_data.life_policy
    FROM c, steps, floors
$$;

-- --- the formulas ----------------------------------------------------------------------------------------------------
CREATE FUNCTION agent_data.hours_between(p_since timestamptz, p_now timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(0, extract(epoch FROM p_now - p_since))::float8 / 3600 $$;

-- U(m), seed 000 §5.2. `p_relevance`: accumulated over `p_uses`.
CREATE FUNCTION agent_data.utility(p_relevance double precision, p_uses integer, p_age double precision, p_discount double precision)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_uses <= 0 THEN 0
                ELSE p_relevance / p_uses * (ln(1 + p_uses::float8) / ln(2::float8)) / (1 + p_discount * p_age) END
$$;

-- D(m), seed 000 §5.3, in uses per hour.
CREATE FUNCTION agent_data.activity(p_uses integer, p_idle double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_uses <= 0 THEN 0 WHEN p_idle <= 0 THEN 'infinity'::float8 ELSE p_uses / p_idle END
$$;

-- stored · e^(−rate · whole days since the last validation), seed 004.
CREATE FUNCTION agent_data.effective_confidence(
    p_confidence double precision, p_validated timestamptz, p_now timestamptz, p_rate double precision DEFAULT 0.01
) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_confidence * exp(-p_rate * greatest(0, floor(extract(epoch FROM p_now - p_validated) / 86400))::float8)
$$;

-- When a memory last was of use, or was said.
CREATE FUNCTION agent_data.used_at(m agent_data.memory_store) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(m.last_accessed_at, m.last_validated_at, m.created_at, agent_data.made_at(m.memory_id))
$$;

-- From when on importance decays, and the whole periods since.
CREATE FUNCTION agent_data.decays_from(m agent_data.memory_store, p agent_data.life_policy) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(m.importance_at, agent_data.used_at(m) + p.decay_after) $$;

CREATE FUNCTION agent_data.decay_periods(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT floor(agent_data.hours_between(agent_data.decays_from(m, p), p_now) / p.decay_hours)
$$;

-- Importance as it is now (seed 001 §4.4, task 1). It comes to rest one step below what is pruned.
CREATE FUNCTION agent_data.decayed_importance(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN m.importance <= p.prune_below - p.importance_decay THEN m.importance
                ELSE greatest(m.importance - p.importance_decay * agent_data.decay_periods(m, p_now, p),
                              least(m.importance, p.prune_below - p.importance_decay)) END
$$;

CREATE FUNCTION agent_data.behavioural(p_kind text, p_provenance smallint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT agent_data.of_behaviour(p_kind) OR p_provenance IN (3, 5)
$$;

-- Whether somebody vouches for a memory.
CREATE FUNCTION agent_data.grounded(m agent_data.memory_store) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(m.validated_by IN ('user', 'domain_row'), false)
$$;

-- Whether disuse alone cannot take it away: the user asked that it be kept (over the API, or in so many words), or somebody's word
-- for it still holds. A session's summary stands as long as its session does. It says what was said, not what is so, and a question
-- about March comes when nobody has asked about March for months.
CREATE FUNCTION agent_data.shielded(m agent_data.memory_store) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(m.validated_by = 'user' AND m.memory_tier >= 3 AND (m.provenance_turn_id IS NULL OR m.provenance_type = 0), false)
        OR agent_data.grounded(m) AND m.status = 'active' OR agent_data.of_session(m.kind, m.session_id)
$$;

CREATE FUNCTION agent_data.in_force(m agent_data.memory_store, p_now timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT m.is_active AND (m.expires_at IS NULL OR m.expires_at > p_now) $$;

-- --- the decisions ---------------------------------------------------------------------------------------------------

-- The tier that a memory rises to now, or NULL (seed 000 §5.2, §9.1). Into L3 and L4 use alone does not carry what a single message
-- said.
CREATE FUNCTION agent_data.promotes(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT t.tier FROM (
        SELECT (CASE WHEN m.memory_tier = 1 THEN 2 WHEN agent_data.behavioural(m.kind, m.provenance_type) THEN 4 ELSE 3 END)::smallint
    ) AS t (tier)
    WHERE m.memory_tier IN (1, 2) AND m.kind <> 'episode' AND agent_data.in_force(m, p_now)
      AND m.access_count >= p.min_access[t.tier - 1]
      AND agent_data.utility(m.relevance_accumulator, m.access_count, agent_data.hours_between(m.created_at, p_now),
                             p.discounts[t.tier - 1]) > p.thresholds[t.tier - 1]
      AND agent_data.activity(m.access_count, agent_data.hours_between(agent_data.used_at(m), p_now)) >= p.floors[t.tier - 1]
      AND (t.tier = 2 OR agent_data.grounded(m)
           OR (SELECT count(DISTINCT s) FROM unnest(m.source_message_ids) AS s) >= p.promotion_sources)
$$;

-- The tier that it falls to for want of use, 0: it expires, NULL: it stays (seed 000 §5.3).
CREATE FUNCTION agent_data.demotes(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (CASE WHEN m.memory_tier > 2 THEN 2 WHEN NOT agent_data.grounded(m) THEN 0 END)::smallint
    WHERE m.memory_tier >= 2 AND agent_data.in_force(m, p_now) AND NOT agent_data.shielded(m)
      AND p_now - agent_data.used_at(m) >= p.demotion_grace
      AND agent_data.activity(m.access_count, agent_data.hours_between(agent_data.used_at(m), p_now)) < p.floors[m.memory_tier - 1]
$$;

-- Whether it is in doubt by now (seed 004, state transition criteria).
CREATE FUNCTION agent_data.ages(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT m.status = 'active' AND agent_data.in_force(m, p_now) AND m.memory_tier >= 3 AND agent_data.doubtable(m.kind)
       AND p_now - COALESCE(m.last_validated_at, m.created_at) > p.validation_after
       AND 1 + m.reinforcement_count < p.aging_statements
       AND agent_data.effective_confidence(m.confidence, COALESCE(m.last_validated_at, m.created_at), p_now, p.confidence_decay)
           < p.aging_below
$$;

-- Whether the doubt is over: it was said again. Not of what a row contradicts: there the user has the word.
CREATE FUNCTION agent_data.settles(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT m.status = 'aging' AND agent_data.in_force(m, p_now) AND NOT m.details ? 'in_conflict'
       AND p_now - COALESCE(m.last_validated_at, m.created_at) <= p.validation_after
$$;

-- Whether what it lost is worth writing: a whole step (4 bytes hold it to within 1e-6), or the way below what is pruned.
CREATE FUNCTION agent_data.decay_due(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT agent_data.in_force(m, p_now)
       AND (m.importance - agent_data.decayed_importance(m, p_now, p) > p.importance_step - 1e-6
            OR m.importance >= p.prune_below AND agent_data.decayed_importance(m, p_now, p) < p.prune_below)
$$;

-- Whether nobody will miss it (seed 001 §4.4, task 3).
CREATE FUNCTION agent_data.prunes(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT agent_data.in_force(m, p_now) AND NOT agent_data.shielded(m) AND p_now - agent_data.used_at(m) > p.prune_idle
       AND agent_data.decayed_importance(m, p_now, p) < p.prune_below
$$;

-- --- the sweeps ------------------------------------------------------------------------------------------------------

-- Memories whose time is over, some at a time (seed 000 §9.2); how many.
CREATE FUNCTION agent_data.expire_memories(p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000) RETURNS bigint
LANGUAGE sql AS $$
    WITH due AS (
        SELECT m.user_id, m.memory_id, m.status FROM agent_data.memory_store m
        WHERE m.expires_at <= p_now AND m.is_active ORDER BY m.expires_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    ), expired AS (
        UPDATE agent_data.memory_store m SET status = 'expired', updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, d.status
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT e.tenant_id, e.user_id, e.memory_id, p_now, 'expired', jsonb_build_object('status', e.status),
               '{"status": "expired", "reason": "time"}', 'system'
        FROM expired e
    )
    SELECT count(*) FROM expired
$$;

-- Memories that rise, some at a time (seed 000 §9.1); how many. What rises belongs to the user and no longer to one session, but
-- for nobody's sessions, of which nothing leaves.
CREATE FUNCTION agent_data.promote_memories(p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    p       agent_data.life_policy := agent_data.life_policy();
    changed bigint;
BEGIN
    WITH due AS (
        SELECT m.user_id, m.memory_id, m.memory_tier AS tier, agent_data.promotes(m, p_now, p) AS target
        FROM agent_data.memory_store m
        WHERE m.is_active AND m.memory_tier IN (1, 2) AND m.use_level >= 1 AND agent_data.promotes(m, p_now, p) IS NOT NULL
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    ), risen AS (
        UPDATE agent_data.memory_store m SET
            memory_tier = d.target,
            memory_scope = CASE WHEN m.dedup_scope = '00000000-0000-0000-0000-000000000000' THEN 1 ELSE m.memory_scope END,
            is_validated = true,
            validated_by = COALESCE(m.validated_by, 'system'),
            expires_at = CASE d.target WHEN 2 THEN p_now + p.l2_ttl END,
            updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, d.tier, d.target, m.expires_at, m.validated_by
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT r.tenant_id, r.user_id, r.memory_id, p_now, 'promoted', jsonb_build_object('tier', r.tier),
               jsonb_build_object('tier', r.target, 'expires_at', r.expires_at, 'validated_by', r.validated_by), 'system'
        FROM risen r
    )
    SELECT count(*) INTO changed FROM risen;
    RETURN changed;
END $$;

-- Statements that are in doubt by now, some at a time (seed 004), and those that are no longer, because they were said again; how
-- many.
CREATE FUNCTION agent_data.age_memories(p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    p       agent_data.life_policy := agent_data.life_policy();
    changed bigint;
BEGIN
    WITH doubted AS (
        SELECT m.user_id, m.memory_id, 'aging' AS status FROM agent_data.memory_store m
        WHERE m.status = 'active' AND m.memory_tier >= 3 AND COALESCE(m.last_validated_at, m.created_at) < p_now - p.validation_after
          AND agent_data.ages(m, p_now, p)
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    ), settled AS (
        SELECT m.user_id, m.memory_id, 'active' AS status FROM agent_data.memory_store m
        WHERE m.status = 'aging' AND agent_data.settles(m, p_now, p)
        LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    ), due AS (
        SELECT * FROM doubted UNION ALL SELECT * FROM settled
    ), aged AS (
        UPDATE agent_data.memory_store m SET status = d.status, updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, m.status
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT a.tenant_id, a.user_id, a.memory_id, p_now, CASE a.status WHEN 'aging' THEN 'aging' ELSE 'confirmed' END,
               jsonb_build_object('status', CASE a.status WHEN 'aging' THEN 'active' ELSE 'aging' END),
               jsonb_build_object('status', a.status), 'system'
        FROM aged a
    )
    SELECT count(*) INTO changed FROM aged;
    RETURN changed;
END $$;

-- The three below look at every memory in force, in the order of the key: idleness changes without a write, so that no index knows
-- of it. They look at some at a time, after (p_user, p_memory), and return how far they came (NULL: to the end) and how many
-- they changed.

-- Memories that fall for want of use (seed 000 §5.3): from L3 and L4 to L2, with an L2 life before them; from L2 out.
CREATE FUNCTION agent_data.demote_memories(
    p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000,
    INOUT p_user uuid DEFAULT '00000000-0000-0000-0000-000000000000',
    INOUT p_memory uuid DEFAULT '00000000-0000-0000-0000-000000000000', OUT changed bigint
) LANGUAGE plpgsql AS $$
DECLARE
    p agent_data.life_policy := agent_data.life_policy();
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT m.user_id, m.memory_id, agent_data.demotes(m, p_now, p) AS target FROM agent_data.memory_store m
        WHERE (m.user_id, m.memory_id) > (p_user, p_memory) AND m.is_active ORDER BY m.user_id, m.memory_id LIMIT p_limit
    ), due AS (
        SELECT m.user_id, m.memory_id, m.memory_tier AS tier, m.status, s.target
        FROM seen s JOIN agent_data.memory_store m ON m.user_id = s.user_id AND m.memory_id = s.memory_id
        WHERE s.target IS NOT NULL AND agent_data.demotes(m, p_now, p) = s.target
        ORDER BY m.user_id, m.memory_id FOR NO KEY UPDATE OF m SKIP LOCKED
    ), fallen AS (
        UPDATE agent_data.memory_store m SET
            memory_tier = CASE d.target WHEN 0 THEN m.memory_tier ELSE d.target END,
            status = CASE d.target WHEN 0 THEN 'expired' ELSE m.status END,
            expires_at = CASE d.target WHEN 0 THEN m.expires_at ELSE p_now + p.l2_ttl END,
            updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, d.tier, d.status, d.target, m.expires_at
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT f.tenant_id, f.user_id, f.memory_id, p_now, CASE f.target WHEN 0 THEN 'expired' ELSE 'demoted' END,
               CASE f.target WHEN 0 THEN jsonb_build_object('status', f.status) ELSE jsonb_build_object('tier', f.tier) END,
               CASE f.target WHEN 0 THEN '{"status": "expired", "reason": "activity"}'::jsonb
                             ELSE jsonb_build_object('tier', f.target, 'expires_at', f.expires_at) END, 'system'
        FROM fallen f
    )
    SELECT (SELECT count(*) FROM fallen), l.user_id, l.memory_id INTO changed, p_user, p_memory
    FROM (SELECT count(*) AS n FROM seen) c
    LEFT JOIN LATERAL (SELECT s.user_id, s.memory_id FROM seen s WHERE c.n >= p_limit
                       ORDER BY s.user_id DESC, s.memory_id DESC LIMIT 1) l ON true;
END $$;

-- Importance that fades (seed 001 §4.4, task 1), written where it has lost a step. However often it runs, and however long it did
-- not, it comes to the same.
CREATE FUNCTION agent_data.decay_memories(
    p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000,
    INOUT p_user uuid DEFAULT '00000000-0000-0000-0000-000000000000',
    INOUT p_memory uuid DEFAULT '00000000-0000-0000-0000-000000000000', OUT changed bigint
) LANGUAGE plpgsql AS $$
DECLARE
    p agent_data.life_policy := agent_data.life_policy();
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT m.user_id, m.memory_id, agent_data.decay_due(m, p_now, p) AS due FROM agent_data.memory_store m
        WHERE (m.user_id, m.memory_id) > (p_user, p_memory) AND m.is_active ORDER BY m.user_id, m.memory_id LIMIT p_limit
    ), due AS (
        SELECT m.user_id, m.memory_id, m.importance, agent_data.decayed_importance(m, p_now, p) AS left_over,
               agent_data.decays_from(m, p)
                   + make_interval(secs => agent_data.decay_periods(m, p_now, p) * p.decay_hours * 3600) AS up_to
        FROM seen s JOIN agent_data.memory_store m ON m.user_id = s.user_id AND m.memory_id = s.memory_id
        WHERE s.due AND agent_data.decay_due(m, p_now, p)
        ORDER BY m.user_id, m.memory_id FOR NO KEY UPDATE OF m SKIP LOCKED
    ), faded AS (
        UPDATE agent_data.memory_store m SET importance = d.left_over, importance_at = d.up_to, updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, d.importance AS was, m.importance
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT f.tenant_id, f.user_id, f.memory_id, p_now, 'decayed', jsonb_build_object('importance', f.was),
               jsonb_build_object('importance', f.importance), 'system'
        FROM faded f
    )
    SELECT (SELECT count(*) FROM faded), l.user_id, l.memory_id INTO changed, p_user, p_memory
    FROM (SELECT count(*) AS n FROM seen) c
    LEFT JOIN LATERAL (SELECT s.user_id, s.memory_id FROM seen s WHERE c.n >= p_limit
                       ORDER BY s.user_id DESC, s.memory_id DESC LIMIT 1) l ON true;
END $$;

-- What nobody will miss (seed 001 §4.4, task 3) expires.
CREATE FUNCTION agent_data.prune_memories(
    p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000,
    INOUT p_user uuid DEFAULT '00000000-0000-0000-0000-000000000000',
    INOUT p_memory uuid DEFAULT '00000000-0000-0000-0000-000000000000', OUT changed bigint
) LANGUAGE plpgsql AS $$
DECLARE
    p agent_data.life_policy := agent_data.life_policy();
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT m.user_id, m.memory_id, agent_data.prunes(m, p_now, p) AS due FROM agent_data.memory_store m
        WHERE (m.user_id, m.memory_id) > (p_user, p_memory) AND m.is_active ORDER BY m.user_id, m.memory_id LIMIT p_limit
    ), due AS (
        SELECT m.user_id, m.memory_id, m.status
        FROM seen s JOIN agent_data.memory_store m ON m.user_id = s.user_id AND m.memory_id = s.memory_id
        WHERE s.due AND agent_data.prunes(m, p_now, p)
        ORDER BY m.user_id, m.memory_id FOR NO KEY UPDATE OF m SKIP LOCKED
    ), pruned AS (
        UPDATE agent_data.memory_store m SET status = 'expired', updated_at = p_now
        FROM due d WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id
        RETURNING m.tenant_id, m.user_id, m.memory_id, d.status
    ), told AS (
        INSERT INTO agent_data.memory_events (tenant_id, user_id, memory_id, at, event, before, after, actor)
        SELECT x.tenant_id, x.user_id, x.memory_id, p_now, 'expired', jsonb_build_object('status', x.status),
               '{"status": "expired", "reason": "importance"}', 'system'
        FROM pruned x
    )
    SELECT (SELECT count(*) FROM pruned), l.user_id, l.memory_id INTO changed, p_user, p_memory
    FROM (SELECT count(*) AS n FROM seen) c
    LEFT JOIN LATERAL (SELECT s.user_id, s.memory_id FROM seen s WHERE c.n >= p_limit
                       ORDER BY s.user_id DESC, s.memory_id DESC LIMIT 1) l ON true;
END $$;

-- As before, but for the order in which rows are taken.
CREATE FUNCTION agent_data.remove_memories(p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    p     agent_data.life_policy := agent_data.life_policy();
    users uuid[];
    items uuid[];
BEGIN
    SELECT array_agg(d.user_id), array_agg(d.memory_id) INTO users, items FROM (
        SELECT m.user_id, m.memory_id FROM agent_data.memory_store m
        WHERE m.status = 'expired' AND m.updated_at <= p_now - p.remove_after
          AND NOT EXISTS (SELECT FROM agent_data.memory_store o WHERE o.user_id = m.user_id AND o.superseded_by = m.memory_id)
        LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) d;
    IF users IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM agent_data.embeddings e USING unnest(users, items) AS d (user_id, memory_id)
    WHERE e.user_id = d.user_id AND e.item_id = d.memory_id;
    DELETE FROM agent_data.memory_events e USING unnest(users, items) AS d (user_id, memory_id)
    WHERE e.user_id = d.user_id AND e.memory_id = d.memory_id;
    DELETE FROM agent_data.routes r USING unnest(users, items) AS d (user_id, memory_id)
    WHERE r.user_id = d.user_id AND r.id = d.memory_id AND r.kind = 'memory';
    DELETE FROM agent_data.memory_store m USING unnest(users, items) AS d (user_id, memory_id)
    WHERE m.user_id = d.user_id AND m.memory_id = d.memory_id;
    RETURN cardinality(items);
END $$;

-- Expires at most p_limit sessions that were untouched for too long, paused ones too (seed 000 §9.2; status 4); returns how many.
CREATE FUNCTION agent_data.expire_sessions(p_now timestamptz, p_limit integer) RETURNS bigint LANGUAGE sql AS $$
    WITH due AS (
        SELECT s.user_id, s.session_id FROM agent_data.sessions s
        WHERE s.expires_at < p_now AND s.status <> 4 ORDER BY s.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), expired AS (
        UPDATE agent_data.sessions s SET status = 4, updated_at = p_now
        FROM due d WHERE s.user_id = d.user_id AND s.session_id = d.session_id RETURNING 1
    )
    SELECT count(*) FROM expired
$$;

-- Runs a sweep to its end, for pg_cron and by hand; nothing, where a worker or another session is at it. What it changed stands in
-- `ticks`, as after a run by the worker, which then waits for its next turn.
CREATE PROCEDURE agent_data.sweep(p_name text, p_now timestamptz DEFAULT now(), p_limit integer DEFAULT 2000)
LANGUAGE plpgsql AS $$
DECLARE
    nil     constant uuid := '00000000-0000-0000-0000-000000000000';
    began   timestamptz := clock_timestamp();
    at_user uuid := nil;
    at_item uuid := nil;
    n       bigint;
    total   bigint := 0;
BEGIN
    -- The lock of app/jobs/schedule.py: 0x6D6E.
    IF NOT pg_try_advisory_lock(28014, hashtext(p_name)) THEN
        RAISE NOTICE 'the sweep % is running already', p_name;
        RETURN;
    END IF;
    LOOP
        CASE p_name
            WHEN 'promotion' THEN n := agent_data.promote_memories(p_now, p_limit);
            WHEN 'aging' THEN n := agent_data.age_memories(p_now, p_limit);
            -- All that the worker's task of this name does, for its time is noted as the worker's is.
            WHEN 'expiry' THEN n := agent_data.expire_memories(p_now, p_limit) + agent_data.expire_sessions(p_now, p_limit);
            WHEN 'removal' THEN n := agent_data.remove_memories(p_now, p_limit);
            WHEN 'demotion' THEN SELECT * INTO at_user, at_item, n FROM agent_data.demote_memories(p_now, p_limit, at_user, at_item);
            WHEN 'decay' THEN SELECT * INTO at_user, at_item, n FROM agent_data.decay_memories(p_now, p_limit, at_user, at_item);
            WHEN 'prune' THEN SELECT * INTO at_user, at_item, n FROM agent_data.prune_memories(p_now, p_limit, at_user, at_item);
            ELSE
                PERFORM pg_advisory_unlock(28014, hashtext(p_name));
                RAISE EXCEPTION 'there is no sweep %', p_name USING
                    ERRCODE = 'undefined_object', HINT = 'There are promotion, aging, expiry, demotion, decay, prune and removal. Compaction, session ends and '
                        'consolidation are jobs of a worker, which writes summaries.';
        END CASE;
        total := total + n;
        COMMIT;
        EXIT WHEN at_user IS NULL OR at_user = nil AND n < p_limit;
    END LOOP;
    INSERT INTO agent_data.ticks AS t (name, last_run, took_ms, changed)
    VALUES (p_name, p_now, extract(epoch FROM clock_timestamp() - began) * 1000, total)
    ON CONFLICT (name) DO UPDATE SET last_run = EXCLUDED.last_run, took_ms = EXCLUDED.took_ms, changed = EXCLUDED.changed;
    COMMIT;
    PERFORM pg_advisory_unlock(28014, hashtext(p_name));
END $$;

-- --- active validation -----------------------------------------------------------------------------------------------

-- Memories of a user to ask about (seed 004, active validation flow): what is in doubt, whether or not the sweep has been here, but
-- not what was asked about lately; what matters most first. `p_confine`: of this session only (one of nobody's), or NULL.
CREATE FUNCTION agent_data.memories_due(
    p_tenant uuid, p_user uuid, p_now timestamptz, p_limit integer, p_confine uuid DEFAULT NULL
) RETURNS TABLE (memory_id uuid, content_text text, noted_at timestamptz, confidence double precision, importance real)
LANGUAGE sql STABLE AS $$
    SELECT m.memory_id, m.content_text, COALESCE(m.last_validated_at, m.created_at),
           agent_data.effective_confidence(m.confidence, COALESCE(m.last_validated_at, m.created_at), p_now, p.confidence_decay),
           m.importance
    FROM agent_data.life_policy() p, agent_data.memory_store m
    WHERE m.tenant_id = p_tenant AND m.user_id = p_user AND m.is_active AND (p_confine IS NULL OR m.session_id = p_confine)
      AND agent_data.in_force(m, p_now) AND (m.status = 'aging' OR agent_data.ages(m, p_now, p))
      -- A question that gets no answer is put again after a week, then after two, four, …
      AND COALESCE((m.details ->> 'asked_at')::timestamptz
                   <= p_now - p.ask_again * power(2, least((m.details ->> 'asked')::integer, 10) - 1), true)
      AND NOT EXISTS (SELECT FROM agent_data.suppressions s WHERE s.user_id = p_user AND s.item_id = m.memory_id)
    ORDER BY m.importance DESC, 4, m.memory_id
    LIMIT p_limit
$$;

-- Idleness counts from when Mneme learned something, too: what was imported yesterday was not idle for the years since it was said,
-- and nobody had a question to use it for.

-- When a memory was made: ids of version 7 bear it (RFC 9562, in milliseconds). NULL for other ids.
CREATE FUNCTION agent_data.made_at(p_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN substr(p_id::text, 15, 1) = '7'
                THEN to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000::float8) END
$$;
