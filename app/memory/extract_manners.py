"""What may stand where somebody says how answers should be, what they like, do, learn and speak."""

from __future__ import annotations

import re

from app.memory.extract_words import (
    addresses,
    free,
    is_short,
    lowered,
    points,
    taste,
    thing,
    thing_of_mine,
    trim,
    words,
)

# --- taste and manner -------------------------------------------------------------------------------------------------

_ONE_OFF = re.compile(
    r"\b(?:this|that|these|those|here|now|today|first|second|last|latest|previous|above|your|more|another|other|few|"
    r"couple|some|"
    r"from|about|on|regarding|by)\b",
    re.IGNORECASE,
)
_VEHICLE = re.compile(
    r"\b(?:car|bike|motorbike|motorcycle|truck|van|suv|scooter|bicycle|bus|tesla|toyota|honda|ford|bmw|audi|"
    r"volkswagen|vw|volvo|"
    r"mazda|nissan|kia|hyundai|renault|peugeot|fiat|skoda|subaru|mercedes|jeep|chevrolet|chevy|prius|vespa|harley|"
    r"porsche|lexus)\b",
    re.IGNORECASE,
)
_PASTIME = re.compile(
    r"\b(?:piano|guitar|violin|drums|cello|flute|saxophone|trumpet|bass|harp|clarinet|ukulele|keyboard|banjo|"
    r"accordion|chess|tennis|"
    r"football|soccer|basketball|volleyball|golf|hockey|rugby|cricket|badminton|squash|padel|handball|baseball|"
    r"softball|poker|"
    r"video ?games|board ?games|yoga|judo|karate|aikido|taekwondo|jiu-?jitsu|boxing|d&d|minecraft|table tennis|"
    r"ping ?pong)\b",
    re.IGNORECASE,
)
_NOT_TOOLS = re.compile(
    r"^(?:the (?:same|word|term|following|above|code|function|method|bathroom|toilet|internet|phone|app)|it|to|them|"
    r"my|one|you|"
    r"an? (?:lot|bit|different|new|similar|combination|mix|tool|function|loop|method)|chatgpt)\b",
    re.IGNORECASE,
)


def style(value: str) -> str | None:
    """How answers should be: "short answers", "posts longer than 800 words". Not one certain answer."""
    found = free(value)
    if found is None or _ONE_OFF.search(found) or len(found.split()) < 2:
        return None
    return None if found.lower().startswith(("an ", "a ")) else found


def fan(value: str) -> str | None:
    """Whose fan: a name."""
    found = taste(value)
    return found if found and any(part[0].isupper() for part in found.split()) else None


def sort(value: str) -> str | None:
    """The word before "person": "morning", "cat"."""
    low = value.lower()
    return None if low.split()[0] in words("not_sorts") else low


def tool(value: str) -> str | None:
    """What somebody works with."""
    if (
        _NOT_TOOLS.match(value)
        or re.search(r"\b(?:here|loop|function|method|class|variable)\b", value)
        or len(value.split()) > 8
    ):
        return None
    return taste(value)


def vehicle(value: str) -> str | None:
    """A vehicle, with its article."""
    found = free(value)
    return found if found and _VEHICLE.search(found) else None


def pastime(value: str) -> str | None:
    """A game, a sport or an instrument."""
    found = free(value)
    return found if found and _PASTIME.search(found) and len(found.split()) <= 10 else None


def goal(value: str) -> str | None:
    """What somebody is after."""
    found = free(re.sub(r"^to ", "", value, flags=re.IGNORECASE))
    return found if found and len(found.split()) > 1 else None


def habit(value: str) -> str | None:
    """A verb with something after it."""
    found = free(value)
    return found if found and len(found.split()) > 1 and not points(found) else None


_NO_ORDER = re.compile(
    r"(?:please )?(?:never|always) (?:mind|again|say never|give up|make (?:me|us|them|him|her)|remind|forget|stop|a |"
    r"the |remember|be "
    r"(?:yourself|happy|there|kind|safe|careful|grateful|on)|keep (?:going|trying|dreaming|moving|it)|do your|do it|"
    r"tell|ask yourself)",
    re.IGNORECASE,
)
MAX_ORDER_WORDS = 40
MAX_ORDER_CHARS = 300
_PLEASE = re.compile(r"^please |[\s,]+(?:please|ok|okay|thanks|thank you|from now on|going forward)$", re.IGNORECASE)
_THIS_ONCE = re.compile(r"\b(?:this (?:time|one|question|answer|code|function|text|email)|above)\b", re.IGNORECASE)
_WHEN_I_ASK = re.compile(r"\bwhen(?:ever)? I(?:'m asking| ask)(?: you)?(?= (?:about|for|how|to)\b|$)", re.IGNORECASE)


def order(value: str) -> str | None:
    """A standing instruction, as it was given."""
    value = _PLEASE.sub("", " ".join(value.split()).strip(" .,;:!")).strip(" .,;:!")
    if not 2 <= len(value.split()) <= MAX_ORDER_WORDS or len(value) > MAX_ORDER_CHARS:
        return None
    if _NO_ORDER.match(value) or _THIS_ONCE.search(value):
        return None
    return _WHEN_I_ASK.sub("when asked", value)


# --- languages --------------------------------------------------------------------------------------------------------

_AFTER_LANGUAGE = re.compile(r"\s+(?:at home|fluently|natively|well|every day|daily|with .*)$", re.IGNORECASE)


_AROUND_LANGUAGE = frozenset(
    ["and", "fluent", "native", "some", "a", "little", "bit", "of", "basic", "brazilian", "both"]
)


def languages(value: str) -> str | None:
    """One language or several."""
    plain = _AFTER_LANGUAGE.sub("", trim(value))
    known = words("languages")
    found = [word for word in re.split(r"[ ,&]+", plain) if word.lower() in known]
    others = [word for word in re.split(r"[ ,&]+", plain) if word.lower() not in known | _AROUND_LANGUAGE]
    return (
        " ".join(word[:1].upper() + word[1:] if word in found else word for word in plain.split(" "))
        if found and not others
        else None
    )


# --- aims and possessions ----------------------------------------------------------------------------------------------


def task(value: str) -> str | None:
    """What somebody works on, if it says more than "a project"."""
    found = thing_of_mine(value)
    if found is None:
        return None
    empty = words("pointing") | words("small") | words("conversation") | words("plain")
    return found if len([word for word in lowered(found) if word not in empty]) >= 2 else None


def aim(value: str) -> str | None:
    """What somebody prepares for or tries: as `taste`, and it may begin with "the"."""
    bare = re.sub(r"^the ", "", value, flags=re.IGNORECASE)
    found = taste(bare)
    if found is None or (bare != value and len([w for w in lowered(found) if w not in words("plain")]) < 2):
        return None
    return value[: len(value) - len(bare)] + found


def lesson(value: str) -> str | None:
    """A subject to learn; "how to sort a list" is a question."""
    found = taste(value)
    return None if found is None or lowered(found)[0] in ("about", "more", "how", "what", "why") else found


def thing_after_year(value: str) -> str | None:
    """ "final year of law school"."""
    return free(value) if thing(re.sub(r"^\w+ year (?:of|at|in) ", "", value)) else None


def sort_of(value: str) -> str | None:
    """ "a coffee addict"; no judgement of the moment."""
    found = trim(value)
    return found if not words("measures").intersection(lowered(found)[1:2]) and not addresses(found) else None


def name_of(value: str) -> str | None:
    """Something with a name of its own."""
    found = free(re.sub(r"^the ", "", value, flags=re.IGNORECASE))
    return trim(value) if found and found[0].isupper() else None


def fear(value: str) -> str | None:
    """What one is afraid of; not of an outcome ("breaking it")."""
    found = taste(value)
    return None if found is None or (lowered(found)[0].endswith("ing") and lowered(found)[0] != "flying") else found


def about(value: str) -> str | None:
    """What a possession is, not how it is ("slow")."""
    found = free(value)
    return None if found is None or (len(found.split()) == 1 and found.lower() in words("states")) else found


_TROUBLE = re.compile(
    r"\b(?:not|n't|never|broken|down|slow|wrong|fine|ok|okay|ready|done|working|failing|crash\w*|stuck|late|good|bad|great|"
    r"nice|terrible|awful|weird|confus\w*|empty|missing|hard|easy|boring|too|so|very|pretty|getting|going)\b",
    re.IGNORECASE,
)


def state(value: str) -> str | None:
    """What something of the user's is; not how it is doing ("down", "too slow")."""
    found = trim(value)
    if not is_short(found) or addresses(found) or lowered(found)[0] in _AT_HAND or _TROUBLE.search(found):
        return None
    return found


_AT_HAND = frozenset(
    ["this", "that", "these", "those", "it", "here", "there", "what", "how", "why", "if", "to", "like", "as"]
)


_REACTION_WORDS = 4  # "horror films", "small talk at parties"; more is a sentence of its own


def reaction(value: str) -> str | None:
    """What is liked or not, where the subject was left out: a thing in the plural or without an article, nothing at hand."""
    found = taste(value)
    return (
        found
        if found
        and lowered(found)[0] not in ("the", "a", "an", "to", "when", "how")
        and len(found.split()) <= _REACTION_WORDS
        else None
    )
