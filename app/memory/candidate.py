"""What extraction finds in one exchange, before ingest decides what becomes of it; and how a candidate is made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from app.languages import LANGUAGES, Language, language
from app.memory.extract_grammar import EDGES, capital, inner, words
from app.memory.secrets import looks_secret
from app.memory.text import normalise, slug
from app.store.kinds import GUESSED, LearnedKind, LearnedWay


class Provenance(IntEnum):
    """How something came to be known: `provenance_type` of seed 000 §2.2."""

    USER_STATED = 0
    SYSTEM_INFERRED = 1
    CORRECTION = 2
    PREFERENCE = 3
    FACT = 4
    INSTRUCTION = 5
    TOOL_OUTPUT = 6

    @classmethod
    def of_role(cls, role: str | None) -> Provenance:
        """The provenance of a raw message: the user's own words, a tool's, or else the model's."""
        if role == "user":
            return cls.USER_STATED
        if role in {"tool", "function"}:
            return cls.TOOL_OUTPUT
        return cls.SYSTEM_INFERRED


class Triple(Struct, frozen=True):
    """(subject, predicate, value): `user lives_in Lisbon`. The subject is `user` or a relation such as `wife`."""

    subject: str
    predicate: str
    value: str


class Ended(Struct, frozen=True):
    """What was so and is not any more: `user works_at Acme` of "I left Acme".

    Matches the triples in force of that subject. `predicate` None: whatever is said of the subject with this value;
    `value` None: whatever the value is. `since`: from when it is not so, where the words say so.
    """

    subject: str
    predicate: str | None
    value: str | None
    since: datetime | None = None


class MemoryCandidate(Struct, frozen=True):
    """One statement worth remembering.

    `content`: short, without a grammatical person ("Lives in Lisbon"). `quote`: the user's own words, and `span` their
    place (start, end, in characters) in the user's message as it came; both are empty for a tool call. `confidence` and
    `importance` in 0..1. `explicit`: the user asked that it be remembered. `secret`: looks like a credential or a card
    number, which ingest refuses unless told otherwise. `when`: ISO date (or year, month) of an event. `since`, `until`: from
    and up to when it is so, where the words say so. `ends`: what this statement closes; it may say something new besides ("I'm
    freelancing now"), or nothing but the end ("I left Acme"). `doubts`: predicates that it puts in doubt (moved to another
    city: the commute, the gym; the table is app/memory/doubts.txt). `way`: who found it.
    """

    content: str
    kind: LearnedKind
    provenance_type: Provenance
    quote: str
    span: tuple[int, int]
    confidence: float
    importance: float
    explicit: bool = False
    triple: Triple | None = None
    entity_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    when: str | None = None
    secret: bool = False
    since: datetime | None = None
    until: datetime | None = None
    ends: tuple[Ended, ...] = ()
    doubts: tuple[str, ...] = ()
    way: LearnedWay = "rule"
    speaker: str | None = None
    """The other named speaker of the session whom the statement is about; None: the user."""


class SourceExchange(Struct, frozen=True):
    """What is learned from: one message of the user and what followed.

    `user_text`: the user's message as it came, blocks injected by Mneme included (they are recognised and skipped).
    `now`: when it was said, with the user's time zone if that is known; "tomorrow" is counted from there. `tool_calls`:
    as in an OpenAI assistant message. `assistant_text` is context for a helper LLM only, never a source; so are `instructions`,
    what the tenant wants noted besides. `number`: how many turns the session had before it. `in_role_play`: one of these
    began a role play.
    """

    user_text: str
    now: datetime
    tool_calls: Sequence[Mapping[str, Any]] = field(default=())
    assistant_text: str = ""
    instructions: str = ""
    number: int = 0
    in_role_play: bool = False
    speaker: str | None = None
    """The other named speaker of the session who wrote the message; None: the user."""


# --- what a change puts in doubt -----------------------------------------------------------------------------------------
# Who moved to another city may go to another gym (`doubts.txt` has the table and its reasons).


@cache
def _table() -> dict[str, tuple[str, ...]]:
    lines = Path(__file__).with_name("doubts.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.partition("#")[0].partition(" => ") for line in lines if not line.startswith("#"))
    return {changed.strip(): tuple(doubted.split()) for changed, arrow, doubted in rows if arrow}


def ends_with(ended: str) -> frozenset[str]:
    """The predicates of which what was said in one breath with something that ended ends with it."""
    return frozenset(name.rstrip("!") for name in _table().get(ended, ()) if name.endswith("!"))


def with_doubts(candidate: MemoryCandidate) -> MemoryCandidate:
    """The candidate with the predicates that it puts in doubt; one that changes nothing doubts nothing."""
    changed = {each.predicate for each in candidate.ends if each.predicate and each.subject == "user"}
    if candidate.kind == "correction" and candidate.triple is not None and candidate.triple.subject == "user":
        changed.add(candidate.triple.predicate)
    rows = [[name.rstrip("!") for name in _table().get(each, ())] for each in sorted(changed)]
    # "I left London": the home or the employer; in doubt is only what either would put in doubt.
    doubted = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    said = {candidate.triple.predicate} if candidate.triple else set()
    return replace(candidate, doubts=tuple(name for name in doubted if name not in changed | said))


# --- candidates in the making --------------------------------------------------------------------------------------------

_MAX_TOOL_CALLS = 4
"""Of one exchange that are remembered; an agent's loop has its own history."""
EXPLICIT_IMPORTANCE = 0.9
EXPLICIT_CONFIDENCE = 0.95
"""Of what the user asks to remember, at least."""
_TOOL_IMPORTANCE = 0.3
_TOOL_CONFIDENCE = 0.7

PROVENANCE: Mapping[LearnedKind, Provenance] = {
    "preference": Provenance.PREFERENCE,
    "fact": Provenance.FACT,
    "instruction": Provenance.INSTRUCTION,
    "correction": Provenance.CORRECTION,
    "event": Provenance.USER_STATED,
    "tool_outcome": Provenance.TOOL_OUTPUT,
}
"""Kind of statement → `provenance_type` of seed 000 §2.2. What the user asks to remember is `user_stated`."""
IMPORTANCE: Mapping[LearnedKind, float] = {
    "preference": 0.65,
    "fact": 0.7,
    "instruction": 0.85,
    "correction": 0.8,
    "event": 0.55,
    "tool_outcome": _TOOL_IMPORTANCE,
}
"""Of a statement that nobody stressed."""


def make_candidate(
    content: str, kind: LearnedKind, *, importance: float, confidence: float, tag: str, value: str = "", **more: Any
) -> MemoryCandidate:
    """A candidate that does not know yet where it was said."""
    return MemoryCandidate(
        normalise(capital(content)),
        kind,
        PROVENANCE[kind],
        "",
        (0, 0),
        confidence,
        importance,
        entity_ids=entities(content, value),
        tags=(tag,),
        **more,
    )


# --- entities ------------------------------------------------------------------------------------------------------------

_NAME_RUN = re.compile(r"(?<!^)\b[A-Z][\w&'-]*(?: (?:of |de |the )?[A-Z][\w&'-]*)*")
_NOUN = re.compile(r"[a-z][a-z-]{2,}")
_ENTITIES = 5


def entities(content: str, value: str) -> tuple[str, ...]:
    """Ids of what a statement is about, as in seed 001 §4.2 ("blog", "posts"): names, else the words of its value."""
    runs = [match[0] for match in _NAME_RUN.finditer(content) if match.start() > 0]
    if not runs:
        plain = words("pointing") | words("small") | words("not_entities")
        runs = [word for word in _NOUN.findall(value.lower()) if word not in plain]
    slugs = (slug(run.lower().removesuffix("'s")) for run in runs)
    return tuple(dict.fromkeys(each for each in slugs if each))[:_ENTITIES]


# --- tool calls ----------------------------------------------------------------------------------------------------------

_ARGUMENTS = 4
_ARGUMENT_CHARS = 60


def tool_candidates(exchange: SourceExchange) -> list[MemoryCandidate]:
    """What was done with tools (seed 001 §4.2: an episode of what was done), name and short arguments only."""
    found = []
    for call in list(exchange.tool_calls)[:_MAX_TOOL_CALLS]:
        body = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not body["name"]:
            continue
        arguments = _arguments(body.get("arguments"))
        told = ", ".join(f"{key} {value}" for key, value in arguments[:_ARGUMENTS])
        content = f"Used the tool {body['name']}" + (f" with {told}" if told else "")
        draft = make_candidate(
            content, "tool_outcome", importance=_TOOL_IMPORTANCE, confidence=_TOOL_CONFIDENCE, tag="tool", value=told
        )
        found.append(replace(draft, secret=looks_secret("; ".join(f"{key}: {value}" for key, value in arguments))))
    return found


def _arguments(raw: Any) -> list[tuple[str, str]]:
    try:
        values = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return []
    if not isinstance(values, Mapping):
        return []
    plain = [(str(key), str(value)) for key, value in values.items() if isinstance(value, str | int | float)]
    return [(key, " ".join(value.split())) for key, value in plain if 0 < len(value) <= _ARGUMENT_CHARS]


# --- guesses: "I might move to Berlin", "I think I'm allergic to nuts", "I'm thinking about a dog" -----------------------
# Nobody vouches for it, so it begins in the session (L1) and has to prove of use (seed 000 §5). It contradicts nothing, ends
# nothing and has no triple. The hedges are data: `[guesses]` of app/languages/<code>.txt.

GUESS_CONFIDENCE = 0.4
"""Below the 0.5 of what is plainly concluded (seed 000 §5.4, step 3): the user is in two minds."""
_GUESS_IMPORTANCE = 0.4
"""Between what a tool did (0.3) and what happened on a day (0.55)."""
MAX_WORDS, MAX_CHARS, MAX_HAN = 12, 100, 20
"""As long as a value of a fact may be (`features/multilingual`)."""

_SAID = "{said}"
_HAN = re.compile(r"[\u3400-\u9fff]")


class _Rule(NamedTuple):
    """`label`: what stands before and after what is guessed. `states`: that is a statement which a rule of facts must know."""

    pattern: re.Pattern[str]
    label: str
    states: bool


@cache
def _rules(code: str) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(re.compile(pattern.replace("…", "(?P<v>.+)"), re.IGNORECASE), gives, _SAID in gives)
        for pattern, gives in language(code).guesses
    )


@cache
def _labels() -> tuple[str, ...]:
    """What each language puts before a statement that was hedged."""
    return tuple({rule.label.replace(_SAID, "") for code in LANGUAGES for rule in _rules(code) if rule.states})


def guessed(text: str) -> str | None:
    """The statement of which a memory says that it may be so ("Perhaps: …"); None where it says no such thing."""
    return next((text[len(label) :] for label in _labels() if text.startswith(label)), None)


def vouched(guess: str, text: str) -> bool:
    """Whether a statement says without a doubt what a guess says."""
    said = guessed(guess)
    return said is not None and said.casefold() == text.casefold()


def guess(body: str, spoken: Language, facts: Callable[[str], Iterable[MemoryCandidate]]) -> list[MemoryCandidate]:
    """What a hedged clause says. `facts`: what the rules find in a statement."""
    for rule in _rules(spoken.code):
        match = rule.pattern.fullmatch(body)
        if match is None:
            continue
        groups = match.groupdict()
        if not rule.states:
            told = _weighed(groups["v"], spoken)
            if told is not None:
                content = rule.label.format(v=told)
                return [
                    as_guess(make_candidate(content, "fact", importance=1.0, confidence=1.0, tag="guess", value=told))
                ]
            continue
        between = "" if spoken.texts.get("spaces") == "no" else " "
        said = groups["v"] if groups.get("v") else f"{groups['a']}{between}{groups['b']}"
        # What orders something, or sets something right, is no guess.
        stated = [each for each in facts(said) if each.kind in GUESSED and not each.ends]
        if stated:
            return [as_guess(replace(each, content=normalise(rule.label.format(said=each.content)))) for each in stated]
    return []


def as_guess(candidate: MemoryCandidate) -> MemoryCandidate:
    """The same, with nobody to vouch for it."""
    return replace(
        candidate,
        provenance_type=Provenance.SYSTEM_INFERRED,
        confidence=min(candidate.confidence, GUESS_CONFIDENCE),
        importance=min(candidate.importance, _GUESS_IMPORTANCE),
        explicit=False,
        triple=None,
        since=None,
        until=None,
        doubts=(),
    )


def placed(found: Iterable[MemoryCandidate], message: str, start: int, end: int) -> list[MemoryCandidate]:
    """With the place in the message where it was said."""
    quote = message[start:end]
    return [
        replace(each, quote=quote, span=(start, end), secret=looks_secret(quote) or looks_secret(each.content))
        for each in found
    ]


def place_draft(draft: MemoryCandidate, message: str, start: int, end: int, *, explicit: bool) -> MemoryCandidate:
    """Return a draft with its place in the message. `explicit`: the user asked that it be remembered."""
    (candidate,) = placed([draft], message, start, end)
    if not explicit:
        return candidate
    corrects = draft.kind == "correction"
    return replace(
        candidate,
        explicit=True,
        provenance_type=draft.provenance_type if corrects else Provenance.USER_STATED,
        importance=max(draft.importance, EXPLICIT_IMPORTANCE),
        confidence=max(draft.confidence, EXPLICIT_CONFIDENCE),
    )


def _weighed(value: str, spoken: Language) -> str | None:
    told = " ".join(value.strip(EDGES + "，、：。；").split())
    fits = len(told.split()) <= MAX_WORDS and len(told) <= MAX_CHARS and len(_HAN.findall(told)) <= MAX_HAN
    if not fits or not any(each.isalnum() for each in told):
        return None
    if spoken.pattern("no_guess").search(told) or spoken.pattern("pointing").match(told):
        return None
    return inner(told) if spoken.code == "en" else told
