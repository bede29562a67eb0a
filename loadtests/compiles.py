"""Compiles as the server does them, one at a time, and what they cost; and what the vector graph finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from app.api.context import PreviewRequest
from app.api.preview import CompilePreviewer
from app.clock import SystemClock
from app.context.known import Inquiry
from app.context.retrieve import LIMITS
from app.core import Core
from app.gateway.prepare import Prepared, Preparer
from app.gateway.reconcile import Place
from app.proxy import Proxy
from app.store import ids
from app.store.places import ids_of
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
GRAPH_ROWS = 500
"""What `agent_data.retrieve` asks the graph for, at most."""
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
    """Of each compile: milliseconds, and those of this process' CPU."""

    took: list[float]
    cpu: list[float]


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
        self._timed = Timed(proxy.preparer)
        self._previewer = CompilePreviewer(self._timed, proxy.router, SystemClock(), MODEL)
        self._talks: dict[str, Prose] = {}

    async def cell(self, case: Case, memories: int, progress: Callable[[str], None]) -> tuple[Spent, float]:
        """One round of a case: what the compiles cost, and Postgres' milliseconds of CPU for each."""
        progress(f"{memories:,} memories: {case.title}")
        for _ in range(WARM):
            await self._compile(case)
        before, spent = cpu_s(self._stack.postgres_pid), Spent([], [])
        for _ in range(max(1, self._count // ROUNDS)):
            await self._compile(case)
            spent.took.append(1000 * self._timed.took)
            spent.cpu.append(1000 * self._timed.cpu)
        used = cpu_s(self._stack.postgres_pid) - before
        return spent, 1000 * used / len(spent.took)

    async def _compile(self, case: Case) -> None:
        talk = self._talks.setdefault(case.user, Prose(case.user))
        messages = [*case.transcript, {"role": "user", "content": talk.asked()}]
        user = UserRef(ids.user_id(ids.LOCAL_TENANT, case.user), case.user)
        found = await self._previewer.preview(
            PreviewRequest(ids.LOCAL_TENANT, user, case.session, MODEL, messages, None, None)
        )
        if not found["memories"]:
            raise StackFailed(f"{case.title}: a compile found no memory.")

    async def recall(self, user: str, questions: int) -> dict[str, float]:
        """The vector leg of `agent_data.retrieve`, asked as a request asks it, by the graph against the exact scan: recall of
        the nearest `K`, rows that the graph returns, times."""
        core, owner = self._core, ids.user_id(ids.LOCAL_TENANT, user)
        talk = Prose(user)
        vectors = await core.embedder.embed([talk.asked() for _ in range(questions)])
        space = await core.turns.space_of(core.embedder.space)
        kept: dict[bool, list[set[Any]]] = {}
        took: dict[bool, float] = {}
        counts: list[int] = []
        for graph in (False, True):
            await self._admin.execute("UPDATE agent_data.user_stats SET use_hnsw = $2 WHERE user_id = $1", owner, graph)
            kept[graph], times = [], []
            for vector in vectors:
                began = time.perf_counter()
                scan = await core.turns.retrieve(
                    ids.LOCAL_TENANT, owner, query="", vector=vector, space=space, confine=None, session=None, visible=1,
                    ancestors=[], history=False, limits=LIMITS._replace(texts=0, frequent=0),
                )  # fmt: skip
                times.append(1000 * (time.perf_counter() - began))
                nearest = np.argsort(-scan.sims, kind="stable")[:K]
                kept[graph].append(set(ids_of(scan.places[nearest])))
                if graph:
                    counts.append(len(scan.places))
            took[graph] = median(times)
        await self._admin.execute("UPDATE agent_data.user_stats SET use_hnsw = false WHERE user_id = $1", owner)
        shares = [len(one & other) / max(1, len(one)) for one, other in zip(kept[False], kept[True], strict=True)]
        return {
            "recall": sum(shares) / len(shares),
            "recall_least": min(shares),
            "rows": sum(counts) / len(counts),
            "rows_least": min(counts),
            "asked": min(GRAPH_ROWS, LIMITS.vectors),
            "exact_ms": took[False],
            "graph_ms": took[True],
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
        "cpu_ms": median(sum(each.cpu) / len(each.cpu) + used for each, used in zip(rounds, postgres, strict=True)),
    }
