-- What the catalog of a business's own database says. Any Postgres answers these, whoever asks; they read no table of the business's.

-- name: tables
-- The tables of these schemas (NULL: by the search path) and names, in their order: whether there is one, whether we may read it, and
-- whether we could write into it or change it, by right, by ownership or as superuser.
SELECT w.n::int AS n, c.oid::bigint AS oid, has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT') AS may_read,
       has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') OR has_any_column_privilege(c.oid, 'INSERT, UPDATE')
       OR pg_has_role(c.relowner, 'USAGE') OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS may_write,
       has_schema_privilege(s.oid, 'USAGE') AS may_enter
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (schema, name, n)
JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE CASE WHEN w.schema IS NULL THEN pg_table_is_visible(c.oid) ELSE s.nspname = w.schema END

-- name: columns
-- The columns of tables (by oid) that we may read: the name of each one's type in pg_type, of a domain that of what it is made of, and
-- whether an index begins with it.
SELECT a.attrelid::bigint AS oid, a.attname::text AS name, (CASE WHEN t.typcategory = 'A' THEN e.typname ELSE b.typname END)::text AS type,
       t.typcategory = 'A' AND t.typelem <> 0 AS is_array,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indkey[0] = a.attnum) AS indexed
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = t.typelem
WHERE a.attrelid = ANY ($1::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')

-- name: writer
-- Whether our role could write anything at all because it is a superuser, and its name.
SELECT current_user::text AS role, rolsuper AS is_superuser FROM pg_roles WHERE rolname = current_user

-- name: own_tables
-- Every table that we may read, outside the system's schemas, with its comment and its primary key's columns in order; partitions go
-- with their parents.
SELECT c.oid::bigint AS oid, s.nspname::text AS schema, c.relname::text AS name, obj_description(c.oid, 'pg_class') AS comment,
       (SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary) AS key
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND s.nspname NOT LIKE 'pg\_%'
  AND s.nspname NOT IN ('information_schema', 'agent_data') AND has_schema_privilege(s.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY s.nspname, c.relname LIMIT $1

-- name: own_columns
-- The columns of tables (by oid), in their order, with their comments.
SELECT a.attrelid::bigint AS oid, a.attname::text AS name, b.typname::text AS type, t.typcategory = 'A' AND t.typelem <> 0 AS is_array,
       col_description(a.attrelid, a.attnum) AS comment
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = ANY ($1::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum

-- name: foreign_keys
-- The foreign keys between these tables: the columns of each end in their order, and whether those that refer are unique, so that the
-- relation is one to one.
SELECT c.conname::text AS name, c.conrelid::bigint AS child, c.confrelid::bigint AS parent,
       (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(c.conkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum) AS child_columns,
       (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(c.confkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum) AS parent_columns,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indisunique AND i.indnkeyatts = cardinality(c.conkey)
               AND i.indkey::smallint[] @> c.conkey) AS is_unique
FROM pg_constraint c
WHERE c.contype = 'f' AND c.conparentid = 0 AND c.conrelid = ANY ($1::bigint[]::oid[]) AND c.confrelid = ANY ($1::bigint[]::oid[])
ORDER BY c.conrelid, c.conname
