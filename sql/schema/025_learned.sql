-- Idleness counts from when Mneme learned something, too: what was imported yesterday was not idle for the years since it was said,
-- and nobody had a question to use it for.

-- When a memory was made: ids of version 7 bear it (RFC 9562, in milliseconds). NULL for other ids.
CREATE FUNCTION agent_data.made_at(p_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN substr(p_id::text, 15, 1) = '7'
                THEN to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000::float8) END
$$;

-- As 010 has it; new: `made_at`.
CREATE OR REPLACE FUNCTION agent_data.used_at(m agent_data.memory_store) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT greatest(m.last_accessed_at, m.last_validated_at, m.created_at, agent_data.made_at(m.memory_id))
$$;
