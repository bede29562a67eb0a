"""Measures for `mneme eval` how much of the evidence for questions is found within a token budget, or shows what is learned.

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
from typing import Annotated, Any, NamedTuple

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
from app.store.kinds import DERIVED
from app.store.memories import Memory

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


def read(file: Path, *, asks: bool = True) -> EvalFile:
    """Read a file. `asks`: it must have questions.

    Raises:
        BadBody: A line is wrong, which the message names by its number, or there is nothing to ask.
    """
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
    for question in sheet.questions:
        if unknown := set(question.evidence) - sheet.words[question.user].keys():
            raise BadBody(
                f"No message of {question.user} has the id {min(unknown)}, which {question.question!r} names."
            )
    if asks and not any(question.evidence for question in sheet.questions):
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


# --- what was learned ----------------------------------------------------------------------------------------------------


class LearnedMemory(NamedTuple):
    """A memory with the words that it was first learned from: their place, their time, and the way by which they were found."""

    user: str | None
    session: str | None
    message: int | None
    said_at: str | None
    way: str
    kind: str
    text: str
    words: str
    span: tuple[int, int] | None


def describe_learned(memories: Sequence[Memory]) -> list[LearnedMemory]:
    """Return the memories learned from messages, by user and session, in the order in which they were said."""
    learned = []
    for memory in memories:
        if memory.kind in DERIVED or not memory.sources:
            continue
        source = memory.sources[0]
        turn, span = source.get("turn_index"), source.get("span")
        learned.append(
            LearnedMemory(
                memory.user_external_id,
                source.get("session"),
                None if turn is None else max(0, turn - 1),
                source.get("created_at"),
                memory.origin or "unknown",
                memory.kind,
                memory.content_text,
                source.get("quote") or "",
                (span[0], span[1]) if span else None,
            )
        )
    return sorted(learned, key=lambda entry: (entry.user or "", entry.session or "", entry.said_at or "", entry.text))


def count_learned(sheet: EvalFile, learned: Sequence[LearnedMemory]) -> dict[str, Any]:
    """Return the learned memories, and how many there are by way and kind."""
    return {
        "messages": len(sheet.lines),
        "sessions": len(sheet.sessions),
        "memories": [entry._asdict() for entry in learned],
        "ways": dict(sorted(Counter(entry.way for entry in learned).items())),
        "kinds": dict(sorted(Counter(entry.kind for entry in learned).items())),
    }


def render_learned(result: Mapping[str, Any]) -> str:
    """Render what was learned for a person: the memories under each user and session, and the counts at the end."""
    lines: list[str] = []
    place = None
    for entry in result["memories"]:
        if place != (entry["user"], entry["session"]):
            place = (entry["user"], entry["session"])
            lines += ["", f"{entry['user'] or 'nobody'}, session {entry['session'] or '-'}"]
        day = (entry["said_at"] or "")[:10]
        words = " ".join(entry["words"].split())
        lines.append(f"  {entry['text']}")
        lines.append(f"    {entry['kind']}, learned from “{words}” on {day} by {entry['way']}")
    counts = [
        ", ".join(f"{name} {count}" for name, count in result[part].items()) or "none" for part in ("ways", "kinds")
    ]
    total = f"{len(result['memories'])} memories from {result['messages']} messages in {result['sessions']} sessions"
    return "\n".join([*lines[1:], "", total, f"by way: {counts[0]}", f"by kind: {counts[1]}"])


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
