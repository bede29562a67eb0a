"""Bodies as a page shows them; events in time, and what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.ui import calls
from app.features.ui.calls import HEX_BYTES, LEFT, RIGHT, SHOWN_BYTES, WIDTH, Body, body, dump, events_of, timeline
from tests.support.tables import each_of


def event(seq: int, t_us: int, data: str = "data: {}\n\n", offset: int | None = None, **further: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "t_us": t_us,
        "offset": seq * 10 if offset is None else offset,
        "data": data,
        "encoding": None,
    } | further


def block(delta: dict[str, Any]) -> str:
    return f"data: {json.dumps({'type': 'content_block_delta', 'index': 0, 'delta': delta})}\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n"


@each_of(
    ("data", "kind", "text"),
    [
        (chunk({"content": "Hi <b>"}), "text", "Hi <b>"),
        (chunk({"reasoning_content": "Hm"}), "thought", "Hm"),
        (chunk({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}, {"function": None}, 3]}), "call", "f({"),
        (chunk({}, "stop"), "end", ""),
        ("data: [DONE]\n\n", "end", ""),
        ('data: {"type": "response.output_text.delta", "delta": "Hi"}\n\n', "text", "Hi"),
        ('data: {"type": "response.reasoning_summary_text.delta", "delta": "Hm"}\n\n', "thought", "Hm"),
        ('data: {"type": "response.function_call_arguments.delta", "delta": "{"}\n\n', "call", "{"),
        ('data: {"type": "response.completed", "response": {}}\n\n', "end", ""),
        (block({"type": "text_delta", "text": "Hi"}), "text", "Hi"),
        (block({"type": "thinking_delta", "thinking": "Hm"}), "thought", "Hm"),
        (block({"type": "input_json_delta", "partial_json": "{"}), "call", "{"),
        (block({"type": "signature_delta", "signature": "x"}), "other", ""),
        ('data: {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}\n\n', "call", "f("),
        ('data: {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}\n\n', "other", ""),
        ('event: message_stop\ndata: {"type": "message_stop"}\n\n', "end", ""),
        ('data: {"type": "content_block_delta", "delta": 3}\n\n', "other", ""),
        (": keep-alive\n\n", "other", ""),
        ("data: nonsense\n\n", "other", ""),
        ("data: [1]\n\n", "other", ""),
        ('data: {"choices": [null]}\n\n', "other", ""),
    ],
)
def test_what_an_event_says(data: str, kind: str, text: str) -> None:
    assert calls.said(data) == (kind, text)


def test_sizes_come_from_where_the_next_begins() -> None:
    made = events_of([event(0, 5, offset=0), event(1, 9, offset=200), event(2, 30, offset=230)], 300)
    assert [(each.size, each.gap_us) for each in made] == [(200, 0), (30, 4), (70, 21)]


def test_bytes_that_are_no_text_say_nothing() -> None:
    (made,) = events_of([event(0, 5, "/wA=", encoding="base64")], None)
    assert (made.kind, made.text, made.size) == ("other", "", 3)


def test_the_longest_pause_is_named() -> None:
    made = timeline(events_of([event(0, 100_000), event(1, 150_000), event(2, 950_000), event(3, 1_000_000)], 40))
    assert made is not None
    assert (made.first_us, made.last_us, made.longest_us, made.longest_after) == (100_000, 1_000_000, 800_000, 1)
    assert made.pause is not None
    assert made.pause[0] == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) * 0.15, abs=0.1)
    assert made.pause[1] == pytest.approx((WIDTH - LEFT - RIGHT) * 0.8, abs=0.1)
    assert [mark.label for mark in made.axis] == ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms", "1 s"]


def test_a_single_event_has_no_pause() -> None:
    made = timeline(events_of([event(0, 100_000)], 10))
    assert made is not None
    assert made.pause is None
    assert timeline([]) is None


def test_of_ten_thousand_events_some_are_drawn() -> None:
    made = timeline(events_of([event(n, n * 100) for n in range(10_000)], None))
    assert made is not None
    assert len(made.ticks) <= calls.TICKS + 1
    assert made.ticks[-1] == WIDTH - RIGHT


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**6)), min_size=1, max_size=60), st.integers(0, 3))
def test_the_drawing_stays_within_its_frame(steps: list[tuple[int, int]], first: int) -> None:
    given_events, t_us, offset = [], 0, 0
    for n, (gap, size) in enumerate(steps):
        t_us += gap
        given_events.append(event(first + n, t_us, offset=offset))
        offset += size
    made = timeline(events_of(given_events, offset))
    assert made is not None
    assert list(made.ticks) == sorted(made.ticks)
    points = [tuple(map(float, each.split(","))) for each in made.line.split(" ")]
    for x, y in points:
        assert LEFT <= x <= WIDTH - RIGHT
        assert calls.TOP <= y <= calls.HEIGHT - calls.BOTTOM
    assert all(LEFT <= mark.x <= WIDTH - RIGHT for mark in made.axis)
    assert len(made.axis) <= calls.AXIS + 1


@each_of(
    ("given", "shown"),
    [
        (b'{"a":"\xc3\xa9"}', Body("json", '{\n  "a": "é"\n}', 10)),
        (b"{not json", Body("text", "{not json", 9)),
        (b"data: {}\n\n", Body("text", "data: {}\n\n", 10)),
        (b"", Body("text", "", 0)),
        (b"\xff\xfe", Body("binary", "00000000  ff fe                                            |..|", 2)),
        (b"a\0b", Body("binary", "00000000  61 00 62                                         |a.b|", 3)),
        ("There is no such call.", Body("none", "There is no such call.", None)),
    ],
)
def test_a_body(given: bytes | str, shown: Body) -> None:
    assert body(given) == shown


def test_long_bodies_are_cut() -> None:
    assert len(body(b"x" * 10**6).text) == SHOWN_BYTES
    assert body(b"x" * 10**6).cut
    assert body(b"\xff" * 10**6).text.count("\n") == HEX_BYTES // 16 - 1


def test_a_dump_has_places_digits_and_letters() -> None:
    assert dump(bytes(range(0x40, 0x52))).splitlines() == [
        "00000000  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  |@ABCDEFGHIJKLMNO|",
        "00000010  50 51                                            |PQ|",
    ]
