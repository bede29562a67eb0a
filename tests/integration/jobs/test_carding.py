"""Cards taken from the results of tools by the job that learns from a turn, over a real Postgres."""

from __future__ import annotations

import logging
from typing import Any

import asyncpg
import orjson
import pytest

from app.features.cards.keeper import CardFinder
from app.features.cards.navigation import understand
from app.features.cards.store import CardExtractor, CardFilter, Cards
from app.jobs.learn import Learner, Notes
from app.providers.embeddings import NoEmbedder
from app.sources import CardTool
from app.store.erasure import ERASER_ROLE, Deleter, own_connection
from app.store.learning import LearningStore
from app.store.pools import Pool
from app.store.sessions import SessionRef
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, by_rules
from tests.support.rows import read_cards

Admin = asyncpg.Connection
TOOLS = {"search": CardTool(type="product_card", items="results", title="name"), "plot": CardTool(type="chart")}
FOUND = {"results": [{"name": "Lamp", "price": 3}, {"name": "Desk"}]}


@pytest.fixture
def learn(pool: Pool) -> Learner:
    def count(text: str) -> int:
        return len(text.split())

    return Learner(
        LearningStore(pool, SQL),
        embedder=NoEmbedder(),
        space=None,
        extract=by_rules,
        count=count,
        clock=FakeClock(NOW),
        note=Notes(FakeClock(NOW), CardExtractor(SQL, TOOLS, count, FakeClock(NOW))),
    )


def call(name: str, number: str) -> str:
    return orjson.dumps([{"id": number, "type": "function", "function": {"name": name, "arguments": "{}"}}]).decode()


async def cards(pool: Pool, talk: Talk) -> list[tuple[int, int, int, str, dict[str, Any], str | None]]:
    found = await Cards(pool, SQL).page(
        TENANT, SessionRef(talk.user, talk.session), CardFilter(), after=None, limit=100
    )
    assert {each.source for each in found} <= {"tool"}
    return [(each.turn_index, each.question, each.order, each.kind, each.data, each.tool_call_id) for each in found]


@pytest.mark.parametrize("confined", [False, True])
async def test_results_of_configured_tools_are_cards_of_the_answer_that_follows(
    confined: bool, learn: Learner, pool: Pool, admin: Admin
) -> None:
    talk = Talk(confined=confined)
    first = [
        *await talk.say(pool, "Which lamps are there?"),
        *await talk.say(pool, "", role="assistant", tool_calls=call("search", "c1")),
    ]
    # As a client's tool loop: what was called is in another turn than its result.
    second = [
        *await talk.say(pool, orjson.dumps(FOUND).decode(), role="tool", tool_call_id="c1"),
        *await talk.say(pool, "These two.", role="assistant"),
    ]
    await learn.learn(talk.job(first))
    for _ in range(2):  # as after a lost lease
        await learn.learn(talk.job(second))
    assert await cards(pool, talk) == [
        (4, 1, 1, "product_card", {"title": "Lamp", "name": "Lamp", "price": 3}, "c1"),
        (4, 1, 2, "product_card", {"title": "Desk", "name": "Desk"}, "c1"),
    ]
    assert {card["token_count"] for card in await read_cards(admin)} == {1}
    # An import of the same messages has other jobs and the same results.
    await learn.learn(talk.job([*first, *second]))
    assert len(await cards(pool, talk)) == 2


async def test_each_answer_has_its_own(learn: Learner, pool: Pool) -> None:
    talk = Talk()
    said = []
    for n in (1, 2):
        said += await talk.say(pool, f"Question {n}")
        said += await talk.say(pool, "", role="assistant", tool_calls=call("plot", f"c{n}"))
        said += await talk.say(pool, f'{{"n": {n}}}', role="tool", tool_call_id=f"c{n}")
        said += await talk.say(pool, f"Answer {n}", role="assistant")
    await learn.learn(talk.job(said))
    assert await cards(pool, talk) == [(4, 1, 1, "chart", {"n": 1}, "c1"), (8, 2, 1, "chart", {"n": 2}, "c2")]


async def test_other_tools_and_what_is_no_card_are_passed_over(
    learn: Learner, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk()
    said = await talk.say(pool, "Find it")
    for n, (tool, text) in enumerate([("other", "{}"), ("search", "no json"), ("search", "{}"), ("plot", '{"n": 1}')]):
        said += await talk.say(pool, "", role="assistant", tool_calls=call(tool, f"c{n}"))
        said += await talk.say(pool, text, role="tool", tool_call_id=f"c{n}")
    said += await talk.say(pool, '{"n": 2}', role="tool", tool_call_id="nobody called it")
    with caplog.at_level(logging.WARNING):
        await learn.learn(talk.job(said))
    assert await cards(pool, talk) == [(9, 1, 1, "chart", {"n": 1}, "c3")], (
        "no answer followed: it stands with the result"
    )
    told = [record.__dict__ for record in caplog.records if record.name == "app.features.cards.store"]
    assert [(each["tool"], each["reason"]) for each in told] == [
        ("search", "it is no JSON"),
        ("search", "it has no list at 'results'"),
    ]


async def test_deleting_a_result_takes_the_cards_that_came_from_it(learn: Learner, pool: Pool, database: str) -> None:
    talk = Talk()
    said = [
        *await talk.say(pool, "Plot both"),
        *await talk.say(pool, "", role="assistant", tool_calls=call("plot", "c1")),
        *await talk.say(pool, '{"n": 1}', role="tool", tool_call_id="c1"),
        *await talk.say(pool, "", role="assistant", tool_calls=call("plot", "c2")),
        *await talk.say(pool, '{"n": 2}', role="tool", tool_call_id="c2"),
        *await talk.say(pool, "Here.", role="assistant"),
    ]
    payload = talk.job(said)
    await learn.learn(payload)
    assert [each[4] for each in await cards(pool, talk)] == [{"n": 1}, {"n": 2}]
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    ref = SessionRef(talk.user, talk.session)
    assert await deleter.delete(TENANT, ref, said[2].message_id)
    assert [each[4] for each in await cards(pool, talk)] == [{"n": 2}]
    await learn.learn(talk.job(said[1:]))  # another job of the same messages
    assert [each[4] for each in await cards(pool, talk)] == [{"n": 2}]
    assert await deleter.delete(TENANT, ref, said[5].message_id)
    assert await cards(pool, talk) == []


async def test_a_prompt_is_given_what_its_message_asks_for(learn: Learner, pool: Pool) -> None:
    """The message is the question that is being asked: "the previous question" is the last one that is stored. Asked again, as
    it was when it was asked first."""
    talk = Talk()
    finder, ref = CardFinder(Cards(pool, SQL)), SessionRef(talk.user, talk.session)
    assert (await finder.find(TENANT, ref, "the last card", asking=True)).cards == ()
    said = []
    for n in (1, 2):
        said += await talk.say(pool, f"Question {n}")
        said += await talk.say(pool, "", role="assistant", tool_calls=call("plot", f"c{n}"))
        said += await talk.say(pool, f'{{"n": {n}}}', role="tool", tool_call_id=f"c{n}")
    await learn.learn(talk.job(said))

    async def given(message: str, **at: Any) -> list[dict[str, Any]]:
        wanted = understand(message)
        assert wanted is not None
        found = await finder.find(TENANT, ref, wanted, **{"asking": True, **at})
        return [each.data for each in found.cards]

    assert await given("What was on the first card from the previous question?") == [{"n": 2}]
    assert await given("Show me the first card from two questions ago") == [{"n": 1}]
    assert await given("the last chart") == [{"n": 2}]
    assert await given("the third card from the first question") == []
    second = {"asking": False, "upto": 4}
    assert await given("the first card from the previous question", **second) == [{"n": 1}]
    assert await given("the last card", **second) == [{"n": 1}], "not what came after it"
    assert await given("all cards", most=1) == [{"n": 1}]
