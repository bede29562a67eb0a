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

CREATE INDEX user_facts_note ON agent_data.user_facts (user_id, note_id);

SELECT agent_data.give_functions('mneme_definer', ARRAY['notes_in_force'], ARRAY['mneme_app']);
