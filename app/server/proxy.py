"""The path of a request, wired: from the authenticator to the recorder, with the spool and the drain beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace

from app.api.auth import Authenticator, SealedKeys, sealed_keys
from app.capture.commit import GroupCommit
from app.capture.record import CAPTURE_MAX_BYTES, Recorder
from app.context.budget import Budgets
from app.context.compile import Compiler
from app.context.request import CompileRequest
from app.context.resolution import Knows
from app.context.retrieve import Retriever, Scope
from app.context.score import PROFILES, STRATEGY_WEIGHTS, Profile, strategies
from app.context.transcript import Transcript, chain, tail_hash
from app.errors import NotReady, StoreUnavailable
from app.features import CallPath
from app.gateway.call import Admits, Keeper
from app.gateway.dialects.chat import CHAT
from app.gateway.finalize import Accountant
from app.gateway.forward import RetryPolicy, Sender
from app.gateway.headers import Redactor
from app.gateway.model_discovery import ModelDiscovery
from app.gateway.prepare import Obeys, Preparer
from app.gateway.sharing import Sharer
from app.gateway.transport import AiohttpTransport
from app.gateway.turn import Application, Gateway
from app.gateway.upstream import Router, Transport
from app.index.indexes import Indexes
from app.jobs.learn import Inline
from app.languages import heard
from app.memory.candidate import SourceExchange, guessed
from app.memory.commands import commands
from app.memory.compare import contrast
from app.memory.extract import extract
from app.memory.secrets import unwelcome
from app.metrics import Metrics
from app.optional import imported, needed
from app.providers.tokens import STORED_COUNTS
from app.server.core import WARM_CONNECTIONS, Core, hear_of_erasures, learner, process_of
from app.server.rehearsal import rehearse_recording
from app.store.history import History
from app.store.indexed import IndexStore
from app.store.pools import NoPool, Pools
from app.store.sessions import SESSION_TTL, Sessions
from app.store.spaces import SharedSpaces
from app.store.tenancy import Tenancy
from app.store.tuning import check_parameters
from app.store.turns import TurnStore
from app.store.validation import Validation
from app.tasks import CLOSING_S

if TYPE_CHECKING:
    from app.features import Features

_VECTOR_SHARE = 0.6
"""Share of MNEME_RETRIEVAL_DEADLINE_MS that a question's vector may take. Of the default 500 ms it leaves 200 for the search by
words, which takes some 10 with what stands around it, and 100 where the processor is busy (docs/reference/data.md)."""

_MEGABYTE = 1024 * 1024
REHEARSED = "My name is Ana and I live in Lisbon. What did we say last week about the dog's food?"
"""A message that states and asks."""
REHEARSED_YES = "Yes."
"""A message that may confirm a command."""

log = logging.getLogger("mneme")


class UpstreamSide(Struct, frozen=True):
    """What a gateway has that is no database's: it stays when one gateway takes the place of another."""

    router: Router
    redactor: Redactor
    transports: Mapping[bool, Transport]
    keeper: Keeper
    sealed: SealedKeys | None


@asynccontextmanager
async def open_outside(core: Core, features: Features) -> AsyncIterator[UpstreamSide]:
    """Open the upstreams, the spool and the keys that were seen before."""
    redactor = Redactor(core.settings.redact_paths, core.settings.redact_headers)
    router = Router.from_settings(core.settings)
    for target in router.targets:
        log.info("upstream", extra={"upstream": target.name, "url": target.base_url})
    async with AsyncExitStack() as stack:
        own = await asyncio.to_thread(features.only, lambda each: each.keeper(redactor, core.tasks))
        keeper = own or Keeper()
        yield UpstreamSide(router, redactor, _transports(core, router, stack), keeper, sealed_keys(core.settings))


class Proxy(Struct, frozen=True):
    """The gateway and what the API shares with it; `path` is the API's own."""

    gateway: Application
    path: CallPath
    authenticator: Authenticator
    tenancy: Tenancy
    indexes: Indexes


@asynccontextmanager
async def open_proxy(
    core: Core, metrics: Metrics, features: Features, outside: UpstreamSide | None = None
) -> AsyncIterator[Proxy]:
    """Wire the path of a request; what is opened last is closed first. `features`: opened for this process. `outside`: where
    another gateway had it before; None: it is opened."""
    settings, pools = core.settings, core.pools
    space = await core.turns.space_of(core.embedder.space)
    process = process_of(core, metrics, space=space)
    for reads in pools.replicas.values():
        reads.meter = metrics.replica_read
    values = await check_parameters(core.pools.background, core.queries)
    secret, profiles = await core.turns.secret(), await _profiles(core, values)
    cards = features.only(lambda each: each.cards(process, pools.background))
    cards_in_prompts = features.only(lambda each: each.cards(process, pools.memory))
    in_prompts = features.only(lambda each: each.knower(process, pools.memory))
    knower_aside = features.only(lambda each: each.knower(process, pools.background))
    addon = features.only(lambda each: each.addon(process, pools.memory))
    addon_aside = features.only(lambda each: each.addon(process, pools.background))
    aside = TurnStore(pools.background, core.queries)
    indexes = _indexes(core, metrics, space)
    compiler = _compiler(
        core, core.turns, indexes, secret, profiles, _VECTOR_SHARE * settings.retrieval_deadline_ms / 1000
    )
    compiler_aside = _compiler(core, aside, indexes, secret, profiles)
    async with AsyncExitStack() as stack:
        if outside is None:
            outside = await stack.enter_async_context(open_outside(core, features))
        sealed = outside.sealed
        tenancy = Tenancy(pools.history, core.queries, core.clock)
        authenticator = Authenticator(tenancy, settings, core.clock, sealed)

        def erased(user: UUID) -> None:
            indexes.drop(user)
            if sealed is not None:
                sealed.erase(user)

        hear_of_erasures(core, stack, erased, indexes.drop_all)
        hearing = features.only(lambda each: each.hearing(process))
        learning = await learner(core, hearing, features.only(lambda each: each.noting(process)))
        commit = GroupCommit(
            core.turns,
            core.tasks,
            metrics,
            turns=settings.commit_turns,
        )
        stack.push_async_callback(commit.close, CLOSING_S)
        inline = Inline(learning.learn, core.clock, metrics)
        commander = _commander(core, metrics, space)
        gateway = _gateway(core, metrics, features, outside, space)(
            authenticator=features.around.authenticator(authenticator),
            preparer=Preparer(core.turns, compiler, in_prompts, cards_in_prompts, indexes),
            recorder=Recorder(core.turns, core.embedder, core.counts, core.counter, commit, at_once=inline),
            addon=addon,
            commander=commander,
            sharer=_sharer(core, space),
        )
        await _warm(core, in_prompts)
        await indexes.warm()
        await _rehearse(core, compiler, commander)
        stack.callback(outside.keeper.drain(gateway.settle, partial(_writable, core), CAPTURE_MAX_BYTES, addon))
        stack.push_async_callback(gateway.drained, CLOSING_S)
        answering = features.around.gateway(gateway)
        core.tasks.spawn(rehearse_recording(core), "rehearsal of recording")
        yield Proxy(
            gateway=answering,
            path=CallPath(
                turns=aside,
                compiler=compiler_aside,
                nonce_key=secret,
                knower=knower_aside,
                cards=cards,
                addon=addon_aside,
                router=outside.router,
                sender=gateway.sender,
                gateway=answering,
            ),
            authenticator=authenticator,
            indexes=indexes,
            tenancy=Tenancy(pools.background, core.queries, core.clock),
        )


@asynccontextmanager
async def open_waiting(
    core: Core, metrics: Metrics, features: Features, outside: UpstreamSide
) -> AsyncIterator[Application]:
    """What answers under /v1 until the database is there: as while it is away, with nothing asked of it. What is said waits in
    the spool for the gateway that takes its place; calls that run then end here."""
    absent = NoPool()
    core = replace(core, pools=Pools.of(absent), turns=TurnStore(absent, core.queries))
    # No block of memory is made here, so this keys nothing that is kept.
    compiler = _compiler(core, core.turns, _indexes(core, metrics, None), token_bytes(), PROFILES)
    outside.keeper.unreachable()
    authenticator = Authenticator(Tenancy(absent, core.queries, core.clock), core.settings, core.clock, outside.sealed)
    gateway = _gateway(core, metrics, features, outside, None)(
        authenticator=features.around.authenticator(authenticator),
        preparer=Preparer(core.turns, compiler),
        recorder=Recorder(core.turns, core.embedder, core.counts, core.counter),
        commander=_commander(core, metrics, None),
    )
    try:
        yield features.around.gateway(gateway)
    finally:
        await gateway.drained(CLOSING_S)


def _gateway(
    core: Core, metrics: Metrics, features: Features, outside: UpstreamSide, space: int | None
) -> Callable[..., Gateway]:
    """A gateway with what it has, be the database there or not."""
    process = process_of(core, metrics, space=space)
    return partial(
        Gateway,
        router=outside.router,
        sender=Sender(
            features.around.transports(outside.transports),
            outside.router,
            metrics,
            core.clock,
            retry=RetryPolicy(core.settings.upstream_attempts),
        ),
        accountant=Accountant(core.models, core.tokenizers, core.counts, SESSION_TTL, outside.redactor),
        discovery=ModelDiscovery(outside.transports, core.models, core.tasks),
        limiter=features.only(lambda each: each.admits(process, core.pools.history, core.models)) or Admits(),
        metrics=metrics,
        settings=core.settings,
        clock=core.clock,
        tasks=core.tasks,
        keeper=outside.keeper,
    )


def _transports(core: Core, router: Router, stack: AsyncExitStack) -> dict[bool, Transport]:
    """To the upstreams, by whether their answers are only simulated; `stack` closes them."""
    settings = core.settings
    real = AiohttpTransport(head_timeout_s=settings.head_timeout_s, idle_timeout_s=settings.idle_timeout_s)
    stack.push_async_callback(real.aclose)
    if not any(each.simulated for each in router.targets):
        return {False: real}
    simulated = needed("simulated", "Set MNEME_UPSTREAM_BASE_URL")
    return {False: real, True: simulated.SimulatedTransport(core.counter.count, core.clock)}


def _indexes(core: Core, metrics: Metrics, space: int | None) -> Indexes:
    return Indexes(
        IndexStore(core.pools.reads("memory"), core.pools.background, core.queries),
        core.tasks,
        space=space,
        dimensions=core.embedder.dimensions,
        limit=core.settings.index_cache_mb * _MEGABYTE,
        meter=metrics,
    )


def _compiler(
    core: Core,
    turns: TurnStore,
    indexes: Indexes,
    secret: bytes,
    profiles: Mapping[str, Profile],
    vector_wait_s: float | None = None,
) -> Compiler:
    settings = core.settings
    return Compiler(
        Retriever(turns, core.embedder, core.counter.count, indexes),
        core.models,
        core.tokenizers,
        core.counts,
        nonce_key=lambda: secret,
        memory_cap=settings.memory_budget_tokens,
        price=settings.price,
        profiles=profiles,
        budgets=Budgets(history=settings.history_budget_tokens),
        vector_wait_s=vector_wait_s,
    )


def _commander(core: Core, metrics: Metrics, space: int | None) -> Obeys | None:
    if (found := imported("commands.commander")) is None:
        return None
    settings, pool, sql = core.settings, core.pools.background, core.queries
    commander: Obeys = found.Commander(
        found.CommandStore(pool, sql, core.clock, space=space),
        Validation(pool, sql, core.clock, space=space, actor="user"),
        embedder=core.embedder,
        count=core.counter.count,
        metrics=metrics,
        unwelcome=unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns),
    )
    return commander


def _sharer(core: Core, space: int | None) -> Sharer:
    settings, pool, sql, clock = core.settings, core.pools.write, core.queries, core.clock
    sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL, space=space)
    return Sharer(
        History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=SESSION_TTL, space=space),
        SharedSpaces(pool, sql, clock),
        core.embedder,
        core.counter.count,
        unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns),
    )


async def _profiles(core: Core, values: Mapping[str, Any]) -> Mapping[str, Profile]:
    """By what the database has: the rate of decay, the weights and limits of strategies. Raises NotReady where those are
    none."""
    told, rate = await core.turns.strategies(), float(values["decay_parameters"]["default_rate_per_day"])
    try:
        weights = orjson.loads(told) if told else STRATEGY_WEIGHTS
        found = {**PROFILES} | strategies(weights, values["retrieval_limits"])
    except ValueError as error:
        raise NotReady(f"system_config.retrieval_strategy_weights: {error}.") from error
    return {name: replace(each, decay_per_day=rate) for name, each in found.items()}


async def _warm(core: Core, in_prompts: Knows | None) -> None:
    """Run what every request asks on WARM_CONNECTIONS connections of each pool, so that the first requests have memory, too."""
    space, vector = await core.turns.space_of(core.embedder.space), None
    if core.embedder.local and core.embedder.dimensions:
        (vector,) = await core.embedder.embed(["warm"])
    pools, sql = core.pools, core.queries
    primary = TurnStore(pools.write, sql, history=pools.reads("history").direct, memory=pools.reads("memory").direct)

    async def warm_connections() -> None:
        await primary.warm(vector, space)
        if pools.replicas:
            await core.turns.warm(vector, space)
        if in_prompts is not None:
            await in_prompts.warm()

    # Statements that run at the same time are on different connections.
    await asyncio.gather(*(warm_connections() for _ in range(WARM_CONNECTIONS)))


async def _rehearse(core: Core, compiler: Compiler, commander: Obeys | None) -> None:
    """Compile a prompt for nobody, and run the rules for commands and learning on it. Otherwise the first request would wait a
    tenth of a second for what is made at first use, such as regular expressions."""
    messages, nobody = [{"role": "user", "content": REHEARSED}], UUID(int=0)
    await compiler.compile(
        CompileRequest(
            scope=Scope(nobody, nobody),
            session_id=nobody,
            new_session=True,
            messages=messages,
            transcript=Transcript.of(messages),
            model=STORED_COUNTS,
            now=core.clock.now(),
            placement=core.settings.placement,
        )
    )
    for text in (REHEARSED, REHEARSED_YES):
        body = orjson.dumps({"model": STORED_COUNTS, "messages": [{"role": "user", "content": text}]})
        chat = CHAT.read(body, orjson.loads(body))
        if commander is not None and chat is not None:
            await commander.ready(chat)
            commander.concerned(chat)
    heard(REHEARSED)
    extract(SourceExchange(REHEARSED, core.clock.now()))
    commands(REHEARSED)
    guessed(REHEARSED)
    contrast(REHEARSED, REHEARSED)


async def _writable(core: Core) -> bool:
    """Whether Postgres answers and takes writes."""
    try:
        async with core.pools.write.acquire() as connection:
            return bool(await connection.fetchval(core.queries["spool.writable"]))
    except StoreUnavailable:
        return False
