-- Run once, by the image's entrypoint, as superuser in the database `mneme`: extensions, roles and logins.
-- The roles are those of `app/store/migrate.py`; none of them may log in (docs/explanation/security.md). Passwords come from files.

\set ON_ERROR_STOP on
\set direct_password `cat "${MNEME_SECRETS:-/run/secrets}/mneme_direct_password"`
\set pooled_password `cat "${MNEME_SECRETS:-/run/secrets}/mneme_pooled_password"`
\set monitor_password `cat "${MNEME_SECRETS:-/run/secrets}/mneme_monitor_password"`
\set replica_password `cat "${MNEME_SECRETS:-/run/secrets}/mneme_replica_password"`

-- What needs a superuser; the migrations find it made.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;
CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
CREATE EXTENSION IF NOT EXISTS pg_cron;

CREATE ROLE mneme_owner NOLOGIN;
CREATE ROLE mneme_app NOLOGIN;
CREATE ROLE mneme_definer NOLOGIN;
CREATE ROLE mneme_eraser NOLOGIN;

-- MNEME_DATABASE_DIRECT_URL: migrations, the queue, the schedule, erasure. It becomes whichever role the work is for. Its own limit of a
-- statement: the schedule's (app/jobs/schedule.py); the server's 5 s would end sweeps of many rows.
CREATE ROLE mneme_direct LOGIN PASSWORD :'direct_password' CONNECTION LIMIT 100;
GRANT mneme_owner, mneme_app, mneme_definer, mneme_eraser TO mneme_direct;
GRANT CREATE, TEMPORARY ON DATABASE mneme TO mneme_direct;
ALTER ROLE mneme_direct SET statement_timeout = '600s';

-- MNEME_DATABASE_URL, through PgBouncer: the application's role and nothing else. In transaction mode a session is nobody's, so what
-- Mneme would say at its beginning (app/store/pools.py, SESSION) is said here. The limit of a statement is that of the background
-- pool (30 s); Mneme itself ends the others' earlier.
CREATE ROLE mneme_pooled LOGIN PASSWORD :'pooled_password' CONNECTION LIMIT 80;
GRANT mneme_app TO mneme_pooled;
ALTER ROLE mneme_pooled SET role = 'mneme_app';
ALTER ROLE mneme_pooled SET search_path = agent_data, public;
ALTER ROLE mneme_pooled SET timezone = 'GMT';
ALTER ROLE mneme_pooled SET jit = off;
ALTER ROLE mneme_pooled SET statement_timeout = '30s';

-- The exporter: statistics, no rows.
CREATE ROLE mneme_monitor LOGIN PASSWORD :'monitor_password' CONNECTION LIMIT 5;
GRANT pg_monitor TO mneme_monitor;

-- Replicas and base backups.
CREATE ROLE mneme_replica LOGIN REPLICATION PASSWORD :'replica_password';

REVOKE ALL ON DATABASE mneme FROM PUBLIC;
GRANT CONNECT ON DATABASE mneme TO mneme_direct, mneme_pooled, mneme_monitor;

-- Housekeeping that no worker of Mneme's does. Autovacuum leaves the statistics of partitioned parents alone; pg_cron keeps its log
-- for ever. The sweeps are the worker's; docs/explanation/memory.md says how pg_cron runs them where there is no worker.
SELECT cron.schedule_in_database('mneme-analyze', '17 3 * * *', 'ANALYZE', 'mneme', 'postgres');
SELECT cron.schedule_in_database(
    'mneme-cron-log', '27 3 * * *', $$DELETE FROM cron.job_run_details WHERE end_time < now() - interval '7 days'$$, 'mneme', 'postgres'
);
ALTER ROLE postgres SET statement_timeout = '0';
