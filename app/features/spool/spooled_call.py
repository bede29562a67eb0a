"""A call as the journal and the spool keep it, and back again.

What is written is what a capture may hold: no key of anybody's, neither in headers nor in the path, and nothing that the
settings redact. What can be told from the body again (the messages, their hashes, their places) is not written, but where the
body lacks something: then the hashes stand beside it, so that its place is found by what was really said.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace

from app.capture.facts import Leg, Usage
from app.capture.mask import masked
from app.context.assemble import Block
from app.context.audit import written
from app.context.request import Compilation
from app.context.transcript import Transcript
from app.dialects.base import ChatRequest
from app.dialects.registry import dialect_of
from app.dialects.splice import parse_object
from app.errors import UpstreamError
from app.features.spool.journal import CallBegin, KeptCall
from app.gateway.addon import Addon
from app.gateway.call import Forwarded, LegOf, Remembered
from app.gateway.client import Inbound, Message
from app.gateway.headers import Headers, response_headers
from app.gateway.identify import Identity, Switches
from app.gateway.prepare import Prepared
from app.gateway.redact import Redactor
from app.gateway.relay import Ending, Tape, is_event_stream
from app.gateway.upstream import Target, UpstreamResponse
from app.store.texts import plain
from mneme_replay.secrets import masked_path

INTERRUPTED = "Mneme was stopped before the answer had ended."

NOTHING = Redactor()
"""Takes nothing out."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_IDS = frozenset({"tenant_id", "user_id", "named", "issued"})


class _Caller(Struct, frozen=True):
    """Whose key it was; of the key itself nothing is kept."""

    tenant_id: UUID
    key_id: UUID | None
    user_external_id: str | None
    mode: Literal["open", "keys"]
    limits: None = None
    """It was admitted, and is settled."""

    def allows(self, scope: str) -> bool:
        return False


class Revived(Struct, frozen=True):
    """A call out of the journal, as it stood at its end. `promised`: the session that it was to begin, which its
    answer's head has named."""

    call: Forwarded
    ending: Ending
    tape: Tape
    ended_at: datetime
    promised: UUID | None


# --- in -------------------------------------------------------------------------------------------------------------------


def begin_of(call: Remembered, redactor: Redactor = NOTHING) -> CallBegin:
    """What is known of a call before it goes upstream."""
    principal, chat = call.principal, call.chat
    body = redactor.body(call.body) if call.body is not None else None
    sent = call.sent if chat is not None and call.sent != call.body else b""
    lacks = body is not call.body
    query = call.query.decode("latin-1")
    notes = {
        "method": call.method,
        "path": call.path,
        "query": masked_path("?" + query)[1:] if query else "",
        "headers": masked(redactor.headers(call.raw_headers)),
        "caller": [principal.key_id, principal.user_external_id, principal.mode],
        "switches": call.switches,
        "identity": call.identity,
        "target": _target(call.target),
        # Of a chat whose messages themselves are not to be stored there is a call, and no turn.
        "chat": chat is not None and (not lacks or _is_chat(body, chat)),
        "transcript": _transcript(chat.transcript) if lacks and chat is not None else None,
        "model": call.model,
        "body_size": call.size,
        "body_truncated": call.body_truncated,
        "status": call.status,
        "reason": call.reason,
        "overhead_ns": call.overhead_ns,
        "session": call.place.session_id if call.place is not None and call.place.new else None,
        "compiled": _compiled(call.prepared),
        "leg_of": call.leg_of,
        "legs": call.legs if isinstance(call, Forwarded) else (),
    }
    if call.part is not None and chat is not None:
        notes[call.part.name] = call.part.frozen(chat, redactor)
    return CallBegin(
        user=call.identity.user_id,
        at_us=(call.at - _EPOCH) // _MICROSECOND,
        notes=_dumped(notes),
        body=body,
        sent=redactor.body(sent),
    )


def head_of(call: Forwarded, response: UpstreamResponse, redactor: Redactor = NOTHING) -> bytes:
    """What is known of an answer when its head is here, and who answered."""
    return orjson.dumps([response.status, masked(redactor.headers(response.headers)), _target(call.target)])


def kept_of(
    call: Forwarded,
    ending: Ending,
    tape: Tape,
    ended_at: datetime,
    redactor: Redactor = NOTHING,
    hashes: Sequence[bytes] = (),
) -> KeptCall:
    """A call that has ended. `hashes`: by which its answers are recognised, if the tape may not be kept as it is."""
    stream = tape.record()
    told = redactor.stream(stream)
    end = {
        "kind": ending.kind,
        "error": ending.error.message if ending.error is not None else None,
        "elapsed_us": call.elapsed_us(),
        "ended_at": ended_at.isoformat(),
        "overhead_ns": call.overhead_ns,
        "body_size": call.size,
        "size": tape.size - len(stream.body) + len(told.body),
        "recorded": len(told.body),
        "answers": [each.hex() for each in hashes] if told is not stream else None,
    }
    kept = KeptCall(call.id, begin_of(call, redactor), end=orjson.dumps(end))
    if call.response is not None:
        kept.head = head_of(call, call.response, redactor)
        body, starts = told.body, list(told.chunk_offsets)
        stops = [*starts[1:], len(body)]
        kept.chunks = [(at, body[a:b]) for at, a, b in zip(tape.chunk_times, starts, stops, strict=False)]
        kept.size = len(body)
    return kept


def _is_chat(body: bytes | None, chat: ChatRequest) -> bool:
    """Whether a redacted body is still one with as many messages."""
    document = parse_object(body) if body is not None else None
    left = chat.dialect.read(body, document) if body is not None and document is not None else None
    return left is not None and len(left.messages) == len(chat.messages)


def _transcript(transcript: Transcript) -> list[Any]:
    hashes, chains = ([None if h is None else h.hex() for h in each] for each in (transcript.hashes, transcript.chains))
    return [transcript.roles, hashes, chains, transcript.answered]


def _target(target: Target) -> list[Any]:
    """An upstream without its address and its key."""
    return [target.name, target.model_alias, target.placement, target.simulated]


def _compiled(prepared: Prepared | None) -> dict[str, Any] | None:
    if prepared is None:
        return None
    made = prepared.compilation
    block = made.new_block
    return {
        "inputs": made.inputs,
        "audit": written(made.audit),
        "eta": made.eta,
        "epoch": made.epoch,
        "memories": made.memories,
        "tokens": made.tokens,
        "budget": made.budget,
        "block": None if block is None else [
            block.anchor.hex(), block.message_hash.hex(), block.message_id, block.text, block.item_ids, block.token_count,
            block.item_spaces,
        ],
    }  # fmt: skip


def _dumped(notes: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(notes, default=plain)
    except TypeError:  # what explains a compile is deeper than orjson writes: the call is worth more
        return orjson.dumps(notes | {"compiled": None}, default=plain)


# --- and back -------------------------------------------------------------------------------------------------------------


def revive(kept: KeptCall, capture_max_bytes: int, addon: Addon | None = None) -> Revived:
    """The call again. One that did not end is interrupted; so is one of whose answer something is missing. `addon`: whose part
    in it comes back.

    Raises ValueError, KeyError, TypeError for what no Mneme has written.
    """
    notes = orjson.loads(kept.begin.notes)
    call = _call(kept, notes, addon)
    end = orjson.loads(kept.end) if kept.end is not None else None
    if end is not None and not kept.torn and end["recorded"] == kept.size:
        error = UpstreamError(end["error"]) if end["error"] is not None else None
        ending = Ending(end["kind"], error)
        elapsed_us, ended_at = end["elapsed_us"], datetime.fromisoformat(end["ended_at"])
        hashes = [bytes.fromhex(each) for each in end["answers"] or ()]
        call = replace(call, overhead_ns=end["overhead_ns"], body_size=end["body_size"], answer_hashes=hashes)
    else:
        ending = Ending("cancelled", UpstreamError(INTERRUPTED))
        elapsed_us = kept.chunks[-1][0] if kept.chunks else 0
        ended_at = call.at + timedelta(microseconds=elapsed_us)
    if kept.head is not None:
        status, headers, target = orjson.loads(kept.head)
        call = replace(call, response=_response(status, headers), target=_target_of(target))
    tape = _tape(kept, call.response, None if call.chat is not None else capture_max_bytes)
    if end is not None and end["size"] > tape.size:
        tape.size, tape.truncated = end["size"], True
    # So that `elapsed_us()` is what it was; it is asked for within the next moment.
    call = replace(call, started_ns=time.perf_counter_ns() - elapsed_us * 1000)
    session = notes["session"]
    return Revived(call, ending, tape, ended_at, UUID(session) if session is not None else None)


def _call(kept: KeptCall, notes: Mapping[str, Any], addon: Addon | None) -> Forwarded:
    """As far as it was known when it went upstream."""
    given: dict[str, Any] = notes["identity"]
    identity = Identity(**given | {name: UUID(given[name]) for name in _IDS if given[name] is not None})
    key_id, user, mode = notes["caller"]
    body, dialect = kept.begin.body, dialect_of(notes["method"], notes["path"])
    chat, sent, part = None, b"", None
    if notes["chat"] and body is not None:
        chat = dialect.read(body, orjson.loads(body)) if dialect is not None else None
        if chat is None:
            raise ValueError("a chat request without messages")
        if notes["transcript"] is not None:
            chat = replace(chat, transcript=_transcript_of(*notes["transcript"]))
        sent, frozen = kept.begin.sent or body, notes.get(addon.name) if addon is not None else None
        if addon is not None and frozen is not None:
            part = addon.thawed(frozen, identity.tenant_id, identity.user_id)
    return Forwarded(
        id=kept.call,
        at=_EPOCH + timedelta(microseconds=kept.begin.at_us),
        started_ns=0,
        method=notes["method"],
        path=notes["path"],
        raw_path=b"",
        query=notes["query"].encode("latin-1"),
        raw_headers=_headers(notes["headers"]),
        headers={},
        principal=_Caller(identity.tenant_id, UUID(key_id) if key_id is not None else None, user, mode),
        switches=Switches(**notes["switches"]),
        inbound=Inbound(_no_client),
        send=_nobody,
        dialect=dialect,
        identity=identity,
        target=_target_of(notes["target"]),
        model=notes["model"],
        body=body,
        body_size=notes["body_size"],
        body_truncated=notes["body_truncated"],
        chat=chat,
        leg_of=_leg_of(notes["leg_of"]),
        sent=sent,
        status=notes["status"],
        reason=notes["reason"],
        prepared=_prepared(sent, notes["compiled"]) if chat is not None else None,
        part=part,
        overhead_ns=notes["overhead_ns"],
        response=None,
        legs=[_leg(each) for each in notes["legs"]],
    )


def _leg_of(told: Mapping[str, Any] | None) -> LegOf | None:
    if told is None:
        return None
    session = told["session_id"]
    return LegOf(UUID(told["call_id"]), told["number"], UUID(session) if session is not None else None)


def _leg(told: Mapping[str, Any]) -> Leg:
    ids = {name: UUID(told[name]) for name in ("leg_id", "call_id")}
    return Leg(**{**told, **ids, "usage": Usage(**told["usage"])})


def _transcript_of(
    roles: list[str], hashes: list[str | None], chains: list[str | None], answered: list[int]
) -> Transcript:
    first, second = (tuple(None if h is None else bytes.fromhex(h) for h in each) for each in (hashes, chains))
    return Transcript(tuple(roles), first, second, tuple(answered))


def _prepared(sent: bytes, compiled: Mapping[str, Any] | None) -> Prepared | None:
    if compiled is None:
        return None
    block = compiled["block"]
    if block is not None:
        anchor, hashed, message, text, items, count, *spaces = block
        block = Block(
            anchor=bytes.fromhex(anchor),
            message_hash=bytes.fromhex(hashed),
            message_id=UUID(message) if message is not None else None,
            text=text,
            item_ids=tuple(UUID(each) for each in items),
            token_count=count,
            item_spaces=tuple(UUID(each) if each is not None else None for each in spaces[0]) if spaces else (),
        )
    made = Compilation(
        edits=(),
        history=(),
        lead=0,
        new_block=block,
        epoch=compiled["epoch"],
        memories=compiled["memories"],
        tokens=compiled["tokens"],
        budget=compiled["budget"],
        eta=compiled["eta"],
        audit=compiled["audit"],
        inputs=compiled["inputs"],
    )
    return Prepared(sent, made)


def _target_of(told: list[Any]) -> Target:
    name, alias, placement, simulated = told
    return Target(name, "", None, alias, placement, simulated)


def _response(status: int, headers: list[list[str]]) -> UpstreamResponse:
    async def close() -> None:
        return None

    async def nothing() -> Any:
        return
        yield b""

    return UpstreamResponse(status, "", _headers(headers), nothing(), close)


def _tape(kept: KeptCall, response: UpstreamResponse | None, limit: int | None) -> Tape:
    """The tape, recorded once more by a clock that shows the times of then."""
    now_us = 0
    tape = Tape(0, limit=limit, now_ns=lambda: now_us * 1000)
    if response is not None and is_event_stream(response_headers(response.headers, response.status)):
        tape.listen_for_events()
    for now_us, data in kept.chunks:  # noqa: B007 - the clock reads it
        tape.add(data)
    tape.finish()
    return tape


def _headers(shown: list[list[str]]) -> Headers:
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in shown]


async def _no_client() -> Message:
    return {"type": "http.disconnect"}


async def _nobody(message: Message) -> None:
    return None
