"""POST /api/v1/chat: one turn, answered by a model, with all that memory had to do with it (seed 004).

It asks Mneme's own gateway from within (`Caller`), says what was in the prompt, and looks for what the worker learned from the
turn (`LearnedTurns`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from app.api.common import ErrorBody, Model, SessionName, Text, UserName, Word
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.context.audit import expand, fill
from app.context.candidates import Candidate
from app.context.question import at_home, query_type, understand
from app.errors import BadBody, StoreUnavailable, UpstreamError
from app.features import Process
from app.gateway.call import Incoming, Remembered
from app.gateway.relay import ClientGone, Message
from app.gateway.turn import OBSERVER, Application
from app.settings import Settings
from app.store.kinds import KINDS, MemoryType
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLES

log = logging.getLogger("mneme.chat")

# --- what a turn taught --------------------------------------------------------------------------------------------------


class TurnMessages(NamedTuple):
    """The messages of a turn, in order; `question`: the user's own, None where there is none."""

    messages: tuple[UUID, ...]
    question: UUID | None


class MadeMemory(NamedTuple):
    memory_id: UUID
    kind: str
    text: str
    confidence: float


class Made(NamedTuple):
    """All that a turn gave. `event_type`: of its episode (seed 004, layer 3); None: it has none."""

    event_type: str | None
    memories: tuple[MadeMemory, ...]


class LearnedTurns:
    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def said(
        self, tenant: UUID, user: UUID, session: UUID, call: UUID, since: datetime, until: datetime
    ) -> TurnMessages | None:
        """The messages that a call added to its session; None: none. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["chat.said"], user, session, call, since, until)
        if not rows:
            return None
        question = next((row["message_id"] for row in rows if row["role"] == ROLES["user"]), None)
        return TurnMessages(tuple(row["message_id"] for row in rows), question)

    async def done(self, tenant: UUID, user: UUID, said: TurnMessages) -> bool:
        """Whether the job that learns from these messages has had its effect. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            found: bool = await connection.fetchval(self._sql["chat.learned"], user, f"learn:{said.messages[0]}")
        return found

    async def made(self, tenant: UUID, user: UUID, said: TurnMessages, since: datetime) -> Made:
        """What was learned from these messages, said at `since`. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            event = await connection.fetchval(self._sql["chat.episode"], user, said.question)
            rows = await connection.fetch(self._sql["chat.made"], user, list(said.messages), since)
        return Made(event, tuple(MadeMemory(*row.values()) for row in rows))


# --- the answer, from a call's explanation (seed 004, stage 7) -----------------------------------------------------------

Learning = Literal["done", "pending", "off"]
MEMORY_TYPES: Mapping[str, MemoryType] = {
    **{kind: each.type for kind, each in KINDS.items()},
    **dict.fromkeys(("turn", "message", "passage"), "episodic"),
}
"""What was said word for word is an episode."""
SUMMARY_CHARS = 200
"""Characters of a question that the summary of its episode quotes."""
_SAID = {
    "question": "User asked",
    "request": "User requested",
    "statement": "User stated",
    "correction": "User corrected",
    "confirmation": "User confirmed",
}


class Answer(BaseModel):
    content: str | None = Field(description="Null where the model gave no text.")
    role: str


class Retrieved(BaseModel):
    """A memory in the prompt. `relevance_score`: its part of the best score, 0..1. `confidence`: of what was learned; raw turns
    have none."""

    memory_id: str = Field(description="`semantic:<id>`, `episodic:<id>` (of a turn: of its message) …")
    memory_type: MemoryType
    summary: str
    relevance_score: float
    confidence: float | None = None
    created_at: datetime


class Queried(BaseModel):
    """A query of the business's own database. `error`: why there is no answer."""

    query_type: str
    entity: str
    filters: dict[str, Any]
    result_count: int
    error: str | None = None


class Augmentation(BaseModel):
    retrieved_memories: list[Retrieved]
    domain_queries: list[Queried]


class Created(BaseModel):
    memory_id: str
    memory_type: MemoryType
    summary: str


class Meant(BaseModel):
    canonical_id: str
    canonical_name: str
    confidence: float


class ResolvedOut(BaseModel):
    """What a mention means. With `requires_disambiguation` it is one of `alternatives`, and nobody knows which."""

    mention: str
    canonical_id: str | None
    canonical_name: str | None
    confidence: float
    method: str | None
    requires_disambiguation: bool | None = None
    alternatives: list[Meant] | None = None


class ChatMetadata(BaseModel):
    """`learning`: whether `memories_created` is all there is (done), the worker is not there yet (pending), or nothing is
    learned from this call (off). `reason`: why memory was not whole, as `x-mneme-reason` has it."""

    processing_time_ms: int = Field(description="Until the answer was there and stored.")
    retrieval_count: int
    extraction_count: int
    llm_model: str
    query_type: str
    call_id: UUID
    session_id: UUID | None
    learning: Learning
    status: str
    reason: str | None


class ChatOut(BaseModel):
    """The answer with its explanation. `conflicts`: as `GET /api/v1/calls/{id}/context` has them; null: none."""

    response: Answer
    augmentation: Augmentation
    memories_created: list[Created]
    entities_resolved: list[ResolvedOut]
    conflicts: list[dict[str, Any]] | None
    metadata: ChatMetadata


def retrieved(explained: Mapping[str, Any], considered: Iterable[Candidate]) -> list[dict[str, Any]]:
    """The memories in the prompt, as quotations or as facts about the user, best first; `explained` as `audit.expand`
    makes it."""
    known = {(str(each.id), each.span): each for each in considered}
    facts = (explained.get("sections") or {}).get("facts") or {}
    told = {str(each) for each in facts.get("memories") or () if each is not None}
    chosen = [each for each in explained.get("items") or () if each["chosen"] or each["id"] in told]
    best = max([1.0, *(each["score"] for each in chosen)])  # weights need not sum to 1
    shown = []
    for item in chosen:
        candidate = known.get((item["id"], _span(item)))
        if candidate is None:
            continue
        kind = MEMORY_TYPES[candidate.kind]
        own: dict[str, Any] = {
            "memory_id": f"{kind}:{item['id']}",
            "memory_type": kind,
            "summary": candidate.text,
            "relevance_score": round(min(max(item["score"] / best, 0.0), 1.0), 4),
            "created_at": candidate.created_at,
        }
        if candidate.source == "memory":
            own["confidence"] = round(candidate.confidence, 4)
        shown.append(own)
    return sorted(shown, key=lambda each: -each["relevance_score"])


def _span(item: Mapping[str, Any]) -> tuple[int, int] | None:
    span = item["provenance"][0].get("span") if item["provenance"] else None
    return (span[0], span[1]) if span is not None else None


def domain_queries(explained: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("query_type", "entity", "filters", "result_count")
    return [
        {name: each[name] for name in names} | ({"error": each["error"]} if each.get("error") else {})
        for each in (explained.get("domain") or {}).get("queries") or ()
    ]


def entities_resolved(explained: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the mentions mean; of those that may mean several things, which."""
    shown = []
    for each in explained.get("entities") or ():
        unsure = each.get("requires_disambiguation")
        if each["canonical_id"] is None and not unsure:
            continue
        told = {name: each[name] for name in ("mention", "canonical_id", "canonical_name", "confidence", "method")}
        if unsure:
            told |= {"requires_disambiguation": True, "alternatives": each["alternatives"]}
        shown.append(told)
    return shown


def memories_created(message: str, said: TurnMessages | None, made: Made | None) -> list[dict[str, Any]]:
    """What was learned from a turn: its episode, and the memories that it gave."""
    if said is None or made is None:
        return []
    created = []
    if made.event_type is not None and said.question is not None:
        words = " ".join(message.split())
        quoted = words if len(words) <= SUMMARY_CHARS else words[:SUMMARY_CHARS] + "…"
        summary = f"{_SAID.get(made.event_type, 'User said')}: {quoted}"
        created.append(_created("episodic", said.question, summary))
    return created + [_created(MEMORY_TYPES[each.kind], each.memory_id, each.text) for each in made.memories]


def _created(kind: MemoryType, identity: UUID, summary: str) -> dict[str, Any]:
    return {"memory_id": f"{kind}:{identity}", "memory_type": kind, "summary": summary}


def first_choice(document: object) -> tuple[dict[str, Any], str] | None:
    """(content and role, model) of a chat completion; None where it is none."""
    if not isinstance(document, Mapping):
        return None
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(message, Mapping):
        return None
    content, role, model = message.get("content"), message.get("role"), document.get("model")
    if not isinstance(content, str):
        content = message.get("refusal") if isinstance(message.get("refusal"), str) else None
    return (
        {"content": content, "role": role if isinstance(role, str) else "assistant"},
        model if isinstance(model, str) else "",
    )


# --- Mneme's own gateway, asked from within: the pipeline of /v1, without a socket ---------------------------------------

Headers = list[tuple[bytes, bytes]]
_OWN_FRAMING = frozenset({b"content-length", b"content-type", b"transfer-encoding", b"accept-encoding", b"expect"})
"""Headers that speak of the outer request's body, or of how its answer is to come."""


class Answered(NamedTuple):
    """What came back. `whole`: the answer came to its end. `call`: None where the gateway refused it, or passed it on."""

    status: int
    headers: Headers
    body: bytes
    whole: bool
    call: Remembered | None


class Caller:
    """Whoever asked, and whether they are still there."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.gone = asyncio.Event()

    def headers(self, without: Iterable[bytes] = ()) -> Headers:
        """The caller's headers for a request of Mneme's own: the key and all that it says to Mneme."""
        leave = _OWN_FRAMING.union(without)
        return [(name, value) for name, value in self._request.headers.raw if name.lower() not in leave]

    async def ask(self, gateway: Application, method: str, path: str, headers: Headers, body: bytes = b"") -> Answered:
        """One request; when the caller goes away, it ends as one that came from outside would."""
        stages: list[Incoming] = []
        started: dict[str, Any] = {}
        parts: list[bytes] = []
        asked, whole = False, False

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            message = await self._request.receive()
            while message["type"] != "http.disconnect":
                message = await self._request.receive()
            self.gone.set()
            return message

        async def send(message: Message) -> None:
            nonlocal whole
            if message["type"] == "http.response.start":
                started.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                whole = not message.get("more_body", False)

        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())] if body else []
        scope = dict(self._request.scope) | {
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "headers": [*headers, *own],
            OBSERVER: stages.append,
        }
        await gateway(scope, receive, send)
        return Answered(
            started.get("status", 0),
            list(started.get("headers", ())),
            b"".join(parts),
            whole,
            stages[-1] if stages and isinstance(stages[-1], Remembered) else None,
        )


# --- the route -----------------------------------------------------------------------------------------------------------

MODEL_LIFE_S = 300.0
"""Seconds for which the upstream's first model is remembered: it may be restarted with another."""
MODELS_KEPT = 1000
"""Callers for whom it is."""
MAX_TOLD = 1000
"""Bytes of an error that is no JSON which are told again."""
LOOK_S, MOST_LOOK_S = 0.02, 0.25
"""Seconds between two looks whether a turn was learned from: at first as long as the rules take, then twice as long again."""
CLOCKS_APART = timedelta(minutes=1)
"""How far the database's messages may lie behind this server's clock."""
_SHOWN = (b"x-mneme-", b"x-ratelimit-", b"retry-after")
"""Headers of the call's answer that go with this one."""
_NAMED = (b"x-mneme-user", b"x-mneme-session")


class ChatIn(Model):
    """One message of a user's. The conversation is Mneme's to keep: the session supplies what was said before."""

    message: Annotated[Text, Field(min_length=1)]
    user_id: UserName | None = Field(None, description="Your own name of the user; also `user`, or X-Mneme-User.")
    user: UserName | None = None
    session_id: SessionName | None = Field(
        None, description="Your own name of a session, or Mneme's id of it; unset: a new one."
    )
    model: Word | None = Field(None, description="Unset: MNEME_DEFAULT_MODEL, else the upstream's first.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    stream: bool = Field(False, description="Not here: the explanation comes with the whole answer.")
    metadata: dict[str, Any] | None = Field(None, description="Goes with the request, as on /v1/chat/completions.")
    wait: bool = Field(True, description="For what is learned from this turn, at most two seconds.")


LEARN_WAIT_MS = 2000
"""Milliseconds that POST /api/v1/chat waits for what the worker learns from its turn, to list it: the rules take some 100, most
of it the worker's poll; a helper LLM may take longer than a caller would wait."""


def chat_router(
    gate: Gate,
    gateway: Application,
    learned: LearnedTurns,
    clock: Clock,
    *,
    default_model: str | None,
    learn_wait_ms: int = LEARN_WAIT_MS,
) -> APIRouter:
    routes = _Routes(gateway, learned, clock, default_model, learn_wait_ms / 1000)
    router = gate.router("chat")
    router.add_api_route(
        "/chat",
        routes.chat,
        methods=["POST"],
        response_model=ChatOut,
        response_model_exclude_unset=True,
        responses={"5XX": {"model": ErrorBody, "description": "As the upstream, or Mneme, refused the call."}},
    )
    return router


class _Routes:
    def __init__(
        self, gateway: Application, learned: LearnedTurns, clock: Clock, default_model: str | None, wait_s: float
    ) -> None:
        self._gateway = gateway
        self._learned = learned
        self._clock = clock
        self._default_model = default_model
        self._wait_s = wait_s
        self._models: dict[tuple[UUID, bytes], tuple[str, float]] = {}

    async def chat(self, scope: Admitted, request: Request, response: Response, body: ChatIn) -> Any:
        """Answer a message, and say how: what of memory and of the business's own database was in the prompt, and what was
        learned. It is the call that /v1/chat/completions makes, under the same key, limits and switches."""
        began = time.perf_counter()
        if body.stream:
            raise BadBody(
                "This route answers in one piece; /v1/chat/completions streams, and /api/v1/calls/{id}/context explains it.",
                param="stream",
            )
        if body.user_id is not None and body.user is not None and body.user_id != body.user:
            raise BadBody("user_id and user name two users.", param="user_id")
        user = scope.user(*(each for each in (body.user_id, body.user) if each is not None))
        caller = Caller(request)
        headers = caller.headers(_NAMED if body.session_id is not None else _NAMED[:1])
        headers.append((b"x-mneme-user", _header(user.external, "user_id")))
        if body.session_id is not None:
            headers.append((b"x-mneme-session", _header(body.session_id, "session_id")))
        asked = await self._request(caller, headers, scope.tenant, body)
        answered = await caller.ask(self._gateway, "POST", "/v1/chat/completions", headers, orjson.dumps(asked))
        if not 200 <= answered.status < 300:
            return _refused(answered)
        took_ms = int((time.perf_counter() - began) * 1000)
        choice = first_choice(_json(answered.body)) if answered.whole else None
        if choice is None or answered.call is None:
            raise UpstreamError("The upstream's answer broke off, or is no chat completion.", code="upstream_answer")
        said, made, learning = await self._learned_from(caller, answered.call, waits=body.wait)
        for name, value in _shown(answered.headers):
            response.headers[name] = value
        created = memories_created(body.message, said, made)
        explained = _explained(answered.call, choice, created)
        return explained | {
            "metadata": {"retrieval_count": len(explained["augmentation"]["retrieved_memories"])}
            | _metadata(answered.call, body.message, choice[1] or asked["model"])
            | {"processing_time_ms": took_ms, "learning": learning, "extraction_count": len(created)}
        }

    async def _request(self, caller: Caller, headers: Headers, tenant: UUID, body: ChatIn) -> dict[str, Any]:
        model = body.model or self._default_model or await self._first_model(caller, headers, tenant)
        given = body.model_dump(include={"temperature", "max_tokens", "metadata"}, exclude_none=True)
        return {"model": model, "messages": [{"role": "user", "content": body.message}], **given}

    async def _first_model(self, caller: Caller, headers: Headers, tenant: UUID) -> str:
        """The upstream's first, as this caller may see it. Raises BadBody where it names none."""
        key = (tenant, dict(headers).get(b"authorization", b""))
        found, until = self._models.get(key, ("", 0.0))
        if time.monotonic() < until:
            return found
        unseen = [*headers, (b"x-mneme-capture", b"off")] if b"x-mneme-capture" not in dict(headers) else headers
        answered = await caller.ask(self._gateway, "GET", "/v1/models", unseen)
        listed = _json(answered.body) if answered.status == 200 else None
        entries = listed.get("data") if isinstance(listed, dict) else None
        first = entries[0] if isinstance(entries, list) and entries else None
        model = first.get("id") if isinstance(first, dict) else None
        if not isinstance(model, str) or not model:
            raise BadBody(
                "Say which model: MNEME_DEFAULT_MODEL is not set, and the upstream names none.", param="model"
            )
        if len(self._models) >= MODELS_KEPT:
            self._models.clear()
        self._models[key] = (model, time.monotonic() + MODEL_LIFE_S)
        return model

    async def _learned_from(
        self, caller: Caller, call: Remembered, *, waits: bool
    ) -> tuple[TurnMessages | None, Made | None, Learning]:
        """What the worker made of the turn, if it does so in time."""
        session, owner = call.session_id, call.identity
        if call.switches.memory != "on" or session is None or call.answered_before:
            return None, None, "off"
        until = time.monotonic() + (self._wait_s if waits else 0.0)
        pause = LOOK_S
        try:
            latest = self._clock.now() + CLOCKS_APART
            said = await self._learned.said(owner.tenant_id, owner.user_id, session, call.id, call.at, latest)
            while said is not None:
                if await self._learned.done(owner.tenant_id, owner.user_id, said):
                    return said, await self._learned.made(owner.tenant_id, owner.user_id, said, call.at), "done"
                if time.monotonic() + pause > until or caller.gone.is_set():
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(caller.gone.wait(), pause)
                pause = min(2 * pause, MOST_LOOK_S)
        except StoreUnavailable:
            log.info("nobody can say what was learned", extra={"call_id": str(call.id)})
        return None, None, "pending"


def _explained(call: Remembered, choice: tuple[dict[str, Any], str], created: list[dict[str, Any]]) -> dict[str, Any]:
    """All but the metadata."""
    compiled = call.prepared.compilation if call.prepared is not None else None
    explained: dict[str, Any] = {}
    if compiled is not None:
        explained = expand(orjson.loads(orjson.dumps(compiled.audit, default=str)))
        fill(explained, compiled.claimed)
    return {
        "response": choice[0],
        "augmentation": {
            "retrieved_memories": retrieved(explained, compiled.considered if compiled is not None else ()),
            "domain_queries": domain_queries(explained),
        },
        "memories_created": created,
        "entities_resolved": entities_resolved(explained),
        "conflicts": explained.get("conflicts") or None,
    }


def _metadata(call: Remembered, message: str, model: str) -> dict[str, Any]:
    compiled = call.prepared.compilation if call.prepared is not None else None
    told = compiled.audit.get("query") if compiled is not None else None
    if told is None:
        now = at_home(call.at, call.place.standing) if call.place is not None else call.at
        told = query_type(understand(message, now))._asdict()
    return {
        "llm_model": model,
        "query_type": told["strategy"],
        "call_id": call.id,
        "session_id": call.session_id,
        "status": call.status,
        "reason": call.reason,
    }


def _refused(answered: Answered) -> Response:
    """The error of the upstream or of the gateway, as it is; one that is none of OpenAI's in their shape. Raises ClientGone."""
    if not answered.status:
        raise ClientGone
    document = _json(answered.body)
    body = answered.body
    if not isinstance(document, dict) or not isinstance(document.get("error"), dict):
        told = body[:MAX_TOLD].decode(errors="replace") or f"The upstream answered {answered.status}."
        body = orjson.dumps(
            {"error": {"message": told, "type": UpstreamError.type, "param": None, "code": "upstream_answer"}}
        )
    status = answered.status if answered.status >= 400 else UpstreamError.status  # a redirect is no answer
    return Response(body, status, dict(_shown(answered.headers)), "application/json")


def _shown(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name.startswith(_SHOWN)]


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def _header(name: str, param: str) -> bytes:
    """A name as a header has it. Raises BadBody where a header would make another of it."""
    if name != name.strip():
        raise BadBody("A name must not begin or end with white space.", param=param)
    return name.encode()


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    assert process.path is not None, "a server with routes has one"
    learned = LearnedTurns(process.pool, process.queries)
    return (
        chat_router(
            gate,
            process.path.gateway,
            learned,
            process.clock,
            default_model=settings.default_model,
        ),
    )
