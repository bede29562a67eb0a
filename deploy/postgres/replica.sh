#!/bin/sh
# A standby called $REPLICA of the server $PRIMARY: copied from it when the data folder is empty. WAL that the primary has no longer
# comes from the archive, so that no slot keeps any for a standby that is gone. Once promoted it stays a primary.
set -eu
: "${PGDATA:?the data folder}" "${REPLICA:?the name of this standby}"
primary=${PRIMARY:-postgres}
port=${PRIMARY_PORT:-5432}
config=${CONFIG:-/etc/postgresql/postgresql.conf}
passwords=${TMPDIR:-/tmp}/replica.pgpass

umask 077
printf '*:*:*:mneme_replica:%s\n' "$(cat "${SECRETS:-/run/secrets}/mneme_replica_password")" > "$passwords"

# Beside the folder, for a copy of this standby would have it, too.
copied="${PGDATA%/}.copied"
if [ ! -e "$copied" ]; then
    mkdir -p "$PGDATA"
    # Half a copy is none.
    find "$PGDATA" -mindepth 1 -delete
    PGPASSFILE=$passwords pg_basebackup --host="$primary" --port="$port" --username=mneme_replica --pgdata="$PGDATA" \
        --wal-method=stream --checkpoint=fast
    touch "$PGDATA/standby.signal" "$copied"
fi

exec postgres -c config_file="$config" -c cluster_name="$REPLICA" -c restore_command='cp /archive/%f %p' \
    -c primary_conninfo="host=$primary port=$port user=mneme_replica passfile=$passwords" "$@"
