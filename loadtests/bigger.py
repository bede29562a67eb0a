"""What is still found when one user has 10,000 or 100,000 turns, and what a search costs then.

python -m loadtests.bigger [FILE] [--turns N]… [--questions N] [--budget N]

A conversation with questions, ours or that of FILE (as for `mneme eval`: the messages and questions of its first user), is
padded with turns of made-up prose under the same speakers' names, between its sessions and around them, until there are so
many. Every size is imported and indexed as an import is; only the conversation itself is also learned from. Then all questions
are asked, by the server's own search, in this process and one at a time: recall of the planted evidence, and what a search
takes, as time and as CPU of this process and of Postgres.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import click
import orjson
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table

from app.api.auth import Principal
from app.api.intake import IntakeCheck, IntakePreparer
from app.api.scope import CallerScope
from app.cli.evaluate import fill
from app.clock import SystemClock
from app.context.transcript import chain, tail_hash
from app.features import Features
from app.features.embedded import EmbeddedPostgres
from app.features.evaluate import EvalFile, EvalQuestion, ask, read
from app.features.transfer.routes import Importer
from app.jobs.schedule import GRAPH_FROM
from app.metrics import Metrics
from app.server import collector
from app.server.core import Core, open_core, prepare_database
from app.server.proxy import open_proxy
from app.settings import Settings
from app.store import ids
from app.store.history import History
from app.store.sessions import SESSION_TTL, Sessions
from app.store.spaces import SharedSpaces
from loadtests import crowd
from loadtests.cpu import cpu_s
from loadtests.figures import number
from loadtests.prose import Prose
from loadtests.terminal import console, measuring

SIZES = (10_000, 100_000)
SESSION = 20
"""Messages of a session that pads."""
STEP = timedelta(seconds=30)
PART_LINES = 5_000
COUNT_PART = 500
"""Messages whose words are counted at once."""
WARM = 20
"""Questions asked before those that count."""
PLANTED = 120
"""Facts of the conversation of our own."""

_NAMES = "Vera Tomas Ines Bruno Clara Otto Nadia Felix Rosa Emil Greta Hugo Lena Oskar Paula Simon"
_THINGS = (
    "harp kayak telescope greenhouse sewing-machine beehive typewriter camera motorbike violin pottery-wheel tent "
    "piano skateboard microscope canoe"
)
_PLACES = "Porto Ghent Tartu Graz Bergen Cork Lugano Ostrava Pula Turku Vigo Zadar Delft Leuven Brno Parma"
NAMES, THINGS, PLACES = _NAMES.split(), _THINGS.split(), _PLACES.split()
REASONS = (
    "because the old one had broken", "after saving for a whole year", "with the money from grandmother",
    "although nobody at home agreed", "on the way back from a funeral", "to have something to do in winter",
)  # fmt: skip

NO_JOBS = "DELETE FROM agent_data.pgqueuer"
ENTER_GRAPH = "UPDATE agent_data.embeddings SET in_hnsw = true WHERE user_id = $1 AND NOT in_hnsw"
USE_GRAPH = "UPDATE agent_data.users SET use_hnsw = true WHERE user_id = $1"
FAST = "SET maintenance_work_mem = '1GB'; SET synchronous_commit = off"
VACUUM = "VACUUM (ANALYZE)"


def planted() -> EvalFile:
    """The conversation of our own: facts told in passing, ten sessions of them, and a question for each."""
    chance, sheet, user = random.Random("planted"), EvalFile(), "planted"
    pairs = [(name, thing) for name in NAMES for thing in THINGS]
    facts = [(name, thing, chance.choice(PLACES)) for name, thing in chance.sample(pairs, PLANTED)]
    talk, at = Prose(user), datetime(2025, 1, 6, 9, tzinfo=UTC)
    for n, (name, thing, place) in enumerate(facts):
        if n % 12 == 0:
            at += timedelta(days=30)
        session = f"{user}-{n // 12}"
        told = f"{name} bought a {thing} in {place} {chance.choice(REASONS)}."
        for part, (role, content) in enumerate((("user", told), ("assistant", talk.answered()))):
            line = {
                "user": user,
                "session": session,
                "role": role,
                "content": content,
                "metadata": {"id": f"{n}:{part}"},
            }
            at += STEP
            sheet.lines.append(orjson.dumps(line | {"created_at": at}))
            sheet.words[user][f"{n}:{part}"] = content.lower().split()
        sheet.questions.append(
            EvalQuestion(user=user, question=f"Where did {name} buy the {thing}?", evidence=[f"{n}:0"])
        )
    return sheet


def first_user(sheet: EvalFile) -> EvalFile:
    """The part of a sheet that is its first user's."""
    user = sheet.questions[0].user
    lines = [each for each in sheet.lines if orjson.loads(each)["user"] == user]
    return EvalFile(lines, sheet.words, [each for each in sheet.questions if each.user == user])


def padding(sheet: EvalFile, first: int, until: int) -> Iterator[bytes]:
    """Turns `first` to `until` of the made-up ones: the same for the same sheet."""
    planted_lines = [orjson.loads(each) for each in sheet.lines]
    user = planted_lines[0]["user"]
    times = sorted(datetime.fromisoformat(each["created_at"]) for each in planted_lines)
    named = {each["role"]: each["name"] for each in planted_lines if each.get("name")}
    reach = (times[-1] - times[0]) * 2
    for session in range(first // SESSION, -(-until // SESSION)):
        talk, chance = Prose(f"padding {session}"), random.Random(session)
        at = times[0] - reach / 4 + chance.random() * reach
        for n in range(SESSION):
            role, content = ("assistant", talk.answered()) if n % 2 else ("user", talk.said())
            line = {"user": user, "session": f"padding-{session}", "role": role, "content": content}
            line |= {"created_at": at + n * STEP} | ({"name": named[role]} if role in named else {})
            if first <= session * SESSION + n < until:
                yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


async def pad(core: Core, admin: Any, sheet: EvalFile, first: int, until: int, say: Callable[[str], None]) -> None:
    """Import padding, without learning from it."""
    pool, sql, clock = core.pools.background, core.queries, core.clock
    sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL)
    space = await core.turns.space_of(core.embedder.space)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=SESSION_TTL, space=space)
    preparer = IntakePreparer(core.embedder, core.counter, clock)
    importer = Importer(sessions, history, preparer, SharedSpaces(pool, sql, clock), IntakeCheck(lambda _: False))
    scope = CallerScope(
        ids.LOCAL_TENANT, None, None, None, Principal(ids.LOCAL_TENANT, None, None, frozenset(), "open")
    )
    owner = ids.user_id(ids.LOCAL_TENANT, sheet.questions[0].user)
    part: list[bytes] = []
    done = first
    for line in padding(sheet, first, until):
        part.append(line)
        if len(part) == PART_LINES or done + len(part) == until:
            found = await importer.run(scope, _chunks(part))
            if isinstance(found, list):
                raise click.ClickException(f"The padding cannot be imported: {found[0]['error']}")
            done += len(part)
            part = []
            say(f"imported {done:,} of {until:,} turns")
    await admin.execute(NO_JOBS)
    if until > GRAPH_FROM:
        say("the vectors enter the graph, as the worker's schedule would see to")
        await admin.execute(FAST)
        async with crowd.without_slow_indexes(admin, say):  # built at once, which takes a fraction of growing
            await admin.execute(ENTER_GRAPH, owner, timeout=None)
        await admin.execute(USE_GRAPH, owner)
    await admin.execute(VACUUM, timeout=None)


async def _chunks(lines: Sequence[bytes]) -> Any:
    for line in lines:
        yield line


async def grow(
    settings: Settings,
    dsn: str,
    pid: int,
    sheet: EvalFile,
    sizes: Sequence[int],
    budget: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Each size in turn; the first of them is what was planted, alone."""
    await prepare_database(settings, dsn)
    admin = await asyncpg.connect(dsn)
    found: list[dict[str, Any]] = []
    try:
        async with (
            open_core(settings, dsn, SystemClock()) as core,
            open_proxy(core, Metrics(CollectorRegistry()), Features({})) as proxy,
        ):
            collector.settle()  # as in a server
            await fill(core, sheet, say)
            await admin.execute(VACUUM, timeout=None)
            turns = 0
            for size in (len(sheet.lines), *sizes):
                if size > turns + len(sheet.lines):
                    await pad(core, admin, sheet, turns, size - len(sheet.lines), say)
                    turns = size - len(sheet.lines)
                await ask(
                    proxy.path.compiler, EvalFile([], sheet.words, sheet.questions[:WARM]), "auto", (budget,), say
                )
                began, own, postgres = time.perf_counter(), time.process_time(), cpu_s(pid)
                result = await ask(proxy.path.compiler, sheet, "auto", (budget,), say)
                count = len(sheet.questions)
                found.append(
                    {
                        "turns": size,
                        "recall": result["recall"][budget],
                        **result["search_ms"],
                        "own_ms": 1000 * (time.process_time() - own) / count,
                        "postgres_ms": 1000 * (cpu_s(pid) - postgres) / count,
                        "wall_s": time.perf_counter() - began,
                    }
                )
                say(str(found[-1]))
    finally:
        await admin.close()
    return found


def show(out: Console, found: Sequence[dict[str, Any]], questions: int, budget: int) -> None:
    table = Table("turns", f"recall at {budget:,}", "p50 ms", "p95 ms", "CPU ms + Postgres")
    for each in found:
        spent = f"{number(each['own_ms'])} + {number(each['postgres_ms'])}"
        table.add_row(f"{each['turns']:,}", f"{each['recall']:.3f}", str(each["p50"]), str(each["p95"]), spent)
    out.print(table)
    out.print(f"{questions} questions")


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--turns", "sizes", multiple=True, type=click.IntRange(1000, 1_000_000), help="Turns; 10,000 and 100,000."
)
@click.option("--questions", type=click.IntRange(1), help="Most questions.")
@click.option("--budget", type=click.IntRange(1), default=1500, show_default=True, help="Tokens of a search.")
def main(file: Path | None, sizes: tuple[int, ...], questions: int | None, budget: int) -> None:
    """Measure searches of a user with very many turns."""
    out = console()
    sheet = planted() if file is None else first_user(read(file))
    sheet.questions = sheet.questions[:questions]
    with measuring(), tempfile.TemporaryDirectory(prefix="mneme-bigger-") as folder:
        settings = Settings(data_dir=Path(folder), database_url=None, spool_dir=None)
        server = EmbeddedPostgres(settings.data_dir, settings=settings.embedded_settings)
        dsn = server.start()
        try:
            pid = server.status().pid
            assert pid is not None, "it has just been started"
            found = asyncio.run(
                grow(settings, dsn, pid, sheet, sorted(sizes) or SIZES, budget, lambda line: out.print(line))
            )
        finally:
            server.stop()
    show(out, found, len(sheet.questions), budget)


if __name__ == "__main__":
    main()
