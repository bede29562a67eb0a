"""Reasoning is recorded as the upstream sent it, the same from a stream and from a body, in three dialects."""

from __future__ import annotations

import json
from typing import Any

from app.context.reasoning import restore, separate
from app.features.messages import DIALECT as MESSAGES
from app.features.messages import elements_of
from app.features.responses import DIALECT as RESPONSES
from app.features.responses import items_of, messages_of
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.sse import UpstreamAnswer, payloads
from app.gateway.finalize import _message
from tests.support.message_legs import Block, streamed, text, thinking, use, whole
from tests.support.replies import CAPTURES, captured_cases, captured_request
from tests.support.responses import called, events_of, response_of, said, thought
from tests.support.tables import each_of

Message = dict[str, Any]
DETAILS = [
    {"type": "reasoning.text", "text": "Hm.", "index": 0},
    {"type": "reasoning.encrypted", "data": "eA==", "index": 1},
]

FIELDS: list[tuple[Message, Message | None]] = [
    ({"reasoning_content": "Hm."}, {"chat": {"reasoning_content": "Hm."}}),
    ({"reasoning": "Hm."}, {"chat": {"reasoning": "Hm."}}),
    ({"reasoning_content": "Hm.", "reasoning": "So."}, {"chat": {"reasoning_content": "Hm.", "reasoning": "So."}}),
    ({"reasoning_details": DETAILS}, {"chat": {"reasoning_details": DETAILS}}),
    ({"reasoning": {"text": "Hm."}}, {"chat": {"reasoning": {"text": "Hm."}}}),
    ({"reasoning_content": ""}, {"chat": {"reasoning_content": ""}}),
    ({"reasoning_content": None, "reasoning": None}, None),
    ({"content": [{"type": "thinking", "thinking": "Hm."}]}, {"parts": [{"type": "thinking", "thinking": "Hm."}]}),
    ({}, None),
]


def chat_events(*deltas: Message) -> list[bytes]:
    return [json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() for delta in deltas]


@each_of("fields, record", FIELDS)
def test_fields_of_a_chat_answer_are_kept_under_their_names(fields: Message, record: Message | None) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message in ({**fields, "tool_calls": [call]}, {"tool_calls": [call], **fields}):
        body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        answer = CHAT.whole(body)
        assert answer is not None
        for found in (answer, CHAT.fold(chat_events(message)), CHAT.fold(chat_events({"role": "assistant"}, fields))):
            assert found.choices[0].reasoning_record == record


def test_each_choice_has_its_own() -> None:
    choices = [{"index": n, "message": {"content": "a", "reasoning": f"Thought {n}"}} for n in range(2)]
    answer = CHAT.whole(json.dumps({"choices": choices}).encode())
    assert answer is not None
    assert [choice.reasoning_record for choice in answer.choices] == [
        {"chat": {"reasoning": f"Thought {n}"}} for n in range(2)
    ]


REDACTED = {"type": "redacted_thinking", "data": "eA=="}
BLOCKS: list[list[Block]] = [
    [thinking("Hm."), use("f", {}, "a")],
    [thinking("Hm."), REDACTED, text("So."), use("f", {}, "a")],
    [thinking("One."), use("f", {"x": 1}, "a"), thinking("Two."), use("f", {}, "b")],
    [text("So."), thinking("Hm."), use("f", {}, "a")],
    [thinking("Hm."), text("So.")],
]


def choice_message(answer: UpstreamAnswer | None) -> Message:
    assert answer is not None
    return _message(answer.choices[0])


@each_of("blocks", BLOCKS)
def test_blocks_of_an_answer_come_back_as_they_were(blocks: list[Block]) -> None:
    for answer in (MESSAGES.whole(whole(blocks)), MESSAGES.fold(payloads(streamed(blocks)))):
        plain, record = separate(choice_message(answer))
        assert record is not None
        assert elements_of([restore(plain, record, "messages")]) == [{"role": "assistant", "content": blocks}]
        assert "thinking" not in json.dumps(elements_of([plain]))
        assert "thinking" not in json.dumps(items_of([restore(plain, record, "responses")]))
        assert restore(plain, record, "chat") == plain


SECRET = {**thought("Hm."), "encrypted_content": "eA=="}
ITEMS = [
    [SECRET, called("f", "{}", "a")],
    [SECRET, said("So.", 1), called("f", "{}", "a")],
    [SECRET, called("f", "{}", "a"), {**SECRET, "id": "rs_2"}, called("f", "{}", "b")],
    [{**thought(""), "content": [{"type": "reasoning_text", "text": "Hm."}]}, called("f", "{}", "a")],
]


@each_of("items", ITEMS)
def test_items_of_an_answer_come_back_in_their_places(items: list[Message]) -> None:
    response = response_of({}, items, "resp_1")
    body = json.dumps(response).encode()
    # As an answer, as a stream, and as a client sends them back.
    (sent_back,), _ = messages_of(items)
    found = [
        choice_message(RESPONSES.whole(body)),
        choice_message(RESPONSES.fold(payloads(b"".join(events_of(response))))),
    ]
    for message in (*found, sent_back):
        plain, record = separate(message)
        assert record is not None
        made = items_of([restore(plain, record, "responses")])
        assert [item.get("type", "message") for item in made] == [item["type"] for item in items]
        assert [item for item in made if item.get("type") == "reasoning"] == [
            item for item in items if item["type"] == "reasoning"
        ]
        assert [item["id"] for item in made if item.get("type") == "function_call"] == [
            item["id"] for item in items if item["type"] == "function_call"
        ]
        assert not any(item.get("type") == "reasoning" for item in items_of([plain]))


def test_an_item_that_is_an_id_alone_goes_only_to_who_stores_it() -> None:
    (message,), _ = messages_of([thought("Hm."), called("f", "{}", "a")])
    assert [item["type"] for item in items_of([message])] == ["reasoning", "function_call"]
    assert [item["type"] for item in items_of([message], stores=False)] == ["function_call"]


def test_what_a_real_server_sends_without_reasoning_has_none() -> None:
    """vLLM puts `"reasoning": null` into each message."""
    looked_at = 0
    for case in captured_cases():
        path = captured_request(case)[1]
        dialect = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES, "/v1/responses": RESPONSES}.get(path)
        head, _, body = (CAPTURES / f"{case}.response.raw").read_bytes().partition(b"\r\n\r\n")
        if dialect is None or b" 200 " not in head.split(b"\r\n")[0] or b"chunked" in head:
            continue
        answer = dialect.whole(body)
        assert answer is not None, case
        for choice in answer.choices:
            looked_at += 1
            assert choice.reasoning_record is None, case
            assert "_reasoning" not in _message(choice)
    assert looked_at > 10
