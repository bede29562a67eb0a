-- The ontologies of a tenant's domains: as they were loaded, and in parts. All of it in the tenant's own transaction.

-- name: version
-- What moves whenever one of the tenant's ontologies is loaded or taken away; 0: there is none.
SELECT coalesce(sum((extract(epoch FROM o.loaded_at) * 1000000)::bigint), 0)::bigint FROM agent_data.ontologies o WHERE o.tenant_id = $1

-- name: sources
-- Every domain's ontology as it was loaded.
SELECT o.domain, o.version, o.source, o.loaded_at FROM agent_data.ontologies o WHERE o.tenant_id = $1 ORDER BY o.domain

-- name: types
-- Every type of the tenant's domains.
SELECT t.entity_type, t.domain, t.spec FROM agent_data.ontology_types t WHERE t.tenant_id = $1 ORDER BY t.domain, t.entity_type

-- name: relations
-- Every relation, in the order of its file.
SELECT r.relation_id, r.domain, r.from_entity_type, r.relation_type, r.to_entity_type, r.cardinality, r.relation_semantics,
       r.join_spec, r.constraints
FROM agent_data.domain_ontology r WHERE r.tenant_id = $1 ORDER BY r.domain, r.relation_id

-- name: taken
-- Which of the types $3 another domain than $2 has.
SELECT t.entity_type, t.domain FROM agent_data.ontology_types t WHERE t.tenant_id = $1 AND t.domain <> $2 AND t.entity_type = ANY ($3)
ORDER BY t.entity_type LIMIT 1

-- name: put
-- An ontology's file, and its version: one more than before.
INSERT INTO agent_data.ontologies AS o (tenant_id, domain, source, loaded_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, domain) DO UPDATE SET source = EXCLUDED.source, loaded_at = EXCLUDED.loaded_at, version = o.version + 1
RETURNING o.version

-- name: clear_types
-- Takes a domain's types away, before it has new ones.
DELETE FROM agent_data.ontology_types WHERE tenant_id = $1 AND domain = $2

-- name: clear_relations
-- Takes a domain's relations away, before it has new ones.
DELETE FROM agent_data.domain_ontology WHERE tenant_id = $1 AND domain = $2

-- name: put_types
-- A domain's types.
INSERT INTO agent_data.ontology_types (tenant_id, domain, entity_type, spec)
SELECT $1, $2, t.entity_type, t.spec FROM unnest($3::text[], $4::jsonb[]) AS t (entity_type, spec)

-- name: put_relations
-- A domain's relations, in the order of its file.
INSERT INTO agent_data.domain_ontology
    (tenant_id, domain, from_entity_type, relation_type, to_entity_type, cardinality, relation_semantics, join_spec, constraints)
SELECT $1, $2, r.from_type, r.relation, r.to_type, r.cardinality, r.semantics, r.join_spec, r.constraints
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::jsonb[]) WITH ORDINALITY
     AS r (from_type, relation, to_type, cardinality, semantics, join_spec, constraints, n)
ORDER BY r.n

-- name: remove
-- Takes a domain's ontology away, with its types and relations.
DELETE FROM agent_data.ontologies WHERE tenant_id = $1 AND domain = $2 RETURNING domain
