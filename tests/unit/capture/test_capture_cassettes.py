"""Captured calls as cassettes, and back: nothing of them changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from app.features.transfer.routes import _stream
from app.features.transfer.store import CapturedAnswer, call_id, cassette_of, facts_of
from app.store.captures import CallDetail
from mneme_replay.cassette import Cassette, Chunk, Response
from tests.support.cassettes import SSE_HEADERS, asking, cassette
from tests.support.tables import each_of

AT = datetime(2026, 5, 3, 10, 0, 1, tzinfo=UTC)
TENANT, USER = UUID(int=1), UUID(int=2)


@given(body=st.binary(), cuts=st.lists(st.integers(0, 400)), truncated=st.booleans(), request_body=st.binary())
def test_any_bytes_and_any_pieces(body: bytes, cuts: list[int], truncated: bool, request_body: bytes) -> None:
    borders = sorted({0, *(each % (len(body) + 1) for each in cuts), len(body)})
    chunks = tuple(Chunk(n, end - start) for n, (start, end) in enumerate(pairwise(borders)))
    response = Response(status=200, headers=SSE_HEADERS, body=body, chunks=chunks, truncated=truncated)
    call = cassette(body=request_body, response=response)
    stream = _stream(call.response)
    assert stream is not None
    assert (stream.body, stream.truncated) == (body, truncated)
    assert list(zip(stream.chunk_times, stream.chunk_offsets, strict=True)) == list(enumerate(borders[:-1]))
    facts = facts_of(call, TENANT, USER, AT, stream)
    assert facts.request is not None
    assert facts.request.prefix == request_body
    assert str(facts.call_id) == call.id


def test_an_id_of_another_kind_becomes_one_of_its_time() -> None:
    made = call_id("captured-chat", AT)
    assert made == call_id("captured-chat", AT)
    assert (made.version, made.int >> 80) == (7, int(AT.timestamp() * 1000))
    assert call_id(str(made), AT) == made
    assert call_id(str(made), AT.replace(year=2025)) != made


def detail(**fields: object) -> CallDetail:
    known: dict[str, object] = {
        "call_id": UUID(cassette().id), "user_id": USER, "user_external_id": "ana", "session_id": UUID(int=3),
        "session_external_id": None, "created_at": AT, "method": "POST", "path": "/v1/chat/completions",
        "upstream": "local", "model": "tiny", "answered_model": "tiny", "streamed": False, "status": 200,
        "outcome": "complete", "memory_status": "ok", "reason": None, "prompt_tokens": 3, "completion_tokens": 2,
        "cached_tokens": None, "usage_counted": False, "cost_microcents": 0, "latency_ms": 2, "first_byte_us": 1500,
        "overhead_us": 10, "retry_count": 0, "error": None,
        "request_headers": [["content-type", "application/json"], ["X-Mneme-Label", "checkout"]],
        "response_headers": [["content-type", "application/json"]], "request_bytes": 1, "request_truncated": False,
        "request_sha256": None, "sent_sha256": None, "response_bytes": 2, "response_truncated": False, "metadata": {},
        "labels": [], "tool_calls": 0, "leg_of": None, "leg": None,
    }  # fmt: skip
    return CallDetail(**(known | fields))  # type: ignore[arg-type]


def test_a_captured_call_says_what_is_known_of_it() -> None:
    made = cassette_of(detail(labels=["checkout"]), asking(), None, CapturedAnswer(b"{}", False, [(1500, 2)]))
    assert (made.id, made.recorded_at) == (cassette().id, "2026-05-03T10:00:01.000000Z")
    assert (made.labels, made.whole, made.sent) == (("checkout",), True, None)
    assert made.call == {
        "user": "ana", "session": str(UUID(int=3)), "upstream": "local", "model": "tiny", "answered_model": "tiny",
        "stream": False, "memory_status": "ok", "usage": {"prompt_tokens": 3, "completion_tokens": 2}, "latency_ms": 2,
        "overhead_us": 10,
    }  # fmt: skip


@each_of("outcome", ["failed", "gone", "cancelled"])
def test_one_without_an_answer(outcome: str) -> None:
    made = cassette_of(detail(status=None, outcome=outcome, error="It cannot be reached."), asking(), None, None)
    assert made.response is None
    assert (made.outcome, made.error, made.whole) == (outcome, "It cannot be reached.", False)


def test_labels_go_out_and_come_in() -> None:
    """Those that the call has now; of its header only where the cassette says nothing."""

    def made(**fields: Any) -> Cassette:
        return cassette_of(detail(**fields), asking(), None, CapturedAnswer(b"{}", False, [(1500, 2)]))

    def back(call: Cassette) -> Sequence[str]:
        return facts_of(call, TENANT, USER, AT, None).labels

    assert back(made(labels=["checkout", "golden"])) == ("checkout", "golden")
    assert made(labels=[]).labels == ()
    assert back(made(labels=[])) == ()
    assert made(labels=[], request_headers=[]).labels is None
    assert back(made(labels=[], request_headers=[])) == ()
    assert back(replace(made(), labels=None)) == ("checkout",)
