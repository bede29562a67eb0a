"""What Postgres did not take is kept as it was, and stored as it would have been."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.api.auth import Principal
from app.capture.facts import CallFacts, CompileFacts, Exchange
from app.capture.record import CAPTURE_MAX_BYTES
from app.errors import StoreUnavailable, Unavailable
from app.features.limits.limiter import AdmitAnswer
from app.features.spool import keeper as drain_module
from app.features.spool.keeper import Drain, SpoolKeeper
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KeyLimits
from tests.support.clients import assistant, user
from tests.support.journey import UPSTREAM, Client, Journey, Reply, build_journey, completion, stream
from tests.support.sockets import eventually
from tests.support.turns import StubPreparer, StubRecorder

CANARY = "sk-canary-1"
HI = [user("hi")]
NOW_AND_THEN = {"authorization": f"Bearer {CANARY}", "x-mneme-user": "ana"}


class Recorder(StubRecorder):
    """Keeps what it was asked to store, too."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[CallFacts, Exchange | None, CompileFacts | None]] = []
        self.refused: dict[str, Exception] = {}

    async def record(self, facts: CallFacts, exchange: Exchange | None, compiled: CompileFacts | None) -> bool:
        self.asked.append((facts, exchange, compiled))
        if facts.path in self.refused:
            raise self.refused[facts.path]
        return await super().record(facts, exchange, compiled)


class Stage:
    """A gateway with a spool, and its drain."""

    def __init__(self, folder: Path, *, ledger: Any = None, **settings: Any) -> None:
        self.preparer, self.recorder = StubPreparer(), Recorder()
        self.writable = True
        self.journey: Journey = build_journey(
            None,
            settings=Settings(**{"upstream_base_url": UPSTREAM, "retrieval_deadline_ms": 5000, **settings}),
            preparer=self.preparer,
            recorder=self.recorder,
            spool=folder / "spool",
            ledger=ledger,
        )
        assert self.journey.keeper is not None
        self.keeper: SpoolKeeper = self.journey.keeper
        self.spool = self.keeper.spool
        self.drain = Drain(
            self.keeper,
            self.journey.gateway.settle,
            writable=self._writable,
            capture_max_bytes=CAPTURE_MAX_BYTES,
        )
        self.ask = self.journey.ask

    async def _writable(self) -> bool:
        return self.writable

    def away(self, yes: bool) -> None:
        """Postgres."""
        self.recorder.fail = StoreUnavailable() if yes else None
        self.writable = not yes
        for step in ("place", "replay", "compile"):
            self.preparer.fail.pop(step, None)
            if yes:
                self.preparer.fail[step] = StoreUnavailable()

    @property
    def waiting(self) -> int:
        return self.spool.usage().calls

    def events(self, event: str) -> float:
        return self.journey.count("mneme_spool_calls_total", event=event)


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def same(one: CallFacts, two: CallFacts) -> bool:
    """But for what is masked, and what the clock has moved on."""
    blank: dict[str, Any] = {"request_headers": (), "response_headers": (), "latency_ms": 0}
    return replace(one, **blank) == replace(two, **blank)


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_stored_later_is_what_would_have_been_stored(stage: Stage, streamed: bool) -> None:
    stage.recorder.fail = StoreUnavailable()
    stage.journey.upstream.script = lambda asked: stream("one ", "two") if streamed else completion("one")
    answer = await stage.ask(HI, stream=streamed, headers={**NOW_AND_THEN, "x-stainless-retry-count": "1"})
    assert answer.whole
    assert answer.headers["x-mneme-status"] == "ok"
    (attempt,) = stage.recorder.asked
    files = b"".join(each.read_bytes() for each in stage.spool.folder.rglob("*") if each.is_file())
    assert CANARY.encode() not in files
    stage.recorder.fail = None
    assert await stage.drain.once()
    (stored,) = stage.recorder.records
    assert same(stored[0], attempt[0])
    assert stored[1:] == attempt[1:]
    assert abs((stored[0].latency_ms or 0) - (attempt[0].latency_ms or 0)) <= 1000
    assert stored[0].request_headers
    assert stage.waiting == 0
    assert not stage.keeper.behind(stored[0].user_id)
    assert (stage.events("kept"), stage.events("drained")) == (1, 1)


REDACTING = {
    "redact_paths": [
        "$.metadata.ssn", "$.messages[*].content", "$.choices[*].message.content", "$.choices[*].delta.content", "$.input",
    ],
    "redact_headers": ["x-patient"],
}  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_not_to_be_stored_is_not_in_the_spool_either(tmp_path: Path, streamed: bool) -> None:
    """And what is stored later is what would have been: found by the hashes of what was really said."""
    stage = Stage(tmp_path, **REDACTING)
    seen: list[bytes] = []

    def script(asked: Any) -> Any:
        seen.extend(each.read_bytes() for each in stage.spool.folder.rglob("*") if each.is_file())
        return stream("secret-one ", "secret-two") if streamed else completion("secret-three")

    stage.journey.upstream.script = script
    stage.recorder.fail = StoreUnavailable()
    told = [user("secret-four"), assistant("secret-five"), user("secret-six")]
    headers = {**NOW_AND_THEN, "x-patient": "secret-seven"}
    answer = await stage.ask(told, stream=streamed, headers=headers, metadata={"ssn": "secret-eight"})
    assert (answer.whole, b"secret-" in answer.body) == (True, True)
    seen += [each.read_bytes() for each in stage.spool.folder.rglob("*") if each.is_file()]
    assert b"ana" in b"".join(seen), "it was looked for where it would be"
    assert b"secret-" not in b"".join(seen)
    (attempt,) = stage.recorder.asked
    stage.recorder.fail = None
    assert await stage.drain.once()
    (stored,) = stage.recorder.records
    assert stored[0].stream is not None
    assert attempt[0].stream is not None
    assert stored[0].stream.body == attempt[0].stream.body
    assert stored[0].request == attempt[0].request
    assert {"request", "response"} <= set(stored[0].redacted)
    assert stored[0].usage.prompt is not None
    assert stored[1] == attempt[1]
    assert stored[1] is not None
    assert {char for each in stored[1].answers for char in each.message["content"]} == {"*"}


async def test_where_nothing_may_be_stored_of_messages_there_is_a_call_without_a_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path, redact_paths=["$.messages"])
    stage.away(True)
    stage.journey.upstream.script = lambda asked: completion("one")
    assert (await stage.ask([user("secret-one")], headers=NOW_AND_THEN)).whole
    await Client(stage.journey.gateway).request("POST", "/v1/embeddings", b'{"input": "x", "model": "e"', [])
    files = b"".join(each.read_bytes() for each in stage.spool.folder.rglob("*") if each.is_file())
    assert b"secret-one" not in files
    stage.away(False)
    assert await stage.drain.once()
    assert (len(stage.recorder.records), stage.spool.usage().dead) == (2, 0)


async def test_while_postgres_is_away_only_the_drain_asks_it(tmp_path: Path) -> None:
    # Who has a call in the spool waits for it until the deadline: three times here.
    stage = Stage(tmp_path, retrieval_deadline_ms=500)
    stage.away(True)
    for _ in range(3):
        assert (await stage.ask(HI, headers=NOW_AND_THEN)).whole
    tried = len(stage.recorder.asked)
    assert not await stage.drain.once()
    assert stage.keeper.away
    assert (await stage.ask(HI, headers=NOW_AND_THEN)).whole
    assert len(stage.recorder.asked) == tried
    stage.away(False)
    assert await stage.drain.once()
    assert not stage.keeper.away
    times = [facts.created_at for facts, _, _ in stage.recorder.records]
    assert (len(times), times) == (4, sorted(times))
    # After three silent requests the database is asked again half a second later (`SILENCE_S`).
    async with asyncio.timeout(5):
        while (await stage.ask(HI, headers=NOW_AND_THEN)).headers["x-mneme-status"] != "ok":
            pass


async def test_who_has_calls_in_the_spool_waits_for_them_or_joins_them(stage: Stage) -> None:
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    stage.away(False)
    stage.keeper.wanted.clear()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(stage.ask(HI, headers=NOW_AND_THEN))
        await eventually(stage.keeper.wanted.is_set)
        await stage.drain.once()
    assert waiting.result().headers["x-mneme-status"] == "ok"
    assert stage.waiting == 0

    slow = Stage(stage.spool.folder.parent, retrieval_deadline_ms=20)
    slow.away(True)
    await slow.ask(HI, headers=NOW_AND_THEN)
    slow.away(False)
    slow.keeper.away = False
    answer = await slow.ask(HI, headers=NOW_AND_THEN)
    assert (answer.headers["x-mneme-reason"], answer.whole) == ("deadline", True)
    assert slow.waiting == 2
    assert (await slow.ask(HI, headers={"x-mneme-user": "ben"})).headers["x-mneme-status"] == "ok"
    assert slow.waiting == 2


async def test_a_wait_that_cannot_succeed_is_given_up(stage: Stage) -> None:
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    stage.keeper.wanted.clear()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(stage.ask(HI, headers=NOW_AND_THEN))
        await eventually(stage.keeper.wanted.is_set)
        for _ in range(2):
            assert not await stage.drain.once()
    assert waiting.result().headers["x-mneme-reason"] == "store"
    assert stage.waiting == 2


async def test_what_postgres_refuses_is_set_aside_and_the_rest_goes_on(stage: Stage) -> None:
    stage.journey.upstream.script = lambda asked: completion("a")
    stage.away(True)
    for path in ("/v1/embeddings", "/v1/bad", "/v1/models"):
        client = Client(stage.journey.gateway)
        await client.request("POST", path, b"{}", [("x-mneme-user", "ana")])
    stage.away(False)
    stage.recorder.refused["/v1/bad"] = ValueError("what is this?")
    assert await stage.drain.once()
    assert [facts.path for facts, _, _ in stage.recorder.records] == ["/v1/embeddings", "/v1/models"]
    assert (stage.spool.usage().dead, stage.waiting, stage.events("dead")) == (1, 0, 1)


async def test_a_call_that_never_comes_through_is_set_aside_at_last(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "TRIES", 3)
    monkeypatch.setattr(drain_module, "PATIENCE_S", 0.0)
    stage.journey.upstream.script = lambda asked: completion("a")
    stage.away(True)
    await Client(stage.journey.gateway).request("POST", "/v1/huge", b"{}", [("x-mneme-user", "ana")])
    stage.away(False)
    stage.recorder.refused["/v1/huge"] = too_much = StoreUnavailable("too slow")
    # A database whose disk is full answers questions, too; what it has no room for can wait as long as it likes.
    assert [await stage.drain.once() for _ in range(5)] == [False] * 5
    assert (stage.spool.usage().dead, stage.waiting) == (0, 1)
    too_much.too_much = True
    monkeypatch.setattr(drain_module, "PATIENCE_S", 3600.0)  # somebody holds a lock, or migrates
    assert [await stage.drain.once() for _ in range(5)] == [False] * 5
    assert (stage.spool.usage().dead, stage.waiting) == (0, 1)
    monkeypatch.setattr(drain_module, "PATIENCE_S", 0.0)
    assert await stage.drain.once()
    assert stage.spool.usage().dead == 1


@pytest.mark.parametrize("failure", [StoreUnavailable("no room"), MemoryError(), Unavailable("no embedder")])
async def test_what_is_nobodys_fault_is_no_try(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """It waits for as long as that lasts; calls of others go on beside it."""
    monkeypatch.setattr(drain_module, "TRIES", 1)
    monkeypatch.setattr(drain_module, "PATIENCE_S", 0.0)
    stage.journey.upstream.script = lambda asked: completion("a")
    stage.away(True)
    for n in range(9):
        headers = [("x-mneme-user", f"user {n}")]
        await Client(stage.journey.gateway).request("POST", "/v1/stuck" if n < 2 else "/v1/models", b"{}", headers)
    stage.away(False)
    stage.recorder.refused["/v1/stuck"] = failure
    async with asyncio.timeout(10):
        while stage.waiting > 2:
            assert not await stage.drain.once()
    assert stage.spool.usage().dead == 0
    del stage.recorder.refused["/v1/stuck"]
    assert await stage.drain.once()
    assert (len(stage.recorder.records), stage.waiting) == (9, 0)


async def test_while_nothing_can_be_stored_requests_do_not_try(stage: Stage) -> None:
    """A full disk answers questions and takes small writes; that no call can be stored is what counts."""
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    stage.writable = True
    assert not await stage.drain.once()
    assert stage.keeper.away


async def test_a_mistake_of_mnemes_own_costs_no_call_for_an_hour(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "TRIES", 1)
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    stage.away(False)
    stage.recorder.fail = RuntimeError("a bug")
    assert not await stage.drain.once()
    assert (stage.spool.usage().dead, stage.waiting) == (0, 1)


async def test_a_file_that_nobody_can_read_is_set_aside(stage: Stage) -> None:
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    (waiting,) = [each for who in stage.spool.users() for each in stage.spool.turns(who)]
    waiting.path.write_bytes(b"rubbish")
    stage.away(False)
    assert await stage.drain.once()
    assert (stage.recorder.records, stage.spool.usage().dead) == ([], 1)


class Unlimited:
    """Counts what was settled, and refuses nobody."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, int]] = []

    async def admit(self, tenant: UUID, key: UUID, call: UUID, limits: KeyLimits, wanted: Any) -> AdmitAnswer:
        return AdmitAnswer(None, None, 1, None, None, None, None)

    async def settle(self, *who: Any, tokens: int, microcents: int, **more: Any) -> bool:
        self.settled.append((tokens, microcents))
        return True


async def test_calls_of_a_key_with_limits_are_stored_as_the_keys_with_model_and_cost(tmp_path: Path) -> None:
    """And settled when they end, not when they are stored."""
    ledger = Unlimited()
    stage = Stage(tmp_path, ledger=ledger, model_prices={"gpt-4o": (1.0, 2.0), "small": (1.0, 0.0)})
    key = UUID(int=11)
    stage.journey.caller.principal = Principal(
        LOCAL_TENANT, key, None, frozenset({"proxy"}), "keys", limits=KeyLimits(token_budget=10**9)
    )
    used = b'{"usage": {"prompt_tokens": 9, "total_tokens": 9}}'
    chat = completion("one")
    embedded = Reply(200, [(b"content-type", b"application/json")], [used])
    stage.journey.upstream.script = lambda asked: embedded if asked.get("input") else chat
    stage.away(True)
    stage.keeper.lost(StoreUnavailable())
    assert (await stage.ask(HI, headers=NOW_AND_THEN)).whole
    client = Client(stage.journey.gateway)
    body = b'{"model": "small", "input": "embed me"}'
    await client.request(
        "POST", "/v1/embeddings", body, [("content-type", "application/json"), ("x-mneme-user", "ana")]
    )
    await eventually(lambda: len(ledger.settled) == 2)
    assert all(tokens > 0 and cost > 0 for tokens, cost in ledger.settled)
    stage.away(False)
    assert await stage.drain.once()
    found = {facts.path: facts for facts, _, _ in stage.recorder.records}
    for path, model in (("/v1/chat/completions", "gpt-4o"), ("/v1/embeddings", "small")):
        facts = found[path]
        assert (facts.key_id, facts.model, facts.priced) == (key, model, True)
        assert facts.cost_microcents > 0
    assert found["/v1/embeddings"].usage.prompt == 9
    # What is counted but not to be kept is in no file.
    off = {**NOW_AND_THEN, "x-mneme-memory": "off", "x-mneme-capture": "off"}
    stage.away(True)
    stage.keeper.lost(StoreUnavailable())
    assert (await stage.ask([user("nobody heard")], headers=off)).whole
    assert stage.waiting == 0
    assert b"nobody heard" not in b"".join(
        each.read_bytes() for each in stage.spool.folder.rglob("*") if each.is_file()
    )
    await eventually(lambda: len(ledger.settled) == 3)


@pytest.mark.parametrize("durability", ["required", "best_effort"])
async def test_a_spool_that_is_full_is_no_success(tmp_path: Path, durability: str) -> None:
    stage = Stage(tmp_path, spool_max_bytes=1, durability=durability)
    stage.away(True)
    answer = await stage.ask(HI)
    assert answer.whole == (durability == "best_effort")
    assert (stage.events("refused"), stage.events("kept"), stage.waiting) == (1, 0, 0)


async def test_it_runs_until_it_is_stopped(stage: Stage) -> None:
    stage.away(True)
    await stage.ask(HI, headers=NOW_AND_THEN)
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.drain.run())
        await eventually(lambda: stage.keeper.failures > 1)
        stage.away(False)
        await eventually(lambda: not stage.waiting)
        stage.drain.stop()
    assert len(stage.recorder.records) == 1


async def test_calls_that_end_together_are_written_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    store = stage.spool.store

    def counted(calls: Any) -> Any:
        batches.append(len(calls))
        return store(calls)

    monkeypatch.setattr(stage.spool, "store", counted)
    stage.away(True)
    async with asyncio.TaskGroup() as group:
        for n in range(8):
            group.create_task(stage.ask(HI, headers={"x-mneme-user": f"user {n}"}))
    assert sum(batches) == 8
    assert len(batches) < 8
    assert stage.waiting == 8


async def test_a_writer_that_is_stopped_leaves_nobody_waiting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, held = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(calls: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        held.wait(10)
        return [None for _ in calls]

    monkeypatch.setattr(stage.spool, "store", slow)
    stage.away(True)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(asyncio.wait({group.create_task(stage.ask(HI))}))
        await begun.wait()
        group.create_task(stage.journey.tasks.close(0))
        done, _ = await asked
        held.set()
    assert done


def _no_disk(*arguments: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
