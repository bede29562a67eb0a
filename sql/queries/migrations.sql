-- The bookkeeping of schema changes (app/store/migrate.py), and what is asked of a Postgres before the first.

-- name: begin
-- For this session: numbers of partitions for the files, no time limits, one place for extensions. A function may speak of what a
-- later file makes: tests call each of them.
SELECT set_config('mneme.hash_partitions', $1, false),
       set_config('mneme.history_partitions', $2, false),
       set_config('statement_timeout', '0', false),
       set_config('lock_timeout', '0', false),
       set_config('search_path', 'public', false),
       set_config('check_function_bodies', 'off', false)

-- name: lock
-- One migrator at a time per database, until its session ends or is reset.
SELECT pg_advisory_lock(hashtextextended('mneme.migrate', 0))

-- name: exists
-- Whether anything was ever applied here.
SELECT to_regclass('agent_data.schema_migrations') IS NOT NULL

-- name: create_schema
-- Where everything lives.
CREATE SCHEMA IF NOT EXISTS agent_data

-- name: create_table
-- What was applied. A file never changes afterwards: `checksum` is the SHA-256 of its text.
CREATE TABLE agent_data.schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: applied
-- What was applied, in order.
SELECT version, name, checksum FROM agent_data.schema_migrations ORDER BY version

-- name: record
-- A file was applied.
INSERT INTO agent_data.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)

-- name: capabilities
-- What this server has and what this login may do: one row.
SELECT current_setting('server_version_num')::int / 10000 AS major,
       current_setting('server_version') AS version,
       session_user AS login,
       current_database() AS database,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
       (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user) AS creates_roles,
       has_database_privilege(current_database(), 'CREATE') AS creates_schemas

-- name: extensions
-- The extensions $1: the version installed, the one on offer, and whether this login may create it.
SELECT wanted.name, e.extversion AS installed, a.default_version AS offered,
       coalesce((SELECT bool_or(v.trusted) FROM pg_available_extension_versions v
                 WHERE v.name = wanted.name AND v.version = a.default_version), false) AS trusted
FROM unnest($1::text[]) AS wanted (name)
LEFT JOIN pg_extension e ON e.extname = wanted.name
LEFT JOIN pg_available_extensions a ON a.name = wanted.name
ORDER BY wanted.name

-- name: roles
-- Which of the roles $1 exist, and whether this login may act as them.
SELECT wanted.name, r.oid IS NOT NULL AS exists, r.oid IS NOT NULL AND pg_has_role(r.oid, 'MEMBER') AS member
FROM unnest($1::text[]) AS wanted (name)
LEFT JOIN pg_roles r ON r.rolname = wanted.name
ORDER BY wanted.name

-- name: careless
-- Settings that make Postgres forget what it acknowledged.
SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
