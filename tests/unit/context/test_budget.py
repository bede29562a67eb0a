"""How many tokens there are, and who gets them: the window's (seed 000 §6.1), and the sections' (seed 001 §6)."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from app.context.assemble import FRAME_TOKENS
from app.context.budget import (
    EPOCH_BLOCKS,
    HEAD_CHARS,
    NOTHING,
    SHARES,
    Budgets,
    SectionNeeds,
    Shares,
    Split,
    TaskType,
    allocate,
    available,
    classify,
    epoch_budget,
    memory_budget,
    share_out,
    wanted,
)
from tests.support.tables import each_of


def test_available_is_what_seed_000_section_6_1_says() -> None:
    assert available(window=128_000, system=500, reserve=4096, tools=1200) == 128_000 - 500 - 4096 - 1200
    assert available(window=4096, system=3000, reserve=4096, tools=0) == 0


@each_of(
    ("task", "split"),
    [
        (TaskType.CONTINUATION, Split(1500, 8500, 0)),
        (TaskType.KNOWLEDGE_INTENSIVE, Split(4000, 6000, 0)),
        (TaskType.NEW_SESSION, Split(5000, 5000, 0)),
        (TaskType.TOOL_HEAVY, Split(1000, 7000, 2000)),
    ],
)
def test_the_table_of_seed_000_section_6_1(task: TaskType, split: Split) -> None:
    assert allocate(10_000, task) == split


def test_history_may_have_a_bound_of_its_own() -> None:
    """Seed 001 §6, step 5: 2,000 tokens of conversation."""
    assert allocate(10_000, TaskType.CONTINUATION, 2000) == Split(1500, 2000, 0)
    assert allocate(1000, TaskType.CONTINUATION, 2000) == Split(150, 850, 0)


@given(st.integers(0, 2_000_000), st.sampled_from(TaskType))
def test_the_parts_add_up(budget: int, task: TaskType) -> None:
    split = allocate(budget, task)
    assert sum(split) == budget
    assert min(split) >= 0
    assert sum(SHARES[task]) == 100


@each_of(
    ("share", "budget", "client", "cap", "expected"),
    [
        (4000, 10_000, 2000, 1500, 1500),  # the setting decides
        (1200, 10_000, 2000, 1500, 1200),  # the task's share decides
        (4000, 10_000, 9700, 1500, 300),  # what the client leaves decides
        (4000, 10_000, 10_000, 1500, 0),
        (4000, 10_000, 50_000, 1500, 0),  # the client's own messages are over the budget: nothing is added
        (4000, 10_000, 2000, 0, 0),
    ],
)
def test_memory_takes_what_remains(share: int, budget: int, client: int, cap: int, expected: int) -> None:
    assert memory_budget(share, budget, client, cap) == expected


def test_live_blocks_are_paid_first() -> None:
    assert memory_budget(4000, 10_000, 9000, 1500, live=800) == 200
    assert memory_budget(4000, 10_000, 9000, 1500, live=1200) == 0


def test_a_block_leaves_half_of_what_is_left_of_its_epoch() -> None:
    assert memory_budget(4000, 10_000, 100, 1500, live=0, epoch=2000) == 1000
    assert memory_budget(4000, 10_000, 100, 1500, live=1000, epoch=2000) == 500
    assert memory_budget(4000, 100_000, 100, 1500, live=0, epoch=12_000) == 1500
    assert memory_budget(4000, 10_000, 100, 1500, live=3000, epoch=2000) == 0


def test_epoch_budget() -> None:
    assert epoch_budget(120_000, 1000, 1500) == EPOCH_BLOCKS * 1500
    assert epoch_budget(4000, 1000, 1500) == 2000
    assert epoch_budget(4000, 3500, 1500) == 500
    assert epoch_budget(4000, 5000, 1500) == 0


@given(*[st.integers(0, 200_000)] * 5)
def test_an_epoch_never_outgrows_its_budget(share: int, budget: int, client: int, cap: int, turns: int) -> None:
    live, epoch = 0, epoch_budget(budget, client, cap)
    for _ in range(min(turns, 20)):
        block = memory_budget(share, budget, client, cap, live=live, epoch=epoch)
        assert 0 <= block <= cap
        live += block
        assert live <= epoch
        assert client + live <= budget or live == 0


# --- sections ---------------------------------------------------------------------------------------------------------

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
    seed = share_out(8000, SectionNeeds(profile=SEED["tenant profile"].used), BUDGETS, MEMORIES)
    assert seed == Shares(185, 0, 0, 1500)


@each_of(
    ("room", "wants", "expected"),
    [
        (1500, NOTHING, Shares(0, 0, 0, 1500)),  # nothing to say beside memories: they have it all
        (9000, NOTHING, Shares(0, 0, 0, 1500)),
        (1900, SectionNeeds(200, 200), Shares(200, 200, 0, 1500)),
        (1900, SectionNeeds(900, 900), Shares(200, 200, 0, 1500)),  # no more than its budget
        (1980, SectionNeeds(200, 200, 80), Shares(200, 200, 80, 1500)),
        (950, SectionNeeds(200, 200), Shares(88, 200, 0, 662)),  # facts first
        (950, SectionNeeds(30, 200), Shares(30, 200, 0, 720)),  # what one does not want, memories have
        (180, SectionNeeds(200, 200), Shares(15, 45, 0, 120)),  # a quarter of the room
        (400, SectionNeeds(facts=200, wishes=200), Shares(0, 100, 0, 200, wishes=100)),
        (100, SectionNeeds(200, 200), Shares(0, 0, 0, 100)),  # hardly more than the frame is left: memories have it
        (0, SectionNeeds(200, 200), Shares(0, 0, 0, 0)),
        (4260, SectionNeeds(200, 200, 80, 2000, 200, 80), Shares(200, 200, 80, 1500, 2000, 200, 80)),
        (4260, SectionNeeds(domain=9000), Shares(0, 0, 0, 1500, 2000)),  # seed 001 §6, step 4: service data
        (1750, SectionNeeds(domain=2000), Shares(0, 0, 0, 750, 1000)),
    ],
)
def test_the_room_is_shared_out(room: int, wants: SectionNeeds, expected: Shares) -> None:
    assert share_out(room, wants, BUDGETS, MEMORIES) == expected


@given(
    st.integers(0, 5000),
    st.tuples(*[st.integers(0, 900)] * 2, st.integers(0, 200), st.integers(0, 3000), *[st.integers(0, 300)] * 2),
    st.integers(0, 4000),
)
def test_the_shares_never_exceed_the_room(room: int, wanting: tuple[int, ...], memories: int) -> None:
    wants = SectionNeeds(*wanting)
    shares = share_out(room, wants, BUDGETS, memories)
    own = SectionNeeds(**{name: getattr(shares, name) for name in SectionNeeds._fields})
    assert sum(shares) <= max(room, 0)
    assert min(shares) >= 0
    assert shares.memories <= memories
    assert all(share <= want for share, want in zip(own, wanted(wants, BUDGETS), strict=True))
    if sum(own):
        assert room - sum(own) >= min(FRAME_TOKENS, memories)


# --- what kind of request it is ---------------------------------------------------------------------------------------

KNOWLEDGE = [
    "What did I tell you about my sister?",
    "Where do I live?",
    "do you remember the name of that restaurant",
    "Suggest something for dinner. What can I eat with my allergies?",
    "Which database did we choose last week?",
    "What is the capital of Portugal?",
    "what's my deadline",
    "How many invoices are unpaid for Northwind?",
    "¿Dónde vivo?",
    "我住在哪里？",
    "Please recall the budget we agreed on",
]
CONTINUATION = [
    "",
    "Thanks!",
    "Go on.",
    "Make it shorter",
    "Why is that?",
    "What do you mean?",
    "and then?",
    "Write a poem about the sea.",
    "Now translate the second paragraph into French",
    "Continúa, por favor",
]


@each_of("query", KNOWLEDGE)
def test_questions_about_the_past_or_the_world_need_knowledge(query: str) -> None:
    assert classify(query, new_session=False, has_tools=False) is TaskType.KNOWLEDGE_INTENSIVE


@each_of("query", CONTINUATION)
def test_everything_else_continues(query: str) -> None:
    assert classify(query, new_session=False, has_tools=False) is TaskType.CONTINUATION


@each_of("query", KNOWLEDGE + CONTINUATION)
def test_a_new_session_is_one_whatever_is_asked(query: str) -> None:
    assert classify(query, new_session=True, has_tools=True) is TaskType.NEW_SESSION


@each_of(
    ("has_tools", "last_role", "tool_results", "expected"),
    [
        (True, "tool", 1, TaskType.TOOL_HEAVY),
        (True, "function", 1, TaskType.TOOL_HEAVY),
        (True, "assistant", 2, TaskType.TOOL_HEAVY),
        (True, "user", 1, TaskType.CONTINUATION),
        (True, "user", 0, TaskType.CONTINUATION),
        (False, "tool", 5, TaskType.CONTINUATION),
    ],
)
def test_tools(has_tools: bool, last_role: str, tool_results: int, expected: TaskType) -> None:
    found = classify("go on", new_session=False, has_tools=has_tools, last_role=last_role, tool_results=tool_results)
    assert found is expected


def test_tool_results_outweigh_a_new_session() -> None:
    assert classify("?", new_session=True, has_tools=True, last_role="tool") is TaskType.TOOL_HEAVY


def test_a_question_is_found_at_either_end_of_a_long_text() -> None:
    pasted = "lorem ipsum dolor " * 1000
    assert len(pasted) > 2 * HEAD_CHARS
    for query in (f"What did we decide? {pasted}", f"{pasted} What did we decide?"):
        assert classify(query, new_session=False, has_tools=False) is TaskType.KNOWLEDGE_INTENSIVE
    buried = f"{pasted} What did we decide? {pasted}"
    assert classify(buried, new_session=False, has_tools=False) is TaskType.CONTINUATION


@given(st.text(), st.booleans(), st.booleans(), st.none() | st.text(max_size=5))
def test_any_text_has_a_type(query: str, new: bool, tools: bool, role: str | None) -> None:
    assert classify(query, new_session=new, has_tools=tools, last_role=role) in TaskType
