-- Tells the coordinator who belongs to its cluster, once, before distribute.sql. More nodes later: `citus_add_node`, and then
-- `citus_rebalance_start()`.
CREATE EXTENSION IF NOT EXISTS citus;
SELECT citus_set_coordinator_host('postgres', 5432);
SELECT citus_add_node('citus-1', 5432);
SELECT citus_add_node('citus-2', 5432);
