"""What memory adds to a request; and that a request goes on without, whatever fails."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from app.errors import (
    NotFound,
    StoreUnavailable,
    Unavailable,
)
from app.gateway.augment import SILENT_REQUESTS
from app.gateway.call import Keeper
from app.gateway.identify import EarlierAnswer
from tests.support.journey import (
    Client,
    Message,
    Reply,
    completion,
    user,
)
from tests.support.sockets import eventually
from tests.support.tables import each_of
from tests.support.turns import GatewayStage


@pytest.fixture
def stage() -> GatewayStage:
    return GatewayStage()


HI = [user("hi")]


@pytest.mark.parametrize(
    ("step", "trouble", "reason"),
    [
        ("place", StoreUnavailable(), "store"),
        ("compile", StoreUnavailable(), "store"),
        ("compile", Unavailable("the embedder is away"), "embeddings"),
        ("replay", StoreUnavailable(), "store"),
        ("compile", ValueError("a bug"), "memory"),
        ("place", RuntimeError("another"), "memory"),
    ],
)
async def test_memory_that_fails_keeps_no_answer_away(
    stage: GatewayStage, step: str, trouble: Exception, reason: str
) -> None:
    stage.preparer.fail |= {step: trouble, "compile-without-search": trouble}
    if step == "place":
        stage.recorder.fail = None
    answer = await stage.ask(HI)
    assert stage.upstream.asked[0]["messages"] == HI
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", reason)
    assert stage.journey.count("mneme_degradations_total", reason=reason) == 1
    assert answer.whole == (step != "place"), "without a place the turn cannot be stored"


async def test_memory_that_is_slow_keeps_no_answer_waiting() -> None:
    stage = GatewayStage(retrieval_deadline_ms=20)
    stage.preparer.fail |= {"compile": asyncio.Event(), "compile-without-search": asyncio.Event()}
    answer = await stage.ask(HI)
    assert (answer.headers["x-mneme-reason"], answer.whole) == ("deadline", True)
    facts, exchange, compiled = stage.recorder.records[0]
    assert exchange is not None, "the place was found in time"
    assert compiled is None
    assert facts.reason == "deadline"
    assert stage.preparer.late_of == [facts.user_id]


async def test_a_client_that_hangs_up_is_no_one_for_whom_memory_was_late() -> None:
    stage = GatewayStage(retrieval_deadline_ms=500)
    stage.preparer.fail |= {"compile": asyncio.Event(), "compile-without-search": asyncio.Event()}
    client = Client(stage.journey.gateway)
    client.gone.set()
    body = json.dumps({"model": "gpt-4o", "messages": HI}).encode()
    await client.request("POST", "/v1/chat/completions", body, [("content-type", "application/json")])
    assert "compile" in stage.preparer.steps
    assert stage.preparer.late_of == []


@each_of(
    ("trouble", "reason"), [(None, "deadline"), (StoreUnavailable(), "store"), (Unavailable("no vector"), "embeddings")]
)
async def test_a_search_that_fails_leaves_what_the_place_knows(trouble: Exception | None, reason: str) -> None:
    stage = GatewayStage(retrieval_deadline_ms=200)
    stage.preparer.fail["compile"] = trouble or asyncio.Event()
    answer = await stage.ask(HI)
    assert stage.preparer.steps == ["replay", "place", "compile", "compile-without-search"]
    assert stage.upstream.asked[0]["messages"] == [user("<memory> hi")]
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", reason)
    assert stage.recorder.records[0][2] is not None
    assert stage.journey.count("mneme_degradations_total", reason=reason) == 1


async def test_a_search_by_words_alone_is_said() -> None:
    stage = GatewayStage()
    stage.preparer.reason = "embeddings"
    answer = await stage.ask(HI)
    assert stage.preparer.steps == ["replay", "place", "compile"]
    assert stage.upstream.asked[0]["messages"] == [user("<memory> hi")]
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "embeddings")
    assert stage.journey.count("mneme_degradations_total", reason="embeddings") == 1


async def test_a_turn_that_found_no_place_in_time_looks_again_at_its_end() -> None:
    stage = GatewayStage(retrieval_deadline_ms=1)
    waiting = asyncio.Event()
    stage.preparer.fail["place"] = waiting

    def answer(asked: Message) -> Reply:
        waiting.set()
        return completion("a")

    stage.answering(answer)
    got = await stage.ask(HI)
    assert got.whole
    assert stage.recorder.records[0][1] is not None
    assert stage.preparer.steps == ["replay", "place", "place"]


async def test_what_should_have_been_refused_but_was_answered_is_a_call_of_no_session() -> None:
    stage = GatewayStage(retrieval_deadline_ms=1)
    stage.preparer.fail["place"] = asyncio.Event()

    def answer(asked: Message) -> Reply:
        stage.preparer.fail["place"] = NotFound("foreign")
        return completion("a")

    stage.answering(answer)
    assert (await stage.ask(HI)).whole
    assert stage.recorder.records[0][1] is None


async def test_what_is_mnemes_to_refuse_is_refused_before_the_upstream(stage: GatewayStage) -> None:
    stage.preparer.fail["place"] = NotFound("There is no such session for this user.", param="X-Mneme-Session")
    answer = await stage.ask(HI)
    assert answer.status == 404
    assert answer.json()["error"] == {
        "message": "There is no such session for this user.",
        "type": "not_found_error",
        "param": "X-Mneme-Session",
        "code": None,
    }
    assert stage.upstream.requests == []
    assert "x-mneme-call-id" in answer.headers


async def test_a_repeated_key_sends_the_stored_body(stage: GatewayStage) -> None:
    before = b'{"messages": [{"role": "user", "content": "as it was sent"}]}'
    stage.preparer.found = EarlierAnswer(before, UUID(int=8), answered=True)
    stage.answering(lambda asked: completion("a"))
    answer = await stage.ask(HI)
    assert stage.upstream.sent == [before]
    assert stage.preparer.identity.retried
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("ok", "replayed")
    assert answer.session == str(UUID(int=8))
    assert stage.recorder.records[0][1] is None
    assert stage.recorder.last.retry_count == 0, "the client did not say so"


async def ask_with_silent_database(stage: GatewayStage) -> str:
    """Return the reason of a request whose place is not told before its answer comes."""
    waiting = stage.preparer.fail["place"] = asyncio.Event()

    def answer(asked: Message) -> Reply:
        waiting.set()
        return completion("a")

    stage.answering(answer)
    return (await stage.ask(HI)).headers["x-mneme-reason"]


async def test_a_database_that_stays_silent_is_asked_by_few() -> None:
    stage = GatewayStage(retrieval_deadline_ms=20)
    reasons = [await ask_with_silent_database(stage) for _ in range(SILENT_REQUESTS + 2)]
    assert reasons == ["deadline"] * SILENT_REQUESTS + ["store"] * 2


async def test_a_silent_database_is_asked_by_few_where_earlier_calls_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = GatewayStage(retrieval_deadline_ms=20)
    stage.answering(lambda asked: completion("a"))

    async def wait_for_ever(keeper: Keeper, user: UUID) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Keeper, "behind", lambda keeper, user: True)
    monkeypatch.setattr(Keeper, "caught_up", wait_for_ever)
    reasons = [(await stage.ask(HI)).headers["x-mneme-reason"] for _ in range(SILENT_REQUESTS + 2)]
    assert reasons == ["deadline"] * SILENT_REQUESTS + ["store"] * 2


@each_of("failing", ["compile", "place"])
async def test_a_database_that_answers_is_asked_by_all(failing: str) -> None:
    """Neither a late search nor an immediate failure makes the database count as silent."""
    stage = GatewayStage(retrieval_deadline_ms=20)
    stage.preparer.fail[failing] = asyncio.Event() if failing == "compile" else StoreUnavailable()
    for _ in range(SILENT_REQUESTS + 2):
        await stage.ask(HI)
    assert stage.preparer.steps.count("place") >= SILENT_REQUESTS + 2


async def test_a_database_that_answers_others_is_not_silent() -> None:
    """A busy processor makes requests late, but some of them are answered."""
    stage = GatewayStage(retrieval_deadline_ms=100)
    stage.answering(lambda asked: completion("a"))
    for _ in range(SILENT_REQUESTS + 2):
        stage.preparer.steps.clear()
        never = stage.preparer.fail["place"] = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            late = group.create_task(stage.ask(HI))
            await eventually(lambda: "place" in stage.preparer.steps)
            del stage.preparer.fail["place"]
            in_time = await stage.ask(HI)
        never.set()
        assert in_time.headers["x-mneme-status"] == "ok"
        assert late.result().headers["x-mneme-reason"] == "deadline"
