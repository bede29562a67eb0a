-- What makes a new embedded PostgreSQL ready, run once in single-user mode before it is ever started.

-- name: create_database
-- Mneme's own database.
CREATE DATABASE mneme

-- name: extension_vector
-- Vectors and their indexes.
CREATE EXTENSION IF NOT EXISTS vector

-- name: extension_pg_trgm
-- Similar names and aliases.
CREATE EXTENSION IF NOT EXISTS pg_trgm

-- name: extension_btree_gin
-- Full text per user in one index.
CREATE EXTENSION IF NOT EXISTS btree_gin

-- name: extension_pgcrypto
-- Keyed hashes.
CREATE EXTENSION IF NOT EXISTS pgcrypto

-- name: extension_pg_stat_statements
-- What each query costs.
CREATE EXTENSION IF NOT EXISTS pg_stat_statements
