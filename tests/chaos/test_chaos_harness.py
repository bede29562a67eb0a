"""The harness itself: a ledger that differs is told, and a route is hurt as it says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias
from uuid import UUID, uuid4

import pytest

from tests.support.database import connected
from tests.support.ledger import Ledger, Talker, differences, scripted
from tests.support.rows import Admin, delete_rows, insert_row, update_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import eventually
from tests.support.tcp_proxy import TcpProxy

Harm: TypeAlias = Callable[[Admin, UUID], Awaitable[None]]


@pytest.fixture(scope="module")
def mneme(tmp_path_factory: pytest.TempPathFactory, module_database: str) -> Iterator[MnemeServer]:
    with (
        ScriptedUpstream(scripted()) as upstream,
        MnemeServer(tmp_path_factory.mktemp("mneme"), database=module_database, upstream=upstream.url) as server,
    ):
        yield server


def change(table: str, role: int | None = None, **columns: object) -> Harm:
    """Return what changes columns of a call's rows in a table."""

    async def harm(admin: Admin, call: UUID) -> None:
        await update_rows(admin, table, {"call_id": call} | ({} if role is None else {"role": role}), **columns)

    return harm


def delete(table: str, **conditions: object) -> Harm:
    async def harm(admin: Admin, call: UUID) -> None:
        await delete_rows(admin, table, call_id=call, **conditions)

    return harm


async def double(admin: Admin, call: UUID) -> None:
    columns = {"method": "POST", "path": "/", "upstream": "up", "outcome": 0, "memory_status": "ok"}
    await insert_row(admin, "upstream_calls", call_id=call, tenant_id=uuid4(), user_id=uuid4(), **columns)


async def branch(admin: Admin, call: UUID) -> None:
    await update_rows(admin, "sessions", {}, parent_session_id=uuid4())


HARM: dict[str, tuple[Harm, str]] = {
    "lost": (delete("upstream_calls"), "is lost"),
    "unfinished": (change("upstream_calls", outcome=3), "outcome 3"),
    "another body": (change("streams", body=b"x"), "another body"),
    "doubled": (double, "is there 2 times"),
    "another answer": (change("conversation_history", role=2, content="x"), "has the answers ['x']"),
    "no question": (delete("conversation_history", role=1), "has the questions []"),
    "another order": (change("conversation_history", turn_index=1000), "and is there as"),
    "another session": (change("upstream_calls", session_id=uuid4()), "is in the sessions"),
    "a branch": (branch, "is a branch"),
}


@pytest.mark.parametrize("harm", HARM)
async def test_what_differs_is_told(mneme: MnemeServer, module_database: str, ledger: Ledger, harm: str) -> None:
    talker = Talker(ledger, harm.replace(" ", "-"))
    for n in range(3):
        assert await talker.ask(mneme.port, f"{talker.who}-{n}")
    assert await differences(ledger, module_database, whole=[talker.who]) == []
    hurt, telling = HARM[harm]
    async with connected(module_database) as admin:
        async with admin.transaction():
            await admin.execute("SET LOCAL session_replication_role = replica")  # history takes no updates
            await hurt(admin, UUID(ledger.entries[0].call))
        found = await differences(ledger, module_database, whole=[talker.who])
        await delete_rows(admin, "upstream_calls", path="/")
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
