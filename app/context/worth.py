"""Whether a request asks memory at all, and what each item is worth to it: two logistic models over the ranking's columns.

The coefficients are data (`worth.json`), fitted by `loadtests/worth` on several kinds of conversation, each left out in turn
(loadtests/results/worth.md). At run time this is a dot product; no text is read, so a request that needs nothing fetches
nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson

from app.context.asked import Asked
from app.context.rank import Column, Ranking, gains, same_word, saturation
from app.memory.consolidate_text import names
from app.sources import Price

PRICES: Mapping[Price, float] = MappingProxyType({"frugal": 6e-4, "balanced": 1.8e-4, "thorough": 1e-4})
"""The price of a token, as a share of what answers the request: at 1.8e-4 an item of 60 tokens is shown from a likelihood of
.011. Set so that questions which memory answers get some 300, 800 and 1,200 tokens (loadtests/results/worth.md)."""

NEEDLESS = 12.0
"""What a token that nobody needed harms, in tokens that somebody did: it costs, distracts the model, and breaks what was cached.
So memory is looked at where the odds that it is asked are more than the price of what would be shown, so many times: of a large
memory (700 tokens at stake) from a probability of .6, of one with two sentences from .1. Of the questions that memory answers
94 to 99 in 100 pass, of unrelated requests 2 to 12, by kind of conversation (loadtests/results/worth.md)."""
SHOWN, LINE = 55.0, 10.0
"""Tokens of a shown item at most (a passage), and of the line around it: `passages`, `assemble.BlockMeter`."""
POOL = 400
"""Items among which shares are reckoned, the best by score: those after them have none to speak of."""
SHARPNESS = 4.0
"""Factor of the score in the softmax that makes shares of it: e⁴ for a point of score, which is what all words of a question
weigh."""
SPREAD, SPREAD_ITEMS = 0.08, 10.0
"""Prior of the standard deviation of a user's cosines, and as how many items it counts: three messages have none of their
own."""
FIRST_PERSON = frozenset({
    "i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "yo", "mí", "mi", "mis", "nosotros", "nosotras",
    "nuestro", "nuestra", "nuestros", "soy", "tengo", "ich", "mich", "mir", "mein", "meine", "meinen", "meinem", "meiner",
    "wir", "uns", "unser", "unsere", "je", "j", "moi", "ma", "mon", "mes", "nous", "notre", "nos", "eu", "meu", "minha",
    "meus", "minhas", "nós", "nosso", "nossa",
})  # fmt: skip
"""I, we, my, our: English, Spanish, German, French, Portuguese."""
FIRST_SIGN = "我"
"""The same in Chinese, whose words have no spaces around them."""
IMPORTANCE, CONFIDENCE, REINFORCEMENT, FREQUENCY, TIED = 2.0, 0.5, 1.0, 0.5, 4.0
"""Log-odds that a memory's history adds, for each unit of it. They cannot be fitted: in conversations nobody has rated yet they
are constant. Importance (0..1, .5 at first) is what outcomes move: from .5 to .75 counts e^.5 = 1.6 times. ln(confidence left ÷
what it is at first): one half counts .7 times. Reinforcement (0..1) and frequency of use (0..1) count 2.7 and 1.6 times at
most. `TIED`: the question names the very thing that the memory is tied to, which is worth all words of the question
(`SHARPNESS`)."""
USUAL_IMPORTANCE, USUAL_CONFIDENCE, LEAST_CONFIDENCE = 0.5, 0.8, 0.2
"""Of a memory that nothing has happened to; and what is left of confidence at least: what is old is doubted, not forgotten."""
MOST_PRIOR = (
    IMPORTANCE * (1 - USUAL_IMPORTANCE) + CONFIDENCE * math.log(1 / USUAL_CONFIDENCE) + REINFORCEMENT + FREQUENCY + TIED
)
"""The most that all of it adds."""
_WORD = re.compile(r"[^\W_]+")

ASKED_FEATURES = (
    "covered", "rarest", "best_text", "best_own", "best_cosine", "best_cosine_z", "mean_cosine", "spread", "best_near",
    "first_person", "speaker", "known_name", "unknown_name", "timed", "words", "items",
)  # fmt: skip
"""Of `asked_features`, in its order; docs/recall.md says what each is."""
ITEM_FEATURES = ("rank", "share", "items")
"""Of `item_features`, in its order."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression over standardised features: log-odds = bias + Σ weight · (value − mean) ÷ scale."""

    names: Sequence[str]
    means: Column
    scales: Column
    weights: Column
    bias: float

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Logistic:
        """From the data file."""
        means, scales, weights = (np.array(told[each], np.float32) for each in ("means", "scales", "weights"))
        return cls(tuple(told["names"]), means, scales, weights, float(told["bias"]))

    def odds(self, values: Column) -> Column:
        """Log-odds (n,) of rows (n, features)."""
        found: Column = (((values - self.means) / self.scales) @ self.weights + np.float32(self.bias)).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Judgement:
    """`asked`: probability that memory is asked; `passes`: whether it is looked at; `odds` (n,): log-odds of each item of the
    ranking that it carries what is asked for."""

    asked: float
    passes: bool
    odds: Column


@cache
def models() -> tuple[Logistic, Logistic]:
    """Of requests, and of items, as shipped."""
    told = orjson.loads((files("app.context") / "worth.json").read_bytes())
    asked, item = Logistic.of(told["asked"]), Logistic.of(told["item"])
    if asked.names != ASKED_FEATURES or item.names != ITEM_FEATURES:
        raise ValueError("worth.json has other features than this version")
    return asked, item


def judge(ranking: Ranking, asked: Asked, scores: Column, price: float) -> Judgement:
    """What the request asks of memory. `scores` (n,): what the items are ranked by; `price`: of a token."""
    if not len(ranking):
        return Judgement(0.0, False, scores)
    request, item = models()
    if asked.recap or asked.turns is not None or asked.things:
        sure = 1.0  # it names the conversation itself, or a thing that is known
    else:
        sure = sigmoid(float(request.odds(asked_features(ranking, asked)[None])[0]))
    likely = sigmoids(item.odds(item_features(scores)))
    passes = sure >= least_asked(likely, ranking.tokens, price)
    likely *= np.float32(sure)
    return Judgement(sure, passes, np.log(likely / (1.0 - likely + np.float32(1e-6))))


def least_asked(likely: Column, tokens: Column, price: float) -> float:
    """The probability that a request asks memory from which memory is looked at, by what would be shown: items of that
    likelihood (n,) and length (n,)."""
    cost = np.minimum(tokens, np.float32(SHOWN)) + np.float32(LINE)
    harm = NEEDLESS * price * float(cost[likely >= np.float32(price) * cost].sum())
    return harm / (1.0 + harm)


def asked_features(ranking: Ranking, asked: Asked) -> Column:
    """What is known of a request, shape (features,): absolute evidence, that means the same for every user."""
    scan = ranking.scan
    many = len(ranking)
    worth = gains(scan, ranking.told) if scan.words else np.zeros(0, np.float32)
    attainable = float(worth.sum()) or 1.0
    held = np.array(scan.holding, np.float32) > 0
    best_own = covered = rarest = 0.0
    if len(worth):
        counts = ranking.counts
        best_own = float((worth @ (counts / (counts + saturation(scan, ranking.tokens)))).max()) / attainable
        covered = float(worth[held].sum()) / attainable
        most = (scan.k1 + 1) * math.log1p((max(scan.counted, 1) + 0.5) / 0.5)  # a word that stands nowhere
        rarest = float((worth * held).max()) / most
    seen = ranking.similarity[~np.isnan(ranking.similarity)]
    mean, spread = (float(seen.mean()), float(seen.std())) if len(seen) else (0.0, 0.0)
    best = float(seen.max()) if len(seen) else 0.0
    usual = math.sqrt((spread**2 * many + SPREAD**2 * SPREAD_ITEMS) / (many + SPREAD_ITEMS))
    known, unknown = _names(ranking, asked.text)
    values = (
        covered, rarest, float(ranking.near_text.max()) / attainable, best_own, best,
        # The highest of n normal deviates is some √(2 ln n).
        (best - mean) / usual - math.sqrt(2 * math.log1p(many)),
        mean, spread, float(ranking.near_vector.max()), float(first_person(asked.text)), float(bool(ranking.told)),
        known, unknown, float(asked.span is not None), math.log1p(len(scan.words)), math.log1p(many),
    )  # fmt: skip
    return np.array(values, np.float32)


def item_features(scores: Column) -> Column:
    """What is known of each item beside the others, shape (n, features), from what it is ranked by: its place, its share of all
    that might answer (softmax over the best `POOL`), and how many there are. Ranking weighs words, cosine, neighbours, speaker,
    time and length; how far an item stands out of the others is what is left to say of it, and means the same in any
    conversation."""
    many = len(scores)
    rank = np.empty(many, np.float32)
    rank[np.argsort(-scores, kind="stable")] = np.arange(many)
    sharp = SHARPNESS * (scores - scores.max())
    share = sharp - np.log(np.exp(sharp[rank < POOL]).sum())
    return np.stack([np.log1p(rank), share, np.full(many, math.log1p(many))], axis=1).astype(np.float32)


def first_person(text: str) -> bool:
    """Whether it speaks of "I" or "we"."""
    return FIRST_SIGN in text or not FIRST_PERSON.isdisjoint(_WORD.findall(text.lower()))


def prior(
    *, importance: float, confidence: float, reinforcement: float = 0.0, frequency: float = 0.0, tied: float = 0.0
) -> float:
    """Log-odds that a memory's history adds to what the ranking says of it. All 0..1; `confidence`: what time has left of it;
    `tied`: the overlap of its things with those that the question names."""
    return (
        IMPORTANCE * (importance - USUAL_IMPORTANCE)
        + CONFIDENCE * math.log(max(confidence, LEAST_CONFIDENCE) / USUAL_CONFIDENCE)
        + REINFORCEMENT * reinforcement
        + FREQUENCY * frequency
        + TIED * tied
    )


def sigmoids(odds: Column) -> Column:
    """Probabilities (n,) of log-odds."""
    found: Column = (1.0 / (1.0 + np.exp(-odds.clip(-30, 30)))).astype(np.float32)
    return found


def sigmoid(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(odds, -30.0), 30.0)))


def _names(ranking: Ranking, text: str) -> tuple[float, float]:
    """1 where a name in it stands in memory, and 1 where one does not."""
    known = unknown = 0.0
    scan = ranking.scan
    for name in (word.lower() for each in names(text) for word in each.split()):
        held = [many for word, many in zip(scan.words, scan.holding, strict=True) if same_word(word, name)]
        if name in ranking.told or any(held):
            known = 1.0
        elif held:
            unknown = 1.0
    return known, unknown
