-- Spreads a fresh Mneme over a Citus cluster. Once, on the coordinator, as superuser, after `mneme migrate` with the flattened schema
-- (flatten.py) and before anything is stored:
--
--   psql --single-transaction -v ON_ERROR_STOP=1 -f distribute.sql "$MNEME_DATABASE_DIRECT_URL"
--
-- Citus 14 and PostgreSQL 18. docs/how-to/citus.md says what was proved of this, and what was not tried.

CREATE EXTENSION IF NOT EXISTS citus;

-- Triggers of distributed tables fire on the shard's node. They touch rows of the same user only (docs/how-to/citus.md names those that
-- do not), so that they are as safe here as Citus' setting is cautious.
SET citus.enable_unsafe_triggers = on;
-- A node asks another as the role that asks there, within a function as its owner: each of them logs in, from the nodes alone
-- (pg_hba.conf), without a password.
ALTER ROLE mneme_app LOGIN;
ALTER ROLE mneme_definer LOGIN;
ALTER ROLE mneme_owner LOGIN;
ALTER ROLE mneme_eraser LOGIN;
DO $$
BEGIN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO mneme_app, mneme_definer, mneme_owner, mneme_eraser', current_database());
END $$;
SET citus.shard_count = 256;             -- seed 000 §3; a multiple of what the workers may become
-- Reference tables first: functions and triggers of the others read them.

-- Reference: what has no user, is small and read everywhere: a copy on each node.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'tenants', 'tenant_profiles', 'api_keys', 'ontologies', 'ontology_types', 'domain_ontology', 'embedding_spaces',
        'enumerations', 'system_config', 'system_prompts'
    ] LOOP
        PERFORM create_reference_table(format('agent_data.%I', name)::regclass);
    END LOOP;
END $$;

-- Local: what many users share and one node keeps: the queue (its LISTEN and SKIP LOCKED want one), the outbox, limits of keys,
-- receipts, the schedule, marks for standbys (which are not used here). Known to the other nodes, so that a function there can reach it.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'pgqueuer', 'pgqueuer_log', 'pgqueuer_schedules', 'pgqueuer_statistics', 'webhook_outbox', 'webhook_degradations',
        'webhook_targets', 'helper_days', 'key_usage', 'key_reservations', 'user_emails', 'erasures', 'history_archives', 'compaction_figures', 'ticks',
        'schema_migrations', 'write_marks', 'write_epoch'
    ] LOOP
        PERFORM citus_add_local_table_to_metadata(format('agent_data.%I', name)::regclass);
    END LOOP;
END $$;

-- Distributed: what belongs to a user, all of it on that user's shard.
DO $$
DECLARE
    name text;
BEGIN
    PERFORM create_distributed_table('agent_data.users', 'user_id', colocate_with => 'none');
    FOREACH name IN ARRAY ARRAY[
        'users', 'sessions', 'session_heads', 'session_work', 'conversation_history', 'context_blocks',
        'memory_store', 'memory_events', 'memory_store_working', 'memory_conflicts', 'memory_outcomes', 'embeddings',
        'suppressions', 'episodes', 'compactions', 'consolidation_state', 'derivations', 'drawn_keys', 'user_facts',
        'user_fact_changes', 'answer_outcomes', 'insights', 'canonical_entities', 'entity_aliases', 'ui_cards_shown', 'paged_sessions',
        'semantic_objects', 'object_relationships', 'fault_history', 'fidelity_transitions', 'admission_scores', 'phantom_ledger',
        'upstream_calls', 'streams', 'compilations', 'message_blobs', 'request_chains', 'idempotency_keys', 'job_effects',
        'spend_entries', 'spend', 'capture_sweeps', 'erased_users', 'erased_contents', 'memory_commands',
        'index_items', 'index_log', 'index_state', 'spaces', 'space_members', 'space_sayings'
    ] LOOP
        CONTINUE WHEN name = 'users';
        PERFORM create_distributed_table(format('agent_data.%I', name)::regclass, 'user_id', colocate_with => 'agent_data.users');
    END LOOP;
END $$;

-- By id: the way from an id that a client names to its user, whom nobody knows before: one look at the shard of the id.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['routes'] LOOP
        PERFORM create_distributed_table(format('agent_data.%I', name)::regclass, 'id', colocate_with => 'none');
    END LOOP;
END $$;

-- Delegated: functions of one user run whole on the node that has the user's shard, in one round trip from any node. Not forced:
-- `recognise` may have to look at `routes`, which stands elsewhere, and `record_turns` writes jobs.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'agent_data'::regnamespace AND p.proname = ANY (ARRAY[
            'recognise', 'standing', 'tied_memories', 'own_statements', 'fetch_chosen', 'session_messages', 'idempotent_call', 'read_paging', 'object_texts',
            'search_objects', 'record_turns', 'index_read', 'index_rows', 'index_all', 'index_session', 'index_beside', 'index_terms',
            'index_cut'
        ]) AND 'p_user' = ANY (p.proargnames)
    LOOP
        PERFORM create_distributed_function(f, 'p_user', colocate_with => 'agent_data.users');
    END LOOP;
END $$;
