"""app/features/cards/store.py: what several at once leave behind, and an index for what cards hold."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from app.api.common import MAX_ORDER
from app.errors import BadRequest, Conflict
from app.features.cards.store import CardFilter, Cards, NewCard
from app.store import ids
from app.store.pools import Pool
from app.store.sessions import SessionRef
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk

Admin = asyncpg.Connection
CARD = NewCard("chart", {"n": 1}, 3, NOW)


@pytest.fixture
async def talk(pool: Pool) -> Talk:
    talk = Talk()
    await talk.say(pool, "Question")
    await talk.say(pool, "Answer", role="assistant")
    return talk


@pytest.fixture
def cards(pool: Pool) -> Cards:
    return Cards(pool, SQL)


async def test_cards_that_come_together_stand_one_after_the_other(talk: Talk, cards: Cards) -> None:
    ref = SessionRef(talk.user, talk.session)
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(cards.add(TENANT, ref, [(None, CARD), (2, CARD)]))
    found = await cards.page(TENANT, ref, CardFilter(), after=None, limit=100)
    assert [each.order for each in found] == list(range(1, 13))
    assert {(each.turn_index, each.question, each.tokens, each.data["n"]) for each in found} == {(2, 1, 3, 1)}


async def test_the_last_place_is_the_last(talk: Talk, cards: Cards) -> None:
    ref = SessionRef(talk.user, talk.session)
    last = NewCard("chart", {}, 1, NOW, order=MAX_ORDER)
    await cards.add(TENANT, ref, [(None, last)])
    with pytest.raises(BadRequest, match="at most 1000"):
        await cards.add(TENANT, ref, [(None, CARD)])
    with pytest.raises(Conflict, match="another card at place 1000"):
        await cards.add(TENANT, ref, [(None, NewCard("map", {}, 1, NOW, order=MAX_ORDER))])


async def test_what_cards_hold_is_found_by_an_index(talk: Talk, admin: Admin) -> None:
    """The statement of `find_cards` as the function plans it: for arguments that it does not know yet."""
    await admin.executemany(
        "INSERT INTO agent_data.ui_cards_shown (card_id, user_id, tenant_id, session_id, turn_index, message_id, question,"
        " card_type, card_data, display_order, source, token_count, shown_at)"
        " VALUES ($1, $2, $3, $4, $5, $1, 1, 't', $6, 1, 'api', 1, $7)",
        [
            (uuid4(), talk.user, TENANT, talk.session, n, json.dumps({"sku": f"A{n}"}), NOW + timedelta(seconds=n))
            for n in range(5000)
        ],
    )
    await admin.execute("ANALYZE agent_data.ui_cards_shown")
    names = ("p_tenant", "p_user", "p_type", "p_data", "p_at", "p_card", "p_limit")
    source: str = await admin.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'find_cards'")
    for n, name in enumerate(names, 1):
        source = source.replace(name, f"${n}")
    await admin.execute("SET plan_cache_mode = force_generic_plan")
    await admin.execute(f"PREPARE looking (uuid, uuid, text, jsonb, timestamptz, uuid, int) AS {source}")
    explained = await admin.fetch(
        f"EXPLAIN EXECUTE looking ('{TENANT}', '{talk.user}', NULL, '{{\"sku\": \"A7\"}}', NULL, NULL, 10)"
    )
    plan = "\n".join(str(row[0]) for row in explained)
    assert "card_data" in plan.partition("Index Cond")[2], plan


async def test_a_foreign_tenant_finds_nothing(talk: Talk, cards: Cards) -> None:
    ref = SessionRef(talk.user, talk.session)
    ((card, _),) = await cards.add(TENANT, ref, [(None, CARD)])
    other = ids.LOCAL_TENANT
    assert await cards.by_id(other, talk.user, [card.card_id]) == []
    assert await cards.of_messages(other, talk.user, [card.message_id]) == {}
    assert await cards.holding(other, talk.user, {}, None, after=None, limit=10) == []
    assert [
        each.card_id for each in await cards.holding(TENANT, talk.user, {"n": 1}, "chart", after=None, limit=10)
    ] == [card.card_id]
    assert (await cards.index(other, ref)) == ([], 0)
