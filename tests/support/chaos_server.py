"""One real server between a scripted upstream and a database, each of which can be hurt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from tests.support.ledger import Ledger, Talker, differences, scripted
from tests.support.own_postgres import OwnPostgres
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import DEADLINE_S, RawResponse
from tests.support.tcp_proxy import TcpProxy

IMPATIENT = {
    # A database that is away must be noticed within a test's patience; still long for a busy machine.
    "RETRIEVAL_DEADLINE_MS": "1000",
    "IDLE_TIMEOUT_S": "20",
}

LOG_LINES = 20
PATIENCE_S = 0.1
"""Seconds between two tries of a client that got no answer, or one without memory."""


class ChaosServer:
    """`server` on `postgres` through `proxy`, before `upstream`. Use as a context manager.

    `place`: where Postgres keeps its data.
    """

    def __init__(
        self,
        folder: Path,
        *,
        place: Path | None = None,
        worker: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._place = place or folder / "db"
        self._worker = worker
        self._settings = {**IMPATIENT, **settings}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ChaosServer:
        with contextlib.ExitStack() as stack:
            self.postgres = stack.enter_context(OwnPostgres(self._place))
            self.proxy = stack.enter_context(TcpProxy(self.postgres.port))
            self.upstream = stack.enter_context(ScriptedUpstream(scripted()))
            self.server = MnemeServer(
                self._folder / "mneme",
                database=self.postgres.dsn_at(self.proxy.port),
                upstream=self.upstream.url,
                worker=self._worker,
                settings=self._settings,
            )
            stack.enter_context(self.server)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(complaints(self.server))
        self.proxy.heal()
        self.postgres.thaw()
        self._stack.close()

    async def ask(self, talker: Talker, name: str) -> RawResponse | None:
        return await talker.ask(self.server.port, name)

    async def healed(self, talker: Talker, name: str) -> float:
        """Ask, again and again, until an answer is whole and had memory; the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        tries = 0
        while True:
            answer = await self.ask(talker, f"{name}-{tries}")
            if answer is not None and answer.ended == "whole" and answer.header("x-mneme-status") == "ok":
                return loop.time() - began
            tries += 1
            assert loop.time() - began < DEADLINE_S, f"it does not heal; last: {answer}"
            await asyncio.sleep(PATIENCE_S)

    async def settled(self, ledger: Ledger, *, whole: list[str] | None = None) -> None:
        """The ledger and the database agree: at once, or, what a spool holds, within a while."""
        await agree(ledger, self.postgres.dsn, whole=whole)


def complaints(server: MnemeServer) -> str:
    """The last warnings and errors of a server's log."""
    lines = [line for line in server.logs if line.get("level") not in ("debug", "info")][-LOG_LINES:]
    return "\n".join(f"{line.get('message', line)}\n{line.get('error', '')} {line.get('where', '')}" for line in lines)


async def agree(ledger: Ledger, dsn: str, *, whole: list[str] | None = None) -> None:
    """Fails with what differs between the ledger and the database."""
    await until_none(lambda: differences(ledger, dsn, whole=whole or []))


async def until_none(look: Callable[[], Awaitable[Sequence[str]]]) -> None:
    """Wait until `look` finds nothing; fails with what it found last."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while found := await look():
        assert asyncio.get_running_loop().time() < deadline, "\n".join(found)
        await asyncio.sleep(0.05)
