from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import orjson
import pytest

from app.errors import NotReady, StoreUnavailable
from app.store import pools
from app.store.pools import POOL_NAMES, Pool, PoolLimits, halfvec, open_pool, open_pools
from tests.support.database import connected
from tests.support.sockets import eventually

ABANDONED = 50
DEADLINE_S = 20.0
"""Seconds after which something that must not hang is taken to hang."""


async def opened(dsn: str, **changed: Any) -> Pool:
    options: dict[str, Any] = {
        "size": 1,
        "timeout_ms": 5000,
        "statement_timeout_ms": 10_000,
        "statement_cache_size": 100,
        "role": None,
    }
    return await open_pool(dsn, **{**options, **changed})


@pytest.fixture
async def one(empty_database: str) -> AsyncIterator[Pool]:
    """A pool of one connection, whose statements must be quick."""
    pool = await opened(empty_database, statement_timeout_ms=200)
    yield pool
    await pool.close()


@pytest.fixture
async def login(postgres_server: str) -> AsyncIterator[str]:
    """A login without rights, with password `p`."""
    name = f"login_{secrets.token_hex(4)}"
    async with connected(postgres_server) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
        yield name
        await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def as_login(dsn: str, login: str) -> str:
    url = urlsplit(dsn)
    _, _, host = url.netloc.rpartition("@")
    return url._replace(netloc=f"{login}:p@{host}").geturl()


async def pid(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def setting(pool: Pool, name: str) -> str:
    async with pool.acquire() as connection:
        return str(await connection.fetchval("SELECT current_setting($1)", name))


# --- who and where we are -------------------------------------------------------------------------------------------


async def test_connections_are_in_the_application_role(pool: Pool) -> None:
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT current_user") == "mneme_app"
        assert await connection.fetchval("SELECT session_user") == "mneme"
        assert not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")


async def test_role_and_session_survive_a_release_and_a_reset(pool: Pool) -> None:
    before = await pid(pool)
    async with pool.acquire() as connection:
        await connection.execute("RESET ALL")
    assert await pid(pool) == before
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT current_user") == "mneme_app"
    assert await setting(pool, "search_path") == "agent_data, public"
    assert await setting(pool, "statement_timeout") == "30s"
    assert await setting(pool, "application_name") == "mneme-test"
    assert await setting(pool, "TimeZone") == "GMT"
    assert await setting(pool, "jit") == "off"


async def test_without_a_role_we_stay_who_we_are(one: Pool) -> None:
    async with one.acquire() as connection:
        assert await connection.fetchval("SELECT current_user") == "mneme"


async def test_a_login_that_is_the_role_already(database: str, login: str) -> None:
    pool = await opened(as_login(database, login), role=login)
    assert await setting(pool, "role") == "none"
    await pool.close()


async def test_a_login_that_may_not_become_the_role_is_told(database: str, login: str) -> None:
    with pytest.raises(NotReady, match=f"GRANT mneme_app TO {login}"):
        await opened(as_login(database, login), role="mneme_app")
    with pytest.raises(NotReady, match="is no member of the role no_such_role"):
        await opened(database, role="no_such_role")


async def test_behind_a_pooler_the_login_itself_must_be_right(database: str, login: str) -> None:
    """With transaction pooling a session is anybody's: nothing may be set in it, and nothing is."""
    dsn = as_login(database, login)
    async with connected(database) as admin:
        await admin.execute(f"GRANT mneme_app TO {login}")
        with pytest.raises(NotReady, match=f"ALTER ROLE {login} SET role = 'mneme_app'"):
            await opened(dsn, role="mneme_app", statement_cache_size=0)
        await admin.execute(f"ALTER ROLE {login} SET role = 'mneme_app'")
        with pytest.raises(NotReady, match=f"ALTER ROLE {login} SET search_path"):
            await opened(dsn, role="mneme_app", statement_cache_size=0)
        await admin.execute(f"ALTER ROLE {login} SET search_path = agent_data, public")
    pool = await opened(dsn, role="mneme_app", statement_cache_size=0)
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT current_user") == "mneme_app"
    assert await setting(pool, "statement_timeout") == "0"
    await pool.close()


async def test_a_transaction_belongs_to_a_tenant(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    mine, other = uuid4(), uuid4()
    insert = "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, 'ana')"
    await admin.execute(insert, uuid4(), mine)
    await admin.execute(insert, uuid4(), other)
    count = "SELECT count(*) FROM users"
    async with pool.transaction(mine) as connection:
        assert await connection.fetchval("SELECT current_setting('mneme.tenant')") == str(mine)
        assert await connection.fetchval(count) == 1
    async with pool.transaction(None) as connection:
        assert await connection.fetchval(count) == 0
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT current_setting('mneme.tenant', true)") in {None, ""}
        assert await connection.fetchval(count) == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with pool.transaction(mine) as connection:
            await connection.execute(insert, uuid4(), other)
    assert await admin.fetchval("SELECT count(*) FROM agent_data.users") == 2


async def test_a_transaction_is_all_or_nothing(one: Pool) -> None:
    async with one.transaction(None) as connection:
        await connection.execute("CREATE TABLE t (n int)")

    async def fails() -> None:
        async with one.transaction(None) as connection:
            await connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError

    with pytest.raises(KeyError):
        await fails()
    async with one.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT count(*) FROM t") == 0


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "jsonb"])
@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "ž"]}, [], True, 0, {"deep": {"er": [{}]}}])
async def test_json_goes_in_and_out(pool: Pool, kind: str, value: object) -> None:
    async with pool.acquire() as connection:
        assert await connection.fetchval(f"SELECT $1::{kind}", value) == value


async def test_json_text_is_taken_as_it_is(pool: Pool) -> None:
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT $1::json::text", '{"a":  1.0}') == '{"a":  1.0}'
        assert await connection.fetchval("SELECT $1::jsonb", '{"a": 1}') == {"a": 1}
        assert await connection.fetchval("SELECT $1::jsonb[]", ['{"a": 1}', {"b": 2}]) == [{"a": 1}, {"b": 2}]
        assert await connection.fetchval("SELECT $1::jsonb", None) is None
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await connection.fetchval("SELECT $1::jsonb", "a plain word")


async def test_ids_are_as_those_of_the_standard_library(pool: Pool) -> None:
    value = uuid4()
    async with pool.acquire() as connection:
        found = await connection.fetchval("SELECT $1::uuid", value)
        assert found == value
        assert isinstance(found, UUID)
        assert hash(found) == hash(value)
        assert orjson.loads(orjson.dumps(found, default=str)) == str(value)
        assert await connection.fetchval("SELECT $1::jsonb", {"id": found}) == {"id": str(value)}
        assert await connection.fetchval("SELECT $1::uuid", str(value)) == value
        assert await connection.fetchval("SELECT $1::uuid[]", [value, str(value)]) == [value, value]
        with pytest.raises(asyncpg.DataError):
            await connection.fetchval("SELECT $1::uuid", "no id")


@pytest.mark.parametrize(("kind", "exact"), [("vector", np.float32), ("halfvec", np.float16)])
async def test_vectors_go_in_and_out(pool: Pool, kind: str, exact: type[np.floating[Any]]) -> None:
    value = np.random.default_rng(7).normal(size=256).astype(np.float32)
    async with pool.acquire() as connection:
        found = await connection.fetchval(f"SELECT $1::{kind}", value)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, value.astype(exact).astype(np.float32))
        # The server reads the same numbers as we do.
        assert await connection.fetchval(f"SELECT '[1,-2.5,0]'::{kind} = $1", [1, -2.5, 0])
        assert await connection.fetchval(f"SELECT $1::{kind} <-> '[0,4]'::{kind}", np.array([3.0, 0.0])) == 5
        with pytest.raises(asyncpg.DataError, match="one dimension"):
            await connection.fetchval(f"SELECT $1::{kind}", [[1, 2], [3, 4]])


async def test_arrays_of_vectors(pool: Pool) -> None:
    async with pool.acquire() as connection:
        rows = await connection.fetchval("SELECT $1::halfvec[]", [halfvec(np.array([1, 2])), halfvec([3, 4])])
        np.testing.assert_array_equal(np.stack(rows), [[1, 2], [3, 4]])


async def test_a_database_without_pgvector_can_be_talked_to(one: Pool) -> None:
    async with one.acquire() as connection:
        assert await connection.fetchval("SELECT $1::jsonb", {"a": 1}) == {"a": 1}


# --- failures -------------------------------------------------------------------------------------------------------


async def test_an_exhausted_pool_says_so_and_recovers(empty_database: str) -> None:
    pool = await opened(empty_database, timeout_ms=50)
    before = await pid(pool)
    async with pool.acquire():
        assert (pool.size, pool.idle) == (1, 0)
        with pytest.raises(StoreUnavailable, match="no connection"):
            async with pool.acquire():
                pytest.fail("there is only one")
    assert (pool.size, pool.idle) == (1, 1)
    assert await pid(pool) == before
    await pool.close()


async def test_a_pool_opens_more_connections_when_all_are_in_use(empty_database: str) -> None:
    pool = await opened(empty_database, size=3)
    assert pool.size == 1
    async with pool.acquire(), pool.acquire(), pool.acquire():
        assert pool.size == 3
    assert (pool.size, pool.idle) == (3, 3)
    await pool.close()


async def test_a_statement_that_is_too_slow(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server keeps the time itself, and the connection is as good as before.
    monkeypatch.setattr(pools, "COMMAND_GRACE_S", DEADLINE_S)
    pool = await opened(empty_database, statement_timeout_ms=50)
    before = await pid(pool)
    with pytest.raises(StoreUnavailable, match="not in time"):
        async with pool.acquire() as connection:
            await connection.execute("SELECT pg_sleep(60)")
    assert await pid(pool) == before
    await pool.close()


@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_who_gave_way_in_a_deadlock_may_try_again(one: Pool, code: str) -> None:
    with pytest.raises(StoreUnavailable):
        async with one.acquire() as connection:
            await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'two waited' USING ERRCODE = '{code}'; END $$")


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_terminated_backend(one: Pool, empty_database: str, in_transaction: bool) -> None:
    before = await pid(one)

    async def is_terminated() -> None:
        async with one.transaction(None) if in_transaction else one.acquire() as connection:
            async with connected(empty_database) as admin:
                await admin.execute("SELECT pg_terminate_backend($1, 5000)", before)
            await connection.fetchval("SELECT 1")

    with pytest.raises(StoreUnavailable):
        await is_terminated()
    assert await pid(one) != before


async def test_a_backend_terminated_while_idle_is_replaced(one: Pool, empty_database: str) -> None:
    before = await pid(one)
    async with connected(empty_database) as admin:
        await admin.execute("SELECT pg_terminate_backend($1, 5000)", before)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                assert await pid(one) != before
                return
            except StoreUnavailable:  # at most until the end of the connection has been read
                await asyncio.sleep(0)


async def freeze(pool: Pool, backend: int, *, in_transaction: bool) -> None:
    """Stop the pool's one backend in the middle of a block, and ask it something."""
    async with pool.transaction(None) if in_transaction else pool.acquire() as connection:
        os.kill(backend, signal.SIGSTOP)
        await connection.fetchval("SELECT 1")


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_frozen_backend_holds_nobody_up(one: Pool, in_transaction: bool) -> None:
    frozen = await pid(one)
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(StoreUnavailable, match="not in time"):
                await freeze(one, frozen, in_transaction=in_transaction)
            assert await pid(one) != frozen
    finally:
        os.kill(frozen, signal.SIGCONT)


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_deadline_over_a_frozen_backend_stays_a_deadline(empty_database: str, in_transaction: bool) -> None:
    # Long limits, so that only a release with a limit of its own ends in time.
    pool = await opened(empty_database, timeout_ms=600_000, statement_timeout_ms=600_000)
    frozen = await pid(pool)
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(freeze(pool, frozen, in_transaction=in_transaction), 0.05)
            assert await pid(pool) != frozen
    finally:
        os.kill(frozen, signal.SIGCONT)
        await pool.close()


async def test_connections_that_others_took_meanwhile_say_nothing_about_their_backends(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PROBE_S", 0.01)
    monkeypatch.setattr(pools, "SUSPECT_S", 0.0)
    pool = await opened(empty_database)
    try:
        async with pool.acquire() as connection:
            monkeypatch.setattr(Pool, "idle", 1)
            assert await pool.probe_idle() == []
            pool.liveness.start()
            await eventually(lambda: not len(pool.liveness._tasks))
            assert await connection.fetchval("SELECT 1") == 1, "a statement of a backend that answers is not ended"
    finally:
        await pool.close()


# Long limits: only a probe can end what waits for a frozen backend.
PATIENT = {"timeout_ms": 600_000, "statement_timeout_ms": 600_000}


def has_size(pool: Pool, size: int) -> bool:
    return pool.size == size


async def open_connections(pool: Pool, count: int) -> list[int]:
    """Open `count` connections at once, and return the processes of their backends."""
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(pool.acquire()) for _ in range(count)]
        return [await connection.fetchval("SELECT pg_backend_pid()") for connection in connections]


@contextlib.contextmanager
def freeze_processes(backends: list[int]) -> Iterator[None]:
    """Stop these processes for the block."""
    try:
        for backend in backends:
            os.kill(backend, signal.SIGSTOP)
        yield
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)


async def test_one_frozen_backend_has_all_others_of_its_pools_replaced(empty_database: str) -> None:
    limits = dict.fromkeys(POOL_NAMES, PoolLimits(3, PATIENT["timeout_ms"], PATIENT["statement_timeout_ms"]))
    group = await open_pools(empty_database, limits, statement_cache_size=100, role=None)
    try:
        backends = [backend for pool in group.by_name.values() for backend in await open_connections(pool, 3)]
        with freeze_processes(backends):
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(pid(group.history), 0.05)
                for pool in group.by_name.values():
                    await eventually(partial(has_size, pool, 1), "the frozen ones to be dropped, and one opened")
                    assert not set(await open_connections(pool, 3)) & set(backends)
    finally:
        await group.close()


async def test_a_statement_on_a_frozen_backend_is_given_up_where_no_other_of_its_pool_answers(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SUSPECT_S", 0.05)
    pool = await opened(empty_database, size=2, **PATIENT)
    try:
        backends = await open_connections(pool, 2)
        with freeze_processes(backends):
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(StoreUnavailable):
                    await pid(pool)
                assert await pid(pool) not in backends
    finally:
        await pool.close()


async def test_a_slow_statement_goes_on_where_another_backend_answers(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SUSPECT_S", 0.05)
    monkeypatch.setattr(pools, "PROBE_S", DEADLINE_S)
    pool = await opened(empty_database, size=2)
    try:
        await open_connections(pool, 2)
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid() FROM pg_sleep(0.5)")
        assert (pool.size, pool.idle) == (2, 2)
    finally:
        await pool.close()


async def test_a_pool_is_filled_although_no_request_can_wait_for_a_connection(
    one: Pool, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, prepare, may_connect = await pid(one), pools._prepare, asyncio.Event()

    async def prepare_late(*arguments: Any, **options: Any) -> None:
        await may_connect.wait()
        await prepare(*arguments, **options)

    monkeypatch.setattr(pools, "REOPEN_S", DEADLINE_S)
    monkeypatch.setattr(pools, "_prepare", prepare_late)
    async with connected(empty_database) as admin:
        await admin.execute("SELECT pg_terminate_backend($1, 5000)", before)
    await eventually(lambda: one.size == 0, "the loss to be noticed")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), one.acquire():
            pytest.fail("there is none yet")
    may_connect.set()
    await eventually(lambda: one.idle == 1, "a connection that no request waits for")
    assert await pid(one) != before


async def test_a_backend_that_freezes_while_it_is_set_up_holds_nobody_up(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, frozen = pools._prepare, list[int]()

    async def prepare_frozen(connection: asyncpg.Connection[Any], *arguments: Any, **options: Any) -> None:
        frozen.append(await connection.fetchval("SELECT pg_backend_pid()"))
        os.kill(frozen[-1], signal.SIGSTOP)
        await prepare(connection, *arguments, **options)

    pool = await opened(empty_database, open_at_once=0, timeout_ms=600_000, statement_timeout_ms=600_000)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(pools, "_prepare", prepare_frozen)
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(pid(pool), 0.5)
        assert await pid(pool) not in frozen
    finally:
        for backend in frozen:
            os.kill(backend, signal.SIGCONT)
        await pool.close()


async def test_a_deadline_over_a_slow_statement_keeps_the_connection(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "RELEASE_TIMEOUT_S", DEADLINE_S)
    pool = await opened(empty_database)
    before = await pid(pool)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), pool.acquire() as connection:
            await connection.execute("SELECT pg_sleep(60)")
    assert await pid(pool) == before
    await pool.close()


async def test_after_a_failover_no_connection_is_kept(empty_database: str) -> None:
    pool = await opened(empty_database, size=2)
    async with pool.acquire() as first, pool.acquire() as second:
        before = {await connection.fetchval("SELECT pg_backend_pid()") for connection in (first, second)}
        await first.execute("CREATE TABLE t (n int)")

    async def writes_to_a_replica() -> None:
        async with pool.transaction(None) as connection:
            await connection.execute("SET TRANSACTION READ ONLY")
            await connection.execute("INSERT INTO t VALUES (1)")

    with pytest.raises(StoreUnavailable, match="read-only"):
        await writes_to_a_replica()
    async with pool.acquire() as first, pool.acquire() as second:
        after = {await connection.fetchval("SELECT pg_backend_pid()") for connection in (first, second)}
    assert not before & after
    await pool.close()


async def test_what_is_wrong_stays_what_it_is(one: Pool) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with one.acquire() as connection:
            await connection.fetch("SELECT * FROM no_such_table")
    with pytest.raises(asyncpg.DataError):
        async with one.acquire() as connection:
            await connection.fetch("SELECT $1::int", "one")
    with pytest.raises(asyncpg.InterfaceError, match="another operation"):
        async with one.acquire() as connection:
            await asyncio.gather(connection.fetch("SELECT pg_sleep(0.05)"), connection.fetch("SELECT 1"))
    await pid(one)


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await opened(f"postgresql://u:p@127.0.0.1:{port}/d")


async def test_a_server_that_refuses_us(empty_database: str, login: str) -> None:
    with pytest.raises(NotReady, match="MNEME_DATABASE_URL"):
        await opened(as_login(empty_database, login).replace(":p@", ":wrong@"))
    with pytest.raises(NotReady, match="no_such_database"):
        await opened(empty_database.replace(urlsplit(empty_database).path, "/no_such_database"))


async def test_a_database_that_goes_away_and_comes_back(one: Pool, empty_database: str, postgres_server: str) -> None:
    name = urlsplit(empty_database).path[1:]
    async with connected(postgres_server) as admin:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", name)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await pid(one)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert await pid(one)


async def test_a_task_that_waits_when_the_pool_closes_is_refused(one: Pool) -> None:
    async with one.acquire(), asyncio.TaskGroup() as group:
        waiting = group.create_task(is_refused(one))
        await asyncio.sleep(0)  # it begins, and finds no connection
        await one.close(timeout_s=0.01)
    assert waiting.result()


async def is_refused(pool: Pool) -> bool:
    with pytest.raises(StoreUnavailable):
        await pid(pool)
    return True


async def abandoned(pool: Pool, patience_s: float, *, in_transaction: bool) -> None:
    with contextlib.suppress(TimeoutError, StoreUnavailable):
        async with asyncio.timeout(patience_s):
            async with pool.transaction(None) if in_transaction else pool.acquire() as connection:
                await connection.execute("SELECT pg_sleep(0.01)")


async def test_calls_that_are_abandoned_leave_no_connection(empty_database: str) -> None:
    pool = await opened(empty_database, size=3)
    chance = random.Random(7)
    async with asyncio.TaskGroup() as group:
        for number in range(ABANDONED):
            group.create_task(abandoned(pool, chance.uniform(0, 0.05), in_transaction=number % 2 == 0))
            await asyncio.sleep(0)
    await eventually(lambda: pool.idle == pool.size, "all to be back")
    async with pool.acquire() as first, pool.acquire() as second, pool.acquire() as third:
        for connection in (first, second, third):
            assert await connection.fetchval("SELECT 1") == 1
            assert not connection.is_in_transaction()
    async with connected(empty_database) as admin:
        mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert await admin.fetchval(mine) <= 3
    await pool.close()


async def test_closing_does_not_wait_for_ever(empty_database: str, caplog: pytest.LogCaptureFixture) -> None:
    pool = await opened(empty_database)

    async def closes_while_in_use() -> None:
        async with pool.acquire() as connection:
            async with asyncio.timeout(DEADLINE_S):
                await pool.close(timeout_s=0.01)
            await connection.fetchval("SELECT 1")

    with pytest.raises(StoreUnavailable):
        await closes_while_in_use()
    assert "still in use" in caplog.text
    with pytest.raises(StoreUnavailable):
        await pid(pool)
    await pool.close()
