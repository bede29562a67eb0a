"""From "I live with my parents" to "Lives with their parents": English sentences without their first person, and what may stand
in a statement's place: is this a name, a place, a trade, a thing that somebody can like?

Each check takes the words of a clause after its verb and gives them back trimmed, or None when they are no such value. In
doubt it is None: a wrong memory is worse than none.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

Check = Callable[[str], str | None]

# --- trimming, word lists, and what points into the conversation instead of the world ------------------------------------

_LEXICON = Path(__file__).with_name("lexicon.txt")
_CUT = re.compile(
    r"\s+(?:which|who|whom|where|because|since|so|but|when|whenever|if|although|though|while|unless|until|even|lol|"
    r"and (?:i|i'm|we|my|you|please|so|then|now|also)|not)\b.*"
    r"|\s*[,(\[{].{0,40}\bnot\b.*|\s*[-–—]+\s.*|,\s+(?:the|it's|it|they|he|she|there|'?cause|wish)\b.*|\s*\n.*",
    re.IGNORECASE | re.DOTALL,
)
_TRAILING = re.compile(
    r"[\s,]+(?:now|currently|these days|nowadays|too|as well|though|actually|btw|by the way|please|right now|again|"
    r"a lot|very much|so much|really|anyway|at the moment|at present|tbh|honestly|obviously|of course|thanks|thank you|"
    r"lately|from now on|instead|any ?more|any longer|already|for now|especially|indeed|ok|okay|haha|"
    r"today|just|also|to you|tho|either|by heart|more than anything|the most|most of all|by far|best|better|with you|"
    r"for you|in general|"
    r"all the time)$"
    r"|\s*,\s*(?:mate|man|dude|bro)$"
)
"""Words that end a value; with a capital they belong to it: "Apocalypse Now", "Iron Man"."""
_MINE = re.compile(r"(?:my|our)(?: own)? ", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?:my|our)\s+(?=\S)", re.IGNORECASE)
_CODE_WORD = re.compile(r"\b(?:here|loop|function|method|class|variable)\b")
_BETWEEN_LANGUAGES = re.compile(r"[ ,&]+")
_BETWEEN_NAMES = re.compile(r",\s*(?:and )?|\s+and\s+")
_ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)
_DAY = re.compile(r"\d|" + "|".join(calendar.month_name[1:]), re.IGNORECASE)
EDGES = " \t,.;:!?\"'“”„«»()[]*_-–—"
MAX_WORDS = 14
MAX_CHARS = 120
_YOU = re.compile(
    r"\b(?:you|your|yours|you're|yourself|above|below|this|that one|these ones|that's|it's)\b", re.IGNORECASE
)
_POINTS = re.compile(
    r"\b(?:it|them|him|her|those|these|that|one another|each other)\b(?! (?:is|are|of|who|have|make|makes|can|was|has|"
    r"tackle)\b)",
    re.IGNORECASE,
)


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
    while (shorter := _shorter(value)) != value:
        value = shorter
    return value


def _shorter(value: str) -> str:
    value = _CUT.sub("", " " + value).strip(EDGES)
    return " ".join(_TRAILING.sub("", value).strip(EDGES).split())


def lowered(value: str) -> list[str]:
    """The words of a value, lower case, without punctuation."""
    return [word.lower().strip(EDGES) for word in value.split()]


def is_short(value: str) -> bool:
    """Neither empty nor a paragraph."""
    return 1 <= len(value.split()) <= MAX_WORDS and len(value) <= MAX_CHARS and any(c.isalnum() for c in value)


def addresses(value: str) -> bool:
    """Does it speak to the reader, or of what stands above?"""
    return _YOU.search(value) is not None


def points(value: str) -> bool:
    """Is there a pronoun for something said elsewhere ("holding them")?"""
    return _POINTS.search(value) is not None


def thing(value: str) -> str | None:
    """A thing in the world: no pronoun, nothing of the conversation itself ("the second option", "your idea")."""
    value = trim(value)
    low = lowered(value)
    if not is_short(value) or addresses(value) or not any(c.isalpha() for c in value):
        return None
    if low[0] == "to":
        return value if len(low) > 1 and low[1] not in words("asking") | words("pointing") else None
    first = value.split()[0]
    if low[0] in words("pointing") and not (first.isupper() and len(first) > 1):  # "it", but not "IT"
        return None
    if low[0] in words("conversation") and len(low) == 2 and len(low[1]) == 1:  # "option B"
        return None
    if low[0] == "the" and not (len(low) > 1 and (low[1] in words("the_world") or value.split()[1][0].isupper())):
        return None  # "I love the idea" is a reaction; "the sea" and "the Beatles" are tastes
    return None if low[0] in ("a", "an") and (len(low) < 2 or low[1] in words("measures")) else value


def thing_of_mine(value: str) -> str | None:
    """As `thing`, and it may begin with "my" or "our"."""
    possessive = _MINE.match(value)
    found = thing(value[possessive.end() :]) if possessive else thing(value)
    return f"{possessive[0]}{found}" if possessive and found else found


def taste(value: str) -> str | None:
    """As `thing`, and nothing in it points elsewhere."""
    found = thing(value)
    return None if found is None or points(found) else found


def free(value: str) -> str | None:
    """Any short value that does not point into the conversation."""
    value = trim(value)
    return None if not is_short(value) or lowered(value)[0] in words("pointing") or addresses(value) else value


def as_is(value: str) -> str | None:
    """A value that the pattern itself spells out."""
    return " ".join(value.split())


# --- without the first person --------------------------------------------------------------------------------------------

_IRREGULAR = {
    "am": "is",
    "'m": "is",
    "are": "is",
    "have": "has",
    "do": "does",
    "go": "goes",
    "'ve": "has",
    "were": "was",
}
_NEGATED = {
    "don't": "does not",
    "haven't": "has not",
    "aren't": "is not",
    "can't": "cannot",
    "won't": "will not",
    "wouldn't": "would not",
    "couldn't": "could not",
    "shouldn't": "should not",
    "didn't": "did not",
    "wasn't": "was not",
    "hadn't": "had not",
}
_DROPPED = frozenset(["also", "really", "just", "actually", "absolutely", "definitely", "truly", "finally", "probably"])
_SUBJECT = re.compile(r"^(?:I|we)(?P<short>'m|'re|'ve|'ll|'d)?\s+", re.IGNORECASE)
_INNER = re.compile(r"\b(I'm|I am|I've|I have|I'll|I'd|I|my|me|myself|mine|we're|we|our|ours|us|ourselves)\b(?!['’-])")
_INNER_FORMS = {
    "I'm": "they are",
    "I am": "they are",
    "I've": "they have",
    "I have": "they have",
    "I'll": "they will",
    "I'd": "they would",
    "I": "they",
    "my": "their",
    "me": "them",
    "myself": "themselves",
    "mine": "theirs",
    "we're": "they are",
    "we": "they",
    "our": "their",
    "ours": "theirs",
    "us": "them",
    "ourselves": "themselves",
}


def third_person(verb: str) -> str:
    """`live` → `lives`, `have` → `has`, `study` → `studies`; what does not change stays."""
    low = verb.lower()
    if low in _IRREGULAR:
        return _IRREGULAR[low]
    if low in words("unchanged") or low.endswith(("ed", "'t")):
        return low
    if low.endswith(("s", "x", "z", "ch", "sh", "o")):
        return low + "es"
    if low.endswith("y") and low[-2:-1] not in "aeiou":
        return low[:-1] + "ies"
    return low + "s"


def inner(text: str) -> str:
    """First-person words inside a statement: `my sister` → `their sister`. An "I" at the very end is a numeral."""
    return _INNER.sub(lambda m: "I" if m[1] == "I" and m.end() == len(text) else _INNER_FORMS[m[1]], text)


def capital(text: str) -> str:
    """The first letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def depersonalise(clause: str) -> str | None:
    """A first-person statement without its person, or None when it has none.

    `I'm learning Go` → `Is learning Go`; `my car is red` → `Car is red`; `I don't eat meat` → `Does not eat meat`.
    """
    clause = clause.strip()
    if possessive := _POSSESSIVE.match(clause):
        return capital(inner(clause[possessive.end() :]))
    found = _SUBJECT.match(clause)
    if found is None:
        return None
    rest = clause[found.end() :].split()
    if not rest:
        return None
    has = rest[:1] == ["have"] or found["short"] == "'ve"
    if has and "got" in rest[: 1 if found["short"] else 2]:
        rest.remove("got")  # "I've got a cat" has it now
    short = (found["short"] or "").lower()
    if short in ("'m", "'re", "'ve"):
        head = ["has" if short == "'ve" else "is"]
        return capital(" ".join([*head, inner(" ".join(rest))]))
    if short in ("'ll", "'d"):
        return capital(" ".join(["will" if short == "'ll" else "would", inner(" ".join(rest))]))
    lead: list[str] = []
    while len(rest) > 1 and rest[0].lower() in words("adverbs") | _DROPPED:
        adverb = rest.pop(0).lower()
        lead += [adverb] if adverb in words("adverbs") else []
    if not rest[0][0].isalpha() or not rest[0].replace("'", "").isalpha():
        return None
    verb = rest[0].lower()
    if verb == "do" and len(rest) > 1 and rest[1].lower() == "not":
        rest = ["don't", *rest[2:]]
        verb = "don't"
    form = _NEGATED.get(verb) or third_person(verb)
    return capital(" ".join([*lead, form, inner(" ".join(rest[1:]))]).strip())


# --- taste and manner ----------------------------------------------------------------------------------------------------

_ONE_OFF = re.compile(
    r"\b(?:this|that|these|those|here|now|today|first|second|last|latest|previous|above|your|more|another|other|few|"
    r"couple|some|"
    r"from|about|on|regarding|by)\b",
    re.IGNORECASE,
)
_PASTIME = re.compile(
    r"\b(?:piano|guitar|violin|drums|cello|flute|saxophone|trumpet|bass|harp|clarinet|ukulele|keyboard|banjo|accordion|"
    r"chess|tennis|football|soccer|basketball|volleyball|golf|hockey|rugby|cricket|badminton|squash|padel|handball|"
    r"baseball|softball|poker|video ?games|board ?games|yoga|judo|karate|aikido|taekwondo|jiu-?jitsu|boxing|d&d|"
    r"minecraft|table tennis|"
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


_VEHICLE = re.compile(
    r"\b(?:car|bike|motorbike|motorcycle|truck|van|suv|scooter|bicycle|bus|tesla|toyota|honda|ford|bmw|audi|"
    r"volkswagen|vw|volvo|"
    r"mazda|nissan|kia|hyundai|renault|peugeot|fiat|skoda|subaru|mercedes|jeep|chevrolet|chevy|prius|vespa|harley|"
    r"porsche|lexus)\b",
    re.IGNORECASE,
)


def vehicle(value: str) -> str | None:
    """A vehicle, with its article."""
    found = free(value)
    return found if found and _VEHICLE.search(found) else None


def tool(value: str) -> str | None:
    """What somebody works with."""
    none = _NOT_TOOLS.match(value) or _CODE_WORD.search(value)
    return None if none or len(value.split()) > 8 else taste(value)


def pastime(value: str) -> str | None:
    """A game, a sport or an instrument."""
    found = free(value)
    return found if found and _PASTIME.search(found) and len(found.split()) <= 10 else None


_NO_ORDER = re.compile(
    r"(?:please )?(?:never|always) (?:mind|again|say never|give up|make (?:me|us|them|him|her)|remind|forget|stop|a |"
    r"the |remember|be "
    r"(?:yourself|happy|there|kind|safe|careful|grateful|on)|keep (?:going|trying|dreaming|moving|it)|do your|do it|"
    r"tell|ask yourself)",
    re.IGNORECASE,
)
_MAX_ORDER_WORDS = 40
_MAX_ORDER_CHARS = 300
_PLEASE = re.compile(r"^please |[\s,]+(?:please|ok|okay|thanks|thank you|from now on|going forward)$", re.IGNORECASE)
_THIS_ONCE = re.compile(r"\b(?:this (?:time|one|question|answer|code|function|text|email)|above)\b", re.IGNORECASE)
_WHEN_I_ASK = re.compile(r"\bwhen(?:ever)? I(?:'m asking| ask)(?: you)?(?= (?:about|for|how|to)\b|$)", re.IGNORECASE)


def order(value: str) -> str | None:
    """A standing instruction, as it was given."""
    value = _PLEASE.sub("", " ".join(value.split()).strip(" .,;:!")).strip(" .,;:!")
    if not 2 <= len(value.split()) <= _MAX_ORDER_WORDS or len(value) > _MAX_ORDER_CHARS:
        return None
    if _NO_ORDER.match(value) or _THIS_ONCE.search(value):
        return None
    return _WHEN_I_ASK.sub("when asked", value)


# --- languages -----------------------------------------------------------------------------------------------------------

_AFTER_LANGUAGE = re.compile(r"\s+(?:at home|fluently|natively|well|every day|daily|with .*)$", re.IGNORECASE)


def languages(value: str) -> str | None:
    """One language or several."""
    plain = _AFTER_LANGUAGE.sub("", trim(value))
    known_names = words("languages")
    parts = _BETWEEN_LANGUAGES.split(plain)
    names_found = [word for word in parts if word.lower() in known_names]
    other_words = [word for word in parts if word.lower() not in known_names | words("around_language")]
    if not names_found or other_words:
        return None
    return " ".join(word[:1].upper() + word[1:] if word in names_found else word for word in plain.split(" "))


# --- aims and possessions ------------------------------------------------------------------------------------------------


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
    if not is_short(found) or addresses(found) or lowered(found)[0] in words("at_hand") or _TROUBLE.search(found):
        return None
    return found


# --- names ---------------------------------------------------------------------------------------------------------------

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
    particles = ("de", "da", "van", "von", "bin")
    return value if len(parts) == 1 or all(part[0].isupper() or part in particles for part in parts) else None


def own_name(value: str) -> str | None:
    """As `name`, with a capital: "this is easy" introduces nobody."""
    found = name(value)
    return found if found and value.strip()[0].isupper() and found.lower() not in words("not_introductions") else None


def names(value: str) -> str | None:
    """As `name`, or several joined by "and"."""
    parts = _BETWEEN_NAMES.split(trim(value))
    found = [name(part) for part in parts]
    return " and ".join(part for part in found if part) if len(parts) <= 4 and all(found) else None


def _titled(value: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in value.split())


# --- places --------------------------------------------------------------------------------------------------------------

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
_AFTER_NAMED_PLACE = re.compile(r"(?:,|\s+and)\s+(?=[a-z]).*$|\s+in (?:the )?(?:spring|summer|autumn|fall|winter)\b.*$")
"""What goes on after a place that begins with a capital: "Hull, need a dentist", "Hull in spring"."""
_NO_PLACE = re.compile(
    r"(?!UK$|US$|USA$|UAE$|NYC$|LA$|DC$|SF$|NZ$|EU$)[A-Z]{2,4}|[A-Za-z]+[a-z][A-Z]{2,}\w*|[a-z]+[A-Z]\w*"
)


def place(value: str) -> str | None:
    """A town, a country, or a kind of dwelling."""
    value = _AFTER_PLACE.sub("", trim(value)).strip(EDGES)
    if value[:1].isupper():
        value = _AFTER_NAMED_PLACE.sub("", value).strip(EDGES)
    parts, low = value.split(), lowered(value)
    if not 1 <= len(parts) <= 9 or low[0] in words("pointing") or words("not_places").intersection(low):
        return None
    if low[0] in words("small") | words("compass"):
        return value if _DWELLING.search(value) or any(part[0].isupper() for part in parts) else None
    if any(_NO_PLACE.fullmatch(part.strip(EDGES)) for part in parts) or words("software").intersection(low):
        return None
    if any(part[0].isupper() for part in parts) or parts[0][0].isdigit():
        return value
    return _titled(value) if len(parts) <= 2 or "," in value else None


def destination(value: str) -> str | None:
    """Where somebody moved to: a name, that of no program nor part of one."""
    found = place(value)
    if found is None or found[:1].isdigit() or (words("no_towns") | words("software")).intersection(lowered(found)):
        return None
    return found if any(part[0].isupper() for part in value.split()) else None


# --- work ----------------------------------------------------------------------------------------------------------------

_TRADE_END = re.compile(
    r"(?:ologist|ographer|ician|ineer|eacher|nurse|worker|developer|manager|designer|scientist|ist|officer|"
    r"assistant)s?$"
)
_TRADE_STOPS = re.compile(r"\s+(?:at|for|in|with|from|of|by|on|based|working|and)\b|,", re.IGNORECASE)


def trade(value: str) -> str | None:
    """Return what somebody is by trade or in life: "a nurse at St Mary's", "a freelance engineer". Not "a mess", "a potato"."""
    value = trim(value)
    without_article = _ARTICLE.sub("", value)
    head = _TRADE_STOPS.split(without_article, maxsplit=1)[0].split()
    if not head or not is_short(value) or addresses(value) or head[0].lower() in words("degrees"):
        return None
    last = head[-1].lower().strip(EDGES)
    return value if last not in words("not_trades") and (last in words("trades") or _TRADE_END.search(last)) else None


def field(value: str) -> str | None:
    """A field of work: "IT", "a hospital", "marketing"; not "silence", "hard"."""
    found = thing(value)
    return None if found is None or lowered(found)[-1] in words("not_fields") else found


# --- body, family --------------------------------------------------------------------------------------------------------

_AGE = re.compile(
    r"(?:sixteen|seventeen|eighteen|nineteen|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-\w+)?)$"
)


def allergen(value: str) -> str | None:
    """Return what one can be allergic to, in earnest."""
    found = thing(value)
    return None if found is None or lowered(found)[0] in words("not_allergens") else found


_NOT_KIN = re.compile(
    r"\b(?:meme|joke|video|question|problem|in mind|sitter|food|person|lover|book|movie|name|idea|picture|photo)\b"
)
_AFTER_KIN = re.compile(
    r"\s+(?:and|that|to|at home|who)\s+(?:i|we|they|he|she|need|love|want|keep|feed|walk|take)\b.*", re.IGNORECASE
)
_ALLERGY_SIZE = re.compile(
    r"^(?:severe|mild|bad|serious|strong|deadly|life-threatening|slight|an?|food|seasonal|terrible|really bad)\b ?",
    re.IGNORECASE,
)


def kin(value: str) -> str | None:
    """Return who is in the family: "two kids", "a dog named Rex"."""
    relative = _AFTER_KIN.sub("", value)
    family = free(relative.replace("no ", "No ", 1) if value.startswith("no ") else relative)
    return None if family is None or _NOT_KIN.search(family) else family[0].lower() + family[1:]


def allergy(value: str) -> str | None:
    """Return the word before "allergy"."""
    value = value.strip()
    while (shorter := _ALLERGY_SIZE.sub("", value)) != value:
        value = shorter
    none = value.lower() in ("", "no", "any", "some", "many", "several", "lots of")
    return None if none else allergen(value)


def age(value: str) -> str | None:
    """Anybody's age."""
    value = value.lower()
    known = value in words("small_numbers") or (value.isdigit() and 0 < int(value) < 120) or _AGE.match(value)
    return value if known else None


def day(value: str) -> str | None:
    """A day of the year; a relative one ("tomorrow") has been resolved before."""
    found = free(value)
    return found if found and _DAY.search(found) else None


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        thing,
        taste,
        as_is,
        about,
        state,
        own_name,
        thing_of_mine,
        free,
        name,
        names,
        place,
        destination,
        trade,
        field,
        allergen,
        age,
        day,
        style,
        tool,
        vehicle,
        kin,
        allergy,
        pastime,
        order,
        languages,
    )
}
"""The checks by the names that `rules.txt` uses."""
