"""What upstreams tell of usage on paths that Mneme does not read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.capture.facts import Usage
from app.gateway.finalize import usage_told


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"object": "list", "usage": {"prompt_tokens": 8, "total_tokens": 8}}, Usage(8, None, None)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}},
         Usage(5, 2, 3)),
        ({"usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}, "user": "x"},
         Usage(5, 2, 1)),
        ({"usage": {"prompt_tokens": 5}, "metadata": {"usage": "mine", "x": {"usage": {"of": 1}}}}, Usage(5, None, None)),
        ({"text": '"usage": {"prompt_tokens": 9}'}, None),
        ({"usage": None}, None), ({"usage": {}}, None), ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": 2**31}}, None), ({"usage": {"prompt_tokens": True}}, None),
    ],
)  # fmt: skip
def test_usage_of_a_body(body: object, usage: Usage | None) -> None:
    assert usage_told(json.dumps(body).encode()) == usage
    assert usage_told(json.dumps(body, indent=3).encode()) == usage


def test_usage_of_a_stream_is_the_last_one() -> None:
    events = b"".join(
        b"event: x\ndata: " + json.dumps(each).encode() + b"\n\n"
        for each in (
            {"type": "response.created", "response": {"usage": None}},
            {"type": "response.output_text.delta", "delta": '"usage": {"input_tokens": 99}'},
            {"type": "response.completed", "response": {"usage": {"input_tokens": 4, "output_tokens": 6}}},
        )
    )
    assert usage_told(events) == Usage(4, 6, None)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_whatever_comes(before: bytes, after: bytes) -> None:
    usage_told(before + b'"usage":{"prompt_tokens":' + after)
    usage_told(before + b'"usage":' + b"[{" * 40 + after)
