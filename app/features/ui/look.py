"""The first look: one message, answered with memory and without it, and what was added and why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson
from msgspec import Struct
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from app.api.auth import Principal
from app.features.ui import call_prompt as words
from app.features.ui.visit import WENT_WRONG, Entry, Refused, Visit, ask_within, scope_of
from app.gateway.turn import Application

GUEST = "guest"
"""Whose memory it is where the visitor names nobody, and the key neither."""
SHOWN = 8
"""Notes that are listed beside an answer; the page of the call has all."""
CHAT = "/v1/chat/completions"
MODELS = "/v1/models"

OnOff = Literal["on", "off"]


class LookAnswer(Struct, frozen=True):
    """One of the two answers. `call`: None where there is none to look at."""

    memory: OnOff
    text: str = ""
    problem: str | None = None
    call: str | None = None
    why: Mapping[str, Any] | None = None


class Look(Struct, frozen=True):
    """Asks the gateway as the visitor: the same pipeline, limits and records as under /v1."""

    gateway: Application
    default_model: str | None

    async def page(self, visit: Visit) -> Response:
        """POST /ui/look: both answers at once, for browsers without script."""
        body = await self._body(visit, stream=False)
        sides = await asyncio.gather(self._side(visit, body, "on"), self._side(visit, body, "off"))
        return visit.render("look.html", message=body["messages"][0]["content"], user=body["user"], sides=sides)

    async def answer(self, visit: Visit) -> Response:
        """POST /ui/look/answer: one of them, as the upstream streams it."""
        memory: OnOff = "off" if (await visit.form()).get("memory") == "off" else "on"
        try:
            body = await self._body(visit, stream=True)
        except Refused as refused:
            return JSONResponse({"error": {"message": refused.message}}, refused.status)
        return _Streamed(self.gateway, _scope(_who(visit), "POST", CHAT, body, memory), orjson.dumps(body))

    async def why(self, visit: Visit) -> Response:
        """POST /ui/look/why: what memory added to a call, as a part of the page."""
        call = str((await visit.form()).get("call", ""))
        return visit.render("look_why.html", call=call, why=await _why(visit, call))

    async def _body(self, visit: Visit, *, stream: bool) -> dict[str, Any]:
        """The request that the form asks for. Raises Refused."""
        given = await visit.form()
        message = str(given.get("message", "")).strip()
        if not message:
            raise Refused(400, "Write a message first.", "message")
        confined = _who(visit).user_external_id
        user = confined or str(given.get("user", "")).strip() or GUEST
        model = str(given.get("model", "")).strip() or self.default_model or await self._first_model(visit)
        return {"model": model, "user": user, "messages": [{"role": "user", "content": message}], "stream": stream}

    async def _first_model(self, visit: Visit) -> str:
        status, _, content = await ask_within(self.gateway, _scope(_who(visit), "GET", MODELS), b"")
        if status >= 300:
            raise Refused(status, f"The upstream did not say which models it has: {_problem(content)}")
        try:
            return str(orjson.loads(content)["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise Refused(502, "The upstream names no model: write the name of one.", "model") from error

    async def _side(self, visit: Visit, body: Mapping[str, Any], memory: OnOff) -> LookAnswer:
        status, headers, content = await ask_within(
            self.gateway, _scope(_who(visit), "POST", CHAT, body, memory), orjson.dumps(body)
        )
        call = headers.get("x-mneme-call-id")
        if status >= 300:
            return LookAnswer(memory, problem=_problem(content), call=call)
        try:
            text = str(orjson.loads(content)["choices"][0]["message"]["content"] or "")
        except (ValueError, LookupError, TypeError):
            return LookAnswer(memory, problem="The upstream's answer is no chat completion.", call=call)
        return LookAnswer(memory, text, None, call, await _why(visit, call) if call and memory == "on" else None)


class _Streamed(Response):
    """What the gateway answers, as it comes. Of its headers only those that the page reads: an upstream's cookie or policy is
    none of this site's."""

    def __init__(self, gateway: Application, asked: Scope, content: bytes) -> None:
        super().__init__()
        self._gateway, self._asked, self._content = gateway, asked, content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pending = [self._content]

        async def given() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            message = await receive()
            while message["type"] != "http.disconnect":
                message = await receive()
            return message

        async def ours(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [
                    (name, value)
                    for name, value in message["headers"]
                    if name.lower() == b"content-type" or name.lower().startswith(b"x-mneme-")
                ]
                message = {**message, "headers": kept}
            await send(message)

        await self._gateway(self._asked, given, ours)


def _who(visit: Visit) -> Principal:
    assert visit.principal is not None, "the site lets nobody else in"
    return visit.principal


def _scope(
    principal: Principal, method: str, path: str, body: Mapping[str, Any] | None = None, memory: OnOff = "on"
) -> Scope:
    headers = [(b"x-mneme-memory", memory.encode())]
    if body is not None:
        headers.append((b"content-type", b"application/json"))
        headers.append((b"content-length", str(len(orjson.dumps(body))).encode()))
    return scope_of(principal, method, path, headers)


def _problem(content: bytes) -> str:
    """An error in words."""
    try:
        return str(orjson.loads(content)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return WENT_WRONG


async def _why(visit: Visit, call: str) -> Mapping[str, Any]:
    """What was added, best first, with the reason of each. `refused`: why that cannot be told."""
    try:
        context = await visit.api.get("calls", call, "context")
    except Refused as refused:
        return {"refused": refused.message, "notes": (), "rest": 0, "tokens": 0}
    told = set(((context.get("sections") or {}).get("facts") or {}).get("memories") or ())
    items = [each for each in context.get("items") or () if each["chosen"] or each["id"] in told]
    items.sort(key=lambda each: -each["score"])
    return {
        "refused": None,
        "notes": [_note(each, each["id"] in told) for each in items[:SHOWN]],
        "rest": max(0, len(items) - SHOWN),
        "tokens": int(context.get("tokens") or 0),
    }


def _note(item: Mapping[str, Any], fact: bool) -> dict[str, Any]:
    """`signals`: what raised its score most, in words."""
    raised = sorted((pair for pair in item["signals"].items() if pair[1] > 0), key=lambda pair: -pair[1])
    return {
        "text": item.get("text") or "(forgotten since)",
        "score": item["score"],
        "how": "a fact of the user" if fact else words.reason(item["reason"]).name,
        "signals": [words.signal(name).name for name, _ in raised[:3]],
    }


def routes(gateway: Application, default_model: str | None) -> Sequence[Entry]:
    look = Look(gateway, default_model)
    return (
        Entry("/look", look.page, ("POST",)),
        Entry("/look/answer", look.answer, ("POST",)),
        Entry("/look/why", look.why, ("POST",)),
    )
