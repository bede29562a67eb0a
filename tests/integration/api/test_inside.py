"""The gateway asked from within a route: whoever goes away there goes away from the upstream, too."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import asyncpg

from app.store.pools import Pool
from tests.support.journey import Client, Reply, completion
from tests.support.rows import read_calls, read_messages, read_users
from tests.support.sockets import eventually
from tests.support.wired_api import build_api, make_space

BODY = json.dumps({"message": "Hello", "user_id": "ana", "model": "gpt-4o"}).encode()
JSON = [("content-type", "application/json")]


async def left(client: Client) -> None:
    """A request whose client does not stay for the answer."""
    with suppress(OSError):
        await client.request("POST", "/api/v1/chat", BODY, JSON)


async def test_a_caller_that_goes_takes_the_call_along(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), learn_wait_ms=30_000)
    upstream = api.journey.upstream
    upstream.script = lambda asked: Reply(chunks=[b'{"choices": ', asyncio.Event()])
    client = Client(api.app)  # type: ignore[arg-type]  # any ASGI application
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(left(client))
        await eventually(lambda: bool(upstream.requests))
        client.gone.set()
    await eventually(lambda: upstream.closed == 1)
    assert [row["outcome"] for row in await read_calls(admin)] == [2], "gone"
    await api.journey.settled()


async def test_nobody_waits_for_the_worker_on_behalf_of_who_is_gone(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), learn_wait_ms=30_000)
    api.journey.upstream.script = lambda asked: completion("Hi")
    client = Client(api.app)  # type: ignore[arg-type]  # any ASGI application
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(left(client))
        while not await read_messages(admin):
            pass
        client.gone.set()
    await api.journey.settled()


async def test_headers_of_the_outer_body_stay_outside(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), learn_wait_ms=0)
    given = [*JSON, ("x-custom", "a"), ("expect", "100-continue"), ("accept-encoding", "br"), ("x-mneme-user", "bo")]
    answer = await Client(api.app).request(  # type: ignore[arg-type]  # any ASGI application
        "POST", "/api/v1/chat", BODY, [*given, ("content-length", str(len(BODY)))], query=b"a=b"
    )
    assert answer.status == 200, answer.body
    (sent,) = api.journey.upstream.requests
    names = [name.lower() for name, _ in sent.headers]
    assert b"x-custom" in names
    assert b"expect" not in names
    assert names.count(b"content-type") == 1
    assert sent.url.endswith("/chat/completions")
    (row,) = await read_users(admin)
    assert row["external_id"] == "ana", "the body's name counts"
