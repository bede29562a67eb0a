"""The gateway as an ASGI application, with a real or a stand-in store behind it and a scripted upstream inside the process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from app.api.auth import Principal
from app.capture.record import CAPTURE_MAX_BYTES, Recorder
from app.clock import Clock, SystemClock
from app.context.budget import Budgets
from app.context.compile import Compiler
from app.context.retrieve import Retriever
from app.context.score import PROFILES, Profile
from app.features.cards.keeper import CardReader
from app.features.cards.store import Cards
from app.features.knowledge.inquiry import Knower
from app.features.limits import KeysHeld
from app.features.limits.limiter import Limiter
from app.features.paging.pager import PagingAddon
from app.features.spool import CallsKept
from app.features.spool.keeper import SpoolKeeper
from app.features.spool.spool import open_spool
from app.gateway.finalize import Accountant
from app.gateway.forward import BREAKER_FAILURES, RetryPolicy, Sender
from app.gateway.headers import Headers, Redactor
from app.gateway.model_discovery import ModelDiscovery
from app.gateway.prepare import Preparer
from app.gateway.turn import Gateway
from app.gateway.upstream import Router, Target, UpstreamRequest, UpstreamResponse
from app.metrics import Metrics
from app.providers.embeddings import Embedder, NoEmbedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.pools import POOL_WAIT_MS
from app.store.turns import TurnStore
from app.tasks import Supervisor
from tests.support.indexes import indexes_of
from tests.support.sockets import eventually

Message = dict[str, Any]
TOKENIZERS = Tokenizers()
UPSTREAM = "http://upstream.test/v1"


def user(text: str, **more: Any) -> Message:
    return {"role": "user", "content": text, **more}


def assistant(text: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


# --- the upstream -----------------------------------------------------------------------------------------------------


@dataclass
class Reply:
    """An answer: its head, and its body in chunks. An exception among the chunks is raised where it stands; an event is
    waited for."""

    status: int = 200
    headers: Headers = field(default_factory=lambda: [(b"content-type", b"application/json")])
    chunks: Sequence[bytes | Exception | asyncio.Event] = ()
    bodyless: bool = False


def completion(*texts: str | None, **more: Any) -> Reply:
    """A chat completion in one piece, a choice for each text; `more` goes into each message."""
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": text, **more},
            "finish_reason": "tool_calls" if more.get("tool_calls") else "stop",
        }
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
    body = json.dumps({"id": "c1", "model": "gpt-4o", "choices": choices, "usage": usage}).encode()
    return Reply(chunks=[body])


def stream(*pieces: str, done: bool = True, finish: str | None = "stop", end: Sequence[Any] = ()) -> Reply:
    """The same as a stream of events, a chunk each; `end` comes after them."""
    deltas: list[dict[str, Any]] = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    deltas += [{"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    if finish is not None:
        deltas.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [b"data: " + json.dumps({"model": "gpt-4o", "choices": [each]}).encode() + b"\n\n" for each in deltas]
    tail = [b"data: [DONE]\n\n"] if done else []
    return Reply(headers=[(b"content-type", b"text/event-stream")], chunks=[*events, *end, *tail])


def error(status: int, message: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()
    return Reply(status, [(b"content-type", b"application/json"), *headers], [body])


Script = Callable[[Message], Reply | Exception]


def echo(asked: Message) -> Reply:
    """Answers what was asked last, whatever memory stands before it."""
    content = next(each["content"] for each in reversed(asked["messages"]) if each["role"] in ("user", "tool"))
    if isinstance(content, list):
        content = content[-1].get("text", "a picture")
    text = "You said: " + str(content).rsplit("\n", 1)[-1]
    return stream(text[:5], text[5:]) if asked.get("stream") else completion(text)


class ScriptedTransport:
    """Answers by a script; notes what it was sent."""

    def __init__(self, script: Script = echo) -> None:
        self.script = script
        self.requests: list[UpstreamRequest] = []
        self.closed = 0

    @property
    def asked(self) -> list[Message]:
        """The bodies of the requests."""
        return [json.loads(each.body) for each in self.requests if isinstance(each.body, bytes) and each.body]

    @property
    def sent(self) -> list[bytes]:
        return [each.body for each in self.requests if isinstance(each.body, bytes)]

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        body = request.body
        if not isinstance(body, bytes):
            request.body = body = b"".join([chunk async for chunk in body])
        self.requests.append(request)
        made = self.script(_parsed(body))
        if isinstance(made, Exception):
            raise made

        async def close() -> None:
            self.closed += 1

        return UpstreamResponse(made.status, "", list(made.headers), _chunks(made), close, made.bodyless)

    async def aclose(self) -> None:
        return None


def _parsed(body: bytes) -> Message:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


async def _chunks(reply: Reply) -> AsyncIterator[bytes]:
    for chunk in reply.chunks:
        if isinstance(chunk, Exception):
            raise chunk
        if isinstance(chunk, asyncio.Event):
            await chunk.wait()
        else:
            yield chunk


# --- the gateway ------------------------------------------------------------------------------------------------------


@dataclass
class Caller:
    """Lets everybody in as one principal."""

    principal: Principal = field(default_factory=lambda: Principal(LOCAL_TENANT, None, None, frozenset(), "open"))

    async def check(self, headers: Mapping[str, str]) -> Principal:
        return self.principal


class NoScout(ModelDiscovery):
    def __init__(self) -> None:
        self.noticed: list[str] = []

    def notice(self, target: Target, headers: Callable[[], Headers]) -> None:
        self.noticed.append(target.name)


@dataclass
class Answer:
    """What the client got. `whole`: the answer ended as it should."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def session(self) -> str | None:
        return self.headers.get("x-mneme-session-id")

    @property
    def text(self) -> str:
        """The answer's first choice."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            parts = [json.loads(line[6:]) for line in self.body.split(b"\n\n") if line[6:7] == b"{"]
            return "".join(part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"])
        text: str = self.json()["choices"][0]["message"]["content"]
        return text


class Client:
    """One request on an ASGI application."""

    def __init__(self, app: Gateway) -> None:
        self.app = app
        self.gone = asyncio.Event()
        """Set it, and the client goes away."""
        self.parts: list[bytes] = []
        self.on_part: Callable[[], object] | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        query: bytes = b"",
        raw_path: bytes | None = None,
    ) -> Answer:
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        state: dict[str, Any] = {"status": 0, "headers": {}, "whole": False}
        ended = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop(0)
            waits = [asyncio.ensure_future(each.wait()) for each in (self.gone, ended)]  # noqa: TID251 - a test's own
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if self.gone.is_set():
                raise OSError("the client is gone")
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                state["headers"] = {k.decode().lower(): v.decode("latin-1") for k, v in message["headers"]}
                return
            self.parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                state["whole"] = True
                ended.set()
            if self.on_part is not None:
                self.on_part()

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": raw_path if raw_path is not None else path.encode(),
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        }
        try:
            await self.app(scope, receive, send)
        finally:
            ended.set()
        return Answer(state["status"], state["headers"], b"".join(self.parts), state["whole"])


@dataclass
class Journey:
    """A gateway and what stands around it."""

    gateway: Gateway
    upstream: ScriptedTransport
    tasks: Supervisor
    caller: Caller
    discovery: NoScout
    registry: CollectorRegistry
    settings: Settings
    metrics: Metrics
    keeper: SpoolKeeper | None = None
    """Where the journey has a spool."""
    addon: PagingAddon | None = None

    async def ask(
        self, messages: Sequence[Message], *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Answer:
        """A chat request, as the OpenAI SDK would send it."""
        document = {"model": "gpt-4o", "messages": list(messages), **fields}
        return await self.post(json.dumps(document).encode(), headers=headers)

    async def post(
        self, body: bytes, *, headers: Mapping[str, str] | None = None, path: str = "/v1/chat/completions"
    ) -> Answer:
        given = {"content-type": "application/json", **(headers or {})}
        return await Client(self.gateway).request("POST", path, body, list(given.items()))

    async def settled(self) -> None:
        """Everything in the background has ended."""
        await eventually(lambda: not len(self.tasks))

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def build_journey(
    store: Any,
    *,
    embedder: Embedder | None = None,
    settings: Settings | None = None,
    script: Script = echo,
    recorder: Any = None,
    preparer: Any = None,
    clock: Clock | None = None,
    ledger: Any = None,
    spool: Path | None = None,
    profiles: Mapping[str, Profile] = PROFILES,
    authenticator: Any = None,
    knower: Knower | None = None,
    cards: Cards | None = None,
    pager: Any = None,
    answers: Any = None,
    retry: RetryPolicy | None = None,
    breaker_failures: int = BREAKER_FAILURES,
    capture_max_bytes: int = CAPTURE_MAX_BYTES,
    patience_s: float = POOL_WAIT_MS / 1000,
    budgets: Budgets | None = None,
    questions: int = 1,
) -> Journey:
    """Return a gateway on `store` (a `TurnStore`, or what stands in for it).

    `spool`: the folder of its spool. `retry` to `questions`: what is constant in a server.
    """
    settings = settings or Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=5000)
    embedder = embedder or NoEmbedder()
    upstream, tasks, caller, discovery = ScriptedTransport(script), Supervisor(), Caller(), NoScout()
    models = ModelRegistry(
        windows=settings.model_windows,
        prices=settings.model_prices,
    )
    counts, registry = CountCache(), CollectorRegistry()
    metrics, clock = Metrics(registry), clock or SystemClock()
    (refusals,) = KeysHeld(settings).own_metrics(registry)
    compiler = Compiler(
        Retriever(
            store,
            embedder,
            str.__len__,
            indexes_of(store._pool if isinstance(store, TurnStore) else store, embedder.dimensions),
        ),
        models,
        TOKENIZERS,
        counts,
        nonce_key=lambda: b"a test's secret",
        memory_cap=settings.memory_budget_tokens,
        profiles=profiles,
        budgets=budgets or Budgets(history=settings.history_budget_tokens),
        questions=questions,
        price=settings.price,
    )
    keeper, redactor = None, Redactor(settings.redact_paths, settings.redact_headers)
    if spool is not None:
        opened = open_spool(spool, settings.spool_max_bytes)
        keeper = SpoolKeeper(opened, *CallsKept(settings).own_metrics(registry), tasks=tasks, redactor=redactor)
    addon = None
    if pager is not None:
        addon = PagingAddon(pager, answers, settings=settings, metrics=metrics, clock=clock, tasks=tasks)
    router = Router.from_settings(settings)
    gateway = Gateway(
        authenticator=authenticator or caller,
        router=router,
        sender=Sender(
            {False: upstream, True: upstream},
            router,
            metrics,
            clock,
            retry=retry or RetryPolicy(settings.upstream_attempts),
            breaker_failures=breaker_failures,
        ),
        preparer=preparer or Preparer(store, compiler, knower, CardReader(cards, tasks) if cards is not None else None),
        recorder=recorder or Recorder(store, embedder, counts, TOKENIZERS.for_model("gpt-4o")),
        accountant=Accountant(models, TOKENIZERS, counts, timedelta(days=90), redactor),
        discovery=discovery,
        limiter=Limiter(
            ledger, models, metrics=metrics, refusals=refusals, clock=clock, tasks=tasks, patience_s=patience_s
        ),
        metrics=metrics,
        settings=settings,
        clock=clock,
        tasks=tasks,
        keeper=keeper,
        addon=addon,
        capture_max_bytes=capture_max_bytes,
    )
    return Journey(gateway, upstream, tasks, caller, discovery, registry, settings, metrics, keeper, addon)
