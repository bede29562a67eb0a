-- Lists of memories, writes that go to one shard, erasures that are told without a name, and marks that nothing can keep back.

-- Lists are newest first. Without this a user's memories were all sorted for each page: 130 ms of 100,000, and 0.1 ms with it. (Not
-- by tenant, too: that one tempts the planner away from the user's.)
CREATE INDEX memory_listed ON agent_data.memory_store (user_id, created_at DESC, memory_id DESC);

-- The one write of turns, with the user to whom all of them belong (NULL: there are several). Citus sends a call with one to that
-- user's node (deploy/citus/distribute.sql), and there each look at a table asks for a single user; else nothing is different. It is
-- the function of 023, which stays for servers of the version before.
DO $$
DECLARE
    made text := pg_get_functiondef((SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'agent_data'::regnamespace
                                     AND p.proname = 'record_turns'));
    rule text[];
BEGIN
    FOREACH rule SLICE 1 IN ARRAY ARRAY[
        ['record_turns(p_calls', 'record_turns(p_user uuid, p_calls'],
        ['h.user_id = p_users[m.turn]', 'h.user_id = COALESCE(p_user, p_users[m.turn])'],
        ['x.user_id = w.user_id AND x.reason = ''deleted''', 'x.user_id = COALESCE(p_user, w.user_id) AND x.reason = ''deleted'''],
        ['e.user_id = w.user_id', 'e.user_id = COALESCE(p_user, w.user_id)'],
        ['x.user_id = p_users[b.ordinality]', 'x.user_id = COALESCE(p_user, p_users[b.ordinality])']
    ] LOOP
        IF strpos(made, rule[1]) = 0 THEN
            RAISE EXCEPTION 'record_turns has no %', rule[1];
        END IF;
        made := replace(made, rule[1], rule[2]);
    END LOOP;
    EXECUTE made;
END $$;
SELECT agent_data.give_functions('mneme_definer', ARRAY['record_turns'], ARRAY['mneme_app']);

-- A mark was left out where `mneme.marked` named the user already: that it was this transaction that said so, was taken on trust.
-- Now it names the transaction, too, so that what a session brings along says nothing.
CREATE OR REPLACE FUNCTION agent_data.mark_write() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- The end of an erasure is told by ids: what waits for a receiver that is away would else hold the name of somebody who was erased.
CREATE FUNCTION agent_data.tell_erasing(p_tenant uuid, p_user uuid, p_erasure uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT agent_data.tell_webhooks(p_tenant, NULL, 'user.erased', p_erasure,
        jsonb_build_object('user_id', p_user, 'tenant_id', p_tenant), 'infinity')
    WHERE NOT EXISTS (SELECT FROM agent_data.webhook_outbox o
                      WHERE o.subject = p_erasure AND o.due_at = 'infinity' AND o.dead_at IS NULL)
$$;
-- As servers of the version before call it.
CREATE OR REPLACE FUNCTION agent_data.tell_erasing(p_tenant uuid, p_user uuid, p_name text, p_erasure uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT agent_data.tell_erasing(p_tenant, p_user, p_erasure)
$$;
SELECT agent_data.give_functions('mneme_definer', ARRAY['tell_erasing'], ARRAY['mneme_eraser']);
UPDATE agent_data.webhook_outbox SET data = data - 'user' || jsonb_build_object('tenant_id', tenant_id) WHERE event = 'user.erased';

-- What waits and since when, and what became of the rest; also of targets that are named no more and have something waiting.
CREATE OR REPLACE FUNCTION agent_data.webhook_figures()
RETURNS TABLE (name text, delivered bigint, failed bigint, dead bigint, waiting bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT COALESCE(t.name, w.target), COALESCE(t.delivered, 0), COALESCE(t.failed, 0), COALESCE(t.dead, 0),
           COALESCE(w.waiting, 0), w.oldest
    FROM agent_data.webhook_targets t
    FULL JOIN (SELECT o.target, count(*) AS waiting, min(o.created_at) AS oldest FROM agent_data.webhook_outbox o
               WHERE o.dead_at IS NULL AND o.due_at < 'infinity' GROUP BY o.target) w ON w.target = t.name
    ORDER BY 1
$$;
SELECT agent_data.give_functions('mneme_definer', ARRAY['webhook_figures'], ARRAY['mneme_app', 'mneme_owner']);
