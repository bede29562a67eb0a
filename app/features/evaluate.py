"""What `mneme eval` measures: of a file of messages and questions, how much of what answers these is found within a budget.

The file has one JSON object a line, of two kinds (docs/explanation/recall.md). A line of an import (docs of POST
/api/v1/import) whose `metadata` has an `id`: `{"user", "session", "role", "content", "name"?, "created_at"?, "metadata":
{"id": "D1:3"}}`. And a question: `{"user", "question", "evidence": ["D1:3"], "kind"?, "now"?}`, the ids of the user's
messages that answer it; with none it is a request that memory has nothing to do with.

A derived item counts for a message when it comes from at most two, that one among them; a raw one when it carries the message
or at least 25 of its words.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import orjson
from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.clock import SystemClock
from app.context.candidates import Candidate
from app.context.compile import Compiler
from app.context.request import SearchRequest
from app.context.retrieve import Scope
from app.errors import BadBody
from app.sources import PRICE_NAMES, Price
from app.store import ids

BUDGETS = (500, 1000, 1500, 2000, 3000, 4000)
"""Tokens; 1,500 is what a turn's block may cost by default."""
MOST_SOURCES = 2
"""Messages that a derived item may come from to count for one: a summary of everything finds nothing."""
WORDS_SHOWN = 25
WORDS_SHARE = 0.8
"""Words of a message, or share of a shorter one, that a raw item must show: a snippet of everything finds nothing."""

Say = Callable[[str], None]


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


async def ask(compiler: Compiler, sheet: EvalFile, profile: str, budgets: Sequence[int], say: Say) -> dict[str, Any]:
    """Recall by budget and kind, and what a search took."""
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
            result = await compiler.search(
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
        "prices": {price: await _priced(compiler, sheet, price, clock.now()) for price in PRICE_NAMES},
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


async def _priced(compiler: Compiler, sheet: EvalFile, price: Price, now: datetime) -> dict[str, float | None]:
    """What a prompt gets at this price: `recall`, mean `tokens` of the items, `precision` (share of the raw items that are
    evidence) of the questions that memory answers; mean and median `tokens` of those that it does not (None: the file has
    none)."""
    recall, tokens, precision, idle = [], [], [], []
    for each in sheet.questions:
        scope = Scope(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, each.user))
        result = await compiler.search(SearchRequest(scope, each.question, each.now or now, price=price))
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
    lines = ["  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]) for first, *rest in rows]
    took = result["search_ms"]
    return "\n".join(
        [*lines, "", *_prices(result["prices"]), "", f"a search takes {took['p50']} ms (p95 {took['p95']} ms)"]
    )
