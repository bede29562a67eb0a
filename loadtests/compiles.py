"""Compiles as the server does them, one at a time, and what they cost; and what the vector graph finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from app.clock import SystemClock
from app.context.resolution import Inquiry
from app.context.retrieve import MOST_VECTORS
from app.features.preview import Previewer, PreviewRequest
from app.gateway.prepare import Prepared, Preparer
from app.gateway.reconcile import Place
from app.index.indexes import OLDER_MESSAGES, Indexes, IndexScope
from app.index.user_index import NEVER
from app.server.core import Core
from app.server.proxy import Proxy
from app.store import ids
from app.store.indexed import IndexStore
from app.store.item_columns import ids_of
from app.store.tenancy import UserRef
from loadtests.cpu import cpu_s
from loadtests.crowd import Connection
from loadtests.load import quantile
from loadtests.prose import Prose
from loadtests.stack import Stack, StackFailed
from loadtests.work import MODEL

ROUNDS = 5
"""In which everything is measured in turn."""
WARM = 20
K = 50
"""Nearest vectors that count (seed 000 §6.4)."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is compiled: a user's request, in a session of `session`'s name or with the whole `transcript` before it."""

    name: str
    title: str
    user: str
    session: str | None = None
    transcript: Sequence[Mapping[str, str]] = ()


@dataclass(slots=True)
class Spent:
    """For each compile: its milliseconds, the CPU milliseconds of this process, and whether its prompt shows memory."""

    took: list[float]
    cpu: list[float]
    shows_memory: list[bool]


class Timed(Preparer):
    """A preparer that notes what it costs."""

    def __init__(self, inner: Preparer) -> None:
        self._inner = inner
        self.took = 0.0
        self.cpu = 0.0

    @contextmanager
    def _clocked(self) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        self.took += time.perf_counter() - began
        self.cpu += time.process_time() - used

    async def find(self, *given: Any, **more: Any) -> tuple[Place, Inquiry | None]:
        self.took = self.cpu = 0.0
        with self._clocked():
            return await self._inner.find(*given, **more)

    async def compile(self, *given: Any, **more: Any) -> Prepared:
        with self._clocked():
            return await self._inner.compile(*given, **more)


class Compiles:
    """Compiles and retrieves on a stack, in this process, by what the server is made of."""

    def __init__(self, stack: Stack, core: Core, proxy: Proxy, admin: Connection, count: int) -> None:
        """`count`: compiles of a case, in all rounds."""
        self._stack = stack
        self._core = core
        self._admin = admin
        self._count = count
        path = proxy.path
        self._timed = Timed(Preparer(path.turns, path.compiler, path.knower, path.cards))
        self._previewer = Previewer(self._timed, path.router, SystemClock(), MODEL)
        self._talks: dict[str, Prose] = {}

    async def cell(self, case: Case, memories: int, progress: Callable[[str], None]) -> tuple[Spent, float]:
        """Measure one round of a case.

        Returns:
            What the compiles cost, and Postgres' milliseconds of CPU for each.

        Raises:
            StackFailed: No compile of the round shows memory.
        """
        progress(f"{memories:,} memories: {case.title}")
        for _ in range(WARM):
            await self._compile(case)
        before, spent = cpu_s(self._stack.postgres_pid), Spent([], [], [])
        for _ in range(max(1, self._count // ROUNDS)):
            spent.shows_memory.append(await self._compile(case))
            spent.took.append(1000 * self._timed.took)
            spent.cpu.append(1000 * self._timed.cpu)
        used = cpu_s(self._stack.postgres_pid) - before
        if not any(spent.shows_memory):
            raise StackFailed(f"{case.title}: none of {len(spent.took)} compiles shows memory")
        return spent, 1000 * used / len(spent.took)

    async def _compile(self, case: Case) -> bool:
        """Compile a question about earlier talk, and return whether memory shows something for it.

        A compile of a request that need not ask memory (`app/context/worth.py`) fetches nothing and costs less.
        """
        talk = self._talks.setdefault(case.user, Prose(case.user))
        messages = [*case.transcript, {"role": "user", "content": talk.ask_back()}]
        user = UserRef(ids.user_id(ids.LOCAL_TENANT, case.user), case.user)
        found = await self._previewer.preview(
            PreviewRequest(ids.LOCAL_TENANT, user, case.session, MODEL, messages, None, None)
        )
        return bool(found["memories"])

    async def recall(self, user: str, questions: int) -> dict[str, float]:
        """What the graph finds of a user's messages, asked as a request asks it, against the whole index: recall of the
        nearest `K`, rows that the graph returns, times."""
        core, owner = self._core, ids.user_id(ids.LOCAL_TENANT, user)
        talk = Prose(user)
        vectors = await core.embedder.embed([talk.asked() for _ in range(questions)])
        space = await core.turns.space_of(core.embedder.space)
        store = IndexStore(core.pools.reads("memory"), core.pools.background, core.queries)
        whole = Indexes(
            store, core.tasks, space=space, dimensions=core.embedder.dimensions, limit=10**9, most=10**6
        )  # fmt: skip
        shares, counts, took = [], [], dict[bool, list[float]]({False: [], True: []})
        for vector in vectors:
            began = time.perf_counter()
            scan = await whole.scan(
                ids.LOCAL_TENANT, owner, "", vector, IndexScope(only=0), vectors=MOST_VECTORS, texts=0
            )
            took[False].append(1000 * (time.perf_counter() - began))
            nearest = set(ids_of(scan.places[np.argsort(-scan.sims, kind="stable")[:K]]))
            began = time.perf_counter()
            rows = await store.beside(ids.LOCAL_TENANT, owner, whole.ask(None), vector, NEVER, OLDER_MESSAGES)
            took[True].append(1000 * (time.perf_counter() - began))
            shares.append(len(nearest & {row.item.hex() for row in rows}) / max(1, len(nearest)))
            counts.append(len(rows))
        return {
            "recall": sum(shares) / len(shares),
            "recall_least": min(shares),
            "rows": sum(counts) / len(counts),
            "rows_least": min(counts),
            "asked": OLDER_MESSAGES,
            "exact_ms": median(took[False]),
            "graph_ms": median(took[True]),
        }


def figures(rounds: Sequence[Spent], postgres: Sequence[float]) -> dict[str, float]:
    """Quantiles over all rounds; CPU as the median of the rounds' means."""
    took = sorted(one for each in rounds for one in each.took)
    return {
        "compiles": len(took),
        "p50_ms": quantile(took, 0.5),
        "p99_ms": quantile(took, 0.99),
        "server_ms": median(sum(each.cpu) / len(each.cpu) for each in rounds),
        "postgres_ms": median(postgres),
        "shows_memory": sum(sum(spent.shows_memory) for spent in rounds) / len(took),
        "cpu_ms": median(sum(each.cpu) / len(each.cpu) + used for each, used in zip(rounds, postgres, strict=True)),
    }
