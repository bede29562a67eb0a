"""JSON whose text is no valid Unicode."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.json_text import pair_surrogates, read_json, read_json_piece
from tests.support.tables import each_of


@each_of(
    ("text", "value"),
    [
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\uDE00"', "\ufffd"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd😀"),
        (rb'"\ud83d\ude00\ude00"', "😀\ufffd"),
        (rb'"\ud83d\n\ude00"', "\ufffd\n\ufffd"),
        (rb'"\\ud83d\ud83d"', "\\ud83d\ufffd"),
        (rb'"\\\ud83d\\"', "\\\ufffd\\"),
        (rb'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (rb'{"\ud83d":["\ude00",1.0]}', {"\ufffd": ["\ufffd", 1.0]}),
        (b'"\xed\xa0\xbd"', "\ufffd" * 3),
        (b'"a\xff"', "a\ufffd"),
        (b'"\xf0\x9f"', "\ufffd"),
        (b'\xef\xbb\xbf{"a":"\xef\xbb\xbf"}', {"a": "\ufeff"}),
        ('"\ud83d\ude00 \ud83d"', "😀 \ufffd"),
    ],
)
def test_invalid_text_is_replaced(text: bytes | str, value: object) -> None:
    assert read_json(text) == value
    if isinstance(text, bytes):
        assert pair_surrogates(read_json_piece(text)[0]) == value


@each_of(
    "text", [b"", b"{", b"NaN", b'{"a":NaN,"b":"\\ud83d"}', b'"\\ud83"', b"\xff", b'"\\ud83d"x', b"[1,]", b"[" * 5000]
)
def test_what_is_no_json_for_another_reason_is_none(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 the reason is orjson's
        read_json(text)
    with pytest.raises(ValueError):  # noqa: PT011 the reason is orjson's
        read_json_piece(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_any_text_that_json_can_name_can_be_read(value: Any) -> None:
    """Python's own parser keeps lone surrogates."""
    text = json.dumps(value).encode()
    assert read_json(text) == pair_surrogates(json.loads(text))
    assert orjson.dumps(read_json(text))
