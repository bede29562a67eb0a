"""From messages as clients write them to messages as they are stored; and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.api.intake import (
    EMBED_SLICE,
    FUTURE,
    IntakeCheck,
    IntakeMessage,
    IntakePreparer,
    MessageIn,
    check_time,
    plain_text,
)
from app.context.transcript import Transcript
from app.errors import BadBody, BadRequest, Unavailable
from app.memory.secrets import unwelcome
from app.memory.text import content_hash
from app.store import ids
from tests.support.clock import FakeClock
from tests.support.tables import each_of
from tests.support.wired_api import HashEmbedder, WordCounter

NOW = datetime(2026, 11, 20, tzinfo=UTC)
CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}]


class RemoteEmbedder(HashEmbedder):
    """One that needs a network, and may be away."""

    local = False
    away = False
    asked = 0

    async def embed(self, texts: Any) -> Any:
        self.asked += 1
        if self.away:
            raise Unavailable
        return await super().embed(texts)


def preparer(embedder: HashEmbedder) -> IntakePreparer:
    return IntakePreparer(embedder, WordCounter(), FakeClock(NOW))


def said(**fields: Any) -> IntakeMessage:
    return IntakeMessage(ids.uuid7(NOW), NOW, MessageIn.model_validate({"role": "user", "content": "x"} | fields))


async def test_what_is_stored_of_a_message() -> None:
    parts = [{"type": "text", "text": "two words"}, {"type": "image_url", "image_url": {"url": "u"}}]
    message = said(content=parts, name="Ana", metadata={"n": 1}, refusal=None)
    (stored,) = await preparer(HashEmbedder()).messages([message])
    assert stored.message_id == message.message_id
    assert stored.content == "two words"
    assert stored.content_parts == parts
    assert stored.token_count == 2
    assert stored.content_hash == content_hash("two words")
    assert (stored.name, stored.metadata, stored.created_at) == ("Ana", {"n": 1}, NOW)
    assert stored.vector is not None


async def test_a_message_has_the_hash_that_transcripts_are_compared_by() -> None:
    raw: list[dict[str, Any]] = [
        {"role": "user", "content": " hi "},
        {"role": "assistant", "content": None, "tool_calls": CALLS, "annotations": []},
        {"role": "tool", "content": "7", "tool_call_id": "c"},
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    stored = await preparer(HashEmbedder()).messages([said(**each) for each in raw])
    assert tuple(each.message_hash for each in stored) == Transcript.of(raw).hashes


async def test_what_gets_a_vector() -> None:
    messages = [
        said(),
        said(role="system"),
        said(role="developer"),
        said(content=None),
        said(content="  "),
        said(role="tool"),
    ]
    stored = await preparer(HashEmbedder()).messages(messages)
    assert [each.vector is not None for each in stored] == [True, False, False, False, False, True]


async def test_a_remote_embedder_is_asked_for_memories_only() -> None:
    embedder = RemoteEmbedder()
    (stored,) = await preparer(embedder).messages([said()])
    assert stored.vector is None
    assert embedder.asked == 0
    found = await preparer(embedder).vectors(["x", ""])
    assert [each is not None for each in found] == [True, False]
    embedder.away = True
    with pytest.raises(Unavailable):
        await preparer(embedder).vectors(["x"])


async def test_many_texts_keep_their_order() -> None:
    texts = [f"text {i}" for i in range(2 * EMBED_SLICE + 3)]
    together = await preparer(HashEmbedder()).vectors(texts)
    alone = [(await preparer(HashEmbedder()).vectors([text]))[0] for text in texts]
    assert [list(each) for each in together if each is not None] == [list(each) for each in alone if each is not None]
    assert await preparer(HashEmbedder()).counts(texts) == [2] * len(texts)


def test_a_time_is_between_1970_and_tomorrow() -> None:
    for at in (datetime(1970, 1, 1, tzinfo=UTC), NOW, NOW + FUTURE):
        check_time(at, NOW)
    for at in (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), NOW + FUTURE + timedelta(seconds=1)):
        with pytest.raises(BadRequest) as refused:
            check_time(at, NOW)
        assert refused.value.param == "created_at"


def test_no_content_has_no_text() -> None:
    assert plain_text(MessageIn(role="assistant", content=None)) is None
    assert plain_text(MessageIn(role="user", content="")) == ""


@each_of(
    ("key", "value", "seen"),
    [
        ("lives_in", "Lisbon", ["lives in: Lisbon"]),
        ("pets", ["Bolt", {"cat_name": "Tom"}], ["pets: Bolt", "cat name: Tom"]),
        ("answers", {"yes": True, "none": None, "many": 3}, ["many: 3"]),
    ],
)
def test_every_value_is_judged_with_its_key(key: str, value: Any, seen: list[str]) -> None:
    judged: list[str] = []

    def notes(text: str) -> bool:
        judged.append(text)
        return False

    IntakeCheck(notes).check_fact(key, value)
    assert judged == seen


def test_what_was_found_is_not_told() -> None:
    with pytest.raises(BadBody) as refused:
        IntakeCheck(lambda text: "Falcon" in text).check_memory("Works on Falcon", None)
    assert "Falcon" not in str(refused.value)


def test_secrets_are_welcome_where_the_settings_say_so() -> None:
    secret = "The password is hunter2"
    assert unwelcome(False, ())(secret)
    assert not unwelcome(True, ())(secret)
    assert unwelcome(True, (), ["hunter"])(secret)


async def test_thoughts_of_an_assistant_are_kept_apart_from_its_words() -> None:
    thought = "<think>\nzebras\n</think>\n\n"
    raw: list[dict[str, Any]] = [
        {"role": "assistant", "content": f"{thought}Hello there"},
        {"role": "assistant", "content": [{"type": "text", "text": f"{thought}Hello there"}]},
        {"role": "assistant", "content": "I see zebras.\n</think>\nHello there"},
        {"role": "user", "content": f"{thought}Hello there"},
    ]
    stored = await preparer(HashEmbedder()).messages([said(**message) for message in raw])
    assert [message.content for message in stored] == ["Hello there"] * 3 + [f"{thought}Hello there"]
    assert stored[1].content_parts == [{"type": "text", "text": "Hello there"}]
    assert [message.reasoning for message in stored[:2]] == [{"text": thought}] * 2
    assert stored[3].reasoning is None
    assert [message.token_count for message in stored[:3]] == [2] * 3
    assert len({message.message_hash for message in stored[:3]}) == 1
    assert stored[0].message_hash == Transcript.of([{"role": "assistant", "content": "Hello there"}]).hashes[0]
