from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.assemble import FRAME_TOKENS
from app.context.budget import NOTHING, Budgets, Shares, Wants, share_out, wanted

BUDGETS = Budgets()
MEMORIES = 1500


class Row(NamedTuple):
    """A line of seed 001 §6's final check."""

    used: int
    budget: int
    over: str | None = None


SEED = {
    "system prompt": Row(480, 500),
    "tenant profile": Row(185, 200),
    "memories": Row(1120, 1500),
    "service data": Row(1650, 2000),
    "conversation": Row(45, 2000),
    "tools": Row(1200, 1500),
    "safety buffer": Row(320, 300, "drop lowest memory"),
}


def test_the_worked_table_of_seed_001_section_6() -> None:
    """Its total is off: 4,680 are the sections without the safety buffer, with it they are 5,000; the budgets do make 8,000.
    The rule is kept: what is over its own budget gives way, whatever the total is."""
    assert sum(row.budget for row in SEED.values()) == 8000
    assert sum(row.used for row in SEED.values()) == 5000
    assert sum(row.used for name, row in SEED.items() if name != "safety buffer") == 4680
    assert [name for name, row in SEED.items() if row.used > row.budget] == ["safety buffer"]
    assert (BUDGETS.profile, MEMORIES) == (SEED["tenant profile"].budget, SEED["memories"].budget)
    # The seed's own sections, in the seed's own room: everything has what it wants.
    seed = share_out(8000, Wants(profile=SEED["tenant profile"].used), BUDGETS, MEMORIES)
    assert seed == Shares(185, 0, 0, 1500)


@pytest.mark.parametrize(
    ("room", "wants", "expected"),
    [
        (1500, NOTHING, Shares(0, 0, 0, 1500)),  # nothing to say beside memories: they have it all
        (9000, NOTHING, Shares(0, 0, 0, 1500)),
        (1900, Wants(200, 200), Shares(200, 200, 0, 1500)),
        (1900, Wants(900, 900), Shares(200, 200, 0, 1500)),  # no more than its budget
        (1980, Wants(200, 200, 80), Shares(200, 200, 80, 1500)),
        (950, Wants(200, 200), Shares(88, 200, 0, 662)),  # facts first
        (950, Wants(30, 200), Shares(30, 200, 0, 720)),  # what one does not want, memories have
        (180, Wants(200, 200), Shares(15, 45, 0, 120)),  # a quarter of the room
        (400, Wants(facts=200, wishes=200), Shares(0, 100, 0, 200, wishes=100)),
        (100, Wants(200, 200), Shares(0, 0, 0, 100)),  # hardly more than the frame is left: memories have it
        (0, Wants(200, 200), Shares(0, 0, 0, 0)),
        (4260, Wants(200, 200, 80, 2000, 200, 80), Shares(200, 200, 80, 1500, 2000, 200, 80)),
        (4260, Wants(domain=9000), Shares(0, 0, 0, 1500, 2000)),  # seed 001 §6, step 4: service data
        (1750, Wants(domain=2000), Shares(0, 0, 0, 750, 1000)),
    ],
)
def test_the_room_is_shared_out(room: int, wants: Wants, expected: Shares) -> None:
    assert share_out(room, wants, BUDGETS, MEMORIES) == expected


@given(
    st.integers(0, 5000),
    st.tuples(*[st.integers(0, 900)] * 2, st.integers(0, 200), st.integers(0, 3000), *[st.integers(0, 300)] * 2),
    st.integers(0, 4000),
)
def test_the_shares_never_exceed_the_room(room: int, wanting: tuple[int, ...], memories: int) -> None:
    wants = Wants(*wanting)
    shares = share_out(room, wants, BUDGETS, memories)
    own = Wants(**{name: getattr(shares, name) for name in Wants._fields})
    assert sum(shares) <= max(room, 0)
    assert min(shares) >= 0
    assert shares.memories <= memories
    assert all(share <= want for share, want in zip(own, wanted(wants, BUDGETS), strict=True))
    if sum(own):
        assert room - sum(own) >= min(FRAME_TOKENS, memories)
