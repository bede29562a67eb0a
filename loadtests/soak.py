"""Steady mixed load for a long time: does anything grow, leak or fail?

python -m loadtests.soak [--minutes N] [--clients N] [--users N] [--no-save]

Exit code 0 when nothing leaked, nothing failed, and, in a run of twenty minutes or more, memory is flat; else 1.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp
import asyncpg
import click
from rich.console import Console
from rich.table import Table

from app.server.core import WORKER_CONNECTIONS, pool_limits
from app.settings import Settings
from loadtests import fill, results
from loadtests.figures import number
from loadtests.load import END_OF_STREAM
from loadtests.stack import Service, Stack, prepare, running, version_of
from loadtests.terminal import console, keep, measuring
from loadtests.texts import Talk
from loadtests.watch import Slope, folder_mb, held, slope
from loadtests.work import MODEL, PATH, SYSTEM

EVERY_S = 10.0
"""Between two looks at what everybody holds."""
WARM_S = 60.0
"""Seconds of load before the first count: pools and caches fill. A short run has a third of its own time."""
REST_S = 90.0
"""Seconds at most for everything to come to rest after load: kept-alive connections end after 60."""
STEADY_S = 5.0
"""At rest is who holds the same for so long."""
THINK_S = 0.5
"""A client waits so long between two requests, on average; it is a steady load, not a contest."""
SESSION_TURNS = 10
STREAM_MODEL = f"{MODEL}:chunks=60;gap_ms=5"
REPLY_MODEL = f"{MODEL}:chunks=20"
TIMEOUT_S = 60.0
FLAT_MB_PER_HOUR = 20.0
"""Growth that counts as none: the server would take a working day to double."""
JUDGED_MINUTES = 20.0
"""Runs from this length on are judged by their slope: the second half of a shorter one is too little to tell of an hour."""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
TASKS = re.compile(r"^mneme_event_loop_tasks(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
READS = (
    "/api/v1/memories?user={user}&limit=50",
    "/api/v1/sessions?user={user}&limit=20",
    "/api/v1/calls?user={user}&limit=20",
    "/api/v1/queue",
    "/metrics",
)
WHO = ("server", "worker", "Postgres")


@dataclass(slots=True)
class Tally:
    """What the clients did: answers by kind, those without memory, and what went wrong, each kind of error once in words."""

    done: Counter[str] = field(default_factory=Counter)
    degraded: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class Client:
    """One client: does one thing after another, chosen by chance, the same for the same seed."""

    def __init__(self, number: int, stack: Stack, users: int, tally: Tally) -> None:
        self._random = random.Random(number)
        self._talk = Talk(f"soak {number}")
        self._base = stack.base_url
        self._users = users
        self._tally = tally
        self._transcript: list[dict[str, str]] = []
        self._user = fill.user_name(0)
        deeds: Mapping[Callable[[aiohttp.ClientSession], Awaitable[str]], int] = {
            self._stream: 30,
            self._reply: 20,
            self._leave: 15,
            self._plain: 15,
            self._read: 15,
            self._search: 5,
        }
        self._deeds, self._weights = list(deeds), list(deeds.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(self._base, timeout=timeout) as http:
            while not stop.is_set():
                (deed,) = self._random.choices(self._deeds, self._weights)
                try:
                    self._tally.done[await deed(http)] += 1
                except (aiohttp.ClientError, TimeoutError, Failed) as error:
                    self._tally.errors[f"{deed.__name__.strip('_')}: {type(error).__name__} {error}"[:200]] += 1
                try:
                    async with asyncio.timeout(self._random.expovariate(1 / THINK_S)):
                        await stop.wait()
                except TimeoutError:
                    pass

    def _asked(self, **more: Any) -> dict[str, Any]:
        """The next question of this client's conversation, or the first of a new one."""
        if len(self._transcript) >= 2 * SESSION_TURNS or not self._transcript:
            self._transcript = [{"role": "system", "content": SYSTEM}]
            self._user = fill.user_name(self._random.randrange(self._users))
        question = {"role": "user", "content": f"{self._talk.said()} {self._talk.asked()}"}
        return {"messages": [*self._transcript, question], **more}

    def _headers(self, memory: str | None = None) -> dict[str, str]:
        given = {"X-Mneme-User": self._user, "Authorization": "Bearer sk-none"}
        return {**given, "X-Mneme-Memory": memory} if memory else given

    def _check(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status != 200:
            raise Failed(f"status {answer.status}")
        self._tally.degraded += answer.headers.get("x-mneme-status") == "degraded"

    async def _reply(self, http: aiohttp.ClientSession) -> str:
        body = self._asked(model=REPLY_MODEL)
        async with http.post(PATH, json=body, headers=self._headers()) as answer:
            self._check(answer)
            said = (await answer.json())["choices"][0]["message"]
        self._transcript = [*body["messages"], {"role": "assistant", "content": said["content"]}]
        return "plain answers, with memory"

    async def _stream(self, http: aiohttp.ClientSession) -> str:
        body = self._asked(model=STREAM_MODEL, stream=True)
        async with http.post(PATH, json=body, headers=self._headers()) as answer:
            self._check(answer)
            if not (await answer.read()).endswith(END_OF_STREAM):
                raise Failed("no [DONE]")
        self._transcript = []
        return "streams, with memory"

    async def _leave(self, http: aiohttp.ClientSession) -> str:
        """A client that goes away: before the answer begins, or in the middle of it."""
        body = self._asked(model=STREAM_MODEL, stream=True)
        self._transcript = []
        patience = self._random.uniform(0.0, 0.4)
        try:
            async with asyncio.timeout(patience), http.post(PATH, json=body, headers=self._headers()) as answer:
                self._check(answer)
                async for _ in answer.content.iter_any():
                    pass
        except TimeoutError:
            pass
        return "clients that left"

    async def _plain(self, http: aiohttp.ClientSession) -> str:
        body = self._asked(model=REPLY_MODEL)
        self._transcript = []
        async with http.post(PATH, json=body, headers=self._headers("off")) as answer:
            self._check(answer)
            await answer.read()
        return "plain answers, memory off"

    async def _read(self, http: aiohttp.ClientSession) -> str:
        path = self._random.choice(READS).format(user=fill.user_name(self._random.randrange(self._users)))
        async with http.get(path) as answer:
            self._check(answer)
            await answer.read()
        return "reads of /api/v1 and /metrics"

    async def _search(self, http: aiohttp.ClientSession) -> str:
        user = fill.user_name(self._random.randrange(self._users))
        asked = {"user": user, "query": self._talk.asked(), "k": 10}
        async with http.post("/api/v1/memories/search", json=asked) as answer:
            self._check(answer)
            await answer.read()
        return "searches"


class Failed(Exception):
    """An answer that is not as it should be."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What everybody holds at a moment. MiB; `tasks`: of the server's event loop, where /metrics tells."""

    at_s: float
    resident: dict[str, float]
    own: dict[str, float]
    files: dict[str, int]
    threads: dict[str, int]
    connections: int
    tasks: float | None
    data_mb: float
    spool_mb: float


class Watcher:
    """Looks at a stack. Its own connection to Postgres is not counted."""

    def __init__(self, stack: Stack, worker: Service, admin: asyncpg.Connection) -> None:
        self._stack = stack
        self._pids = {"server": stack.mneme.pid, "worker": worker.pid, "Postgres": stack.postgres_pid}
        self._admin = admin
        self._began = time.monotonic()

    async def look(self) -> Sample:
        found = {name: await asyncio.to_thread(held, pid) for name, pid in self._pids.items()}
        data = self._stack.folder / "data"
        return Sample(
            at_s=round(time.monotonic() - self._began, 1),
            resident={name: each.resident for name, each in found.items()},
            own={name: each.own for name, each in found.items()},
            files={name: each.files for name, each in found.items()},
            threads={name: each.threads for name, each in found.items()},
            connections=await self._admin.fetchval(CONNECTIONS),
            tasks=await self._tasks(),
            data_mb=await asyncio.to_thread(folder_mb, data / "postgres" / "data"),
            spool_mb=await asyncio.to_thread(folder_mb, data / "spool"),
        )

    async def _tasks(self) -> float | None:
        async with aiohttp.ClientSession(self._stack.base_url) as http, http.get("/metrics") as answer:
            found = TASKS.findall(await answer.text())
        return sum(map(float, found)) if found else None

    async def at_rest(self) -> Sample:
        """Wait until what everybody holds does not fall any more, `REST_S` at most."""
        deadline, last, since = time.monotonic() + REST_S, await self.look(), time.monotonic()
        while time.monotonic() < deadline:
            await asyncio.sleep(1.0)
            now = await self.look()
            if counts(now) != counts(last):
                last, since = now, time.monotonic()
            elif time.monotonic() - since > STEADY_S and fill.queued(self._stack.base_url) == 0:
                break
        return await self.look()


def pooled() -> int:
    """Connections that server and worker may hold at most: a pool opens what it needs, and keeps it."""
    settings = Settings()
    limits = [*pool_limits(settings, serving=True).values(), *pool_limits(settings, serving=False).values()]
    return sum(each.size for each in limits) + WORKER_CONNECTIONS


def counts(sample: Sample) -> dict[str, float]:
    """What can leak, by name."""
    found: dict[str, float] = {
        "connections to Postgres than the pools may hold": max(0, sample.connections - pooled()),
        "files beside connections": sample.files["server"] + sample.files["worker"] - sample.connections,
    }
    for name in ("server", "worker"):
        found[f"threads of the {name}"] = sample.threads[name]
    if sample.tasks is not None:
        found["tasks of the server"] = sample.tasks
    return found


def leaks(half: Sample, after: Sample) -> dict[str, float]:
    """What is held at rest after all of the load and was not after half of it; empty where nothing leaked. (Pools and caches
    that open when they are first needed have done so by then: only what goes on growing is lost.)"""
    earlier, later = counts(half), counts(after)
    return {name: later[name] - earlier[name] for name in earlier if name in later and later[name] > earlier[name]}


def slopes(samples: Sequence[Sample]) -> dict[str, Slope]:
    """MiB an hour over the second half of what each holds for itself. (Of what is shared, Postgres' buffers fill up to their
    size, and a library is the more theirs the fewer others use it.)"""
    half = samples[len(samples) // 2 :]
    times = [each.at_s for each in half]
    return {name: slope(times, [each.own[name] for each in half]) for name in WHO}


def verdict(
    minutes: float, found: Mapping[str, Slope], leaked: Mapping[str, float], errors: Mapping[str, int]
) -> list[str]:
    """What speaks against it, in words; empty: it passed. A slope counts where it is more than twice its own error."""
    told = [f"{count} × {what}" for what, count in errors.items()]
    told += [f"{count:g} more {what}" for what, count in leaked.items()]
    if minutes >= JUDGED_MINUTES:
        told += [
            f"{name} grows by {each.per_hour:.0f} MB an hour"
            for name, each in found.items()
            if each.per_hour > max(FLAT_MB_PER_HOUR, 2 * each.error)
        ]
    return told


async def soak(
    stack: Stack, worker: Service, minutes: float, clients: int, users: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The whole run."""
    tally = Tally()
    admin = await asyncpg.connect(stack.dsn)
    try:
        watcher = Watcher(stack, worker, admin)
        warm = min(WARM_S, 60 * minutes / 3)
        say(f"warming up, {warm:.0f} s")
        await under_load(stack, clients, users, Tally(), lambda stop: watch(watcher, warm, stop, [], say))
        say("coming to rest")
        before = await watcher.at_rest()
        samples: list[Sample] = []
        rests = [before]
        for _ in range(2):
            await under_load(
                stack, clients, users, tally, lambda stop: watch(watcher, 30 * minutes, stop, samples, say)
            )
            say("coming to rest")
            rests.append(await watcher.at_rest())
        after = rests[-1]
    finally:
        await admin.close()
    tally.errors.update(f"the {name} ended" for name in WHO if after.threads[name] == 0)
    found, leaked = slopes(samples), leaks(rests[1], after)
    return {
        "minutes": minutes,
        "clients": clients,
        "users": users,
        "done": dict(tally.done),
        "degraded": tally.degraded,
        "errors": dict(tally.errors),
        "slopes": {name: asdict(each) for name, each in found.items()},
        "leaked": leaked,
        "at_rest": [asdict(each) for each in rests],
        "against": verdict(minutes, found, leaked, tally.errors),
        "samples": [asdict(each) for each in samples],
    }


async def under_load(
    stack: Stack, clients: int, users: int, tally: Tally, meanwhile: Callable[[asyncio.Event], Awaitable[None]]
) -> None:
    """Run the clients for as long as `meanwhile` takes."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for n in range(clients):
            group.create_task(Client(n, stack, users, tally).run(stop))
        await meanwhile(stop)
        stop.set()


async def watch(
    watcher: Watcher, seconds: float, stop: asyncio.Event, samples: list[Sample], say: Callable[[str], None]
) -> None:
    """Look every `EVERY_S` for so long."""
    began = time.monotonic()
    while (gone := time.monotonic() - began) < seconds and not stop.is_set():
        samples.append(await watcher.look())
        held_now = ", ".join(f"{name} {samples[-1].resident[name]:.0f} MB" for name in WHO)
        say(f"{gone / 60:.1f} of {seconds / 60:g} minutes: {held_now}, {samples[-1].connections} connections")
        await asyncio.sleep(min(EVERY_S, max(0.0, seconds - gone)))


def show(out: Console, found: Mapping[str, Any]) -> None:
    first, last = found["samples"][0], found["samples"][-1]
    table = Table("", "MB, first", "last", "MB per hour, second half", "files, first", "last", "threads, first", "last")
    for name in WHO:
        steep = found["slopes"][name]
        told = f"{number(steep['per_hour'])} ± {number(steep['error'])}"
        ends = [f"{each[what][name]}" for what in ("files", "threads") for each in (first, last)]
        table.add_row(name, f"{first['resident'][name]:.0f}", f"{last['resident'][name]:.0f}", told, *ends)
    out.print(table)
    out.print(", ".join(f"{count} {what}" for what, count in sorted(found["done"].items())))
    out.print(f"{found['degraded']} answers without memory, leaked: {found['leaked'] or 'nothing'}")
    out.print("passed" if not found["against"] else f"failed: {'; '.join(found['against'])}")


@click.command()
@click.option("--quick", is_flag=True, help="One minute, for the shape only.")
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), help="30.")
@click.option("--clients", default=6, show_default=True, type=click.IntRange(1, 200))
@click.option("--users", default=16, show_default=True, type=click.IntRange(1, 1000), help="Whose memory is filled.")
@click.option("--messages", default=200, show_default=True, type=click.IntRange(1, 100_000), help="Of each.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(quick: bool, minutes: float | None, clients: int, users: int, messages: int, no_save: bool) -> None:
    """Load Mneme steadily, and watch what it holds."""
    out = console()
    minutes = minutes or (1.0 if quick else 30.0)
    # The deadlines are those of life, not those of the benchmark.
    usual = {"MNEME_RETRIEVAL_DEADLINE_MS": "50"}
    with measuring(), out.status("starting …") as status, running(settings=usual) as stack:
        prepare(stack, users, messages, status.update)
        with stack.worker() as worker:
            found = asyncio.run(soak(stack, worker, minutes, clients, users, status.update))
        version = version_of(stack)
    show(out, found)
    keep(out, results.head("soak", quick=minutes < JUDGED_MINUTES, postgres=version) | found, no_save)
    sys.exit(1 if found["against"] else 0)


if __name__ == "__main__":
    main()
