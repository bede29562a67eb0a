"""JSON that is read, stored and forwarded, and nested too deep to be written by a route."""

from __future__ import annotations

from typing import Any

from app.store.pools import MAX_LEVELS, content_of, nested
from tests.support.tables import each_of


def within(levels: int, value: Any = "x", *, objects: bool = False) -> Any:
    for _ in range(levels):
        value = {"a": value} if objects else [value]
    return value


@each_of("objects", [False, True])
def test_levels_are_counted(objects: bool) -> None:
    assert not nested(within(MAX_LEVELS - 1, objects=objects))
    assert nested(within(MAX_LEVELS, objects=objects))
    assert nested([1, {"a": within(1000, objects=objects)}])


def test_parts_that_cannot_be_written_leave_their_text() -> None:
    parts = [{"type": "text", "text": "Hi"}]
    assert content_of("Hi", parts) == parts
    assert content_of("Hi", [*parts, within(300)]) == "Hi"
    assert content_of("Hi", None) == "Hi"
    assert content_of(None, None) is None
