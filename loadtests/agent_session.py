"""An agent's session that is many times longer than what its model may read: what paging keeps of it, and what it costs.

python -m loadtests.agent_session [--quick] [--seed N] [--budget N] [--results N] [--tokens N] [--questions N]
                                  [--no-worker] [--one-by-one]

160 results of tools with 400,000 tokens in all, one of them larger than the budget by itself; 30 questions along the way whose
answers lie in results of long ago. A scripted model works through it behind a real `mneme serve`, once with paging and once
without: what its prompt does not say it looks up with the memory tools. Prints only.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from app.features.paging.values import Zone
from app.providers.tokens import Tokenizers
from loadtests.fill import wait_until_learned
from loadtests.load import quantile
from loadtests.stack import UNHURRIED_MS
from loadtests.terminal import console, measuring
from tests.support.agent_client import Session, expected, play
from tests.support.agent_model import MODEL, ScriptedModel
from tests.support.agent_work import Work, work
from tests.support.clients import Api
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

WINDOW = 1_000_000
"""Tokens of the model, so that the whole session fits into it without paging."""
BUDGET, QUICK_BUDGET = 32_000, 8_000
RESULTS, QUICK_RESULTS = 160, 25
TOKENS, QUICK_TOKENS = 400_000, 60_000
QUESTIONS, QUICK_QUESTIONS = 30, 6
APART = 8
"""A question comes at least this part of the session after what it asks about: an eighth of its results."""
GIANT = 1.25
"""The largest result, as a part of the budget."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """A session as it was played, what its model saw, role and text of what its history has, and what the server counted."""

    session: Session
    model: ScriptedModel
    stored: Sequence[tuple[str, object]]
    counted: Mapping[str, float]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.model.prompts)

    @property
    def largest(self) -> int:
        return max(each.tokens for each in self.model.prompts)

    @property
    def reused(self) -> float:
        """Share of all prompts' bytes that the upstream had seen at the beginning of an earlier one."""
        return sum(each.shared for each in self.model.prompts) / sum(each.size for each in self.model.prompts)

    @property
    def cached(self) -> str:
        """The same in words, with the tokens that the upstream had to read."""
        return f"{self.reused:.2f} of {self.tokens:,} tokens; {(1 - self.reused) * self.tokens:,.0f} read anew"


def run(
    made: Work, program: str, pagings: Sequence[str], settings: Mapping[str, str], *, worker: bool, say: Say
) -> list[Run]:
    """The whole session on a server of its own, with paging on or off."""
    with tempfile.TemporaryDirectory(prefix="mneme-agent-") as folder, ScriptedUpstream([]) as upstream:
        upstream.script = _model(made)
        with MnemeServer(
            Path(folder), database=None, upstream=upstream.url, worker=worker, settings=settings, program=program
        ) as server:
            return [_played(server, upstream, made, paging, say) for paging in pagings]


def _model(made: Work) -> ScriptedModel:
    return ScriptedModel(made, Tokenizers().for_model(MODEL), WINDOW)


def _played(server: MnemeServer, upstream: ScriptedUpstream, made: Work, paging: str, say: Say) -> Run:
    user = f"paging-{paging}"
    upstream.script = model = _model(made)
    session = play(
        server.base_url,
        made,
        model,
        headers={"X-Mneme-User": user, "X-Mneme-Paging": paging, "Authorization": "Bearer sk-none"},
        between=lambda: wait_until_learned(server.base_url, lambda _: None),
        say=lambda told: say(f"paging {paging}: {told}"),
    )
    upstream.requests.clear()
    lines = [line.rpartition(" ") for line in server.http.get("/metrics").text.splitlines() if line[:1] != "#"]
    counted = {name: float(value) for name, _, value in lines}
    return Run(session, model, Api(server, user=user).said(session.session_id), counted)


def show(out: Console, made: Work, budget: int, on: Run, off: Run, single: Run | None) -> None:
    """All figures."""
    ways = Counter(on.model.ways.values())
    reached = len(made.questions) - ways["nowhere"]
    bare = [each.bare_tokens for each in on.session.turns]
    said = [(each["role"], each["content"]) for each in on.session.messages if each["role"] != "system"]
    whole = on.session.messages == expected(made, on.model.ways)
    degraded = Counter(each.reason for each in on.session.turns if each.status != "ok")
    shorter = f"{sum(bare) / on.tokens:.1f} times fewer"
    counts = ((zone, on.counted.get(f'mneme_paging_prompts_total{{zone="{zone}"}}', 0.0)) for zone in Zone)
    zones = ", ".join(f"{zone} {count:.0f}" for zone, count in counts if count)
    facts: Sequence[tuple[str, str]] = (
        ("results, tokens in all", f"{len(made.results)}, {max(bare):,} in the last prompt"),
        ("requests of the client, of the upstream", f"{len(on.session.turns)}, {len(on.model.prompts)}"),
        ("largest prompt", f"{on.largest:,} tokens of {budget:,}"),
        ("prompts beyond the budget", str(sum(each.tokens > budget for each in on.model.prompts))),
        ("needed details reached", f"{reached} of {len(made.questions)}"),
        ("by which way", ", ".join(f"{way} {count}" for way, count in ways.most_common())),
        ("transcript as without paging", "yes" if whole else "NO"),
        ("what an answer must not show", "; ".join(on.session.wrong[:5]) or "nothing"),
        ("history as the client's transcript", "yes" if on.stored == said else f"NO: {len(on.stored)} of {len(said)}"),
        ("tokens sent, as the client wrote them", f"{sum(bare):,}"),
        ("tokens sent with paging, all legs", f"{on.tokens:,} ({shorter})"),
        ("seen before as a prefix, without paging", off.cached),
        ("seen before as a prefix, with paging", on.cached),
        *([("the same one by one", single.cached)] if single is not None else []),
        ("prompts by zone", zones),
        ("turns that went without something", ", ".join(f"{why} {n}" for why, n in degraded.items()) or "none"),
    )
    table = Table("what", "found", title="A session with paging")
    for name, told in facts:
        table.add_row(name, told)
    out.print(table)
    show_times(out, on, off)
    show_hits(out, on)


def show_times(out: Console, on: Run, off: Run) -> None:
    """What a turn takes beside the model, with and without."""
    plain = [turn.ms for turn in on.session.turns if turn.legs == 1]
    pairs = zip(on.session.turns, off.session.turns, strict=True)
    table = Table("milliseconds a turn, beside the model", "p50", "p95", "most", title="Latency")
    for name, took in (
        ("with paging", [turn.ms for turn in on.session.turns]),
        ("with paging, turns without a look-up", plain),
        ("without", [turn.ms for turn in off.session.turns]),
        ("added", [one.ms - other.ms for one, other in pairs]),
        ("before the upstream is asked, with paging", [turn.overhead_ms for turn in on.session.turns]),
        ("before the upstream is asked, without", [turn.overhead_ms for turn in off.session.turns]),
    ):
        took = sorted(took)
        table.add_row(name, f"{quantile(took, 0.5):.1f}", f"{quantile(took, 0.95):.1f}", f"{took[-1]:.1f}")
    for stage, what in (("page", "what is shown shorter"), ("fault", "a look-up")):
        total, times = (
            on.counted.get(f'mneme_stage_seconds_{part}{{stage="{stage}"}}', 0.0) for part in ("sum", "count")
        )
        table.add_row(f"{what}, mean of {times:.0f}", f"{1000 * total / times:.1f}" if times else "", "", "")
    out.print(table)


def show_hits(out: Console, on: Run) -> None:
    """What questions came back with."""
    asked, hits = Counter(kind for kind, _ in on.model.asked), Counter(kind for kind, hit in on.model.asked if hit)
    table = Table("memory_query about", "asked", "had the detail", title="Micro-faults")
    for kind, count in sorted(asked.items()):
        table.add_row(kind, str(count), str(hits[kind]))
    table.add_row("all", str(asked.total()), str(hits.total()))
    out.print(table)


@click.command()
@click.option("--quick", is_flag=True, help="A short session.")
@click.option("--seed", type=int, default=7, show_default=True, help="Another session.")
@click.option("--budget", type=click.IntRange(1000, 1_000_000), help="Tokens of a paged prompt; 32,000.")
@click.option("--results", type=click.IntRange(10, 10_000), help="Of tools; 160.")
@click.option("--tokens", type=click.IntRange(5_000, 100_000_000), help="Of all results; 400,000.")
@click.option("--questions", type=click.IntRange(1, 1000), help="About what came long ago; 30.")
@click.option("--worker/--no-worker", default=True, help="Whether summaries are made beside the session.")
@click.option("--one-by-one", is_flag=True, help="Once more, with objects shortened one by one instead of in batches.")
def main(
    quick: bool,
    seed: int,
    budget: int | None,
    results: int | None,
    tokens: int | None,
    questions: int | None,
    worker: bool,
    one_by_one: bool,
) -> None:
    """Play a session of an agent, with and without paging."""
    budget = budget or (QUICK_BUDGET if quick else BUDGET)
    results = results or (QUICK_RESULTS if quick else RESULTS)
    made = work(
        seed,
        Tokenizers().for_model(MODEL).count,
        results=results,
        tokens=tokens or (QUICK_TOKENS if quick else TOKENS),
        questions=questions or (QUICK_QUESTIONS if quick else QUESTIONS),
        apart=results // APART,
        giant=int(GIANT * budget),
        again=1 if quick else 3,
    )
    out = console()
    settings = {
        "PAGING_BUDGET_TOKENS": str(budget),
        "MODEL_WINDOWS": f'{{"{MODEL}": {WINDOW}}}',
        "RETRIEVAL_DEADLINE_MS": UNHURRIED_MS,
    }
    with measuring(), out.status("starting …") as status:
        off, on = run(made, "app.cli", ["off", "on"], settings, worker=worker, say=status.update)
        single = None
        if one_by_one:
            (single,) = run(made, "loadtests.one_by_one", ["on"], settings, worker=worker, say=status.update)
    show(out, made, budget, on, off, single)


if __name__ == "__main__":
    main()
