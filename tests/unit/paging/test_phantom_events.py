"""Single members change, everything around them stays."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.stream import ERROR_CHARS, refusal, summed, without
from app.gateway.dialects.splice import entries, splice

VALUES = st.sampled_from([1, "a,b", [1, [2]], {"x": "}"}, None, "größe"])
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " : ")])


@given(st.lists(st.tuples(VALUES, st.booleans()), min_size=1, max_size=6), SEPARATORS, st.booleans())
def test_members_and_elements_go_with_their_commas(
    given: list[tuple[Any, bool]], separators: Any, in_object: bool
) -> None:
    kept = [value for value, gone in given if not gone]
    whole: Any = [value for value, _ in given]
    if in_object:
        whole = {f"k{n}": value for n, (value, _) in enumerate(given)}
        kept_whole: Any = {f"k{n}": value for n, (value, gone) in enumerate(given) if not gone}
    else:
        kept_whole = kept
    data = json.dumps(whole, separators=separators).encode()
    spans = [span for _, span in entries(data, 0)]
    made = splice(data, without(data, 0, spans, [gone for _, gone in given]))
    assert orjson.loads(made) == kept_whole
    if not any(gone for _, gone in given):
        assert made == data


@pytest.mark.parametrize(
    ("before", "now", "total"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 3, "b": 3}),
        ({"a": 1, "b": 2}, {"a": 1}, {"a": 2, "b": 2}),
        ({"d": {"x": 1, "y": None}}, {"d": {"x": 2, "y": 3}}, {"d": {"x": 3, "y": 3}}),
        ({"d": {"x": 1}}, {"d": None}, {"d": {"x": 1}}),
        ({"d": None}, {"d": {"x": 1}}, {"d": {"x": 1}}),
        (
            {"cost": 0.5, "tier": "a", "on": True},
            {"cost": 0.25, "tier": "b", "on": True},
            {"cost": 0.75, "tier": "b", "on": True},
        ),
    ],
)
def test_usages_add_up(before: Any, now: Any, total: Any) -> None:
    assert summed(before, now) == total


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            b'{"error":{"message":"no","type":"BadRequestError","code":400}}',
            {"message": "no", "type": "BadRequestError", "code": 400},
        ),
        (b'{"error":{"message":"no"}}', {"message": "no", "type": "upstream_error", "code": 429}),
        (b'{"error":"too many"}', {"message": "too many"}),
        (b'{"detail":"Not Found"}', {"message": "Not Found"}),
        (b'{"detail":[{"loc":1}]}', {"message": '[{"loc":1}]'}),
        (b'{"error":{"code":1}}', {"message": '{"code":1}'}),
        (b'{"message":"no"}', {"message": "no"}),
        (b"{}", {"message": "{}"}),
        (b" bad gateway\xff\n", {"message": "bad gateway\ufffd"}),
        (b"", {"message": "The upstream answered 429."}),
        (b"x" * 5000, {"message": "x" * ERROR_CHARS}),
    ],
)
def test_what_an_upstream_refused_with(body: bytes, error: dict[str, Any]) -> None:
    found = refusal(429, body)["error"]
    assert found == {"message": "", "type": "upstream_error", "param": None, "code": 429} | error
