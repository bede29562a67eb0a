"""How much of a prompt the upstream's cache can use again, by placement of the memory block.

python -m loadtests.prefix [--quick] [--turns N] [--messages N] [--placement NAME]… [--no-save]

For each placement a Mneme of its own: a user with a past, then one session in which a memory is added before every turn, so
that what is found changes every time. What counts is what the mock upstream received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import get_args

import click
import httpx
from rich.console import Console
from rich.table import Table

from app.sources import Placement
from loadtests import fill, results
from loadtests.figures import number
from loadtests.stack import Stack, StackFailed, prepare, running, version_of
from loadtests.terminal import console, keep, measuring
from loadtests.texts import Talk
from loadtests.work import MODEL, PATH, SYSTEM

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
MODEL_KEPT = f"{MODEL}:chunks=40;keep=1"
TIMEOUT_S = 60.0
BEGINS, ENDS = b'"messages":[', b"]"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `shared`: bytes at its beginning that are those of the prompt before; `earlier`: bytes of that one;
    `rebased`: why all blocks were begun anew with this turn, if they were."""

    number: int
    prompt: int
    shared: int
    earlier: int
    memories: int
    rebased: str | None

    @property
    def reused(self) -> float:
        """Share of the prompt before that is found again."""
        return self.shared / self.earlier


@dataclass(frozen=True, slots=True)
class Session:
    """A session of `turns` turns. `reused` is the mean between rebases, `reused_all` that over all turns but the first."""

    placement: str
    turns: int
    rebases: int
    changed: int
    """Turns whose memory was another than that of the turn before."""
    prompt_bytes: int
    reused: float
    reused_least: float
    reused_all: float


def prompt_of(body: bytes) -> bytes:
    """What a cache sees of a request that ends with its `messages`: their bytes, without the bracket that closes them."""
    return body[body.index(BEGINS) + len(BEGINS) : body.rindex(ENDS)]


def shared_prefix(one: bytes, other: bytes) -> int:
    """Bytes at the beginning of both."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def turns_of(bodies: Sequence[bytes], memories: Sequence[int], rebased: Sequence[str | None]) -> list[Turn]:
    """The requests of one session, in order."""
    found, before = [], b""
    for n, body in enumerate(bodies):
        prompt = prompt_of(body)
        shared = shared_prefix(before, prompt)
        found.append(Turn(n + 1, len(prompt), shared, len(before), memories[n], rebased[n]))
        before = prompt
    return found


def session_of(placement: str, turns: Sequence[Turn], changed: int) -> Session:
    """The figures of a session of two turns or more."""
    later = turns[1:]
    between = [each.reused for each in later if each.rebased is None]
    return Session(
        placement=placement,
        turns=len(turns),
        rebases=len(later) - len(between),
        changed=changed,
        prompt_bytes=turns[-1].prompt,
        reused=sum(between) / len(between) if between else float("nan"),
        reused_least=min(between, default=float("nan")),
        reused_all=sum(each.reused for each in later) / len(later),
    )


def measure(placement: Placement, turns: int, messages: int, say: Callable[[str], None]) -> tuple[Session, str]:
    """One session, and the version of Postgres. Raises StackFailed."""
    say(f"{placement}: starting …")
    with running(settings={"MNEME_PLACEMENT": placement}) as stack:
        prepare(stack, 1, messages, lambda told: say(f"{placement}: {told}"))
        with stack.worker():
            memories, chosen, rebased = converse(stack, turns, lambda told: say(f"{placement}: {told}"))
        found = turns_of(stack.received(), memories, rebased)
        if len(found) != turns:
            raise StackFailed(f"The upstream was asked {len(found)} times in {turns} turns.")
        changed = sum(now != before for before, now in pairwise(chosen))
        return session_of(placement, found, changed), version_of(stack)


def converse(
    stack: Stack, turns: int, say: Callable[[str], None]
) -> tuple[list[int], list[set[str]], list[str | None]]:
    """Hold the session: of each turn how many memories its block held, which, and why the blocks were begun anew."""
    talk, user = Talk("prefix"), fill.user_name(0)
    transcript = [{"role": "system", "content": SYSTEM}]
    counts: list[int] = []
    chosen: list[set[str]] = []
    rebased: list[str | None] = []
    headers = {"X-Mneme-User": user, "Authorization": "Bearer sk-none"}
    with httpx.Client(base_url=stack.base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        for n in range(turns):
            say(f"turn {n + 1} of {turns}")
            told = talk.said()
            client.post("/api/v1/memories", json={"user": user, "text": told}).raise_for_status()
            transcript.append({"role": "user", "content": f"{talk.asked()} And about what I said: {told}"})
            answer = client.post(PATH, json={"model": MODEL_KEPT, "messages": transcript}).raise_for_status()
            if answer.headers["x-mneme-status"] != "ok":
                raise StackFailed(f"Turn {n + 1} was answered without memory: {answer.headers.get('x-mneme-reason')}.")
            transcript.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
            call = answer.headers["x-mneme-call-id"]
            audit = client.get(f"/api/v1/calls/{call}/context").raise_for_status().json()
            chosen.append({each["id"] for each in audit["items"] if each["chosen"]})
            counts.append(len(chosen[-1]))
            rebased.append(audit["rebased"])
            fill.wait_until_learned(stack.base_url, lambda _: None)
    return counts, chosen, rebased


def show(out: Console, sessions: Sequence[Session]) -> None:
    table = Table("placement", "turns", "rebases", "reused", "least", "rebases included", title="Prefix reuse")
    for each in sessions:
        told = (number(each.reused), number(each.reused_least), number(each.reused_all))
        table.add_row(each.placement, str(each.turns), str(each.rebases), *told)
    out.print(table)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer turns, a smaller past.")
@click.option("--turns", type=click.IntRange(2, 1000), help="Of the session; 20.")
@click.option("--messages", type=click.IntRange(20, 100_000), help="Of the user's past; 1,000.")
@click.option("--placement", "placements", multiple=True, type=click.Choice(PLACEMENTS), help="These alone.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(
    quick: bool, turns: int | None, messages: int | None, placements: tuple[Placement, ...], no_save: bool
) -> None:
    """Measure how much of each prompt is that of the turn before, byte for byte."""
    turns, messages = turns or (6 if quick else 20), messages or (200 if quick else 1000)
    out = console()
    with measuring(), out.status("starting …") as status:
        found = [measure(each, turns, messages, status.update) for each in placements or PLACEMENTS]
    sessions = [session for session, _ in found]
    show(out, sessions)
    document = results.head("prefix", quick=quick, postgres=found[0][1]) | {
        "messages": messages,
        "sessions": [asdict(each) for each in sessions],
    }
    keep(out, document, no_save)


if __name__ == "__main__":
    main()
