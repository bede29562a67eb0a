"""What can be learned from one exchange without any LLM: rules of seed 001 §4.2, on the user's own words and tool calls.

Precision before recall: what is quoted, pasted, asked, supposed, joked or said of others gives nothing (see
`extract_clauses`), and a clause must fit a rule as a whole (`rules.txt`). Linear in the message, which is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time

from msgspec.structs import replace

from app.languages.data import language
from app.languages.detect import language_of
from app.memory.candidate import Candidate, Ended, Exchange, Kind, Provenance, Triple
from app.memory.commands import read_commands
from app.memory.doubts import with_doubts
from app.memory.extract_clauses import Clause, announced, clauses, masked, own_word
from app.memory.extract_dates import Found, find_date
from app.memory.extract_drafts import EXPLICIT_CONFIDENCE, EXPLICIT_IMPORTANCE, make_draft, tool_candidates
from app.memory.extract_events import event_content, without_date
from app.memory.extract_grammar import capital, depersonalise, inner
from app.memory.extract_multilingual import statements
from app.memory.extract_rules import Rule, rules
from app.memory.extract_secrets import looks_secret
from app.memory.extract_values import trade
from app.memory.extract_words import words
from app.memory.ingest_text import content_hash

MAX_CANDIDATES = 16
"""Of one exchange: who states more at once is pasting something."""

EVENT_IMPORTANCE = 0.55
EVENT_CONFIDENCE = 0.85


def extract(exchange: Exchange) -> list[Candidate]:
    """What the exchange says about its user, in the order in which it was said; each statement once."""
    code = language_of(masked(exchange.user_text))
    stated = list(_in_english(exchange)) if code in ("", "en") else statements(exchange, code)
    stated = [each for each in stated if each.kind != "instruction" or _may_order(exchange.user_text, each, code)]
    found: dict[bytes, Candidate] = {}
    for candidate in [*map(with_doubts, stated), *tool_candidates(exchange)]:
        found.setdefault(content_hash(candidate.content), candidate)
    return list(found.values())[:MAX_CANDIDATES]


def _may_order(message: str, order: Candidate, code: str) -> bool:
    """Whether it is the user who orders it: in a short word of their own, announced by nothing but "remember:", and not told as
    what somebody else says."""
    if not own_word(message) or announced(message, order.span[0]) > order.explicit:
        return False
    return language(code or "en").pattern("reported").search(message) is None


def read_rules() -> None:
    """Reads and compiles the English rules, some 0.5 s of CPU, so that no message waits for it; those of another language are
    read with the first message in it, which takes that some 0.1 s."""
    rules()
    read_commands("en")
    masked("")


def _in_english(exchange: Exchange) -> Iterator[Candidate]:
    asked_in = -1  # the sentence in which the user said "remember"
    plainly = False
    spoke_in = -1  # the last one that said something
    tasted, tasted_in = "", -1  # what the user likes or hates, and the sentence that says so
    stated = clauses(exchange.user_text)
    for index, clause in enumerate(stated):
        clause, request = without_request(clause)
        asked = bool(request)
        if asked:
            asked_in, plainly = clause.sentence, request.endswith(("that", ":", "reference", "later"))
        if not clause.text:
            continue
        if clause.elliptic and spoke_in != clause.sentence:
            continue  # "people who give and love exist": nobody's predicate
        explicit = asked or clause.sentence == asked_in
        alone = index + 1 == len(stated)
        for candidate in _of_clause(
            clause, exchange, explicit=explicit, plainly=plainly, introduces=index == 0 and not alone
        ):
            if candidate.kind == "preference" and candidate.triple is not None:
                tasted, tasted_in = candidate.triple.value, clause.sentence
            told = _with_noun(candidate, tasted if tasted_in == clause.sentence else "")
            if told is not None:
                yield told
            spoke_in = clause.sentence


_PRONOUN = re.compile(r"\b(?:it|them)\b", re.IGNORECASE)


_POINTING = re.compile(r"(?:please )?(?:always|never|don't|do not)(?: ever)? [\w-]+ (?:it|them)\b", re.IGNORECASE)


def _with_noun(candidate: Candidate, noun: str) -> Candidate | None:
    """ "I hate cilantro, never suggest it": an order says what its pronoun stands for; None where nothing is known to."""
    if candidate.kind != "instruction":
        return candidate
    if noun:
        return replace(candidate, content=_PRONOUN.sub(lambda _: noun, candidate.content, count=1))
    return None if _POINTING.match(candidate.content) else candidate


# --- what the user asks to remember -----------------------------------------------------------------------------------

_REQUEST = re.compile(
    r"(?:(?:can|could|would|will) you )?(?:please |kindly |also |and |always )*"
    r"(?:(?:remember|don't forget|do not forget|never forget|keep in mind|bear in mind|take note|make a note|"
    r"memori[sz]e)"
    r"(?: for (?:me|later|next time|the future|future reference))?(?: of)?(?: (?:the fact )?that\b| this\b(?=:|$)|:|,)?"
    r"|(?:note|save|store) (?:down )?(?:that\b|this(?=:)|for (?:later|the future|future reference):?)"
    r"|(?:for|as) (?:your |my |future )+(?:reference|records?|information)(?: that)?:?|i (?:want|need|"
    r"would like) you to remember"
    r"(?: that)?|i'd like you to remember(?: that)?|you (?:should|must|need to) (?:remember|know)(?: that)?)[\s,:]*",
    re.IGNORECASE,
)
_NO_REQUEST = re.compile(
    r"(?:(?:can|could|do|would|will) you )?(?:please )?remember (?:when|how|what|where|who|why|me\b|us\b|the time|"
    r"last|yesterday|our|it\b|them\b|those days)"
    r"|take note of|make a note of (?:it|that|this)$",
    re.IGNORECASE,
)


def without_request(clause: Clause) -> tuple[Clause, str]:
    """The clause without a leading "remember that", and these words, lower case."""
    if _NO_REQUEST.match(clause.text):
        return replace(clause, text=""), ""
    request = _REQUEST.match(clause.text)
    if request is None:
        return clause, ""
    rest = clause.text[request.end() :]
    return replace(clause, text=rest.strip(), start=clause.start + request.end() + len(rest) - len(rest.lstrip())), (
        request[0].strip(" ,").lower()
    )


# --- one clause -------------------------------------------------------------------------------------------------------

_CORRECTS = re.compile(
    r"\b(?:no|nope|nah|actually|correction|meant|wrong|not right|not quite|wait|oops|my bad|in fact)\b", re.IGNORECASE
)
_NOW = re.compile(r"\b(?:now|these days|nowadays|any ?more|any longer|instead)[.!]*$", re.IGNORECASE)


def _of_clause(
    clause: Clause, exchange: Exchange, *, explicit: bool, plainly: bool, introduces: bool
) -> list[Candidate]:
    text = " ".join(clause.text.split())
    text = "I " + text if clause.elliptic else text
    introduced, text = _introduction(clause, text, introduces)
    relative = _named_relative(text)
    if relative is not None:
        text = _RELATIVE.sub(lambda m: f"{m[0].split()[0]} {m['who']}", text)
    when = find_date(text, exchange.now, past=_is_past(text))
    ruled, event = _by_rule(text, when, clause, exchange.now), _event(text, when)
    first = ruled[0] if ruled else None
    if event is not None and (
        first is None
        or first.kind == "event"
        or (first.triple is None and first.kind != "correction" and not first.ends)
    ):
        ruled = [event]
    drafts = [draft for draft in (relative, introduced, *ruled) if draft is not None]
    if not drafts and explicit:
        told = _as_told(text, when, plainly=plainly)
        drafts = [told] if told is not None else []
    quote = exchange.user_text[clause.start : clause.end]
    hidden = looks_secret(quote)
    return [
        replace(
            draft,
            quote=quote,
            span=(clause.start, clause.end),
            secret=hidden or looks_secret(draft.content),
            explicit=explicit,
            provenance_type=Provenance.USER_STATED
            if explicit and draft.kind != "correction"
            else draft.provenance_type,
            importance=max(draft.importance, EXPLICIT_IMPORTANCE) if explicit else draft.importance,
            confidence=max(draft.confidence, EXPLICIT_CONFIDENCE) if explicit else draft.confidence,
        )
        for draft in drafts
    ]


def _by_rule(text: str, when: Found | None, clause: Clause, now: datetime) -> list[Candidate]:
    """What the first rule that fits says; `since` is set where the words tell when something changed."""
    resolved = [text]
    if when is not None:
        undated = "birthday" in text.lower() and not re.search(r"\d", text[when.start : when.end])
        if undated or _TURNS.search(text):
            resolved = [text[: when.start] + _calendar_day(when.iso) + text[when.end :]]
        elif stripped := without_date(text, when):
            resolved.insert(0, stripped)  # "… two weeks ago" is no part of the value
    for said in resolved:
        for rule in rules():
            match = rule.pattern.fullmatch(said)
            if match is not None:
                groups = {key: value or "" for key, value in match.groupdict().items()}
                since = datetime.combine(when.first, time(), now.tzinfo) if when is not None and said != text else None
                first, *others = (_filled(each, dict(groups), text, clause, since) for each in (rule, *rule.also))
                if first is not None:
                    return [first, *(each for each in others if each is not None and each.triple is not None)]
    return []


_TURNS = re.compile(r"\b(?:turns|will turn|will be|is turning) \w+(?: years old)?(?: on| the|,)? (?=\w)", re.IGNORECASE)


def _filled(rule: Rule, groups: dict[str, str], text: str, clause: Clause, since: datetime | None) -> Candidate | None:
    value = groups.get(rule.value, "")
    if value:
        checked = rule.check(value)
        if checked is None and not rule.optional:
            return None
        groups[rule.value] = value = checked or ""
    if words("not_favourites").intersection(groups.get("what", "").lower().split()):
        return None  # "my favourite part", "my favourite one"
    predicate = re.sub(r"\W+", "_", rule.fill(rule.predicate or "", groups).lower())
    single = predicate in words("single_valued") or "{what}" in (rule.predicate or "")
    changed = rule.correction or bool(groups.get("changed")) or (single and _corrects(clause, text, rule))
    corrected = changed and (single or not rule.ends or not predicate or predicate.startswith("not_"))
    kind: Kind = "correction" if corrected and rule.kind in ("fact", "preference") else rule.kind
    # A correction takes the place of what the same subject and predicate said before: of one allergy, not of all.
    triple = None
    if predicate and (single or kind != "correction" or predicate.startswith("not_")):
        triple = Triple(rule.fill(rule.subject, groups).lower(), predicate, inner(value))
    ends = tuple(_ended(each, rule, groups, since) for each in rule.ends)
    return make_draft(
        rule.fill(rule.content, groups),
        kind,
        importance=rule.importance,
        confidence=rule.confidence,
        tag=rule.tag,
        value=value,
        triple=triple if triple is None or triple.value else None,
        ends=ends,
        since=since if ends or kind == "correction" else None,
    )


def _ended(told: str, rule: Rule, groups: dict[str, str], since: datetime | None) -> Ended:
    """`works_at:{v}`, `partner`, `{who}.*` of a rule, filled."""
    predicate, _, value = told.partition(":")
    subject = rule.subject
    if "." in predicate:
        subject, _, predicate = predicate.rpartition(".")
    return Ended(
        rule.fill(subject, groups).lower(),
        None if predicate == "*" else predicate,
        re.sub(r"^(?:an?|the) ", "", inner(rule.fill(value, groups))) or None,
        since,
    )


def _corrects(clause: Clause, text: str, rule: Rule) -> bool:
    return bool(_CORRECTS.search(clause.lead)) or (rule.tag in ("home", "work", "name") and bool(_NOW.search(text)))


def _calendar_day(iso: str) -> str:
    if len(iso) < 10:
        return iso
    found = date.fromisoformat(iso)
    return f"{found.day} {found:%B}"


# --- events, introductions, and what is told to be remembered as it is ------------------------------------------------

_PAST = re.compile(
    r"\b(?:was|were|went|had|did|got|bought|broke|ran|met|flew|quit|lost|sold|became|took|left|began|won|ago|last|"
    r"yesterday|past"
    r"|[a-z]{3,}ed)\b",
    re.IGNORECASE,
)


_TO_COME = re.compile(r"(?:i'm|i am|we're|we are|i'll|i will|we'll|we will)\b", re.IGNORECASE)


def _is_past(text: str) -> bool:
    return _PAST.search(text) is not None and not _TO_COME.match(text)


def _event(text: str, when: Found | None) -> Candidate | None:
    if when is None:
        return None
    content = event_content(text, when)
    if content is None:
        return None
    return make_draft(
        content,
        "event",
        importance=EVENT_IMPORTANCE,
        confidence=EVENT_CONFIDENCE,
        tag="event",
        value=content,
        when=when.iso,
    )


_INTRODUCTION = re.compile(
    r"(?P<who>I'm|i'm|I am|i am|[Tt]his is|[Ii]t's) (?P<v>[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,2})"
    r"(?:, (?P<also>an? .+))?"
)


def _introduction(clause: Clause, text: str, introduces: bool) -> tuple[Candidate | None, str]:
    """ "Hi, I'm Ana": the name, and what is left to look at ("I'm Ana, a nurse": "I'm a nurse").

    A capital alone is not enough; it needs a greeting, or to go on about the user.
    """
    match = _INTRODUCTION.fullmatch(text)
    if match is None or (match["also"] and trade(match["also"]) is None):
        return None, text
    itself = match["who"][0] in "Ii" and match["who"][1] != "t"
    name = match["v"]
    if not (clause.greeted or (itself and (introduces or match["also"]))) or name.isupper():
        return None, text
    if words("not_introductions").intersection(name.lower().split()):
        return None, text
    draft = make_draft(
        f"Name is {name}",
        "fact",
        importance=0.9,
        confidence=0.8,
        tag="name",
        value=name,
        triple=Triple("user", "name", name),
    )
    return draft, f"I'm {match['also']}" if match["also"] else ""


_RELATIVE = re.compile(
    r"\b(?:[Mm]y|[Oo]ur) (?P<who>wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|son|daughter|brother|sister|"
    r"dog|cat|flatmate|roommate|housemate|boss|landlord|niece|nephew) "
    r"(?P<name>[A-Z][^\W\d_]+)\b(?!')"
)


def _named_relative(text: str) -> Candidate | None:
    match = _RELATIVE.search(text)
    if match is None or match["name"].lower() in words("not_names"):
        return None
    who, name = match["who"], match["name"]
    return make_draft(
        f"{capital(who)}'s name is {name}",
        "fact",
        importance=0.65,
        confidence=0.8,
        tag="pet" if who in ("dog", "cat") else "family",
        value=name,
        triple=Triple(who, "name", name),
    )


_ORDER = re.compile(
    r"to (?P<v>(?:always |never |not |only )*(?:answer|reply|respond|write|use|call|address|give|include|add|avoid|"
    r"speak|explain|cite|"
    r"format|translate|sign|keep|be|make|skip|show|start|end|put)\b.+)",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"(?:this|that|it|these|those|them|me|us|everything|all of this|what i (?:said|told)|to|from now on|going forward"
    r"|in (?:the )?future)\b[\s.!]*",
    re.IGNORECASE,
)
_TOLD_WORDS = 40
_OWN = re.compile(r"\b(?:I|I'm|my|me|we|our|us|mine)\b", re.IGNORECASE)
_ADDRESSES = re.compile(r"\b(?:you|your|yourself|you're)\b", re.IGNORECASE)


def _as_told(text: str, when: Found | None, *, plainly: bool) -> Candidate | None:
    """What no rule knows, but the user wants remembered: the statement itself.

    `plainly`: it was asked for with "remember that" or "remember:"; otherwise ("Remember, practice helps") it must speak of
    the user. Advice to the reader is none of it.
    """
    said = text if when is None else text[: when.start] + when.phrase + text[when.end :]
    said = said.strip(" .!,;:")
    if not 2 <= len(said.split()) <= _TOLD_WORDS or _POINTS.fullmatch(said) or _ADDRESSES.search(said):
        return None
    own = _OWN.search(said) is not None or when is not None
    if not own and not plainly and _ORDER.fullmatch(said) is None:
        return None
    if order := _ORDER.fullmatch(said):
        content, kind = order["v"], "instruction"
    elif said.lower().startswith("to "):
        content, kind = "Needs " + inner(said), "fact"
    else:
        content, kind = depersonalise(said) or inner(said), "fact"
    return make_draft(
        content,
        "instruction" if kind == "instruction" else "fact",
        importance=EXPLICIT_IMPORTANCE,
        confidence=EXPLICIT_CONFIDENCE,
        tag="told",
        value=said,
        when=when.iso if when else None,
    )
