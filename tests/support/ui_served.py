"""Servers for the tests of /ui, each on a copy of a database that was filled once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.clients import Api
from tests.support.database import fresh_database
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.ui_world import SETTINGS, World
from tests.support.ui_world_model import script

WORLD = "mneme_ui_world"
"""The database that the run's first worker fills with the world."""


@dataclass
class Served:
    """A server with something behind it. `world`: what is in it, where it is the world."""

    mneme: MnemeServer
    database: str
    upstream: ScriptedUpstream
    world: World

    @property
    def base(self) -> str:
        return self.mneme.base_url

    def api(self, user: str | None = None, key: str | None = None) -> Api:
        return Api(self.mneme, user=user, key=key)


@contextlib.asynccontextmanager
async def serving(
    server: str, template: str, folder: Path, world: World, *, worker: bool = False, **settings: str
) -> AsyncIterator[Served]:
    """A server on a copy of `template`."""
    async with fresh_database(server, template) as dsn:
        with (
            ScriptedUpstream(script()) as upstream,
            MnemeServer(
                folder, database=dsn, upstream=upstream.url, worker=worker, settings=SETTINGS | settings
            ) as mneme,
        ):
            yield Served(mneme, dsn, upstream, world)
