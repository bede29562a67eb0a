from __future__ import annotations

import json

import pytest

from tests.conformance.compare import (
    by_digits,
    differences,
    event_differences,
    events_of,
    key_orders,
    messages_lost,
    parsed,
)


def test_differences_are_told_by_their_place() -> None:
    right = {"a": 1, "b": [1, {"c": None}], "gone": 0}
    got = {"a": 1.0, "b": [1, {"c": False}], "new": "x"}
    assert differences(right, got) == ["$.b[1].c is false instead of null", "$.gone is missing", '$.new is added: "x"']
    assert differences([1], [1, 2]) == ["$ is [1, 2] instead of [1]"]
    assert differences({"a": 1}, {"a": True}) == ["$.a is true instead of 1"]
    assert differences(b"no json", {}) == ["$ is {} instead of no json"]


@pytest.mark.parametrize(
    ("one", "other"), [("1.0", "1"), ("1e-1", "0.1"), ("-0", "0"), ("12345678901234567890", "12345678901234567000")]
)
def test_digits_are_compared_as_written(one: str, other: str) -> None:
    assert by_digits(one.encode()) != by_digits(other.encode())
    assert by_digits(one.encode()) == by_digits(one.encode())
    assert by_digits(b'"1"') != by_digits(b"1")


def test_the_order_of_keys() -> None:
    assert key_orders(parsed(b'{"b": {"z": 1, "a": [{"y": 1, "x": 2}]}}')) == {
        "$": ["b"], "$.b": ["z", "a"], "$.b.a[0]": ["y", "x"],
    }  # fmt: skip


def test_messages_may_be_added_to_and_not_changed() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    more = [{"role": "system", "content": "M"}, said[0], {"role": "user", "content": "<memory/>\nHi"}]
    assert messages_lost(said, more) == []
    assert len(messages_lost(said, [said[1], said[0]])) == 1, "the order is lost"
    assert len(messages_lost(said, [said[0], {**said[1], "content": "Ho"}])) == 1
    assert len(messages_lost(said, [said[0], {**said[1], "name": "x"}])) == 1
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert (
        messages_lost(parts, [{"role": "user", "content": [{"type": "text", "text": "m"}, *parts[0]["content"]]}]) == []
    )
    assert len(messages_lost(parts, None)) == 1


def test_events_are_read_as_a_browser_reads_them() -> None:
    body = b': hi\n\nevent: a\r\nid: 7\r\ndata:1\r\ndata:  2\r\n\r\ndata: {"x": 1}'
    first, second, third = events_of(body)
    assert (first.data, first.comments) == (None, (b"hi",))
    assert (second.name, second.id, second.data) == (b"a", b"7", b"1\n 2")
    assert third.value == {"x": 1}


def test_streams_differ_by_events() -> None:
    right = b'data: {"a": 1}\n\nevent: e\ndata: 2\n\n'
    assert event_differences(right, b': ping\n\ndata:{"a":1}\n\nevent: e\ndata: 2\n\n') == []
    assert event_differences(right, b'data: {"a": 2}\n\n') == ["1 events instead of 2", "event 1.a is 2 instead of 1"]
    found = event_differences(right, b'data: {"a": 1}\n\ndata: 2\n\n')
    assert found == ["event 2 has the fields of data only instead of event: e"]


def test_what_is_no_json_stays_bytes() -> None:
    assert parsed(b"{") == b"{"
    assert by_digits(b"\xff") == b"\xff"
    assert parsed(json.dumps([1]).encode()) == [1]
