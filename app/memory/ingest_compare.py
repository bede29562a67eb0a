"""Do two statements say the same, and which of the memories that are near concern a statement at all?

Pure functions over plain values; every one is the same both ways round, so that no order of arrival matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from app.memory.contrast import Contrast, contrast
from app.memory.doubts import ends_with
from app.memory.drafts import Draft
from app.memory.ingest_claims import Relation, ends, relation, replaces
from app.memory.ingest_items import Item, like, member_item
from app.memory.ingest_text import same_claim
from app.store.learning import Member

CONTRARY = 0.6
"""τ_sim: cosine above which two statements are compared for one denying the other. "Never" and an antonym move the vector of a
short text as far as that (measured: 0.63 to 0.99 of eight pairs, by the static vectors)."""


def says_same(draft: Draft, item: Item, cosine: float | None, threshold: float) -> bool:
    """Do they? `cosine`: of their vectors, None where it is not known to be high. `threshold`: above which they are near."""
    if item.content_hash == draft.content_hash:
        return True
    if not like(draft.candidate.kind, item.kind):
        return False
    related = relation(draft.candidate.triple, item.triple)
    if related is not Relation.NONE:
        # What was so until May is not what is so now.
        return related is Relation.SAME and draft.candidate.until == item.valid_to
    if cosine is None and draft.vector is not None and item.draft is not None and item.draft.vector is not None:
        cosine = float(draft.vector @ item.draft.vector)
    near = (cosine is not None and cosine > threshold) or draft.gist == item.gist
    denied = near and contrast(draft.text, item.text) == "denied"  # `same_claim` knows no other language's negation
    return near and not denied and not _apart(draft, item) and same_claim(draft.text, item.text)


def concerned(
    statements: Sequence[Draft], members: Sequence[Member], near: Mapping[int, Mapping[UUID, float]], threshold: float
) -> set[UUID]:
    """Of all memories that were looked up those that a statement may change: they are read whole, and held. The others stay
    free for whoever counts their use."""
    found: set[UUID] = set()
    for member in members:
        if member.root in found:
            continue
        item = member_item(member)
        for n, draft in enumerate(statements):
            cosine = near.get(n, {}).get(member.memory_id)
            if says_same(draft, item, cosine, threshold) or _contrary(draft, item, cosine) or touches(draft, item):
                found.add(member.root)
                break
    return found


def touches(draft: Draft, item: Item) -> bool:
    """Whether a statement ends what a memory says, or what belongs to it, or puts it in doubt."""
    triple = item.triple
    doubted = triple is not None and triple.subject == "user" and triple.predicate in draft.candidate.doubts
    belongs = triple is not None and (triple.subject, triple.predicate) in belonging(draft)
    return doubted or belongs or any(ends(each, triple) for each in draft.candidate.ends)


def belonging(draft: Draft) -> set[tuple[str, str]]:
    """What belongs to what a statement may take the place of, as subjects and predicates: the city of another job."""
    triple = draft.candidate.triple
    return {(triple.subject, name) for name in ends_with(triple.predicate)} if triple is not None else set()


def opposed(draft: Draft, item: Item, cosine: float | None) -> Contrast | None:
    """How two statements contradict each other that are near, and that no triples compare; None: they do not."""
    if not like(draft.candidate.kind, item.kind) or "event" in (draft.candidate.kind, item.kind):
        return None
    if relation(draft.candidate.triple, item.triple) is not Relation.NONE:
        return None
    if cosine is None and draft.vector is not None and item.draft is not None and item.draft.vector is not None:
        cosine = float(draft.vector @ item.draft.vector)
    near = cosine is not None and cosine > CONTRARY
    return contrast(draft.text, item.text) if near else None


def _contrary(draft: Draft, item: Item, cosine: float | None) -> bool:
    said = draft.candidate.triple
    if relation(said, item.triple) is not Relation.NONE or (draft.corrects and replaces(said, item.triple)):
        return True
    return opposed(draft, item, cosine) is not None


def _apart(draft: Draft, item: Item) -> bool:
    """The same subject and predicate with another value: two facts, however alike their words are. Of preferences there may
    be many, and they may be near."""
    one, other = draft.candidate.triple, item.triple
    if one is None or other is None or (one.subject, one.predicate) != (other.subject, other.predicate):
        return False
    if "preference" in (draft.candidate.kind, item.kind):
        return False
    ours, theirs = one.value.casefold(), other.value.casefold()
    return ours not in theirs and theirs not in ours
