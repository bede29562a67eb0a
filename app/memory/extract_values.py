"""What may stand in a statement's place: is this a name, a place, a trade, a thing that somebody can like?

Each check takes the words of a clause after its verb and gives them back trimmed, or None when they are no such value.
In doubt it is None: a wrong memory is worse than none.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping

from app.memory.extract_manners import (
    about,
    aim,
    fan,
    fear,
    goal,
    habit,
    languages,
    lesson,
    name_of,
    order,
    pastime,
    reaction,
    sort,
    sort_of,
    state,
    style,
    task,
    thing_after_year,
    tool,
    vehicle,
)
from app.memory.extract_words import (
    EDGES,
    addresses,
    as_is,
    free,
    is_short,
    lowered,
    taste,
    thing,
    thing_of_mine,
    trim,
    words,
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
