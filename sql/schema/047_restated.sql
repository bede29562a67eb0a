-- Of some messages of the user's those that are only said again: they stood in another session before, word for word, and came as the
-- history of a request (something newer of the user's came with them, microseconds later: `app/capture/record.py`), or are of the
-- very same moment, as what is imported twice. They are found like any, but teach nothing, and what they order was ordered then.
-- One look at all of the user's messages, whatever their number: they have no index by their hash.
CREATE FUNCTION agent_data.restated(p_user uuid, p_messages uuid[], p_since timestamptz, p_until timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    WITH again AS MATERIALIZED (
        SELECT h.message_id, h.session_id, h.message_hash, h.created_at, EXISTS (
                   SELECT FROM agent_data.conversation_history n
                   WHERE n.user_id = p_user AND n.session_id = h.session_id AND n.role = 1
                     AND n.created_at > h.created_at AND n.created_at < h.created_at + interval '1 second') AS followed
        FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.message_id = ANY (p_messages) AND h.created_at BETWEEN p_since AND p_until AND h.role = 1
    )
    SELECT DISTINCT a.message_id
    FROM agent_data.conversation_history o
    JOIN again a ON o.message_hash = a.message_hash AND o.session_id <> a.session_id
        AND (o.created_at = a.created_at OR a.followed AND o.created_at < a.created_at)
    WHERE o.user_id = p_user AND o.role = 1 AND o.created_at <= p_until
$$;
GRANT EXECUTE ON FUNCTION agent_data.restated(uuid, uuid[], timestamptz, timestamptz) TO mneme_app;
