"""One server, two tenants, two businesses: a question reaches its own business's database alone, and writes nothing there."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

from tests.support.clients import prompt_of
from tests.support.database import connected
from tests.support.sample_domain import ONTOLOGY_YAML, SampleDomain, sample_domain
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.tcp_proxy import TcpProxy
from tests.support.worked_example import ONTOLOGY, SEPTEMBER, UNHURRIED, WHO, Tenant, domains, queried

WRITES = [
    "INSERT INTO domain.customers (customer_id, name) VALUES ('evil', 'Evil')",
    "UPDATE domain.customers SET payment_terms = 'NET90'",
    "DELETE FROM domain.payments",
    "TRUNCATE domain.payments",
    "CREATE TABLE domain.evil (id int)",
    "CREATE TABLE public.evil (id int)",
    "CREATE TEMP TABLE evil (id int)",
    "CREATE SCHEMA evil",
    "ALTER TABLE domain.customers ADD COLUMN evil int",
    "DROP TABLE domain.payments",
    "COPY domain.customers (customer_id, name) FROM PROGRAM 'echo evil,Evil'",
    "COPY domain.customers TO PROGRAM 'cat'",
    "SELECT * FROM domain.customers FOR UPDATE",
    "GRANT ALL ON domain.customers TO mneme_reader",
    "SET ROLE postgres",
]
"""What a reader must not do."""
ONLY_READ_ONLY = {"CREATE TEMP TABLE evil (id int)", "GRANT ALL ON domain.customers TO mneme_reader"}
"""Refused by the read-only transaction alone: a table of one's own session is no row of the business, and a GRANT of what one
does not have grants nothing, with a warning."""


class Watched(NamedTuple):
    """A business, and the only way to it, which counts."""

    sample: SampleDomain
    way: TcpProxy
    dsn: str


def through(stack: ExitStack, sample: SampleDomain) -> Watched:
    parts = urlsplit(sample.dsn)
    place = {name: values[0] for name, values in parse_qs(parts.query).items()}
    way = stack.enter_context(TcpProxy(f"{place['host']}/.s.PGSQL.{place['port']}"))
    login = parts.netloc.rpartition("@")[0]
    return Watched(sample, way, urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{way.port}", query="")))


WORKER = True


@pytest.fixture(scope="module")
async def samples(postgres_server: str) -> AsyncIterator[tuple[SampleDomain, SampleDomain]]:
    async with sample_domain(postgres_server) as one, sample_domain(postgres_server) as two:
        async with connected(two.owner) as owner:
            await owner.execute(
                "UPDATE domain.sales_orders SET so_id = 'SO-9045', total_amount = 777 WHERE so_id = 'SO-1060'"
            )
            await owner.execute("UPDATE domain.customers SET name = 'Secret Partners' WHERE customer_id = 'gail_456'")
        yield one, two


@pytest.fixture(scope="module")
def watched(samples: tuple[SampleDomain, SampleDomain]) -> Iterator[tuple[Watched, Watched]]:
    with ExitStack() as stack:
        yield through(stack, samples[0]), through(stack, samples[1])


@pytest.fixture(scope="module")
async def pen(samples: tuple[SampleDomain, SampleDomain]) -> AsyncIterator[str]:
    """The second business as a role that may write a little."""
    role = f"mneme_pen_{secrets.token_hex(4)}"
    parts = urlsplit(samples[1].owner)
    async with connected(samples[1].owner) as owner:
        await owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'change-me' IN ROLE mneme_reader")
        await owner.execute(f"GRANT UPDATE (payment_terms) ON domain.customers TO {role}")
        yield urlunsplit(parts._replace(netloc=f"{role}:change-me@{parts.netloc.rpartition('@')[2]}"))
        await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.fixture(scope="module")
def settings(watched: tuple[Watched, Watched], pen: str) -> dict[str, str]:
    one, two = watched
    return UNHURRIED | {
        "DOMAINS": domains(
            erp=(one.dsn, ["one"]), crm=(two.dsn, ["two"]), own=(two.sample.owner, ["own"]), pen=(pen, ["pen"])
        )
    }


@pytest.mark.heavy
def test_a_question_reaches_its_own_business_alone(
    mneme: MnemeServer,
    upstream: ScriptedUpstream,
    watched: tuple[Watched, Watched],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("crm") / "crm.yaml"
    file.write_text(ONTOLOGY_YAML.replace("domain: erp", "domain: crm"))
    tenants = Tenant(mneme, "one"), Tenant(mneme, "two", str(file))
    named = (
        "Tell me about Gai Media, Secret Partners and SO-9045",
        "Tell me about Gai Media, Gail Industries and SO-1060",
    )
    for n, (mine, other) in enumerate(((0, 1), (1, 0))):
        before = watched[other].way.asked
        began = watched[mine].way.asked
        asked = tenants[mine].chat(SEPTEMBER, "one")
        assert queried(asked)[1:] == [("sales_order", ["2024-09-01", "2024-09-30"], 2), ("work_order", None, 3)]
        tenants[mine].chat("Remember, Gai Media's payment terms are NET30", "one")
        told = tenants[mine].chat(named[n], "two")
        assert [each["canonical_id"] for each in told["entities_resolved"] if each["canonical_id"]] == [
            "customer:gai_123"
        ]
        assert "777" not in prompt_of(upstream.requests[-1])
        assert watched[mine].way.asked > began, "its own was asked"
        assert watched[other].way.asked == before, "nobody came to the other's domain"
        sources = {each["domain"] for each in tenants[mine].explained(told["metadata"]["call_id"])["domain"]["queries"]}
        assert sources == {("erp", "crm")[mine]}

    # An ontology that names another's domain is refused when it is loaded, and where it was loaded past it, asks nothing.
    refused = mneme.command("ontology", "load", ONTOLOGY, "--tenant", "two")
    assert refused.returncode == 1
    assert "no domain erp of the tenant two" in refused.stdout + refused.stderr
    before = watched[0].way.asked
    file.write_text("domain: erp\ntypes:\n  client: {table: domain.customers, key: customer_id, title: name}\n")
    forced = mneme.command("ontology", "load", str(file), "--tenant", "two", "--offline")
    tenants[1].chat("What about Gai Media and its orders?", "three")
    assert forced.returncode == 0, forced.stderr
    assert watched[0].way.asked == before


@pytest.mark.parametrize("read_only", [True, False], ids=["as it is", "its read-only default switched off"])
async def test_the_role_can_write_nothing(samples: tuple[SampleDomain, SampleDomain], read_only: bool) -> None:
    one, _ = samples
    async with connected(one.dsn) as reader:
        if not read_only:
            await reader.execute("SET default_transaction_read_only = off")
        for statement in WRITES:
            if not read_only and statement in ONLY_READ_ONLY:
                continue
            with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError,
                                asyncpg.InvalidParameterValueError)):  # fmt: skip
                await reader.execute(statement)
        rights = (
            "SELECT bool_or(has_table_privilege(c.oid, p)) FROM pg_class c, unnest($1::text[]) AS p WHERE relkind = 'r'"
        )
        mine = rights + " AND relnamespace = 'domain'::regnamespace"
        assert await reader.fetchval(mine, ["INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"]) is False
        assert await reader.fetchval("SELECT count(*) FROM domain.customers") == 3
        assert (
            await reader.fetchval("SELECT payment_terms FROM domain.customers WHERE customer_id = 'gai_123'") == "NET15"
        )


@pytest.mark.heavy
def test_a_writer_is_not_asked_and_the_doctor_says_so(
    mneme: MnemeServer, upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A superuser, and a role that may change one column of one table."""
    told = {"own": "is a superuser in own: nothing is asked there", "pen": "could write to domain.customers"}
    for domain, why in told.items():
        file = tmp_path_factory.mktemp(domain) / f"{domain}.yaml"
        file.write_text(ONTOLOGY_YAML.replace("domain: erp", f"domain: {domain}"))
        key = mneme.create_key("app", "--tenant", domain)
        refused = mneme.command("ontology", "load", str(file), "--tenant", domain)
        assert refused.returncode == 1
        assert "could write" in refused.stdout + refused.stderr
        forced = mneme.command("ontology", "load", str(file), "--tenant", domain, "--offline")
        assert forced.returncode == 0, forced.stderr
        answer = mneme.http.post(
            "/api/v1/chat",
            json={"message": "What did SO-1045 bring?", "user_id": WHO, "model": "gpt-4o"},
            headers={"authorization": f"Bearer {key}"},
        )
        assert answer.status_code == 200, "an answer there is nevertheless"
        assert answer.json()["response"]["content"] == "All right."
        assert "3500" not in prompt_of(upstream.requests[-1])
        errors = [
            each["what"] for each in json.loads(mneme.command("doctor", "--json").stdout) if each["level"] == "error"
        ]
        assert [each for each in errors if why in each], errors
