"""The relay with values in place of sockets. (Through real ones: tests/integration/gateway/test_relay_sockets.py.)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from app.errors import StoreUnavailable, UpstreamError
from app.gateway.dialects.sse import EventParser
from app.gateway.headers import Headers
from app.gateway.relay import DisconnectEvent, Ending, Tape, collect, peek, relay
from app.gateway.upstream import UpstreamBroke, UpstreamResponse
from tests.support.properties import examples
from tests.support.sockets import eventually
from tests.support.tables import each_of

EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
JSON = (b"content-type", b"application/json")


class Answer:
    """An upstream's answer made of chunks; a chunk may also be an error to raise, or something to call."""

    def __init__(self, chunks: Sequence[bytes | BaseException | Callable[[], Any]], headers: Headers) -> None:
        self.closed = 0
        self._chunks = chunks
        bodyless = (b"content-length", b"0") in headers
        self.response = UpstreamResponse(200, "OK", headers, self._iterate(), self._close, bodyless)

    async def _iterate(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, bytes):
                yield chunk
            elif isinstance(chunk, BaseException):
                raise chunk
            else:
                await chunk()

    async def _close(self) -> None:
        self.closed += 1


class Client:
    """Collects what it is sent."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.messages: list[Any] = []
        self.fails = fails

    async def __call__(self, message: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def ended(self) -> bool:
        return len(self.messages) > 1 and not self.messages[-1]["more_body"]


def tape() -> Tape:
    times = iter(range(0, 10**9, 1000))
    return Tape(0, now_ns=lambda: next(times))


async def stored(_: Ending) -> bool:
    return True


async def relayed(answer: Answer, client: Client, **given: Any) -> Ending:
    arguments = {"head": [], "gone": DisconnectEvent(), "tape": tape(), "seal": stored, **given}
    return await relay(answer.response, client, **arguments)


async def forever() -> None:
    await asyncio.Event().wait()


# --- the end waits ----------------------------------------------------------------------------------------------------

PIECES = st.lists(
    st.sampled_from(
        [b"data: {}\n\n", b"data: [DONE]\n\n", b"d", b"ata: [DO", b"NE]", b"\n", b"\r\n", b": x\n\n", b"{}"]
    ),
    max_size=12,
)


@examples(200)
@given(
    PIECES,
    st.sampled_from([[EVENTS], [JSON], [(b"content-type", b"audio/mp3")], []]),
    st.booleans(),
    st.sampled_from([True, False]),
)
async def test_what_is_sent_before_and_after_the_seal(
    chunks: list[bytes], headers: Headers, counted: bool, stores: bool
) -> None:
    body = b"".join(chunks)
    if counted:
        headers = [*headers, (b"Content-Length", b"%d" % len(body))]
    answer, client = Answer(chunks, headers), Client()
    answer.response.bodyless = counted and not body
    record = tape()
    before: list[bytes] = []

    async def seal(ending: Ending) -> bool:
        assert answer.closed == 1
        assert record.body == body
        assert not client.ended
        before.append(client.body if client.messages else b"")
        return stores

    ending = await relayed(answer, client, tape=record, seal=seal)
    (sent,) = before
    assert body.startswith(sent)
    assert ending.stored is stores
    assert client.ended == stores
    assert (client.body if client.messages else b"") == (body if stores else sent)
    if counted and body:
        assert len(sent) < len(body)
    if EVENTS in headers:
        assert b"\ndata: [DONE]" not in sent
        assert not sent.startswith(b"data: [DONE]")
    parser = EventParser()
    if EVENTS in headers and body:
        spans = parser.feed(body)
        last = parser.finish()
        assert list(record.event_offsets) == [start for start, _ in [*spans, *([last] if last else [])]]
        assert len(record.event_times) == len(record.event_offsets)
    assert list(record.chunk_offsets) == [len(b"".join(chunks[:i])) for i in range(len(chunks))]


async def test_heads() -> None:
    headers = [(b"Date", b"1"), (b"date", b"2"), (b"Connection", b"close"), (b"X-B", b"3")]
    client = Client()
    await relayed(Answer([b"x"], headers), client, head=[(b"x-mneme-status", b"ok")])
    assert client.messages[0] == {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"Date", b"1"), (b"date", b"2"), (b"X-B", b"3"), (b"x-mneme-status", b"ok")],
    }


async def test_a_length_beside_another_framing_does_not_count() -> None:
    headers = [JSON, (b"content-length", b"100"), (b"transfer-encoding", b"chunked")]
    client = Client()
    await relayed(Answer([b"{}"], headers), client)
    assert client.messages[0]["headers"] == [JSON]
    assert [message["body"] for message in client.messages[1:]] == [b"{", b"}"]


@each_of("kind", [b"application/x-ndjson", b"application/jsonl", b"audio/mpeg", b"text/plain"])
async def test_only_json_has_a_last_byte_worth_waiting_for(kind: bytes) -> None:
    client = Client()

    async def refuse(_: Ending) -> bool:
        return False

    await relayed(Answer([b"{}\n", b"{}\n"], [(b"content-type", kind)]), client, seal=refuse)
    assert client.body == b"{}\n{}\n"
    assert not client.ended


async def test_without_a_seal_nothing_waits() -> None:
    client = Client()
    answer = Answer([b"data: [DONE]\n\n", b"more"], [EVENTS])
    ending = await relayed(answer, client, tape=None, seal=None)
    assert [message["body"] for message in client.messages[1:]] == [b"data: [DONE]\n\n", b"more", b""]
    assert ending == Ending("complete", None, None, True)
    assert answer.closed == 1


async def test_without_a_body_nothing_is_sent_before_the_seal() -> None:
    client = Client()

    async def refuse(_: Ending) -> bool:
        assert client.messages == []
        return False

    ending = await relayed(Answer([], [(b"content-length", b"0")]), client, seal=refuse)
    assert client.messages == []
    assert ending == Ending("complete", None, False, False)


# --- other endings ----------------------------------------------------------------------------------------------------


async def test_a_break_is_relayed_as_one() -> None:
    broke = UpstreamBroke("cut")
    client, sealed = Client(), []

    async def seal(ending: Ending) -> bool:
        sealed.append(ending)
        return True

    answer = Answer([b"data: a\n\ndata: [DONE]", broke], [EVENTS])
    ending = await relayed(answer, client, seal=seal)
    assert sealed == [Ending("broken", broke, None, True)]
    assert ending == Ending("broken", broke, True, True)
    assert client.body == b"data: a\n\ndata: [DONE]"
    assert not client.ended
    assert answer.closed == 1


@each_of("error", [OSError("gone"), ClientDisconnect()])
async def test_a_client_that_cannot_be_written_to_is_gone(error: BaseException) -> None:
    client, gone = Client(error), DisconnectEvent()
    answer = Answer([b"x", forever], [])
    ending = await relayed(answer, client, gone=gone)
    assert ending == Ending("gone", None, True, False)
    assert gone.is_set
    assert answer.closed == 1


async def test_a_client_that_is_gone_already_is_sent_nothing() -> None:
    client, gone = Client(), DisconnectEvent()
    gone.set()
    answer = Answer([b"x"], [])
    assert (await relayed(answer, client, gone=gone)).kind == "gone"
    assert client.messages == []
    assert answer.closed == 1


async def test_an_upstream_that_breaks_because_the_client_went_is_no_break() -> None:
    gone = DisconnectEvent()

    async def swallow() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise UpstreamBroke from None

    async with asyncio.TaskGroup() as group:
        task = group.create_task(relayed(Answer([b"x", swallow], []), Client(), gone=gone))
        await asyncio.sleep(0)
        gone.set()
    assert task.result().kind == "gone"


async def test_a_cancelled_relay_is_sealed_and_stays_cancelled() -> None:
    sealed: list[Ending] = []
    begun = asyncio.Event()

    async def seal(ending: Ending) -> bool:
        begun.set()
        await asyncio.sleep(0.01)
        sealed.append(ending)
        return True

    client, answer = Client(), Answer([b"x", forever], [])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(relayed(answer, client, seal=seal))
        await eventually(lambda: len(client.messages) == 2)
        task.cancel()
        await begun.wait()
        task.cancel()  # impatient
    assert task.cancelled()
    assert [ending.kind for ending in sealed] == ["cancelled"]
    assert not client.ended
    assert answer.closed == 1


async def test_a_cancellation_during_the_seal_waits_for_it_and_the_answer_ends() -> None:
    begun = asyncio.Event()

    async def seal(_: Ending) -> bool:
        begun.set()
        await asyncio.sleep(0.01)
        return True

    client = Client()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(relayed(Answer([b"x"], [JSON]), client, seal=seal))
        await begun.wait()
        task.cancel()
    assert task.cancelled()
    assert client.body == b"x"
    assert client.ended


async def test_a_seal_that_raises_leaves_the_answer_without_its_end() -> None:
    async def seal(_: Ending) -> bool:
        raise StoreUnavailable

    client = Client()
    with pytest.raises(StoreUnavailable):
        await relayed(Answer([b"{}"], [JSON]), client, seal=seal)
    assert client.body == b"{"
    assert not client.ended


async def test_an_upstream_that_lingers_after_done() -> None:
    client = Client()
    answer = Answer([b"data: [DONE]\n\n", forever], [EVENTS])
    ending = await relayed(answer, client)
    assert ending.kind == "complete"
    assert client.body == b"data: [DONE]\n\n"
    assert client.ended
    assert answer.closed == 1


# --- the tape ---------------------------------------------------------------------------------------------------------


def test_the_tape_knows_when_everything_was_here() -> None:
    now = iter([5_000, 7_999, 9_000, 20_000])
    record = Tape(1_000, now_ns=lambda: next(now))
    record.listen_for_events()
    record.add(b"data: a\n\ndata: b\n\nda")
    record.add(b"ta: ")
    record.add(b"c\n\n")
    record.add(b": x")
    record.finish()
    assert record.body == b"data: a\n\ndata: b\n\ndata: c\n\n: x"
    assert list(record.chunk_offsets) == [0, 20, 24, 27]
    assert list(record.chunk_times) == [4, 6, 8, 19]
    assert list(record.event_offsets) == [0, 9, 18, 27]
    assert list(record.event_times) == [4, 4, 8, 19]


def test_a_tape_with_a_limit() -> None:
    record = Tape(0, limit=5, now_ns=lambda: 0)
    record.add(b"abc")
    record.add(b"de")
    assert not record.truncated
    record.add(b"f")
    record.add(b"")
    record.finish()
    assert (record.body, record.size, record.truncated) == (b"abcde", 6, True)
    assert list(record.chunk_offsets) == [0, 3]


# --- small bodies -----------------------------------------------------------------------------------------------------


@each_of(
    ("chunks", "limit", "body"),
    [
        ([b"ab", b"c"], 10, b"abc"),
        ([b"ab", b"cd", forever], 3, b"abc"),
        ([b"ab", UpstreamBroke()], 10, b"ab"),
        ([], 10, b""),
    ],
)
async def test_collect(chunks: list[Any], limit: int, body: bytes) -> None:
    answer = Answer(chunks, [])
    assert await collect(answer.response, limit) == body
    assert answer.closed == 1


@each_of(
    ("chunks", "limit", "seen"),
    [([b"ab", b"c"], 10, b"abc"), ([b"ab", b"cd", b"ef"], 3, b"abcd"), ([b"ab"], 2, b"ab"), ([], 1, b"")],
)
async def test_peek_leaves_the_body_whole(chunks: list[Any], limit: int, seen: bytes) -> None:
    answer = Answer(chunks, [JSON])
    beginning, response = await peek(answer.response, limit)
    assert beginning == seen
    assert (response.status, response.headers) == (200, [JSON])
    assert [chunk async for chunk in response.chunks] == chunks
    await response.aclose()
    assert answer.closed == 1


async def test_a_break_in_what_was_peeked_at_comes_in_its_place() -> None:
    beginning, response = await peek(Answer([b"ab", UpstreamBroke("cut")], []).response, 10)
    assert beginning == b"ab"
    chunks = aiter(response.chunks)
    assert await anext(chunks) == b"ab"
    with pytest.raises(UpstreamError, match="cut"):
        await anext(chunks)
