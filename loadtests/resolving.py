"""How well mentions are resolved, by stage, and what each stage costs among many things.

python -m loadtests.resolving [--quick] [--things N] [--texts N] [--no-save]

A tenant with 100,000 things and as many aliases, and another with as many; in it the business of the labelled sentences
(tests/support/labelled_mentions.py). Each stage is asked by itself, through the function that a request asks; then whole texts.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import click
import uvloop
from rich.console import Console
from rich.table import Table

from app.clock import SystemClock
from app.context.resolution import EarlierMessage, Who
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.resolution import find, normalise
from app.features.knowledge.resolve import Resolver
from app.store import ids
from app.store.ids import NIL
from app.store.pools import open_pool
from app.store.queries import Queries
from loadtests import results
from loadtests.cpu import cpu_s
from loadtests.figures import number
from loadtests.load import quantile
from loadtests.stack import running, version_of
from loadtests.terminal import console, keep, measuring
from tests.support.entities import STAGES, add_business, add_user, measure
from tests.support.labelled_mentions import ONTOLOGY, SETS, Rows, labelled

THINGS, QUICK_THINGS = 100_000, 5_000
TEXTS, QUICK_TEXTS = 1_000, 100
"""Questions of each kind."""
WARM = 20
OTHER_TENANT = UUID(int=0xB)
FLOOD = ", ".join(f"Name{n} Surname{n}" for n in range(10_000))

_STARTS = "ba be bi bo bra bre bri ca ce co cra da de di do dra fa fe fi flo ga ge gli gra ha he ho ja jo ka ke kra"
_ENDS = "bel den dor fel gan gor kan ker lan len lin lor man mer min mon nel ner nor ran ren rik ron sel sen son tan tel van"
_KINDS = (
    "Trading Logistics Foods Systems Partners Energy Motors Textiles Supplies Services Design Travel Chemicals Optics"
)


@dataclass(frozen=True, slots=True)
class Named:
    """A thing, and what else it is called."""

    entity: str
    name: str
    alias: str


def crowd(count: int, seed: int) -> Iterator[Named]:
    """Things with names of two made-up words and a common one, no two alike."""
    chance = random.Random(seed)
    starts, ends, kinds = _STARTS.split(), _ENDS.split(), _KINDS.split()
    seen: set[str] = set()
    while len(seen) < count:
        first, second = (chance.choice(starts) + chance.choice(starts) + chance.choice(ends) for _ in range(2))
        name = f"{first} {second} {chance.choice(kinds)}".title()
        if name not in seen:
            n = len(seen)
            seen.add(name)
            yield Named(f"customer:{n}", name, f"{first[:2]}{second[:3]}{n}".upper())


async def store(admin: asyncpg.Connection[Any], tenant: UUID, things: Sequence[Named]) -> None:
    """Put them into the tables, for the whole tenant."""
    now = datetime.now(UTC)
    await admin.copy_records_to_table(
        "canonical_entities",
        schema_name="agent_data",
        columns=["user_id", "tenant_id", "entity_id", "entity_type", "canonical_name", "name_norm"],
        records=((NIL, tenant, each.entity, "customer", each.name, normalise(each.name)) for each in things),
    )
    await admin.copy_records_to_table(
        "entity_aliases",
        schema_name="agent_data",
        columns=["user_id", "tenant_id", "alias_norm", "entity_id", "alias_text", "alias_source", "confidence", "last_used_at"],
        records=((NIL, tenant, normalise(each.alias), each.entity, each.alias, "learned", 0.95, now) for each in things),
    )  # fmt: skip


def slipped(name: str, chance: random.Random) -> str:
    """A name with two letters of its middle exchanged."""
    at = chance.randrange(len(name) // 3, 2 * len(name) // 3)
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


async def timed(work: Sequence[Callable[[], Awaitable[object]]], postgres: int) -> dict[str, float]:
    """Each of `work` once, one after the other; milliseconds, and those of CPU, on average: of this process and of Postgres."""
    took: list[float] = []
    own, theirs = time.process_time(), cpu_s(postgres)
    for n, each in enumerate([*work[:WARM], *work]):
        began = time.perf_counter()
        await each()
        if n >= WARM:
            took.append(1000 * (time.perf_counter() - began))
    spent = [
        1000 * (now - before) / (WARM + len(took))
        for now, before in ((time.process_time(), own), (cpu_s(postgres), theirs))
    ]
    took.sort()
    return {
        "count": len(took),
        "p50_ms": quantile(took, 0.5),
        "p99_ms": quantile(took, 0.99),
        "server_ms": spent[0],
        "postgres_ms": spent[1],
    }


async def stages(
    entities: EntityStore,
    resolver: Resolver,
    who: Who,
    things: Sequence[Named],
    count: int,
    postgres: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """What each stage costs by itself, and what a text costs."""
    chance, now = random.Random(7), datetime.now(UTC)
    some = [chance.choice(things) for _ in range(count)]

    def look(text: str, *, near: bool) -> Callable[[], Awaitable[object]]:
        found = find(text, ONTOLOGY)
        grams = sorted({each.norm for each in found.grams})
        spans = [each.norm for each in found.names] if near else []
        return lambda: entities.look_up(who.tenant, who.user, grams, spans)

    def whole(text: str, recent: Sequence[EarlierMessage] = ()) -> Callable[[], Awaitable[object]]:
        return lambda: resolver.study(who, text, recent, ONTOLOGY, now=now)

    asked = "What did {} order last month, and has it been paid?"
    kinds: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "stages 1 and 2: names": [look(asked.format(each.name), near=False) for each in some],
        "stages 1 and 2: aliases": [look(asked.format(each.alias), near=False) for each in some],
        "stages 1 to 3: a name with a slip": [
            look(asked.format(slipped(each.name, chance)), near=True) for each in some
        ],
        "stages 1 to 3: the first word of names": [
            look(asked.format(each.name.split()[0]), near=True) for each in some
        ],
        "a text that names a thing": [whole(f"What did {each.name} order?") for each in some],
        "a text with a slip": [whole(f"What did {slipped(each.name, chance)} order?") for each in some],
        "a text of 50 words that names nothing": [whole("so what is there to do about that one thing " * 5)] * count,
        "a text with “they”, ten messages back": [
            whole(
                "Do they pay on time?",
                [EarlierMessage("user", f"{each.name} called."), *[EarlierMessage("assistant", "I see.")] * 9],
            )
            for each in some
        ],
        "ten thousand names": [whole(FLOOD)] * max(WARM, count // 10),
    }
    found = []
    for kind, work in kinds.items():
        say(kind)
        found.append({"kind": kind, **await timed(work, postgres)})
    return found


async def explore(dsn: str, postgres: int, count: int, texts: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The whole run."""
    clock = SystemClock()
    who = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana"))
    admin = await asyncpg.connect(dsn)
    pool = await open_pool(
        dsn, size=2, timeout_ms=60_000, statement_timeout_ms=60_000, statement_cache_size=256, role="mneme_app"
    )
    try:
        await add_user(admin, who, "ana")
        await add_business(admin, who)
        say(f"storing {count:,} things and aliases, twice")
        things = list(crowd(count, 1))
        await store(admin, who.tenant, things)
        await store(admin, OTHER_TENANT, list(crowd(count, 2)))
        await admin.execute("VACUUM (ANALYZE) agent_data.canonical_entities, agent_data.entity_aliases")
        entities = EntityStore(pool, Queries.load(), clock)
        resolver = Resolver(entities, Rows(), clock)
        accuracy = []
        for name in SETS:
            say(f"resolving the labelled sentences: {name}")
            figures = await measure(resolver, who, labelled(name), clock.now())
            for stage in (*STAGES, None):
                counts = [
                    each[stage] if stage else each.total() for each in (figures.gold, figures.found, figures.right)
                ]
                shares = {"precision": figures.precision(stage), "recall": figures.recall(stage)}
                accuracy.append(
                    {"set": name, "stage": stage or "all", "labelled": counts[0], "right": counts[2], **shares}
                )
        return {"accuracy": accuracy, "stages": await stages(entities, resolver, who, things, texts, postgres, say)}
    finally:
        await pool.close()
        await admin.close()


def show(out: Console, found: dict[str, Any]) -> None:
    right = Table("sentences", "stage", "mentions", "precision", "recall")
    for each in found["accuracy"]:
        shares = [f"{each[name]:.3f}" for name in ("precision", "recall")]
        right.add_row(each["set"], each["stage"], str(each["labelled"]), *shares)
    out.print(right)
    cost = Table("asked", "times", "p50 ms", "p99 ms", "CPU ms + Postgres")
    for each in found["stages"]:
        spent = f"{number(each['server_ms'])} + {number(each['postgres_ms'])}"
        cost.add_row(each["kind"], str(each["count"]), number(each["p50_ms"]), number(each["p99_ms"]), spent)
    out.print(cost)


@click.command()
@click.option("--quick", is_flag=True, help="5,000 things, few questions.")
@click.option("--things", type=click.IntRange(100, 10_000_000), help="Things and aliases of a tenant; 100,000.")
@click.option("--texts", type=click.IntRange(WARM, 1_000_000), help="Questions of each kind; 1,000.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(quick: bool, things: int | None, texts: int | None, no_save: bool) -> None:
    """Measure the resolution of mentions."""
    count, asked = things or (QUICK_THINGS if quick else THINGS), texts or (QUICK_TEXTS if quick else TEXTS)
    out = console()
    with measuring(), out.status("starting …") as status, running() as stack:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(explore(stack.dsn, stack.postgres_pid, count, asked, status.update))
        version = version_of(stack)
    show(out, found)
    keep(out, results.head("resolving", quick=quick, postgres=version) | {"things": count} | found, no_save)


if __name__ == "__main__":
    main()
