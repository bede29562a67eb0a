"""The sections of a prompt, each with a budget of its own (seed 001 §6), and who gives way where there is less room.

Seed 000 §6.1 says how much of the window memory and history get; seed 001 §6 how that is spent within. All figures are tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from app.context.assemble import LEAST


class Budgets(Struct, frozen=True):
    """What each section may take at most, beside the memories themselves (`MNEME_MEMORY_BUDGET_TOKENS`: 1,500)."""

    profile: int = 200
    """Seed 001 §6, step 2."""
    facts: int = 200
    """No seed has a number: as much as the profile."""
    wishes: int = 200
    """No seed has a number: as much as the facts, which is a dozen orders of some 15 tokens."""
    question: int = 80
    """One question to the user: a memory of up to 50 tokens, and the words around it."""
    domain: int = 2000
    """What the business's own database says: seed 001 §6, step 4 (service data)."""
    conflicts: int = 200
    """No seed has a number: as much as the facts that it is about."""
    unclear: int = 80
    """Which of several things is meant: a line, as a question is."""
    cards: int = 800
    """Cards that the user's message asks for: one of seed 003's 2 KB has some 600; no seed has a number."""
    history: int | None = None
    """Seed 001 §6, step 5, has 2,000 of 8,000. None: the share of seed 000 §6.1 alone."""


FIRST = 4
"""Of a room that is too small, wishes and facts may take a quarter each: half of it is left to what is looked for."""
KNOWN_SECTIONS = ("domain", "conflicts", "unclear")
"""Those that only requests have that name things which are known."""


class Wants(NamedTuple):
    """What the sections of a block would take, could they take all that they have to say."""

    profile: int = 0
    facts: int = 0
    question: int = 0
    domain: int = 0
    conflicts: int = 0
    unclear: int = 0
    cards: int = 0
    wishes: int = 0


NOTHING = Wants()


class Shares(NamedTuple):
    """What they may take. `memories`: with the frame of the block and the session's summary."""

    profile: int
    facts: int
    question: int
    memories: int
    domain: int = 0
    conflicts: int = 0
    unclear: int = 0
    cards: int = 0
    wishes: int = 0


def wanted(wants: Wants, budgets: Budgets) -> Wants:
    """What each wants, no more than its budget."""
    return Wants(*map(min, wants, _limits(budgets)))


def share_out(room: int, wants: Wants, budgets: Budgets, memories: int) -> Shares:
    """`room` of a block shared out among its sections; `memories`: what these may take at most.

    With room for all, each has what it wants. With less, wishes and facts come first, each with a quarter of the room
    (`FIRST`) at most: a line of theirs says what takes a passage to find out. Of what is left each other section has the part
    that its budget is of all of theirs, or what it wants, if that is less; memories have the rest. Where hardly more than the
    frame would be left to them, they have all of it.
    """
    own = wanted(wants, budgets)
    if sum(own) + memories > room:
        facts, wishes = min(own.facts, room // FIRST), min(own.wishes, room // FIRST)
        left = room - facts - wishes
        limits = Wants(*(limit if want else 0 for want, limit in zip(own, _limits(budgets), strict=True)))
        whole = sum(limits._replace(facts=0, wishes=0)) + memories
        own = Wants(*(min(want, left * limit // max(1, whole)) for want, limit in zip(own, limits, strict=True)))
        own = own._replace(facts=facts, wishes=wishes)
        if room - sum(own) < LEAST:
            own = NOTHING
    left = max(0, min(memories, room - sum(own)))
    return Shares(
        own.profile, own.facts, own.question, left, own.domain, own.conflicts, own.unclear, own.cards, own.wishes
    )


def _limits(budgets: Budgets) -> Wants:
    return Wants(
        budgets.profile,
        budgets.facts,
        budgets.question,
        budgets.domain,
        budgets.conflicts,
        budgets.unclear,
        budgets.cards,
        budgets.wishes,
    )
