-- A leg of a call is a call of its own, whose figures stand with the client's (app/gateway/legs.py): it is recorded, and not spent
-- once more.

CREATE OR REPLACE FUNCTION agent_data.note_spend() RETURNS trigger LANGUAGE plpgsql
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
