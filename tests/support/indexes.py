"""Users' indexes, read anew for each question."""

from __future__ import annotations

from typing import Any

from app.index.indexes import Indexes
from app.store.indexed import IndexStore
from app.store.pools import FromPool, Pool
from app.store.queries import Queries
from app.tasks import Supervisor

SQL = Queries.load()


def indexes_of(pool: Pool, dimensions: int, space: int | None = 1, **given: Any) -> Indexes:
    store = IndexStore(FromPool(pool, SQL), pool, SQL)
    return Indexes(store, Supervisor(), space=space, dimensions=dimensions, **{"limit": 0} | given)
