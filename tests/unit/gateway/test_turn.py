"""The pipeline from outside: what goes out, what comes back, and what is recorded, whatever fails on the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from app.api.auth import Principal
from app.capture.facts import Outcome
from app.errors import (
    StoreUnavailable,
    Unauthenticated,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.gateway.forward import RetryPolicy
from app.gateway.identify import EarlierAnswer
from app.store.ids import LOCAL_TENANT
from tests.support.journey import (
    UPSTREAM,
    Client,
    Message,
    Reply,
    completion,
    error,
    stream,
    user,
)
from tests.support.sockets import eventually
from tests.support.tables import each_of
from tests.support.turns import BLOCK, SESSION, GatewayStage


@pytest.fixture
def stage() -> GatewayStage:
    return GatewayStage()


HI = [user("hi")]


# --- the main job -------------------------------------------------------------------------------------------------------


async def test_a_chat_goes_out_with_its_context_and_comes_back_recorded(stage: GatewayStage) -> None:
    answer = await stage.ask(HI)
    assert stage.upstream.asked == [{"model": "gpt-4o", "messages": [user("<memory> hi")]}]
    assert (answer.status, answer.whole, answer.text) == (200, True, "You said: <memory> hi")
    head = answer.headers
    assert head["x-mneme-status"] == "ok"
    assert head["x-mneme-session-id"] == str(SESSION)
    assert head["x-mneme-context"] == "memories=2;history=1;tokens=30;budget=100"
    assert float(head["x-mneme-overhead-ms"]) > 0
    assert "x-mneme-reason" not in head
    facts, exchange, compiled = stage.recorder.records[0]
    assert head["x-mneme-call-id"] == str(facts.call_id)
    assert (facts.outcome, facts.memory_status) == (Outcome.COMPLETE, "ok")
    assert exchange is not None
    assert compiled is not None
    assert stage.preparer.steps == ["replay", "place", "compile"]
    assert stage.journey.discovery.noticed == ["upstream"]
    assert stage.journey.count("mneme_requests_total", kind="chat", outcome="complete", memory="ok") == 1


async def test_the_answers_bytes_are_the_upstreams(stage: GatewayStage) -> None:
    reply = stream("a", "b")
    stage.answering(lambda asked: reply)
    answer = await stage.ask(HI, stream=True)
    assert answer.body == b"".join(chunk for chunk in reply.chunks if isinstance(chunk, bytes))


async def test_the_end_waits_until_it_is_durable(stage: GatewayStage) -> None:
    stage.recorder.hold = asyncio.Event()
    stage.answering(lambda asked: stream("a"))
    client = Client(stage.journey.gateway)
    body = json.dumps({"messages": HI, "stream": True}).encode()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.request("POST", "/v1/chat/completions", body))
        await eventually(lambda: b'"stop"' in b"".join(client.parts))
        assert b"[DONE]" not in b"".join(client.parts)
        stage.recorder.hold.set()
    assert task.result().whole
    assert task.result().body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_could_not_be_stored_never_ends(stage: GatewayStage, streamed: bool) -> None:
    stage.recorder.fail = StoreUnavailable()
    stage.answering(lambda asked: stream("a") if streamed else completion("a"))
    answer = await stage.ask(HI, stream=streamed)
    assert not answer.whole
    assert b"[DONE]" not in answer.body
    assert stage.journey.count("mneme_degradations_total", reason="unstored") == 1


async def test_best_effort_is_said_in_every_answer() -> None:
    stage = GatewayStage(durability="best_effort")
    stage.recorder.fail = RuntimeError("a bug")
    answer = await stage.ask(HI)
    assert answer.whole
    assert answer.headers["x-mneme-durability"] == "best-effort"


# --- switches -----------------------------------------------------------------------------------------------------------


async def test_a_header_of_mnemes_own_is_judged(stage: GatewayStage) -> None:
    answer = await stage.ask(HI, headers={"x-mneme-memory": "sometimes"})
    assert (answer.status, answer.json()["error"]["param"]) == (400, "x-mneme-memory")


async def test_the_price_that_a_header_names(stage: GatewayStage) -> None:
    await stage.ask(HI)
    assert stage.preparer.price is None
    await stage.ask(HI, headers={"x-mneme-price": "frugal"})
    assert stage.preparer.price == "frugal"
    refused = await stage.ask(HI, headers={"x-mneme-price": "cheap"})
    assert refused.status == 400


async def test_the_profile_that_a_header_names(stage: GatewayStage) -> None:
    await stage.ask(HI)
    assert stage.preparer.profile == "auto"
    await stage.ask(HI, headers={"x-mneme-profile": "strategy"})
    assert stage.preparer.profile == "strategy"


# --- requests that are not understood --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": []}', b'{"messages": [1]}', b"\xff\xfe", b"[" * 5000]
)
async def test_what_is_not_understood_is_the_upstreams_to_judge(stage: GatewayStage, body: bytes) -> None:
    stage.answering(lambda asked: error(422, "upstream says no"))
    answer = await stage.post(body)
    assert stage.upstream.requests[0].body == body
    assert (answer.status, answer.json()["error"]["message"]) == (422, "upstream says no")
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("bypass", "not-understood")
    assert stage.recorder.last.body == body


async def test_a_body_over_the_limit_is_refused() -> None:
    stage = GatewayStage(max_body_bytes=2048)
    answer = await stage.post(b"x" * 2049)
    assert answer.status == 413
    assert stage.upstream.requests == []
    await stage.journey.settled()


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/a/../../b"])
async def test_a_path_must_not_lead_out(stage: GatewayStage, path: str) -> None:
    answer = await Client(stage.journey.gateway).request("GET", path)
    assert answer.status == 400


async def test_a_url_that_is_no_ascii_is_refused_in_words(stage: GatewayStage) -> None:
    answer = await Client(stage.journey.gateway).request("GET", "/v1/ü", raw_path="/v1/ü".encode())
    assert answer.status == 400
    answer = await Client(stage.journey.gateway).request("GET", "/v1/x", query=b"a=\xff")
    assert answer.status == 400


async def test_who_may_not_is_told_so(stage: GatewayStage) -> None:
    reading = Principal(LOCAL_TENANT, UUID(int=1), None, frozenset({"read"}), "keys")
    stage.journey.caller.principal = reading
    answer = await stage.ask(HI)
    assert (answer.status, answer.json()["error"]["code"]) == (403, "missing_scope")

    async def refuse(headers: Any) -> Principal:
        raise Unauthenticated(code="invalid_api_key")

    stage.journey.caller.check = refuse  # type: ignore[method-assign]  # another route
    answer = await stage.ask(HI)
    assert answer.status == 401
    assert stage.upstream.requests == []


async def test_a_bug_is_a_500_in_openais_shape(stage: GatewayStage, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(headers: Any) -> Principal:
        raise ZeroDivisionError

    stage.journey.caller.check = broken  # type: ignore[method-assign]  # as above
    answer = await stage.ask(HI)
    assert (answer.status, answer.json()["error"]["type"]) == (500, "server_error")
    assert "request failed" in caplog.text


# --- upstreams that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trouble", "status"), [(UpstreamUnreachable("no"), 502), (UpstreamTimeout(), 504)])
async def test_an_upstream_that_cannot_be_reached(stage: GatewayStage, trouble: Exception, status: int) -> None:
    stage.answering(lambda asked: trouble)
    answer = await stage.ask(HI)
    assert (answer.status, answer.json()["error"]["type"]) == (status, "upstream_error")
    assert stage.recorder.last.outcome == Outcome.FAILED
    assert stage.recorder.records[0][1] is None
    assert stage.journey.count("mneme_requests_total", kind="chat", outcome="failed", memory="ok") == 1


async def test_errors_keep_their_status_body_and_headers(stage: GatewayStage) -> None:
    stage.answering(lambda asked: error(429, "slow down", [(b"retry-after", b"7")]))
    answer = await stage.ask(HI)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert "x-mneme-attempts" not in answer.headers
    assert answer.json()["error"]["message"] == "slow down"
    assert stage.recorder.last.status == 429


def too_long(asked: Message) -> Reply:
    if BLOCK in asked["messages"][-1]["content"]:
        return error(400, "This model's maximum context length is 5 tokens")
    return completion("short enough")


async def test_a_prompt_refused_for_its_length_goes_once_more_as_written(stage: GatewayStage) -> None:
    answer = await stage.answering(too_long).ask(HI)
    assert [each["messages"] for each in stage.upstream.asked] == [[user("<memory> hi")], HI]
    assert answer.text == "short enough"
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "too-long")
    assert "x-mneme-context" not in answer.headers
    assert stage.upstream.closed == 2
    assert answer.headers["x-mneme-attempts"] == "2"
    assert stage.journey.count("mneme_upstream_attempts_total", upstream="upstream", result="too_long") == 1


async def test_an_empty_200_is_a_refusal_for_length_too(stage: GatewayStage) -> None:
    stage.answering(lambda a: Reply(chunks=[]) if BLOCK in a["messages"][-1]["content"] else completion("short"))
    assert (await stage.ask(HI)).text == "short"


async def test_any_other_refusal_comes_through_whole(stage: GatewayStage) -> None:
    long = "no " * 40_000
    answer = await stage.answering(lambda asked: error(400, long)).ask(HI)
    assert answer.json()["error"]["message"] == long
    assert len(stage.upstream.requests) == 1


async def test_what_was_refused_without_an_addition_is_not_sent_again() -> None:
    stage = GatewayStage(upstreams=[{"name": "a", "base_url": UPSTREAM, "aliases": {"mine": "theirs"}}])
    stage.preparer.fail |= {"compile": ValueError("a bug"), "compile-without-search": ValueError("a bug")}
    stage.answering(lambda asked: error(400, "maximum context length"))
    answer = await stage.ask(HI, model="mine")
    assert stage.upstream.asked[0]["model"] == "theirs"
    assert (answer.status, len(stage.upstream.requests)) == (400, 1)


# --- upstreams that stand in for others -----------------------------------------------------------------------------------

CHAIN = [
    {"name": "a", "base_url": "http://a/v1", "models": ["m"], "fallbacks": ["b"], "aliases": {"alias": "m-at-a"}},
    {"name": "b", "base_url": "http://b/v1", "models": [], "aliases": {"m": "m-at-b"}, "placement": "system"},
]
SECRETS = {"authorization": "Bearer sk-for-a", "api-key": "k", "x-auth-token": "t", "cookie": "c", "x-other": "stays"}


def failing_at_a(stage: GatewayStage, trouble: Reply | Exception) -> GatewayStage:
    def script(asked: Message) -> Reply | Exception:
        return trouble if stage.upstream.requests[-1].url.startswith("http://a/") else completion("from b")

    return stage.answering(script)


@each_of("trouble", [UpstreamUnreachable("no"), UpstreamTimeout(), error(429, "slow down")])
async def test_a_fallback_answers_and_is_what_is_recorded(trouble: Reply | Exception) -> None:
    stage = failing_at_a(GatewayStage(upstreams=CHAIN), trouble)
    answer = await stage.ask(HI, model="m", headers=SECRETS)
    assert (answer.text, answer.headers["x-mneme-attempts"], answer.headers["x-mneme-upstream"]) == ("from b", "2", "b")
    first, second = stage.upstream.requests
    assert [each.url for each in (first, second)] == ["http://a/v1/chat/completions", "http://b/v1/chat/completions"]
    assert [each["model"] for each in stage.upstream.asked] == ["m", "m-at-b"]
    assert [each["messages"] for each in stage.upstream.asked] == [[user("<memory> hi")]] * 2
    assert dict(first.headers)[b"authorization"] == b"Bearer sk-for-a"
    assert [name for name, _ in second.headers] == [b"content-type", b"x-other", b"accept-encoding"]
    facts, exchange, _ = stage.recorder.records[0]
    assert (facts.upstream, facts.outcome, facts.model) == ("b", Outcome.COMPLETE, "m")
    assert facts.sent is not None
    assert b"m-at-b" in facts.sent.prefix + facts.sent.suffix
    assert exchange is not None
    assert len(stage.recorder.records) == 1


async def test_a_refusal_for_length_by_a_fallback_goes_to_it_once_more() -> None:
    stage = GatewayStage(upstreams=CHAIN)

    def script(asked: Message) -> Reply | Exception:
        return error(503, "no") if stage.upstream.requests[-1].url.startswith("http://a/") else too_long(asked)

    stage.answering(script)
    answer = await stage.ask(HI, model="m", headers=SECRETS)
    assert (answer.text, answer.headers["x-mneme-attempts"]) == ("short enough", "3")
    assert [each.url.split("/")[2] for each in stage.upstream.requests] == ["a", "b", "b"]
    assert [each["model"] for each in stage.upstream.asked] == ["m", "m-at-b", "m-at-b"]
    assert not any(name == b"authorization" for name, _ in stage.upstream.requests[-1].headers)


async def test_a_fallback_is_told_the_model_as_the_client_names_it_where_it_has_no_alias() -> None:
    stage = failing_at_a(GatewayStage(upstreams=[CHAIN[0], {**CHAIN[1], "aliases": {}}]), UpstreamUnreachable("no"))
    await stage.ask(HI, model="alias")
    assert [each["model"] for each in stage.upstream.asked] == ["m-at-a", "alias"]


async def test_an_upstream_left_alone_is_a_503_at_once(stage: GatewayStage) -> None:
    stage = GatewayStage(constants={"breaker_failures": 1})
    stage.answering(lambda asked: UpstreamUnreachable("no"))
    assert (await stage.ask(HI)).status == 502
    answer = await stage.ask(HI)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "upstream_suspended"
    assert len(stage.upstream.requests) == 1
    assert [each[0].outcome for each in stage.recorder.records] == [Outcome.FAILED] * 2


async def test_a_client_that_goes_during_a_back_off_ends_it() -> None:
    stage = GatewayStage(constants={"retry": RetryPolicy(2, first_wait_s=600.0, longest_wait_s=600.0)})
    stage.answering(lambda asked: error(503, "no"))
    client = Client(stage.journey.gateway)
    async with asyncio.TaskGroup() as group:
        group.create_task(asking(stage, client))
        await eventually(lambda: stage.upstream.closed == 1)
        client.gone.set()
    assert (stage.recorder.last.outcome, len(stage.upstream.requests)) == (Outcome.GONE, 1)


async def test_where_a_request_goes_is_the_settings_to_say(stage: GatewayStage) -> None:
    """Nothing that a client sends names another host, and no redirect is followed."""
    stage.answering(lambda asked: Reply(307, [(b"location", b"http://evil.test/v1/chat/completions")]))
    hostile = {
        "host": "evil.test",
        "x-forwarded-host": "evil.test",
        "x-mneme-upstream": "http://evil.test",
        "x-mneme-base-url": "http://evil.test",
    }
    more = {"base_url": "http://evil.test", "api_base": "http://evil.test", "upstream": "http://evil.test"}
    answer = await stage.post(
        json.dumps({"model": "http://evil.test/x", "messages": HI, **more}).encode(), headers=hostile
    )
    assert (answer.status, answer.headers["location"]) == (307, "http://evil.test/v1/chat/completions")
    for path in ("/v1//evil.test/x", "/v1/@evil.test", "/v1/http://evil.test"):
        await Client(stage.journey.gateway).request("GET", path)
    assert all(each.url.startswith(f"{UPSTREAM}/") for each in stage.upstream.requests)
    assert len(stage.upstream.requests) == 4


# --- other names for models --------------------------------------------------------------------------------------------------


async def embedding(stage: GatewayStage, body: bytes, *more: tuple[str, str]) -> Any:
    headers = [("content-length", str(len(body))), ("content-type", "Application/JSON; charset=utf-8"), *more]
    return await Client(stage.journey.gateway).request("POST", "/v1/embeddings", body, headers)


@each_of("capture", ["on", "off"])
async def test_other_paths_know_the_aliases_too(capture: str) -> None:
    stage = GatewayStage(upstreams=CHAIN).answering(lambda asked: Reply(chunks=[b"{}"]))
    body = b'{ "model" : "alias", "input": [1.0, "model"] }'
    await embedding(stage, body, ("x-mneme-capture", capture))
    assert stage.upstream.sent == [b'{ "model" : "m-at-a", "input": [1.0, "model"] }']
    assert stage.upstream.requests[0].url == "http://a/v1/embeddings"
    if capture == "on":
        assert stage.recorder.last.body == body, "what the client wrote"


async def test_other_paths_fall_back_too() -> None:
    stage = failing_at_a(GatewayStage(upstreams=CHAIN), UpstreamUnreachable("no"))
    answer = await embedding(stage, b'{"model":"m","input":1.0}')
    assert stage.upstream.sent == [b'{"model":"m","input":1.0}', b'{"model":"m-at-b","input":1.0}']
    assert (answer.status, answer.headers["x-mneme-attempts"]) == (200, "2")


async def test_a_chat_that_is_not_understood_has_its_alias_too() -> None:
    stage = GatewayStage(upstreams=CHAIN)
    await stage.post(b'{"messages": [], "model": "alias"}')
    assert stage.upstream.sent == [b'{"messages": [], "model": "m-at-a"}']


async def test_a_repeated_key_is_sent_under_the_name_that_this_upstream_knows() -> None:
    stage = GatewayStage(upstreams=CHAIN)
    stage.preparer.found = EarlierAnswer(b'{"model":"m-at-b", "messages":[]}', UUID(int=8), answered=True)
    stage.answering(lambda asked: completion("a"))
    await stage.ask(HI, model="m")
    assert stage.upstream.sent == [b'{"model":"m", "messages":[]}']


# --- clients that go, servers that stop -------------------------------------------------------------------------------------


async def asking(stage: GatewayStage, client: Client) -> Any:
    return await client.request("POST", "/v1/chat/completions", json.dumps({"messages": HI, "stream": True}).encode())


async def test_a_client_that_goes_before_the_head_is_recorded_as_gone(stage: GatewayStage) -> None:
    entered = asyncio.Event()

    async def never(request: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    stage.upstream.send = never  # type: ignore[method-assign]  # an upstream that never answers
    client = Client(stage.journey.gateway)
    async with asyncio.TaskGroup() as group:
        group.create_task(asking(stage, client))
        await entered.wait()
        client.gone.set()
    assert stage.recorder.last.outcome == Outcome.GONE
    assert stage.journey.count("mneme_requests_total", kind="chat", outcome="gone", memory="ok") == 1
    await stage.journey.settled()


async def test_a_client_that_goes_while_the_answer_is_looked_at_leaves_no_connection(stage: GatewayStage) -> None:
    waiting = asyncio.Event()
    stage.answering(lambda asked: Reply(400, chunks=[b"{", waiting]))
    client = Client(stage.journey.gateway)
    async with asyncio.TaskGroup() as group:
        group.create_task(asking(stage, client))
        await eventually(lambda: len(stage.upstream.requests) == 1)
        await asyncio.sleep(0)
        client.gone.set()
    assert stage.upstream.closed == 1
    assert stage.recorder.last.outcome == Outcome.GONE
    waiting.set()


async def test_a_client_that_goes_in_mid_stream_leaves_what_had_come(stage: GatewayStage) -> None:
    waiting = asyncio.Event()
    stage.answering(lambda asked: stream("so far", end=[waiting]))
    client = Client(stage.journey.gateway)
    async with asyncio.TaskGroup() as group:
        group.create_task(asking(stage, client))
        await eventually(lambda: b"so far" in b"".join(client.parts))
        client.gone.set()
    facts, exchange, _ = stage.recorder.records[0]
    assert facts.outcome == Outcome.GONE
    assert exchange is not None
    assert exchange.answers[0].message["content"] == "so far"
    assert stage.upstream.closed == 1
    waiting.set()


@pytest.mark.parametrize("when", ["head", "stream"])
async def test_a_server_that_stops_records_what_it_had(stage: GatewayStage, when: str) -> None:
    waiting = asyncio.Event()
    if when == "head":

        async def never(request: Any) -> Any:
            stage.upstream.requests.append(request)
            await waiting.wait()

        stage.upstream.send = never  # type: ignore[method-assign]  # as above
    else:
        stage.answering(lambda asked: stream("so far", end=[waiting]))
    client = Client(stage.journey.gateway)
    task = asyncio.get_running_loop().create_task(asking(stage, client))
    await eventually(lambda: bool(client.parts) if when == "stream" else bool(stage.upstream.requests))
    task.cancel()
    await stage.journey.gateway.drained(10)
    answer = await task
    if when == "head":
        assert (answer.status, answer.json()["error"]["code"]) == (503, "server_stopping")
        assert (answer.headers["retry-after"], answer.whole) == ("1", True)
    else:
        assert (answer.status, answer.whole) == (200, False)
    assert stage.recorder.last.outcome == Outcome.CANCELLED
    waiting.set()


# --- everything else under /v1 ----------------------------------------------------------------------------------------------


async def test_other_paths_pass_through_unchanged(stage: GatewayStage) -> None:
    stage.answering(lambda asked: Reply(201, [(b"content-type", b"text/plain"), (b"x-own", b"1")], [b"ok"]))
    answer = await Client(stage.journey.gateway).request(
        "PUT",
        "/v1/files/a b",
        b"data",
        [("content-length", "4"), ("x-other", "2")],
        b"q=1",
        raw_path=b"/v1/files/a%20b",
    )
    sent = stage.upstream.requests[0]
    assert (sent.method, sent.url, sent.body) == ("PUT", f"{UPSTREAM}/files/a%20b?q=1", b"data")
    assert (b"x-other", b"2") in sent.headers
    assert (answer.status, answer.body, answer.headers["x-own"]) == (201, b"ok", "1")
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("bypass", "not-chat")
    assert stage.recorder.last.path == "/v1/files/a b?q=1"
    assert stage.preparer.steps == []


async def test_a_get_of_the_chat_path_is_no_chat(stage: GatewayStage) -> None:
    stage.answering(lambda asked: Reply(404))
    await Client(stage.journey.gateway).request("GET", "/v1/chat/completions")
    assert stage.recorder.last.method == "GET"
    assert stage.preparer.steps == []


@pytest.mark.parametrize(
    ("headers", "kept", "truncated"),
    [
        ([("content-length", "41"), ("content-type", "application/json")], True, False),
        ([("content-length", "41"), ("content-type", "multipart/form-data; boundary=x")], False, True),
        ([("transfer-encoding", "chunked")], False, True),
        ([("content-length", "999999999")], False, True),
    ],
)
async def test_uploads_are_kept_as_far_as_they_are_small_and_plain(
    stage: GatewayStage, headers: list[tuple[str, str]], kept: bool, truncated: bool
) -> None:
    body = b'{"model": "m", "user": "ana", "input": 1}'
    stage.answering(lambda asked: Reply(chunks=[b"{}"]))
    await Client(stage.journey.gateway).request("POST", "/v1/embeddings", body, headers)
    assert stage.upstream.requests[0].body == body
    facts = stage.recorder.last
    assert (facts.body is not None, facts.body_truncated, facts.body_size) == (kept, truncated, 41)


async def test_the_user_of_another_path_is_whom_it_names(stage: GatewayStage) -> None:
    stage.answering(lambda asked: Reply(chunks=[b"{}"]))
    body = b'{"user": "ana", "input": "x"}'
    headers = [("content-length", str(len(body))), ("content-type", "application/json")]
    await Client(stage.journey.gateway).request("POST", "/v1/embeddings", body, headers)
    named = stage.recorder.last.user_id
    await Client(stage.journey.gateway).request("POST", "/v1/embeddings", body, [*headers, ("x-mneme-user", "bob")])
    assert stage.recorder.last.user_id != named


async def test_a_long_answer_of_another_path_is_kept_up_to_the_limit() -> None:
    stage = GatewayStage(constants={"capture_max_bytes": 10})
    stage.answering(lambda asked: Reply(headers=[(b"content-type", b"audio/mp3")], chunks=[b"x" * 8, b"y" * 8]))
    answer = await Client(stage.journey.gateway).request("GET", "/v1/audio")
    assert answer.body == b"x" * 8 + b"y" * 8
    recorded = stage.recorder.last.stream
    assert recorded is not None
    assert (recorded.body, recorded.truncated) == (b"x" * 8, True)


async def test_a_long_request_of_another_path_goes_on_whole_and_is_not_kept() -> None:
    stage = GatewayStage(constants={"capture_max_bytes": 10})
    stage.answering(lambda asked: Reply(chunks=[b"{}"]))
    body = b'{"input": "much more"}'
    headers = [("content-length", str(len(body))), ("content-type", "application/json")]
    answer = await Client(stage.journey.gateway).request("POST", "/v1/embeddings", body, headers)
    assert answer.status == 200
    assert stage.upstream.requests[-1].body == body
    facts = stage.recorder.last
    assert (facts.body, facts.body_truncated, facts.body_size) == (None, True, len(body))
