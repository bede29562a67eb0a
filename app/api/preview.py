"""Compiling without sending: the same path as a request's, up to the bytes that would go upstream."""

from __future__ import annotations

from typing import Any

import orjson

from app.api.context import PreviewRequest
from app.clock import Clock
from app.context.audit import expand
from app.context.explaining import fill
from app.dialects.chat import CHAT
from app.dialects.splice import dump
from app.errors import BadBody
from app.gateway.identify import Identity, Switches
from app.gateway.prepare import Preparer
from app.gateway.upstream import Router
from app.store import ids
from app.store.texts import nested


class CompilePreviewer:
    """Compiles a request and shows what came of it; nothing is sent, stored or counted as used."""

    def __init__(self, preparer: Preparer, router: Router, clock: Clock, default_model: str) -> None:
        self._preparer = preparer
        self._router = router
        self._clock = clock
        self._default_model = default_model

    async def preview(self, request: PreviewRequest) -> dict[str, Any]:
        """{messages, session_id, tokens, …} and the explanation. Raises BadBody, NotFound, StoreUnavailable."""
        document: dict[str, Any] = {"model": request.model or self._default_model, "messages": list(request.messages)}
        if request.tools is not None:
            document["tools"] = list(request.tools)
        if request.max_tokens is not None:
            document["max_tokens"] = request.max_tokens
        body = dump(document)
        chat = CHAT.read(body, document)
        if chat is None:
            raise BadBody("`messages` must be a list of objects.", param="messages")
        session = request.session
        identity = Identity(
            tenant_id=request.tenant_id,
            user=request.user.external,
            user_id=request.user.id,
            confined=False,
            session=session,
            named=ids.session_id(request.tenant_id, request.user.id, session) if session is not None else None,
            issued=ids.issued(session) if session is not None else None,
            retry=0,
            idempotency_key=None,
        )
        now = self._clock.now()
        target = self._router.route(chat.model)
        place, inquiry = await self._preparer.find(identity, chat, Switches(), now)
        prepared = await self._preparer.compile(
            identity, chat, place, target, now, profile=request.profile, price=request.price, inquiry=inquiry
        )
        compiled = prepared.compilation
        assert compiled is not None, "a compile that did not raise has a result"
        stored = orjson.loads(orjson.dumps(compiled.audit, default=str))
        texts = {str(each.id): each.text for each in compiled.considered}
        explained = expand(stored, texts)
        fill(explained, compiled.claimed)
        return {
            "messages": [_writable(each) for each in orjson.loads(prepared.body)["messages"]],
            "session_id": str(place.session_id) if not place.new else None,
            "memories": compiled.memories,
            **explained,
        }


def _writable(message: dict[str, Any]) -> dict[str, Any]:
    """A message that is nested too deep is sent, but not shown."""
    return {"role": message.get("role"), "content": "(nested too deep to be shown)"} if nested(message) else message
