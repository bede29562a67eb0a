"""A server that starts before its database: what is acknowledged meanwhile is there afterwards, once, and remembered.

python -m loadtests.late [--requests 1000] [--users 50] [--workers 1]

Starts Mneme with a new database that is away, sends requests, lets Postgres come while more are sent, and compares what the
clients saw the end of with the rows of the database. Exits with 1 where they differ.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from loadtests.terminal import console, measuring
from tests.support.clients import MODEL, user
from tests.support.database import connected
from tests.support.ledger import CHAT, Ledger, Talker, differences, scripted
from tests.support.own_postgres import OwnPostgres
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawResponse, fetch

SHARE_AWAY = 0.8
"""Of the requests, sent before Postgres comes; the others are sent while it comes."""
WAIT_S = 300.0
"""Longest wait for the spool to be empty: a thousand calls take seconds, on a busy machine tens."""
LOOK_S = 0.2
RESIDENT = "resident"
LIVES, ASKS = "I live in Lisbon. Now question where?", "Where do I live? Now question whereto?"
"""Said without a database, and asked with one."""


@click.command()
@click.option("--requests", default=1000, show_default=True)
@click.option("--users", default=50, show_default=True, help="Who talk at the same time, each in one conversation.")
@click.option("--workers", default=1, show_default=True, help="Server processes.")
def main(requests: int, users: int, workers: int) -> None:
    """Start late, and compare."""
    turns = max(2, requests // users)
    with (
        tempfile.TemporaryDirectory(prefix="mneme-late-") as folder,
        OwnPostgres(Path(folder) / "db") as postgres,
        ScriptedUpstream(scripted()) as upstream,
    ):
        postgres.stop()
        server = MnemeServer(
            Path(folder) / "mneme",
            database=postgres.dsn,
            upstream=upstream.url,
            worker=True,
            settings={"WORKERS": str(workers), "RETRIEVAL_DEADLINE_MS": "2000"},
        )
        try:
            server.start("/healthz")
            out = console()
            found = asyncio.run(_run(server, postgres, upstream, Path(folder), users, turns, out.print))
        finally:
            server.drop()
    sys.exit(1 if found else 0)


async def _run(
    server: MnemeServer,
    postgres: OwnPostgres,
    upstream: ScriptedUpstream,
    folder: Path,
    users: int,
    turns: int,
    say: Callable[[str], None],
) -> list[str]:
    ledger = Ledger(folder / "ledger")
    talkers = [Talker(ledger, f"user-{n}") for n in range(users)]
    statuses: dict[str, int] = {}

    async def talk(each: Talker, names: list[str]) -> None:
        for name in names:
            answer = await each.ask(server.port, f"{each.who}-{name}")
            told = answer.header("x-mneme-status") if answer is not None else "no answer"
            statuses[str(told)] = statuses.get(str(told), 0) + 1

    away = int(turns * SHARE_AWAY)
    began = time.perf_counter()
    acknowledged = [await _ask(server.port, LIVES)]
    await asyncio.gather(*(talk(each, [str(n) for n in range(away)]) for each in talkers))
    took = time.perf_counter() - began
    say(f"without a database: {users * away + 1} requests in {took:.1f} s, {statuses}")
    statuses.clear()

    began = time.perf_counter()
    await asyncio.gather(
        asyncio.to_thread(postgres.start), *(talk(each, [str(n) for n in range(away, turns)]) for each in talkers)
    )
    say(f"while it comes: {users * (turns - away)} requests, {statuses}")
    await _until(lambda: server.http.get("/readyz").status_code == 200, "the server to be ready")
    say(f"ready {time.perf_counter() - began:.1f} s after Postgres was started")
    waiting = server.folder / ".mneme" / "spool" / "turns"
    await _until(lambda: not any(waiting.iterdir()), "the spool to be empty")
    say(f"the spool is empty after {time.perf_counter() - began:.1f} s")

    acknowledged.append(answer := await _ask(server.port, ASKS))
    status = answer.header("x-mneme-status")
    sent = str(upstream.requests[-1].json()["messages"][-1])
    found = await differences(ledger, postgres.dsn, whole=[each.who for each in talkers])
    async with connected(postgres.dsn) as admin:
        rows = await admin.fetchval("SELECT count(*) FROM agent_data.upstream_calls")
        memories = await admin.fetchval("SELECT count(*) FROM agent_data.memory_store")
    entries = len(ledger.entries) + sum(each.ended == "whole" for each in acknowledged)
    lost = sum(each.unacknowledged for each in talkers)
    say(f"ledger {entries}, rows {rows}, not acknowledged {lost}, memories {memories}, differences {len(found)}")
    if rows != entries:
        found.append(f"{rows} rows for {entries} acknowledged calls")
    if lost:
        found.append(f"{lost} requests were not answered to the end")
    if status != "ok" or "Lisbon" not in sent:
        found.append(f"not remembered: status {status}, prompt {sent[:300]}")
    say("memory works: the next prompt says Lisbon" if "Lisbon" in sent else "memory does not work")
    for each in found[:20]:
        say(each)
    ledger.close()
    return found


async def _ask(port: int, text: str) -> RawResponse:
    body = json.dumps({"model": MODEL, "messages": [user(text)], "stream": True}).encode()
    headers = [(b"content-type", b"application/json"), (b"x-mneme-user", RESIDENT.encode())]
    return await fetch(port, "POST", CHAT, headers, body)


async def _until(there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not await asyncio.to_thread(there):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    with measuring():
        main()
