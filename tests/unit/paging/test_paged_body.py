"""Ranges of a message's text in the client's own bytes, however it writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.transcript import text_of
from app.features.paging.forms import FORMS
from app.features.paging.prompt import KEPT, TextChange, changed, pieces
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import Insertion, escape, splice

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    'a"\\\n\u00e9\U0001f600\u4e2d/', max_size=40
)
PART = TEXT.map(lambda text: {"type": "text", "text": text}) | st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "text"},
        {"type": "thinking", "text": "t"},
        {"text": "bare"},
    ]
)
CONTENT = TEXT | st.lists(PART | TEXT, max_size=4)


def written(draw: st.DrawFn, value: Any) -> bytes:
    """JSON of a value, with characters escaped or not, and white space or none."""
    data = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])),
    )
    if draw(st.booleans()):
        data = data.replace("/", "\\/")
    if draw(st.booleans()) and "\\u" not in data:
        data = data.replace("a", "\\u0061")
    return data.encode()


def body_of(message: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"first"},' + message + b"]}"


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A request, and ranges of its second message's text that do not overlap."""
    content = draw(CONTENT)
    message: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": content}
    if draw(st.booleans()):
        message = {"content": content, "role": "user", "more": {"content": "not this"}}
    length = len(text_of(message))
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=6, unique=True)))
    return body_of(written(draw, message)), list(zip(cuts[::2], cuts[1::2], strict=False))


def texts_of(content: list[Any]) -> Iterator[str]:
    for part in content:
        if isinstance(part, str):
            yield part
        elif part.get("type", "text") == "text" and "text" in part:
            yield part["text"]


def changed_texts(texts: list[str], ranges: list[tuple[int, int]], put: str) -> list[str]:
    """The same, letter by letter."""
    made, at = [], 0
    begun: set[int] = set()
    for text in texts:
        kept = ""
        here: set[int] = set()
        for i, letter in enumerate(text, at):
            inside = next((n for n, (start, stop) in enumerate(ranges) if start <= i < stop), None)
            if inside is None:
                kept += letter
            elif inside not in here:
                kept += KEPT if inside in begun else put
                here.add(inside)
        begun |= here
        made.append(kept)
        at += len(text) + 1
    return made


FORM = FORMS["chat"]


def chat_of(body: bytes) -> ChatRequest:
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    return chat


def changing(body: bytes, *changes: TextChange) -> list[Insertion] | None:
    return changed(body, FORM.parts(chat_of(body), 1), changes)


@given(cases())
def test_a_text_is_read_as_the_transcript_reads_it(case: tuple[bytes, list[tuple[int, int]]]) -> None:
    body, _ = case
    message = orjson.loads(body)["messages"][1]
    found = pieces(body, FORM.parts(chat_of(body), 1))
    assert "\n".join(each.text for each in found) == text_of(message)
    for each in found:
        assert orjson.loads(b'"' + body[each.inside.start : each.inside.end] + b'"') == each.text


@given(cases(), st.text('x\n"é', max_size=5))
def test_a_change_is_one_of_the_text_and_of_nothing_else(case: tuple[bytes, list[tuple[int, int]]], put: str) -> None:
    body, ranges = case
    document = orjson.loads(body)
    message = document["messages"][1]
    made = changing(body, *(TextChange(start, stop, escape(put)) for start, stop in ranges))
    text = text_of(message)
    if made is None:
        assert any(not text[start:stop].strip("\n") for start, stop in ranges), (
            "a range of line feeds between parts alone"
        )
        return
    sent = orjson.loads(splice(body, made))
    assert FORM.after(chat_of(body), 1, made) == sent["messages"][1]
    texts = [message["content"]] if isinstance(message["content"], str) else list(texts_of(message["content"]))
    expected = changed_texts(texts, ranges, put)
    got = sent["messages"][1]["content"]
    assert ([got] if isinstance(got, str) else list(texts_of(got))) == expected
    if not isinstance(got, str):
        assert [each for each in got if not list(texts_of([each]))] == [
            each for each in message["content"] if not list(texts_of([each]))
        ]
    del document["messages"][1], sent["messages"][1]
    assert sent == document


def test_of_a_range_over_several_parts_the_first_gets_the_text() -> None:
    message = {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look:"},
            {"type": "text", "text": "a long\npaste"},
            {"type": "image_url", "image_url": {"url": "u"}},
            {"type": "text", "text": "of two parts", "cache_control": {"type": "ephemeral"}},
            "and a third",
        ],
    }
    body = body_of(json.dumps(message).encode())
    text = text_of(message)
    made = changing(body, TextChange(6, len(text) - 6, b"shown"))
    assert made is not None
    content = orjson.loads(splice(body, made))["messages"][1]["content"]
    assert content == [
        {"type": "text", "text": "Look:"},
        {"type": "text", "text": "shown"},
        {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "text", "text": KEPT, "cache_control": {"type": "ephemeral"}},
        KEPT + " third",
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "refusal": "I may not say a word about this."},
        {"role": "user", "content": {"type": "text", "text": "no list"}},
        {"role": "user"},
        {"role": "user", "content": 7},
    ],
)
def test_what_lies_elsewhere_is_left_alone(message: dict[str, Any]) -> None:
    body = body_of(json.dumps(message).encode())
    assert changing(body, TextChange(0, 3, b"x")) is None


def test_of_members_that_come_twice_the_last_counts_as_it_does_for_parsers() -> None:
    body = body_of(b'{"role":"user","content":"one","content":[{"type":"text","text":"two","text":"thr\\u0065e"}]}')
    made = changing(body, TextChange(3, 5, b"x"))
    assert made is not None
    sent = splice(body, made)
    assert b'"content":"one"' in sent
    assert orjson.loads(sent)["messages"][1]["content"][0]["text"] == "thrx"
