"""Every route of the OpenAPI document against bodies and parameters made from it, right and wrong ones (fault 9)."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from app.store.pools import open_pool
from tests.support.wired_api import build_api, make_space

EXAMPLES = 40
"""Cases for each operation: some 1,200 in all."""
ERROR = {"message", "type", "param", "code"}
LINES = "application/x-ndjson"
NO_HTTP = "Invalid HTTP request received."
"""The HTTP server's own, of a request that no application sees: its address is beyond 64 KB."""


class Server(threading.Thread):
    """The API in a loop of their own, on a real port: what makes the cases is not asynchronous."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.ready = threading.Event()
        self._server: uvicorn.Server | None = None

    def run(self) -> None:
        asyncio.run(self._serve())

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self.join()
        self._socket.close()

    async def _serve(self) -> None:
        pool = await open_pool(
            self._dsn, size=2, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app"
        )
        admin = await asyncpg.connect(self._dsn)
        space = await make_space(admin)
        await admin.close()
        api = await build_api(pool, space, dsn=self._dsn)
        # uvicorn's own log configuration would stay, for every test after this one.
        self._server = uvicorn.Server(uvicorn.Config(api.app, log_config=None, access_log=False, lifespan="off"))
        self.ready.set()
        await self._server.serve([self._socket])
        await pool.close()


@pytest.fixture
def server(database: str) -> Iterator[Server]:
    server = Server(database)
    server.start()
    assert server.ready.wait(30)
    yield server
    server.stop()


def as_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_no_case_is_a_surprise(server: Server) -> None:
    schemathesis.serializer(LINES)(as_lines)
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", wait_for_schema=30)
    tried: dict[str, int] = {}
    for each in schema.get_all_operations():
        assert isinstance(each, Ok), each
        operation = each.ok()
        if operation.path.startswith("/api/"):
            tried[operation.label] = _try(operation)
    print(f"{sum(tried.values())} cases for {len(tried)} operations")
    assert len(tried) > 25


def _try(operation: Any) -> int:
    """How many cases were tried."""
    count = 0
    wrong = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @given(case=wrong | operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def run(case: Any) -> None:
        nonlocal count
        count += 1
        answer = case.call()
        assert answer.status_code < 500, f"{answer.text} for {case.as_curl_command()}"
        if answer.text == NO_HTTP and answer.status_code == 400:
            return
        if answer.status_code >= 400:
            assert set(answer.json()["error"]) == ERROR, answer.text
        else:
            case.validate_response(answer, checks=[schemathesis.checks.CHECKS.get_one("response_schema_conformance")])

    run()
    return count
