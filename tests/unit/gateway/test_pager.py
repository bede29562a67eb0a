"""Long sessions within their budget, request by request: what is shown shorter, what stays, and what is stored of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.assemble import Prepend
from app.context.transcript import Transcript
from app.errors import StoreUnavailable
from app.features.paging.body import HiddenLegs, keys_of
from app.features.paging.pager import unpaged
from app.features.paging.prompt import LEFT_OUT
from app.features.paging.tools import PhantomCall
from app.features.paging.values import TAG, Fidelity, Trigger, Zone, handle_of
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice
from app.gateway.prepare import weave
from app.providers.tokens import prompt_tokens
from tests.support.paging import COUNTER, PLACE, Asked, Desk, Message, call_of, chat_of
from tests.support.properties import examples
from tests.unit.paging.made import LONG_CODE, PROSE, called, said, user

TOOLS = [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]


def part(i: int) -> str:
    return LONG_CODE.replace("helper_", f"part{i}_") + f"\nSECRET = 'w{i * 7919}'\n"


def reads(count: int, first: int = 0) -> list[Message]:
    return [
        each
        for i in range(first, first + count)
        for each in called("Read", {"file_path": f"src/part{i}.py"}, part(i), f"c{i}")
    ]


def begun(count: int) -> list[Message]:
    return [{"role": "system", "content": "You repair."}, user("Repair the money module."), *reads(count)]


def extends(before: Asked, now: Asked) -> bool:
    """Whether all messages of before stand at the beginning of what is sent now, byte for byte."""
    envelope = CHAT.scan(before.body)
    assert envelope is not None
    return now.body.startswith(before.body[: envelope.messages[-1].end])


async def test_a_session_stays_within_its_budget_and_leaves_its_beginning_alone() -> None:
    desk = Desk(budget=24_000, tools=TOOLS)
    before, changed = None, 0
    for i in range(1, 31):
        now = await desk.ask(begun(i))
        record = now.paging.record
        assert now.tokens <= desk.budget
        assert record.tokens == pytest.approx(prompt_tokens(now.chat.messages, COUNTER), abs=40)
        assert record.shown_tokens == pytest.approx(now.tokens, abs=8)
        tools = record.shown_tokens - (record.tokens - now.paging.saved)
        assert (tools > 0) == (now.paging.names is not None), "beside the messages only ours are added"
        if before is not None and not record.transitions:
            assert extends(before, now)
        changed += bool(record.transitions)
        before = now
    assert record.tokens > 3 * desk.budget, "it did outgrow it"
    assert changed <= 15
    assert now.paging.names is not None
    shown = {each.id: each for each in now.paging.objects}
    assert {each.fidelity for each in shown.values()} > {Fidelity.FULL}
    texts = [str(each["content"]) for each in now.messages]
    for i, each in enumerate(now.paging.objects):
        marked = any(f"id={handle_of(each.id)}" in text for text in texts)
        assert marked != any(f"'w{i * 7919}'" in text and TAG not in text for text in texts)
        assert now.paging.handles[handle_of(each.id)] == each.id


async def test_what_is_sent_again_costs_no_second_segmentation() -> None:
    desk = Desk()
    counted: list[int] = []

    class Counting:
        def count(self, text: str) -> int:
            counted.append(len(text))
            return COUNTER.count(text)

    desk.pager._stored = Counting()  # type: ignore[assignment]  # all that segmenting asks of it
    messages = begun(8)
    first = await desk.ask(messages)
    assert len(first.paging.record.objects) == 8
    assert sum(counted) > 8 * len(part(0))
    counted.clear()
    again = await desk.ask(messages)
    assert counted == []
    assert (again.paging.record.marks, again.paging.record.objects) == (frozenset(), ())
    assert again.body == first.body or again.paging.record.transitions
    more = await desk.ask([*messages, *reads(1, 8)])
    assert len(more.paging.record.objects) == 1
    assert sum(counted) < 3 * len(part(8)), "of what is new alone"


async def test_levels_are_read_only_when_they_are_shown_for_the_first_time() -> None:
    desk = Desk(budget=16_000)
    for i in range(1, 16):
        read = len(desk.shelf.read_texts)
        now = await desk.ask(begun(i))
        shown = {
            each.object_id: each.after
            for each in now.paging.record.transitions
            if each.after in (Fidelity.DETAILED, Fidelity.COMPACT)
        }
        own = {each.id for each in now.paging.record.objects}
        wanted = {key: level for key, level in shown.items() if key not in own}
        assert desk.shelf.read_texts[read:] == ([wanted] if wanted else [])
    assert desk.shelf.read_texts


LEVELS = ("INFO", "WARN", "ERROR")
LOG = "".join(
    f"2026-11-20 12:{i // 60:02}:{i % 60:02} {LEVELS[i % 3]} worker {i % 7}: step {i} took {i * 37 % 911} ms\n"
    for i in range(180)
)
RESULTS = {
    "code": [part(i) for i in range(9)],
    "logs": [LOG.replace("step", f"step{i}") for i in range(9)],
    "json": [
        json.dumps([{"id": f"SO-{i}-{n}", "total": n * 7, "customer": f"c{n % 13}"} for n in range(120)])
        for i in range(9)
    ],
    "prose": ["\n\n".join(f"{PROSE} Chapter {i}.{n}." for n in range(60)) for i in range(9)],
}


def results(texts: list[str]) -> list[Message]:
    return [
        message
        for i, text in enumerate(texts)
        for message in called("fetch_record", {"path": f"records/{i}"}, text, f"c{i}")
    ]


@pytest.mark.parametrize("stored_results", [0, 3])
@pytest.mark.parametrize("share", [0.78, 0.87, 0.93])
@pytest.mark.parametrize("kind", RESULTS)
async def test_a_turn_that_jumps_past_caution_goes_step_by_step(kind: str, share: float, stored_results: int) -> None:
    """Seed 002 §3.2 makes L1 when pressure asks for it: where no job has come that far, the request does.

    `stored_results`: results that an earlier request had stored, without levels.
    """
    messages = [user("Look at the records."), *results(RESULTS[kind])]
    whole = prompt_tokens(messages, COUNTER)
    desk = Desk(budget=int(whole / share))
    desk.shelf.shrinks = False
    if stored_results:
        first = await desk.ask(messages[: 1 + 2 * stored_results])
        assert (first.paging.record.zone, first.paging.record.transitions) == (Zone.NORMAL, ())
    now = await desk.ask(messages)
    record = now.paging.record
    changes = {(change.before, change.after) for change in record.transitions}
    assert changes
    assert changes <= {(Fidelity.FULL, Fidelity.DETAILED), (Fidelity.FULL, Fidelity.COMPACT)}, changes
    expected = Zone.WARNING if share < 0.85 else Zone.CRITICAL
    assert {change.zone for change in record.transitions} == {expected}
    (tokens,) = {change.token_count for change in record.transitions}
    assert tokens == pytest.approx(share * desk.budget, rel=0.05)
    assert now.tokens <= desk.budget
    assert {levels.object_id for levels in record.levels} >= {change.object_id for change in record.transitions}

    again = await desk.ask(messages)
    assert again.body == now.body, "what is shown stays as it is"
    assert again.paging.record.levels == ()


async def test_levels_that_cannot_be_made_in_time_do_not_hold_up_a_request() -> None:
    messages = [user("Look at the records."), *results(RESULTS["code"])]
    desk = Desk(budget=int(prompt_tokens(messages, COUNTER) / 0.93), deadline_s=30.0)
    desk.shelf.shrinks = False
    desk.pager._shrinking_share = 0.0
    now = await desk.ask(messages)
    assert now.paging.record.levels == ()
    assert {change.after for change in now.paging.record.transitions} <= {Fidelity.STUB, Fidelity.EVICTED}
    assert now.tokens <= desk.budget


async def test_the_tools_stay_once_they_were_offered() -> None:
    desk = Desk(tools=TOOLS)
    assert (await desk.ask(begun(2))).paging.names is None
    assert (await desk.ask(begun(12))).paging.names is not None
    short = await desk.ask(begun(1))
    assert short.paging.names is not None
    assert [each["function"]["name"] for each in orjson.loads(short.body)["tools"]] == [
        "Read", "memory_query", "memory_restore",
    ]  # fmt: skip
    assert short.paging.record.offered


async def test_tools_that_may_not_be_called_are_not_offered_and_it_is_said() -> None:
    desk = Desk(tools=TOOLS)
    now = await desk.ask(begun(12), tool_choice="none")
    assert (now.paging.names, now.paging.declined) == (None, "tool-choice-none")
    assert now.tokens <= desk.budget
    assert now.paging.explained["declined"] == "tool-choice-none"
    assert orjson.loads(now.body)["tools"] == TOOLS


async def test_a_first_sight_that_takes_too_long_is_kept_for_the_next_request() -> None:
    desk = Desk(deadline_s=0.001)
    messages = begun(20)
    with pytest.raises(TimeoutError):
        await desk.ask(messages)
    await desk.tasks.close(30)
    (kept,) = desk.shelf.kept
    assert len(kept.objects) == 20
    assert kept.marks
    assert not kept.transitions
    assert all(each.fidelity == Fidelity.FULL for each in kept.objects)
    desk.pager._deadline_s = 30
    now = await desk.ask(messages)
    assert not now.paging.record.objects
    assert now.tokens <= desk.budget


async def test_a_store_that_is_away_is_said() -> None:
    desk = Desk()
    desk.shelf.fail = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await desk.ask(begun(2))


async def test_a_new_session_has_nothing_to_be_read() -> None:
    desk = Desk()
    desk.shelf.fail = StoreUnavailable()
    now = await desk.ask(begun(12), place=replace(PLACE, new=True, how="new"))
    assert now.tokens <= desk.budget


# --- what the model and the user ask for ----------------------------------------------------------------------------------


async def test_what_the_model_asked_back_stands_in_full_again() -> None:
    desk = Desk()
    before = await desk.ask(begun(12))
    lost = next(each for each in before.paging.objects if each.fidelity > Fidelity.FULL)
    desk.shelf.restored = frozenset([lost.id])
    now = await desk.ask(begun(13))
    assert next(each for each in now.paging.objects if each.id == lost.id).fidelity == Fidelity.FULL
    assert lost.id in now.paging.record.heard
    assert lost.id in now.paging.record.pinned
    assert desk.shelf.restored == frozenset()
    assert now.tokens <= desk.budget


async def test_what_was_released_goes_to_its_stub() -> None:
    desk = Desk()
    first = await desk.ask(begun(3))
    gone = first.paging.objects[0]
    desk.shelf.released = frozenset([gone.id])
    now = await desk.ask(begun(4))
    change = next(each for each in now.paging.record.transitions if each.object_id == gone.id)
    assert (change.after, change.trigger) == (Fidelity.STUB, Trigger.COOPERATIVE)
    assert desk.shelf.released == frozenset()


@pytest.mark.parametrize("words", ["What does src/part0.py do?", "And part0.py, is it right?"])
async def test_what_the_user_names_comes_back_while_there_is_room(words: str) -> None:
    desk = Desk(budget=60_000)
    await desk.ask(begun(3))
    (key, *_) = desk.shelf.objects
    desk.shelf.released = frozenset([key])
    await desk.ask(begun(4))
    now = await desk.ask([*begun(4), said("Done."), user(words)])
    assert now.paging.record.uses == {key}
    assert [(each.object_id, each.after, each.trigger) for each in now.paging.record.transitions] == [
        (key, Fidelity.FULL, Trigger.ACCESS)
    ]


async def test_what_a_new_call_is_about_is_used() -> None:
    desk = Desk(budget=60_000)
    await desk.ask(begun(3))
    (key, *_) = desk.shelf.objects
    edit = called("Edit", {"file_path": "src/part0.py", "old_string": "a", "new_string": "b"}, "ok", "e1")
    now = await desk.ask([*begun(3), *edit])
    assert now.paging.record.uses == {key}
    now = await desk.ask([*begun(3), *edit, *reads(1, 7)])
    assert now.paging.record.uses == frozenset(), "its own reading is no use of it"


async def test_a_file_that_is_read_again_counts_as_its_last_reading() -> None:
    desk = Desk(budget=60_000)
    twice = [*begun(2), *called("Read", {"file_path": "src/part0.py"}, part(0) + "# new\n", "again")]
    await desk.ask(twice)
    now = await desk.ask([*twice, said("Read."), user("What is in src/part0.py?")])
    (used,) = now.paging.record.uses
    assert used == list(desk.shelf.objects)[-1]


# --- exchanges of the ledger ----------------------------------------------------------------------------------------------

QUERY = PhantomCall("q1", "memory_query", '{"question": "Which?"}')


def exchange(told: str = "It was 401.") -> HiddenLegs:
    message = {"role": "assistant", "content": None, "tool_calls": [QUERY.as_sent()]}
    return HiddenLegs((message, {"role": "tool", "tool_call_id": "q1", "content": told}))


def chain_of(messages: list[Message], at: int) -> bytes:
    return next(key for key, index in keys_of(Transcript.of(messages)).items() if index == at)


async def test_an_exchange_stands_before_its_answer_and_an_object_in_that_is_left_alone() -> None:
    plan = "I decided to use a queue instead of a table, a trade-off. " * 30
    messages = [user("How?"), said(plan), user("And now?"), said("We go on."), *reads(6)]
    desk = Desk(budget=60_000)
    first = await desk.ask(messages[:2])
    (decision,) = first.paging.record.objects
    desk.shelf.hidden[chain_of(messages, 1)] = exchange().as_json()
    desk.shelf.released = frozenset([decision.id, *(await desk.ask(messages, record=False)).paging.handles.values()])
    now = await desk.ask(messages)
    assert [each["role"] for each in now.messages[:4]] == ["user", "assistant", "tool", "assistant"]
    assert now.messages[3]["content"] == plan
    assert now.paging.record.shown_tokens == pytest.approx(now.tokens, abs=8)
    assert now.paging.explained["exchanges"] == 1
    assert [each.fidelity for each in now.paging.objects] == [Fidelity.FULL, *[Fidelity.STUB] * 6]


async def test_old_exchanges_go_with_the_batch_of_a_critical_prompt_and_stay_away() -> None:
    desk = Desk(budget=12_000)
    messages = [user("Begin.")]
    for i in range(4):
        messages += [said(f"Answer {i}."), user(f"Question {i}?")]
    for at in (1, 3, 5, 7):
        desk.shelf.hidden[chain_of(messages, at)] = exchange(PROSE * 12).as_json()
    before = await desk.ask(messages)
    assert before.paging.explained["exchanges"] == 4
    messages += reads(4, 50)
    now = await desk.ask(messages)
    assert now.tokens <= desk.budget
    assert now.paging.explained["exchanges"] == 0
    assert all(row[LEFT_OUT] for row in desk.shelf.hidden.values())
    assert HiddenLegs.of_json(desk.shelf.hidden[chain_of(messages, 1)]) == exchange(PROSE * 12), "nothing is lost"
    again = await desk.ask(messages)
    assert again.paging.explained["exchanges"] == 0


async def test_calls_beside_the_clients_are_answered_when_it_comes_back() -> None:
    desk = Desk()
    before = await desk.ask(begun(12))
    lost = next(each for each in before.paging.objects if each.fidelity > Fidelity.FULL)
    restore = PhantomCall("r1", "memory_restore", json.dumps({"object_id": handle_of(lost.id)}), position=0)
    answer = {"role": "assistant", "content": None, "tool_calls": [PhantomCall("c99", "Read", "{}").as_sent()]}
    messages = [*begun(12), answer]
    desk.shelf.hidden[chain_of(messages, len(messages) - 1)] = HiddenLegs(beside=(restore,)).as_json()
    waiting = await desk.ask([*messages, user("Wait.")], record=False)
    assert not desk.answers.asked, "its own results are not here"
    assert "r1" not in str(waiting.messages)
    messages.append({"role": "tool", "tool_call_id": "c99", "content": "done"})
    now = await desk.ask(messages)
    assert desk.answers.asked == [restore]
    assert [each["id"] for each in now.messages[-3]["tool_calls"]] == ["r1", "c99"]
    assert now.messages[-2] == {"role": "tool", "tool_call_id": "r1", "content": "remembered: told r1"}
    assert next(each for each in now.paging.objects if each.id == lost.id).fidelity == Fidelity.FULL, (
        "in this very request"
    )
    again = await desk.ask([*messages, *reads(1, 40)])
    assert desk.answers.asked == [restore], "it is answered once"
    assert again.paging.record.transitions or extends(now, again)


async def test_an_answer_that_does_not_come_in_time_waits_for_the_next_request() -> None:
    desk = Desk()
    await desk.ask(begun(1))  # its tokenizer is loaded
    desk.pager._deadline_s = 0.5
    never = asyncio.Event()

    async def answer(*_: Any) -> list[str]:
        await never.wait()
        return []

    desk.pager._answers = type("Never", (), {"answer": answer})()
    message = {"role": "assistant", "content": None, "tool_calls": [PhantomCall("c99", "Read", "{}").as_sent()]}
    messages = [user("q"), message, {"role": "tool", "tool_call_id": "c99", "content": "done"}]
    desk.shelf.hidden[chain_of(messages, 1)] = HiddenLegs(beside=(QUERY,)).as_json()
    now = await desk.ask(messages)
    assert now.messages == messages
    assert not now.paging.record.hidden


# --- other ways of sending a transcript -----------------------------------------------------------------------------------


async def test_a_client_that_cuts_off_the_head_goes_on_in_its_turns() -> None:
    desk = Desk()
    whole = await desk.ask(begun(14))
    turn = whole.paging.turn
    cut = [*begun(14)[:2], *begun(16)[10:]]
    now = await desk.ask(cut)
    assert now.paging.turn == now.paging.record.turn == turn + 2
    assert {each.source_turn_start for each in now.paging.record.objects} == {turn + 1, turn + 2}
    assert now.tokens <= desk.budget
    for each in now.paging.objects:
        stands = any(f"id={handle_of(each.id)}" in str(message["content"]) for message in now.messages)
        assert stands == (each.fidelity > Fidelity.FULL)


async def test_two_requests_at_once_lose_nothing() -> None:
    desk = Desk()
    await desk.ask(begun(8))
    one, other = await asyncio.gather(desk.ask(begun(12), record=False), desk.ask(begun(13), record=False))
    desk.shelf.record(one.paging.record)
    desk.shelf.record(other.paging.record)
    assert len(desk.shelf.objects) == 13
    now = await desk.ask(begun(13))
    assert now.tokens <= desk.budget
    assert not now.paging.record.objects


async def test_a_body_that_is_sent_once_more_is_answered_as_it_was() -> None:
    desk = Desk(tools=TOOLS)
    first = await desk.ask(begun(12))
    again = await desk.pager.repeated(call_of(first.chat), first.body, PLACE)
    assert again is not None
    assert again.names == first.paging.names
    assert again.insertions == ()
    assert again.handles == first.paging.handles
    assert not again.record.transitions
    assert not again.record.decided, "how full the session is stays as it was"
    tight = await desk.pager.repeated(call_of(first.chat), first.body, PLACE, desk.budget)
    assert tight is not None
    assert tight.budget == desk.budget
    assert tight.room == max(0, desk.budget - tight.record.shown_tokens)
    plain = await desk.pager.repeated(call_of(first.chat), first.chat.body, PLACE)
    assert plain is None, "it has no tools of ours"
    desk.shelf.fail = StoreUnavailable()
    blind = await desk.pager.repeated(call_of(first.chat), first.body, PLACE)
    assert blind is not None
    assert blind.names == first.paging.names, "what is called must not reach the client"


async def test_a_block_of_memory_stands_before_what_is_shown_shorter() -> None:
    paste = "\n".join(f"2026-11-20 10:00:{i % 60:02} ERROR worker {i} failed with code {i * 7}" for i in range(300))
    messages = [user("Begin."), said("Yes."), user(paste), said("I see."), *reads(12)]
    desk = Desk()
    now = await desk.ask(messages)
    assert TAG in now.messages[2]["content"]
    woven = splice(now.chat.body, [*weave(CHAT.canvas(now.chat), [Prepend(2, "BLOCK\n\n")]), *now.paging.insertions])
    assert orjson.loads(woven)["messages"][2]["content"] == "BLOCK\n\n" + now.messages[2]["content"]


@pytest.mark.parametrize(
    ("field", "reason"), [("server_managed", "history-supplied"), ("upstream_holds", "upstream-holds")]
)
def test_what_mneme_or_the_upstream_supplies_is_not_paged(field: str, reason: str) -> None:
    fields: dict[str, Any] = {field: True}
    assert unpaged(chat_of([user("q")]), replace(PLACE, **fields)) == reason
    assert unpaged(chat_of([user("q")]), PLACE) is None


# --- whatever comes -------------------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.integers(0, 9).map(lambda i: reads(1, i)),
    st.integers(0, 3).map(
        lambda i: called("Bash", {"command": f"pytest -k {i}"}, f"FAILED {i}\n" + "log line\n" * 150 * (i + 1))
    ),
    st.integers(0, 3).map(lambda i: [said("Done."), user(f"Now part{i}.py")]),
    st.integers(0, 3).map(lambda i: [said(f"I decided on {i}. " + PROSE * 12), user("Go on.")]),
    st.just(
        [
            said("So."),
            {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": part(3)}]},
        ]
    ),
)


@examples(15)
@given(st.lists(STEP, min_size=1, max_size=14), st.sampled_from([6_000, 12_000]), st.booleans())
def test_whatever_comes_the_prompt_is_whole_and_within_what_can_be_had(
    steps: list[list[Message]], budget: int, escaped: bool
) -> None:
    async def run() -> None:
        desk = Desk(budget=budget)
        messages = [user("Begin.")]
        before: Asked | None = None
        for n, step in enumerate(steps):
            messages += [
                {**each, "tool_call_id": f"{n}"} if each["role"] == "tool" else _renumbered(each, n) for each in step
            ]
            body = json.dumps({"model": "gpt-4o", "messages": messages}, ensure_ascii=escaped).encode()
            now = await desk.ask(messages, body=body)
            assert [each["role"] for each in now.messages] == [each["role"] for each in messages]
            assert now.paging.record.shown_tokens == pytest.approx(now.tokens, abs=8)
            if before is not None and not now.paging.record.transitions:
                assert extends(before, now)
            if now.tokens > budget:
                assert all(each.fidelity >= Fidelity.STUB for each in now.paging.objects)
                assert now.paging.record.zone == Zone.EMERGENCY
            before = now

    asyncio.run(run())


def _renumbered(message: Message, n: int) -> Message:
    calls = [{**each, "id": f"{n}"} for each in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message
