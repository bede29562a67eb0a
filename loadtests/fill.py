"""Fills users' memories: past conversations sent to /api/v1/import, and a worker until all of them are learned from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import orjson

from loadtests.texts import Talk

SESSION = 20
"""Messages of one session: ten questions and answers."""
LATEST = datetime(2026, 1, 1, tzinfo=UTC)
"""When the last session began; each one before it a day earlier."""
STEP = timedelta(seconds=30)
"""Between two messages of a session."""
PART_USERS = 8
"""Users imported by one request."""
TIMEOUT_S = 300.0
"""Seconds for one request, and for the worker to learn from all."""
POLL_S = 0.5
"""Between two looks at the queue, which cost CPU of their own."""


def user_name(number: int) -> str:
    """How the users of the benchmark are called."""
    return f"bench-{number}"


def lines(user: str, count: int) -> Iterator[bytes]:
    """A user's past as lines of an import: `count` messages in sessions of `SESSION`, the same for the same user."""
    talk = Talk(user)
    sessions = -(-count // SESSION)
    for n in range(count):
        session, place = divmod(n, SESSION)
        at = LATEST - (sessions - session) * timedelta(days=1) + place * STEP
        role, content = ("assistant", talk.answered()) if place % 2 else ("user", talk.said())
        line = {"session": f"{user}-{session}", "user": user, "role": role, "content": content, "created_at": at}
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def fill(base_url: str, users: int, messages: int, say: Callable[[str], None]) -> None:
    """Import `messages` for each of so many users. Raises httpx.HTTPStatusError where it is refused."""
    headers = {"content-type": "application/x-ndjson"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        for first in range(0, users, PART_USERS):
            part = range(first, min(first + PART_USERS, users))
            body = b"".join(line for number in part for line in lines(user_name(number), messages))
            client.post("/api/v1/import", content=body).raise_for_status()
            say(f"imported {part.stop} of {users} users")


def queued(base_url: str) -> int:
    """Jobs that wait or run."""
    found = httpx.get(f"{base_url}/api/v1/queue", timeout=TIMEOUT_S, trust_env=False).raise_for_status().json()
    return int(found["queued"]) + int(found["running"])


def wait_until_learned(base_url: str, say: Callable[[str], None]) -> None:
    """Wait until a worker, which somebody started, has done everything. Raises TimeoutError."""
    deadline = time.monotonic() + TIMEOUT_S
    while left := queued(base_url):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} jobs are still to be done after {TIMEOUT_S:g} s")
        say(f"learning, {left} jobs left")
        time.sleep(POLL_S)


def memories(base_url: str, user: str) -> int:
    """How many memories a user has."""
    count, cursor = 0, None
    with httpx.Client(base_url=base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        while True:
            given = {"user": user, "limit": "1000", **({"cursor": cursor} if cursor else {})}
            page = client.get("/api/v1/memories", params=given).raise_for_status().json()
            count += len(page["memories"])
            cursor = page["next"]
            if cursor is None:
                return count
