"""Events with a date: "I have a dentist appointment tomorrow" → "Has a dentist appointment on 2026-11-21"."""

from __future__ import annotations

import re

from app.memory.extract_dates import Found
from app.memory.extract_grammar import capital, depersonalise, inner

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
    r"a raise|my [\w ]{2,30})|bought|adopted|broke (?:my|an?)|ran|met|flew|travell?ed|joined|passed|gave birth|became|"
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
        rf"(?:my|our) (?:[\w'&-]+ ){{0,4}}{_THING}(?: (?:in|at|with|for) [\w'& .-]{{1,40}})?(?:'s| is| was| starts|"
        rf" begins| takes place)(?: due)?",
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
    re.compile(rf"(?:i|we)(?: just| finally| also)? {_DID}\b.*", re.IGNORECASE),
]
_NOT_HERE = re.compile(r"\b(?:you|your|this|that|these|those|it|error|bug|question|here)\b", re.IGNORECASE)
_LOOSE_END = re.compile(r"[\s,]+(?:on|in|at|by|from|for|until|and|is|early|later|sometime|around)$", re.IGNORECASE)
_REPEATS = re.compile(r"\b(?:every|each|most|any|some|usually|always|on)\s*$", re.IGNORECASE)
_MAX_WORDS = 24


def event_content(text: str, when: Found) -> str | None:
    """The statement with its date, or None when the clause tells of no single event of the user's."""
    if _REPEATS.search(text[: when.start]) and not text[when.start : when.end].lower().startswith(("on", "in")):
        return None
    rest = f"{text[: when.start].rstrip(' ,')} {text[when.end :].lstrip(' ,')}".strip(" ,.!")
    rest = " ".join(rest.split())
    owned = _SHAPES[1].fullmatch(rest)
    if owned is None:
        rest = _LOOSE_END.sub("", rest)
    if _NOT_HERE.search(rest) or len(rest.split()) > _MAX_WORDS:
        return None
    if not owned and not any(shape.fullmatch(rest) for shape in _SHAPES):
        return None
    said = depersonalise(rest) or capital(inner(rest))
    said = re.sub(r"'s$", " is", said) if owned else said
    return f"{said} {when.phrase}"
