"""What paging does to the bytes of chat completions: what a model asked and was told, put into its later requests; the requests
of later legs; and one body, made of the legs of a turn whose answers came in one piece.

An answer that came of faults has its exchange in a ledger, by the chain hash of the message that the client knows
(`context.transcript`): the calls and results of the legs before it, and calls of ours beside the client's own. In a later
request the legs go in front of that message, in the client's own bytes; what they said of its text is taken from its beginning,
so that the prompt is, byte for byte where the template allows, the one that the last leg saw. Where a client changed the
message its hash is another, and the model sees the client's own transcript.

Done twice it is done once: with the exchange in front, the chain hash is another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from app.context.transcript import Transcript
from app.features.paging.stream import (
    CALLED,
    FOLLOWED,
    THOUGHTS,
    ChatChunk,
    LegStream,
    PartEdit,
    edits,
    summed,
    without,
)
from app.features.paging.tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, PendingCalls, PhantomCall, results, spoken
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import (
    Envelope,
    Insertion,
    MessageSpan,
    dump,
    entries,
    escape,
    insert_messages,
    insert_text,
    parse_object,
    scan,
    splice,
)
from app.gateway.dialects.sse import DONE, payloads
from app.json_text import read_json

BLOCKS = "blocks"
"""In an assistant's message of a leg that came by `/v1/messages`: its content as it was there, thinking with its signatures."""
_CHARACTER = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\\x80-\xbf][\x80-\xbf]*"
)
"""One character of the inside of a JSON string."""


class HiddenLegs(Struct, frozen=True):
    """What stands behind one answer. `legs`: messages in front of it, each assistant's with its results. `beside`: calls
    in the client's own message. `told`: their results, by call; missing while they are pending."""

    legs: tuple[Mapping[str, Any], ...] = ()
    beside: tuple[PhantomCall, ...] = ()
    told: Mapping[str, str] | None = None

    def after(self, need: NeedsLeg, texts: Sequence[str]) -> HiddenLegs:
        """With one more leg, and what was answered to its calls."""
        return replace(self, legs=(*self.legs, need.message, *results(need.calls, texts)))

    def answered(self, texts: Sequence[str]) -> HiddenLegs:
        """With the results of these calls, in their order."""
        return replace(self, told={call.id: text for call, text in zip(self.beside, texts, strict=True)})

    @property
    def pending(self) -> bool:
        """Whether calls are still to be answered."""
        return bool(self.beside) and self.told is None

    @property
    def placed(self) -> list[PhantomCall]:
        """The answered calls that go into the client's own message, in their order."""
        return sorted(self.beside, key=lambda call: call.position) if self.told is not None else []

    def placed_results(self) -> list[dict[str, Any]]:
        """Their results: all results of a message stand right behind it."""
        calls, told = self.placed, self.told or {}
        return results(calls, [told[each.id] for each in calls])

    @property
    def said(self) -> str:
        """What of the client's text the legs said."""
        return "".join(each["content"] for each in self.legs if each["role"] == "assistant" and each["content"])

    def as_json(self) -> dict[str, Any]:
        """For the ledger's row."""
        return {"legs": list(self.legs), "beside": [asdict(each) for each in self.beside], "told": self.told}

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> HiddenLegs:
        return cls(tuple(row["legs"]), tuple(PhantomCall(**each) for each in row["beside"]), row["told"])


def keys_of(transcript: Transcript) -> dict[bytes, int]:
    """The keys by which exchanges are found, chain hashes of answers, each with the index of its message."""
    return {key: at for at in transcript.answered if (key := transcript.chains[at]) is not None}


def insertions(
    body: bytes, envelope: Envelope, messages: Sequence[Mapping[str, Any]], found: Mapping[int, HiddenLegs]
) -> list[Insertion]:
    """What puts the exchanges into the client's own bytes. `found`: by the index of the message that the client knows."""
    made: list[Insertion] = []
    for at, hidden in sorted(found.items()):
        span, message = envelope.messages[at], messages[at]
        legs, shared = _legs(hidden, message)
        if legs:
            made.append(insert_messages(envelope, at, legs))
        if shared:
            made += _without_beginning(body, span, shared)
        beside = hidden.placed
        if beside and (calls := _among_calls(body, span, beside)):
            made += calls
            made.append(insert_messages(envelope, at + 1, hidden.placed_results()))
    return made


def expanded(message: Mapping[str, Any], hidden: HiddenLegs) -> list[Mapping[str, Any]]:
    """A message with what goes before and behind it."""
    legs, shared = _legs(hidden, message)
    own = dict(message)
    if shared:
        own["content"] = own["content"].removeprefix(shared)
    told: list[dict[str, Any]] = []
    beside = hidden.placed
    calls = own.get("tool_calls")
    if beside and isinstance(calls, list) and calls:
        merged = list(calls)
        for call in beside:
            merged.insert(call.position, call.as_sent())
        own["tool_calls"] = merged
        told = hidden.placed_results()
    return [*legs, own, *told]


def _legs(hidden: HiddenLegs, message: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str]:
    """The legs as they go before a message, and what of its text is theirs. A text that the client holds in another form stays
    with it, and the legs go without; so does reasoning that the client sends back itself."""
    content = message.get("content")
    shared = hidden.said
    keeps = isinstance(content, str) and content.startswith(shared)
    thinks = any(message.get(name) for name in THOUGHTS)
    legs: list[Mapping[str, Any]] = []
    for each in hidden.legs:
        each = {name: value for name, value in each.items() if name != BLOCKS}
        if each["role"] == "assistant" and not keeps:
            each = {**each, "content": None}
        if thinks:
            each = {name: value for name, value in each.items() if name not in THOUGHTS}
        legs.append(each)
    return legs, shared if keeps else ""


def _without_beginning(body: bytes, message: MessageSpan, text: str) -> list[Insertion]:
    """What takes `text` from the beginning of a message, however the client escapes it."""
    content = message.content(body)
    inside = content.start + 1
    plain = escape(text)
    if body.startswith(plain, inside):
        return [Insertion(inside, b"", len(plain))]
    left, pos = len(text), inside
    for character in _CHARACTER.finditer(body, inside, content.end - 1):
        if not left:
            break
        left, pos = left - 1, character.end()
    return [Insertion(inside, b"", pos - inside)] if not left else []


def _among_calls(body: bytes, message: MessageSpan, calls: Iterable[PhantomCall]) -> list[Insertion]:
    """What puts calls among those of a message, each at the position that it had; nothing where the message has none."""
    array = dict(entries(body, message.start)).get("tool_calls")
    spans = [span for _, span in entries(body, array.start)] if array is not None else []
    if not spans:
        return []
    made: list[Insertion] = []
    for taken, call in enumerate(calls):
        place = call.position - taken  # among the client's own
        data = dump(call.as_sent())
        if place < len(spans):
            made.append(Insertion(spans[place].start, data + b","))
        else:
            made.append(Insertion(spans[-1].end, b"," + data))
    return made


# --- the requests of later legs, made of the first one's own bytes -------------------------------------------------------


def following(body: bytes, need: NeedsLeg, texts: Sequence[str]) -> bytes:
    """The request once more, with what the model called and was told (`texts`, one for each call) behind its messages."""
    envelope = scan(body)
    assert envelope is not None, "what an upstream answered with calls is a chat request"
    said = [need.message, *results(need.calls, texts)]
    return splice(body, [insert_messages(envelope, len(envelope.messages), said)])


def without_tools(body: bytes, names: Names) -> bytes:
    """The request without the phantom tools: the client's own stay; where there are none, the member goes, for upstreams refuse
    an empty list."""
    members = [*entries(body, body.index(b"{"))]
    gone = [name == "tools" for name, _ in members]
    made: list[Insertion] = []
    for at, (name, span) in enumerate(members):
        if name != "tools":
            continue
        tools = [each for _, each in entries(body, span.start)]
        ours = [_name(body[each.start : each.end]) in names for each in tools]
        gone[at] = bool(ours) and all(ours)
        if not gone[at]:
            made += without(body, span.start, tools, ours)
    return splice(body, made + without(body, body.index(b"{"), [span for _, span in members], gone))


def _name(tool: bytes) -> object:
    """Chat completions have it in `function`, messages at the top."""
    read = read_json(tool)
    function = read.get("function")
    return function.get("name") if isinstance(function, dict) else read.get("name")


# --- an answer in the other form -----------------------------------------------------------------------------------------
#
# Some servers answer a request for a stream with a body, or the reverse, now and then. Only for later legs, of which the client
# has no bytes yet and the first leg has said in which form it gets its answer.


def as_events(body: bytes, usage: bool) -> bytes | None:
    """A chat completion as the events of a stream; None where the body is none. `usage`: the client wants it told."""
    document = parse_object(body)
    choices = document.get("choices") if document is not None else None
    if document is None or not isinstance(choices, list) or document.get("error"):
        return None
    head = {**document, "object": "chat.completion.chunk"}
    figures = head.pop("usage", None)
    events = [{**head, "choices": [_delta(each) for each in choices if isinstance(each, dict)]}]
    if usage and isinstance(figures, dict):
        events.append({**head, "choices": [], "usage": figures})
    return b"".join(b"data: " + data + b"\n\n" for data in [*map(dump, events), DONE])


def _delta(choice: Mapping[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [{"index": n, **each} for n, each in enumerate(calls) if isinstance(each, dict)]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}


def as_body(stream: bytes) -> bytes | None:
    """A stream as a chat completion; None where it came to no end. An error in it is the body."""
    answer = CHAT.fold(payloads(stream))
    if answer.error is not None:
        return dump({"error": answer.error})
    if not answer.choices or not (answer.done or answer.choices[0].finish_reason):
        return None
    choices = []
    for each in answer.choices:
        message: dict[str, Any] = {"role": each.role or "assistant", "content": each.content}
        more = {"refusal": each.refusal, "reasoning": each.reasoning, "tool_calls": each.tool_calls}
        message |= {name: value for name, value in more.items() if value}
        choices.append({"index": each.index, "message": message, "finish_reason": each.finish_reason})
    head = {"id": answer.id, "object": "chat.completion", "created": answer.created, "model": answer.model}
    return dump({**head, "choices": choices} | ({"usage": answer.usage} if answer.usage else {}))


# --- one body, made of those of the legs ---------------------------------------------------------------------------------
#
# `stream` does the same for streams: put together, a stream and a body of the same legs say the same.


class WholeBody(NamedTuple):
    data: bytes
    pending: PendingCalls | None = None


class PhantomBody:
    """The engine. The caller feeds the body of each leg; a later leg that was refused goes to the client as it is, with its own
    status, for nothing was sent before it."""

    def __init__(self, names: Names, *, rounds: int = MAX_ROUNDS) -> None:
        self.leg = 0
        self._names = names
        self._rounds = rounds
        self._first: dict[str, Any] = {}
        self._before: dict[str, Any] | None = None
        self._said: dict[str, str] = {}

    def feed(self, body: bytes) -> WholeBody | NeedsLeg:
        """The whole body of the next leg. What cannot be read is passed on as it is."""
        self.leg += 1
        document = parse_object(body)
        if document is None or not isinstance(document.get("choices"), list) or document.get("error"):
            return WholeBody(body)
        chunk = ChatChunk(body, body, document)
        message = chunk.part.get("message")
        if not isinstance(message, dict):
            return WholeBody(body)
        leg, part = self._read(message)
        usage = document.get("usage")
        whole = bool(leg.ours) and chunk.reason in FOLLOWED and self.leg <= self._rounds + 1
        if whole and not leg.theirs:
            for name in ("id", "created"):
                self._first.setdefault(name, document.get(name))
            if isinstance(usage, dict):
                self._before = summed(self._before, usage)
            said = leg.texts()
            for name, text in said.items():
                self._said[name] = self._said.get(name, "") + text
            calls = leg.whole()
            return NeedsLeg(calls, spoken(said.pop("content", ""), said, calls), last=self.leg > self._rounds)
        if leg.ours and not leg.theirs and chunk.reason in CALLED:
            part.finish = b'"stop"'
        pending = PendingCalls(leg.whole()) if whole else None
        top = {name: dump(value) for name, value in self._first.items() if value and document.get(name) != value}
        if isinstance(usage, dict) and self._before is not None:
            top["usage"] = dump(summed(self._before, usage))
        changes = self._prefixes(body, chunk.at) + edits(body, top, chunk.at, part)
        return WholeBody(splice(body, changes) if changes else body, pending)

    def _read(self, message: Mapping[str, Any]) -> tuple[LegStream, PartEdit]:
        """The message as a leg that came in one delta."""
        leg, part = LegStream(), PartEdit()
        leg.take(message)
        given = message.get("tool_calls")
        for position, call in enumerate(given if isinstance(given, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            streamed = leg.find_call((position, position), call if isinstance(call, dict) else {})
            streamed.ours = name in self._names
            if not streamed.ours:
                leg.theirs += 1
                continue
            part.gone.add(position)
            if len(leg.ours) < MAX_CALLS:
                streamed.name, streamed.kept = str(name), True
                leg.ours.append(streamed)
                streamed.take(call)
        return leg, part

    def _prefixes(self, body: bytes, at: int) -> list[Insertion]:
        """What the legs before said, in front of what the last one says."""
        made: list[Insertion] = []
        if not any(self._said.values()):
            return made
        message = _message(body, at)
        if self._said.get("content"):
            text = insert_text(body, message, self._said["content"])
            made += [text] if text is not None else []
        spans = dict(entries(body, message.start))
        for name in THOUGHTS:
            if not (thought := self._said.get(name)):
                continue
            span = spans.get(name)
            if span is None:
                made.append(Insertion(message.start + 1, b'"%s":"%s",' % (name.encode(), escape(thought))))
            elif body[span.start : span.start + 1] == b'"':
                made.append(Insertion(span.start + 1, escape(thought)))
            else:
                made.append(Insertion(span.start, b'"' + escape(thought) + b'"', span.end - span.start))
        return made


def _message(body: bytes, at: int) -> MessageSpan:
    """Where the message of the choice at position `at` lies, which has one."""
    top = dict(entries(body, body.index(b"{")))
    choice = dict(entries(body, top["choices"].start))[at]
    return MessageSpan(*dict(entries(body, choice.start))["message"])
