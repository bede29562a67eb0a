"""How each dialect that is paged writes what paging changes: requests with something shorter, and answers made of legs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from app.dialects.base import ChatRequest
from app.dialects.messages import parts_at, parts_in, reread
from app.dialects.messages import refusal as error_of_messages
from app.dialects.splice import ByteSpan, Insertion, splice
from app.errors import MnemeError
from app.features.paging import body, ledger, messages, stream
from app.features.paging.ledger import HiddenLegs
from app.features.paging.tools import Names, NeedsLeg


class PagedForm(Struct, frozen=True):
    """One form. A message is named by its index.

    `parts`: what its text lies in, each with its place in the client's bytes: the whole content, if that is a text, else its
    parts; `after`: it as it is read with insertions made that lie within it; `exchanges`: what puts those of the ledger into
    these bytes, by the index of the message that the client knows. `stream`, `body`: the engines for answers. `following`: the
    request once more, with what the model called and was told; `at_the_limit`: that of a leg whose calls are not answered any
    more. `as_events`, `as_body`: an answer in the other form, None where it is none (True: the client wants usage told).
    `refusal`: what an upstream answered in place of a later leg, as an event tells it; `error`: the same of our own.
    """

    parts: Callable[[ChatRequest, int], Sequence[tuple[object, ByteSpan]]]
    after: Callable[[ChatRequest, int, Sequence[Insertion]], Mapping[str, Any]]
    exchanges: Callable[[ChatRequest, Mapping[int, HiddenLegs]], list[Insertion]]
    stream: Callable[[Names], stream.PhantomStream]
    body: Callable[[Names], body.PhantomBody | messages.MessagesBody]
    following: Callable[[bytes, NeedsLeg, Sequence[str]], bytes]
    at_the_limit: Callable[[bytes, Names], bytes]
    as_events: Callable[[bytes, bool], bytes | None]
    as_body: Callable[[bytes], bytes | None]
    refusal: Callable[[int, bytes], dict[str, Any]]
    error: Callable[[MnemeError], dict[str, Any]]


def _after(chat: ChatRequest, at: int, insertions: Sequence[Insertion]) -> Mapping[str, Any]:
    span = chat.envelope.messages[at]
    moved = [each._replace(pos=each.pos - span.start) for each in insertions]
    message: Mapping[str, Any] = orjson.loads(splice(chat.body[span.start : span.end], moved))
    return message


FORMS: Mapping[str, PagedForm] = {
    "chat": PagedForm(
        parts=lambda chat, at: parts_in(chat.body, chat.envelope.messages[at], chat.messages[at]),
        after=_after,
        exchanges=lambda chat, found: ledger.insertions(chat.body, chat.envelope, chat.messages, found),
        stream=stream.PhantomStream,
        body=body.PhantomBody,
        following=body.following,
        at_the_limit=body.without_tools,
        as_events=lambda answer, usage: body.as_events(answer, usage=usage),
        as_body=body.as_body,
        refusal=stream.refusal,
        error=lambda error: error.body(),
    ),
    "messages": PagedForm(
        parts=parts_at,
        after=reread,
        exchanges=messages.exchanges,
        stream=messages.MessagesStream,
        body=messages.MessagesBody,
        following=messages.following,
        at_the_limit=messages.at_the_limit,
        as_events=lambda answer, usage: messages.as_events(answer),
        as_body=messages.as_body,
        refusal=messages.refusal,
        error=error_of_messages,
    ),
}
"""By the dialect's name; `tools.PAGED` has the same."""
