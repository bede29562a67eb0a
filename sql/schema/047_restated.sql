-- Whether a message of the user's is only said again: it stood in another session before, word for word, and came as the history of
-- a request (something newer of the user's came with it, microseconds later: `app/capture/record.py`), or is of the very same
-- moment, as what is imported twice. It is found like any, but teaches nothing, and what it orders was ordered then.
CREATE FUNCTION agent_data.restated(p_user uuid, p_session uuid, p_hash bytea, p_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM agent_data.conversation_history o
        WHERE o.user_id = p_user AND o.message_hash = p_hash AND o.session_id <> p_session
          AND (o.created_at = p_at
               OR o.created_at < p_at AND EXISTS (
                   SELECT FROM agent_data.conversation_history n
                   WHERE n.user_id = p_user AND n.session_id = p_session AND n.role = 1
                     AND n.created_at > p_at AND n.created_at < p_at + interval '1 second')))
$$;
GRANT EXECUTE ON FUNCTION agent_data.restated(uuid, uuid, bytea, timestamptz) TO mneme_app;
