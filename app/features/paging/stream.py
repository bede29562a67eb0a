"""One stream for the client, made of the legs of a turn in which the model asked for what was moved out of its window.

Bytes are pushed in as they arrive and come out as what the client gets, at once: every event as it is, but for the deltas of
a phantom call, which are kept back. When a leg has ended in such calls, `NeedsLeg` says so; the caller runs them, asks the
upstream again, and pushes its answer in behind `next_leg`. Nothing here holds a socket. What is held back and what is
rewritten, case by case: docs/explanation/paging-streams.md.

One choice: a request for several (`n`) gets no phantom tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from msgspec import Struct, field

from app.features.paging.tools import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALLS,
    MAX_ROUNDS,
    Names,
    NeedsLeg,
    PendingCalls,
    PhantomCall,
    spoken,
)
from app.gateway.dialects.splice import ByteSpan, Insertion, dump, entries, splice
from app.gateway.dialects.sse import DONE, CallKey, CallRouter, EventParser, data_of
from app.json_text import read_json, read_json_piece

# --- single members of a chat completion, or of one chunk of its stream, changed in its own bytes ------------------------

NULL = b"null"
ERROR_CHARS = 1000
"""Of what an upstream said, in an error that is made of it."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_OF_ALL_TOKENS = frozenset({"logprobs", "token_ids"})
"""What upstreams tell of all tokens of a chunk, those of its calls too."""


class PartEdit(Struct):
    """What is changed in one element of `choices`.

    `gone`: calls that are taken out, by their position in `tool_calls`; `moved`: calls that get another index. `role`: it is
    taken out. `finish`: what takes the place of the finish reason.
    """

    gone: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    role: bool = False
    finish: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self.gone or self.moved or self.role or self.finish is not None)


def edits(data: bytes, top: Mapping[str, bytes], at: int, part: PartEdit) -> list[Insertion]:
    """What gives the JSON object `data` other top-level values, where it has them, and changes the choice at position `at`."""
    made: list[Insertion] = []
    for name, span in entries(data, data.index(b"{")):
        if name in top:
            made.append(Insertion(span.start, top[str(name)], span.end - span.start))
            if not part and len(made) == len(top):
                break  # nearly always id and created, which stand first
        elif name == "choices" and part:
            for position, each in entries(data, span.start):
                if position == at:
                    made += _of_part(data, each.start, part)
    return made


def _of_part(data: bytes, start: int, part: PartEdit) -> list[Insertion]:
    made: list[Insertion] = []
    for name, span in entries(data, start):
        if name in ("delta", "message"):
            made += _of_message(data, span.start, part)
        elif name == "finish_reason" and part.finish is not None:
            made.append(Insertion(span.start, part.finish, span.end - span.start))
        elif name in _OF_ALL_TOKENS and part.gone:
            made.append(Insertion(span.start, NULL, span.end - span.start))
    return made


def _of_message(data: bytes, start: int, part: PartEdit) -> list[Insertion]:
    made: list[Insertion] = []
    members = [*entries(data, start)]
    gone = [name == "role" and part.role for name, _ in members]
    for n, (name, span) in enumerate(members):
        if name != "tool_calls" or not (part.gone or part.moved):
            continue
        calls = [*entries(data, span.start)]
        out = [position in part.gone for position, _ in calls]
        gone[n] = all(out)
        if not gone[n]:
            made += without(data, span.start, [each for _, each in calls], out)
            made += [
                Insertion(index.start, str(part.moved[position]).encode(), index.end - index.start)
                for position, call in enumerate(each for _, each in calls)
                if position in part.moved
                for key, index in entries(data, call.start)
                if key == "index"
            ]
    return made + without(data, start, [span for _, span in members], gone)


def without(data: bytes, start: int, spans: Sequence[ByteSpan], gone: Sequence[bool]) -> list[Insertion]:
    """What takes members or elements, each with a comma, out of the object or array at `start`. `spans`: of all values."""
    if not any(gone):
        return []
    first = next((n for n, out in enumerate(gone) if not out), None)
    if first is None:
        return [Insertion(start + 1, b"", spans[-1].end - start - 1)]
    made = []
    if first:
        behind = data.index(b",", spans[first - 1].end) + 1
        made.append(Insertion(start + 1, b"", behind - start - 1))
    behind_it = zip(spans[first:], spans[first + 1 :], gone[first + 1 :], strict=False)
    return made + [Insertion(last.end, b"", each.end - last.end) for last, each, out in behind_it if out]


def with_data(event: bytes, old: bytes, new: bytes) -> bytes:
    """A server-sent event whose data was `old`, with `new` in its place; its other lines and its ends of line stay."""
    if event.count(old) == 1:
        return event.replace(old, new)
    parts: list[bytes] = []
    told = False
    for line in _LINE.findall(event):
        if line.partition(b":")[0].rstrip(b"\r\n") != b"data":
            parts.append(line)
        elif not told:  # data on several lines: a line break is white space in JSON
            told = True
            end = line[len(line.rstrip(b"\r\n")) :]
            parts += [b"data: " + each + end for each in new.split(b"\n")]
    return b"".join(parts)


def refusal(status: int, body: bytes) -> dict[str, Any]:
    """What an upstream answered in place of a later leg, as OpenAI writes an error: `{"error": {…}}`. Some say
    `{"error": "…"}`, `{"detail": …}`, or no JSON at all."""
    try:
        error_body = read_json(body)
    except ValueError:
        error_body = None
    shaped = {"message": "", "type": "upstream_error", "param": None, "code": status}
    if isinstance(error_body, dict):
        error = error_body.get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return {"error": shaped | error}
        error_body = error or error_body.get("detail") or error_body.get("message")
    if isinstance(error_body, str):
        text = error_body
    else:
        text = dump(error_body).decode() if error_body else body.decode("utf-8", "replace").strip()
    return {"error": shaped | {"message": text[:ERROR_CHARS] or f"The upstream answered {status}."}}


def summed(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """Two usages as one: figures added up, also those inside of details; what is no figure is the later one's."""
    total = dict(now)
    for name, earlier in (before or {}).items():
        later = total.get(name)
        if isinstance(earlier, Mapping):
            total[name] = summed(earlier, later if isinstance(later, Mapping) else {})
        elif _is_figure(earlier):
            total[name] = earlier + later if _is_figure(later) else earlier
        else:
            total.setdefault(name, earlier)
    return total


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- one leg of a turn while it comes in: its chunks, its tool calls, what it says ---------------------------------------

MAX_TEXT_CHARS = 2**20
"""Of what a leg says that is kept for the next request (some 250,000 tokens, longer than any model's answer)."""
THOUGHTS = ("reasoning", "reasoning_content")
"""The names under which upstreams send what a model thinks."""
_SAID = ("content", *THOUGHTS)
_OF_A_CALL = frozenset({"index", "id", "type", "function"})


class ChatChunk:
    """An event that is a chunk of a chat completion, with the choice that is looked at: the one with index 0."""

    __slots__ = ("at", "data", "delta", "document", "event", "part", "pieces", "reason")

    def __init__(self, event: bytes, data: bytes, document: Mapping[str, Any]) -> None:
        self.event = event
        self.data = data
        self.document = document
        self.at = 0
        self.part: Mapping[str, Any] = {}
        for at, each in enumerate(document["choices"]):
            if isinstance(each, dict) and each.get("index") in (0, None):
                self.at, self.part = at, each
                break
        reason = self.part.get("finish_reason")
        self.reason = reason if isinstance(reason, str) else None
        delta = self.part.get("delta")
        self.delta: Mapping[str, Any] = delta if isinstance(delta, dict) else {}
        self.pieces: Sequence[Piece] = ()


class StreamedCall(Struct, eq=False):
    """A tool call while its deltas come in. Of one that is the client's only the place is kept."""

    key: CallKey
    id: str = ""
    name: str = ""
    ours: bool | None = None
    """Whose it is; None while its name is not known."""
    kept: bool = False
    begun: bool = False
    shift: int = 0
    """How many phantom calls stand before it."""
    arguments: StringIO | None = None
    cut: bool = False
    other: dict[str, Any] = field(default_factory=dict)

    def named(self, piece: Mapping[str, Any], names: Names) -> bool:
        """Read what a piece says of the call's name; whether it went on with it."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name = function.get("name")
        grown = isinstance(name, str) and name not in ("", self.name)
        first = not self.name and not grown and not function.get("arguments") and "custom" not in piece
        if grown:
            self.name += str(name)
        if self.name in names:
            self.ours = True
        elif not (grown or first) or function.get("arguments") or not any(n.startswith(self.name) for n in names):
            self.ours = False
        return grown or first

    def take(self, piece: Mapping[str, Any]) -> None:
        """Keep what a piece of a phantom call says."""
        if self.arguments is None:
            self.arguments = StringIO()
        function = piece.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str):
            room = MAX_ARGUMENTS_CHARS - self.arguments.tell()
            self.arguments.write(arguments[:room])
            self.cut = self.cut or len(arguments) > room
        self.other |= {k: v for k, v in piece.items() if k not in _OF_A_CALL}


Piece = tuple[int, StreamedCall, Mapping[str, Any]]
"""One element of a delta's `tool_calls`: its position, its call, itself."""


class LegStream:
    """One answer of the upstream while it comes in."""

    def __init__(self) -> None:
        self.parser = EventParser()
        self.held: list[bytes] = []
        self.held_size = 0
        self.fresh = True
        self.unread = False
        """The event that is coming in is passed on unread."""
        self.waiting: list[ChatChunk] = []
        self.calls: dict[CallKey, StreamedCall] = {}
        self._router = CallRouter()
        self.ours: list[StreamedCall] = []
        self.theirs = 0
        self.said: dict[str, StringIO] = {}
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.followed = False
        """Its end was kept back, for another leg will come."""
        self.failed = False
        self.done = False
        self.closed = False
        self.over = False

    def take(self, delta: Mapping[str, Any]) -> None:
        """Keep what a delta says, for the message of the next request."""
        for name in _SAID:
            text = delta.get(name)
            if text and isinstance(text, str):
                kept = self.said.get(name)
                if kept is None:
                    kept = self.said[name] = StringIO()
                kept.write(text[: MAX_TEXT_CHARS - kept.tell()])

    def pieces(self, delta: Mapping[str, Any]) -> Sequence[Piece]:
        """The calls that a delta has pieces of."""
        given = delta.get("tool_calls")
        if not given or not isinstance(given, list):
            return ()
        return [(position, self.find_call(key, piece), piece) for key, position, piece in self._router.route(given)]

    def find_call(self, key: CallKey, piece: Mapping[str, Any]) -> StreamedCall:
        """Return the call that a piece belongs to; its first piece creates it."""
        call_id = piece.get("id")
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = StreamedCall(key)
        if not call.id and isinstance(call_id, str):
            call.id = call_id
        return call

    def texts(self) -> dict[str, str]:
        """What was kept of what it says: `content`, and its reasoning under the upstream's own name."""
        return {name: text.getvalue() for name, text in self.said.items()}

    def whole(self) -> tuple[PhantomCall, ...]:
        """The phantom calls in the order of their message. One without an id of its own gets one: its result must name it."""
        made: list[PhantomCall] = []
        used: set[str] = set()
        for position, (_, call) in enumerate(sorted(self.calls.items())):
            if call.kept:
                unique = call.id if call.id and call.id not in used else f"call_phantom_{position}"
                used.add(unique)
                arguments = call.arguments.getvalue() if call.arguments is not None else ""
                made.append(PhantomCall(unique, call.name, arguments, position, call.cut, dict(call.other)))
        return tuple(made)


# --- the engine ----------------------------------------------------------------------------------------------------------

MAX_EVENT_BYTES = 4 * 2**20
"""An event that grows beyond is passed on unread, so that no stream makes the engine hold more. A delta has some 250."""
MAX_WAITING = 64
"""Chunks that wait for the rest of a name. Servers send names whole, or in consecutive chunks."""
FOLLOWED = frozenset({None, "tool_calls", "function_call", "stop"})
"""Finish reasons behind which the calls are whole. vLLM says `stop` after a call that the request forced."""
CALLED = frozenset({"tool_calls", "function_call"})
_BOM = b"\xef\xbb\xbf"


Out = bytes | NeedsLeg | PendingCalls
"""Bytes for the client, now; or what the caller has to do."""


class PhantomStream:
    """The engine. The caller feeds the body of one leg, then says `end`, however the body ended; after a `NeedsLeg` it goes on
    with `next_leg` or, where that leg cannot be had, `failed`."""

    followed = FOLLOWED

    def __init__(self, names: Names, *, rounds: int = MAX_ROUNDS) -> None:
        self.started = False
        """Something has gone out: a later leg's error can have no status of its own any more."""
        self.leg = 1
        self._names = names
        self._rounds = rounds
        self._first: dict[str, Any] = {}
        self._role_told = False
        self._before: dict[str, Any] | None = None
        self._now = LegStream()
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
            leg.unread = True
            held, leg.held, leg.held_size = leg.held, [], 0
            if held:
                self._unreadable(b"".join(held))
        return self._taken()

    def end(self) -> list[Out]:
        """The leg has ended, with its last byte or by a break. Where it had said how it ends, it counts as whole."""
        leg = self._now
        if not leg.over:
            if leg.held:
                self._event(b"".join(leg.held))
                leg.held = []
            self._settle()
            if not leg.done and leg.finish is not None:
                self._close()
        return self._taken()

    def next_leg(self) -> None:
        """What is fed from now on is the answer to the next request."""
        leg = self._now
        if leg.usage is not None:
            self._before = summed(self._before, leg.usage)
        self.leg += 1
        self._now = LegStream()

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
            document, _ = read_json_piece(data)
        except ValueError:
            self._unreadable(event)
            return
        if not isinstance(document, dict):
            self._send(event)
        elif document.get("error"):
            self._settle()
            leg.failed = True
            self._send(event)
        elif isinstance(document.get("choices"), list):
            self._name(ChatChunk(event, data, document))
        else:
            self._send(event)

    def _unreadable(self, event: bytes) -> None:
        """It is passed on as it is, unless it may be a piece of a phantom call, of one too whose chunk still waits because of
        another call's name."""
        ours = any(call.ours for call in self._now.calls.values())
        if not ours and not any(name.encode() in event for name in self._names):
            self._send(event)

    def _name(self, chunk: ChatChunk) -> None:
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

    def _pass(self, chunk: ChatChunk) -> None:
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

    def _take_calls(self, chunk: ChatChunk, part: PartEdit) -> None:
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
                    call.shift = sum(
                        1 for phantom in leg.calls.values() if phantom.ours and phantom.key[1] < call.key[1]
                    )
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

    def _carries(self, chunk: ChatChunk, part: PartEdit) -> bool:
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
        if not leg.ours or leg.failed or leg.closed or leg.finish not in self.followed or self._exhausted:
            return
        leg.closed = True
        calls = leg.whole()
        if leg.theirs:
            self._outs.append(PendingCalls(calls))
            return
        leg.over = True
        self._outs.append(NeedsLeg(calls, self._message(calls), last=self.leg > self._rounds))

    def _message(self, calls: tuple[PhantomCall, ...]) -> dict[str, Any]:
        said = self._now.texts()
        return spoken(said.pop("content", ""), said, calls)

    def _send(self, data: bytes) -> None:
        if data:
            self.started = True
            self._outs.append(data)

    def _taken(self) -> list[Out]:
        """What has come out, with bytes that belong together as one."""
        outs, self._outs = self._outs, []
        if len(outs) < 2:
            return outs
        joined: list[Out] = []
        run: list[bytes] = []
        for out in outs:
            if isinstance(out, bytes):
                run.append(out)
                continue
            if run:
                joined.append(b"".join(run))
                run = []
            joined.append(out)
        return [*joined, b"".join(run)] if run else joined
