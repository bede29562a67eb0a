"""Work of one kind keeps no other waiting: what /api/v1 does has connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from app.store.pools import POOL_NAMES
from tests.support.clients import Api, ask
from tests.support.replies import chat_script
from tests.support.rows import read_calls, set_session
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until

StartServer = Callable[..., MnemeServer]
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mneme background' AND wait_event_type = 'Lock'"
    " AND datname = current_database()"
)


async def test_a_route_that_is_stuck_keeps_no_turn_from_memory_and_disk(
    own_server: StartServer, admin: asyncpg.Connection[Any]
) -> None:
    with ScriptedUpstream(chat_script(lambda asked: "Noted.")) as upstream:
        mneme = own_server(
            upstream.url,
            POOL_SIZE="1",
            POOL_BACKGROUND_SIZE="1",
        )
        session = ask(mneme, "Hello", headers={"x-mneme-user": "slow"}).headers["x-mneme-session-id"]
        url = f"{mneme.base_url}/api/v1/sessions/{session}/messages"
        body = {"messages": [{"role": "user", "content": "This has to wait."}]}
        async with (
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
            asyncio.TaskGroup() as group,
            admin.transaction(),
        ):
            await set_session(admin, UUID(session), metadata="{}")  # which locks it until the transaction ends
            stuck = group.create_task(client.post(url, json=body, headers={"x-mneme-user": "slow"}))
            async with asyncio.timeout(20):
                while not await admin.fetchval(WAITING):  # noqa: ASYNC110 - another process' state
                    await asyncio.sleep(0.01)
            api = Api(mneme, user="quick")
            refused = await asyncio.to_thread(api.send, "GET", "/sessions")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), "its one connection is taken"
            answers = [
                await asyncio.to_thread(ask, mneme, f"Fact {n}", headers={"x-mneme-user": "quick"}) for n in range(3)
            ]
            assert [each.headers["x-mneme-status"] for each in answers] == ["ok"] * 3
            assert len([call for call in await read_calls(admin) if str(call["session_id"]) != session]) == 3
        assert stuck.result().is_success
        idle = [f'mneme_pool_connections{{pool="{name}",state="idle"}} 1.0' for name in POOL_NAMES]

        def is_quiet() -> bool:
            metrics = mneme.http.get("/metrics").text
            return all(line in metrics for line in idle)

        # What else waited for the one connection of the background pool has it first.
        await asyncio.to_thread(wait_until, is_quiet, "every pool to have its one connection back")


async def test_more_connections_than_postgres_gives_are_warned_of(own_server: StartServer) -> None:
    with ScriptedUpstream(chat_script(lambda asked: "Noted.")) as upstream:
        mneme = own_server(upstream.url, POOL_BACKGROUND_SIZE="5000")
        line = mneme.wait_for_log(
            "Postgres gives fewer connections than the pools may ask for: lower MNEME_POOL_SIZE, or raise its max_connections"
        )
        assert line["wanted"] > line["allowed"]
