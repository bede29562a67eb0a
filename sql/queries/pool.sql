-- What a pool asks on a new connection, and at the start of a tenant's transaction.

-- name: greet
-- Who we are, whether we may become the role $1, and where pgvector's types live: one row.
SELECT session_user AS login,
       current_user = $1::text AS is_role,
       EXISTS (SELECT FROM pg_roles WHERE rolname = $1::text AND pg_has_role(oid, 'MEMBER')) AS may_become,
       'agent_data' = ANY (current_schemas(false)) AS finds_schema,
       to_regnamespace('agent_data') IS NOT NULL AS has_schema,
       (SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector')
           AS vector_schema

-- name: become
-- Goes on as role $1 until the connection ends; `RESET ALL` keeps it.
SELECT set_config('role', $1, false)

-- name: connections_allowed
-- How many connections there may be at once of roles that are no superusers.
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int

-- name: probe
-- Asks a backend for any answer.
SELECT 1

-- name: set_tenant
-- Whose rows this transaction may see (row-level security): a tenant's id in the place of `__tenant__`. No `set_config`, for
-- Citus tells its nodes what SET LOCAL says, and of a function knows nothing.
SET LOCAL mneme.tenant = '__tenant__'
