"""Faults 4 and 5: the server is killed, or asked to stop, at every point of a call.

The file tests/acceptance/test_durability.py shows that kill -9 after `[DONE]` loses nothing, a hundred times over. Here: the
points before, and all at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.sdk_upstream import chunk
from tests.support.chaos_server import agree
from tests.support.clients import Api, user
from tests.support.database import connected
from tests.support.ledger import CHAT, DONE, Ledger, Talker, pieces_of, scripted
from tests.support.own_postgres import OwnPostgres
from tests.support.replies import Recorded, Reply, Send, Stall, Step, Until, chunked, reply_events
from tests.support.rows import lock_table
from tests.support.scripted import ScriptedUpstream
from tests.support.server import START_S, MnemeServer, wait_until
from tests.support.sockets import RawClient, eventually
from tests.support.tcp_proxy import TcpProxy

STREAMS = 20
GRACE_S = 2
WAITING = "answering without memory until the database is there"


def begun(name: str, end: list[Step]) -> Reply:
    """An answer of which all but the last two words have come, and then what `end` says."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces_of(name)[:2])]
    return reply_events([chunk("gpt-4o", delta) for delta in deltas], end=end)


def rest_of(name: str) -> list[Step]:
    """The end of such an answer."""
    events = [
        *(chunk("gpt-4o", {"content": piece}) for piece in pieces_of(name)[2:]),
        chunk("gpt-4o", {}, "stop"),
        DONE,
    ]
    return [Send(b"".join(chunked(event) for event in events) + b"0\r\n\r\n")]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(scripted()) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory, module_database: str, upstream: ScriptedUpstream
) -> Iterator[MnemeServer]:
    settings = {"SHUTDOWN_GRACE_S": str(GRACE_S)}
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(folder, database=module_database, upstream=upstream.url, settings=settings) as server:
        yield server


@pytest.fixture
def running(mneme: MnemeServer) -> MnemeServer:
    """The module's server, started again if the last test ended it."""
    if not mneme.alive:
        mneme.restart()
    return mneme


def chats(upstream: ScriptedUpstream) -> list[Recorded]:
    return [each for each in upstream.requests if each.path == CHAT]


# --- 4: kill -9 -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def asked(mneme: MnemeServer, talker: Talker, name: str) -> AsyncIterator[RawClient]:
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, talker.headers, talker.body(name))
        yield client


async def test_killed_before_the_commit(
    running: MnemeServer, upstream: ScriptedUpstream, ledger: Ledger, module_database: str
) -> None:
    """The upstream has said everything, the client lacks `[DONE]`, and the transaction never ended: the turn is whole or gone
    (Postgres may end a statement whose client is dead), and the conversation goes on."""
    upstream.script = scripted(lambda name: begun(name, rest_of(name)))
    talker = Talker(ledger, "uncommitted")
    async with connected(module_database) as admin, admin.transaction():
        # Nobody may write a call; reading goes on.
        await lock_table(admin, "upstream_calls", "SHARE")
        async with asked(running, talker, "uncommitted") as client:
            seen = await client.read_until(b"asked.")
            running.kill9()
        assert DONE not in seen
    running.restart()
    assert await read_texts(running, "uncommitted") in ([], build_turns("uncommitted"))
    await talker.ask(running.port, "next")
    assert [entry.question for entry in ledger.entries] == ["question next?"]
    await agree(ledger, module_database)
    assert await read_texts(running, "uncommitted") in (build_turns("next"), build_turns("uncommitted", "next"))


async def read_texts(mneme: MnemeServer, name: str) -> list[str]:
    """Return all texts of the user's sessions, the first session first."""
    api = Api(mneme, user=name)
    sessions = await asyncio.to_thread(api.sessions)
    return [text for session in reversed(sessions) for _, text in await asyncio.to_thread(api.said, session["id"])]


def build_turns(*names: str) -> list[str]:
    return [text for name in names for text in (f"question {name}?", "".join(pieces_of(name)))]


async def test_killed_at_any_of_these_points_nothing_false_was_said(
    running: MnemeServer, upstream: ScriptedUpstream, ledger: Ledger, module_database: str
) -> None:
    """Ten streams at each of three points when the process dies: before the head, in the middle, after the end."""
    points: dict[str, Callable[[str], Reply]] = {
        "head": lambda name: Reply([Stall()]),
        "middle": lambda name: begun(name, [Stall()]),
        "end": lambda name: begun(name, rest_of(name)),
    }
    upstream.script = scripted(lambda name: points[name.partition("-")[0]](name))
    talkers = {f"{point}-{n}": Talker(ledger, f"{point}-{n}") for point in points for n in range(10)}
    seen = len(chats(upstream))
    async with asyncio.TaskGroup() as group:
        for name, talker in talkers.items():
            group.create_task(talker.ask(running.port, name))
        await eventually(lambda: len(chats(upstream)) == seen + len(talkers), "all to be asked")
        await eventually(lambda: len(ledger.entries) == 10, "those that end to be acknowledged")
        running.kill9()
    assert {entry.question for entry in ledger.entries} == {f"question end-{n}?" for n in range(10)}
    running.restart()
    await agree(ledger, module_database, whole=[f"end-{n}" for n in range(10)])
    for name in talkers:
        texts = await read_texts(running, name)
        assert texts == (build_turns(name) if name.startswith("end") else []), name


# --- 5: SIGTERM -------------------------------------------------------------------------------------------------------


async def test_sigterm_with_twenty_open_streams(
    running: MnemeServer, upstream: ScriptedUpstream, ledger: Ledger, module_database: str
) -> None:
    """Half of them end within the grace and are whole; the others are kept as far as they came, and marked."""
    go = threading.Event()

    def answer(name: str) -> Reply:
        return begun(name, [Until(go), *rest_of(name)] if name.startswith("ends") else [Stall()])

    upstream.script = scripted(answer)
    names = [f"{'ends' if n % 2 else 'stays'}-{n}" for n in range(STREAMS)]
    talkers = {name: Talker(ledger, name) for name in names}
    async with asyncio.TaskGroup() as group:
        seen = len(chats(upstream))
        asking = {name: group.create_task(talker.ask(running.port, name)) for name, talker in talkers.items()}
        await eventually(lambda: len(chats(upstream)) == seen + STREAMS, "all streams to be open")
        running.terminate()
        go.set()
    assert await asyncio.to_thread(running.wait) == 0
    for name, task in asking.items():
        answered = task.result()
        assert answered is not None
        assert (DONE in answered.body) == name.startswith("ends")
    running.restart()
    await agree(ledger, module_database, whole=[name for name in names if name.startswith("ends")])
    for name in names:
        api = Api(running, user=name)
        (call,) = api.calls()
        question, partial = api.history(call["session_id"])
        assert question["content"] == f"question {name}?"
        if name.startswith("stays"):
            assert (call["outcome"], partial["metadata"].get("interrupted")) == ("cancelled", True)
            assert partial["content"] == "".join(pieces_of(name)[:2])


async def test_sigterm_tells_those_who_still_wait_for_an_answer(
    running: MnemeServer, upstream: ScriptedUpstream, ledger: Ledger
) -> None:
    upstream.script = scripted(lambda name: Reply([Stall()]))
    seen = len(chats(upstream))
    body = json.dumps({"model": "gpt-4o", "messages": [user("Well?")], "stream": False}).encode()
    async with RawClient(running.port) as client:
        await client.send("POST", CHAT, [(b"x-mneme-user", b"waiter")], body)
        await eventually(lambda: len(chats(upstream)) > seen, "the upstream to be asked")
        running.terminate()
        answer = await client.response()
    assert await asyncio.to_thread(running.wait) == 0
    assert (answer.status, answer.ended, answer.header("retry-after")) == (503, "whole", "1")
    assert answer.json()["error"] == {
        "message": "The server is stopping; try again.",
        "type": "service_unavailable",
        "param": None,
        "code": "server_stopping",
    }
    assert chats(upstream)[-1].peer_closed.is_set()
    assert "Traceback" not in running.log_text()
    running.restart()
    assert Api(running, user="waiter").call(answer.header("x-mneme-call-id") or "")["outcome"] == "cancelled"


@pytest.mark.heavy
async def test_sigterm_while_the_database_is_waited_for(tmp_path: Path) -> None:
    """Postgres goes away between the migration and the first look of the server's processes at it."""
    with OwnPostgres(tmp_path / "db") as postgres, TcpProxy(postgres.port) as proxy:
        server = MnemeServer(
            tmp_path,
            database=postgres.dsn_at(proxy.port),
            upstream=None,
            settings={"WORKERS": "2"},
        )
        try:
            server.launch()
            parent = f"Started parent process [{server.pid}]"
            await asyncio.to_thread(wait_until, lambda: bool(server.said(parent)), parent, START_S)
            proxy.refuse()
            await asyncio.to_thread(wait_until, lambda: bool(server.said(WAITING)), WAITING, START_S)
            os.kill(server.pid, signal.SIGTERM)  # as an init system does: to the supervisor alone
            assert await asyncio.to_thread(server.wait) == 0
        finally:
            server.stop()
