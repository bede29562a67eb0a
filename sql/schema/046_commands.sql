-- What users told memory to do in a chat (app/store/commands.py): forgotten in a way that can be undone.

-- One row for each command that something was done about, or asked back. It has no words: what was forgotten is told by the ids in
-- `items` ([{id, kind: memory|message, status: a memory's before, reason: why it was hidden before}]), whose words stay where they
-- are and are hidden by `suppressions` (reason 'forgotten_by_chat').
CREATE TABLE agent_data.memory_commands (
    command_id   uuid NOT NULL,
    user_id      uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    session_id   uuid NOT NULL,
    -- Hash of the conversation up to the message, with the number of the command in it: a retry is the same.
    mark         bytea NOT NULL,
    message_hash bytea,                        -- of the message that said it
    kind         text NOT NULL CHECK (kind IN ('forget', 'correct', 'stop', 'allow')),
    scope        text NOT NULL CHECK (scope IN ('thing', 'this', 'everything')),
    outcome      text NOT NULL CHECK (outcome IN ('done', 'ask', 'confirm')),
    items        jsonb NOT NULL DEFAULT '[]',  -- of 'confirm': what it would be done to
    heir         uuid,                         -- of a correction: the memory that says what is right
    at           timestamptz NOT NULL,
    undone_at    timestamptz,
    PRIMARY KEY (user_id, command_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('memory_commands', current_setting('mneme.hash_partitions')::int);
CREATE INDEX commands_mark ON agent_data.memory_commands (user_id, mark);
CREATE INDEX commands_listed ON agent_data.memory_commands (user_id, at DESC, command_id DESC);

-- Shows again what was hidden by a command; the application may take away no other suppression, but for 'superseded'
-- (`resurface`). Which of them there were.
CREATE FUNCTION agent_data.unforget(p_tenant uuid, p_user uuid, p_items uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = agent_data, public, pg_temp AS $$
    DELETE FROM agent_data.suppressions x
    WHERE x.user_id = p_user AND x.tenant_id = p_tenant AND x.item_id = ANY (p_items) AND x.reason = 'forgotten_by_chat'
    RETURNING x.item_id
$$;

-- A memory that is brought back by itself is found again, and so are the messages that said it and nothing else that is hidden.
CREATE FUNCTION agent_data.remembered() RETURNS trigger
LANGUAGE plpgsql SET search_path = agent_data, public, pg_temp AS $$
BEGIN
    PERFORM agent_data.unforget(NEW.tenant_id, NEW.user_id, ARRAY(
        SELECT NEW.memory_id
        UNION
        SELECT s FROM unnest(NEW.source_message_ids) AS s
        WHERE NOT EXISTS (
            SELECT FROM agent_data.memory_store o
            JOIN agent_data.suppressions x ON x.user_id = o.user_id AND x.item_id = o.memory_id AND x.reason = 'forgotten_by_chat'
            WHERE o.user_id = NEW.user_id AND o.memory_id <> NEW.memory_id AND o.source_message_ids @> ARRAY[s])));
    RETURN NULL;
END $$;
CREATE TRIGGER remembered AFTER UPDATE OF status ON agent_data.memory_store
    FOR EACH ROW WHEN (NEW.status = 'active' AND OLD.status IN ('invalidated', 'expired'))
    EXECUTE FUNCTION agent_data.remembered();

SELECT agent_data.protect_tables();
SELECT agent_data.give_functions('mneme_definer', ARRAY['unforget'], ARRAY['mneme_app', 'mneme_owner', 'mneme_eraser']);

-- A fact that can end has a predicate, which stands in a category.
UPDATE agent_data.system_config
SET value = jsonb_set(value, '{personal}', to_jsonb((value ->> 'personal') || ' smokes'))
WHERE key = 'fact_categories' AND value ->> 'personal' !~ '\msmokes\M';
