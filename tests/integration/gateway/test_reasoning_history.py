"""Reasoning goes back to its upstream within an open tool loop, and is never remembered."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from app.gateway.upstream import UpstreamBroke
from app.settings import Settings
from app.store import ids
from tests.support.cases import cases
from tests.support.gateway_world import World
from tests.support.journey import UPSTREAM, Answer, Message, Reply, assistant, build_journey, completion, error, user
from tests.support.message_legs import streamed, text, thinking, use, whole
from tests.support.responses import called, events_of, response_of, said, thought
from tests.support.rows import read_messages
from tests.support.wired_api import HashEmbedder

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
EVENT_STREAM = [(b"content-type", b"text/event-stream")]
CALL: Message = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lisbon"}'}}
SECOND_CALL: Message = {
    "id": "c2",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Porto"}'},
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
numbers = itertools.count()


def result(call: str, content: str = "sunny") -> Message:
    return {"role": "tool", "tool_call_id": call, "content": content}


def new_session() -> dict[str, str]:
    return {"x-mneme-session": f"talk-{next(numbers)}"}


def set_script(world: World, script: Callable[[Message], Reply]) -> None:
    world.journey.upstream.script = script


def last_messages(world: World) -> list[Message]:
    """The messages of the last request that the upstream got."""
    found: list[Message] = world.journey.upstream.asked[-1]["messages"]
    return found


def stream_deltas(*deltas: Message, finish: str = "stop", end: Sequence[Any] = (b"data: [DONE]\n\n",)) -> Reply:
    """A stream of chat completion chunks with these deltas."""
    chunks: list[Message] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [b"data: " + json.dumps({"model": "m", "choices": [chunk]}).encode() + b"\n\n" for chunk in chunks]
    return Reply(headers=EVENT_STREAM, chunks=[*events, *end])


# --- within an open tool loop: chat -----------------------------------------------------------------------------------

DETAILS: list[Message] = [
    {"type": "reasoning.text", "text": "I must look.", "signature": "c2ln", "id": "r1", "format": "x", "index": 0},
    {"type": "reasoning.encrypted", "data": "ZGF0YQ==", "id": "r2", "format": "x", "index": 1},
]
BLOCKS: list[Message] = [{"type": "thinking", "thinking": "I must look.", "signature": "c2ln"}]
PARTS: list[Message] = [{"type": "thinking", "thinking": [{"type": "text", "text": "I must look."}]}]
WHOLE_ANSWERS: dict[str, tuple[Message, Message]] = {
    "reasoning_content": ({"reasoning_content": "I must look."}, {"reasoning_content": "I must look."}),
    "reasoning": ({"reasoning": "I must look."}, {"reasoning": "I must look."}),
    "both": (
        {"reasoning": "I must look.", "reasoning_content": "I must look!"},
        {"reasoning": "I must look.", "reasoning_content": "I must look!"},
    ),
    "details": (
        {"reasoning": "I must look.", "reasoning_details": DETAILS},
        {"reasoning": "I must look.", "reasoning_details": DETAILS},
    ),
    "blocks": ({"thinking_blocks": BLOCKS}, {"thinking_blocks": BLOCKS}),
    "empty": ({"reasoning_content": ""}, {"reasoning_content": ""}),
    "null": ({"reasoning_content": None, "reasoning": None}, {}),
    "none": ({}, {}),
}
"""The upstream's message holds this beside the calls, and this part of it comes back."""


@cases("name", sorted(WHOLE_ANSWERS))
async def test_reasoning_of_a_whole_answer_comes_back_while_its_tool_loop_is_open(world: World, name: str) -> None:
    fields, expected = WHOLE_ANSWERS[name]
    session = new_session()
    set_script(world, lambda asked: completion(None, tool_calls=[CALL], **fields))
    await world.ask([user("Weather?")], headers=session, tools=TOOLS)
    set_script(world, lambda asked: completion("Sunny."))
    await world.ask([result("c1")], headers=session, tools=TOOLS)
    assert last_messages(world)[1] == {**assistant(None), "tool_calls": [CALL], **expected}


STREAMS: dict[str, tuple[list[Message], Message]] = {
    "pieces": (
        [{"reasoning_content": "I must "}, {"reasoning_content": "look."}],
        {"reasoning_content": "I must look."},
    ),
    "interleaved with content": (
        [{"reasoning": "I "}, {"content": "Let me "}, {"reasoning": "must."}, {"content": "look."}],
        {"reasoning": "I must.", "content": "Let me look."},
    ),
    "null beside content": (
        [{"reasoning_content": "I must."}, {"reasoning_content": None, "content": "So."}],
        {"reasoning_content": "I must.", "content": "So."},
    ),
    "both in one delta": ([{"reasoning": "a", "reasoning_content": "b"}], {"reasoning": "a", "reasoning_content": "b"}),
    "details in pieces": (
        [
            {"reasoning_details": [{"type": "reasoning.text", "text": "I must ", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "look.", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "ZGF0YQ==", "index": 1}]},
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "I must look.", "index": 0, "signature": "c2ln"},
                {"type": "reasoning.encrypted", "data": "ZGF0YQ==", "index": 1},
            ]
        },
    ),
    "parts of the content": (
        [{"content": [piece]} for piece in PARTS] + [{"content": "So."}],
        {"content": [*PARTS, {"type": "text", "text": "So."}]},
    ),
}


@cases("name", sorted(STREAMS))
async def test_reasoning_of_a_stream_comes_back_while_its_tool_loop_is_open(world: World, name: str) -> None:
    deltas, expected = STREAMS[name]
    session = new_session()
    called_then = {"tool_calls": [{"index": 0, **CALL}]}
    set_script(world, lambda asked: stream_deltas({"role": "assistant"}, *deltas, called_then, finish="tool_calls"))
    await world.ask([user("Weather?")], headers=session, tools=TOOLS, stream=True)
    set_script(world, lambda asked: completion("Sunny."))
    await world.ask([result("c1")], headers=session, tools=TOOLS)
    assert last_messages(world)[1] == {**assistant(None), "tool_calls": [CALL], **expected}


def deepseek(asked: Message) -> Reply:
    """Calls a tool twice, one after the other; refuses an open tool loop whose reasoning is missing."""
    messages = asked["messages"]
    begun = max(n for n, message in enumerate(messages) if message["role"] == "user")
    for n, message in enumerate(messages):
        if n > begun and message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str):
            return error(400, "Missing `reasoning_content` field in the assistant message")
    results = sum(1 for message in messages[begun:] if message["role"] == "tool")
    if results < 2 and asked.get("tools"):
        call = [CALL, SECOND_CALL][results]
        return completion(None, tool_calls=[call], reasoning_content=f"Thought {results}.")
    return completion("Sunny in both.", reasoning_content="Both are known.")


async def test_a_loop_of_two_rounds_goes_on_with_an_upstream_that_insists_on_reasoning(world: World) -> None:
    session = new_session()
    set_script(world, deepseek)
    await world.ask([user("Weather?")], headers=session, tools=TOOLS)
    await world.ask([result("c1")], headers=session, tools=TOOLS)
    last = await world.ask([result("c2")], headers=session, tools=TOOLS)
    assert last.text == "Sunny in both."
    thoughts = [message.get("reasoning_content") for message in last_messages(world)]
    assert thoughts == [None, "Thought 0.", None, "Thought 1.", None]
    # The loop is over: its thoughts are not sent again, and neither are those of the plain answer.
    await world.ask([user("Thanks.")], headers=session)
    assert not any("reasoning_content" in message for message in last_messages(world))
    assert [row[3] for row in await world.history(last.session)][5] == "Sunny in both."
    # A second loop of the same session.
    await world.ask([user("And tomorrow?")], headers=session, tools=TOOLS)
    await world.ask([result("c1")], headers=session, tools=TOOLS)
    thoughts = [message["reasoning_content"] for message in last_messages(world) if "reasoning_content" in message]
    assert thoughts == ["Thought 0."]


async def test_parallel_calls_and_a_word_of_the_user_beside_their_results(world: World) -> None:
    session = new_session()
    set_script(
        world, lambda asked: completion("Let me look.", tool_calls=[CALL, SECOND_CALL], reasoning="Two at once.")
    )
    await world.ask([user("Weather?")], headers=session, tools=TOOLS)
    set_script(world, lambda asked: completion("Sunny."))
    await world.ask([result("c1"), result("c2"), user("Be brief.")], headers=session, tools=TOOLS)
    assert last_messages(world)[1]["reasoning"] == "Two at once."


async def test_a_setting_of_the_upstream_sends_reasoning_after_the_loop_too(world: World) -> None:
    upstreams: Any = [
        {"name": "kept", "base_url": UPSTREAM, "models": ["kept"], "send_reasoning": True},
        {"name": "not", "base_url": UPSTREAM, "models": ["not"], "send_reasoning": False},
        {"name": "unset", "base_url": UPSTREAM},
    ]
    for everywhere in (False, True):
        settings = Settings(upstreams=upstreams, retrieval_deadline_ms=5000, send_reasoning=everywhere)
        world.journey = build_journey(world.store, embedder=HashEmbedder(), settings=settings)
        for model, expected in (("kept", True), ("not", False), ("other", everywhere)):
            session = new_session()
            set_script(world, lambda asked: completion("Fine.", reasoning_content="Hm."))
            await world.ask([user("How are you?")], headers=session, model=model)
            await world.ask([user("And now?")], headers=session, model=model)
            back = {"reasoning_content": "Hm."} if expected else {}
            assert last_messages(world)[1] == {**assistant("Fine."), **back}, (model, everywhere)


async def test_what_a_client_sends_of_its_own_stays_as_it_is(world: World) -> None:
    """A client that manages its history: with the reasoning and without it is the same conversation."""
    set_script(world, lambda asked: completion(None, tool_calls=[CALL], reasoning_content="I must look."))
    first = await world.ask([user("Weather?")], tools=TOOLS)
    set_script(world, lambda asked: completion("Sunny."))
    plain_call: Message = {**assistant(None), "tool_calls": [CALL]}
    for fields in ({}, {"reasoning_content": "I must look."}, {"reasoning_content": "Other words."}, {"reasoning": ""}):
        transcript = [user("Weather?"), {**plain_call, **fields}, result("c1")]
        answer = await world.ask(transcript, tools=TOOLS)
        assert answer.session == first.session
        assert last_messages(world) == transcript


async def test_reasoning_that_a_client_sent_follows_the_same_rule(world: World) -> None:
    """A transcript that was sent whole goes on with a session's id alone."""
    transcript = [
        user("Weather?"),
        {**assistant(None), "tool_calls": [CALL], "reasoning_content": "I must look."},
        result("c1"),
    ]
    set_script(world, lambda asked: completion(None, tool_calls=[SECOND_CALL], reasoning_content="And there."))
    session = {"x-mneme-session": str((await world.ask(transcript, tools=TOOLS)).session)}
    set_script(world, lambda asked: completion("Sunny."))
    await world.ask([result("c2")], headers=session, tools=TOOLS)
    thoughts = [piece["reasoning_content"] for piece in last_messages(world) if "reasoning_content" in piece]
    assert thoughts == ["I must look.", "And there."]
    await world.ask([user("Thanks.")], headers=session)
    assert not any("reasoning_content" in message for message in last_messages(world))


# --- within an open tool loop: the other dialects ---------------------------------------------------------------------


async def post(world: World, path: str, body: Message, headers: dict[str, str]) -> Answer:
    answer = await world.journey.post(
        json.dumps({"model": "m", "max_tokens": 50, **body}).encode(), headers=headers, path=path
    )
    assert answer.status == 200, answer.body
    return answer


REDACTED = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
USE, SECOND_USE = use("weather", {"city": "Lisbon"}, "c1"), use("weather", {"city": "Porto"}, "c2")
BLOCK_ANSWERS = {
    "signed": [thinking("I must look."), USE],
    "with a text": [thinking("I must look."), text("Let me look."), USE],
    "redacted": [thinking("Hm."), REDACTED, USE],
    "interleaved": [thinking("First."), USE, thinking("Then."), SECOND_USE],
    "a text between": [text("So."), thinking("Hm."), USE],
    "without a word": [thinking("", "c2ln"), USE],
}


@cases("name", sorted(BLOCK_ANSWERS))
@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_of_thinking_come_back_with_their_signatures(world: World, name: str, stream: bool) -> None:
    blocks = BLOCK_ANSWERS[name]
    session = new_session()
    head = EVENT_STREAM if stream else [(b"content-type", b"application/json")]
    set_script(world, lambda asked: Reply(headers=head, chunks=[(streamed if stream else whole)(blocks)]))
    await post(world, MESSAGES, {"messages": [user("Weather?")], "stream": stream}, session)
    set_script(world, lambda asked: Reply(chunks=[whole([text("Sunny.")])]))
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": piece, "content": "sunny"} for piece in uses]
    await post(world, MESSAGES, {"messages": [user([*results, text("Go on.")])]}, session)  # type: ignore[arg-type]
    assert last_messages(world)[1] == {"role": "assistant", "content": blocks}
    await post(world, MESSAGES, {"messages": [user("Thanks.")]}, session)
    assert "thinking" not in json.dumps(last_messages(world))


ENCRYPTED = {**thought("I must look."), "encrypted_content": "ZGF0YQ=="}
SECOND_THOUGHT = {**ENCRYPTED, "id": "rs_2", "encrypted_content": "bW9yZQ=="}
ITEM_ANSWERS = {
    "encrypted": [ENCRYPTED, called("weather", '{"city":"Lisbon"}', "c1")],
    "a reference": [thought(""), called("weather", '{"city":"Lisbon"}', "c1")],
    "with a message": [ENCRYPTED, said("Let me look.", 1), called("weather", '{"city":"Lisbon"}', "c1")],
    "interleaved": [
        ENCRYPTED, called("weather", '{"city":"Lisbon"}', "c1"),
        SECOND_THOUGHT, called("weather", '{"city":"Porto"}', "c2"),
    ],
}  # fmt: skip


def place_of(item: Message) -> str:
    """Return what an item is, without the writing of it."""
    return str(item.get("encrypted_content") or item.get("call_id") or item.get("type") or item.get("role"))


@cases("name", sorted(ITEM_ANSWERS))
@pytest.mark.parametrize("stream", [False, True])
async def test_items_of_reasoning_come_back_in_their_places(world: World, name: str, stream: bool) -> None:
    items = ITEM_ANSWERS[name]
    session = new_session()

    def answer(asked: Message) -> Reply:
        response = response_of(asked, items, "resp_1")
        if stream:
            return Reply(headers=EVENT_STREAM, chunks=events_of(response))
        return Reply(chunks=[json.dumps(response).encode()])

    set_script(world, answer)
    await post(world, RESPONSES, {"input": "Weather?", "stream": stream}, session)
    set_script(world, lambda asked: Reply(chunks=[json.dumps(response_of(asked, [said("Sunny.")], "resp_2")).encode()]))
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": piece, "output": "sunny"} for piece in calls]
    await post(world, RESPONSES, {"input": outputs}, session)
    request_part = world.journey.upstream.asked[-1]["input"][1 : 1 + len(items)]
    expected = ["assistant" if item["type"] == "message" else place_of(item) for item in items]
    assert [place_of(item) for item in request_part] == expected
    assert [item for item in request_part if item.get("type") == "reasoning"] == [
        item for item in items if item["type"] == "reasoning"
    ]
    await post(world, RESPONSES, {"input": "Thanks."}, session)
    assert "reasoning" not in json.dumps(world.journey.upstream.asked[-1]["input"])


async def test_a_reference_that_an_upstream_does_not_keep_is_not_sent(world: World) -> None:
    session = new_session()
    items = ITEM_ANSWERS["a reference"]
    set_script(world, lambda asked: Reply(chunks=[json.dumps(response_of(asked, items, "resp_1")).encode()]))
    await post(world, RESPONSES, {"input": "Weather?", "store": False}, session)
    outputs = [{"type": "function_call_output", "call_id": "c1", "output": "sunny"}]
    await post(world, RESPONSES, {"input": outputs, "store": False}, session)
    assert "reasoning" not in json.dumps(world.journey.upstream.asked[-1]["input"])


async def test_another_dialect_is_not_sent_what_it_does_not_know(world: World) -> None:
    answers = {
        CHAT: completion(None, tool_calls=[CALL], reasoning_content="I must look."),
        MESSAGES: Reply(chunks=[whole([thinking("I must look."), USE])]),
        RESPONSES: Reply(chunks=[json.dumps(response_of({}, ITEM_ANSWERS["encrypted"], "resp_1")).encode()]),
    }
    asks: dict[str, Message] = {
        CHAT: {"messages": [user("Weather?")], "tools": TOOLS},
        MESSAGES: {"messages": [user("Weather?")]},
        RESPONSES: {"input": "Weather?"},
    }
    results: dict[str, Message] = {
        CHAT: {"messages": [result("c1")], "tools": TOOLS},
        MESSAGES: {"messages": [user([{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}])]},  # type: ignore[arg-type]
        RESPONSES: {"input": [{"type": "function_call_output", "call_id": "c1", "output": "sunny"}]},
    }
    for begun, going_on in itertools.permutations(answers, 2):
        session = new_session()
        set_script(world, lambda asked, path=begun: answers[path])  # type: ignore[misc]
        await post(world, begun, asks[begun], session)
        set_script(world, lambda asked, path=going_on: answers[path])  # type: ignore[misc]
        await post(world, going_on, results[going_on], session)
        request_part = json.dumps(world.journey.upstream.asked[-1])
        assert "I must look." not in request_part, (begun, going_on)
        assert "_reasoning" not in request_part


# --- thoughts in the text of an answer --------------------------------------------------------------------------------

SECRET = "zebras dislike umbrellas"
THOUGHTS = {
    "think": f"<think>\n{SECRET}\n</think>\n\n",
    "no opening": f"Okay, {SECRET}.\n</think>\n\n",
    "thinking": f"<thinking>{SECRET}</thinking>",
    "brackets": f"[THINK]{SECRET}[/THINK]",
    "reasoning": f"\n<reasoning>{SECRET}</reasoning>\n",
    "special tokens": f"<|begin_of_thought|>{SECRET}<|end_of_thought|>\n",
    "capitals": f"<Think>{SECRET}</Think> ",
    "two blocks": f"<think>{SECRET}</think>\n<think>again: {SECRET}</think>\n",
}


async def read_stored_words(world: World, session: str | None) -> str:
    """All that is kept of a session where it can be found, or is learned from."""
    rows = await read_messages(world.admin, session_id=UUID(str(session)))
    return str([(row["content"], row["content_parts"], row["metadata"]) for row in rows])


@cases("name", sorted(THOUGHTS))
@pytest.mark.parametrize("stream", [False, True])
async def test_a_thought_in_the_text_is_not_remembered_and_both_forms_are_recognised(
    world: World, name: str, stream: bool
) -> None:
    raw = f"{THOUGHTS[name]}Fine, thanks."
    pieces = [raw[at : at + 3] for at in range(0, len(raw), 3)]
    made = stream_deltas(*({"content": piece} for piece in pieces)) if stream else completion(raw)
    for path in (CHAT, MESSAGES, RESPONSES):
        if path == MESSAGES:
            body = (streamed if stream else whole)([text(raw)])
            made = Reply(headers=EVENT_STREAM if stream else made.headers, chunks=[body])
        elif path == RESPONSES:
            response = response_of({}, [said(raw)], "resp_1")
            chunks = events_of(response) if stream else [json.dumps(response).encode()]
            made = Reply(headers=made.headers, chunks=chunks)
        set_script(world, lambda asked, made=made: made)  # type: ignore[misc]
        name_of = "input" if path == RESPONSES else "messages"
        headers = {"x-mneme-user": f"{path}-{name}"}
        first = await post(world, path, {name_of: [user("How are you?")], "stream": stream}, headers)
        assert first.body == b"".join(piece for piece in made.chunks if isinstance(piece, bytes))
        rows = await world.history(first.session)
        assert rows[-1][3] == "Fine, thanks.", path
        assert SECRET not in await read_stored_words(world, first.session)
        for n, text_sent in enumerate((raw, "Fine, thanks.")):
            transcript = [user("How are you?"), assistant(text_sent), user(f"More {n}")]
            answer = await post(world, path, {name_of: transcript, "stream": stream}, headers)
            request_part = world.journey.upstream.asked[-1][name_of]
            assert request_part[: len(transcript)] == transcript, "the client's own bytes stay"
        # Both were taken for the same answer: what follows it branches off there, and the beginning is stored once.
        assert [row[3] for row in await world.history(first.session)][:2] == ["How are you?", "Fine, thanks."]
        who = ids.user_id(ids.LOCAL_TENANT, headers["x-mneme-user"])
        beginnings = await read_messages(world.admin, user_id=who, content="How are you?")
        assert len(beginnings) == 1, path
        assert answer.status == 200


CUT_THOUGHTS = {
    "stop": lambda: completion(f"<think>{SECRET}"),
    "length": lambda: completion_cut(f"<think>\n{SECRET} and so"),
    "broken": lambda: stream_deltas({"content": f"<think>{SECRET}"}, end=[UpstreamBroke("gone")]),
    "tool call": lambda: completion(f"<think>{SECRET}", tool_calls=[CALL]),
}


def completion_cut(said_so_far: str) -> Reply:
    choice = {"index": 0, "message": assistant(said_so_far), "finish_reason": "length"}
    return Reply(chunks=[json.dumps({"model": "m", "choices": [choice]}).encode()])


@cases("name", sorted(CUT_THOUGHTS))
async def test_an_answer_that_was_cut_in_its_thinking_says_nothing(world: World, name: str) -> None:
    made = CUT_THOUGHTS[name]()
    set_script(world, lambda asked: made)
    stream = made.headers == EVENT_STREAM
    if stream:
        made = Reply(headers=EVENT_STREAM, chunks=[made.chunks[0], made.chunks[-1]])
    first = await world.journey.ask([user("How are you?")], stream=stream)
    assert [row[3] for row in await world.history(first.session)] == ["How are you?", ""]
    assert SECRET not in await read_stored_words(world, first.session)


LITERAL = [
    "Use the `<think>` tag to hide a thought.",
    "```xml\n<think>secret</think>\n```\nThat is how.",
    "Open it with <think> and close it with </think>.\nThat is all.",
    "The closing tag is `</think>`.\nNothing else.",
    "Close it with </think>.",
    "<think> is a tag that was never closed here.",
    "First.\n\n<think>late</think>\n\nLast.",
    "In HTML you write <b>bold</b> and <i>italic</i>.",
]


@cases("literal", LITERAL)
async def test_an_answer_about_the_tag_keeps_its_text(world: World, literal: str) -> None:
    set_script(world, lambda asked: completion(literal))
    first = await world.ask([user("Which tag?")])
    assert (await world.history(first.session))[-1][3] == literal
    assert (await world.ask([user("Which tag?"), assistant(literal), user("Thanks.")])).session == first.session


async def test_thoughts_of_an_unknown_transcript_are_treated_alike(world: World) -> None:
    set_script(world, lambda asked: completion("Bye."))
    transcript = [
        user("Hello"), assistant(f"{THOUGHTS['think']}Hi."),
        user([text("Again")]), assistant([text(f"{THOUGHTS['think']}Hi again.")]),  # type: ignore[arg-type]
        user("A user may write <think>what they like</think>"),
    ]  # fmt: skip
    answer = await world.ask(transcript)
    assert last_messages(world) == transcript
    assert SECRET not in await read_stored_words(world, answer.session)
    assert [row[3] for row in await world.history(answer.session)] == [
        "Hello", "Hi.", "Again", "Hi again.", "A user may write <think>what they like</think>", "Bye.",
    ]  # fmt: skip


async def test_a_thought_in_the_text_goes_back_only_while_its_tool_loop_is_open(world: World) -> None:
    session = new_session()
    raw = f"{THOUGHTS['think']}Let me look."
    set_script(world, lambda asked: completion(raw, tool_calls=[CALL]))
    await world.ask([user("Weather?")], headers=session, tools=TOOLS)
    set_script(world, lambda asked: completion("Sunny."))
    await world.ask([result("c1")], headers=session, tools=TOOLS)
    assert last_messages(world)[1]["content"] == raw
    await world.ask([user("Thanks.")], headers=session)
    assert last_messages(world)[1] == {**assistant("Let me look."), "tool_calls": [CALL]}
    # A new session of the same user is told nothing of it.
    await world.ask([user("What do zebras dislike about umbrellas?")])
    assert SECRET not in json.dumps(last_messages(world))
