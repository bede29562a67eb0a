"""A long session of an agent, of our own making: work items that call tools, and questions whose answers lie in results of
long ago. The same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.agent_results import FIRST, KINDS, Count, Fact, Maker, Result

SYSTEM = (
    "You are a coding agent in the repository of a shop that ships parcels. Use your tools, answer in short, and say so when "
    "you do not know something."
)
SPREAD = 0.7
"""σ of the sizes of results (log-normal): most are small, some are large."""
LEAST_TOKENS = 220
"""Of a result; a smaller one is no object."""
PARALLEL = 0.2
"""Share of steps that call two tools at once."""
STEPS = 3
"""Most steps of a work item."""
BESIDE = 9
"""Every so many-th step the model also looks something up in the same message."""


class Step(NamedTuple):
    """Calls that the model makes in one message. `beside`: what it looks up with them, as one that wants to be sure does."""

    results: tuple[Result, ...]
    beside: Fact | None = None


class Round(NamedTuple):
    """A message of the user's, and what the model does about it. `question`: it only asks; `source`: the number of the result
    that answers it, `kind`: of that."""

    number: int
    said: str
    steps: tuple[Step, ...] = ()
    question: Fact | None = None
    source: int = -1
    kind: str = ""

    def call_id(self, step: int, place: int) -> str:
        return f"call_{self.number}_{step}_{place}"

    @property
    def closing(self) -> str:
        """What the model says in the end of a work item."""
        done = ", ".join(next(iter(map(str, each.arguments.values()))) for step in self.steps for each in step.results)
        return f"Work item {self.number} is done. I looked at {done}; nothing there stands in the way."


@dataclass(frozen=True)
class Work:
    """`results`: all of them, in the order in which they are asked for."""

    rounds: tuple[Round, ...]
    results: tuple[Result, ...]

    @property
    def questions(self) -> tuple[Round, ...]:
        return tuple(each for each in self.rounds if each.question is not None)


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": {each: {"type": "string"} for each in arguments}},
        },
    }
    for name, about, arguments in (
        ("read_file", "Read a file of the repository.", ["path"]),
        ("list_files", "List a folder with sizes.", ["path"]),
        ("search", "Search the repository for a regular expression.", ["pattern", "path"]),
        ("run_command", "Run a command in a shell.", ["command"]),
        ("query", "Ask the warehouse in SQL.", ["sql"]),
        ("http_get", "Get JSON from one of the shop's services.", ["url"]),
        ("fetch", "Read a page of the web.", ["url"]),
    )
]


def work(
    seed: int, count: Count, *, results: int, tokens: int, questions: int, apart: int, giant: int = 0, again: int = 0
) -> Work:
    """A session of so many results with `tokens` tokens in all. `apart`: fewest results between one and a question about it;
    `giant`: tokens of one of the results; `again`: files that are read once more after they were changed."""
    chance = random.Random(seed)
    made = _results(chance, Maker(seed, count), results, tokens, giant, again)
    return Work(tuple(_rounds(chance, made, questions, apart)), tuple(made))


def _results(chance: random.Random, maker: Maker, count: int, tokens: int, giant: int, again: int) -> list[Result]:
    sizes = [chance.lognormvariate(0, SPREAD) for _ in range(count)]
    mean = (tokens - giant) / sum(sizes)
    kinds = list(KINDS)
    made: list[Result] = []
    for n, size in enumerate(sizes):
        if n % len(kinds) == 0:
            chance.shuffle(kinds)
        largest = giant > 0 and n == count // 2
        wanted = giant if largest else max(LEAST_TOKENS, int(size * mean))
        made.append(maker.make("log" if largest else kinds[n % len(kinds)], FIRST + n, wanted))
    files = [n for n, each in enumerate(made[: count // 3]) if each.kind == "code"][:again]
    for place, n in enumerate(files):
        later = count // 2 + 1 + place * (count // 3 // again)
        made[n], made[later] = maker.before_and_after(made[n], FIRST + later)
    return made


def _rounds(chance: random.Random, results: list[Result], questions: int, apart: int) -> list[Round]:
    made: list[Round] = []
    open_, steps = _Open(results), 0
    at = told = 0
    while at < len(results):
        taken: list[Step] = []
        for _ in range(chance.randint(1, STEPS)):
            if at < len(results):
                size = 1 + (chance.random() < PARALLEL)
                steps += 1
                old = open_.take(at - apart) if steps % BESIDE == 0 else None
                taken.append(Step(tuple(results[at : at + size]), results[old].facts[-1] if old is not None else None))
                at += size
        kinds = " and the ".join(sorted({each.kind for step in taken for each in step.results}))
        made.append(Round(len(made) + 1, f"Work item {len(made) + 1}: look at the {kinds} next.", tuple(taken)))
        due = questions * (at - apart) // (len(results) - apart)
        while told < due and (source := open_.take(at - apart)) is not None:
            told += 1
            fact, kind = results[source].facts[0], results[source].kind
            said = f"Question {len(made) + 1}: {fact.question}"
            made.append(Round(len(made) + 1, said, question=fact, source=source, kind=kind))
    return made


class _Open:
    """Results that nobody has asked about, of every kind in turn."""

    def __init__(self, results: list[Result]) -> None:
        self._results = results
        self._asked: set[int] = set()
        self._kinds: Counter[str] = Counter()

    def take(self, until: int) -> int | None:
        """One of the first `until`, of the kind that was asked about least."""
        left = [n for n in range(max(0, until)) if n not in self._asked]
        if not left:
            return None
        found = min(left, key=lambda n: (self._kinds[self._results[n].kind], n))
        self._asked.add(found)
        self._kinds[self._results[found].kind] += 1
        return found
