"""The harness itself: a ledger that differs is told, and a route is hurt as it says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.database import connected
from tests.support.ledger import Ledger, Talker, differences, scripted
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import eventually
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture(scope="module")
def mneme(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    with (
        ScriptedUpstream(scripted()) as upstream,
        MnemeServer(tmp_path_factory.mktemp("mneme"), database=module_database, upstream=upstream.url) as server,
    ):
        yield server


HARM = {
    "lost": ("DELETE FROM agent_data.upstream_calls WHERE call_id = $1::uuid", "is lost"),
    "unfinished": ("UPDATE agent_data.upstream_calls SET outcome = 3 WHERE call_id = $1::uuid", "outcome 3"),
    "another body": ("UPDATE agent_data.streams SET body = 'x' WHERE call_id = $1::uuid", "another body"),
    "doubled": (
        "INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, method, path, upstream, outcome, memory_status)"
        " VALUES ($1::uuid, gen_random_uuid(), gen_random_uuid(), 'POST', '/', 'up', 0, 'ok')",
        "is there 2 times",
    ),
    "another answer": (
        "UPDATE agent_data.conversation_history SET content = 'x' WHERE call_id = $1::uuid AND role = 2",
        "has the answers ['x']",
    ),
    "no question": (
        "DELETE FROM agent_data.conversation_history WHERE call_id = $1::uuid AND role = 1",
        "has the questions []",
    ),
    "another order": (
        "UPDATE agent_data.conversation_history SET turn_index = 1000 WHERE call_id = $1::uuid",
        "and is there as",
    ),
    "another session": (
        "UPDATE agent_data.upstream_calls SET session_id = gen_random_uuid() WHERE call_id = $1::uuid",
        "is in the sessions",
    ),
    "a branch": (
        "UPDATE agent_data.sessions SET parent_session_id = gen_random_uuid() WHERE session_id ="
        " (SELECT session_id FROM agent_data.upstream_calls WHERE call_id = $1::uuid)",
        "is a branch",
    ),
}


@pytest.mark.parametrize("harm", HARM)
async def test_what_differs_is_told(mneme: MnemeServer, module_database: str, ledger: Ledger, harm: str) -> None:
    talker = Talker(ledger, harm.replace(" ", "-"))
    for n in range(3):
        assert await talker.ask(mneme.port, f"{talker.who}-{n}")
    assert await differences(ledger, module_database, whole=[talker.who]) == []
    statement, telling = HARM[harm]
    async with connected(module_database) as admin:
        async with admin.transaction():
            await admin.execute("SET LOCAL session_replication_role = replica")  # history takes no updates
            await admin.execute(statement, ledger.entries[0].call)
        found = await differences(ledger, module_database, whole=[talker.who])
        await admin.execute("DELETE FROM agent_data.upstream_calls WHERE path = '/'")
    assert any(telling in line for line in found), found


# --- the route -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A server that says what it hears, on this port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def heard(reader: asyncio.StreamReader) -> bytes | None:
    """What comes within a moment; None: nothing does."""
    try:
        async with asyncio.timeout(0.2):
            return await reader.read(100)
    except TimeoutError:
        return None


async def test_a_route_is_hurt_as_it_says(echo: int) -> None:
    with TcpProxy(echo) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await heard(reader) == b"one"
        await asyncio.to_thread(proxy.stall)
        writer.write(b"two")
        assert await heard(reader) is None
        await asyncio.to_thread(proxy.heal)
        assert await reader.read(100) == b"two"
        await asyncio.to_thread(proxy.delay, 0.1)
        writer.write(b"three")
        assert await reader.read(100) == b"three"
        await asyncio.to_thread(proxy.swallow_answers)
        writer.write(b"four")
        assert await heard(reader) is None
        assert proxy.connections == 1
        await asyncio.to_thread(proxy.heal)
        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        writer.close()
        await asyncio.to_thread(proxy.refuse)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        await asyncio.to_thread(proxy.heal)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await eventually(lambda: proxy.connections == 1)  # taken by the kernel first, and then by the proxy
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        writer.close()
