"""A server starts while Postgres is away: requests go through, and what was said is remembered when Postgres has come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Api, user
from tests.support.outage import give_back, take_away
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawResponse, eventually, fetch

CHAT = "/v1/chat/completions"
JSON = [(b"content-type", b"application/json")]
HTML = [(b"accept", b"text/html")]
PROCESSES = pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.heavy)])


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "Noted.")) as upstream:
        yield upstream


async def ask(mneme: MnemeServer, text: str, who: str, *, key: str | None = None) -> RawResponse:
    lines = [*JSON, (b"x-mneme-user", who.encode())]
    lines += [(b"x-mneme-key", key.encode())] if key is not None else []
    body = json.dumps({"model": "gpt-4o", "messages": [user(text)], "stream": True}).encode()
    return await fetch(mneme.port, "POST", CHAT, lines, body)


async def get(mneme: MnemeServer, path: str, *lines: tuple[bytes, bytes]) -> tuple[int, Any]:
    answer = await fetch(mneme.port, "GET", path, lines)
    return answer.status, answer.body


async def ready(mneme: MnemeServer) -> None:
    await eventually(lambda: mneme.http.get("/readyz").status_code == 200, "the server to be ready")


@PROCESSES
async def test_requests_go_through_and_are_remembered(
    empty_database: str, upstream: ScriptedUpstream, tmp_path: Path, workers: str
) -> None:
    """The database was never migrated, either; with two server processes as with one."""
    await take_away(empty_database)
    server = MnemeServer(
        tmp_path, database=empty_database, upstream=upstream.url, worker=True, settings={"WORKERS": workers}
    )
    try:
        await asyncio.to_thread(server.start, "/healthz")
        ledger = []
        for n in range(8):
            who = ("ana", "ben")[n % 2]
            answer = await ask(server, f"My name is {who.title()} and I live in Lisbon, {n}.", who)
            assert answer.ended == "whole"
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert (answer.header("x-mneme-status"), answer.header("x-mneme-reason")) == ("degraded", "store")
            ledger.append(str(answer.header("x-mneme-call-id")))
        status, told = await get(server, "/readyz")
        assert status == 503
        assert json.loads(told)["checks"]["embedder"] == "ok"
        assert "The database cannot be reached" in json.loads(told)["checks"]["database"]
        for path in ("/api/v1/memories", "/ui", "/mcp", "/docs", "/api/v1/users/ana/export"):
            status, told = await get(server, path)
            assert (status, json.loads(told)["error"]["type"]) == (503, "service_unavailable"), path
        status, told = await get(server, "/ui", *HTML)
        assert (status, b"The database cannot be reached" in told) == (503, True)
        status, told = await get(server, "/metrics")
        assert (status, b'mneme_spool_calls_total{event="kept"}' in told) == (200, True)

        await give_back(empty_database)
        await ready(server)
        apis = {who: Api(server, user=who) for who in ("ana", "ben")}

        def stored() -> list[str]:
            return sorted(each["id"] for api in apis.values() for each in api.calls())

        await eventually(lambda: len(stored()) >= len(ledger), "every call to be stored")
        assert stored() == sorted(ledger)
        answer = await ask(server, "Where do I live?", "ana")
        assert answer.header("x-mneme-status") == "ok"
        sent = str(upstream.requests[-1].json()["messages"])
        assert "Lisbon" in sent, "what was said without a database is in the next prompt"
        assert not server.said("background task failed")
    finally:
        await give_back(empty_database)
        await asyncio.to_thread(server.drop)


async def test_with_keys_nobody_is_let_in_by_a_guess(database: str, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    settings = {"AUTH": "keys"}
    server = MnemeServer(tmp_path, database=database, upstream=upstream.url, settings=settings)
    key = await asyncio.to_thread(server.create_key, "one")
    await take_away(database)
    try:
        await asyncio.to_thread(server.start, "/healthz")
        for shown in (key, "mneme_" + "A" * 43):
            answer = await ask(server, "Hello.", "ana", key=shown)
            assert answer.status == 503
        assert (await ask(server, "Hello.", "ana")).status == 401
        assert upstream.requests == []
        await give_back(database)
        await ready(server)
        assert (await ask(server, "Hello.", "ana", key=key)).status == 200
        assert (await ask(server, "Hello.", "ana", key="mneme_" + "A" * 43)).status == 401
    finally:
        await give_back(database)
        await asyncio.to_thread(server.drop)


async def test_keys_seen_before_are_let_in_where_the_operator_says_so(
    database: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    settings = {"AUTH": "keys", "KEYS_AWAY_SECRET": "a secret of thirty-two characters"}
    server = MnemeServer(tmp_path, database=database, upstream=upstream.url, settings=settings)
    seen, unseen = [await asyncio.to_thread(server.create_key, name, "--user", name) for name in ("ana", "ben")]
    try:
        await asyncio.to_thread(server.start)
        assert (await ask(server, "Hello.", "ana", key=seen)).status == 200
        await asyncio.to_thread(server.stop)
        await take_away(database)
        await asyncio.to_thread(server.start, "/healthz")
        answer = await ask(server, "I live in Lisbon.", "ana", key=seen)
        assert (answer.ended, answer.header("x-mneme-status")) == ("whole", "degraded")
        assert (await ask(server, "Hello.", "ben", key=seen)).status == 403
        assert (await ask(server, "Hello.", "ben", key=unseen)).status == 503
        await give_back(database)
        await ready(server)
        api = Api(server, key=seen)
        await eventually(lambda: len(api.calls()) == 2, "both calls to be stored")
    finally:
        await give_back(database)
        await asyncio.to_thread(server.drop)


@PROCESSES
async def test_a_server_that_waits_ends_when_it_is_told_to(
    tmp_path: Path, upstream: ScriptedUpstream, workers: str
) -> None:
    nobody = "postgresql://u:p@127.0.0.1:1/x"
    server = MnemeServer(tmp_path, database=nobody, upstream=upstream.url, worker=True, settings={"WORKERS": workers})
    try:
        await asyncio.to_thread(server.start, "/healthz")
        assert (await ask(server, "Hello.", "ana")).ended == "whole"
        await asyncio.to_thread(server.terminate)
        assert await asyncio.to_thread(server.wait) == 0
    finally:
        await asyncio.to_thread(server.drop)
