"""What a change puts in doubt: who moved to another city may go to another gym (`doubts.txt` has the table and its reasons)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from app.memory.candidate import Candidate


@cache
def _table() -> dict[str, tuple[str, ...]]:
    lines = Path(__file__).with_name("doubts.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.partition("#")[0].partition(" => ") for line in lines if not line.startswith("#"))
    return {changed.strip(): tuple(doubted.split()) for changed, arrow, doubted in rows if arrow}


def _doubted(changed: str) -> tuple[str, ...]:
    return tuple(name.rstrip("!") for name in _table().get(changed, ()))


def ends_with(ended: str) -> frozenset[str]:
    """The predicates of which what was said in one breath with something that ended ends with it."""
    return frozenset(name.rstrip("!") for name in _table().get(ended, ()) if name.endswith("!"))


def with_doubts(candidate: Candidate) -> Candidate:
    """The candidate with the predicates that it puts in doubt; one that changes nothing doubts nothing."""
    changed = {each.predicate for each in candidate.ends if each.predicate and each.subject == "user"}
    if candidate.kind == "correction" and candidate.triple is not None and candidate.triple.subject == "user":
        changed.add(candidate.triple.predicate)
    rows = [_doubted(each) for each in sorted(changed)]
    # "I left London": the home or the employer; in doubt is only what either would put in doubt.
    doubted = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    said = {candidate.triple.predicate} if candidate.triple else set()
    return replace(candidate, doubts=tuple(name for name in doubted if name not in changed | said))
