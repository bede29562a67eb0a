"""A prompt as received and as sent, and what Mneme put between."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.features.ui import call_prompt
from app.features.ui.call_prompt import Shown, compare
from tests.support.tables import each_of

BLOCK = (
    "<mneme-memory 5f0c>\nNotes.\n- [fact] Ana plays chess. (2026-05-03)\nuser: I live in Lisbon.\n</mneme-memory 5f0c>"
)


def said(role: str, content: Any, **further: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **further}


def marks(message: Shown) -> list[tuple[str, str]]:
    return [(each.mark, each.text) for each in message.pieces]


def test_a_block_before_the_question_is_what_was_added() -> None:
    made = compare([said("user", "Who am I?")], [said("user", f"{BLOCK}\n\nWho am I?")])
    (message,) = made.messages
    assert marks(message) == [("added", f"{BLOCK}\n\n"), ("own", "Who am I?")]
    assert message.mark == "own"
    assert message.touched
    assert made.added == len(BLOCK) + 2


def test_lines_of_the_block_lead_to_what_they_quote() -> None:
    items = [
        {"id": "m1", "chosen": True, "reason": "chosen", "text": "Ana plays chess."},
        {"id": "m2", "chosen": False, "reason": "visible", "text": "I live in\nLisbon."},
        {"id": "m3", "chosen": False, "reason": "over_budget", "text": "Notes."},
    ]
    made = compare([said("user", "?")], [said("user", f"{BLOCK}\n\n?")], call_prompt.quotable(items))
    lines = {line.text: line.item for line in made.messages[0].pieces[0].lines}
    assert lines["- [fact] Ana plays chess. (2026-05-03)"] == "m1"
    assert lines["user: I live in Lisbon."] == "m2"
    assert lines["Notes."] is None


def test_history_that_mneme_supplied_stands_before_the_clients_words() -> None:
    history = [said("user", "Hi"), said("assistant", "Hello")]
    made = compare(
        [said("system", "Be kind."), said("user", "Hi")], [said("system", "Be kind."), *history, said("user", "Hi")]
    )
    assert [each.mark for each in made.messages] == ["own", "added", "added", "own"]


def test_a_result_shown_shorter_is_removed_and_added() -> None:
    was = [said("tool", "step 1\nstep 2\n" * 90), said("user", "Did it work?")]
    now = [said("tool", "<mneme-object 1 L3>make build</mneme-object>"), said("user", "Did it work?")]
    made = compare(was, now)
    assert [mark for mark, _ in marks(made.messages[0])] == ["removed", "added"]
    assert not made.messages[1].touched


def test_line_by_line_only_the_lines_that_differ_are_marked() -> None:
    made = compare([said("user", "one\ntwo\nthree\nfour")], [said("user", "one\n2\nthree\nIV\nfour")])
    assert marks(made.messages[0]) == [
        ("own", "one\n"), ("removed", "two\n"), ("added", "2\n"), ("own", "three\n"), ("added", "IV\n"), ("own", "four"),
    ]  # fmt: skip


words = st.text(st.sampled_from("ab\n "), max_size=40)
roles = st.sampled_from(["user", "assistant", "system", "tool"])
messages = st.lists(st.builds(said, roles, words), max_size=6)


@given(messages, messages)
def test_nothing_is_lost_and_nothing_made_up(was: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    made = compare(was, now).messages
    sent = ["".join(text for mark, text in marks(each) if mark != "removed") for each in made if each.mark != "removed"]
    assert sent == [each["content"] for each in now]
    received = [
        "".join(text for mark, text in marks(each) if mark != "added")
        for each in made
        if each.mark in ("own", "removed")
    ]
    assert received == [each["content"] for each in was]


def test_of_a_long_conversation_the_telling_messages_are_shown() -> None:
    was = [said("user", f"message {n}") for n in range(1000)]
    now = [dict(each) for each in was]
    now[500] = said("user", f"{BLOCK}\n\nmessage 500")
    made = compare(was, now)
    assert len(made.messages) == call_prompt.SHOWN_MESSAGES
    assert made.omitted + len(made.messages) == made.total == 1000
    assert [each.place for each in made.messages if each.touched] == [501]
    assert made.messages[-1].place == 1000


def test_long_texts_are_cut_and_say_how_much_is_left() -> None:
    (message,) = compare([said("user", "x" * 10**6)], [said("user", "x" * 10**6)]).messages
    (piece,) = message.pieces
    assert len(piece.text) == call_prompt.SHOWN_CHARS
    assert piece.rest == 10**6 - call_prompt.SHOWN_CHARS
    assert piece.folded


@each_of(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\n\nb"),
        ([{"type": "image_url", "image_url": {"url": "data:…"}}], None),
        ({"odd": 1}, None),
        (["odd"], None),
    ],
)
def test_contents_of_any_shape_have_a_text(content: object, text: str | None) -> None:
    found = call_prompt.text_of(content)
    assert found == text if text is not None else found


def test_a_body_nested_deeper_than_python_compares_is_not_read() -> None:
    for depth, read in ((200, True), (900, False)):
        body = b'{"messages": [], "stop": ' + b"[" * depth + b"]" * depth + b"}"
        assert (call_prompt.read(body) is not None) is read


@each_of("body", [b"", b"\xff\x00", b"[1]", b'{"messages": 3}', b'{"messages": [3, null]}', b'{"input": [1]}'])
def test_bodies_of_anything_have_no_messages(body: bytes) -> None:
    document = call_prompt.read(body)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings"):
        assert call_prompt.messages_of(document, path) == [] or document is not None


def test_messages_are_read_by_the_path() -> None:
    chat = call_prompt.read(json.dumps({"messages": [said("user", "Hi")]}).encode())
    responses = call_prompt.read(json.dumps({"input": "Hi"}).encode())
    assert call_prompt.last_said(call_prompt.messages_of(chat, "/v1/chat/completions?x=1")) == "Hi"
    assert call_prompt.last_said(call_prompt.messages_of(responses, "/v1/responses")) == "Hi"
    assert call_prompt.messages_of(chat, "/v1/embeddings") == []


def test_other_fields_that_differ_are_named() -> None:
    found = call_prompt.other_fields(
        {"model": "a", "n": 1, "messages": []}, {"model": "b", "n": 1, "tools": [], "messages": [1]}
    )
    assert found == [("model", '"a"', '"b"'), ("tools", "–", "[]")]
    assert call_prompt.other_fields(None, {}) == []
