"""Which card somebody means: "the second card from three questions ago", "that table again", "card 3 from question two".

It is the voice navigation of seed 003.

Two steps: `understand` reads a sentence, or says that it asks for no card; `pick` finds what it asks for among the cards that a
conversation showed. Cards count questions, not messages; 0 questions ago is the one that is being talked about now.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from app.features.cards.store import Indexed

MAX_ASKED_CHARS = 300
"""Longest sentence that is looked at, characters: whoever asks for a card says little else."""

MAX_ORDINAL = 999
"""Highest number of a card or a question that is looked for."""


def _list(text: str) -> list[str]:
    return text.split()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNITS = _list(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen twenty"
)
_ORDINALS = _list(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth"
    " sixteenth seventeenth eighteenth nineteenth twentieth"
)
_CARDINAL = {word: n for n, word in enumerate(_UNITS, 1)}
_ORDINAL = {word: n for n, word in enumerate(_ORDINALS, 1)}
_AMOUNTS = {"a": 1, "an": 1, "a couple of": 2, "next": 2}
_ORDINAL_DIGITS = re.compile(r"(\d{1,3})(?:st|nd|rd|th)")
_LAST = frozenset({"last", "final", "latest", "newest"})
_BEFORE = frozenset({"previous", "prior", "preceding"})
_POINTING = frozenset({"that", "this", "those", "these", "same"})
_NEAR = frozenset({"this", "these"})
_ALL = frozenset({"all", "every", "each", "both"})
_NOT_SHOWN = _words("a an any no my his her their our another some which what")
"""Before a noun: something else than a card that was shown."""

_THINGS = _words(
    "card chart table graph diagram map image picture photo gallery carousel form tile widget panel plot video"
)
"""What a card may be called by anybody; a conversation adds the words of the types that it showed."""
_PLAIN = frozenset({"card", "one", "widget", "tile"})
"""Words that say nothing of a card's type."""
_EMPTY = frozenset({"ui", "very", "exact", "other", "of", "the", "different"})
_ELSEWHERE = _words(
    "credit debit sim graphics business gift id identity birthday greeting sd memory boarding playing score loyalty membership"
    " library wild christmas phone bank travel insurance dinner dining coffee kitchen pool bedside periodic road"
)
"""Before a noun: a thing of the world, unless a question is named that showed it."""

_SHOWING = _words(
    "show open display bring pull get give go see view expand enlarge zoom repeat return select pick choose read explain"
    " describe compare tell what whats where wheres which how reopen reshow find fetch"
)
"""Words that a sentence about a card begins with."""
_BEGINNINGS = _words(
    "please can could would will you hey ok okay now and then so well i want to like let me us lets id need wanna just"
)
_AROUND = _words(
    "me us up back to at out about more again please you showed shown displayed gave sent had on screen the from before"
    " earlier above now here there once too was were is are did does do in this that conversation session chat so far say says"
    " said show shows mean means contain look like inside detail details it them my our i saw have seen price name title"
    " total number numbers and a bit closer into see of for what content contents"
)
"""What else such a sentence may hold."""
_ONCE_SHOWN = frozenset({"showed", "shown", "displayed", "gave", "saw", "seen", "earlier", "before", "above", "screen"})
_FROM_THE_BEGINNING = frozenset({"conversation", "session", "chat", "ever", "far"})
_CONNECTING = _words("from in of on for with after to at by under during")
_LINKING = _CONNECTING | _words("the my our your you showed me us gave had was that i asked shown displayed back")

_N = r"(?:\d{1,3}|" + "|".join(_UNITS) + r")"
_O = r"(?:\d{1,3}(?:st|nd|rd|th)|" + "|".join(_ORDINALS) + r")"
_Q = r"(?:questions?|turns?|answers?|reply|replies|responses?|prompts?|exchanges?|messages?|quer(?:y|ies))"
_L, _B = "(?:" + "|".join(sorted(_LAST)) + r"|most recent)", "(?:" + "|".join(sorted(_BEFORE)) + ")"
_LEAD = r"(?:(?:the|my|our|your|that|very)\s+)*"
_TAIL = r"(?:\s+(?:i|we)\s+(?:asked|had)|\s+of\s+mine)?"
_QUESTIONS: Sequence[tuple[str, re.Pattern[str]]] = [
    (name, re.compile(rf"\b{_LEAD}{form}{_TAIL}(?!\w)"))
    for name, form in (
        ("ago", rf"(?P<n>{_N}|an?|a couple of)\s+(?:more\s+)?{_Q}\s+(?:ago|back|earlier|before)"),
        ("ago", rf"back\s+(?P<n>{_N}|an?)\s+{_Q}"),
        ("end", rf"(?P<n>{_O}|next)\s+(?:to|from)\s+(?:the\s+)?last\s+{_Q}"),
        ("before_last", rf"(?:penultimate\s+{_Q}|{_Q}\s+before\s+(?:the\s+)?last(?:\s+one)?)"),
        ("last", rf"{_L}\s+{_Q}"),
        ("previous", rf"(?:{_B}\s+{_Q}|{_Q}\s+before(?:\s+(?:this|that)(?:\s+one)?)?)"),
        ("this", rf"(?:this|current|present)\s+{_Q}"),
        ("at", rf"(?P<n>{_O})\s+{_Q}"),
        (
            "at",
            rf"(?:question|turn|answer|reply|response|prompt|exchange|message|query)\s+(?:number\s+|no\s+)?#?\s*(?P<n>{_N})",
        ),
    )
]
"""Ways to name a question, the more telling ones first."""
_QUESTION = "\u00a7"
"""Stands for the question that a sentence names."""
_NO_ATTRIBUTES = _CONNECTING | _NOT_SHOWN | _SHOWING | _AROUND | _BEGINNINGS | {"the", "your", "number", _QUESTION}


class CardRequest(NamedTuple):
    """What a sentence asks for. `order`: 1 the first, -1 the last, None all; `take`: so many from there on. `kind`: words of
    the type. `question`: 1 the first of the conversation, -1 the last one that showed something; `ago`: so many questions ago;
    neither: the newest that showed such a card, or (`anywhere`) the whole conversation."""

    order: int | None = None
    take: int = 1
    kind: tuple[str, ...] = ()
    question: int | None = None
    ago: int | None = None
    anywhere: bool = False


class CardChoice(NamedTuple):
    """What was found: cards in their order and the question that they were shown with (None: several); or `why` nothing was."""

    cards: tuple[Indexed, ...]
    question: int | None
    why: str = ""


# --- understanding -------------------------------------------------------------------------------------------------------


def understand(text: str, types: Collection[str] = ()) -> CardRequest | None:
    """What a sentence asks for; None: for no card. `types`: of the cards that the conversation showed, whose words are things
    to ask for, too."""
    if len(text) > MAX_ASKED_CHARS:
        return None
    words = re.findall(r"#|\w+", text.casefold().replace("'", "").replace("\u2019", ""))
    things = _THINGS | {"one"} | {word for each in types for word in words_of(each)}
    if not any(_singular(each) in things for each in words):
        return None  # as nearly always
    where, plain = _question_of(" ".join(words))
    tokens = plain.replace("most recent", "latest").replace("#", " number ").split()
    for at, token in enumerate(tokens):
        named = _singular(token)
        if named in things and (named != "one" or where is not None):
            wanted = _phrase(tokens, at, where)
            if wanted is not None:
                return wanted
    return None


def _question_of(plain: str) -> tuple[dict[str, int] | None, str]:
    """The question that a sentence names, as fields of `CardRequest`, and the sentence with `_QUESTION` in its place."""
    for name, form in _QUESTIONS:
        match = form.search(plain)
        if match is None:
            continue
        where = _place(name, match.groupdict().get("n"))
        if where is not None:
            return where, f"{plain[: match.start()]} {_QUESTION} {plain[match.end() :]}"
    return None, plain


def _place(name: str, said: str | None) -> dict[str, int] | None:
    n = _AMOUNTS.get(said or "") or _number(said or "") or _ordinal(said or "") or 0
    match name:
        case "ago":
            return {"ago": n}
        case "at":
            return {"question": n} if n else None
        case "end":
            return {"question": -n} if n else None
        case "before_last":
            return {"question": -2}
        case "last":
            return {"question": -1}
        case "previous":
            return {"ago": 1}
        case _:
            return {"ago": 0}


class _Noun(NamedTuple):
    """The words around a thing: from `start` to `end` (not included)."""

    start: int
    end: int
    order: int | None
    take: int
    every: bool
    pointing: bool
    kind: tuple[str, ...]
    odd: bool


def _phrase(tokens: Sequence[str], at: int, where: dict[str, int] | None) -> CardRequest | None:
    noun = _noun(tokens, at)
    if noun is None:
        return None
    before, after = tokens[: noun.start], tokens[noun.end :]
    told = noun.order is not None or noun.every or noun.pointing
    plural = tokens[at] != _singular(tokens[at])
    if where is not None:
        if not _belongs(before, after, told=told):
            return None
        return CardRequest(noun.order, noun.take, noun.kind, question=where.get("question"), ago=where.get("ago"))
    rest = [each for each in (*before, *after) if each not in _BEGINNINGS]
    lead = next((each for each in before if each not in _BEGINNINGS), None)
    again = "again" in after or any(each in _ONCE_SHOWN for each in after)
    if noun.kind and noun.order is None and not again and not _NEAR.isdisjoint(tokens[noun.start : at]):
        return None  # "this picture" may be one that the user has just sent
    if (
        noun.odd
        or (lead is not None and lead not in _SHOWING)
        or any(each not in _AROUND and each not in _SHOWING for each in rest)
    ):
        return None
    if not told and not (again and noun.start < at and tokens[noun.start] == "the"):
        return None
    whole = any(each in _FROM_THE_BEGINNING or each == "showed" for each in after)
    if noun.every or (noun.order is None and plural):
        return CardRequest(None, 1, noun.kind, anywhere=noun.every and not noun.pointing)
    if noun.order is None:
        return CardRequest(-1, 1, noun.kind, anywhere=True)
    return CardRequest(noun.order, noun.take, noun.kind, anywhere=whole or noun.order < 0)


def _noun(tokens: Sequence[str], at: int) -> _Noun | None:
    """The phrase that the thing at `at` is the heart of; None for one of somebody's own, or of any."""
    start, kind = at, [] if _singular(tokens[at]) in _PLAIN else [_singular(tokens[at])]
    while start > 0 and at - start < 3 and _is_attribute(tokens[start - 1]):
        start -= 1
        if tokens[start] not in _EMPTY:
            kind.insert(0, _singular(tokens[start]))
    odd = any(each in _ELSEWHERE for each in kind)
    order: int | None = None
    take, every, pointing = 1, False, False
    while start > 0 and (_is_place(tokens[start - 1]) or tokens[start - 1] in _EMPTY | {"to", "from", "your"}):
        token = tokens[start - 1]
        if token in ("to", "from"):
            # "the second to last card": the ordinal stands before it. Else it belongs to what is before the phrase.
            if order != -1 or start < 2 or not (_ordinal(tokens[start - 2]) or tokens[start - 2] == "next"):
                break
            order = -(_ordinal(tokens[start - 2]) or 2)
            start -= 2
            continue
        if token in ("of", "other") and not (start > 1 and tokens[start - 2] in _ALL):
            break
        if (ordinal := _ordinal(token)) is not None:
            order = -ordinal if order == -1 else ordinal  # "the second last one"
        elif (number := _number(token)) is not None:
            take = number
        elif token in _LAST or token in _BEFORE:
            order = -1
        every = every or token in _ALL
        pointing = pointing or token in _POINTING
        start -= 1
    if start > 0 and tokens[start - 1] in _NOT_SHOWN and order is None:
        return None
    end = at + 1
    named = end + (end < len(tokens) and tokens[end] in ("number", "no"))
    if order is None and named < len(tokens) and (number := _number(tokens[named])) is not None:
        order, end = number, named + 1
    elif order is None and take > 1:
        pointing = pointing or "the" in tokens[start:at]
    if order is not None and order < 0 and take > 1:
        order = -take
    return _Noun(start, end, order, 1 if order is None else take, every, pointing, tuple(kind), odd)


def _belongs(before: Sequence[str], after: Sequence[str], *, told: bool) -> bool:
    """Whether a phrase and the question belong together: "… from §"; or, where it says which one, "in § … the second"."""
    if _QUESTION in after:
        between = after[: after.index(_QUESTION)]
        return all(each in _LINKING for each in between) and (told or (bool(between) and between[-1] in _CONNECTING))
    if _QUESTION in before and told:
        between = before[len(before) - before[::-1].index(_QUESTION) :]
        return all(each in _LINKING or each in _SHOWING or each in _BEGINNINGS for each in between)
    return False


def _is_attribute(token: str) -> bool:
    """A word that may tell the type of a card: not one of those that place it, nor a verb or a little word."""
    return not _is_place(token) and token not in _NO_ATTRIBUTES


def _is_place(token: str) -> bool:
    single = token in _LAST | _BEFORE | _POINTING | _ALL | {"next"}
    return single or _ordinal(token) is not None or _number(token) is not None


def _number(token: str) -> int | None:
    if token.isascii() and token.isdigit():
        return int(token) if int(token) <= MAX_ORDINAL else None
    return _CARDINAL.get(token)


def _ordinal(token: str) -> int | None:
    match = _ORDINAL_DIGITS.fullmatch(token)
    return int(match[1]) if match is not None else _ORDINAL.get(token)


# --- picking -------------------------------------------------------------------------------------------------------------


def words_of(kind: str) -> tuple[str, ...]:
    """The words of a card's type, each in the singular: `comparison_table`, `productCards`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", kind)
    return tuple(_singular(each) for each in re.findall(r"[^\W_]+", apart.casefold()))


def kind_of(words: str | None) -> tuple[str, ...]:
    """The words of a type that somebody names, but for those that say nothing of it: `product_card` and "products" are one."""
    named = words_of(words or "")
    return tuple(each for each in named if each not in _PLAIN) or named


def pick(wanted: CardRequest, shown: Iterable[Indexed], questions: int) -> CardChoice:
    """What is asked for among the cards of a conversation, in which `questions` were asked, the present one among them. Of
    answers to one question, given anew, the newest that showed cards counts."""
    cards = _newest(shown)
    if not cards:
        return CardChoice((), None, "No card was shown in this conversation.")
    alike = [each for each in cards if not wanted.kind or set(wanted.kind) <= {*words_of(each.kind), "card"}]
    what = f"{' '.join(wanted.kind)} card" if wanted.kind else "card"
    if wanted.anywhere:
        chosen = _nth(alike, wanted)
        asked = {each.question for each in chosen}
        return CardChoice(
            chosen,
            asked.pop() if len(asked) == 1 else None,
            "" if chosen else _too_few("This conversation", alike, what),
        )
    question = _asked(wanted, cards, alike, questions)
    if isinstance(question, str):
        return CardChoice((), None, question)
    own = [each for each in alike if each.question == question]
    chosen = _nth(own, wanted)
    if chosen:
        return CardChoice(chosen, question)
    others = sum(each.question == question for each in cards)
    if not own and others:
        return CardChoice((), question, f"Question {question} showed {_counted(others, 'card')}, but no {what}.")
    return CardChoice((), question, _too_few(f"Question {question}", own, what))


def _newest(shown: Iterable[Indexed]) -> list[Indexed]:
    cards = sorted(shown, key=lambda each: (each.turn_index, each.sibling, each.order))
    siblings = {(each.session_id, each.turn_index): each.sibling for each in cards}
    return [each for each in cards if siblings[each.session_id, each.turn_index] == each.sibling]


def _asked(wanted: CardRequest, cards: Sequence[Indexed], alike: Sequence[Indexed], questions: int) -> int | str:
    """The number of the question that is meant, or why there is none."""
    if wanted.ago is not None:
        question = questions - wanted.ago
    elif wanted.question is None:
        # Of none of that type the newest question with any card says so.
        question = (alike or cards)[-1].question
    elif wanted.question < 0:
        question = cards[-1].question + 1 + wanted.question
    else:
        question = wanted.question
    if 0 < question <= questions or any(each.question == question for each in cards):
        return question
    asked = f"{_counted(questions, 'question')} {'was' if questions == 1 else 'were'} asked in this conversation"
    return f"Only {asked}." if question > questions else f"That is before the first question: {asked}."


def _nth(cards: Sequence[Indexed], wanted: CardRequest) -> tuple[Indexed, ...]:
    if wanted.order is None:
        return tuple(cards)
    at = wanted.order - 1 if wanted.order > 0 else len(cards) + wanted.order
    return tuple(cards[at : at + wanted.take]) if at >= 0 else ()


def _too_few(where: str, cards: Sequence[Indexed], what: str) -> str:
    return f"{where} showed {_counted(len(cards), what) if cards else f'no {what}'}."


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
