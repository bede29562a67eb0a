"""One stream for the client, made of the legs of a turn in which the model asked for what was moved out of its window.

Bytes are pushed in as they arrive and come out as what the client gets, at once: every event as it is, but for the deltas of
a phantom call, which are kept back. When a leg has ended in such calls, `NeedsLeg` says so; the caller runs them, asks the
upstream again, and pushes its answer in behind `next_leg`. Nothing here holds a socket. What is held back and what is
rewritten, case by case: docs/paging-streams.md.

One choice: a request for several (`n`) gets no phantom tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from app.gateway.phantom_events import NULL, PartEdit, edits, summed, with_data
from app.gateway.phantom_leg import Chunk, Leg
from app.gateway.phantom_tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, Pending, spoken
from app.gateway.splice import dump, splice
from app.gateway.sse import DONE, data_of

MAX_EVENT_BYTES = 4 * 2**20
"""An event that grows beyond is passed on unread, so that no stream makes the engine hold more. A delta has some 250."""
MAX_WAITING = 64
"""Chunks that wait for the rest of a name. Servers send names whole, or in consecutive chunks."""
FOLLOWED = frozenset({None, "tool_calls", "function_call", "stop"})
"""Finish reasons behind which the calls are whole. vLLM says `stop` after a call that the request forced."""
CALLED = frozenset({"tool_calls", "function_call"})
_BOM = b"\xef\xbb\xbf"


class Send(NamedTuple):
    """Bytes for the client, now."""

    data: bytes


Out = Send | NeedsLeg | Pending


class PhantomStream:
    """The engine. The caller feeds the body of one leg, then says `end`, however the body ended; after a `NeedsLeg` it goes on
    with `next_leg` or, where that leg cannot be had, `failed`."""

    def __init__(self, names: Names, *, rounds: int = MAX_ROUNDS) -> None:
        self.started = False
        """Something has gone out: a later leg's error can have no status of its own any more."""
        self.leg = 1
        self._names = names
        self._rounds = rounds
        self._first: dict[str, Any] = {}
        self._role_told = False
        self._before: dict[str, Any] | None = None
        self._now = Leg()
        self._outs: list[Out] = []

    def feed(self, chunk: bytes) -> list[Out]:
        """What comes of the next bytes of this leg, in its order. `NeedsLeg` is always the last; what the leg still sends is
        dropped."""
        leg = self._now
        if not chunk or leg.over:
            return []
        ends = leg.parser.feed(chunk)
        leg.held.append(chunk)
        if ends:
            body = b"".join(leg.held) if len(leg.held) > 1 else chunk
            base = leg.parser.size - len(body)
            for start, end in ends:
                self._event(body[max(start - base, 0) : end - base])
            rest = body[ends[-1][1] - base :]
            leg.held = [rest] if rest else []
            leg.held_size = len(rest)
        else:
            leg.held_size += len(chunk)
        if leg.unread or leg.held_size > MAX_EVENT_BYTES:
            self._let_go(leg)
        return self._taken()

    def end(self) -> list[Out]:
        """The leg has ended, with its last byte or by a break. Where it had said how it ends, it counts as whole."""
        leg = self._now
        if not leg.over:
            if leg.held:
                self._event(b"".join(leg.held))
                leg.held = []
            self._settle()
            if not leg.done and (leg.finish is not None):
                self._close()
        return self._taken()

    def next_leg(self) -> None:
        """What is fed from now on is the answer to the next request."""
        leg = self._now
        if leg.usage is not None:
            self._before = summed(self._before, leg.usage)
        self.leg += 1
        self._now = Leg()

    def failed(self, error: Mapping[str, Any]) -> list[Out]:
        """A later leg was refused, could not be had, or broke off. `error`: as OpenAI writes it, `{"error": {…}}`. The stream
        ends behind it as a broken one does: without `[DONE]`."""
        self._now.held = []
        self._now.over = True
        self._send(b"data: " + dump(error) + b"\n\n")
        return self._taken()

    @property
    def faulted(self) -> bool:
        """The model has called one of our tools: the client's bytes are not the upstream's."""
        return self.leg > 1 or bool(self._now.ours)

    # --- events -------------------------------------------------------------------------------------------------------

    def _event(self, event: bytes) -> None:
        leg = self._now
        if leg.over:
            return
        if leg.unread:  # the end of one that was too large
            leg.unread = False
            self._unreadable(event)
            return
        text = event
        if leg.fresh:
            leg.fresh = False
            text = event.removeprefix(_BOM)
            event = event if self.leg == 1 else text
        data = data_of(text)
        if data is None:
            self._send(event)
        elif data.strip() == DONE:
            self._settle()
            leg.done = True
            self._close()
            if not leg.over:
                self._send(event)
        else:
            self._document(event, data)

    def _document(self, event: bytes, data: bytes) -> None:
        leg = self._now
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._unreadable(event)
            return
        if not isinstance(document, dict):
            self._send(event)
        elif document.get("error"):
            self._settle()
            leg.failed = True
            self._send(event)
        elif isinstance(document.get("choices"), list):
            self._name(Chunk(event, data, document))
        else:
            self._send(event)

    def _unreadable(self, event: bytes) -> None:
        """It is passed on as it is, unless it may be a piece of a phantom call, of one too whose chunk still waits because of
        another call's name."""
        ours = any(call.ours for call in self._now.calls.values())
        if not ours and not any(name.encode() in event for name in self._names):
            self._send(event)

    def _let_go(self, leg: Leg) -> None:
        leg.unread = True
        held, leg.held, leg.held_size = leg.held, [], 0
        if held:
            self._unreadable(b"".join(held))

    def _name(self, chunk: Chunk) -> None:
        """Find out whose calls the chunk speaks of. While a name may still become one of ours, its chunk waits, and those
        behind it: until the call goes on otherwise, another begins, or the answer is finished."""
        leg = self._now
        waited = [each for each in leg.calls.values() if each.ours is None] if leg.waiting else []
        chunk.pieces = leg.pieces(chunk.delta)
        grown = [call for _, call, piece in chunk.pieces if call.ours is None and call.named(piece, self._names)]
        if waited and chunk.pieces and not any(each in grown for each in waited):
            self._settle()
        if not leg.waiting and all(call.ours is not None for _, call, _ in chunk.pieces):
            self._pass(chunk)
            return
        leg.waiting.append(chunk)
        if chunk.reason is not None or len(leg.waiting) >= MAX_WAITING:
            self._settle()
        elif all(each.ours is not None for each in leg.calls.values()):
            self._flush()

    def _settle(self) -> None:
        """What is undecided is the client's."""
        for each in (call for chunk in self._now.waiting for _, call, _ in chunk.pieces):
            each.ours = bool(each.ours)
        self._flush()

    def _flush(self) -> None:
        waiting, self._now.waiting = self._now.waiting, []
        for each in waiting:
            self._pass(each)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _pass(self, chunk: Chunk) -> None:
        """A chunk whose calls are known: on to the client, without what is not for it."""
        leg, document = self._now, chunk.document
        usage = document.get("usage")
        if isinstance(usage, dict):
            leg.usage = usage
        leg.take(chunk.delta)
        if self.leg == 1 and not chunk.pieces and not leg.ours:  # nothing can have to change
            leg.finish = chunk.reason or leg.finish
            self._role_told = self._role_told or bool(chunk.delta.get("role"))
            self._top(document)
            self._send(chunk.event)
            return
        part = PartEdit()
        self._take_calls(chunk, part)
        part.role = self.leg > 1 and self._role_told and chunk.delta.get("role") is not None
        if chunk.reason is not None:
            leg.finish = chunk.reason
            part.finish = self._instead(chunk.reason)
            leg.followed = leg.followed or part.finish is NULL
        between = leg.followed and not document["choices"] and usage is not None
        cut = bool(part.gone) or part.role or part.finish is NULL
        if between or (cut and len(document["choices"]) == 1 and not self._carries(chunk, part)):
            return
        self._role_told = self._role_told or bool(chunk.delta.get("role"))
        top = self._top(document)
        if leg.followed and usage is not None:
            top["usage"] = NULL  # it comes with the last leg's
        if not top and not part:
            self._send(chunk.event)
            return
        data = splice(chunk.data, edits(chunk.data, top, chunk.at, part))
        self._send(with_data(chunk.event, chunk.data, data))

    def _take_calls(self, chunk: Chunk, part: PartEdit) -> None:
        leg = self._now
        for position, call, piece in chunk.pieces:
            if call.ours:
                if not call.kept and len(leg.ours) < MAX_CALLS:
                    call.kept = True
                    leg.ours.append(call)
                if call.kept:
                    call.take(piece)
                part.gone.add(position)
                continue
            if not call.begun:
                call.begun = True
                leg.theirs += 1
                if leg.ours:
                    call.shift = sum(1 for each in leg.calls.values() if each.ours and each.key < call.key)
            index = piece.get("index")
            if call.shift and isinstance(index, int):
                part.moved[position] = index - call.shift

    def _instead(self, reason: str) -> bytes | None:
        """What the client reads in place of a finish reason; None: the reason itself."""
        leg = self._now
        if not leg.ours or leg.theirs or leg.failed or reason not in FOLLOWED:
            return None
        if self._exhausted:
            return b'"stop"' if reason in CALLED else None
        return NULL

    @property
    def _exhausted(self) -> bool:
        """The limit was told, and the request had no phantom tools: what is called all the same leads nowhere."""
        return self.leg > self._rounds + 1

    def _carries(self, chunk: Chunk, part: PartEdit) -> bool:
        """Whether anything is left for the client to read."""
        if part.finish is not NULL and chunk.reason is not None:
            return True
        for name, value in chunk.delta.items():
            if name == "tool_calls":
                if len(part.gone) < len(chunk.pieces):
                    return True
            elif name == "role":
                if value and not self._role_told:
                    return True
            elif value not in (None, "", [], {}):
                return True
        return False

    def _top(self, document: Mapping[str, Any]) -> dict[str, bytes]:
        """The top-level values of a later leg's chunk that become those of the first chunk that the client got. Empty ones stay
        (Azure begins with such a chunk)."""
        top: dict[str, bytes] = {}
        for name in ("id", "created"):
            value = document.get(name)
            if value and value != self._first.setdefault(name, value) and self.leg > 1:
                top[name] = dump(self._first[name])
        usage = document.get("usage")
        if isinstance(usage, dict) and self._before is not None:
            top["usage"] = dump(summed(self._before, usage))
        return top

    # --- the end of a leg ---------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """What the leg has come to, now that nothing more of it will come."""
        leg = self._now
        if not leg.ours or leg.failed or leg.closed or leg.finish not in FOLLOWED or self._exhausted:
            return
        leg.closed = True
        calls = leg.whole()
        if leg.theirs:
            self._outs.append(Pending(calls))
            return
        leg.over = True
        said = leg.texts()
        message = spoken(said.pop("content", ""), said, calls)
        self._outs.append(NeedsLeg(calls, message, last=self.leg > self._rounds))

    def _send(self, data: bytes) -> None:
        if data:
            self.started = True
            self._outs.append(Send(data))

    def _taken(self) -> list[Out]:
        """What has come out, with bytes that belong together as one."""
        outs, self._outs = self._outs, []
        if len(outs) < 2:
            return outs
        joined: list[Out] = []
        run: list[bytes] = []
        for out in outs:
            if isinstance(out, Send):
                run.append(out.data)
                continue
            if run:
                joined.append(Send(b"".join(run)))
                run = []
            joined.append(out)
        if run:
            joined.append(Send(b"".join(run)))
        return joined
