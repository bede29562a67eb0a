-- A tenant's calls by time, for lists and for the overview (GET /api/v1/overview). Without it the last hour of a small tenant is
-- looked for among everybody's calls. Ids grow with time, so that an entry is put behind the tenant's last one.
CREATE INDEX calls_tenant ON agent_data.upstream_calls (tenant_id, call_id DESC);
