"""The dialect of `/v1/responses`: `instructions` and `input`, a text or a list of items; a stream of named events.

With `previous_response_id` or `conversation` the upstream itself holds what was said before: then memory knows the
conversation too, and nothing of it is supplied twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import orjson
from msgspec import Struct

from app.capture.masking import MASK
from app.context.assemble import SEPARATOR
from app.context.story import SYSTEM_ROLES
from app.context.transcript import HASH_BYTES, Transcript
from app.gateway.dialect import ChatRequest, Guard, positive
from app.gateway.identify import NAMING
from app.gateway.responses_answer import LastEventGuard, answer_of_json, fold
from app.gateway.responses_items import items_of, messages_of
from app.gateway.splice import (
    Envelope,
    Insertion,
    MessageSpan,
    Span,
    append_text,
    dump,
    entries,
    escape,
    insert_messages,
    insert_text,
    scan,
)
from app.gateway.sse import Answer

_OF_THE_INSTRUCTIONS = (0, 0)
"""The place of the message that `instructions` are: no item."""


class ResponsesDialect:
    """See `dialect.Dialect`."""

    name: Literal["responses"] = "responses"
    naming = NAMING | {"conversation"}

    def session(self, document: Mapping[str, Any]) -> str | None:
        """The upstream's conversation: by its id, or as `{"id": …}`."""
        given = document.get("conversation")
        named = given.get("id") if isinstance(given, Mapping) else given
        return named if isinstance(named, str) and named else None

    def unfit(self, document: Mapping[str, Any]) -> str | None:
        """What runs in the background has no answer yet when the call ends."""
        return "background" if document.get("background") is True else None

    def read(self, body: bytes, document: Mapping[str, Any]) -> ChatRequest | None:
        envelope = self._scan(body, document)
        if envelope is None:
            return None
        messages, places = _read(document)
        if not any(each != _OF_THE_INSTRUCTIONS for each in places):
            return None
        model, follows = document.get("model"), document.get("previous_response_id")
        follows = follows if isinstance(follows, str) and follows else None
        return ChatRequest(
            dialect=self,
            body=body,
            document=document,
            envelope=envelope,
            messages=messages,
            transcript=Transcript.of(messages),
            model=model if isinstance(model, str) else "",
            stream=document.get("stream") is True,
            answer_limit=positive(document.get("max_output_tokens")),
            places=places,
            upstream_holds=follows is not None or self.session(document) is not None,
            follows=follows,
        )

    def messages(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        return _read(document)[0]

    def scan(self, body: bytes) -> Envelope | None:
        document = orjson.loads(body)
        return self._scan(body, document) if isinstance(document, dict) else None

    def elements(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        given = document.get("input")
        return given if isinstance(given, list) else []

    def schemas(self, document: Mapping[str, Any]) -> list[object]:
        text = document.get("text")
        form = text.get("format") if isinstance(text, Mapping) else None
        schema = form if isinstance(form, Mapping) and form.get("type") not in (None, "text") else None
        return [each for each in (document.get("tools"), schema) if each]

    def canvas(self, chat: ChatRequest) -> _Canvas:
        return _Canvas(chat.body, chat.envelope, chat.places)

    def guard(self) -> Guard:
        return LastEventGuard()

    def fold(self, events: Iterable[bytes]) -> Answer:
        return fold(events)

    def whole(self, body: bytes) -> Answer | None:
        return answer_of_json(body)

    def mark(self, chat: ChatRequest, answer: Answer) -> bytes | None:
        """Of what the upstream is not to store, no request can say that it follows it."""
        if answer.id is None or answer.id == MASK or chat.document.get("store") is False:
            return None
        return mark_of(answer.id)

    def _scan(self, body: bytes, document: Mapping[str, Any]) -> Envelope | None:
        return _scan_text(body) if isinstance(document.get("input"), str) else scan(body, document, "input")


def mark_of(response_id: str) -> bytes:
    """A response's id as a hash among those by which a conversation is found."""
    given = response_id.encode("utf-8", "surrogatepass")
    return blake2b(given, digest_size=HASH_BYTES, person=b"mneme response").digest()


def _read(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    given = document.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages, places = messages_of(items if isinstance(items, list) else ())
    instructions = document.get("instructions")
    if isinstance(instructions, str):
        messages.insert(0, {"role": "system", "content": instructions})
        places.insert(0, _OF_THE_INSTRUCTIONS)
    return messages, places


def _scan_text(body: bytes) -> Envelope:
    """Of a request whose input is a text, which has no elements."""
    members: dict[str, Span] = {str(name): span for name, span in entries(body, body.index(b"{"))}
    return Envelope([], 0, 0, members)


class _Canvas(Struct, frozen=True):
    body: bytes
    envelope: Envelope
    places: Sequence[tuple[int, int]]

    @property
    def _text(self) -> Span | None:
        """Where the input lies, if it is a text."""
        return None if self.envelope.array_end else self.envelope.members["input"]

    def insert(self, index: int, messages: Sequence[Mapping[str, Any]]) -> list[Insertion]:
        text = self._text
        if text is None:
            at = self.places[index][0] if index < len(self.places) else len(self.envelope.messages)
            return [insert_messages(self.envelope, at, items_of(messages))]
        if all(each.get("role") in SYSTEM_ROLES for each in messages):
            return self._instruct(SEPARATOR.join(str(each.get("content") or "") for each in messages))
        before = b"[" + b"".join(dump(item) + b"," for item in items_of(messages)) + b'{"role":"user","content":'
        return [Insertion(text.start, before), Insertion(text.end, b"}]")]

    def prepend(self, index: int, text: str) -> list[Insertion]:
        return self._write(index, text, before=True)

    def append(self, index: int, text: str) -> list[Insertion]:
        return self._write(index, text, before=False)

    def _write(self, index: int, text: str, *, before: bool) -> list[Insertion]:
        first, end = self.places[index]
        own = self.envelope.members["instructions"] if first == end else self._text
        if own is not None:
            return [Insertion(own.start + 1 if before else own.end - 1, escape(text))]
        item: MessageSpan = self.envelope.messages[first if before else end - 1]
        made = (insert_text if before else append_text)(self.body, item, text, "input_text")
        return [made] if made is not None else []

    def _instruct(self, text: str) -> list[Insertion]:
        """`text` as the end of the instructions, or as all of them."""
        own = self.envelope.members.get("instructions")
        if own is None:
            at = self.body.index(b"{") + 1
            return [Insertion(at, b'"instructions":' + dump(text) + b",")]
        if self.body[own.start : own.start + 1] == b'"':
            return [Insertion(own.end - 1, escape(SEPARATOR + text))]
        if self.body[own.start : own.end] == b"null":
            return [Insertion(own.start, dump(text), own.end - own.start)]
        return []


RESPONSES = ResponsesDialect()
