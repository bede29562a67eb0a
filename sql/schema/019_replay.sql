-- Labels of captured calls: by them a set is chosen, for cassettes and for regression replays (docs/replay.md).

ALTER TABLE agent_data.upstream_calls ADD COLUMN labels text[];  -- sorted, each once; NULL: none
CREATE INDEX calls_labelled ON agent_data.upstream_calls (tenant_id, call_id DESC) WHERE labels IS NOT NULL;

-- Gives a call its labels, in place of those that it had; whether there is such a call (of user `p_user`, if one is named).
-- All else of a call is written once.
CREATE FUNCTION agent_data.label_call(p_tenant uuid, p_user uuid, p_call uuid, p_labels text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    UPDATE agent_data.upstream_calls c SET labels = NULLIF(p_labels, '{}')
    WHERE c.call_id = p_call AND c.tenant_id = p_tenant AND (p_user IS NULL OR c.user_id = p_user);
    RETURN FOUND;
END $$;
ALTER FUNCTION agent_data.label_call(uuid, uuid, uuid, text[]) OWNER TO mneme_definer;
REVOKE ALL ON FUNCTION agent_data.label_call(uuid, uuid, uuid, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION agent_data.label_call(uuid, uuid, uuid, text[]) TO mneme_app;
