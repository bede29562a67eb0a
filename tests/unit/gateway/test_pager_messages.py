"""Long sessions of /v1/messages within their budget: results are shown shorter within their blocks, nothing else changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.transcript import text_of
from app.features.messages import DIALECT as MESSAGES
from app.features.messages import elements_of
from app.features.paging.body import HiddenLegs, keys_of
from app.features.paging.forms import FORMS
from app.features.paging.prompt import TextChange, changed, pieces
from app.features.paging.tools import PhantomCall
from app.features.paging.values import TAG, Fidelity
from app.gateway.dialects.splice import escape, splice
from app.providers.tokens import prompt_tokens
from tests.support.message_legs import asks, text, thinking, use
from tests.support.paging import COUNTER, Asked, Desk, Message, chat_of
from tests.unit.gateway.test_pager import part
from tests.unit.paging.made import called

FORM = FORMS["messages"]
MARK = {"cache_control": {"type": "ephemeral"}}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
REMINDER = text("<system-reminder>Today is Thursday.</system-reminder>")
TOOLS = [{"name": "Read", "input_schema": {"type": "object"}, **MARK}]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def result(n: int, content: Any, **more: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": f"c{n}", "content": content, **more}


def reads(count: int) -> Iterator[Message]:
    """Pairs of calls and their results, in every form that a client gives these."""
    for n in range(0, count, 2):
        used = [use("Read", {"file_path": f"src/part{i}.py"}, f"c{i}") for i in (n, n + 1)]
        yield {"role": "assistant", "content": [thinking(f"Read {n}."), text("I read."), *used]}
        mark = MARK if n % 6 == 0 else {}
        results = [
            result(n, part(n), **mark),
            result(n + 1, [text(part(n + 1)[:5000]), PIXEL, {**text(part(n + 1)[5000:]), **mark}], is_error=False),
        ]
        yield user([*results, REMINDER] if n % 4 == 0 else results)


def begun(count: int) -> list[Message]:
    return [user([{**text("Repair the money module."), **MARK}]), *reads(count)]


def texts(document: Any) -> Iterator[Message]:
    """Blocks that a text is in, also those of results: what may differ."""
    for element in document["messages"]:
        for block in element["content"] if isinstance(element["content"], list) else []:
            if block["type"] == "tool_result" and isinstance(block["content"], list):
                yield from (each for each in block["content"] if "text" in each)
            elif block["type"] in ("tool_result", "text"):
                yield block


def told(block: Message) -> str:
    return str(block["text"] if block["type"] == "text" else block["content"])


async def ask(desk: Desk, messages: list[Message], **fields: Any) -> Asked:
    return await desk.ask(messages, dialect=MESSAGES, max_tokens=500, **fields)


async def test_a_session_stays_within_its_budget_and_only_its_texts_are_others() -> None:
    desk, before = Desk(budget=24_000, tools=TOOLS), None
    for i in range(2, 31, 2):
        now = await ask(desk, begun(i))
        sent, own = orjson.loads(now.body), orjson.loads(now.chat.body)
        read = MESSAGES.messages(sent)
        assert read is not None
        tools = sum(desk.counts.tools(each, COUNTER) for each in MESSAGES.schemas(sent))
        assert prompt_tokens(read, COUNTER) + tools <= desk.budget
        assert now.paging.record.shown_tokens == pytest.approx(prompt_tokens(read, COUNTER) + tools, abs=8)
        short = [n for n, each in enumerate(texts(sent)) if TAG in told(each)]
        assert bool(short) == any(each.fidelity > Fidelity.FULL for each in now.paging.objects)
        plain = copy.deepcopy(sent)
        for block, original in zip(texts(plain), texts(own), strict=True):
            block |= {name: original[name] for name in ("text", "content") if name in original}
        assert plain["tools"][:1] == own["tools"]
        assert (len(plain["tools"]) == 3) == (now.paging.names is not None)
        plain["tools"] = own["tools"]
        assert plain == own
        if before is not None and not now.paging.record.transitions:
            at = MESSAGES.scan(before.body)
            assert at is not None
            assert now.body.startswith(before.body[: at.messages[-1].end])
        before = now
    assert now.paging.record.tokens > 3 * desk.budget, "it did outgrow it"
    assert now.paging.names is not None
    assert now.paging.names.query == "memory_query"


async def test_what_one_dialect_has_divided_the_other_knows() -> None:
    desk = Desk(budget=8_000)
    messages = [{"role": "user", "content": "Repair it."}]
    for n in range(6):
        messages += called("Read", {"file_path": f"src/part{n}.py"}, part(n), f"c{n}")
    chats = await desk.ask(messages)
    again = await ask(desk, elements_of(messages))
    assert again.paging.record.objects == ()
    assert {each.id for each in again.paging.objects} == {each.id for each in chats.paging.objects}
    assert b"<mneme-object" in again.body


async def test_a_pending_call_is_answered_when_the_client_comes_back() -> None:
    desk = Desk(budget=10**6, tools=TOOLS)
    messages = begun(2)
    chat = chat_of(messages, dialect=MESSAGES)
    (key,) = keys_of(chat.transcript)
    pending = HiddenLegs(beside=(PhantomCall("q", "memory_query", '{"question": "which?"}', position=1),))
    desk.shelf.hidden[key] = pending.as_json()
    now = await ask(desk, messages)
    sent = orjson.loads(now.body)["messages"]
    assert sent[1]["content"] == [*messages[1]["content"][:3], asks("which?", "q"), messages[1]["content"][3]]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "q", "content": "remembered: told q"},
        *messages[2]["content"],
    ]
    assert len(desk.answers.asked) == 1
    assert (await ask(desk, messages)).body == now.body
    assert len(desk.answers.asked) == 1, "it was kept"


BLOCK = st.sampled_from(
    [text("a\nb"), text(""), text('"\\é\U0001f642'), PIXEL, REMINDER, {"type": "text"}, {**text("z"), **MARK}]
)
RESULT = st.one_of(st.none(), st.sampled_from(["", "told", "é\n"]), st.lists(BLOCK, max_size=3)).map(
    lambda given: result(1, given)
)
USER = st.one_of(st.just("plain\n"), st.lists(st.one_of(BLOCK, RESULT), max_size=5)).map(user)
ASSISTANT = st.lists(st.one_of(BLOCK, st.just(thinking("Hm"))), max_size=3).map(
    lambda blocks: {"role": "assistant", "content": [*blocks, asks()]}
)


@given(st.lists(st.one_of(USER, ASSISTANT), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_texts_lie_where_the_transcript_reads_them(elements: list[Message], ascii_only: bool, system: bool) -> None:
    document = {"messages": elements, **({"system": "Be kind."} if system else {})}
    body = json.dumps(document, ensure_ascii=ascii_only, indent=1).encode()
    chat = chat_of([], body=body, dialect=MESSAGES)
    for at in range(int(system), len(chat.messages)):
        whole = text_of(chat.messages[at])
        assert "\n".join(each.text for each in pieces(body, FORM.parts(chat, at))) == whole
        if not whole.strip("\n"):
            continue
        made = changed(body, FORM.parts(chat, at), [TextChange(0, len(whole), escape("NEW"))])
        assert made is not None
        found = FORM.after(chat, at, made)
        sent = chat_of([], body=splice(body, made), dialect=MESSAGES)
        assert [n for n, each in enumerate(sent.messages) if each != chat.messages[n]] == [at]
        assert found == sent.messages[at]
        assert text_of(found).startswith("NEW")
