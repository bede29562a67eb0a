"""Keeps ended calls in the spool while Postgres is away (`SpoolKeeper`), and stores them in Postgres afterwards (`Drain`), in
the order in which each user's calls came, each exactly once.

A call that is stored already is not stored again (`record_turn` knows its id), so whatever was interrupted is simply done
once more. The order within a user is what makes transcripts build on each other: a call's place in its conversation is
only looked for when those before it are stored.

What is written is what a capture may hold: no key of anybody's, neither in headers nor in the path, and nothing that the
settings redact. What can be told from the body again (the messages, their hashes, their places) is not written, but where the
body lacks something: then the hashes stand beside it, so that its place is found by what was really said.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import Counter, Gauge

from app.capture.facts import Leg, Usage
from app.capture.record import masked
from app.context.assemble import Block
from app.context.audit import written
from app.context.request import Compilation
from app.context.transcript import Transcript
from app.errors import SpoolUnavailable, StoreUnavailable, Unavailable, UpstreamError
from app.features.spool.frames import CallBegin, SpooledCall
from app.features.spool.spool import Spool, WaitingCall
from app.gateway.addon import Addon
from app.gateway.call import Forwarded, Keeper, LegOf, Settle
from app.gateway.dialects import dialect_of
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import parse_object
from app.gateway.encodings import find_codings
from app.gateway.headers import Headers, Redactor, response_headers
from app.gateway.identify import Identity, Principal, Switches
from app.gateway.prepare import Prepared
from app.gateway.relay import Ending, Inbound, Message, Tape, is_event_stream
from app.gateway.upstream import Target, UpstreamResponse
from app.json_text import read_json
from app.store.pools import REFUSALS, plain
from app.tasks import FailOpen, Supervisor
from mneme_replay.secrets import masked_path

log = logging.getLogger("mneme.spool")

DAMAGED = "The file in the spool lacks a part of the answer."

NOTHING = Redactor()
"""Takes nothing out."""

_NOTHING = frozenset({"nothing"})
"""What whoever called may do now: of the key itself nothing is kept, and the call was admitted and is settled."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_IDS = frozenset({"tenant_id", "user_id", "named", "issued"})


class Revived(Struct, frozen=True):
    """A call out of the spool, as it stood at its end. `promised`: the session that it was to begin, which its
    answer's head has named."""

    call: Forwarded
    ending: Ending
    tape: Tape
    ended_at: datetime
    promised: UUID | None


# --- a call as it is kept ------------------------------------------------------------------------------------------------


def begin_of(call: Forwarded, redactor: Redactor = NOTHING) -> CallBegin:
    """Return what the spool's file tells of the request."""
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
        "legs": call.legs,
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
    """Return what the spool's file tells of the answer's head, and who answered."""
    return orjson.dumps([response.status, masked(redactor.headers(response.headers)), _target(call.target)])


def kept_of(
    call: Forwarded,
    ending: Ending,
    tape: Tape,
    ended_at: datetime,
    redactor: Redactor = NOTHING,
    hashes: Sequence[bytes] = (),
) -> SpooledCall:
    """A call that has ended. `hashes`: by which its answers are recognised, if the tape may not be kept as it is."""
    stream = tape.record()
    is_encoded = call.response is not None and bool(find_codings(call.response.headers))
    storable = redactor.hide(stream) if redactor and is_encoded else redactor.stream(stream)
    end = {
        "kind": ending.kind,
        "error": ending.error.message if ending.error is not None else None,
        "elapsed_us": call.elapsed_us(),
        "ended_at": ended_at.isoformat(),
        "overhead_ns": call.overhead_ns,
        "body_size": call.size,
        "size": tape.size - len(stream.body) + len(storable.body),
        "recorded": len(storable.body),
        "answers": [answer_hash.hex() for answer_hash in hashes] if storable is not stream else None,
    }
    kept = SpooledCall(call.id, begin_of(call, redactor), end=orjson.dumps(end))
    if call.response is not None:
        kept.head = head_of(call, call.response, redactor)
        body, starts = storable.body, list(storable.chunk_offsets)
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


# --- and back again ------------------------------------------------------------------------------------------------------


def revive(kept: SpooledCall, capture_max_bytes: int, addon: Addon | None = None) -> Revived:
    """Rebuild the call. It counts as interrupted where its file lacks a part of the answer. `addon`: whose part in it comes
    back.

    Raises ValueError, KeyError, TypeError for what no Mneme has written.
    """
    notes = orjson.loads(kept.begin.notes)
    call = _call(kept, notes, addon)
    end = orjson.loads(kept.end) if kept.end is not None else None
    if end is not None and not kept.is_torn and end["recorded"] == kept.size:
        error = UpstreamError(end["error"]) if end["error"] is not None else None
        ending = Ending(end["kind"], error)
        elapsed_us, ended_at = end["elapsed_us"], datetime.fromisoformat(end["ended_at"])
        hashes = [bytes.fromhex(each) for each in end["answers"] or ()]
        call = replace(call, overhead_ns=end["overhead_ns"], body_size=end["body_size"], answer_hashes=hashes)
    else:
        ending = Ending("cancelled", UpstreamError(DAMAGED))
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


def _call(kept: SpooledCall, notes: Mapping[str, Any], addon: Addon | None) -> Forwarded:
    """As far as it was known when it went upstream."""
    given: dict[str, Any] = notes["identity"]
    identity = Identity(**given | {name: UUID(given[name]) for name in _IDS if given[name] is not None})
    key_id, user, mode = notes["caller"]
    body, dialect = kept.begin.body, dialect_of(notes["method"], notes["path"])
    chat, sent, part = None, b"", None
    if notes["chat"] and body is not None:
        chat = dialect.read(body, read_json(body)) if dialect is not None else None
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
        principal=Principal(identity.tenant_id, UUID(key_id) if key_id is not None else None, user, _NOTHING, mode),
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


def _tape(kept: SpooledCall, response: UpstreamResponse | None, limit: int | None) -> Tape:
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


# --- keeping -------------------------------------------------------------------------------------------------------------
LOOK_S = 0.005
"""Seconds between two looks whether a user's calls are stored: another process may be at it, which tells nobody."""
COUNT_S = 1.0
"""Seconds between two counts of what the spool holds: how late the metrics, and what other processes write, are seen."""
COUNT_SHARE = 20.0
"""So many times as long as a count takes it rests: 100,000 files are half a second's work."""


class SpoolKeeper(Keeper):
    """Keeps calls in a spool. A process has one."""

    def __init__(
        self,
        spool: Spool,
        events: Counter,
        standing: Gauge,
        *,
        tasks: Supervisor,
        redactor: Redactor | None = None,
    ) -> None:
        """`events` counts calls by what became of them. kept: written to the spool; drained: stored from there; refused: the
        spool or its disk was full; dead: set aside. `standing` tells what the spool holds."""
        super().__init__(redactor)
        self.spool = spool
        self.wanted = asyncio.Event()
        """Somebody waits for the drain."""
        self.failures = 0
        """How often the drain has found that Postgres takes nothing."""
        self.away = False
        """Postgres took nothing when it was last asked: only the drain asks it, so that answers do not wait for that."""
        self.unreached = False
        """Postgres has not been there since the process began: nobody drains yet."""
        self.events = events
        self._standing = standing
        self._tasks = tasks
        self._queue: list[tuple[SpooledCall, asyncio.Future[None]]] = []
        self._writing = False
        self._next_count = 0.0

    # --- when Postgres is away ----------------------------------------------------------------------------------------------

    def goes_behind(self, call: Forwarded) -> bool:
        """Whether a call that has ended has to wait in the spool without Postgres being asked: its user's earlier ones
        do, and it may go on from them; or Postgres is known to be away."""
        if call.place is not None or not call.kept:
            return False
        return self.away or (call.needs_place and self.behind(call.identity.user_id))

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait in the spool, be it of another process."""
        return self.spool.behind(user)

    def lost(self, error: StoreUnavailable) -> None:
        if not self.away:
            self.away = True
            self.wanted.set()

    async def keep(
        self,
        call: Forwarded,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        hashes: Sequence[bytes] = (),
    ) -> None:
        """Put a call that has ended into the spool; returns when it is durable. `hashes`: as in `kept_of`. Raises
        SpoolUnavailable."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((kept_of(call, ending, tape, ended_at, self.redactor, hashes), waiting))
        if not self._writing:
            self._writing = True
            self._tasks.spawn(self._write(), "spool")
        try:
            await waiting
        except (OSError, SpoolUnavailable) as error:
            self.events.labels("refused").inc()
            raise SpoolUnavailable(str(error)) from error
        self.events.labels("kept").inc()
        log.warning("the call waits in the spool", extra={"call_id": str(call.id)})

    async def _write(self) -> None:
        """Whatever ended while the last ones were written is written together."""
        batch: list[tuple[SpooledCall, asyncio.Future[None]]] = []
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                errors = await asyncio.to_thread(self.spool.store, [kept for kept, _ in batch])
                for (_, waiting), error in zip(batch, errors, strict=True):
                    if waiting.done():
                        continue
                    if error is None:
                        waiting.set_result(None)
                    else:
                        waiting.set_exception(error)
        finally:
            self._writing = False
            for _, waiting in (*batch, *self._queue):
                waiting.cancel()  # those that nobody will write any more: the server is closing

    async def caught_up(self, user: UUID) -> None:
        """Wait until none of a user's calls waits any more: what he says next may go on from them. Raises StoreUnavailable
        when Postgres turns out to be away still."""
        if self.unreached:
            raise StoreUnavailable
        seen = self.failures
        self.wanted.set()
        while self.behind(user):
            # A first failure may be that of a try which began before.
            if self.failures > seen + 1:
                raise StoreUnavailable
            await asyncio.sleep(LOOK_S)

    # --- now and then --------------------------------------------------------------------------------------------------------

    def count_waiting(self) -> None:
        """Count what the spool holds, for the metrics. Does nothing soon after the last count. Blocks; raises OSError."""
        began = time.monotonic()
        if began < self._next_count:
            return
        usage = self.spool.usage()
        figures = {"calls": usage.calls, "bytes": usage.size, "oldest_seconds": usage.oldest, "dead": usage.dead}
        for name, value in figures.items():
            self._standing.labels(name).set(value)
        self._next_count = began + max(COUNT_S, COUNT_SHARE * (time.monotonic() - began))

    def unreachable(self) -> None:
        self.away = self.unreached = True

    def drain(
        self, settle: Settle, writable: Callable[[], Awaitable[bool]], capture_max_bytes: int, addon: Addon | None
    ) -> Callable[[], None]:
        drain = Drain(self, settle, writable=writable, capture_max_bytes=capture_max_bytes, addon=addon)
        self._tasks.spawn(drain.run(), "drain")
        return drain.stop


# --- the drain -----------------------------------------------------------------------------------------------------------

IDLE_S = 1.0
"""Seconds between two looks for what other processes left, and the longest pause before Postgres is tried again."""
FIRST_S = 0.05
"""Seconds before the second try, doubled with each; also the shortest pause where somebody waits."""
TRIES = 20
PATIENCE_S = 3600.0
"""Tries of a call that fails though Postgres takes writes, and seconds from the first to the last: it would stop its user's
calls for ever. A lock, a migration or a busy disk seldom last an hour; meanwhile nothing is lost, only late."""
AT_ONCE = 4
"""Users whose calls are stored side by side: half of a pool's connections."""
REFUSED = "a call of the spool cannot be stored, and is set aside"


class Drain:
    def __init__(
        self,
        keeper: SpoolKeeper,
        settle: Settle,
        *,
        writable: Callable[[], Awaitable[bool]],
        capture_max_bytes: int,
        addon: Addon | None = None,
    ) -> None:
        """`writable`: whether Postgres answers and takes writes. `addon`: as the gateway has it."""
        self._addon = addon
        self._keeper = keeper
        self._spool = keeper.spool
        self._settle = settle
        self._writable = writable
        self._capture_max_bytes = capture_max_bytes
        self._tries = collections.Counter[Path]()
        self._first_try: dict[Path, float] = {}
        self._stored = 0
        self._lost = False
        self._stopping = False

    def stop(self) -> None:
        """End `run` soon; what waits is left to the next process."""
        self._stopping = True
        self._keeper.wanted.set()

    async def run(self) -> None:
        """Until `stop`."""
        self._keeper.unreached = False
        failed = 0
        while not self._stopping:
            self._keeper.wanted.clear()
            emptied = False
            with FailOpen(log.error, "the spool cannot be drained"):
                emptied = await self.once()
            failed = 0 if emptied else failed + 1
            if failed and not self._stopping:
                await asyncio.sleep(FIRST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(IDLE_S, FIRST_S * 2**failed) if failed else IDLE_S):
                    await self._keeper.wanted.wait()

    async def once(self) -> bool:
        """Store all that waits; False where something still does. Raises OSError."""
        await asyncio.to_thread(self._keeper.count_waiting)
        users = await asyncio.to_thread(self._spool.users)
        if not users:
            self._keeper.away = False
            return True
        emptied = True
        with self._spool.draining() as ours:
            if not ours:
                return await self._asked() and False
            random.shuffle(users)  # those whose calls have to wait must not keep the others waiting, pass after pass
            for begin in range(0, len(users), AT_ONCE):
                stored, self._lost = self._stored, False
                some = await asyncio.gather(*(self._user(each) for each in users[begin : begin + AT_ONCE]))
                emptied = emptied and all(some)
                if not all(some) and self._stored == stored and not await self._asked(lost=self._lost):
                    return False
        return emptied

    async def _asked(self, *, lost: bool = False) -> bool:
        """Whether Postgres takes writes; known to all from now on. `lost`: it has just failed to, for no call's sake. (The
        calls themselves are the probe: a full disk takes small writes, and answers questions, for long.)"""
        writable = not lost and await self._writable()
        self._keeper.away = not writable
        self._keeper.failures += not writable
        return writable

    async def _user(self, user: UUID) -> bool:
        """A user's calls, one after the other; False where they have to wait."""
        try:
            while not self._spool.leave(user):
                for each in await asyncio.to_thread(self._spool.turns, user):
                    if self._stopping or not await self._call(each):
                        return False
        except OSError as error:
            log.error("the spool cannot be read", extra={"error": str(error)})
            return False
        return True

    async def _call(self, waiting: WaitingCall) -> bool:
        try:
            kept = await asyncio.to_thread(self._spool.load, waiting)
            if kept is None:
                raise ValueError("the file is no call any more")
            call = revive(kept, self._capture_max_bytes, self._addon)
            await self._settle(call.call, call.ending, call.tape, call.ended_at, call.promised)
        except Exception as error:  # boundary: what one call fails for must not keep the others from being stored
            if not isinstance(error, (*REFUSALS, KeyError)) and not await self._in_vain(waiting, error):
                return False
            log.error(REFUSED, extra={"call_id": str(waiting.call)}, exc_info=error)
            self._keeper.events.labels("dead").inc()
            await asyncio.to_thread(self._spool.bury, waiting)
        else:
            self._keeper.away = False
            self._stored += 1
            await asyncio.to_thread(self._spool.remove, waiting)
            self._keeper.events.labels("drained").inc()
        self._tries.pop(waiting.path, None)
        self._first_try.pop(waiting.path, None)
        return True

    async def _in_vain(self, waiting: WaitingCall, error: Exception) -> bool:
        """Whether a call that failed was tried for long enough. A try is one at which Postgres takes writes, and the call may
        itself be the reason: it is too much, or meets a mistake of Mneme's."""
        if isinstance(error, Unavailable | OSError | MemoryError):
            if not (isinstance(error, StoreUnavailable) and error.too_much):
                self._lost = self._lost or isinstance(error, StoreUnavailable)
                return False
        else:
            log.error("a call of the spool cannot be stored yet", extra={"call_id": str(waiting.call)}, exc_info=error)
        if not await self._writable():
            return False
        now = time.monotonic()
        began = self._first_try.setdefault(waiting.path, now)
        self._tries[waiting.path] += 1
        return self._tries[waiting.path] >= TRIES and now - began >= PATIENCE_S
