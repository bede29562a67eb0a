"""What may stand in a statement's place: is this a name, a place, a trade, a thing that somebody can like?

Each check takes the words of a clause after its verb and gives them back trimmed, or None when they are no such value.
In doubt it is None: a wrong memory is worse than none.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping

from app.memory.extract_grammar import (
    EDGES,
    addresses,
    as_is,
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

# What may stand where somebody says how answers should be, what they like, do, learn and speak.


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


Check = Callable[[str], str | None]

# --- names ------------------------------------------------------------------------------------------------------------

_NAME_WORD = re.compile(r"[^\W\d_][\w.'’-]{0,30}")
_AFTER_NAME = re.compile(
    r"\s+(?:by the way|for short|instead of .*|from .*|at (?:work|home)|in .*|on .*|everyone .*|whenever .*)$",
    re.IGNORECASE,
)


def name(value: str) -> str | None:
    """A person's name: one to four words, no common word first."""
    value = _AFTER_NAME.sub("", trim(value))
    parts = value.split()
    if not 1 <= len(parts) <= 4 or not all(_NAME_WORD.fullmatch(part) for part in parts):
        return None
    low = lowered(value)
    if low[0] in words("not_names") | words("pointing") or words("not_names").intersection(low[1:]):
        return None
    if value.islower():
        return _titled(value) if len(parts) <= 2 else None
    return (
        value
        if len(parts) == 1 or all(part[0].isupper() or part in ("de", "da", "van", "von", "bin") for part in parts)
        else None
    )


def own_name(value: str) -> str | None:
    """As `name`, with a capital: "this is easy" introduces nobody."""
    found = name(value)
    return found if found and value.strip()[0].isupper() and found.lower() not in words("not_introductions") else None


def names(value: str) -> str | None:
    """As `name`, or several joined by "and"."""
    parts = re.split(r",\s*(?:and )?|\s+and\s+", trim(value))
    found = [name(part) for part in parts]
    return " and ".join(part for part in found if part) if len(parts) <= 4 and all(found) else None


def _titled(value: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in value.split())


# --- places -----------------------------------------------------------------------------------------------------------

_DWELLING = re.compile(
    r"\b(?:house|flat|apartment|village|town|city|farm|cottage|van|studio|suburbs?|condo|dorm|boat|houseboat|bungalow|"
    r"countryside|mountains|desert|woods|forest|coast|island|building|neighbou?rhood|outskirts|cent(?:er|re)|area|"
    r"state|province|"
    r"region|north|south|east|west|netherlands|uk|us|usa|u\.s\.|united|philippines|uae|bay|midlands|highlands|alps|"
    r"caribbean)\b",
    re.IGNORECASE,
)
_AFTER_PLACE = re.compile(
    r"\s+(?:for|with|on my own|by myself|alone|full[- ]time|temporarily|last|this|next|in (?:(?:19|20)\d\d|"
    + "|".join(calendar.month_name[1:])
    + r")|a (?:few|couple)|two|three|yesterday|recently|together)\b.*$",
    re.IGNORECASE,
)
_NO_PLACE = re.compile(
    r"(?!UK$|US$|USA$|UAE$|NYC$|LA$|DC$|SF$|NZ$|EU$)[A-Z]{2,4}|[A-Za-z]+[a-z][A-Z]{2,}\w*|[a-z]+[A-Z]\w*"
)
_COMPASS = frozenset(
    ["downtown", "central", "northern", "southern", "eastern", "western", "rural", "near", "north", "the"]
)


def place(value: str) -> str | None:
    """A town, a country, or a kind of dwelling."""
    value = _AFTER_PLACE.sub("", trim(value)).strip(EDGES)
    parts, low = value.split(), lowered(value)
    if not 1 <= len(parts) <= 9 or low[0] in words("pointing") or words("not_places").intersection(low):
        return None
    if low[0] in words("small") | _COMPASS:
        return value if _DWELLING.search(value) or any(part[0].isupper() for part in parts) else None
    if any(_NO_PLACE.fullmatch(part.strip(EDGES)) for part in parts) or words("software").intersection(low):
        return None
    if any(part[0].isupper() for part in parts) or parts[0][0].isdigit():
        return value
    return _titled(value) if len(parts) <= 2 or "," in value else None


_NO_TOWN = frozenset(
    ["mode", "row", "column", "tab", "version", "branch", "server", "plan", "team", "department", "floor", "desk"]
)


def destination(value: str) -> str | None:
    """Where somebody moved to: a name, that of no program nor part of one."""
    found = place(value)
    if found is None or found[:1].isdigit() or (_NO_TOWN | words("software")).intersection(lowered(found)):
        return None
    return found if any(part[0].isupper() for part in value.split()) else None


# --- work -------------------------------------------------------------------------------------------------------------

_TRADE_END = re.compile(
    r"(?:ologist|ographer|ician|ineer|eacher|nurse|worker|developer|manager|designer|scientist|ist|officer|"
    r"assistant)s?$"
)
_TRADE_STOPS = re.compile(r"\s+(?:at|for|in|with|from|of|by|on|based|working|and)\b|,", re.IGNORECASE)
_DEGREE = frozenset(
    ["bit", "little", "big", "huge", "bad", "terrible", "total", "complete", "real", "good", "such", "better"]
)


def trade(value: str) -> str | None:
    """What somebody is by trade or in life: "a nurse at St Mary's", "a freelance engineer". Not "a mess", "a potato"."""
    value = trim(value)
    bare = re.sub(r"^(?:an?|the) ", "", value, flags=re.IGNORECASE)
    head = _TRADE_STOPS.split(bare, maxsplit=1)[0].split()
    if not head or not is_short(value) or addresses(value) or head[0].lower() in _DEGREE:
        return None
    last = head[-1].lower().strip(EDGES)
    return value if last not in words("not_trades") and (last in words("trades") or _TRADE_END.search(last)) else None


def job(value: str) -> str | None:
    """What stands after "my job is"; not a judgement of it."""
    found = free(re.sub(r"^(?:being |to be )", "", value, flags=re.IGNORECASE))
    return trade(found) if found and len(found.split()) > 1 else (found if found and trade(found) else None)


def field(value: str) -> str | None:
    """A field of work: "IT", "a hospital", "marketing"; not "silence", "hard"."""
    found = thing(value)
    return None if found is None or lowered(found)[-1] in words("not_fields") else found


def business(value: str) -> str | None:
    """What a business is."""
    found = free(value)
    return (
        None
        if found is None or re.match(r"an? (?:mess|joke|disaster|failure|nightmare|bit|lot|little)\b", found)
        else found
    )


# --- body, family -----------------------------------------------------------------------------------------------------

_ALLERGY_SIZE = re.compile(
    r"^(?:severe|mild|bad|serious|strong|deadly|life-threatening|slight|an?|food|seasonal|terrible|really bad)\b ?",
    re.IGNORECASE,
)
_SMALL_NUMBERS_TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_AGE = re.compile(
    r"(?:sixteen|seventeen|eighteen|nineteen|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-\w+)?)$"
)
_NOT_KIN = re.compile(
    r"\b(?:meme|joke|video|question|problem|in mind|sitter|food|person|lover|book|movie|name|idea|picture|photo)\b"
)
_AFTER_KIN = re.compile(
    r"\s+(?:and|that|to|at home|who)\s+(?:i|we|they|he|she|need|love|want|keep|feed|walk|take)\b.*", re.IGNORECASE
)


def allergen(value: str) -> str | None:
    """What one can be allergic to, in earnest."""
    found = thing(value)
    return None if found is None or lowered(found)[0] in words("not_allergens") else found


def allergy(value: str) -> str | None:
    """The word before "allergy"."""
    value = value.strip()
    while (shorter := _ALLERGY_SIZE.sub("", value)) != value:
        value = shorter
    return (
        allergen(value) if value and value.lower() not in ("no", "any", "some", "many", "several", "lots of") else None
    )


def food(value: str) -> str | None:
    """What one can leave on the plate."""
    found = thing(value)
    return (
        None
        if found is None
        or found.lower() in words("not_food")
        or lowered(found)[0] in ("much", "enough", "out")
        or len(found.split()) > 8
        else found
    )


def diet(value: str) -> str | None:
    """A word for a diet, in lower case."""
    bare = re.sub(r"^a ", "", value.strip().lower())
    return f"a {bare}" if bare in ("teetotaler", "teetotaller") else bare


def diet_plan(value: str) -> str | None:
    """ "a keto diet"."""
    return (
        None
        if re.search(r"\b(?:this|that|your|my|no|same|new|different|strict)\b (?:\w+ )?diet$", value, re.IGNORECASE)
        else trim(value)
    )


def years(value: str) -> str | None:
    """The age of somebody who can write."""
    value = value.lower()
    return value if (value.isdigit() and 5 <= int(value) <= 120) or _AGE.match(value) else None


def age(value: str) -> str | None:
    """Anybody's age."""
    value = value.lower()
    return (
        value
        if value in _SMALL_NUMBERS_TEXT.split() or (value.isdigit() and 0 < int(value) < 120) or _AGE.match(value)
        else None
    )


def kin(value: str) -> str | None:
    """Who is in the family: "two kids", "a dog named Rex"."""
    found = free(
        _AFTER_KIN.sub("", value).replace("no ", "No ", 1) if value.startswith("no ") else _AFTER_KIN.sub("", value)
    )
    return None if found is None or _NOT_KIN.search(found) else found[0].lower() + found[1:]


def day(value: str) -> str | None:
    """A day of the year; a relative one ("tomorrow") has been resolved before."""
    found = free(value)
    return (
        found
        if found
        and re.search(
            r"\d|january|february|march|april|may|june|july|august|september|october|november|december", found.lower()
        )
        else None
    )


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        thing,
        taste,
        as_is,
        task,
        about,
        aim,
        lesson,
        fear,
        thing_after_year,
        state,
        reaction,
        sort_of,
        name_of,
        own_name,
        thing_of_mine,
        free,
        name,
        names,
        place,
        destination,
        trade,
        job,
        field,
        business,
        allergen,
        allergy,
        food,
        diet,
        diet_plan,
        years,
        age,
        kin,
        day,
        style,
        sort,
        fan,
        tool,
        vehicle,
        pastime,
        goal,
        habit,
        order,
        languages,
    )
}
"""The checks by the names that `rules.txt` uses."""
