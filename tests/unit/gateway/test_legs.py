"""Turns in which the model asks back: what goes to the upstream, what the client gets, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.api.auth import Principal
from app.capture.facts import Outcome
from app.errors import StoreUnavailable, UpstreamTimeout, UpstreamUnreachable
from app.features.limits.limiter import AdmitAnswer
from app.features.paging.body import HiddenLegs
from app.features.paging.state import PagingPartRecord
from app.features.paging.tool_loop import NOT_LOOKED_UP
from app.features.paging.tools import LIMIT_REACHED, Names
from app.features.spool.keeper import revive
from app.gateway.identify import EarlierAnswer
from app.gateway.upstream import UpstreamBroke
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KeyLimits
from tests.support.faults import (
    DONE,
    StubAnswers,
    StubPager,
    asking,
    bytes_of,
    events,
    in_turn,
    said,
    saying,
    whole,
)
from tests.support.journey import Answer, Client, Message, Reply, completion, error, user
from tests.support.phantoms import call, calls, event, merged
from tests.support.sockets import eventually
from tests.support.turns import SESSION, GatewayStage

HI = [user("hi")]
ON = {"x-mneme-paging": "on"}
OWN = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture
def pager() -> StubPager:
    return StubPager()


@pytest.fixture
def answers() -> StubAnswers:
    return StubAnswers()


@pytest.fixture
def stage(pager: StubPager, answers: StubAnswers) -> GatewayStage:
    return GatewayStage(pager=pager, answers=answers)


async def ask(stage: GatewayStage, *replies: Reply | Exception, stream: bool = True, **more: Any) -> Answer:
    return await stage.answering(in_turn(*replies)).ask(HI, stream=stream, headers=ON | more.pop("headers", {}), **more)


def roles(asked: Message) -> list[str]:
    return [each["role"] for each in asked["messages"]]


# --- no fault -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_turn_without_a_fault_is_the_upstreams_own(stage: GatewayStage, streamed: bool) -> None:
    reply = saying("hello") if streamed else whole("hello")
    answer = await ask(stage, reply, stream=streamed)
    assert answer.body == bytes_of(reply)
    assert answer.whole
    assert [each["function"]["name"] for each in stage.upstream.asked[0]["tools"]] == [*Names()]
    assert len(stage.recorder.records) == 1
    assert stage.recorder.last.metadata == {}
    shown = "faults=0+" if streamed else "faults=0"
    assert answer.headers["x-mneme-paging"] == f"zone=caution;tokens=30;budget=1000;saved=0;{shown}"


async def test_without_tools_nothing_stands_between(stage: GatewayStage) -> None:
    answer = await ask(stage, saying("hello"), n=2)
    assert answer.text == "hello"
    assert answer.headers["x-mneme-paging"].endswith(";tools=several-choices")


async def test_an_error_is_the_upstreams_own(stage: GatewayStage) -> None:
    answer = await ask(stage, error(429, "slow down"))
    assert (answer.status, answer.json()["error"]["message"]) == (429, "slow down")
    assert len(stage.upstream.requests) == 1


async def test_a_first_leg_that_breaks_is_broken_as_ever(stage: GatewayStage) -> None:
    for broken in (events(UpstreamBroke("gone")), events(event({"content": "ha"}), UpstreamBroke("gone"))):
        answer = await ask(stage, broken)
        assert (answer.status, answer.whole, answer.body) == (200, False, bytes_of(broken))
        assert stage.recorder.last.outcome == Outcome.BROKEN
    answer = await ask(stage, Reply(chunks=[b'{"choices', UpstreamBroke("gone")]), stream=False)
    assert (answer.status, answer.whole, answer.body) == (200, False, b'{"choices')


# --- a fault -------------------------------------------------------------------------------------------------------------


async def test_a_fault_in_a_stream(stage: GatewayStage, pager: StubPager, answers: StubAnswers) -> None:
    legs = asking("which?", text="Let me see. "), saying("It is 4711.")
    answer = await ask(stage, *legs)
    assert answer.body == merged(*map(bytes_of, legs))
    assert answer.whole
    assert answer.text == "Let me see. It is 4711."
    first, second = stage.upstream.asked
    assert roles(second) == ["user", "assistant", "tool"]
    assert second["messages"][1]["content"] == "Let me see. "
    assert said(second) == ['told {"question": "which?"}']
    assert second["tools"] == first["tools"]
    assert stage.upstream.closed == 2
    assert answer.headers["x-mneme-paging"].endswith("faults=0+")
    (paging,) = pager.paged
    assert paging.hidden.legs[1]["content"] == 'remembered told {"question": "which?"}'


async def test_a_fault_in_a_body(stage: GatewayStage) -> None:
    answer = await ask(stage, whole("Let me see. ", "which?"), whole("It is 4711."), stream=False)
    assert answer.text == "Let me see. It is 4711."
    assert answer.json()["usage"]["prompt_tokens"] == 22
    assert int(answer.headers.get("content-length", 0)) == len(answer.body)
    assert answer.headers["x-mneme-paging"].endswith(";faults=1")


@pytest.mark.parametrize("streamed", [True, False])
async def test_each_leg_is_recorded_and_the_call_has_the_sum(stage: GatewayStage, streamed: bool) -> None:
    first, second = (asking("which?", told=20), saying("so", told=30)) if streamed else (whole(None, "q"), whole("so"))
    answer = await ask(stage, first, second, stream=streamed)
    records = {facts.call_id: (facts, exchange) for facts, exchange, _ in stage.recorder.records}
    assert len(records) == 3
    (client, exchange), legs = records.pop(stage.recorder.last.call_id), [each for each, _ in records.values()]
    assert answer.headers["x-mneme-call-id"] == str(client.call_id)
    assert (client.usage.prompt, client.usage.completion) == ((50, 12) if streamed else (22, 14))
    assert exchange is not None
    assert exchange.answers[0].message["content"] == "so"
    assert client.stream is not None
    assert client.stream.body == answer.body
    legs.sort(key=lambda each: each.metadata["leg"])
    assert client.metadata["legs"] == [str(each.call_id) for each in legs]
    for n, (leg, reply, sent) in enumerate(zip(legs, (first, second), stage.upstream.sent, strict=True), 1):
        assert leg.leg is not None
        assert (leg.leg.call_id, leg.leg.number) == (client.call_id, n)
        assert leg.metadata["leg_of"] == str(client.call_id)
        assert leg.metadata["usage"]["prompt_tokens"] == ([20, 30][n - 1] if streamed else 11)
        assert (leg.usage.prompt, leg.cost_microcents) == (None, 0)
        assert (leg.status, leg.outcome, leg.session_id) == (200, Outcome.COMPLETE, client.session_id)
        assert leg.stream is not None
        assert leg.stream.body == bytes_of(reply)
        assert len(leg.stream.event_offsets) == (bytes_of(reply).count(b"\n\n") if streamed else 0)
        assert leg.request is not None
        blobs = b"".join(leg.request.blobs[each] for node in leg.request.nodes for each in node.blobs)
        assert leg.request.prefix + blobs + leg.request.suffix == sent
        assert leg.repeat_key is None
    assert client.cost_microcents == sum(each.metadata["cost_microcents"] for each in legs)
    assert client.priced == (client.cost_microcents > 0) == (not streamed), "the streams are of a model without a price"
    assert all(exchange is None for _, exchange in records.values())
    await stage.journey.settled()


async def test_usage_is_counted_where_the_upstream_tells_none(stage: GatewayStage) -> None:
    await ask(stage, asking("which?"), saying("so"))
    *legs, client = (facts for facts, _, _ in stage.recorder.records)
    figures = [each.metadata["usage"] for each in legs]
    assert all(each["counted"] for each in figures)
    assert client.usage.counted
    assert client.usage.prompt == sum(each["prompt_tokens"] for each in figures)
    assert figures[1]["prompt_tokens"] > figures[0]["prompt_tokens"] > 50, "the tools are counted"


async def test_what_the_model_was_told_is_in_the_record(stage: GatewayStage) -> None:
    await ask(stage, asking("which?"), saying("so"))
    facts, exchange, _ = stage.recorder.records[-1]
    assert exchange is not None
    assert isinstance(facts.part, PagingPartRecord)
    assert [each.question for each in facts.part.record.faults] == ['{"question": "which?"}']
    (key, row) = next(iter(facts.part.record.hidden.items()))
    assert key == exchange.answer_chains[0]
    assert [each["role"] for each in HiddenLegs.of_json(row).legs] == ["assistant", "tool"]


async def test_parallel_calls_are_answered_together(stage: GatewayStage, answers: StubAnswers) -> None:
    two = [call(n, "memory_query", json.dumps({"question": f"q{n}"}), f"c{n}") for n in range(2)]
    answer = await ask(stage, events(event(calls(*two)), event(finish="tool_calls"), DONE), saying("both"))
    assert answer.text == "both"
    assert [len(each) for each in answers.asked] == [2]
    assert len(said(stage.upstream.asked[1])) == 2


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_beside_the_clients_own_waits(stage: GatewayStage, pager: StubPager, streamed: bool) -> None:
    given = [call(0, "memory_query", '{"question":"q"}', "c0"), call(1, "weather", "{}", "c1")]
    reply = (
        events(event(calls(*given)), event(finish="tool_calls"), DONE)
        if streamed
        else completion(None, tool_calls=given)
    )
    answer = await ask(stage, reply, stream=streamed, tools=[OWN])
    assert b"weather" in answer.body
    assert b"memory_query" not in answer.body
    assert len(stage.upstream.requests) == 1
    assert [each.name for each in pager.paged[0].hidden.beside] == ["memory_query"]
    leg, client = (facts for facts, _, _ in stage.recorder.records)
    assert leg.stream is not None
    assert leg.stream.body == bytes_of(reply)
    assert client.metadata["legs"] == [str(leg.call_id)]
    assert isinstance(client.part, PagingPartRecord)
    (row,) = client.part.record.hidden.values()
    assert HiddenLegs.of_json(row).pending


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_model_that_asks_for_ever_is_told_to_stop(
    stage: GatewayStage, answers: StubAnswers, streamed: bool
) -> None:
    reply = asking("again?") if streamed else whole(None, "again?")
    answer = await ask(stage, reply, stream=streamed, tools=[OWN])
    assert len(stage.upstream.requests) == 6
    assert len(answers.asked) == 4
    asked = stage.upstream.asked
    assert said(asked[5])[-1] == LIMIT_REACHED
    assert asked[4]["tools"] != [OWN]
    assert asked[5]["tools"] == [OWN]
    assert b"memory" not in answer.body
    assert b'"stop"' in answer.body
    assert answer.whole
    assert len(stage.recorder.records) == 7


async def test_a_look_up_that_fails_is_told_to_the_model(stage: GatewayStage, answers: StubAnswers) -> None:
    answers.fail = ZeroDivisionError()
    answer = await ask(stage, asking("which?"), saying("I could not look."))
    assert answer.text == "I could not look."
    assert said(stage.upstream.asked[1]) == [NOT_LOOKED_UP]
    assert stage.journey.count("mneme_degradations_total", reason="faults") == 1


async def test_an_idempotency_key_is_the_first_legs(stage: GatewayStage) -> None:
    await ask(stage, asking("which?"), saying("so"), headers={"idempotency-key": "k"})
    first, second = ({k.lower() for k, _ in each.headers} for each in stage.upstream.requests)
    assert b"idempotency-key" in first
    assert b"idempotency-key" not in second


async def test_with_capture_off_no_leg_is_kept_and_all_are_counted(stage: GatewayStage) -> None:
    await ask(stage, asking("which?", told=20), saying("so", told=30), headers={"x-mneme-capture": "off"})
    (client,) = (facts for facts, _, _ in stage.recorder.records)
    assert (client.usage.prompt, client.usage.completion) == (50, 12)
    assert client.metadata == {"captured": False}


async def test_legs_that_cannot_be_stored_never_end_well(stage: GatewayStage) -> None:
    stage.recorder.fail = StoreUnavailable()
    answer = await ask(stage, asking("which?"), saying("so"))
    assert not answer.whole
    assert b"[DONE]" not in answer.body


class Settled:
    """A ledger that admits everything."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    async def admit(self, *_: Any) -> AdmitAnswer:
        return AdmitAnswer(None, 0.0, 77, None, None, None, None)

    async def settle(self, *_: Any, tokens: int, **given: Any) -> None:
        self.tokens.append(tokens)


@pytest.mark.parametrize("goes", [True, False])
async def test_a_keys_budget_pays_for_all_legs(pager: StubPager, answers: StubAnswers, goes: bool) -> None:
    ledger, held = Settled(), asyncio.Event()
    stage = GatewayStage(pager=pager, answers=answers, ledger=ledger)
    limits = KeyLimits(token_budget=10**6)
    stage.journey.caller.principal = Principal(LOCAL_TENANT, UUID(int=1), None, frozenset(), "keys", limits)
    if goes:
        first, second = asking("which?", text="Hm.", told=20), events(event({"content": "so"}), held)
        stage.answering(in_turn(first, second))
        client = Client(stage.journey.gateway)
        await going(stage, client, lambda: b"so" in b"".join(client.parts))
        (tokens,) = ledger.tokens
        assert tokens > 25 + 50, "the prompt of the leg that nobody heard to its end is paid for"
    else:
        await ask(stage, asking("which?", told=20), saying("so", told=30))
        await stage.journey.settled()
        assert ledger.tokens == [20 + 5 + 30 + 7]


# --- later legs that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_later_leg_that_is_refused_has_its_own_status(stage: GatewayStage, streamed: bool) -> None:
    refused = error(429, "slow down", [(b"retry-after", b"7")])
    begun = events(event(calls(call(0, "memory_query", '{"question":"q"}', "c"))), event(finish="tool_calls"), DONE)
    answer = await ask(stage, begun if streamed else whole(None, "q"), refused, stream=streamed)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert answer.body == bytes_of(refused)
    assert answer.whole
    first, second, client = (facts for facts, _, _ in stage.recorder.records)
    assert (first.status, second.status, client.status) == (200, 429, 429)
    assert second.stream is not None
    assert second.stream.body == bytes_of(refused)
    assert client.usage.prompt == first.metadata["usage"]["prompt_tokens"]


async def test_a_later_leg_that_is_refused_behind_text_is_an_error_event(stage: GatewayStage) -> None:
    answer = await ask(stage, asking("which?", text="Let me see."), error(503, "busy"))
    assert (answer.status, answer.whole) == (200, False)
    *_, last = answer.body.strip().split(b"\n\n")
    assert json.loads(last[6:])["error"]["message"] == "busy"
    assert b"[DONE]" not in answer.body
    assert stage.recorder.last.outcome == Outcome.BROKEN
    assert stage.recorder.last.error == "The upstream answered 503 when it was asked on."


@pytest.mark.parametrize(("trouble", "status"), [(UpstreamUnreachable("no"), 502), (UpstreamTimeout(), 504)])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_later_leg_that_cannot_be_had(
    stage: GatewayStage, trouble: Exception, status: int, streamed: bool
) -> None:
    begun = events(event(calls(call(0, "memory_query", '{"question":"q"}', "c"))), event(finish="tool_calls"), DONE)
    answer = await ask(stage, begun if streamed else whole(None, "q"), trouble, stream=streamed)
    assert (answer.status, answer.json()["error"]["type"]) == (status, "upstream_error")
    assert [facts.outcome for facts, _, _ in stage.recorder.records] == [
        Outcome.COMPLETE, Outcome.FAILED, Outcome.FAILED,
    ]  # fmt: skip
    if streamed:
        answer = await ask(stage, asking("which?", text="Hm."), trouble)
        assert b'"type":"upstream_error"' in answer.body
        assert not answer.whole


async def test_a_later_leg_that_breaks(stage: GatewayStage) -> None:
    broken = events(event({"content": " And so"}), UpstreamBroke("gone"))
    answer = await ask(stage, asking("which?", text="Hm."), broken)
    assert answer.body.count(b'"error"') == 1
    assert b" And so" in answer.body
    assert not answer.whole
    facts, exchange, _ = stage.recorder.records[-1]
    assert (facts.outcome, facts.error) == (Outcome.BROKEN, "gone")
    assert exchange is not None
    assert exchange.answers[0].message["content"] == "Hm. And so"
    begun = events(event(calls(call(0, "memory_query", '{"question":"q"}', "c"))), event(finish="tool_calls"), DONE)
    answer = await ask(stage, begun, events(UpstreamBroke("gone")))
    assert answer.status == 502
    answer = await ask(stage, whole(None, "q"), Reply(chunks=[b"{", UpstreamBroke("gone")]), stream=False)
    assert answer.status == 502


async def test_a_leg_that_breaks_behind_its_end_is_whole(stage: GatewayStage) -> None:
    begun = bytes_of(asking("which?")).removesuffix(DONE)
    answer = await ask(stage, events(begun, UpstreamBroke("gone")), saying("so"))
    assert answer.text == "so"
    assert answer.whole
    assert [facts.outcome for facts, _, _ in stage.recorder.records] == [
        Outcome.BROKEN, Outcome.COMPLETE, Outcome.COMPLETE,
    ]  # fmt: skip


# --- the other form -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_later_leg_in_one_piece_becomes_events(stage: GatewayStage, wanted: bool) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wanted else {}
    answer = await ask(stage, asking("which?", text="Hm. ", told=20 if wanted else None), whole("so"), **options)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.whole
    told = [json.loads(each[6:]) for each in answer.body.split(b"\n\n") if each[6:7] == b"{"]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in told if each["choices"]) == "Hm. so"
    assert answer.body.endswith(DONE)
    assert [each["usage"]["prompt_tokens"] for each in told if each.get("usage")] == ([31] if wanted else [])
    assert stage.recorder.last.usage.completion == (12 if wanted else stage.recorder.last.usage.completion)


async def test_a_later_leg_in_one_piece_that_asks_again(stage: GatewayStage) -> None:
    answer = await ask(stage, asking("which?"), whole(None, "and?"), saying("so"))
    assert answer.text == "so"
    assert answer.whole
    assert answer.headers["content-type"] == "text/event-stream"


async def test_a_later_leg_of_nonsense_is_an_error(stage: GatewayStage) -> None:
    answer = await ask(stage, asking("which?", text="Hm."), Reply(chunks=[b"<html>"]))
    assert b'"upstream_error"' in answer.body
    assert not answer.whole


async def test_a_later_leg_in_events_becomes_a_body(stage: GatewayStage) -> None:
    answer = await ask(stage, whole("Hm. ", "q"), saying("so", told=30), stream=False)
    assert answer.text == "Hm. so"
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["usage"]["prompt_tokens"] == 41
    answer = await ask(stage, whole("Hm. ", "q"), events(event({"content": "so"})), stream=False)
    assert answer.status == 502


# --- upstreams that take no tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_upstream_that_takes_no_tools_is_asked_without(
    stage: GatewayStage, pager: StubPager, streamed: bool
) -> None:
    refused = error(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    answer = await ask(stage, refused, saying("so") if streamed else whole("so"), stream=streamed)
    assert answer.text == "so"
    first, second = stage.upstream.asked
    assert first.pop("tools")
    assert second == first
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "no-tools")
    assert answer.headers["x-mneme-paging"].endswith(";tools=refused")
    assert stage.journey.count("mneme_upstream_attempts_total", upstream="upstream", result="no_tools") == 1
    facts, _, compiled = stage.recorder.records[-1]
    assert isinstance(facts.part, PagingPartRecord)
    assert not facts.part.record.offered
    assert compiled is not None
    assert compiled.audit["paging"] == {"tools": None, "declined": "refused"}
    assert facts.sent is not None


async def test_another_refusal_stands(stage: GatewayStage) -> None:
    answer = await ask(stage, error(400, "temperature must be at most 2"))
    assert answer.status == 400
    assert len(stage.upstream.requests) == 1


async def test_a_prompt_refused_for_its_length_goes_without_memory_and_with_the_tools(stage: GatewayStage) -> None:
    answer = await ask(stage, error(400, "maximum context length"), asking("which?"), saying("so"))
    assert answer.text == "so"
    assert [each["messages"][0]["content"] for each in stage.upstream.asked] == ["<memory> hi", "hi", "hi"]
    assert "tools" in stage.upstream.asked[1]


# --- clients that go -----------------------------------------------------------------------------------------------------


async def going(stage: GatewayStage, client: Client, when: Callable[[], bool], stream: bool = True) -> None:
    """The client asks, and goes away when it is so."""
    body = json.dumps({"model": "gpt-4o", "messages": HI, "stream": stream}).encode()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.request("POST", "/v1/chat/completions", body, list(ON.items())))
        await eventually(when)
        client.gone.set()
        async with asyncio.timeout(1.0):
            await asyncio.wait([task])
    await stage.journey.settled()


@pytest.mark.parametrize("text", ["", "Let me see."])
async def test_a_client_that_goes_while_it_is_looked_up(stage: GatewayStage, answers: StubAnswers, text: str) -> None:
    answers.hold = asyncio.Event()
    stage.answering(in_turn(asking("which?", text=text), saying("so")))
    await going(stage, Client(stage.journey.gateway), lambda: bool(answers.asked))
    assert answers.cancelled
    assert len(stage.upstream.requests) == 1
    first, client = (facts for facts, _, _ in stage.recorder.records)
    assert (first.outcome, client.outcome) == (Outcome.COMPLETE, Outcome.GONE)
    assert client.usage.prompt == first.metadata["usage"]["prompt_tokens"]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_goes_in_a_later_leg(stage: GatewayStage, streamed: bool) -> None:
    held = asyncio.Event()
    second = events(event({"content": "so"}), held) if streamed else Reply(chunks=[b"{", held])
    stage.answering(in_turn(asking("which?", text="Hm.") if streamed else whole("Hm.", "q"), second))
    await going(stage, Client(stage.journey.gateway), lambda: len(stage.upstream.requests) == 2, streamed)
    assert stage.upstream.closed == 2
    first, second_leg, client = (facts for facts, _, _ in stage.recorder.records)
    assert (first.outcome, second_leg.outcome, client.outcome) == (Outcome.COMPLETE, Outcome.GONE, Outcome.GONE)
    assert client.usage.prompt == sum(each.metadata["usage"]["prompt_tokens"] for each in (first, second_leg))


async def test_the_end_of_the_server_in_a_later_leg_is_recorded(stage: GatewayStage) -> None:
    held = asyncio.Event()
    stage.answering(in_turn(asking("which?", text="Hm."), events(event({"content": "so"}), held)))
    client = Client(stage.journey.gateway)
    body = json.dumps({"model": "gpt-4o", "messages": HI, "stream": True}).encode()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.request("POST", "/v1/chat/completions", body, list(ON.items())))
        await eventually(lambda: b"so" in b"".join(client.parts))
        task.cancel()
        await asyncio.wait([task])
    await stage.journey.gateway.drained(1.0)
    assert not task.result().whole
    assert [facts.outcome for facts, _, _ in stage.recorder.records] == [
        Outcome.COMPLETE, Outcome.CANCELLED, Outcome.CANCELLED,
    ]  # fmt: skip
    assert stage.upstream.closed == 2


# --- repeats, and what waits for Postgres -------------------------------------------------------------------------------------


async def test_a_body_that_is_sent_once_more_has_the_tools_in_it(stage: GatewayStage) -> None:
    await ask(stage, asking("which?"), saying("so"), headers={"idempotency-key": "k"})
    sent = stage.upstream.sent[0]
    stage.preparer.found = EarlierAnswer(sent, SESSION, True)
    answer = await ask(stage, asking("which?"), saying("so"), headers={"idempotency-key": "k"})
    assert stage.upstream.sent[2] == sent
    assert answer.text == "so"
    assert len(stage.upstream.requests) == 4
    facts, exchange, _ = stage.recorder.records[-1]
    assert exchange is None, "its turn is there"
    assert facts.part is None or (isinstance(facts.part, PagingPartRecord) and facts.part.record.faults)


async def test_legs_wait_in_the_spool_with_their_call(tmp_path: Path, pager: StubPager, answers: StubAnswers) -> None:
    stage = GatewayStage(pager=pager, answers=answers, spool=tmp_path)
    stage.recorder.fail = StoreUnavailable()
    answer = await ask(stage, asking("which?", told=20), saying("so", told=30))
    assert answer.whole
    keeper = stage.journey.keeper
    assert keeper is not None
    stage.recorder.fail = None
    (user_id,) = keeper.spool.users()
    for each in keeper.spool.turns(user_id):
        kept = keeper.spool.load(each)
        assert kept is not None
        call = revive(kept, 1 << 20, stage.journey.addon)
        await stage.journey.gateway.settle(call.call, call.ending, call.tape, call.ended_at, call.promised)
    found = {facts.call_id: facts for facts, _, _ in stage.recorder.records}
    client = found.pop(UUID(answer.headers["x-mneme-call-id"]))
    assert (client.usage.prompt, client.usage.completion) == (50, 12)
    assert {UUID(each) for each in client.metadata["legs"]} == set(found)
    assert {each.metadata["leg"]: each.metadata["usage"]["prompt_tokens"] for each in found.values()} == {1: 20, 2: 30}
    assert {each.session_id for each in found.values()} == {SESSION}
    assert all(each.stream is not None for each in found.values())
