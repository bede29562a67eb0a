"""Made-up texts whose words are spread as those of people are: many words, most of them seldom, and topics that come back.

`texts.py` builds sentences from a few patterns. Their vectors lie in as many tight heaps: fine for measuring a request, but not
for a search among neighbours. A graph finds its way between heaps badly, in a way that real texts do not show (measured, with
the same settings: recall of 0.90 on patterns, of 0.98 on conversations).
"""

from __future__ import annotations

import functools
import importlib.util
import random
from collections.abc import Sequence
from pathlib import Path

import orjson

from app.errors import NotReady

BEGINNINGS = (
    "I|We|They|My sister|My brother|Our neighbour|The teacher|A friend of mine|Yesterday I|Last week we|Next month they|"
    "In the morning I|After work we|Somebody|Nobody here|My colleague|The doctor|You|The children|For years I"
)
VERBS = (
    "like|bought|sold|found|lost|need|want|had|made|saw|read about|talked about|forgot|remember|prefer|tried|broke|moved|"
    "wrote about|asked for|paid for|learned|planned|cancelled|recommended"
)
BETWEEN = "and|with the|for the|about|in the|near the|because of|but not|of the|without|before the|after the|instead of"
ASKING = (
    "What did I say about|Do you remember|When was|Who told me about|Why did we talk about|How much was|Where is|Which"
)
RECALLING = ("What did I say about", "Who told me about", "Why did we talk about")
"""Beginnings of questions that only earlier conversations answer, so that memory is searched whatever words follow."""
WORD_LETTERS = 4
"""Letters that a word has at least: shorter ones are mostly function words and pieces of words."""
TOPICS, TOPIC_WORDS, OWN_TOPICS = 400, 40, 30
"""Topics that there are, words of each, and topics that one person talks about."""
ON_TOPIC = 0.7
"""Share of words that belong to the topic."""
FAVOURED = 2.0
"""How unevenly words are chosen: the n-th of the vocabulary √n times less often than the first."""
SAID_SENTENCES, ANSWERED_SENTENCES = (1, 3), (2, 6)


@functools.cache
def vocabulary() -> Sequence[str]:
    """Some 8,000 words, mostly English, the usual ones first: those that the shipped embedder's tokenizer knows whole. Raises
    NotReady."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise NotReady("the package wordllama is not installed")
    file = Path(spec.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
    known = orjson.loads(file.read_bytes())["model"]["vocab"]
    words = (each[1:] for each in sorted(known, key=known.__getitem__) if each.startswith("▁"))
    return [
        each for each in words if len(each) >= WORD_LETTERS and each.isascii() and each.isalpha() and each.islower()
    ]


@functools.lru_cache(TOPICS)
def topic(number: int) -> Sequence[str]:
    """The words of a topic."""
    chance = random.Random(f"topic {number}")
    return [_favoured(chance) for _ in range(TOPIC_WORDS)]


def _favoured(chance: random.Random) -> str:
    words = vocabulary()
    return words[int(len(words) * chance.random() ** FAVOURED)]


class Prose:
    """One person's sentences, the same for the same seed; not for two threads at once."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._beginnings, self._verbs, self._between, self._asking = (
            each.split("|") for each in (BEGINNINGS, VERBS, BETWEEN, ASKING)
        )
        self._topics = self._random.sample(range(TOPICS), OWN_TOPICS)

    def stated(self) -> str:
        """One sentence."""
        return self._sentence(self._about())

    def said(self) -> str:
        """What a person tells, one to three sentences on one topic."""
        return self._text(SAID_SENTENCES)

    def answered(self) -> str:
        """What an assistant answers, two to six sentences on one topic."""
        return self._text(ANSWERED_SENTENCES)

    def asked(self) -> str:
        """A question about one of the topics."""
        words = self._random.sample(self._about(), self._random.randint(2, 4))
        return f"{self._random.choice(self._asking)} {' '.join(words)}?"

    def ask_back(self) -> str:
        """Return a question about what was said on one of the topics, for which memory has something to show."""
        words = self._random.sample(self._about(), self._random.randint(2, 4))
        return f"{self._random.choice(RECALLING)} {' '.join(words)}?"

    def _about(self) -> Sequence[str]:
        return topic(self._random.choice(self._topics))

    def _text(self, sentences: tuple[int, int]) -> str:
        about = self._about()
        return " ".join(self._sentence(about) for _ in range(self._random.randint(*sentences)))

    def _sentence(self, about: Sequence[str]) -> str:
        chance = self._random
        parts = [chance.choice(self._beginnings), chance.choice(self._verbs)]
        for n in range(chance.randint(3, 7)):
            parts += [chance.choice(self._between)] if n % 2 else []
            parts.append(chance.choice(about) if chance.random() < ON_TOPIC else _favoured(chance))
        return f"{' '.join(parts)}."
