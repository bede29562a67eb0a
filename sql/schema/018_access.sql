-- Who may do what, once all is there. A later migration that adds a table with a `tenant_id` runs `protect_tables()` again at its end
-- (a test proves that none is without), and gives each function that is not for everybody away by `give_functions`.

SELECT agent_data.protect_tables();

-- Beyond what `protect_tables()` gives: what functions of the hot path take away, what erasing writes, and what servers change of a
-- business's things.
GRANT SELECT ON agent_data.schema_migrations TO mneme_app;
GRANT DELETE ON agent_data.suppressions, agent_data.context_blocks, agent_data.episodes, agent_data.user_facts,
    agent_data.answer_outcomes, agent_data.memory_outcomes, agent_data.key_reservations, agent_data.index_items,
    agent_data.index_log TO mneme_definer;
GRANT INSERT ON agent_data.erasures, agent_data.erased_users, agent_data.erased_contents, agent_data.spend,
    agent_data.suppressions, agent_data.memory_events, agent_data.write_marks TO mneme_eraser;
GRANT DELETE ON agent_data.canonical_entities, agent_data.entity_aliases, agent_data.ontologies, agent_data.ontology_types,
    agent_data.domain_ontology TO mneme_app, mneme_definer;
ALTER TYPE agent_data.life_policy OWNER TO mneme_owner;
ALTER FUNCTION agent_data.ensure_history_partitions(date, date) OWNER TO mneme_owner;
ALTER FUNCTION agent_data.ensure_capture_partitions(date, date) OWNER TO mneme_owner;
ALTER FUNCTION agent_data.ensure_embedding_space(text, integer) OWNER TO mneme_owner;
ALTER FUNCTION agent_data.session_root(uuid, uuid) OWNER TO mneme_owner;

-- --- functions: whose they are, and who calls them ---------------------------------------------------------------------------

-- What the server and the worker call.
SELECT agent_data.give_functions('mneme_definer', ARRAY[
    'add_missing_vectors', 'add_vectors', 'admit_call', 'append_messages', 'ended_since', 'fetch_chosen',
    'facts_holding', 'find_cards', 'has_things', 'idempotent_call', 'index_all', 'index_beside', 'index_read', 'index_recent', 'index_rows',
    'index_session', 'index_terms', 'label_call', 'look_up_mentions', 'memories_holding', 'memory_claims', 'near_memories', 'note_asked', 'note_degradation',
    'note_key', 'notes_in_force', 'object_texts', 'objects_tagged', 'rate_answer', 'read_paging', 'recognise', 'record_paging',
    'record_turns', 'request_elements', 'retry_webhook', 'search_objects', 'session_config',
    'session_messages', 'settle_call', 'standing', 'tied_memories', 'claiming_memories', 'own_statements', 'update_fact_confidence'
], ARRAY['mneme_app']);
-- … and the schedule.
SELECT agent_data.give_functions('mneme_definer', ARRAY[
    'enqueue', 'index_cut', 'webhook_figures'
], ARRAY['mneme_app', 'mneme_owner']);
-- … and who erases: memories end by the API, by the schedule, and with a message that is deleted.
SELECT agent_data.give_functions('mneme_definer', ARRAY[
    'compact_messages', 'derived_from', 'drop_fact', 'drop_facts_of', 'drop_session_summaries',
    'forget_derived', 'forget_said', 'index_lost', 'index_note', 'index_put', 'keep_fact', 'outdate_derived', 'resurface',
    'tell_webhooks', 'unforget', 'void_memories'
], ARRAY['mneme_app', 'mneme_owner', 'mneme_eraser']);
SELECT agent_data.give_functions('mneme_definer', ARRAY[
    'tell_erasing'
], ARRAY['mneme_eraser']);
-- What other functions of the definer alone call.
SELECT agent_data.give_functions('mneme_definer', ARRAY[
    'entity_name'
]);
-- The schedule's and the migrations', for every tenant.
SELECT agent_data.give_functions('mneme_owner', ARRAY[
    'age_memories', 'blobs_of', 'bury_webhook', 'chains_in_use', 'collect_captures', 'decay_memories', 'demote_memories',
    'drop_capture_month', 'drop_embedding_space', 'enqueue_objects', 'enqueue_sessions', 'enqueue_users', 'expire_memories', 'expire_sessions',
    'forget_aliases', 'index_anew', 'index_cut_some', 'mark_table', 'marks_begin', 'marks_end', 'note_capture_month', 'promote_memories',
    'prune_memories', 'remove_memories', 'space_index_statements', 'sweep', 'take_marks', 'tell_degraded', 'unmarked_tables'
]);
SELECT agent_data.give_functions('mneme_owner', ARRAY[
    'life_policy', 'memories_due'
], ARRAY['mneme_app', 'mneme_definer']);
SELECT agent_data.give_functions('mneme_owner', ARRAY[
    'erase_rows'
], ARRAY['mneme_eraser']);
