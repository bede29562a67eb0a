"""The legs of a turn in one piece each: what the client gets, and that it is what the stream of the same legs says."""

from __future__ import annotations

from typing import Any

import openai.types.chat
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.features.paging.body import PhantomBody, WholeBody
from app.features.paging.stream import PhantomStream
from app.features.paging.tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg
from app.gateway.dialects.sse import UpstreamAnswer, answer_of_json, fold, payloads
from tests.support.phantoms import DONE, asked, captured_body, event, pended, sent, usage
from tests.support.properties import examples
from tests.support.replies import captured_cases

QUESTION = '{"question":"?"}'


def tool_call(name: str, arguments: str = "{}", id_: str = "c") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def body(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    part = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish}
    return orjson.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "created": 100, "model": "m", "choices": [part]} | more
    )


def fault(finish: str = "tool_calls", *calls: dict[str, Any], **message: Any) -> bytes:
    given = calls or (tool_call("memory_query", QUESTION),)
    return body({"content": None, **message, "tool_calls": list(given)}, finish)


def merged(*legs: bytes) -> WholeBody:
    engine = PhantomBody(Names())
    for leg in legs[:-1]:
        assert isinstance(engine.feed(leg), NeedsLeg)
    found = engine.feed(legs[-1])
    assert isinstance(found, WholeBody)
    return found


def text(data: bytes) -> Any:
    return orjson.loads(data)["choices"][0]["message"]


# --- captures ---------------------------------------------------------------------------------------------------------

CAPTURED = {case: found for case in captured_cases() if (found := captured_body(case)).startswith(b"{")}


@pytest.mark.parametrize("case", sorted(CAPTURED))
def test_without_a_phantom_call_every_byte_is_the_upstreams(case: str) -> None:
    assert PhantomBody(Names()).feed(CAPTURED[case]) == WholeBody(CAPTURED[case])


@pytest.mark.parametrize(
    "case", sorted(case for case in CAPTURED if case.startswith("tool_") and b'"tool_calls":[{' in CAPTURED[case])
)
def test_captured_calls_made_ours(case: str) -> None:
    first = CAPTURED[case].replace(b'"get_time"', b'"memory_query"').replace(b'"get_weather"', b'"memory_restore"')
    own, last = answer_of_json(first), CAPTURED["chat_eos"]
    assert own is not None
    engine = PhantomBody(Names())
    need = engine.feed(first)
    assert isinstance(need, NeedsLeg)
    assert [each["id"] for each in need.message["tool_calls"]] == [each["id"] for each in own.choices[0].tool_calls]
    found = engine.feed(last)
    assert isinstance(found, WholeBody)
    made = openai.types.chat.ChatCompletion.model_validate(orjson.loads(found.data))
    assert (made.id, made.created) == (own.id, own.created)
    want, got = orjson.loads(last), orjson.loads(found.data)
    assert got["usage"]["total_tokens"] == want["usage"]["total_tokens"] + (own.usage or {})["total_tokens"]
    for each in (want, got):
        each |= {"id": "", "created": 0, "usage": None}
    assert got == want


# --- cases ------------------------------------------------------------------------------------------------------------


def test_what_the_first_leg_said_stands_in_front() -> None:
    first = fault(content="Let me look. ", reasoning="hm ")
    assert text(merged(first, body({"content": 'It is "401"', "reasoning": "ok"})).data) == {
        "role": "assistant",
        "content": 'Let me look. It is "401"',
        "reasoning": "hm ok",
    }
    assert text(merged(first, body({"content": None})).data)["content"] == "Let me look. "
    assert text(merged(first, body({"reasoning": None})).data) == {
        "role": "assistant",
        "content": "Let me look. ",
        "reasoning": "hm ",
    }


def test_the_last_legs_bytes_differ_in_what_has_to() -> None:
    last = b'{ "id" : "b", "created":7, "choices":[{"message" : {"role":"assistant","content":"\\u00e9" }, "x":1.0}]'
    last += b' ,"y":12345678901234567890}'
    assert merged(fault(), last).data == last.replace(b'"b"', b'"chatcmpl-1"').replace(b":7,", b":100,")


def test_what_is_put_in_where_something_is_taken_out() -> None:
    calls = orjson.dumps([tool_call("memory_query")])
    last = b'{"choices":[{"finish_reason":"length","message":{"tool_calls":%s ,"role":"assistant"}}]}' % calls
    made = text(merged(fault(content="x", reasoning="r"), last).data)
    assert made == {"role": "assistant", "content": "x", "reasoning": "r"}


def test_a_model_that_asks_forever_is_told_and_then_stopped() -> None:
    engine = PhantomBody(Names())
    for leg in range(1, MAX_ROUNDS + 2):
        need = engine.feed(fault())
        assert isinstance(need, NeedsLeg)
        assert need.last == (leg == MAX_ROUNDS + 1)
    found = engine.feed(fault())
    assert isinstance(found, WholeBody)
    assert orjson.loads(found.data)["choices"][0]["finish_reason"] == "stop"
    assert "tool_calls" not in text(found.data)


def test_calls_beyond_the_limit_are_dropped() -> None:
    need = PhantomBody(Names()).feed(
        fault("tool_calls", *(tool_call("memory_query", id_=str(n)) for n in range(MAX_CALLS + 3)))
    )
    assert isinstance(need, NeedsLeg)
    assert len(need.calls) == MAX_CALLS


@pytest.mark.parametrize(
    "odd",
    [b"", b"no", b"[]", b'"x"', b"{}", b'{"choices":1}', b'{"choices":[]}', b'{"choices":[{"message":1}]}', b'{"error":"no"}',
     b'{"detail":"no"}', b'{"choices":[{"finish_reason":[],"message":{"tool_calls":{}}}]}',
     b'{"choices":[{"message":{"tool_calls":[1,{},{"function":1},{"function":{"name":1}}]}}]}'],
)  # fmt: skip
def test_odd_bodies_go_on_as_they_are(odd: bytes) -> None:
    assert merged(odd) == WholeBody(odd)
    assert merged(fault(), odd) == WholeBody(odd)


# --- a stream and a body of the same legs -----------------------------------------------------------------------------

LEGS = st.fixed_dictionaries(
    {
        "content": st.sampled_from([None, "", "a", 'größe "🙂"\n']),
        "reasoning": st.sampled_from([None, "hm", "\\"]),
        "names": st.lists(st.sampled_from(["memory_query", "memory_restore", "get_time"]), max_size=3),
        "finish": st.sampled_from(["tool_calls", "tool_calls", "stop", "length"]),
        "tokens": st.integers(0, 9),
    }
)


def both_forms(n: int, leg: dict[str, Any]) -> tuple[bytes, bytes]:
    calls = [tool_call(name, '{"n":1}', f"call_{n}_{at}") for at, name in enumerate(leg["names"])]
    said = {name: leg[name] for name in ("content", "reasoning") if leg[name] is not None}
    message = said | ({"tool_calls": calls} if calls else {})
    more: dict[str, Any] = {"id": f"chatcmpl-{n}", "created": n + 1}
    stream = event({"role": "assistant"}, **more) + event(said, **more)
    stream += b"".join(event({"tool_calls": [{"index": at} | each]}, **more) for at, each in enumerate(calls))
    stream += event(finish=leg["finish"], **more) + usage(leg["tokens"], 1, **more) + DONE
    figures = {"prompt_tokens": leg["tokens"], "completion_tokens": 1, "total_tokens": leg["tokens"] + 1}
    return stream, body(message, leg["finish"], usage=figures, **more)


THINKS_AND_ASKS: dict[str, Any] = {
    "content": None,
    "reasoning": "hm",
    "names": ["memory_query"],
    "finish": "tool_calls",
    "tokens": 1,
}
ANSWERS: dict[str, Any] = {"content": "a", "reasoning": None, "names": [], "finish": "stop", "tokens": 1}


@examples(300)
@example([THINKS_AND_ASKS, *[ANSWERS] * 7])
@given(st.lists(LEGS, min_size=8, max_size=8))
def test_they_say_the_same(given: list[dict[str, Any]]) -> None:
    stream_engine, body_engine, out = PhantomStream(Names()), PhantomBody(Names()), b""
    for n, leg in enumerate(given):
        stream, whole = both_forms(n, leg)
        outs, found = stream_engine.feed(stream) + stream_engine.end(), body_engine.feed(whole)
        out += sent(outs)
        need = asked(outs)
        if need is not None:
            assert found == need
            stream_engine.next_leg()
            continue
        assert isinstance(found, WholeBody)
        assert found.pending == pended(outs)
        streamed, told = fold(payloads(out)), answer_of_json(found.data)
        assert told is not None
        assert same(streamed) == same(told)
        return
    raise AssertionError("a turn is bounded")


def same(answer: UpstreamAnswer) -> Any:
    (choice,) = answer.choices
    calls = [each["id"] for each in choice.tool_calls]
    return (
        answer.id,
        answer.created,
        answer.usage,
        choice.content or "",
        choice.reasoning or "",
        choice.finish_reason,
        calls,
    )
