"""A login that may make neither roles nor extensions, as managed services give: what an administrator does for it, and that it
is enough."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.clients import Api, ask
from tests.support.database import connected
from tests.support.own_postgres import OwnPostgres
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

LOGIN = "App User"


async def test_it_is_told_what_to_ask_for_and_then_works(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    with OwnPostgres(tmp_path / "db") as postgres:
        async with connected(postgres.dsn) as admin:
            await admin.execute(
                f"""CREATE ROLE "{LOGIN}" LOGIN PASSWORD 'p'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"""
            )
            await admin.execute("REVOKE CREATE ON DATABASE mneme FROM PUBLIC")
        port = urlsplit(postgres.dsn).port
        dsn = f"postgresql://App%20User:p@127.0.0.1:{port}/mneme"
        server = MnemeServer(tmp_path, database=dsn, upstream=upstream.url, worker=True)

        async def told(command: str) -> str:
            done = await asyncio.to_thread(server.command, command)
            assert done.returncode == 1, done.stdout
            return done.stdout + done.stderr

        refused = await told("migrate")
        wanted = re.findall(r"^  (.+);$", refused, re.MULTILINE)
        assert wanted, refused
        assert wanted[0] == f'GRANT CREATE ON DATABASE mneme TO "{LOGIN}"'
        assert wanted[-1] == f'GRANT mneme_app, mneme_definer, mneme_eraser, mneme_owner TO "{LOGIN}"'
        assert wanted[-1] in await told("serve")
        examined = " ".join((await told("doctor")).split())
        for each in wanted:
            assert each in examined
        async with connected(postgres.dsn) as admin:
            assert await admin.fetchval("SELECT to_regnamespace('agent_data')") is None, "nothing is half done"
            for each in wanted:
                await admin.execute(each)
        done = await asyncio.to_thread(server.command, "migrate", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["applied"]
        try:
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(
                ask, server, "My name is Ana and I live in Lisbon.", headers={"x-mneme-user": "ana"}
            )
            api = Api(server, user="ana")
            await asyncio.to_thread(api.wait_for_quiet)
            assert "Lisbon" in str(await asyncio.to_thread(api.get, "/memories"))
            erased = await asyncio.to_thread(api.send, "DELETE", "/users/ana")
            assert erased.status_code == 200, erased.text
            found = (await asyncio.to_thread(server.command, "doctor")).stdout
            assert "administrator" not in found
        finally:
            await asyncio.to_thread(server.drop)
