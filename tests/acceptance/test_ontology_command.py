"""`mneme ontology` and the doctor, as an operator types them, on the sample domain."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.database import connected
from tests.support.sample_domain import ONTOLOGY_YAML, SAMPLE, SampleDomain, sample_domain
from tests.support.server import MnemeServer

pytestmark = pytest.mark.heavy

ONTOLOGY = str(SAMPLE / "ontology.yaml")
SECRET = "se-cret-word"


@pytest.fixture(scope="module")
async def sample(postgres_server: str) -> AsyncIterator[SampleDomain]:
    async with sample_domain(postgres_server) as found:
        yield found


@pytest.fixture(scope="module")
def settings(sample: SampleDomain) -> dict[str, str]:
    nobody = f"postgresql://mneme_reader:{SECRET}@127.0.0.1:1/erp"
    domains = {
        "erp": {"dsn": sample.dsn, "statement_timeout_ms": 10_000},
        "own": {"dsn": sample.owner, "tenants": ["acme"]},
        "gone": {"dsn": nobody, "tenants": []},
    }
    return {"MNEME_DOMAINS": json.dumps(domains)}


def test_a_draft_loads_as_it_is(mneme: MnemeServer, tmp_path: Path) -> None:
    shown = mneme.command("ontology", "draft", "--domain", "erp")
    assert (shown.returncode, "  customer:\n    table: domain.customers\n" in shown.stdout) == (0, True), shown.stderr
    file = tmp_path / "erp.yaml"
    done = mneme.command("ontology", "draft", "--domain", "erp", "--out", str(file), "--json")
    assert json.loads(done.stdout) == {"file": str(file), "types": 7, "relations": 7}
    assert file.read_text() == shown.stdout
    checked = mneme.command("ontology", "check", str(file))
    assert (checked.returncode, checked.stdout) == (0, "Good.\n"), checked.stdout
    loaded = mneme.command("ontology", "load", str(file), "--json")
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout)["types"] == 7


def test_the_sample_is_checked_loaded_and_served(mneme: MnemeServer) -> None:
    assert mneme.command("ontology", "check", ONTOLOGY, "--json").stdout == "[]\n"
    done = mneme.command("ontology", "load", ONTOLOGY)
    assert (done.returncode, "7 types, 7 relations." in done.stdout) == (0, True), done.stderr
    (domain,) = mneme.http.get("/api/v1/ontology").json()["domains"]
    assert (domain["domain"], domain["source"]) == ("erp", ONTOLOGY_YAML)
    findings = json.loads(mneme.command("doctor", "--json").stdout)
    said = {each["what"]: each["level"] for each in findings}
    assert said["The domain erp answers, as mneme_reader."] == "ok"
    assert said["The ontology of erp (tenant local) fits its 7 tables; 0 warnings."] == "ok"
    assert any("superuser in own" in what and level == "error" for what, level in said.items())
    assert said["The ontology of own (tenant acme) is not loaded."] == "warning"
    assert any("gone gives no answer: unreachable" in what and level == "error" for what, level in said.items())
    assert SECRET not in json.dumps(findings)


async def test_a_table_that_has_changed_is_refused_with_the_line(mneme: MnemeServer, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute("ALTER TABLE domain.payments RENAME COLUMN paid_at TO settled_at")
        try:
            done = mneme.command("ontology", "check", ONTOLOGY)
            refused = mneme.command("ontology", "load", ONTOLOGY)
            offline = mneme.command("ontology", "check", ONTOLOGY, "--offline")
        finally:
            await owner.execute("ALTER TABLE domain.payments RENAME COLUMN settled_at TO paid_at")
    line = ONTOLOGY_YAML.partition("time: paid_at")[0].count("\n") + 1
    assert done.returncode == 1
    assert done.stdout.startswith(f"{ONTOLOGY}:{line}:11: error: domain.payments has no column paid_at")
    assert refused.returncode == 1
    assert offline.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["check", str(SAMPLE / "schema.sql")], 1, "schema.sql:"),
        (["check", "gone.yaml"], 2, "does not exist"),
        (["check", ONTOLOGY, "--tenant", "acme"], 1, "no domain erp of the tenant acme"),
        (["load", ONTOLOGY, "--tenant", "nobody", "--offline"], 1, "no tenant 'nobody'"),
        (["draft", "--domain", "nothing"], 1, "no domain nothing; it has erp"),
        (["draft"], 2, "--domain"),
        (["draft", "--domain", "erp", "--json"], 2, "--json needs --out"),
        (["draft", "--domain", "gone"], 1, "unreachable"),
    ],
)
def test_what_fails_says_why(mneme: MnemeServer, arguments: list[str], code: int, told: str) -> None:
    done = mneme.command("ontology", *arguments)
    assert done.returncode == code
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr
