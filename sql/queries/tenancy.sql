-- name: key
-- A key by its SHA-256, for the authentication.
SELECT key_hash, key_id, tenant_id, user_external_id, scopes, expires_at, revoked_at, limits
FROM agent_data.api_keys WHERE key_hash = $1

-- name: tenant
-- The tenant of that name.
SELECT tenant_id FROM agent_data.tenants WHERE name = $1

-- name: tenant_ensure
-- The tenant of that name, made where it is missing.
INSERT INTO agent_data.tenants AS t (tenant_id, name, created_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET name = t.name
RETURNING tenant_id

-- name: key_add
-- A new key.
INSERT INTO agent_data.api_keys (key_hash, key_id, tenant_id, name, hint, user_external_id, scopes, created_at, expires_at,
                                 limits)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: key_list
-- All keys, or those of one tenant, newest first.
SELECT k.key_id, k.tenant_id, t.name AS tenant, k.name, k.hint, k.user_external_id, k.scopes, k.created_at, k.expires_at,
       k.revoked_at, k.limits
FROM agent_data.api_keys k JOIN agent_data.tenants t ON t.tenant_id = k.tenant_id
WHERE $1::text IS NULL OR t.name = $1
ORDER BY k.created_at DESC, k.key_id DESC

-- name: key_page
-- The keys of a tenant, newest first, older than $2: their ids begin with their time.
SELECT k.key_id, k.tenant_id, t.name AS tenant, k.name, k.hint, k.user_external_id, k.scopes, k.created_at, k.expires_at,
       k.revoked_at, k.limits
FROM agent_data.api_keys k JOIN agent_data.tenants t ON t.tenant_id = k.tenant_id
WHERE k.tenant_id = $1 AND ($2::uuid IS NULL OR k.key_id < $2)
ORDER BY k.key_id DESC
LIMIT $3

-- name: key_lock
-- A key that is to be changed; of tenant $2 if one is given.
SELECT k.key_id, k.tenant_id, t.name AS tenant, k.name, k.hint, k.user_external_id, k.scopes, k.created_at, k.expires_at,
       k.revoked_at, k.limits
FROM agent_data.api_keys k JOIN agent_data.tenants t ON t.tenant_id = k.tenant_id
WHERE k.key_id = $1 AND ($2::uuid IS NULL OR k.tenant_id = $2)
FOR UPDATE OF k

-- name: key_change
-- The limits and the expiry of a key.
UPDATE agent_data.api_keys SET limits = $2, expires_at = $3 WHERE key_id = $1

-- name: key_revoke
-- Ends a key; nothing when it was ended before, or never was.
UPDATE agent_data.api_keys SET revoked_at = $2
WHERE key_id = $1 AND revoked_at IS NULL AND ($3::uuid IS NULL OR tenant_id = $3)
RETURNING key_id

-- name: user_ensure
-- A user on first sight; a row only where it is new.
INSERT INTO agent_data.users (user_id, tenant_id, external_id, created_at, last_active) VALUES ($2, $1, $3, $4, $4)
ON CONFLICT DO NOTHING
RETURNING user_id

-- name: user_one
-- A user.
SELECT user_id, external_id, name, email, metadata, created_at, last_active
FROM agent_data.users WHERE tenant_id = $1 AND user_id = $2

-- name: user_list
-- The users of a tenant by external id, after $2; but for $4, under which sessions without a user are kept, and for spaces.
SELECT user_id, external_id, name, email, metadata, created_at, last_active
FROM agent_data.users u WHERE tenant_id = $1 AND external_id > $2 AND user_id <> $4
  AND NOT EXISTS (SELECT FROM agent_data.spaces s WHERE s.tenant_id = $1 AND s.user_id = u.user_id)
ORDER BY external_id
LIMIT $3

-- name: user_update
-- Changes what is not NULL.
UPDATE agent_data.users SET
    name = COALESCE($3, name), email = COALESCE($4, email), metadata = COALESCE($5::jsonb, metadata)
WHERE tenant_id = $1 AND user_id = $2

-- name: email_free
-- Gives back the e-mail addresses of a user, but for $3.
DELETE FROM agent_data.user_emails WHERE tenant_id = $1 AND user_id = $2 AND email <> $3

-- name: email_take
-- Takes an e-mail address within a tenant; whose it is then.
INSERT INTO agent_data.user_emails AS e (tenant_id, email, user_id) VALUES ($1, $3, $2)
ON CONFLICT (tenant_id, email) DO UPDATE SET user_id = e.user_id
RETURNING user_id

-- name: forget_periods
-- After a change of limits, what a key has spent is counted anew.
UPDATE agent_data.key_usage SET token_since = NULL, money_since = NULL WHERE key_id = $1
