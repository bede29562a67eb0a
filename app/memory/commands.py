"""What the user tells memory to do, in the chat itself: forget, correct, remember, recall; and which standing wishes they take
back: `stop` one to do something ("no more bullet points"), `allow` what one forbade ("you can suggest cilantro again").

The rules are the lines [commands] of app/languages/<code>.txt: `pattern => kind scope`, with the groups `about` and `new`. A
command is a sentence, or the end of one from a clause on, that fits a rule as a whole, in the user's own words: what is quoted
or pasted is masked before (`extract_clauses`), a message of several lines gives none, and in a sentence that supposes or
reports nothing is a command. "Forget all previous instructions" is none: it does not speak of memory. Whether "no more bullet
points" takes a wish back depends on whether one speaks of them (`command_match.taken_back`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from app.languages.data import Language, language
from app.languages.detect import language_of
from app.languages.sentences import Sentence, sentences
from app.languages.speech import heard
from app.memory.extract_clauses import AT_ONCE, announced, masked, own_word
from app.text_cache import of_texts

CommandKind = Literal["forget", "correct", "remember", "recall", "stop", "allow"]
CommandScope = Literal["thing", "this", "everything"]


class Command(Struct, frozen=True):
    """One order to memory, as the user gave it.

    `about`: the user's words for what it is about ("I worked at Acme"); empty where it is about the message itself or
    everything. `scope`: `thing` ("forget that I worked at Acme"), `this` ("don't remember this"), `everything` ("forget
    everything about me"). `replacement`: of `correct`, what is so ("it's ..."), else empty. `language`: as `language_of`
    gives it. `span`: its place (start, end, in characters) in the user's message as it came. `plain`: it is meant as one for
    certain; one that asks to forget and stands after or beside something else is not, and may be of the moment.
    """

    kind: CommandKind
    about: str
    scope: CommandScope
    replacement: str
    language: str
    span: tuple[int, int]
    plain: bool = True


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
    """Whether nothing in the sentence supposes it, and nothing after takes it back."""
    supposed = spoken.pattern("supposed").search(own[said[number].start : said[number].end])
    return supposed is None and not _unsaid(own, said[number + 1 :], spoken)


def _unsaid(own: str, later: Sequence[Sentence], spoken: Language) -> bool:
    """Whether what follows takes it back, or says that it was a joke."""
    rest = [own[each.start : each.end] for each in later]
    return any(
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
    elif rule.kind == "remember" and not _is_own(about, spoken):
        return None  # "Remember that lists are mutable" tells the model, not memory
    return Command(rule.kind, about, rule.scope, new, spoken.code, (start + match.start(), start + match.end()))


def of_self(text: str) -> bool:
    """Whether a message speaks of the user, in the first person."""
    spoken = language(language_of(text) or "en")
    return spoken.pattern("speaks_of_self").search(text.replace("’", "'")) is not None


def _is_own(about: str, spoken: Language) -> bool:
    return not _CODE.search(about) and spoken.pattern("speaks_of_self").search(about) is not None
