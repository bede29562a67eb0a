"""The page of a call in words and figures: what its account says, in plain words; its prompt as it was received and as it was
sent; how its tokens were spent, and what became of each candidate. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import Struct, field

from app.context.assemble import neutralise
from app.context.score import PROFILES, THING_WEIGHT
from app.gateway.dialects import dialect_of

# --- words ---------------------------------------------------------------------------------------------------------------


class WordMeaning(NamedTuple):
    """`name`: two or three words for a list; `words`: a sentence for who asks why."""

    name: str
    words: str


REASONS: Mapping[str, WordMeaning] = {
    # `context.pack.Reason`
    "chosen": WordMeaning("In the prompt", "Chosen: it scored high enough and there was room for it."),
    "over_budget": WordMeaning("No room", "It did not fit what was left of the budget; what scored better came first."),
    "duplicate": WordMeaning("Said already", "Another item in the prompt has the same words."),
    "visible": WordMeaning(
        "There already", "It stands in the prompt already: in the conversation, or in an earlier block."
    ),
    "below_floor": WordMeaning("Scored too low", "Its score is below the least that is taken."),
    "suppressed": WordMeaning("Not valid", "It was forgotten, erased or superseded."),
    "not_asked": WordMeaning("Not asked for", "Nothing that the message says bears on it."),
    "outranked": WordMeaning("Outranked", "The business's own database says otherwise, and is the authority."),
}
"""Why an item is in the prompt, or is not."""

WHY: Mapping[str, str] = {
    "asked": "asked for",
    "whole": "all of it was asked for",
    "topic": "bears on what was spoken of",
    "words": "its words were used",
    "worth": "its memory was found",
    "again": "said again: its block went",
}
"""Why a fact was said (`context.bearing.Why`)."""

MEMORY: Mapping[str, WordMeaning] = {
    "ok": WordMeaning("ok", "Memory did all that it was asked for."),
    "degraded": WordMeaning("degraded", "The call was answered, but with less of memory than it should have had."),
    "bypass": WordMeaning("bypass", "The call passed through without memory."),
}
"""What memory had to do with a call."""

CAUSES: Mapping[str, str] = {
    "deadline": "memory took longer than it is given",
    "busy": "the server had no time for another search: history and what is known of the user alone",
    "store": "the database could not be reached",
    "embeddings": "the question's vector came too late: words alone were searched",
    "memory": "memory failed; the server's log says how",
    "failure": "Mneme failed; the server's log says how",
    "entities": "names could not be looked up in time",
    "domain": "the business's own database did not answer in time",
    "cards": "the cards that were asked for could not be read in time",
    "paging": "the prompt could not be shortened, and went out whole",
    "faults": "what the model asked for could not be read",
    "no-tools": "the upstream takes no tools; it was sent again without them",
    "too-long": "the upstream refused the compiled prompt for its length; it was sent again without memory",
    "limits": "limits could not be checked",
    "unreadable-answer": "the upstream compressed the answer in a way that Mneme cannot decode",
    "unstored": "the turn could not be stored",
    "memory-off": "the client asked for no memory",
    "not-chat": "no chat completion: passed through as it came",
    "not-understood": "its messages could not be read, so it passed through as it came",
    "background": "a background response: passed through as it came",
    "no-user": "the request named no user, so nobody's memory was searched",
    "unknown-response": "the response it follows is not known here: a session began with it",
    "replayed": "sent again under its Idempotency-Key: went out as the first time",
}
"""`x-mneme-reason`."""

OUTCOMES: Mapping[str, tuple[str, str]] = {
    "complete": ("complete", "good"),
    "broken": ("broken off by the upstream", "bad"),
    "gone": ("client went away", "warn"),
    "cancelled": ("cancelled", "warn"),
    "failed": ("no answer", "bad"),
}
"""How a call ended, and how that looks."""

SIGNALS: Mapping[str, WordMeaning] = {
    "text": WordMeaning(
        "words", "How well its words, and those of its neighbours, match the question (BM25; 1 is the best)."
    ),
    "vector": WordMeaning(
        "meaning", "How near its meaning, and its neighbours', is to the question (cosine; 1 is the best)."
    ),
    "own_words": WordMeaning("own words", "The user said it, not a model."),
    "remembered": WordMeaning("remembered", "It is a memory: confidence, times the authority of where it comes from."),
    "speaker": WordMeaning("speaker", "The question names who said it."),
    "timely": WordMeaning("time", "It is of the time that the question speaks of, or near it."),
    "excess": WordMeaning("length", "How much longer than 60 tokens the message is; it counts against it."),
    "digest": WordMeaning("sums up", "It sums up much where one thing is asked for; it counts against it."),
    "recap": WordMeaning("recap", "A session's summary, and the question asks what a conversation was about."),
    "freshness": WordMeaning("freshness", "How lately it was used or made."),
    "entity_match": WordMeaning("same things", "It is about something that the question is about."),
    "entity_overlap": WordMeaning("things shared", "The share of things that it and the question have in common."),
    "similarity": WordMeaning("meaning", "How near its meaning is to the question's (cosine)."),
    "semantic_similarity": WordMeaning("meaning", "How near its meaning is to the question's (cosine)."),
    "frequency": WordMeaning("use", "How often it was used, against what is used most."),
    "authority": WordMeaning("authority", "Confidence, times the authority of where it comes from."),
    "recency": WordMeaning("recency", "1 today, 0 after a year without use."),
    "importance": WordMeaning("importance", "The memory's importance at that time."),
    "access_frequency": WordMeaning("use", "Uses, of 20."),
    "temporal_relevance": WordMeaning("time", "How recent it is, or whether it is of the time that is asked for."),
    "reinforcement": WordMeaning("said again", "How often it was said again."),
}
"""The parts of a score (`context.score.SIGNALS`)."""

TIERS = ("working", "session", "episodic", "semantic", "procedural")
"""Tiers 0 to 4 (docs/explanation/memory.md)."""
CHANNELS: Mapping[str, str] = {
    "text": "words",
    "vector": "meaning",
    "entity": "the things it is about",
    "time": "the time asked for",
    "recent": "lately said",
    "summary": "summaries",
}
"""What brought an item."""

TASKS: Mapping[str, str] = {
    "continuation": "a conversation that goes on",
    "knowledge_intensive": "a question that asks for knowledge",
    "new_session": "a new conversation",
    "tool_heavy": "work with tools",
}

REBASED: Mapping[str, str] = {
    "items_gone": "something that earlier blocks said is no longer so",
    "budget_spent": "earlier blocks had filled their budget",
}

UNPAGED: Mapping[str, str] = {
    "deadline": "shortening took too long",
    "failed": "shortening failed; the server's log says how",
    "dialect": "calls of this dialect are not paged",
    "upstream-holds": "the upstream holds the conversation, not the client",
    "history-supplied": "Mneme supplies the history, and shortens it already",
}

LEVELS = ("whole", "detailed", "compact", "a line", "left out")
"""Fidelities L0 to L4 (seed 002 §1.2)."""


def reason(word: str) -> WordMeaning:
    """Of one that is not known, the word itself."""
    return REASONS.get(word) or WordMeaning(word.replace("_", " "), "")


def signal(name: str) -> WordMeaning:
    """As `reason`."""
    return SIGNALS.get(name) or WordMeaning(name.replace("_", " "), "")


def memory(status: str, why: str | None) -> tuple[str, str, str]:
    """A memory status as label, tone, and sentence."""
    tone = {"ok": "good", "degraded": "warn"}.get(status, "")
    known = MEMORY.get(status)
    words = known.words if known else ""
    if why:
        cause = CAUSES.get(why, why.replace("-", " "))
        words = f"{words} {cause[:1].upper()}{cause[1:]}."
    return known.name if known else status, tone, words


# --- the prompt: the same messages, and what Mneme put between -----------------------------------------------------------

Mark = Literal["own", "added", "removed"]

SHOWN_MESSAGES = 60
"""Messages of a prompt that a page shows; those that Mneme touched, and the last ones, first of all."""
SHOWN_CHARS = 12_000
"""Of one piece of a message, characters; the rest is in the download."""
COMPARED_LINES = 400
"""Most lines of a text that are compared line by line: that takes some 30 ms."""
FOLDED_CHARS = 1_200
"""From which on a text is folded."""
_BEFORE_QUOTE = re.compile(r"- \[[^\]\n]*\] |- |[^:\n]{1,32}: ")
"""The beginning of a line, before the words that it quotes: a kind, a list mark or a speaker."""


class PromptLine(NamedTuple):
    """A line of what was added; `item`: id of the candidate that it quotes."""

    text: str
    item: str | None = None


class PromptPiece(Struct, frozen=True):
    """A part of a message. `removed`: the client sent it, the upstream did not get it. `chars`: with what is not shown."""

    mark: Mark
    text: str
    chars: int
    lines: list[PromptLine] = field(default_factory=list)

    @property
    def folded(self) -> bool:
        return len(self.text) > FOLDED_CHARS and self.mark != "added"

    @property
    def rest(self) -> int:
        """Characters that are not shown."""
        return self.chars - len(self.text)


class Shown(Struct, frozen=True):
    """A message. `mark` added: all of it is Mneme's."""

    place: int
    role: str
    mark: Mark
    pieces: Sequence[PromptPiece]
    calls: str = ""

    @property
    def touched(self) -> bool:
        return self.mark != "own" or any(each.mark != "own" for each in self.pieces)


class Prompt(Struct, frozen=True):
    """`messages`: those that are shown; `omitted`: how many are not. `fields`: what else differs: name, received, sent."""

    messages: Sequence[Shown]
    omitted: int
    total: int
    fields: Sequence[tuple[str, str, str]] = ()
    added: int = 0
    """Characters that Mneme added."""

    @property
    def quoted(self) -> set[str]:
        """Ids of the candidates that lines of it quote."""
        lines = (line for each in self.messages for piece in each.pieces for line in piece.lines)
        return {line.item for line in lines if line.item is not None}


class _Message(Struct):
    role: str
    text: str
    calls: str


def read(body: bytes) -> dict[str, Any] | None:
    """A JSON object; None: it is none, or nested deeper than it can be compared and written (254 levels)."""
    try:
        found = orjson.loads(body)
        orjson.dumps(found)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return found if isinstance(found, dict) else None


def messages_of(document: Mapping[str, Any] | None, path: str) -> list[Mapping[str, Any]]:
    """The messages of a request, in the shape of chat completions; none where it has none."""
    dialect = dialect_of("POST", path.partition("?")[0])
    if document is None or dialect is None:
        return []
    try:
        return [each for each in dialect.messages(document) or () if isinstance(each, Mapping)]
    except (KeyError, TypeError, ValueError, AttributeError):  # bodies of anything
        return []


def text_of(content: object) -> str:
    """Of a message's content what is text, and of the rest what it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _json(content)
    parts = []
    for each in content:
        if isinstance(each, Mapping) and isinstance(each.get("text"), str):
            parts.append(each["text"])
        else:
            kind = each.get("type") if isinstance(each, Mapping) else None
            parts.append(f"[{kind or 'part'}: {len(_json(each)):,} characters]")
    return "\n\n".join(parts)


def last_said(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The text of the user's last message."""
    return next((text_of(each.get("content")) for each in reversed(messages) if each.get("role") == "user"), None)


def compare(
    received: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]], quoted: Mapping[str, str] | None = None
) -> Prompt:
    """What was sent, message by message, each marked with what it was received as. `quoted`: neutralised texts of candidates,
    with their ids.

    Aligned from the end, for what Mneme supplies stands before what the client said.
    """
    was, now = [_message(each) for each in received], [_message(each) for each in sent]
    pairs: list[tuple[_Message | None, _Message]] = []
    left, spare = len(was), max(0, len(now) - len(was))
    for each in reversed(now):
        one = was[left - 1] if left else None
        if one is not None and (_alike(one, each) or not spare):
            pairs.append((one, each))
            left -= 1
        else:
            pairs.append((None, each))
            spare -= 1
    pairs.reverse()
    made = [_shown(place, one, each, quoted or {}) for place, (one, each) in enumerate(pairs, 1)]
    made = [*(_gone(each) for each in was[:left]), *made]
    _each_once(made)
    added = sum(piece.chars for each in made for piece in each.pieces if piece.mark == "added")
    kept = _most_telling(made)
    return Prompt(kept, len(made) - len(kept), len(made), added=added)


def other_fields(received: Mapping[str, Any] | None, sent: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Fields beside the messages that Mneme changed: name, as received, as sent."""
    if received is None or sent is None:
        return []
    names = [name for name in {**received, **sent} if name not in ("messages", "input")]
    return [
        (
            name[:100],
            _json(received[name])[:SHOWN_CHARS] if name in received else "–",
            _json(sent.get(name))[:SHOWN_CHARS],
        )
        for name in names
        if received.get(name) != sent.get(name)
    ]


def _most_telling(made: Sequence[Shown]) -> list[Shown]:
    if len(made) <= SHOWN_MESSAGES:
        return list(made)
    last = range(len(made) - SHOWN_MESSAGES // 3, len(made))
    touched = [n for n, each in enumerate(made) if each.touched and n not in last][-SHOWN_MESSAGES // 3 :]
    first = [n for n in range(len(made)) if n not in last and n not in touched]
    chosen = {*last, *touched, *first[: SHOWN_MESSAGES - len(last) - len(touched)]}
    return [each for n, each in enumerate(made) if n in chosen]


def _alike(one: _Message, other: _Message) -> bool:
    return one.role == other.role and one.calls == other.calls and one.text in other.text


def _message(given: Mapping[str, Any]) -> _Message:
    calls = given.get("tool_calls") or given.get("function_call")
    return _Message(str(given.get("role") or "?")[:40], text_of(given.get("content")), _json(calls) if calls else "")


def _shown(place: int, was: _Message | None, now: _Message, quoted: Mapping[str, str]) -> Shown:
    calls = now.calls[:SHOWN_CHARS]
    if was is None:
        return Shown(place, now.role, "added", [_piece("added", now.text, quoted)] if now.text else [], calls)
    return Shown(place, now.role, "own", _differing(was.text, now.text, quoted), calls)


def _gone(was: _Message) -> Shown:
    return Shown(0, was.role, "removed", [_piece("removed", was.text, {})], was.calls[:SHOWN_CHARS])


def _differing(was: str, now: str, quoted: Mapping[str, str]) -> list[PromptPiece]:
    """`now`, cut into what it was and what was added; between a common beginning and end what was removed."""
    if was == now:
        parts: list[tuple[Mark, str]] = [("own", now)]
    elif was and (at := now.rfind(was)) >= 0:
        parts = [("added", now[:at]), ("own", was), ("added", now[at + len(was) :])]
    else:
        head = _common(was, now)
        tail = _common(was[head:][::-1], now[head:][::-1])
        parts = _by_lines(was, now, head, tail) or [
            ("own", now[:head]),
            ("removed", was[head : len(was) - tail]),
            ("added", now[head : len(now) - tail]),
            ("own", now[len(now) - tail :]),
        ]
    return [_piece(mark, text, quoted) for mark, text in parts if text]


def _by_lines(was: str, now: str, head: int, tail: int) -> list[tuple[Mark, str]] | None:
    """The same for texts of many lines: which are new, which are gone. None: it would be no clearer, or take long."""
    head = now.rfind("\n", 0, head) + 1
    end = now.find("\n", len(now) - tail)
    tail = len(now) - end - 1 if end >= 0 else 0
    one = was[head : len(was) - tail].splitlines(keepends=True)
    other = now[head : len(now) - tail].splitlines(keepends=True)
    if not 1 < max(len(one), len(other)) <= COMPARED_LINES:
        return None
    parts: list[tuple[Mark, str]] = [("own", now[:head])]
    for kind, i, j, m, n in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(("own", "".join(other[m:n])))
        else:
            parts += [("removed", "".join(one[i:j])), ("added", "".join(other[m:n]))]
    return [*parts, ("own", now[len(now) - tail :])]


def _common(one: str, other: str) -> int:
    """Characters that both begin with; by halves, for texts of megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _piece(mark: Mark, text: str, quoted: Mapping[str, str]) -> PromptPiece:
    cut = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS]
    lines = [PromptLine(each, _quotes(each, quoted)) for each in cut.strip("\n").split("\n")] if mark == "added" else []
    return PromptPiece(mark, cut, len(text), lines)


def _each_once(made: Sequence[Shown]) -> None:
    """A candidate is led to from where it stands first: ids are there once."""
    seen: set[str] = set()
    for piece in (piece for each in made for piece in each.pieces):
        for n, line in enumerate(piece.lines):
            if line.item is not None and line.item in seen:
                piece.lines[n] = PromptLine(line.text)
            elif line.item is not None:
                seen.add(line.item)


def _quotes(line: str, quoted: Mapping[str, str]) -> str | None:
    """Return the id of the candidate that a line quotes; brackets behind the text (a day, later words) do not count."""
    before = _BEFORE_QUOTE.match(line)
    if before is None or not quoted:
        return None
    text = line[before.end() :]
    while text:
        if (item := quoted.get(text)) is not None:
            return item
        text = text.rpartition(" (")[0]
    return None


def quotable(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Texts of the candidates that stand in the prompt, in this turn's block or an earlier one, with their ids."""
    stand = [each for each in items if each["chosen"] or each["reason"] == "visible"]
    return {neutralise(each["text"]): str(each["id"]) for each in stand if each.get("text")}


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


# --- tokens and candidates -----------------------------------------------------------------------------------------------

BAR = 1000.0
"""Width of a bar in units of its drawing; the page scales it."""
LEAST = 2.0
"""Narrowest part of a bar, units: what is there can be seen."""
PAGE = 30
"""Candidates on a page."""
TEXT_CHARS = 600
"""Of a candidate's text, characters that are shown unfolded."""
LONGEST_CHARS = 20_000
"""Of a candidate's text, characters at most."""
SCORE_SLACK = 0.01
"""How far the parts of a score, each rounded, may be from its whole."""


class Section(NamedTuple):
    """A part of the window. `tone`: class of its colour; `of_memory`: Mneme put it there."""

    key: str
    name: str
    tokens: int
    tone: str
    words: str
    budget: int | None = None
    of_memory: bool = False


class Segment(NamedTuple):
    """A section, drawn: units from the left, units wide."""

    section: Section
    x: float
    width: float


class Spending(Struct, frozen=True):
    """`sections`: all of the window, in the order of the prompt; the last two are no part of it (`sent`)."""

    sections: Sequence[Section]
    window: int
    prompt: int
    added: int

    @property
    def sent(self) -> list[Section]:
        """The sections of the prompt itself."""
        return [each for each in self.sections if each.key not in ("reserve", "free")]

    @property
    def empty(self) -> list[Section]:
        return [each for each in self.sections if not each.tokens]

    def share(self, section: Section, of: int) -> float:
        return section.tokens / of if of else 0.0


NOTES: Mapping[str, tuple[str, str]] = {
    "profile": ("Tenant profile", "What every prompt is told about the tenant."),
    "wishes": ("Standing wishes", "What the user has asked for always, in their own words."),
    "facts": ("Facts of the user", "What is known of the user and bears on the message."),
    "questions": ("Question to the user", "A memory in doubt, put to the user for confirmation."),
    "domain": ("Business records", "What the business's own database says of the things that were named."),
    "conflicts": ("Conflicts", "Where a memory and the records contradict each other."),
    "unclear": ("Unclear names", "Which of several things is meant."),
    "working": ("Working memory", "What tools gave in turns that the history leaves out."),
    "cards": ("Cards", "Cards that the message asks for."),
}
"""Sections of a memory block beside the memories."""


def spending(context: Mapping[str, Any]) -> Spending:
    """Where the window's tokens went, of an explained compile."""
    budget, sections = context["budget"], context.get("sections") or {}
    added = int(context.get("tokens") or 0)
    history, live = int(budget.get("history", 0)), int(budget.get("live", 0))
    made = [
        Section("system", "System prompt", int(budget.get("system", 0)), "c-part-system", "The client's, or the session's."),
        Section("tools", "Tools", int(budget.get("tools", 0)), "c-part-tools", "Definitions of what the model may call."),
        Section(
            "history", "History", history, "c-part-history", "Earlier turns that Mneme supplied.",
            sections.get("history", {}).get("budget"), True,
        ),
        Section("live", "Earlier memory", live, "c-part-live", "Blocks of earlier turns, again byte for byte.", None, True),
    ]  # fmt: skip
    block = max(0, added - history - live)
    beside = []
    for key, (name, meaning) in NOTES.items():
        if key in sections:
            told = sections[key]
            beside.append(
                Section(key, name, int(told.get("tokens", 0)), "c-part-notes", meaning, told.get("budget"), True)
            )
    memories = max(0, block - sum(each.tokens for each in beside))
    room = sections.get("memories", {}).get("budget")
    made += beside
    made.append(
        Section(
            "memories", "Memories", memories, "c-part-memories",
            "What was found for this question, with the lines around it.", room, True,
        )
    )  # fmt: skip
    made.append(
        Section("client", "Client's messages", int(budget.get("client", 0)), "c-part-client", "What the client sent.")
    )
    prompt = sum(each.tokens for each in made)
    window, reserve = int(budget.get("window", 0)), int(budget.get("reserve", 0))
    made.append(Section("reserve", "Kept for the answer", reserve, "c-part-reserve", "The model may answer so much."))
    made.append(Section("free", "Free", max(0, window - prompt - reserve), "c-part-free", "Nobody needed it."))
    return Spending(made, window, prompt, added)


def segments(sections: Sequence[Section]) -> list[Segment]:
    """The sections as parts of a bar that they fill together; what has tokens is at least `LEAST` wide."""
    told = [each for each in sections if each.tokens > 0]
    whole = sum(each.tokens for each in told)
    if not whole:
        return []
    room = BAR - LEAST * len(told)
    x, made = 0.0, []
    for each in told:
        part = LEAST + max(0.0, room) * each.tokens / whole
        made.append(Segment(each, round(x, 2), round(part, 2)))
        x += part
    return made


class SignalPart(NamedTuple):
    """A signal of a candidate. `share`: of a bar, 0..1. `adds`: to the score; None where the weights of then are not known."""

    name: str
    words: str
    value: float
    share: float
    adds: float | None


class CandidateRow(Struct, frozen=True):
    item: Mapping[str, Any]
    reason: WordMeaning
    parts: Sequence[SignalPart]
    text: str | None
    rest: int
    """Characters that are not shown."""
    channels: Sequence[str]

    @property
    def chosen(self) -> bool:
        return bool(self.item["chosen"])

    @property
    def folded(self) -> bool:
        return self.text is not None and len(self.text) > TEXT_CHARS


def rows(items: Sequence[Mapping[str, Any]], strategy: str, highest: float) -> list[CandidateRow]:
    """Candidates as they are shown. `highest`: the largest value of any signal, at least 1."""
    return [_row(each, strategy, highest) for each in items]


def highest(items: Sequence[Mapping[str, Any]]) -> float:
    """The largest value of any signal, at least 1: all bars have one scale."""
    return max((abs(value) for each in items for value in each["signals"].values()), default=1.0) or 1.0


def _row(item: Mapping[str, Any], strategy: str, scale: float) -> CandidateRow:
    weights = weights_of(item, strategy)
    parts = [
        SignalPart(
            signal(name).name,
            signal(name).words,
            value,
            min(1.0, abs(value) / max(scale, 1.0)),
            None if weights is None else weights[name] * value,
        )
        for name, value in item["signals"].items()
        if value
    ]
    text = item.get("text")
    shown = None if text is None else text[:LONGEST_CHARS]
    rest = 0 if text is None else len(text) - len(shown or "")
    return CandidateRow(
        item,
        reason(item["reason"]),
        parts,
        shown,
        rest,
        [CHANNELS.get(each, each) for each in item["legs"]],
    )


def weights_of(item: Mapping[str, Any], strategy: str) -> Mapping[str, float] | None:
    """The weights that make the score what it is; None where those of the profile's name do not (they can be set)."""
    profile = PROFILES.get(strategy)
    if profile is None:
        return None
    weights = {**profile.weights, "entity_overlap": profile.weights.get("entity_overlap", THING_WEIGHT)}
    signals = item["signals"]
    if any(name not in weights for name in signals):
        return None
    total = sum(weights[name] * value for name, value in signals.items())
    return weights if abs(total - item["score"]) <= SCORE_SLACK else None


def picked(items: Sequence[Mapping[str, Any]], show: str) -> list[Mapping[str, Any]]:
    """Those that are asked for: chosen, dropped, or of one reason; else all."""
    if show == "all":
        return list(items)
    if show in ("chosen", "dropped"):
        return [each for each in items if each["chosen"] == (show == "chosen")]
    return [each for each in items if each["reason"] == show]
