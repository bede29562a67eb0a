"""Texts as memory reads them: the form in which they are kept, what is Mneme's own in them, their sentences, words and names;
and of two, whether they say the same and which says more.

Pure functions over plain strings, each linear in its input.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile

from app.memory.quantities import makes_exact, rewrite_bounds

_ODD = re.compile(r"[^\w -~]")
"""What may be invisible. No letter or figure of any script is, nor what ASCII prints."""
_JOINERS = "\u200c\u200d"  # they shape letters and emoji; other format characters are invisible and say nothing
_END_PUNCTUATION = " .,;:!?…"


def normalise(text: str) -> str:
    """The form in which a memory is kept: NFKC, single spaces, nothing invisible, no punctuation at the end."""
    if not text.isprintable():
        text = _ODD.sub(_visible, text)
    return " ".join(unicodedata.normalize("NFKC", text).split()).rstrip(_END_PUNCTUATION)


def _visible(found: re.Match[str]) -> str:
    char = found[0]
    kind = unicodedata.category(char)
    if kind == "Cf":
        return char if char in _JOINERS else ""
    return " " if kind in {"Cc", "Cs", "Zl", "Zp"} else char


def content_hash(text: str) -> bytes:
    """32 bytes: SHA-256 of the normalised text without regard to case (seed 000 §5.4, exact duplicates)."""
    return hashlib.sha256(normalise(text).casefold().encode()).digest()


# --- what Mneme itself put into a prompt ---------------------------------------------------------------------------------

_TAG = re.compile(r"</?mneme-memory\b[^<>\n]{0,200}>?", re.IGNORECASE)


def injected_spans(text: str) -> list[tuple[int, int]]:
    """Where blocks of Mneme's own lie in a text that a client sent back: (start, end) of each, delimiters included.

    A block runs from `<mneme-memory NONCE>` to the close with the same nonce, so that a forged close inside a memory
    does not end it; without such a close, to the next close of any nonce; without any, to the end of the text (a
    truncated transcript). A close without an opening is removed alone.
    """
    tags = list(_TAG.finditer(text))
    close_of = _closes([tag[0] for tag in tags])
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(tags):
        start = tags[i].start()
        if tags[i][0].startswith("</"):
            spans.append((start, tags[i].end()))
            i += 1
            continue
        close = close_of[i]
        if close is None:
            spans.append((start, len(text)))
            break
        spans.append((start, tags[close].end()))
        i = close + 1
    return spans


def _closes(tags: list[str]) -> list[int | None]:
    """For each tag the index of the close that would end it: the next of its own nonce, else the next of any."""
    found: list[int | None] = []
    by_nonce: dict[str, int] = {}
    nearest: int | None = None
    for i in range(len(tags) - 1, -1, -1):
        nonce = _nonce(tags[i])
        found.append(by_nonce.get(nonce, nearest))
        if tags[i].startswith("</"):
            by_nonce[nonce] = nearest = i
    return found[::-1]


def _nonce(tag: str) -> str:
    return tag.strip("</>").partition(" ")[2].strip().casefold()


def strip_injected(text: str) -> str:
    """The text without Mneme's own blocks: what the user wrote. Blank lines left around a block go with it."""
    spans = injected_spans(text)
    if not spans:
        return text
    kept, done = [], 0
    for start, end in spans:
        kept.append(text[done:start])
        done = end
    kept.append(text[done:])
    return "\n".join(part.strip("\n") for part in kept if part.strip()) if len(kept) > 1 else kept[0]


# --- sentences, words with a content, names ------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+(?:['’.,:/-][^\W_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“(]?[A-Z0-9À-Þ])|\n+")
_NAME = re.compile(r"[A-ZÀ-Þ][\w'’&-]*(?: (?:[A-ZÀ-Þ][\w'’&-]*|(?:&|of|de|van|von)(?= )))*")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)

_COMMON = """a about above after again against ago ahead all almost alone along already also although always am among an and
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
NO_TOPIC = frozenset(_COMMON.split())
"""Words that name no topic."""

_SINGULAR = frozenset(["news", "series", "species", "lens", "always", "perhaps", "physics", "athletics", "christmas"])

_MIN_WORD = 3
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
    return [_stem(word) for word in _plain_words(text) if _contentful(word)]


def numbers(text: str) -> frozenset[str]:
    """What is written with a digit, without thousands separators."""
    return frozenset(word.replace(",", "") for word in _plain_words(text) if any(c.isdigit() for c in word))


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
            while words and words[0].lower() in NO_TOPIC:
                words = words[1:]
            opens = not sentence[: match.start()].strip(" ¿¡") and len(words) < 2
            if words and not opens and len(words[0]) > 1 and not words[0].isdigit():
                found.setdefault(" ".join(words))
    return list(found)[:MAX_NAMES]


_NO_WORD = re.compile(r"\W+")


def slug(name: str) -> str:
    """The id of an entity that is known by its name only: "Gai Media" → "gai-media", as extraction makes them."""
    return _NO_WORD.sub("-", name.lower()).strip("-")


def _plain_words(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in _WORD.findall(text.replace("’", "'").casefold())]


def _contentful(word: str) -> bool:
    return len(word) >= _MIN_WORD and word not in NO_TOPIC and not word[0].isdigit()


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word in _SINGULAR:
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > _MIN_WORD:
        return word[:-1]
    return word


# --- which of two texts says more ----------------------------------------------------------------------------------------

_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(n) for n, word in enumerate(_NUMBER_WORDS.split())}
_EMPTY_TEXT = """a an the of to in on at by for with from as is are was were be been am do does did has have had it its
this that these those and or but so very really just also user users person they them their he she his her i me my we
our you your called named up out"""
_EMPTY = frozenset(_EMPTY_TEXT.split())
_NEGATIVE_TEXT = """not no never none nobody nothing without cannot isn't aren't wasn't weren't don't doesn't didn't can't
couldn't won't wouldn't shouldn't hasn't haven't hadn't dislike dislikes disliked hate hates hated avoid avoids avoided
refuse refuses stopped quit"""
_NEGATIVE = frozenset(_NEGATIVE_TEXT.split())
_ORDERING = frozenset(["over", "than", "to", "from", "before", "after", "above", "below", "instead", "not"])
_CALENDAR_TEXT = """january february march april may june july august september october november december monday tuesday
wednesday thursday friday saturday sunday morning afternoon evening night"""
_KIN_TEXT = """wife husband partner spouse mother mom mum father dad parent son daughter child brother sister sibling
grandmother grandfather aunt uncle cousin niece nephew friend boss boyfriend girlfriend fiance fiancee"""
KIN = frozenset(_KIN_TEXT.split())
"""English words for those around somebody."""
_GROUPS = (frozenset(_CALENDAR_TEXT.split()), KIN, frozenset(["on", "off", "high", "low"]))
_EXCEPTION = frozenset(["but", "except", "apart", "besides"])
_FORMER = frozenset(["former", "formerly", "until", "once"])
_USED_TO = re.compile(r"\bused to\b|\bas an? (?:child|kid|boy|girl|student|teenager)\b", re.IGNORECASE)
_PAST = 3
"""Number of first letters that two forms of one verb share, such as "works" and "worked"."""


def _words(text: str) -> list[str]:
    """Lower-case words in order, number words as digits; a trailing possessive is dropped."""
    found = (w.removesuffix("'s") for w in _WORD.findall(normalise(text).replace("’", "'").casefold()))
    return [_NUMBERS.get(word, word) for word in found]


def _numbers(words: list[str]) -> frozenset[str]:
    return frozenset(word for word in words if any(c.isdigit() for c in word))


def _names(text: str) -> frozenset[str]:
    """Words with a capital that do not open the text."""
    found = _WORD.findall(normalise(text).replace("’", "'"))[1:]
    return frozenset(w.removesuffix("'s").casefold() for w in found if w[0].isupper() and w != "I")


Rank = tuple[int, int, int, str, str]


def rank(text: str) -> Rank:
    """How much a text says: of near duplicates the one of the highest rank wins (seed 000 §7.2, "more specific"; 001 §4.3).

    Words with a content, numbers twice; then names; of two that say as much, the shorter one, then the one with a capital. A
    text that holds every word of another and more ranks above it. No two normalised texts have the same rank, so that the
    winner is the same in whatever order they come.
    """
    plain = normalise(text)
    words = set(_words(plain))
    return len(words - _EMPTY) + len(_numbers(list(words))), len(_names(plain)), -len(plain), plain.swapcase(), plain


def same_claim(first: str, second: str) -> bool:
    """Tell whether two texts whose vectors are near may be taken as one.

    Vectors of words hardly see numbers, a "not", or the order of words; these decide whether two statements agree. False
    when both name numbers, days, relatives or proper names and neither has all of the other's; when only one speaks of a
    relative, denies, makes an exception or tells the past; when the words are the same in another order around a word such as
    "over" or "than"; or when each has words that the other lacks ("a small bakery", "a small brewery"), unless they are forms
    of one word, commonly mean the same, or give the measure that the other leaves open ("short", "under 800 words").
    """
    first, second = rewrite_bounds(first), rewrite_bounds(second)
    ours, theirs = _words(first), _words(second)
    if (
        _denies(ours) != _denies(theirs)
        or _is_past(first, ours) != _is_past(second, theirs)
        or _tense_differs(ours, theirs)
    ):
        return False
    if any(group.isdisjoint(ours) != group.isdisjoint(theirs) for group in (KIN, _EXCEPTION)):
        return False
    compared = [(_numbers(ours), _numbers(theirs)), (_names(first), _names(second))]
    compared += [(group.intersection(ours), group.intersection(theirs)) for group in _GROUPS]
    if any(a and b and not (a <= b or b <= a) for a, b in compared):
        return False
    swapped = ours != theirs and Counter(ours) == Counter(theirs)
    return not (swapped and _ORDERING.intersection(ours)) and not _have_rival_words(first, second)


def singular(word: str) -> str:
    """A word without the s of a plural."""
    return word[:-1] if len(word) > 3 and word[-1] == "s" != word[-2] else word


def _is_past(text: str, words: list[str]) -> bool:
    return not _FORMER.isdisjoint(words) or _USED_TO.search(text) is not None


def _tense_differs(ours: list[str], theirs: list[str]) -> bool:
    """Return whether two texts begin with the same verb, and one of them with its past."""
    if not ours or not theirs or ours[0][:_PAST] != theirs[0][:_PAST]:
        return False
    return ours[0].endswith("ed") != theirs[0].endswith("ed")


def _have_rival_words(one: str, other: str) -> bool:
    """Return whether each text has words that the other lacks, and neither's are a measure that the other makes exact."""
    ours, theirs = gist(one)[1], gist(other)[1]
    left, right = ours - theirs, theirs - ours
    only_ours = {word for word in left if not any(_are_forms(word, rival) for rival in right)}
    only_theirs = {word for word in right if not any(_are_forms(word, rival) for rival in left)}
    if not only_ours or not only_theirs:
        return False
    return not (makes_exact(only_ours, other) or makes_exact(only_theirs, one))


def _are_forms(first: str, second: str) -> bool:
    """Return whether two words commonly mean the same, or are one but for their endings ("studies", "studying")."""
    if _SYNONYM.get(first, first) == _SYNONYM.get(second, second):
        return True
    stem = sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], zip(first, second, strict=False)))
    return stem >= _MIN_STEM and all(_ENDING.fullmatch(word[stem:]) for word in (first, second))


_MIN_STEM = 4
"""Letters that two forms of one word have in common."""
_ENDING = re.compile(r"[a-zß-ÿ]{0,2}|[a-z]?ing")
"""An ending in Latin letters; "weekdays" and "weekends" differ in more."""
_SYNONYMS = """
like love enjoy adore fancy likes loves enjoys adores into fond keen fan
hate hates dislike dislikes detest detests loathe loathes stand bear
want wants prefer prefers need needs rather
has have own owns got keep keeps possess
color colour|favorite favourite|film movie|each every|big large|small little tiny|kid child children|mum mom mother|dad father
job profession occupation trade work works working|start begin starts begins|home house|holiday vacation|flat apartment
learn learning study studying studies|take takes drink drinks|afraid scared fear|short concise brief|speak talk
bike bicycle|mobile phone cell|reply answer response replies|company firm business|city town|doctor physician
"""
_SYNONYM = {
    word: line.split()[0] for line in _SYNONYMS.strip().replace("|", "\n").splitlines() for word in line.split()
}


Gist = tuple[bool, frozenset[str]]


def gist(text: str) -> Gist:
    """What is left of a text without the words that only give it a tone: whether it denies, and its other words in the
    singular. "Cite your sources" and "Always cite your sources" have one gist. Of two texts with the same one `same_claim`
    says whether the order of words matters."""
    found = _words(text)
    said = set(found) - _EMPTY - _NEGATIVE - _TONE
    return _denies(found), frozenset(singular(word) for word in said)


_TONE = frozenset(
    ["always", "ever", "please", "generally", "usually", "again", "too", "still", "currently", "now", "only", "any"]
)


def _denies(words: list[str]) -> bool:
    return sum(word in _NEGATIVE for word in words) % 2 == 1
