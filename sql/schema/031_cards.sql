-- The UI cards that were shown with answers (seed 003, table 4), so that "the second card from three questions ago" is found.

-- Two columns more than the seed's place of a card: `question` counts what the user asked, not messages, up to this answer; and
-- `sibling` tells answers to the same question apart.
CREATE TABLE agent_data.ui_cards_shown (
    card_id           uuid NOT NULL,
    user_id           uuid NOT NULL,
    tenant_id         uuid NOT NULL,
    session_id        uuid NOT NULL,
    turn_index        integer NOT NULL,        -- of the answer it was shown with, as in conversation_history
    sibling           smallint NOT NULL DEFAULT 0,
    message_id        uuid NOT NULL,           -- that answer
    question          integer NOT NULL,        -- 1: the first one; 0: shown before anything was asked
    card_type         text NOT NULL,
    card_data         jsonb NOT NULL,
    display_order     integer NOT NULL CHECK (display_order > 0),
    source            text NOT NULL CHECK (source IN ('api', 'tool')),
    tool_call_id      text,                    -- with source_message_id: the tool result that it was taken from
    source_message_id uuid,
    token_count       integer NOT NULL,        -- of its data as compact JSON
    shown_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, card_id),
    UNIQUE (user_id, session_id, turn_index, sibling, display_order)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('ui_cards_shown', current_setting('mneme.hash_partitions')::int);
CREATE INDEX cards_message ON agent_data.ui_cards_shown (user_id, message_id);
CREATE INDEX cards_source ON agent_data.ui_cards_shown (user_id, source_message_id) WHERE source_message_id IS NOT NULL;
CREATE INDEX cards_data ON agent_data.ui_cards_shown USING gin (user_id, card_data jsonb_path_ops);

-- The cards of a user, of all sessions, that hold `p_data` and are of a type (NULL: any), newest first, after (p_at, p_card).
-- Row-level security would keep @> from its index.
CREATE FUNCTION agent_data.find_cards(
    p_tenant uuid, p_user uuid, p_type text, p_data jsonb, p_at timestamptz, p_card uuid, p_limit integer
) RETURNS SETOF agent_data.ui_cards_shown
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    SELECT c.* FROM agent_data.ui_cards_shown c
    WHERE c.tenant_id = p_tenant AND c.user_id = p_user AND (p_type IS NULL OR c.card_type = p_type) AND c.card_data @> p_data
      AND (p_at IS NULL OR (c.shown_at, c.card_id) < (p_at, p_card))
    ORDER BY c.shown_at DESC, c.card_id DESC
    LIMIT p_limit
$$;

SELECT agent_data.protect_tables();
SELECT agent_data.give_functions('mneme_definer', ARRAY['find_cards'], ARRAY['mneme_app']);
