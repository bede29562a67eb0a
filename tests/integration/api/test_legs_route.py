"""A turn in which the model asked back, on a real store: what the API shows of its legs, and what was spent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import httpx
import orjson
import pytest

from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.faults import StubAnswers, StubPager, asking, bytes_of, in_turn, saying
from tests.support.journey import Answer, Journey, build_journey, user
from tests.support.rows import read_messages
from tests.support.wired_api import WiredApi, all_pages

ON = {"x-mneme-paging": "on"}
LEGS = asking("which?", text="Hm. ", told=20), saying("so", told=30)


@pytest.fixture
def journey(pool: Pool) -> Journey:
    return build_journey(TurnStore(pool, Queries.load()), pager=StubPager(), answers=StubAnswers())


async def faulted(journey: Journey) -> Answer:
    journey.upstream.script = in_turn(*LEGS)
    answer = await journey.ask([user("hi")], stream=True, headers=ON)
    assert answer.text == "Hm. so"
    return answer


async def test_a_call_shows_its_legs_and_lists_leave_them_out(
    client: httpx.AsyncClient, api: WiredApi, journey: Journey
) -> None:
    answer = await faulted(journey)
    call = answer.headers["x-mneme-call-id"]
    listed = await all_pages(client, "/api/v1/calls", "calls")
    assert [each["id"] for each in listed] == [call]
    assert listed[0]["usage"] == {"prompt_tokens": 50, "completion_tokens": 12, "cached_tokens": None, "counted": False}
    everything = await all_pages(client, "/api/v1/calls", "calls", legs=True)
    assert {(each["leg"], each["leg_of"]) for each in everything} == {(None, None), (1, call), (2, call)}
    assert {each["session_id"] for each in everything} == {answer.session}
    assert len(await all_pages(client, "/api/v1/calls", "calls", legs=True, user="local", session=answer.session)) == 3

    found = (await client.get(f"/api/v1/calls/{call}")).json()
    legs = found["legs"]
    assert [(each["leg"], each["status"], each["outcome"], each["answered_model"]) for each in legs] == [
        (1, 200, "complete", "m"), (2, 200, "complete", "m"),
    ]  # fmt: skip
    assert [each["usage"]["prompt_tokens"] for each in legs] == [20, 30]
    assert found["response_bytes"] == len(answer.body)
    for leg, sent, reply in zip(legs, journey.upstream.sent, LEGS, strict=True):
        for part, body in (("request", sent), ("sent", sent), ("response", bytes_of(reply))):
            raw = await client.get(f"/api/v1/calls/{leg['id']}/raw", params={"part": part})
            assert raw.content == body
        alone = (await client.get(f"/api/v1/calls/{leg['id']}")).json()
        assert (alone["leg_of"], alone["legs"], alone["usage"]["prompt_tokens"]) == (call, [], None)
    assert (await client.get(f"/api/v1/calls/{call}/raw")).content == answer.body
    assert (await client.get(f"/api/v1/calls/{call}/raw", params={"part": "sent"})).content == journey.upstream.sent[0]


async def test_cassettes_are_of_what_clients_got(client: httpx.AsyncClient, journey: Journey) -> None:
    call = (await faulted(journey)).headers["x-mneme-call-id"]

    async def exported(**params: Any) -> list[str]:
        lines = (await client.get("/api/v1/cassettes", params=params)).text.splitlines()
        return [orjson.loads(line)["id"] for line in lines[:-1]]

    assert await exported() == [call]
    several = await exported(legs="true")
    assert len(several) == 3
    leg = next(each for each in several if each != call)
    assert await exported(call=leg) == [leg]


async def test_each_token_is_spent_once(client: httpx.AsyncClient, journey: Journey) -> None:
    await faulted(journey)
    (spent,) = await all_pages(client, "/api/v1/spend", "spend", by="user")
    assert (spent["calls"], spent["prompt_tokens"], spent["completion_tokens"]) == (1, 50, 12)


async def test_a_leg_is_no_turn(admin: asyncpg.Connection[Any], journey: Journey) -> None:
    answer = await faulted(journey)
    call = UUID(answer.headers["x-mneme-call-id"])
    stored = [(row["content"], row["call_id"]) for row in await read_messages(admin)]
    assert stored == [("hi", call), ("Hm. so", call)]


async def test_a_leg_has_no_context_and_cannot_be_replayed(client: httpx.AsyncClient, journey: Journey) -> None:
    call = (await faulted(journey)).headers["x-mneme-call-id"]
    leg = (await client.get(f"/api/v1/calls/{call}")).json()["legs"][1]["id"]
    assert (await client.get(f"/api/v1/calls/{leg}/context")).status_code == 404
    answer = await client.post(f"/api/v1/calls/{leg}/replay", json={})
    assert answer.status_code == 404, answer.text
