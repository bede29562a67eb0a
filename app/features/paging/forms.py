"""How each dialect that is paged writes what paging changes (`FORMS`): requests with something shorter, answers made of several
legs, requests of later legs, exchanges of the ledger. Here for `/v1/messages`; `stream` and `body` do it for chat completions.

A leg's content is kept as the blocks that it was, and goes back like that: the API takes thinking only with its signature, and
before the calls that came of it. In later requests it stands in the client's own bytes, cut where the leg ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from app.features.paging import body, stream
from app.features.paging.body import BLOCKS, HiddenLegs, WholeBody, without_tools
from app.features.paging.stream import (
    MAX_TEXT_CHARS,
    LegStream,
    Out,
    PhantomStream,
    StreamedCall,
    summed,
    with_data,
    without,
)
from app.features.paging.stream import refusal as plain_refusal
from app.features.paging.tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, PendingCalls, PhantomCall, results, spoken
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import (
    ByteSpan,
    Insertion,
    MessageSpan,
    dump,
    entries,
    insert_messages,
    parse_object,
    parts_in,
    scan,
    splice,
)
from app.gateway.dialects.sse import payloads
from app.json_text import read_json, read_json_piece
from app.optional import imported

api: Any = imported("messages")
"""The dialect, another feature's: where that is not there nobody speaks so, and nothing here is asked for."""

CALLED = "tool_use"
FOLLOWED = frozenset({None, CALLED, "end_turn"})
"""Stop reasons behind which the calls are whole."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})

# --- a request -----------------------------------------------------------------------------------------------------------


def parts_at(chat: ChatRequest, index: int) -> list[tuple[object, ByteSpan]]:
    """What the text of a message lies in, each with its place in the body: its content, if that is a text, else the blocks that
    are its own. Of a result they are those within it."""
    first, _ = chat.places[index]
    span, element = chat.envelope.messages[first], chat.document["messages"][first]
    parts = parts_in(chat.body, span, element)
    if element.get("role") == "assistant" or not isinstance(element.get("content"), list):
        return parts
    results, own = api.divided([each for each, _ in parts])
    nth = _nth(chat, index)
    if nth >= len(results):
        return [parts[n] for n in own]
    result, where = parts[results[nth]]
    return parts_in(chat.body, MessageSpan(*where), result) if isinstance(result, Mapping) else []


def _nth(chat: ChatRequest, index: int) -> int:
    """Which of the messages of its element it is."""
    first = index
    while first and chat.places[first - 1] == chat.places[index]:
        first -= 1
    return index - first


def reread(chat: ChatRequest, index: int, insertions: Sequence[Insertion]) -> dict[str, Any]:
    """A message as it is read with insertions made that lie within it."""
    element = read_again(chat, chat.envelope.messages[chat.places[index][0]], insertions)
    message: dict[str, Any] = api.messages_of(element)[_nth(chat, index)]
    return message


def read_again(chat: ChatRequest, span: MessageSpan, insertions: Sequence[Insertion]) -> dict[str, Any]:
    """An element of the request's array with insertions made that lie within it."""
    moved = [each._replace(pos=each.pos - span.start) for each in insertions]
    element: dict[str, Any] = read_json(splice(chat.body[span.start : span.end], moved))
    return element


# --- a stream ------------------------------------------------------------------------------------------------------------


class MessagesStream(PhantomStream):
    """The engine for streams. Blocks are counted through all legs; of a later one `message_start` is left out."""

    followed = FOLLOWED

    def __init__(self, names: Names, *, rounds: int = MAX_ROUNDS) -> None:
        super().__init__(names, rounds=rounds)
        self._base = 0
        """The index of a leg's first block in the client's answer."""
        self._next = 0
        self._blocks = api.Blocks()
        self._size = 0

    def next_leg(self) -> None:
        super().next_leg()
        self._base, self._blocks, self._size = self._next, api.Blocks(), 0

    def failed(self, error: Mapping[str, Any]) -> list[Out]:
        """As there; the error is written as this API writes it."""
        self._now.held = []
        self._now.over = True
        self._send(b"event: error\ndata: " + dump(error) + b"\n\n")
        return self._taken()

    def _document(self, event: bytes, data: bytes) -> None:
        leg = self._now
        try:
            document, _ = read_json_piece(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            self._unreadable(event)
            return
        kind = document.get("type")
        if kind == "error" or document.get("error"):
            leg.failed = True
            self._send(event)
        elif kind == "message_start":
            message = document.get("message")
            leg.usage = api.told(leg.usage, message.get("usage") if isinstance(message, dict) else None)
            if self.leg == 1:
                self._send(event)
        elif kind == "message_delta":
            self._delta(event, data, document)
        elif kind == "message_stop":
            leg.done = True
            self._close()
            if not leg.over:
                self._send(event)
        elif isinstance(document.get("index"), int):
            self._block(event, data, document)
        else:
            self._send(event)

    def _block(self, event: bytes, data: bytes, document: Mapping[str, Any]) -> None:
        """An event of one block: of a call of ours it is kept, else it goes on under the block's place in the answer."""
        leg, index = self._now, document["index"]
        if document.get("type") == "content_block_start":
            self._begin(index, document.get("content_block"))
        call = leg.calls.get((index, index))
        if call is not None and call.ours:
            delta = document.get("delta")
            if call.kept and isinstance(delta, dict):
                call.take({"function": {"arguments": delta.get("partial_json")}})
            return
        self._size += len(data)
        if self._size <= MAX_TEXT_CHARS:
            self._blocks.take(document)
        place = self._base + index - sum(1 for phantom in leg.calls.values() if phantom.ours and phantom.key[0] < index)
        self._next = max(self._next, place + 1)
        self._send(event if place == index else with_data(event, data, _with(data, {"index": dump(place)})))

    def _begin(self, index: int, block: object) -> None:
        leg = self._now
        if not isinstance(block, dict) or block.get("type") != CALLED:
            return
        call = leg.calls[index, index] = StreamedCall(
            (index, index), str(block.get("id") or ""), str(block.get("name") or "")
        )
        call.ours = call.name in self._names
        if not call.ours:
            leg.theirs += 1
        elif len(leg.ours) < MAX_CALLS:
            call.kept = True
            leg.ours.append(call)
            if block.get("input"):  # some servers send a call's arguments with its beginning
                call.take({"function": {"arguments": dump(block["input"]).decode()}})

    def _delta(self, event: bytes, data: bytes, document: Mapping[str, Any]) -> None:
        """How the leg ends, and what it took."""
        leg, delta, usage = self._now, document.get("delta"), document.get("usage")
        leg.usage = api.told(leg.usage, usage)
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        leg.finish = reason if isinstance(reason, str) else leg.finish
        ours = bool(leg.ours) and not leg.theirs and not leg.failed
        stops = ours and self._exhausted and reason == CALLED
        leg.followed = leg.followed or (ours and not self._exhausted and isinstance(reason, str) and reason in FOLLOWED)
        if leg.followed:
            return
        top: dict[str, bytes] = {}
        if isinstance(usage, dict) and self._before is not None:
            top["usage"] = dump(summed(self._before, leg.usage))
        if stops:
            top["delta"] = dump({**delta, "stop_reason": "end_turn"} if isinstance(delta, dict) else delta)
        self._send(with_data(event, data, _with(data, top)) if top else event)

    def _message(self, calls: tuple[PhantomCall, ...]) -> dict[str, Any]:
        kept_calls = {call.key[0]: call for call in self._now.calls.values() if call.kept}
        made = dict(zip(sorted(kept_calls), calls, strict=True))
        blocks = {**self._blocks.whole(), **{index: _use(call) for index, call in made.items()}}
        return _said([blocks[index] for index in sorted(blocks)], calls)


def _with(data: bytes, top: Mapping[str, bytes]) -> bytes:
    """A JSON object with other top-level values, where it has them."""
    spans = [(top[str(name)], span) for name, span in entries(data, data.index(b"{")) if name in top]
    return splice(data, [Insertion(span.start, value, span.end - span.start) for value, span in spans])


def _use(call: PhantomCall) -> dict[str, Any]:
    """A call as it goes back to the upstream, see `PhantomCall.as_sent`."""
    sent = call.as_sent()
    return {"type": CALLED, "id": call.id, "name": call.name, "input": orjson.loads(sent["function"]["arguments"])}


def _said(blocks: Sequence[Mapping[str, Any]], calls: Sequence[PhantomCall]) -> dict[str, Any]:
    """The message that a leg was. The API refuses texts without a word."""
    text = "".join(each["text"] for each in blocks if isinstance(each.get("text"), str))
    return {**spoken(text, {}, calls), BLOCKS: [each for each in blocks if not _is_blank(each)]}


def _is_blank(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text") or "").strip()


# --- a body in one piece -------------------------------------------------------------------------------------------------


class MessagesBody(body.PhantomBody):
    """The engine for bodies."""

    def __init__(self, names: Names, *, rounds: int = MAX_ROUNDS) -> None:
        super().__init__(names, rounds=rounds)
        self._id: object = None
        self._shown: list[bytes] = []
        """The blocks of the legs before, but for our calls."""

    def feed(self, body: bytes) -> WholeBody | NeedsLeg:
        """The whole body of the next leg. What cannot be read is passed on as it is."""
        self.leg += 1
        document = parse_object(body)
        content = document.get("content") if document is not None else None
        if document is None or not isinstance(content, list) or document.get("error"):
            return WholeBody(body)
        if not all(isinstance(each, dict) for each in content):
            return WholeBody(body)
        members = dict(entries(body, body.index(b"{")))
        spans = [span for _, span in entries(body, members["content"].start)]
        uses = [each.get("type") == CALLED for each in content]
        ours = [use and each.get("name") in self._names for use, each in zip(uses, content, strict=True)]
        calls = self._calls(content, uses, ours)
        reason, usage = document.get("stop_reason"), document.get("usage")
        followed = reason is None or (isinstance(reason, str) and reason in FOLLOWED)
        whole = bool(calls) and followed and self.leg <= self._rounds + 1
        if whole and uses == ours:
            self._id = self._id or document.get("id")
            if isinstance(usage, dict):
                self._before = summed(self._before, usage)
            self._shown += [body[at.start : at.end] for at, out in zip(spans, ours, strict=True) if not out]
            blocks = [
                _use(calls[n]) if n in calls else each for n, each in enumerate(content) if n in calls or not ours[n]
            ]
            made = tuple(calls.values())
            return NeedsLeg(made, _said(blocks, made), last=self.leg > self._rounds)
        top: dict[str, bytes] = {}
        if self._id and document.get("id") != self._id:
            top["id"] = dump(self._id)
        if isinstance(usage, dict) and self._before is not None:
            top["usage"] = dump(summed(self._before, usage))
        if calls and uses == ours and reason == CALLED:
            top["stop_reason"] = b'"end_turn"'
        changes = [
            Insertion(members[name].start, value, len(body[slice(*members[name])])) for name, value in top.items()
        ]
        if self._shown:
            before = b",".join(self._shown) + (b"" if all(ours) else b",")
            changes.append(Insertion(members["content"].start + 1, before))
        changes += without(body, members["content"].start, spans, ours)
        pending = PendingCalls(tuple(calls.values())) if whole else None
        return WholeBody(splice(body, changes) if changes else body, pending)

    def _calls(self, content: Sequence[Any], uses: Sequence[bool], ours: Sequence[bool]) -> dict[int, PhantomCall]:
        """Our calls, by the index of their block."""
        leg = LegStream()
        for n, block in enumerate(content):
            if not uses[n]:
                continue
            call = leg.calls[n, n] = StreamedCall(
                (n, n), str(block.get("id") or ""), str(block.get("name") or ""), ours[n]
            )
            if ours[n] and len(leg.ours) < MAX_CALLS:
                call.kept = True
                leg.ours.append(call)
                call.take({"function": {"arguments": dump(block.get("input")).decode()}})
        return dict(zip([call.key[0] for call in leg.ours], leg.whole(), strict=True))


# --- the requests of later legs ------------------------------------------------------------------------------------------


def following(body: bytes, need: NeedsLeg, texts: Sequence[str]) -> bytes:
    """See `body.following`."""
    envelope = scan(body)
    assert envelope is not None, "what an upstream answered with calls is a request of this dialect"
    said = [{"role": "assistant", "content": need.message[BLOCKS]}, *api.elements_of(results(need.calls, texts))]
    return splice(body, [insert_messages(envelope, len(envelope.messages), said)])


def at_the_limit(body: bytes, names: Names) -> bytes:
    """The request without our tools, if the client has its own: the API refuses calls among the messages without any."""
    made = without_tools(body, names)
    envelope = scan(made)
    return made if envelope is not None and "tools" in envelope.members else body


# --- an answer in the other form -----------------------------------------------------------------------------------------

_GROWN = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}
"""Blocks whose text comes in deltas: its member, and the type of these."""


def as_events(body: bytes) -> bytes | None:
    """A message as the events of a stream; None where the body is none."""
    document = parse_object(body)
    content = document.get("content") if document is not None else None
    if document is None or not isinstance(content, list) or document.get("error"):
        return None
    begun = {**document, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for n, block in enumerate(content):
        events += _events_of(n, block if isinstance(block, dict) else {})
    ended = {name: document.get(name) for name in ("stop_reason", "stop_sequence")}
    events.append({"type": "message_delta", "delta": ended, "usage": document.get("usage") or {}})
    events.append({"type": "message_stop"})
    return b"".join(b"event: %s\ndata: %s\n\n" % (str(each["type"]).encode(), dump(each)) for each in events)


def _events_of(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    start, deltas = dict(block), list[dict[str, Any]]()
    name, kind = _GROWN.get(str(block.get("type")), ("", ""))
    if name and isinstance(block.get(name), str):
        start[name] = ""
        deltas.append({"type": kind, name: block[name]})
        if name == "thinking" and isinstance(block.get("signature"), str):
            start["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block.get("type") == CALLED:
        start["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": dump(block.get("input") or {}).decode()})
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def as_body(stream: bytes) -> bytes | None:
    """A stream as a message; None where it came to no end. An error in it is the body."""
    answer, message = api.folded(payloads(stream))
    if answer.error is not None:
        return dump({"type": "error", "error": answer.error})
    if not (answer.done or message.get("stop_reason")) or not answer.choices:
        return None
    return dump({name: value for name, value in message.items() if name != "usage" or value is not None})


def refusal(status: int, body: bytes) -> dict[str, Any]:
    """What an upstream answered in place of a later leg, as this API writes an error."""
    given = plain_refusal(status, body)["error"]
    kind = api.error_type(status) if given["type"] == "upstream_error" else given["type"]
    return {"type": "error", "error": {"type": kind, "message": given["message"]}}


# --- the ledger ----------------------------------------------------------------------------------------------------------


def exchanges(chat: ChatRequest, found: Mapping[int, HiddenLegs]) -> list[Insertion]:
    """See `body.insertions`."""
    made: list[Insertion] = []
    for at, hidden in sorted(found.items()):
        place = chat.places[at][0]
        content = chat.document["messages"][place].get("content")
        where = chat.envelope.messages[place].content(chat.body)
        spans = [span for _, span in entries(chat.body, where.start)] if isinstance(content, list) else []
        blocks = content if isinstance(content, list) else []
        if hidden.legs:
            made += _before(chat, place, hidden, blocks, spans)
        if hidden.placed:
            made += _among(chat, place, hidden, blocks, spans)
    return made


def _before(
    chat: ChatRequest, place: int, hidden: HiddenLegs, blocks: Sequence[Any], spans: Sequence[ByteSpan]
) -> list[Insertion]:
    """The legs in front of the client's message. What it has of theirs, block for block, goes over to them in its own bytes;
    where it has it in another form that stays with it, and the legs go without."""
    shared = _shared(hidden.legs, blocks)
    if shared is None:
        thinks = any(isinstance(each, Mapping) and each.get("type") in _THOUGHTS for each in blocks)
        legs = [_without_text(each, thinks=thinks) for each in hidden.legs]
        return [insert_messages(chat.envelope, place, api.elements_of(legs))]
    theirs, end = iter(shared), shared[-1] + 1 if shared else 0
    while _is_blank(blocks[end]):  # not all that is left is
        end += 1
    elements: list[bytes | dict[str, Any]] = []
    told_results: list[Mapping[str, Any]] = []
    for each in hidden.legs:
        if each["role"] != "assistant":
            told_results.append(each)
            continue
        elements += api.elements_of(told_results)
        told_results = []
        parts = [dump(one) if _is_ours(one, each) else chat.body[slice(*spans[next(theirs)])] for one in each[BLOCKS]]
        elements.append(b'{"role":"assistant","content":[' + b",".join(parts) + b"]}")
    elements += api.elements_of(told_results)
    made = [insert_messages(chat.envelope, place, elements)]
    if end:
        made.append(Insertion(spans[0].start, b"", spans[end].start - spans[0].start))
    return made


def _shared(legs: Sequence[Mapping[str, Any]], blocks: Sequence[Any]) -> list[int] | None:
    """Which of the client's blocks are those of the legs, in order; None where they are not its first, or all that it has."""
    found: list[int] = []
    at = 0
    for leg in legs:
        if leg["role"] != "assistant":
            continue
        if BLOCKS not in leg:
            return None
        for each in leg[BLOCKS]:
            if _is_ours(each, leg):
                continue
            while at < len(blocks) and _is_blank(blocks[at]):
                at += 1
            if at == len(blocks) or not _is_same(blocks[at], each):
                return None
            found.append(at)
            at += 1
    return found if any(not _is_blank(each) for each in blocks[at:]) else None


def _is_ours(block: Mapping[str, Any], leg: Mapping[str, Any]) -> bool:
    """A leg that another followed has no calls but ours."""
    return block.get("type") == CALLED and any(block.get("id") == each["id"] for each in leg["tool_calls"])


def _is_same(own: object, block: Mapping[str, Any]) -> bool:
    """Whether a client's block is one of a leg's: SDKs add members that are null, and cache marks wander."""
    if not isinstance(own, Mapping) or own.get("type") != block.get("type"):
        return False
    if block.get("type") in ("text", "thinking"):
        return all((own.get(name) or None) == (block.get(name) or None) for name in ("text", "thinking", "signature"))
    known = [{name: value for name, value in each.items() if value is not None} for each in (own, block)]
    known[0].pop("cache_control", None)
    return known[0] == known[1]


def _without_text(leg: Mapping[str, Any], *, thinks: bool) -> dict[str, Any]:
    """A leg's message without its text; without its thinking too, where the client sends that itself."""
    if leg["role"] != "assistant":
        return dict(leg)
    thoughts = [] if thinks else [each for each in leg.get(BLOCKS, ()) if each.get("type") in _THOUGHTS]
    return {"role": "assistant", "content": thoughts or None, "tool_calls": leg["tool_calls"]}


def _among(
    chat: ChatRequest, place: int, hidden: HiddenLegs, blocks: Sequence[Any], spans: Sequence[ByteSpan]
) -> list[Insertion]:
    """Answered calls among the client's own, and their results before its own, which are in the next element; nothing where it
    has not both."""
    uses = [
        span
        for block, span in zip(blocks, spans, strict=True)
        if isinstance(block, Mapping) and block.get("type") == CALLED
    ]
    elements = chat.document["messages"]
    following = elements[place + 1].get("content") if place + 1 < len(elements) else None
    if not uses or not isinstance(following, list) or not following:
        return []
    made: list[Insertion] = []
    for taken, call in enumerate(hidden.placed):
        nth, data = call.position - taken, dump(_use(call))
        made.append(
            Insertion(uses[nth].start, data + b",") if nth < len(uses) else Insertion(uses[-1].end, b"," + data)
        )
    (element,) = api.elements_of(hidden.placed_results())
    first = chat.envelope.messages[place + 1].content(chat.body).start
    told_bytes = b"".join(dump(each) + b"," for each in element["content"])
    return [*made, Insertion(next(entries(chat.body, first))[1].start, told_bytes)]


# --- the forms -----------------------------------------------------------------------------------------------------------


class PagedForm(Struct, frozen=True):
    """One form. A message is named by its index.

    `parts`: what its text lies in, each with its place in the client's bytes: the whole content, if that is a text, else its
    parts; `after`: it as it is read with insertions made that lie within it; `exchanges`: what puts those of the ledger into
    these bytes, by the index of the message that the client knows. `stream`, `body`: the engines for answers. `following`: the
    request once more, with what the model called and was told; `at_the_limit`: that of a leg whose calls are not answered any
    more. `as_events`, `as_body`: an answer in the other form, None where it is none (True: the client wants usage told).
    `refusal`: what an upstream answered in place of a later leg, as an event tells it.
    """

    parts: Callable[[ChatRequest, int], Sequence[tuple[object, ByteSpan]]]
    after: Callable[[ChatRequest, int, Sequence[Insertion]], Mapping[str, Any]]
    exchanges: Callable[[ChatRequest, Mapping[int, HiddenLegs]], list[Insertion]]
    stream: Callable[[Names], stream.PhantomStream]
    body: Callable[[Names], body.PhantomBody]
    following: Callable[[bytes, NeedsLeg, Sequence[str]], bytes]
    at_the_limit: Callable[[bytes, Names], bytes]
    as_events: Callable[[bytes, bool], bytes | None]
    as_body: Callable[[bytes], bytes | None]
    refusal: Callable[[int, bytes], dict[str, Any]]


FORMS: Mapping[str, PagedForm] = {
    "chat": PagedForm(
        parts=lambda chat, at: parts_in(chat.body, chat.envelope.messages[at], chat.messages[at]),
        after=lambda chat, at, made: read_again(chat, chat.envelope.messages[at], made),
        exchanges=lambda chat, found: body.insertions(chat.body, chat.envelope, chat.messages, found),
        stream=stream.PhantomStream,
        body=body.PhantomBody,
        following=body.following,
        at_the_limit=body.without_tools,
        as_events=body.as_events,
        as_body=body.as_body,
        refusal=stream.refusal,
    ),
    "messages": PagedForm(
        parts=parts_at,
        after=reread,
        exchanges=exchanges,
        stream=MessagesStream,
        body=MessagesBody,
        following=following,
        at_the_limit=at_the_limit,
        as_events=lambda answer, usage: as_events(answer),
        as_body=as_body,
        refusal=refusal,
    ),
}
"""By the dialect's name; `tools.PAGED` has the same."""
