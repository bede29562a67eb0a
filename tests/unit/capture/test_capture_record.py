from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.capture.facts import AnsweredChoice, CallFacts, CompileFacts, Exchange, NewTurnMessage, Outcome, Usage
from app.capture.record import GIVEN, Recorder, _json
from app.context.assemble import Block
from app.context.transcript import LONG_TEXT
from app.memory.text import content_hash
from app.providers.embeddings import NoEmbedder
from app.providers.tokens import CountCache
from app.store.records import TurnRecord
from tests.support.tables import each_of
from tests.support.wired_api import HashEmbedder, WordCounter

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=2)
TENANT, USER, SESSION, CALL = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)


class Shelf:
    """Keeps what it is given."""

    def __init__(self, space: int | None = 5) -> None:
        self.turns: list[TurnRecord] = []
        self.space = space
        self.asked = 0

    async def record(self, turn: TurnRecord) -> bool:
        self.turns.append(turn)
        return len(self.turns) == 1

    async def space_of(self, name: str) -> int | None:
        self.asked += 1
        return self.space


def facts(**given: Any) -> CallFacts:
    plain: dict[str, Any] = {
        "call_id": CALL, "tenant_id": TENANT, "user_id": USER, "created_at": NOW, "method": "POST", "path": "/v1/x",
        "upstream": "up", "outcome": Outcome.COMPLETE, "memory_status": "ok", "model": "m",
        "usage": Usage(10, 5, 1), "latency_ms": 7,
    }  # fmt: skip
    return CallFacts(**plain | given)


def user(text: Any, **more: Any) -> NewTurnMessage:
    return NewTurnMessage({"role": "user", "content": text, **more}, b"u")


def answer(text: str | None, reason: str | None = "stop", whole: bool = True, **more: Any) -> AnsweredChoice:
    return AnsweredChoice({"role": "assistant", "content": text, **more}, b"a", reason, whole)


def exchange(**given: Any) -> Exchange:
    plain: dict[str, Any] = {
        "session_id": SESSION, "user": "ana", "said": [user("hello there")], "answers": [answer("general kenobi")],
        "question_chain": b"Q", "answer_chains": [b"A", b"B", b"C"], "tails": (b"1", b"2"), "ended_at": LATER,
        "expires_at": LATER + timedelta(days=1), "model": "m",
    }  # fmt: skip
    return Exchange(**plain | given)


async def recorded(
    call: CallFacts, turn: Exchange | None, compiled: CompileFacts | None = None, shelf: Shelf | None = None
) -> TurnRecord:
    shelf = shelf or Shelf()
    recorder = Recorder(shelf, HashEmbedder(), CountCache(), WordCounter())  # type: ignore[arg-type]  # all it needs of a store
    assert await recorder.record(call, turn, compiled)
    return shelf.turns[0]


# --- a turn -------------------------------------------------------------------------------------------------------------


async def test_a_question_and_its_answer() -> None:
    turn = await recorded(facts(), exchange(parent_message_id=UUID(int=9), visible_from=3))
    asked, answered = turn.messages
    assert (asked.role, asked.content, asked.parent_message_id, asked.turn_index) == (
        1,
        "hello there",
        UUID(int=9),
        None,
    )
    assert (answered.role, answered.parent_message_id, answered.turn_index) == (2, asked.message_id, None)
    assert (asked.token_count, asked.content_hash, asked.message_hash) == (2, content_hash("hello there"), b"u")
    assert (asked.created_at, answered.created_at) == (NOW, LATER)
    assert asked.message_id.int >> 80 == int(NOW.timestamp() * 1000)
    assert (answered.finish_reason, answered.prompt_tokens, answered.completion_tokens) == (0, 10, 5)
    assert (answered.model_id, answered.latency_ms) == ("m", 7)
    assert [(h.chain_hash, h.message_id, h.asked, h.visible_from) for h in turn.heads] == [
        (b"Q", asked.message_id, True, 3),
        (b"A", answered.message_id, False, 3),
    ]
    session = turn.session
    assert session is not None
    assert (session.head_message_id, session.head_chain, session.tail1, session.tail2) == (
        answered.message_id, b"A", b"1", b"2",
    )  # fmt: skip


async def test_several_answers_stand_beside_the_first() -> None:
    turn = await recorded(facts(), exchange(answers=[answer("a"), answer("b"), answer("c")]))
    answers = turn.messages[1:]
    assert [each.turn_index for each in answers] == [None, 0, 0]
    assert {each.parent_message_id for each in answers} == {turn.messages[0].message_id}
    assert [each.prompt_tokens for each in answers] == [10, None, None]
    assert [each.chain_hash for each in turn.heads] == [b"Q", b"A", b"B", b"C"]
    assert turn.session is not None
    assert turn.session.head_message_id == answers[0].message_id


async def test_a_question_without_an_answer_leaves_the_end_where_it_was() -> None:
    turn = await recorded(facts(outcome=Outcome.GONE), exchange(answers=[], tails=(None, None)))
    session = turn.session
    assert session is not None
    assert (session.head_message_id, session.head_chain, session.tail1) == (None, None, None)
    assert [each.asked for each in turn.heads] == [True]


@each_of(
    ("given", "finish"),
    [
        (answer("x", "length"), 1),
        (answer("x", "tool_calls"), 2),
        (answer("x", "content_filter"), 3),
        (answer("x", "function_call"), 4),
        (answer("x", "brand_new"), 9),
        (answer("x", None), None),
        (answer("x", "stop", whole=False), 8),
    ],
)
async def test_reasons_for_ending(given: AnsweredChoice, finish: int | None) -> None:
    turn = await recorded(facts(), exchange(answers=[given]))
    assert turn.messages[1].finish_reason == finish
    assert turn.messages[1].metadata == (None if given.whole else '{"interrupted":true}')


async def test_shapes_of_messages() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said = [
        user(parts),
        NewTurnMessage({"role": "tool", "content": "r", "tool_call_id": "c", "name": "f"}, b"t"),
        NewTurnMessage({"role": "critic", "content": "meh", "stars": 2, "none": None}, b"c"),
        NewTurnMessage({"role": ["odd"], "content": None, "function_call": {"name": "g", "arguments": "1"}}, b"o"),
        NewTurnMessage({"role": "user", "content": ""}, b"e"),
    ]
    turn = await recorded(facts(), exchange(said=said, answers=[answer(None, "tool_calls", tool_calls=calls)]))
    picture, result, critic, odd, empty, answered = turn.messages
    assert (picture.content, orjson.loads(picture.content_parts or "")) == ("look", parts)
    assert (result.role, result.tool_call_id, result.name) == (3, "c", "f")
    assert critic.role == 9
    assert orjson.loads(critic.metadata or "") == {GIVEN: {"role": "critic", "fields": {"stars": 2}}}
    assert (odd.role, odd.content) == (9, None)
    assert orjson.loads(odd.tool_calls or "") == [{"type": "function", "function": {"name": "g", "arguments": "1"}}]
    assert (empty.content, empty.metadata) == ("", None)
    assert (answered.content, orjson.loads(answered.tool_calls or "")) == (None, calls)
    assert answered.token_count > 0


# --- vectors and jobs -----------------------------------------------------------------------------------------------------


async def test_what_has_words_gets_a_vector_in_the_same_turn() -> None:
    shelf = Shelf()
    recorder = Recorder(shelf, HashEmbedder(), CountCache(), WordCounter())  # type: ignore[arg-type]  # as above
    said = [user("one"), user(""), user("  "), user("two")]
    for _ in range(2):
        await recorder.record(facts(), exchange(said=said), None)
    turn = shelf.turns[0]
    with_words = [each for each in turn.messages if each.message_id in turn.vectors]
    assert [each.content for each in with_words] == ["one", "two", "general kenobi"]
    assert (turn.space, np.asarray(list(turn.vectors.values())).shape) == (5, (3, 8))
    assert shelf.asked == 1


class RemoteEmbedder(HashEmbedder):
    local = False


@each_of(("embedder", "space"), [(NoEmbedder(), 5), (RemoteEmbedder(), 5), (HashEmbedder(), None)])
async def test_no_vectors_where_there_can_be_none(embedder: Any, space: int | None) -> None:
    shelf = Shelf(space)
    await Recorder(shelf, embedder, CountCache(), WordCounter()).record(facts(), exchange(), None)  # type: ignore[arg-type]  # as above
    assert not shelf.turns[0].vectors


async def test_a_turn_leaves_a_job() -> None:
    turn = await recorded(facts(), exchange(session_name="s", confined=True))
    (job,) = turn.jobs
    assert (job.entrypoint, job.dedupe_key) == ("learn", f"learn:{CALL}")
    payload = orjson.loads(job.payload)
    assert payload == {
        "call": str(CALL), "tenant": str(TENANT), "user": str(USER), "session": str(SESSION), "session_name": "s",
        "messages": [str(each.message_id) for each in turn.messages],
        "from": NOW.isoformat(), "to": LATER.isoformat(), "confined": True,
    }  # fmt: skip


async def test_what_is_not_to_be_learned_is_nowhere_to_be_found() -> None:
    turn = await recorded(facts(), exchange(learn=False))
    assert (list(turn.jobs), dict(turn.vectors), dict(turn.terms)) == ([], {}, {})
    assert all(each.hidden for each in turn.messages)


async def test_long_texts_are_counted_beside_the_loop() -> None:
    threads: list[int] = []

    class Watching(WordCounter):
        def count(self, text: str) -> int:
            threads.append(threading.get_ident())
            return 1

    shelf = Shelf()
    recorder = Recorder(shelf, NoEmbedder(), CountCache(), Watching())  # type: ignore[arg-type]  # as above
    await recorder.record(facts(), exchange(answers=[]), None)
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    await recorder.record(facts(), exchange(said=[user("x" * (LONG_TEXT + 1))], answers=[]), None)
    assert threading.get_ident() not in threads


# --- blocks -------------------------------------------------------------------------------------------------------------

BLOCK = Block(b"anchor", b"m", None, "text\0", (UUID(int=8),), 12)


async def test_a_block_is_kept_with_the_message_that_it_stands_in() -> None:
    tool = NewTurnMessage({"role": "tool", "content": "r"}, b"t")
    turn = await recorded(facts(), exchange(said=[user("a"), user("b"), tool], block=BLOCK, epoch=2))
    assert turn.block is not None
    assert turn.block.message_id == turn.messages[1].message_id
    assert (turn.block.epoch, turn.block.chain_hash, turn.block.text) == (2, b"anchor", "text\ufffd")
    assert turn.session is not None
    assert turn.session.block_epoch == 2


async def test_a_block_of_another_answer_stands_in_the_stored_question() -> None:
    turn = await recorded(facts(), exchange(said=[], asked_index=2, parent_message_id=UUID(int=9), block=BLOCK))
    assert turn.block is not None
    assert turn.block.message_id == UUID(int=9)


async def test_a_block_without_a_place_is_not_kept() -> None:
    tool = [NewTurnMessage({"role": "tool", "content": "r"}, b"t")]
    assert (await recorded(facts(), exchange(said=tool, block=BLOCK))).block is None
    assert (await recorded(facts(), exchange(block=replace(BLOCK, anchor=b"")))).block is None


# --- the call -------------------------------------------------------------------------------------------------------------


async def test_a_call_alone() -> None:
    turn = await recorded(facts(body=b"raw", body_size=3, body_truncated=True, session_id=SESSION), None)
    assert (turn.session, list(turn.messages), list(turn.jobs), turn.audit) == (None, [], [], None)
    call = turn.call
    assert (call.request_body, call.request_truncated, call.request_bytes) == (b"raw", True, 3)
    assert (call.request_sha256, call.session_id) == (sha256(b"raw").digest(), SESSION)
    assert (call.outcome, call.metadata) == (0, "{}")
    assert (await recorded(facts(captured=False), None)).call.metadata == '{"captured":false}'


async def test_a_compile_is_kept_as_json() -> None:
    turn = await recorded(facts(), exchange(), CompileFacts({"widened": "a\0b", "sessions": [UUID(int=1)]}, 0.5))
    assert orjson.loads(turn.audit or "") == {"widened": "a\ufffdb", "sessions": [str(UUID(int=1))]}
    assert turn.eta == 0.5


async def test_memories_in_the_prompt_were_of_use() -> None:
    items = {
        "id": [UUID(int=7), UUID(int=8), UUID(int=9)],
        "source": ["memory", "memory", "message"],
        "score": [0.75, 0.5, 0.9],
        "reason": ["chosen", "over_budget", "chosen"],
        "because_of": [None] * 3,
    }
    compiled = CompileFacts({"items": items}, 0.5)
    assert list((await recorded(facts(), exchange(), compiled)).uses) == [(UUID(int=7), 0.75)]
    for turn in (None, exchange(learn=False)):
        assert list((await recorded(facts(), turn, compiled)).uses) == []


async def test_secrets_are_stored_nowhere() -> None:
    headers = ((b"Authorization", b"Bearer canary"), (b"x-plain", b"v"))
    call = (
        await recorded(facts(path="/v1/x?key=canary&a=1", request_headers=headers, response_headers=headers), None)
    ).call
    assert "canary" not in f"{call.path}{call.request_headers}{call.response_headers}"
    assert orjson.loads(call.request_headers)[1] == ["x-plain", "v"]


async def test_what_postgres_refuses_is_replaced() -> None:
    call = facts(path="/v1/\0", model="m\0", answered_model="n\0", error="e\0", idempotency_key="k\0")
    given = exchange(said=[user("a\0b", name="n\0")], system_prompt="S\0", model="m\0")
    turn = await recorded(call, given)
    session, message = turn.session, turn.messages[0]
    assert session is not None
    texts = [turn.call.path, turn.call.model, turn.call.answered_model, turn.call.error, turn.call.idempotency_key]
    texts += [message.content, message.name, session.system_prompt, session.model_id, turn.messages[1].model_id]
    assert all(each is not None and "\0" not in each and "\ufffd" in each for each in texts)
    assert session.system_prompt_hash == sha256("S\ufffd".encode()).digest()


@each_of(("given", "kept"), [(1e300, 3.4028234663852886e38), (-1e300, -3.4028234663852886e38), (0.5, 0.5)])
async def test_parameters_beyond_their_columns(given: float, kept: float) -> None:
    session = (await recorded(facts(), exchange(temperature=given, max_response_tokens=2**40))).session
    assert session is not None
    assert (session.temperature, session.max_response_tokens) == (kept, 2**31 - 1)


# --- texts ----------------------------------------------------------------------------------------------------------------


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [clean(each) for each in value]
    return {clean(k): clean(v) for k, v in value.items()} if isinstance(value, dict) else value


@given(json_values)
def test_json_is_what_it_was_but_for_the_one_character(value: Any) -> None:
    text = _json(value)
    assert orjson.loads(text) == clean(value)
    assert "\\u0000" not in text.replace("\\\\", "")


def test_json_that_is_deeper_than_orjson_writes() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    assert _json(deep).count("[") == 401
    for _ in range(10_000):
        deep = [deep]
    assert _json(deep) == "null"
