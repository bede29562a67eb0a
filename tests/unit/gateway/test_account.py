from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from app.api.auth import Principal
from app.capture.facts import CallFacts, Exchange, Outcome
from app.context.assemble import Block
from app.context.request import Compilation
from app.context.transcript import Transcript, canonical, chain, message_hash
from app.errors import UpstreamTimeout
from app.gateway.call import Forwarded
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.chat import CHAT
from app.gateway.finalize import ERROR_CHARS, Accountant
from app.gateway.identify import Identity, Switches
from app.gateway.prepare import Prepared
from app.gateway.reconcile import Place
from app.gateway.relay import Ending, Inbound, Tape
from app.gateway.upstream import Target, UpstreamResponse
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, message_tokens
from app.store.turns import StoredMessage
from tests.support.journey import TOKENIZERS, Reply, completion, stream

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TENANT, USER, SESSION, PARENT = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)
Message = dict[str, Any]


async def nothing(*_: Any) -> Any:
    raise AssertionError("nobody asks")


def chat_of(messages: Sequence[Message], **fields: Any) -> ChatRequest:
    body = json.dumps({"model": "gpt-4o", "messages": list(messages), **fields}).encode()
    chat = CHAT.read(body, orjson.loads(body))
    assert chat is not None
    return chat


ASKED = [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]


def place(**given: Any) -> Place:
    plain: dict[str, Any] = {
        "session_id": SESSION, "new": True, "how": "new", "server_managed": False, "first_new": 0, "user_id": USER,
    }  # fmt: skip
    return Place(**plain | given)


def call(chat: ChatRequest | None, where: Place | None = None, **given: Any) -> Forwarded:
    plain: dict[str, Any] = {
        "id": UUID(int=9),
        "at": NOW,
        "started_ns": 0,
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query": b"",
        "raw_headers": [(b"authorization", b"Bearer secret")],
        "headers": {},
        "principal": Principal(TENANT, None, None, frozenset(), "open"),
        "switches": Switches(),
        "identity": Identity(TENANT, "ana", USER, False, None, None, None, 0, None),
        "target": Target("up", "http://up/v1", None, None, "tail"),
        "inbound": Inbound(nothing),
        "send": nothing,
        "dialect": None,
        "response": None,
        "chat": chat,
        "body": chat.body if chat else b"raw",
        "sent": chat.body if chat else b"",
        "place": where,
        "status": "ok",
    }
    return Forwarded(**plain | given)


def accountant() -> Accountant:
    return Accountant(ModelRegistry(), TOKENIZERS, CountCache(), timedelta(days=90))


def closed(
    asked: Forwarded,
    reply: Reply | None = None,
    ending: Ending = Ending("complete"),  # noqa: B008 - a constant
) -> tuple[CallFacts, Exchange | None]:
    tape = Tape(0, now_ns=lambda: 5000)
    response = None
    if reply is not None:
        response = UpstreamResponse(reply.status, "", list(reply.headers), nothing, nothing)  # type: ignore[arg-type]  # read already
        if b"event-stream" in reply.headers[0][1]:
            tape.listen_for_events()
        for chunk in reply.chunks:
            assert isinstance(chunk, bytes)
            tape.add(chunk)
        tape.finish()
    return accountant().close(replace(asked, response=response), ending, tape, NOW + timedelta(seconds=1))


def turn(asked: Forwarded, reply: Reply, ending: Ending = Ending("complete")) -> Exchange:  # noqa: B008 - a constant
    _, exchange = closed(asked, reply, ending)
    assert exchange is not None
    return exchange


def hash_of(message: Message) -> bytes:
    form = canonical(message)
    assert form is not None
    return message_hash(form)


# --- the call -----------------------------------------------------------------------------------------------------------


def test_the_facts_of_a_call() -> None:
    facts, _ = closed(call(chat_of(ASKED), place(), query=b"x=1"), completion("a"))
    assert facts.path == "/v1/chat/completions?x=1"
    assert (facts.outcome, facts.status, facts.answered_model) == (Outcome.COMPLETE, 200, "gpt-4o")
    usage = facts.usage
    assert (usage.prompt, usage.completion, usage.cached, usage.counted) == (11, 7, 3, False)
    assert facts.cost_microcents == ModelRegistry().cost_microcents("gpt-4o", 11, 7, 3) > 0
    assert facts.stream is not None
    assert facts.stream.chunk_times == [5]
    assert facts.session_id == SESSION
    assert facts.captured


@pytest.mark.parametrize(
    ("reply", "ending", "outcome"),
    [
        (completion("a"), Ending("complete"), Outcome.COMPLETE),
        (completion("a"), Ending("broken"), Outcome.BROKEN),
        (completion("a"), Ending("gone"), Outcome.GONE),
        (completion("a"), Ending("cancelled"), Outcome.CANCELLED),
        (None, Ending("broken", UpstreamTimeout()), Outcome.FAILED),
        (None, Ending("gone"), Outcome.GONE),
        (None, Ending("cancelled"), Outcome.CANCELLED),
    ],
)
def test_how_it_ended(reply: Reply | None, ending: Ending, outcome: Outcome) -> None:
    facts, exchange = closed(call(chat_of(ASKED), place()), reply, ending)
    assert facts.outcome == outcome
    assert (exchange is None) == (reply is None)
    if ending.error is not None:
        assert facts.error == ending.error.message


LABELLED = [(b"x-mneme-label", b"golden, " + b"x" * 300)]


def test_labels_come_from_the_header_that_is_kept() -> None:
    facts, _ = closed(call(chat_of(ASKED), place(), raw_headers=LABELLED), completion("a"))
    assert facts.labels == ("golden",)
    facts, _ = closed(call(None, raw_headers=LABELLED), Reply(chunks=[b"x"]))
    assert facts.labels == ("golden",)
    off = call(chat_of(ASKED), place(), raw_headers=LABELLED, switches=Switches(capture=False))
    assert closed(off, completion("a"))[0].labels == ()


def test_usage_is_counted_where_the_upstream_tells_none() -> None:
    counter = TOKENIZERS.for_model("gpt-4o")
    chat = chat_of(ASKED, tools=[{"type": "function", "function": {"name": "weather"}}])
    usage = closed(call(chat, place()), stream("Hello ", "there"))[0].usage
    assert usage.counted
    assert usage.completion == counter.count("Hello there")
    messages = sum(message_tokens(each, counter) for each in ASKED)
    assert usage.prompt is not None
    assert usage.prompt > messages + 5, "the tools are in the prompt as well"
    strange = Reply(
        chunks=[json.dumps({"model": "llama", "choices": [{"message": {"content": "word " * 100}}]}).encode()]
    )
    counted = closed(call(chat_of(ASKED), place()), strange)[0].usage.completion
    assert counted == pytest.approx(counter.count("word " * 100), abs=2), "the margin is for budgets"


@pytest.mark.parametrize("usage", [{"prompt_tokens": "3"}, {"prompt_tokens": -1}, {"prompt_tokens": True}, {}])
def test_figures_that_are_none_are_left_out(usage: dict[str, Any]) -> None:
    body = json.dumps({"choices": [], "usage": usage}).encode()
    found = closed(call(chat_of(ASKED), place()), Reply(chunks=[body]))[0].usage
    assert (found.prompt, found.completion) == (None, None)


def test_the_log_line_has_figures_and_no_words() -> None:
    facts, _ = closed(call(chat_of([{"role": "user", "content": "canary"}]), place()), completion("canary"))
    line = facts.figures()
    assert "canary" not in json.dumps(line)
    assert (line["outcome"], line["prompt_tokens"], line["session_id"]) == ("complete", 11, str(SESSION))


# --- recipes ------------------------------------------------------------------------------------------------------------


def sent_of(chat: ChatRequest, messages: Sequence[Message]) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": list(messages)}).encode()


def test_a_request_that_went_as_it_came_has_one_recipe() -> None:
    chat = chat_of(ASKED)
    facts, _ = closed(call(chat, place()), completion("a"))
    assert facts.sent is None
    assert facts.request is not None
    assert facts.request.resume is not None
    assert facts.request.resume.count == 1, "the system message stands apart"


def test_the_next_server_managed_request_builds_on_what_is_supplied_again() -> None:
    past = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "answer"}]
    chat = chat_of(ASKED[1:])
    asked = call(chat, place(server_managed=True), sent=sent_of(chat, [ASKED[0], *past, ASKED[1]]))
    facts, _ = closed(asked, completion("a"))
    assert facts.sent is not None
    assert facts.sent.resume is not None
    assert facts.sent.resume.count == 2, "the client's own comes back in Mneme's writing"


def test_a_note_that_goes_with_each_request_is_not_built_on() -> None:
    messages = [*ASKED, {"role": "assistant", "content": "a"}, {"role": "system", "content": "12:00"}, ASKED[1]]
    chat = chat_of(messages)
    sent = sent_of(chat, [ASKED[0], {"role": "system", "content": "memory"}, *messages[1:]])
    facts, _ = closed(call(chat, place(), sent=sent), completion("a"))
    assert facts.request is not None
    assert facts.sent is not None
    assert [each.resume.count for each in (facts.request, facts.sent) if each.resume] == [2, 2]


# --- the turn -----------------------------------------------------------------------------------------------------------


def test_what_is_new_was_said_and_what_came_was_answered() -> None:
    messages = [*ASKED, {"role": "assistant", "content": "a"}, {"role": "user", "content": "q2"}]
    chat = chat_of(messages, temperature=0.5, max_tokens=9)
    exchange = turn(call(chat, place(first_new=3, parent_message_id=PARENT)), completion("b"))
    assert [each.message for each in exchange.said] == [messages[3]]
    assert [each.message["content"] for each in exchange.answers] == ["b"]
    assert exchange.parent_message_id == PARENT
    whole = Transcript.of(messages).chains[3]
    assert exchange.question_chain == whole
    assert exchange.answer_chains == [chain([hash_of({"role": "assistant", "content": "b"})], whole or b"")[0]]
    assert (exchange.temperature, exchange.top_p, exchange.max_response_tokens) == (0.5, None, 9)
    assert (exchange.system_prompt, exchange.window, exchange.learn) == ("S", 128_000, True)
    assert exchange.expires_at - exchange.ended_at == timedelta(days=90)


def test_the_chain_is_what_the_next_transcript_will_have() -> None:
    """Whatever the SDK makes of the answer when it sends it back."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    for reply, back in (
        (completion("b"), {"role": "assistant", "content": "b", "refusal": None, "annotations": []}),
        (completion(None, refusal="no"), {"role": "assistant", "content": None, "refusal": "no"}),
        (completion(None, tool_calls=calls), {"role": "assistant", "content": "", "tool_calls": calls}),
        (stream("b ", "c"), {"role": "assistant", "content": [{"type": "text", "text": "b c"}]}),
    ):
        exchange = turn(call(chat_of(ASKED), place()), reply)
        assert exchange.answer_chains[0] == Transcript.of([*ASKED, back]).chains[-1]


def test_tails_reach_back_into_what_was_supplied() -> None:
    past = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "answer"}]
    path = tuple(
        StoredMessage(UUID(int=n), None, n, 0, each["role"], each["content"], message_hash=hash_of(each))
        for n, each in enumerate(past, 1)
    )
    server = turn(call(chat_of(ASKED[1:]), place(server_managed=True, path=path)), completion("b"))
    client = turn(call(chat_of([*past, ASKED[1]]), place(first_new=2)), completion("b"))
    assert server.tails == client.tails
    assert None not in server.tails


@pytest.mark.parametrize(
    ("reply", "ending", "whole"),
    [
        (stream("text"), Ending("complete"), True),
        (stream("text", finish=None), Ending("complete"), True),
        (stream("text", finish=None, done=False), Ending("complete"), False),
        (stream("text", finish="abort"), Ending("complete"), False),
        (stream("text", done=False), Ending("complete"), True),
        (stream("text"), Ending("gone"), False),
        (stream("text", end=[b'data: {"error": {"message": "boom"}}\n\n']), Ending("complete"), False),
    ],
)
def test_whether_an_answer_is_whole(reply: Reply, ending: Ending, whole: bool) -> None:
    exchange = turn(call(chat_of(ASKED), place()), reply, ending)
    assert [each.whole for each in exchange.answers] == [whole]


def test_an_answer_of_nothing_is_none() -> None:
    exchange = turn(call(chat_of(ASKED), place()), stream(done=False, finish=None), Ending("broken"))
    assert (exchange.answers, exchange.tails) == ([], (None, None))
    assert len(exchange.said) == 1
    nonsense = turn(call(chat_of(ASKED), place()), Reply(chunks=[b"<html>"]))
    assert nonsense.answers == []


def test_an_error_in_mid_stream_is_noted() -> None:
    boom = b'data: {"error": {"message": "' + b"x" * 2 * ERROR_CHARS + b'"}}\n\n'
    facts, _ = closed(call(chat_of(ASKED), place()), stream("a", end=[boom]))
    assert facts.error is not None
    assert len(facts.error) == ERROR_CHARS


BLOCK = Block(b"a", b"m", None, "text", (), 3)


def test_the_block_of_a_turn_is_kept_where_it_is_emitted_again() -> None:
    compiled = Compilation([], [], 0, BLOCK, 5, 1, 40, 100, 1.0, {})
    asked = call(chat_of(ASKED), place(), prepared=Prepared(b"", compiled))
    assert (turn(asked, completion("a")).block, turn(asked, completion("a")).epoch) == (BLOCK, 5)
    asked = replace(asked, target=replace(asked.target, placement="system"))
    assert turn(asked, completion("a")).block is None
    asked = replace(asked, prepared=None)
    assert turn(asked, completion("a")).epoch is None
