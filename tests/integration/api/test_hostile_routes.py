"""Whatever comes in, the answer is an OpenAI-shaped 4xx, and nothing is stored half."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from app.store.pools import Pool
from tests.support.rows import count_rows
from tests.support.wired_api import MAX_BODY, WiredApi, error_of

JSON = {"Content-Type": "application/json"}
DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000
WIDE = b'{"user": "a", "text": "x", "metadata": ' + b"[" * 65 + b"]" * 65 + b"}"
HUGE = "9" * 400


@pytest.fixture
async def client(api: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(forgiving=True) as client:
        yield client


async def untouched(admin: asyncpg.Connection[Any]) -> bool:
    tables = ("users", "sessions", "memory_store", "conversation_history", "pgqueuer", "routes")
    return await count_rows(admin, *tables) == 0


PATHS = ("memories", "memories/search", "users", "sessions", "sessions/s/messages", "context")
BODIES = (
    b"", b"{", b"null", b"[]", b"[[]]", b"1", b'"x"', b"{}}", b"\xff\xfe", b'{"user": "\\ud800"}',
    b"\x00", b'{"importance": 1e400}', b'{"a": NaN}', b'{"a": Infinity}', DEEP, WIDE,
    f'{{"n": {HUGE}}}'.encode(), b'{"user": true}', b'{"user": ""}', b'{"user": []}', b'{"user": {"$gt": ""}}',
    b'{"user": "' + b"u" * 513 + b'"}', b'{"unknown": 1}',
)  # fmt: skip


async def test_bodies_that_are_none(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    for path, body in itertools.product(PATHS, BODIES):
        answer = await client.post(f"/api/v1/{path}", content=body, headers=JSON)
        assert answer.status_code == 400, (path, body[:40], answer.text)
        assert error_of(answer)["type"] == "invalid_request_error"
    assert await untouched(admin)


CHANGES: tuple[dict[str, Any], ...] = (
    {"text": None}, {"text": ""}, {"text": "  "}, {"text": 1}, {"text": ["x"]}, {"text": "x" * 40_000},
    {"kind": "nonsense"},
    {"kind": None}, {"tier": 0}, {"tier": 5}, {"tier": 10**30}, {"tier": "3.5"}, {"tier": [1]}, {"tags": "x"},
    {"tags": [""]}, {"tags": ["x" * 300]}, {"tags": [1]}, {"tags": ["x"] * 100}, {"metadata": []}, {"metadata": "x"},
    {"importance": 2}, {"importance": -1}, {"importance": "high"}, {"session": ""},
    {"session": "s" * 600}, {"extra": 1}, {"user": "u" * 600},
)  # fmt: skip


async def test_memories_that_are_none(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    good = {"user": "ana", "text": "x"}
    for change in CHANGES:
        for body in (good | change, [good, good | change]):
            answer = await client.post("/api/v1/memories", json=body)
            assert answer.status_code == 400, (change, answer.text)
            assert next(iter(change)) in error_of(answer)["param"], change
    assert await untouched(admin)


LISTS = ("memories", "users", "sessions", "calls", "queue/dead")
QUERIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((path, {"limit": limit}) for path in LISTS
      for limit in (0, 1001, -1, HUGE, "x", "")),
    *((path, {"cursor": cursor}) for path in LISTS
      for cursor in ("x", "!!!", "é", "bnVsbA", "WzFd", "WyJ4Iiwx", "A" * 5000, "W10")),
    ("memories", {"tier": "x"}), ("memories", {"tier": 9}), ("memories", {"kind": "x"}), ("memories", {"status": "x"}),
    ("memories", {"metadata": "x"}), ("memories", {"metadata": "[1]"}), ("memories", {"metadata": "[" * 5000}),
    ("memories", {"metadata": '"\\ud800"'}), ("memories", {"user": ""}), ("memories", {"tag": ""}),
    ("memories", {"tag": ["t"] * 65}), ("sessions", {"status": "x"}), ("sessions", {"user": "u" * 513}),
    ("calls", {"status": 99}), ("calls", {"status": HUGE}), ("calls", {"since": "x"}), ("calls", {"since": "1e400"}),
    ("calls", {"since": "0001-01-01T00:00:00+14:00"}), ("calls", {"model": ""}),
)  # fmt: skip


async def test_queries_that_are_none(client: httpx.AsyncClient) -> None:
    for path, query in QUERIES:
        answer = await client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 400, (path, query, answer.text)
        assert error_of(answer)["param"] == next(iter(query)), (path, query)


async def test_times_far_away_are_times(client: httpx.AsyncClient) -> None:
    for since in ("1960-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "-1"):
        assert (await client.get("/api/v1/calls", params={"since": since})).status_code == 200, since


NAMES = (str(uuid4()), "x", "%00", "%FF", "%ED%A0%80", "..", "a" * 600, "'; DROP TABLE users --", "%2F", "%EF%B7%90")
BY_NAME = (
    "memories/{}", "memories/{}/history", "sessions/{}", "sessions/{}/history", "calls/{}", "calls/{}/request",
    "calls/{}/raw", "calls/{}/context", "calls/{}/events", "users/{}",
)  # fmt: skip


async def test_unknown_ids(client: httpx.AsyncClient) -> None:
    for path, name in itertools.product(BY_NAME, NAMES):
        answer = await client.get("/api/v1/" + path.format(name))
        assert answer.status_code in (400, 404, 405), (path, name, answer.text)
        error_of(answer)


REQUESTS: tuple[tuple[str, str, Any, int], ...] = (
    ("DELETE", f"memories/{uuid4()}", None, 404),
    ("PATCH", f"memories/{uuid4()}", {"text": "x"}, 404),
    ("PATCH", f"memories/{uuid4()}", {}, 400),
    ("PATCH", "users/ana", {}, 400),
    ("POST", f"memories/{uuid4()}/invalidate", None, 404),
    ("POST", f"memories/{uuid4()}/invalidate", {"reason": "r" * 2000}, 400),
    ("POST", f"memories/{uuid4()}/restore", None, 404),
    ("POST", "sessions/x/close", None, 404),
    ("POST", "queue/dead/7/retry", None, 404),
    ("POST", "queue/dead/x/retry", None, 400),
    ("POST", f"queue/dead/{HUGE}/retry", None, 400),
    ("POST", "context", {"user": "a"}, 400),
    ("POST", "context", {"user": "a", "query": "x", "max_tokens": 0}, 400),
    ("POST", "memories/search", {"user": "a", "query": ""}, 400),
    ("POST", "memories/search", {"user": "a", "query": "x", "k": 0}, 400),
    ("POST", "memories/search", {"user": "a", "query": "x", "token_budget": -1}, 400),
    ("POST", "memories/search", {"user": "a", "query": "x", "tiers": [7]}, 400),
    ("POST", "memories/search", {"user": "a", "query": "x", "now": "yesterday"}, 400),
    ("POST", "users", {"email": "nobody"}, 400),
    ("POST", "sessions/s/messages", {"user": "a", "messages": []}, 400),
    ("POST", "sessions/s/messages", {"user": "a", "messages": [{"role": "king", "content": "x"}]}, 400),
    ("POST", "sessions/s/messages", {"user": "a", "messages": [{"role": "user", "content": 1}]}, 400),
    ("POST", "sessions/s/messages", {"user": "a", "messages": [{"role": "user", "content": "x", "created_at": "x"}]}, 400),
    ("POST", "sessions/s/messages", {"user": "a", "messages": [{"role": "user", "content": "x"}] * 1001}, 400),
    ("PUT", "memories", {}, 405),
    ("DELETE", "users/ana", None, 404),
    ("GET", "nowhere", None, 404),
)  # fmt: skip


async def test_requests_that_cannot_be(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    for method, path, body, status in REQUESTS:
        answer = await client.request(method, f"/api/v1/{path}", json=body)
        assert answer.status_code == status, (method, path, body, answer.text)
        error_of(answer)
    assert await untouched(admin)


async def test_a_form_is_no_body(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    """What a web page can make a browser post to a local server without asking must not be taken."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        for path in ("memories", "import"):
            answer = await client.post(
                f"/api/v1/{path}", content=b'{"user": "a", "text": "x"}', headers={"Content-Type": kind}
            )
            assert answer.status_code == 400, (kind, answer.text)
            error_of(answer)
    assert await untouched(admin)


async def test_headers_of_ours_are_judged(client: httpx.AsyncClient) -> None:
    for value in (b"", b" ", b"u" * 513):
        answer = await client.get("/api/v1/memories", headers=[(b"X-Mneme-User", value)])
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "X-Mneme-User"


async def test_an_empty_body_on_a_get_is_no_json(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/memories", headers=JSON)).status_code == 200


async def test_a_body_over_the_limit(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    body = b'{"user": "a", "text": "' + b"x" * MAX_BODY + b'"}'

    async def unannounced() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 4096):
            yield body[at : at + 4096]

    for content in (body, unannounced()):
        answer = await client.post("/api/v1/memories", content=content, headers=JSON)
        assert answer.status_code == 413, answer.text
        error_of(answer)
    lines = {"Content-Type": "application/x-ndjson"}
    assert (await client.post("/api/v1/import", content=unannounced(), headers=lines)).status_code == 413
    assert (await client.post("/api/v1/nowhere", content=body)).status_code == 413
    assert await untouched(admin)


async def test_a_surprise_says_nothing_of_itself(api: WiredApi, client: httpx.AsyncClient) -> None:
    async def broken(request: Any) -> Any:
        raise RuntimeError("the password is swordfish")

    api.searcher.search = broken  # type: ignore[method-assign]  # a searcher that is broken
    answer = await client.post("/api/v1/memories/search", json={"user": "a", "query": "x"})
    assert answer.status_code == 500
    assert error_of(answer)["type"] == "server_error"
    assert "swordfish" not in answer.text


async def test_a_database_that_is_away(api: WiredApi, client: httpx.AsyncClient, pool: Pool) -> None:
    key, _ = await api.tenancy.create_key("acme", "a")
    fresh, _ = await api.tenancy.create_key("acme", "b")
    known = {"Authorization": f"Bearer {key}"}
    assert (await client.get("/api/v1/memories", headers=known)).status_code == 200
    await pool.close()
    for headers in (known, {"Authorization": f"Bearer {fresh}"}, {}):
        answer = await client.get("/api/v1/memories", headers=headers)
        assert answer.status_code == 503, answer.text
        assert error_of(answer)["type"] == "service_unavailable"
        assert answer.headers["retry-after"]
