"""What the newest message tells memory to do, in the user's own words. A feature does it (`app/features/commands`), before the
prompt is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from app.context.request import Deed
from app.context.transcript import text_of
from app.dialects.base import ChatRequest
from app.gateway.identify import Identity
from app.gateway.reconcile import Place
from app.memory.commands import Command, commands
from app.memory.text import strip_injected

LEFT_CHARS = 12
"""Characters beside "don't remember this" in a message that says nothing else: then the turn before it is meant, too."""

_FAILED = (
    "Mneme could not do now what the user asks of memory in this message. Say so, and that it can be asked for again."
)


class Obeyed(Struct, frozen=True):
    """What became of a message's commands. `told`: as `CompileRequest.deeds` has it; `account`: for the call's explanation;
    `changed`: memory is not as it was before. `alone`: the message says nothing but commands, so that
    nothing need be looked for."""

    told: tuple[Deed, ...] = ()
    alone: bool = False
    changed: bool = False
    account: tuple[dict[str, Any], ...] = ()

    @property
    def deeds(self) -> tuple[str, ...]:
        """What the model is told, as sentences."""
        return tuple(each.sentence for each in self.told)


NOTHING_TOLD = Obeyed()
FAILED = Obeyed((Deed(_FAILED),))


def told(chat: ChatRequest) -> tuple[Command, ...]:
    """The commands in the user's newest message: in the user's own words, where it is the last thing said."""
    return tuple(each for each in heard_in(chat) if each.plain)


def heard_in(chat: ChatRequest) -> tuple[Command, ...]:
    """These, and those that may be none: said beside something else."""
    text = newest(chat)
    return commands(text) if text is not None else ()


def ordered(chat: ChatRequest) -> bool:
    """Whether the newest message tells memory to forget. What it corrects may be anything: of that nothing is said."""
    return any(each.kind == "forget" for each in told(chat))


def newest(chat: ChatRequest) -> str | None:
    """What the user has just said; None: the last thing said was something else."""
    last = chat.transcript.last_user()
    if last is None or chat.transcript.mid_turn():
        return None
    return strip_injected(text_of(chat.messages[last]))


def private_from(chat: ChatRequest, obeyed: Obeyed) -> int | None:
    """From which message on the request is not to be found later: the user asks there not to keep it, or that something be
    forgotten, and of that the model was told something. None: it may be."""
    orders = [each for each in told(chat) if each.kind == "forget"]
    if any(each.scope == "this" for each in orders) or (orders and obeyed.deeds):
        return chat.transcript.last_user()
    return None


def without_orders(chat: ChatRequest) -> Mapping[str, Any] | None:
    """The newest message without its sentences to forget something, to be kept and learned from like any; None: nothing else is
    said in it, or the user asks not to keep it."""
    text, orders = newest(chat), [each for each in told(chat) if each.kind == "forget"]
    last = chat.transcript.last_user()
    message = chat.messages[last] if last is not None else None
    if text is None or not orders or any(each.scope == "this" for each in orders):
        return None
    rest = beside(text, orders)
    if len(rest) <= LEFT_CHARS or not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return None
    return {**message, "content": rest}


def beside(text: str, orders: Sequence[Command]) -> str:
    """What a message says beside these commands."""
    rest, done = "", 0
    for each in orders:
        start, end = each.span
        rest, done = rest + text[done:start], max(done, end)
    return (rest + text[done:]).strip(" .,;:!?。！？\n")


class Obeys(Protocol):
    """Does what users tell memory to do."""

    async def ready(self, chat: ChatRequest) -> None:
        """Read the rules of the message's language, where it is the first."""

    def concerned(self, chat: ChatRequest) -> bool:
        """Whether there may be something to do."""

    async def obey(self, identity: Identity, chat: ChatRequest, place: Place, now: datetime, *, writes: bool) -> Obeyed:
        """Do what the newest message asks of memory, once. `writes`: whether memory may be changed. Raises nothing."""
