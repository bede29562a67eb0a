-- Tells the coordinator who belongs to its cluster, once, before distribute.sql. More nodes later: `citus_add_node`, and then
-- `citus_rebalance_start()`.
CREATE EXTENSION IF NOT EXISTS citus;
SELECT citus_set_coordinator_host('node-0', 5432);
SELECT citus_add_node('node-1', 5432);
SELECT citus_add_node('node-2', 5432);
