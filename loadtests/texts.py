"""Made-up conversation, the same for the same seed: what people say, what assistants answer, what is asked later.

Sentences come from patterns and word lists, so that words are spread as unevenly as in real talk (a few in most messages,
most in few), some sentences state facts that extraction finds, and no two questions are alike.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

PEOPLE = (
    "Ana Bruno Carla Dmitri Elif Farid Greta Hana Igor Joana Kofi Lena Mateo Nadia Omar Petra Quinn Rosa Sven Tariq"
)
PLACES = (
    "Nor Ash Wind Elm Hart Mill Stan Brad Lang Whit Thorn Oak Black Kings Mar Wel Ever Ald Fair Green",
    "ford ton ham wick bury field mouth stead worth dale minster port bridge ley burgh cliff",
)
THINGS = (
    "river garden paper copper winter kitchen night field stone window market summer water wood wire canal tower school "
    "bicycle cotton silver village engine harbour theatre orchard forest marble bottle camera basement railway station "
    "mountain library printer coffee barn gravel studio",
    "report house lamp contract recipe server novel guitar budget roof box passport lecture podcast battery puzzle quilt "
    "telescope sauna scooter workshop mortgage keyboard shelf playlist spreadsheet thesis dashboard archive fence kettle "
    "table licence calendar brochure ladder heater ticket sensor manual",
)
"""Compounds, first part and second: some hundreds of places and 1,600 things, so that most of them are said seldom."""
DOINGS = (
    "repair plan compare paint sell rent translate measure clean rebuild photograph insure borrow design test ship "
    "review estimate assemble sketch catalogue upgrade move replace schedule draft weigh polish label fund"
)
MANNERS = (
    "cheap quiet wooden digital spare annual broken portable northern bright second-hand narrow modular waterproof "
    "seasonal vintage compact urgent rough solar foldable shared local heavy organic wireless temporary green"
)
TOPICS = (
    "cost size colour weather paint wiring transport insurance storage timing noise permits shipping taxes safety heat"
)

SAID = (
    "I want to {do} the {manner} {thing} before {person} comes back from {place}.",
    "Yesterday {person} and I tried to {do} a {manner} {thing}, and the {topic} was the hard part.",
    "We paid {number} euros for the {thing} in {place}, which {person} found too much.",
    "I live in {place} now, and my {manner} {thing} is still with {person}.",
    "Please remember that I prefer a {manner} {thing} over a {manner2} one.",
    "My sister {person} works on the {thing} in {place} and asked about {topic}.",
    "For the {thing} I need {number} {manner} parts, mostly because of the {topic}.",
    "Could we {do} it in {place}? {person} knows somebody with a {manner} {thing}.",
)
ANSWERED = (
    "To {do} a {manner} {thing} you first look at the {topic}, then at the price, which in {place} is some {number} euros.",
    "{person} could {do} it: a {manner} {thing} takes {number} days, and the {topic} decides most of the rest.",
    "I would keep the {thing} in {place} and {do} only what the {topic} asks for.",
    "There are {number} ways to {do} that {thing}; the {manner} one is the safest if {topic} matters.",
)
ASKED = (
    "What did {person} say about the {manner} {thing} in {place}?",
    "How much was the {thing} that I wanted to {do}, and did the {topic} matter?",
    "Which {thing} do I prefer, the {manner} or the {manner2} one?",
    "Where did we {do} the {manner} {thing} with {person}?",
    "Remind me why the {topic} of the {thing} was a problem in {place}.",
    "Can you help me {do} a {manner} {thing} this week, like {person} did?",
)
FAVOURED = 3.0
"""How unevenly compounds are chosen: the n-th of a list n^(2/3) times less often than the first. The short lists are even: a
question then shares a word with a quarter of what was said, as questions in real conversations do."""


class Talk:
    """A source of sentences; not for two threads at once."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._common = [text.split() for text in (PEOPLE, DOINGS, MANNERS, TOPICS)]
        self._compounds = [_compounds(PLACES), _compounds(THINGS)]

    def said(self) -> str:
        """What a person tells, one to three sentences."""
        return " ".join(self._sentence(SAID) for _ in range(self._random.randint(1, 3)))

    def answered(self) -> str:
        """What an assistant answers, two to six sentences."""
        return " ".join(self._sentence(ANSWERED) for _ in range(self._random.randint(2, 6)))

    def asked(self) -> str:
        """A question about what was told."""
        return self._sentence(ASKED)

    def words(self, count: int) -> list[str]:
        """An answer of exactly so many words."""
        words: list[str] = []
        while len(words) < count:
            words += self._sentence(ANSWERED).split()
        return words[:count]

    def _sentence(self, patterns: Sequence[str]) -> str:
        people, doings, manners, topics = map(self._random.choice, self._common)
        places, things = map(self._favoured, self._compounds)
        return self._random.choice(patterns).format(
            person=people,
            place=places,
            thing=things,
            do=doings,
            manner=manners,
            manner2=self._random.choice(self._common[2]),
            topic=topics,
            number=self._random.randint(2, 999),
        )

    def _favoured(self, words: Sequence[str]) -> str:
        return words[int(len(words) * self._random.random() ** FAVOURED)]


@functools.cache
def _compounds(parts: tuple[str, str]) -> list[str]:
    """All pairs, those of early words first."""
    firsts, seconds = (text.split() for text in parts)
    pairs = sorted((i + j, i, j) for i in range(len(firsts)) for j in range(len(seconds)))
    return [firsts[i] + seconds[j] for _, i, j in pairs]
