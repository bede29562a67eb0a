-- What a key may use, and what was spent.
--
-- Limits hold over every process and server, so that their state is here. A key with limits has one row of `key_usage`; a call
-- is admitted by one statement, which holds that row for well under a millisecond and waits for no disk, and is settled by
-- another one after its end. In between nothing is held: what a call may still cost stands in `key_reservations`, for so long
-- as its server lives to settle it. Keys without limits are in none of these tables.
--
-- Rates are a sliding window of 61 slots of a second: the present one and the 60 full seconds before it, so that no 60 seconds
-- hold more than the limit. (A token bucket of the same size lets up to twice the limit through in its first minute; a window
-- that is laid out on the clock, twice the limit around its border; a log of every call costs what the limit is high.)
--
-- Money is micro-cents: 10⁻⁸ US dollars (seed 000 §2.1).
CREATE TYPE agent_data.key_limits AS (
    requests_per_minute bigint, tokens_per_minute bigint,
    token_budget bigint, token_period text, money_budget bigint, money_period text   -- period: day, month, ever
);

-- A call of which there is no record (its capture is off), for its share in what was spent.
CREATE TYPE agent_data.spend_record AS (
    user_id uuid, session_id uuid, model text, created_at timestamptz,
    prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint, priced boolean
);

CREATE TABLE agent_data.key_usage (
    key_id      uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL,
    latest      bigint NOT NULL DEFAULT 0,  -- the last second that has a slot, since 1970
    requests    bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[61]),  -- second s: slot s % 61 + 1
    tokens      bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[61]),
    token_since timestamptz,                -- when the period began that `token_spent` is of; NULL: never looked
    token_spent bigint NOT NULL DEFAULT 0,
    money_since timestamptz,
    money_spent bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);                   -- room for the next version of a row beside it: updates stay on their page

-- What calls that are on their way may come to. One that is never settled (its server died) stops counting at `expires_at`.
CREATE TABLE agent_data.key_reservations (
    key_id      uuid NOT NULL,
    call_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    admitted_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    slot        bigint NOT NULL,            -- the second that it was counted in
    rate_tokens bigint NOT NULL,            -- what it was counted as there
    tokens      bigint NOT NULL,
    microcents  bigint NOT NULL,
    PRIMARY KEY (key_id, call_id)
);

-- What each call cost, until the schedule adds it to `spend`: calls that end together do not wait for one row.
CREATE TABLE agent_data.spend_entries (
    call_id           uuid NOT NULL,
    user_id           uuid NOT NULL,        -- 0: erased
    tenant_id         uuid NOT NULL,
    key_id            uuid NOT NULL,        -- 0: none
    session_id        uuid NOT NULL,        -- 0: none, or erased
    model             text NOT NULL,
    day               date NOT NULL,        -- UTC, when the request came in
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens     bigint NOT NULL,
    unpriced_tokens   bigint NOT NULL,      -- of prompt and completion: of models that have no price
    cost_microcents   bigint NOT NULL,
    PRIMARY KEY (call_id, user_id)
);
CREATE INDEX spend_entries_tenant ON agent_data.spend_entries (tenant_id, day);

CREATE TABLE agent_data.spend (
    tenant_id         uuid NOT NULL,
    day               date NOT NULL,
    key_id            uuid NOT NULL,
    user_id           uuid NOT NULL,
    session_id        uuid NOT NULL,
    model             text NOT NULL,
    calls             bigint NOT NULL,
    prompt_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens     bigint NOT NULL,
    unpriced_tokens   bigint NOT NULL,
    cost_microcents   bigint NOT NULL,
    PRIMARY KEY (tenant_id, day, key_id, user_id, session_id, model)
);
CREATE INDEX spend_key ON agent_data.spend (key_id, day);
CREATE INDEX spend_user ON agent_data.spend (user_id, day);

-- All that was spent. One statement sees every call in exactly one of the two.
CREATE VIEW agent_data.spending WITH (security_invoker = true) AS
SELECT tenant_id, day, key_id, user_id, session_id, model, calls, prompt_tokens, completion_tokens, cached_tokens,
       unpriced_tokens, cost_microcents, NULL::uuid AS call_id
FROM agent_data.spend
UNION ALL
SELECT tenant_id, day, key_id, user_id, session_id, model, 1, prompt_tokens, completion_tokens, cached_tokens,
       unpriced_tokens, cost_microcents, call_id
FROM agent_data.spend_entries;

-- A leg of a call is a call of its own, whose figures stand with the client's (app/features/paging/tool_loop.py): it is recorded, and not spent
-- once more.
CREATE FUNCTION agent_data.note_spend() RETURNS trigger LANGUAGE plpgsql
SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    INSERT INTO agent_data.spend_entries (
        call_id, user_id, tenant_id, key_id, session_id, model, day, prompt_tokens, completion_tokens, cached_tokens,
        unpriced_tokens, cost_microcents)
    SELECT a.call_id, a.user_id, a.tenant_id, COALESCE(a.key_id, '00000000-0000-0000-0000-000000000000'),
           COALESCE(a.session_id, '00000000-0000-0000-0000-000000000000'),
           -- 200 characters are at most 800 bytes: an index entry holds 2,704.
           left(COALESCE(NULLIF(a.model, ''), a.answered_model, ''), 200), (a.created_at AT TIME ZONE 'UTC')::date,
           COALESCE(a.prompt_tokens, 0), COALESCE(a.completion_tokens, 0), COALESCE(a.cached_tokens, 0),
           CASE WHEN a.priced THEN 0 ELSE COALESCE(a.prompt_tokens, 0)::bigint + COALESCE(a.completion_tokens, 0) END,
           a.cost_microcents
    FROM added a
    WHERE (a.metadata ->> 'imported') IS NULL AND (a.metadata ->> 'leg_of') IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER spend AFTER INSERT ON agent_data.upstream_calls REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION agent_data.note_spend();

-- When the period of a budget began, in UTC.
CREATE FUNCTION agent_data.period_start(p_period text, p_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_period = 'ever' THEN '-infinity'::timestamptz ELSE date_trunc(p_period, p_at, 'UTC') END
$$;

-- What a key has spent since a moment (the beginning of a day), but for calls that are still to be settled.
CREATE FUNCTION agent_data.key_spent(
    p_tenant uuid, p_key uuid, p_since timestamptz, p_at timestamptz, OUT tokens bigint, OUT microcents bigint
) LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT COALESCE(sum(s.prompt_tokens + s.completion_tokens), 0)::bigint, COALESCE(sum(s.cost_microcents), 0)::bigint
    FROM agent_data.spending s
    WHERE s.tenant_id = p_tenant AND s.key_id = p_key AND s.day >= (p_since AT TIME ZONE 'UTC')::date
      AND NOT EXISTS (SELECT FROM agent_data.key_reservations r
                      WHERE r.key_id = p_key AND r.call_id = s.call_id AND r.expires_at > p_at)
$$;

-- Seconds until the slots hold no more than `p_room`, at `p_at`; NULL: never.
CREATE FUNCTION agent_data.window_wait(p_slots bigint[], p_latest bigint, p_room bigint, p_at timestamptz)
RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    used bigint := (SELECT sum(x) FROM unnest(p_slots) x);
BEGIN
    IF used <= p_room THEN
        RETURN 0;
    END IF;
    FOR back IN REVERSE 60 .. 0 LOOP
        used := used - p_slots[(p_latest - back) % 61 + 1];
        IF used <= p_room THEN
            RETURN p_latest - back + 61 - extract(epoch FROM p_at);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Admits a call of a key, or says which limit it would exceed (`refused`: token_budget, money_budget, requests, tokens) and for
-- how long (`wait_s`; NULL: for good).
--
-- `p_rate_tokens`, `p_tokens`, `p_microcents`: what the call may come to. A rate admits what fits into the window; a call that
-- is larger than the whole limit fits into an empty one. A budget admits while, with all that is on its way, something is left:
-- it can be exceeded by what was in flight, and not by more. `p_lease_s`: when a reservation that nobody settles ends.
-- `p_now`: NULL takes this server's clock, which all share.
CREATE FUNCTION agent_data.admit_call(
    p_tenant uuid, p_key uuid, p_call uuid, p_limits agent_data.key_limits,
    p_rate_tokens bigint, p_tokens bigint, p_microcents bigint, p_lease_s real, p_now timestamptz,
    OUT refused text, OUT wait_s double precision, OUT slot bigint,
    OUT requests_left bigint, OUT requests_reset_s double precision, OUT tokens_left bigint, OUT tokens_reset_s double precision
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    u        agent_data.key_usage;
    moment   timestamptz;
    since    timestamptz;
    need     bigint := LEAST(p_rate_tokens, p_limits.tokens_per_minute);
    rolled   boolean := false;
    flying   record;
BEGIN
    -- Nobody waits for the disk with this row locked. A crash of Postgres forgets admissions of its last moments, no more.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO u FROM agent_data.key_usage k WHERE k.key_id = p_key AND k.tenant_id = p_tenant FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO agent_data.key_usage (key_id, tenant_id) VALUES (p_key, p_tenant) ON CONFLICT DO NOTHING;
        SELECT * INTO u FROM agent_data.key_usage k WHERE k.key_id = p_key AND k.tenant_id = p_tenant FOR UPDATE;
    END IF;
    moment := COALESCE(p_now, clock_timestamp());  -- after the lock: whoever comes second is not earlier
    slot := floor(extract(epoch FROM moment))::bigint;
    -- A clock may be set back a little, and then the last slot goes on; one that had run far ahead says nothing.
    slot := CASE WHEN u.latest > slot + 60 THEN slot ELSE GREATEST(slot, u.latest) END;
    FOR back IN 0 .. CASE WHEN u.latest > slot THEN 60 ELSE LEAST(slot - u.latest, 61) - 1 END LOOP
        u.requests[(slot - back) % 61 + 1] := 0;
        u.tokens[(slot - back) % 61 + 1] := 0;
    END LOOP;
    u.latest := slot;

    IF p_limits.token_budget IS NOT NULL OR p_limits.money_budget IS NOT NULL THEN
        SELECT COALESCE(sum(r.tokens) FILTER (WHERE r.expires_at > moment), 0) AS tokens,
               COALESCE(sum(r.microcents) FILTER (WHERE r.expires_at > moment), 0) AS microcents,
               count(*) FILTER (WHERE r.expires_at <= moment) AS lapsed
        INTO flying FROM agent_data.key_reservations r WHERE r.key_id = p_key;
        IF flying.lapsed > 0 THEN
            DELETE FROM agent_data.key_reservations r WHERE r.key_id = p_key AND r.expires_at <= moment;
        END IF;
        since := agent_data.period_start(p_limits.token_period, moment);
        IF p_limits.token_budget IS NOT NULL AND u.token_since IS DISTINCT FROM since THEN
            u.token_since := since;
            u.token_spent := (SELECT k.tokens FROM agent_data.key_spent(p_tenant, p_key, since, moment) k);
            rolled := true;
        END IF;
        IF u.token_spent + flying.tokens >= p_limits.token_budget THEN
            refused := 'token_budget';
            wait_s := extract(epoch FROM since + ('1 ' || NULLIF(p_limits.token_period, 'ever'))::interval - moment);
        END IF;
        since := agent_data.period_start(p_limits.money_period, moment);
        IF p_limits.money_budget IS NOT NULL AND u.money_since IS DISTINCT FROM since THEN
            u.money_since := since;
            u.money_spent := (SELECT k.microcents FROM agent_data.key_spent(p_tenant, p_key, since, moment) k);
            rolled := true;
        END IF;
        IF u.money_spent + flying.microcents >= p_limits.money_budget THEN
            refused := 'money_budget';
            wait_s := extract(epoch FROM since + ('1 ' || NULLIF(p_limits.money_period, 'ever'))::interval - moment);
        END IF;
    END IF;
    IF refused IS NULL AND p_limits.requests_per_minute IS NOT NULL THEN
        wait_s := agent_data.window_wait(u.requests, slot, p_limits.requests_per_minute - 1, moment);
        refused := CASE WHEN wait_s = 0 THEN NULL ELSE 'requests' END;
    END IF;
    IF refused IS NULL AND p_limits.tokens_per_minute IS NOT NULL THEN
        wait_s := agent_data.window_wait(u.tokens, slot, p_limits.tokens_per_minute - need, moment);
        refused := CASE WHEN wait_s = 0 THEN NULL ELSE 'tokens' END;
    END IF;

    IF refused IS NULL THEN
        u.requests[slot % 61 + 1] := u.requests[slot % 61 + 1] + 1;
        u.tokens[slot % 61 + 1] := u.tokens[slot % 61 + 1] + COALESCE(need, 0);
        IF COALESCE(p_limits.tokens_per_minute, p_limits.token_budget, p_limits.money_budget) IS NOT NULL THEN
            INSERT INTO agent_data.key_reservations (
                key_id, call_id, tenant_id, admitted_at, expires_at, slot, rate_tokens, tokens, microcents)
            VALUES (p_key, p_call, p_tenant, moment, moment + make_interval(secs => p_lease_s), slot, COALESCE(need, 0), p_tokens,
                    p_microcents)
            ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    IF refused IS NULL OR rolled THEN
        UPDATE agent_data.key_usage k SET
            latest = u.latest, requests = u.requests, tokens = u.tokens, token_since = u.token_since,
            token_spent = u.token_spent, money_since = u.money_since, money_spent = u.money_spent
        WHERE k.key_id = p_key AND k.tenant_id = p_tenant;
    END IF;
    requests_left := GREATEST(p_limits.requests_per_minute - (SELECT sum(x) FROM unnest(u.requests) x), 0);
    requests_reset_s := agent_data.window_wait(u.requests, slot, 0, moment);
    tokens_left := GREATEST(p_limits.tokens_per_minute - (SELECT sum(x) FROM unnest(u.tokens) x), 0);
    tokens_reset_s := agent_data.window_wait(u.tokens, slot, 0, moment);
END $$;

-- Settles a call that was admitted: what it came to takes the place of what it might have come to. `p_slot`: of its admission.
-- `p_unasked`: it never got to an upstream, so that it was no request either. `p_unrecorded`: its share in what was spent, where
-- nothing else is kept of it. Settled twice, or after its reservation ran out, it changes no budget: those are brought up to date
-- from what was spent, by the schedule.
CREATE FUNCTION agent_data.settle_call(
    p_tenant uuid, p_key uuid, p_call uuid, p_slot bigint, p_unasked boolean, p_tokens bigint, p_microcents bigint,
    p_unrecorded agent_data.spend_record
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    u agent_data.key_usage;
    r agent_data.key_reservations;
    i integer := p_slot % 61 + 1;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);  -- as above
    IF p_unrecorded.user_id IS NOT NULL THEN
        -- An erasure waits for this, or is seen: of one who was erased meanwhile, only what the call cost is noted.
        PERFORM pg_advisory_xact_lock_shared(agent_data.capture_lock(p_unrecorded.user_id));
        IF EXISTS (SELECT FROM agent_data.erased_users e
                   WHERE e.user_id = p_unrecorded.user_id AND e.erased_before > p_unrecorded.created_at) THEN
            p_unrecorded.user_id := '00000000-0000-0000-0000-000000000000';
            p_unrecorded.session_id := NULL;
        END IF;
    END IF;
    SELECT * INTO u FROM agent_data.key_usage k WHERE k.key_id = p_key AND k.tenant_id = p_tenant FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM agent_data.key_reservations x WHERE x.key_id = p_key AND x.call_id = p_call RETURNING * INTO r;
    IF p_slot > u.latest - 61 THEN  -- its slot is still its own
        u.requests[i] := GREATEST(u.requests[i] - CASE WHEN p_unasked THEN 1 ELSE 0 END, 0);
        u.tokens[i] := GREATEST(u.tokens[i] + p_tokens - r.rate_tokens, 0);
    END IF;
    UPDATE agent_data.key_usage k SET
        requests = u.requests,
        tokens = CASE WHEN r.key_id IS NULL THEN k.tokens ELSE u.tokens END,
        token_spent = k.token_spent + CASE WHEN r.admitted_at >= k.token_since THEN p_tokens ELSE 0 END,
        money_spent = k.money_spent + CASE WHEN r.admitted_at >= k.money_since THEN p_microcents ELSE 0 END
    WHERE k.key_id = p_key AND k.tenant_id = p_tenant;
    IF p_unrecorded.user_id IS NOT NULL THEN
        INSERT INTO agent_data.spend_entries (
            call_id, user_id, tenant_id, key_id, session_id, model, day, prompt_tokens, completion_tokens, cached_tokens,
            unpriced_tokens, cost_microcents)
        VALUES (p_call, p_unrecorded.user_id, p_tenant, p_key,
                COALESCE(p_unrecorded.session_id, '00000000-0000-0000-0000-000000000000'), left(p_unrecorded.model, 200),
                (p_unrecorded.created_at AT TIME ZONE 'UTC')::date, p_unrecorded.prompt_tokens,
                p_unrecorded.completion_tokens, p_unrecorded.cached_tokens,
                CASE WHEN p_unrecorded.priced THEN 0 ELSE p_tokens END, p_microcents)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN r.key_id IS NOT NULL;
END $$;

-- Brings what a key has spent in its periods up to date. The row is locked first: whatever is settled meanwhile comes after.
CREATE FUNCTION agent_data.refresh_budget(p_key uuid, p_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    PERFORM FROM agent_data.key_usage k WHERE k.key_id = p_key FOR UPDATE;
    UPDATE agent_data.key_usage k SET
        token_spent = COALESCE((SELECT s.tokens FROM agent_data.key_spent(k.tenant_id, p_key, k.token_since, p_at) s
                                WHERE k.token_since IS NOT NULL), 0),
        money_spent = COALESCE((SELECT s.microcents FROM agent_data.key_spent(k.tenant_id, p_key, k.money_since, p_at) s
                                WHERE k.money_since IS NOT NULL), 0)
    WHERE k.key_id = p_key;
END $$;
