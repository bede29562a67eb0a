"""No page and no route waits longer than two seconds for its 503, whatever keeps Postgres from answering."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.support.chaos_server import ChaosServer
from tests.support.database import connected
from tests.support.rows import lock_table
from tests.support.sockets import RawResponse, fetch
from tests.support.ui_pages import patterns

DEADLINE_S = 2.0
SLACK_S = 1.0
"""For what the server has to do beside, on a machine that others use too."""
AT_ONCE = 6
"""Fewer than the background pool has connections: what is measured is not the queue."""
JSON = (b"content-type", b"application/json")
HTML = (b"accept", b"text/html")
ANA = (b"x-mneme-user", b"ana")
SOME = str(UUID(int=7))
POSTS = {
    "/api/v1/users": {"id": "ben"},
    "/api/v1/memories": {"user": "ana", "text": "Ana lives in Lisbon."},
    "/api/v1/memories/search": {"user": "ana", "query": "Where does Ana live?"},
    "/api/v1/context": {"user": "ana", "messages": [{"role": "user", "content": "Where do I live?"}]},
    "/api/v1/sessions": {"user": "ana", "id": "one"},
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosServer]:
    with ChaosServer(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
async def paths(stage: ChaosServer) -> list[str]:
    """Every page and every route that is read, asked once: what is made at its first use is made."""
    api = (await asyncio.to_thread(stage.server.http.get, "/openapi.json")).json()["paths"]
    found = [path for path, methods in api.items() if "get" in methods and path.startswith("/api/")]
    found += [f"/ui{path}" for path in patterns()]
    filled = [re.sub(r"{(\w+)(:\w+)?}", lambda m: "ana" if m[1] == "user" else SOME, path) for path in found]
    for path in filled:
        await fetch(stage.server.port, "GET", path, [ANA, HTML])
    return filled


async def timed(stage: ChaosServer, method: str, path: str, body: object = None) -> tuple[str, RawResponse, float]:
    lines = [ANA, JSON] if body is not None else [ANA, HTML]
    began = time.monotonic()
    answer = await fetch(stage.server.port, method, path, lines, json.dumps(body).encode() if body is not None else b"")
    return f"{method} {path}", answer, time.monotonic() - began


async def all_of(stage: ChaosServer, asked: list[tuple[str, str, object]]) -> list[tuple[str, RawResponse, float]]:
    found = []
    for begin in range(0, len(asked), AT_ONCE):
        found += await asyncio.gather(*(timed(stage, *each) for each in asked[begin : begin + AT_ONCE]))
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["stall", "freeze", "refuse"])
async def test_postgres_does_not_answer(stage: ChaosServer, paths: list[str], how: str) -> None:
    asked: list[tuple[str, str, object]] = [("GET", path, None) for path in paths]
    asked += [("POST", path, body) for path, body in POSTS.items()]
    if how == "freeze":
        stage.postgres.freeze()
    else:
        getattr(stage.proxy, how)()
    try:
        found = await all_of(stage, asked)
    finally:
        stage.postgres.thaw()
        stage.proxy.heal()
    late = [f"{name}: {took:.1f} s, {answer.status}" for name, answer, took in found if took > DEADLINE_S + SLACK_S]
    assert not late
    told = {name: answer.status for name, answer, _ in found}
    assert not {name: status for name, status in told.items() if status == 500}
    unavailable = [name for name, status in told.items() if status == 503]
    assert len(unavailable) > len(found) / 2
    assert {path: told[f"POST {path}"] for path in POSTS} == dict.fromkeys(POSTS, 503)


async def test_a_lock_keeps_a_page_and_a_route_as_long(stage: ChaosServer) -> None:
    for path in ("/api/v1/memories", "/ui/memories"):
        await fetch(stage.server.port, "GET", path, [ANA, HTML])
    async with connected(stage.postgres.dsn) as admin, admin.transaction():
        await lock_table(admin, "memory_store")
        found = await all_of(stage, [("GET", "/api/v1/memories", None), ("GET", "/ui/memories", None)])
    for name, answer, took in found:
        assert answer.status == 503, name
        assert took < DEADLINE_S + SLACK_S, name


async def test_what_changes_something_waits_for_a_lock_and_is_done(stage: ChaosServer) -> None:
    async with connected(stage.postgres.dsn) as admin:
        async with admin.transaction():
            await lock_table(admin, "users", "EXCLUSIVE")
            asking = asyncio.create_task(timed(stage, "POST", "/api/v1/users", {"id": "carl"}))  # noqa: TID251
            await asyncio.sleep(DEADLINE_S)
            assert not asking.done()
        _, answer, _ = await asking
    assert answer.status == 201
