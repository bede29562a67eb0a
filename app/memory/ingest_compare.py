"""Do two statements say the same, and which of the memories that are near concern a statement at all?

Pure functions over plain values; every one is the same both ways round, so that no order of arrival matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from app.memory.drafts import Draft
from app.memory.ingest_claims import Relation, relation, replaces
from app.memory.ingest_items import Item, like, member_item
from app.memory.ingest_text import same_claim
from app.store.learning import Member


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
    return near and not _apart(draft, item) and same_claim(draft.text, item.text)


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
            if says_same(draft, item, cosine, threshold) or _contrary(draft, item):
                found.add(member.root)
                break
    return found


def _contrary(draft: Draft, item: Item) -> bool:
    said = draft.candidate.triple
    return relation(said, item.triple) is not Relation.NONE or (draft.corrects and replaces(said, item.triple))


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
