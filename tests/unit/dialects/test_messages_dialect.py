"""The dialect of /v1/messages: requests as messages and back, text in the client's own bytes, answers, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.context.transcript import Transcript
from app.errors import BadRequest, NotFound, StoreUnavailable, TooLarge
from app.features.messages import DIALECT as MESSAGES
from app.features.messages import LAST, elements_of, messages_of
from app.gateway.dialects.base import leading
from app.gateway.dialects.chat import CHAT
from app.gateway.dialects.splice import splice
from app.gateway.dialects.sse import LastEventGuard, payloads
from tests.support.replies import CAPTURES
from tests.support.tables import each_of

TEXT = {"type": "text", "text": "Which?"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
USE = {"type": "tool_use", "id": "t1", "name": "find", "input": {"b": 1, "a": [2.0]}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
CALL = {"id": "t1", "type": "function", "function": {"name": "find", "arguments": '{"b":1,"a":[2.0]}'}}
PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def asked(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "claude", "max_tokens": 9, "messages": list(messages), **more}).encode()


def read(body: bytes) -> Any:
    chat = MESSAGES.read(body, json.loads(body))
    assert chat is not None
    return chat


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


FORMS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"role": "user", "content": "hi"}, [{"role": "user", "content": "hi"}]),
    (user(TEXT, IMAGE), [{"role": "user", "content": [TEXT, PART]}]),
    (assistant(TEXT, USE), [{"role": "assistant", "content": [TEXT], "tool_calls": [CALL]}]),
    (user(RESULT), [{"role": "tool", "tool_call_id": "t1", "content": "42"}]),
    (
        user(RESULT, {**RESULT, "tool_use_id": "t2", "is_error": True, "content": [TEXT]}),
        [
            {"role": "tool", "tool_call_id": "t1", "content": "42"},
            {"role": "tool", "tool_call_id": "t2", "content": [TEXT], "is_error": True},
        ],
    ),
]


@each_of(("element", "messages"), FORMS)
def test_an_element_is_messages_and_they_are_the_element(element: Any, messages: Any) -> None:
    assert messages_of(element) == messages
    assert elements_of(messages) == [element]


def test_results_come_before_what_the_user_says_with_them() -> None:
    made = messages_of(user(RESULT, TEXT))
    assert [each["role"] for each in made] == ["tool", "user"]


def test_what_nobody_knows_goes_on_as_it_is() -> None:
    block = {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}
    assert messages_of(user(block)) == [user(block)]
    assert messages_of({"role": "user", "content": 7}) == [{"role": "user", "content": 7}]
    for body in (b'{"messages": []}', b'{"messages": "hi"}', b'{"messages": [1]}', b"{}"):
        assert MESSAGES.read(body, json.loads(body)) is None
        assert not MESSAGES.messages(json.loads(body))


def test_files_that_are_not_the_same_are_not_taken_for_each_other() -> None:
    files = [{"type": "image", "source": {"type": "file", "file_id": f"file_{n}"}} for n in "ab"]
    one, other = (read(asked(user(each, TEXT))) for each in files)
    assert one.transcript.chains != other.transcript.chains
    assert elements_of(one.messages) == [user(files[0], TEXT)]


def test_odd_input_is_read_and_goes_on() -> None:
    deep: Any = {}
    for _ in range(2000):
        deep = {"a": deep}
    assert messages_of(assistant({**USE, "input": deep}))[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    chat = read(asked({"role": ["user"], "content": "hi"}, {"role": "user", "content": None}))
    assert (leading(chat.messages), chat.system_prompt(), len(chat.messages)) == (0, None, 2)
    assert not leading(read(asked(user(TEXT), system=7)).messages)


def test_what_is_supplied_again_is_as_the_api_wants_it() -> None:
    assert elements_of([{"role": "assistant", "content": None}, {"role": "user", "content": "hi"}]) == [
        {"role": "user", "content": "hi"}
    ]
    cut = {**CALL, "function": {"name": "find", "arguments": '"{\\"a\\": 1"'}}
    assert elements_of([{"role": "assistant", "content": None, "tool_calls": [cut]}]) == [
        assistant({**USE, "input": {}})
    ]


def test_a_conversation_is_the_same_in_both_dialects() -> None:
    body = asked(
        user(TEXT),
        assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT, USE),
        user(RESULT),
        system="Be brief.",
    )
    called = {**CALL, "function": {"name": "find", "arguments": '{"a": [2], "b": 1}'}}
    chat = json.dumps({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which?"},
            {"role": "assistant", "content": "Which?", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "t1", "content": "42"},
        ]
    }).encode()  # fmt: skip
    other = CHAT.read(chat, json.loads(chat))
    assert other is not None
    assert read(body).transcript == other.transcript


def test_what_stands_around_the_messages() -> None:
    chat = read(
        asked(
            user(TEXT),
            system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
            tools=[{"name": "f"}],
        )
    )
    assert (chat.model, chat.answer_limit, chat.stream, chat.has_tools) == ("claude", 9, False, True)
    assert (chat.system_prompt(), chat.schemas, leading(chat.messages)) == ("Be\n\nbrief.", [[{"name": "f"}]], 1)
    assert chat.places == [(0, 0), (0, 1)]


# --- in the client's own bytes ------------------------------------------------------------------------------------------


MARKED = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
NOTE = {"type": "text", "text": "note"}


@each_of(
    ("content", "before", "after"),
    [
        ("hi", "notehi", "hinote"),
        ([MARKED, TEXT], [NOTE, MARKED, TEXT], [MARKED, TEXT, NOTE]),
        ([], [NOTE], [NOTE]),
        ([RESULT, TEXT], [RESULT, NOTE, TEXT], [RESULT, TEXT, NOTE]),
        ([RESULT], [RESULT, NOTE], [RESULT, NOTE]),
    ],
)
def test_text_beside_what_a_user_says(content: Any, before: Any, after: Any) -> None:
    body = asked({"role": "user", "content": content})
    chat = read(body)
    last = len(chat.messages) - 1
    canvas = chat.dialect.canvas(chat)
    for made, wanted in ((canvas.prepend(last, "note"), before), (canvas.append(last, "note"), after)):
        assert json.loads(splice(body, made))["messages"] == [{"role": "user", "content": wanted}]
        assert len(made) == 1
        assert made[0].drop == 0, "no byte of the client's is another"


@each_of(
    ("system", "wanted"),
    [
        (None, "note"),
        ("", "note"),
        ("Be brief.", "Be brief.\n\nnote"),
        ([MARKED], [MARKED, NOTE]),
        ([], [NOTE]),
    ],
)
def test_a_system_message_goes_into_the_system_prompt(system: Any, wanted: Any) -> None:
    body = asked(user(TEXT), **({} if system is None else {"system": system}))
    chat = read(body)
    made = chat.dialect.canvas(chat).insert(leading(chat.messages), [{"role": "system", "content": "note"}])
    assert json.loads(splice(body, made)) == {**json.loads(body), "system": wanted}


def test_history_goes_before_what_is_new() -> None:
    body = asked(user(TEXT), system="Be brief.")
    chat = read(body)
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    earlier += [
        {"role": "tool", "tool_call_id": "t1", "content": "42"},
        {"role": "tool", "tool_call_id": "t2", "content": "43"},
    ]
    made = chat.dialect.canvas(chat).insert(leading(chat.messages), earlier)
    assert json.loads(splice(body, made))["messages"] == [
        {"role": "user", "content": "a"},
        assistant(USE),
        user(RESULT, {**RESULT, "tool_use_id": "t2", "content": "43"}),
        user(TEXT),
    ]


# --- answers ------------------------------------------------------------------------------------------------------------


def body_of(case: str) -> bytes:
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return body
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


def test_a_stream_of_a_real_server_is_put_together() -> None:
    answer = MESSAGES.fold(payloads(body_of("messages_stream")))
    whole = MESSAGES.whole(body_of("messages"))
    assert whole is not None
    for each in (answer, whole):
        (choice,) = each.choices
        assert choice.content
        assert (choice.finish_reason, each.model, each.done, each.malformed) == ("length", "tiny", True, 0)
        assert each.usage is not None
        assert (each.usage["prompt_tokens"], each.usage["completion_tokens"]) == (13, 6)


def events(*given: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in given]


def delta(index: int, **given: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": given}


def begun(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


USAGE = {"input_tokens": 5, "cache_read_input_tokens": 7}
STREAM = events(
    {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": USAGE}},
    begun(0, type="thinking", thinking=""), delta(0, type="thinking_delta", thinking="hm"),
    delta(0, type="signature_delta", signature="s"),
    {"type": "ping"},
    begun(1, type="text", text=""), delta(1, type="text_delta", text="Wh"), delta(1, type="text_delta", text="ich?"),
    begun(2, type="tool_use", id="t1", name="find", input={}),
    delta(2, type="input_json_delta", partial_json='{"b": 1,'), delta(2, type="input_json_delta", partial_json=' "a": [2.0]}'),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)  # fmt: skip


def test_an_answer_is_recognised_when_its_client_sends_it_back() -> None:
    (choice,) = MESSAGES.fold(STREAM).choices
    answered = {"role": "assistant", "content": choice.content, "tool_calls": choice.tool_calls}
    back = messages_of(assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT, USE))
    assert Transcript.of([answered]).hashes == Transcript.of(back).hashes
    assert (choice.reasoning, choice.finish_reason) == ("hm", "tool_calls")
    assert MESSAGES.fold(STREAM).usage == {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 7},
    }


def test_a_stream_that_broke_off_is_what_came() -> None:
    answer = MESSAGES.fold(STREAM[:-3])
    (choice,) = answer.choices
    assert (choice.content, choice.finish_reason, answer.done) == ("Which?", None, False)
    assert json.loads(choice.tool_calls[0]["function"]["arguments"]) == '{"b": 1,'
    assert (
        MESSAGES.fold(events({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})).error[
            "message"
        ]
        == "busy"
    )
    assert MESSAGES.fold([b"{", b"1"]).malformed == 2
    odd = {"type": "message_start", "message": {"usage": [1]}}
    usage = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 3, "input_tokens": None},
    }
    assert MESSAGES.fold(events(odd, usage)).usage == {
        "prompt_tokens": 0, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": None},
    }  # fmt: skip
    assert (MESSAGES.fold([*STREAM[:1], *events(usage)]).usage or {})["prompt_tokens"] == 12
    assert MESSAGES.whole(b"[]") is MESSAGES.whole(b"{") is None
    failed = MESSAGES.whole(b'{"type": "error", "error": {"type": "x"}}')
    assert failed is not None
    assert (failed.choices, failed.error) == ([], {"type": "x"})


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("named", [True, False])
def test_its_last_event_waits(size: int, named: bool) -> None:
    body = body_of("messages_stream")
    if not named:
        body = b"".join(line + b"\n" for line in body.split(b"\n")[:-1] if not line.startswith(b"event:"))
    guard = LastEventGuard(LAST)
    sent = b"".join(guard.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert guard.ended
    assert b"message_delta" in sent
    assert b"message_stop" not in sent
    assert sent + guard.rest() == body


@each_of(
    ("error", "kind"),
    [
        (BadRequest("no"), "invalid_request_error"),
        (NotFound("no"), "not_found_error"),
        (TooLarge("no"), "request_too_large"),
        (StoreUnavailable("no"), "overloaded_error"),
    ],
)
def test_errors_have_the_apis_shape(error: Any, kind: str) -> None:
    assert MESSAGES.refusal(error) == {"type": "error", "error": {"type": kind, "message": "no"}}


REMINDER = {"type": "text", "text": "<system-reminder>\nToday is Friday. I live in Rome.\n</system-reminder>\n"}


def test_what_a_program_reminds_of_is_not_what_its_user_says() -> None:
    """Neither searched for nor learned from; its tokens count, and its bytes stay."""
    said = {"type": "text", "text": "Where do I live?", "cache_control": {"type": "ephemeral"}}
    body = asked(user(REMINDER, said))
    chat = read(body)
    assert chat.messages == [user({"type": "text", "text": "Where do I live?"})]
    assert chat.schemas == [[REMINDER]]
    made = json.loads(splice(body, chat.dialect.canvas(chat).prepend(0, "Note.")))
    assert made["messages"] == [user({"type": "text", "text": "Note."}, REMINDER, said)]


@each_of(
    "content", [[REMINDER], [{"type": "text", "text": "<system-reminder> is a word that I read."}], REMINDER["text"]]
)
def test_what_may_be_the_users_own_stays(content: Any) -> None:
    (message,) = messages_of({"role": "user", "content": content})
    assert message["content"] == content
