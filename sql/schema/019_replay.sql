-- Replays (docs/replay.md): labels of captured calls, by which a set is chosen, and what facts said at a moment.

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

-- The history of a fact says what it was about, so that a prompt that told it can be made again after it ended: as long as its value
-- is there, and no longer.
ALTER TABLE agent_data.user_fact_changes ADD COLUMN fact_key text, ADD COLUMN is_many boolean;

CREATE FUNCTION agent_data.key_fact_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.fact_key := NULL;
    NEW.is_many := NULL;
    IF NEW.fact_value IS NOT NULL THEN
        SELECT f.fact_key, f.is_many INTO NEW.fact_key, NEW.is_many FROM agent_data.user_facts f
        WHERE f.user_id = NEW.user_id AND f.fact_id = NEW.fact_id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER keyed BEFORE INSERT OR UPDATE OF fact_value ON agent_data.user_fact_changes
    FOR EACH ROW EXECUTE FUNCTION agent_data.key_fact_change();
UPDATE agent_data.user_fact_changes SET fact_value = fact_value WHERE fact_value IS NOT NULL;
