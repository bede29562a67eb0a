"""One body for the client, made of the legs of a turn whose answers came in one piece. See `paging.stream`, which does the
same for streams: put together, a stream and a body of the same legs say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from app.dialects.chat import CHAT
from app.dialects.splice import (
    Insertion,
    MessageSpan,
    dump,
    entries,
    escape,
    insert_messages,
    insert_text,
    scan,
    splice,
)
from app.dialects.sse import DONE, payloads
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
from app.features.paging.tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, PendingCalls, results, spoken

# The requests of later legs, made of the first one's own bytes.


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
    read = orjson.loads(tool)
    function = read.get("function")
    return function.get("name") if isinstance(function, dict) else read.get("name")


# An answer in the other form: some servers answer a request for a stream with a body, or the reverse, now and then.
#
# Only for later legs, of which the client has no bytes yet and the first leg has said in which form it gets its answer.


def as_events(body: bytes, *, usage: bool) -> bytes | None:
    """A chat completion as the events of a stream; None where the body is none. `usage`: the client wants it told."""
    document = _object(body)
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


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


class WholeBody(NamedTuple):
    """The body for the client."""

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
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return WholeBody(body)
        if not isinstance(document, dict) or not isinstance(document.get("choices"), list) or document.get("error"):
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
            own = leg.call(position, {"index": position, "id": call.get("id")} if isinstance(call, dict) else {})
            own.ours = name in self._names
            if not own.ours:
                leg.theirs += 1
                continue
            part.gone.add(position)
            if len(leg.ours) < MAX_CALLS:
                own.name, own.kept = str(name), True
                leg.ours.append(own)
                own.take(call)
        return leg, part

    def _prefixes(self, body: bytes, at: int) -> list[Insertion]:
        """What the legs before said, in front of what the last one says."""
        made: list[Insertion] = []
        if not any(self._said.values()):
            return made
        for message in _messages(body, at):
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


def _messages(body: bytes, at: int) -> list[MessageSpan]:
    """Where the message of the choice at position `at` lies."""
    top = dict(entries(body, body.index(b"{")))
    choice = dict(entries(body, top["choices"].start))[at]
    return [MessageSpan(*span) for name, span in entries(body, choice.start) if name == "message"][-1:]
