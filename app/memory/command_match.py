"""What a command to forget is about: which stored texts say it. Pure.

    "I live in Porto"          what a rule reads the same out of, and what says all of its words: not "Loves hiking in Porto"
    "I worked at Acme"         no rule reads anything out of it, but it names something: whatever says that name
    "Maria has depression"     it names somebody who is known as "wife": of her, what says the other words
    "my peanut allergy"        else all of its words have to stand there

Clear is what one name, one triple or two words agree on; where a single common word fits several memories, the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.languages.data import language
from app.languages.detect import function_word, language_of
from app.memory.candidate import Triple, ends_with
from app.memory.ingest_claims import Relation, opposite, relation
from app.memory.same_value import same_value
from app.memory.text import KIN
from app.store.commands import Stored

_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_ELIDED = re.compile(r"^(?:[cdjlmnst]|qu)'(?=\w{2})", re.IGNORECASE)
"""What French and Italian shorten before a word: d'emojis, l'adresse."""
_HAN = re.compile(r"[\u3400-\u9fff]{2,}")
_ENDINGS = re.compile(r"(\w+?)(?:e?s|e|e?d|ing|e?n|er|[oa]s?)?\n\1(?:e?s|e|e?d|ing|e?n|er|[oa]s?)?")
"""Two words on a line each that differ in nothing but how European languages inflect."""
_STEM = 4
"""Letters by which two forms are one word ("worked", "works"), as in `text`."""
_TELLS = 3
"""Letters from which a word of a memory tells what its value is: "old", not "in"."""
_ASKING = frozenset(
    "where when what which that this about from with have "  # noqa: SIM905 - one a line would be a page
    "dónde donde cuándo cómo quién qué onde quando como quem".split()
)
_JOINED = re.compile(r"[,;，；、]|\b(?:and|or|but|y|o|pero|und|oder|aber|et|ou|mais|e|mas)\b|[和或]", re.IGNORECASE)
"""A wish that has it may ask for two things, of which one is taken back."""
_OF_SELF = re.compile(
    r"(?:i|i'm|i've|my|me|we|our|yo|mi|mis|me|ich|mein\w*|wir|unser\w*|je|j'\w+|mon|ma|mes|nous|eu|meu|minha|meus|minhas|nós)\b|我",
    re.IGNORECASE,
)

_SPELLS_SELF = frozenset(["en", "de", "fr"])
"""Languages in which whoever speaks of themselves says so by a word; in the others a verb's ending may do."""


class Aim(Struct, frozen=True):
    """What a command is about. `names`: its words that name somebody or something; `words`: all that say something, by their
    stems, `spelled`: as they stand; `triples`: what the rules read out of it; `of_self`: it speaks of the user; `language`: as
    `language_of` gives it; `subjects`: whom it names, as memories call them ("wife")."""

    names: frozenset[str]
    words: frozenset[str]
    triples: tuple[Triple, ...]
    of_self: bool
    language: str = "en"
    spelled: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()

    @property
    def terms(self) -> list[str]:
        """By which anything it may be about is found: any of these stands in it."""
        values = (word for each in self.triples for word in _tokens(each.value))
        return sorted(self.names | self.words | {word for word in values if not function_word(word)})

    @property
    def more(self) -> frozenset[str]:
        """The words beside its names and what the rules read out of it."""
        values = (word for each in self.triples for word in _tokens(each.value))
        return self.words - {_stem(word) for word in (*self.names, *values)}


class Matched(Struct, frozen=True):
    """`memories`: those that clearly are meant; `keys`: words that a message has to have, all of them, to be meant as well;
    none: only the messages that these memories came from are. `unlike`: one common word fits several things."""

    memories: tuple[Stored, ...]
    keys: frozenset[str]
    unlike: bool = False


def aim_of(about: str, triples: Iterable[Triple], code: str = "en") -> Aim:
    """What the user's words `about` are about. `triples`: what the rules read out of them; `code`: their language."""
    found = _words(about)
    names = {
        word.casefold()
        for n, word in enumerate(found)
        if _is_name(found, n, code) and (n or not function_word(word.casefold()))
    }
    low = [word.casefold() for word in found]
    low = [word for word in low if not _OF_SELF.fullmatch(word) and not _HAN.search(word)]
    words = [word for word in low if not function_word(word) and word not in _ASKING]
    # "where I live": what is a word of talk elsewhere says all that is said here.
    words = words or [word for word in low if len(word) >= _STEM and word not in _ASKING]
    pairs = [run[i : i + 2] for run in _HAN.findall(about) for i in range(len(run) - 1)]
    spoken = [each for each in pairs if "我" not in each]
    return Aim(
        frozenset(names),
        frozenset([*map(_stem, words), *spoken]),
        tuple(triples),
        _OF_SELF.match(about) is not None,
        code,
        frozenset([*words, *spoken]),
    )


def matched(aim: Aim, stored: Sequence[Stored]) -> Matched:
    """What of what is stored is meant."""
    aim = _of_whom(aim, stored)
    about = [each for each in stored if _subject_fits(aim, each, _spoken_of(aim, stored))]
    clear = [each for each in about if _said_by(aim, each)]
    keys = aim.names or _names_within(aim, clear)
    if any(_read_out(aim, each) for each in about):
        clear = [each for each in about if _read_out(aim, each) or (each in clear and _says_it(aim, each))]
    elif keys:
        clear = [each for each in about if _said_by(aim, each) or _names_all(each.text, keys)]
    present = {(each.subject, each.predicate, each.value or each.text) for each in clear if each.in_force}
    read_out = any(_read_out(aim, each) for each in clear)
    unlike = not aim.names and not read_out and len(aim.words) < 2 and len(present) > 1
    return Matched(tuple(clear), frozenset(keys), unlike)


def _of_whom(aim: Aim, stored: Sequence[Stored]) -> Aim:
    """The aim with the names of people whom memories call otherwise as its subjects: Maria is the wife. What says nothing but a
    name stays as it is, and so does what speaks of the user alone."""
    called = {
        name: each.subject
        for each in stored
        if each.predicate == "name" and each.subject not in (None, "user")
        for name in aim.names.intersection(_tokens(each.value or ""))
    }
    subjects = frozenset(each for each in called.values() if each is not None)
    rest = aim.words - {_stem(word) for word in (*called, *subjects)}
    if not rest or (aim.of_self and not subjects & _spoken_of(aim, stored)):
        return aim
    triples = tuple(each for each in aim.triples if each.predicate != "name")
    return replace(aim, names=aim.names - called.keys(), words=rest, subjects=subjects, triples=triples)


def _says_it(aim: Aim, each: Stored) -> bool:
    """Beside what says the very same: what has all the words, and what says nothing but that it ended ("Left Acme")."""
    return says_all(aim, each.text) or (each.kind == "correction" and each.predicate is None)


class TakenBack(NamedTuple):
    """Standing wishes that a message takes back. `clear`: they say nothing else."""

    wishes: tuple[Stored, ...]
    clear: bool


def taken_back(about: str, wishes: Sequence[Stored], code: str, *, allows: bool) -> TakenBack:
    """Which of the user's wishes say what `about` says: all of its words. `allows`: those that forbid it are meant, else those
    that ask for it: who says "no more emojis" does not take back "never use emojis"."""
    words = aim_of(about, (), code).words
    spelled = [token for token in _tokens(about) if _stem(token) in words and not _HAN.search(token)]
    found = [
        each
        for each in wishes
        if words and _has(each.text, words) and _forbids(each.text, code) == allows and _inflected(spelled, each.text)
    ]
    several = len(found) > 1 and len(words) < 2
    return TakenBack(tuple(found), not several and not any(_JOINED.search(each.text) for each in found))


def _forbids(wish: str, code: str) -> bool:
    return language(language_of(wish) or code or "en").pattern("negates").search(wish) is not None


def contrary(one: Stored, other: Stored) -> bool:
    """Whether two memories cannot both be so: "lives in Lisbon", "lives in Porto"."""
    return relation(_triple(one), _triple(other)) is Relation.CONFLICT


def _triple(each: Stored) -> Triple:
    return Triple(each.subject or "", each.predicate or "", each.value or "")


def value_keys(each: Stored) -> frozenset[str]:
    """The words of a memory's value by which any message says it, whoever wrote it: "diabetes"; empty: nothing in it tells."""
    value = each.value or ""
    runs = _HAN.findall(value)
    said = [word for word in _tokens(value) if not function_word(word) and not _HAN.search(word)]
    told = any(len(word) >= _STEM and word.isalpha() for word in said)
    return frozenset([*runs, *said]) if runs or told else frozenset()


def says(keys: Collection[str], text: str) -> bool:
    """Whether a message has all of these words."""
    return bool(keys) and _names_all(text, keys)


def says_all(aim: Aim, text: str) -> bool:
    """Whether a text has all words of a command, in any form, and these are more than names."""
    return bool(aim.more) and _has(text, aim.words)


def may_say(aim: Aim, text: str) -> bool:
    """Whether a message that has the words of a command may mean what it means: of the user, it speaks of the user, and of no
    relative whom the command does not name ("my father's cancer")."""
    if not aim.of_self:
        return True
    tokens = _tokens(text)
    kin = {word for word in KIN.union(language(aim.language or "en").kin) if _stem(word) not in aim.words}
    own = any(_OF_SELF.fullmatch(word) for word in tokens) or (aim.language or "en") not in _SPELLS_SELF
    others = any(word in text if _HAN.search(word) else word in tokens for word in kin)
    return (own or "我" in text) and not others


def quotes(each: Stored, question: str, answer: str) -> bool:
    """Whether an answer gives a memory's value, and question or answer name what of: "Rome" is not always where one lives."""
    if not each.value or not _stands(each.value, answer):
        return False
    own = set(_tokens(each.value))
    words = {
        token for token in _tokens(each.text) if token not in own and len(token) >= _TELLS and not _HAN.search(token)
    }
    words |= set(_HAN.findall(each.text.replace(each.value, " ")))
    return not words or any(_has(f"{question} {answer}", {_stem(word)}) for word in words)


def _stands(phrase: str, text: str) -> bool:
    if _HAN.search(phrase):
        return phrase in text
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


def _said_by(aim: Aim, each: Stored) -> bool:
    if _read_out(aim, each):
        return True
    if aim.names:
        # What somebody is called says nothing else of them.
        bare = each.predicate != "name" or aim.words <= {_stem(name) for name in aim.names}
        return bare and _names_all(each.text, aim.names)
    return bool(aim.words) and _has(each.text, aim.words)


def _read_out(aim: Aim, each: Stored) -> bool:
    """Whether a rule read the same of the same subject out of both, or what belongs to it: "a data engineer at Acme"."""
    return each.value is not None and any(
        triple.subject == each.subject
        and each.predicate in {triple.predicate, opposite(triple.predicate), *ends_with(triple.predicate)}
        and _within(triple.value, each.value)
        for triple in aim.triples
    )


def _within(value: str, stored: str) -> bool:
    if same_value(value, stored):
        return True
    words = {word for word in _tokens(value) if not function_word(word)}
    return bool(words) and _names_all(stored, words)


def _names_within(aim: Aim, clear: Sequence[Stored]) -> frozenset[str]:
    """Words of the command that stand as names in what it fits: "acme", however the user writes it."""
    texts = [_WORD.findall(each.text) for each in clear]
    named = {found[n].casefold() for found in texts for n in range(1, len(found)) if _is_name(found, n, aim.language)}
    return frozenset(each for each in named if _stem(each) in aim.words)


def _spoken_of(aim: Aim, stored: Sequence[Stored]) -> frozenset[str]:
    """The subjects that the command names, other than the user: "my wife"."""
    subjects = aim.subjects or {triple.subject for triple in aim.triples}
    others = {each.subject for each in stored if each.subject not in (None, "user")}
    kin = {meaning for word, meaning in language(aim.language or "en").kin.items() if _stem(word) in aim.words}
    return frozenset(
        subjects or {each for each in others if each is not None and (each in kin or _stem(each) in aim.words)}
    )


def _subject_fits(aim: Aim, each: Stored, spoken_of: Collection[str]) -> bool:
    """ "I worked at Acme" is not about a wife who does."""
    if spoken_of:
        return each.subject in spoken_of or (
            each.subject is None and ("user" in spoken_of or _has(each.text, {_stem(s) for s in spoken_of}))
        )
    return not aim.of_self or each.subject in (None, "user")


def _is_name(found: Sequence[str], n: int, code: str) -> bool:
    """Whether a word of a text names somebody or something. In German every noun has a capital: not one that an article or
    possessive stands before, with an adjective between or without."""
    if not _names(found[n]):
        return False
    no_name_after = language(code or "en").pattern("no_name_after")
    adjective = n > 1 and found[n - 1].islower() and no_name_after.fullmatch(found[n - 2])
    return not (adjective or (n > 0 and no_name_after.fullmatch(found[n - 1])))


def _names(word: str) -> bool:
    return (word[0].isupper() and word not in ("I", "I'm", "I've", "I'd", "I'll")) or any(c.isdigit() for c in word)


def _tokens(text: str) -> list[str]:
    return [word.casefold() for word in _words(text)]


def _words(text: str) -> list[str]:
    return [_ELIDED.sub("", word.removesuffix("'s")) for word in _WORD.findall(text.replace("’", "'"))]


def _stem(word: str) -> str:
    return word[:_STEM] if len(word) > _STEM and word.isascii() and word.isalpha() else word


def _inflected(words: Sequence[str], text: str) -> bool:
    """Whether all of these words stand in a text, at most in another form: "commas" is no form of "comments"."""
    tokens = _tokens(text)
    return all(any(_ENDINGS.fullmatch(f"{word}\n{token}") for token in tokens) for word in words)


def _names_all(text: str, names: Collection[str]) -> bool:
    """Whether all of these stand in a text as whole words."""
    tokens, plain = frozenset(_tokens(text)), text.casefold()
    return all(each in plain if _HAN.search(each) else each in tokens or each + "s" in tokens for each in names)


def _has(text: str, stems: Collection[str]) -> bool:
    """Whether words that begin so all stand in a text; of Chinese, pairs of characters."""
    tokens, plain = _tokens(text), text.casefold()
    return all(
        each in plain if _HAN.search(each) else any(token == each or _stem(token) == each for token in tokens)
        for each in stems
    )
