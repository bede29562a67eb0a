"""Where a stream of the Responses API ends, and what it amounts to."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.features.responses import DIALECT, LAST
from app.gateway.dialects.sse import LastEventGuard, payloads
from tests.support.replies import CAPTURES
from tests.support.responses import called, event_bytes, events_of, response_of, said, thought
from tests.support.tables import each_of

ITEMS = [thought("hm"), said("It is sunny."), called("weather", '{"city": "Lisbon"}', "c1")]
WHOLE = response_of({"model": "m", "input": "hi"}, ITEMS, "resp_1")


def folded(events: list[bytes]) -> Any:
    return DIALECT.fold(payloads(b"".join(events)))


def test_a_stream_is_what_the_body_would_have_been() -> None:
    made, read = folded(events_of(WHOLE)), DIALECT.whole(json.dumps(WHOLE).encode())
    assert read == made
    assert (made.id, made.model, made.created, made.done, made.error) == ("resp_1", "m", 1700000000, True, None)
    (choice,) = made.choices
    assert (choice.content, choice.reasoning, choice.finish_reason) == ("It is sunny.", "hm", "tool_calls")
    assert choice.tool_calls[0]["function"] == {"name": "weather", "arguments": '{"city": "Lisbon"}'}
    usage = WHOLE["usage"]
    assert made.usage == {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "prompt_tokens_details": usage["input_tokens_details"],
    }


def test_items_count_for_more_than_the_last_event() -> None:
    """Some servers send it without its items."""
    events = events_of(WHOLE)[:-1]
    events.append(event_bytes({"type": "response.completed", "response": WHOLE | {"output": []}}))
    assert folded(events).choices == folded(events_of(WHOLE)).choices
    only_last = [event_bytes({"type": "response.completed", "response": WHOLE})]
    assert folded(only_last).choices == folded(events_of(WHOLE)).choices


def test_what_broke_off_is_there_as_far_as_it_came() -> None:
    events = events_of(response_of({}, [said("It is sunny.")], "resp_2"))
    cut = next(n for n, each in enumerate(events) if b'"delta": "is "' in each or b'" is"' in each)
    made = folded(events[: cut + 1])
    assert made.choices[0].content.startswith("It ")
    assert (made.choices[0].finish_reason, made.done, made.id) == (None, False, "resp_2")
    calls = events_of(response_of({}, [called("weather", '{"city":1}', "c1")], "resp_3"))
    made = folded(
        [each for each in calls if b"output_item.done" not in each and b"completed" not in each.split(b"\n")[0]]
    )
    assert made.choices[0].tool_calls[0]["function"]["arguments"] == '{"city":1}'
    bare = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Oi"}
    assert folded([event_bytes(bare)]).choices[0].content == "Oi"


@each_of(
    ("status", "more", "reason", "error"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "length", None),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, "content_filter", None),
        ("incomplete", {}, "incomplete", None),
        ("cancelled", {}, "abort", None),
        (
            "failed",
            {"error": {"code": "server_error", "message": "no"}},
            None,
            {"code": "server_error", "message": "no"},
        ),
    ],
)
def test_how_an_answer_can_end(status: str, more: Any, reason: str | None, error: Any) -> None:
    response = response_of({}, [said("Half")], "r", status, **more)
    for made in (folded(events_of(response)), DIALECT.whole(json.dumps(response).encode())):
        assert made is not None
        assert made.choices[0].finish_reason == reason
        assert made.error == error
        assert not made.done


def test_an_error_in_the_stream_is_kept() -> None:
    event = {"type": "error", "code": "server_error", "message": "dead", "param": None, "sequence_number": 3}
    made = folded([*events_of(WHOLE)[:2], event_bytes(event)])
    assert made.error == {"code": "server_error", "message": "dead", "param": None}
    assert made.choices == []


def test_what_cannot_be_read_is_skipped() -> None:
    made = folded([b"data: {x\n\n", b"data: 7\n\n", *events_of(WHOLE), b"data: [DONE]\n\n"])
    assert made.malformed == 2
    assert made.choices[0].content == "It is sunny."
    for body in (b"x", b"[]", b"{}"):
        read = DIALECT.whole(body)
        assert read is None or read.choices == []


def captured(case: str) -> bytes:
    """The body of what a real vLLM answered."""
    head, _, rest = (CAPTURES / f"{case}.response.raw").read_bytes().partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest
    pieces = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(pieces)


@each_of(
    ("case", "reason"),
    [
        ("responses_stream", "length"),
        ("responses_tool_stream", "tool_calls"),
        ("responses_tool_strict_stream", "tool_calls"),
    ],
)
def test_streams_of_a_real_server(case: str, reason: str) -> None:
    """It says `response.completed` of what is not complete, too."""
    body = captured(case)
    made = DIALECT.fold(payloads(body))
    assert made.choices[0].finish_reason == reason
    assert made.choices[0].content or made.choices[0].tool_calls[0]["function"]["name"] == "get_weather"
    assert made.usage is not None
    sent, held, ended = fed([body])
    assert (sent + held, ended) == (body, True)
    assert held.startswith(b"event: response.completed\n")


def test_bodies_of_a_real_server() -> None:
    made = DIALECT.whole(captured("responses_tool"))
    assert made is not None
    call = {"name": "get_weather", "arguments": '{"city": "Paris", "days": 3}'}
    assert made.choices[0].tool_calls[0]["function"] == call
    text = DIALECT.whole(captured("responses"))
    assert text is not None
    assert text.choices[0].content == " workdb rourHfirst"


# --- the end of a stream ------------------------------------------------------------------------------------------------


def fed(chunks: list[bytes]) -> tuple[bytes, bytes, bool]:
    guard = LastEventGuard(LAST)
    sent = b"".join(guard.feed(each) for each in chunks)
    return sent, guard.rest(), guard.ended


@each_of("status", ["completed", "failed", "incomplete"])
def test_the_last_event_is_held_back_whole(status: str) -> None:
    events = events_of(WHOLE | {"status": status})
    sent, held, ended = fed([b"".join(events)])
    assert (sent, held, ended) == (b"".join(events[:-1]), events[-1], True)


@each_of(
    "last",
    [
        b"event:response.completed\ndata:{}\n\n",
        b'data: {"type":"response.completed"}\n\n',
        b'data: {"type": "response.failed"}\n\n',
        b"event: error\ndata: {}\n\n",
        b"data: [DONE]\n\n",
        b"event: response.completed\r\ndata: {}\r\n\r\nx",
    ],
)
def test_servers_write_it_in_several_ways(last: bytes) -> None:
    before = b'event: response.created\ndata: {"x": "event: response.completed"}\n\n'
    assert fed([before, last]) == (before, last, True)


def test_a_last_event_that_breaks_off_is_no_end() -> None:
    assert fed([b"event: response.completed\ndata: {"]) == (b"", b"event: response.completed\ndata: {", False)
    assert fed([b"event: response.comp"]) == (b"", b"event: response.comp", False)
    assert fed([b"event: response.content_part.added\n"])[0] == b"event: response.content_part.added\n"


@given(st.lists(st.integers(0, 4000), max_size=30))
def test_where_the_chunks_are_cut_changes_nothing(cuts: list[int]) -> None:
    events = [*events_of(WHOLE)[:-1], b": keep-alive\n\n", events_of(WHOLE)[-1], b"data: [DONE]\n\n"]
    body = b"".join(events)
    places = sorted({0, len(body), *(cut % len(body) for cut in cuts)})
    sent, held, ended = fed([body[a:b] for a, b in itertools.pairwise(places)])
    assert sent == b"".join(events[:-2])
    assert sent + held == body
    assert ended
