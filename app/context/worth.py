"""Whether a request asks memory at all, and what each item is worth to it: two logistic models over the ranking's columns.

The coefficients are data (`worth.json`), fitted by `loadtests/worth` on several kinds of conversation, each left out in turn
(loadtests/results/worth.md). At run time this is a dot product, and a look at the request's own words; no item is
fetched for it, so a request that needs nothing fetches nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import orjson
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from app.context.question import Asked
from app.context.rank import Column, Ranking, gains, highest, same_word
from app.languages import bids, heard, replies
from app.memory.commands import commands
from app.memory.text import names
from app.sources import Price
from app.text_cache import of_texts

SHOWN, LINE = 55.0, 10.0
"""Tokens of a shown item at most (a passage), and of the line around it: `retrieve`, `assemble.BlockMeter`."""


class Rate(NamedTuple):
    """What an item must be worth. `token`: the price of a token, as a share of what answers the request; `share`: of the
    likeliest item's likelihood, what each of the others must have at least: where one item is sure to be the answer, those that
    might be one only distract."""

    token: float
    share: float

    def least(self, cost: NDArray[np.floating[Any]], best: float) -> Any:
        """The likelihood from which items are shown that cost so many tokens (n,), beside the likeliest. None costs less
        than a passage: a line takes the reader's attention however short it is. (At equal recall a prompt is a sixth shorter
        than by tokens alone.)"""
        return np.maximum(self.token * np.maximum(cost, SHOWN + LINE), self.share * best)

    def least_of_one(self, cost: int, best: float) -> float:
        """The same of one item."""
        return max(self.token * max(cost, SHOWN + LINE), self.share * best)


PRICES: Mapping[Price, Rate] = MappingProxyType(
    {"frugal": Rate(2e-4, 0.08), "balanced": Rate(1e-4, 0.04), "thorough": Rate(6e-5, 0.02)}
)
"""Set so that questions which memory answers get some 400, 800 and 1,100 tokens (loadtests/results/worth.md)."""

PROFILE_TOKENS: Mapping[Price, int] = MappingProxyType({"frugal": 400, "balanced": 800, "thorough": 1_100})
"""The most tokens of a list of all that is known of the user: as many as a question gets at the price."""

LEAST_SURE, SURE = 0.2, 0.65
"""The probability that memory is asked from which it is looked at: where there is next to nothing to show, and where there is
as much as `LARGE`. A token that nobody needed costs, distracts the model and breaks what was cached, so that what is large has
to be surer of itself; one line can do little harm. Of the questions that memory answers 90 to 100 in 100 pass, of unrelated
requests 0 to 14, by kind of conversation (loadtests/results/worth.md). It is the same at every price: whether memory is asked
is one question, how much of it another."""
BEARS = 0.5
"""The probability at least where a fact about the user bears on the request ("Suggest a restaurant", of a vegetarian): as
likely as not, so that a small memory is looked at for what else there is, and a large one is not poured out for it."""
STANDS_OUT, FEW = 1.0, 8
"""Standard deviations above the mean of the user's items, by the ranking's score, from which an item is shown that has no word
of the request; and items from which there are enough for that to say something (three exchanges). In the four kinds of
conversation whatever is shown stands out so: to the digit recall and tokens are what they were (at 1.25 work loses .002, at
1.5 .018 and chat .003). Of memories of a dozen sentences 3 lines are shown instead of 9, with 18 answers of 24 instead of 21
(docs/explanation/recall.md)."""
WHOLE_WORDS, RARE = 2, 2
"""Words of a request at least that an item must hold to be looked at where the request does not pass; a single one where no
more than so many items have it (a message and what was learned from it). On the four kinds it adds 0, 0, 0 and 1 token to an
unrelated request."""
NEVER = -30.0
"""Log-odds of an item that is not shown: none of what may be added (`MOST_PRIOR`) makes up for them."""
LARGE = 800.0
"""Tokens of a memory from which it is a large one: what a question gets on an average (`PRICES`)."""
POOL = 400
"""Items among which shares are reckoned, the best by score: those after them have none to speak of."""
RANKED = 1_600
"""Items whose place is reckoned, as many as may be fetched for a prompt; those after them share the next."""
SHARPNESS = 4.0
"""Factor of the score in the softmax that makes shares of it: e⁴ for a point of score, which is what all words of a question
weigh."""
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

SHORT = 16
"""Tokens of a message at most of which `states` looks. Of the evidence of the kinds of conversation .5 to .6 %, of
friends 2.9 %, are short messages that state nothing; of all that friends say 11 % are."""
STATES_KEPT = 8192
"""Short messages of which it is kept whether they say anything: those of some ten busy users."""
ORDERS = frozenset(["forget", "recall", "stop", "allow"])
"""Kinds of commands to memory that say nothing beside the command: what is to be remembered, or is so instead, does."""
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_ASKED = ("?", "？")

ECHO = 0.98
"""Cosine from which a message is the question itself, asked before: the same text has 1 in any embedder. It answers nothing,
and must not keep the answer out."""
SAME_COSINE = 5
"""Decimals in which the cosines of equal texts agree."""

ASKED_FEATURES = ("held", "together", "lost", "named", "stranger", "first_person", "mine", "talk", "task", "timed")
"""Of `asked_features`, in its order; docs/explanation/recall.md says what each is. None is a cosine: how near two texts are
that have nothing in common is another number for each embedder."""
ITEM_FEATURES = ("rank", "share", "items")
"""Of `item_features`, in its order."""


class Logistic(Struct, frozen=True):
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
        odds = ((values - self.means) / self.scales) @ self.weights + np.float32(self.bias)
        found: Column = odds.astype(np.float32)
        return found


class Judgement(Struct, frozen=True):
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


def judge(ranking: Ranking, asked: Asked, scores: Column, *, bears: bool = False) -> Judgement:
    """What the request asks of memory. `scores` (n,): what the items are ranked by. `bears`: something that is known of the
    user bears on it."""
    if not len(ranking):
        return Judgement(0.0, False, scores)
    request, item = models()
    echoes = _repeated(ranking, scores)
    if echoes.any():
        ranking, scores = _without(ranking, echoes), np.where(echoes, scores.min(), scores)
    shown = np.ones(len(ranking), bool)
    if asked.recap or asked.turns is not None or asked.things:
        sure = 1.0  # it names the conversation itself, or a thing that is known
    else:
        sure = sigmoid(float(request.odds(asked_features(ranking, asked)[None])[0]))
        sure = max(sure, BEARS) if bears else sure
        shown = _outstanding(ranking, scores, ~echoes)
    passes = sure >= least_asked(ranking.tokens[~echoes])
    if not passes:
        shown &= _says_all(ranking, asked.text)
        passes = bool(shown.any())
    if not passes:
        return Judgement(sure, False, np.full(len(ranking), np.float32(NEVER)))
    likely = sigmoids(item.odds(item_features(scores))) * np.float32(sure)
    odds = np.log(likely / (1.0 - likely + np.float32(1e-6)))
    return Judgement(sure, passes, np.where(shown, odds, np.float32(NEVER)))


def _outstanding(ranking: Ranking, scores: Column, counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which items (n,) have a word of the request, or stand out of all that the user has by what they are ranked by: where
    there is little, likelihood alone is flat, and everything would be shown for there being nothing else. `counted`: those that
    say something of their own."""
    own = scores[counted]
    if len(own) < FEW:
        return np.ones(len(scores), bool)
    above = scores >= own.mean() + np.float32(STANDS_OUT) * own.std()
    found: NDArray[np.bool_] = above | (ranking.counts > 0).any(axis=0)
    return found


def _says_all(ranking: Ranking, text: str) -> NDArray[np.bool_]:
    """Which of the user's own messages and memories (n,) hold every word of the request that tells anything: two at least, or
    one that stands in next to nothing else. Where memory seems not to be asked, these are looked at, and nothing else."""
    none = np.zeros(len(ranking), bool)
    told = gains(ranking.scan, ranking.told)[: len(ranking.scan.words)] > 0 if ranking.scan.words else np.zeros(0, bool)
    speech = heard(text)
    if not told.any() or speech.talk or speech.task:
        return none
    if told.sum() < WHOLE_WORDS and np.array(ranking.scan.holding)[told].min() > RARE:
        return none
    whole = (ranking.counts[: len(told)][told] > 0).all(axis=0)
    found: NDArray[np.bool_] = whole & ((ranking.own_words > 0) | (ranking.memory > 0))
    return found


def _repeated(ranking: Ranking, scores: Column) -> NDArray[np.bool_]:
    """Which messages (n,) add nothing: the question itself, and of the best `POOL` the answers that say what a better one says,
    word for word, as those to a question asked often do: copies would share their likelihood, and stand before what was said
    once. (What the user says again is news: "I took my medication today.") Equal texts have equal cosines, lengths and words
    of the question."""
    repeated: NDArray[np.bool_] = (ranking.similarity >= np.float32(ECHO)) & (ranking.memory == 0)
    best = highest(scores, POOL)
    best = best[(ranking.memory[best] == 0) & (ranking.own_words[best] == 0) & ~repeated[best]]
    told = np.vstack([ranking.similarity[best].round(SAME_COSINE), ranking.tokens[best], ranking.counts[:, best]])
    order = np.lexsort(told[::-1])  # stable: of equal ones the best first
    copies = (np.diff(told[:, order]) == 0).all(axis=0)  # a cosine that is not known is not equal
    repeated[best[order[1:]][copies]] = True
    return repeated


def _without(ranking: Ranking, echoes: NDArray[np.bool_]) -> Ranking:
    """The ranking as if no word of the question stood in these items (n,)."""
    scan, said = ranking.scan, (ranking.counts > 0) & echoes
    holding = [max(0, n - int(m)) for n, m in zip(scan.holding, said.sum(axis=1), strict=False)]
    scan = scan._replace(holding=holding, counted=max(0, scan.counted - int(echoes.sum())))
    return replace(ranking, scan=scan, counts=np.where(echoes, np.float32(0.0), ranking.counts))


def least_asked(tokens: Column) -> float:
    """The probability that a request asks memory from which memory is looked at, by the length of what there is to show: items
    of so many tokens (n,)."""
    cost = float((np.minimum(tokens, np.float32(SHOWN)) + np.float32(LINE)).sum())
    return max(LEAST_SURE, SURE * min(1.0, cost / LARGE))


def asked_features(ranking: Ranking, asked: Asked) -> Column:
    """What is known of a request, shape (features,): evidence that means the same for every user and every embedder."""
    # The figures of how many have a word are brought up to date later than the words themselves.
    held = (
        (np.array(ranking.scan.holding) > 0) | (ranking.counts > 0).any(axis=1)
        if ranking.scan.words
        else np.zeros(0, bool)
    )
    # A speaker's name says who spoke, not of what.
    rarity = gains(ranking.scan, ranking.told) if len(held) else np.zeros(0, np.float32)
    lost = ~held & (rarity > 0)
    # What a word counts that stands nowhere: `rank.gains`.
    rarest = (ranking.scan.k1 + 1) * math.log1p((max(ranking.scan.counted, 1) + 0.5) / 0.5)
    together = float((rarity @ (ranking.counts > 0)).max()) / rarest if len(held) else 0.0
    known, unknown = _names(ranking, held, asked.text)
    speech = heard(asked.text)
    said = (speech.first_person, speech.mine, speech.talk, speech.task)
    return np.array((held.sum(), together, lost.sum(), known, unknown, *said, asked.span is not None), np.float32)


def item_features(scores: Column) -> Column:
    """What is known of each item beside the others, shape (n, features), from what it is ranked by: its place, its share of all
    that might answer (softmax over the best `POOL`), and how many there are. Ranking weighs words, cosine, neighbours, speaker,
    time and length; how far an item stands out of the others is what is left to say of it, and means the same in any
    conversation."""
    many = len(scores)
    rank = np.full(many, RANKED, np.float32)
    best = highest(scores, RANKED)
    rank[best] = np.arange(len(best))
    sharp = SHARPNESS * (scores - scores.max())
    share = sharp - np.log(np.exp(sharp[rank < POOL]).sum())
    return np.stack([np.log1p(rank), share, np.full(many, math.log1p(many))], axis=1).astype(np.float32)


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


def states(text: str, tokens: int) -> bool:
    """Whether a message says anything that may be an answer some day: not one that only asks ("Where do I live?", "Suggest a
    dish"), that speaks of nothing but the talk ("Say hi", "Noted, thanks!"), or that is nothing but a command to memory ("No
    more bullet points")."""
    return tokens > SHORT or _states(text)


@of_texts(STATES_KEPT)
def _states(text: str) -> bool:
    said = [each.strip() for each in _SENTENCE.findall(text) if each.strip()]
    if all(each.endswith(_ASKED) or replies(each) or bids(each) for each in said):
        return False
    speech = heard(text)
    if speech.talk or speech.task:
        return False
    ordered = commands(text)
    return len(ordered) < len(said) or any(each.kind not in ORDERS for each in ordered)


def sigmoids(odds: Column) -> Column:
    """Probabilities (n,) of log-odds."""
    found: Column = (1.0 / (1.0 + np.exp(-odds.clip(-30, 30)))).astype(np.float32)
    return found


def sigmoid(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(odds, -30.0), 30.0)))


def _names(ranking: Ranking, held: NDArray[np.bool_], text: str) -> tuple[bool, bool]:
    """Whether it names somebody, or something, that stands in memory; and whether it names what does not. `held` (words,):
    which words do."""
    known, unknown = bool(ranking.told), False
    for name in (word.lower() for each in names(text) for word in each.split()):
        found = [there for word, there in zip(ranking.scan.words, held, strict=True) if same_word(word, name)]
        known = known or any(found)
        unknown = unknown or (bool(found) and not any(found) and name not in ranking.told)
    return known, unknown
