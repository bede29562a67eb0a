"""What a memory block says beside what was found: who the tenant is, what is known of the user, what to ask the user.

Each is a line of quoted text (`neutralise`). The profile and a fact have an id of what they say now: while that stands in an
earlier block it is not said again, and a block with an id that is none any more is out of date (`outdated`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from app.context.assemble import Block, neutralise
from app.context.pack import Packed, Reason
from app.context.score import by_score
from app.context.sections import Shares, Wants
from app.memory.consolidate_episodes import widen
from app.memory.lifecycle import validation_question
from app.store.standing import Standing, StandingFact

PROFILE_LABEL = "Tenant context: "
FACTS_LABEL = "About the user: "
QUESTION_LABEL = "To be confirmed by the user: "

KEY_CHARS, VALUE_CHARS = 64, 200
"""Longest key and value of a fact that is shown, characters; of a longer one the memory tells."""
FACTS_KEPT = 8192
"""Facts whose line is kept ready: those of some two hundred users. A prompt asks for each of them three times."""

Count = Callable[[str], int]
"""Tokens of a text."""

Widened = Sequence[tuple[UUID, Sequence[str]]]
"""Words that are looked for besides those of the question, with the procedure that names them."""

_NOTE_VERSION = 8
_SAID_ALREADY = (Reason.DUPLICATE, Reason.VISIBLE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the request stands: of its own session what is from turn `visible_from` on is in the prompt."""

    session: UUID | None = None
    visible_from: int = 1
    ancestors: Collection[UUID] = ()


@dataclass(frozen=True, slots=True)
class Openings:
    """What there is to say now: what stands in no earlier block, nor in the transcript. `seen`: facts that do; `memories`:
    those that a fact in an earlier block speaks for."""

    profile: Sequence[str] = ()
    profile_note: UUID | None = None
    facts: Sequence[StandingFact] = ()
    seen: Sequence[StandingFact] = ()
    memories: Collection[UUID] = frozenset()

    def wants(self, count: Count, question: int) -> Wants:
        """What it would take. `question`: what a question may."""
        facts = count(FACTS_LABEL + "\n") + sum(_fact_cost(each, count) for each in self.facts) if self.facts else 0
        return Wants(_profile_cost(self.profile, count), facts, question)


NO_OPENINGS = Openings()


@dataclass(slots=True)
class Said:
    """What is said, as lines before and after what was found, what it costs, and what the account tells of it."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    tokens: int = 0
    ids: list[UUID] = field(default_factory=list)
    asked: list[UUID] = field(default_factory=list)
    account: dict[str, Any] = field(default_factory=dict)


def is_note(item: UUID) -> bool:
    """Whether an id that a block quotes is a note's: that of a fact or of the tenant's profile."""
    return item.int >> 76 & 0xF == _NOTE_VERSION


def due_now(standing: Standing, *, learns: bool) -> Mapping[UUID, datetime]:
    """What the user may be asked about in this turn, and since when it stands."""
    return standing.due or {} if learns else {}


def outdated(blocks: Sequence[Block], standing: Standing) -> set[UUID]:
    """Notes in these blocks that are not so any more."""
    current = standing.notes
    return {item for block in blocks for item in block.item_ids if is_note(item) and item not in current}


def widened(standing: Standing, query: str) -> Widened:
    """What the procedures that the question triggers have the user ask for next (seed 004, transformation 4); no word twice."""
    found: list[tuple[UUID, Sequence[str]]] = []
    known: set[str] = set()
    for each in standing.procedures:
        words = [word for word in widen(query, [each.details]) if word not in known]
        if words:
            known.update(words)
            found.append((each.memory_id, words))
    return found


def words_of(further: Widened) -> str:
    """All the words of `widened`."""
    return " ".join(word for _, own in further for word in own)


def openings(standing: Standing, blocks: Sequence[Block], place: Place) -> Openings:
    """What is to be said beside the blocks that stay in the prompt."""
    if standing.profile is None and not standing.facts:
        return NO_OPENINGS
    live = {item for block in blocks for item in block.item_ids}
    lines: list[str] = []
    if standing.profile is not None and standing.profile_note not in live:
        lines = [line for each in standing.profile.splitlines() if (line := neutralise(each))]
    seen: list[StandingFact] = []
    facts: list[StandingFact] = []
    for each in standing.facts:
        stands = each.note in live or (each.session is not None and _in_prompt(each, place))
        (seen if stands else facts).append(each)
    spoken_for = frozenset(each.memory for each in seen if each.memory is not None and each.note in live)
    return Openings(lines, standing.profile_note, facts, seen, spoken_for)


def say(
    opened: Openings,
    shares: Shares,
    packed: Packed,
    due: Mapping[UUID, datetime] | None,
    count: Count,
    questions: int,
    outranked: Collection[UUID] = frozenset(),
) -> Said:
    """The lines that fit their sections. A fact is left out where what was chosen says it already, or where the memory behind
    it is `outranked`. `due`: memories in doubt; `questions`: how many of those in the block may be asked about."""
    said = Said()
    _say_profile(said, opened, shares.profile, count)
    _say_facts(said, opened, shares.facts, packed, count, outranked)
    if due and questions:
        _ask(said, packed, due, shares.question, count, questions)
    return said


def _say_profile(said: Said, opened: Openings, budget: int, count: Count) -> None:
    if not opened.profile:
        return
    # By halves: each look counts all that is kept, and a profile may have thousands of lines.
    lines = range(1, len(opened.profile) + 1)
    kept = bisect_right(lines, budget, key=lambda n: _profile_cost(opened.profile[:n], count))
    cost = _profile_cost(opened.profile[:kept], count)
    if kept and opened.profile_note is not None:
        said.before.append(_profile_line(opened.profile[:kept]))
        said.ids.append(opened.profile_note)
    said.tokens += cost
    dropped = len(opened.profile) - kept
    said.account["profile"] = {"budget": budget, "tokens": cost, "lines": kept} | (
        {"dropped": [["lines", Reason.OVER_BUDGET, dropped]]} if dropped else {}
    )


def _say_facts(
    said: Said, opened: Openings, budget: int, packed: Packed, count: Count, outranked: Collection[UUID]
) -> None:
    if not opened.facts and not opened.seen:
        return
    told = {each.candidate.id for each in packed.chosen}
    told |= {each.item.candidate.id for each in packed.dropped if each.reason in _SAID_ALREADY}
    chosen: list[StandingFact] = []
    dropped: list[list[object]] = []
    used = count(FACTS_LABEL + "\n")
    for each in opened.facts:
        cost = _fact_cost(each, count)
        if each.memory in outranked:
            dropped.append([each.fact_id, Reason.OUTRANKED, each.memory])
        elif each.memory in told:
            dropped.append([each.fact_id, Reason.DUPLICATE, each.memory])
        elif used + cost > budget or len(each.value) > VALUE_CHARS:
            dropped.append([each.fact_id, Reason.OVER_BUDGET])
        else:
            chosen.append(each)
            used += cost
    if chosen:
        said.before.append(facts_line(chosen))
        said.ids += [each.note for each in chosen]
        said.tokens += used
    said.account["facts"] = {
        "budget": budget,
        "tokens": used if chosen else 0,
        "chosen": [each.fact_id for each in chosen],
        "dropped": dropped,
        "visible": len(opened.seen),
    }


def _ask(said: Said, packed: Packed, due: Mapping[UUID, datetime], budget: int, count: Count, questions: int) -> None:
    used = 0
    # What was found, whether it stands in the block itself or by the message that says it.
    found = [*packed.chosen, *(each.item for each in packed.dropped if each.reason in _SAID_ALREADY)]
    doubtful = [each.candidate for each in sorted(found, key=by_score) if each.candidate.id in due]
    for each in doubtful:
        if len(said.asked) == questions:
            break
        line = QUESTION_LABEL + validation_question(neutralise(each.text), due[each.id])
        cost = count(line + "\n") + 1
        if used + cost <= budget:
            said.after.append(line)
            said.asked.append(each.id)
            said.ids.append(each.id)
            used += cost
    said.tokens += used
    if doubtful:
        said.account["questions"] = {
            "budget": budget,
            "tokens": used,
            "asked": list(said.asked),
            "dropped": [[each.id, Reason.OVER_BUDGET] for each in doubtful if each.id not in said.asked],
        }


def facts_line(facts: Sequence[StandingFact]) -> str:
    """ "About the user: lives in: Lisbon; likes: tea, coffee": the values of one key together."""
    by_key: dict[str, list[str]] = {}
    for key, value in map(_told, facts):
        by_key.setdefault(key, []).append(value)
    return FACTS_LABEL + "; ".join(f"{key}: {', '.join(values)}" for key, values in by_key.items())


def _told(fact: StandingFact) -> tuple[str, str]:
    """Its key and its value, as they are shown."""
    return _shown(fact.key.partition(":")[0] if fact.many else fact.key, fact.value[:VALUE_CHARS])


@lru_cache(FACTS_KEPT)
def _shown(key: str, value: str) -> tuple[str, str]:
    """Neither a key nor a value can look like the next fact."""
    key = neutralise(key.replace("_", " ").replace(".", "'s "))[:KEY_CHARS].replace(";", ",")
    return key, neutralise(value).replace(";", ",")


def _fact_cost(fact: StandingFact, count: Count) -> int:
    key, value = _told(fact)
    return count(f"; {key}: {value}") + 1


def _profile_line(lines: Sequence[str]) -> str:
    return neutralise(PROFILE_LABEL + " ".join(lines))


def _profile_cost(lines: Sequence[str], count: Count) -> int:
    return count(_profile_line(lines) + "\n") + 1 if lines else 0


def _in_prompt(fact: StandingFact, place: Place) -> bool:
    """Whether it was said where the prompt shows it, or shows what was said instead."""
    if fact.session == place.session:
        return fact.turn is None or fact.turn >= place.visible_from
    return fact.session in place.ancestors
