"""`mneme relearn` beside a running server, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import sys
from hashlib import sha256
from typing import Any

import pytest

from tests.acceptance.conftest import OwnServers
from tests.support.clients import Api, ask
from tests.support.database import connected
from tests.support.rows import Admin, read_memories, read_users, set_memories, update_rows
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

WRONG = "Lives in Mumbai"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def change_memory(admin: Admin, name: str) -> None:
    """Leave the memory of the user's sister as an earlier version misread it."""
    (user,) = await read_users(admin, external_id=name)
    memories = [row for row in await read_memories(admin, user_id=user["user_id"]) if "Ingrid" in row["content_text"]]
    wrong = {"content_text": WRONG, "content_hash": sha256(WRONG.lower().encode()).digest()}
    await set_memories(admin, memories, predicate=None, object_value=None, **wrong)


def run_relearn(server: MnemeServer, *arguments: str) -> dict[str, Any]:
    ran = server.command("relearn", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


def read_texts(api: Api, user: str) -> set[str]:
    return {memory["text"] for memory in api.all("/memories", "memories", user=user)}


async def misread(database: str, *users: str) -> None:
    """Make a wrong memory of what each of these users said, as an old version may have left it."""
    async with connected(database) as admin:
        for user in users:
            await change_memory(admin, user)


def import_messages(server: MnemeServer, users: list[str]) -> None:
    lines = [
        {"user": user, "session": f"{user}-0", "role": "user", "content": "My sister is called Ingrid.",
         "created_at": "2025-03-01T10:00:00Z"}
        for user in users
    ]  # fmt: skip
    body = "\n".join(json.dumps(line) for line in lines)
    answer = server.http.post("/api/v1/import", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text


@pytest.fixture
def running(own_server: OwnServers, upstream: ScriptedUpstream) -> MnemeServer:
    return own_server(upstream.url, worker=True)


async def test_a_user_is_learned_about_again_while_the_server_answers(running: MnemeServer, database: str) -> None:
    api = Api(running)
    import_messages(running, ["ana", "ben"])
    api.wait_for_quiet()
    right = read_texts(api, "ana")
    assert right
    await misread(database, "ana", "ben")

    dry = run_relearn(running, "--user", "ana", "--dry-run")
    assert read_texts(api, "ana") == {WRONG}
    real = run_relearn(running, "--user", "ana")
    assert real | {"dry_run": True} == dry
    assert {(line["change"], line["text"]) for line in real["reports"][0]["lines"]} == {
        ("retired", WRONG),
        *(("added", text) for text in right),
    }
    assert read_texts(api, "ana") == right
    assert read_texts(api, "ben") == {WRONG}, "another user stays as they were"
    (memory,) = api.all("/memories", "memories", user="ana")
    assert memory["created_at"].startswith("2025-03-01T10:00")

    output = running.command("relearn", "--all")
    assert output.returncode == 0, output.stderr
    assert f"- {WRONG} [fact, invalidated, 2025-03-01]" in output.stdout
    assert "1 added, 0 changed, 1 retired, for 2 users." in output.stdout
    assert read_texts(api, "ben") == right
    again = run_relearn(running, "--all")
    assert again["reports"] == []
    # What was learned again is output, and learning goes on.
    answer = ask(running, "What is my sister called?", headers={"x-mneme-user": "ana", "x-mneme-session": "new"})
    assert answer.headers["x-mneme-status"] == "ok"


async def test_a_run_that_was_killed_goes_on_with_the_next_user(running: MnemeServer, database: str) -> None:
    api, users = Api(running), [f"u{number}" for number in range(5)]
    import_messages(running, users)
    api.wait_for_quiet()
    right = read_texts(api, "u0")
    await misread(database, *users)
    async with connected(database) as admin, connected(database) as watcher:
        order = [(row["user_id"], row["external_id"]) for row in await read_users(admin) if row["external_id"] in users]
        stuck = order[2][0]
        await admin.execute("SELECT pg_advisory_lock(hashtextextended($1::text, 0))", str(stuck))
        command = [sys.executable, "-m", "app.cli", "relearn", "--all"]
        process = await asyncio.create_subprocess_exec(*command, cwd=running.folder, env=running.environment)
        try:
            async with asyncio.timeout(60):
                while not await watcher.fetchval(WAITING):
                    assert process.returncode is None
        finally:
            process.kill()
            await process.wait()
    assert [read_texts(api, user) for _, user in order] == [right, right, {WRONG}, {WRONG}, {WRONG}]
    again = run_relearn(running, "--all")
    assert again["done_before"] == 2
    assert {report["user"] for report in again["reports"]} == {user for _, user in order[2:]}
    assert [read_texts(api, user) for _, user in order] == [right] * len(order)
    assert run_relearn(running, "--all")["done_before"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "Name one user with --user, or all with --all"),
        (["--user", "ana", "--all"], 2, "not both"),
        (["--user", "nobody-knows"], 1, "There is no user 'nobody-knows' in the tenant 'local'."),
        (["--user", "ana", "--tenant", "acme"], 1, "There is no tenant 'acme'."),
        (["--all", "--tenant", "acme"], 1, "There is no tenant 'acme'."),
    ],
)
def test_what_cannot_be_done_is_said(mneme: MnemeServer, arguments: list[str], status: int, message: str) -> None:
    ran = mneme.command("relearn", *arguments)
    assert ran.returncode == status
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_a_database_of_another_schema_is_refused(running: MnemeServer, database: str) -> None:
    async with connected(database) as admin:
        await update_rows(admin, "schema_migrations", {"version": 1}, checksum=b"other")
    ran = running.command("relearn", "--all")
    assert ran.returncode == 1
    assert "001_base.sql was changed" in ran.stderr
    assert "Traceback" not in ran.stderr
