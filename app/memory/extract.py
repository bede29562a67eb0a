"""What can be learned from one exchange without any LLM: rules of seed 001 §4.2, on the user's own words and tool calls.

Precision before recall: what is quoted, pasted, asked, supposed, joked or said of others gives nothing (see
`extract_clauses`), and a clause must fit a rule as a whole (`rules.txt`). Linear in the message, which is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from app.languages import DEFINITION, bids, ends_unfinished, expand, heard, language, language_of, sentences
from app.memory.candidate import (
    EXPLICIT_CONFIDENCE,
    EXPLICIT_IMPORTANCE,
    Ended,
    MemoryCandidate,
    Provenance,
    SourceExchange,
    Triple,
    guess,
    make_candidate,
    place_draft,
    placed,
    tool_candidates,
    with_doubts,
)
from app.memory.changes import find_changes, has_change_sign
from app.memory.claims import single_valued
from app.memory.commands import commands
from app.memory.extract_clauses import MASK, Clause, announced, clauses, masked, own_word
from app.memory.extract_dates import FoundDate, find_spoken_date
from app.memory.extract_grammar import (
    CHECKS,
    alternatives,
    capital,
    depersonalise,
    inner,
    third_person,
    trade,
    words,
)
from app.memory.rules import Rule, RuleStatement, read_rule
from app.memory.standing_wishes import find_standing_wishes
from app.memory.statements import (
    MIN_PROBABILITY,
    UserStatement,
    build_candidates,
    find_statements,
    is_fragment,
    read_span,
    tag_message,
)
from app.memory.tagger import TaggedMessage
from app.memory.text import content_hash, same_claim
from app.optional import imported
from app.store.kinds import CORRECTED, LearnedKind

MAX_CANDIDATES = 16
"""Of one exchange: who states more at once is pasting something."""
MIN_RULE_PROBABILITY = 0.2
"""The least probability that a clause which a rule knows is the user's own. Low, because a rule knows the whole clause, and the
tagger misjudges short ones: at 0.5 the rules' own examples are lost."""
MIN_RULE_KEEP_PROBABILITY = 0.02
"""The least probability that a reader would keep a clause which a rule knows; orders of the moment have less. It does not count
in a message of few words, where the tagger sees too little: it keeps "I live in Lisbon" and not "I live in Rome"."""
FEW_WORDS = 12
"""Words of a message in which a rule is believed against the tagger, at most: a sentence or two."""
MIN_CHANGE_PROBABILITY = 0.4
"""The least probability of a statement in a short message that says what changed: "Gave the Golf to my brother, I take the tram
now"."""
MIN_IMPERSONAL_PROBABILITY = 0.85
"""The least probability of an English statement with no first person: a third of those below it are right, and two thirds of
the others (loadtests/results/learning.md)."""


def extract(exchange: SourceExchange) -> list[MemoryCandidate]:
    """Return what the exchange says about its user, in the order in which it was said; each statement once.

    The tagger finds the statements. A rule that knows a clause as a whole adds a slot to it, or finds what the tagger does not;
    it does not count in words that the tagger takes for somebody else's.
    """
    message = exchange.user_text
    code = language_of(masked(message))
    english = code in ("", "en")
    if english:
        ruled = list(_in_english(exchange))
    else:
        others = imported("multilingual")
        ruled = others.statements(exchange, code) if others is not None else []
    if not english or not code:
        ruled += find_standing_wishes(message)
    tagged = tag_message(message, number=exchange.number, in_role_play=exchange.in_role_play)
    ruled = [candidate for candidate in ruled if _is_own(candidate, tagged, exchange, code)]
    changed = own_word(message) and has_change_sign(message)
    if statements := find_statements(tagged, min_probability=MIN_CHANGE_PROBABILITY if changed else MIN_PROBABILITY):
        read_spans = [candidate.span for candidate in ruled if not _has_only_a_name(candidate)]
        read_spans += [command.span for command in commands(message)]
        own_words = masked(message)
        stated = clauses(message) if english else None
        statements = [
            statement
            for statement in _leave_out_spans(statements, message, read_spans, stated or ())
            if MASK not in own_words[statement.start : statement.end] and _is_stated(statement, message, stated, code)
        ]
        ruled += build_candidates(statements, message, exchange.now, code=code)
    ruled = sorted(
        (candidate for candidate in ruled if not _is_cut_short(candidate, code)), key=lambda candidate: candidate.span
    )
    found: dict[bytes, MemoryCandidate] = {}
    for candidate in [*map(with_doubts, ruled), *tool_candidates(exchange)]:
        found.setdefault(content_hash(candidate.content), candidate)
    return list(found.values())[:MAX_CANDIDATES]


_PLEASE = re.compile(r"please\b", re.IGNORECASE)
_ENDS_WITH_PLEASE = re.compile(r"\bplease$", re.IGNORECASE)
_FIRST_PERSON = re.compile(
    r"\b(?:i|i['’]?(?:m|ve|d|ll)|my|me|mine|myself|we|we['’](?:re|ve|ll|d)|our|ours|us)\b", re.IGNORECASE
)
_SENTENCE_ENDS = ".!?…。！？\n"
_SENTENCE_END = re.compile(f"[{_SENTENCE_ENDS}]")
_USER_WORDS = re.compile(
    r"\b(?:the user|(?:be)?nutzer(?:in)?|l'utilisateur|el usuario|la usuaria|o (?:usuário|utilizador)|l'utente|de gebruiker)\b"
    r"|用户",
    re.IGNORECASE,
)
"""Words for the user in other people's texts: the user says "I"."""
_NOT_STATED = ("others", "reported", "joke", "retracted", "fiction")
"""Patterns of each language for what a sentence only reports, jokes about, takes back or makes up."""
_LOOSE_ENDS = " ,;:-–—"
_COMMA = re.compile("[,;:，、；：]")
"""Signs between a statement and the end of a question that make them two clauses."""
_WORDS_BESIDE_NAME = 4
"""Most words beside a name that say only whose name it is: "My girlfriend's name is Jana"."""
_LEAST_STATED = 0.5
"""The least share of a statement's characters that lie in a clause which the user states as so."""


def _leave_out_spans(
    statements: Sequence[UserStatement], message: str, spans: Sequence[tuple[int, int]], stated: Sequence[Clause]
) -> Iterator[UserStatement]:
    """Yield statements without what rules and commands have read (`spans`): of one that runs on into another clause of the
    user's own, that clause stays."""

    def is_read(start: int, end: int) -> bool:
        return any(begin < end and start < finish for begin, finish in spans)

    for statement in statements:
        if not is_read(statement.start, statement.end):
            yield statement
            continue
        cuts = [clause.start for clause in stated if statement.start < clause.start < statement.end]
        for start, end in pairwise([statement.start, *cuts, statement.end]):
            end = start + len(message[start:end].rstrip(_LOOSE_ENDS))
            if not is_read(start, end) and depersonalise(message[start:end]) is not None:
                yield replace(statement, start=start, end=end)


def _is_stated(statement: UserStatement, message: str, stated: Sequence[Clause] | None, code: str) -> bool:
    """Return whether the user states it as so, rather than reports, supposes, asks or makes it up. `stated`: the clauses of an
    English message that are stated; None for other languages, whose patterns are searched in the sentence around it."""
    start, end = statement.start, statement.end
    sentence_start = max(message.rfind(sign, 0, start) for sign in _SENTENCE_ENDS) + 1
    mark = _SENTENCE_END.search(message, end)
    if code != "en" and mark and mark[0] in "?？" and _COMMA.search(message, end, mark.start()) is None:
        return False
    if _is_denied(message[start:end], message[sentence_start : mark.start() if mark else len(message)]):
        return False
    if _USER_WORDS.search(message, start, end) and not heard(message[start:end]).mine:
        return False
    is_order = heard(message[start:end]).task and not _FIRST_PERSON.match(message, start)  # "I write a newsletter"
    if (
        is_order
        or bids(message[start:end])
        or _PLEASE.match(message, start)
        or _ENDS_WITH_PLEASE.search(message[start:end])
    ):
        return False
    if stated is not None:
        if statement.probability < MIN_IMPERSONAL_PROBABILITY and not _FIRST_PERSON.search(message, start, end):
            return False
        covered = max((min(clause.end, end) - max(clause.start, start) for clause in stated), default=0)
        return covered >= _LEAST_STATED * (end - start)
    sentence = message[sentence_start : mark.end() if mark else len(message)]
    return not any(language(code).pattern(name).search(sentence) for name in _NOT_STATED)


def _has_only_a_name(candidate: MemoryCandidate) -> bool:
    """Return whether a rule took only a name from a clause that says more: "Ma copine Maëlle est sage-femme à Quimper"."""
    triple = candidate.triple
    if triple is None or triple.predicate != "name" or triple.subject == "user":
        return False
    return len(candidate.quote.split()) - len(triple.value.split()) > _WORDS_BESIDE_NAME


def _is_cut_short(candidate: MemoryCandidate, code: str) -> bool:
    """Return whether a candidate's words are a fragment; a rule's slot may be a number ("I'm 34")."""
    return is_fragment(candidate.quote, code) and (candidate.triple is None or ends_unfinished(candidate.quote, code))


def _is_denied(statement: str, sentence: str) -> bool:
    """Return whether a sentence denies the statement that was cut from it, as "soy alérgico" from "Ya no soy alérgico"."""
    changes = find_changes(sentence)
    return any(change.old and change.old in statement for change in changes) and not find_changes(statement)


def _is_own(candidate: MemoryCandidate, tagged: TaggedMessage, exchange: SourceExchange, code: str) -> bool:
    """Return whether what a rule found is the user's own: a wish in a short word of theirs, and anything in words that the
    tagger neither takes for another's nor for an order of the moment."""
    if candidate.kind == "instruction" and not _may_order(exchange.user_text, candidate, code):
        return False
    if exchange.in_role_play and (candidate.ends or candidate.kind == "correction"):
        return False  # what a role gives up is not the user's
    if candidate.explicit or candidate.kind == "correction":
        return True
    reading = read_span(tagged, *candidate.span)
    is_guess = candidate.provenance_type is Provenance.SYSTEM_INFERRED
    is_certain = is_guess or len(exchange.user_text.split()) <= FEW_WORDS
    return reading.own_probability >= MIN_RULE_PROBABILITY and (
        is_certain or reading.keep_probability >= MIN_RULE_KEEP_PROBABILITY
    )


def _may_order(message: str, order: MemoryCandidate, code: str) -> bool:
    """Whether it is the user who orders it: in a short word of their own, announced by nothing but "remember:", and not told as
    what somebody else says."""
    if not own_word(message) or announced(message, order.span[0]) > order.explicit:
        return False
    if not order.explicit and _is_material(message, order.span[0]):
        return False
    return language(code or "en").pattern("reported").search(message) is None


def _is_material(message: str, start: int) -> bool:
    """Return whether an order is part of a task, or of a question about it: "Is this a good prompt? Always …"."""
    text = masked(message)
    for sentence in sentences(text):
        words = text[sentence.start : sentence.end]
        if sentence.start < start and (heard(words).task or (sentence.asked and sentence.end <= start)):
            return True
        if sentence.asked and _ORDERS.search(words):
            return True
    return False


_ORDERS = re.compile(
    r"prompt|instru[ckç][ct]i|anweisung|regeln?\b|règle|\breglas?\b|\brules?\b|slogan|\bmott?o\b|提示词|指令|规则",
    re.IGNORECASE,
)
"""Words for texts that contain orders which are none of the user's."""


def read_rules() -> None:
    """Reads and compiles the English rules, some 0.5 s of CPU, so that no message waits for it; those of another language are
    read with the first message in it, which takes that some 0.1 s."""
    rules()
    commands("Forget that.")
    masked("")


def _in_english(exchange: SourceExchange) -> Iterator[MemoryCandidate]:
    asked_in = -1  # the sentence in which the user said "remember"
    plainly = False
    spoke_in = -1  # the last one that said something
    tasted, tasted_in = "", -1  # what the user likes or hates, and the sentence that says so
    heard = clauses(exchange.user_text, hedged=True)
    stated = [each for each in heard if not each.hedged]
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
        guesses = [] if explicit else _guessed(clause, exchange)
        yield from guesses
        if guesses:  # "I'm probably moving on 4 May" states nothing
            continue
        found = _of_clause(clause, exchange, explicit=explicit, plainly=plainly, introduces=index == 0 and not alone)
        for candidate in found:
            if candidate.kind == "preference" and candidate.triple is not None:
                tasted, tasted_in = candidate.triple.value, clause.sentence
            told = _with_noun(candidate, tasted if tasted_in == clause.sentence else "")
            if told is not None:
                yield told
            spoke_in = clause.sentence
    for clause in heard:
        if clause.hedged:
            yield from _guessed(clause, exchange)


def _guessed(clause: Clause, exchange: SourceExchange) -> list[MemoryCandidate]:
    def facts(said: str) -> list[MemoryCandidate]:
        return _of_clause(replace(clause, text=said), exchange, explicit=False, plainly=False, introduces=False)

    return placed(guess(clause.text, language("en"), facts), exchange.user_text, clause.start, clause.end)


_PRONOUN = re.compile(r"\b(?:it|them)\b", re.IGNORECASE)
_POINTING = re.compile(r"(?:please )?(?:always|never|don't|do not)(?: ever)? [\w-]+ (?:it|them)\b", re.IGNORECASE)


def _with_noun(candidate: MemoryCandidate, noun: str) -> MemoryCandidate | None:
    """ "I hate cilantro, never suggest it": an order says what its pronoun stands for; None where nothing is known to."""
    if candidate.kind != "instruction":
        return candidate
    if noun:
        return replace(candidate, content=_PRONOUN.sub(lambda _: noun, candidate.content, count=1))
    return None if _POINTING.match(candidate.content) else candidate


# --- what the user asks to remember --------------------------------------------------------------------------------------

_REQUEST = re.compile(
    r"(?:(?:can|could|would|will) you )?(?:please |kindly |also |and |always )*(?:(?:remember|don't forget|"
    r"do not forget|never forget|keep in mind|bear in mind|take note|make a note|memori[sz]e)(?: for (?:me|later|"
    r"next time|the future|future reference))?(?: of)?(?: (?:the fact )?that\b| this\b(?=:|$)|:|,)?"
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


# --- one clause ----------------------------------------------------------------------------------------------------------

_NO_WORD = re.compile(r"\W+")
_ARTICLE = re.compile(r"^(?:an?|the) ")
_CORRECTS = re.compile(
    r"\b(?:no|nope|nah|actually|correction|meant|wrong|not right|not quite|wait|oops|my bad|in fact)\b", re.IGNORECASE
)
_AFTERTHOUGHT = re.compile(r",? (?:by the way|btw|fyi|just so you know|you know|as you know)$", re.IGNORECASE)
_TURNS = re.compile(r"\b(?:turns|will turn|will be|is turning) \w+(?: years old)?(?: on| the|,)? (?=\w)", re.IGNORECASE)
_NOW = re.compile(r"\b(?:now|these days|nowadays|any ?more|any longer|instead)[.!]*$", re.IGNORECASE)


def _of_clause(
    clause: Clause, exchange: SourceExchange, *, explicit: bool, plainly: bool, introduces: bool
) -> list[MemoryCandidate]:
    text = _AFTERTHOUGHT.sub("", " ".join(clause.text.split()))
    text = "I " + text if clause.elliptic else text
    introduced, text = _introduction(clause, text, introduces)
    relative = _named_relative(text)
    if relative is not None:
        text = _RELATIVE.sub(lambda m: f"{m[0].split()[0]} {m['who']}", text)
    when = find_spoken_date(text, "en", exchange.now)
    ruled = _by_rule(text, when, clause, exchange.now)
    drafts = [draft for draft in (relative, introduced, *ruled) if draft is not None]
    if not drafts and explicit:
        told = _as_told(text, when, plainly=plainly)
        drafts = [told] if told is not None else []
    return [place_draft(draft, exchange.user_text, clause.start, clause.end, explicit=explicit) for draft in drafts]


def _by_rule(text: str, when: FoundDate | None, clause: Clause, now: datetime) -> list[MemoryCandidate]:
    """What the first rule that fits says; `since` is set where the words tell when something changed."""
    resolved = [text]
    if when is not None:
        undated = "birthday" in text.lower() and not any(char.isdigit() for char in text[when.start : when.end])
        if undated or _TURNS.search(text):
            resolved = [text[: when.start] + _calendar_day(when.iso) + text[when.end :]]
        elif stripped := without_date(text, when):
            resolved.insert(0, stripped)  # "… two weeks ago" is no part of the value
    for said in resolved:
        for rule in rules():
            match = rule.pattern.fullmatch(said)
            if match is not None:
                groups = {key: value or "" for key, value in match.groupdict().items()}
                day = when if said != text else None
                first, *further_candidates = (
                    _build_candidate(statement, dict(groups), text, clause, day, now) for statement in rule.statements
                )
                if first is not None:
                    return [
                        first,
                        *(
                            candidate
                            for candidate in further_candidates
                            if candidate is not None and candidate.triple is not None
                        ),
                    ]
    return []


def _build_candidate(
    statement: RuleStatement, groups: dict[str, str], text: str, clause: Clause, day: FoundDate | None, now: datetime
) -> MemoryCandidate | None:
    dated = statement.kind == "event"
    if dated and day is None:
        return None
    since = datetime.combine(day.first, time(), now.tzinfo) if day is not None else None
    name = next((name for name in statement.value if groups.get(name)), statement.value[0])
    value = groups.get(name, "")
    if value:
        checked = CHECKS[statement.check](value)
        if checked is None and not statement.optional:
            return None
        groups[name] = groups[statement.value[0]] = value = checked or ""
    if words("not_favourites").intersection(groups.get("what", "").lower().split()):
        return None  # "my favourite part", "my favourite one"
    predicate = _NO_WORD.sub("_", fill_template(statement, statement.predicate or "", groups).lower())
    single = predicate in words("single_valued") or "{what}" in (statement.predicate or "")
    changed = statement.correction or bool(groups.get("changed")) or (single and _corrects(clause, text, statement))
    corrected = changed and (single or not statement.ends or not predicate or predicate.startswith("not_"))
    kind: LearnedKind = "correction" if corrected and statement.kind in CORRECTED else statement.kind
    # A correction takes the place of what the same subject and predicate said before: of one allergy, not of all.
    triple = None
    if predicate and (single or kind != "correction" or predicate.startswith("not_")):
        triple = Triple(fill_template(statement, statement.subject, groups).lower(), predicate, inner(value))
    ends = tuple(_fill_end(template, statement, groups, since) for template in statement.ends)
    return make_candidate(
        fill_template(statement, statement.content, groups) + (f" {day.phrase}" if dated and day is not None else ""),
        kind,
        importance=statement.importance,
        confidence=statement.confidence,
        tag=statement.tag,
        value=value,
        triple=triple if triple is None or triple.value else None,
        ends=ends,
        since=since if ends or kind == "correction" else None,
        when=day.iso if dated and day is not None else None,
    )


def _fill_end(template: str, statement: RuleStatement, groups: dict[str, str], since: datetime | None) -> Ended:
    """Return what a clause ends by a statement's template: `works_at:{v}`, `partner`, `{who}.*`."""
    predicate, _, value = template.partition(":")
    subject = statement.subject
    if "." in predicate:
        subject, _, predicate = predicate.rpartition(".")
    return Ended(
        fill_template(statement, subject, groups).lower(),
        None if predicate == "*" else predicate,
        _ARTICLE.sub("", inner(fill_template(statement, value, groups))) or None,
        since,
    )


def _corrects(clause: Clause, text: str, statement: RuleStatement) -> bool:
    return bool(_CORRECTS.search(clause.lead)) or (
        statement.tag in ("home", "work", "name") and bool(_NOW.search(text))
    )


def _calendar_day(iso: str) -> str:
    if len(iso) < 10:
        return iso
    found = date.fromisoformat(iso)
    return f"{found.day} {found:%B}"


# --- introductions, and statements to be remembered as they are ----------------------------------------------------------

_INTRODUCTION = re.compile(
    r"(?P<who>I'm|i'm|I am|i am|[Tt]his is|[Ii]t's) (?P<v>[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,2})(?:, (?P<also>an? .+))?"
)


def _introduction(clause: Clause, text: str, introduces: bool) -> tuple[MemoryCandidate | None, str]:
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
    if (words("not_introductions") | words("nationalities")).intersection(name.lower().split()):
        return None, text
    draft = make_candidate(
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
    r"\b(?:[Mm]y|[Oo]ur) (?P<who>wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|son|daughter|brother|sister|dog|"
    r"cat|flatmate|roommate|housemate|boss|landlord|niece|nephew) (?P<name>[A-Z][^\W\d_]+)\b(?!')"
)


def _named_relative(text: str) -> MemoryCandidate | None:
    match = _RELATIVE.search(text)
    if match is None or match["name"].lower() in words("not_names"):
        return None
    who, name = match["who"], match["name"]
    return make_candidate(
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


def _as_told(text: str, when: FoundDate | None, *, plainly: bool) -> MemoryCandidate | None:
    """What no rule knows, but the user wants remembered: the statement itself.

    `plainly`: it was asked for with "remember that" or "remember:"; otherwise ("Remember, practice helps") it must speak of
    the user. Advice to the reader is none of it.
    """
    said = text if when is None else text[: when.start] + when.phrase + text[when.end :]
    said = said.strip(" .!,;:")
    if not 2 <= len(said.split()) <= _TOLD_WORDS or _POINTS.fullmatch(said) or _ADDRESSES.search(said):
        return None
    own, order = _OWN.search(said) is not None or when is not None, _ORDER.fullmatch(said)
    if not own and not plainly and order is None:
        return None
    if order is not None:
        content = order["v"]
    elif said.lower().startswith("to "):
        content = "Needs " + inner(said)
    else:
        content = depersonalise(said) or inner(said)
    return make_candidate(
        content,
        "instruction" if order is not None else "fact",
        importance=EXPLICIT_IMPORTANCE,
        confidence=EXPLICIT_CONFIDENCE,
        tag="told",
        value=said,
        when=when.iso if when else None,
    )


# --- dates in a clause ---------------------------------------------------------------------------------------------------

_LINK = re.compile(r"\b(?:of|by|until|till|for|from|before|after|since|to|between|with|due)$", re.IGNORECASE)


def without_date(text: str, when: FoundDate) -> str | None:
    """The clause without a date that stands at its beginning or its end; None when it belongs into the sentence."""
    before, after = text[: when.start].rstrip(" ,"), text[when.end :].strip(" ,")
    if (before and after) or _LINK.search(before):
        return None
    return before or after


# --- `rules.txt`: from text to compiled patterns -------------------------------------------------------------------------

FILE = Path(__file__).with_name("rules.txt")
_FIELD = re.compile(r"\{(\+?)(\w+)(>?)\}")


def fill_template(statement: RuleStatement, template: str, groups: dict[str, str]) -> str:
    """Return a rule's template with its groups, first-person words inside them replaced."""

    def read_field(field: re.Match[str]) -> str:
        text = groups.get(field[2].lower()) or ""
        if statement.kind != "instruction":  # an order keeps the user's own "me"
            text = inner(text)
        if field[3] and text:
            first, _, rest = text.partition(" ")
            text = f"{third_person(first)} {rest}".strip()
        if field[2][:1].isupper():
            text = capital(text)
        return f" {text}" if field[1] and text else text

    return _FIELD.sub(read_field, template)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules in the order in which they are tried. Read once: the file is part of the program."""
    return read(FILE.read_text(encoding="utf-8"))


def read(text: str) -> tuple[Rule, ...]:
    """The rules of a text in the form told at the top of `rules.txt`. Raises `ValueError` for a line that is not."""
    parts = {"LANGUAGE": alternatives("languages"), "NATIONALITY": alternatives("nationalities")}
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if definition := DEFINITION.fullmatch(line):
            parts[definition[1]] = expand(definition[2], parts)
        else:
            pattern, _, statements = line.partition(" => ")
            found.append(read_rule(expand(pattern, parts), statements, CHECKS))
    return tuple(found)


# --- "No, I meant Paris, Texas": a correction that names only the new value ----------------------------------------------
# The earlier words are said again with the new value in the place of the old one; what the rules then find is the correction.
# Without an earlier statement of one value at a time that the new one fits, it says nothing.

_AMENDS = "meant"
"""The tag of such a candidate; its content is "Meant " and the value."""
_INSTEAD_OF = re.compile(r",? (?:and )?not (?P<old>[^.,;!?]{2,40})", re.IGNORECASE)
_CALENDAR = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|\b(?:january|february|march|april|may|june|july|august|september|october|"
    r"november|december)\b",
    re.IGNORECASE,
)


class Earlier(NamedTuple):
    """What the user said a moment ago, in their own words, and what was found in it."""

    quote: str
    triple: Triple


def amends(candidate: MemoryCandidate) -> bool:
    """Is it a correction that names only a value?"""
    return _AMENDS in candidate.tags


def amended(candidate: MemoryCandidate, exchange: SourceExchange, earlier: Sequence[Earlier]) -> MemoryCandidate | None:
    """The correction in full, or None. `earlier`: the latest first."""
    new = candidate.content.partition(" ")[2]
    instead = _INSTEAD_OF.match(exchange.user_text, candidate.span[1])
    for said in earlier:
        old = said.triple.value
        if not single_valued(said.triple.predicate) or not _of_one_sort(old, new):
            continue
        if instead is not None and not same_claim(instead["old"].strip(), old):
            continue
        again, times = re.subn(re.escape(old), lambda _: new, said.quote, count=1, flags=re.IGNORECASE)
        found = extract(SourceExchange(again, exchange.now)) if times else []
        for each in found:
            if _is_about(each, said.triple):
                return replace(
                    each,
                    kind="correction",
                    provenance_type=Provenance.CORRECTION,
                    quote=candidate.quote,
                    span=candidate.span,
                    secret=each.secret or candidate.secret,
                )
    return None


def _is_about(candidate: MemoryCandidate, old: Triple) -> bool:
    new = candidate.triple
    return new is not None and (new.subject, new.predicate) == (old.subject, old.predicate) and new.value != old.value


def _of_one_sort(old: str, new: str) -> bool:
    days = bool(_CALENDAR.search(old)) == bool(_CALENDAR.search(new))
    return days and any(char.isdigit() for char in old) == any(char.isdigit() for char in new)
