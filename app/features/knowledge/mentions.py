"""Where a text may name a thing: stretches of words to be looked up, keys, names, and words that point back. Pure; no model.

What is found here is only what may be meant; what it means is said by `resolve`. All of it is bounded, whatever the text holds,
so that ten thousand names cost what a few hundred words cost.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from app.features.knowledge.ontology import NO_ONTOLOGY, EntityType, Ontology

# Words by which names are told from other words. English.

_STOP_TEXT = """
a about above after again all already also am an and any anybody anyone anything are as ask at back be because been before
being below between bring both but by bye call can check cheers come compare confirm could create current currently day dear
did display do does doing done don down draft each either email else ever every everyone everything explain few find first
fix for from get give go good got great had has have having he hello help hence her here hers hey hi him his hm how however
i if in instead into is it its itself just keep know last late later latest least less let like list look made make many may
maybe me mention message mine more most much must my near need neither never new next no nobody none nope nor not nothing
now of off ok okay on once one only open or order orders other our ours out over own per perhaps please previous print pull
put quite read really regarding remember remind reply right same say see send set she should show since so some someone
something soon sorry still subject such summarise summarize sure take tell than thank thanks that the their theirs them then
there these they thing things think this those though through thus till to today tomorrow tonight too translate try under
unless until up update upon us use used very want was we week well were what whatever when where whether which while who
whom whose why will with within without would write yeah yes yesterday yet you your yours
"""
STOP = frozenset(_STOP_TEXT.split())
"""Words that are no name by themselves: the small ones, and those that begin a question or a request."""
_DATES_TEXT = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january february march
april june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec christmas easter
q1 q2 q3 q4 am pm utc
"""
DATES = frozenset(_DATES_TEXT.split())
JOINS = frozenset(("of", "de", "da", "do", "del", "di", "du", "van", "von", "der", "den", "la", "le", "the"))
"""Small words inside a name."""
SHORTENED = frozenset(("st", "dr", "mr", "mrs", "ms", "inc", "co", "corp", "ltd", "bros", "no", "prof"))
"""After these a full stop ends no sentence."""
_COMPOUND_TEXT = """
service support success base experience portal manager side id ids number numbers name names list type types data team
facing friendly
"""
COMPOUND = frozenset(_COMPOUND_TEXT.split())
"""After a noun for a kind of things these make another word of it: "the customer service"."""
_VERBS_TEXT = """
agreed asked asks called calls came can cancelled complained complains confirmed emailed has had is likes mentioned moved needed
needs ordered owes paid pays prefers promised refused renewed replied said says sent signed told wanted wants was will would
wrote
"""
VERBS = frozenset(_VERBS_TEXT.split())
"""What one who has a name does: before these a sentence's first word is one, too."""


MAX_CHARS = 2400
"""Characters of a text that are looked at: half at its beginning, half at its end, where a question stands after
a long paste."""
MAX_WORDS = 300
"""Words of them, likewise."""
MAX_GRAM_WORDS = 6
"""Words of the longest name that is found in running text."""
MAX_MENTION_CHARS = 120
"""Characters of the longest mention, and of a name as it is compared: some 480 bytes, which a btree entry holds."""
MAX_RAW_CHARS = 1000
"""Of a name as it is written, with what is dropped when it is compared."""
MAX_KEYS = 16
"""Identifiers of a text."""
MAX_NAMES = 8
"""Capitalised stretches of a text: each costs a search by trigrams."""
MAX_POINTERS = 4
"""Words of a text that point back."""
MAX_KEY_CHARS = 48
"""Longest identifier. The patterns are the operator's; what they are tried on is short, so that none runs long …"""
MAX_NESTED_KEY_CHARS = 16
"""… and of a pattern that repeats what repeats, which may take time exponential in the length, shorter still."""
PointerKind = Literal["they", "it", "person", "type"]
_WORD = re.compile(r"\w+(?:[.'’&/:+#@_-]\w+)*")
_SPACE = re.compile(r"\s+")
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OUTER = re.compile(r"^[\W_]+|[\W_]+$")
_POSSESSIVE = re.compile(r"(?:'s)+$")
_ENDS = re.compile(r"[.!?:;\n•»>]|^\s*[-*]\s*$")
_INSIDE = re.compile(r"\.?[ \u00a0\t]{1,2}(?:[&+] ?)?")
_NESTED = re.compile(r"\([^()]*[+*}][^()]*\)[+*{]")
_EMPTY_IT = re.compile(
    r"(?:'s|’s| is| was| will be| would be| might be| seems| looks like)? (?:possible|raining|snowing|necessary|important|true"
    r"|clear|time|ok|okay|fine|worth|a |an |likely|best|better|easy|hard|great|nice|late|early|too |depends|turns out|takes)",
    re.IGNORECASE,
)
"""After an "it" that means nothing."""


class TextSpan(NamedTuple):
    """A stretch of a text, from `start` to before `end`; `norm`: as it is compared."""

    start: int
    end: int
    text: str
    norm: str

    def overlaps(self, other: TextSpan) -> bool:
        """Whether they share a character."""
        return self.start < other.end and other.start < self.end


class Key(NamedTuple):
    """What has the form of an identifier of these types."""

    piece: TextSpan
    types: tuple[str, ...]


class Pointer(NamedTuple):
    """Words that point back: "they", "it", "she" (`person`), or "the customer" (`type`, with the types that it may be)."""

    piece: TextSpan
    kind: PointerKind
    types: tuple[str, ...] = ()


class Mentions(NamedTuple):
    """What may name a thing. `grams`: stretches of up to `MAX_GRAM_WORDS` words; `names`: those written like names."""

    grams: tuple[TextSpan, ...] = ()
    keys: tuple[Key, ...] = ()
    names: tuple[TextSpan, ...] = ()
    pointers: tuple[Pointer, ...] = ()


class _Word(NamedTuple):
    """A word; `gap`: what stands before it, and `inner`: itself, as both are written inside a longer name."""

    start: int
    end: int
    text: str
    norm: str
    gap: str
    inner: str
    first: bool


def normalise(text: str) -> str:
    """`text` as names are compared: NFKC, without case, control and invisible characters, white space as one space, outer
    punctuation and a possessive 's; at most `MAX_MENTION_CHARS` characters. It may be empty."""
    text = _OUTER.sub("", _folded(text[:MAX_RAW_CHARS]))[:MAX_MENTION_CHARS]
    while (bare := _OUTER.sub("", _POSSESSIVE.sub("", text))) != text:
        text = bare
    return text


def _folded(text: str) -> str:
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).replace("’", "'")
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text.casefold()))
    return _SPACE.sub(" ", _CONTROL.sub(" ", text.casefold()))


def plain(text: str) -> str:
    """`text` as it is told and asked for: as written, but for what no name has. No NUL, no lone surrogate."""
    text = _SPACE.sub(" ", _CONTROL.sub(" ", _INVISIBLE.sub("", text))).strip()
    return re.sub(r"['’][sS]$", "", text)[:MAX_MENTION_CHARS].strip()


def find(text: str, ontology: Ontology = NO_ONTOLOGY) -> Mentions:
    """Everything in `text` that may name a thing, each kind in the order of the text."""
    words = _words(text)
    if not words:
        return Mentions()
    types = list(ontology.types.values())
    nouns = _nouns(types)
    grams = tuple(_grams(text, words))
    keys = tuple(_keys(grams, types))
    return Mentions(grams, keys, tuple(_names(text, words, nouns)), tuple(_pointers(text, words, nouns)))


def whole(text: str, ontology: Ontology = NO_ONTOLOGY) -> Mentions:
    """All of `text` as one mention: whatever it is written like, it is taken for a name."""
    piece = TextSpan(0, len(text), text, normalise(text))
    if not piece.norm:
        return Mentions()
    types = list(ontology.types.values())
    pointers = [each for each in _pointers(text, _words(text), _nouns(types)) if each.piece.norm == piece.norm]
    return Mentions((piece,), tuple(_keys((piece,), types)), () if pointers else (piece,), tuple(pointers[:1]))


def count_words(text: str) -> int:
    """Words of a text, as far as it is looked at."""
    return len(_words(text))


def _words(text: str) -> list[_Word]:
    half, most = MAX_CHARS // 2, MAX_WORDS // 2
    if len(text) <= MAX_CHARS:
        found = list(_words_of(text, 0, len(text)))
        if len(found) <= MAX_WORDS:
            return found
        head, tail = found[:most], found[-most:]
    else:
        head, tail = list(_words_of(text, 0, half))[:most], list(_words_of(text, len(text) - half, len(text)))[-most:]
    # No name has a line end: none goes on from the one half to the other.
    return [*head, *(each._replace(gap="\n", first=True) for each in tail[:1]), *tail[1:]]


def _words_of(text: str, start: int, end: int) -> Iterator[_Word]:
    before = start
    for match in _WORD.finditer(text, start, end):
        gap = text[before : match.start()]
        first = before == start or _ENDS.search(gap) is not None
        before = match.end()
        norm = normalise(match[0])
        if norm:
            yield _Word(match.start(), match.end(), match[0], norm, _folded(gap), _folded(match[0]), first)


def _piece(text: str, words: Sequence[_Word]) -> TextSpan:
    start, end = words[0].start, words[-1].end
    return TextSpan(start, end, text[start:end], normalise(text[start:end]))


def _grams(text: str, words: Sequence[_Word]) -> Iterator[TextSpan]:
    for i, word in enumerate(words):
        before, telling = "", False
        for last in words[i : i + MAX_GRAM_WORDS]:
            if last.end - word.start > MAX_MENTION_CHARS:
                break
            # As `normalise` writes it, without doing each word again for every stretch that it is in.
            norm = before + last.gap + last.norm if last is not word else word.norm
            before += last.gap + last.inner if last is not word else word.inner
            telling = telling or last.norm not in STOP
            if telling and len(norm) > 1:
                yield TextSpan(word.start, last.end, text[word.start : last.end], norm[:MAX_MENTION_CHARS])


# --- identifiers ---------------------------------------------------------------------------------------------------------


@lru_cache(256)
def _compiled(pattern: str) -> tuple[re.Pattern[str], int] | None:
    """The pattern, and how long what it is tried on may be; None: it is none."""
    try:
        return re.compile(pattern, re.IGNORECASE), MAX_NESTED_KEY_CHARS if _NESTED.search(pattern) else MAX_KEY_CHARS
    except (re.error, RecursionError, OverflowError):
        return None


def _keys(grams: Sequence[TextSpan], types: Sequence[EntityType]) -> Iterator[Key]:
    patterns = [
        (each.name, made) for each in types if each.identifier is not None and (made := _compiled(each.identifier))
    ]
    count = 0
    for piece in grams if patterns else ():
        # A key is one word, or, where it has a digit, a few: "PO 1234".
        if len(piece.text) > MAX_KEY_CHARS or (" " in piece.text and not any(map(str.isdigit, piece.text))):
            continue
        found = tuple(name for name, (made, most) in patterns if len(piece.text) <= most and made.fullmatch(piece.text))
        if found:
            yield Key(piece, found)
            count += 1
            if count == MAX_KEYS:
                return


# --- names ---------------------------------------------------------------------------------------------------------------


def _names(text: str, words: Sequence[_Word], nouns: dict[str, tuple[str, ...]]) -> Iterator[TextSpan]:
    """Capitalised stretches, and what follows a noun for a kind of things ("customer gai meida")."""
    shouted = sum(word.text.isupper() and len(word.text) > 1 for word in words) > max(3, len(words) // 2)
    elsewhere = {word.norm for word in words if not word.first and _is_capital(word)}
    seen: set[tuple[int, int]] = set()
    runs = [] if shouted else list(_runs(text, words))
    acting = {word.start for word, after in pairwise(words) if after.norm in VERBS and not after.first}
    for run in sorted([*runs, *_after_nouns(words, nouns)], key=lambda run: run[0].start):
        for part in _variants(run, elsewhere, likely=len(words) <= 3 or run[0].start in acting):
            piece = _piece(text, part)
            if (piece.start, piece.end) not in seen and len(piece.norm) >= 2 and len(piece.text) <= MAX_MENTION_CHARS:
                seen.add((piece.start, piece.end))
                yield piece
                if len(seen) == MAX_NAMES:
                    return


def _is_capital(word: _Word) -> bool:
    return any(map(str.isupper, word.text)) and (word.text[0].isupper() or word.text[0].isdigit() or len(word.text) > 2)


def _is_common(word: _Word) -> bool:
    return word.norm in STOP or word.norm in DATES


def _runs(text: str, words: Sequence[_Word]) -> Iterator[list[_Word]]:
    run: list[_Word] = []
    for word in words:
        joined = bool(run) and _joined(text, run[-1], word)
        if joined and (_is_capital(word) or word.norm in JOINS) and len(run) < MAX_GRAM_WORDS:
            run.append(word)
            continue
        yield from _trimmed(run)
        run = [word] if _is_capital(word) else []
    yield from _trimmed(run)


def _joined(text: str, before: _Word, word: _Word) -> bool:
    gap = text[before.end : word.start]
    return _INSIDE.fullmatch(gap) is not None and (not gap.startswith(".") or before.norm in SHORTENED)


def _trimmed(run: list[_Word]) -> Iterator[list[_Word]]:
    while run and _is_common(run[0]):
        run = run[1:]
    while run and (_is_common(run[-1]) or run[-1].norm in JOINS):
        run = run[:-1]
    if run:
        yield run


def _variants(run: list[_Word], elsewhere: set[str], *, likely: bool) -> Iterator[list[_Word]]:
    """A sentence's first word has a capital whatever it is: the name may begin after it, and alone it is none unless something
    else says so."""
    first = run[0]
    plain = first.first and first.text[1:].islower() and not first.text.endswith(("'s", "’s"))
    if not plain or likely or first.norm in elsewhere or len(run) > 1:
        yield run
    if plain and len(run) > 1:
        yield from _trimmed(run[1:])


def _after_nouns(words: Sequence[_Word], nouns: dict[str, tuple[str, ...]]) -> Iterator[list[_Word]]:
    for i, word in enumerate(words[:-1]):
        after = words[i + 1]
        if word.norm in nouns and not _is_common(after) and not _is_capital(after) and after.norm not in COMPOUND:
            run = [after]
            if i + 2 < len(words) and not _is_common(words[i + 2]) and not words[i + 2].first:
                run.append(words[i + 2])
            yield run


# --- what points back ----------------------------------------------------------------------------------------------------

_PRONOUNS: dict[str, PointerKind] = {
    **dict.fromkeys(("they", "them", "their", "theirs", "they're", "they've", "they'll", "they'd"), "they"),
    **dict.fromkeys(("it", "its", "it's"), "it"),
    **dict.fromkeys(("he", "him", "his", "she", "her", "hers"), "person"),
}
_DEFINITE = frozenset(("the", "this", "that", "said", "same"))


def _nouns(types: Sequence[EntityType]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in types:
        for noun in {normalise(each.name.replace("_", " ")), *map(normalise, each.words)} - {""}:
            found[noun] = (*found.get(noun, ()), each.name)
    return found


def _pointers(text: str, words: Sequence[_Word], nouns: dict[str, tuple[str, ...]]) -> Iterator[Pointer]:
    count = 0
    for i, word in enumerate(words):
        pointer = _pronoun(text, word) or (
            _definite(text, words, i, nouns) if word.norm in _DEFINITE and i + 1 < len(words) else None
        )
        if pointer is not None:
            yield pointer
            count += 1
            if count == MAX_POINTERS:
                return


def _pronoun(text: str, word: _Word) -> Pointer | None:
    # Of "it's" the possessive is gone from the norm.
    said = word.text.casefold().replace("’", "'")
    kind = _PRONOUNS.get(said)
    # "US", "IT": a department.
    if kind is None or (word.text.isupper() and len(word.text) > 1):
        return None
    bare = said.partition("'")[0]
    end = word.start + len(bare)
    if bare == "it" and _EMPTY_IT.match(text, end, end + 40):
        return None
    return Pointer(TextSpan(word.start, end, text[word.start : end], bare), kind)


def _definite(text: str, words: Sequence[_Word], i: int, nouns: dict[str, tuple[str, ...]]) -> Pointer | None:
    for n in (2, 1):  # "the sales order" before "the order"
        noun = words[i + 1 : i + 1 + n]
        if len(noun) < n:
            continue
        types = nouns.get(" ".join(word.norm for word in noun))
        if types is None:
            continue
        after = words[i + 1 + n] if i + 1 + n < len(words) else None
        if after is not None and not after.first and (after.norm in COMPOUND or _names_it(after)):
            return None
        return Pointer(_piece(text, [words[i], *noun]), "type", types)
    return None


def _names_it(word: _Word) -> bool:
    """Whether a word after "the customer" says which: "the customer Gai", "the order SO-1001"."""
    return (_is_capital(word) and not _is_common(word)) or any(map(str.isdigit, word.text))
