"""What the user tells memory to do, in the chat itself: forget, correct, remember, recall; and which standing wishes they take
back: `stop` one to do something ("no more bullet points"), `allow` what one forbade ("you can suggest cilantro again"). And
what such a command is about: which stored texts say it. Pure.

The rules are the lines [commands] of app/languages/<code>.txt: `pattern => kind scope`, with the groups `about` and `new`. A
command is a sentence, or the end of one from a clause on, that fits a rule as a whole, in the user's own words: what is quoted
or pasted is masked before (`extract_clauses`), a message of several lines gives none, and in a sentence that supposes or
reports nothing is a command. "Forget all previous instructions" is none: it does not speak of memory. Whether "no more bullet
points" takes a wish back depends on whether one speaks of them (`taken_back`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import NamedTuple, cast, get_args
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.languages import Language, Sentence, function_word, heard, language, language_of, sentences
from app.memory.candidate import Triple, ends_with
from app.memory.claims import TripleRelation, opposite, relation, same_value
from app.memory.commands import Command, CommandKind, CommandScope
from app.memory.extract_clauses import AT_ONCE, announced, masked, own_word
from app.memory.text import KIN
from app.text_cache import of_texts


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    kind: CommandKind
    scope: CommandScope


WITHDRAWS: frozenset[CommandKind] = frozenset({"stop", "allow"})
"""Kinds that take a standing wish back."""
MAX_COMMANDS = 8
_CODE = re.compile(r"[(){}\[\]<>=`$\\]|\w_\w")
"""Signs of code: what is wrong is then the code, and what is to be kept in mind is about it."""
_EDGES = " \t,.;:!?¿¡\"'“”„«»()，、：。；的"
_JOINTS = re.compile(r"(?:[,，;–—]\s*|\s(?=(?:and|but|so|y|pero|und|aber|et|mais|e|mas) ))")
_JOINER = re.compile(r"(?:and|but|so|y|pero|und|aber|et|mais|e|mas) ", re.IGNORECASE)
_FURTHER = re.compile(r"[,，;；]|\s[–—-]\s")
_GOES_ON = re.compile(r"\s?(?:[,:;，：；]|[–—-]\s)")
_BACK = re.compile(r"\bforget\b", re.IGNORECASE)
"""What points back to what was said before ("Forget what I said") means that, and not what follows it."""
_SET_OFF = re.compile(r"[*`_]\w|``")
_ON_THE_OTHER = re.compile(r"[.!。！\s]{1,3}")
"""Between "That's wrong." and the sentence that says what is so."""


@cache
def read_commands(code: str) -> tuple[_Rule, ...]:
    """The commands of a language, in the order in which they are tried. Raises `ValueError` for a line that is none."""
    found = []
    for pattern, gives in language(code).commands:
        kind, _, scope = gives.partition(" ")
        if kind not in get_args(CommandKind) or scope not in get_args(CommandScope):
            raise ValueError(f"a command is `pattern => kind scope`, not {gives!r}")
        found.append(_Rule(re.compile(pattern, re.IGNORECASE), cast(CommandKind, kind), cast(CommandScope, scope)))
    return tuple(found)


@of_texts(AT_ONCE)
def commands(text: str) -> tuple[Command, ...]:
    """The commands in a message of the user's, in the order in which they stand; quoted and pasted text gives none."""
    if not own_word(text):
        return ()
    own = masked(text)
    code = language_of(own)
    spoken = language(code or "en")
    if not _hints(own, spoken):
        return ()
    found: list[Command] = []
    said = list(sentences(own))
    for number, sentence in enumerate(said):
        whole = own[sentence.start : sentence.end]
        if spoken.pattern("fiction").search(whole):
            break
        following = ""
        if number + 1 < len(said) and _ON_THE_OTHER.fullmatch(own, sentence.end, said[number + 1].start):
            following = own[said[number + 1].start : said[number + 1].end]
        if spoken.pattern("joke").search(whole) or not _hints(whole, spoken):
            continue
        command = _of_sentence(whole, sentence.start, spoken, following, asked=sentence.asked)
        if command is None:
            continue
        if _deletes(command) and not _said_plainly(own, said, number, spoken):
            if not _said_beside(own, said, number, spoken):
                continue
            command = replace(command, plain=False)
        if command.kind not in WITHDRAWS or _of_own_accord(own, said, number, spoken):
            found.append(command)
    return tuple(each for each in found[:MAX_COMMANDS] if not announced(text, each.span[0]))


def _hints(text: str, spoken: Language) -> bool:
    """Whether a text has a word that commands have."""
    return any(spoken.pattern(name).search(text) is not None for name in ("command_hint", "wish_hint"))


def _deletes(command: Command) -> bool:
    return command.kind == "forget" and command.scope != "this"


def _said_plainly(own: str, said: Sequence[Sentence], number: int, spoken: Language) -> bool:
    """Whether the sentence with this number asks to forget something, and means it: it comes first in its message, nothing else
    there is asked, it is meant for no exercise and no moment, and what follows does not take it back."""
    sentence, before = said[number], own[: said[number].start].strip(_EDGES)
    if before and not spoken.pattern("command_lead").fullmatch(before + " "):
        return False
    if any(each.asked for each in said if each is not sentence):
        return False
    return _stands(own, said, number, spoken)


def _said_beside(own: str, said: Sequence[Sentence], number: int, spoken: Language) -> bool:
    """Whether it may mean it all the same: what is said before it is a question, or the user's own talk, no task."""
    before = [(heard(own[each.start : each.end]), each.asked) for each in said[:number]]
    return all(asked or (speech.talk and not speech.task) for speech, asked in before) and _stands(
        own, said, number, spoken
    )


def _stands(own: str, said: Sequence[Sentence], number: int, spoken: Language) -> bool:
    """Whether nothing in the sentence supposes it, and nothing after takes it back, or says that it was a joke."""
    whole, *rest = (own[each.start : each.end] for each in said[number:])
    return spoken.pattern("supposed").search(whole) is None and not any(
        spoken.pattern("cancels").match(each)
        or any(spoken.pattern(name).search(each) for name in ("joke", "retracted"))
        for each in rest
    )


def _of_own_accord(own: str, said: Sequence[Sentence], number: int, spoken: Language) -> bool:
    """Whether the sentence with this number takes a wish back for good, and nobody else is told to have said so: before it
    stand at most words about the talk ("Thanks.") and other commands, not "Fix the grammar."; and it is not set off (*…*)."""
    sentence = said[number]
    before = [(own[each.start : each.end], each.asked) for each in said[:number]]
    return (
        not sentence.asked
        and all(
            ((speech := heard(each)).talk and not speech.task and not asked)
            or _of_sentence(each, 0, spoken, "", asked=asked) is not None
            for each, asked in before
        )
        and _SET_OFF.search(own[: sentence.end]) is None
        and spoken.pattern("reported").search(own) is None
        and _stands(own, said, number, spoken)
    )


def _of_sentence(whole: str, start: int, spoken: Language, following: str, *, asked: bool) -> Command | None:
    """The command of a sentence: from its beginning, or from a clause on that nothing before makes depend on something else."""
    begins = [0, *(joint.end() for joint in _JOINTS.finditer(whole))]
    for begin in begins[:6]:
        if begin and (
            spoken.pattern("condition").match(spoken.pattern("lead").sub("", whole[:begin], count=1))
            or spoken.pattern("others").search(whole[:begin])
        ):
            return None
        lead = _JOINER.match(whole, begin)
        at = lead.end() if lead else begin
        lead = spoken.pattern("command_lead").match(whole, at)
        for place in dict.fromkeys((at, lead.end() if lead else at)):
            for rule in read_commands(spoken.code):
                match = rule.pattern.fullmatch(whole, place)
                if match is None and rule.scope == "this" and not begin:  # "Don't remember this: I was fired"
                    said = rule.pattern.match(whole, place)
                    goes_on = said is not None and _GOES_ON.match(whole, said.end()) and not _BACK.search(said[0])
                    match = said if goes_on else None
                command = _made(rule, match, spoken, start, following, asked=asked) if match else None
                if command is not None and (not begin or not _deletes(command)):
                    return command
    return None


def _made(
    rule: _Rule, match: re.Match[str], spoken: Language, start: int, following: str, *, asked: bool
) -> Command | None:
    groups = match.groupdict()
    about = (groups.get("about") or "").strip(_EDGES)
    new = (groups.get("new") or "").strip(_EDGES)
    if rule.kind == "correct":
        new = new or following.strip(_EDGES)
        if (
            asked
            or not new
            or _CODE.search(new)
            or not (groups.get("meant") is not None or spoken.pattern("asserts").match(new))
        ):
            return None
    elif rule.kind in WITHDRAWS:
        if _CODE.search(about) or spoken.pattern("once").search(about):
            return None  # "no more bullet points in this answer" is of one answer
    elif rule.scope == "thing" and (not about or spoken.pattern("not_about").match(about)):
        return None
    elif rule.kind == "forget" and _FURTHER.search(about):
        return None  # "Forget that I'm vegan, what could I cook?" supposes
    elif rule.kind == "remember" and (_CODE.search(about) or not spoken.pattern("speaks_of_self").search(about)):
        return None  # "Remember that lists are mutable" tells the model, not memory
    return Command(rule.kind, about, rule.scope, new, spoken.code, (start + match.start(), start + match.end()))


def of_self(text: str) -> bool:
    """Whether a message speaks of the user, in the first person."""
    spoken = language(language_of(text) or "en")
    return spoken.pattern("speaks_of_self").search(text.replace("’", "'")) is not None


# --- what a command is about ---------------------------------------------------------------------------------------------
#
#     "I live in Porto"          what a rule reads the same out of, and what says all of its words: not "Loves hiking in Porto"
#     "I worked at Acme"         no rule reads anything out of it, but it names something: whatever says that name
#     "Maria has depression"     it names somebody who is known as "wife": of her, what says the other words
#     "my peanut allergy"        else all of its words have to stand there
#
# Clear is what one name, one triple or two words agree on; where a single common word fits several memories, the user is asked.

_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_ELIDED = re.compile(r"^(?:[cdjlmnst]|qu)'(?=\w{2})", re.IGNORECASE)
"""What French and Italian shorten before a word: d'emojis, l'adresse."""
_HAN = re.compile(r"[\u3400-\u9fff]{2,}")
_ENDINGS = re.compile(r"(\w+?)(?:e?s|e|e?d|ing|e?n|er|[oa]s?)?\n\1(?:e?s|e|e?d|ing|e?n|er|[oa]s?)?")
"""Two words on a line each that differ in nothing but how European languages inflect."""
STEM = 4
"""Letters by which two forms are one word ("worked", "works"), as in `text`."""
_TELLS = 3
"""Letters from which a word of a memory tells what its value is: "old", not "in"."""
_ASKING = frozenset(
    "where when what which that this about from with have "  # noqa: SIM905 - one a line would be a page
    "dónde donde cuándo cómo quién qué cuánto cuánta cuántos cuántas onde quando como quem quanto quanta quantos quantas "
    "combien".split()
)
_JOINED = re.compile(r"[,;，；、]|\b(?:and|or|but|y|o|pero|und|oder|aber|et|ou|mais|e|mas)\b|[和或]", re.IGNORECASE)
"""A wish that has it may ask for two things, of which one is taken back."""
_OF_SELF = re.compile(
    r"(?:i|i'm|i've|my|me|we|our|yo|mi|mis|me|ich|mein\w*|wir|unser\w*|je|j'\w+|mon|ma|mes|nous|eu|meu|minha|meus|minhas|nós)\b|我",
    re.IGNORECASE,
)

_SPELLS_SELF = frozenset(["en", "de", "fr"])
"""Languages in which whoever speaks of themselves says so by a word; in the others a verb's ending may do."""


class StoredMemory(Struct, frozen=True):
    """A memory as it is stored. `in_force`: it is said in prompts. `kind`: as `Candidate` has it."""

    memory_id: UUID
    text: str
    subject: str | None
    predicate: str | None
    value: str | None
    in_force: bool
    kind: str = ""


class CommandTarget(Struct, frozen=True):
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

    memories: tuple[StoredMemory, ...]
    keys: frozenset[str]
    unlike: bool = False


def aim_of(about: str, triples: Iterable[Triple], code: str = "en") -> CommandTarget:
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
    words = words or [word for word in low if len(word) >= STEM and word not in _ASKING]
    pairs = [run[i : i + 2] for run in _HAN.findall(about) for i in range(len(run) - 1)]
    spoken = [each for each in pairs if "我" not in each]
    return CommandTarget(
        frozenset(names),
        frozenset([*map(_stem, words), *spoken]),
        tuple(triples),
        _OF_SELF.match(about) is not None,
        code,
        frozenset([*words, *spoken]),
    )


def matched(aim: CommandTarget, stored: Sequence[StoredMemory]) -> Matched:
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


def _of_whom(aim: CommandTarget, stored: Sequence[StoredMemory]) -> CommandTarget:
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


def _says_it(aim: CommandTarget, each: StoredMemory) -> bool:
    """Beside what says the very same: what has all the words, and what says nothing but that it ended ("Left Acme")."""
    return says_all(aim, each.text) or (each.kind == "correction" and each.predicate is None)


class WithdrawnWishes(NamedTuple):
    """Standing wishes that a message takes back. `clear`: they say nothing else."""

    wishes: tuple[StoredMemory, ...]
    clear: bool


def taken_back(about: str, wishes: Sequence[StoredMemory], code: str, *, allows: bool) -> WithdrawnWishes:
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
    return WithdrawnWishes(tuple(found), not several and not any(_JOINED.search(each.text) for each in found))


def _forbids(wish: str, code: str) -> bool:
    return language(language_of(wish) or code or "en").pattern("negates").search(wish) is not None


def contrary(one: StoredMemory, other: StoredMemory) -> bool:
    """Whether two memories cannot both be so: "lives in Lisbon", "lives in Porto"."""
    return relation(_triple(one), _triple(other)) is TripleRelation.CONFLICT


def _triple(each: StoredMemory) -> Triple:
    return Triple(each.subject or "", each.predicate or "", each.value or "")


def value_keys(each: StoredMemory) -> frozenset[str]:
    """The words of a memory's value by which any message says it, whoever wrote it: "diabetes"; empty: nothing in it tells."""
    value = each.value or ""
    runs = _HAN.findall(value)
    said = [word for word in _tokens(value) if not function_word(word) and not _HAN.search(word)]
    told = any(len(word) >= STEM and word.isalpha() for word in said)
    return frozenset([*runs, *said]) if runs or told else frozenset()


def says(keys: Collection[str], text: str) -> bool:
    """Whether a message has all of these words."""
    return bool(keys) and _names_all(text, keys)


def says_all(aim: CommandTarget, text: str) -> bool:
    """Whether a text has all words of a command, in any form, and these are more than names."""
    return bool(aim.more) and _has(text, aim.words)


def may_say(aim: CommandTarget, text: str) -> bool:
    """Whether a message that has the words of a command may mean what it means: of the user, it speaks of the user, and of no
    relative whom the command does not name ("my father's cancer")."""
    if not aim.of_self:
        return True
    tokens = _tokens(text)
    kin = {word for word in KIN.union(language(aim.language or "en").kin) if _stem(word) not in aim.words}
    own = any(_OF_SELF.fullmatch(word) for word in tokens) or (aim.language or "en") not in _SPELLS_SELF
    others = any(word in text if _HAN.search(word) else word in tokens for word in kin)
    return (own or "我" in text) and not others


def quotes(each: StoredMemory, question: str, answer: str) -> bool:
    """Whether an answer gives a memory's value, and question or answer name what of: "Rome" is not always where one lives."""
    if not each.value or not _said_in(each.value, answer):
        return False
    own = set(_tokens(each.value))
    words = {
        token for token in _tokens(each.text) if token not in own and len(token) >= _TELLS and not _HAN.search(token)
    }
    words |= set(_HAN.findall(each.text.replace(each.value, " ")))
    return not words or any(_has(f"{question} {answer}", {_stem(word)}) for word in words)


def _said_in(phrase: str, text: str) -> bool:
    if _HAN.search(phrase):
        return phrase in text
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


def _said_by(aim: CommandTarget, each: StoredMemory) -> bool:
    if _read_out(aim, each):
        return True
    if aim.names:
        # What somebody is called says nothing else of them.
        bare = each.predicate != "name" or aim.words <= {_stem(name) for name in aim.names}
        return bare and _names_all(each.text, aim.names)
    return bool(aim.words) and _has(each.text, aim.words)


def _read_out(aim: CommandTarget, each: StoredMemory) -> bool:
    """Whether a rule read the same of the same subject out of both, or what belongs to it: "a data engineer at Acme"."""
    return each.value is not None and any(
        triple.subject == each.subject
        and each.predicate in {triple.predicate, opposite(triple.predicate), *ends_with(triple.predicate)}
        and _within(triple.value, each.value)
        for triple in aim.triples
    )


def _within(value: str, stored: str) -> bool:
    return same_value(value, stored) or says({each for each in _tokens(value) if not function_word(each)}, stored)


def _names_within(aim: CommandTarget, clear: Sequence[StoredMemory]) -> frozenset[str]:
    """Words of the command that stand as names in what it fits: "acme", however the user writes it."""
    texts = [_WORD.findall(each.text) for each in clear]
    named = {found[n].casefold() for found in texts for n in range(1, len(found)) if _is_name(found, n, aim.language)}
    return frozenset(each for each in named if _stem(each) in aim.words)


def _spoken_of(aim: CommandTarget, stored: Sequence[StoredMemory]) -> frozenset[str]:
    """The subjects that the command names, other than the user: "my wife"."""
    subjects = aim.subjects or {triple.subject for triple in aim.triples}
    others = {each.subject for each in stored if each.subject not in (None, "user")}
    kin = {meaning for word, meaning in language(aim.language or "en").kin.items() if _stem(word) in aim.words}
    return frozenset(
        subjects or {each for each in others if each is not None and (each in kin or _stem(each) in aim.words)}
    )


def _subject_fits(aim: CommandTarget, each: StoredMemory, spoken_of: Collection[str]) -> bool:
    """ "I worked at Acme" is not about a wife who does."""
    if spoken_of:
        return each.subject in spoken_of or (
            each.subject is None and ("user" in spoken_of or _has(each.text, {_stem(s) for s in spoken_of}))
        )
    return not aim.of_self or each.subject in (None, "user")


def _is_name(found: Sequence[str], n: int, code: str) -> bool:
    """Whether a word of a text names somebody or something. In German every noun has a capital: not one that an article or
    possessive stands before, with an adjective between or without."""
    word = found[n]
    if not any(each.isdigit() for each in word) and (
        not word[0].isupper() or word in ("I", "I'm", "I've", "I'd", "I'll")
    ):
        return False
    no_name_after = language(code or "en").pattern("no_name_after")
    adjective = n > 1 and found[n - 1].islower() and no_name_after.fullmatch(found[n - 2])
    return not (adjective or (n > 0 and no_name_after.fullmatch(found[n - 1])))


def _tokens(text: str) -> list[str]:
    return [word.casefold() for word in _words(text)]


def _words(text: str) -> list[str]:
    return [_ELIDED.sub("", word.removesuffix("'s")) for word in _WORD.findall(text.replace("’", "'"))]


def _stem(word: str) -> str:
    return word[:STEM] if len(word) > STEM and word.isascii() and word.isalpha() else word


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
