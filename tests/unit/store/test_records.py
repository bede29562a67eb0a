"""What stored messages hold, read again."""

from __future__ import annotations

from typing import Any

from app.store.records import tool_calls_of
from tests.support.tables import each_of

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@each_of(
    ("stored", "expected"),
    [
        (None, []),
        ([CALL], [CALL]),
        ([CALL, "look", None, {"id": "c2", "function": "look"}], [CALL]),
        ([{"id": "c3", "custom": {"name": "look"}}], [{"id": "c3", "custom": {"name": "look"}}]),
        ({"function": "look"}, []),
        (5, []),
    ],
)
def test_calls_that_are_none_are_left_out(stored: Any, expected: list[dict[str, Any]]) -> None:
    assert tool_calls_of(stored) == expected
