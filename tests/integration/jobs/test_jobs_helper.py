"""A helper LLM that fails: the job waits and tries again, is held, and learns everything once the helper answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import httpx
import orjson
import pytest
import respx

from app.memory.candidate import Candidate, Exchange
from app.memory.extract_llm import extract_with_helper
from app.providers.embeddings import NoEmbedder
from app.providers.helper import HelperClient
from app.store.pools import Pool
from app.store.queue import Counts, Queue
from app.store.records import JobRecord
from tests.support.jobs import SQL, put, until, working
from tests.support.learning import Talk, learner, memories, texts

URL = "http://helper.test/v1"
SAID = "I moved house, my new home is Porto, by the way."
CANARY = "canary-in-the-answer"


def answered(content: str) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})


GOOD = answered(
    orjson.dumps(
        {
            "items": [
                {
                    "content": "Lives in Porto",
                    "kind": "fact",
                    "quote": "my new home is Porto",
                    "confidence": 0.9,
                    "explicit": False,
                    "subject": "user",
                    "predicate": "lives_in",
                    "object": "Porto",
                    "entities": ["Porto"],
                }
            ]
        }
    ).decode()
)
FAILURES: dict[str, httpx.Response | Exception] = {
    "timeout": httpx.ReadTimeout("too slow"),
    "refused": httpx.ConnectError("refused"),
    "status": httpx.Response(500, text=CANARY),
    "prose": answered(f"Sure! Here is what I found: {CANARY}"),
    "wrong schema": answered('{"memories": ["' + CANARY + '"]}'),
    "cut off": answered('{"items": [{"content": "' + CANARY),
}


@pytest.fixture
async def helper() -> AsyncIterator[HelperClient]:
    client = HelperClient(URL, model="helper", timeout_s=5.0)
    yield client
    await client.close()


@pytest.mark.parametrize("how", FAILURES)
async def test_a_failing_helper_ends_in_a_dead_letter_that_can_be_retried(
    how: str, database: str, pool: Pool, admin: asyncpg.Connection[Any], helper: HelperClient,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def by_helper(exchange: Exchange) -> Sequence[Candidate]:
        return await extract_with_helper(helper, exchange)

    queue, talk = Queue(pool, SQL), Talk()
    do = learner(pool, NoEmbedder(), None, extract=by_helper)
    await put(pool, JobRecord("learn", talk.job(await talk.say(pool, SAID)), None, 0.0))
    failure = FAILURES[how]

    async def held(counts: Counts) -> bool:
        return await queue.counts() == counts

    with respx.mock(assert_all_mocked=True) as upstream:
        route = upstream.post(f"{URL}/chat/completions")
        if isinstance(failure, httpx.Response):
            route.mock(return_value=failure)
        else:
            route.mock(side_effect=failure)
        async with working(database, do.handlers(), attempts=2):
            await until(lambda: held(Counts(0, 0, 1)))
            assert route.call_count == 2
            # No half of it, and no rules in its place.
            assert await memories(admin, "true") == []
            assert await admin.fetchval("SELECT count(*) FROM agent_data.job_effects") == 0
            ((letter,), _) = await queue.dead_letters()
            assert letter.error is not None
            assert letter.error.startswith("HelperError: the helper LLM")
            assert CANARY not in letter.error
            assert CANARY not in caplog.text

            route.mock(return_value=GOOD, side_effect=None)
            assert await queue.retry(letter.id)
            await until(lambda: held(Counts(0, 0, 0)))
    assert await texts(admin) == ["Lives in Porto"]


async def test_the_helper_learns_with_the_exact_words_as_its_source(
    pool: Pool, admin: asyncpg.Connection[Any], helper: HelperClient
) -> None:
    async def by_helper(exchange: Exchange) -> Sequence[Candidate]:
        return await extract_with_helper(helper, exchange)

    talk = Talk()
    do = learner(pool, NoEmbedder(), None, extract=by_helper)
    payload = talk.job(await talk.say(pool, SAID))
    with respx.mock() as upstream:
        upstream.post(f"{URL}/chat/completions").mock(return_value=GOOD)
        await do.learn(payload)
    (found,) = await memories(admin)
    assert (found["memory_tier"], found["memory_scope"], found["expires_at"]) == (3, 1, None)
    assert (found["subject_entity_id"], found["predicate"], found["object_value"]) == ("user", "lives_in", "Porto")
    assert found["sources"][0]["quote"] == "my new home is Porto"
