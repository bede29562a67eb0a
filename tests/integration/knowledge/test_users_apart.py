"""One user's words change no other user's meaning: each of two users resolves as if alone (seed 004, table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.context.resolution import EarlierMessage, Who
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.resolution import normalise, stated
from app.features.knowledge.resolve import Resolver
from app.store import ids
from app.store.ids import NIL
from tests.support.clock import FakeClock
from tests.support.entities import add_alias, add_entity, add_user
from tests.support.labelled_mentions import ONTOLOGY, Rows
from tests.support.rows import read_aliases, read_entities, read_users

Admin = asyncpg.Connection
BUSINESS: Sequence[tuple[str, str, str]] = (
    ("customer", "gai_123", "Gai Media Entertainment"),
    ("customer", "gail_9", "Gail Industries"),
    ("customer", "helios", "Helios Energy"),
    ("customer", "orion_1", "Orion Shipping"),
    ("customer", "orion_2", "Orion Textiles"),
    ("customer", "standard", "Standard"),
    ("customer", "zurich", "Zürich Logistik AG"),
    ("customer", "hikari", "株式会社ヒカリ"),
    ("contact", "priya", "Priya Nair"),
    ("product", "AB-100", "Anvil, small"),
    ("sales_order", "SO-1001", "Sales Order SO-1001"),
)
TALKS: dict[str, Sequence[str]] = {
    "exact": ("Gai Media Entertainment called.", "Gai Media Entertainment paid."),
    "part": ("What did Gai Media order last month?", "Is Gai Media late?"),
    "ambiguous": ("What about Gai?", "What does Gai owe?"),
    "choice": ("What about Gai?", "Gail Industries", "And what does Gai owe?"),
    "choice of the other": ("What about Gai?", "The first one.", "And what does Gai owe?"),
    "correction": ("Did Orion sign?", "the last one", "Orion is late.", "Orion Shipping Orion", "Did Orion sign?"),
    "spelling": ("Helios Energy called.", "Helios Energi paid."),
    "spelling at once": ("Helios Energi paid.", "Gai Media Entertainmet paid."),
    "pronoun": ("Helios called.", "Do they pay?", "Does the customer pay?"),
    "common word": ("Is the standard order of Helios out?", "the standard one"),
    "the same word as a name": ("Standard called.", "Did Standard pay?"),
    "nickname": ("What about Priya?", "Ask Priya Nair.", "Priya said yes."),
    "German": ("Hat Zürich Logistik schon bezahlt?", "Was ist mit Gai?", "Und Orion?"),
    "Spanish": ("¿Qué pidió Gai Media?", "¿Y Orion?"),
    "Japanese": ("株式会社ヒカリ に電話した", "株式会社ヒカリ"),
    "an identifier's name": ("Where is Anvil?", "Sales Order is late, says Anvil."),
}
"""Messages of one user in one session, by the way in which they name what they name; no identifiers."""
IDENTIFIERS = ("Where is SO-1001?", "How many AB-100 are left?", "and so-1001?")


class Outcome(NamedTuple):
    """A resolution as a user sees it."""

    mention: str
    entity: str | None
    method: str | None
    confidence: float
    alternatives: tuple[str, ...]


class Speaker:
    """A user who talks; what is said is learned from at once."""

    def __init__(self, who: Who, resolver: Resolver, entities: EntityStore, clock: FakeClock) -> None:
        self.who = who
        self._resolver, self._entities, self._clock = resolver, entities, clock
        self._recent: list[EarlierMessage] = []

    async def say(self, text: str) -> tuple[Outcome, ...]:
        now = self._clock.now()
        study = await self._resolver.study(self.who, text, self._recent[-10:], ONTOLOGY, now=now)
        await self._entities.teach(self.who.tenant, self.who.user, study.lessons, now)
        self._recent += [EarlierMessage("user", text), EarlierMessage("assistant", "I see.")]
        return tuple(
            Outcome(
                found.mention,
                found.entity.id if found.entity else None,
                found.method,
                round(found.confidence, 4),
                tuple(option.entity.id for option in found.alternatives),
            )
            for found in study.resolutions
        )

    async def talk(self, texts: Sequence[str]) -> list[tuple[Outcome, ...]]:
        return [await self.say(text) for text in texts]


@pytest.fixture
def rows() -> Rows:
    return Rows(BUSINESS)


@pytest.fixture
def arrive(admin: Admin[Any], resolver: Resolver, entities: EntityStore, clock: FakeClock) -> Any:
    """Makes a new user of a tenant."""

    async def make(tenant: UUID, name: str) -> Speaker:
        who = Who(tenant, ids.user_id(tenant, name))
        if not await read_users(admin, user_id=who.user):
            await add_user(admin, who, name)
        return Speaker(who, resolver, entities, clock)

    return make


@pytest.mark.parametrize("name", TALKS)
async def test_who_comes_second_resolves_as_if_alone(arrive: Any, name: str) -> None:
    alone = await (await arrive(uuid4(), "alone")).talk(TALKS[name])
    tenant = uuid4()
    for other, texts in TALKS.items():
        await (await arrive(tenant, f"ana {other}")).talk(texts)
    await (await arrive(tenant, "ana")).talk([*IDENTIFIERS, *(text for texts in TALKS.values() for text in texts)])
    assert await (await arrive(tenant, "ben")).talk(TALKS[name]) == alone


@pytest.mark.parametrize("name", TALKS)
async def test_two_who_talk_in_turns_resolve_as_if_alone(arrive: Any, name: str) -> None:
    alone = await (await arrive(uuid4(), "alone")).talk(TALKS[name])
    for other, texts in TALKS.items():
        alone_too = await (await arrive(uuid4(), "alone")).talk(texts)
        tenant = uuid4()
        ana, ben = await arrive(tenant, "ana"), await arrive(tenant, "ben")
        outcomes: dict[str, list[tuple[Outcome, ...]]] = {"ana": [], "ben": []}
        for n in range(max(len(TALKS[name]), len(texts))):
            if n < len(texts):
                outcomes["ana"].append(await ana.say(texts[n]))
            if n < len(TALKS[name]):
                outcomes["ben"].append(await ben.say(TALKS[name][n]))
        assert outcomes == {"ana": alone_too, "ben": alone}, other


async def test_talk_writes_nothing_for_the_whole_tenant_but_identifiers(arrive: Any, admin: Admin[Any]) -> None:
    tenant = uuid4()
    ana = await arrive(tenant, "ana")
    for texts in TALKS.values():
        await ana.talk(texts)
    assert {alias["user_id"] for alias in await read_aliases(admin, tenant_id=tenant)} == {ana.who.user}
    entities = await read_entities(admin, tenant_id=tenant)
    matched = {(entity["user_id"], entity["matches_by_name"]) for entity in entities}
    assert matched == {(NIL, False), (ana.who.user, True)}

    await ana.talk(IDENTIFIERS)
    shared = await read_aliases(admin, tenant_id=tenant, user_id=NIL)
    assert {(alias["alias_norm"], alias["alias_source"]) for alias in shared} == {
        ("ab-100", "domain_db"),
        ("so-1001", "domain_db"),
    }


async def test_an_identifier_is_known_to_the_tenant_and_its_name_to_nobody(
    arrive: Any, entities: EntityStore, rows: Rows
) -> None:
    """Seed 004, table 3: "NULL user_id = works for all users (e.g., "SO-1001" → order)"."""
    tenant = uuid4()
    await (await arrive(tenant, "ana")).talk(IDENTIFIERS)
    rows.asked.clear()
    ben = await arrive(tenant, "ben")
    ((found,),) = await ben.talk(["Is AB-100 heavy?"])
    assert (found.entity, found.method) == ("product:ab_100", "known_alias")
    assert rows.asked == []
    near = await entities.look_up(tenant, ben.who.user, ["anvil, small"], ["anvil", "anvil, smal", "ab-10o"])
    assert near == [], "what Ana wrote leads nobody to the name, or to another spelling"


async def test_what_an_operator_states_holds_for_all_and_settles_what_is_ambiguous(
    arrive: Any, admin: Admin[Any], entities: EntityStore, clock: FakeClock
) -> None:
    tenant = uuid4()
    ana, ben, eve = [await arrive(tenant, name) for name in ("ana", "ben", "eve")]
    await ana.talk(["What about Gai?"])
    await eve.talk(["What about Gai?", "Gail Industries"])
    alias = stated("Gai", "customer:gai_123", own=False, confidence=0.95)
    assert await entities.state(tenant, None, alias) is not None
    for speaker in (ana, ben):
        ((found,),) = await speaker.talk(["What does Gai owe?"])
        assert (found.entity, found.method) == ("customer:gai_123", "known_alias")
    ((found,),) = await eve.talk(["What does Gai owe?"])
    assert found.entity == "customer:gail_9", "the user's own choice comes first"
    assert await ben.talk(["Helios Energi paid."]) == [()]
    name = "Helios Energy"
    await ana.talk([f"{name} called."])
    assert await entities.change(tenant, NIL, "customer:helios", name, normalise(name), None)
    ((found,),) = await ben.talk(["Helios Energi paid."])
    assert (found.entity, found.method) == ("customer:helios", "fuzzy"), "a name that an operator wrote is matched"


async def test_an_operators_entity_stays_matched_by_name_when_its_key_is_written(
    arrive: Any, admin: Admin[Any], entities: EntityStore
) -> None:
    tenant = uuid4()
    await add_entity(admin, tenant, "product:ab_100", "The Anvil")
    await add_alias(admin, tenant, "the heavy one", "product:ab_100", source="user_stated")
    ana = await arrive(tenant, "ana")
    await ana.talk(["How many AB-100 are left?"])
    assert [match.entity_id for match in await entities.look_up(tenant, None, ["anvil, small"], [])] == [
        "product:ab_100"
    ]
    ((found,),) = await (await arrive(tenant, "ben")).talk(["Is the heavy one out?"])
    assert found.entity == "product:ab_100"


async def test_a_session_of_nobody_teaches_no_names(
    arrive: Any, admin: Admin[Any], resolver: Resolver, entities: EntityStore, clock: FakeClock
) -> None:
    tenant = uuid4()
    await arrive(tenant, "ana")
    nobody = Speaker(Who(tenant, None), resolver, entities, clock)
    await nobody.talk(["What about Gai?", "Gail Industries", "Helios called."])
    assert await read_entities(admin, tenant_id=tenant, matches_by_name=True) == []
    assert len(await read_aliases(admin, tenant_id=tenant)) == 0
