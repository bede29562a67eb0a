"""What Mneme counts, and how /metrics shows it.

One `Metrics` a process, made by the composition root. With one server process its registry is shown as it is. With
several (and for the worker's figures), each process writes its values into files of one directory, and whichever process
is asked adds them up: prometheus-client's multiprocess mode. It is chosen by the environment variable
PROMETHEUS_MULTIPROC_DIR, which must be set before prometheus_client is imported: the supervisor sets it for its children,
to an empty directory. A child that starts takes out those that have ended (`forget_ended`): it comes in the place of one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

Outcome = Literal["complete", "broken", "gone", "cancelled", "failed"]
"""How a call ended; the names of `call_outcome`."""
MemoryStatus = Literal["ok", "degraded", "bypass"]
AttemptResult = Literal[
    "answered", "refused", "unreachable", "timeout", "failed", "suspended", "stale", "too_long", "no_tools"
]
"""What came of one attempt at an upstream. `answered`: the answer that stands; `refused`: one that did not, by its status;
`suspended`: not even asked, its breaker is open; `stale`: a kept-alive connection had died;
`too_long`: what Mneme had added was too much; `no_tools`: it takes none, and Mneme had added some."""
FaultResult = Literal["answered", "restored", "nothing"]
"""What a model got that asked for what was paged out. `nothing`: there is no such object, or none that answers."""
_BREAKER_STATES = ("closed", "half_open", "open")
"""The values of the gauge: 0, 1 and 2."""

STAGE_BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
)  # fmt: skip
"""Seconds. 15 ms is the compile's bar, 50 ms the default retrieval deadline; answers of models take up to minutes."""

_MEMORY_BUCKETS_TOKENS = (0, 50, 100, 200, 400, 800, 1200, 1600, 3200)
"""0: none; 1,600: what a block of MNEME_MEMORY_BUDGET_TOKENS with its frame has by default."""
ETA_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.92, 0.96, 1.0)
"""Context utilisation (seed 000 §8.4): a few short memories use some hundredths of the budget; 0.92 is the seed's bar."""
ATTAINED_BUCKETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0)
"""Context utilisation against the best that the candidates allow: near 1 unless the packer errs."""

_MICROCENTS = 10**8
"""Of a US dollar."""
_RECALL_BUCKETS = (0.5, 0.8, 0.9, 0.94, 0.96, 0.98, 1.0)
"""Seed 000 §4.4 asks for more than 0.98."""
_COMMIT_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Turns of one transaction."""


class Metrics:
    """Every metric, named by what happened rather than by how it is counted. Label values come from the code, never from
    a client: their number is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:  # as long as the list of them is
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        # Of several processes: what the one that looked last saw; the sum, or the highest, of those that live.
        seen = partial(Gauge, registry=registry, multiprocess_mode="mostrecent")
        summed = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        highest = partial(Gauge, registry=registry, multiprocess_mode="livemax")

        # requests
        self._requests = counter(
            "mneme_requests", "Requests under /v1, by what they were and how they ended.", ["kind", "outcome", "memory"]
        )
        self._stages = histogram(
            "mneme_stage_seconds", "Time spent in a stage of a turn.", ["stage"], buckets=STAGE_BUCKETS_S
        )
        self._degradations = counter(
            "mneme_degradations", "Requests that went on without something, by reason.", ["reason"]
        )
        self._attempts = counter(
            "mneme_upstream_attempts", "Attempts at upstreams, by what came of them.", ["upstream", "result"]
        )
        self._breakers = highest(
            "mneme_upstream_breaker", "Circuit breaker: 0 closed, 1 half open, 2 open.", ["upstream"]
        )
        self._tasks = summed("mneme_event_loop_tasks", "Tasks of the server's event loops, when last looked at.")
        # what is learned with a turn, and what users tell memory to do
        self._inline = counter(
            "mneme_inline_learning",
            "Turns learned from before their end, by what came of it; how long it took: the stage `learn`.",
            ["outcome"],
        )
        self._commands = counter(
            "mneme_commands",
            "What users told memory to do in a chat, by kind and what came of it (heard: in the prompt, or with the turn).",
            ["kind", "outcome"],
        )
        self._helper = seen(
            "mneme_helper_today",
            "What the helper LLM was used for today (UTC), in all processes: calls, tokens, messages of users that it read, and"
            " those that it did not, by reason.",
            ["what"],
        )
        # prompts
        self._tokens = counter("mneme_tokens", "Tokens, by what they were.", ["kind"])
        self._memory = histogram(
            "mneme_memory_tokens",
            "Tokens that memory added to a prompt, by what came of its search: none, added or degraded.",
            ["outcome"],
            buckets=_MEMORY_BUCKETS_TOKENS,
        )
        self._eta = histogram(
            "mneme_context_utilisation",
            "η of a compile with candidates: worth of the chosen ÷ worth of all, times their tokens ÷ the memory budget "
            "(seed 000 §8.4).",
            buckets=ETA_BUCKETS,
        )
        self._attained = histogram(
            "mneme_context_attained",
            "Worth of the chosen ÷ worth of the best choice, times their tokens ÷ the tokens that were worth using.",
            buckets=ATTAINED_BUCKETS,
        )
        self._cost = counter("mneme_cost_dollars", "US dollars that calls came to, by upstream.", ["upstream"])
        self._unpriced = counter(
            "mneme_unpriced_calls", "Calls of models whose price is not known: they are in no sum.", ["upstream"]
        )
        self._paged = counter("mneme_paging_prompts", "Prompts of paged calls, by pressure zone.", ["zone"])
        self._avoided = counter(
            "mneme_paging_avoided_tokens",
            "Tokens that were not sent upstream: shown shorter, or answered rather than restored.",
        )
        self._faults = counter(
            "mneme_paging_faults",
            "What models asked back, by kind and what came of it; how long it took: the stage `fault`.",
            ["kind", "result"],
        )
        self._legs = counter(
            "mneme_paging_legs", "Requests to upstreams behind the first of a call, with the results of faults."
        )
        # the database, and what waits for it
        self._pool = summed("mneme_pool_connections", "Database connections, by pool and state.", ["pool", "state"])
        self._reads = counter(
            "mneme_replica_reads",
            "Reads that a standby may answer, by pool, server, and what came of them.",
            ["pool", "server", "result"],
        )
        self._storage = seen(
            "mneme_storage_bytes", "Bytes in Postgres' files, by group of tables, when last looked at.", ["group"]
        )
        self._commit_turns = histogram(
            "mneme_commit_turns", "Turns written by one transaction.", buckets=_COMMIT_BUCKETS
        )
        self._index_asked = counter(
            "mneme_index_questions",
            "Questions to users' indexes, by whether one was at hand (held, changed), had to be loaded, or could not answer"
            " (late, failed); beside_late: what the database adds to one came too late.",
            ["outcome"],
        )
        self._index_loads = histogram(
            "mneme_index_load_seconds", "Time that an index took to load.", buckets=STAGE_BUCKETS_S
        )
        self._index_items = counter("mneme_index_loaded_items", "Messages and memories that were loaded into indexes.")
        self._index_unreadable = counter("mneme_index_unreadable_items", "Of these such as nothing could be made of.")
        self._graph_recall = histogram(
            "mneme_graph_recall",
            "Of the nearest 50 messages, the share that the graph (HNSW) found: sampled questions against the exact scan.",
            buckets=_RECALL_BUCKETS,
        )
        self._index_bytes = summed("mneme_index_bytes", "Bytes of the indexes that are kept, when last looked at.")
        self._commit_queue = summed("mneme_commit_queue", "Turns that wait to be written.")
        # the worker
        self._queue = seen("mneme_queue_jobs", "Jobs, by state, when last looked at.", ["state"])
        self._ticks = seen("mneme_schedule_last_run_seconds", "Unix time of a scheduled task's last run.", ["task"])
        self._changed = seen(
            "mneme_schedule_changed", "What a scheduled task changed when it last ran: rows, partitions.", ["task"]
        )

        # `labels` looks a child up under a lock; the few that the hot path uses are kept.
        self._stage = cache(self._stages.labels)
        self._request = cache(self._requests.labels)
        self._attempt = cache(self._attempts.labels)
        self._read = cache(self._reads.labels)
        self._breaker_states: dict[str, str] = {}

    def stage(self, name: str, seconds: float, began_ns: int | None = None) -> None:
        """A stage of a turn took `seconds`: authenticate, identify, compile, forward, first_byte, record, overhead, …
        `began_ns`: when it began (`time.perf_counter_ns`); None: so long ago."""
        self._stage(name).observe(seconds)

    def request(self, kind: str, outcome: Outcome, memory: MemoryStatus) -> None:
        """A request under /v1 ended. `kind`: the name of its dialect, or passthrough."""
        self._request(kind, outcome, memory).inc()

    def attempt(self, upstream: str, result: AttemptResult) -> None:
        """An attempt at an upstream (by its name in the settings) ended."""
        self._attempt(upstream, result).inc()

    def index_asked(self, how: str) -> None:
        """What became of an index. `held`: it was at hand; `loaded`: it was not; `changed`: some of it was read again; `late`:
        it was not loaded at the deadline; `failed`: its load failed; `beside_late`: what the database adds did not come in
        time."""
        self._index_asked.labels(how).inc()

    def graph_recall(self, recall: float) -> None:
        """Of the nearest messages of a sampled question, the share that the graph found."""
        self._graph_recall.observe(recall)

    def cost(self, upstream: str, microcents: int, *, priced: bool) -> None:
        """What a call came to, by the prices that are known."""
        if priced:
            self._cost.labels(upstream).inc(microcents / _MICROCENTS)
        else:
            self._unpriced.labels(upstream).inc()

    def index_loaded(self, seconds: float, items: int) -> None:
        self._index_loads.observe(seconds)
        self._index_items.inc(items)

    def index_unreadable(self, items: int) -> None:
        self._index_unreadable.inc(items)

    def index_bytes(self, held: int) -> None:
        self._index_bytes.set(held)

    def replica_read(self, pool: str, server: str, result: str) -> None:
        """A read that a standby of a pool may answer; `server` by the settings, `result` as in `app/store/pools.py`."""
        self._read(pool, server, result).inc()

    def breaker(self, upstream: str, state: str) -> None:
        """The breaker of an upstream as it stands, one of _BREAKER_STATES."""
        if self._breaker_states.get(upstream) != state:
            self._breaker_states[upstream] = state
            self._breakers.labels(upstream).set(_BREAKER_STATES.index(state))

    def learned_inline(self, outcome: Literal["done", "late", "failed"], seconds: float) -> None:
        """A turn was learned from with its end, or is left to the worker."""
        self._inline.labels(outcome).inc()
        self.stage("learn", seconds)

    def commanded(self, kind: str, outcome: str) -> None:
        """A user told memory to do something. The values are the code's (`app/gateway/prepare.py`)."""
        self._commands.labels(kind, outcome).inc()

    def degraded(self, reason: str) -> None:
        """A request went on without memory, or without durability; `reason` as in `x-mneme-reason`."""
        self._degradations.labels(reason).inc()

    def memory(self, tokens: int, *, degraded: bool) -> None:
        """Memory was searched for a request, and added so many tokens to its prompt, those of earlier blocks not counted."""
        self._memory.labels("degraded" if degraded else "added" if tokens else "none").observe(tokens)

    def tokens(self, *, prompt: int = 0, completion: int = 0, injected: int = 0) -> None:
        """Tokens of one call; `injected` is what Mneme added to the prompt."""
        for kind, count in (("prompt", prompt), ("completion", completion), ("injected", injected)):
            if count:
                self._tokens.labels(kind).inc(count)

    def paged(self, zone: str, *, avoided: int, legs: int = 0) -> None:
        """A paged call ended. `avoided`: tokens that it did not send; `legs`: upstream requests behind its first."""
        self._paged.labels(zone).inc()
        self._avoided.inc(avoided)
        self._legs.inc(legs)

    def fault(self, kind: str, result: FaultResult, seconds: float) -> None:
        """A model asked something back, in a call or through the API. `kind`: of the fault history."""
        self._faults.labels(kind, result).inc()
        self.stage("fault", seconds)

    def observe_utilisation(self, eta: float | None, attained: float | None) -> None:
        """Observe how well one compile used its budget; None: it had no candidate, so that there is nothing to measure."""
        if eta is not None:
            self._eta.observe(eta)
        if attained is not None:
            self._attained.observe(attained)

    def queue(self, *, queued: int, running: int, dead: int) -> None:
        """The queue as it stands."""
        for state, count in (("queued", queued), ("running", running), ("dead", dead)):
            self._queue.labels(state).set(count)

    def helper_day(self, figures: Mapping[str, int]) -> None:
        """Show what the helper LLM was used for today."""
        for what, value in figures.items():
            self._helper.labels(what).set(value)

    def commit_batch(self, turns: int) -> None:
        """A transaction has written this many turns."""
        self._commit_turns.observe(turns)

    def commit_queue(self, turns: int) -> None:
        """This many turns wait for theirs."""
        self._commit_queue.set(turns)

    def storage(self, groups: Mapping[str, int]) -> None:
        """Bytes by group of tables."""
        for group, size in groups.items():
            self._storage.labels(group).set(size)

    def scheduled(self, task: str, at: float, changed: int) -> None:
        """A task of the worker's schedule ran at the Unix time `at`."""
        self._ticks.labels(task).set(at)
        self._changed.labels(task).set(changed)

    def pool(self, name: str, states: Mapping[str, int]) -> None:
        """The connections of a pool: `states` as {"idle": 3, "used": 5}."""
        for state, count in states.items():
            self._pool.labels(name, state).set(count)

    def tasks(self, count: int) -> None:
        """The tasks of this process' event loop."""
        self._tasks.set(count)


class Exposition:
    """The text of /metrics."""

    def __init__(self, registry: CollectorRegistry, multiprocess_dir: Path | None = None) -> None:
        """`multiprocess_dir`: where the processes of this server write theirs; None: `registry` is all there is."""
        self._registry = registry
        if multiprocess_dir is not None:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry, path=str(multiprocess_dir))  # type: ignore[no-untyped-call]  # not typed there

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """The body and its content type, in the format that `accept` asks for."""
        encode, content_type = choose_encoder(accept or "")
        return encode(self._registry), content_type


def process_registry() -> CollectorRegistry:
    """A registry with this process' own memory, CPU, file descriptors and garbage collections in it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def forget_ended(multiprocess_dir: Path) -> None:
    """Take processes that have ended out of the sums over living processes."""
    for pid in {int(path.stem.rpartition("_")[2]) for path in multiprocess_dir.glob("gauge_live*_*.db")}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, path=str(multiprocess_dir))  # type: ignore[no-untyped-call]  # not typed there
