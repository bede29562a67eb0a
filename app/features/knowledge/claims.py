"""What memories and messages say of things: where a memory and a row differ and which of them stands (seed 004, table 9), and
what a message claims, by the ontology's predicates. Pure.

    trust_db       the row stands
    trust_recent   the row, for it is read now; but the memory where the row says that it was last changed before that was said
    ask_user       neither, until the user says so
    both           both

A row that says the same confirms the memory: `agreeing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from app.context.resolution import Clash, Entity, Resolution, RowValue
from app.features.knowledge.ontology import EntityType, Ontology
from app.memory.candidate import EXPLICIT_CONFIDENCE, EXPLICIT_IMPORTANCE, MemoryCandidate, Triple, make_candidate
from app.memory.claims import same_value
from app.memory.extract import without_request
from app.memory.extract_clauses import Clause, clauses
from app.memory.extract_dates import find_date
from app.memory.text import normalise, slug
from app.store.kinds import LearnedKind
from app.store.records import Claim

# --- a memory and a row --------------------------------------------------------------------------------------------------

Rows = Mapping[str, Mapping[str, RowValue]]
"""What rows say, by thing and predicate."""

Stands = Literal["domain", "memory", "other", "both"] | None


def against_rows(claims: Sequence[Claim], rows: Rows, names: Mapping[str, str]) -> list[Clash]:
    """The claims that differ from what the row of their thing says, in their order. `names`: of things, by id."""
    return [
        Clash(
            "memory_vs_db",
            claim.entity_id,
            names.get(claim.entity_id, claim.entity_id),
            claim.predicate,
            claim.memory_id,
            claim.value,
            claim.stated_at,
            claim.confidence,
            row,
            row.strategy,
            stands(row, claim.stated_at),
        )
        for claim in claims
        if (row := _row(claim, rows)) is not None and not same_value(claim.value, row.value)
    ]


def agreeing(claims: Sequence[Claim], rows: Rows) -> list[Claim]:
    """The claims that a row confirms."""
    return [claim for claim in claims if (row := _row(claim, rows)) is not None and same_value(claim.value, row.value)]


def stands(row: RowValue, stated_at: datetime) -> Stands:
    """Which side is authoritative; None: nobody has decided."""
    if row.strategy == "ask_user":
        return None
    if row.strategy == "both":
        return "both"
    if row.strategy == "trust_recent" and row.changed_at is not None and stated_at > row.changed_at:
        return "memory"
    return "domain"


def _row(claim: Claim, rows: Rows) -> RowValue | None:
    return rows.get(claim.entity_id, {}).get(claim.predicate)


# --- as the log has it ---------------------------------------------------------------------------------------------------


def logged_data(clash: Clash) -> dict[str, Any]:
    """`conflict_data` of seed 004's example, for a memory against a row."""
    assert clash.row is not None, "memory against memory is logged where statements are taken in"
    row = clash.row
    return {
        "conflict_type": clash.conflict_type,
        "entity_id": clash.entity_id,
        "entity_name": clash.entity_name,
        "predicate": clash.predicate,
        "memory": {
            "memory_id": clash.memory_id,
            "predicate": clash.predicate,
            "value": clash.memory_value,
            "confidence": round(clash.memory_confidence, 4),
            "created_at": clash.memory_at,
        },
        "db_source": {
            "domain": row.domain,
            "table": row.table,
            "field": row.field,
            "value": row.value,
            "queried_at": row.queried_at,
        },
    }


def logged_outcome(clash: Clash) -> dict[str, Any] | None:
    """`resolution_outcome` of seed 004's example; None: it stays open."""
    if clash.stands == "domain":
        why = (
            f"Domain database is authoritative for {clash.predicate.replace('_', ' ')}"
            if clash.strategy == "trust_db"
            else "What the row says now is later than what was said"
        )
        updates = [{"memory_id": clash.memory_id, "new_status": "invalidated"}]
        return {"action": "supersede_memory", "memory_updates": updates, "rationale": why}
    if clash.stands == "memory":
        why = "It was said after the row was last changed"
        return {"action": "keep_memory", "memory_updates": [], "rationale": why}
    return None


# --- what a message says of things ---------------------------------------------------------------------------------------
#
# "Gai Media's payment terms are NET30" is, once "Gai Media" was resolved and the ontology knows the predicate `payment_terms`,
# (customer:gai_123, payment_terms, NET30). A statement that extraction found already keeps its words and gets that triple; one
# that it did not know how to read is added.

CLAIM_IMPORTANCE = 0.65
"""As the rules have it for what others prefer and agreed on."""
CLAIM_CONFIDENCE = 0.9
SURE_ENOUGH = 0.2
"""Confidence of a resolution from which a statement is tied to its thing: of what points back ("they": 0.6 · e^(−0.5 ·
messages), seed 004, stage 4) that is the exchange before, and none further back."""
MAX_VALUE_WORDS = 8
"""Words of a value: a longer one is a story."""

_X = "\ue000"
"""Stands for the thing in a clause: of Unicode's private use."""

_BE = r"(?:is|are|was|were|=|:|will be|remains?|stays?)"
_NOW = r"(?:now |currently |still |always |usually |set to |at )*"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_PREFERS = re.compile(
    rf"(?:{_X}) (?:now |still |really |always |usually |actually )*(?:prefers?|wants?|likes?|insists? on|requires?) (?P<v>.+)",
    re.I,
)
_TAIL = re.compile(
    r"[\s,]*\b(?:now|nowadays|these days|instead|at the moment|currently|by the way|please)[\s.!]*$", re.I
)
_NO_VALUE = re.compile(r"(?:not|no longer|never|what|which|how|when|where|why|unknown|unclear|wrong|different)\b", re.I)
_CORRECTS = re.compile(r"\b(?:no|nope|actually|correction|wrong|not right|not quite|wait|oops|in fact|changed)\b", re.I)
_JOINED = re.compile(rf".*\b(?:and|but|while|so),? (?=(?:for )?{_X})", re.I)
"""What is said of somebody else before: "I live in Lisbon, and Gai …"."""
_POSSESSIVE = frozenset({"their", "its", "his", "her"})
_POINTING = _POSSESSIVE | {"they", "it", "he", "she", "them"}
_WHEN = r"[A-Za-z0-9 ,]{2,30}?"
_SINCE = re.compile(
    rf"(?:^|[\s,]+)(?:since|as of|starting(?: from)?|from) (?P<when>{_WHEN})(?=,? {_X}|,|[\s.!]*$)", re.I
)
_UNTIL = re.compile(rf"(?:^|[\s,]+)(?:until|till|up to) (?P<when>{_WHEN})(?=,? {_X}|,|[\s.!]*$)", re.I)
_PAST = re.compile(r"\b(?:was|were|had|used to)\b", re.I)


class _Said(NamedTuple):
    """A claim in a clause; `corrects`: its own words say that it was otherwise."""

    predicate: str
    value: str
    corrects: bool = False


def about_things(
    text: str,
    now: datetime,
    found: Sequence[MemoryCandidate],
    resolutions: Sequence[Resolution],
    ontology: Ontology,
    day_of: Mapping[str, str] | None = None,
) -> list[MemoryCandidate]:
    """What was `found` in a message and what is stated in it of the things that it names, with their ids. `day_of`: by thing,
    the one predicate of a preferred day that is known of it: "Gai prefers Thursday" is of that one."""
    named = [each for each in resolutions if each.entity is not None and each.confidence >= SURE_ENOUGH]
    if not named:
        return list(found)
    out = [_tied(each, text, named, ontology, day_of or {}) for each in found]
    for claim in _claims(text, now, named, ontology, day_of or {}):
        place = next((n for n, each in enumerate(out) if _says_it(each, claim)), None)
        if place is None:
            out.append(claim)
        else:
            kept = out[place]
            if found[place].triple is None and not kept.explicit:
                out[place] = claim  # it names the thing, where the user's words may only point to it
                continue
            kind = kept.kind if kept.kind == "correction" else claim.kind
            out[place] = replace(
                kept,
                triple=claim.triple,
                kind=kind,
                provenance_type=kept.provenance_type if kept.explicit else claim.provenance_type,
                since=claim.since,
                until=claim.until,
            )
    return out


# --- what extraction found -----------------------------------------------------------------------------------------------


def _tied(
    candidate: MemoryCandidate, text: str, named: Sequence[Resolution], ontology: Ontology, day_of: Mapping[str, str]
) -> MemoryCandidate:
    start, end = candidate.span
    about = [each for each in named if start <= each.start < end] if end > start else []
    triple = candidate.triple
    if triple is not None and triple.subject != "user":
        subject = next((each for each in about or named if _is(triple.subject, each)), None)
        if subject is not None and subject.entity is not None:
            triple = _day_preference(Triple(subject.entity.id, triple.predicate, triple.value), ontology, day_of)
    return replace(candidate, triple=triple, entity_ids=entity_ids(candidate.entity_ids, about))


def _is(subject: str, resolution: Resolution) -> bool:
    said = slug(subject)
    return said in (slug(resolution.mention), slug(resolution.entity.name) if resolution.entity else "")


def entity_ids(known: Sequence[str], about: Sequence[Resolution]) -> tuple[str, ...]:
    """The things' ids and the slugs of their names beside what is known; without the parts of these names."""
    ids = [each.entity.id for each in about if each.entity is not None]
    slugs = [slug(each.mention) for each in about if _is_name(each.mention)]
    names = [f"-{each}-" for each in (*slugs, *(slug(each.entity.name) for each in about if each.entity is not None))]
    others = (each for each in known if not any(f"-{each}-" in name for name in names))
    return tuple(dict.fromkeys([*ids, *slugs, *others]))


def _is_name(mention: str) -> bool:
    named = mention[:1].isupper() or any(c.isdigit() for c in mention)
    return named and mention.lower() not in _POINTING


def _day_preference(triple: Triple, ontology: Ontology, day_of: Mapping[str, str]) -> Triple:
    """ "prefers Friday deliveries" has a day and what is done on it: `delivery_day_preference` (seed 004), of which a thing has
    one; a day alone is that of what is known already."""
    if triple.predicate != "prefers":
        return triple
    match = re.fullmatch(rf"(?:on )?(?P<day>{_DAY})(?: (?P<what>[a-z]+))?", _TAIL.sub("", triple.value), re.I)
    if match is None:
        return triple
    day = match["day"].capitalize().removesuffix("s")
    what = _singular(match["what"].lower()) if match["what"] else None
    of_type = ontology.types.get(triple.subject.partition(":")[0])
    fitting = [
        each
        for each in (of_type.predicates if of_type else ())
        if "day" in each.split("_") and (what is None or what in each.split("_"))
    ]
    if len(fitting) == 1:
        return Triple(triple.subject, fitting[0], day)
    if what is None:
        return Triple(triple.subject, day_of.get(triple.subject, "day_preference"), day)
    return Triple(triple.subject, f"{what}_day_preference", day)


def _singular(word: str) -> str:
    return word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s")


# --- what the ontology's predicates say ----------------------------------------------------------------------------------


def _claims(
    text: str, now: datetime, named: Sequence[Resolution], ontology: Ontology, day_of: Mapping[str, str]
) -> Iterator[MemoryCandidate]:
    explicit_in = -1  # the sentence in which the user said "remember"
    for clause in clauses(text):
        stated, request = without_request(clause)
        if request:
            explicit_in = clause.sentence
        for each in named:
            if stated.start <= each.start < stated.end:
                claim = _claim(stated, each, now, ontology, day_of, explicit=clause.sentence == explicit_in)
                if claim is not None:
                    yield claim
                    break  # the first thing is whose clause it is


def _claim(
    clause: Clause,
    resolution: Resolution,
    now: datetime,
    ontology: Ontology,
    day_of: Mapping[str, str],
    *,
    explicit: bool,
) -> MemoryCandidate | None:
    entity = resolution.entity
    assert entity is not None, "only what was resolved is looked at"
    kind = ontology.types.get(entity.type)
    masked, mention = _masked(clause, resolution)
    bare, since, until = _times(masked, now)
    said = _read(bare, kind) if kind is not None else None
    said = said or _preferred_day(bare, entity, ontology, day_of)
    if said is None:
        return None
    corrects = said.corrects or bool(_CORRECTS.search(clause.lead))
    name = mention if _is_name(mention) else entity.name
    sort: LearnedKind = "correction" if corrects else "preference" if "prefer" in said.predicate else "fact"
    made = make_candidate(
        normalise(_told(masked, name)),
        sort,
        importance=EXPLICIT_IMPORTANCE if explicit else CLAIM_IMPORTANCE,
        confidence=EXPLICIT_CONFIDENCE if explicit else CLAIM_CONFIDENCE,
        tag="about",
        value=said.value,
        triple=Triple(entity.id, said.predicate, said.value),
    )
    return replace(
        made,
        quote=clause.text,
        span=(clause.start, clause.end),
        explicit=explicit,
        entity_ids=entity_ids(made.entity_ids, [resolution]),
        since=since,
        until=until,
    )


def _told(masked: str, name: str) -> str:
    """The clause with the thing's name; of "they prefer … now" what stays so."""
    said = re.sub(rf"{_X} (prefer|want|like|require|insist)\b", rf"{_X} \1s", _TAIL.sub("", masked))
    return said.replace(_X, name)


def _masked(clause: Clause, resolution: Resolution) -> tuple[str, str]:
    """The clause with the thing's place taken, and how it was said there. "since", which extraction takes for a word that only
    leads, begins the clause again."""
    at = resolution.start - clause.start
    mention = clause.text[at : at + len(resolution.mention)]
    mark = f"{_X}'s" if mention.lower() in _POSSESSIVE else _X
    text = clause.text[:at] + mark + clause.text[at + len(resolution.mention) :]
    text = re.sub(rf"\b(?:the|our|my) (?:\w+ )?{_X}", _X, text, count=1, flags=re.I)
    joined = _JOINED.match(text)
    if joined is not None:
        return " ".join(text[joined.end() :].split()), mention
    begins = clause.lead.split()[-1:] == ["since"]
    return " ".join((("since " if begins else "") + text).split()), mention


def _times(text: str, now: datetime) -> tuple[str, datetime | None, datetime | None]:
    """A clause without "since June" and "until May", and these."""
    past = _PAST.search(text) is not None
    text, since = _cut(text, _SINCE, now, past=True)
    text, until = _cut(text, _UNTIL, now, past=past)
    return text, since, until


def _cut(text: str, pattern: re.Pattern[str], now: datetime, *, past: bool) -> tuple[str, datetime | None]:
    match = pattern.search(text)
    if match is None:
        return text, None
    when = match["when"]
    found = find_date(when, now, past=past) or find_date(f"in {when}", now, past=past)
    if found is None:
        return text, None
    left = f"{text[: match.start()]} {text[match.end() :]}".strip(" ,")
    return " ".join(left.split()), datetime.combine(found.first, time(), now.tzinfo or UTC)


def _read(text: str, kind: EntityType) -> _Said | None:
    """The first form that fits, of the predicate whose words are the most."""
    for predicate in sorted(kind.predicates, key=lambda each: (-len(each), each)):
        for pattern, corrects in _forms(predicate, kind.predicates[predicate]):
            match = pattern.fullmatch(text)
            value = _value(match["v"]) if match is not None else None
            if value is not None:
                return _Said(predicate, value, corrects)
    return None


def _forms(predicate: str, column: str) -> Iterator[tuple[re.Pattern[str], bool]]:
    words = "|".join(dict.fromkeys(_spelled(each) for each in (predicate, column)))
    p, x, v = rf"(?:{words})", rf"(?:{_X})", r"(?P<v>.+?)"
    end = r"[\s.!]*"
    for form, corrects in (
        (rf"{x}'s? {p} (?:has|have) changed(?: from .+?)? to {v}{end}", True),
        (rf"{x}'s? {p} changed(?: from .+?)? to {v}{end}", True),
        (rf"{x}'s? {p} {_BE} {_NOW}{v}{end}", False),
        (rf"(?:the )?{p} (?:of|for|at|with) {x} {_BE} {_NOW}{v}{end}", False),
        (rf"(?:for|at|with|of) {x},? (?:the )?{p} {_BE} {_NOW}{v}{end}", False),
        (rf"{x} (?:has|have) (?:an? |the )?{p} of {v}{end}", False),
        (rf"{x} {_BE} {_NOW}(?:on|under|in) {v} {p}{end}", False),
        (rf"{x} (?:has|have|gets?|uses?) {_NOW}{v} {p}{end}", False),
    ):
        yield re.compile(form, re.I), corrects


def _spelled(name: str) -> str:
    """How a predicate is said: `payment_terms` as "payment terms", "payment-term"."""
    words = [re.escape(each) for each in re.split(r"[_\W]+", name.lower()) if each]
    return r"[\s-]".join([*words[:-1], re.sub(r"s$", "", words[-1]) + "s?"]) if words else re.escape(name)


def _value(said: str) -> str | None:
    value = _TAIL.sub("", said).strip(" ,.!\"'")
    if not value or len(value.split()) > MAX_VALUE_WORDS or _NO_VALUE.match(value) or _X in value:
        return None
    return value


def _preferred_day(text: str, entity: Entity, ontology: Ontology, day_of: Mapping[str, str]) -> _Said | None:
    match = _PREFERS.fullmatch(text)
    if match is None:
        return None
    triple = _day_preference(Triple(entity.id, "prefers", match["v"].strip(" .!")), ontology, day_of)
    return _Said(triple.predicate, triple.value) if triple.predicate != "prefers" else None


def _says_it(candidate: MemoryCandidate, claim: MemoryCandidate) -> bool:
    """Whether extraction read the same words: as a statement of somebody, not of the user."""
    (start, end), (first, last) = candidate.span, claim.span
    foreign = candidate.triple is None or candidate.triple.subject != "user"
    return start < last and first < end and foreign and candidate.kind not in ("tool_outcome", "event", "instruction")
