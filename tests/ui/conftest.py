"""Real Chromium before real servers: one browser for the run's worker, and worlds that are filled once and copied."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.support.browsing import VARIABLE, Visitor, chromium, find_chromium, visiting
from tests.support.database import connected, locked, make_template, shared_directory, shared_server, with_database
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.ui_pages import Reached, patterns, reachable
from tests.support.ui_served import WORLD, Served, serving
from tests.support.ui_world import SETTINGS, World, fill
from tests.support.ui_world_model import script


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The run's browser; without one its tests are skipped."""
    path = find_chromium()
    if path is None:
        reason = f"no Chromium here: install it, or name it in {VARIABLE}"
        if os.environ.get(VARIABLE) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    async with chromium(path) as found:
        yield found


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN of a server that all workers share: it takes one of them five seconds to fill the world."""
    with shared_server(shared_directory(tmp_path_factory.getbasetemp())) as dsn:
        yield dsn


@pytest.fixture(scope="session")
async def database_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database with the whole schema, on that server."""
    return await make_template(postgres_server, shared_directory(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
async def world_template(
    browser: Browser, postgres_server: str, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> World:
    """What is in the database `WORLD`, which the first worker that asks fills."""
    folder = shared_directory(tmp_path_factory.getbasetemp())
    told = folder / "world.json"
    with locked(folder / "world.lock"):
        async with connected(postgres_server) as admin:
            # A server that the last of its users has left begins anew for the next.
            there = await admin.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", WORLD)
        if not there:
            made = await _fill(postgres_server, database_template, tmp_path_factory.mktemp("world"))
            told.write_text(json.dumps(asdict(made)))
    return World(**json.loads(told.read_text()))


async def _fill(server: str, template: str, folder: Path) -> World:
    name = f"{WORLD}_new"
    async with connected(server) as admin:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    dsn = with_database(server, name)
    with (
        ScriptedUpstream(script()) as upstream,
        MnemeServer(folder, database=dsn, upstream=upstream.url, worker=True, settings=SETTINGS) as mneme,
    ):
        made = fill(mneme.base_url, database=dsn)
    async with connected(server) as admin:
        await admin.execute(f"ALTER DATABASE {name} RENAME TO {WORLD}")
    return made


@pytest.fixture(scope="session")
async def world(
    world_template: World, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """A server with the world behind it, for tests that only look."""
    folder = tmp_path_factory.mktemp("looked-at")
    async with serving(postgres_server, WORLD, folder, world_template) as served:
        yield served


@pytest.fixture(scope="module")
async def changing(
    world_template: World, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The same, with a worker, for the tests of one module to change."""
    folder = tmp_path_factory.mktemp("changed")
    async with serving(postgres_server, WORLD, folder, world_template, worker=True) as served:
        yield served


@pytest.fixture(scope="module")
async def guarded(
    world_template: World, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """The same, where every request needs a key."""
    folder = tmp_path_factory.mktemp("guarded")
    async with serving(postgres_server, WORLD, folder, world_template, AUTH="keys") as served:
        yield served


@pytest.fixture(scope="module")
async def empty(
    browser: Browser, postgres_server: str, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """A server that nobody has spoken to yet."""
    folder = tmp_path_factory.mktemp("empty")
    async with serving(postgres_server, database_template, folder, World("")) as served:
        yield served


@pytest.fixture
def visit(browser: Browser) -> Callable[..., contextlib.AbstractAsyncContextManager[Visitor]]:
    """`async with visit(base, …) as visitor`: see `visiting`."""

    def begin(base: str, **how: Any) -> contextlib.AbstractAsyncContextManager[Visitor]:
        return visiting(browser, base, **how)

    return begin


@pytest.fixture
async def visitor(browser: Browser, world: Served) -> AsyncIterator[Visitor]:
    """A visitor of the world."""
    async with visiting(browser, world.base) as made:
        yield made


@pytest.fixture(params=["script", pytest.param("plain", marks=pytest.mark.heavy)])
async def person(request: pytest.FixtureRequest, browser: Browser, changing: Served) -> AsyncIterator[Visitor]:
    """A visitor who may change everything; `plain`: whose browser runs no script."""
    async with visiting(browser, changing.base, script=request.param == "script") as visitor:
        yield visitor


@pytest.fixture(scope="session")
def first_reached(world: Served) -> dict[str, Reached]:
    """One page of the world for each sort that links lead to, no further than that takes."""
    found: dict[str, Reached] = {}
    for each in reachable(world.mneme.http):
        found.setdefault(each.sort, each)
        if found.keys() >= set(patterns()):
            break
    return found


@pytest.fixture(scope="session")
def reached(world: Served) -> dict[str, list[Reached]]:
    """The world's pages by their sort."""
    found: dict[str, list[Reached]] = {}
    for each in reachable(world.mneme.http):
        found.setdefault(each.sort, []).append(each)
    return found
