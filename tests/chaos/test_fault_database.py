"""Faults 1 to 3: Postgres hurt, away, or full.

Whatever becomes of it, answers go on; and what a client saw the end of is there, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.chaos_server import PATIENCE_S, ChaosServer
from tests.support.ledger import Ledger, Talker
from tests.support.sockets import RawResponse

HEALING_S = 2.0
"""docs/explanation/reliability.md, fault 1."""
BUSY = 5
"""How much longer the short forms give it, for they run beside others on two cores."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosServer]:
    with ChaosServer(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


async def goes_on(stage: ChaosServer, talker: Talker, name: str) -> RawResponse:
    """An answer comes with everything that the upstream said; it may lack its end, but never its words."""
    answer = await stage.ask(talker, name)
    assert answer is not None, "no answer at all"
    assert answer.status == 200, answer.body
    for piece in (b"answer ", b"as ", b"asked."):
        assert piece in answer.body
    return answer


# --- 1: killed, frozen, read-only -------------------------------------------------------------------------------------


async def test_backends_that_are_killed(stage: ChaosServer, ledger: Ledger) -> None:
    talker = Talker(ledger, "killed")
    await stage.ask(talker, "killed-before")
    assert await stage.postgres.terminate_backends() > 0
    for n in range(3):
        await stage.postgres.terminate_backends()
        await goes_on(stage, talker, f"killed-{n}")
    await stage.postgres.kill_a_backend()  # all of Postgres recovers
    await goes_on(stage, talker, "killed-hard")
    assert await stage.healed(talker, "killed-after") < HEALING_S * BUSY
    await stage.settled(ledger)


@pytest.mark.heavy
async def test_backends_that_freeze(stage: ChaosServer, ledger: Ledger) -> None:
    talker = Talker(ledger, "frozen")
    await stage.ask(talker, "frozen-before")
    assert await stage.postgres.freeze_backends() > 0
    answer = await goes_on(stage, talker, "frozen-meanwhile")
    assert answer.header("x-mneme-status") == "degraded"
    # Nothing thaws them: the pool must have left them behind.
    assert await stage.healed(talker, "frozen-after") < HEALING_S * BUSY
    stage.postgres.thaw()
    await stage.settled(ledger)


async def test_a_server_that_became_read_only(stage: ChaosServer, ledger: Ledger) -> None:
    talker = Talker(ledger, "read-only")
    await stage.ask(talker, "read-only-before")
    await stage.postgres.read_only(True)
    for n in range(2):
        await goes_on(stage, talker, f"read-only-{n}")
    await stage.postgres.read_only(False)
    assert await stage.healed(talker, "read-only-after") < HEALING_S * BUSY
    await stage.settled(ledger)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["cut", "stall", "refuse", "swallow_answers"])
async def test_a_route_that_is_lost(stage: ChaosServer, ledger: Ledger, how: str) -> None:
    """With swallowed answers the server cannot know whether its commit was done: it may neither lose nor double it."""
    talker = Talker(ledger, f"route-{how}")
    await stage.ask(talker, f"{how}-before")
    getattr(stage.proxy, how)()
    for n in range(2):
        await goes_on(stage, talker, f"{how}-{n}")
    stage.proxy.heal()
    assert await stage.healed(talker, f"{how}-after") < HEALING_S * BUSY
    await stage.settled(ledger)


# --- 2: away for a while ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def away(stage: ChaosServer) -> AsyncIterator[None]:
    """Postgres is shut down for the block."""
    stage.postgres.stop()
    try:
        yield
    finally:
        stage.postgres.start()


async def converse(stage: ChaosServer, talkers: list[Talker], names: list[str]) -> None:
    """Each talker asks all of `names`, one after another; the talkers talk at once."""

    async def one(talker: Talker) -> None:
        for name in names:
            answer = await stage.ask(talker, f"{talker.who}-{name}")
            assert answer is not None
            assert answer.ended == "whole", f"{talker.who}-{name} has no end"

    async with asyncio.TaskGroup() as group:
        for talker in talkers:
            group.create_task(one(talker))


async def ask_at_once(stage: ChaosServer, talkers: list[Talker], name: str) -> None:
    """Each talker asks, and whatever comes of it is right: its ledger knows."""
    async with asyncio.TaskGroup() as group:
        for talker in talkers:
            group.create_task(stage.ask(talker, f"{talker.who}-{name}"))


def talkers_of(ledger: Ledger, prefix: str) -> list[Talker]:
    return [Talker(ledger, f"{prefix}-{n}", stream=n % 2 == 0) for n in range(4)]


@pytest.mark.heavy
async def test_what_is_said_while_postgres_is_away_is_there_afterwards(stage: ChaosServer, ledger: Ledger) -> None:
    """Conversations that began before go on, others begin meanwhile; afterwards each is one session in its order."""
    old, new = talkers_of(ledger, "old"), talkers_of(ledger, "new")
    await converse(stage, old, ["before"])
    async with away(stage):
        await converse(stage, [*old, *new], ["meanwhile-1", "meanwhile-2"])
    await stage.healed(Talker(ledger, "healer"), "away-healed")
    await converse(stage, [*old, *new], ["after-1", "after-2"])
    await stage.settled(ledger, whole=[each.who for each in [*old, *new]])


@pytest.mark.heavy
async def test_a_spool_outlives_the_server(stage: ChaosServer, ledger: Ledger) -> None:
    """kill -9 while Postgres is away: the next start drains what was acknowledged."""
    talkers = talkers_of(ledger, "spooled")
    async with away(stage):
        await converse(stage, talkers, ["1", "2"])
        stage.server.kill9()
    stage.server.restart()
    await converse(stage, talkers, ["3"])
    await stage.settled(ledger, whole=[each.who for each in talkers])


async def test_a_server_that_is_up_before_postgres(stage: ChaosServer, ledger: Ledger) -> None:
    """After a reboot: it answers without Postgres, and drains what was acknowledged before and since when Postgres is there."""
    talkers = talkers_of(ledger, "early")
    async with away(stage):
        await converse(stage, talkers, ["1"])
        stage.server.kill9()
        await asyncio.to_thread(stage.server.restart, "/healthz")
        await converse(stage, talkers, ["2"])
    await converse(stage, talkers, ["3"])
    await stage.settled(ledger, whole=[each.who for each in talkers])


@pytest.mark.heavy
async def test_a_spool_that_is_full(tmp_path: Path, ledger: Ledger) -> None:
    """New answers lack their end, and a metric says why; what was taken in is there afterwards."""
    with ChaosServer(tmp_path, settings={"SPOOL_MAX_BYTES": "20000"}) as stage:
        talkers = talkers_of(ledger, "crowd")
        async with away(stage):
            for n in range(20):
                if not any(each.unacknowledged for each in talkers):
                    await ask_at_once(stage, talkers, str(n))
            assert ledger.entries, "nothing was taken in"
            assert sum(each.unacknowledged for each in talkers) > 0, "it was never full"
            assert 'mneme_spool_calls_total{event="refused"}' in stage.server.http.get("/metrics").text
        await stage.healed(Talker(ledger, "healer"), "crowd-healed")
        await stage.settled(ledger)


async def test_without_postgres_nobody_is_told_what_is_not_so(stage: ChaosServer, ledger: Ledger) -> None:
    """With a spool or without: an answer that ends is kept, and one that cannot be kept does not end."""
    talkers = talkers_of(ledger, "honest")
    async with away(stage):
        for talker, n in itertools.product(talkers, range(2)):
            await goes_on_or_is_refused(stage, talker, f"{talker.who}-{n}")
    await stage.healed(Talker(ledger, "healer"), "honest-healed")
    await stage.settled(ledger)


async def goes_on_or_is_refused(stage: ChaosServer, talker: Talker, name: str) -> None:
    """A stream goes on to its words, at least; a body of known length may be withheld by an error that says so."""
    answer = await stage.ask(talker, name)
    assert answer is not None
    assert answer.status in (200, 503), answer.body


# --- 3: full ----------------------------------------------------------------------------------------------------------

FULL_BYTES = 160 * 1024 * 1024
"""A disk that an empty cluster with Mneme's schema takes half of."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of `FULL_BYTES`."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES},mode=755", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("only who may mount can fill a disk up")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take all the room that is left; remove the file to give it back."""
    ballast = place / "ballast"
    with open(ballast, "wb") as file, contextlib.suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), 65536)
    return ballast


@pytest.mark.heavy
@pytest.mark.parametrize("what", ["postgres", "postgres and spool"])
async def test_a_disk_that_is_full(tmp_path: Path, small_disk: Path, ledger: Ledger, what: str) -> None:
    """Postgres cannot write its WAL any more, and ends. What was not kept was not said to be."""
    settings = {"DATA_DIR": str(small_disk / "spool")} if "spool" in what else {}
    with ChaosServer(tmp_path, place=small_disk, settings=settings) as stage:
        talkers = talkers_of(ledger, "full")
        for talker in talkers:
            await stage.ask(talker, f"{talker.who}-before")
        assert len(ledger.entries) == len(talkers)
        ballast = fill(small_disk)
        for n in range(4):
            await ask_at_once(stage, talkers, f"{n}-{random.Random(n).randbytes(100_000).hex()}")
        if "spool" in what:
            assert sum(each.unacknowledged for each in talkers) > 0, "neither was full"
        ballast.unlink()
        await stage.postgres.come_back()
        await stage.healed(Talker(ledger, "healer"), "full-healed")
        await stage.settled(ledger)


# --- all of it, by chance ---------------------------------------------------------------------------------------------


STORM_S = 45.0
CALM_S = (0.2, 1.5)
FAULT_S = (0.1, 4.0)
"""Seconds of the storm, of calm before a fault, and of a fault."""
TALKERS = 6


@pytest.mark.heavy
@pytest.mark.timeout(600)
async def test_a_storm(tmp_path: Path, ledger: Ledger, rng: random.Random) -> None:
    """Faults of every kind, one after another, while clients talk: ledger = rows, and at the end all is well."""
    with ChaosServer(tmp_path) as stage:
        over = asyncio.Event()

        async def talk(talker: Talker) -> None:
            for n in itertools.count():
                if over.is_set():
                    return
                answer = await stage.ask(talker, f"{talker.who}-{n}")
                if answer is None or answer.header("x-mneme-status") != "ok":
                    # A model takes longer to answer than the scripted one. Without memory, six clients that never pause
                    # would leave some 500 turns a second in the spool, and healing would measure how long storing them takes.
                    await asyncio.sleep(PATIENCE_S)

        async with asyncio.TaskGroup() as group:
            for n in range(TALKERS):
                group.create_task(talk(Talker(ledger, f"storm-{n}", stream=n % 2 == 0)))
            loop = asyncio.get_running_loop()
            end = loop.time() + STORM_S
            healing: list[float] = []
            while loop.time() < end:
                fault = rng.choice(FAULTS)
                print(f"{loop.time():.1f} {fault.__name__}")
                await asyncio.sleep(rng.uniform(*CALM_S))
                async with fault(stage):
                    await asyncio.sleep(rng.uniform(*FAULT_S))
                healing.append(await stage.healed(Talker(ledger, f"healer-{len(healing)}"), f"healing-{len(healing)}"))
            over.set()
        await stage.settled(ledger)
        print(f"{len(ledger.entries)} acknowledged; {len(healing)} faults; healed in {sorted(healing)}")
        assert sorted(healing)[len(healing) // 2] < HEALING_S
        assert len(ledger.entries) > len(healing)


@contextlib.asynccontextmanager
async def killed(stage: ChaosServer) -> AsyncIterator[None]:
    stage.postgres.kill9()
    try:
        yield
    finally:
        stage.postgres.start()


@contextlib.asynccontextmanager
async def backend_killed(stage: ChaosServer) -> AsyncIterator[None]:
    await stage.postgres.kill_a_backend()
    yield


@contextlib.asynccontextmanager
async def backends_terminated(stage: ChaosServer) -> AsyncIterator[None]:
    await stage.postgres.terminate_backends()
    yield


@contextlib.asynccontextmanager
async def frozen(stage: ChaosServer) -> AsyncIterator[None]:
    stage.postgres.freeze()
    try:
        yield
    finally:
        stage.postgres.thaw()


@contextlib.asynccontextmanager
async def read_only(stage: ChaosServer) -> AsyncIterator[None]:
    await stage.postgres.read_only(True)
    try:
        yield
    finally:
        await stage.postgres.read_only(False)


@contextlib.asynccontextmanager
async def refused(stage: ChaosServer) -> AsyncIterator[None]:
    stage.proxy.refuse()
    try:
        yield
    finally:
        stage.proxy.heal()


@contextlib.asynccontextmanager
async def unheard(stage: ChaosServer) -> AsyncIterator[None]:
    stage.proxy.swallow_answers()
    try:
        yield
    finally:
        stage.proxy.heal()


@contextlib.asynccontextmanager
async def server_killed(stage: ChaosServer) -> AsyncIterator[None]:
    stage.server.kill9()
    yield
    await asyncio.to_thread(stage.server.restart)


FAULTS = [away, killed, backend_killed, backends_terminated, frozen, read_only, refused, unheard, server_killed]
