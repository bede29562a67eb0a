"""How each dialect that is paged writes what paging changes: requests with something shorter, and answers made of legs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.dialects.base import ChatRequest
from app.dialects.splice import ByteSpan, Insertion, parts_in
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
    `refusal`: what an upstream answered in place of a later leg, as an event tells it.
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


FORMS: Mapping[str, PagedForm] = {
    "chat": PagedForm(
        parts=lambda chat, at: parts_in(chat.body, chat.envelope.messages[at], chat.messages[at]),
        after=lambda chat, at, made: messages.read_again(chat, chat.envelope.messages[at], made),
        exchanges=lambda chat, found: ledger.insertions(chat.body, chat.envelope, chat.messages, found),
        stream=stream.PhantomStream,
        body=body.PhantomBody,
        following=body.following,
        at_the_limit=body.without_tools,
        as_events=lambda answer, usage: body.as_events(answer, usage=usage),
        as_body=body.as_body,
        refusal=stream.refusal,
    ),
    "messages": PagedForm(
        parts=messages.parts_at,
        after=messages.reread,
        exchanges=messages.exchanges,
        stream=messages.MessagesStream,
        body=messages.MessagesBody,
        following=messages.following,
        at_the_limit=messages.at_the_limit,
        as_events=lambda answer, usage: messages.as_events(answer),
        as_body=messages.as_body,
        refusal=messages.refusal,
    ),
}
"""By the dialect's name; `tools.PAGED` has the same."""
