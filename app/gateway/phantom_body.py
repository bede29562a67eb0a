"""One body for the client, made of the legs of a turn whose answers came in one piece. See `phantom_stream`, which does the
same for streams: put together, a stream and a body of the same legs say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from app.gateway.phantom_events import PartEdit, edits, summed
from app.gateway.phantom_leg import THOUGHTS, Chunk, Leg
from app.gateway.phantom_stream import CALLED, FOLLOWED
from app.gateway.phantom_tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, Pending, spoken
from app.gateway.splice import Insertion, MessageSpan, dump, entries, escape, insert_text, splice


class Whole(NamedTuple):
    """The body for the client."""

    data: bytes
    pending: Pending | None = None


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

    def feed(self, body: bytes) -> Whole | NeedsLeg:
        """The whole body of the next leg. What cannot be read is passed on as it is."""
        self.leg += 1
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return Whole(body)
        if not isinstance(document, dict) or not isinstance(document.get("choices"), list) or document.get("error"):
            return Whole(body)
        chunk = Chunk(body, body, document)
        message = chunk.part.get("message")
        if not isinstance(message, dict):
            return Whole(body)
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
        pending = Pending(leg.whole()) if whole else None
        top = {name: dump(value) for name, value in self._first.items() if value and document.get(name) != value}
        if isinstance(usage, dict) and self._before is not None:
            top["usage"] = dump(summed(self._before, usage))
        changes = self._prefixes(body, chunk.at) + edits(body, top, chunk.at, part)
        return Whole(splice(body, changes) if changes else body, pending)

    def _read(self, message: Mapping[str, Any]) -> tuple[Leg, PartEdit]:
        """The message as a leg that came in one delta."""
        leg, part = Leg(), PartEdit()
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
