#!/bin/sh
# Looks at everything in deploy/, as `make lint-deploy`. LINT is the folder of the linters that come as packages (deploy/lint.in);
# docker, kubectl and promtool are used where they are, and named where they are not. Ends with 1 if anything was found.
set -u
cd "$(dirname "$0")/.." || exit 1
LINT=${LINT:?the folder of the linters\' programs}
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

look() {
    what=$1
    shift
    if "$@" > "$folder/said" 2>&1; then
        echo "ok       $what"
    else
        failed=1
        echo "FAILED   $what"
        cat "$folder/said"
    fi
}

absent() {
    echo "not here $1: $2 was not looked at"
}

look "hadolint: Dockerfiles" "$LINT/hadolint" Dockerfile deploy/postgres/Dockerfile deploy/pgbouncer/Dockerfile
look "yamllint: deploy, docker-compose.yml" "$LINT/yamllint" --strict -c deploy/yamllint.yml docker-compose.yml docker-compose.replicas.yml deploy
look "shellcheck: scripts" "$LINT/shellcheck" deploy/make-secrets.sh deploy/lint.sh deploy/postgres/replica.sh
look "check-jsonschema: docker-compose.yml" "$LINT/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml \
    docker-compose.replicas.yml

if docker compose version > /dev/null 2>&1; then
    # The files that it names are made elsewhere, not in the operator's folder.
    cp -R docker-compose.yml docker-compose.replicas.yml Dockerfile deploy "$folder/"
    sh "$folder/deploy/make-secrets.sh" > /dev/null
    look "docker compose config" docker compose --project-directory "$folder" --file "$folder/docker-compose.yml" config --quiet
    look "docker compose config, with standbys" docker compose --project-directory "$folder" --file "$folder/docker-compose.yml" \
        --file "$folder/docker-compose.replicas.yml" config --quiet
else
    absent "docker compose" "what Compose makes of docker-compose.yml"
fi

if command -v kubectl > /dev/null; then
    for kustomization in base overlays/production; do
        manifests="$folder/$(basename "$kustomization").yaml"
        look "kustomize: $kustomization" sh -c "kubectl kustomize deploy/kubernetes/$kustomization > $manifests"
        look "kubernetes-validate: $kustomization" "$LINT/kubernetes-validate" --strict "$manifests"
    done
else
    absent kubectl "deploy/kubernetes"
fi

if command -v promtool > /dev/null; then
    look "promtool: config and rules" promtool check config deploy/prometheus/prometheus.yml
    look "promtool: tests of the rules" promtool test rules deploy/prometheus/rules-test.yml
else
    absent promtool "deploy/prometheus"
fi
exit "$failed"
