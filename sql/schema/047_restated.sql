-- Of some messages of the user's those that are only said again: they stood in another session before, word for word, and came as the
-- history of a request (an answer and something newer of the user's came with them, microseconds later: `app/capture/record.py`), or
-- are of the very same moment as another, as what is imported twice: of these the first teaches. They are found like any, but teach nothing, and what they order was ordered then.
-- One look at all of the user's messages, whatever their number: they have no index by their hash.
CREATE FUNCTION agent_data.restated(p_user uuid, p_messages uuid[], p_since timestamptz, p_until timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = agent_data, public, pg_temp AS $$
    WITH again AS MATERIALIZED (
        SELECT h.message_id, h.session_id, h.message_hash, h.created_at, EXISTS (
                   SELECT FROM agent_data.conversation_history r
                   JOIN agent_data.conversation_history n ON n.user_id = p_user AND n.session_id = h.session_id AND n.role = 1
                       AND n.created_at > r.created_at AND n.created_at < h.created_at + interval '1 second'
                   WHERE r.user_id = p_user AND r.session_id = h.session_id AND r.role <> 1
                     AND r.created_at > h.created_at AND r.created_at < h.created_at + interval '1 second') AS history
        FROM agent_data.conversation_history h
        WHERE h.user_id = p_user AND h.message_id = ANY (p_messages) AND h.created_at BETWEEN p_since AND p_until AND h.role = 1
    )
    SELECT a.message_id FROM again a
    WHERE EXISTS (
        SELECT FROM agent_data.conversation_history o
        WHERE o.user_id = p_user AND o.role = 1 AND o.created_at <= p_until AND o.message_hash = a.message_hash
          AND o.session_id <> a.session_id
          AND (o.created_at = a.created_at AND o.message_id < a.message_id OR a.history AND o.created_at < a.created_at))
$$;
GRANT EXECUTE ON FUNCTION agent_data.restated(uuid, uuid[], timestamptz, timestamptz) TO mneme_app;
