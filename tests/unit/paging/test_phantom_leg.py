"""Whose a call is, as soon as its name says so."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.paging.stream import ChatChunk, LegStream, StreamedCall
from app.features.paging.tools import Names
from tests.support.phantoms import call


@pytest.mark.parametrize(
    ("pieces", "known"),
    [
        ([call(0, "memory_query")], [True]),
        ([call(0, "memory_restore", "{}")], [True]),
        ([call(0, "get_time")], [False]),
        ([call(0, "memo"), call(0, "ry_query")], [None, True]),
        ([call(0, "memo"), call(0, "rise")], [None, False]),
        ([call(0, "memory"), call(0, "memory")], [None, False]),
        ([call(0, "memory", "{")], [False]),
        ([call(0), call(0, "memory_query")], [None, True]),
        ([call(0, "", ""), call(0, "m"), call(0, arguments="{")], [None, None, False]),
        ([{"index": 0, "type": "custom", "custom": {"name": "memory_query"}}], [False]),
        ([{"index": 0, "function": None}], [None]),
        ([call(0, "memory_query_all")], [False]),
    ],
)
def test_a_name_as_it_comes(pieces: list[dict[str, Any]], known: list[bool | None]) -> None:
    streamed, owners = StreamedCall((0, 0)), []
    for piece in pieces:
        if streamed.ours is None:
            streamed.named(piece, Names())
        owners.append(streamed.ours)
    assert owners == known


@pytest.mark.parametrize("given", [None, 1, "x", {}, [1, None, "x"]])
def test_odd_calls_do_no_harm(given: Any) -> None:
    assert list(LegStream().pieces({"tool_calls": given})) == []


def test_the_choice_that_is_looked_at() -> None:
    choices = [1, None, {"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]
    found = ChatChunk(b"", b"", {"choices": choices})
    assert (found.at, found.delta) == (3, {"content": "a"})
    assert ChatChunk(b"", b"", {"choices": [{"delta": 7}]}).delta == {}
    assert ChatChunk(b"", b"", {"choices": []}).part == {}
