-- What a tenant wants to be remembered, in its own words.

-- name: read
-- The tenant's instructions, and when they were written.
SELECT NULLIF(p.extraction_instructions, '') AS instructions, p.updated_at FROM agent_data.tenant_profiles p WHERE p.tenant_id = $1

-- name: write
-- Instructions from now on; '' is none.
INSERT INTO agent_data.tenant_profiles AS p (tenant_id, extraction_instructions, updated_at) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id) DO UPDATE SET extraction_instructions = EXCLUDED.extraction_instructions, updated_at = EXCLUDED.updated_at

-- name: read_profile
-- The tenant's profile, and when the row was written.
SELECT NULLIF(p.profile, '') AS profile, p.updated_at FROM agent_data.tenant_profiles p WHERE p.tenant_id = $1

-- name: write_profile
-- A profile from now on; '' is none.
INSERT INTO agent_data.tenant_profiles AS p (tenant_id, profile, updated_at) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id) DO UPDATE SET profile = EXCLUDED.profile, updated_at = EXCLUDED.updated_at
