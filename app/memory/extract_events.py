"""Events with a date: "I have a dentist appointment tomorrow" → "Has a dentist appointment on 2026-11-21"."""

from __future__ import annotations

import re

from app.memory.extract_dates import Found
from app.memory.extract_grammar import capital, depersonalise, inner
from app.memory.extract_words import lowered, words

_THING = (
    r"(?:appointment|meeting|interview|exam|exams|test|flight|trip|wedding|party|conference|deadline|surgery|"
    r"operation|concert|race|"
    r"marathon|half-marathon|presentation|dinner|lunch|holiday|vacation|graduation|check-?up|class|course|game|match|"
    r"reservation|"
    r"visit|scan|audition|exhibition|hearing|demo|workshop|seminar|festival|hike|camping trip|road trip|move|"
    r"start date|due date|"
    r"first day|last day|thesis defen[cs]e|defen[cs]e|moving day|anniversary|retirement|birthday party|baby shower|"
    r"date|session|"
    r"doctor's appointment|physio|therapy|tournament|recital|open day|release|launch|review|call|job interview|"
    r"driving test)"
)
_DOING = (
    r"(?:flying|travell?ing|going|moving|visiting|leaving|starting|meeting|getting married|getting divorced|having|"
    r"graduating|running|"
    r"hosting|giving a|taking|presenting|attending|returning|seeing|launching|expecting|retiring|celebrating|turning|"
    r"hiking|"
    r"arriving|driving|speaking|performing|playing|throwing|defending|competing|interviewing|planning)"
)
_DID = (
    r"(?:went|visited|moved|graduated|got (?:married|engaged|divorced|promoted|hired|fired|laid off|accepted|"
    r"a (?:new )?job|a promotion|"
    r"a raise|my [\w ]{2,30})|bought|adopted|took up|broke (?:my|an?)|ran|met|flew|travell?ed|joined|passed|"
    r"gave birth|became|"
    r"completed|"
    r"published|attended|celebrated|turned|retired|(?:was|were) (?:diagnosed|promoted|fired|laid off|hired|accepted|"
    r"admitted|born)|"
    r"won|injured|sprained|started|finished|launched|sold|lost my|hiked|climbed|had (?:surgery|an operation|a baby|"
    r"an? [\w' -]{0,30}" + _THING + r"))"
)
_SHAPES = [
    re.compile(
        rf"(?:i|we)(?:'ve| have)?(?: got)?(?: have)? (?:an?|my|our|two|three|the) (?:[\w'&-]+ ){{0,5}}{_THING}\b.*",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:my|our) (?:[\w'&-]+ ){{0,4}}{_THING}(?: (?:in|at|with|for|to) [\w'& .-]{{1,40}})?(?:'s| is| was| starts|"
        rf" begins| takes place| leaves| departs| arrives| lands| ends)(?: due)?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:i'm|i am|we're|we are|i'll be|we'll be|i will be|we will be)(?: also| probably|"
        rf" finally)? (?:going to be )?{_DOING}\b.*",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:i|we) (?:fly|leave|start|travel|move|graduate|return|retire|turn|arrive|depart|go on|go to)\b.*",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:my|our) [\w-]+(?: [A-Z]\w+)? (?:passed away|died|got married|graduated|was born|gave birth|had a baby|"
        r"moved to .{2,30}|"
        r"turned \w+|is getting married|is turning \w+|starts school|retired)",
        re.IGNORECASE,
    ),
    re.compile(r"(?:i'll|we'll|i will|we will|i'm going to|we're going to) be (?:in|at|away|on)\b.*", re.IGNORECASE),
    re.compile(rf"(?:i|we)(?: just| finally| also)? {_DID}\b.*", re.IGNORECASE),
]
_NOT_HERE = re.compile(r"\b(?:you|your|this|that|these|those|it|error|bug|question|here|there|them)\b", re.IGNORECASE)
_LOOSE_END = re.compile(r"[\s,]+(?:on|in|at|by|from|for|until|and|is|early|later|sometime|around)$", re.IGNORECASE)
_LINK = re.compile(r"\b(?:of|by|until|till|for|from|before|after|since|to|between|with|due)$", re.IGNORECASE)
_NEARLY = re.compile(r"\s+(?:about|around|over|almost|nearly|roughly|back|just|only)$", re.IGNORECASE)
_ASIDE = re.compile(
    r"\s+[-–—]+\s.*$|[,;]\s+(?:it|they|he|she|that|the|so|which|can't wait|wish me)\b.*$", re.IGNORECASE
)
_REPEATS = re.compile(r"\b(?:every|each|most|any|some|usually|always)$", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:[-–—]\s*\d|to \d|and \d|through )")
_EMPTY = re.compile(
    r"(?:i|we)(?:'ve| have)? (?:\w+ly |just )?(?:started|finished|completed|launched|sold|became|passed|joined|won|"
    r"met|left|start)$",
    re.I,
)
_MAX_WORDS = 24


def event_content(text: str, when: Found) -> str | None:
    """The statement with its date, or None when the clause tells of no single event of the user's."""
    before, after = _NEARLY.sub("", text[: when.start].rstrip(" ,")), _ASIDE.sub("", text[when.end :])
    linked = _LINK.search(before)
    if _REPEATS.search(before) or _RANGE.match(text[when.end :]) or (linked and linked[0].lower() == "with"):
        return None
    rest = " ".join(f"{before} {after.lstrip(' ,')}".split()).strip(" ,.!")
    owned = _SHAPES[1].fullmatch(rest)
    if not owned:
        rest = _ASIDE.sub("", _LOOSE_END.sub("", rest))
    if _NOT_HERE.search(rest) or len(rest.split()) > _MAX_WORDS or _EMPTY.fullmatch(rest):
        return None
    if not owned and not any(shape.fullmatch(rest) for shape in _SHAPES):
        return None
    if " moved to " in f" {rest.lower()}" and words("software").intersection(lowered(rest)):
        return None
    if before and after.strip() and not owned:
        return _told(f"{before} {when.iso if linked else when.phrase}{after}")
    said = _told(rest)
    return (re.sub(r"'s$", " is", said) if owned else said) + f" {when.phrase}"


def without_date(text: str, when: Found) -> str | None:
    """The clause without a date that stands at its beginning or its end; None when it belongs into the sentence."""
    before, after = text[: when.start].rstrip(" ,"), text[when.end :].strip(" ,")
    if (before and after) or _LINK.search(before):
        return None
    return before or after


def _told(text: str) -> str:
    return depersonalise(text) or capital(inner(text))
