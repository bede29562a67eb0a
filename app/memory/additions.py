"""Words that only one of two texts has, and that make it another fact: a time, company, a list member, another head noun.

The words are those of English, Spanish, German, French and Portuguese. Where they do not decide, two texts stay two.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from app import languages
from app.languages import LANGUAGES, language, language_of
from app.memory.text import KIN, NO_TOPIC, gist, normalise, singular

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_RATE = re.compile(
    r"\b(?:a|an|per|pro|por|par|la) (?:night|day|nacht|tag|noche|día|nuit|jour|noite|dia)\b", re.IGNORECASE
)
_TIME_TEXT = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october
november december weekday weekend week-end morning afternoon evening night noon midnight breakfast lunch dinner summer winter
autumn spring holiday vacation
morgen morgens vormittag mittag nachmittag abend abends nacht nachts werktag wochentag wochenende sommer winter herbst frühling
früh urlaub
mañana mañanas tarde noche noches verano invierno otoño primavera vacaciones semana
matin matins après-midi soir soirs soirée nuit été hiver automne printemps vacances semaine
manhã manhãs noite noites verão inverno outono férias
"""
_COMPANY_TEXT = """
friend family colleague coworker people other kid child children team group guest neighbour neighbor
freund freunde freunden familie kollege kollegen kindern nachbarn
amigo amigos amiga amigas familia compañero compañeros colega colegas niños hijos
ami amis amie amies famille collègue collègues enfants
família filhos crianças
"""
_MODIFIER_TEXT = """
half semi quasi only mostly mainly almost nearly partly partially sometimes rarely occasionally
part former ex future alone together little bit near assistant vice deputy junior trainee acting interim
nur halb halbe halben halber fast meist meistens teilweise manchmal selten allein zusammen wenig wenige bisschen nahe
solo sólo solamente medio media casi sola juntos principalmente poco poca pocos pocas cerca
seulement demi presque surtout parfois rarement seul seule ensemble peu près
só apenas somente meia quase raramente sozinho sozinha juntos pouco pouca perto
"""
_PAST_TEXT = """
was were had war waren hatte hatten era fue estaba tenía était avait foi estava tinha
"""
_EXCLUDED_TEXT = """
allergic allergy intolerant intolerance afraid fear scared
allergisch allergie intoleranz angst
alérgico alérgica alergia intolerante miedo medo
allergique intolérant intolérante peur
"""
_CONDITION_TEXT = """
when if while during after before until since unless whenever
wenn falls während nach vor seit bevor nachdem
cuando si durante después antes mientras
quand lorsque pendant après avant depuis
quando enquanto depois se
"""
_LIST_TEXT = "and or und oder y e et ou plus also"
_CONDITIONS, _LISTS = frozenset(_CONDITION_TEXT.split()), frozenset(_LIST_TEXT.split())
_MODIFIERS, _COMPANY = frozenset(_MODIFIER_TEXT.split()), frozenset(_COMPANY_TEXT.split())
_PAST = frozenset(_PAST_TEXT.split())
_EXCLUDED = frozenset(_EXCLUDED_TEXT.split())
"""Words of statements that hold for everything they name: "allergic to goat's milk" does not say "allergic to milk"."""
_MULTIPLES = frozenset(["hundred", "thousand", "million"])
_NAMED_COMPANY = re.compile(r"\b(?:with|con|avec|com) [A-ZÀ-Þ]")
_COMPANY_OF = re.compile(r"\b(?:with|mit|con|avec|com)((?: \w+){1,3})")
_SUBJECT = re.compile(r"(?:the )?user(?:'s)? ", re.IGNORECASE)
_PASSIVE = re.compile(
    r"\b(?:is|was|were|are|been|being|gets?|got) (?:lent|loaned|given|owed|paid|sent|sold|taught)\b", re.IGNORECASE
)
_PLAN = re.compile(
    r"\b(?:(?:wants?|plans?|hopes?|intends?|tr(?:y|ies)|planning|hoping|trying|going|about) to|looking for|getting|might"
    r"|considering|thinking (?:of|about)|möchte|quiere \w+[aei]r|veut \w+(?:er|ir|re)|quer \w+[aei]r)\b",
    re.IGNORECASE,
)
_PERFECT = re.compile(r"\b(?:a|ont|ha|han) \w+(?:é|ado|ido)\b", re.IGNORECASE)
_OTHER_PLACE = re.compile(
    r"\b(?:New|North|South|East|West|Neu|Nueva|Nuevo|San|Santa|Saint|Nouvelle|Nova|Novo) [A-ZÀ-Þ]\w+"
)
"""A name whose first word makes it another's ("New York", "York")."""
_FORM_LETTERS = 3
"""First letters that two forms of one verb share."""
_MARKS = (_NAMED_COMPANY, _PASSIVE, _PLAN, _PERFECT)
"""Patterns that both texts have, or neither."""
_DIRECTIONS = frozenset(["to", "from", "by"])
_HEAD_LAST = frozenset(["", "en", "de"])
"""Languages in which the head of a noun phrase stands last; texts of none that is known are read as English."""
_LINKS = frozenset(["full", "named", "called", "made", "based", "namens", "voller"])
"""Words that begin what is said of the noun before them."""


def adds_another_fact(first: str, second: str) -> bool:
    """Tell whether one of two texts says a fact that the other lacks, or speaks of another subject."""
    first, second = (_SUBJECT.sub("", _RATE.sub(" ", normalise(text)), count=1) for text in (first, second))
    ours, theirs = _split_words(first), _split_words(second)
    if any(group.intersection(ours) != group.intersection(theirs) for group in (_times(), _MODIFIERS, _PAST)):
        return True
    if _has_other_tense(second, ours, theirs) or _OTHER_PLACE.findall(first) != _OTHER_PLACE.findall(second):
        return True
    if _find_company(first) != _find_company(second):
        return True
    if _count_list_marks(ours) != _count_list_marks(theirs) or _has_other_subject(first, second):
        return True
    if any((mark.search(first) is None) != (mark.search(second) is None) for mark in _MARKS):
        return True
    our_way, their_way = _DIRECTIONS.intersection(ours), _DIRECTIONS.intersection(theirs)
    if not (our_way <= their_way or their_way <= our_way):
        return True
    fewer, more = sorted((first, second), key=lambda text: len(gist(text)[1]))
    if not gist(fewer)[1] < gist(more)[1]:
        return False
    added = set(_split_words(more)) - set(_split_words(fewer))
    is_exclusion = gist(fewer)[0] or not _EXCLUDED.isdisjoint(_split_words(fewer))
    return is_exclusion or not _CONDITIONS.isdisjoint(added) or _changes_head(fewer, more)


def _split_words(text: str) -> list[str]:
    return [singular(word) for word in _WORD.findall(text.casefold().replace("’", "'").removesuffix("'s"))]


def _has_other_tense(text: str, ours: list[str], theirs: list[str]) -> bool:
    """Return whether two texts begin with two forms of one verb ("Trabaja", "Trabajaba"); `same_claim` knows English forms."""
    if not ours or not theirs or ours[0] == theirs[0] or language_of(text) in ("", "en"):
        return False
    return ours[0][:_FORM_LETTERS] == theirs[0][:_FORM_LETTERS]


def _find_company(text: str) -> frozenset[str]:
    """Return the people that a text speaks of behind "with"."""
    return _COMPANY.intersection(word for found in _COMPANY_OF.finditer(text) for word in _split_words(found[1]))


@cache
def _times() -> frozenset[str]:
    """Return the words for times of the day, the week and the year."""
    listed = (language(code).texts.get(name, "") for code in LANGUAGES for name in ("weekdays", "months"))
    names = {name for text in listed for name in re.split(r"[\s|]+", text)}
    return frozenset(singular(word) for word in names.union(_TIME_TEXT.split()))


def _count_list_marks(words: list[str]) -> int:
    """Return how many words join the members of lists; "six hundred and 60" is one number."""
    pairs = zip(["", *words], words, strict=False)
    return sum(word in _LISTS and before not in _MULTIPLES for before, word in pairs)


def _has_other_subject(first: str, second: str) -> bool:
    """Return whether a text begins with somebody whom the second names later ("Tom lent …", "Lent Tom …")."""
    return _names_first_word(first, second) or _names_first_word(second, first)


def _names_first_word(text: str, second: str) -> bool:
    words, other_words = _WORD.findall(text), _WORD.findall(second)
    if not words or not other_words or words[0].casefold() == other_words[0].casefold():
        return False
    return words[0] in other_words[1:] or (
        words[0].casefold() in other_words[1:] and singular(words[0].casefold()) in _people()
    )


@cache
def _people() -> frozenset[str]:
    kin = {word.casefold() for code in LANGUAGES for word in language(code).kin}
    return _COMPANY | KIN | kin


def _changes_head(fewer: str, more: str) -> bool:
    """Return whether a noun was added right behind one that ended its phrase: "flying", "flying insects"."""
    if language_of(more) not in _HEAD_LAST:
        return False
    fewer_words, words = _split_words(fewer), _split_words(more)
    heads = {
        word
        for word, after in zip(fewer_words, [*fewer_words[1:], ""], strict=True)
        if after in _function_words() or not after
    }
    return any(
        before in heads and before not in _function_words() and _is_noun(word) and word not in fewer_words
        for before, word in pairwise(words[1:])
    )


def _is_noun(word: str) -> bool:
    return word not in _function_words() and word not in _LINKS and not word[0].isdigit()


@cache
def _function_words() -> frozenset[str]:
    """Return the words of all languages that are no nouns."""
    lines = (Path(languages.__file__).parent / "function_words.txt").read_text(encoding="utf-8").splitlines()
    listed = {word for line in lines if line[:3] in ("en:", "de:") for word in line.split()[1:]}
    return frozenset(listed | NO_TOPIC | {"without", "against", "via", "near", "behind", "bei", "aus", "ohne"})
