"""A content as lines in groups by worth, and a level made of the best of them within a budget, with what was dropped. Pure.

Every kind of content is shortened alike: its module says which lines there are and what each group of them is good for
(`Outline`), this one takes as many as fit (`shorten`) and says what that leaves out. So the declared losses (seed 002 §1.2) are
counted, not guessed: a group that was kept whole is something the level can answer, any other is a loss and a reason to fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from app.features.paging.values import Counter, Shrunk

LINE_CHARS = 240
"""Longest line that is shown, characters: minified code and base64 are of no use in part."""
MAX_LINES = 40_000
"""Lines that are looked at; what follows is declared as a loss."""
MAX_CHARS = 1_000_000
"""Characters that are looked at (some 250,000 tokens, more than most windows hold)."""
COUNTED_CHARS = 200_000
"""Characters that are counted as they are; of a longer text a part of that size is, from its two ends and its middle."""
GAP_TOKENS = 4
"""Upper bound of what `… 1234` costs where lines were left out, tokens (o200k: "…", a space, two pieces of a number)."""
TRIES = 8
"""Times that a level is packed anew because it came out too long."""


class OutlineLine(NamedTuple):
    """A line of an outline. `group`: its index there; `weight`: which of a group come first (more is better; then by
    place); `at`: its number in the content, from 1; 0 for a line that was made and is none of it, which costs no gap
    and always stands where it is."""

    text: str
    group: int
    at: int = 0
    weight: float = 0.0


class Group(NamedTuple):
    """Lines that are good for the same. `can`: what can be answered from all of them; `loss`: what is missing without
    them, with `{n}` for the number of missing ones; `ask`: when to fault for them (empty: never for these alone)."""

    can: str
    loss: str
    ask: str = ""


class Outline(Struct, frozen=True):
    """`head`: lines made from the whole (counts, shape), shown first at each level while they fit; `groups`: best first."""

    head: tuple[str, ...]
    groups: tuple[Group, ...]
    lines: Sequence[OutlineLine]
    beyond: str | None = None
    """What was not looked at because the content is too long."""


_NUMBERED = re.compile(r"[ \t]{0,8}(\d{1,7})(?:→|\t|\| ?|: ?(?=\S|$)|: )(.*)", re.DOTALL)


def source_lines(text: str) -> tuple[list[str], int]:
    """The lines of a content and the number of the first: `cat -n` and editors' tools number them, which is taken off."""
    lines = text[:MAX_CHARS].splitlines()[:MAX_LINES]
    sample = [each for each in lines[:40] if each.strip()]
    found = [_NUMBERED.match(each) for each in sample]
    numbers = [int(each[1]) for each in found if each]
    if len(numbers) < 2 or len(numbers) < 0.8 * len(sample) or any(b - a != 1 for a, b in pairwise(numbers)):
        return lines, 1
    return [match[2] if (match := _NUMBERED.match(each)) else each for each in lines], numbers[0]


def beyond(text: str) -> str | None:
    """What `source_lines` does not look at."""
    if len(text) > MAX_CHARS:
        return f"all after the first {MAX_CHARS:,} of {len(text):,} characters"
    if (total := text.count("\n")) > MAX_LINES:
        return f"all after the first {MAX_LINES:,} of {total:,} lines"
    return None


def count_bounded(text: str, count: Counter) -> int:
    """`count(text)`; of a text over `COUNTED_CHARS` an estimate from three places of it, so that 10 MB cost what 200 kB do."""
    if len(text) <= COUNTED_CHARS:
        return count(text)
    third = COUNTED_CHARS // 3
    middle = (len(text) - third) // 2
    seen = sum(count(piece) for piece in (text[:third], text[middle : middle + third], text[-third:]))
    return -(-seen * len(text) // (third * 3))


def clip(text: str, limit: int = LINE_CHARS) -> str:
    """A line of at most so many characters."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def fitting(text: str, tokens: int, count: Counter) -> str:
    """The beginning of a one-line text that costs at most so many tokens, cut at a word where there is one."""
    text = text[: max(1, tokens) * 12]  # no tokenizer makes longer tokens of a text, on average
    while text and (cost := count(text)) > tokens:
        shorter = min(len(text) - 2, len(text) * tokens // cost)
        if shorter <= 0:
            return ""
        space = text.rfind(" ", shorter // 2, shorter)
        text = text[: space if space > 0 else shorter].rstrip(" ,;:…") + "…"
        if len(text) < 2:
            return ""
    return text


def shorten(
    outline: Outline, budget: int, count: Counter, *, above: frozenset[int] | None = None
) -> tuple[Shrunk, frozenset[int], tuple[str, ...]]:
    """A level of at most `budget` tokens, the indexes of the lines it keeps, and when to fault for the others.

    `above`: the lines that the level above kept, None for L0: losses are told against it (seed 002 §1.2). By group,
    then weight, then place; a line that does not fit is passed over. The text is counted at the end, and packed anew
    while it is too long.
    """
    order = sorted(
        (i for i in range(len(outline.lines)) if above is None or i in above),
        key=lambda i: (outline.lines[i].group, -outline.lines[i].weight, i),
    )
    whole = "\n".join(clip(each.text) for each in outline.lines)
    ratio = count_bounded(whole, count) / max(1, len(whole))
    room = float(budget)
    text, tokens, kept = "", 0, frozenset[int]()
    for _ in range(TRIES):
        head, kept = _choose(outline, order, room, ratio, count)
        text = "\n".join([*head, *_shown(outline, kept)])
        tokens = count_bounded(text, count)
        if tokens <= budget:
            break
        room *= min(0.9, budget / tokens)
    else:
        text = fitting(" ".join(text.split()), budget, count)
        tokens, kept = count(text), frozenset()
    losses, can, ask = _told(outline, kept, above)
    return Shrunk(text, tokens, losses, can), kept, ask


def _choose(
    outline: Outline, order: Sequence[int], room: float, ratio: float, count: Counter
) -> tuple[list[str], frozenset[int]]:
    head: list[str] = []
    for each in outline.head:
        spent = count(each) + 1
        if spent <= room:
            head.append(each)
            room -= spent
    kept: set[int] = set()
    for index in order:
        line = outline.lines[index]
        cost = min(len(line.text), LINE_CHARS) * ratio + 1
        if line.at and index - 1 not in kept:
            cost += GAP_TOKENS
        if cost <= room:
            kept.add(index)
            room -= cost
        elif room < GAP_TOKENS:
            break
    return head, frozenset(kept)


def _shown(outline: Outline, kept: frozenset[int]) -> list[str]:
    """The kept lines in their order; where lines of the content are missing before one, `… ` and its number say so."""
    shown: list[str] = []
    for index in sorted(kept):
        line = outline.lines[index]
        if line.at and index and index - 1 not in kept:
            shown.append(f"… {line.at}")
        shown.append(clip(line.text))
    return shown


def _told(
    outline: Outline, kept: frozenset[int], above: frozenset[int] | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What was lost against the level above, what can be answered, and when to fault: by group, counted."""
    had, has, could = ([0] * len(outline.groups) for _ in range(3))
    for index, line in enumerate(outline.lines):
        could[line.group] += 1
        has[line.group] += index in kept
        had[line.group] += above is None or index in above
    losses: list[str] = [] if outline.beyond is None or above is not None else [outline.beyond]
    can: list[str] = []
    ask: list[str] = []
    for i, group in enumerate(outline.groups):
        if has[i] < had[i] and group.loss:
            losses.append(group.loss.format(n=had[i] - has[i], of=could[i]))
        if could[i] and has[i] == could[i] and group.can:
            can.append(group.can)
        elif could[i] and has[i] < could[i] and group.ask:
            ask.append(group.ask)
    if outline.beyond is not None:
        ask.append("you need " + outline.beyond)
    return tuple(losses), tuple(can), tuple(ask)
