"""The same events, the same release and the same answer, however the stream is cut into chunks."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.dialects.sse import EndGuard, EventParser, answer_of_json, data_of, fold, payloads
from tests.support.properties import examples
from tests.support.tables import each_of

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures" / "vllm"

LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:x",
        b"data",
        b"data: [DONE]",
        b"data:[DONE]",
        b"data: [DON",
        b"data: [DONE",
        b" data: [DONE]",
        b"x data: [DONE]",
        b'data: {"c":"data: [DONE]"}',
        b": keep-alive",
        b":",
        b"event: done",
        b"id: 1",
        "data: größe 🙂".encode(),
        b"",
        b"dat",
        b"d",
    ]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\n\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\r\r", b"\n\r\n", b""])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=12).map(lambda parts: b"".join(a + b for a, b in parts))


@st.composite
def cut(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream, and the same stream in chunks; empty chunks too."""
    stream = draw(st.one_of(STREAMS, st.lists(st.sampled_from(list(b"\r\n:da [DONE]")), max_size=40).map(bytes)))
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    return stream, [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def parsed(chunks: list[bytes]) -> list[tuple[int, int]]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    last = parser.finish()
    return [*events, last] if last else events


def reference(stream: bytes) -> list[bytes]:
    """The data of a stream's events, read line by line as the standard says."""
    found: list[bytes] = []
    lines: list[bytes] = []
    for line in re.split(rb"\r\n|\n|\r", stream):
        if line == b"":
            if lines:
                found.append(b"\n".join(lines))
            lines = []
        elif line == b"data" or line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
    if lines:
        found.append(b"\n".join(lines))
    return found


# --- events -----------------------------------------------------------------------------------------------------------


@examples(500)
@given(cut())
def test_chunk_boundaries_change_nothing(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    events = parsed(chunks)
    assert events == parsed([stream])
    assert events == parsed([stream[i : i + 1] for i in range(len(stream))])
    assert b"".join(stream[a:b] for a, b in events) == stream
    data = [data_of(stream[a:b]) for a, b in events]
    assert [d for d in data if d is not None] == reference(stream) == list(payloads(stream))


def test_events_are_known_as_soon_as_they_end() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\nda") == [(0, 9)]
    assert parser.feed(b"ta: b\r\n\r") == []
    assert parser.feed(b"\n") == [(9, 20)]
    assert parser.feed(b"data: c\r\r") == []
    assert parser.feed(b"data: d") == [(20, 29)]
    assert parser.finish() == (29, 36)
    assert parser.finish() is None
    assert parser.size == 36


@each_of(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\r\ndata:\r\ndata\r\n\r\n", b"a\n\n"),
        (b"event: x\nid: 1\ndata: a\n\n", b"a"),
        (b"data: a", b"a"),
        (b"data\n\n", b""),
        (b": data: a\n\n", None),
        (b"datax: a\n\n", None),
        (b"\n\n", None),
    ],
)
def test_data_of_an_event(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data


def test_a_long_line_is_looked_at_once() -> None:
    """The parser and the guard may only look at what is new: here the work is counted, not timed."""
    looked = 0

    class Counting(bytes):
        def find(self, *args: object) -> int:
            nonlocal looked
            looked += len(self)
            return bytes.find(self, *args)  # type: ignore[arg-type]  # passed on as it came

    parser, guard, released = EventParser(), EndGuard(), 0
    parser.feed(b"data: ")
    guard.feed(b"data: ")
    piece = b"x" * 10_000
    for _ in range(1000):
        assert parser.feed(Counting(piece)) == []
        released += len(guard.feed(piece))
        assert len(parser._tail) <= 3
    assert looked <= 2 * 10_000_000
    assert released + len(guard.rest()) == 10_000_000 + 6
    assert parser.feed(b"\n\n") == [(0, 10_000_008)]


# --- the end of a stream ----------------------------------------------------------------------------------------------


def first_done(stream: bytes) -> int:
    found = re.search(rb"(?:\A|(?<=[\r\n]))data: ?\[DONE\]", stream)
    return found.start() if found else len(stream)


@examples(500)
@given(cut())
def test_the_guard_holds_the_end_and_only_the_end(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    guard, released, seen = EndGuard(), b"", b""
    end = first_done(stream)
    for chunk in chunks:
        released += guard.feed(chunk)
        seen += chunk
        assert stream.startswith(released)
        assert len(released) <= end
        if len(seen) >= end + 12 and end < len(stream):
            assert guard.ended
        if not guard.ended:  # what waits could still become the last line
            waiting = seen[len(released) :]
            assert b"data: [DONE]".startswith(waiting) or b"data:[DONE]".startswith(waiting)
            assert waiting == b"" or released == b"" or released[-1:] in (b"\r", b"\n")
    assert guard.ended == (end < len(stream))
    if guard.ended:
        assert len(released) == end
    assert released + guard.rest() == stream
    assert guard.rest() == b""


@each_of(
    ("chunks", "released"),
    [
        ([b"data: {}\n\n", b"data: [DONE]\n\n"], [b"data: {}\n\n", b""]),
        ([b"data: {}\n\ndata: [DONE]\n\n"], [b"data: {}\n\n"]),
        ([b"data:[DONE]"], [b""]),
        ([b"data: {}\n\nda", b"ta: {}\n\n"], [b"data: {}\n\n", b"data: {}\n\n"]),
        ([b"d", b"a", b"x"], [b"", b"", b"dax"]),
        ([b"x", b"data: [DONE]"], [b"x", b"data: [DONE]"]),
        ([b'data: {"c":"', b'data: [DONE]"}\n\n'], [b'data: {"c":"', b'data: [DONE]"}\n\n']),
        ([b"\r", b"\ndata: [DONE]"], [b"\r", b"\n"]),
        ([b"", b"data", b"", b": [DONE]", b"\n\n"], [b"", b"", b"", b"", b""]),
    ],
)
def test_what_the_guard_lets_go(chunks: list[bytes], released: list[bytes]) -> None:
    guard = EndGuard()
    assert [guard.feed(chunk) for chunk in chunks] == released


# --- answers ----------------------------------------------------------------------------------------------------------


def body_of(case: str) -> bytes:
    head, _, body = (CAPTURES / f"{case}.response.raw").read_bytes().partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head:
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + body[:length], body[length + 2 :]
        if not length:
            break
    return whole


def test_fold_of_a_captured_stream() -> None:
    answer = fold(payloads(body_of("chat_stream_usage")))
    assert answer.done
    assert answer.malformed == 0
    assert answer.model == "tiny"
    assert answer.id is not None
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 12
    (choice,) = answer.choices
    assert (choice.role, choice.finish_reason) == ("assistant", "length")
    assert choice.content
    # the same prompt and seed, once in one piece
    whole = answer_of_json(body_of("chat"))
    assert whole is not None
    assert whole.choices[0].content == choice.content
    assert whole.usage is not None
    assert whole.usage["total_tokens"] == answer.usage["total_tokens"]


@each_of("case", sorted(path.name.split(".")[0] for path in CAPTURES.glob("*.response.raw")))
def test_every_capture_can_be_folded(case: str) -> None:
    body = body_of(case)
    answer = fold(payloads(body))
    stream = orjson.loads((CAPTURES / f"{case}.request.json").read_bytes())["path"] == "/v1/chat/completions"
    if stream and body.startswith(b"data:"):
        assert answer.malformed == 0
        assert answer.choices
        truncated = case in ("client_abort_stream", "sigterm_midstream")
        assert answer.done != truncated
        assert all((choice.finish_reason is None) == truncated for choice in answer.choices)


def test_tool_calls_of_a_captured_stream() -> None:
    streamed = fold(payloads(body_of("tool_auto_two_stream"))).choices[0]
    whole = answer_of_json(body_of("tool_auto_two"))
    assert whole is not None
    for call in (*streamed.tool_calls, *whole.choices[0].tool_calls):
        assert call["type"] == "function"
        assert call["id"]
        assert isinstance(call["function"]["arguments"], str)
    names = [[call["function"]["name"] for call in c.tool_calls] for c in (streamed, whole.choices[0])]
    assert names[0] == names[1]
    arguments = [[orjson.loads(c["function"]["arguments"]) for c in streamed.tool_calls]]
    arguments += [[orjson.loads(c["function"]["arguments"]) for c in whole.choices[0].tool_calls]]
    assert arguments[0] == arguments[1]


def chunk(delta: object, index: object = 0, **more: object) -> bytes:
    return orjson.dumps({"id": "c", "choices": [{"index": index, "delta": delta, **more}]})


def test_choices_are_kept_apart() -> None:
    answer = fold(
        [
            chunk({"role": "assistant", "content": ""}, 1),
            chunk({"role": "assistant", "content": "a"}, 0),
            chunk({"content": "b"}, 1, finish_reason="stop"),
            chunk({"content": "c"}, 0, finish_reason="length"),
            b" [DONE] ",
        ]
    )
    assert [(c.index, c.content, c.finish_reason) for c in answer.choices] == [(0, "ac", "length"), (1, "b", "stop")]
    assert answer.done


def test_everything_that_a_delta_may_hold() -> None:
    answer = fold(
        [
            chunk({"role": "assistant", "content": None, "refusal": "no"}),
            chunk({"reasoning_content": "h", "reasoning": "H"}),
            chunk({"reasoning": "m"}),
            chunk({"reasoning_content": "m"}),
            chunk({"content": [{"type": "text", "text": "x"}, {"type": "thinking"}, 3]}),
            chunk({"function_call": {"name": "f", "arguments": "{"}}),
            chunk({"function_call": {"arguments": "}"}}),
            chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g"}}]}),
            chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}),
            chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "1"}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "2"}, "extra_content": {"x": 1}}]}),
        ]
    )
    (choice,) = answer.choices
    assert (choice.content, choice.refusal, choice.reasoning) == ("x", "no", "Hmm")
    assert choice.function_call == {"name": "f", "arguments": "{}"}
    assert choice.tool_calls == [
        {
            "id": "a",
            "type": "function",
            "function": {"name": "f", "arguments": "2"},
            "extra_content": {"x": 1},
        },
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "1"}},
    ]


def test_tool_calls_without_an_index() -> None:
    answer = fold(
        [
            chunk({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "1"}}]}),
            chunk({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "2"}}]}),
            chunk({"tool_calls": [{"function": {"arguments": "3"}}]}),
            chunk({"tool_calls": [{"id": "a", "function": {"arguments": "4"}}]}),
        ]
    )
    calls = [(call["id"], call["function"]["arguments"]) for call in answer.choices[0].tool_calls]
    assert calls == [("a", "14"), ("b", "23")]


@each_of(
    ("indexes_and_ids", "order"),
    [
        ([(0, "a"), (1, "b"), (0, "c")], "abc"),
        ([(0, "a"), (0, "b"), (1, "c")], "abc"),
        ([(0, "a"), (0, "b"), (1, "c"), (1, "d")], "abcd"),
        ([(0, "a"), (2, "b"), (1, "c"), (0, "d")], "acbd"),
        ([(1, "b"), (0, "a")], "ab"),
        ([(None, "a"), (0, "b"), (None, "c")], "abc"),
        ([(3, "a"), (3, "b"), (3, "c")], "abc"),
    ],
)
def test_calls_stand_by_their_indexes_and_those_with_one_index_as_they_came(
    indexes_and_ids: list[tuple[int | None, str]], order: str
) -> None:
    calls = [
        {"id": call_id, "function": {"name": "f", "arguments": "{}"}} | ({} if index is None else {"index": index})
        for index, call_id in indexes_and_ids
    ]
    answer = fold([chunk({"tool_calls": [call]}) for call in calls])
    assert "".join(call["id"] for call in answer.choices[0].tool_calls) == order
    assert [call["function"]["arguments"] for call in answer.choices[0].tool_calls] == ["{}"] * len(order)


def test_the_last_usage_counts_and_an_error_in_the_stream_is_kept() -> None:
    answer = fold(
        [
            orjson.dumps({"choices": [], "usage": {"total_tokens": 1}}),
            orjson.dumps({"choices": [], "usage": None}),
            orjson.dumps({"choices": [], "usage": {"total_tokens": 2}}),
            orjson.dumps({"error": {"message": "out of luck"}}),
        ]
    )
    assert answer.usage == {"total_tokens": 2}
    assert answer.error == {"message": "out of luck"}
    assert answer.choices == []
    assert not answer.done


@each_of(
    "bad",
    [
        b"",
        b"{",
        b"null",
        b"1",
        b"1,2",
        b'"x"',
        b"\xff",
        b"]",
        b'{"choices":[1]}',
    ],
)
def test_malformed_events_are_counted_and_skipped(bad: bytes) -> None:
    answer = fold([chunk({"content": "a"}), bad, chunk({"content": "b"})])
    assert answer.choices[0].content == "ab"
    assert answer.malformed == 1


@each_of(
    "odd",
    [
        {"choices": None},
        {"choices": {}},
        {"choices": [{}]},
        {"choices": [{"index": "x", "delta": []}]},
        {"choices": [{"delta": {"content": 1, "tool_calls": {}, "function_call": 3, "role": []}}]},
        {"choices": [{"delta": {"tool_calls": [1, {"index": None, "function": "f", "id": 3}]}}]},
        {"choices": [{"finish_reason": 3}], "usage": [], "id": 1, "model": {}, "created": "x"},
    ],
)
def test_odd_shapes_do_no_harm(odd: object) -> None:
    assert fold([chunk({"content": "a"}), orjson.dumps(odd)]).choices[0].content == "a"


def test_bodies_that_are_no_completion() -> None:
    assert answer_of_json(b"") is None
    assert answer_of_json(b"[]") is None
    error = answer_of_json(b'{"error":{"code":404}}')
    assert error is not None
    assert (error.error, error.choices) == ({"code": 404}, [])
    odd = answer_of_json(b'{"choices":[{"message":null},{"index":4,"message":{"content":"x"}}]}')
    assert odd is not None
    assert odd.malformed == 1
    assert [(choice.index, choice.content) for choice in odd.choices] == [(4, "x")]
