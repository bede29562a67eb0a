"""The paging of a captured call, done again: what was decided then, on the objects of now. Nothing is decided anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from app.context.assemble import session_nonce
from app.dialects.base import ChatRequest
from app.features.paging.explanation import RecordedDecision, read
from app.features.paging.ledger import HiddenLegs, keys_of
from app.features.paging.pager import with_texts
from app.features.paging.prompt import Renderings, costs_of, draw, messages_at, places, sheet
from app.features.paging.store import PagingStore
from app.features.paging.tools import ToolInsertion, offer
from app.gateway.addon import PartAgain
from app.providers.tokens import CountCache, Tokenizers


class RecordedPager:
    """Pages captured calls again."""

    def __init__(
        self, store: PagingStore, tokenizers: Tokenizers, counts: CountCache, *, nonce_key: Callable[[], bytes]
    ) -> None:
        self._store = store
        self._tokenizers = tokenizers
        self._counts = counts
        self._nonce_key = nonce_key

    async def again(
        self, tenant: UUID, user: UUID, session: UUID, chat: ChatRequest, model: str, part: Mapping[str, Any]
    ) -> PartAgain:
        """`part`: the `paging` part of the call's explanation. Raises StoreUnavailable."""
        then = read(part)
        counter = self._tokenizers.for_model(model)
        keys = keys_of(chat.transcript)
        wanted = {key: at for key, at in keys.items() if at in then.exchanges}
        state = await self._store.read(tenant, user, session, chains=list(wanted))
        objects = [replace(each, fidelity=then.shown[each.id]) for each in state.objects if each.id in then.shown]
        objects = await with_texts(self._store, tenant, user, objects)
        hidden = {
            wanted[key]: _as_told(HiddenLegs.of_json(row), then, wanted[key]) for key, row in state.hidden.items()
        }
        where = places(messages_at(chat.transcript), objects)
        page = sheet(chat, costs_of(chat, counter, self._counts), objects, where, hidden, 0, counter, self._counts)
        nonce = session_nonce(self._nonce_key(), session)
        drawn = draw(page, page.objects, nonce, Renderings(), counter, self._counts)
        insertions = list(drawn.insertions)
        schemas: list[object] = []
        if then.tools and isinstance(made := offer(chat), ToolInsertion):
            insertions += made.insertions
            schemas = [made.tools]
        return PartAgain(insertions, drawn.costs, schemas, _lost(then, len(page.objects), len(hidden)))


def _as_told(hidden: HiddenLegs, then: RecordedDecision, at: int) -> HiddenLegs:
    """The exchange as it stood then: calls beside the client's own may have been answered since."""
    return hidden if then.exchanges[at] else replace(hidden, told=None)


def _lost(then: RecordedDecision, objects: int, exchanges: int) -> list[str]:
    told = []
    if objects < len(then.shown):
        told.append(f"Of the objects that were shown shorter {len(then.shown) - objects} are not stored any more.")
    if exchanges < len(then.exchanges):
        told.append(
            f"Of its exchanges with the memory tools {len(then.exchanges) - exchanges} are not stored any more."
        )
    return told
