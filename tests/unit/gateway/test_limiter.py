"""Limits on the way of a request: before the upstream, after the end, and while the database is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from app.api.auth import Principal
from app.capture.facts import CallFacts
from app.errors import StoreUnavailable, UpstreamUnreachable
from app.features.limits.limiter import AdmitAnswer, Estimate
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KeyLimits
from tests.support.journey import (
    UPSTREAM,
    Answer,
    Client,
    Journey,
    Message,
    Reply,
    build_journey,
    completion,
    error,
    stream,
)

KEY = UUID(int=0xE1)
CHAT = "/v1/chat/completions"
ADMITTED = AdmitAnswer(None, 0.0, 77, 4, 61.0, None, None)


class StubLedger:
    """Admits as it is told; notes what it is asked."""

    def __init__(self) -> None:
        self.standing = ADMITTED
        self.fail: Exception | None = None
        self.admitted: list[Estimate] = []
        self.settled: list[dict[str, Any]] = []

    async def admit(self, tenant: UUID, key: UUID, call: UUID, limits: KeyLimits, estimate: Estimate) -> AdmitAnswer:
        assert (tenant, key) == (LOCAL_TENANT, KEY)
        if self.fail is not None:
            raise self.fail
        self.admitted.append(estimate)
        return self.standing

    async def settle(self, tenant: UUID, key: UUID, call: UUID, slot: int, **given: Any) -> None:
        assert (tenant, key, slot) == (LOCAL_TENANT, KEY, 77)
        if self.fail is not None:
            raise self.fail
        self.settled.append(given)


class KeptRecords:
    def __init__(self) -> None:
        self.facts: list[CallFacts] = []

    async def record(self, facts: CallFacts, *_: Any) -> bool:
        self.facts.append(facts)
        return True


class Scene:
    """A gateway whose caller has a key with limits; memory is off."""

    def __init__(self, limits: KeyLimits | None, *, patience_s: float = 1.0, **settings: Any) -> None:
        self.ledger, self.records = StubLedger(), KeptRecords()
        self.journey: Journey = build_journey(
            None,
            settings=Settings(**{"upstream_base_url": UPSTREAM, **settings}),
            recorder=self.records,
            preparer=object(),
            ledger=self.ledger,
            patience_s=patience_s,
        )
        self.journey.caller.principal = Principal(LOCAL_TENANT, KEY, None, frozenset(), "keys", limits)

    def answering(self, script: Callable[[Message], Reply | Exception]) -> Scene:
        self.journey.upstream.script = script
        return self

    async def post(self, body: bytes, path: str = CHAT, **headers: str) -> Answer:
        given = {"content-type": "application/json", "x-mneme-memory": "off"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await Client(self.journey.gateway).request("POST", path, body, list(given.items()))
        await self.journey.settled()
        return answer

    async def ask(self, path: str = CHAT, *, more: dict[str, str] | None = None, **fields: Any) -> Answer:
        document = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], **fields}
        return await self.post(json.dumps(document).encode(), path, **(more or {}))

    @property
    def asked(self) -> int:
        return len(self.journey.upstream.requests)


RATED = KeyLimits(requests_per_minute=30)
BUDGETED = KeyLimits(money_budget=10**9)


async def test_a_key_without_limits_pays_nothing() -> None:
    scene = Scene(None)
    assert (await scene.ask()).status == 200
    assert (scene.ledger.admitted, scene.ledger.settled) == ([], [])
    assert scene.records.facts[0].key_id == KEY


async def test_limits_of_models_and_capture_alone_ask_nobody() -> None:
    scene = Scene(KeyLimits(models=("gpt-*",), capture=False))
    assert (await scene.ask()).status == 200
    assert (scene.ledger.admitted, scene.ledger.settled, scene.records.facts) == ([], [], [])


async def test_an_admitted_call_is_told_what_is_left_and_is_settled_with_what_it_came_to() -> None:
    scene = Scene(BUDGETED).answering(
        lambda asked: Reply(headers=[(b"x-ratelimit-limit-requests", b"999"), *completion("hi").headers],
                            chunks=completion("hi").chunks)
    )  # fmt: skip
    assert (await scene.ask()).headers["x-ratelimit-limit-requests"] == "999", "the key has no such limit"
    scene.journey.caller.principal = Principal(
        LOCAL_TENANT, KEY, None, frozenset(), "keys", KeyLimits(requests_per_minute=30, tokens_per_minute=9)
    )
    answer = await scene.ask()
    assert answer.headers["x-ratelimit-limit-requests"] == "30"
    assert answer.headers["x-ratelimit-remaining-requests"] == "4"
    assert dict(scene.records.facts[1].response_headers)[b"x-ratelimit-limit-requests"] == b"999", "as it came"
    # 11 and 7 tokens of gpt-4o, 3 of them cached: (8 × 2.50 + 3 × 1.25 + 7 × 10) × 10⁻⁶ dollars
    assert scene.ledger.settled == [{"unasked": False, "tokens": 18, "microcents": 9375, "unrecorded": None}] * 2
    assert scene.records.facts[0].cost_microcents == 9375


async def test_a_rate_alone_needs_no_settling() -> None:
    scene = Scene(RATED)
    await scene.ask()
    assert len(scene.ledger.admitted) == 1
    assert scene.ledger.settled == []


async def test_a_refused_call_reaches_nobody() -> None:
    scene = Scene(RATED)
    scene.ledger.standing = AdmitAnswer("requests", 12.0, 77, 0, 61.0, None, None)
    answer = await scene.ask()
    assert (answer.status, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (answer.headers["retry-after"], answer.headers["x-ratelimit-remaining-requests"]) == ("12", "0")
    assert "x-mneme-call-id" in answer.headers
    assert (scene.asked, scene.records.facts, scene.ledger.settled) == (0, [], [])
    assert scene.journey.count("mneme_refusals_total", limit="requests") == 1


async def test_a_call_that_reached_no_upstream_gives_everything_back() -> None:
    scene = Scene(RATED).answering(lambda asked: UpstreamUnreachable())
    assert (await scene.ask()).status == 502
    assert scene.ledger.settled == [{"unasked": True, "tokens": 0, "microcents": 0, "unrecorded": None}]


async def test_an_upstreams_refusal_costs_nothing_and_was_a_request() -> None:
    scene = Scene(BUDGETED).answering(lambda asked: error(500, "no"))
    assert (await scene.ask()).status == 500
    assert scene.ledger.settled == [{"unasked": False, "tokens": 0, "microcents": 0, "unrecorded": None}]


async def test_a_client_that_goes_away_pays_for_what_came() -> None:
    pieces = stream("one two three four", done=False, finish=None)
    held = asyncio.Event()
    scene = Scene(BUDGETED).answering(lambda asked: Reply(headers=pieces.headers, chunks=[*pieces.chunks, held]))
    client = Client(scene.journey.gateway)
    client.on_part = client.gone.set
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    await client.request("POST", CHAT, body, [("x-mneme-memory", "off")])
    await scene.journey.settled()
    (settled,) = scene.ledger.settled
    assert settled["tokens"] > 4
    assert not settled["unasked"]


async def test_nothing_kept_is_counted_all_the_same() -> None:
    """Without capture and memory there is no record: what it cost goes with the settling."""
    scene = Scene(BUDGETED)
    await scene.ask(more={"x_mneme_capture": "off"})
    assert scene.records.facts == []
    (settled,) = scene.ledger.settled
    told = settled["unrecorded"]
    assert (told.model, told.prompt_tokens, told.completion_tokens, told.cached_tokens, told.priced) == (
        "gpt-4o", 11, 7, 3, True
    )  # fmt: skip
    assert settled["microcents"] == 9375


@pytest.mark.parametrize("capture", ["on", "off"])
async def test_other_paths_are_counted_by_what_they_tell(capture: str) -> None:
    body = {"data": [], "usage": {"input_tokens": 100, "output_tokens": 10}}
    scene = Scene(BUDGETED).answering(lambda asked: Reply(chunks=[json.dumps(body).encode()]))
    await scene.ask("/v1/responses", more={"x_mneme_capture": capture})
    (settled,) = scene.ledger.settled
    assert (settled["tokens"], settled["microcents"]) == (110, 100 * 250 + 10 * 1000)
    assert [each.model for each in scene.records.facts] == ["gpt-4o"] * (capture == "on")


async def test_a_stream_that_tells_nothing_is_counted_by_its_events() -> None:
    scene = Scene(BUDGETED).answering(lambda asked: stream("a", "b", "c"))
    await scene.ask("/v1/completions")
    assert scene.ledger.settled[0]["tokens"] == len(stream("a", "b", "c").chunks)


async def test_unknown_models_cost_nothing_and_are_known_as_such() -> None:
    scene = Scene(BUDGETED).answering(
        lambda asked: Reply(chunks=[b'{"usage":{"prompt_tokens":5,"completion_tokens":1}}'])
    )
    await scene.ask("/v1/completions", model="nobody/knows-it")
    assert scene.ledger.settled[0]["microcents"] == 0
    assert scene.records.facts[0].priced is False


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        (CHAT, b'{"model":"o3","messages":[]}', "application/json"),
        (CHAT, b'{"model":["gpt-4o"],"messages":[]}', "application/json"),
        (CHAT, b"not json", "application/json"),
        ("/v1/embeddings", b'{"input":"x"}', "application/json"),
        ("/v1/audio/transcriptions", b"--x", "multipart/form-data; boundary=x"),
    ],
)
async def test_a_model_that_is_not_allowed_or_cannot_be_read(path: str, body: bytes, content_type: str) -> None:
    scene = Scene(KeyLimits(models=("gpt-*",))).answering(lambda asked: completion("hi"))
    answer = await scene.post(body, path, content_type=content_type)
    assert (answer.status, answer.json()["error"]["param"]) == (403, "model")
    assert scene.asked == 0
    listed = await Client(scene.journey.gateway).request("GET", "/v1/models")
    assert listed.status == 200


async def test_a_key_without_capture_is_not_captured_whatever_the_request_says() -> None:
    scene = Scene(KeyLimits(capture=False))
    assert (await scene.ask(more={"x_mneme_capture": "on"})).status == 200
    assert scene.records.facts == []


# --- while the database is away -----------------------------------------------------------------------------------------


async def test_rates_go_on_in_this_process() -> None:
    scene = Scene(KeyLimits(requests_per_minute=3))
    scene.ledger.fail = StoreUnavailable()
    found = [await scene.ask() for _ in range(5)]
    assert [each.status for each in found] == [200, 200, 200, 429, 429]
    assert found[0].headers["x-ratelimit-remaining-requests"] == "2"
    assert scene.ledger.settled == []
    assert scene.journey.count("mneme_degradations_total", reason="limits") == 5


async def test_a_key_with_a_budget_is_refused() -> None:
    scene = Scene(BUDGETED)
    scene.ledger.fail = StoreUnavailable()
    assert (await scene.ask()).status == 503
    assert scene.asked == 0


async def test_a_database_that_hangs_is_away() -> None:
    scene = Scene(KeyLimits(requests_per_minute=3), patience_s=0.001)

    async def never(*_: Any) -> AdmitAnswer:
        await asyncio.Event().wait()
        return ADMITTED

    scene.ledger.admit = never  # type: ignore[method-assign, assignment]  # another ledger
    assert (await scene.ask()).status == 200


async def test_what_cannot_be_settled_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(BUDGETED)

    def breaking(asked: Message) -> Reply:
        scene.ledger.fail = StoreUnavailable()
        return completion("hi")

    assert (await scene.answering(breaking).ask()).whole
    assert "a call was not settled" in caplog.text
