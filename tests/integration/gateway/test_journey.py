"""Whole requests on a real store: which conversation they belong to, what of them is kept, and what goes upstream."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.gateway.upstream import UpstreamBroke
from app.index.indexes import Indexes
from app.providers.tokens import message_tokens
from app.settings import Settings
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.cases import cases
from tests.support.gateway_world import PATIENT, World
from tests.support.journey import (
    TOKENIZERS,
    UPSTREAM,
    Client,
    Message,
    Reply,
    Script,
    assistant,
    build_journey,
    completion,
    echo,
    error,
    stream,
    system,
    user,
)
from tests.support.rows import (
    count_rows,
    find_tables,
    read_audit,
    read_blocks,
    read_calls,
    read_messages,
    read_rows,
    read_sessions,
    read_streams,
    set_memory,
    suppress,
    update_rows,
)
from tests.support.wired_api import HashEmbedder, make_space

THINGS = [
    "a lighthouse in Porto", "two blue herons", "some cello lesson", "her aunt Zita", "one wet umbrella", "six plums",
    "the night ferry", "three broken chairs", "old vinegar", "Greek grammar", "every second Tuesday", "no sugar",
]  # fmt: skip


def with_script(world: World, script: Script) -> None:
    world.journey.upstream.script = script


# --- client-managed -------------------------------------------------------------------------------------------------


async def test_a_transcript_of_twenty_turns_is_forty_messages_of_one_session(world: World) -> None:
    transcript, sessions = await world.converse(20)
    assert len(set(sessions)) == 1
    history = await world.history(sessions[0])
    assert [(turn, sibling) for turn, sibling, _, _ in history] == [(i, 0) for i in range(1, 41)]
    assert [(role, content) for _, _, role, content in history] == [(m["role"], m["content"]) for m in transcript]
    assert await world.history() == history


async def test_a_system_prompt_with_a_clock_changes_nothing(world: World) -> None:
    transcript, sessions = await world.converse(2)
    for n in range(2):
        answer = await world.ask([system(f"It is {n} o'clock."), *transcript, user(f"And now? {n}")])
        transcript += [user(f"And now? {n}"), assistant(answer.text)]
        sessions.append(answer.session)
    assert len(set(sessions)) == 1
    prompts = await read_rows(world.admin, "system_prompts", "prompt")
    assert [row["prompt"] for row in prompts] == ["It is 0 o'clock.", "It is 1 o'clock."]


async def test_two_conversations_may_both_begin_with_hi(world: World) -> None:
    first = await world.ask([user("hi")])
    second = await world.ask([user("hi")])
    assert first.session != second.session


async def test_conversations_with_the_same_words_do_not_mix(world: World) -> None:
    """A model that answers alike makes transcripts alike: each must still go on where it was."""
    one, two = await world.ask([user("hi")]), None
    begun = [user("hi"), assistant(one.text)]
    again = await world.ask([*begun, user("A")])
    assert again.session == one.session
    two = await world.ask([user("hi")])
    assert two.session != one.session
    # Of two open ones the latest; the first has gone on and is recognised by what followed.
    assert (await world.ask([*begun, user("B")])).session == two.session
    assert (await world.ask([*begun, user("A"), assistant("You said: A"), user("C")])).session == one.session
    # A question that the first conversation was asked before, now about to be asked in a third.
    three = await world.ask([user("hi")])
    answer = await world.ask([*begun, user("A")])
    assert answer.session == three.session
    assert [row[:2] for row in await world.history(one.session)] == [(i, 0) for i in range(1, 7)]


async def test_an_edit_in_the_middle_is_a_branch(world: World) -> None:
    transcript, sessions = await world.converse(5)
    edited = [*transcript[:4], user("Something else?")]
    answer = await world.ask(edited)
    assert answer.session != sessions[0]
    (branch,) = await read_sessions(world.admin, session_id=UUID(answer.session))
    assert str(branch["parent_session_id"]) == sessions[0]
    assert branch["branch_turn_index"] == 4
    assert await world.history(answer.session) == [
        (5, 0, "user", "Something else?"),
        (6, 0, "assistant", "You said: Something else?"),
    ]
    assert len(await world.history(sessions[0])) == 10
    edited += [assistant(answer.text), user("And then?")]
    assert (await world.ask(edited)).session == answer.session
    assert len(await world.history(answer.session)) == 4
    # The conversation that was left goes on as well.
    assert (await world.ask([*transcript, user("Back again")])).session == sessions[0]


async def test_a_branch_of_a_branch_knows_its_line(world: World) -> None:
    transcript, _ = await world.converse(3)
    one = await world.ask([*transcript[:4], user("first edit")])
    line = [*transcript[:4], user("first edit"), assistant(one.text)]
    await world.ask([*line, user("more")])
    two = await world.ask([*line, user("second edit")])
    # Server-managed, the whole line is supplied.
    await world.ask([user("and now?")], headers={"x-mneme-session": str(two.session)})
    said = [each["content"] for each in world.journey.upstream.asked[-1]["messages"]]
    assert said == [*(each["content"] for each in line), "second edit", "You said: second edit", "and now?"]


async def test_a_regeneration_is_a_sibling(world: World) -> None:
    answers = iter(["one", "two", "three", "four"])
    with_script(world, lambda asked: completion(next(answers)))
    first = await world.ask([user("q1")])
    begun = [user("q1"), assistant("one"), user("q2")]
    await world.ask(begun)
    again = await world.ask(begun)
    assert again.session == first.session
    assert await world.history(first.session) == [
        (1, 0, "user", "q1"),
        (2, 0, "assistant", "one"),
        (3, 0, "user", "q2"),
        (4, 0, "assistant", "two"),
        (4, 1, "assistant", "three"),
    ]
    # Whichever answer the client keeps, the conversation goes on in its session.
    for kept in ("two", "three"):
        with_script(world, echo)
        answer = await world.ask([*begun, assistant(kept), user(f"after {kept}")])
        assert answer.session == first.session
    turns = [row[0] for row in await world.history(first.session)]
    assert turns == [1, 2, 3, 4, 4, 5, 6, 7, 8]


async def test_a_regeneration_further_up_stays_in_its_session(world: World) -> None:
    transcript, sessions = await world.converse(3)
    with_script(world, lambda asked: completion("another answer"))
    answer = await world.ask(transcript[:3])
    assert answer.session == sessions[0]
    answer = await world.ask([*transcript[:3], assistant("another answer"), user("go on")])
    assert answer.session == sessions[0]
    history = await world.history(sessions[0])
    assert (4, 1, "assistant", "another answer") in history
    assert [row[0] for row in history[-2:]] == [7, 8]


@pytest.mark.parametrize("kept", [3, 4, 5, 6])
async def test_a_client_that_cuts_the_head_off_stays_in_its_session(world: World, kept: int) -> None:
    transcript, sessions = await world.converse(6)
    for n in range(3):
        answer = await world.ask([system("Be brief."), *transcript[-kept:], user(f"Next {n}")])
        assert answer.session == sessions[0]
        transcript += [user(f"Next {n}"), assistant(answer.text)]
    assert len(await world.history()) == 18


async def test_an_unknown_transcript_with_a_history_is_a_new_session_as_it_stands(world: World) -> None:
    told = [user("q1"), assistant("a1"), user("q2"), assistant("a2"), user("q3")]
    answer = await world.ask(told)
    assert [row[3] for row in await world.history(answer.session)] == ["q1", "a1", "q2", "a2", "q3", "You said: q3"]
    # The same few-shot beginning belongs to many conversations: it makes no branch of the first.
    other = await world.ask([*told[:4], user("q4")])
    assert other.session != answer.session
    assert {row["parent_session_id"] for row in await read_sessions(world.admin)} == {None}


async def test_an_answer_that_the_client_changed_is_still_the_answer(world: World) -> None:
    """Thoughts taken out, or reading stopped: neither begins a new conversation every turn."""
    with_script(world, lambda asked: completion("<think>Hm, why not.</think>\n\nFine, thanks."))
    first = await world.ask([user("How are you?")])
    transcript = [user("How are you?")]
    for n in range(3):
        transcript += [assistant("Fine, thanks."), user(f"More {n}")]
        assert (await world.ask(transcript)).session == first.session
    assert len(await world.history()) == 8
    # Other words are an edit.
    edited = await world.ask([user("How are you?"), assistant("Terrible."), user("Why?")])
    assert edited.session != first.session


async def test_a_question_that_was_never_answered_is_not_stored_twice(world: World) -> None:
    transcript, sessions = await world.converse(1)
    transcript.append(user("again?"))
    with_script(world, lambda asked: Reply(chunks=[UpstreamBroke("gone")]))
    await world.journey.ask(transcript)
    with_script(world, echo)
    answer = await world.ask(transcript)
    assert answer.session == sessions[0]
    answer = await world.ask([*transcript, assistant(answer.text), user("and?")])
    assert [row[:3] for row in await world.history(sessions[0])] == [
        (i, 0, "assistant" if i % 2 == 0 else "user") for i in range(1, 7)
    ]


async def test_an_interrupted_stream_is_kept_as_far_as_it_came(world: World) -> None:
    with_script(world, lambda asked: stream("Once upon", " a time", done=False, finish=None, end=[UpstreamBroke("x")]))
    broken = await world.journey.ask([user("A story!")], stream=True)
    assert not broken.whole
    (row,) = await read_messages(world.admin, role=2)
    assert (row["content"], row["finish_reason"]) == ("Once upon a time", 8)
    assert json.loads(row["metadata"]) == {"interrupted": True}
    assert (await world.last_call())["outcome"] == 1
    # The client shows what it has got, perhaps less, and goes on.
    with_script(world, echo)
    answer = await world.ask([user("A story!"), assistant("Once upon a"), user("Go on")])
    assert answer.session == broken.session
    assert [row[3] for row in await world.history()] == ["A story!", "Once upon a time", "Go on", "You said: Go on"]


async def test_several_choices_stand_side_by_side_and_each_may_go_on(world: World) -> None:
    with_script(world, lambda asked: completion("a", "b", "c"))
    first = await world.ask([user("pick")], n=3)
    assert [row[:2] for row in await world.history(first.session)] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    with_script(world, echo)
    answer = await world.ask([user("pick"), assistant("b"), user("go on")])
    assert answer.session == first.session
    assert [row[:2] for row in await world.history(first.session)][-2:] == [(3, 0), (4, 0)]


async def test_a_tool_loop_is_one_conversation(world: World) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'}}
    with_script(world, lambda asked: completion(None, tool_calls=[call]))
    first = await world.ask([user("Weather?")], tools=[{"type": "function", "function": {"name": "weather"}}])
    # The SDK sends it back in its own writing.
    sent_back = {**call, "function": {"name": "weather", "arguments": '{"city":"Lisbon"}'}}
    loop = [
        user("Weather?"),
        {"role": "assistant", "content": "", "tool_calls": [sent_back], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"},
    ]
    with_script(world, echo)
    second = await world.ask(loop)
    assert second.session == first.session
    rows = await read_messages(world.admin)
    assert [row["role"] for row in rows] == [1, 2, 3, 2]
    assert json.loads(rows[1]["tool_calls"]) == [call]
    assert rows[2]["tool_call_id"] == "call_1"
    assert (await world.ask([*loop, assistant(second.text), user("Thanks")])).session == first.session


async def test_a_refusal_is_recognised_when_it_comes_back(world: World) -> None:
    with_script(world, lambda asked: completion(None, refusal="I cannot do that."))
    first = await world.ask([user("Do it")])
    with_script(world, echo)
    back = {"role": "assistant", "content": None, "refusal": "I cannot do that."}
    assert (await world.ask([user("Do it"), back, user("Please")])).session == first.session
    assert (2, 0, "assistant", "I cannot do that.") in await world.history()


async def test_pictures_and_unknown_fields_survive(world: World) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "This?"},
    ]
    strange = {"role": "user", "content": parts, "x_vendor": {"a": 1.5}, "name": "ana"}
    critic = {"role": "critic", "content": "Too long."}
    first = await world.ask([user("hi")], headers={"x-mneme-session": "s"})
    await world.ask([strange, critic, user("And?")], headers={"x-mneme-session": "s"})
    await world.ask([user("Now?")], headers={"x-mneme-session": "s"})
    assert world.journey.upstream.asked[-1]["messages"][2:4] == [strange, critic]
    assert first.session is not None
    (row,) = await read_messages(world.admin, name="ana")
    assert row["content"] == "This?"
    assert json.loads(row["content_parts"]) == parts


# --- server-managed -------------------------------------------------------------------------------------------------


async def test_server_managed_gives_the_same_history_as_client_managed(world: World) -> None:
    transcript, sessions = await world.converse(20, headers={"x-mneme-user": "carl"})
    served = []
    for n in range(20):
        answer = await world.ask(
            [user(f"Question {n + 1}")], headers={"x-mneme-user": "sue", "x-mneme-session": "talk"}
        )
        served.append(answer.session)
    assert len(set(served)) == 1
    assert await world.history(served[0]) == await world.history(sessions[0])
    assert [each["content"] for each in world.journey.upstream.asked[-1]["messages"]] == [
        each["content"] for each in transcript[:-1]
    ]
    # And a client that changes its ways is recognised, with its name or without.
    for headers in ({"x-mneme-user": "sue"}, {"x-mneme-user": "sue", "x-mneme-session": "talk"}):
        answer = await world.ask([*transcript, user("Whole?")], headers=headers)
        assert answer.session == served[0]
        transcript += [user("Whole?"), assistant(answer.text)]
    assert len(await world.history(served[0])) == 44


async def test_an_issued_session_id_is_accepted_as_it_is(world: World) -> None:
    first = await world.ask([user("hi")], headers={"x-mneme-user": "ana"})
    header = {"x-mneme-user": "ana", "x-mneme-session": str(first.session)}
    assert (await world.ask([user("again")], headers=header)).session == first.session
    assert [m["content"] for m in world.journey.upstream.asked[-1]["messages"]] == ["hi", "You said: hi", "again"]
    foreign = await world.journey.ask([user("hi")], headers={**header, "x-mneme-user": "bob"})
    assert foreign.status == 404
    assert foreign.json()["error"]["type"] == "not_found_error"
    own = "0b8f0f6e-3f57-4c53-9f39-5a1f1e3f2a11"  # a client's own uuid is a name like any other
    named = await world.ask([user("mine")], headers={"x-mneme-user": "ana", "x-mneme-session": own})
    assert named.session not in (own, first.session)
    assert named.session is not None
    assert [row["external_id"] for row in await read_sessions(world.admin, session_id=UUID(named.session))] == [own]


async def test_the_sessions_own_system_prompt_is_supplied(world: World) -> None:
    header = {"x-mneme-session": "s"}
    await world.ask([system("Be brief."), user("q1")], headers=header)
    await world.ask([user("q2")], headers=header)
    assert world.journey.upstream.asked[-1]["messages"][0] == {"role": "system", "content": "Be brief."}
    await world.ask([system("Be long."), user("q3")], headers=header)
    systems = [m for m in world.journey.upstream.asked[-1]["messages"] if m["role"] == "system"]
    assert systems == [system("Be long.")]


async def test_tool_results_alone_go_on_in_a_session(world: World) -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
    header = {"x-mneme-session": "s"}
    with_script(world, lambda asked: completion(None, tool_calls=calls))
    await world.ask([user("go")], headers=header)
    with_script(world, echo)
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"r{n}"} for n in range(2)]
    await world.ask(results, headers=header)
    sent = world.journey.upstream.asked[-1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1]["tool_calls"] == calls


async def test_calls_without_results_are_not_supplied(world: World) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"half'}}
    header = {"x-mneme-session": "s"}
    with_script(world, lambda asked: completion("Let me look.", tool_calls=[call]))
    await world.ask([user("go")], headers=header)
    with_script(world, echo)
    await world.ask([user("never mind")], headers=header)
    sent = world.journey.upstream.asked[-1]["messages"]
    assert sent == [user("go"), assistant("Let me look."), user("never mind")]


async def test_a_client_that_repeats_the_last_answer_does_not_double_it(world: World) -> None:
    header = {"x-mneme-session": "s"}
    first = await world.ask([user("q1")], headers=header)
    await world.ask([assistant(first.text), user("q2")], headers={**header, "x-mneme-history": "server"})
    assert [m["content"] for m in world.journey.upstream.asked[-1]["messages"]] == ["q1", first.text, "q2"]
    assert [row[0] for row in await world.history()] == [1, 2, 3, 4]


async def test_what_was_forgotten_is_not_supplied_and_cuts_nothing_else_off(world: World) -> None:
    header = {"x-mneme-session": "s"}
    for n in range(3):
        await world.ask([user(f"q{n}")], headers=header)
    (row,) = await read_messages(world.admin, content="q1")
    await suppress(world.admin, row["user_id"], row["message_id"], "forgotten")
    await world.ask([user("q3")], headers=header)
    said = [m["content"] for m in world.journey.upstream.asked[-1]["messages"]]
    assert said == ["q0", "You said: q0", "You said: q1", "q2", "You said: q2", "q3"]


async def test_a_named_transcript_that_differs_at_its_end_is_laid_over_what_is_stored(world: World) -> None:
    header = {"x-mneme-session": "s"}
    transcript, _ = await world.converse(3, headers=header)
    await world.ask([*transcript[2:5], assistant("not what was said"), user("q4")], headers=header)
    history = await world.history()
    assert [row[3] for row in history] == [
        *(m["content"] for m in transcript),
        "not what was said",
        "q4",
        "You said: q4",
    ]


# --- retries and Idempotency-Key --------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"x-mneme-session": "s"}, {"x-mneme-user": "ana"}])
async def test_an_sdks_retry_is_no_second_turn(world: World, headers: dict[str, str]) -> None:
    first = await world.ask([user("hi")], headers=headers)
    retried = await world.ask([user("hi")], headers={**headers, "x-stainless-retry-count": "1"})
    assert retried.session == first.session
    assert [row[:3] for row in await world.history()] == [(1, 0, "user"), (2, 0, "assistant"), (2, 1, "assistant")]
    sent = world.journey.upstream.asked
    assert [m["content"] for m in sent[-1]["messages"]] == ["hi"], (
        "the stored question is not supplied beside the client's"
    )
    assert [row["retry_count"] for row in await read_calls(world.admin)] == [0, 1]


@pytest.mark.parametrize("headers", [{}, {"x-mneme-session": "s"}])
async def test_a_retry_of_what_was_never_answered_is_no_second_turn(world: World, headers: dict[str, str]) -> None:
    opened = await world.ask([user("q1")], headers=headers)
    request = [user("q2")] if headers else [user("q1"), assistant(opened.text), user("q2")]
    with_script(world, lambda asked: stream(done=False, finish=None, end=[UpstreamBroke("x")]))
    await world.journey.ask(request, headers=headers, stream=True)
    with_script(world, echo)
    again = await world.ask(request, headers={**headers, "x-stainless-retry-count": "1"}, stream=True)
    assert again.session == opened.session
    assert [row[:3] for row in await world.history()] == [
        (1, 0, "user"),
        (2, 0, "assistant"),
        (3, 0, "user"),
        (4, 0, "assistant"),
    ]
    await world.ask([user("q3")], headers={"x-mneme-session": str(opened.session)})
    assert [m["content"] for m in world.journey.upstream.asked[-1]["messages"]] == [
        "q1", "You said: q1", "q2", "You said: q2", "q3",
    ]  # fmt: skip


async def test_an_old_hi_is_not_what_a_retry_means(world: World) -> None:
    first = await world.ask([user("hi")])
    two_hours_ago = datetime.now(UTC) - timedelta(hours=2)
    await update_rows(world.admin, "session_heads", {}, created_at=two_hours_ago)
    retried = await world.ask([user("hi")], headers={"x-stainless-retry-count": "2"})
    assert retried.session != first.session


async def test_a_repeated_idempotency_key_sends_the_stored_body_again(world: World) -> None:
    await world.remember("Ana is vegetarian and eats no fish")
    key = {"idempotency-key": "k-1"}
    first = await world.ask([user("Is Ana vegetarian?")], headers=key)
    await world.remember("Ana is vegetarian since 2019")
    again = await world.ask([user("Is Ana vegetarian?")], headers=key)
    sent = world.journey.upstream.sent
    assert b"eats no fish" in sent[0]
    assert sent[1] == sent[0]
    assert again.session == first.session
    assert again.headers["x-mneme-reason"] == "replayed"
    assert [row[:2] for row in await world.history()] == [(1, 0), (2, 0)]
    assert [str(row["session_id"]) for row in await read_calls(world.admin)] == [first.session] * 2
    # Another key is another question.
    other = await world.ask([user("Is Ana vegetarian?")], headers={"idempotency-key": "k-2"})
    assert other.session != first.session
    assert b"since 2019" in world.journey.upstream.sent[-1]


async def test_a_key_with_another_body_is_for_the_upstream_to_judge(world: World) -> None:
    key = {"idempotency-key": "k"}
    first = await world.ask([user("one")], headers=key)
    second = await world.ask([user("two")], headers=key)
    assert world.journey.upstream.asked[-1]["messages"][-1]["content"].endswith("two")
    assert second.headers.get("x-mneme-reason") is None
    assert second.session != first.session


async def test_a_key_is_its_users_own(world: World) -> None:
    first = await world.ask([user("hi")], headers={"idempotency-key": "k", "x-mneme-user": "ana"})
    second = await world.ask([user("hi")], headers={"idempotency-key": "k", "x-mneme-user": "bob"})
    assert second.headers.get("x-mneme-reason") is None
    assert first.session != second.session


@pytest.mark.parametrize("headers", [{}, {"x-mneme-session": "s"}])
async def test_a_key_whose_answer_broke_off_gets_its_answer(world: World, headers: dict[str, str]) -> None:
    key = {**headers, "idempotency-key": "k"}
    with_script(world, lambda asked: stream("half", done=False, finish=None, end=[UpstreamBroke("x")]))
    await world.journey.ask([user("hi")], headers=key, stream=True)
    with_script(world, echo)
    for _ in range(2):
        answer = await world.ask([user("hi")], headers=key, stream=True)
        assert answer.text == "You said: hi"
    assert await world.history() == [
        (1, 0, "user", "hi"),
        (2, 0, "assistant", "half"),
        (2, 1, "assistant", "You said: hi"),
    ]
    assert len(set(world.journey.upstream.sent)) == 1


async def test_a_key_whose_call_failed_makes_its_turn_once(world: World) -> None:
    key = {"idempotency-key": "k"}
    with_script(world, lambda asked: error(500, "boom"))
    failed = await world.journey.ask([user("hi")], headers=key)
    assert failed.status == 500
    assert await world.history() == []
    with_script(world, echo)
    await world.ask([user("hi")], headers=key)
    assert [row[:2] for row in await world.history()] == [(1, 0), (2, 0)]


# --- switches -----------------------------------------------------------------------------------------------------------


async def test_memory_off_changes_no_byte_and_keeps_the_call(world: World) -> None:
    await world.remember("Ana lives in Lisbon")
    body = b'{ "model":"gpt-4o",\n "messages" : [ {"role":"user","content":"Where does Ana live?"} ], "seed": 1.0 }'
    answer = await world.journey.post(body, headers={"x-mneme-memory": "off"})
    assert world.journey.upstream.sent == [body]
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("bypass", "memory-off")
    assert answer.session is None
    assert await world.history() == []
    call = await world.last_call()
    assert call["session_id"] is None
    assert await world.body_of(call, "request") == body
    assert await count_rows(world.admin, "pgqueuer") == 0


async def test_read_only_reads_and_learns_nothing(world: World) -> None:
    await world.remember("Ana lives in Lisbon")
    answer = await world.ask(
        [user("Where does Ana live? I keep a tarantula.")], headers={"x-mneme-memory": "read-only"}
    )
    assert b"Lisbon" in world.journey.upstream.sent[0]
    assert len(await world.history(answer.session)) == 2, "the conversation goes on"
    assert await count_rows(world.admin, "pgqueuer", "embeddings") == 0
    await world.ask([user("Do I keep a tarantula?")])
    sent = world.journey.upstream.sent[-1]
    assert b"I keep a tarantula." not in sent
    assert b"You said" not in sent


async def test_capture_off_keeps_the_turn_and_nothing_of_the_call(world: World) -> None:
    answer = await world.ask([user("My secret garden")], headers={"x-mneme-capture": "off"})
    assert len(await world.history(answer.session)) == 2
    call = await world.last_call()
    assert json.loads(call["metadata"]) == {"captured": False}
    assert call["request_headers"] == "[]"
    assert await find_tables(world.admin, "My secret garden") == {"conversation_history"}
    assert await count_rows(world.admin, "streams", "message_blobs", "request_chains", "compilations") == 0
    with_script(world, lambda asked: error(400, "no"))
    await world.journey.ask([user("x")], headers={"x-mneme-capture": "off"})
    await Client(world.journey.gateway).request("GET", "/v1/models", headers=[("x-mneme-capture", "off")])
    assert len(await read_calls(world.admin)) == 1


async def test_with_both_off_nothing_is_kept(world: World) -> None:
    await world.ask([user("hi")], headers={"x-mneme-memory": "off", "x-mneme-capture": "off"})
    tables = ("upstream_calls", "sessions", "conversation_history", "users", "streams")
    assert await count_rows(world.admin, *tables) == 0


async def test_without_a_user_memory_stays_in_the_session(world: World) -> None:
    world.journey.caller.principal = world.journey.caller.principal.__class__(
        ids.LOCAL_TENANT, ids.uuid7(world.journey.gateway._clock.now()), None, frozenset(), "keys"
    )
    one = await world.ask([user("My parrot is called Zazu")])
    assert one.headers["x-mneme-reason"] == "no-user"
    await world.ask([user("What is my parrot called, Zazu?")])
    assert b"My parrot is called Zazu" not in world.journey.upstream.sent[-1]
    # Its own session knows it, though the client sends only what is new.
    await world.ask([user("And now?")], headers={"x-mneme-session": str(one.session)})
    assert b"My parrot is called Zazu" in world.journey.upstream.sent[-1]


async def test_an_issued_session_says_whose_it_is_when_nobody_does(world: World) -> None:
    named = await world.ask([user("hi")], headers={"x-mneme-user": "ana"})
    principal = world.journey.caller.principal
    world.journey.caller.principal = principal.__class__(
        ids.LOCAL_TENANT, ids.uuid7(world.journey.gateway._clock.now()), None, frozenset(), "keys"
    )
    answer = await world.ask([user("still me")], headers={"x-mneme-session": str(named.session)})
    assert answer.session == named.session
    assert answer.headers["x-mneme-reason"] == "no-user", "memory stays within the session"
    assert len(await world.history(named.session)) == 4
    assert {row["user_id"] for row in await read_calls(world.admin)} == {ids.user_id(ids.LOCAL_TENANT, "ana")}


# --- memory in the prompt -----------------------------------------------------------------------------------------------


async def test_the_blocks_of_a_session_are_emitted_again_byte_for_byte(world: World) -> None:
    """The prefix that the upstream has cached stays as it was, whichever way the history comes."""
    for n in range(8):
        await world.remember(f"Fact {n}: Ana likes number {n}")
    things = iter(THINGS)
    for header in ({"x-mneme-user": "local"}, {"x-mneme-session": "s"}):
        begun = len(world.journey.upstream.asked)
        transcript: list[Message] = []
        for n in range(6):
            transcript.append(user(f"What is number {n} to Ana?"))
            asked = transcript[-1:] if "x-mneme-session" in header else transcript
            answer = await world.ask(asked, headers={**header, "x-mneme-price": "thorough"})
            transcript.append(assistant(answer.text))
            # Of words of its own: what repeats a block's is worth little.
            await world.remember(f"Ana's number {n} is {next(things)}")
        prompts = [each["messages"] for each in world.journey.upstream.asked[begun:]]
        assert "<mneme-memory" in prompts[0][0]["content"]
        for earlier, later in itertools.pairwise(prompts):
            assert later[: len(earlier)] == earlier
        blocks = sum(str(each["content"]).count("<mneme-memory") for each in prompts[-1])
        assert blocks > 2


async def test_forgetting_goes_before_caching(world: World) -> None:
    gone = await world.remember("Ana is allergic to peanuts")
    first = await world.ask([user("Is Ana allergic?")])
    assert b"peanuts" in world.journey.upstream.sent[0]
    await set_memory(world.admin, gone, status="forgotten")
    transcript = [user("Is Ana allergic?"), assistant(first.text), user("What is Ana allergic to?")]
    answer = await world.ask(transcript)
    assert answer.session == first.session
    assert b"peanuts" not in world.journey.upstream.sent[-1]
    assert (await read_audit(world.admin))["rebased"] == "items_gone"


async def test_other_placements(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await make_space(admin)
    for placement, roles in (("system", ["system", "user"]), ("second_system", ["system", "system", "user"])):
        settings = Settings(
            upstream_base_url=UPSTREAM,
            retrieval_deadline_ms=PATIENT,
            placement=placement,
        )
        journey = build_journey(TurnStore(pool, Queries.load()), embedder=HashEmbedder(), settings=settings)
        world = World(journey, TurnStore(pool, Queries.load()), admin)
        await world.remember(f"Ana plays chess {placement}")
        header = {"x-mneme-session": placement}
        await world.ask([system("Be kind."), user("Does Ana play chess?")], headers=header)
        await world.ask([user("Does Ana play chess?")], headers=header)
        for asked, turns in zip(journey.upstream.asked, (1, 3), strict=True):
            sent = asked["messages"]
            assert [m["role"] for m in sent][: len(roles)] == roles
            assert len(sent) == len(roles) - 1 + turns
            assert sent[0]["content"].startswith("Be kind.")
            assert "plays chess" in sent[len(roles) - 2]["content"]


async def test_a_search_that_is_late_leaves_the_history_and_the_blocks(
    pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the place knows needs no search: a session that Mneme keeps goes on, and the cached prefix stays."""
    await make_space(admin)
    store = TurnStore(pool, Queries.load())
    settings = Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT)
    world = World(build_journey(store, embedder=HashEmbedder(), settings=settings), store, admin)
    await world.remember("Ana plays chess")
    header = {"x-mneme-session": "kept"}
    await world.ask([user("Does Ana play chess?")], headers=header)

    async def slow(*given: Any, **more: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(Indexes, "scan", slow)
    late = build_journey(
        TurnStore(pool, Queries.load()),
        embedder=HashEmbedder(),
        settings=Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=1000),
    )
    answer = await World(late, store, admin).ask([user("And who taught her?")], headers=header)
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "deadline")
    assert answer.headers["x-mneme-context"].startswith("memories=0;history=2;")
    first, second = world.journey.upstream.asked[0]["messages"], late.upstream.asked[0]["messages"]
    assert [each["role"] for each in second] == ["user", "assistant", "user"]
    assert second[0] == first[0], "with its block"
    assert "plays chess" in second[0]["content"]
    assert second[2] == user("And who taught her?")
    assert [(turn, sibling) for turn, sibling, _, _ in await world.history(answer.session)] == [
        (index, 0) for index in range(1, 5)
    ]


async def test_memory_never_goes_over_the_budget(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await make_space(admin)
    settings = Settings(
        upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT, model_windows={"small": 400, "gpt-4o": 128_000}
    )
    world = World(
        build_journey(TurnStore(pool, Queries.load()), embedder=HashEmbedder(), settings=settings),
        TurnStore(pool, Queries.load()),
        admin,
    )
    for n in range(30):
        await world.remember(f"Note {n} about the lighthouse: it has {n} windows and a red door")
    counter = TOKENIZERS.for_model("small")
    for words in (10, 100, 200, 280):
        text = "lighthouse " * words
        answer = await world.journey.ask([user(text)], model="small", max_tokens=50)
        sent = world.journey.upstream.asked[-1]["messages"]
        total = sum(message_tokens(each, counter) for each in sent)
        if total > 350:
            assert sent == [user(text)], "what does not fit gets nothing"
        assert int(answer.headers["x-mneme-context"].rpartition("=")[2]) <= 350


async def test_a_prompt_refused_for_its_length_goes_once_more_as_it_was_written(world: World) -> None:
    await world.remember("Ana sails every summer")

    def refuse(asked: Message) -> Reply:
        if "<mneme-memory" in str(asked["messages"][-1]["content"]):
            return error(400, "This model's maximum context length is 12 tokens.")
        return echo(asked)

    with_script(world, refuse)
    answer = await world.ask([user("When does Ana sail?")])
    assert world.journey.upstream.asked[-1]["messages"] == [user("When does Ana sail?")]
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "too-long")
    assert len(await world.history(answer.session)) == 2
    assert await read_blocks(world.admin) == []


# --- capture ------------------------------------------------------------------------------------------------------------


async def test_every_request_is_kept_to_the_byte_as_received_and_as_sent(world: World) -> None:
    for n in range(4):
        await world.remember(f"Fact {n}: Ana likes number {n}")
    received = []
    transcript: list[Message] = [system("clock 0")]
    for n in range(5):
        transcript[0] = system(f"clock {n}")
        transcript.append(user(f"What is number {n}?"))
        body = json.dumps({"model": "gpt-4o", "messages": transcript, "seed": 12345678901234567890}, indent=n).encode()
        received.append(body)
        answer = await world.journey.post(body)
        transcript.append(assistant(answer.text))
    for n in range(3):
        body = json.dumps({"messages": [user(f"server {n}")], "model": "gpt-4o"}).encode()
        received.append(body)
        await world.journey.post(body, headers={"x-mneme-session": "s"})
    calls = await read_calls(world.admin)
    for call, body, sent in zip(calls, received, world.journey.upstream.sent, strict=True):
        assert await world.body_of(call, "request") == body
        kind = "sent" if call["sent_prefix"] is not None else "request"
        assert await world.body_of(call, kind) == sent


@cases("way", ["client", "clock", "server"])
async def test_stored_requests_grow_linearly(world: World, way: str) -> None:
    sizes = []
    transcript: list[Message] = []
    for n in range(80):
        transcript.append(user(f"Question number {n}, of some length, so that it weighs something."))
        if way == "server":
            answer = await world.ask(transcript[-1:], headers={"x-mneme-session": "s"})
        else:
            lead = [system(f"You are helpful. It is {n} past noon.")] if way == "clock" else []
            answer = await world.ask([*lead, *transcript])
        transcript.append(assistant(answer.text))
        if n in (19, 39, 59, 79):
            tables = ("message_blobs", "request_chains", "upstream_calls")
            stored = [row.values() for table in tables for row in await read_rows(world.admin, table)]
            sizes.append(sum(len(value) for values in stored for value in values if isinstance(value, bytes)))
    steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(steps) < 1.25 * min(steps), sizes


async def test_the_stream_read_back_is_the_stream(world: World) -> None:
    answer = await world.ask([user("tell")], stream=True)
    call = await world.last_call()
    assert (await read_streams(world.admin))[0]["body"] == answer.body
    events = await read_rows(world.admin, "stream_events", "seq")
    assert b"".join(row["data"] for row in events) == answer.body
    assert {row["call_id"] for row in events} == {call["call_id"]}


async def test_texts_that_postgres_refuses_are_stored(world: World) -> None:
    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"a\\u0000b","x":"\\u0000"}]}'
    answer = await world.journey.post(body)
    assert answer.status == 200
    assert answer.whole
    assert (await world.history())[0][3] == "a\ufffdb"
    assert await world.body_of(await world.last_call(), "request") == body
    deep = b'{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"text","text":"deep"},' + (
        b'{"type":"x","x":' + b"[" * 500 + b"]" * 500 + b"}]}]}"
    )
    answer = await world.journey.post(deep)
    assert answer.whole


# --- at once ------------------------------------------------------------------------------------------------------------


async def test_requests_of_one_session_at_once_take_turns_of_their_own(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        for n in range(8):
            group.create_task(world.ask([user(f"at once {n}")], headers={"x-mneme-session": "s"}))
    history = await world.history()
    assert [row[0] for row in history] == list(range(1, 17))
    assert {row[1] for row in history} == {0}
    for n in range(8):
        place = next(row[0] for row in history if row[3] == f"at once {n}")
        assert (place + 1, 0, "assistant", f"You said: at once {n}") in history
