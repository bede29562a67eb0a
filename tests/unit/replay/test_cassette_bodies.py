"""Bodies in cassettes: any bytes come back, and what people write stays readable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mneme_replay.bodies import MAX_DEPTH, STYLES, BadForm, decode, dump, encode
from tests.support.cassettes import streaming
from tests.support.properties import examples
from tests.support.tables import each_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.lists(
    st.sampled_from(
        [b"data: ", b'{"a":1}', b'{"a": 1}', b"[DONE]", b"\n", b"\n\n", b": ping", b"event: x\n", b"\r\n", b"\xff", b"\xc3",
         b"\xa9", "é".encode(), b'"\\ud800"', b"\0", b"{", b"[1e3]"]
    )
).map(b"".join)  # fmt: skip


def through_json(form: Any) -> Any:
    return json.loads(json.dumps(form, ensure_ascii=False).encode())


@given(st.binary() | PIECES)
def test_any_bytes_come_back(body: bytes) -> None:
    assert decode(through_json(encode(body))) == body


@examples(40)
@given(st.dictionaries(st.text(max_size=5), JSON), st.sampled_from(sorted(STYLES)))
def test_json_is_shown_as_json_in_every_style(value: dict[str, Any], style: str) -> None:
    body = dump(value, style)
    form = encode(body)
    assert form is not None
    assert form["json"] == value
    assert decode(through_json(form)) == body


@each_of(
    ("body", "kind"),
    [
        (b'{"a":1.50}', "text"),
        (b'{"a":1E3}', "text"),
        (b'{"a":1,"a":2}', "text"),
        (b'{"a":NaN}', "text"),
        (b' {"a":1}', "text"),
        (b'{"a":"\\ud800"}', "text"),
        (b'{"a":"\\/"}', "text"),
        (b"[" * 100_000 + b"]" * 100_000, "text"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "text"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "json"),
        (b'{"a":' + b"9" * 5000 + b"}", "text"),
        ('{"größe":"🙂"}'.encode(), "json"),
        (b'{\n  "a": 1\n}', "json"),
        (b"a\nb\n", "text"),
        (b"a\n" * 40 + b"\xff\n", "text"),
        (bytes(range(256)) * 4, "base64"),
    ],
)
def test_the_first_form_that_fits(body: bytes, kind: str) -> None:
    form = encode(body)
    assert form is not None
    assert kind in form
    assert decode(through_json(form)) == body


def test_nothing_is_null() -> None:
    assert encode(b"") is None
    assert decode(None) == b""


def test_events_are_shown_with_their_json() -> None:
    body = b"".join(streaming("größe 🙂"))
    form = encode(body)
    assert form is not None
    assert form["style"] == "compact"
    assert form["sse"][1]["data"]["choices"][0]["delta"] == {"content": "größe 🙂"}
    assert form["sse"][-1] == "data: [DONE]\n\n"
    assert decode(form) == body


def test_named_events_comments_and_a_torn_end() -> None:
    body = b': keep-alive\n\nevent: response.created\ndata: {"a":1}\n\ndata: {"b": 2}\n\ndata: {"c'
    form = encode(body)
    assert form == {
        "style": "compact",
        "sse": [
            ": keep-alive\n\n",
            {"event": "response.created", "data": {"a": 1}},
            'data: {"b": 2}\n\n',
            'data: {"c',
        ],
    }
    assert decode(form) == body


@each_of(
    ("form", "path"),
    [
        ([], ()),
        ({}, ()),
        ({"json": 1, "text": []}, ()),
        ({"json": 1, "other": 1}, ()),
        ({"json": 1, "style": "odd"}, ("style",)),
        ({"json": "\ud800"}, ("json",)),
        ({"text": "a"}, ("text",)),
        ({"text": ["a", 1]}, ("text", 1)),
        ({"text": ["\ud800"]}, ("text", 0)),
        ({"text": [{"base64": "*"}]}, ("text", 0)),
        ({"sse": [{"data": 1, "id": 2}]}, ("sse", 0)),
        ({"sse": [{"data": 1, "event": 2}]}, ("sse", 0)),
        ({"base64": ["a"]}, ("base64",)),
        ({"base64": [1]}, ("base64",)),
    ],
)
def test_what_is_no_body_is_told_with_its_place(form: Any, path: tuple[str | int, ...]) -> None:
    with pytest.raises(BadForm) as caught:
        decode(form)
    assert caught.value.path == path
