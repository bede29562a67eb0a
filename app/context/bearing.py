"""Which facts about the user bear on a message: what its words ask for, or speak of (`bearing.toml` has the words, by
language).

A fact that nothing calls for is not said, however sure it is. Beside the words, what retrieval makes of the memory behind a
fact counts (`worths`): the words are for what retrieval cannot know, as that a snack has to do with an allergy.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

from app.context.self_questions import asks_for_everything
from app.languages import function_word
from app.store.user_profile import StandingFact
from app.text_cache import of_texts

Why = Literal["asked", "whole", "topic", "words", "worth", "again"]
"""Why a fact is said: the message asks for it, or for all that is known of the user; it speaks of a matter on which the fact
bears; it has the fact's own words; the memory behind it is worth its tokens; it stood in a block that
went, and the conversation may go on from it."""

BEARS_WORTH = 0.5
"""Probability from which the memory behind a fact is taken to be evidence: more likely than not. A fact's line takes some eight
tokens, the least that anything can take, so that a lower one would do for its price; but it is also read as so."""
MAX_CHARS = 600
"""Of a longer message its beginning and its end, which is where people put what they ask, so many characters in all."""
ANSWER_WORDS = 14
"""Words up to which a message that asks for one thing asks for nothing else."""
ANSWER_CHARS = 100
"""Characters up to which it does, where somebody else is asked about: as many words of seven letters."""
FACTS_KEPT = 4096
"""Facts whose words are kept ready, 1 KB each: those of some hundred users."""
LEAST_CHARS = 3
"""Letters of a word of a fact that says something by itself, in scripts with spaces."""

SAME_BEGINNING = 4
"""The number of first letters that two forms of a word share: "love" and "loves"."""
OWN_SIGNS = 3
"""Signs of a script without spaces that make a word and a particle."""

OF_CODE = frozenset(["codes_in", "uses", "works_at", "works", "occupation", "company", "works_in"])
"""Predicates that bear on talk about programs; nothing else of the user's life does."""
OF_ALL = frozenset(["allergic_to", "diet", "condition", "dislikes", "avoids"])
"""Predicates that bear on a matter of whomever they are: one cooks for others."""
NAMES = frozenset(["name", "called"])
"""Predicates whose values name their subject."""

_SIGNS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
"""Of scripts that put no space between words, or glue endings to them."""
_UNSPACED = re.compile(f"[{_SIGNS}]")
_WORD = re.compile(rf"[{_SIGNS}]+|[^\W_{_SIGNS}]+")
_PLAIN = re.compile(r"[^\W_]+")
"""An entry of a topic that is one word."""
_WHO = r"[^\s?!.,;:，。？！]+(?: [^\s?!.,;:]+){0,2}?"
"""Of a pattern the part `<WHO>`: somebody, by a name or a word for them, up to three words."""
_ENDS = re.compile(r"^[\s\W]+|[\s\W]+$")


class MessageTopics(NamedTuple):
    """What a message calls for. `asked`: predicates that it asks for; `topics`: those that bear on what it speaks of;
    `people`: subjects that it speaks of by a word for them ("my sister"), `named`: by their own name (`naming`); `of`:
    predicates that it asks for of somebody else; `whole`: all that is known of the user; `past`: what was so before as
    well; `only`: it asks for `asked` and nothing else; `only_of`: those of `of` of which the same is so. `words`,
    `text`: its own, in lower case; `capitals`: its words with a capital, but the first."""

    asked: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    of: frozenset[str] = frozenset()
    whole: bool = False
    past: bool = False
    only: bool = False
    only_of: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    capitals: frozenset[str] = frozenset()
    text: str = ""


class _Topic(NamedTuple):
    """Of what it is spoken where one of the `words` is there, one that ends in one of `ends`, or the pattern."""

    predicates: frozenset[str]
    words: frozenset[str]
    ends: tuple[str, ...]
    pattern: re.Pattern[str] | None

    def spoken_of(self, text: str, spoken: Sequence[str], stems: Set[str]) -> bool:
        """In a message (lower case) with these words and their stems."""
        return (
            not self.words.isdisjoint(stems)
            or (bool(self.ends) and any(map(str.endswith, spoken, repeat(self.ends))))
            or (self.pattern is not None and self.pattern.search(text) is not None)
        )


class _Language(NamedTuple):
    anything: re.Pattern[str]
    opening: re.Pattern[str]
    past: re.Pattern[str]
    asks: Sequence[tuple[frozenset[str], re.Pattern[str]]]
    of: Sequence[tuple[frozenset[str], re.Pattern[str]]]
    topics: Sequence[_Topic]
    any_topic: _Topic
    brings: re.Pattern[str]
    abroad: re.Pattern[str]
    relations: Sequence[tuple[frozenset[str], re.Pattern[str]]]


@of_texts(256)
def read(text: str) -> MessageTopics:
    """A message, understood as far as this needs it. Linear in the message, of which `MAX_CHARS` are looked at."""
    if len(text) > MAX_CHARS:
        text = f"{text[: MAX_CHARS // 2]} {text[-MAX_CHARS // 2 :]}"
    capitals = frozenset(_stem(each) for each in _WORD.findall(text)[1:] if each[0].isupper())
    text = " ".join(text.lower().replace("’", "'").split())
    asked: set[str] = set()
    people: set[str] = set()
    past = only = False
    whole = asks_for_everything(text)
    alone = _ENDS.sub("", text)
    words = len(alone.split())
    spoken = _WORD.findall(text)
    brings = any(each.brings.match(each.opening.sub("", alone)) for each in languages())
    topics = set() if brings else _topics(text, spoken)
    for language in languages():
        if language.anything.search(text) is None:  # one look instead of thirty: most messages are in no other language
            continue
        question = language.opening.sub("", alone)
        past = past or language.past.search(text) is not None
        for predicates, pattern in language.asks:
            if pattern.search(text):
                asked |= predicates
                only = only or (words <= ANSWER_WORDS and pattern.fullmatch(question) is not None)
        for subjects, pattern in language.relations:
            if pattern.search(text):
                people |= subjects
    if brings:
        people, topics = set(), set()
    return MessageTopics(
        frozenset(asked), frozenset(topics), frozenset(people), whole=whole, past=past, only=only and not past,
        words=frozenset() if brings else _words(text), capitals=capitals, text="" if brings else text,
    )  # fmt: skip


def _topics(text: str, spoken: Sequence[str]) -> set[str]:
    """Predicates that bear on what a message (lower case) with these words speaks of."""
    found: set[str] = set()
    stems = {*spoken, *map(_stem, spoken)}
    for language in languages():
        if language.any_topic.spoken_of(text, spoken, stems):  # one look instead of ten
            for topic in language.topics:
                if topic.spoken_of(text, spoken, stems):
                    found |= topic.predicates
    if found - OF_CODE and any(each.abroad.search(text) for each in languages()):
        return found & OF_CODE
    return found


class _Fact(NamedTuple):
    """What of a fact a message is looked through for. `words`: of its value, `own`: of its predicate, `whose`: of its subject;
    `value`: in lower case where it is looked for as it is, for it stands in a script without spaces."""

    subject: str
    predicate: str
    names: bool
    value: str | None
    words: frozenset[str]
    own: frozenset[str]
    whose: frozenset[str]


@of_texts(FACTS_KEPT)
def _fact(key: str, value: str) -> _Fact:
    key = key.partition(":")[0]
    subject, dot, predicate = key.rpartition(".")
    subject = subject if dot else "user"
    value = value.lower()
    names = predicate in NAMES and subject != "user"  # it says what somebody else is called
    unspaced = value if _UNSPACED.search(value) else None
    return _Fact(subject, predicate, names, unspaced, _words(value), _words(predicate), _words(subject))


def naming(reading: MessageTopics, facts: Sequence[StandingFact]) -> MessageTopics:
    """The same, with the subjects whose own name the message has ("Ana", where a fact says that the sister is called so),
    and with what it asks for of somebody of whom there are facts."""
    read_as = [_fact(each.key, each.value) for each in facts]
    names = [(each.subject, fact.value) for each, fact in zip(read_as, facts, strict=True) if each.names]
    said = f" {' '.join(map(_stem, _WORD.findall(reading.text)))} " if names else ""
    named = {subject for subject, value in names if _stands(value.lower(), said, reading)}
    if not named and reading.people.isdisjoint([each.subject for each in read_as]):
        return reading
    of, only_of = _asked_of(reading.text)
    return reading._replace(named=frozenset(named), of=of, only_of=frozenset(() if reading.past else only_of))


@of_texts(256)
def _asked_of(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """`of` and `only_of` of a message (lower case) that is brief enough to ask for one thing."""
    of: set[str] = set()
    only: set[str] = set()
    alone = _ENDS.sub("", text)
    if len(alone) > ANSWER_CHARS:
        return frozenset(), frozenset()
    for language in languages():
        question = language.opening.sub("", alone)
        for predicates, pattern in language.of:
            if pattern.search(question):
                of |= predicates
                only |= predicates if pattern.fullmatch(question) else frozenset[str]()
    return frozenset(of), frozenset(only)


def _stands(name: str, said: str, reading: MessageTopics) -> bool:
    """Whether a name (lower case) stands in the message: in a script without spaces anywhere, else as whole words. One that is
    an everyday word as well ("Will") has to have its capital."""
    if _UNSPACED.search(name):
        return len(name) > 1 and name in reading.text
    words = [_stem(each) for each in _WORD.findall(name)]
    if not words or f" {' '.join(words)} " not in said:
        return False
    return reading.capitals.issuperset(words) if all(map(function_word, words)) else True


def bears_on(fact: StandingFact, reading: MessageTopics, worths: Mapping[UUID, float]) -> Why | None:
    """Why a fact is to be said for a message; None: nothing calls for it. `worths`: probabilities, 0..1, that memories are
    evidence for it, as far as retrieval has them."""
    own = _fact(fact.key, fact.value)
    subject, predicate, known = own.subject, own.predicate, own.subject in reading.named
    named = known or subject in reading.people or (subject != "user" and bool(own.whose) and own.whose <= reading.words)
    if named and predicate in reading.of:
        return "asked"
    if predicate in reading.asked and (named or (subject == "user" and not reading.people)):
        return "asked"
    if reading.whole:
        return "whole"
    if (predicate in reading.topics and (subject == "user" or predicate in OF_ALL)) or (named and not reading.of):
        return "topic"
    if own.names:
        said = known
    elif own.value is not None:
        said = len(own.value) > 1 and own.value in reading.text
    else:  # all of its predicate's words, or half of its value's
        said = bool(own.own and own.own <= reading.words)
        said = said or (bool(own.words) and 2 * len(own.words & reading.words) >= len(own.words))
    if said:
        return "words"
    if fact.memory is not None and worths.get(fact.memory, 0.0) >= BEARS_WORTH:
        return "worth"
    return None


def answers(fact: StandingFact, reading: MessageTopics) -> bool:
    """Whether the message asks for this fact and nothing else."""
    if bears_on(fact, reading, {}) != "asked":
        return False
    predicate = _fact(fact.key, fact.value).predicate
    return predicate in reading.only_of if predicate in reading.of else reading.only


def has_own_word(text: str, others: Sequence[str]) -> bool:
    """Return whether a text has a word that none of the other texts has, function words and endings left out."""
    other_words = [word for other_text in others for word in _WORD.findall(other_text.lower())]
    beginnings = {word[:SAME_BEGINNING] for word in other_words}
    own_words = [
        word
        for word in _WORD.findall(text.lower())
        if word not in empty() and not function_word(word) and word[:SAME_BEGINNING] not in beginnings
    ]
    spaced = [word for word in own_words if _UNSPACED.match(word) is None and len(word) > LEAST_CHARS]
    signs = "".join(word for word in own_words if _UNSPACED.match(word))
    other_signs = set("".join(word for word in other_words if _UNSPACED.match(word)))
    return bool(spaced) or sum(sign not in other_signs for sign in signs) >= OWN_SIGNS


def _words(text: str) -> frozenset[str]:
    """Those that tell something of the matter."""
    found = map(_stem, _WORD.findall(text.lower().replace("_", " ")))
    return frozenset([each for each in found if len(each) >= LEAST_CHARS]) - empty()


def _stem(word: str) -> str:
    """Without the s of a plural: "peanut" and "peanuts" are one."""
    word = word.lower()
    return word[:-1] if len(word) > LEAST_CHARS and word.endswith("s") and not word.endswith("ss") else word


@cache
def empty() -> frozenset[str]:
    """Words that stand in many values and keys and tell nothing of the matter."""
    return frozenset(word for table in _tables().values() for word in table["empty"].split())


@cache
def languages() -> tuple[_Language, ...]:
    """All tables of `bearing.toml`."""
    return tuple(_language(table, spaced=name != "zh") for name, table in _tables().items())


@cache
def _tables() -> Mapping[str, Any]:
    """Read once: the file is part of the program."""
    return tomllib.loads(Path(__file__).with_name("bearing.toml").read_text(encoding="utf-8"))


def _language(table: Mapping[str, Any], *, spaced: bool) -> _Language:
    def pattern(words: Sequence[str]) -> re.Pattern[str]:
        alternatives = "|".join(words).replace("<WHO>", _WHO)
        return re.compile(rf"\b(?:{alternatives})\b" if spaced else f"(?:{alternatives})")

    def rows(name: str) -> list[tuple[frozenset[str], re.Pattern[str]]]:
        return [(frozenset(names.split()), pattern(words)) for names, words in table[name].items()]

    opening = re.compile(rf"^(?:{pattern(table['opening']).pattern}[\s,:!.?，。！？]*)+")

    def topic(names: str, words: Sequence[str]) -> _Topic:
        plain = {each for each in words if _PLAIN.fullmatch(each)} if spaced else set()
        ends = {each for each in words if each.startswith("-")}
        rest = [each for each in words if each not in plain | ends]
        cut = tuple(each[1:] for each in ends)
        return _Topic(frozenset(names.split()), frozenset(plain), cut, pattern(rest) if rest else None)

    asks, of, relations = rows("asks"), rows("of"), rows("relations")
    topics = [topic(names, words) for names, words in table["topics"].items()]
    any_topic = topic("", [each for words in table["topics"].values() for each in words])
    brings, abroad = pattern(table["brings"]), pattern(table["abroad"])
    past = pattern(table["past"])
    patterns = [past, *(question for _, question in (*asks, *relations))]
    sources = [compiled.pattern.removeprefix(r"\b").removesuffix(r"\b") for compiled in patterns]
    return _Language(pattern(sources), opening, past, asks, of, topics, any_topic, brings, abroad, relations)
