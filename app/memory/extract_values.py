"""What may stand in a statement's place: is this a name, a place, a trade, a thing that somebody can like?

Each check takes the words of a clause after its verb and gives them back trimmed, or None when they are no such value.
In doubt it is None: a wrong memory is worse than none.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

Check = Callable[[str], str | None]

_LEXICON = Path(__file__).with_name("lexicon.txt")

_CUT = re.compile(
    r"\s+(?:which|who|whom|where|because|since|so|but|when|whenever|if|although|though|while|unless|until|even|lol|"
    r"that's|"
    r"and (?:i|i'm|we|my|you|please|so|then|now|also)|not)\b.*"
    r"|\s*[,(\[{].{0,40}\bnot\b.*|\s+[-–—]+\s.*|\s*\n.*",
    re.IGNORECASE | re.DOTALL,
)
_TRAILING = re.compile(
    r"[\s,]+(?:now|currently|these days|nowadays|too|as well|though|actually|btw|by the way|please|right now|again|"
    r"a lot|"
    r"very much|so much|really|anyway|at the moment|at present|tbh|honestly|obviously|of course|thanks|thank you|"
    r"from now on|"
    r"instead|any ?more|any longer|already|for now|especially|indeed|mate|man|dude|ok|okay|haha|today|just|also|"
    r"to you|tho|"
    r"either|by heart|more than anything|the most|most of all|by far|best|better|with you|for you|in general|"
    r"all the time)$",
    re.IGNORECASE,
)
_EDGES = " \t,.;:!?\"'“”„«»()[]*_-–—"
MAX_WORDS = 14
MAX_CHARS = 120
_YOU = re.compile(r"\b(?:you|your|yours|you're|yourself|above|below|this|that one|these ones)\b", re.IGNORECASE)


@cache
def words(section: str) -> frozenset[str]:
    """A word list of `lexicon.txt`."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _LEXICON.read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), [])
        else:
            current += line.split()
    return frozenset(found[section])


def alternatives(section: str) -> str:
    """A word list as a pattern; an underscore in it stands for a space."""
    return "(?:" + "|".join(re.escape(word.replace("_", " ")) for word in sorted(words(section))) + ")"


def trim(value: str) -> str:
    """Without the sub-clause that follows, trailing adverbs, quotation marks and punctuation."""
    value = _CUT.sub("", " " + value).strip(_EDGES)
    while (shorter := _TRAILING.sub("", value).strip(_EDGES)) != value:
        value = shorter
    return " ".join(value.split())


def _short(value: str) -> bool:
    return 1 <= len(value.split()) <= MAX_WORDS and len(value) <= MAX_CHARS and any(c.isalnum() for c in value)


def _low(value: str) -> list[str]:
    return [word.lower().strip(_EDGES) for word in value.split()]


def thing(value: str) -> str | None:
    """What somebody can like: no pronoun, nothing of the conversation itself ("the second option", "your idea")."""
    value = trim(value)
    low = _low(value)
    if not _short(value) or _YOU.search(value) or not any(c.isalpha() for c in value):
        return None
    if low[0] == "to":
        return value if len(low) > 1 and low[1] not in words("asking") | words("pointing") else None
    if low[0] in words("pointing"):
        return None
    if low[0] == "the" and (
        len(low) < 2 or words("conversation").intersection((low[1], low[-1])) or low[1] in words("pointing")
    ):
        return None
    return (
        None
        if low[0] in ("a", "an") and (len(low) < 2 or low[1] in ("lot", "bit", "little", "few", "couple"))
        else value
    )


def thing_of_mine(value: str) -> str | None:
    """As `thing`, and it may begin with "my" or "our"."""
    own = re.match(r"(?:my|our)(?: own)? ", value, re.IGNORECASE)
    found = thing(value[own.end() :]) if own else thing(value)
    return f"{own[0]}{found}" if own and found else found


def free(value: str) -> str | None:
    """Any short value that does not point into the conversation."""
    value = trim(value)
    if not _short(value):
        return None
    return None if _low(value)[0] in words("pointing") or _YOU.search(value) else value


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
    low = _low(value)
    if low[0] in words("not_names") | words("pointing") or words("not_names").intersection(low[1:]):
        return None
    if value.islower():
        return _titled(value) if len(parts) <= 2 else None
    return (
        value
        if len(parts) == 1 or all(part[0].isupper() or part in ("de", "da", "van", "von", "bin") for part in parts)
        else None
    )


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
_COMPASS = frozenset(
    ["downtown", "central", "northern", "southern", "eastern", "western", "rural", "near", "north", "the"]
)


def place(value: str) -> str | None:
    """A town, a country, or a kind of dwelling."""
    value = _AFTER_PLACE.sub("", trim(value)).strip(_EDGES)
    parts, low = value.split(), _low(value)
    if not 1 <= len(parts) <= 9 or low[0] in words("pointing") or words("not_places").intersection(low):
        return None
    if low[0] in words("small") | _COMPASS:
        return value if _DWELLING.search(value) or any(part[0].isupper() for part in parts) else None
    if any(part[0].isupper() for part in parts) or parts[0][0].isdigit():
        return value
    return _titled(value) if len(parts) <= 2 or "," in value else None


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
    if not head or not _short(value) or _YOU.search(value) or head[0].lower() in _DEGREE:
        return None
    last = head[-1].lower().strip(_EDGES)
    return value if last not in words("not_trades") and (last in words("trades") or _TRADE_END.search(last)) else None


def job(value: str) -> str | None:
    """What stands after "my job is"; not a judgement of it."""
    found = free(re.sub(r"^(?:being |to be )", "", value, flags=re.IGNORECASE))
    return trade(found) if found and len(found.split()) > 1 else (found if found and trade(found) else None)


def field(value: str) -> str | None:
    """A field of work: "IT", "a hospital", "marketing"; not "silence", "my brother"."""
    found = thing(value)
    return (
        None
        if found is None or _low(found)[-1] in ("silence", "peace", "bed", "shifts", "bursts", "pairs", "progress")
        else found
    )


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
    return None if found is None or _low(found)[0] in words("not_allergens") else found


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
    return None if found is None or _low(found)[0] in words("not_food") or len(found.split()) > 8 else found


def diet(value: str) -> str | None:
    """A word for a diet, in lower case."""
    return re.sub(r"^a ", "", value.strip().lower())


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


def sort(value: str) -> str | None:
    """The word before "person": "morning", "cat"."""
    low = value.lower()
    return None if low.split()[0] in words("not_sorts") else low


def tool(value: str) -> str | None:
    """What somebody works with."""
    if _NOT_TOOLS.match(value) or len(value.split()) > 8:
        return None
    return thing(value)


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
    return found if found and len(found.split()) > 1 else None


def order(value: str) -> str | None:
    """A standing instruction, as it was given."""
    value = re.sub(r"^please ", "", " ".join(value.split()).strip(_EDGES), flags=re.IGNORECASE)
    value = re.sub(
        r"[\s,]+(?:please|ok|okay|thanks|thank you|from now on|going forward)$", "", value, flags=re.IGNORECASE
    ).strip(_EDGES)
    if (
        not 2 <= len(value.split()) <= 40
        or len(value) > 300
        or re.match(r"(?:never|always) (?:mind|again|say never)\b", value, re.I)
    ):
        return None
    return (
        None
        if re.search(r"\b(?:this (?:time|one|question|answer|code|function|text|email)|above)\b", value, re.IGNORECASE)
        else value
    )


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


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        thing,
        thing_of_mine,
        free,
        name,
        names,
        place,
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
