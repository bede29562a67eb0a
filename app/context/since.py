"""What a line says behind something that is so no more: what is so since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from app.context.assemble import neutralise, since_of
from app.context.candidates import Candidate
from app.context.notes import BRIEF_CHARS, Count
from app.context.pack import Packed, Reason, Verdict
from app.store.user_profile import Ended


class Since(NamedTuple):
    """`words`: of items that say what is so no more, what stands behind them; `used`: what these words are of;
    `tokens`: what they cost."""

    words: Mapping[UUID, str]
    used: Sequence[Ended]
    tokens: int = 0


NOTHING_SINCE = Since({}, ())


def doubtful(packed: Packed, past: bool) -> list[Ended]:
    """What the chosen items may say that is so no more. A brief message that does is not found at all, nor is a
    memory, unless it is asked for what was so before (`past`); a long one says much else."""
    return [
        ended
        for each in packed.candidates
        if past or (each.source == "message" and (each.span or len(each.text) > BRIEF_CHARS))
        for ended in each.ended
    ]


def since_then(packed: Packed, ended: Iterable[Ended], room: int, count: Count) -> tuple[Packed, Since]:
    """The words behind the chosen items, and the choice without those for whose words there is no room: `room` tokens
    are left. An old thing is said with the new one beside it, or not at all."""
    texts = {each.id: each for each in packed.candidates}
    told: dict[UUID, list[Ended]] = {}
    for each in ended:
        if each.item in texts and _says(texts[each.item], each):
            told.setdefault(each.item, []).append(each)
    words: dict[UUID, str] = {}
    used: list[Ended] = []
    gone: set[UUID] = set()
    tokens = 0
    for item, own in told.items():
        line = "".join(dict.fromkeys(map(_words, own)))
        cost = count(line) + 1
        if tokens + cost > room:
            gone.add(item)
        else:
            words[item] = line
            used += own
            tokens += cost
    if gone:
        left = tuple(each for each in packed.chosen if each.candidate.id not in gone)
        out = tuple(Verdict(each, Reason.OVER_BUDGET) for each in packed.chosen if each.candidate.id in gone)
        packed = Packed(left, packed.dropped + out, packed.tokens if left else 0)
    return packed, Since(words, used, tokens)


def _says(item: Candidate, ended: Ended) -> bool:
    """Whether it has the words: of a long message the passage that is shown need not."""
    return item.id == ended.memory or not ended.quote or ended.quote in item.text


def _words(ended: Ended) -> str:
    if ended.now is not None:
        when = f"since {since_of(ended.at)}" if ended.at is not None else "since then"
        return f" ({when}: {neutralise(ended.now)})"
    if ended.item == ended.memory:
        return f" (until {since_of(ended.at)})" if ended.at is not None else " (no longer so)"
    when = f" since {since_of(ended.at)}" if ended.at is not None else ""
    return f" (no longer so{when}: {neutralise(ended.said)})"
