"""What is not to be stored is not in what is stored, and all else is, to the byte."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.capture.record import parse_path
from app.gateway.dialects.sse import EventParser
from app.gateway.headers import Redactor
from app.store.records import StreamRecord
from mneme_replay.paths import MASK, redacted
from tests.support.tables import each_of

PATHS = ["$.metadata.ssn", "$.messages[*].content[*].image_url.url", "$.choices[*].delta.content", "$['a b']"]
REDACTOR = Redactor(PATHS, ["X-Email"])


def stream(body: bytes, *, events: bool = True) -> StreamRecord:
    offsets = []
    if events:
        parser = EventParser()
        spans = [*parser.feed(body), parser.finish() or (0, 0)]
        offsets = [start for start, end in spans if end > start]
    return StreamRecord(body, False, [0, len(body) // 2], [1, 2], offsets, [3] * len(offsets))


def test_only_the_value_changes() -> None:
    body = b'\n{ "metadata" : {"ssn" : "078-05-1120" ,"n":1.0}, "x":12345678901234567890, "a\\u0020b":[1,{}], "m":{"ssn":1} }'
    expected = (
        b'\n{ "metadata" : {"ssn" : "***" ,"n":1.0}, "x":12345678901234567890, "a\\u0020b":"***", "m":{"ssn":1} }'
    )
    assert REDACTOR.body(body) == expected


def test_every_one_of_a_doubled_key_goes() -> None:
    assert REDACTOR.body(b'{"metadata":{"ssn":1,"ssn":2},"metadata":{"ssn":3}}') == (
        b'{"metadata":{"ssn":"***","ssn":"***"},"metadata":{"ssn":"***"}}'
    )


@each_of("body", [b"", b"plain", b'"text"', b"12", b'{"metadata":{}}', b'{"messages":[{"content":"x"}]}', b"[]"])
def test_what_has_nothing_to_hide_is_the_same_object(body: bytes) -> None:
    assert REDACTOR.body(body) is body
    assert Redactor().body(body) is body


@each_of(
    "body",
    [
        b'{"metadata":{"ssn":"078-05-1120"}',
        b'[{"ssn"',
        b"{'metadata':1}",
        "{}".encode("utf-16"),
        "{}".encode("utf-16-be"),
    ],
)
def test_what_claims_to_be_json_and_is_none_is_not_stored(body: bytes) -> None:
    assert REDACTOR.body(body) == b'"***"'
    assert Redactor().body(body) is body


@each_of(
    ("body", "expected"),
    [
        (b'\xef\xbb\xbf{"metadata":{"ssn":1}}', b'\xef\xbb\xbf{"metadata":{"ssn":"***"}}'),
        (b'{"a\\ud83d":"\\ude00","metadata":{"ssn":1}}', b'{"a\\ud83d":"\\ude00","metadata":{"ssn":"***"}}'),
        (b'{"a":"\xed\xa0\xbd","metadata":{"ssn":"\xff"}}', b'{"a":"\xed\xa0\xbd","metadata":{"ssn":"***"}}'),
    ],
)
def test_invalid_text_hides_nothing_from_the_redactor(body: bytes, expected: bytes) -> None:
    assert REDACTOR.body(body) == expected


def test_headers() -> None:
    assert REDACTOR.headers([(b"x-email", b"a"), (b"b", b"c")]) == [(b"x-email", b"***"), (b"b", b"c")]
    assert not Redactor([], ["a"])


def test_a_stream_keeps_its_events_and_their_places() -> None:
    parts = [
        b": ping\n\n",
        b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"my number is"}}]}\r\n\r\n',
        b'data: {"choices": [{"delta": {"content": "078"}}, {"delta": {"content": "x"}}]}\n\n',
        b'data: {"choices":\ndata: [{"delta":{"content":"in two lines"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"cut o',
    ]
    whole = stream(b"".join(parts))
    kept = REDACTOR.stream(whole)
    ends = [*kept.event_offsets[1:], len(kept.body)]
    assert [kept.body[a:b] for a, b in zip(kept.event_offsets, ends, strict=True)] == [
        b": ping\n\n",
        b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"***"}}]}\r\n\r\n',
        b'data: {"choices": [{"delta": {"content": "***"}}, {"delta": {"content": "***"}}]}\n\n',
        b'data: "***"\n\n',
        b'data: "***"\n\n',
    ]
    assert (kept.chunk_times, kept.event_times) == (whole.chunk_times, whole.event_times)
    assert kept.chunk_offsets[0] == 0
    assert 0 < kept.chunk_offsets[1] < len(kept.body)


def test_a_stream_without_any_is_the_same_object() -> None:
    for body in (b'data: {"choices":[]}\n\ndata: [DONE]\n\n', b""):
        whole = stream(body)
        assert REDACTOR.stream(whole) is whole


def test_an_answer_in_one_piece() -> None:
    whole = StreamRecord(b'{"metadata": {"ssn": "078"}}', False, [0, 20, 27], [1, 2, 3], [], [])
    kept = REDACTOR.stream(whole)
    assert kept.body == b'{"metadata": {"ssn": "***"}}'
    assert list(kept.chunk_offsets) == [0, 0, 0]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c", "0", 'q"\\']), inner, max_size=4)
    ),
    max_leaves=20,
)
paths = st.lists(
    st.sampled_from(["$.a", "$.a.b", "$[*].a", "$.*", "$.b[*]", "$.b[1]", "$.a[*].c", "$['0']", "$.c.*.a"]), max_size=3
)


@given(values, paths, st.sampled_from([None, 2]))
def test_bytes_and_values_lose_the_same(value: Any, given_paths: list[str], indent: int | None) -> None:
    """The bytes, read, are what the value becomes; and where nothing is named, they are the same bytes."""
    body = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    parsed = json.loads(body)
    kept = Redactor(given_paths).body(body)
    expected = redacted(parsed, [parse_path(each) for each in given_paths])
    assert json.loads(kept) == expected
    assert (kept is body) == (expected is parsed or not isinstance(parsed, dict | list))
    assert MASK not in json.dumps(expected) or kept != body
