"""The dialect of `/v1/chat/completions`: its array is `messages`, and a stream ends with `data: [DONE]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from app.context.transcript import Transcript
from app.gateway.dialects.base import ChatRequest, Dialect, positive
from app.gateway.dialects.splice import Envelope, Insertion, append_text, insert_messages, insert_text, scan
from app.gateway.dialects.sse import EndGuard, answer_of_json, fold


class ChatDialect(Dialect):
    """See `base.Dialect`."""

    name: Literal["chat"] = "chat"
    guard = EndGuard
    fold = staticmethod(fold)
    whole = staticmethod(answer_of_json)

    def read(self, body: bytes, document: Mapping[str, Any]) -> ChatRequest | None:
        envelope = scan(body, document)
        if envelope is None or not envelope.messages:
            return None
        messages = document["messages"]
        model = document.get("model")
        return ChatRequest(
            dialect=self,
            body=body,
            document=document,
            envelope=envelope,
            messages=messages,
            transcript=Transcript.of(messages),
            model=model if isinstance(model, str) else "",
            stream=document.get("stream") is True,
            answer_limit=positive(document.get("max_completion_tokens")) or positive(document.get("max_tokens")),
        )

    def messages(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        found = document["messages"]
        return found if isinstance(found, list) else None

    def schemas(self, document: Mapping[str, Any]) -> list[object]:
        return [each for name in ("tools", "functions", "response_format") if (each := document.get(name))]

    def canvas(self, chat: ChatRequest) -> _Canvas:
        return _Canvas(chat.body, chat.envelope)


class _Canvas(Struct, frozen=True):
    body: bytes
    envelope: Envelope

    def insert(self, index: int, messages: Sequence[Mapping[str, Any]]) -> list[Insertion]:
        return [insert_messages(self.envelope, index, messages)]

    def prepend(self, index: int, text: str) -> list[Insertion]:
        made = insert_text(self.body, self.envelope.messages[index], text)
        return [made] if made is not None else []

    def append(self, index: int, text: str) -> list[Insertion]:
        made = append_text(self.body, self.envelope.messages[index], text)
        return [made] if made is not None else []


CHAT = ChatDialect()
