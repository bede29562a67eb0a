"""`mneme eval`: how much of what answers a question comes back within a budget, by the real pipeline.

The file has one JSON object a line, of two kinds (docs/explanation/recall.md). A line of an import (docs of POST
/api/v1/import) whose `metadata` has an `id`: `{"user", "session", "role", "content", "name"?, "created_at"?, "metadata":
{"id": "D1:3"}}`. And a question: `{"user", "question", "evidence": ["D1:3"], "kind"?, "now"?}`, the ids of the user's
messages that answer it; with none it is a request that memory has nothing to do with.

Everything happens in an embedded Postgres made for the purpose and taken away afterwards: import, jobs, search. A derived item
counts for a message when it comes from at most two, that one among them; a raw one when it carries the message or at least 25
of its words.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import click
import orjson
from msgspec import Struct, field
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.auth import Principal
from app.api.intake import IntakeCheck, IntakePreparer
from app.api.scope import CallerScope as ApiScope
from app.clock import SystemClock
from app.console import database, failing_clearly, load_settings, show
from app.context.candidates import Candidate
from app.context.request import SearchRequest
from app.context.retrieve import Scope
from app.context.score import PROFILE_NAMES
from app.context.transcript import chain, tail_hash
from app.errors import BadBody, MnemeError
from app.features.consolidation.jobs import consolidation_jobs
from app.features.consolidation.store import SESSION_END, ConsolidationStore, session_job
from app.features.registry import Features
from app.features.transfer.routes import Importer
from app.jobs.worker import Worker, connector
from app.metrics import Metrics
from app.server.core import Core, open_core, prepare_database, process_of
from app.server.learning import learner
from app.server.proxy import Proxy, open_proxy
from app.settings import Settings
from app.sources import PRICE_NAMES, Price
from app.store import ids
from app.store.history import History
from app.store.pools import APP_ROLE
from app.store.queue import Queue
from app.store.records import JobRecord
from app.store.sessions import Sessions
from app.store.spaces import SharedSpaces
from app.tasks import CLOSING_S

BUDGETS = (500, 1000, 1500, 2000, 3000, 4000)
"""Tokens; 1,500 is what a turn's block may cost by default."""
PART_LINES = 2000
POLL_S = 0.1
LONGEST_S = 900.0
"""Seconds for the jobs of one part."""
MOST_SOURCES = 2
"""Messages that a derived item may come from to count for one: a summary of everything finds nothing."""
WORDS_SHOWN = 25
WORDS_SHARE = 0.8
"""Words of a message, or share of a shorter one, that a raw item must show: a snippet of everything finds nothing."""

Say = Callable[[str], None]


class EvalFailed(MnemeError):
    """The evaluation could not be done."""


class EvalQuestion(BaseModel):
    """A question, and the ids of the messages that answer it."""

    model_config = ConfigDict(extra="forbid")

    user: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(min_length=1)]
    evidence: list[str]
    kind: str = "all"
    now: datetime | None = None


class EvalFile(Struct):
    """A file, read: the lines to import, the words of each message by user and id, the questions, (user, session) of what is to
    be ended."""

    lines: list[bytes] = field(default_factory=list)
    words: dict[str, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    questions: list[EvalQuestion] = field(default_factory=list)
    sessions: dict[tuple[str, str], None] = field(default_factory=dict)


def read(file: Path) -> EvalFile:
    """Raises BadBody with the number of the line that is wrong."""
    sheet = EvalFile()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = orjson.loads(line)
                if "question" in value:
                    sheet.questions.append(EvalQuestion.model_validate(value))
                    continue
                name = (value.get("metadata") or {}).get("id")
                if name is not None:
                    sheet.words[value["user"]][str(name)] = str(value.get("content") or "").lower().split()
            except (ValueError, ValidationError, KeyError, TypeError, AttributeError) as error:
                raise BadBody(f"Line {number} is neither a message nor a question: {error}.") from error
            sheet.lines.append(line)
            if session := value.get("session"):
                sheet.sessions[str(value.get("user")), str(session)] = None
    for each in sheet.questions:
        if unknown := set(each.evidence) - sheet.words[each.user].keys():
            raise BadBody(f"No message of {each.user} has the id {min(unknown)}, which {each.question!r} names.")
    if not any(each.evidence for each in sheet.questions):
        raise BadBody("There is no question in this file.")
    return sheet


def found(item: Candidate, words: Mapping[str, Sequence[str]]) -> set[str]:
    """The evidence that an item counts for. `words` of each message by its id."""
    sources = item.provenance
    if len(sources) > MOST_SOURCES:
        return set()
    named = {str(each.metadata.get("id")) for each in sources} & words.keys()
    if item.source == "memory":
        return named
    shown = Counter(item.text.lower().split())
    return {
        each
        for each in named
        if sum((shown & Counter(words[each])).values()) >= min(WORDS_SHOWN, int(WORDS_SHARE * len(words[each])))
    }


def evaluate(
    settings: Settings, file: Path, *, profile: str, budgets: Sequence[int] = BUDGETS, say: Say
) -> dict[str, Any]:
    """Recall by budget and kind, and what a search took. Raises BadBody, EvalFailed, NotReady."""
    sheet = read(file)
    with tempfile.TemporaryDirectory(prefix="mneme-eval-") as folder:
        changes: dict[str, Any] = {
            "data_dir": Path(folder),
            "database_url": None,
            "database_direct_url": None,
            "spool_dir": None,
            "embedded_port": 0,
        }
        own = settings.model_copy(update=changes)
        with database(own, say) as dsn:
            return asyncio.run(_evaluate(own, dsn, sheet, profile, budgets, say))


async def _evaluate(
    settings: Settings, dsn: str, sheet: EvalFile, profile: str, budgets: Sequence[int], say: Say
) -> dict[str, Any]:
    await prepare_database(settings, dsn)
    async with (
        open_core(settings, dsn, SystemClock()) as core,
        open_proxy(core, Metrics(CollectorRegistry()), Features({})) as proxy,
    ):
        await fill(core, sheet, say)
        return await ask(proxy, sheet, profile, budgets, say)


async def fill(core: Core, sheet: EvalFile, say: Say) -> None:
    """Import the lines, and do all that comes of it, and of the sessions' end: summaries, patterns, procedures."""
    lines = sheet.lines
    pool, sql, clock = core.pools.background, core.queries, core.clock
    sessions = Sessions(pool, sql, clock, ttl=core.session_ttl)
    space = await core.turns.space_of(core.embedder.space)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=core.session_ttl, space=space)
    scribe = IntakePreparer(core.embedder, core.counter, clock)
    importer = Importer(sessions, history, scribe, SharedSpaces(pool, sql, clock), IntakeCheck(lambda _: False))
    principal = Principal(ids.LOCAL_TENANT, None, None, frozenset(), "open")
    scope = ApiScope(ids.LOCAL_TENANT, None, None, None, principal)
    for first in range(0, len(lines), PART_LINES):
        done = await importer.run(scope, _chunks(lines[first : first + PART_LINES]))
        if isinstance(done, list):
            raise EvalFailed(f"The messages cannot be imported: {done[0]['error']}")
        say(f"imported {min(len(lines), first + PART_LINES)} of {len(lines)} messages")
    stop = asyncio.Event()
    by_rules = await learner(core, None, None)
    worker = Worker(
        connect=connector(core.dsn, role=APP_ROLE, name="mneme eval"),
        sql=sql,
        handlers=by_rules.handlers() | consolidation_jobs(replace(process_of(core, space=space), helper=None)),
        lease_s=core.settings.job_lease_s,
        attempts=core.settings.job_attempts,
        grace_s=CLOSING_S,
    )
    queue = Queue(pool, sql)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        await _quiet(queue)
        await ConsolidationStore(pool, sql).enqueue(ids.LOCAL_TENANT, list(_ends(sheet)))
        await _quiet(queue)
        stop.set()
    say(f"ended {len(sheet.sessions)} sessions")


def _ends(sheet: EvalFile) -> Iterator[JobRecord]:
    """The session-end work that five idle minutes would bring."""
    for name, session in sheet.sessions:
        user = ids.user_id(ids.LOCAL_TENANT, name)
        own = ids.session_id(ids.LOCAL_TENANT, user, session)
        yield session_job(SESSION_END, ids.LOCAL_TENANT, user, own, asked=True)


async def _quiet(queue: Queue) -> None:
    deadline = time.monotonic() + LONGEST_S
    while (counts := await queue.counts()).queued or counts.running:
        if time.monotonic() > deadline:
            raise EvalFailed("The jobs did not come to an end.")
        await asyncio.sleep(POLL_S)


async def _chunks(lines: Sequence[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n"


async def ask(proxy: Proxy, sheet: EvalFile, profile: str, budgets: Sequence[int], say: Say) -> dict[str, Any]:
    clock = SystemClock()
    recall: dict[int, list[float]] = defaultdict(list)
    kinds: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    took = []
    asked = [each for each in sheet.questions if each.evidence]
    for number, each in enumerate(asked, start=1):
        words = sheet.words[each.user]
        scope = Scope(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, each.user))
        for budget in budgets:
            began = time.perf_counter()
            result = await proxy.path.compiler.search(
                SearchRequest(scope, each.question, each.now or clock.now(), token_budget=budget, profile=profile)
            )
            took.append(1000 * (time.perf_counter() - began))
            got = set().union(*(found(item.candidate, words) for item in result.items))
            share = len(got & set(each.evidence)) / len(set(each.evidence))
            recall[budget].append(share)
            kinds[each.kind][budget].append(share)
        if number % 100 == 0:
            say(f"asked {number} of {len(asked)} questions")
    took.sort()
    return {
        "prices": {price: await _priced(proxy, sheet, price, clock.now()) for price in PRICE_NAMES},
        "questions": len(asked),
        "messages": len(sheet.lines),
        "profile": profile,
        "recall": {budget: round(mean(shares), 3) for budget, shares in recall.items()},
        "kinds": {
            kind: {budget: round(mean(shares), 3) for budget, shares in by.items()}
            for kind, by in sorted(kinds.items())
        },
        "asked": {kind: len(by[budgets[0]]) for kind, by in sorted(kinds.items())},
        "search_ms": {"p50": round(took[len(took) // 2], 1), "p95": round(took[int(len(took) * 0.95)], 1)},
    }


async def _priced(proxy: Proxy, sheet: EvalFile, price: Price, now: datetime) -> dict[str, float | None]:
    """What a prompt gets at this price: `recall`, mean `tokens` of the items, `precision` (share of the raw items that are
    evidence) of the questions that memory answers; mean and median `tokens` of those that it does not (None: the file has
    none)."""
    recall, tokens, precision, idle = [], [], [], []
    for each in sheet.questions:
        scope = Scope(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, each.user))
        result = await proxy.path.compiler.search(SearchRequest(scope, each.question, each.now or now, price=price))
        if not each.evidence:
            idle.append(result.tokens)
            continue
        words, evidence = sheet.words[each.user], set(each.evidence)
        shown = [found(item.candidate, words) & evidence for item in result.items]
        recall.append(len(set().union(*shown)) / len(evidence))
        tokens.append(result.tokens)
        raw = [bool(got) for got, item in zip(shown, result.items, strict=True) if item.candidate.source == "message"]
        precision += [mean(raw)] if raw else []
    return {
        "recall": round(mean(recall), 3),
        "tokens": round(mean(tokens)),
        "precision": round(mean(precision), 3) if precision else None,
        "unrelated": round(mean(idle)) if idle else None,
        "unrelated_median": round(median(idle)) if idle else None,
    }


def _prices(told: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    names = ("recall", "tokens", "precision", "unrelated", "unrelated_median")
    lines = ["price".ljust(10) + "".join(name.replace("_", " ").rjust(18) for name in names)]
    for price, figures in told.items():
        cells = ("-" if figures[name] is None else str(figures[name]) for name in names)
        lines.append(price.ljust(10) + "".join(cell.rjust(18) for cell in cells))
    return lines


def table(result: Mapping[str, Any]) -> str:
    """The result for a person: a row for each kind of question, a column for each budget."""
    budgets = list(result["recall"])
    rows = [("recall within", *(f"{budget:,}" for budget in budgets), "questions")]
    for kind, shares in result["kinds"].items():
        rows.append((kind, *(f"{shares[budget]:.3f}" for budget in budgets), str(result["asked"][kind])))
    rows.append(("all", *(f"{share:.3f}" for share in result["recall"].values()), str(result["questions"])))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    took = result["search_ms"]
    return "\n".join(
        [*lines, "", *_prices(result["prices"]), "", f"a search takes {took['p50']} ms (p95 {took['p95']} ms)"]
    )


@click.command("eval")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "budgets", type=click.IntRange(1), multiple=True, help="Tokens; may be given several times.")
@click.option("--profile", default="auto", show_default=True, help="How what was found is scored.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def eval_(file: Path, budgets: tuple[int, ...], profile: str, as_json: bool) -> None:
    """Measure how much of what answers a question is found within a budget.

    FILE has conversations and questions, one JSON object a line: docs/explanation/recall.md has the format. They are stored
    in a database of their own, which is removed at the end.
    """
    if profile not in PROFILE_NAMES:
        raise click.BadParameter(f"one of {', '.join(sorted(PROFILE_NAMES))}", param_hint="--profile")
    result = evaluate(
        load_settings(), file, profile=profile, budgets=budgets or BUDGETS, say=lambda line: click.echo(line, err=True)
    )
    show(result, as_json, lambda: click.echo(table(result)))
