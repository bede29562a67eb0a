#!/bin/sh
# Makes deploy/secrets/ for docker-compose.yml: random passwords, each in a file of its own. What is there already stays.
# The folder is the operator's alone; the files in it are readable, because Compose mounts them as they are, and each container
# has a user of its own.
set -eu
umask 022
cd "$(dirname "$0")"
mkdir -p secrets
chmod 0700 secrets
cd secrets

make_password() {
    [ -s "$1" ] || LC_ALL=C tr -dc 'A-Za-z0-9' < /dev/urandom | head -c 40 > "$1"
}

for name in postgres mneme_direct mneme_pooled mneme_monitor mneme_replica pgbouncer_stats grafana_admin; do
    make_password "${name}_password"
done

[ -s pgbouncer_userlist ] || cat > pgbouncer_userlist << END
"mneme_pooled" "$(cat mneme_pooled_password)"
"pgbouncer_stats" "$(cat pgbouncer_stats_password)"
END

[ -s pgbouncer_exporter.env ] || cat > pgbouncer_exporter.env << END
PGBOUNCER_EXPORTER_CONNECTION_STRING=postgres://pgbouncer_stats:$(cat pgbouncer_stats_password)@pgbouncer:6432/pgbouncer?sslmode=disable
END

# Mneme reads it as its settings file (docs/reference/settings.md); add the upstream and its key here.
[ -s mneme.toml ] || cat > mneme.toml << END
database_url = "postgresql://mneme_pooled:$(cat mneme_pooled_password)@pgbouncer:6432/mneme"
database_direct_url = "postgresql://mneme_direct:$(cat mneme_direct_password)@postgres:5432/mneme"
# With docker-compose.replicas.yml:
# database_history_url = "postgresql://mneme_pooled:$(cat mneme_pooled_password)@postgres-replica-1,postgres-replica-2/mneme"
# database_memory_url = "postgresql://mneme_pooled:$(cat mneme_pooled_password)@postgres-replica-1,postgres-replica-2/mneme"
# upstream_base_url = "http://vllm:8000/v1"
# upstream_api_key = "sk-..."
END
echo "deploy/secrets is ready: name the upstream in deploy/secrets/mneme.toml"
