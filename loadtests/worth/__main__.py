"""Fits the two models of app/context/worth.py, and writes app/context/worth.json and loadtests/results/worth.md.

    python -m loadtests.worth FOLDER [--write]

FOLDER has `locomo_dev.json`, `beam_dev.json`, `realtalk_dev.json`, `beam500_dev.json` (LoCoMo's shape); nothing of them is
kept. Everything is imported into an embedded Postgres made for the purpose, by the product's own code; features come from the
product's own ranking. Ridge-penalised logistic regression by Newton's method, in numpy. An item's target is its share of the
question's evidence, so that a question with ten pieces of evidence counts as much as one with a single piece. Each kind is left
out in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry  # noqa: F401  (evaluating wires with it)

from app.cli.evaluate import fill
from app.clock import SystemClock
from app.console import database
from app.context import worth
from app.context.question import understand
from app.context.rank import rank
from app.context.retrieve import MOST_VECTORS, MOST_WORDED, Retriever, ranked_by
from app.context.score import AUTO
from app.features.evaluate import EvalFile
from app.index.indexes import IndexScope
from app.server.core import open_core, prepare_database
from app.settings import Settings
from app.store import ids
from loadtests.worth.conversations import Ask, Kind, Person, Sentences, people
from tests.support.indexes import indexes_of

HERE = Path(__file__).parent
COEFFICIENTS = HERE.parent.parent / "app" / "context" / "worth.json"
REPORT = HERE.parent / "results" / "worth.md"
RIDGE_ASKED, RIDGE_ITEM = 1e-2, 1e-5
ELSEWHERE_COUNTS = 0.5
"""What a question that another memory answers counts as a request that this one does not: it does ask memory."""
PART_COUNTS, OURS_COUNT = 0.5, 0.25
"""What the users with a part of a conversation, and our own, count of an item's fit, as parts of those with all of it."""
KEPT = worth.POOL
FRAME = 48.0
"""Tokens of a block around its items: `assemble.FRAME_TOKENS`."""
PASSAGE, WHOLE = 52.0, 75.0
LEFT_OUT = ((), ("locomo",), ("beam",), ("realtalk",), ("beam500",), ("locomo", "realtalk"), ("beam", "beam500"))
OWN_NOTHING = (60, 20)
"""Requests of `nothing` and of `follow_ups` asked of each of our own users, and a fifth of each of the parts."""

Column = NDArray[np.float32]


@dataclass(slots=True)
class Row:
    """A request with its features, without messages that state nothing. `items` (n, features), `share` (n,) of the evidence,
    `tokens` (n,), `finds`: which evidence."""

    set: str
    whole: bool
    ask: Ask
    fit: bool
    request: Column
    items: Column
    share: Column
    tokens: Column
    finds: Sequence[frozenset[str]]


def logistic(values: Column, target: Column, weight: Column, ridge: float, names: Sequence[str]) -> worth.Logistic:
    """Weighted, ridge-penalised; Newton's method with halved steps."""
    total = weight.sum()
    means = (values * weight[:, None]).sum(0) / total
    scales = np.sqrt(((values - means) ** 2 * weight[:, None]).sum(0) / total) + 1e-6
    z = np.c_[(values - means) / scales, np.ones(len(values))].astype(np.float64)
    penalty = np.append(np.full(values.shape[1], ridge * total), 0.0)
    b = np.zeros(z.shape[1])
    b[-1] = np.log((weight @ target) / (total - weight @ target))

    def loss(at: Any) -> float:
        odds = z @ at
        return float((weight * (np.logaddexp(0, odds) - target * odds)).sum() + 0.5 * (penalty * at * at).sum())

    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(z @ b, -30, 30)))
        step = np.linalg.solve(
            (z * (weight * p * (1 - p) + 1e-9)[:, None]).T @ z + np.diag(penalty + 1e-6),
            z.T @ (weight * (p - target)) + penalty * b,
        )
        size, before = 1.0, loss(b)
        while size > 1e-3 and loss(b - size * step) > before:
            size /= 2
        b = b - size * step
        if abs(step).max() < 1e-5:
            break
    return worth.Logistic(
        tuple(names), means.astype(np.float32), scales.astype(np.float32), b[:-1].astype(np.float32), b[-1]
    )


def fit_asked(rows: Sequence[Row], left: Sequence[str]) -> worth.Logistic:
    own = [row for row in rows if row.fit and row.set not in left]
    target = np.array([row.ask.kind == "asked" for row in own], np.float32)
    many = Counter((row.set, row.ask.kind == "asked") for row in own)
    weight = np.array([1 / many[row.set, row.ask.kind == "asked"] for row in own])
    weight *= [ELSEWHERE_COUNTS if row.ask.kind == "elsewhere" else 1.0 for row in own]
    return logistic(np.array([row.request for row in own]), target, weight, RIDGE_ASKED, worth.ASKED_FEATURES)


def fit_items(rows: Sequence[Row], left: Sequence[str]) -> worth.Logistic:
    own = [row for row in rows if row.fit and row.set not in left and row.ask.kind == "asked" and row.share.any()]
    many = Counter((row.set, row.whole) for row in own)
    counts = {row.set: OURS_COUNT if row.set == "own" else 1.0 for row in own}
    weight = [
        np.full(len(row.share), counts[row.set] * (1.0 if row.whole else PART_COUNTS) / many[row.set, row.whole])
        for row in own
    ]
    return logistic(np.concatenate([row.items for row in own]), np.concatenate([row.share for row in own]),
                    np.concatenate(weight), RIDGE_ITEM, worth.ITEM_FEATURES)  # fmt: skip


def choose(
    row: Row, asked: worth.Logistic, item: worth.Logistic, price: worth.Rate, cap: float = 1450.0
) -> tuple[float, float]:
    """Recall and tokens of a prompt, roughly: the greedy choice, with mean costs; no tokens where it does not pass."""
    sure = worth.sigmoid(float(asked.odds(row.request[None])[0]))
    likely = worth.sigmoids(item.odds(row.items))
    if sure < worth.least_asked(row.tokens):
        return 0.0, 0.0
    likely = sure * likely
    cost = np.where(row.tokens > WHOLE, PASSAGE, row.tokens) + worth.LINE
    least = price.least(cost, float(likely.max()))
    used, found = 0.0, frozenset[str]()
    for n in np.argsort(-likely, kind="stable"):
        if likely[n] >= least[n] and used + cost[n] + FRAME <= cap:
            used += cost[n]
            found |= row.finds[n]
    evidence = row.ask.evidence
    return len(found & evidence) / len(evidence) if evidence else 0.0, used + FRAME if used else 0.0


async def rows_of(core: Any, persons: Sequence[Person], sentences: Sentences, rng: random.Random) -> list[Row]:
    indexes = indexes_of(
        core.pools.background, core.embedder.dimensions, await core.turns.space_of(core.embedder.space), limit=10**8
    )
    retriever = Retriever(core.turns, core.embedder, core.counter.count, indexes)
    now, found = core.clock.now(), []
    held = {*sentences.nothing[1::2], *sentences.follow_ups[1::2]}
    for person in persons:
        user = ids.user_id(ids.LOCAL_TENANT, person.user)
        part = 1 if person.whole else 5
        several: list[tuple[Sequence[str], int, Kind]] = [
            (sentences.nothing, OWN_NOTHING[0], "nothing"),
            (sentences.follow_ups, OWN_NOTHING[1], "follow_up"),
        ]
        if person.whole and person.set != "own":
            several = [(texts, len(texts), kind) for texts, _, kind in several]
        asks = [
            *person.asks,
            *(Ask(text, kind) for texts, many, kind in several for text in rng.sample(list(texts), many // part)),
        ]
        evidence, idle = {}, set()
        async with core.pools.background.transaction(ids.LOCAL_TENANT) as connection:
            for each in await connection.fetch(
                "SELECT message_id, metadata ->> 'id' AS id, content, token_count FROM agent_data.conversation_history"
                " WHERE user_id = $1",
                user,
            ):
                evidence[each["message_id"].bytes] = frozenset({each["id"]})
                if not worth.states(each["content"] or "", each["token_count"]):
                    idle.add(each["message_id"].bytes)
            for each in await connection.fetch(
                "SELECT memory_id, source_message_ids AS of FROM agent_data.memory_store WHERE user_id = $1", user
            ):
                several_of = each["of"] if len(each["of"]) <= 2 else []
                evidence[each["memory_id"].bytes] = frozenset().union(
                    *(evidence.get(one.bytes, frozenset()) for one in several_of)
                )
        for ask in asks:
            asked = understand(ask.text, now)
            scan = await indexes.scan(
                ids.LOCAL_TENANT, user, ask.text, await retriever.vector(ask.text), IndexScope(), vectors=MOST_VECTORS,
                texts=MOST_WORDED,
            )  # fmt: skip
            ranking = rank(scan, ask.text, span=asked.span, recap=asked.recap)
            if not len(ranking):
                continue
            scores = ranked_by(ranking, AUTO)
            best = np.argsort(-scores, kind="stable")[:KEPT]
            those = [each.tobytes() for each in np.ascontiguousarray(ranking.places(best)["id"])]
            stating = np.array([each not in idle for each in those])
            best, those = best[stating], [each for each in those if each not in idle]
            finds = [evidence.get(each, frozenset()) & ask.evidence for each in those]
            share = np.array([len(each) / max(1, len(ask.evidence)) for each in finds])
            found.append(Row(person.set, person.whole, ask, ask.text not in held,
                             worth.asked_features(ranking, asked), worth.item_features(scores)[best], share,
                             ranking.tokens[best], finds))  # fmt: skip
    return found


def report(rows: Sequence[Row], say: Callable[[str], None]) -> str:
    lines = [
        "# What the models of worth.json reach",
        "",
        "`python -m loadtests.worth FOLDER`: recall / tokens of a prompt / tokens of an unrelated one (own sentences, those"
        " held out) at each price, by mean costs (a compiled prompt is measured by `mneme eval`). *Fitted without*: a kind that"
        " was left out of the fit, and measured.",
        "",
        "| measured on | fitted without | frugal | balanced | thorough |",
        "| --- | --- | --- | --- | --- |",
    ]
    for left in LEFT_OUT:
        asked, item = fit_asked(rows, left), fit_items(rows, left)
        for name in left or ("locomo", "beam", "realtalk", "beam500"):
            own = [row for row in rows if row.set == name and row.whole and row.ask.kind == "asked"]
            idle = [row for row in rows if row.set == name and row.ask.kind in ("nothing", "follow_up") and not row.fit]
            cells = []
            for price in worth.PRICES.values():
                got = np.array([choose(row, asked, item, price) for row in own])
                wasted = np.array([choose(row, asked, item, price)[1] for row in idle])
                cells.append(f"{got[:, 0].mean():.3f} / {got[:, 1].mean():.0f} / {wasted.mean():.0f}")
            lines.append(f"| {name} | {' and '.join(left) or 'nothing'} | {' | '.join(cells)} |")
            say(lines[-1])
    return "\n".join(lines) + "\n"


def as_data(model: worth.Logistic) -> dict[str, Any]:
    digits = 5
    told = {each: [round(float(x), digits) for x in getattr(model, each)] for each in ("means", "scales", "weights")}
    return {"names": list(model.names), **told, "bias": round(float(model.bias), digits)}


async def run(settings: Settings, dsn: str, folder: Path, write: bool) -> None:
    sentences, rng = Sentences.read(), random.Random(7)
    persons = people(folder, sentences, rng)
    sheet = EvalFile(lines=[orjson.dumps(line) for person in persons for line in person.lines])
    await prepare_database(settings, dsn)
    async with open_core(settings, dsn, SystemClock()) as core:
        await fill(core, sheet, print)
        rows = await rows_of(core, persons, sentences, rng)
    print(Counter((row.set, row.ask.kind) for row in rows))
    text = report(rows, print)
    asked, item = fit_asked(rows, ()), fit_items(rows, ())
    today = datetime.now(UTC).date().isoformat()
    data = {"made": today, "report": "loadtests/results/worth.md", "asked": as_data(asked), "item": as_data(item)}
    weights = "".join(
        f"| {name} | {value:+.2f} |\n"
        for model in (asked, item)
        for name, value in zip(model.names, model.weights, strict=True)
    )
    if write:
        COEFFICIENTS.write_text(json.dumps(data, indent=1) + "\n")
        REPORT.write_text(
            f"{text}\nWeights of the standardised features, {today}:\n\n| feature | weight |\n| --- | --- |\n{weights}"
        )
    else:
        print(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the coefficients and the report")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mneme-worth-") as place:
        settings = Settings(data_dir=Path(place), database_url=None)
        with database(settings, print) as dsn:
            asyncio.run(run(settings, dsn, given.folder, given.write))


if __name__ == "__main__":
    main()
