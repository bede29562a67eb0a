"""The page before the real api: in open mode, and with keys."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.store.pools import Pool
from tests.support.ui_page import Page
from tests.support.wired_api import build_api, make_space


@pytest.fixture
async def page(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> Page:
    """In open mode."""
    return Page(await build_api(pool, await make_space(admin), dsn=database), auth="open")


@pytest.fixture
async def locked(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> Page:
    """Where a key is needed."""
    return Page(await build_api(pool, await make_space(admin), auth="keys", dsn=database), auth="keys")
