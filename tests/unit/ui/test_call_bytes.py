"""Bodies as a page shows them."""

from __future__ import annotations

import pytest

from app.ui.call_bytes import HEX_BYTES, SHOWN_BYTES, Body, body, dump


@pytest.mark.parametrize(
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
