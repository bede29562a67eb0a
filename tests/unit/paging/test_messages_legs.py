"""One answer of /v1/messages for the client, made of the legs of a turn; and what later requests tell of it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.features.messages import DIALECT as MESSAGES
from app.features.messages import folded
from app.features.paging.body import BLOCKS, HiddenLegs
from app.features.paging.forms import FORMS, MessagesBody, MessagesStream, as_body, at_the_limit, following, refusal
from app.features.paging.tools import MAX_CALLS, MAX_ROUNDS, Names, NeedsLeg, PendingCalls, ToolInsertion, offer
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import splice
from app.gateway.dialects.sse import payloads
from tests.support.message_legs import Block, asks, event, streamed, text, thinking, use, whole
from tests.support.phantoms import asked, captured_body, chunks_of, pended, sent

FORM = FORMS["messages"]
MARK = {"cache_control": {"type": "ephemeral"}}
WEATHER = use("weather", {"city": "Lisbon"}, "toolu_w")
UNHEARD = {"type": "x_unheard_of", "x": [1.0, None]}
REDACTED = {"type": "redacted_thinking", "data": "ZGF0YQ=="}


def joined(*legs: bytes, rng: random.Random | None = None) -> tuple[bytes, list[NeedsLeg], PendingCalls | None]:
    """What a client gets of these streams; they have to be as many as the engine asks for."""
    engine, body, needs, pending = MessagesStream(Names()), b"", list[NeedsLeg](), None
    for at, leg in enumerate(legs):
        if at:
            engine.next_leg()
        pieces = chunks_of(leg, rng) if rng else [leg]
        outs = [out for piece in pieces for out in engine.feed(piece)] + engine.end()
        body += sent(outs)
        pending = pended(outs)
        need = asked(outs)
        assert (need is not None) == (at + 1 < len(legs)), f"leg {at + 1} of {len(legs)}"
        needs += [need] if need else []
    return body, needs, pending


def whole_of(*legs: bytes) -> tuple[bytes, list[NeedsLeg], PendingCalls | None]:
    """The same of bodies."""
    engine, needs = MessagesBody(Names()), list[NeedsLeg]()
    for leg in legs:
        made = engine.feed(leg)
        if not isinstance(made, NeedsLeg):
            assert len(needs) + 1 == len(legs)
            return made.data, needs, made.pending
        needs.append(made)
    raise AssertionError("one more leg is wanted")


def message_of(stream: bytes) -> dict[str, Any]:
    return folded(payloads(stream))[1]


def events_of(stream: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(each) for each in payloads(stream)]


# --- streams ------------------------------------------------------------------------------------------------------------


def test_without_a_call_of_ours_a_stream_is_the_upstreams_own() -> None:
    for leg in (
        captured_body("messages_stream"),
        streamed([thinking("Hm"), text("so"), WEATHER, UNHEARD]).replace(b"event: content_block_stop\n", b": hi\r\nid: 1\n"),
        event("message_start", message={"id": "m"}) + event("ping") + event("error", error={"type": "overloaded_error"}),
        streamed([text("so")]).replace(b'"index":0', b'"index":  7'),
        b'data: {"type": "message_start"}\n\ndata: [1]\n\ndata: {torn\n\ndata: [DONE]\n\n',
    ):  # fmt: skip
        assert joined(leg)[0] == leg


def test_two_legs_are_one_message() -> None:
    first = (
        event(
            "message_start", message={"id": "msg_1", "content": [], "usage": {"input_tokens": 10, "output_tokens": 1}}
        )
        + event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
        + event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "I must "})
        + event("ping")
        + event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "look."})
        + event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2ln+/=="})
        + event("content_block_stop", index=0)
    )
    call = (
        event(
            "content_block_start",
            index=1,
            content_block={"type": "tool_use", "id": "q", "name": "memory_query", "input": {}},
        )
        + event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": '{"question": '})
        + event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": '"which?"}'})
        + event("content_block_stop", index=1)
    )
    end = (
        event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 9})
        + event("message_stop")
    )  # fmt: skip
    begin = {
        "id": "msg_2",
        "content": [],
        "usage": {"input_tokens": 30, "cache_read_input_tokens": 8, "output_tokens": 1},
    }
    second = (
        event("message_start", message=begin)
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + event("ping")
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "4711"})
        + event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 5})
        + event("message_stop")
    )
    body, (need,), pending = joined(first + call + end, second)
    start, rest = second.split(b"event: content_block_start", 1)
    assert start.startswith(b"event: message_start")
    rest = rest.replace(b'"index": 0', b'"index": 1').replace(
        b'"usage": {"output_tokens": 5}',
        b'"usage": {"input_tokens":40,"cache_read_input_tokens":8,"output_tokens":14}',
    )
    assert body == first + b"event: content_block_start" + rest
    assert pending is None
    assert need.message[BLOCKS] == [thinking("I must look."), asks("which?", "q")]
    assert (need.calls[0].name, need.calls[0].arguments) == ("memory_query", '{"question": "which?"}')


LEGS = st.lists(
    st.sampled_from(
        [text("Let me see."), text("Grüße \U0001f642"), text(""), thinking("Hm\n"), REDACTED, UNHEARD, asks("a", "a")]
    ),
    max_size=4,
).map(lambda blocks: [*blocks, asks("last", "z")])
LAST = st.lists(st.sampled_from([text("It is 4711."), thinking("So"), UNHEARD, WEATHER]), max_size=3)


@given(st.lists(LEGS, max_size=3), LAST, st.randoms(use_true_random=False))
def test_streams_and_bodies_of_the_same_legs_say_the_same_however_they_are_cut(
    before: list[list[Block]], last: list[Block], rng: random.Random
) -> None:
    legs = [*before, last]
    stream, needs, _ = joined(*(streamed(each, id_=f"m{n}") for n, each in enumerate(legs)), rng=rng)
    body, same, _ = whole_of(*(whole(each, id_=f"m{n}") for n, each in enumerate(legs)))
    assert [each.message for each in needs] == [each.message for each in same]
    assert message_of(stream) == orjson.loads(body)
    said = orjson.loads(body)
    assert said["content"] == [each for leg in legs for each in leg if each.get("name") != "memory_query"]
    assert said["usage"] == {
        "input_tokens": 10 * len(legs),
        "cache_read_input_tokens": 4 * len(legs),
        "output_tokens": 3 * len(legs),
    }
    assert said["id"] == "m0"
    kinds = [each["type"] for each in events_of(stream)]
    assert (kinds.count("message_start"), kinds.count("message_delta"), kinds.count("message_stop")) == (1, 1, 1)
    starts = [each["index"] for each in events_of(stream) if each["type"] == "content_block_start"]
    assert starts == list(range(len(said["content"])))


def test_beside_the_clients_calls_ours_are_pending() -> None:
    blocks = [thinking("Both."), asks("a", "a"), WEATHER, asks("b", "b")]
    stream, _, pending = joined(streamed(blocks))
    body, _, same = whole_of(whole(blocks))
    assert pending == same
    assert pending is not None
    assert [(each.id, each.position) for each in pending.calls] == [("a", 0), ("b", 2)]
    assert message_of(stream) == orjson.loads(body) == {**orjson.loads(whole(blocks)), "content": [blocks[0], WEATHER]}
    assert [each["index"] for each in events_of(stream) if "index" in each] == [0, 0, 0, 0, 1, 1, 1]


def test_what_breaks_off_or_stops_otherwise_leads_to_no_other_leg() -> None:
    for stop in ("max_tokens", "refusal", "pause_turn", "stop_sequence"):
        stream, _, _ = joined(streamed([text("Oi"), asks()], stop=stop))
        body, _, _ = whole_of(whole([text("Oi"), asks()], stop=stop))
        assert message_of(stream) == orjson.loads(body)
        assert (orjson.loads(body)["stop_reason"], orjson.loads(body)["content"]) == (stop, [text("Oi")])
    leg = streamed([text("Oi"), asks()])
    cut = leg.index(b"event: message_delta")
    assert joined(leg[:cut])[0] == leg[: leg.index(b"event: content_block_start", leg.index(b"content_block_stop"))]
    overloaded = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    assert joined(leg[:cut] + overloaded)[0].endswith(overloaded)
    behind = leg[: leg.index(b"event: message_stop")]
    assert message_of(joined(behind, streamed([text("so")]))[0])["content"] == [text("Oi"), text("so")]


def test_after_the_limit_the_model_has_to_answer() -> None:
    rounds = MAX_ROUNDS + 2
    stream, needs, _ = joined(*[streamed([asks()])] * rounds)
    body, same, _ = whole_of(*[whole([asks()])] * rounds)
    for found in (needs, same):
        assert [each.last for each in found] == [False] * MAX_ROUNDS + [True]
    assert message_of(stream) == orjson.loads(body)
    assert (orjson.loads(body)["stop_reason"], orjson.loads(body)["content"]) == ("end_turn", [])


def test_calls_beyond_the_limit_of_one_leg_are_dropped() -> None:
    many = [asks(str(n), f"q{n}") for n in range(MAX_CALLS + 2)]
    for _, (need,), _ in (joined(streamed(many), streamed([text("so")])), whole_of(whole(many), whole([text("so")]))):
        assert (
            [each.id for each in need.calls]
            == [each["id"] for each in need.message[BLOCKS]]
            == [f"q{n}" for n in range(MAX_CALLS)]
        )


@pytest.mark.parametrize("arguments", ["", "{}", '{"question": ', "[1]", '"x"'])
def test_arguments_that_are_no_object_go_back_as_an_empty_one(arguments: str) -> None:
    leg = (
        event("content_block_start", index=0, content_block={"type": "tool_use", "id": "", "name": "memory_query", "input": {}})
        + event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": arguments})
        + event("message_delta", delta={"stop_reason": "tool_use"}, usage={})
        + event("message_stop")
    )  # fmt: skip
    _, (need,), _ = joined(leg, streamed([text("so")]))
    (block,) = need.message[BLOCKS]
    assert (block["input"], block["id"]) == ({}, need.calls[0].id)
    assert need.calls[0].arguments == arguments


def test_arguments_that_come_with_the_beginning_of_a_call() -> None:
    start = {"type": "tool_use", "id": "q", "name": "memory_query", "input": {"question": "which?"}}
    leg = event("content_block_start", index=0, content_block=start) + event("message_stop")
    _, (need,), _ = joined(leg, streamed([text("so")]))
    assert need.message[BLOCKS] == [asks("which?", "q")]


def test_citations_go_back_with_their_text() -> None:
    cited = {"type": "char_location", "cited_text": "x"}
    block = {"type": "text", "text": ""}
    leg = (
        event("content_block_start", index=0, content_block={**block, "citations": []})
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "It is x."})
        + event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": cited})
        + streamed([text("unused"), asks()]).split(b"content_block_stop", 1)[1].split(b"\n\n", 1)[1]
    )
    _, (need,), _ = joined(leg, streamed([text("so")]))
    assert need.message[BLOCKS][0] == {"type": "text", "text": "It is x.", "citations": [cited]}


def test_what_is_no_message_is_passed_on() -> None:
    for body in (b"[]", b"{", b'{"content": "text"}', b'{"content": [7]}', b'{"error": {}, "content": []}'):
        assert whole_of(body)[0] == body
    body = whole([text("Gr\u00fc\u00dfe"), WEATHER]).replace(b'"model": "m"', b'"model":"m" , "x": 1.0')
    assert whole_of(body)[0] == body


def test_errors_are_written_as_the_api_writes_them() -> None:
    anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}
    assert refusal(529, json.dumps(anthropic).encode()) == {"type": "error", "error": anthropic["error"]}
    assert refusal(429, b"slow down")["error"] == {"type": "rate_limit_error", "message": "slow down"}
    engine = MessagesStream(Names())
    out = sent(engine.failed(refusal(503, b"")))
    assert (
        out == b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":'
        b'"The upstream answered 503."}}\n\n'
    )
    assert (
        as_body(streamed([text("hi")]) + event("error", error={"type": "api_error"}))
        == b'{"type":"error","error":{"type":"api_error"}}'
    )
    assert as_body(streamed([text("hi")])[:300]) is None


# --- requests -----------------------------------------------------------------------------------------------------------


def chat_of(body: bytes) -> ChatRequest:
    chat = MESSAGES.read(body, orjson.loads(body))
    assert chat is not None
    return chat


def request(messages: Sequence[Any], **more: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": list(messages), **more}).encode()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def result(id_: str, content: Any, **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


OWN = {"name": "weather", "input_schema": {"type": "object"}, **MARK}


def test_the_tools_stand_behind_the_clients_own() -> None:
    for given_tools in (None, [], [OWN]):
        body = request([user("hi")], **({} if given_tools is None else {"tools": given_tools}))
        made = offer(chat_of(body))
        assert isinstance(made, ToolInsertion)
        tools = orjson.loads(splice(body, made.insertions))["tools"]
        assert tools[: len(given_tools or [])] == (given_tools or [])
        assert [each["name"] for each in tools[-2:]] == [*Names()]
        assert tools[-1]["input_schema"]["required"] == ["object_id"]
        assert tools[-2:] == made.tools
    named = offer(chat_of(request([user("hi")], tools=[{"type": "memory_20250818", "name": "memory_query"}])))
    assert isinstance(named, ToolInsertion)
    assert named.names.query == "mneme_memory_query"


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, None),
        ({"type": "any"}, None),
        ({"type": "none"}, "tool-choice-none"),
        ({"type": "tool", "name": "weather"}, "tool-choice-forced"),
        ({"type": ["x"]}, "tool-choice-forced"),
        ("auto", None),
    ],
)
def test_a_choice_of_tools_is_respected(choice: Any, reason: str | None) -> None:
    made = offer(chat_of(request([user("hi")], tools=[OWN], tool_choice=choice)))
    assert (None if isinstance(made, ToolInsertion) else made) == reason
    made = offer(chat_of(request([user("hi")], tool_choice=choice)))
    assert not isinstance(made, ToolInsertion)


def test_at_the_limit_our_tools_go_unless_there_are_no_others() -> None:
    for tools, names in (([OWN], ["weather"]), ([], [*Names()])):
        body = request([user("hi")], tools=tools)
        made = offer(chat_of(body))
        assert isinstance(made, ToolInsertion)
        left = orjson.loads(at_the_limit(splice(body, made.insertions), made.names))
        assert [each["name"] for each in left["tools"]] == names


def conversation(legs: Sequence[Sequence[Block]]) -> tuple[bytes, dict[str, Any], HiddenLegs, list[Block]]:
    """A request and its answer of several legs: what the last leg saw, and what the client has."""
    body = request([user([{"type": "text", "text": "How many?", **MARK}])])
    hidden = HiddenLegs()
    engine = MessagesBody(Names())
    sees = body
    for leg in legs:
        made = engine.feed(whole(leg))
        if not isinstance(made, NeedsLeg):
            return body, orjson.loads(sees), hidden, orjson.loads(made.data)["content"]
        texts = [f"told {each.id}" for each in made.calls]
        sees = following(sees, made, texts)
        hidden = hidden.after(made, texts)
    raise AssertionError("the last leg asks for another")


def later(body: bytes, content: Any, hidden: HiddenLegs, *more: Any) -> dict[str, Any]:
    """The next request, with the exchange in it."""
    document = orjson.loads(body)
    document["messages"] += [{"content": content, "role": "assistant"}, *(more or (user("And now?"),))]
    sent_by_client = json.dumps(document, indent=1).encode()
    made: dict[str, Any] = orjson.loads(splice(sent_by_client, FORM.exchanges(chat_of(sent_by_client), {1: hidden})))
    return made


LAST_LEG = [thinking("Now I know."), text("It is 4711.")]


@given(st.lists(LEGS, min_size=1, max_size=3), st.booleans())
def test_a_later_prompt_is_the_one_that_the_last_leg_saw(before: list[list[Block]], nulls: bool) -> None:
    body, saw, hidden, content = conversation([*before, LAST_LEG])
    assert json.loads(json.dumps(hidden.as_json())) == hidden.as_json(), "it is kept as JSON"
    if nulls:  # as SDKs send blocks back
        content = [{**each, "citations": None} if each["type"] == "text" else each for each in content]
        content = [each for each in content if each.get("text") != ""]
    marked = [*content[:-1], {**content[-1], **MARK}]
    prompt = later(body, marked, hidden)
    own = [{**each, "citations": None} if nulls and each["type"] == "text" else each for each in LAST_LEG]
    expected = [*saw["messages"], {"role": "assistant", "content": [*own[:-1], {**own[-1], **MARK}]}, user("And now?")]
    for one in (prompt["messages"], expected):
        for message in one:
            for block in message["content"] if isinstance(message["content"], list) else []:
                block.pop("citations", None)
    assert prompt["messages"] == expected


@pytest.mark.parametrize(
    "content",
    [
        "Let me see.It is 4711.",
        [text("Let me see.\nIt is 4711.")],
        [text("Let me see."), text("It is 4711.")],  # without its thinking
        [text("It is 4711.")],
    ],
)
def test_a_message_that_the_client_has_otherwise_stays_as_it_has_it(content: Any) -> None:
    body, _, hidden, _ = conversation(
        [[thinking("Hm"), text("Let me see."), asks("which?", "q")], [text("It is 4711.")]]
    )
    prompt = later(body, content, hidden)
    assert prompt["messages"][1:4] == [
        {"role": "assistant", "content": [thinking("Hm"), asks("which?", "q")]},
        user([result("q", "told q")]),
        {"content": content, "role": "assistant"},
    ]


def test_thinking_that_the_client_has_is_not_told_twice() -> None:
    body, _, hidden, _ = conversation(
        [[thinking("Hm"), text("Let me see."), asks("which?", "q")], [text("It is 4711.")]]
    )
    prompt = later(body, [thinking("Hm"), text("Let me see. It is 4711.")], hidden)
    assert prompt["messages"][1] == {"role": "assistant", "content": [asks("which?", "q")]}


def test_an_answer_whose_last_leg_said_nothing_has_its_legs_in_front() -> None:
    body, _, hidden, content = conversation([[text("Seen."), asks("which?", "q")], []])
    prompt = later(body, content, hidden)
    assert [each["role"] for each in prompt["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert prompt["messages"][3]["content"] == [text("Seen.")]


def test_calls_beside_the_clients_own_stand_where_they_stood() -> None:
    blocks = [thinking("Both."), asks("a", "a"), WEATHER, asks("b", "b")]
    body, _, hidden, content = conversation([[text("Let me see."), asks("which?", "q")], blocks])
    _, _, pending = whole_of(whole(blocks))
    assert pending is not None
    hidden = replace(hidden, beside=pending.calls)
    back = user([result("toolu_w", "sunny", **MARK), text("Go on.")])
    waiting = later(body, content, hidden, back)
    assert waiting["messages"][3:] == [{"content": [thinking("Both."), WEATHER], "role": "assistant"}, back]
    prompt = later(body, content, hidden.answered(["told a", "told b"]), back)
    assert prompt["messages"][1:] == [
        {"role": "assistant", "content": [text("Let me see."), asks("which?", "q")]},
        user([result("q", "told q")]),
        {"content": blocks, "role": "assistant"},
        user([result("a", "told a"), result("b", "told b"), *back["content"]]),
    ]
    without = later(body, content, hidden.answered(["told a", "told b"]), user("Never mind."))
    assert without["messages"][3:] == [{"content": content[1:], "role": "assistant"}, user("Never mind.")]


def test_a_leg_of_a_chat_goes_on_here() -> None:
    call = {"id": "q", "type": "function", "function": {"name": "memory_query", "arguments": '{"question": "which?"}'}}
    asked_then = {"role": "assistant", "content": "Hm. ", "reasoning": "x", "tool_calls": [call]}
    legs = (asked_then, {"role": "tool", "tool_call_id": "q", "content": "told"})
    prompt = later(request([user("hi")]), [text("Hm. Yes.")], HiddenLegs(legs))
    assert prompt["messages"][1:3] == [
        {"role": "assistant", "content": [asks("which?", "q")]},
        user([result("q", "told")]),
    ]
