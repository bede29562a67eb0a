-- Memories against rows (seed 004, table 9): which things an episode is about, doubt that lasts until the user has spoken, and
-- contradictions that end with a memory.

-- The things that an exchange named, as seed 004 has `entities` of an episode: [{"canonical_id", "canonical_name", "type",
-- "mentions": [{"text", "position", "confidence", "is_coreference"}]}]. `domain_facts` has the queries of the call's own prompt.
ALTER TABLE agent_data.episodes ADD COLUMN things jsonb NOT NULL DEFAULT '[]';

CREATE INDEX memory_conflicts_tenant ON agent_data.memory_conflicts (tenant_id, created_at DESC, conflict_id DESC);
CREATE INDEX memory_conflicts_id ON agent_data.memory_conflicts (conflict_id);

-- Whether the doubt is over: it was said again. Not of what a row contradicts: there the user has the word.
CREATE OR REPLACE FUNCTION agent_data.settles(m agent_data.memory_store, p_now timestamptz, p agent_data.life_policy) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT m.status = 'aging' AND agent_data.in_force(m, p_now) AND NOT m.details ? 'in_conflict'
       AND p_now - COALESCE(m.last_validated_at, m.created_at) <= p.validation_after
$$;

-- What is not in doubt is in no open contradiction, either.
CREATE FUNCTION agent_data.out_of_conflict() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    NEW.details := NEW.details - 'in_conflict';
    RETURN NEW;
END $$;
CREATE TRIGGER out_of_conflict BEFORE UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status <> 'aging' AND OLD.status = 'aging' AND NEW.details ? 'in_conflict')
    EXECUTE FUNCTION agent_data.out_of_conflict();

-- A contradiction that was open is decided by what becomes of its memory: the user confirmed it (by an answer, or by saying it
-- again), or it is not in force any more.
CREATE FUNCTION agent_data.decide_conflicts() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
DECLARE
    ended constant boolean := NEW.status <> 'active';
BEGIN
    UPDATE agent_data.memory_conflicts c SET
        resolved_at = NEW.updated_at,
        resolution_outcome = jsonb_strip_nulls(jsonb_build_object(
            'action', CASE WHEN ended THEN 'supersede_memory' ELSE 'keep_memory' END,
            'memory_updates', jsonb_build_array(jsonb_build_object('memory_id', NEW.memory_id, 'new_status', NEW.status)),
            'user_response', CASE WHEN NEW.status = 'active' THEN 'yes'
                                  WHEN NEW.status = 'superseded' AND NEW.superseded_how = 'corrected' THEN 'corrected'
                                  WHEN NEW.status = 'invalidated' AND NEW.confidence = 0 THEN 'no' END))
    WHERE c.user_id = NEW.user_id AND c.tenant_id = NEW.tenant_id AND c.resolved_at IS NULL
      AND NEW.memory_id = ANY (c.memory_ids)
      -- Of two that both stand one may be confirmed, and the other is as right as before.
      AND (ended OR c.resolution_strategy = 'ask_user');
    RETURN NULL;
END $$;
CREATE TRIGGER decide_conflicts AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (OLD.status = 'aging' AND NEW.status = 'active'
                       OR OLD.status IN ('active', 'aging') AND NEW.status IN ('superseded', 'invalidated', 'expired'))
    EXECUTE FUNCTION agent_data.decide_conflicts();

-- Whose words are forgotten, of that nobody learns either what it was about (`forget_said` blanks the rest).
CREATE FUNCTION agent_data.conflict_blanked() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    NEW.entity_id := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER blanked BEFORE UPDATE OF conflict_data ON agent_data.memory_conflicts
    FOR EACH ROW WHEN (NEW.conflict_data = '{}') EXECUTE FUNCTION agent_data.conflict_blanked();

SELECT agent_data.protect_tables();
