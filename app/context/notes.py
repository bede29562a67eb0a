"""What a memory block says beside what was found: what the user has asked for always, what is known of them and bears on the
message, who the tenant is, what to ask the user.

Each is a line of the user's, or of quoted text (`neutralise`). The profile and a fact have an id of what they say
now, a wish that of its memory: while that stands in an earlier block it is not said again, and a block with an id
that is none any more is out of date (`outdated`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct, field

from app.context.assemble import ABOUT_TOKENS, WISHES_TOKENS, Block, behind, neutralise, since_of
from app.context.bearing import MessageTopics, Why, answers, bears_on, has_own_word, naming
from app.context.budget import SectionNeeds, Shares
from app.context.candidates import Candidate
from app.context.pack import Packed, Reason, Verdict
from app.context.question import Asked
from app.context.score import best_first
from app.index.indexes import IndexScope
from app.memory.claims import validation_question
from app.memory.episodes import SoughtRows, augmentation, placeholder, triggers, types_of
from app.store.user_profile import EndedFact, Standing, StandingFact, StandingWish
from app.text_cache import of_texts

PROFILE_LABEL = "Tenant context: "
QUESTION_LABEL = "To be confirmed by the user: "

LEFT_OUT_LINE = "Also known about the user, left out here for want of room: {} more."
"""The last line where a message asks for all that is known of the user."""
LEFT_OUT_TOKENS = 20
"""Most tokens of `LEFT_OUT_LINE` with its end."""

KEY_CHARS, VALUE_CHARS = 64, 200
"""Longest key and value of a fact that is shown, characters; of a longer one the memory tells."""
WISH_CHARS = 320
"""Longest wish that is said as one, characters: what the rules take for an order has 300 at most, and one that a
helper LLM found is no longer. A longer one would be a text."""
BRIEF_CHARS = 240
"""Characters up to which a message is about one thing: two sentences (as `agent_data.memory_ended` has it). Where a
line says that thing, such a message is not quoted beside it; a longer one says much else."""
FACTS_KEPT = 8192
"""Facts whose line is kept ready: those of some two hundred users. A prompt asks for each of them three times."""

LINKS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(["allergic", "from", "in", "member", "parent", "called"], " is ")
    | {"born": " was "}
    | dict.fromkeys(
        [
            "lives", "works", "likes", "dislikes", "prefers", "avoids", "uses", "speaks", "studies", "plays", "owns", "drives",
            "teaches", "collects", "runs", "codes", "has", "wants", "knows", "banks", "subscribes", "smokes", "reports",
            "grew", "graduated", "visited",
        ],
        " ",
    )
)  # fmt: skip
"""What stands between somebody and a predicate (app/memory/rules.txt), by its first word: "wife is allergic to", "mother lives
in". Of all others it is what they have: "sister's name"."""

Count = Callable[[str], int]
"""Tokens of a text."""

_NOTE_VERSION = 8
_SAID_ALREADY = (Reason.DUPLICATE, Reason.VISIBLE)


class NotesDue(Struct, frozen=True):
    """What there is to say now: what stands in no earlier block, nor in the transcript. `facts`: those that bear on
    the message; `why`, by note. `aside`: those that do not. `seen`: facts, and `heard`: wishes, that stand there
    already. `memories`: those that a line, here or in an earlier block, speaks for; `messages`: what these were
    learned from, and no fact that is not said. `answers`: the facts say all that the message asks for."""

    profile: Sequence[str] = ()
    profile_note: UUID | None = None
    facts: Sequence[StandingFact] = ()
    seen: Sequence[StandingFact] = ()
    memories: Collection[UUID] = frozenset()
    wishes: Sequence[StandingWish] = ()
    heard: Sequence[StandingWish] = ()
    aside: Sequence[StandingFact] = ()
    why: Mapping[UUID, Why] = field(default_factory=dict)
    messages: Collection[UUID] = frozenset()
    answers: bool = False

    def wants(self, count: Count, question: int) -> SectionNeeds:
        """What it would take. `question`: what a question may."""
        facts = ABOUT_TOKENS + sum(_fact_cost(each, count) for each in self.facts) if self.facts else 0
        wishes = WISHES_TOKENS + sum(line_cost(_wish_line(each), count) for each in self.wishes) if self.wishes else 0
        return SectionNeeds(_profile_cost(self.profile, count), facts, question, wishes=wishes)

    def said_by(self, item: Candidate) -> bool:
        """Whether a line says all that an item says: a memory of the same, or a brief message that it was learned from."""
        if item.source == "memory":
            return item.id in self.memories
        return item.id in self.messages and item.span is None and len(item.text) <= BRIEF_CHARS

    def find_fuller_messages(self, items: Sequence[Candidate]) -> set[UUID]:
        """Return the messages among these items that say more than the facts that were learned from them.

        "My daughter Lea does fencing" says more than "daughter's name: Lea". Facts that the question names do not count.
        """
        shown_texts: dict[UUID, list[str]] = {
            message: [fact.value]
            for fact in self.facts
            if self.why.get(fact.note) != "asked"
            for message in fact.messages
        }
        if not shown_texts:
            return set()
        for item in items:
            for source in item.provenance if item.id in self.memories else ():
                if source.message_id in shown_texts:
                    shown_texts[source.message_id].append(item.text)
        return {item.id for item in items if item.id in shown_texts and has_own_word(item.text, shown_texts[item.id])}


NO_OPENINGS = NotesDue()


class NoteLines(Struct):
    """What is said, as lines by the part of the block that they stand in (`before` and `after` what was found), what it costs,
    and what the account tells of it."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    wishes: list[str] = field(default_factory=list)
    about: list[str] = field(default_factory=list)
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


class SoughtClaim(NamedTuple):
    """Memories to look for: by their predicate, as LIKE has it, and what they are about (None: anything); `boost`: what their
    importance gains."""

    like: str
    entities: Sequence[str] | None
    boost: float


class Habits(NamedTuple):
    """What the procedures that a question triggers have looked for besides: words (by the procedure that names them), facts,
    rows of the business's database."""

    words: Sequence[tuple[UUID, Sequence[str]]] = ()
    claims: Sequence[SoughtClaim] = ()
    rows: Sequence[SoughtRows] = ()

    @property
    def further(self) -> list[str]:
        return [word for _, own in self.words for word in own]


def habits_for(standing: Standing, asked: Asked) -> Habits:
    """Of these procedures (seed 004, transformation 4); no word twice."""
    if not standing.procedures:
        return Habits()
    words: list[tuple[UUID, Sequence[str]]] = []
    claims: list[SoughtClaim] = []
    rows: list[SoughtRows] = []
    known: set[str] = set()
    for each in standing.procedures:
        if not triggers(each.details, asked.text, types_of(asked.things)):
            continue
        added = augmentation(each.details, asked.text)
        own = [word for word in added.words if word not in known]
        known.update(own)
        if own:
            words.append((each.memory_id, own))
        for predicate in added.predicates:
            about = _about(predicate.entity, asked)
            if about is None or about:
                claims.append(SoughtClaim(predicate.like, about, predicate.boost))
        rows += added.rows
    return Habits(words, claims, rows)


def _about(entity: str | None, asked: Asked) -> list[str] | None:
    """What "{customer}" stands for in a question: its customers, each by its id and its names. None: anything."""
    if entity is None:
        return None
    kind = placeholder(entity)
    if kind is None:
        return [entity]
    return sorted(
        {one for thing, names in asked.things.items() if kind in types_of([thing]) for one in (thing, *names)}
    )


def openings(
    standing: Standing,
    blocks: Sequence[Block],
    place: IndexScope,
    reading: MessageTopics,
    worths: Mapping[UUID, float] = MappingProxyType({}),
    dropped: Sequence[Block] = (),
) -> NotesDue:
    """What is to be said beside the blocks that stay in the prompt. `place`: where the request stands; `reading`: the
    message's; `worths`: as `bears_on` has them. `dropped`: blocks that had to go: the facts that they said are said again,
    as they are now."""
    if standing.profile is None and not standing.facts and not standing.wishes:
        return NO_OPENINGS
    reading = naming(reading, standing.facts)
    live = {item for block in blocks for item in block.item_ids}
    lines: list[str] = []
    if standing.profile is not None and standing.profile_note not in live:
        lines = [line for each in standing.profile.splitlines() if (line := neutralise(each))]
    wishes: list[StandingWish] = []
    heard: list[StandingWish] = []
    for wish in standing.wishes:
        stands = wish.memory in live or _in_prompt(wish.session, wish.turn, place)
        (heard if stands else wishes).append(wish)
    seen: list[StandingFact] = []
    facts: list[StandingFact] = []
    aside: list[StandingFact] = []
    why: dict[UUID, Why] = {}
    answered = False
    for each in standing.facts:
        bearing = bears_on(each, reading, worths)
        answered = answered or (bearing == "asked" and answers(each, reading))
        if bearing is None and dropped and any(f"\n- {_told(each)[0]}: " in block.text for block in dropped):
            bearing = "again"
        if each.note in live or each.memory in live or _in_prompt(each.session, each.turn, place):
            seen.append(each)
        elif bearing is not None:
            facts.append(each)
            why[each.note] = bearing
        else:
            aside.append(each)
    said: list[StandingWish | StandingFact] = [
        *standing.wishes,
        *[each for each in facts if len(each.value) <= VALUE_CHARS],
        *[each for each in seen if each.note in live],
    ]
    return NotesDue(
        lines,
        standing.profile_note,
        facts,
        seen,
        frozenset([each.memory for each in said if each.memory is not None]),
        wishes,
        heard,
        aside,
        why,
        frozenset().union(*[each.messages for each in said]).difference(*[each.messages for each in aside]),
        answered,
    )


def say(
    opened: NotesDue,
    shares: Shares,
    packed: Packed,
    due: Mapping[UUID, datetime] | None,
    count: Count,
    questions: int,
    outranked: Collection[UUID] = frozenset(),
    later: Mapping[UUID, str] = MappingProxyType({}),
) -> NoteLines:
    """The lines that fit their sections. A fact is left out where the memory behind it is `outranked`. `due`:
    memories in doubt; `questions`: how many of those in the block may be asked about; `later`: by note, the text behind a
    fact."""
    said = NoteLines()
    _say_wishes(said, opened, shares.wishes, count)
    _say_profile(said, opened, shares.profile, count)
    _say_facts(said, opened, shares.facts, count, outranked, later)
    if due and questions:
        _ask(said, packed, due, shares.question, count, questions)
    return said


def _say_wishes(said: NoteLines, opened: NotesDue, budget: int, count: Count) -> None:
    if not opened.wishes and not opened.heard:
        return
    chosen: list[StandingWish] = []
    dropped: list[list[object]] = []
    used = WISHES_TOKENS
    for each in reversed(opened.wishes):  # the last one said goes first: it may have taken an earlier one back
        cost = line_cost(_wish_line(each), count)
        if used + cost > budget or len(each.text) > WISH_CHARS:
            dropped.append([each.memory, Reason.OVER_BUDGET])
        else:
            chosen.insert(0, each)
            used += cost
    if chosen:
        said.wishes += map(_wish_line, chosen)
        said.ids += [each.memory for each in chosen]
        said.tokens += used
    said.account["wishes"] = {
        "budget": budget,
        "tokens": used if chosen else 0,
        "chosen": [each.memory for each in chosen],
        "dropped": dropped,
        "visible": len(opened.heard),
    }


def _say_profile(said: NoteLines, opened: NotesDue, budget: int, count: Count) -> None:
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
    lines: NoteLines,
    opened: NotesDue,
    budget: int,
    count: Count,
    outranked: Collection[UUID],
    later: Mapping[UUID, str],
) -> None:
    if not opened.facts and not opened.seen and not opened.aside:
        return
    chosen: list[StandingFact] = []
    dropped: list[list[object]] = [[fact.fact_id, Reason.NOT_ASKED] for fact in opened.aside]
    used = ABOUT_TOKENS
    for fact in opened.facts:
        cost = _fact_cost(fact, count)
        if fact.memory in outranked:
            dropped.append([fact.fact_id, Reason.OUTRANKED, fact.memory])
        elif used + cost > budget or len(fact.value) > VALUE_CHARS:
            dropped.append([fact.fact_id, Reason.OVER_BUDGET])
        else:
            chosen.append(fact)
            used += cost
    if chosen:
        lines.about += fact_lines(chosen, later)
        lines.ids += [fact.note for fact in chosen]
        lines.tokens += used
    lines.account["facts"] = {
        "budget": budget,
        "tokens": used if chosen else 0,
        "chosen": [fact.fact_id for fact in chosen],
        "why": [opened.why.get(fact.note) for fact in chosen],
        "memories": [fact.memory for fact in chosen],
        "dropped": dropped,
        "visible": len(opened.seen),
    }


def _ask(
    said: NoteLines, packed: Packed, due: Mapping[UUID, datetime], budget: int, count: Count, questions: int
) -> None:
    used = 0
    # What was found, whether it stands in the block itself or by the message that says it.
    found = [*packed.chosen, *(each.item for each in packed.dropped if each.reason in _SAID_ALREADY)]
    doubtful = [each.candidate for each in best_first(found) if each.candidate.id in due]
    for each in doubtful:
        if len(said.asked) == questions:
            break
        line = QUESTION_LABEL + validation_question(neutralise(each.text), due[each.id])
        cost = line_cost(line, count)
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


def fact_lines(facts: Sequence[StandingFact], later: Mapping[UUID, str] = MappingProxyType({})) -> list[str]:
    """Return a line for each key: "- lives in: Berlin (since 2026-10)", "- likes: tea, coffee". `later`: as in `say`."""
    by_key: dict[str, list[str]] = {}
    for each in facts:
        key, value = _told(each)
        by_key.setdefault(key, []).append(value + later.get(each.note, ""))
    return [f"- {key}: {', '.join(values)}" for key, values in by_key.items()]


def _told(fact: StandingFact) -> tuple[str, str]:
    """Its key and its value, as they are shown."""
    key, value = _shown(fact.key.partition(":")[0] if fact.many else fact.key, fact.value[:VALUE_CHARS])
    return key, value + behind(fact.since, doubted=fact.doubted)


@of_texts(FACTS_KEPT)
def _shown(key: str, value: str) -> tuple[str, str]:
    """Neither a key nor a value can look like the next fact."""
    subject, dot, predicate = key.rpartition(".")
    link = LINKS.get(predicate.partition("_")[0], "'s ") if dot else ""
    key = neutralise(f"{subject}{link}{predicate}".replace("_", " ").replace(".", "'s "))[:KEY_CHARS].replace(";", ",")
    return key, neutralise(value).replace(";", ",")


def add_left_out_line(lines: NoteLines, packed: Packed, unlisted_count: int, count: Count) -> None:
    """Add a line that counts what is known of the user and has no room. `unlisted_count`: statements that were not fetched."""
    left_out = unlisted_count + sum(verdict.reason == Reason.OVER_BUDGET for verdict in packed.dropped)
    left_out += sum(entry[1] == Reason.OVER_BUDGET for entry in lines.account.get("facts", {}).get("dropped", ()))
    if left_out:
        line = LEFT_OUT_LINE.format(left_out)
        lines.after.append(line)
        lines.tokens += line_cost(line, count)


def line_cost(line: str, count: Count) -> int:
    """Tokens of a line with its end."""
    return count(line + "\n") + 1


def _fact_cost(fact: StandingFact, count: Count) -> int:
    return count("- {}: {}\n".format(*_told(fact))) + 1


def _wish_line(wish: StandingWish) -> str:
    return f"- {neutralise(wish.text)}"


def _profile_line(lines: Sequence[str]) -> str:
    return neutralise(PROFILE_LABEL + " ".join(lines))


def _profile_cost(lines: Sequence[str], count: Count) -> int:
    return line_cost(_profile_line(lines), count) if lines else 0


def _in_prompt(session: UUID | None, turn: int | None, place: IndexScope) -> bool:
    """Whether what was said there stands in the prompt, or what was said instead does."""
    if session is None:
        return False
    if session == place.session:
        return turn is None or turn >= place.visible_from
    return session in place.ancestors


# --- what a line says behind something that is so no more ----------------------------------------------------------------


class EndedSince(NamedTuple):
    """`words`: of items that say what is so no more, what stands behind them; `used`: what these words are of;
    `tokens`: what they cost."""

    words: Mapping[UUID, str]
    used: Sequence[EndedFact]
    tokens: int = 0


NOTHING_SINCE = EndedSince({}, ())


def doubtful(packed: Packed, past: bool) -> list[EndedFact]:
    """What the chosen items may say that is so no more. A brief message that does is not found at all, nor is a
    memory, unless it is asked for what was so before (`past`); a long one says much else."""
    return [
        ended
        for each in packed.candidates
        if past or (each.source == "message" and (each.span or len(each.text) > BRIEF_CHARS))
        for ended in each.ended
    ]


def since_then(packed: Packed, ended: Iterable[EndedFact], room: int, count: Count) -> tuple[Packed, EndedSince]:
    """The words behind the chosen items, and the choice without those for whose words there is no room: `room` tokens
    are left. An old thing is said with the new one beside it, or not at all."""
    texts = {each.id: each for each in packed.candidates}
    told: dict[UUID, list[EndedFact]] = {}
    for each in ended:
        if each.item in texts and _says(texts[each.item], each):
            told.setdefault(each.item, []).append(each)
    words: dict[UUID, str] = {}
    used: list[EndedFact] = []
    gone: set[UUID] = set()
    tokens = 0
    for item, own in told.items():
        line = "".join(dict.fromkeys(map(_words, own)))
        cost = count(line) + 1
        if tokens + cost > room:
            gone.add(item)
        else:
            words[item] = line
            used += own
            tokens += cost
    if gone:
        left = tuple(each for each in packed.chosen if each.candidate.id not in gone)
        out = tuple(Verdict(each, Reason.OVER_BUDGET) for each in packed.chosen if each.candidate.id in gone)
        packed = Packed(left, packed.dropped + out, packed.tokens if left else 0)
    return packed, EndedSince(words, used, tokens)


def _says(item: Candidate, ended: EndedFact) -> bool:
    """Whether it has the words: of a long message the passage that is shown need not."""
    return item.id == ended.memory or not ended.quote or ended.quote in item.text


def _words(ended: EndedFact) -> str:
    if ended.now is not None:
        when = f"since {since_of(ended.at)}" if ended.at is not None else "since then"
        return f" ({when}: {neutralise(ended.now)})"
    if ended.item == ended.memory:
        return f" (until {since_of(ended.at)})" if ended.at is not None else " (no longer so)"
    when = f" since {since_of(ended.at)}" if ended.at is not None else ""
    return f" (no longer so{when}: {neutralise(ended.said)})"
