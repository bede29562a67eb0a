"""What may stand in a statement's place: is this a name, a place, a trade, a thing that somebody can like?

Each check takes the words of a clause after its verb and gives them back trimmed, or None when they are no such value.
In doubt it is None: a wrong memory is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Check = Callable[[str], str | None]

_CUT = re.compile(
    r"\s+(?:which|who|whom|where|because|since|so|but|when|whenever|if|although|though|while|unless|until|even|lol|"
    r"that's|and (?:i|i'm|we|my|you|please|so|then|now|also)|not)\b.*|\s*[,(\[{].{0,40}\bnot\b.*|\s+[-–—]+\s.*|\s*\n.*",
    re.IGNORECASE | re.DOTALL,
)
_TRAILING = re.compile(
    r"[\s,]+(?:now|currently|these days|nowadays|too|as well|though|actually|btw|by the way|please|right now|again|a lot|very much|"
    r"so much|really|anyway|at the moment|at present|tbh|honestly|obviously|of course|thanks|thank you|from now on|instead|"
    r"any ?more|any longer|already|for now|especially|indeed|mate|man|dude|ok|okay|haha|today|just|also|to you|tho|either|"
    r"by heart|more than anything|the most|most of all|by far|best|better|with you|for you|in general|all the time)$",
    re.IGNORECASE,
)
_EDGES = " \t,.;:!?\"'“”„«»()[]*_-–—"
_MAX_WORDS = 14
_MAX_CHARS = 120


def trim(value: str) -> str:
    """Without the sub-clause that follows, trailing adverbs, quotation marks and punctuation."""
    value = _CUT.sub("", " " + value).strip(_EDGES)
    while (shorter := _TRAILING.sub("", value).strip(_EDGES)) != value:
        value = shorter
    return " ".join(value.split())


_DEICTIC_TEXT = """this that these those it its it's your you yours you're him her his hers he she they them their there here one
ones both neither all everything anything nothing something someone somebody everyone anyone more less some any being if whether
how what when where why who which whatever such same so too very not no none each every either another other others most many
much few enough well better best worse me my mine myself i im i'm i've us our we as like just only even really is are was were
be been do does did can could would will should to and or but of in on at by for with from about than then"""
_DEICTIC = frozenset(_DEICTIC_TEXT.split())
_HERE_TEXT = """idea way one first second third last latest other previous above following current option answer design plan
sound look version code draft style title name approach suggestion part fact result output response reply format example concept
point direction change update question thing stuff tone wording list choice feature function method solution explanation feel
structure layout color colour font theme ending beginning story text sentence paragraph new old next two three rest whole same
app page site website file error issue bug problem thought process more way latter former final original image picture logo"""
_HERE = frozenset(_HERE_TEXT.split())
_SMALL_TEXT = "the a an to of in on at by for with from and or but is are be as"
_SMALL = frozenset(_SMALL_TEXT.split())
_ASKING_TEXT = """know ask see think add say point start begin understand hear request thank apologise apologize mention clarify
have get make be find use try discuss talk note continue focus go ensure share note include change keep learn create write order
book buy schedule return cancel speak check confirm report submit propose suggest invite propose"""
_ASKING = frozenset(_ASKING_TEXT.split())
_YOU = re.compile(r"\b(?:you|your|yours|you're|yourself|above|below|this|that one|these ones)\b", re.IGNORECASE)


def thing(value: str) -> str | None:
    """What somebody can like: no pronoun, nothing of the conversation itself ("the second option", "your idea")."""
    value = trim(value)
    words = value.split()
    if not 1 <= len(words) <= _MAX_WORDS or len(value) > _MAX_CHARS or not any(c.isalpha() for c in value):
        return None
    low = [word.lower().strip(_EDGES) for word in words]
    if low[0] == "to":
        return value if len(low) > 1 and low[1] not in _ASKING | _DEICTIC and not _YOU.search(value) else None
    if low[0] in _DEICTIC or _YOU.search(value):
        return None
    if low[0] == "the" and (len(low) < 2 or low[1] in _HERE or low[-1] in _HERE or low[1] in _DEICTIC):
        return None
    if low[0] in ("a", "an") and len(low) > 1 and low[1] in ("lot", "bit", "little", "few", "couple"):
        return None
    return value


def free(value: str) -> str | None:
    """Any short value that does not point into the conversation."""
    value = trim(value)
    words = value.split()
    if not 1 <= len(words) <= _MAX_WORDS or len(value) > _MAX_CHARS:
        return None
    return None if words[0].lower() in _DEICTIC or _YOU.search(value) else value


_NOT_NAMES_TEXT = """back later tomorrow tonight today crazy old stupid lazy paranoid cynical picky weird biased skeptical naive when if
at on a an the asap soon again maybe anytime whenever sometime now over out in up down by names name not sorry what that this it
something anything whatever sir madam only just please cab taxi ambulance doctor unavailable confused private secret important
different similar complicated long short hard easy common unusual my your his her their our before after first next because for
and or but so to from with about on about ok okay ready back here there fine good great happy sad tired hungry sick busy new
interested curious wondering looking trying having going using working thinking planning writing asking sure glad afraid"""
_NOT_NAMES = frozenset(_NOT_NAMES_TEXT.split())
_NAME_WORD = re.compile(r"[^\W\d_][\w.'’-]{0,30}")


def name(value: str) -> str | None:
    """A person's name: one to four words, no common word first."""
    value = trim(value)
    value = re.sub(
        r"\s+(?:by the way|for short|instead of .*|from .*|at (?:work|home)|in .*|on .*)$",
        "",
        value,
        flags=re.IGNORECASE,
    )
    words = value.split()
    if not 1 <= len(words) <= 4 or not all(_NAME_WORD.fullmatch(w) for w in words):
        return None
    if words[0].lower() in _NOT_NAMES | _DEICTIC:
        return None
    if any(w.lower() in _NOT_NAMES for w in words[1:]) or (len(words) > 1 and not all(w[0].isupper() for w in words)):
        return None if any(w[0].isupper() for w in words) or len(words) > 2 else _titled(value)
    return _titled(value) if value.islower() else value


def animal_or_person_name(value: str) -> str | None:
    """As `name`, or two names joined by "and"."""
    value = trim(value)
    parts = re.split(r",\s*(?:and )?|\s+and\s+", value)
    named = [name(part) for part in parts]
    return " and ".join(n for n in named if n) if len(parts) <= 4 and all(named) else None


def _titled(value: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in value.split())


_NOT_PLACES_TEXT = """fear denial hope peace hell misery silence pain poverty sin luxury comfort moment past present future world
society time simulation dream bubble constant danger agony terror debt interesting harmony sync exile isolation love mind
here there"""
_NOT_PLACES = frozenset(_NOT_PLACES_TEXT.split())
_DWELLING = re.compile(
    r"\b(?:house|flat|apartment|village|town|city|farm|cottage|van|studio|suburbs?|condo|dorm|boat|houseboat|bungalow|countryside|"
    r"mountains|desert|woods|forest|coast|island|building|neighbou?rhood|outskirts|cent(?:er|re)|area|state|province|region|"
    r"north|south|east|west|netherlands|uk|us|usa|u\.s\.|united|philippines|uae|bay|midlands|highlands|alps|caribbean)\b",
    re.IGNORECASE,
)


def place(value: str) -> str | None:
    """A town, a country, or a kind of dwelling."""
    value = trim(value)
    value = re.sub(
        r"\s+(?:for|with|since|on my own|by myself|alone|full[- ]time|temporarily)\b.*$", "", value, flags=re.IGNORECASE
    )
    words = value.split()
    if not 1 <= len(words) <= 9:
        return None
    low = [word.lower().strip(_EDGES) for word in words]
    if low[0] in _DEICTIC or _NOT_PLACES.intersection(low):
        return None
    if low[0] in _SMALL or low[0] in (
        "downtown",
        "central",
        "northern",
        "southern",
        "eastern",
        "western",
        "rural",
        "near",
        "north",
    ):
        return value if _DWELLING.search(value) or any(w[0].isupper() for w in words) else None
    if words[0][0].isupper() or words[0][0].isdigit():
        return value
    if any(w[0].isupper() for w in words):
        return value
    return _titled(value) if len(words) <= 2 or "," in value else None


_TRADES_TEXT = """accountant actor actress actuary analyst anesthesiologist animator architect artist astronomer attorney auditor author
baker banker barber barista bartender biologist blogger bookkeeper botanist bricklayer broker builder butcher caregiver carer
carpenter cashier caterer chef chemist chiropractor civil-servant cleaner coach composer consultant contractor cook copywriter
counselor counsellor dancer dentist dermatologist designer developer dietitian director diver dj doctor driver economist editor
electrician engineer entrepreneur farmer filmmaker firefighter fisherman florist founder freelancer gardener geologist grocer
hairdresser historian homemaker housekeeper hydrologist illustrator instructor investigator janitor jeweler jeweller journalist
judge landlord lawyer lecturer librarian lifeguard linguist locksmith machinist manager marketer mason mathematician mechanic
midwife miner model musician nanny neurologist notary novelist nurse nutritionist officer optician painter paralegal paramedic
pastor pathologist pediatrician pharmacist philosopher photographer physician physicist physiotherapist pianist pilot plumber
podcaster poet policeman policewoman postman potter priest principal producer professor programmer psychiatrist psychologist
publisher radiologist realtor receptionist recruiter reporter researcher retailer roofer sailor salesman salesperson scientist
sculptor secretary seamstress singer soldier solicitor sommelier sculptor statistician student surgeon surveyor tailor teacher
technician therapist trader trainer translator interpreter tutor undertaker upholsterer vet veterinarian videographer waiter waitress
welder woodworker writer yoga-teacher youtuber zoologist ceo cto cfo coo vp admin administrator sysadmin devops undergraduate
postgraduate postdoc graduate pensioner retiree widow widower parent mother father mom mum dad grandmother grandfather twin
veteran immigrant expat refugee consultant owner beginner foodie vegetarian vegan"""
_TRADES = frozenset(_TRADES_TEXT.replace("-", " ").split())
_TRADE_END = re.compile(
    r"(?:ologist|ographer|ician|ineer|eacher|nurse|worker|developer|manager|designer|scientist|ist|officer|assistant)s?$"
)
_NO_TRADE_TEXT = """optimist pessimist perfectionist minimalist realist masochist list twist fist mist artist-at-heart exist persist gist
racist sexist narcissist"""
_NO_TRADE = frozenset(_NO_TRADE_TEXT.split())
_TRADE_PREPOSITION = re.compile(r"\s+(?:at|for|in|with|from|of|by|on|who|based|working|and)\b", re.IGNORECASE)


def trade(value: str) -> str | None:
    """What somebody is by trade or in life: "nurse at St Mary's", "freelance software engineer". Not "mess", "potato"."""
    value = trim(value)
    words = value.split()
    if (
        not 1 <= len(words) <= 12
        or _YOU.search(value)
        or words[0].lower() in ("bit", "little", "big", "huge", "bad", "terrible", "total")
    ):
        return None
    head = _TRADE_PREPOSITION.split(value, maxsplit=1)[0].split()
    if not head:
        return None
    last = head[-1].lower().strip(_EDGES)
    return value if last not in _NO_TRADE and (last in _TRADES or _TRADE_END.search(last)) else None


_ALLERGY_JOKES_TEXT = """work mornings morning mondays monday people stupidity meetings drama bullshit nonsense exercise effort idiots jokes
failure losing bad lies small commitment cold fun math maths responsibility responsibilities adulting early boredom"""
_ALLERGY_JOKES = frozenset(_ALLERGY_JOKES_TEXT.split())


def allergen(value: str) -> str | None:
    """What one can be allergic to, in earnest."""
    found = thing(value)
    return None if found is None or found.lower().split()[0] in _ALLERGY_JOKES else found


_NOT_FOOD_TEXT = """much enough anything that this it well breakfast lunch dinner out alone late early before after at fast slowly crow dirt
people words humble"""
_NOT_FOOD = frozenset(_NOT_FOOD_TEXT.split())


def food(value: str) -> str | None:
    """What one can leave on the plate."""
    found = thing(value)
    return None if found is None or found.lower().split()[0] in _NOT_FOOD or len(found.split()) > 8 else found


LANGUAGES = (
    r"(?:english|french|spanish|german|portuguese|italian|dutch|chinese|mandarin|cantonese|japanese|korean|russian|arabic|hindi|urdu|"
    r"bengali|punjabi|turkish|polish|swedish|norwegian|danish|finnish|greek|czech|hungarian|romanian|ukrainian|vietnamese|thai|"
    r"indonesian|malay|tagalog|filipino|hebrew|persian|farsi|swahili|catalan|basque|galician|irish|welsh|latin|croatian|serbian|"
    r"slovak|slovenian|bulgarian|tamil|telugu|marathi|gujarati|kannada|malayalam|nepali|sinhala|afrikaans|icelandic|esperanto|"
    r"sign language|asl)"
)
NATIONALITIES = (
    r"(?:american|british|english|scottish|welsh|irish|french|spanish|german|portuguese|italian|dutch|belgian|swiss|austrian|chinese|"
    r"japanese|korean|russian|indian|pakistani|bangladeshi|turkish|polish|swedish|norwegian|danish|finnish|greek|czech|hungarian|"
    r"romanian|ukrainian|vietnamese|thai|indonesian|malaysian|filipino|filipina|israeli|iranian|iraqi|egyptian|moroccan|nigerian|"
    r"kenyan|ghanaian|ethiopian|south african|brazilian|argentinian|argentine|mexican|colombian|chilean|peruvian|venezuelan|cuban|"
    r"canadian|australian|new zealander|icelandic|croatian|serbian|slovak|slovenian|bulgarian|lebanese|syrian|nepali|singaporean|"
    r"taiwanese|estonian|latvian|lithuanian|albanian|georgian|armenian|catalan|puerto rican|jamaican)"
)
_LANGUAGE_LIST = re.compile(
    rf"(?:{LANGUAGES}|fluent|native|some|a little|a bit of|basic|brazilian|(?:,? ?(?:and|&|,|a bit of|some|a little) ?))+",
    re.IGNORECASE,
)


def languages(value: str) -> str | None:
    """One language or several."""
    value = re.sub(
        r"\s+(?:at home|fluently|natively|well|every day|daily|with .*)$", "", trim(value), flags=re.IGNORECASE
    )
    plain = " ".join(value.split())
    if (
        not plain
        or not _LANGUAGE_LIST.fullmatch(plain.replace(", ", ","))
        or not re.search(LANGUAGES, plain, re.IGNORECASE)
    ):
        return None
    return re.sub(LANGUAGES, lambda m: m[0][:1].upper() + m[0][1:], plain, flags=re.IGNORECASE)
