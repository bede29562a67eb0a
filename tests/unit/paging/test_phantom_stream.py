"""What a client gets of the legs of a turn is what the specification says, however they are cut into chunks."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import httpx2
import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.stream import PhantomStream
from app.features.paging.tools import MAX_ROUNDS, Names
from app.gateway.dialects.sse import fold, payloads
from tests.support.phantoms import (
    DONE,
    OURS,
    Client,
    asked,
    call,
    calls,
    captured_streams,
    chunks_of,
    event,
    expected,
    merged,
    pended,
    sent,
    split,
    usage,
)
from tests.support.properties import examples

STREAMS = captured_streams()
TOOL_STREAMS = sorted(case for case, body in STREAMS.items() if b'"tool_calls"' in body)
OTHERS = sorted(STREAMS.keys() - set(TOOL_STREAMS))
WAYS = {
    "query": {"get_time": "memory_query", "get_weather": "memory_restore"},
    "one": {"get_time": "memory_query"},
    "other": {"get_weather": "memory_query"},
    "none": {},
}


def adapted(case: str, way: str = "query") -> bytes:
    """A captured tool stream whose calls are ours."""
    body = STREAMS[case]
    for name, ours in WAYS[way].items():
        body = body.replace(b'"%s"' % name.encode(), b'"%s"' % ours.encode())
    return body


def is_chunk(value: bytes | dict[str, Any]) -> bool:
    return isinstance(value, dict) or b'"choices"' in value


def check(legs: list[bytes], rng: random.Random, *, at_once: bool = True) -> bytes:
    """Push legs through, as far as the engine asks for them, and compare with the specification at every chunk."""
    engine, client, whole = PhantomStream(Names()), Client(), b""
    for leg in legs:
        told = expected(leg, client)
        ends, size = [], 0
        for each in split(leg):
            size += len(each)
            ends.append(size)
        fed, out, outs = 0, b"", []
        for chunk in chunks_of(leg, rng):
            given = engine.feed(chunk)
            assert all(isinstance(each, bytes) for each in given[:-2])
            fed += len(chunk)
            out += sent(given)
            outs += given
            due = sum(1 for each in told.due if ends[each.source] <= fed)
            if at_once:
                assert len(split(out)) == due, "not later than it came, and not earlier"
        outs += (last := engine.end())
        out += sent(last)
        events, values = split(out), [each.value for each in told.due]
        if not at_once:  # what is no chunk does not wait with those whose name is not known
            events, values = sorted(events, key=is_chunk), sorted(values, key=is_chunk)
        assert len(events) == len(values)
        for got, want in zip(events, values, strict=True):
            assert got == want if isinstance(want, bytes) else orjson.loads(got[6:]) == want
        whole += out
        need, pending = asked(outs), pended(outs)
        assert (need is not None, pending is not None) == (told.followed, told.pending)
        found = need or pending
        assert [(c.name, c.arguments) for c in found.calls] == told.calls if found else True
        if need is None:
            return whole
        assert need.message["content"] == (told.text or None)
        engine.next_leg()
    return whole


# --- captured streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(STREAMS))
def test_without_a_phantom_call_every_byte_is_the_upstreams(case: str) -> None:
    body, rng = STREAMS[case], random.Random(case)
    for chunks in ([body], [body[i : i + 1] for i in range(len(body))], chunks_of(body, rng), chunks_of(body, rng)):
        engine, fed, out = PhantomStream(Names()), b"", b""
        for chunk in chunks:
            fed += chunk
            out += sent(engine.feed(chunk))
            assert out == fed[: fed.rfind(b"\n\n") + 2] if b"\n\n" in fed else out == b""
        assert out + sent(engine.end()) == body


@pytest.mark.parametrize("case", TOOL_STREAMS)
@examples(15)
@given(
    way=st.sampled_from(["query", "one", "other"]),
    rng=st.randoms(use_true_random=False),
    behind=st.sampled_from(OTHERS),
)
def test_captured_tool_streams(case: str, way: str, rng: random.Random, behind: str) -> None:
    legs = [adapted(case, way), STREAMS[behind]]
    out = check(legs, rng)
    if way == "query":
        assert not any(name.encode() in out for name in OURS)
        assert b"chatcmpl-tool" not in out
        first = re.findall(rb'"id":"(chatcmpl-[0-9a-f]+)"', legs[0])[0]
        assert set(re.findall(rb'"id":"([^"]*)"', out)) == {first}


@examples(60)
@given(
    cases=st.lists(st.sampled_from(TOOL_STREAMS), min_size=1, max_size=7),
    ways=st.lists(st.sampled_from(["query", "query", "one", "none"]), min_size=7, max_size=7),
    last=st.sampled_from(sorted(STREAMS)),
    rng=st.randoms(use_true_random=False),
)
def test_several_faults_in_a_row(cases: list[str], ways: list[str], last: str, rng: random.Random) -> None:
    check([*(adapted(case, way) for case, way in zip(cases, ways, strict=False)), STREAMS[last]], rng)


# --- streams of our own making ----------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "größe 你好 🙂", '"\\\n', "data: [DONE]"])
NAMES = st.sampled_from([*OURS, "get_time", "memory", "mem"])
EXTRAS = st.sampled_from(
    [
        b": keep-alive\n\n",
        b"event: ping\ndata: {}\n\n",
        b"data: {broken\n\n",
        b"data: 17\n\n",
        b'data: {"object":"other"}\n\n',
        b"retry: 5\n\n",
        event({}),
        event({"content": ""}, prompt_filter_results=[1]),
    ]
)


@st.composite
def legs(draw: st.DrawFn, *, names_in_pieces: bool = False) -> bytes:
    """A leg as some server might send it."""
    number = draw(st.integers(0, 999))
    continuous = draw(st.booleans())
    more: dict[str, Any] = {"id": f"chatcmpl-{number}", "created": 100 + number, "system_fingerprint": "f"}
    made: list[bytes] = []

    def say(delta: dict[str, Any], finish: str | None = None) -> None:
        figures = {"usage": {"prompt_tokens": 5, "completion_tokens": len(made)}} if continuous else {}
        made.append(event(delta, finish=finish, **more, **figures))

    if draw(st.booleans()):
        say({"role": "assistant", "content": draw(TEXTS)})
    for _ in range(draw(st.integers(0, 3))):
        say({draw(st.sampled_from(["content", "reasoning", "reasoning_content"])): draw(TEXTS)})
    pieces: list[list[dict[str, Any]]] = []
    for index in range(draw(st.integers(0, 3))):
        name = draw(NAMES)
        cut = draw(st.integers(1, len(name) - 1)) if names_in_pieces and draw(st.booleans()) else len(name)
        pieces.append([call(index, name[:cut], id_=f"call_{number}_{index}")])
        pieces += [[call(index, name[cut:])]] if cut < len(name) else []
        for _ in range(draw(st.integers(0, 2))):
            pieces.append([call(index, arguments=draw(TEXTS))])
    while len(pieces) > 1 and not names_in_pieces and draw(st.booleans()):
        at = draw(st.integers(0, len(pieces) - 2))
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    for group in pieces:
        beside = draw(st.sampled_from([{}, {}, {"content": "beside"}, {"reasoning": "beside"}, {"role": "assistant"}]))
        say(calls(*group) | beside)
    if draw(st.integers(0, 9)) == 0:
        made.append(b'data: {"error":{"message":"no"}}\n\n')
    elif draw(st.integers(0, 9)):
        text = draw(st.sampled_from([{}, {}, {"content": "last"}]))
        say(text, draw(st.sampled_from(["tool_calls", "stop", "length"])))
        if draw(st.booleans()):
            made.append(usage(7, 11, **more))
    for _ in range(draw(st.integers(0, 3))):
        made.insert(draw(st.integers(0, len(made))), draw(EXTRAS))
    return b"".join(made) + (DONE if draw(st.integers(0, 9)) else b"")


def named_like_ours(leg: bytes) -> bool:
    """Whether a client's name is the beginning of one of ours: then it waits for the event behind it."""
    return re.search(rb'"name":"mem(ory)?"', leg) is not None


@examples(400)
@given(st.lists(legs(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_what_servers_may_send(given: list[bytes], rng: random.Random) -> None:
    check(given, rng, at_once=not any(named_like_ours(leg) for leg in given))


@examples(200)
@given(st.lists(legs(names_in_pieces=True), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_names_in_pieces(given: list[bytes], rng: random.Random) -> None:
    check(given, rng, at_once=False)


@examples(200)
@given(st.binary(max_size=300) | st.lists(EXTRAS, max_size=6).map(b"".join), st.randoms(use_true_random=False))
def test_any_bytes_come_out_as_they_went_in(body: bytes, rng: random.Random) -> None:
    engine = PhantomStream(Names())
    assert b"".join(sent(engine.feed(chunk)) for chunk in chunks_of(body, rng)) + sent(engine.end()) == body


# Anything in any place of a chunk, or of a body.
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 10**30, 0.5, "", "x", [], [1], {}, {"x": [None]}, [[]], [{}]]
)
PLACES = [
    ("id",), ("created",), ("usage",), ("error",), ("choices",), ("choices", 0), ("choices", 0, "index"),
    ("choices", 0, "finish_reason"), ("choices", 0, "delta"), ("choices", 0, "delta", "role"),
    ("choices", 0, "delta", "content"), ("choices", 0, "delta", "reasoning"), ("choices", 0, "delta", "tool_calls"),
    ("choices", 0, "delta", "tool_calls", 0), ("choices", 0, "delta", "tool_calls", 0, "index"),
    ("choices", 0, "delta", "tool_calls", 0, "id"), ("choices", 0, "delta", "tool_calls", 0, "function"),
    ("choices", 0, "delta", "tool_calls", 0, "function", "name"),
    ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
]  # fmt: skip


def with_odd(event: bytes, places: list[tuple[tuple[str | int, ...], Any]]) -> bytes:
    document = orjson.loads(event[6:])
    for path, shared in places:
        value = copy.deepcopy(shared)
        at = document
        for key in path[:-1]:
            fits = isinstance(at, dict) if isinstance(key, str) else isinstance(at, list) and len(at) > key
            at = at[key] if fits and (not isinstance(key, str) or key in at) else None
        if isinstance(at, dict) and isinstance(path[-1], str):
            at[path[-1]] = value
        elif isinstance(at, list) and at and path[-1] == 0:
            at[0] = value
    return b"data: " + json.dumps(document).encode() + b"\n\n"


@examples(400)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(PLACES), ODD), max_size=3), min_size=1, max_size=5),
    st.sampled_from(["memory_query", "memo", "get_time"]),
)
def test_odd_shapes_do_no_harm(changes: list[list[tuple[tuple[str | int, ...], Any]]], name: str) -> None:
    chunk = event(
        {"role": "assistant", "content": "c", "tool_calls": [call(0, name, "{}", "c1")]}, finish="stop", usage={"n": 1}
    )
    stream = b"".join(with_odd(chunk, each) for each in changes) + DONE
    engine = PhantomStream(Names())
    outs = engine.feed(stream) + engine.end()
    if name != "memory_query":
        assert sent(outs) == stream
    engine.next_leg()
    for each in engine.feed(stream) + engine.end():
        if isinstance(each, bytes):
            for made in split(each):
                assert made == DONE or orjson.loads(made[6:]) is not None


# --- a client's own reader --------------------------------------------------------------------------------------------


def read_by_sdk(stream: bytes) -> Any:
    """What the SDK's own helper makes of a stream."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as http,
        openai.OpenAI(api_key="k", base_url="http://upstream/v1", http_client=http, max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "q"}]) as events,
    ):
        for _ in events:
            pass
        return events.get_final_completion()


@pytest.mark.parametrize("case", TOOL_STREAMS)
def test_the_sdk_reads_one_coherent_answer(case: str) -> None:
    first, last = adapted(case), STREAMS["chat_eos_stream"]
    made = read_by_sdk(merged(first, last))
    own, alone = fold(payloads(first)), read_by_sdk(last)
    (choice,) = made.choices
    assert choice.message.role == "assistant"
    assert choice.message.tool_calls is None
    assert choice.message.content == alone.choices[0].message.content
    assert choice.finish_reason == alone.choices[0].finish_reason
    assert (made.id, made.created) == (own.id, own.created)
    assert own.usage is not None
    assert made.usage.total_tokens == own.usage["total_tokens"] + alone.usage.total_tokens
    assert made.usage.prompt_tokens_details.cached_tokens == 256


def test_the_sdk_reads_the_clients_own_call_beside_ours() -> None:
    made = read_by_sdk(merged(adapted("tool_auto_two_stream", "one")))
    (choice,) = made.choices
    (own,) = choice.message.tool_calls
    assert own.function.name == "get_weather"
    assert orjson.loads(own.function.arguments) == {"city": "Rome", "days": 1}
    assert choice.finish_reason == "tool_calls"


def test_the_sdk_raises_the_error_of_a_later_leg() -> None:
    engine = PhantomStream(Names())
    out = sent(engine.feed(adapted("tool_auto_stream")))
    engine.next_leg()
    out += sent(engine.failed({"error": {"message": "too many", "type": "requests", "param": None, "code": 429}}))
    with pytest.raises(openai.APIError, match="too many"):
        read_by_sdk(out)
    assert b"[DONE]" not in out
    assert engine.feed(b"data: late\n\n") == []


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_model_that_asks_forever_is_told_and_then_stopped() -> None:
    again = event(calls(call(0, "memory_query", '{"question":"?"}', "c"))) + event(finish="tool_calls") + DONE
    engine, out = PhantomStream(Names()), b""
    for leg in range(1, MAX_ROUNDS + 2):
        outs = engine.feed(again)
        out += sent(outs)
        need = asked(outs)
        assert need is not None
        assert need.last == (leg == MAX_ROUNDS + 1)
        engine.next_leg()
    outs = engine.feed(again)
    assert asked(outs) is None
    answer = fold(payloads(out + sent(outs)))
    assert answer.done
    assert [(c.finish_reason, c.tool_calls) for c in answer.choices] == [("stop", [])]
