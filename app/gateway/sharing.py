"""What a user says to a shared space, by the header X-Mneme-Space or in words, is kept there: their own words of this turn, and
nothing of the answer, which may tell of their own memory."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from app.capture.facts import Exchange, NewTurnMessage
from app.context.transcript import canonical, message_hash, text_of
from app.errors import NotFound, StoreUnavailable
from app.gateway.call import Forwarded
from app.gateway.dialects.base import ChatRequest
from app.gateway.identify import Identity
from app.gateway.prepare import newest, said_in, said_session
from app.gateway.reconcile import Place
from app.index.analyse import pack
from app.memory.text import content_hash
from app.providers.embeddings import Embedder
from app.store import ids
from app.store.history import History, NewMessage
from app.store.indexed import SharedRead
from app.store.pools import storable
from app.store.sessions import NewSession
from app.store.spaces import MESSAGE, SharedSpaces, no_such_space, owner_of

log = logging.getLogger("mneme.spaces")

_ADDRESSED = re.compile(
    r"\s*(?:please\s+|bitte\s+)?"
    r"(?:(?:remember|note|save)(?:\s+this)?\s+for\s+(?:(?:the|our|my)\s+)?"
    r"|(?:merk(?:e)?\s+(?:dir|euch)|notiere?)(?:\s+das)?\s+für\s+(?:(?:das|unser|mein|den|die)\s+)?)"
    r"(?P<whom>[a-z0-9][a-z0-9._-]*[a-z0-9]|[a-z0-9])(?:\s+(?:team|project|projekt|space))?\s*(?:[:,]?\s*\b(?:that|dass)\b|[:,])\s*(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_ANY = frozenset({"team", "project", "projekt", "space", "group", "gruppe"})
"""What stands for a space's name where there is only one that may be meant."""


def addressed(text: str | None, spaces: Sequence[SharedRead]) -> str | None:
    """The space that a message says something to in words ("remember for the team: …"); None: none, or not clear which."""
    found = _ADDRESSED.match(text) if text else None
    if found is None:
        return None
    whom = found["whom"].lower()
    allowed = [each.name for each in spaces if each.by_word]
    if whom in allowed:
        return whom
    return allowed[0] if whom in _ANY and len(allowed) == 1 else None


def member(identity: Identity, chat: ChatRequest, place: Place) -> Identity:
    """Who says something, and in which space: the one that the header names, else the message. Raises NotFound for one that the
    user is no member of."""
    if identity.space is None:
        return by_word(identity, chat, place)
    if all(each.name != identity.space for each in place.spaces):
        raise no_such_space(identity.space, "X-Mneme-Space")
    return identity


def by_word(identity: Identity, chat: ChatRequest, place: Place) -> Identity:
    """Who says something, and in which space the message itself says, where no header does."""
    if identity.space is not None or not place.spaces:
        return identity
    named = addressed(newest(chat), place.spaces)
    return replace(identity, space=named) if named is not None else identity


class Sharer:
    """Keeps what is said to spaces."""

    def __init__(
        self,
        history: History,
        spaces: SharedSpaces,
        embedder: Embedder,
        count: Callable[[str], int],
        unwelcome: Callable[[str], bool],
    ) -> None:
        """`count`: tokens as they are stored (o200k); `unwelcome`: of a text that is not to be kept."""
        self._history = history
        self._spaces = spaces
        self._embedder = embedder
        self._count = count
        self._unwelcome = unwelcome

    async def say(self, call: Forwarded, exchange: Exchange) -> None:
        """Keep the turn's own words in the space that it names, once. Whoever has left meanwhile says nothing there. Raises
        StoreUnavailable: then all of the turn is kept later. Whatever else fails does not keep the turn from its user."""
        try:
            await self._say(call, exchange)
        except NotFound:
            log.warning("what was said to a space is not kept: its user has left it", extra={"call_id": str(call.id)})
        except StoreUnavailable:
            raise
        except Exception:  # boundary: the turn is its user's, whatever a space may take of it
            log.exception("what was said to a space is not kept", extra={"call_id": str(call.id)})

    async def _say(self, call: Forwarded, exchange: Exchange) -> None:
        identity = call.identity
        if identity.space is None or not exchange.learn or not exchange.shares:
            return
        owner = owner_of(identity.tenant_id, identity.space)
        session = said_session(identity.tenant_id, owner.id, exchange.session_id)
        assert session is not None, "the exchange has a session"
        texts = [
            each
            for said in exchange.said[spoken(exchange.said) :]
            if (each := _text(said)) and not self._unwelcome(each)
        ]
        if not texts:
            return
        vectors = await self._embedder.embed(texts) if self._embedder.local and self._embedder.dimensions else None
        messages = []
        for n, text in enumerate(texts):
            form = canonical({"role": "user", "content": text})
            vector = vectors[n] if vectors is not None and vectors[n].any() else None
            messages.append(
                NewMessage(
                    message_id=ids.message_id(session, n, str(call.id), text, call.at),
                    role="user",
                    content=text,
                    created_at=call.at,
                    token_count=self._count(text),
                    content_hash=content_hash(text),
                    message_hash=message_hash(form) if form is not None else None,
                    vector=vector,
                    terms=pack(text),
                )
            )
        noted = self._spaces.saying(
            identity.tenant_id,
            identity.user_id,
            identity.space,
            [each.message_id for each in messages],
            MESSAGE,
            session,
            call.at,
        )
        named = NewSession(external=said_in(exchange.session_id))
        await self._history.append(identity.tenant_id, owner, named, messages, within=noted)


def spoken(said: Sequence[NewTurnMessage]) -> int:
    """From which of the new messages on a turn says something new: those after its last answer."""
    roles = [each.message.get("role") for each in said]
    return max((n + 1 for n, role in enumerate(roles) if role == "assistant"), default=0)


def _text(said: NewTurnMessage) -> str:
    """What is kept of a message: without the words that say to whom."""
    if said.message.get("role") != "user":
        return ""
    text = storable(text_of(said.message)).strip()
    found = _ADDRESSED.match(text)
    return found["what"].strip() if found is not None else text
