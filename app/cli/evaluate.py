"""`mneme eval`: how much of what answers a question comes back within a budget, by the real pipeline.

Everything happens in an embedded Postgres made for the purpose and taken away afterwards: import, jobs, search. What a file
says, and what counts as found, is in `app/features/evaluate`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import orjson
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from app.api.auth import Principal
from app.api.intake import IntakeCheck, IntakePreparer
from app.api.scope import CallerScope
from app.clock import SystemClock
from app.console import database, failing_clearly, load_settings, show
from app.context.score import PROFILE_NAMES
from app.context.transcript import chain, tail_hash
from app.errors import MnemeError
from app.features import Features
from app.features.consolidation.jobs import consolidation_jobs
from app.features.consolidation.store import SESSION_END, ConsolidationStore, session_job
from app.features.evaluate import (
    BUDGETS,
    EvalFile,
    Say,
    ask,
    count_learned,
    describe_learned,
    read,
    render_learned,
    table,
)
from app.features.transfer.commands import Exported
from app.features.transfer.routes import Importer
from app.jobs.worker import Worker, connector
from app.metrics import Metrics
from app.server.core import Core, learner, open_core, prepare_database, process_of
from app.server.proxy import open_proxy
from app.settings import Settings
from app.store import ids
from app.store.history import History
from app.store.memories import Memories, Memory, MemoryFilter
from app.store.pools import APP_ROLE
from app.store.queue import Queue
from app.store.sessions import SESSION_TTL, Sessions
from app.store.spaces import SharedSpaces
from app.tasks import CLOSING_S

PART_LINES = 2000
POLL_S = 0.1
_LONGEST_S = 900.0
"""Seconds for the jobs of one part."""


class EvalFailed(MnemeError):
    """The evaluation could not be done."""


async def _evaluate(
    settings: Settings, dsn: str, sheet: EvalFile, profile: str, budgets: Sequence[int], say: Say
) -> dict[str, Any]:
    """As `ask`. Raises EvalFailed, NotReady."""
    await prepare_database(settings, dsn)
    async with (
        open_core(settings, dsn, SystemClock()) as core,
        open_proxy(core, Metrics(CollectorRegistry()), Features({})) as proxy,
    ):
        await fill(core, sheet, say)
        return await ask(proxy.path.compiler, sheet, profile, budgets, say)


async def _learn(settings: Settings, dsn: str, sheet: EvalFile, say: Say) -> dict[str, Any]:
    """Return what is learned from the lines, as `count_learned`. Raises EvalFailed, NotReady."""
    await prepare_database(settings, dsn)
    async with open_core(settings, dsn, SystemClock()) as core:
        await fill(core, sheet, say, ends_sessions=False)
        store = Memories(core.pools.background, core.queries, core.clock, space=None)
        return count_learned(sheet, describe_learned([memory async for memory in _read_memories(store)]))


async def _read_memories(store: Memories) -> AsyncIterator[Memory]:
    after = None
    while rows := await store.page(ids.LOCAL_TENANT, None, MemoryFilter(), after=after, limit=PART_LINES):
        for memory in rows:
            yield memory
        after = (rows[-1].created_at, rows[-1].memory_id)


async def fill(core: Core, sheet: EvalFile, say: Say, *, ends_sessions: bool = True) -> None:
    """Import the lines and run the jobs that follow, with `ends_sessions` also those of the sessions' end: summaries,
    patterns and procedures."""
    lines = sheet.lines
    pool, sql, clock = core.pools.background, core.queries, core.clock
    sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL)
    space = await core.turns.space_of(core.embedder.space)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=SESSION_TTL, space=space)
    preparer = IntakePreparer(core.embedder, core.counter, clock)
    importer = Importer(sessions, history, preparer, SharedSpaces(pool, sql, clock), IntakeCheck(lambda _: False))
    principal = Principal(ids.LOCAL_TENANT, None, None, frozenset(), "open")
    scope = CallerScope(ids.LOCAL_TENANT, None, None, None, principal)
    for first in range(0, len(lines), PART_LINES):
        done = await importer.run(scope, _chunks(lines[first : first + PART_LINES]))
        if isinstance(done, list):
            raise EvalFailed(f"The messages cannot be imported: {done[0]['error']}")
        say(f"imported {min(len(lines), first + PART_LINES)} of {len(lines)} messages")
    stop = asyncio.Event()
    by_rules = replace(await learner(core, None), further_jobs=None)
    worker = Worker(
        connect=connector(core.dsn, role=APP_ROLE, name="mneme eval"),
        sql=sql,
        handlers=by_rules.handlers() | consolidation_jobs(replace(process_of(core, space=space), helper=None)),
        lease_s=core.settings.job_lease_s,
        grace_s=CLOSING_S,
    )
    tenant, queue = ids.LOCAL_TENANT, Queue(pool, sql)
    named = [(ids.user_id(tenant, name), session) for name, session in sheet.sessions]
    # what five idle minutes would bring
    ends = [
        session_job(SESSION_END, tenant, user, ids.session_id(tenant, user, name), asked=True) for user, name in named
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        await _quiet(queue)
        if ends_sessions:
            await ConsolidationStore(pool, sql).enqueue(tenant, ends)
            await _quiet(queue)
            say(f"ended {len(sheet.sessions)} sessions")
        stop.set()


async def _quiet(queue: Queue) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while (counts := await queue.counts()).queued or counts.running:
        if time.monotonic() > deadline:
            raise EvalFailed("The jobs did not come to an end.")
        await asyncio.sleep(POLL_S)


async def _chunks(lines: Sequence[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n"


@click.command("eval")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "budgets", type=click.IntRange(1), multiple=True, help="Tokens; may be given several times.")
@click.option("--profile", default="auto", show_default=True, help="How what was found is scored.")
@click.option(
    "--learned", is_flag=True, help="Show what is learned from the conversations, from which words and by which way."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def eval_(file: Path, budgets: tuple[int, ...], profile: str, learned: bool, as_json: bool) -> None:
    """Measure how much of what answers a question is found, or show what is learned.

    FILE has conversations and questions, one JSON object a line: docs/explanation/recall.md has the format. With --learned it
    needs no questions, and may be an export. They are stored in a database of their own, which is removed at the end.
    """
    if profile not in PROFILE_NAMES:
        raise click.BadParameter(f"one of {', '.join(sorted(PROFILE_NAMES))}", param_hint="--profile")
    settings, say = load_settings(), partial(click.echo, err=True)
    sheet = _read_conversations(file) if learned else read(file)
    with tempfile.TemporaryDirectory(prefix="mneme-eval-") as folder:
        nowhere = dict.fromkeys(("database_url", "database_direct_url", "spool_dir"))
        own = settings.model_copy(update={"data_dir": Path(folder), **nowhere})
        with database(own, say) as dsn:
            if learned:
                result = asyncio.run(_learn(own, dsn, sheet, say))
            else:
                result = asyncio.run(_evaluate(own, dsn, sheet, profile, budgets or BUDGETS, say))
    show(result, as_json, lambda: click.echo(render_learned(result) if learned else table(result)))


def _read_conversations(file: Path) -> EvalFile:
    """Return the messages of a file for `mneme import`, or of an export. Raises BadBody."""
    if not Exported.is_one(file):
        return read(file, asks=False)
    lines = list(Exported(file).lines())
    sessions = [(str(line["user"]), str(line["session"])) for line in map(orjson.loads, lines)]
    return EvalFile(lines, sessions=dict.fromkeys(sessions))
