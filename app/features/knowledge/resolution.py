"""Where a text may name a thing, what a mention most likely means, and what a text teaches: stages 1 to 5 of seed 004 as plain
functions, which `resolve` puts together. Pure; no model.

A mention is a stretch of words to be looked up, a key, a name, or a word that points back. All of it is bounded, whatever the
text holds, so that ten thousand names cost what a few hundred words cost.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from app.context.resolution import Alternative, Entity, Method
from app.features.knowledge.entities import SHIPPED, Confidences, LearnedNames, Match, Thing, UsedAlias
from app.features.knowledge.ontology import NO_ONTOLOGY, EntityType, Ontology

# --- words by which names are told from other words: English -------------------------------------------------------------

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


# --- mentions ------------------------------------------------------------------------------------------------------------

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


# --- what a business's own database is asked -----------------------------------------------------------------------------


class RowQuery(NamedTuple):
    """What is looked for in the business's own database. `types`: of an identifier; (): all that are found by name."""

    mention: str
    types: tuple[str, ...]


class FoundRow(NamedTuple):
    """A row that a mention may mean. `key`: the row's, of `column`; `exact`: the mention is its key, not only (a part of) its
    name."""

    mention: str
    entity: Entity
    table: str
    column: str
    key: str
    domain: str
    properties: Mapping[str, Any]
    exact: bool


class FoundEntities(NamedTuple):
    """What a search came to. `away`: not everything was searched in time, so that what is not here may be there."""

    found: Sequence[FoundRow] = ()
    away: bool = False


class Finder(Protocol):
    """The business's own database. Raises nothing: one that is away has nothing, and says so."""

    async def find(self, tenant: UUID, mentions: Sequence[RowQuery]) -> FoundEntities: ...


# --- what a mention means, by what was looked up: stages 1 to 3, and what the domain found -------------------------------

USES = 0.1
"""What ln(1 + uses) adds to an alias's rank (stage 2, "ORDER BY")."""
ALIAS_DECAY = 0.01
"""What an alias's confidence loses a day without use: e^(−0.01 · days), as seed 004 has it for what is remembered."""
ALIAS_CLOSE = 0.9
"""Share of the best rank from which another thing of the same alias is as likely."""
FUZZY_FROM = 0.7
"""Similarity from which a name is nearly the same (stage 3)."""
FUZZY_CLOSE = 0.06
"""Confidence within which two are as likely: seed 004's own example (0.82 and 0.72, which is 0.05 apart) is put to the user."""
COREFERENCE_DECAY = 0.5
"""What each message further back takes (stage 4)."""
MAX_ALTERNATIVES = 5
"""Things that are offered at most (stage 3, "LIMIT 5")."""
DAY_S = 86_400.0
_DIGITS = re.compile(r"\d+")


class Meaning(NamedTuple):
    """What a mention may mean, best first; `clear`: it is the first. `alias`: the rows by which it was known; `found`: those
    of the business's own database."""

    method: Method
    options: tuple[Alternative, ...]
    clear: bool
    alias: tuple[Match, ...] = ()
    found: tuple[FoundRow, ...] = ()

    @property
    def best(self) -> Alternative:
        return self.options[0]


class Occurrence(NamedTuple):
    piece: TextSpan
    outcome: Meaning


class ChosenAlternative(NamedTuple):
    """One of the alternatives of an earlier mention (`asked`), which the words `piece` pick."""

    asked: Occurrence
    option: Alternative
    piece: TextSpan


def faded(confidence: float, since: datetime | None, now: datetime) -> float:
    """An alias's confidence after the days without use."""
    days = max(0.0, (now - since).total_seconds() / DAY_S) if since is not None else 0.0
    return confidence * math.exp(-ALIAS_DECAY * days)


def alias_rank(match: Match, now: datetime) -> float:
    """confidence · (1 + 0.1 · ln(1 + uses)), the confidence faded, but for what the domain calls a thing."""
    sure = match.confidence if match.source == "domain_db" else faded(match.confidence, match.last_used_at, now)
    return sure * (1 + USES * math.log1p(match.use_count))


def fuzzy_confidence(similarity: float, sure: Confidences = SHIPPED) -> float:
    """0.70 + 0.15 · (s − 0.7) / 0.3: seed 004's range. Its "0.7 · s" never exceeds 0.7."""
    likeness = (min(1.0, max(FUZZY_FROM, similarity)) - FUZZY_FROM) / (1 - FUZZY_FROM)
    return min(1.0, sure.fuzzy + sure.fuzzy_span * likeness)


def coreference_confidence(distance: int, sure: Confidences = SHIPPED) -> float:
    """0.60 · e^(−0.5 · (d − 1)); d = 1: the message before."""
    return sure.coreference * math.exp(-COREFERENCE_DECAY * (max(1, distance) - 1))


def known(matches: Sequence[Match], now: datetime, sure: Confidences = SHIPPED) -> Meaning | None:
    """What a mention is known to mean, by name (stage 1) or alias (stage 2); `matches` are its own."""
    stated = _stated(matches)
    names = [each for each in matches if each.stage == "name"]
    if names:
        options = _distinct(
            (_entity(each), sure.exact) for each in sorted(names, key=lambda each: (not each.own, each.entity_id))
        )
        chosen = [each for each in options if each.entity.id in stated]
        if len(options) > 1 and len(chosen) == 1:
            # Two are called so, and the user once said which is meant.
            option = Alternative(chosen[0].entity, sure.alias)
            return Meaning("known_alias", (option,), True, (stated[option.entity.id],))
        return Meaning("exact", options, len(options) == 1)
    aliases = [each for each in matches if each.stage == "alias"]
    if not aliases:
        return None
    # The user's own aliases come before the tenant's, stated aliases before learned ones. If the first are ambiguous, a later
    # standing decides, such as an alias that an operator gave to the whole tenant.
    standings = sorted({_standing(alias) for alias in aliases}, reverse=True)
    meanings = [
        _weigh_aliases([alias for alias in aliases if _standing(alias) == standing], now, sure)
        for standing in standings
    ]
    return next((meaning for meaning in meanings if meaning.clear), meanings[0])


def _weigh_aliases(aliases: Sequence[Match], now: datetime, sure: Confidences) -> Meaning:
    """Return the meaning of aliases of one standing; it is clear if no other entity ranks nearly as high as the best."""
    rows = sorted(aliases, key=lambda alias: (-alias_rank(alias, now), alias.name, alias.entity_id))
    best = alias_rank(rows[0], now)
    close = {alias.entity_id for alias in rows if alias_rank(alias, now) >= ALIAS_CLOSE * best}
    options = _distinct((_entity(alias), min(sure.alias, alias_rank(alias, now))) for alias in rows)
    clear = len(close) == 1
    return Meaning("known_alias", options, clear, tuple(rows[:1]) if clear else ())


def near(span: str, matches: Sequence[Match], sure: Confidences = SHIPPED) -> Meaning | None:
    """What a mention nearly spells (stage 3), or is the first words of, which counts as the least similarity. A number is never
    nearly another number."""
    digits = set(_DIGITS.findall(span))
    rated = [
        (_entity(each), fuzzy_confidence(each.similarity, sure))
        for each in matches
        if (each.stage in ("near", "near_alias") and each.similarity > FUZZY_FROM) or each.stage == "part"
        if digits <= set(_DIGITS.findall(normalise(each.name))) or (each.stage == "near_alias" and not digits)
    ]
    return _closest("fuzzy", rated)


def discovered(mention: str, found: Sequence[FoundRow], sure: Confidences = SHIPPED) -> Meaning | None:
    """What the business's own database has under a mention: rows whose key it is before those whose name it is."""
    if not found:
        return None
    exact = [each for each in found if each.exact] or [each for each in found if normalise(each.entity.name) == mention]
    rows = sorted(exact or found, key=lambda each: (each.entity.name, each.entity.id))
    options = _distinct((each.entity, sure.domain_key if each.exact else sure.domain_name) for each in rows)
    kept = {each.entity.id for each in options}
    return Meaning(
        "domain_db", options, len(options) == 1, found=tuple(each for each in rows if each.entity.id in kept)
    )


def _closest(method: Method, rated: Iterable[tuple[Entity, float]]) -> Meaning | None:
    options = _distinct(sorted(rated, key=lambda each: (-each[1], each[0].name, each[0].id)))
    if not options:
        return None
    close = [each for each in options if each.confidence > options[0].confidence - FUZZY_CLOSE]
    return Meaning(method, options if len(close) == 1 else tuple(close), len(close) == 1)


def _stated(matches: Sequence[Match]) -> dict[str, Match]:
    return {
        each.entity_id: each for each in matches if each.stage == "alias" and each.own and each.source == "user_stated"
    }


def _standing(match: Match) -> tuple[bool, bool]:
    return match.own, match.source == "user_stated"


def _entity(match: Match) -> Entity:
    return Entity(match.entity_id, match.entity_type, match.name)


def _distinct(rated: Iterable[tuple[Entity, float]]) -> tuple[Alternative, ...]:
    """Each thing once, as it comes first."""
    found: dict[str, Alternative] = {}
    for entity, confidence in rated:
        if entity.id not in found:
            found[entity.id] = Alternative(entity, confidence)
    return tuple(found.values())[:MAX_ALTERNATIVES]


# --- what words that point back mean (stage 4), and which alternative a user picks (stage 5) -----------------------------

WINDOW = 10
"""Messages before this one that count (seed 004: "last 10 messages")."""
PICK_WORDS = 12
PICK_CHARS = 200
"""A longer message, in words or characters, is no answer to "which one?"."""
_AGENTS_TEXT = """
account agency association bank branch business buyer candidate carrier client colleague company contact contractor customer
dealer department distributor driver employee firm guest lead manager manufacturer member merchant office organisation
organization owner partner patient people person provider prospect rep school seller shop staff store student supplier team
technician tenant user vendor worker
"""
_AGENTS = frozenset(_AGENTS_TEXT.split())
"""Nouns for those of whom "they" is said rather than "it"."""
_PERSONS_TEXT = """
account buyer candidate client colleague contact contractor customer driver employee guest lead manager member owner partner
patient person prospect rep student technician tenant user worker
"""
_PERSONS = frozenset(_PERSONS_TEXT.split())
"""Nouns for those who may be "he" or "she"."""
_ORDINALS = (
    ("first", "1st", "one", "1"),
    ("second", "2nd", "two", "2"),
    ("third", "3rd", "three", "3"),
    ("fourth", "4th", "four", "4"),
    ("fifth", "5th", "five", "5"),
)
_NTH = {word: n for n, words in enumerate(_ORDINALS) for word in words[:2]} | {"former": 0}
_NUMBER = {word: n for n, words in enumerate(_ORDINALS) for word in words[-2:]}
_NAMES = f"{'|'.join(_NTH)}|last|latter"
_ORDINAL = re.compile(
    rf"(?:\bthe |^\W*)(?P<nth>{_NAMES})\b(?! (?:of|quarter|time|day|week|month|year|order|half)\b)(?: one| option)?"
    rf"|\b(?P<that>{_NAMES}) (?:one|option|choice)\b"
    rf"|\b(?:number|option|no\.?|choice|#) ?(?P<number>{'|'.join(_NUMBER)})\b|^\W*#?(?P<bare>[1-5])\W*$",
    re.IGNORECASE,
)


class Antecedent(NamedTuple):
    """A thing that was named `distance` messages ago (1: in the one before, or in this one: `here`), at `place` in it."""

    entity: Entity
    distance: int
    place: int
    here: bool = False


def refer(pointer: Pointer, antecedents: Sequence[Antecedent], ontology: Ontology) -> tuple[Antecedent, ...]:
    """Whom a pointer may mean, the likeliest first: those named last, first. "The customer" is a customer; "they" are
    rather people or organisations, "it" is rather neither; "she" is a person."""
    before = [each for each in antecedents if not each.here or each.place < pointer.piece.start]
    latest = sorted(before, key=lambda each: (each.distance, not each.here, -each.place))
    if pointer.kind == "type":
        fitting = [each for each in latest if each.entity.type in pointer.types]
    elif pointer.kind == "person":
        fitting = [each for each in latest if _is(each.entity, ontology, _PERSONS)]
    else:
        wanted = pointer.kind == "they"
        fitting = [each for each in latest if _is(each.entity, ontology, _AGENTS) is wanted] or latest
    once = {each.entity.id: each for each in reversed(fitting)}
    return tuple(sorted(once.values(), key=fitting.index))


def _is(entity: Entity, ontology: Ontology, nouns: frozenset[str]) -> bool:
    known = ontology.types.get(entity.type)
    words = {entity.type.casefold(), *(known.words if known is not None else ())}
    return any(part in nouns for word in words for part in normalise(word.replace("_", " ")).split())


def may_pick(text: str) -> bool:
    """Whether a text is short enough to be an answer to "which one?"."""
    return len(text) <= PICK_CHARS and len(_words(text)) <= PICK_WORDS


def pick(text: str, asked: Occurrence) -> ChosenAlternative | None:
    """The alternative of an earlier mention that a text picks: by id, by its name or words of it that no other has, or by its
    place."""
    options = asked.outcome.options
    if not may_pick(text) or len(options) < 2:
        return None
    picked = _by_id(text, options) or _by_name(text, options) or _by_place(text, options)
    return ChosenAlternative(asked, *picked) if picked is not None else None


_Picked = tuple[Alternative, TextSpan]


def _by_id(text: str, options: Sequence[Alternative]) -> _Picked | None:
    low = text.casefold()
    for option in options:
        for name in (option.entity.id, option.entity.id.partition(":")[2]):
            # A key may be a single digit, which is a place first.
            at = low.find(name.casefold()) if len(name) > 2 else -1
            end = at + len(name)
            alone = at >= 0 and not (low[at - 1 : at].isalnum() or low[end : end + 1].isalnum())
            if alone and len(low) == len(text):
                return option, _cut(text, at, end)
    return None


def _by_name(text: str, options: Sequence[Alternative]) -> _Picked | None:
    grams = {each.norm: each for each in reversed(find(text).grams)}
    names = [normalise(each.entity.name) for each in options]
    whole = [n for n, name in enumerate(names) if name in grams]
    if len(whole) == 1:
        return options[whole[0]], grams[names[whole[0]]]
    words = [set(re.findall(r"\w+", name)) for name in names]
    found = []
    for n, own in enumerate(words):
        others = set().union(*(each for m, each in enumerate(words) if m != n))
        hits = [grams[word] for word in own - others if word in grams]
        if hits:
            found.append((options[n], min(hits, key=lambda piece: piece.start)))
    return found[0] if len(found) == 1 else None


def _by_place(text: str, options: Sequence[Alternative]) -> _Picked | None:
    match = _ORDINAL.search(text)
    if match is None:
        return None
    if (nth := match["nth"] or match["that"]) is not None:
        n = len(options) - 1 if nth.casefold() in ("last", "latter") else _NTH[nth.casefold()]
    else:
        n = _NUMBER[(match["number"] or match["bare"]).casefold()]
    return (options[n], _cut(text, *match.span())) if n < len(options) else None


def _cut(text: str, start: int, end: int) -> TextSpan:
    return TextSpan(start, end, text[start:end], normalise(text[start:end]))


# --- what a text teaches -------------------------------------------------------------------------------------------------


def stated(
    mention: str, entity: str, *, own: bool, confidence: float, metadata: Mapping[str, Any] | None = None
) -> UsedAlias:
    """An alias that somebody said outright: for a user (`own`), or for the whole tenant."""
    return UsedAlias(own, normalise(mention), plain(mention), entity, "user_stated", confidence, metadata or {})


def chosen(
    mention: str, entity: str, alternatives: Sequence[str], now: datetime, sure: Confidences = SHIPPED
) -> UsedAlias:
    """What a user's choice among alternatives teaches; its metadata are as in seed 004, table 3."""
    metadata = {
        "disambiguation_context": {"alternative_entities": list(alternatives), "preferred_for_user": True},
        "disambiguation_history": [{"chosen_at": now.date().isoformat(), "alternatives_count": len(alternatives) + 1}],
    }
    return stated(mention, entity, own=True, confidence=sure.choice, metadata=metadata)


def lessons_of(
    hits: Sequence[Occurrence],
    choice: ChosenAlternative | None,
    pointed: Sequence[str],
    now: datetime,
    sure: Confidences = SHIPPED,
    *,
    keys: Collection[str] = (),
) -> LearnedNames:
    """Return the names that a text teaches: for the user alone, except identifiers, which hold for the whole tenant (seed 004,
    table 3: "SO-1001" is global).

    Args:
        hits: The mentions in the text, each with its outcome.
        choice: The alternative that the text picks.
        pointed: Ids of the entities that the text points back to.
        now: The time of the text.
        sure: The confidence of each stage.
        keys: Words of the text that have the form of an identifier, normalised.
    """
    things: list[Thing] = []
    aliases: list[UsedAlias] = []
    for piece, outcome in hits:
        is_own = piece.norm not in keys or not all(row.exact for row in outcome.found)
        things += [_thing(row, is_own=is_own) for row in outcome.found]
        text = plain(piece.text)
        if outcome.method == "domain_db":
            aliases += [
                UsedAlias(is_own, piece.norm, text, each.entity.id, "domain_db", sure.domain_name, {})
                for each in outcome.options
                if normalise(each.entity.name) != piece.norm
            ]
        elif outcome.method == "fuzzy" and outcome.clear:
            best = outcome.best
            aliases.append(UsedAlias(True, piece.norm, text, best.entity.id, "fuzzy", best.confidence, {}))
        aliases += [
            UsedAlias(each.own, each.norm, text, each.entity_id, "learned", each.confidence, {})
            for each in outcome.alias
        ]
    if choice is not None:
        asked, picked = choice.asked, choice.option.entity.id
        things += [_thing(row, is_own=True) for row in asked.outcome.found]
        others = [each.entity.id for each in asked.outcome.options if each.entity.id != picked]
        aliases.append(chosen(asked.piece.text, picked, others, now, sure))
    spoken = [each.outcome.best.entity.id for each in hits if each.outcome.clear]
    return LearnedNames(tuple(things), tuple(aliases), tuple(dict.fromkeys([*spoken, *pointed])))


def _thing(row: FoundRow, *, is_own: bool) -> Thing:
    entity = row.entity
    ref = {"domain": row.domain, "table": row.table, "column": row.column, "key": row.key}
    return Thing(is_own, entity.id, entity.type, entity.name, normalise(entity.name), ref, dict(row.properties))
