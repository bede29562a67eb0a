-- What the worker's schedule drops of the captures, as mneme_owner (app/store/retention.py), and how much is stored.

-- name: months
-- The months that have partitions of captures of their own, oldest first, with all that is in them in bytes.
SELECT m.month, sum(pg_total_relation_size(m.oid))::bigint AS bytes
FROM (
    SELECT c.oid, substring(c.relname FROM '_(\d{6})$') AS month
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('agent_data.upstream_calls'::regclass, 'agent_data.streams'::regclass,
                          'agent_data.compilations'::regclass)
) m
WHERE m.month IS NOT NULL
GROUP BY m.month ORDER BY m.month

-- name: capture_files
-- Bytes of all captures, as their files are: never less than what is in them.
SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^(upstream_calls|streams|compilations|message_blobs|request_chains)(_|$)'

-- name: cut
-- The newest call of those beyond $1 bytes, counted from the newest back: it and all before it are to go; NULL: all fit. Counted is
-- what the rows hold; the requests' blobs and chains, which calls share, are spread evenly over all calls.
WITH sizes AS MATERIALIZED (
    -- Column by column: a whole row as a value would have its large parts read and put into it. 500 bytes for the small ones.
    SELECT c.call_id,
           500 + pg_column_size(c.request_headers) + pg_column_size(c.response_headers)
           + COALESCE(pg_column_size(c.request_body), 0) + COALESCE(pg_column_size(c.request_prefix), 0)
           + COALESCE(pg_column_size(c.request_suffix), 0) + COALESCE(pg_column_size(c.sent_prefix), 0)
           + COALESCE(pg_column_size(c.sent_suffix), 0)
           + COALESCE((
               SELECT pg_column_size(s.body) + pg_column_size(s.chunk_offsets) + pg_column_size(s.chunk_times)
                      + pg_column_size(s.event_offsets) + pg_column_size(s.event_times)
               FROM agent_data.streams s WHERE s.call_id = c.call_id AND s.user_id = c.user_id), 0)
           + COALESCE((
               SELECT pg_column_size(p.audit) FROM agent_data.compilations p
               WHERE p.call_id = c.call_id AND p.user_id = c.user_id), 0) AS bytes
    FROM agent_data.upstream_calls c
), shared AS (
    SELECT (SELECT COALESCE(sum(pg_column_size(b.body) + 60), 0) FROM agent_data.message_blobs b)
         + (SELECT COALESCE(sum(pg_column_size(r.blobs) + 100), 0) FROM agent_data.request_chains r) AS bytes
), whole AS (
    SELECT COALESCE(sum(z.bytes), 0) AS bytes FROM sizes z
)
SELECT x.call_id FROM (
    SELECT z.call_id, sum(z.bytes) OVER (ORDER BY z.call_id DESC) AS running FROM sizes z
) x, shared, whole
WHERE x.running * (1 + shared.bytes / greatest(whole.bytes, 1)) > $1
ORDER BY x.call_id DESC LIMIT 1

-- name: count_before
-- How many calls have ids smaller than $1.
SELECT count(*) FROM agent_data.upstream_calls c WHERE c.call_id < $1

-- name: note_month
-- Notes whose captures a month has.
SELECT agent_data.note_capture_month($1, $2)

-- name: hurry
-- For this transaction: rather try again later than make others wait.
SELECT set_config('lock_timeout', $1, true)

-- name: drop_month
-- Drops the captures of a month; how many partitions.
SELECT agent_data.drop_capture_month($1)

-- name: trim
-- Deletes some of the captures older than $1, and notes whose they were, with the time $2; how many.
WITH old AS MATERIALIZED (
    SELECT c.call_id, c.user_id, c.tenant_id FROM agent_data.upstream_calls c
    WHERE c.call_id < $1 ORDER BY c.call_id LIMIT $3
), s AS (
    DELETE FROM agent_data.streams t USING old o WHERE t.call_id = o.call_id AND t.user_id = o.user_id AND t.call_id < $1
), p AS (
    DELETE FROM agent_data.compilations t USING old o WHERE t.call_id = o.call_id AND t.user_id = o.user_id AND t.call_id < $1
), c AS (
    DELETE FROM agent_data.upstream_calls t USING old o
    WHERE t.call_id = o.call_id AND t.user_id = o.user_id AND t.call_id < $1 RETURNING 1
), noted AS (
    INSERT INTO agent_data.capture_sweeps AS w (user_id, tenant_id, before)
    SELECT DISTINCT o.user_id, o.tenant_id, $2::timestamptz FROM old o
    ON CONFLICT (user_id) DO UPDATE SET before = greatest(w.before, EXCLUDED.before), released_at = NULL
)
SELECT count(*) FROM c

-- name: purge_keys
-- Forgets Idempotency-Keys whose calls are gone, some at a time; how many.
WITH old AS (
    SELECT k.user_id, k.key_hash FROM agent_data.idempotency_keys k WHERE k.created_at < $1 AND NOT EXISTS (
        SELECT FROM agent_data.upstream_calls c WHERE c.call_id = k.call_id AND c.user_id = k.user_id) LIMIT $2
), gone AS (
    DELETE FROM agent_data.idempotency_keys k USING old o
    WHERE k.user_id = o.user_id AND k.key_hash = o.key_hash RETURNING 1
)
SELECT count(*) FROM gone

-- name: release
-- Heads of one more user do not lead to old requests any more: the next turn stores again what it needs. NULL: there is none left.
WITH one AS (
    SELECT w.user_id, w.before FROM agent_data.capture_sweeps w WHERE w.released_at IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED
), cut AS (
    UPDATE agent_data.session_heads h
    SET request_chain = NULL, request_count = NULL, sent_chain = NULL, sent_count = NULL
    FROM one o WHERE h.user_id = o.user_id AND h.created_at < o.before AND (h.request_chain IS NOT NULL OR h.sent_chain IS NOT NULL)
)
UPDATE agent_data.capture_sweeps w SET released_at = $1 FROM one o WHERE w.user_id = o.user_id RETURNING w.user_id

-- name: released
-- Users whose blobs and chains may be collected, $2 of them, after $3.
SELECT w.user_id, w.released_at FROM agent_data.capture_sweeps w WHERE w.released_at <= $1 AND w.user_id > $3
ORDER BY w.user_id LIMIT $2

-- name: collect
-- Collects some of what nothing of a user refers to; how many rows, NULL: later.
SELECT agent_data.collect_captures($1, $2, $3)

-- name: collected
-- There is nothing left to collect of this user, unless captures were dropped meanwhile.
DELETE FROM agent_data.capture_sweeps w WHERE w.user_id = $1 AND w.released_at = $2

-- name: purge_prompts
-- Forgets some of the system prompts older than $1 that no session uses any more; how many.
WITH old AS (
    SELECT p.tenant_id, p.prompt_hash FROM agent_data.system_prompts p
    WHERE p.created_at < $1 AND NOT EXISTS (
        SELECT FROM agent_data.sessions s WHERE s.tenant_id = p.tenant_id AND s.system_prompt_hash = p.prompt_hash) LIMIT $2
), gone AS (
    DELETE FROM agent_data.system_prompts p USING old o
    WHERE p.tenant_id = o.tenant_id AND p.prompt_hash = o.prompt_hash RETURNING 1
)
SELECT count(*) FROM gone

-- name: purge_paging
-- Forgets the paging of some sessions that have expired, or that no turn of $1 or later belongs to (it was begun, and nothing came of
-- it); how many. One that goes on all the same is taken apart anew.
WITH old AS (
    SELECT p.user_id, p.session_id FROM agent_data.paged_sessions p
    LEFT JOIN agent_data.sessions s ON s.user_id = p.user_id AND s.session_id = p.session_id
    WHERE s.status = 4 OR s.session_id IS NULL AND p.updated_at < $1
    LIMIT $2 FOR UPDATE OF p SKIP LOCKED
), o AS (
    DELETE FROM agent_data.semantic_objects t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), r AS (
    DELETE FROM agent_data.object_relationships t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), f AS (
    DELETE FROM agent_data.fault_history t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), m AS (
    DELETE FROM agent_data.fidelity_transitions t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), a AS (
    DELETE FROM agent_data.admission_scores t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), l AS (
    DELETE FROM agent_data.phantom_ledger t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id
), gone AS (
    DELETE FROM agent_data.paged_sessions t USING old x WHERE t.user_id = x.user_id AND t.session_id = x.session_id RETURNING 1
)
SELECT count(*) FROM gone

-- name: storage
-- What is stored, in bytes of files (indexes and large values included), by group of tables and by month, where a table has months;
-- `rows` as the planner estimates them.
SELECT g.name AS group, x.month, sum(x.bytes)::bigint AS bytes, sum(x.rows)::bigint AS rows FROM (
    SELECT c.relname, substring(c.relname FROM '_(\d{6})$') AS month, pg_total_relation_size(c.oid) AS bytes,
           greatest(c.reltuples, 0) AS rows
    FROM pg_class c WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'r'
) x
CROSS JOIN LATERAL (SELECT CASE
    WHEN x.relname ~ '^(upstream_calls|streams|compilations|message_blobs|request_chains)(_|$)' THEN 'captures'
    WHEN x.relname ~ '^(conversation_history|sessions|session_heads|context_blocks|system_prompts|ui_cards_shown)(_|$)' THEN 'history'
    WHEN x.relname ~ '^(memory_store|memory_events|suppressions)(_|$)' THEN 'memories'
    WHEN x.relname ~ '^embeddings(_|$)' THEN 'vectors'
    WHEN x.relname ~ '^(paged_sessions|semantic_objects|object_relationships|fault_history|fidelity_transitions|admission_scores|phantom_ledger)(_|$)' THEN 'paging'
    WHEN x.relname ~ '^(pgqueuer|job_effects)(_|$)' THEN 'queue'
    ELSE 'other' END AS name) g
GROUP BY g.name, x.month
ORDER BY g.name, x.month NULLS FIRST

-- name: ticks
-- When each task of the schedule last ran, and what it changed then.
SELECT t.name, t.last_run, t.took_ms, t.changed FROM agent_data.ticks t ORDER BY t.name

-- name: unused_indexes
-- Indexes of $2 bytes or more, all partitions together, that keep nothing unique and were not read in the $1 days or more that
-- statistics tell of.
SELECT x.root::regclass::text AS name, x.bytes, x.days FROM (
    SELECT COALESCE(pg_partition_root(u.indexrelid), u.indexrelid) AS root, sum(pg_relation_size(u.indexrelid))::bigint AS bytes,
           sum(u.idx_scan) AS scans, min(extract(day FROM now() - COALESCE(d.stats_reset, pg_postmaster_start_time())))::integer AS days
    FROM pg_stat_user_indexes u
    JOIN pg_index i ON i.indexrelid = u.indexrelid AND NOT i.indisunique
    JOIN pg_stat_database d ON d.datname = current_database()
    WHERE u.schemaname = 'agent_data'
    GROUP BY 1
) x
WHERE x.scans = 0 AND x.bytes >= $2 AND x.days >= $1
ORDER BY x.bytes DESC, 1
