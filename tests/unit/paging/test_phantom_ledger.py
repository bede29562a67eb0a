"""What a model asked behind the client's back, in its later requests: in front of the client's answer, and beside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.transcript import Transcript
from app.features.paging.body import HiddenLegs, expanded, insertions, keys_of
from app.features.paging.tools import NeedsLeg, PhantomCall, spoken
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice

Message = dict[str, Any]
QUERY = PhantomCall("c1", "memory_query", '{"question":"q"}')


def said(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def own_call(id_: str) -> Message:
    return {"id": id_, "type": "function", "function": {"name": "get_time", "arguments": "{}"}}


def leg(text: str = "", *calls: PhantomCall, **thoughts: str) -> NeedsLeg:
    return NeedsLeg(calls or (QUERY,), spoken(text, thoughts, calls or (QUERY,)))


def with_exchanges(messages: list[Message], found: Mapping[int, HiddenLegs], **form: Any) -> list[Message]:
    """The request's messages with the exchanges in its own bytes."""
    body = json.dumps({"model": "m", "messages": messages, "x": 1}, **form).encode()
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    made = orjson.loads(splice(body, insertions(body, chat.envelope, chat.messages, found)))
    assert list(made) == ["model", "messages", "x"]
    return list(made["messages"])


ASKED = said("user", "Which code?")
EXCHANGE = HiddenLegs().after(leg("Let me look. "), ["It was 401."])


# --- legs in front ----------------------------------------------------------------------------------------------------


def test_the_legs_go_in_front_and_take_their_text_with_them() -> None:
    """What the model sees is what its last leg saw."""
    messages = [said("system", "s"), ASKED, said("assistant", "Let me look. It is 401."), said("user", "Thanks")]
    assert with_exchanges(messages, {2: EXCHANGE}) == [
        messages[0],
        ASKED,
        {**said("assistant", "Let me look. "), "tool_calls": [QUERY.as_sent()]},
        {"role": "tool", "tool_call_id": "c1", "content": "It was 401."},
        said("assistant", "It is 401."),
        messages[3],
    ]


@pytest.mark.parametrize(
    "content",
    ["It is 401.", [{"type": "text", "text": "Let me look. It is 401."}], None, "let me look. It is 401."],
)
def test_a_text_in_another_form_stays_with_the_client(content: Any) -> None:
    made = with_exchanges([ASKED, said("assistant", content)], {1: EXCHANGE})
    assert [each["content"] for each in made] == ["Which code?", None, "It was 401.", content]


@pytest.mark.parametrize("text", ["größe 🙂 ", 'a "quoted" \\ \n\t', "é/", "\u2028", "x" * 5000])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_however_the_client_escapes(text: str, ascii_only: bool) -> None:
    hidden = HiddenLegs().after(leg(text), ["r"])
    made = with_exchanges([ASKED, said("assistant", text + "ü end")], {1: hidden}, ensure_ascii=ascii_only)
    assert [made[1]["content"], made[3]["content"]] == [text, "ü end"]


def test_several_legs_keep_their_order() -> None:
    second = PhantomCall("c2", "memory_restore", '{"object_id":"o"}')
    hidden = EXCHANGE.after(leg("And there. ", second), ["all of it"])
    made = with_exchanges([ASKED, said("assistant", "Let me look. And there. Done")], {1: hidden})
    assert [(each["role"], each["content"]) for each in made] == [
        ("user", "Which code?"),
        ("assistant", "Let me look. "),
        ("tool", "It was 401."),
        ("assistant", "And there. "),
        ("tool", "all of it"),
        ("assistant", "Done"),
    ]


def test_reasoning_that_the_client_sends_back_is_not_told_twice() -> None:
    hidden = HiddenLegs().after(leg("", reasoning="hm"), ["r"])
    assert with_exchanges([ASKED, said("assistant", "a")], {1: hidden})[1]["reasoning"] == "hm"
    assert "reasoning" not in with_exchanges([ASKED, said("assistant", "a", reasoning="hm ok")], {1: hidden})[1]


# --- calls beside the client's ----------------------------------------------------------------------------------------


def pending(*positions: int) -> HiddenLegs:
    return HiddenLegs(beside=tuple(PhantomCall(f"p{n}", "memory_query", "{}", n) for n in positions))


@pytest.mark.parametrize(
    ("positions", "order"),
    [((0,), ["p0", "a", "b"]), ((1,), ["a", "p1", "b"]), ((2,), ["a", "b", "p2"]), ((0, 1), ["p0", "p1", "a", "b"]),
     ((1, 3), ["a", "p1", "b", "p3"]), ((2, 3), ["a", "b", "p2", "p3"]), ((7, 9), ["a", "b", "p7", "p9"])],
)  # fmt: skip
def test_ours_get_their_places_back_and_are_answered_right_behind(positions: tuple[int, ...], order: list[str]) -> None:
    own = said("assistant", None, tool_calls=[own_call("a"), own_call("b")])
    back = [{"role": "tool", "tool_call_id": each, "content": each} for each in ("a", "b")]
    hidden = pending(*positions)
    assert hidden.pending
    assert with_exchanges([ASKED, own, *back], {1: hidden}) == [ASKED, own, *back], "not before they are answered"
    answered = hidden.answered([f"r{n}" for n in positions])
    assert not answered.pending
    made = with_exchanges([ASKED, own, *back], {1: answered})
    assert [each["id"] for each in made[1]["tool_calls"]] == order
    assert [each["tool_call_id"] for each in made[2:]] == [*(f"p{n}" for n in positions), "a", "b"]
    assert {each["id"] for each in made[1]["tool_calls"]} == {each["tool_call_id"] for each in made[2:]}


def test_behind_the_last_message() -> None:
    own = said("assistant", "", tool_calls=[own_call("a")])
    assert [each["role"] for each in with_exchanges([ASKED, own], {1: pending(0).answered(["r"])})] == [
        "user",
        "assistant",
        "tool",
    ]


def test_results_go_before_the_legs_of_the_next_answer() -> None:
    messages = [ASKED, said("assistant", "", tool_calls=[own_call("a")]), said("assistant", "Let me look. Done")]
    made = with_exchanges(messages, {2: EXCHANGE, 1: pending(0).answered(["r"])})
    assert [each.get("tool_call_id") for each in made] == [None, None, "p0", None, "c1", None]


@pytest.mark.parametrize("calls", [None, [], "x"])
def test_a_message_without_calls_takes_none(calls: Any) -> None:
    messages = [ASKED, said("assistant", "x", tool_calls=calls)]
    assert with_exchanges(messages, {1: pending(0).answered(["r"])}) == messages
    assert expanded(messages[1], pending(0).answered(["r"])) == messages[1:]


# --- finding them -----------------------------------------------------------------------------------------------------


def test_the_key_is_the_chain_hash_of_the_clients_message() -> None:
    answer = said("assistant", "Let me look. It is 401.")
    whole = Transcript.of([said("system", "12:00"), ASKED, answer, said("user", "Thanks")])
    key = Transcript.of([ASKED, answer]).chains[-1]
    assert keys_of(whole) == {key: 2}
    assert keys_of(Transcript.of([ASKED, said("assistant", " Let me look. It is 401.\n")])) == {key: 1}, (
        "trimmed is the same"
    )
    assert key not in keys_of(Transcript.of([ASKED, said("assistant", "It is 401.")]))
    assert key not in keys_of(Transcript.of([said("user", "Why?"), answer])), "the same answer elsewhere has another"


def test_a_row_of_the_ledger() -> None:
    hidden = replace(EXCHANGE, beside=pending(1).beside)
    for each in (HiddenLegs(), EXCHANGE, hidden, hidden.answered(["r"])):
        assert HiddenLegs.of_json(orjson.loads(orjson.dumps(each.as_json()))) == each


# --- both ways, any number of times -----------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "größe 🙂", '"\\\n'])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Message], dict[int, HiddenLegs]]:
    messages: list[Message] = [said("system", "s")] if draw(st.booleans()) else []
    found: dict[int, HiddenLegs] = {}
    for n in range(draw(st.integers(1, 4))):
        messages.append(said("user", f"q{n}"))
        hidden, text = HiddenLegs(), ""
        for k in range(draw(st.integers(0, 2))):
            spoken_text = draw(TEXTS)
            text += spoken_text
            hidden = hidden.after(leg(spoken_text, PhantomCall(f"c{n}{k}", "memory_query", "{}")), [draw(TEXTS)])
        calls = [own_call(f"o{n}{k}") for k in range(draw(st.integers(0, 2)))]
        answer = said("assistant", text + draw(TEXTS))
        if draw(st.booleans()):
            answer["content"] = draw(st.sampled_from([None, "changed", [{"type": "text", "text": "x"}]]))
        if calls:
            answer["tool_calls"] = calls
            positions = draw(st.lists(st.integers(0, 3), unique=True, max_size=2).map(sorted))
            if positions:
                ours = tuple(PhantomCall(f"p{n}{at}", "memory_query", "{}", at) for at in positions)
                hidden = replace(hidden, beside=ours)
                hidden = hidden.answered(["r"] * len(ours)) if draw(st.booleans()) else hidden
        if hidden != HiddenLegs():
            found[len(messages)] = hidden
        messages.append(answer)
        messages += [{"role": "tool", "tool_call_id": each["id"], "content": "t"} for each in calls]
    return messages, found


@given(conversations(), st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False, "separators": (",", ":")}]))
def test_bytes_and_supplied_messages_become_the_same_and_only_once(
    case: tuple[list[Message], dict[int, HiddenLegs]], form: Any
) -> None:
    messages, found = case
    made = with_exchanges(messages, found, **form)
    supplied = [
        each for at, own in enumerate(messages) for each in (expanded(own, found[at]) if at in found else [own])
    ]
    assert made == supplied
    for n, each in enumerate(made):  # every call is answered right behind its message
        ids = [call["id"] for call in each.get("tool_calls") or []]
        assert sorted(ids) == sorted(every["tool_call_id"] for every in made[n + 1 : n + 1 + len(ids)])
    transcript = Transcript.of(messages)
    rows = {key: found[at] for key, at in keys_of(transcript).items() if at in found}
    again = Transcript.of(made)
    assert {at: rows[key] for key, at in keys_of(again).items() if key in rows and changes(rows[key])} == {}


def changes(hidden: HiddenLegs) -> bool:
    """Whether it changes anything: what is pending does not."""
    return bool(hidden.legs) or hidden.told is not None
