-- Reads from standbys (sql/schema/017_replicas.sql tells how they are kept honest).

-- name: marks
-- How the primary stands with a user ($2) of a tenant ($1): the epoch, and of the marks, at most one more than `replicas.BUSY`, their
-- number, sum and exclusive or. No row where nothing is marked; `standby`: this is no primary.
SELECT (SELECT ARRAY[e.epoch, count(*), COALESCE(sum(w.mark), 0)::bigint, COALESCE(bit_xor(w.mark), 0)]
        FROM (SELECT m.mark FROM agent_data.write_marks m WHERE m.whose IN ($1::uuid, $2::uuid) LIMIT 1001) w) AS marks,
       pg_is_in_recovery() AS standby
FROM agent_data.write_epoch e

-- name: marked
-- Any read of a user's ($2) of a tenant ($1), put in the place of `__read__`, and how the server stands with him in that snapshot.
SELECT q.*, (SELECT ARRAY[e.epoch, count(*), COALESCE(sum(w.mark), 0)::bigint, COALESCE(bit_xor(w.mark), 0)]
             FROM (SELECT m.mark FROM agent_data.write_marks m WHERE m.whose IN ($1::uuid, $2::uuid) LIMIT 1001) w) AS marks
FROM agent_data.write_epoch e LEFT JOIN LATERAL (SELECT o.*, true AS there FROM (
__read__
) o) q ON true

-- name: unmarked_tables
-- What does not mark its writers yet.
SELECT name, scope FROM agent_data.unmarked_tables()

-- name: mark_table
-- Has a table mark them from now on (as the owner).
SELECT agent_data.mark_table($1, $2)

-- name: marks_begin
-- Every table marks.
SELECT agent_data.marks_begin()

-- name: marking
-- Whether writers are marked.
SELECT EXISTS (SELECT FROM agent_data.write_epoch)

-- name: take_marks
-- Takes away the marks that are there (as the owner); how many.
SELECT agent_data.take_marks()

-- name: server
-- What a server is, for `mneme doctor`: standby or not, where in the log it is, whether its replay is paused, whose copy it is.
SELECT pg_is_in_recovery() AS standby,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0'::pg_lsn AS position,
       CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END AS paused,
       current_setting('hot_standby_feedback')::bool AS feedback,
       (SELECT system_identifier FROM pg_control_system()) AS cluster
