"""Texts taken apart for consolidation: sentences, words with a content, names. Pure, linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from app.memory.ingest_text import normalise, strip_injected

_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“(]?[A-Z0-9À-Þ])|\n+")
_WORD = re.compile(r"[^\W_]+(?:['’.,:/-][^\W_]+)*")
_NAME = re.compile(r"[A-ZÀ-Þ][\w'’&-]*(?: (?:[A-ZÀ-Þ][\w'’&-]*|(?:&|of|de|van|von)(?= )))*")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)

_EMPTY_TEXT = """a about above after again against ago ahead all almost alone along already also although always am among an and
another any anybody anyone anything anyway are around as ask asked at away back be because been before behind being below best
better between both but by call came can cannot come could day days did do does doing done down during each either else enough
etc even ever every everybody everyone everything few find first for from further get gets getting give given go goes going
gone good got great had hand has have having he hello help her here hers herself hey hi him himself his how however i if in
indeed instead into is it its itself just keep kind know last later least less let like little long look looking lot made make
makes making many may maybe me mean might mine moment more most much must my myself need needs never new next nice no nobody
none nor not nothing now of off often ok okay old on once one only or other others our ours out over own part people perhaps
please put quite rather really right said same saw say says see seem seems set several shall she should since so some somebody
someone something sometimes somewhere soon sorry sort still such sure take taken tell than thank thanks that the their them
then there these they thing things think this those though thought through time times to today together told tomorrow too took
try trying two under until up upon us use used using usually very want wanted wants was way we week well went were what
whatever when where whether which while who whole whom whose why will with within without won't word words work would write
yes yesterday yet you your yours yourself can't couldn't didn't doesn't don't hadn't hasn't haven't he's i'd i'll i'm i've
isn't it's let's she's shouldn't that's there's they're wasn't we're weren't what's who's wouldn't you'd you'll you're you've
give show explain describe tell create write year years month months bit point fine question answer example actually probably
monday tuesday wednesday thursday friday saturday sunday january february march april june july august september october
november december"""
EMPTY = frozenset(_EMPTY_TEXT.split())
"""Words that name no topic."""

_SINGULAR = frozenset(["news", "series", "species", "lens", "always", "perhaps", "physics", "athletics", "christmas"])

MIN_WORD = 3
"""Letters of a word with a content."""
MAX_SENTENCE_CHARS = 320
"""Longer ones are lists, logs or code: a summary quotes none of them."""
MAX_NAMES = 8
"""Names taken from one message."""


def sentences(text: str) -> list[str]:
    """The sentences of a text that can be quoted: without code, without what Mneme injected, each on one line; of their last
    marks only a question's is left."""
    plain = _FENCE.sub(" ", strip_injected(text))
    # What is normalised has lost its last mark: whether it asks still counts.
    found = (normalise(piece) + "?" * is_question(piece) for piece in _SENTENCE.split(plain) if piece.strip())
    return [each for each in found if each and len(each) <= MAX_SENTENCE_CHARS]


def is_question(text: str) -> bool:
    """Does it end with a question mark?"""
    return text.rstrip("\"'”’) ").endswith("?")


def terms(text: str) -> list[str]:
    """Words with a content, lower case, without endings of the plural, in order."""
    return [_stem(word) for word in _words(text) if _contentful(word)]


def numbers(text: str) -> frozenset[str]:
    """What is written with a digit, without thousands separators."""
    return frozenset(word.replace(",", "") for word in _words(text) if any(c.isdigit() for c in word))


def pairs(words: Iterable[str]) -> Iterator[str]:
    """Neighbouring words: "recipe post"."""
    before: str | None = None
    for word in words:
        if before is not None and before != word:
            yield f"{before} {word}"
        before = word


def names(text: str) -> list[str]:
    """Proper names as they are written: capitalised words that do not open a sentence, each once."""
    found: dict[str, None] = {}
    for sentence in sentences(text):
        for match in _NAME.finditer(sentence):
            name = match[0].strip(" -'’&").removesuffix("'s").removesuffix("’s")
            words = name.split()
            while words and words[0].lower() in EMPTY:
                words = words[1:]
            opens = not sentence[: match.start()].strip(" ¿¡") and len(words) < 2
            if words and not opens and len(words[0]) > 1 and not words[0].isdigit():
                found.setdefault(" ".join(words))
    return list(found)[:MAX_NAMES]


def slug(name: str) -> str:
    """The id of an entity that is known by its name only: "Gai Media" → "gai-media", as extraction makes them."""
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def _words(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in _WORD.findall(text.replace("’", "'").casefold())]


def _contentful(word: str) -> bool:
    return len(word) >= MIN_WORD and word not in EMPTY and not word[0].isdigit()


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word in _SINGULAR:
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > MIN_WORD:
        return word[:-1]
    return word
