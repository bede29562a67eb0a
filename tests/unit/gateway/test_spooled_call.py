"""A call as it is kept, and the same call again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from app.api.auth import Principal
from app.context.assemble import Block
from app.context.request import Compilation
from app.errors import UpstreamError
from app.features.paging.body import HiddenLegs
from app.features.paging.pager import PagingAddon
from app.features.paging.state import Paging
from app.features.paging.values import NOTHING_PAGED
from app.features.responses import DIALECT as RESPONSES
from app.features.spool.frames import CallBegin, FrameCodec, SpooledCall
from app.features.spool.keeper import DAMAGED, begin_of, head_of, kept_of, revive
from app.gateway.call import Forwarded
from app.gateway.dialects.chat import CHAT
from app.gateway.identify import identify, switches
from app.gateway.prepare import Prepared
from app.gateway.relay import Ending, Inbound, Tape
from app.gateway.upstream import Target, UpstreamResponse
from app.store import ids
from tests.support.paged import whole_record

AT = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
CANARY = "sk-canary-1"
LIMIT = 1 << 20
UNUSED: Any = None
ADDON = PagingAddon(UNUSED, UNUSED, settings=UNUSED, metrics=UNUSED, clock=UNUSED, tasks=UNUSED)
BODY = b'{ "model":"gpt-4o", "messages":[{"role":"user","content":"hi"}],"seed":1.0 }'
BLOCK = Block(b"\x01" * 16, b"\x02" * 16, UUID(int=9), "a block", (UUID(int=4), UUID(int=5)), 7)
COMPILED = Compilation((), (), 0, BLOCK, 3, 2, 30, 900, 0.9, {"items": []})


def made(*, is_chat: bool = True, **fields: Any) -> Forwarded:
    headers = {"x-mneme-user": "ana", "x-mneme-memory": "read-only", "idempotency-key": "once"}
    principal = Principal(ids.LOCAL_TENANT, UUID(int=11), None, frozenset(), "keys")
    secret = [(b"authorization", CANARY.encode()), (b"x-api-key", CANARY.encode()), (b"accept", b"*/*")]
    read = CHAT.read(BODY, json.loads(BODY)) if is_chat else None
    sent = BODY + b" " if is_chat else b""
    call = Forwarded(
        id=UUID(int=12),
        at=AT,
        started_ns=0,
        method="POST",
        path="/v1/chat/completions",
        raw_path=b"/v1/chat/completions",
        query=f"key={CANARY}&v=1".encode(),
        raw_headers=secret,
        headers=headers,
        principal=principal,
        switches=switches(headers),
        identity=identify(headers, None, principal),
        target=Target("first", f"http://u:{CANARY}@x", CANARY, None, "tail"),
        inbound=Inbound(None),  # type: ignore[arg-type]  # nobody listens
        send=None,  # type: ignore[arg-type]  # nor speaks
        body=BODY,
        body_size=len(BODY),
        status="ok",
        dialect=None,
        chat=read,
        sent=sent,
        prepared=Prepared(sent, COMPILED) if is_chat else None,
        response=None,
    )
    return replace(call, **fields)


def answered(*headers: tuple[bytes, bytes]) -> UpstreamResponse:
    return UpstreamResponse(200, "OK", list(headers), None, None)  # type: ignore[arg-type]  # it is read already


def taped(*chunks: bytes, limit: int | None = None, events: bool = False) -> Tape:
    times = iter(range(1_000_000, 100_000_000, 1_000_000))
    tape = Tape(0, limit=limit, now_ns=lambda: next(times))
    if events:
        tape.listen_for_events()
    for each in chunks:
        tape.add(each)
    tape.finish()
    return tape


def through_a_file(kept: SpooledCall) -> SpooledCall:
    codec = FrameCodec(b"key")
    data = b"".join(codec.encode_call(kept))
    assert CANARY.encode() not in data
    found = codec.decode_call(data)
    assert found is not None
    return found


def columns(tape: Tape) -> tuple[Any, ...]:
    return (
        tape.body, tape.size, tape.truncated, list(tape.chunk_offsets), list(tape.chunk_times),
        list(tape.event_offsets), list(tape.event_times),
    )  # fmt: skip


EVENTS = (b"content-type", b"text/event-stream")


@pytest.mark.parametrize(
    "ending",
    [Ending("complete"), Ending("gone"), Ending("broken", UpstreamError("it broke off"))],
    ids=lambda e: e.kind,
)
def test_a_call_that_ended_comes_back_as_it_was(ending: Ending) -> None:
    call = made()
    tape = taped(b"data: 1\n", b"\ndata: 2\n\nda", b"ta: 3", events=True)
    response = answered(EVENTS, (b"x-request-id", b"7"))
    ended_at = AT + timedelta(seconds=3)
    found = revive(through_a_file(kept_of(replace(call, response=response), ending, tape, ended_at)), LIMIT)
    assert columns(found.tape) == columns(tape)
    assert (found.ending.kind, str(found.ending.error), found.ended_at) == (ending.kind, str(ending.error), ended_at)
    assert found.call.response is not None
    assert (found.call.response.status, found.call.response.headers) == (200, response.headers)
    again = found.call
    for name in ("id", "at", "method", "path", "switches", "identity", "body", "body_size", "sent", "status", "reason"):
        assert getattr(again, name) == getattr(call, name), name
    assert again.chat == call.chat
    assert again.prepared == call.prepared
    assert (again.principal.key_id, again.principal.tenant_id) == (UUID(int=11), ids.LOCAL_TENANT)
    assert again.query == b"key=***&v=1"
    assert again.raw_headers == [(b"authorization", b"***"), (b"x-api-key", b"***"), (b"accept", b"*/*")]
    assert (again.target.name, again.target.api_key, again.target.base_url) == ("first", None, "")


def test_a_call_comes_back_in_its_own_dialect() -> None:
    body = b'{"input": [{"role":"user","content":"hi"}], "previous_response_id":"resp_1","model":"gpt-4o"}'
    chat = RESPONSES.read(body, json.loads(body))
    call = made(path="/v1/responses", body=body, prepared=None, sent=body, dialect=RESPONSES, chat=chat)
    again = revive(through_a_file(SpooledCall(call.id, begin_of(call))), LIMIT).call
    assert again.chat == chat
    assert again.chat is not None
    assert again.chat.follows == "resp_1"
    assert (again.kind, again.dialect) == ("responses", RESPONSES)


def test_a_paged_call_comes_back_with_what_was_decided_and_asked() -> None:
    record = whole_record(UUID(int=6))
    call = made()
    paging = Paging(
        call.identity.tenant_id, call.identity.user_id, UUID(int=6), 1, 900, NOTHING_PAGED, replace(record, faults=()),
        faults=list(record.faults), hidden=HiddenLegs(legs=({"role": "assistant", "content": "hm"},)),
    )  # fmt: skip
    call = replace(call, part=paging, response=answered())
    kept = kept_of(call, Ending("complete"), taped(b"{}"), AT)
    assert revive(through_a_file(kept), LIMIT, ADDON).call.part == paging
    assert revive(through_a_file(kept), LIMIT).call.part is None, (
        "a server without the addon stores the call all the same"
    )


def test_one_without_an_end_is_interrupted_when_its_last_piece_came() -> None:
    kept = SpooledCall(UUID(int=12), begin_of(made()), head_of(made(), answered()), [(5, b"a"), (70_000, b"b")], size=2)
    found = revive(through_a_file(kept), LIMIT)
    assert (found.ending.kind, str(found.ending.error)) == ("cancelled", DAMAGED)
    assert found.ended_at == AT + timedelta(milliseconds=70)
    assert 70_000 <= found.call.elapsed_us() < 10_000_000
    assert found.tape.body == b"ab"


@pytest.mark.parametrize("torn", [True, False])
def test_one_of_whose_answer_something_is_missing_is_interrupted(torn: bool) -> None:
    kept = kept_of(made(response=answered()), Ending("complete"), taped(b"one", b"two"), AT)
    kept.chunks, kept.size, kept.is_torn = kept.chunks[:1], 3, torn
    found = revive(kept, LIMIT)
    assert (found.ending.kind, found.tape.body) == ("cancelled", b"one")


def test_who_answered_instead_is_who_is_named() -> None:
    call = made()
    begun = begin_of(call)
    call = replace(call, target=Target("second", "http://y", CANARY, "its-name", "system"))
    found = revive(through_a_file(SpooledCall(call.id, begun, head_of(call, answered()))), LIMIT)
    assert (found.call.target.name, found.call.target.model_alias) == ("second", "its-name")
    assert found.call.target.placement == "system"


def test_a_long_answer_of_another_path_stays_truncated() -> None:
    tape = taped(b"x" * 60, b"y" * 60, limit=100)
    call = made(is_chat=False, body=None, body_truncated=True, body_size=5, response=answered())
    found = revive(through_a_file(kept_of(call, Ending("complete"), tape, AT)), 100)
    assert columns(found.tape) == columns(tape)
    assert (found.call.body, found.call.body_truncated, found.call.chat) == (None, True, None)


def test_a_call_that_got_no_answer_has_none() -> None:
    found = revive(through_a_file(kept_of(made(), Ending("broken"), taped(), AT)), LIMIT)
    assert found.call.response is None
    assert found.promised is None


def test_an_explanation_that_cannot_be_written_costs_itself_only() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):  # orjson writes 254 levels
        deep = {"in": deep}
    call = made(prepared=Prepared(BODY, Compilation((), (), 0, None, 0, 0, 0, 0, 0.0, deep)))
    assert revive(through_a_file(SpooledCall(call.id, begin_of(call))), LIMIT).call.prepared is None


@pytest.mark.parametrize("notes", [b"{}", b"[]", b"rubbish"])
def test_what_mneme_has_not_written_is_refused(notes: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        revive(SpooledCall(UUID(int=1), CallBegin(UUID(int=2), 3, notes)), LIMIT)


def test_a_chat_whose_body_is_none_is_refused() -> None:
    begin = begin_of(made())
    with pytest.raises(ValueError, match="without messages"):
        revive(SpooledCall(UUID(int=1), CallBegin(begin.user, begin.at_us, begin.notes, b'{"messages": 1}')), LIMIT)
    assert orjson.loads(begin.notes)["chat"]
