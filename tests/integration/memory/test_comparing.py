"""Contradictions in unlike words, as the helper LLM judges them: what is asked, what is kept, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
import orjson
import pytest
import respx

from app.features.conflicts import ConflictStore, conflict_out
from app.features.helper import HelperClient, extract_with_helper
from app.jobs.learn import Learner
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.compare import judged
from app.memory.extract import extract
from app.providers.embeddings import WordLlamaEmbedder
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.queue import Counts, Queue
from app.store.records import JobRecord, LoggedConflict
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL, put, until, working
from tests.support.learning import NOW, TENANT, Talk, learner, memories, taught, texts
from tests.support.rows import delete_effects

URL = "http://helper.test/v1"
BEFORE = "I'm a vegetarian"
SAID = "The steak I grilled for my birthday was my favourite meal ever"
VEGETARIAN, STEAK = "Is vegetarian", "Counts the steak grilled for the birthday as the best meal"


@dataclass
class Scripted:
    """A helper LLM that finds the steak in the message about it, and says that who grills one is no vegetarian. `answers`: what
    it says of the pairs instead; `meanwhile`: what happens while it thinks. `told`: the pairs that it was asked about."""

    answers: list[httpx.Response | Exception] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[None]] | None = None
    told: list[list[dict[str, Any]]] = field(default_factory=list)
    extractions: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = orjson.loads(request.content)
        user = asked["messages"][1]["content"]
        if asked["response_format"]["json_schema"]["name"] == "Extracted":
            self.extractions += 1
            item = {"content": STEAK, "kind": "preference", "quote": SAID, "confidence": 0.9}
            return answered({"items": [item] if SAID in user else []})
        pairs = orjson.loads(user.removeprefix("<pairs>\n").removesuffix("\n</pairs>"))
        self.told.append(pairs)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        verdicts = [
            {"pair": each["pair"], "verdict": "contradiction", "reason": "Steak is meat."}
            for each in pairs
            if (each["earlier"]["text"], each["later"]["text"]) == (VEGETARIAN, STEAK)
        ]
        return answered({"verdicts": verdicts})


def answered(content: object) -> httpx.Response:
    message = {"content": orjson.dumps(content).decode()}
    return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "stop"}]})


@pytest.fixture
def script() -> Scripted:
    return Scripted()


@pytest.fixture
async def do(pool: Pool, words: WordLlamaEmbedder, space: int, script: Scripted) -> AsyncIterator[Learner]:
    """Learns by the rules' one answer for `BEFORE`, and by the scripted helper."""
    client = HelperClient(URL, model="helper", timeout_s=5.0)

    async def by_helper(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return await extract_with_helper(client, exchange)

    async def no_steak(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return [] if SAID in exchange.user_text else extract(exchange)

    with respx.mock() as upstream:
        upstream.post(f"{URL}/chat/completions").mock(side_effect=script)
        yield learner(pool, words, space, extract=no_steak, helper=by_helper, judge=lambda pairs: judged(client, pairs))
    await client.close()


async def adding(do: Learner, pool: Pool, talk: Talk, text: str) -> bytes:
    """Say something, let the rules learn from it, and then the helper; the helper's job."""
    said = await talk.say(pool, text)
    await do.learn(talk.job(said))
    payload = talk.job(said, indexed=True)
    await do.learn(payload)
    return payload


async def logged(pool: Pool) -> list[LoggedConflict]:
    store = ConflictStore(pool, SQL, FakeClock(NOW))
    return await store.page(TENANT, after=None, limit=10)


async def test_a_contradiction_in_unlike_words_is_open_until_the_user_has_spoken(
    do: Learner, pool: Pool, admin: asyncpg.Connection[Any], script: Scripted
) -> None:
    talk = Talk()
    await taught(do, pool, Talk(user_name="bob"), BEFORE, "I live in Lisbon")
    await taught(do, pool, talk, BEFORE)
    await adding(do, pool, talk, SAID)
    assert sorted(await texts(admin, is_active=True, user_id=talk.user)) == [STEAK, VEGETARIAN]
    (found,) = [conflict_out(each) for each in await logged(pool)]
    assert (found.status, found.type, found.strategy) == ("open", "memory_vs_memory", "ask_user")
    assert [each["value"] for each in found.data["memories"]] == [STEAK, VEGETARIAN]
    assert found.data["reason"] == "Steak is meat"
    assert found.message_id == talk.said[-1].message_id
    (doubted,) = await memories(admin, status="aging")
    assert (doubted["content_text"], doubted["user_id"]) == (VEGETARIAN, talk.user)
    validation = Validation(pool, SQL, FakeClock(NOW), space=None)
    assert [each.content_text for each in await validation.due(TENANT, talk.user, limit=5)] == [VEGETARIAN]
    ((pair,),) = script.told
    assert (pair["earlier"]["text"], pair["later"]["text"]) == (VEGETARIAN, STEAK), "and nothing of another user"

    await validation.confirm(TENANT, talk.user, doubted["memory_id"])
    (found,) = [conflict_out(each) for each in await logged(pool)]
    assert found.status == "resolved"


async def test_a_job_that_is_done_twice_makes_one_contradiction(
    do: Learner, pool: Pool, admin: asyncpg.Connection[Any], script: Scripted
) -> None:
    talk = Talk()
    await taught(do, pool, talk, BEFORE)
    payload = await adding(do, pool, talk, SAID)
    await do.learn(payload)
    await delete_effects(admin, "compare:")
    await do.learn(payload)
    assert (len(await logged(pool)), len(script.told)) == (1, 1), "nor is what was noticed asked about again"


AWAY: dict[str, httpx.Response | Exception] = {
    "away": httpx.ConnectError("refused"),
    "of no pair": answered({"verdicts": [{"pair": 7, "verdict": "contradiction", "reason": ""}]}),
}


@pytest.mark.parametrize("how", AWAY)
async def test_a_helper_that_cannot_judge_changes_nothing_and_is_asked_again(
    how: str, do: Learner, pool: Pool, admin: asyncpg.Connection[Any], script: Scripted, database: str
) -> None:
    """What it had added before stays, is not asked for again, and the job is held like any other."""
    queue, talk = Queue(pool, SQL), Talk()
    await taught(do, pool, talk, BEFORE)

    async def held(counts: Counts) -> bool:
        return await queue.counts() == counts

    async with working(database, do.handlers(), attempts=1):
        await until(lambda: held(Counts(0, 0, 0)))
        script.answers = [AWAY[how]]
        await put(pool, JobRecord("learn", talk.job(await talk.say(pool, SAID), indexed=True), None, 0.0))
        await until(lambda: held(Counts(0, 0, 1)))
        assert sorted(await texts(admin)) == [STEAK, VEGETARIAN]
        assert (await logged(pool), await memories(admin, status="aging")) == ([], [])
        letters, _ = await queue.dead_letters()
        assert [str(each.error).startswith("HelperError: the helper LLM") for each in letters] == [True]
        assert await queue.retry(letters[0].id)
        await until(lambda: held(Counts(0, 0, 0)))
    assert len(await logged(pool)) == 1
    assert (script.extractions, len(script.told)) == (2, 2)


async def test_what_is_forgotten_is_not_sent_and_what_is_forgotten_meanwhile_makes_no_contradiction(
    do: Learner, pool: Pool, admin: asyncpg.Connection[Any], script: Scripted
) -> None:
    talk, forgetting = Talk(), Memories(pool, SQL, FakeClock(NOW), space=None)

    async def forget() -> None:
        (known,) = await memories(admin, is_active=True, content_text=VEGETARIAN)
        await forgetting.forget(TENANT, talk.user, known["memory_id"])

    await taught(do, pool, talk, BEFORE)
    script.meanwhile = forget
    await adding(do, pool, talk, SAID)
    assert (len(script.told), await logged(pool), await texts(admin)) == (1, [], [STEAK])

    other = Talk(user_name="eve")
    await taught(do, pool, other, BEFORE)
    script.meanwhile, talk = None, other
    await forget()
    await adding(do, pool, other, SAID)
    assert (len(script.told), await logged(pool)) == (1, [])
