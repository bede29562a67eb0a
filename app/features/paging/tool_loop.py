"""One answer for the client, made of the legs of a turn in which the model asked for what it was not shown.

The upstream's answer goes through an engine (`paging.stream`, `paging.body`), which keeps calls of our tools back. Where a
leg has ended in such calls they are run, the upstream is asked once more with what they came to, and its answer goes on in the
client's. To the relay all of it is one `UpstreamResponse`. Its head waits for the first byte that goes out: until then a later
leg that is refused can give its own status.

Of a turn in which nothing was asked back nothing is different but the engine's microseconds. Else each leg is recorded as a
call of its own, while the next one is under way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from app.capture.facts import Leg
from app.clock import Clock
from app.errors import UpstreamError
from app.features.paging.body import BLOCKS
from app.features.paging.faults import FaultAnswers
from app.features.paging.forms import FORMS, PagedForm
from app.features.paging.state import Paging
from app.features.paging.stream import Out
from app.features.paging.tools import LIMIT_REACHED, Names, NeedsLeg, PendingCalls
from app.gateway.call import Forwarded, LegOf, grown, nobody
from app.gateway.dialects import api_of
from app.gateway.dialects.splice import parse_object
from app.gateway.encodings import find_codings
from app.gateway.finalize import Finalizer, Sealed
from app.gateway.forward import ERROR_LIMIT, Forwarder
from app.gateway.headers import Headers, response_headers
from app.gateway.prepare import NOTHING_TOLD
from app.gateway.relay import LINGER_S, Ending, Tape, is_event_stream
from app.gateway.upstream import UpstreamResponse
from app.metrics import Metrics
from app.store.ids import uuid7
from app.tasks import FailOpen, Supervisor

log = logging.getLogger("mneme.legs")

# --- one leg of an answer while it comes in ------------------------------------------------------------------------------


class Arriving:
    """One of the upstream's answers while it comes in; what has come is kept. `call`: of its own; the first leg's is the
    client's until there is a second."""

    def __init__(self, call: Forwarded) -> None:
        self.call = call
        self.pieces: list[tuple[int, bytes]] = []
        self.broke: UpstreamError | None = None

    @property
    def head(self) -> UpstreamResponse:
        assert self.call.response is not None, "it was asked for its body, which comes behind the head"
        return self.call.response

    @property
    def is_stream(self) -> bool:
        return is_event_stream(response_headers(self.head.headers, self.head.status))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self.head.chunks)
        except UpstreamError as error:
            self.broke = error
            raise
        now = time.perf_counter_ns()
        self.pieces.append((now, chunk))
        return chunk

    async def read(self, limit: int | None = None) -> bytes:
        """All of it, or as much as is needed for `limit` bytes. Raises UpstreamError."""
        size = 0
        async for chunk in self:
            size += len(chunk)
            if limit is not None and size >= limit:
                break
        return b"".join(chunk for _, chunk in self.pieces)

    async def drain(self) -> None:
        """What comes behind its end, so that its connection is of use again; not waited for long."""
        try:
            async with asyncio.timeout(LINGER_S):
                async for _ in self:
                    pass
        except (TimeoutError, UpstreamError):
            pass  # it has said all it had to say
        await self.head.aclose()

    def tape(self) -> Tape:
        """What has come, as the relay would have recorded it."""
        times = iter([at for at, _ in self.pieces])
        tape = Tape(self.call.started_ns, now_ns=partial(next, times))
        if self.call.response is not None and self.is_stream:
            tape.listen_for_events()
        for _, chunk in self.pieces:
            tape.add(chunk)
        tape.finish()
        return tape


# --- the legs of an answer -----------------------------------------------------------------------------------------------

ANSWER_S = 30.0
"""Seconds for what the calls of one leg ask. It is searched for in some 20 ms; a helper LLM that answers from it takes seconds,
and a client that hears nothing for longer than this gives up."""
NOT_LOOKED_UP = "The look-up failed. Answer with what you have, and say what you could not look up."
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Legs(Struct, frozen=True):
    forwarder: Forwarder
    finalizer: Finalizer
    answers: FaultAnswers
    metrics: Metrics
    clock: Clock
    tasks: Supervisor

    async def joined(self, call: Forwarded, paging: Paging, names: Names) -> Forwarded:
        """The answer that the client gets, of which the call's own is the first leg; as soon as its head is known. Raises
        UpstreamError, ClientGone; the call is recorded then."""
        response = call.response
        if response is None or response.status != 200 or response.bodyless or call.chat is None:
            return call
        if find_codings(response.headers):  # nothing can be taken out of a compressed answer
            return call
        stream = is_event_stream(response_headers(response.headers, response.status))
        form = FORMS[call.chat.dialect.name]
        joint = (_Stream if stream else _Body)(self, call, paging, names, form)
        call = replace(call, joint=joint)
        async with self.forwarder.waiting(call, joint.aclose):
            return replace(call, response=await joint.head())


class _Joint(ABC):
    """The legs of one call, one after the other."""

    whole = False

    def __init__(self, legs: Legs, call: Forwarded, paging: Paging, names: Names, form: PagedForm) -> None:
        self._legs = legs
        self._form = form
        self._call = call
        self._paging = paging
        self._names = names
        self._body = call.sent
        self._number = 1
        self._leg: Arriving | None = Arriving(call)
        self._target = call.target
        """Who answered last."""
        self._recording: list[asyncio.Task[Sealed]] = []

    @property
    def _now(self) -> Arriving:
        assert self._leg is not None, "a leg is coming in"
        return self._leg

    @property
    @abstractmethod
    def _faulted(self) -> bool:
        """The model has called one of our tools: the client's bytes are not the upstream's."""

    @abstractmethod
    async def head(self) -> UpstreamResponse:
        """The answer, as soon as it is known how it begins. Raises UpstreamError."""

    async def aclose(self) -> None:
        """Let go of the leg that is coming in."""
        if self._leg is not None and self._leg.call.response is not None:
            await self._leg.call.response.aclose()

    async def end(self, ending: Ending) -> tuple[bool, Sequence[Leg]]:
        """See `addon.Joint`. What still comes in ends as the client's answer does."""
        if self._leg is not None and self._faulted:
            self._ended(ending)
        recorded = await asyncio.gather(*self._recording)
        legs = [each.facts.leg for each in recorded if each.facts is not None and each.facts.leg]
        return all(each.stored for each in recorded), legs

    # --- the next leg -------------------------------------------------------------------------------------------------

    async def _next(self, need: NeedsLeg) -> UpstreamResponse:
        """The head of the next leg. Raises UpstreamError."""
        legs, paging = self._legs, self._paging
        broke = self._now.broke  # behind its end: all was known
        self._ended(Ending("broken", broke) if broke is not None else Ending("complete"), drain=True)
        texts, told = await self._told(need)
        paging.hidden = paging.hidden.after(need, told)
        self._body = self._form.following(self._body, need, texts)
        if need.last:
            self._body = self._form.at_the_limit(self._body, self._names)
        self._number += 1
        own = self._own_call(self._body)
        self._leg = leg = Arriving(own)
        try:
            leg.call = await legs.forwarder.ask(own, own.sent)
        except UpstreamError as error:
            self._ended(Ending("broken", error))
            raise
        self._target = leg.call.target
        return leg.head

    async def _told(self, need: NeedsLeg) -> tuple[Sequence[str], Sequence[str]]:
        """What the calls come to, and what later requests tell of it."""
        if need.last:
            texts = [LIMIT_REACHED] * len(need.calls)
            return texts, texts
        answers = self._legs.answers
        with FailOpen(log.warning, "a look-up failed", call_id=str(self._call.id)):
            async with asyncio.timeout(ANSWER_S):
                said = need.message
                said = {BLOCKS: said[BLOCKS]} if BLOCKS in said else said  # what goes into the prompt, for its tokens
                found = await answers.answer(self._paging, need.calls, said)
            return found, answers.remembered(found)
        self._legs.metrics.degraded("faults")
        texts = [NOT_LOOKED_UP] * len(need.calls)
        return texts, texts

    def _own_call(self, body: bytes) -> Forwarded:
        """A leg as a call of its own. An Idempotency-Key is the client's request's, and this is another; the upstream that
        answered last goes on."""
        call, now = self._call, self._legs.clock.now()
        first = self._number == 1
        user = call.place.user_id if call.place is not None else call.identity.user_id
        return grown(
            Forwarded,
            call,
            id=uuid7(now),
            at=call.at if first else now,
            started_ns=call.started_ns if first else time.perf_counter_ns(),
            raw_headers=[each for each in call.raw_headers if first or each[0].lower() != b"idempotency-key"],
            identity=replace(call.identity, user_id=user, idempotency_key=None),
            target=self._target,
            body=body,
            body_size=len(body),
            chat=None,
            admission=None,
            leg_of=LegOf(call.id, self._number, call.session_id),
            sent=body,
            reason=None,
            place=None,
            replay=None,
            prepared=None,
            part=None,
            obeyed=NOTHING_TOLD,
            attempts=0,
            waited_ns=0,
            overhead_ns=call.overhead_ns if first else 0,
            response=call.response if first else None,
            joint=None,
            observe=nobody,
        )

    def _ended(self, ending: Ending, *, drain: bool = False) -> None:
        """The leg is over, or nobody reads on: it is recorded beside whatever comes next. `drain`: its last bytes are still to
        come."""
        leg, self._leg = self._now, None
        if self._number == 1:
            leg.call = self._own_call(self._body)
        self._recording.append(
            self._legs.tasks.spawn(self._record(leg, ending, drain=drain), f"record leg {leg.call.id}")
        )

    async def _record(self, leg: Arriving, ending: Ending, *, drain: bool) -> Sealed:
        if drain:
            await leg.drain()
        call, document = leg.call, parse_object(leg.call.sent)
        if call.dialect is not None and document is not None:
            call = replace(call, chat=call.dialect.read(call.sent, document))
        return await self._legs.finalizer.seal_leg(call, ending, leg.tape())

    # --- the head -----------------------------------------------------------------------------------------------------

    def _made(self, chunks: AsyncIterator[bytes], *more: tuple[bytes, bytes]) -> UpstreamResponse:
        """An answer under the head of the leg that is coming in, of another length. `more`: takes the place of its headers."""
        head, replaced = self._now.head, {name for name, _ in more} | _FRAMING
        headers: Headers = [each for each in head.headers if each[0].lower() not in replaced]
        return UpstreamResponse(head.status, head.reason, [*headers, *more], chunks, self.aclose)

    def _as_it_is(self) -> UpstreamResponse:
        return replace(self._now.head, chunks=self._now, close=self.aclose)


class _Stream(_Joint):
    """Of legs that are streams. Itself the body of the answer."""

    def __init__(self, legs: Legs, call: Forwarded, paging: Paging, names: Names, form: PagedForm) -> None:
        super().__init__(legs, call, paging, names, form)
        self._engine = form.stream(names)
        self._ready: deque[bytes] = deque()
        self._need: NeedsLeg | None = None
        self._over = False
        self._error: UpstreamError | None = None
        """The answer breaks with it, behind what is ready."""

    @property
    def _faulted(self) -> bool:
        return self._engine.faulted

    async def head(self) -> UpstreamResponse:
        while not (self._ready or self._over or self._error is not None):
            if not await self._on():
                return self._as_it_is()
        return self._made(self) if self._now.is_stream else self._made(self, (b"content-type", b"text/event-stream"))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            await self._on()
        return self._ready.popleft()

    async def _on(self) -> bool:
        """One step further: a piece of the leg that is coming in, or the next leg. False: that was refused, and nothing has
        gone out yet. Raises UpstreamError where nothing has, either."""
        if self._need is not None:
            need, self._need = self._need, None
            return await self._follow(need)
        error: UpstreamError | None = None
        try:
            outs = self._engine.feed(await anext(self._now))
        except StopAsyncIteration:
            outs, self._over = self._engine.end(), True
        except UpstreamError as broke:
            outs, error = self._engine.end(), broke
        self._take(outs)
        if self._need is not None:
            self._over = False  # all is known that the next leg takes, also of one that broke behind its end
        elif error is not None:
            self._broken(error, api_of(self._call.path).refusal(error))
        return True

    async def _follow(self, need: NeedsLeg) -> bool:
        try:
            response = await self._next(need)
            if response.status != 200:
                if not self._engine.started:
                    return False
                said = await self._now.read(ERROR_LIMIT)
                status = UpstreamError(f"The upstream answered {response.status} when it was asked on.")
                self._broken(status, self._form.refusal(response.status, said))
                return True
            self._engine.next_leg()
            if not self._now.is_stream:
                await self._convert()
        except UpstreamError as error:
            self._broken(error, api_of(self._call.path).refusal(error))
        return True

    async def _convert(self) -> None:
        """A leg in one piece, where a stream was asked for. Raises UpstreamError."""
        said = await self._now.read()
        chat = self._call.chat
        options = chat.document.get("stream_options") if chat is not None else None
        events = self._form.as_events(said, isinstance(options, dict) and options.get("include_usage") is True)
        if events is None:
            error = UpstreamError("The upstream gave no answer when it was asked on.")
            self._broken(error, self._form.refusal(error.status, said))
            return
        self._over = True
        self._take(self._engine.feed(events) + self._engine.end())
        self._over = self._need is None

    def _take(self, outs: Sequence[Out]) -> None:
        for out in outs:
            if isinstance(out, bytes):
                self._ready.append(out)
            elif isinstance(out, PendingCalls):
                self._paging.hidden = replace(self._paging.hidden, beside=out.calls)
            else:
                self._need = out

    def _broken(self, error: UpstreamError, said: dict[str, object]) -> None:
        """The answer ends here. Raises the error where nothing has gone out and a leg before was whole: it has a status
        then."""
        if self._number > 1 and not self._engine.started:
            raise error
        if self._number > 1:
            self._take(self._engine.failed(said))
        self._error = error


class _Body(_Joint):
    """Of legs that come in one piece."""

    whole = True
    _faults = False

    @property
    def _faulted(self) -> bool:
        return self._faults

    async def head(self) -> UpstreamResponse:
        engine = self._form.body(self._names)
        while True:
            try:
                said = await self._now.read()
            except UpstreamError as error:
                if self._number > 1:
                    raise
                return replace(self._now.head, chunks=self._again(error), close=self.aclose)
            as_stream = self._number > 1 and self._now.is_stream
            whole = self._form.as_body(said) if as_stream else said
            if whole is None:
                raise UpstreamError("The upstream gave no whole answer when it was asked on.")
            made = engine.feed(whole)
            if not isinstance(made, NeedsLeg):
                break
            self._faults = True
            if (await self._next(made)).status != 200:
                return self._as_it_is()
        if made.pending is not None:
            self._paging.hidden = replace(self._paging.hidden, beside=made.pending.calls)
        self._faults = self._number > 1 or made.data is not said
        if not self._faults:
            return replace(self._now.head, chunks=self._again(None), close=self.aclose)
        framing = [(b"content-length", b"%d" % len(made.data))]
        framing += [(b"content-type", b"application/json")] if as_stream else []
        return self._made(_pieces([made.data]), *framing)

    def _again(self, error: UpstreamError | None) -> AsyncIterator[bytes]:
        return _pieces([chunk for _, chunk in self._now.pieces], error)


async def _pieces(chunks: Sequence[bytes], error: UpstreamError | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error
