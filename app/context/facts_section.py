"""What a prompt is told of the things that its question names: what the business's own database says, where a memory differs
from it, and which of several things may be meant.

Like the other notes of a block each is said once (`notes`): its id has two halves, what it is about and what it says of that.
While both stand in an earlier block, nothing is said; where the same subject says something else now, that block is out of
date.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from app.context.assemble import Block, neutralise
from app.context.budget import SectionNeeds, Shares
from app.context.notes import QUESTION_LABEL, VALUE_CHARS, Count, NoteLines, line_cost
from app.context.pack import Reason
from app.context.question import Asked
from app.context.resolution import NOTHING_KNOWN, Clash, DomainFact, Inquiry, Known, Resolution
from app.memory.text import slug

DOMAIN_LABEL = "From the company's own records (authoritative, read {:%Y-%m-%d %H:%M} UTC):"
CONFLICT_LABEL = "Conflict: "
UNCLEAR_LABEL = "Unclear: "

NAMES_SHOWN = 4
"""Things that a mention may mean, as many as are named: more help nobody to choose."""
LEAST_CLIPPED = 24
"""Tokens of a fact below which its beginning tells nothing: some two columns of a row."""

_INDENT = "  "
"""Before each line of what the database says: none of its values can pass for another line of the block."""
_TOLD, _CLASH, CARD, ENDED = 9, 10, 11, 12
"""Versions of the ids, which no other id of a block has (8 is a note's, 7 and 5 are those of items)."""
_LOW = 2**62 - 1


# --- ids -----------------------------------------------------------------------------------------------------------------


def told_id(subject: str, says: str, version: int = _TOLD) -> UUID:
    """The id of what is said of a subject: 48 bits of the one, 62 of the other."""
    about = int.from_bytes(sha256(f"{version}{subject}".encode("utf-8", "replace")).digest()[:6])
    said = int.from_bytes(sha256(says.encode("utf-8", "replace")).digest()[:8]) & _LOW
    return UUID(int=about << 80 | version << 76 | 0b10 << 62 | said)


def is_item(item: UUID) -> bool:
    """Whether an id that a block quotes is that of a memory or a message."""
    return not 8 <= item.int >> 76 & 0xF <= ENDED


def shown(blocks: Sequence[Block]) -> set[UUID]:
    """What these blocks show. A memory that only a line about a conflict quotes is not, nor one that is said to be so
    no more: that it is in force no more is what the line says; nor is the answer that a card came with. (Their ids
    stand behind the line's; should their words go, the block goes with them.)"""
    found = set()
    for block in blocks:
        quoted = False
        for item in block.item_ids:
            quoted = quoted or item.int >> 76 & 0xF in (_CLASH, CARD, ENDED)
            if not (quoted and is_item(item)):
                found.add(item)
    return found


def _fact_id(fact: DomainFact) -> UUID:
    return told_id(fact.subject, fact.text)


def _clash_id(clash: Clash) -> UUID:
    """Without its dates, and whichever memory says so: read or said again, the same two sides are the same conflict."""
    subject = f"{clash.entity_id}\0{clash.predicate}\0{clash.memory_value}"
    other = clash.row.value if clash.row is not None else clash.other_value
    return told_id(subject, f"{other}\0{clash.stands}", _CLASH)


def _unclear_id(each: Resolution) -> UUID:
    return told_id(each.mention, "\0".join(other.entity.id for other in each.alternatives))


# --- what there is -------------------------------------------------------------------------------------------------------


def naming(asked: Asked, resolutions: Sequence[Resolution]) -> Asked:
    """The question with the things that its mentions mean. A name that was resolved is the thing's id, not a slug beside it;
    memories that are tied to nothing yet are still found by the slugs."""
    things: dict[str, frozenset[str]] = {}
    for each in resolutions:
        if each.entity is not None:
            names = {slug(each.mention), slug(each.entity.name)} - {""}
            things[each.entity.id] = things.get(each.entity.id, frozenset()) | names
    if not things:
        return asked
    slugs = frozenset().union(*things.values())
    named = (asked.entities if asked.named else frozenset()) - slugs
    about = asked.about | slugs | things.keys()
    return asked._replace(entities=named | things.keys(), about=about, named=True, things=things)


class FactsFound(Struct, frozen=True, dict=True):
    """What was found out for a request. `clashes`: of the log, and those that were just seen."""

    known: Known = NOTHING_KNOWN
    clashes: tuple[Clash, ...] = ()

    @cached_property
    def outranked(self) -> frozenset[UUID]:
        """Memories that the business's own database contradicts, and is the authority on."""
        return frozenset(
            each.memory_id
            for each in self.clashes
            if each.row is not None and each.stands == "domain" and each.memory_id is not None
        )

    @property
    def values(self) -> dict[UUID, str]:
        """What the memories say that differ from something."""
        said = {each.memory_id: each.memory_value for each in self.clashes if each.memory_id is not None}
        said |= {each.other_id: each.other_value or "" for each in self.clashes if each.other_id is not None}
        return said


async def learn(inquiry: Inquiry, user: UUID, memories: Sequence[UUID]) -> FactsFound:
    """What there is, in time. `memories`: of the user's, those that may be told."""
    known = await inquiry.known()
    fresh = await inquiry.against(user, memories) if known.rows and memories else ()
    return FactsFound(known, _merged(known, fresh))


def _merged(known: Known, fresh: Sequence[Clash]) -> tuple[Clash, ...]:
    """Each contradiction once. One that is logged knows since when, and is told with what the row says now; it is none any
    more where the row came round."""
    found: dict[tuple[str, str, UUID | None], Clash] = {}
    for each in known.clashes:
        row = known.rows.get(each.entity_id, {}).get(each.predicate) if each.row is not None else None
        if row is None:
            found[each.entity_id, each.predicate, each.memory_id] = each
        elif row.value.casefold() != each.memory_value.casefold():
            found[each.entity_id, each.predicate, each.memory_id] = each._replace(row=row)
    for each in fresh:
        key = each.entity_id, each.predicate, each.memory_id
        if (logged := found.get(key)) is not None:
            each = each._replace(conflict_id=logged.conflict_id, since=logged.since or each.since)
        found[key] = each
    return tuple(found.values())


class FactLines(Struct, frozen=True):
    """What there is to tell now, and of that what an earlier block tells already (`seen`)."""

    facts: Sequence[DomainFact] = ()
    clashes: Sequence[Clash] = ()
    unclear: Sequence[Resolution] = ()
    seen: Sequence[DomainFact] = ()
    asks: Sequence[Clash] = ()
    """Contradictions that the user is to decide, and was not asked about in these blocks."""

    def wants(self, now: datetime, count: Count) -> SectionNeeds:
        """What it would take."""
        facts = _label_cost(now, count) + sum(fact_cost(each, count) for each in self.facts) if self.facts else 0
        return SectionNeeds(
            domain=facts,
            conflicts=_lines_cost([clash_line(each) for each in self.clashes], count),
            unclear=_lines_cost([unclear_line(each) for each in self.unclear], count),
        )


NOTHING_TO_TELL = FactLines()


def tellings(learned: FactsFound, blocks: Sequence[Block]) -> FactLines:
    """What is to be told beside the blocks that stay in the prompt."""
    said = {item.int >> 80: item for block in blocks for item in block.item_ids if not is_item(item)}

    def is_new(item: UUID) -> bool:
        return said.get(item.int >> 80) != item

    known = learned.known
    once = {_clash_id(each): each for each in reversed(learned.clashes)}  # of those that say the same, the latest
    clashes = [each for item, each in reversed(once.items()) if is_new(item)]
    unclear = {_unclear_id(each): each for each in known.resolutions if each.requires_disambiguation}
    return FactLines(
        facts=[each for each in known.facts if is_new(_fact_id(each))],
        clashes=clashes,
        unclear=[each for item, each in unclear.items() if is_new(item)],
        seen=[each for each in known.facts if not is_new(_fact_id(each))],
        asks=[each for each in clashes if each.strategy == "ask_user" and each.stands is None],
    )


def stale(learned: FactsFound, blocks: Sequence[Block]) -> set[UUID]:
    """What these blocks say of something that says otherwise now. Of what is not asked about, nobody knows."""
    now = {item.int >> 80: item for item in (*map(_fact_id, learned.known.facts), *map(_clash_id, learned.clashes))}
    quoted = {item for block in blocks for item in block.item_ids if not is_item(item)}
    return {item for item in quoted if now.get(item.int >> 80, item) != item}


# --- lines ---------------------------------------------------------------------------------------------------------------


def tell(
    said: NoteLines, told: FactLines, shares: Shares, now: datetime, count: Count, *, questions: int, asking: int
) -> Mapping[str, int]:
    """Add the lines that fit their sections to what is said, and their figures to its account. `questions`: how many more may
    be put to the user, in `asking` tokens. Returns the tokens of each fact that is told, by its subject."""
    chosen = _tell_facts(said, told, shares.domain, now, count)
    _tell_lines(said, "unclear", [(_unclear_id(each), unclear_line(each), []) for each in told.unclear], shares, count)
    lines = [(_clash_id(each), clash_line(each), _memories(each)) for each in told.clashes]
    _tell_lines(said, "conflicts", lines, shares, count)
    for each in told.asks[:questions]:
        line = QUESTION_LABEL + question(each)
        if (cost := line_cost(line, count)) <= asking and each.memory_id is not None:
            asking -= cost
            said.after.append(line)
            said.asked.append(each.memory_id)
            said.ids += [_clash_id(each), *_memories(each)]
            said.tokens += cost
            account = said.account.setdefault("questions", {"budget": shares.question, "tokens": 0, "dropped": []})
            account["tokens"] += cost
            account["asked"] = list(said.asked)
    return chosen


def _tell_facts(said: NoteLines, told: FactLines, budget: int, now: datetime, count: Count) -> Mapping[str, int]:
    """Whole facts while they fit, then as much of the next as does."""
    if not told.facts and not told.seen:
        return {}
    used = _label_cost(now, count)
    lines: list[str] = []
    chosen: dict[str, int] = {}
    for each in told.facts:
        whole = _fact_lines(each.text)
        fits = used + _lines_cost(whole, count) <= budget
        own = whole if fits else _clipped(each.text, budget - used, count)
        if own:
            chosen[each.subject] = _lines_cost(own, count)
            used += chosen[each.subject]
            lines += own
            said.ids.append(_fact_id(each))
        if not fits:
            break
    if chosen:
        said.before += [DOMAIN_LABEL.format(now.astimezone(UTC)), *lines]
        said.tokens += used
    said.account["domain"] = {
        "budget": budget,
        "tokens": used if chosen else 0,
        "chosen": list(chosen),
        "dropped": [[each.subject, Reason.OVER_BUDGET] for each in told.facts if each.subject not in chosen],
        "visible": len(told.seen),
    }
    return chosen


def _tell_lines(
    said: NoteLines, section: str, lines: Sequence[tuple[UUID, str, Sequence[UUID]]], shares: Shares, count: Count
) -> None:
    if not lines:
        return
    budget: int = getattr(shares, section)
    place = said.after if section == "unclear" else said.before
    used = dropped = 0
    for item, line, quoted in lines:
        if used + (cost := line_cost(line, count)) <= budget:
            used += cost
            place.append(line)
            said.ids += [item, *quoted]
        else:
            dropped += 1
    said.tokens += used
    said.account[section] = {"budget": budget, "tokens": used, "lines": len(lines) - dropped} | (
        {"dropped": [["lines", Reason.OVER_BUDGET, dropped]]} if dropped else {}
    )


def clash_line(clash: Clash) -> str:
    """ "Conflict: Gai Media, payment terms: the company's records say NET15 (authoritative, read 2024-10-15); a memory of
    2024-08-01 said NET30"."""
    ends = "" if clash.stands is not None else "; nobody decided yet"
    ends = "; both are so" if clash.stands == "both" else ends
    since = f" since {_day(clash.since)}" if clash.since is not None else ""
    memory = f"a memory of {_day(clash.memory_at)} {'says' if clash.stands in ('memory', 'both', None) else 'said'}"
    memory += f" {_shown(clash.memory_value)}" + (f" (it stands{since})" if clash.stands == "memory" else "")
    if clash.row is not None:
        authority = f"authoritative{since}, " if clash.stands == "domain" else ""
        other = f"the company's records say {_shown(clash.row.value)} ({authority}read {_day(clash.row.queried_at)})"
        told = f"{other}; {memory}"
    else:
        at = f"one of {_day(clash.other_at)} " if clash.other_at is not None else "another one "
        stands = f" (it stands{since})" if clash.stands == "other" else ""
        says = "said" if clash.stands == "memory" else "says"
        told = f"{memory}; {at}{says} {_shown(clash.other_value or '')}{stands}"
    return f"{CONFLICT_LABEL}{_subject(clash)}: {told}{ends}"


def unclear_line(each: Resolution) -> str:
    """ "Unclear: 'Gai' may be Gai Media Entertainment or Gail Industries; ask which is meant"."""
    names = [_shown(other.entity.name) for other in each.alternatives[:NAMES_SHOWN]]
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{UNCLEAR_LABEL}'{_shown(each.mention)}' may be {listed}; ask which is meant"


def question(clash: Clash) -> str:
    """What to ask the user about a note that something contradicts, so that a "yes" or a "no" answers it (seed 004, active
    validation flow)."""
    other = clash.row.value if clash.row is not None else clash.other_value or ""
    side = "the company's records say" if clash.row is not None else "a later one says"
    at = clash.memory_at
    note = f"{_subject(clash)}: {_shown(clash.memory_value)}"
    return f"I have a note from {at.day} {at:%B %Y} that says “{note}”, but {side} {_shown(other)}; is the note still right?"


def _subject(clash: Clash) -> str:
    return f"{_shown(clash.entity_name)}, {_shown(clash.predicate.replace('_', ' '))}"


def _shown(text: str) -> str:
    return neutralise(text[:VALUE_CHARS])


def _day(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def _memories(clash: Clash) -> list[UUID]:
    return [each for each in (clash.memory_id, clash.other_id) if each is not None]


def _fact_lines(text: str) -> list[str]:
    return [_INDENT + line for each in text.splitlines() if (line := neutralise(each))]


def _clipped(text: str, room: int, count: Count) -> list[str]:
    """The beginning of a fact that fits `room`; nothing where that would tell nothing."""
    if room < LEAST_CLIPPED:
        return []
    cuts = range(len(text))
    kept = bisect_right(cuts, room, key=lambda n: _lines_cost(_fact_lines(text[:n] + "…"), count)) - 1
    return _fact_lines(text[: max(0, kept)].rstrip() + "…") if kept > 0 else []


def _lines_cost(lines: Sequence[str], count: Count) -> int:
    return sum(line_cost(each, count) for each in lines)


def fact_cost(fact: DomainFact, count: Count) -> int:
    """Tokens of a fact's lines."""
    return _lines_cost(_fact_lines(fact.text), count)


def _label_cost(now: datetime, count: Count) -> int:
    return line_cost(DOMAIN_LABEL.format(now.astimezone(UTC)), count)
