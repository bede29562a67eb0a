"""What only time, or a fault, would do to the world of `ui_world`: no route does that."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg

from tests.support.database import connected

LIMIT_S = 60.0


def behind(database: str, session: str) -> None:
    """Put some of it into the past, and bury a job of this session."""
    with ThreadPoolExecutor(1) as aside:  # here a loop may be running
        aside.submit(asyncio.run, _change(database, session)).result(LIMIT_S)


async def _change(database: str, session: str) -> None:
    async with connected(database) as admin:
        await _age(admin)
        await _bury(admin, session)


async def _age(admin: asyncpg.Connection[Any]) -> None:
    """What was said long ago is in doubt."""
    await admin.execute(
        "UPDATE agent_data.memory_store SET created_at = created_at - interval '100 days', last_validated_at = NULL,"
        " stated_at = now() - interval '100 days', confidence = 0.85, status = 'aging'"
        " WHERE status = 'active' AND content_text ILIKE ANY (ARRAY['%%Helix%%', '%%phone%%'])"
    )


async def _bury(admin: asyncpg.Connection[Any], session: str) -> None:
    """A job whose helper was away each time; done again it succeeds, for its messages are there."""
    rows = await admin.fetch(
        "SELECT tenant_id, user_id, session_id, message_id, created_at FROM agent_data.conversation_history"
        " WHERE session_id = $1 ORDER BY turn_index LIMIT 2",
        session,
    )
    first = rows[0]
    payload = {
        "tenant": str(first["tenant_id"]), "user": str(first["user_id"]), "session": str(first["session_id"]),
        "messages": [str(each["message_id"]) for each in rows], "from": first["created_at"].isoformat(),
        "to": rows[-1]["created_at"].isoformat(),
    }  # fmt: skip
    job = await admin.fetchval(
        "INSERT INTO agent_data.pgqueuer (priority, status, entrypoint, payload, attempts, execute_after, created, updated)"
        " VALUES (0, 'failed', 'learn', $1, 5, now(), now(), now()) RETURNING id",
        json.dumps(payload).encode(),
    )
    await admin.execute(
        "INSERT INTO agent_data.pgqueuer_log (job_id, status, priority, entrypoint, created, traceback)"
        " VALUES ($1, 'failed', 0, 'learn', now(), $2)",
        job,
        json.dumps(
            {
                "exception_type": "JobFailed",
                "exception_message": "HelperError: the helper model answered 503 Service Unavailable.",
                "traceback": "",
                "additional_context": None,
            }
        ),
    )
