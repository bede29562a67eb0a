"""Cases of docs/explanation/paging-streams.md that the specification of test_phantom_stream.py does not draw by itself."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import orjson
import pytest

from app.features.paging.stream import MAX_EVENT_BYTES, MAX_TEXT_CHARS, MAX_WAITING, PhantomStream
from app.features.paging.tools import MAX_CALLS, Names
from app.gateway.dialects.sse import fold, payloads
from tests.support.phantoms import DONE, asked, call, calls, event, merged, pended, sent, split, usage

QUESTION = '{"question":"What was the code?"}'
FAULT = event(calls(call(0, "memory_query", QUESTION, "c1"))) + event(finish="tool_calls") + DONE
ROLE = event({"role": "assistant", "content": ""})
ANSWER = (
    event({"role": "assistant", "content": ""}, id="chatcmpl-2", created=200)
    + event({"content": "401"}, id="chatcmpl-2", created=200)
    + event(finish="stop", id="chatcmpl-2", created=200)
    + DONE
)


def engine_after(*feeds: bytes) -> tuple[PhantomStream, bytes]:
    engine, out = PhantomStream(Names()), b""
    for each in feeds:
        out += sent(engine.feed(each))
    return engine, out


def documents(stream: bytes) -> list[Any]:
    return [orjson.loads(each[6:]) for each in split(stream) if each.startswith(b"data: {")]


# --- between the legs -------------------------------------------------------------------------------------------------


def test_text_before_the_call_stays_and_the_next_leg_goes_on_behind_it() -> None:
    said = event({"content": "Let me look. "}) + event({"reasoning": "hm"})
    engine = PhantomStream(Names())
    outs = engine.feed(ROLE + said + FAULT)
    assert sent(outs) == ROLE + said
    need = asked(outs)
    assert need is not None
    assert need.message == {
        "role": "assistant",
        "content": "Let me look. ",
        "reasoning": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "memory_query", "arguments": QUESTION}}],
    }
    answer = fold(payloads(merged(ROLE + said + FAULT, ANSWER)))
    assert [(c.content, c.finish_reason, c.role) for c in answer.choices] == [("Let me look. 401", "stop", "assistant")]


def test_when_nothing_went_out_the_second_legs_id_is_the_answers() -> None:
    engine, out = engine_after(FAULT)
    assert out == b""
    assert not engine.started, "an error of the second leg can still have its own status"
    engine.next_leg()
    assert sent(engine.feed(ANSWER)) == ANSWER
    assert engine.started


@pytest.mark.parametrize(
    "form", [DONE, b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]\n", b"data: [DONE]", b""]
)
def test_a_leg_ends_with_done_or_with_its_last_byte(form: bytes) -> None:
    out = merged(FAULT.removesuffix(DONE) + form, ANSWER.removesuffix(DONE) + form)
    assert out == ANSWER.removesuffix(DONE) + form


# --- the client's own calls -------------------------------------------------------------------------------------------


def own(index: int, id_: str) -> list[bytes]:
    return [event(calls(call(index, "get_time", "", id_))), event(calls(call(index, arguments="{}")))]


@pytest.mark.parametrize(
    ("order", "position"),
    [(["ours", "a", "b"], 0), (["a", "ours", "b"], 1), (["a", "b", "ours"], 2)],
)
def test_ours_beside_the_clients(order: list[str], position: int) -> None:
    stream = ROLE
    for index, each in enumerate(order):
        stream += (
            b"".join(own(index, each)) if each != "ours" else event(calls(call(index, "memory_query", QUESTION, "c")))
        )
    end = event(finish="tool_calls") + usage(1, 2) + DONE
    engine = PhantomStream(Names())
    outs = engine.feed(stream + end)
    assert sent(outs) == ROLE + b"".join(own(0, "a") + own(1, "b")) + end
    assert outs[-1] == DONE, "what is pending is said before the end, so that it can be stored before it"
    pending = pended(outs)
    assert pending is not None
    assert [(c.id, c.arguments, c.position) for c in pending.calls] == [("c", QUESTION, position)]


def test_calls_without_an_index() -> None:
    def piece(name: str | None = None, arguments: str | None = None, id_: str | None = None) -> dict[str, Any]:
        return {key: value for key, value in call(0, name, arguments, id_).items() if key != "index"}

    stream = event(calls(piece("memory_query", '{"question":', "c"))) + event(calls(piece(arguments='"?"}')))
    engine = PhantomStream(Names())
    outs = engine.feed(
        stream + event(calls(piece("memory_restore", '{"object_id":"o"}', "d"))) + event(finish="stop") + DONE
    )
    need = asked(outs)
    assert sent(outs) == b""
    assert need is not None
    assert [(c.id, c.arguments) for c in need.calls] == [("c", '{"question":"?"}'), ("d", '{"object_id":"o"}')]


def test_calls_with_one_id_or_none_get_their_own() -> None:
    pieces = [call(0, "memory_query", "{}", "c"), call(1, "memory_query", "{}", "c"), call(2, "memory_query", "{}")]
    engine = PhantomStream(Names())
    need = asked(engine.feed(event(calls(*pieces)) + event(finish="tool_calls") + DONE))
    assert need is not None
    ids = [each.id for each in need.calls]
    assert ids[0] == "c"
    assert len(set(ids)) == 3
    assert [each["id"] for each in need.message["tool_calls"]] == ids


def test_fields_that_come_with_a_call_go_back_with_it() -> None:
    signed = call(0, "memory_query", "{}", "c") | {"extra_content": {"google": {"thought_signature": "s"}}}
    engine = PhantomStream(Names())
    need = asked(engine.feed(event(calls(signed)) + event(finish="tool_calls") + DONE))
    assert need is not None
    assert need.message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}


def test_what_is_told_of_all_tokens_goes_with_the_call() -> None:
    stream = event(calls(call(0, "memory_query", QUESTION, "c"), content="x")) + event(finish="tool_calls") + DONE
    stream = stream.replace(b'"logprobs":null', b'"logprobs":{"content":[{"token":"memory_query"}]},"token_ids":[1]', 1)
    (chunk,) = documents(merged(stream, DONE))
    assert (chunk["choices"][0]["logprobs"], chunk["choices"][0]["token_ids"]) == (None, None)


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_clients_name_in_pieces_goes_out_in_order_once_it_is_known() -> None:
    engine = PhantomStream(Names())
    begin, more, text = event(calls(call(0, "memo", id_="c"))), event(calls(call(0, "rise"))), event({"content": "x"})
    assert engine.feed(begin) == []
    assert engine.feed(b": keep-alive\n\n") == [b": keep-alive\n\n"], "only chunks wait"
    assert engine.feed(text) == []
    assert sent(engine.feed(more)) == begin + text + more


def test_no_more_than_so_many_chunks_wait() -> None:
    engine, begin, text = PhantomStream(Names()), event(calls(call(0, "memo", id_="c"))), event({"content": "x"})
    assert engine.feed(begin) == []
    for _ in range(MAX_WAITING - 2):
        assert engine.feed(text) == []
    assert sent(engine.feed(text)) == begin + text * (MAX_WAITING - 1)


def test_names_that_the_request_gave_them() -> None:
    names = Names("mneme_memory_query", "mneme_memory_restore")
    own_call = event(calls(call(0, "memory_query", QUESTION, "c"))) + event(finish="tool_calls") + DONE
    assert merged(own_call, names=names) == own_call
    assert merged(own_call.replace(b"memory_query", b"mneme_memory_query"), ANSWER, names=names) == ANSWER


# --- forms ------------------------------------------------------------------------------------------------------------


def test_carriage_returns_names_of_events_and_a_mark_at_the_beginning() -> None:
    def dressed(stream: bytes) -> bytes:
        return b"\xef\xbb\xbf" + stream.replace(b"\n", b"\r\n").replace(b"data: {", b"id: 7\r\nevent: chunk\r\ndata: {")

    out = merged(dressed(ROLE + event({"content": "größe 🙂"}) + FAULT), dressed(ANSWER))
    later = ANSWER.replace(b"chatcmpl-2", b"chatcmpl-1").replace(b'"created":200', b'"created":100')
    want = dressed(ROLE + event({"content": "größe 🙂"})) + dressed(b"".join(split(later)[1:])).removeprefix(
        b"\xef\xbb\xbf"
    )
    assert out == want


def test_a_mark_at_the_beginning_of_a_later_leg_is_dropped() -> None:
    """In the middle of a stream it would belong to the name of the first field."""
    text = event({"content": "x"})
    assert merged(ROLE + FAULT, b"\xef\xbb\xbf" + text + DONE) == ROLE + text + DONE
    assert merged(b"\xef\xbb\xbf" + ROLE + FAULT, text + DONE) == b"\xef\xbb\xbf" + ROLE + text + DONE


def test_data_on_several_lines_keeps_its_lines() -> None:
    first = b'data: {"id":"a","choices":[\ndata: {"index":0,"delta":{"content":"x"}}]}\n\n' + FAULT
    second = b'event: x\ndata: {"id":"b","choices":[\ndata: {"index":0,"delta":{"content":"y"}}]}\nid: 1\n\n' + DONE
    assert merged(first, second) == first.removesuffix(FAULT) + second.replace(b'"b"', b'"a"')


def test_white_space_escapes_and_numbers_stay_as_they_are() -> None:
    before = b'data:  {"x" : 1.0, "choices": [ {"index" : 0, "delta": {'
    behind = b' "content": "\\u00e9"} , "n": 12345678901234567890} ] , "id": "%s"}\n\n'
    odd = before + b'"role": "assistant" ,' + behind % b"b"
    assert merged(ROLE + FAULT, odd + DONE) == ROLE + before + behind % b"chatcmpl-1" + DONE


def test_an_azure_like_first_chunk_keeps_its_empty_id() -> None:
    empty = b'data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[]}\n\n'
    assert merged(empty + ROLE + FAULT, empty + ANSWER).count(empty) == 2


def test_an_error_in_a_leg_ends_it() -> None:
    error = b'data: {"error":{"message":"out of memory","code":500}}\n\n'
    stream = ROLE + event(calls(call(0, "memory_query", QUESTION, "c"))) + error + DONE
    assert merged(stream) == ROLE + error + DONE
    assert merged(ROLE + FAULT, error + DONE) == ROLE + error + DONE
    end = event(finish="tool_calls") + usage(1, 2) + DONE
    assert merged(stream.removesuffix(DONE) + end) == ROLE + error + end, "what comes behind it is left as it is"
    behind = FAULT.removesuffix(DONE) + error + DONE
    assert merged(ROLE + behind) == ROLE + error + DONE


def test_a_torn_chunk_inside_a_call_is_not_passed_on() -> None:
    torn = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"secret\n\n'
    assert merged(torn + DONE) == torn + DONE
    named = b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"memory_query\n\n'
    assert merged(named + DONE) == DONE
    inside = event(calls(call(0, "memory_query", "{", "c"))) + torn + event(finish="tool_calls") + DONE
    assert merged(inside, ANSWER) == ANSWER


def test_a_torn_chunk_is_not_passed_on_while_the_chunk_of_a_call_waits() -> None:
    """ "memory" may still become one of ours; "memory_query" beside it is one already."""
    torn = b'data: {"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"secret\n\n'
    both = event(calls(call(0, "memory", id_="c1"), call(1, "memory_query", id_="c2")))
    assert b"secret" not in engine_after(both, torn, event(calls(call(1, arguments=QUESTION))))[1]
    alone = event(calls(call(0, "memory", id_="c1")))
    assert engine_after(alone, torn)[1] == torn


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_calls_beyond_the_limit_are_dropped() -> None:
    pieces = [call(n, "memory_query", "{}", f"c{n}") for n in range(MAX_CALLS + 3)]
    engine = PhantomStream(Names())
    outs = engine.feed(event(calls(*pieces)) + event(finish="tool_calls") + DONE)
    need = asked(outs)
    assert sent(outs) == b""
    assert need is not None
    assert len(need.calls) == len(need.message["tool_calls"]) == MAX_CALLS


@pytest.mark.parametrize("end", [b"", b"x" * 6 * 2**20])
def test_an_event_that_never_ends_is_passed_on_unread(end: bytes) -> None:
    engine, piece, out = PhantomStream(Names()), b"x" * 2**20, b""
    stream = [b"data: ", *[piece] * 5, end + b"\n\n" + ROLE, FAULT]
    for each in stream:
        out += sent(engine.feed(each))
        assert sum(map(len, engine._now.held)) <= MAX_EVENT_BYTES + len(piece)
    assert out == b"".join(stream[:-1])


def test_memory_does_not_grow_with_the_stream() -> None:
    """What is kept of a stream is what it says, and that is bounded; of a call that asks forever a beginning."""
    engine = PhantomStream(Names())
    text, argument = event({"content": "x" * 1000}), event(calls(call(0, arguments="y" * 1000)))
    engine.feed(event(calls(call(0, "memory_query", "", "c"))))
    for _ in range(MAX_TEXT_CHARS // 1000 + 1):
        engine.feed(text)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            engine.feed(text)
            engine.feed(argument)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000, "2 MB went through"
    need = asked(engine.feed(event(finish="tool_calls") + DONE))
    assert need is not None
    assert need.calls[0].cut
    assert need.message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert len(need.message["content"]) == MAX_TEXT_CHARS
