"""Do two statements say the same, do they contradict each other, and which of the memories that are near concern a statement?

The rules are pure functions over plain values, each the same both ways round, so that no order of arrival matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple
from uuid import UUID

from app.languages import LANGUAGES, language, language_of
from app.memory.additions import adds_another_fact
from app.memory.candidate import ends_with, guessed, vouched
from app.memory.claims import TripleRelation, ends, relation, replaces
from app.memory.drafts import Draft, IngestItem, like, member_item
from app.memory.text import Gist, gist, normalise, same_claim, singular
from app.store.learning import Member

# --- texts: whether one denies the other, in any of the six languages ----------------------------------------------------
# The words are data: `antonyms`, `negative` and `tone` of [texts] in app/languages/<code>.txt; the negative words of English
# are those of `text`. Texts of two languages, or of none that is known, are compared as English ones.

Contrast = Literal["denied", "changed"]
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+")
_LEAST_HAN = 2
"""Characters that two Chinese texts have in common beside what differs."""


class _Words(NamedTuple):
    """`pairs`: words of which one says what the other denies; `negative`: those that deny; `tone`: those that say neither."""

    pairs: frozenset[frozenset[str]]
    negative: frozenset[str]
    tone: frozenset[str]


@cache
def _words(code: str) -> _Words:
    texts = language(code).texts
    pairs = (frozenset(pair.split("/")) for pair in texts["antonyms"].split())
    if code == "en":
        pairs = (frozenset(map(singular, pair)) for pair in pairs)
    return _Words(frozenset(pairs), *(frozenset(texts.get(name, "").split()) for name in ("negative", "tone")))


def contrast(one: str, other: str) -> Contrast | None:
    """The same both ways round.

    denied: they have the same words but for those of tone, and one denies and the other does not; or but for one word in the
    place of its antonym ("likes/hates"). changed: but for one number in the place of another: the value may have changed, or
    both may be so. None: more differs.
    """
    codes = {language_of(one), language_of(other)} - {""}
    code = codes.pop() if len(codes) == 1 else "en"
    if code == "zh":
        return _of_characters(one, other, _words(code))
    (denied, ours), (too, theirs) = _gist(one, code), _gist(other, code)
    if ours == theirs:
        return "denied" if denied != too else None
    left, right = ours - theirs, theirs - ours
    pairs = _words(code).pairs
    if len(left | right) == 1 and denied != too:  # "hates" only denies, where "likes" is a word
        return "denied" if any(pair & (left | right) for pair in pairs) else None
    if len(left) != 1 or len(right) != 1 or not ours & theirs or denied != too:
        return None
    (a,), (b,) = left, right
    if a[0].isdigit() and b[0].isdigit():
        return "changed"
    return "denied" if frozenset((a, b)) in pairs else None


def _gist(text: str, code: str) -> Gist:
    """As `gist`, in the language."""
    if code == "en":
        return gist(text)
    found, own = _WORD.findall(normalise(text).casefold()), _words(code)
    denies = sum(word in own.negative for word in found) % 2 == 1
    return denies, frozenset(found) - own.negative - own.tone


def _of_characters(one: str, other: str, own: _Words) -> Contrast | None:
    """Of a language without spaces: what is left without the characters that differ."""
    ours, theirs = normalise(one), normalise(other)
    (denied, left), (too, right) = _bare(ours, own), _bare(theirs, own)
    if left == right:
        return "denied" if denied != too else None
    if denied != too:
        return None
    if _NUMBER.sub("", ours) == _NUMBER.sub("", theirs):
        return "changed" if len(_NUMBER.sub("", ours)) >= _LEAST_HAN else None
    for pair in own.pairs:
        for a, b in (tuple(pair), tuple(pair)[::-1]):
            rest = left.replace(a, "", 1)
            if a in left and b in right and rest == right.replace(b, "", 1) and len(rest) >= _LEAST_HAN:
                return "denied"
    return None


def _bare(text: str, own: _Words) -> tuple[bool, str]:
    """Whether a text denies, and the rest of it."""
    for word in sorted(own.tone, key=len, reverse=True):
        text = text.replace(word, "")
    denied = False
    for word in sorted(own.negative, key=len, reverse=True):
        denied ^= text.count(word) % 2 == 1
        text = text.replace(word, "")
    return denied, text


# --- statements and memories ---------------------------------------------------------------------------------------------

CONTRARY = 0.6
"""τ_sim: cosine above which two statements are compared for one denying the other. "Never" and an antonym move the vector of a
short text as far as that (measured: 0.63 to 0.99 of eight pairs, by the static vectors)."""


def says_same(draft: Draft, item: IngestItem, cosine: float | None, threshold: float) -> bool:
    """Do they? `cosine`: of their vectors, None where it is not known to be high. `threshold`: above which they are near."""
    if item.content_hash == draft.content_hash:
        return True
    if draft.candidate.speaker != item.speaker or not like(draft.candidate.kind, item.kind):
        return False
    if (guessed(draft.text) is None) != (guessed(item.text) is None):
        return False
    related = relation(draft.candidate.triple, item.triple)
    if related is not TripleRelation.NONE:
        # What was so until May is not what is so now.
        return related is TripleRelation.SAME and draft.candidate.until == item.valid_to
    if cosine is None and draft.vector is not None and item.draft is not None and item.draft.vector is not None:
        cosine = float(draft.vector @ item.draft.vector)
    near = (cosine is not None and cosine > threshold) or draft.gist == item.gist
    return near and not _apart(draft, item) and may_be_one(draft.text, item.text)


def may_be_one(first: str, second: str) -> bool:
    """Tell whether two texts with near vectors may say the same, in any language; `same_claim` knows only English words."""
    denied = contrast(first, second) == "denied" or _denies(first) != _denies(second)
    if denied or _has_relative(first) != _has_relative(second) or adds_another_fact(first, second):
        return False
    return same_claim(first, second)


def _denies(text: str) -> bool:
    """Return whether a text in another language than English has a denial; `same_claim` checks English."""
    code = language_of(text)
    if code in ("", "en"):
        return False
    return _bare(normalise(text), _words(code))[0] if code == "zh" else _gist(text, code)[0]


def _has_relative(text: str) -> bool:
    """Return whether a text mentions a relative, in any language."""
    return not _collect_kin_words().isdisjoint(_WORD.findall(text.casefold()))


@cache
def _collect_kin_words() -> frozenset[str]:
    return frozenset(word.casefold() for code in LANGUAGES for word in language(code).kin)


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


def touches(draft: Draft, item: IngestItem) -> bool:
    """Whether a statement ends what a memory says, or what belongs to it, puts it in doubt, or vouches for it."""
    triple = item.triple
    doubted = triple is not None and triple.subject == "user" and triple.predicate in draft.candidate.doubts
    belongs = triple is not None and (triple.subject, triple.predicate) in belonging(draft)
    vouches = vouched(item.text, draft.text) or (draft.guess and vouched(draft.text, item.text))
    return doubted or belongs or vouches or any(ends(each, triple) for each in draft.candidate.ends)


def belonging(draft: Draft) -> set[tuple[str, str]]:
    """What belongs to what a statement may take the place of, as subjects and predicates: the city of another job."""
    triple = draft.candidate.triple
    return {(triple.subject, name) for name in ends_with(triple.predicate)} if triple is not None else set()


def opposed(draft: Draft, item: IngestItem, cosine: float | None) -> Contrast | None:
    """How two statements contradict each other that are near, and that no triples compare; None: they do not."""
    if draft.candidate.speaker != item.speaker:
        return None
    if not like(draft.candidate.kind, item.kind) or "event" in (draft.candidate.kind, item.kind):
        return None
    if relation(draft.candidate.triple, item.triple) is not TripleRelation.NONE:
        return None
    if cosine is None and draft.vector is not None and item.draft is not None and item.draft.vector is not None:
        cosine = float(draft.vector @ item.draft.vector)
    near = cosine is not None and cosine > CONTRARY
    return contrast(draft.text, item.text) if near else None


def _contrary(draft: Draft, item: IngestItem, cosine: float | None) -> bool:
    said = draft.candidate.triple
    if relation(said, item.triple) is not TripleRelation.NONE or (draft.corrects and replaces(said, item.triple)):
        return True
    return opposed(draft, item, cosine) is not None


def _apart(draft: Draft, item: IngestItem) -> bool:
    """The same subject and predicate with another value: two facts, however alike their words are. Of preferences there may
    be many, and they may be near."""
    one, other = draft.candidate.triple, item.triple
    if one is None or other is None or (one.subject, one.predicate) != (other.subject, other.predicate):
        return False
    if "preference" in (draft.candidate.kind, item.kind):
        return False
    ours, theirs = one.value.casefold(), other.value.casefold()
    return ours not in theirs and theirs not in ours
