"""What cannot be compiled again says why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.errors import Conflict, NotFound
from app.store import ids
from app.store.erasure import own_connection
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.retention import Retention, RetentionLimits
from tests.support.journey import (
    user,
)
from tests.support.replaying import TENANT, make_stage


async def test_what_cannot_be_compiled_again_says_why(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)

    async def why(**headers: str) -> str:
        answer = await stage.journey.ask([user("hi")], headers={k.replace("_", "-"): v for k, v in headers.items()})
        with pytest.raises(Conflict) as told:
            await stage.again(answer)
        return str(told.value.code)

    assert await why(x_mneme_memory="off") == "not_compiled"
    assert await why(x_mneme_capture="off") == "not_captured"
    with pytest.raises(NotFound):
        await stage.recompiler().run(TENANT, ids.uuid7(stage.clock.now()), None, "as_of")
    answer = await stage.ask([user("hi")])
    call = UUID(answer.headers["x-mneme-call-id"])
    with pytest.raises(NotFound):  # another user's
        await stage.recompiler().run(TENANT, call, ids.user_id(TENANT, "bob"), "as_of")
    await admin.execute("UPDATE agent_data.compilations SET inputs = '{}'")
    with pytest.raises(Conflict) as told:
        await stage.again(answer)
    assert told.value.code == "version"


async def test_redacted_captures_are_not_compiled_again(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin, redact_paths=["$.messages[*].content"])
    answer = await stage.ask([user("secret")])
    with pytest.raises(Conflict) as told:
        await stage.again(answer)
    assert told.value.code == "capture_redacted"


async def test_a_call_whose_time_is_over_says_so(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> None:
    stage = await make_stage(pool, admin)
    answer = await stage.ask([user("hi")])
    stage.clock.move(timedelta(days=3))
    kept = await stage.ask([user("hello")])
    owner = await own_connection(database, "mneme_owner")()
    try:
        await Retention(Queries.load(), RetentionLimits(days=1)).run(owner, stage.clock.now())
    finally:
        await owner.close()
    with pytest.raises(NotFound, match="the time of its capture is over"):
        await stage.again(answer)
    assert (await stage.again(kept)).body == stage.sent()
