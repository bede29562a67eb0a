""" "No, I meant Paris, Texas": a correction that names only the new value, and what it corrects.

The earlier words are said again with the new value in the place of the old one; what the rules then find is the correction.
Without an earlier statement of one value at a time that the new one fits, it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from app.memory.candidate import Candidate, Exchange, Provenance, Triple
from app.memory.extract import extract
from app.memory.ingest_claims import single_valued
from app.memory.ingest_text import same_claim

AMENDS = "meant"
"""The tag of such a candidate; its content is "Meant " and the value."""

_INSTEAD_OF = re.compile(r",? (?:and )?not (?P<old>[^.,;!?]{2,40})", re.IGNORECASE)
_CALENDAR = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|\b(?:january|february|march|april|may|june|july|august|september|october|"
    r"november|december)\b",
    re.IGNORECASE,
)


class Earlier(NamedTuple):
    """What the user said a moment ago, in their own words, and what was found in it."""

    quote: str
    triple: Triple


def amends(candidate: Candidate) -> bool:
    """Is it a correction that names only a value?"""
    return AMENDS in candidate.tags


def amended(candidate: Candidate, exchange: Exchange, earlier: Sequence[Earlier]) -> Candidate | None:
    """The correction in full, or None. `earlier`: the latest first."""
    new = candidate.content.partition(" ")[2]
    instead = _INSTEAD_OF.match(exchange.user_text, candidate.span[1])
    for said in earlier:
        old = said.triple.value
        if not single_valued(said.triple.predicate) or not _of_one_sort(old, new):
            continue
        if instead is not None and not same_claim(instead["old"].strip(), old):
            continue
        again, times = re.subn(re.escape(old), lambda _: new, said.quote, count=1, flags=re.IGNORECASE)
        found = extract(Exchange(again, exchange.now)) if times else []
        for each in found:
            if _is_about(each, said.triple):
                return replace(
                    each,
                    kind="correction",
                    provenance_type=Provenance.CORRECTION,
                    quote=candidate.quote,
                    span=candidate.span,
                    secret=each.secret or candidate.secret,
                )
    return None


def _is_about(candidate: Candidate, old: Triple) -> bool:
    new = candidate.triple
    return new is not None and (new.subject, new.predicate) == (old.subject, old.predicate) and new.value != old.value


def _of_one_sort(old: str, new: str) -> bool:
    days = bool(_CALENDAR.search(old)) == bool(_CALENDAR.search(new))
    return days and any(char.isdigit() for char in old) == any(char.isdigit() for char in new)
