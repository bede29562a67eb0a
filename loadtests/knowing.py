"""What known things add to a compile: where nothing is known, where the question names none of them, and where it does.

python -m loadtests.knowing [--quick] [--compiles N]

One user with 1,000 memories; the sample domain in a database of its own on the same server, 10,000 other things. Prints only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from itertools import cycle
from statistics import median
from typing import Any

import asyncpg
import click
import uvloop
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from rich.table import Table

from app.clock import SystemClock
from app.features import Features
from app.features.knowledge import Knowledge
from app.features.knowledge.inquiry import NOTHING_FOR_S
from app.features.knowledge.ontologies import OntologyStore, rows_of
from app.features.knowledge.ontology_yaml import read
from app.features.preview import Previewer, PreviewRequest
from app.gateway.prepare import Preparer
from app.metrics import Metrics
from app.server import collector
from app.server.core import open_core, process_of
from app.server.proxy import Proxy, open_proxy
from app.settings import Settings
from app.sources import DomainSource
from app.store import ids
from app.store.tenancy import UserRef
from loadtests import crowd
from loadtests.compiles import WARM, Timed
from loadtests.cpu import cpu_s
from loadtests.crowd import Person
from loadtests.figures import number
from loadtests.load import quantile
from loadtests.prose import Prose
from loadtests.resolving import crowd as things_of
from loadtests.resolving import store as store_things
from loadtests.scale import FAR, LIGHT, filled
from loadtests.stack import running
from loadtests.terminal import console, measuring
from loadtests.work import MODEL
from tests.support.sample_domain import ONTOLOGY_YAML, sample_domain

THINGS = 10_000
COMPILES, QUICK_COMPILES = 400, 60
USER = Person("light", LIGHT, LIGHT)
NAMED = (
    "What did Gai Media Entertainment order in September 2024?",
    "What are Gai Media Entertainment's payment terms?",
    "What is the status of SO-1052?",
    "Tell me about Gai Media Entertainment.",
)


async def compiled(
    proxy: Proxy, asked: Callable[[], str], count: int, postgres: int, *, queries: int
) -> dict[str, float]:
    """Compiles, one after the other. `queries`: fewest of the business's own database that each must make."""
    path = proxy.path
    timed = Timed(Preparer(path.turns, path.compiler, path.knower, path.cards))
    previewer = Previewer(timed, path.router, SystemClock(), MODEL)
    user = UserRef(ids.user_id(ids.LOCAL_TENANT, USER.name), USER.name)
    took: list[float] = []
    cpu: list[float] = []
    late = 0
    before = 0.0
    for n in range(WARM + count):
        if n == WARM:
            before = cpu_s(postgres)
        messages = [{"role": "user", "content": asked()}]
        found = await previewer.preview(PreviewRequest(ids.LOCAL_TENANT, user, None, MODEL, messages, None, None))
        told: dict[str, Any] = found.get("domain") or {"queries": []}
        if len([each for each in told["queries"] if not each.get("error")]) < queries:
            late += n >= WARM
        if n >= WARM:
            took.append(1000 * timed.took)
            cpu.append(1000 * timed.cpu)
    used = 1000 * (cpu_s(postgres) - before) / count
    took.sort()
    return {
        "p50": quantile(took, 0.5),
        "p99": quantile(took, 0.99),
        "server": median(cpu),
        "postgres": used,
        "late": late,
    }


async def measure(dsn: str, postgres: int, count: int, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """All kinds of questions."""
    found: dict[str, dict[str, float]] = {}
    async with AsyncExitStack() as stack:
        admin = await asyncpg.connect(dsn)
        stack.push_async_callback(admin.close)
        domain = await stack.enter_async_context(sample_domain(dsn))
        settings = Settings(
            database_url=SecretStr(dsn),
            upstream_base_url=FAR,
            retrieval_deadline_ms=50_000,
            domains={"erp": DomainSource(dsn=SecretStr(domain.dsn))},
        )
        core = await stack.enter_async_context(open_core(settings, dsn, SystemClock()))
        metrics, features = Metrics(CollectorRegistry()), Features({"knowledge": Knowledge(settings)})
        process = process_of(core, metrics, space=None)
        await stack.enter_async_context(features.within(lambda each: each.opened(process)))
        proxy = await stack.enter_async_context(open_proxy(core, metrics, features))
        collector.settle()  # as in a server
        space = await core.turns.space_of(core.embedder.space)
        assert space is not None, "the migration makes it"
        say("a user's memories")
        await crowd.prepare(admin, core.clock.now())
        await filled(admin, [USER], space, say)
        talk = Prose(USER.name)
        say("nothing known")
        found["nothing is known of anything"] = await compiled(proxy, talk.asked, count, postgres, queries=0)
        draft = read(ONTOLOGY_YAML).draft
        assert draft is not None
        await OntologyStore(core.pools.background, core.queries, core.clock).load(
            ids.LOCAL_TENANT, draft.domain, ONTOLOGY_YAML, *rows_of(draft)
        )
        await store_things(admin, ids.LOCAL_TENANT, list(things_of(THINGS, 1)))
        await admin.execute("VACUUM (ANALYZE)")
        await asyncio.sleep(NOTHING_FOR_S)  # that nothing is known is believed for so long
        say("nothing named")
        found["things are known, the question names none"] = await compiled(
            proxy, talk.asked, count, postgres, queries=0
        )
        for text in NAMED:
            say(text)
            again: Iterator[str] = cycle([text])
            found[text] = await compiled(proxy, again.__next__, count, postgres, queries=1)
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Few compiles.")
@click.option("--compiles", type=click.IntRange(10, 100_000), help="Of each kind; 400.")
def main(quick: bool, compiles: int | None) -> None:
    """Measure what known things add to a compile."""
    count = compiles or (QUICK_COMPILES if quick else COMPILES)
    out = console()
    with (
        measuring(),
        out.status("starting …") as status,
        running() as stack,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        found = runner.run(measure(stack.dsn, stack.postgres_pid, count, status.update))
    table = Table("asked", "p50 ms", "p99 ms", "CPU ms + Postgres", "late")
    for kind, each in found.items():
        spent = f"{number(each['server'])} + {number(each['postgres'])}"
        table.add_row(kind, number(each["p50"]), number(each["p99"]), spent, f"{each['late']:.0f}")
    out.print(table)


if __name__ == "__main__":
    main()
