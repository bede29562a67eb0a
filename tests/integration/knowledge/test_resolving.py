"""Mentions resolved and learned over the real tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.context.resolution import EarlierMessage, Resolution, Who
from app.errors import StoreUnavailable
from app.features.knowledge.entities import EntityStore, LearnedNames
from app.features.knowledge.jobs import things_of
from app.features.knowledge.ontology import NO_ONTOLOGY
from app.features.knowledge.resolution import chosen
from app.features.knowledge.resolve import Resolver
from app.store.ids import NIL
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.entities import add_alias, add_entity, alias_rows
from tests.support.labelled_mentions import ONTOLOGY, Rows
from tests.support.rows import read_aliases, read_entities, set_config

Admin = asyncpg.Connection
OTHER_TENANT = UUID(int=0xB)
DELTAS = ("customer:delta_2", "customer:delta_1")


@pytest.fixture
def asking(resolver: Resolver, entities: EntityStore, clock: FakeClock) -> Any:
    """Resolves a text."""

    async def ask(
        who: Who, text: str, recent: Sequence[EarlierMessage] = (), *, teach: bool = False, ontology: Any = ONTOLOGY
    ) -> tuple[Resolution, ...]:
        study = await resolver.study(who, text, recent, ontology, now=clock.now())
        if teach:
            await entities.teach(who.tenant, who.user, study.lessons, clock.now())
        return study.resolutions

    return ask


async def everything(admin: Admin[Any]) -> list[str]:
    """All rows of things and aliases, as text."""
    return sorted(map(str, [*await read_entities(admin), *await read_aliases(admin)]))


async def test_the_seeds_example(asking: Any, ana: Who) -> None:
    """Seed 004: "What did Gai Media order last month?" → customer:gai_123, 0.95, known_alias."""
    (found,) = await asking(ana, "What did Gai Media order last month?")
    assert found.entity.id == "customer:gai_123"
    assert found.entity.name == "Gai Media Entertainment"
    assert (found.mention, found.start, found.confidence, found.method) == ("Gai Media", 9, 0.95, "known_alias")


async def test_a_key_is_discovered_once_and_known_from_then_on(
    asking: Any, ana: Who, ben: Who, rows: Rows, admin: Admin[Any]
) -> None:
    """Seed 004: "SO-1001" → order:so_1001, its alias with 0.8, the result 0.95."""
    (found,) = await asking(ana, "Where is SO-1001?", teach=True)
    assert (found.entity.id, found.confidence, found.method) == ("sales_order:so_1001", 0.95, "domain_db")
    (stored,) = await read_entities(admin, entity_id="sales_order:so_1001")
    assert (stored["user_id"], stored["canonical_name"]) == (NIL, "Sales Order SO-1001")
    assert json.loads(stored["external_ref"]) == {
        "domain": "erp",
        "table": "sales_orders",
        "column": "id",
        "key": "SO-1001",
    }
    (alias,) = await alias_rows(admin, "SO-1001")
    assert (alias["user_id"], alias["alias_source"], alias["use_count"]) == (NIL, "domain_db", 1)
    assert alias["confidence"] == pytest.approx(0.8)

    rows.asked.clear()
    (again,) = await asking(ben, "and so-1001?", teach=True)
    assert (again.entity.id, again.method) == ("sales_order:so_1001", "known_alias")
    assert rows.asked == []
    (alias,) = await alias_rows(admin, "SO-1001")
    assert (alias["use_count"], alias["alias_source"]) == (2, "domain_db")
    assert alias["confidence"] == pytest.approx(0.8 * 1.02)


async def test_looking_writes_nothing(asking: Any, ana: Who, admin: Admin[Any]) -> None:
    before = await everything(admin)
    for text in ("Where is SO-1001?", "Did Helios call?", "Acme Corporaton paid.", "Did Orion sign?", "Gai Media?"):
        assert await asking(ana, text)
    assert await everything(admin) == before


async def test_a_slip_is_learned_for_its_user_alone(asking: Any, ana: Who, ben: Who, admin: Admin[Any]) -> None:
    (found,) = await asking(ana, "Send it to Acme Corporaton.", teach=True)
    assert found.method == "fuzzy"
    assert 0.70 < found.confidence < 0.85
    (alias,) = await alias_rows(admin, "Acme Corporaton")
    assert (alias["user_id"], alias["alias_source"], alias["entity_id"]) == (ana.user, "fuzzy", "customer:acme_1")
    assert alias["confidence"] == pytest.approx(found.confidence)

    assert (await asking(ana, "acme corporaton paid"))[0].method == "known_alias"
    assert await asking(ben, "acme corporaton paid") == (), "in lower case it looks like no name, and Ben never said it"


async def test_use_makes_an_alias_surer_up_to_a_bound(asking: Any, ana: Who, admin: Admin[Any]) -> None:
    """Seed 004: use_count + 1, confidence = LEAST(0.98, confidence * 1.02)."""
    for n in range(1, 4):
        await asking(ana, "Gai Media and gai media again", teach=True)
        (alias,) = await alias_rows(admin, "Gai Media")
        assert alias["use_count"] == 1 + n, "a message uses it once"
        assert alias["confidence"] == pytest.approx(min(0.98, 0.95 * 1.02**n))


async def test_an_operator_may_say_how_sure_the_stages_are(
    resolver: Resolver, ana: Who, admin: Admin[Any], pool: Pool, clock: FakeClock
) -> None:
    """What a process read stays until it is started again."""
    shares = {"exact": 0.9, "alias": 0.8, "coreference": 0.5, "choice": 0.7, "domain_key": 0.75, "alias_gain": 1}
    await set_config(admin, "resolution", shares)

    async def sure(text: str, *recent: EarlierMessage) -> list[tuple[float, str | None]]:
        found = await anew.study(ana, text, recent, ONTOLOGY, now=clock.now())
        await entities.teach(ana.tenant, ana.user, found.lessons, clock.now())
        return [(each.confidence, each.method) for each in found.resolutions]

    entities = EntityStore(pool, Queries.load(), clock)
    anew = Resolver(entities, Rows(), clock)
    assert await sure("What did Gai Media order?") == [(0.8, "known_alias")]
    (alias,) = await alias_rows(admin, "Gai Media")
    assert alias["confidence"] == pytest.approx(0.95), "no use makes it surer"
    assert await sure("And they?", EarlierMessage("user", "Gai Media Entertainment called.")) == [(0.5, "coreference")]
    assert await sure("Gai Media Entertainment called about SO-1001.") == [(0.9, "exact"), (0.75, "domain_db")]
    delta = EarlierMessage("user", "Delta called.")
    assert await sure("The second one.", delta) == [(0.7, "disambiguation")]
    await set_config(admin, "resolution", {"exact": 0.2})
    assert await sure("Gai Media Entertainment called.") == [(0.9, "exact")]


async def test_nobodys_sessions_know_what_the_tenant_knows_and_teach_nothing_of_users(
    asking: Any, ana: Who, admin: Admin[Any]
) -> None:
    nobody = Who(ana.tenant, None)
    (found,) = await asking(nobody, "Jumbo called.")
    assert found.entity.id == "customer:north_1", "Ana calls another one so"
    before = len(await read_aliases(admin)) - len(await read_aliases(admin, user_id=NIL))
    await asking(nobody, "Acme Corporaton called about SO-1001.", teach=True)
    assert len(await read_aliases(admin)) - len(await read_aliases(admin, user_id=NIL)) == before
    assert await alias_rows(admin, "SO-1001")


async def test_tenants_and_users_are_apart(asking: Any, ana: Who, ben: Who, admin: Admin[Any]) -> None:
    await add_entity(admin, OTHER_TENANT, "customer:secret", "Secret Partner")
    await add_alias(admin, OTHER_TENANT, "SP", "customer:secret")
    await add_entity(admin, ana.tenant, "project:x", "Project Xenon", ana.user)
    await add_alias(admin, ana.tenant, "PX", "project:x", ana.user)
    # Another tenant's user with Ana's id, which cannot be, still sees nothing of hers.
    stranger = Who(OTHER_TENANT, ana.user)

    for text in ("Project Xenon", "PX", "Project Xenonn", "Project"):
        assert [each.entity.id for each in await asking(ana, text, ontology=NO_ONTOLOGY)] == ["project:x"], text
        for who in (ben, Who(ana.tenant, None), stranger):
            assert await asking(who, text, ontology=NO_ONTOLOGY) == (), (who, text)
    for text in ("Secret Partner", "SP", "Secret Partnr"):
        assert await asking(ana, text, ontology=NO_ONTOLOGY) == ()
        assert (await asking(Who(OTHER_TENANT, None), text, ontology=NO_ONTOLOGY))[0].entity.id == "customer:secret"


async def test_an_alias_of_another_users_thing_means_nothing(
    asking: Any, ana: Who, ben: Who, admin: Admin[Any]
) -> None:
    await add_entity(admin, ana.tenant, "project:x", "Project Xenon", ana.user)
    await add_alias(admin, ana.tenant, "the big one", "project:x")
    assert (await asking(ana, "how is the big one"))[0].entity.id == "project:x"
    assert await asking(ben, "how is the big one") == ()


async def test_a_choice_is_kept_and_the_last_one_counts(asking: Any, ana: Who, ben: Who, admin: Admin[Any]) -> None:
    (asked,) = await asking(ana, "Has Delta paid?", teach=True)
    assert asked.requires_disambiguation
    assert asked.entity is None
    assert tuple(each.entity.id for each in asked.alternatives) == DELTAS
    assert await alias_rows(admin, "Delta") == []

    recent = [
        EarlierMessage("user", "Has Delta paid?"),
        EarlierMessage("assistant", "Delta Foods or Delta Industries?"),
    ]
    (chosen,) = await asking(ana, "The second one.", recent, teach=True)
    assert (chosen.entity.id, chosen.confidence, chosen.method) == (DELTAS[1], 0.85, "disambiguation")
    (alias,) = await alias_rows(admin, "Delta")
    assert (alias["user_id"], alias["alias_source"], alias["alias_text"]) == (ana.user, "user_stated", "Delta")
    assert json.loads(alias["metadata"])["disambiguation_context"]["alternative_entities"] == [DELTAS[0]]

    (known,) = await asking(ana, "And what does Delta owe?")
    assert (known.entity.id, known.method) == (DELTAS[1], "known_alias")
    assert (await asking(ben, "And what does Delta owe?"))[0].requires_disambiguation, "Ana's choice is hers"

    await asking(ana, "Has Delta paid?", teach=True)
    await add_alias(admin, ana.tenant, "Delta", DELTAS[0], ana.user, source="user_stated", confidence=0.85)
    assert (await asking(ana, "Has Delta paid?"))[0].requires_disambiguation
    await asking(
        ana, "foods", [EarlierMessage("user", "Has Delta paid?"), EarlierMessage("assistant", "Which one?")], teach=True
    )
    found = {row["entity_id"]: row["alias_source"] for row in await alias_rows(admin, "Delta")}
    assert found == {DELTAS[0]: "user_stated", DELTAS[1]: "learned"}
    assert (await asking(ana, "Has Delta paid?"))[0].entity.id == DELTAS[0]


async def test_each_choice_is_noted_up_to_the_last_ten(
    pool: Pool, ana: Who, admin: Admin[Any], clock: FakeClock
) -> None:
    store = EntityStore(pool, Queries.load(), clock)
    for _ in range(12):
        clock.move(timedelta(days=1))
        choice = chosen("Delta", DELTAS[0], [DELTAS[1]], clock.now())
        await store.teach(ana.tenant, ana.user, LearnedNames(aliases=(choice,)), clock.now())
    (foods,) = await alias_rows(admin, "Delta")
    noted = json.loads(foods["metadata"])["disambiguation_history"]
    assert [each["alternatives_count"] for each in noted] == [2] * 10
    days = [each["chosen_at"] for each in noted]
    assert days == sorted(set(days))
    assert days[-1] == clock.now().date().isoformat()


async def test_what_the_domain_has_several_of_stays_ambiguous_without_asking_again(
    asking: Any, ana: Who, rows: Rows, clock: FakeClock
) -> None:
    (first,) = await asking(ana, "Did Orion sign?", teach=True)
    assert (first.requires_disambiguation, first.method) == (True, "domain_db")
    rows.asked.clear()
    clock.move(timedelta(hours=1))
    (second,) = await asking(ana, "Did Orion sign?")
    assert (second.requires_disambiguation, second.method) == (True, "known_alias")
    assert [each.entity.id for each in second.alternatives] == [each.entity.id for each in first.alternatives]
    assert rows.asked == []
    (chosen,) = await asking(
        ana,
        "the last one",
        [EarlierMessage("user", "Did Orion sign?"), EarlierMessage("assistant", "Which?")],
        teach=True,
    )
    assert chosen.entity.id == "customer:orion_2"
    assert (await asking(ana, "Did Orion sign?"))[0].entity.id == "customer:orion_2"


async def test_they_are_looked_for_in_ten_messages_and_no_further(asking: Any, ana: Who) -> None:
    def later(number: int) -> list[EarlierMessage]:
        return [EarlierMessage("user", "Gai Media called."), *[EarlierMessage("assistant", "I see.")] * (number - 1)]

    (found,) = await asking(ana, "Do they pay?", later(1))
    assert (found.mention, found.entity.id, found.method) == ("they", "customer:gai_123", "coreference")
    assert found.confidence == pytest.approx(0.60)
    assert (await asking(ana, "Do they pay?", later(3)))[0].confidence == pytest.approx(0.2207, rel=1e-3)
    assert len(await asking(ana, "Do they pay?", later(10))) == 1
    assert await asking(ana, "Do they pay?", later(11)) == ()


async def test_what_is_pointed_to_was_spoken_of(asking: Any, ana: Who, admin: Admin[Any], clock: FakeClock) -> None:
    await asking(ana, "Do they pay?", [EarlierMessage("user", "Gai Media called.")], teach=True)
    spoken_of = await read_entities(admin, last_referenced=clock.now())
    assert [entity["entity_id"] for entity in spoken_of] == ["customer:gai_123"]
    (alias,) = await alias_rows(admin, "Gai Media")
    assert alias["use_count"] == 1, "that was said in another message"


async def test_an_alias_fades_and_is_ranked_so(
    asking: Any, ana: Who, ben: Who, admin: Admin[Any], clock: FakeClock
) -> None:
    old = clock.now() - timedelta(days=200)
    await add_alias(admin, ben.tenant, "boss", "customer:acme_1", ben.user, confidence=0.98, uses=9, last_used_at=old)
    await add_alias(admin, ben.tenant, "boss", "customer:bakery", ben.user, confidence=0.7, last_used_at=clock.now())
    (found,) = await asking(ben, "what does the boss want")
    assert found.entity.id == "customer:bakery"


async def test_a_user_who_is_gone_is_taught_nothing(asking: Any, ana: Who, admin: Admin[Any]) -> None:
    ghost = Who(ana.tenant, UUID(int=0x99))
    (found,) = await asking(ghost, "Acme Corporaton called.", teach=True)
    assert found.method == "fuzzy"
    assert await alias_rows(admin, "Acme Corporaton") == []


async def test_a_lesson_belongs_to_the_callers_transaction(
    resolver: Resolver, pool: Pool, ana: Who, admin: Admin[Any], clock: FakeClock
) -> None:
    study = await resolver.study(ana, "Acme Corporaton and SO-1001", [], ONTOLOGY, now=clock.now())
    assert [each.id for each in things_of(study.resolutions)] == ["customer:acme_1", "sales_order:so_1001"]
    before = await everything(admin)

    async def failing() -> None:
        async with pool.transaction(ana.tenant) as connection:
            await resolver.teach(connection, ana, study.lessons, clock.now())
            raise StoreUnavailable

    with pytest.raises(StoreUnavailable):
        await failing()
    assert await everything(admin) == before
    async with pool.transaction(ana.tenant) as connection:
        await resolver.teach(connection, ana, study.lessons, clock.now())
    assert len(await everything(admin)) == len(before) + 3


async def test_a_users_alias_says_in_which_session_it_was_first_learned(
    resolver: Resolver, pool: Pool, ana: Who, admin: Admin[Any], clock: FakeClock
) -> None:
    study = await resolver.study(ana, "Acme Corporaton and SO-1001", [], ONTOLOGY, now=clock.now())
    for session in (UUID(int=1), UUID(int=2)):
        async with pool.transaction(ana.tenant) as connection:
            await resolver.teach(connection, ana, study.lessons, clock.now(), session)
    (own,) = await alias_rows(admin, "Acme Corporaton")
    assert json.loads(own["metadata"]) == {"learned_from": f"session:{UUID(int=1)}"}
    (everybodys,) = await alias_rows(admin, "SO-1001")
    assert json.loads(everybodys["metadata"]) == {}, "what the whole tenant has names nobody's session"


async def test_two_who_teach_at_once_wait_for_each_other(
    asking: Any, ana: Who, ben: Who, admin: Admin[Any], clock: FakeClock
) -> None:
    texts = ("SO-1001, Gai Media, BMW and Northwind", "Northwind, BMW, Gai Media and SO-1001")
    await asyncio.gather(*(asking(who, text, teach=True) for who in (ana, ben) for text in texts for _ in range(5)))
    for alias in ("Gai Media", "BMW", "Northwind"):
        (row,) = await alias_rows(admin, alias)
        assert row["use_count"] == 21, alias
        assert row["confidence"] == pytest.approx(0.98)
    (row,) = await alias_rows(admin, "SO-1001")
    assert row["use_count"] == 20


async def test_two_choices_at_once(asking: Any, ana: Who, admin: Admin[Any]) -> None:
    recent = [EarlierMessage("user", "Has Delta paid?"), EarlierMessage("assistant", "Which one?")]
    await asyncio.gather(*(asking(ana, text, recent, teach=True) for text in ("the first one", "the second one") * 5))
    stated = [row["entity_id"] for row in await alias_rows(admin, "Delta") if row["alias_source"] == "user_stated"]
    assert 1 <= len(stated) <= 2
    assert set(stated) <= set(DELTAS)


@pytest.mark.parametrize(
    "text",
    [
        "%", "_____", "Gai_Media", "%Gai%", "'; DROP TABLE canonical_entities; --", "\\", "Gai\x00Media\x00",
        "\ud800Acme\udfff", "$1 $2", "{}[]()", "A" * 100_000, "%_" * 50_000, ", ".join(f"Name{n} X{n}" for n in range(10_000)),
        "\u202eGai", "Robert'); DROP", "((((" * 1000, "\n" * 10_000,
    ],
)  # fmt: skip
async def test_hostile_texts_are_harmless(asking: Any, ana: Who, rows: Rows, admin: Admin[Any], text: str) -> None:
    before = await everything(admin)
    found = await asking(ana, text, [EarlierMessage("user", text), EarlierMessage("assistant", text)], teach=True)
    assert len(rows.asked) <= 8
    assert all(each.entity and each.entity.id in ("customer:gai_123", "customer:acme_1") for each in found)
    if not found:
        assert await everything(admin) == before


async def test_a_mention_alone(resolver: Resolver, ana: Who, clock: FakeClock) -> None:
    async def one(mention: str, *recent: EarlierMessage) -> Resolution:
        return await resolver.resolve_mention(ana, mention, recent, ONTOLOGY, now=clock.now())

    assert (await one("acme corporaton")).method == "fuzzy", "in lower case, too"
    assert (await one("so-1001")).entity == (await one("SO-1001")).entity
    assert (await one("they", EarlierMessage("user", "Gai Media called."))).method == "coreference"
    assert (await one("the first one", EarlierMessage("user", "Has Delta paid?"))).method == "disambiguation"
    unknown = await one("Blorb")
    assert (unknown.mention, unknown.entity, unknown.method, unknown.alternatives) == ("Blorb", None, None, ())
    assert (await one("%%%")).entity is None
