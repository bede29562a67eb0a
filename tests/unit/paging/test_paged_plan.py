"""The decision on a prompt: what it is made on, and what is recorded of it."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from app.features.paging.fidelity import applied
from app.features.paging.prompt import (
    FixedTokens,
    PagedRequest,
    Plan,
    ReceivedRequest,
    Renderings,
    TranscriptObjects,
    costs_of,
    draw,
    fill,
    messages_at,
    places,
    plan,
    sheet,
)
from app.features.paging.segment import segment
from app.features.paging.state import Paging
from app.features.paging.tools import ToolInsertion, offer
from app.features.paging.values import NOTHING_PAGED, Fault, FaultType, Fidelity, Paged, PagingRecord, Trigger, Zone
from app.providers.tokens import CountCache, prompt_tokens
from tests.support.paging import COUNTER, NOW, SESSION, TENANT, USER, Message, chat_of
from tests.unit.paging.made import COUNT, LONG_CODE, called, user

BESIDE = FixedTokens(schemas=30, tools=200, memory=500)
MESSAGES: list[Message] = [user("Repair it.")] + [
    each
    for i in range(6)
    for each in called("Read", {"file_path": f"src/{i}.py"}, LONG_CODE.replace("helper_", f"p{i}_"), f"c{i}")
]


def taken() -> tuple[TranscriptObjects, ReceivedRequest]:
    chat, counts = chat_of(MESSAGES), CountCache()
    made = segment(SESSION, MESSAGES, chat.transcript, COUNT)
    costs = costs_of(chat, COUNTER, counts)
    where = places(messages_at(chat.transcript), made.objects)
    return TranscriptObjects(made, made.objects, where, costs), sheet(
        chat, costs, made.objects, where, {}, 0, COUNTER, counts
    )


def planned(budget: int, state: Paged = NOTHING_PAGED, *faults: Fault) -> tuple[TranscriptObjects, Plan]:
    read, page = taken()
    return read, plan(page, state, read, faults, budget, BESIDE)


def drawn(made: Plan) -> PagedRequest:
    shown = applied(made.page.objects, made.decision, made.moment)
    return draw(made.page, shown, "5f0c1d9a", Renderings(), COUNTER, CountCache())


def test_it_is_made_on_all_that_the_prompt_has_and_on_the_room_of_memory() -> None:
    _, made = planned(100_000)
    whole = prompt_tokens(MESSAGES, COUNTER) - 3 + sum(BESIDE)  # what opens the answer is in `schemas`
    assert made.decision.tokens == whole
    assert not made.decision.transitions


def test_what_is_shown_already_is_measured_and_not_guessed() -> None:
    read, page = taken()
    low = [replace(each, fidelity=Fidelity.STUB) for each in page.objects]
    page = replace(page, objects=low)
    guess = plan(page, NOTHING_PAGED, read, (), 100_000, BESIDE)
    seen = replace(page, measured={each.id: 50 for each in low})
    known = plan(seen, NOTHING_PAGED, read, (), 100_000, BESIDE)
    assert known.decision.tokens < guess.decision.tokens
    assert seen.size(low[0], Fidelity.STUB) == 50
    assert seen.size(low[0], Fidelity.FULL) == page.size(low[0], Fidelity.FULL)


def test_what_came_to_more_than_it_should_is_decided_once_more() -> None:
    _, made = planned(10_000)
    first = made.decision
    assert first.transitions
    assert not made.dearer(9_000), "it is within the budget"
    assert not made.dearer(first.tokens), "as much as was thought: nothing more can be had"
    assert made.decision is first
    assert made.dearer(first.tokens + 8_000)
    assert made.decision.tokens > first.tokens
    levels = {each.object_id: each.after for each in made.decision.transitions}
    assert sum(levels.values()) > sum(each.after for each in first.transitions)


def test_what_is_asked_back_beside_the_clients_calls_comes_at_once() -> None:
    read, page = taken()
    lost = page.objects[0]
    page = replace(page, objects=[replace(lost, fidelity=Fidelity.STUB), *page.objects[1:]])
    fault = Fault(UUID(int=1), FaultType.FULL_RESTORE, 6, NOW, lost.id, pin=True)
    asked = plan(page, NOTHING_PAGED, read, [fault], 100_000, BESIDE)
    (change,) = asked.decision.transitions
    assert (change.object_id, change.after, change.trigger) == (lost.id, Fidelity.FULL, Trigger.FAULT)
    for other in (replace(fault, fault_type=FaultType.MICRO_FAULT), replace(fault, pin=False)):
        assert not plan(page, NOTHING_PAGED, read, [other], 100_000, BESIDE).decision.transitions


def test_all_that_was_decided_is_recorded() -> None:
    read, made = planned(10_000, Paged(restored=frozenset([UUID(int=77)])))
    shown = applied(made.page.objects, made.decision, made.moment)
    record = PagingRecord(SESSION, 0, Zone.NORMAL, 10_000, 0, 0)
    paging = Paging(TENANT, USER, SESSION, 6, 10_000, NOTHING_PAGED, record)
    out = drawn(made)
    offered = offer(made.page.chat)
    assert isinstance(offered, ToolInsertion)
    fill(paging, made, read, shown, out, offered, BESIDE, 12_000)
    record = paging.record
    assert (record.turn, record.zone, record.offered) == (6, made.decision.zone, True)
    assert record.tokens == sum(read.costs) + 30
    assert record.shown_tokens == sum(out.costs) + 230
    assert paging.saved == sum(read.costs) - sum(out.costs)
    assert {each.id: each.fidelity for each in record.objects} == {each.id: each.fidelity for each in shown}
    assert all(each.content for each in record.objects)
    assert record.heard == frozenset(), "what does not stand in this prompt is still wanted"
    assert paging.window == 12_000
    assert list(paging.insertions) == [*out.insertions, *offered.insertions]
    paging.compiled(100)
    assert (paging.record.tokens, paging.record.shown_tokens) == (record.tokens + 100, record.shown_tokens + 100)
    assert paging.room == 10_000 - paging.record.shown_tokens


def test_tools_are_offered_where_something_is_short_or_they_were_before() -> None:
    read, made = planned(100_000)
    shown = applied(made.page.objects, made.decision, made.moment)
    record = PagingRecord(SESSION, 0, Zone.NORMAL, 100_000, 0, 0)
    offers: list[tuple[Paged, ToolInsertion | str, bool, str | None]] = [
        (NOTHING_PAGED, offer(made.page.chat), False, None),
        (Paged(offered=True), offer(made.page.chat), True, None),
        (NOTHING_PAGED, "tool-choice-none", False, None),
        (Paged(offered=True), "tool-choice-none", False, "tool-choice-none"),
    ]
    for state, offered, named, declined in offers:
        paging = Paging(TENANT, USER, SESSION, 6, 100_000, state, record)
        fill(paging, made, read, shown, drawn(made), offered, BESIDE, 0)
        assert (paging.names is not None, paging.declined) == (named, declined)
        assert paging.record.offered == state.offered
        assert bool(paging.schemas) == named
