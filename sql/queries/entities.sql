-- Things that are spoken of, and what they are called (seed 004, tables 2 and 3). The nil user: the whole tenant.

-- name: look_up
-- What mentions may mean; see the function.
SELECT stage, mention, entity_id, entity_type, canonical_name, own, alias_source, confidence, use_count, last_used_at, similarity
FROM agent_data.look_up_mentions($1, $2, $3, $4, $5)

-- name: put
-- Writes entities as their rows in the business's own database are now; a stored one gets its row's name and properties. The tenant's
-- entities serve its aliases alone; the user $2, if there is one, also gets an entity that they named (`own`), and finds it by its name.
INSERT INTO agent_data.canonical_entities AS e (
    user_id, tenant_id, entity_id, entity_type, canonical_name, name_norm, external_ref, properties, matches_by_name,
    last_referenced, created_at, updated_at)
SELECT o.user_id, $1, x.entity_id, x.entity_type, x.name, x.norm, x.ref, x.properties,
       o.user_id <> '00000000-0000-0000-0000-000000000000', $3, $3, $3
FROM unnest($4::boolean[], $5::text[], $6::text[], $7::text[], $8::text[], $9::jsonb[], $10::jsonb[])
     x (own, entity_id, entity_type, name, norm, ref, properties)
CROSS JOIN (SELECT '00000000-0000-0000-0000-000000000000'::uuid
            UNION ALL SELECT u.user_id FROM agent_data.users u WHERE u.tenant_id = $1 AND u.user_id = $2) o (user_id)
WHERE x.own OR o.user_id = '00000000-0000-0000-0000-000000000000'
ORDER BY o.user_id, x.entity_id
ON CONFLICT (user_id, tenant_id, entity_id) DO UPDATE SET
    canonical_name = EXCLUDED.canonical_name, name_norm = EXCLUDED.name_norm, external_ref = EXCLUDED.external_ref,
    properties = EXCLUDED.properties, updated_at = EXCLUDED.updated_at
WHERE (e.canonical_name, e.external_ref, e.properties)
      IS DISTINCT FROM (EXCLUDED.canonical_name, EXCLUDED.external_ref, EXCLUDED.properties)

-- name: learn
-- Aliases: new ones, and those that are used again, which grow surer (seed 004: × 1.02 up to 0.98). A user's only of a user that
-- there is. What the user said outright stays so, where it was first learned, and the last ten choices.
INSERT INTO agent_data.entity_aliases AS a (
    user_id, tenant_id, alias_norm, entity_id, alias_text, alias_source, confidence, metadata, created_at, last_used_at)
SELECT x.user_id, $1, x.norm, x.entity_id, x.alias, x.source, x.confidence, x.metadata, $2, $2
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::real[], $9::jsonb[])
     x (user_id, norm, entity_id, alias, source, confidence, metadata)
WHERE x.user_id = '00000000-0000-0000-0000-000000000000'
   OR EXISTS (SELECT FROM agent_data.users u WHERE u.tenant_id = $1 AND u.user_id = x.user_id)
ORDER BY x.user_id DESC, x.norm, x.entity_id
ON CONFLICT (user_id, tenant_id, alias_norm, entity_id) DO UPDATE SET
    use_count = a.use_count + 1,
    confidence = GREATEST(LEAST($10::real, a.confidence * $11::real),
                          CASE WHEN EXCLUDED.alias_source = 'user_stated' THEN EXCLUDED.confidence ELSE 0 END),
    alias_source = CASE WHEN EXCLUDED.alias_source = 'user_stated' THEN 'user_stated' ELSE a.alias_source END,
    metadata = a.metadata || (EXCLUDED.metadata - 'learned_from') || CASE
        WHEN a.metadata ? 'disambiguation_history' AND EXCLUDED.metadata ? 'disambiguation_history'
        THEN jsonb_build_object('disambiguation_history', jsonb_path_query_array(
            (a.metadata -> 'disambiguation_history') || (EXCLUDED.metadata -> 'disambiguation_history'), '$[last - 9 to last]'))
        ELSE '{}' END,
    last_used_at = GREATEST(a.last_used_at, EXCLUDED.last_used_at)

-- name: unstate
-- What else a user once said that these words mean is learned, no more: the last word counts.
UPDATE agent_data.entity_aliases a SET alias_source = 'learned'
FROM unnest($3::text[], $4::text[]) x (norm, entity_id)
WHERE a.tenant_id = $1 AND a.user_id = $2 AND a.alias_norm = x.norm AND a.entity_id <> x.entity_id
  AND a.alias_source = 'user_stated'

-- name: refer
-- Things were spoken of, just now; noted at most once a while ($5), for everybody's things are spoken of all the time.
UPDATE agent_data.canonical_entities e SET last_referenced = $3::timestamptz
FROM (
    SELECT h.user_id, h.entity_id FROM agent_data.canonical_entities h
    WHERE h.tenant_id = $1 AND h.user_id IN ($2, '00000000-0000-0000-0000-000000000000') AND h.entity_id = ANY ($4::text[])
      AND (h.last_referenced IS NULL OR h.last_referenced < $3::timestamptz - $5::interval)
    ORDER BY h.user_id, h.entity_id
    FOR UPDATE SKIP LOCKED
) x
WHERE e.tenant_id = $1 AND e.user_id = x.user_id AND e.entity_id = x.entity_id

-- name: page
-- Things that a user sees ($2; nil: those of the tenant alone), by id, after $5: of type $3, whose name has the words $4. An entity
-- that another user named is the tenant's, too, but no other user sees it.
SELECT x.* FROM (
    SELECT DISTINCT ON (e.entity_id) e.entity_id, e.user_id, e.entity_type, e.canonical_name, e.name_norm, e.external_ref,
           e.properties, e.last_referenced, e.created_at, e.updated_at
    FROM agent_data.canonical_entities e
    WHERE e.tenant_id = $1 AND e.user_id IN ($2, '00000000-0000-0000-0000-000000000000')
      AND ($3::text IS NULL OR e.entity_type = $3) AND ($5::text IS NULL OR e.entity_id > $5)
      AND (e.matches_by_name OR $2 = '00000000-0000-0000-0000-000000000000')
    ORDER BY e.entity_id, e.user_id DESC  -- the user's own before the tenant's, whose user is nil
) x
WHERE $4::text IS NULL OR strpos(x.name_norm, $4) > 0
ORDER BY x.entity_id
LIMIT $6

-- name: one
-- A thing that a user sees: the user's own, else the tenant's.
SELECT e.entity_id, e.user_id, e.entity_type, e.canonical_name, e.external_ref, e.properties, e.last_referenced, e.created_at,
       e.updated_at
FROM agent_data.canonical_entities e
WHERE e.tenant_id = $1 AND e.user_id IN ($2, '00000000-0000-0000-0000-000000000000') AND e.entity_id = $3
ORDER BY e.user_id DESC
LIMIT 1

-- name: create
-- A thing made by hand; no row where there is one of that id already.
INSERT INTO agent_data.canonical_entities (
    user_id, tenant_id, entity_id, entity_type, canonical_name, name_norm, properties, created_at, updated_at)
VALUES ($2, $1, $3, $4, $5, $6, $7, $8, $8)
ON CONFLICT DO NOTHING
RETURNING entity_id

-- name: change
-- Changes the name or the properties (NULL: as they are). A name that an operator writes matches from then on.
UPDATE agent_data.canonical_entities SET
    canonical_name = COALESCE($4, canonical_name), name_norm = COALESCE($5, name_norm),
    matches_by_name = matches_by_name OR $4 IS NOT NULL,
    properties = COALESCE($6::jsonb, properties), updated_at = $7
WHERE tenant_id = $1 AND user_id = $2 AND entity_id = $3
RETURNING entity_id

-- name: delete
-- Takes a thing away.
DELETE FROM agent_data.canonical_entities WHERE tenant_id = $1 AND user_id = $2 AND entity_id = $3 RETURNING entity_id

-- name: delete_aliases_of
-- What a thing that is gone was called: by its user, or, of the tenant's, by all who have no such thing of their own.
DELETE FROM agent_data.entity_aliases a
WHERE a.tenant_id = $1 AND a.entity_id = $3
  AND ($2::uuid = '00000000-0000-0000-0000-000000000000' OR a.user_id = $2)
  AND NOT EXISTS (SELECT FROM agent_data.canonical_entities e
                  WHERE e.tenant_id = $1 AND e.entity_id = $3 AND e.user_id IN (a.user_id, '00000000-0000-0000-0000-000000000000'))

-- name: aliases
-- What a thing is called: by the whole tenant and by a user ($2), in the order of the words.
SELECT a.alias_id, a.user_id, a.entity_id, a.alias_norm, a.alias_text, a.alias_source, a.confidence, a.use_count, a.metadata, a.created_at,
       a.last_used_at
FROM agent_data.entity_aliases a
WHERE a.tenant_id = $1 AND a.user_id IN ($2, '00000000-0000-0000-0000-000000000000') AND a.entity_id = $3
  AND ($4::text IS NULL OR (a.alias_norm, a.user_id) > ($4, $5::uuid))
ORDER BY a.alias_norm, a.user_id
LIMIT $6

-- name: delete_alias
-- Takes an alias of a thing away; whose it was must be said.
DELETE FROM agent_data.entity_aliases
WHERE tenant_id = $1 AND user_id = $2 AND entity_id = $3 AND alias_id = $4
RETURNING alias_id

-- name: forget_aliases
-- Aliases that have faded; see the function.
SELECT agent_data.forget_aliases($1, $2, $3, $4, $5)

-- name: alias_of
-- What these words of a user (nil: of the tenant) are to a thing.
SELECT a.alias_id, a.user_id, a.entity_id, a.alias_norm, a.alias_text, a.alias_source, a.confidence, a.use_count, a.metadata,
       a.created_at, a.last_used_at
FROM agent_data.entity_aliases a
WHERE a.tenant_id = $1 AND a.user_id = $2 AND a.entity_id = $3 AND a.alias_norm = $4

-- name: owner_of_alias
-- Whose an alias of a thing is, of those that a user sees.
SELECT a.user_id FROM agent_data.entity_aliases a
WHERE a.tenant_id = $1 AND a.user_id IN ($2, '00000000-0000-0000-0000-000000000000') AND a.entity_id = $3 AND a.alias_id = $4
