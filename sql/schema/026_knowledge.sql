-- What is true (seed 004): which things there are, what they are called, how a business's own tables hang together, and which tables
-- they are. Functions come in 027 and after.

-- Things that are spoken of (seed 004, table 2). `user_id` is nil for those of the whole tenant; a thing that a user alone knows is
-- that user's. A thing need not have a row anywhere.
CREATE TABLE agent_data.canonical_entities (
    user_id         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    tenant_id       uuid NOT NULL,
    entity_id       text NOT NULL,              -- "customer:gai_123": the type, and the key of its row
    entity_type     text NOT NULL,
    canonical_name  text NOT NULL,
    name_norm       text NOT NULL,              -- as mentions are compared (app/knowledge/mentions.py)
    external_ref    jsonb NOT NULL DEFAULT '{}', -- {"domain", "table", "column", "key"}; {}: no row
    properties      jsonb NOT NULL DEFAULT '{}', -- to tell it from others; never an authority
    last_referenced timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, tenant_id, entity_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('canonical_entities', current_setting('mneme.hash_partitions')::int);
CREATE INDEX entities_name ON agent_data.canonical_entities (user_id, tenant_id, name_norm);
CREATE INDEX entities_type ON agent_data.canonical_entities (user_id, tenant_id, entity_type, entity_id);
CREATE INDEX entities_trigram ON agent_data.canonical_entities USING gin (tenant_id, name_norm gin_trgm_ops);

-- What things are called (seed 004, table 3). `user_id` nil: by everybody of the tenant.
CREATE TABLE agent_data.entity_aliases (
    user_id      uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    tenant_id    uuid NOT NULL,
    alias_norm   text NOT NULL,
    entity_id    text NOT NULL,
    alias_id     uuid NOT NULL DEFAULT gen_random_uuid(),
    alias_text   text NOT NULL,
    alias_source text NOT NULL CHECK (alias_source IN ('exact', 'fuzzy', 'learned', 'user_stated', 'domain_db')),
    confidence   real NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    use_count    integer NOT NULL DEFAULT 1,
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, tenant_id, alias_norm, entity_id)
) PARTITION BY HASH (user_id);
SELECT agent_data.make_hash_partitions('entity_aliases', current_setting('mneme.hash_partitions')::int);
CREATE INDEX aliases_entity ON agent_data.entity_aliases (user_id, tenant_id, entity_id);
CREATE INDEX aliases_trigram ON agent_data.entity_aliases USING gin (tenant_id, alias_norm gin_trgm_ops);

-- The ontology of a tenant's domain, as it was loaded. `version` moves with every load.
CREATE TABLE agent_data.ontologies (
    tenant_id uuid NOT NULL,
    domain    text NOT NULL,
    version   bigint NOT NULL DEFAULT 1,
    source    text NOT NULL,                    -- the YAML
    loaded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, domain)
);

-- Types of things and the tables that they stand in: `spec` as app/knowledge/ontology.py writes it.
CREATE TABLE agent_data.ontology_types (
    tenant_id   uuid NOT NULL,
    entity_type text NOT NULL,
    domain      text NOT NULL,
    spec        jsonb NOT NULL,
    PRIMARY KEY (tenant_id, entity_type),
    FOREIGN KEY (tenant_id, domain) REFERENCES agent_data.ontologies ON DELETE CASCADE
);

-- How they relate (seed 004, table 8).
CREATE TABLE agent_data.domain_ontology (
    relation_id        bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id          uuid NOT NULL,
    domain             text NOT NULL,
    from_entity_type   text NOT NULL,
    relation_type      text NOT NULL,
    to_entity_type     text NOT NULL,
    cardinality        text NOT NULL CHECK (cardinality IN ('one_to_one', 'one_to_many', 'many_to_one', 'many_to_many')),
    relation_semantics text NOT NULL,
    join_spec          jsonb NOT NULL,          -- {"from_table", "to_table", "join_on", "columns": [[from, to], …]}
    constraints        jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, relation_id),
    UNIQUE (tenant_id, from_entity_type, relation_type, to_entity_type),
    FOREIGN KEY (tenant_id, domain) REFERENCES agent_data.ontologies ON DELETE CASCADE
);
CREATE INDEX ontology_to ON agent_data.domain_ontology (tenant_id, to_entity_type);

-- Of which thing a contradiction is; NULL: of none that is known. 013 has the rest.
ALTER TABLE agent_data.memory_conflicts ADD COLUMN entity_id text;
CREATE INDEX memory_conflicts_entity ON agent_data.memory_conflicts (user_id, entity_id, created_at DESC)
    WHERE entity_id IS NOT NULL;

SELECT agent_data.protect_tables();
GRANT DELETE ON agent_data.canonical_entities, agent_data.entity_aliases, agent_data.ontologies, agent_data.ontology_types,
    agent_data.domain_ontology TO mneme_app, mneme_definer;
REVOKE UPDATE, DELETE ON agent_data.ontologies, agent_data.ontology_types, agent_data.domain_ontology FROM mneme_eraser;
