"""What a user states in other languages than English (`app.memory.extract` finds it by its name): by the rules of
app/languages/<code>.txt, on their own words.

The method is that of the English rules (`extract`): what is quoted, pasted, asked, supposed or said by others gives nothing,
and a clause must fit a rule as a whole. The words are the user's language's, the predicates the same in all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, time
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from app.languages import Language, Sentence, language, sentences
from app.memory.candidate import (
    EXPLICIT_CONFIDENCE,
    EXPLICIT_IMPORTANCE,
    Ended,
    MemoryCandidate,
    SourceExchange,
    Triple,
    guess,
    make_candidate,
    place_draft,
    placed,
)
from app.memory.extract_clauses import masked
from app.memory.extract_dates import FoundDate, find_spoken_date, time_rules
from app.memory.extract_grammar import EDGES, capital, words
from app.memory.rules import Rule, RuleStatement, read_rule
from app.store.kinds import CORRECTED, LearnedKind

# --- rules ---------------------------------------------------------------------------------------------------------------

_COLON = re.compile("[:：]")
_NO_WORD = re.compile(r"\W+")
_FIELD = re.compile(r"\{(\w+)\}")


@cache
def fact_rules(code: str) -> tuple[Rule, ...]:
    """The rules of a language in the order in which they are tried. Raises `ValueError` for a line that is none."""
    return tuple(read_rule(pattern, statements, CHECKS) for pattern, statements in language(code).facts)


# --- what may be a value -------------------------------------------------------------------------------------------------

MAX_WORDS, MAX_CHARS = 12, 100
_EMOJI = re.compile(r"(?:[\s\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff])+$")
_HAN = re.compile(r"[\u3400-\u9fff]")
_MAX_HAN = 20
_NAME = re.compile(r"[^\W\d_][\w.'’·-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,3}")
_HAN_NAME = re.compile(r"[\u3400-\u9fff·]{1,6}")
_PARTICLES = frozenset(["de", "del", "la", "da", "do", "dos", "von", "van", "le", "du"])


def _trim(value: str, spoken: Language) -> str:
    value = _EMOJI.sub("", spoken.pattern("cut").sub("", value)).strip(EDGES + "，、：。；")
    while (shorter := spoken.pattern("tail").sub("", value).strip(EDGES + "，、")) != value:
        value = shorter
    return " ".join(value.split())


def _free(value: str, spoken: Language) -> str | None:
    value = _trim(value, spoken)
    short = 0 < len(value) <= MAX_CHARS and len(value.split()) <= MAX_WORDS and len(_HAN.findall(value)) <= _MAX_HAN
    return value if short and any(c.isalnum() for c in value) else None


def _thing(value: str, spoken: Language) -> str | None:
    found = _free(value, spoken)
    return None if found is None or spoken.pattern("pointing").match(found) else found


def _name(value: str, spoken: Language) -> str | None:
    found = _trim(value, spoken)
    if _HAN_NAME.fullmatch(found):
        return None if spoken.pattern("no_name").match(found) else found
    if not _NAME.fullmatch(found) or spoken.pattern("no_name").match(found):
        return None
    return found if all(part[0].isupper() or part in _PARTICLES for part in found.split()) else None


_AFTER_PLACE = re.compile(r"\s+(?:und|et|y|e)\s+(?=[a-zß-ÿ]).*$")
"""What goes on after a place in German, French, Spanish and Portuguese; in "Trinidad y Tobago" the next word has a capital."""


def _place(value: str, spoken: Language) -> str | None:
    found = _thing(_AFTER_PLACE.sub("", value), spoken)
    if (
        found is None
        or spoken.pattern("no_place").search(found)
        or words("software").intersection(found.casefold().split())
    ):
        return None
    return found if _HAN.search(found) or any(part[:1].isupper() for part in found.split()) else None


def _trade(value: str, spoken: Language) -> str | None:
    found = _thing(value, spoken)
    return found if found and spoken.pattern("trade").search(found) else None


def _order(value: str, spoken: Language) -> str | None:
    found = spoken.pattern("tail").sub("", " ".join(value.split()).strip(EDGES + "，。")).strip(EDGES)
    if not 3 <= len(found) <= 300 or spoken.pattern("no_order").match(found) or spoken.pattern("once").search(found):
        return None
    return found


def _day(value: str, spoken: Language) -> str | None:
    found = _free(value, spoken)
    return found if found and any(c.isdigit() for c in found) else None


def _as_is(value: str, spoken: Language) -> str | None:
    return " ".join(value.split()) or None


CHECKS: Mapping[str, Callable[[str, Language], str | None]] = {
    "free": _free,
    "thing": _thing,
    "name": _name,
    "place": _place,
    "trade": _trade,
    "order": _order,
    "day": _day,
    "as_is": _as_is,
}
"""The checks by the names that the rules use."""


# --- from clause to statement --------------------------------------------------------------------------------------------


class _Clause(NamedTuple):
    text: str
    start: int
    end: int
    corrects: bool
    explicit: bool
    greeted: bool
    hedged: bool = False


def statements(exchange: SourceExchange, code: str) -> list[MemoryCandidate]:
    """What the user says of themselves and of what they wish in their message, in its order."""
    spoken, text = language(code), masked(exchange.user_text)
    found: list[MemoryCandidate] = []
    for sentence in sentences(text):
        said = text[sentence.start : sentence.end]
        if spoken.pattern("retracted").search(said):
            found.clear()
            continue
        if spoken.pattern("fiction").search(said):
            break
        if spoken.pattern("joke").search(said):
            continue
        tasted = ""
        for clause in _clauses(text, sentence, spoken):
            drafts = [] if clause.hedged else list(_of_clause(clause, exchange, spoken))
            if not drafts:
                found += placed(_guessed(clause, exchange, spoken), exchange.user_text, clause.start, clause.end)
            if any(draft.kind == "instruction" for draft in drafts):
                drafts = [each for each in (_resolved(draft, tasted, spoken) for draft in drafts) if each is not None]
            for draft in drafts:
                if draft.kind == "preference" and draft.triple is not None:
                    tasted = draft.triple.value
                found.append(place_draft(draft, exchange.user_text, clause.start, clause.end, explicit=clause.explicit))
    return found


def _guessed(clause: _Clause, exchange: SourceExchange, spoken: Language) -> list[MemoryCandidate]:
    return guess(clause.text, spoken, lambda said: _of_clause(clause._replace(text=said), exchange, spoken))


def _clauses(text: str, sentence: Sentence, spoken: Language) -> Iterator[_Clause]:
    sentence_text = text[sentence.start : sentence.end]
    request = spoken.pattern("remember").match(spoken.pattern("lead").sub("", sentence_text, count=1))
    if sentence.asked and request is None:
        sentence_text = _cut_question(sentence_text, spoken)
    if not sentence_text or spoken.pattern("question").match(spoken.pattern("lead").sub("", sentence_text, 1)):
        return
    colon = _COLON.search(sentence_text)
    if colon and not spoken.pattern("remember").match(
        spoken.pattern("lead").sub("", sentence_text[: colon.end()], count=1)
    ):
        sentence_text = sentence_text[: colon.start()]  # what stands after it may be anybody's
    first_person, explicit, carried, greeted = False, False, "", False
    begin = 0
    doubted: int | None = None  # where "I think" stands, when a comma parts it from what is thought
    joints = [m.span() for m in spoken.pattern("joint").finditer(sentence_text)]
    for end, after in [
        *(joint for joint in joints if not _is_time(sentence_text[: joint[0]], spoken.code)),
        (len(sentence_text), len(sentence_text)),
    ]:
        piece = sentence_text[begin:end]
        lead = spoken.pattern("lead").match(piece)
        offset = sentence.start + begin + (lead.end() if lead else 0)
        body = piece[lead.end() :] if lead else piece
        begin = after
        told = f"{carried} {lead[0] if lead else ''}"
        greeted = greeted or spoken.pattern("greeting").search(told) is not None
        if spoken.pattern("condition").match(body) or spoken.pattern("others").search(body):
            return  # what follows in this sentence depends on it
        if asked := spoken.pattern("remember").match(body):
            explicit = True
            offset, body = offset + asked.end(), body[asked.end() :]
        offset, body = offset + len(body) - len(body.lstrip(" ,，")), body.strip(" ,，")
        if len(body) < 2:
            carried = told
            continue
        carried = ""
        doubt = spoken.pattern("doubt").match(body)
        if doubt is not None and not body[doubt.end() :].strip(" ,，"):
            doubted = offset
            continue
        if doubted is not None:
            body, offset, doubted = text[doubted : offset + len(body)], doubted, None
        if spoken.pattern("doubt").match(body):
            yield _Clause(" ".join(body.split()), offset, offset + len(body), False, False, greeted, hedged=True)
            continue
        own = spoken.pattern("own").match(body) is not None
        elliptic = not own and first_person and spoken.pattern("elliptic").match(body) is not None
        first_person = own or elliptic
        whole = spoken.texts.get("ellipsis", "") + body if elliptic else body
        yield _Clause(
            " ".join(whole.split()) if " " in spoken.texts.get("ellipsis", " ") else whole,
            offset,
            offset + len(body),
            spoken.pattern("corrects").search(told) is not None,
            explicit,
            greeted,
        )


_QUESTION_JOINT = re.compile(r"[,，;；]\s*(?P<mark>¿?)\s*(?:(?:y|e|et|und|also) )?")
_DOUBTING_TAG = re.compile(
    r"(?:oder|o(?! que)|ou|no|non|né|não|nicht|verdad|stimmt|richtig|gell|hein|d'accord)\b|对吗|对吧|是吗|是不是|还是",
    re.IGNORECASE,
)
"""After a comma, asks whether what stands before it is so: "Ich bin 34, oder?"."""


def _cut_question(sentence: str, spoken: Language) -> str:
    """Return what a sentence with a question mark states before it asks ("Vivo en Rosario, ¿qué hago hoy?"), or ""."""
    question, stated = spoken.pattern("question"), ""
    for joint in _QUESTION_JOINT.finditer(sentence):
        asked = sentence[joint.end() :]
        if _DOUBTING_TAG.match(asked):
            return ""
        stated = sentence[: joint.start()]
        if joint["mark"] or (question.search(asked) if spoken.code == "zh" else question.match(asked)):
            break
    return stated


def _of_clause(clause: _Clause, exchange: SourceExchange, spoken: Language) -> Iterator[MemoryCandidate]:
    text, name = clause.text, None
    bare = text
    if named := spoken.pattern("relative").match(text):
        name = make_candidate(
            spoken.texts["named"].format(Who=capital(named["who"]), name=named["name"]),
            "fact",
            importance=0.65,
            confidence=0.8,
            tag="family",
            value=named["name"],
            triple=Triple(spoken.kin[named["who"].lower()], "name", named["name"]),
        )
        bare = text[: named.end("who")] + text[named.end("name") :]
    if clause.greeted and (introduced := spoken.pattern("introduction").fullmatch(text)):
        found = _name(introduced["v"], spoken)
        if found:
            yield make_candidate(
                spoken.texts["name"].format(name=found),
                "fact",
                importance=0.9,
                confidence=0.8,
                tag="name",
                value=found,
                triple=Triple("user", "name", found),
            )
            return
    when = find_spoken_date(text, spoken.code, exchange.now)
    if made := _by_rule(text, clause, when, exchange, spoken):
        yield from made
        return
    if name is not None:
        yield name
        yield from _by_rule(bare, clause, find_spoken_date(bare, spoken.code, exchange.now), exchange, spoken)
        return
    told = _free(text, spoken) if clause.explicit else None
    if told and not spoken.pattern("advice").search(told) and (spoken.pattern("own").match(told) or when is not None):
        yield make_candidate(
            told,
            "fact",
            importance=EXPLICIT_IMPORTANCE,
            confidence=EXPLICIT_CONFIDENCE,
            tag="told",
            value=told,
            when=when.iso if when else None,
        )


def _by_rule(
    text: str, clause: _Clause, when: FoundDate | None, exchange: SourceExchange, spoken: Language
) -> list[MemoryCandidate]:
    """What the first rule gives that the text fits: without its time, or else with it."""
    for wording in dict.fromkeys((_without(text, when), text)) if when is not None else (text,):
        for rule in fact_rules(spoken.code):
            match = rule.pattern.fullmatch(wording)
            if match is not None:
                groups = {key: value or "" for key, value in match.groupdict().items()}
                candidates = [
                    _build_candidate(statement, groups, clause, when, exchange, spoken) for statement in rule.statements
                ]
                if candidates[0] is not None:
                    return [candidate for candidate in candidates if candidate is not None]
    return []


def _is_time(text: str, code: str) -> bool:
    """Is the whole text a word of time ("la semaine prochaine")?"""
    return time_rules(code).pattern.fullmatch(text.strip()) is not None


def _without(text: str, when: FoundDate) -> str:
    joined = (
        f"{text[: when.start].rstrip()} {text[when.end :].lstrip()}"
        if " " in text
        else text[: when.start] + text[when.end :]
    )
    return joined.strip(" ,，")


def _build_candidate(
    statement: RuleStatement,
    groups: dict[str, str],
    clause: _Clause,
    when: FoundDate | None,
    exchange: SourceExchange,
    spoken: Language,
) -> MemoryCandidate | None:
    name = next((group for group in statement.value if groups.get(group)), statement.value[0])
    value = statement.constant or CHECKS[statement.check](groups.get(name, ""), spoken)
    if not value and not statement.optional:
        return None
    values = {**groups, name: value or "", statement.value[0]: value or ""}

    def fill(field: re.Match[str]) -> str:
        text = values.get(field[1].lower(), "")
        return capital(text) if field[1][:1].isupper() else text

    content = " ".join(_FIELD.sub(fill, statement.content).split())
    subject = statement.subject
    if subject == "{who}":
        subject = spoken.kin.get(groups.get("who", "").lower(), groups.get("who", "").lower())
    since = None
    if when is not None and (statement.ends or statement.correction):
        since = datetime.combine(when.first, time(), exchange.now.tzinfo)
    ends = tuple(_ended(template, values, subject, since, spoken) for template in statement.ends)
    predicate = _NO_WORD.sub("_", _FIELD.sub(fill, statement.predicate or "").lower())
    single = predicate in words("single_valued") or "{what}" in (statement.predicate or "")
    denies = predicate.startswith("not_")
    changed = (statement.correction and (single or not ends or not predicate or denies)) or (single and clause.corrects)
    kind: LearnedKind = "correction" if changed and statement.kind in CORRECTED else statement.kind
    # As in English: a correction takes the place of what the same predicate said, so only of one that has one value at a time.
    stated = predicate if predicate and value and (single or kind != "correction" or denies) else None
    return make_candidate(
        content,
        kind,
        importance=statement.importance,
        confidence=statement.confidence,
        tag=statement.tag,
        value=value or "",
        triple=Triple(subject, stated, value or "") if stated else None,
        since=since,
        ends=ends,
    )


def _ended(told: str, groups: dict[str, str], subject: str, since: datetime | None, spoken: Language) -> Ended:
    predicate, _, field = told.partition(":")
    if "." in predicate:
        who, _, predicate = predicate.partition(".")
        kin = groups.get(who.strip("{}"), who).lower()
        subject = spoken.kin.get(kin, kin)
    value = _trim(groups.get(field.strip("{}"), ""), spoken) or None if field else None
    return Ended(subject, None if predicate == "*" else predicate, value, since)


def _resolved(draft: MemoryCandidate, tasted: str, spoken: Language) -> MemoryCandidate | None:
    """An order whose pronoun stands for what the same sentence likes or hates says that; without such a thing it says
    nothing."""
    if draft.kind != "instruction" or spoken.pattern("it").search(draft.content) is None:
        return draft
    return replace(draft, content=f"{draft.content} ({tasted})") if tasted else None
