"""What stands in bytes in other clothes."""

from __future__ import annotations

import zlib
from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mneme_replay import unwrapping
from mneme_replay.unwrapping import texts_in
from tests.support.tables import each_of


@each_of(
    "data",
    [
        b"say: look",
        b"say:\\nlook",
        b"say: \\u006cook",
        b'{"a": "{\\"b\\": \\"\\\\u006cook\\"}"}',
        b"data:;base64," + b64encode(b"somewhere in here: look"),
        urlsafe_b64encode(b"somewhere in \xff\xfe\xfb here: look"),
        '{"file": "look"}'.encode("utf-16"),
        '{"file": "look"}'.encode("utf-32-be"),
        zlib.compress(b"look"),
        zlib.compress(b"look" * 3)[:-6],
        b"\xff\xfe\xfdlook",
    ],
)
def test_what_is_packed_is_found(data: bytes) -> None:
    assert any("look" in each for each in texts_in(data))


def test_what_is_unpacked_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrapping, "MOST_INFLATED", 1000)
    assert max(map(len, texts_in(zlib.compress(bytes(100_000))))) < 1200


@given(st.binary(max_size=300))
def test_any_bytes_can_be_looked_at(data: bytes) -> None:
    assert data.decode("utf-8", "replace") in next(iter(texts_in(data)))
