"""What a model asked and was told behind the client's back, put into its later requests, so that its own past is coherent.

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
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.context.transcript import Transcript, canonical, chain, message_hash
from app.dialects.splice import Envelope, Insertion, MessageSpan, dump, entries, escape, insert_messages
from app.features.paging.stream import THOUGHTS
from app.features.paging.tools import NeedsLeg, PendingCalls, PhantomCall, results

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

    def with_pending(self, pending: PendingCalls) -> HiddenLegs:
        """With calls that wait for the client to come back."""
        return replace(self, beside=pending.calls)

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
        calls = [
            {
                "id": c.id,
                "name": c.name,
                "arguments": c.arguments,
                "position": c.position,
                "cut": c.cut,
                "other": c.other,
            }
            for c in self.beside
        ]
        return {"legs": list(self.legs), "beside": calls, "told": self.told}

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> HiddenLegs:
        return cls(tuple(row["legs"]), tuple(PhantomCall(**each) for each in row["beside"]), row["told"])


def key_of(question_chain: bytes, answer: Mapping[str, Any]) -> bytes:
    """By which the exchange behind an answer is found. `question_chain`: the chain hash up to the last message asked;
    `answer`: the message as the client has it."""
    form = canonical(answer)
    assert form is not None, "an assistant's message has a canonical form"
    return chain([message_hash(form)], question_chain)[0]


def keys_of(transcript: Transcript, start: bytes = b"") -> dict[bytes, int]:
    """The keys to look up for a request, each with the index of its message. `start`: the chain hash that the transcript goes
    on from, where Mneme supplies what is before."""
    if not start:
        return {key: at for at in transcript.answered if (key := transcript.chains[at]) is not None}
    known = [at for at, each in enumerate(transcript.hashes) if each is not None]
    links = dict(zip(known, chain([h for h in transcript.hashes if h is not None], start), strict=True))
    return {links[at]: at for at in transcript.answered if at in links}


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
    """The same for a message that Mneme supplies: it, with what goes before and behind it."""
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
